"""Many small inputs: what is done for each must not grow with their number."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from shards import contents, samples, tar2tf, write_tar
from tar2tf_cli import convert
from tar2tf_cli.conversion.plan import Plan
from tar2tf_cli.events import Events
from tar2tf_cli.spec.conversion import Conversion


def test_the_sizes_of_all_inputs_are_not_added_up_for_each_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        write_tar(tmp_path / "in" / f"{number:02}.tar", samples(1, first=number))
    asked: Counter[str] = Counter()
    size = Plan.size.fget

    def counted(plan: Plan) -> int | None:
        asked["size"] += 1
        return size(plan)

    monkeypatch.setattr(Plan, "size", property(counted))
    seen: list[int] = []

    class Progress(Events):
        def progress(self, size: int) -> None:
            seen.append(size)

    summary = convert(Conversion(str(tmp_path / "in"), str(tmp_path / "out.record")), workers=1, events=Progress())
    assert summary.records == 30
    assert len(seen) >= 30
    assert asked["size"] < 5


def test_workers_share_the_cpus_so_that_numpy_and_opencv_start_no_threads_in_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("OPENBLAS_NUM_THREADS", "OPENCV_FOR_THREADS_NUM")
    functions = tmp_path / "functions.py"
    functions.write_text(
        "import os\n"
        "def count(sample):\n"
        f"    sample['cls'] = ' '.join(os.environ.get(name, 'all') for name in {names})\n"
        "    return sample\n"
    )
    for number in range(2):
        write_tar(tmp_path / "in" / f"{number}.tar", samples(1, first=number))
    monkeypatch.delenv(names[0], raising=False)
    monkeypatch.setenv(names[1], "3")
    tar2tf("convert", tmp_path / "in", "-o", tmp_path / "a.record", "--op", f"func:{functions}:count", "-j", "2")
    assert {entries["cls"] for _, entries in contents(tmp_path / "a.record")} == {b"1 3"}
