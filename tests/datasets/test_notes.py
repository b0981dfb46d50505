"""Notes in Python: each goes to the logger `tar2tf_cli` once, or to the events that were given, never to both."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from commands import python
from shards import samples, write_tar
from tar2tf_cli import Conversion, Dataset, Events, Input, Output, Pipeline, convert

LACKS = "the last sample, 0002, lacks jpg, which all others have"


@pytest.fixture
def tar(tmp_path: Path) -> Path:
    """Three samples, the last of which has no jpg."""
    return write_tar(tmp_path / "half.tar", [*samples(2), ("0002", {"cls": b"1"})])


def own(items: Iterable[Any]) -> Iterable[Any]:
    return items


def in_memory(tar: Path, out: Path) -> None:
    dataset = Dataset(str(tar), conversions=[], selections=["cls"]).load()
    for _ in range(2):
        assert len(list(dataset)) == 3


def to_files(tar: Path, out: Path) -> None:
    Dataset(str(tar), conversions=[], selections=["cls"]).load(path=str(out))


def in_stages(tar: Path, out: Path) -> None:
    Pipeline().from_tar(str(tar)).sample_to_tf_example().to_tf_record(str(out)).do()


def in_own_stages(tar: Path, out: Path) -> None:
    with open(tar, "rb") as file:
        stages = Pipeline().from_tar(io.BytesIO(file.read())).with_samples_stage(own).sample_to_tf_example()
        stages.to_tf_record(str(out)).do()


def by_convert(tar: Path, out: Path) -> None:
    convert(Conversion(Input(str(tar)), Output(str(out))), workers=1)


WAYS: list[Callable[[Path, Path], None]] = [in_memory, to_files, in_stages, in_own_stages, by_convert]


@pytest.mark.parametrize("way", WAYS)
def test_a_note_is_logged_once_as_a_warning(
    way: Callable[[Path, Path], None], tar: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    way(tar, tmp_path / "x.record")
    noted = [record for record in caplog.records if record.name.partition(".")[0] == "tar2tf_cli"]
    assert [(record.levelname, LACKS in record.getMessage()) for record in noted] == [("WARNING", True)]


def test_events_receive_notes_instead(tar: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    noted: list[str] = []

    class Notes(Events):
        def note(self, message: str) -> None:
            noted.append(message)

    convert(Conversion(Input(str(tar)), Output(str(tmp_path / "x.record"))), workers=1, events=Notes())
    assert ([LACKS in note for note in noted], caplog.records) == ([True], [])


def test_a_script_shows_notes_on_standard_error_unless_it_turns_them_off(tar: Path, tmp_path: Path) -> None:
    quiet = "import logging; logging.getLogger('tar2tf_cli').setLevel('ERROR')\n"
    call = "import tar2tf_cli as t; t.convert(t.Conversion({!r}, {!r}), workers=1)\n"
    for place, (before, times) in enumerate((("", 1), (quiet, 0), ("import logging; logging.basicConfig()\n", 1))):
        done = python("-c", before + call.format(str(tar), str(tmp_path / f"{place}.record")))
        assert (done.returncode, done.stdout, done.stderr.count(LACKS)) == (0, "", times), done.stderr
        assert len(done.stderr.splitlines()) == times


def test_a_run_that_continues_is_noted(caplog: pytest.LogCaptureFixture) -> None:
    for shards in (1, 3):
        Events().resumed(shards)
    assert caplog.messages == [
        "continuing an interrupted run: 1 shard already done",
        "continuing an interrupted run: 3 shards already done",
    ]
