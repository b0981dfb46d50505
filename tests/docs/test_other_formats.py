"""The recipes for formats of other loaders write datasets that these loaders read, sample for sample."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shards import samples, write_tar
from tar2tf_cli import open_records

PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"
TITLED = re.compile(r'^```python title="(to_\w+\.py)"\n(.*?)^```$', re.DOTALL | re.MULTILINE)
RECIPES = dict(TITLED.findall(PAGE.read_text(encoding="utf-8")))


def array_record(folder: Path) -> list[Any]:
    data = pytest.importorskip("array_record.python.array_record_data_source")
    source = data.ArrayRecordDataSource([str(folder / "shards.array_record")])
    return [pickle.loads(source[number]) for number in range(len(source))]


def mds(folder: Path) -> list[Any]:
    streaming = pytest.importorskip("streaming")
    return list(streaming.StreamingDataset(local=str(folder / "shards.mds"), shuffle=False, batch_size=1))


def litdata(folder: Path) -> list[Any]:
    module = pytest.importorskip("litdata")
    dataset = module.StreamingDataset(str(folder / "shards.litdata"))
    return [dataset[number] for number in range(len(dataset))]


def lance(folder: Path) -> list[Any]:
    module = pytest.importorskip("lance")
    rows: list[Any] = module.dataset(str(folder / "shards.lance")).to_table().to_pylist()
    return rows


MODULES = {"array_record": array_record, "mds": mds, "litdata": litdata, "lance": lance}
NEEDED = {"mds": "streaming"}


def test_each_recipe_has_its_reader() -> None:
    assert RECIPES.keys() == {f"to_{name}.py" for name in MODULES}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", MODULES)
def test_a_loader_reads_what_its_recipe_writes(tmp_path: Path, name: str) -> None:
    pytest.importorskip(NEEDED.get(name, name))
    for number in range(2):
        write_tar(tmp_path / "shards" / f"train-{number}.tar", samples(10, first=10 * number))
    script = tmp_path / f"to_{name}.py"
    script.write_text(RECIPES[script.name])
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    read: Callable[[Path], list[Any]] = MODULES[name]
    expected = {record["__key__"]: record for record in open_records(tmp_path / "shards")}
    assert {row["__key__"]: dict(row) for row in read(tmp_path)} == expected
