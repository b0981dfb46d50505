"""What the pages for newcomers from other tools print can be run as it is, on the data of the recipes."""

from __future__ import annotations

import builtins
import re
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from webdataset.tariterators import group_by_keys, tar_file_expander

import tar2tf_cli
from tar2tf_cli import AisDataset, Conversion, Dataset, Input, Output, Tar2tfError, convert, ops, pipeline, recorder
from tar2tf_cli.cli import all_commands

pytestmark = pytest.mark.xdist_group("pages")

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(path.name for path in (DOCS / "migrating").glob("*.md"))
ELSEWHERE = {"builder_from_directory", "as_dataset"}
"""Calls of other packages that the pages name as the new ones."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", ["../index.md", *(page for page in PAGES if page != "index.md")])
def test_what_the_page_shows_runs(page: str, data: Path, run_page: Callable[..., Path]) -> None:
    run_page(f"migrating/{page}")


def new_calls(page: str) -> list[str]:
    """The code in the second column of a page's tables."""
    text = (DOCS / "migrating" / page).read_text(encoding="utf-8")
    rows = [line.split("|")[2] for line in text.splitlines() if line.startswith("| ") and line.count("|") == 3]
    return [code for row in rows for code in re.findall(r"`([^`]+)`", row)]


@pytest.mark.parametrize("page", [page for page in PAGES if page != "index.md"])
def test_the_new_calls_of_a_page_exist(page: str) -> None:
    import tensorflow as tf

    options = {flag for command in all_commands().values() for param in command.params for flag in param.opts}
    places = [tar2tf_cli, ops, pipeline, recorder, pipeline.Pipeline, pipeline.TFExample, pipeline.TFRecordReader]
    places += [pipeline.TFRecordWriter, recorder.Example, Dataset, AisDataset, builtins, tf.data.Dataset]
    calls = new_calls(page)
    assert len(calls) > 5
    for code in calls:
        assert set(re.findall(r"(?<![\w-])--[a-z-]+", code)) <= options, code
        for name in re.findall(r"(?<![\w.])\.?([A-Za-z_]\w*)\(", code):
            assert name in ELSEWHERE or any(hasattr(place, name) for place in places), code


def test_there_is_a_page_for_each_system() -> None:
    text = (Path(__file__).parents[2] / "docs" / "migrating" / "index.md").read_text(encoding="utf-8")
    assert all(f"({page})" in text for page in PAGES if page != "index.md")


def test_webdataset_gives_fewer_samples_of_a_tar_that_is_cut_between_members(data: Path) -> None:
    shard = data / "shards" / "train-0000.tar"
    with tarfile.open(shard) as tar:
        offset = tar.getmembers()[len(tar.getmembers()) // 2].offset
    cut = data / "cut.tar"
    cut.write_bytes(shard.read_bytes()[:offset])
    with cut.open("rb") as stream:  # WebDataset itself leaves this to the garbage collector
        assert 0 < len(list(group_by_keys(tar_file_expander([{"url": str(cut), "stream": stream}])))) < 60
    with pytest.raises(Tar2tfError, match=f"^{cut}, sample 000029, offset {offset}: "):
        convert(Conversion(Input(str(cut)), Output(str(data / "cut.record"))), workers=1)
    assert not (data / "cut.record").exists()
