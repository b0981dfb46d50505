"""`tar2tf verify` of records that are no tf.train.Examples: framing and CRCs decide, unless examples are required."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import tensorflow as tf

from verify_runs import SEVERAL, Ran, check, flipped, framed, in_a_process, kinds, some_examples, write

OTHERS = [b"\x08\x96\x01\x12\x05hello%d" % number for number in range(5)]
"""Messages of another proto."""


def test_other_messages_are_intact_and_said_in_one_line(tmp_path: Path, run: Callable[..., Ran]) -> None:
    for name in ("a.record", "b.record"):
        write(tmp_path / name, framed(*OTHERS))
    ran = run(tmp_path, *SEVERAL)
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.splitlines() == [
        "note: 10 records without a tf.train.Example: framing and CRCs were checked, not contents",
        "OK: 2 files, 10 records, 270 bytes",
    ]


@pytest.mark.parametrize("decode", [False, True])
def test_a_flipped_bit_is_their_only_fault_and_the_others_are_salvaged(tmp_path: Path, decode: bool) -> None:
    parts = [framed(record) for record in OTHERS]
    path = write(tmp_path / "a.record", b"".join([*parts[:2], flipped(parts[2], 14), *parts[3:]]))
    found = check(path, salvage=tmp_path / "good.record", decode=decode)
    assert (kinds(found), found.faults[0].record, found.others) == (["data_crc"], 2, 4)
    saved = [record.numpy() for record in tf.data.TFRecordDataset(str(tmp_path / "good.record"))]
    assert saved == [*OTHERS[:2], *OTHERS[3:]]


@pytest.mark.parametrize("place", [0, 1, 3])
def test_one_among_examples_is_a_fault_wherever_it_is(tmp_path: Path, place: int) -> None:
    examples = some_examples(3)
    path = write(tmp_path / "a.record", framed(*examples[:place], OTHERS[0], *examples[place:]))
    found = check(path, salvage=tmp_path / "good.record")
    assert [(fault.kind, fault.record) for fault in found.faults] == [("not_an_example", place)]
    assert (tmp_path / "good.record").read_bytes() == framed(*examples)
    assert not check(path, messages="any").faults


def test_one_among_examples_is_a_fault_on_standard_input() -> None:
    done = in_a_process("verify", "-", stdin=framed(OTHERS[0], *some_examples(3)))
    assert (done.code, "1 of the records are not tf.train.Examples, but others are" in done.out) == (1, True)


def test_examples_can_be_required(tmp_path: Path, run: Callable[..., Ran]) -> None:
    path = write(tmp_path / "a.record", framed(*OTHERS))
    assert kinds(check(path, messages="example")) == ["not_an_example"] * 5
    assert run(path, "--messages", "example").code == 1
    assert "--messages must be 'example' or 'any'" in run(path, "--messages", "none").err


def test_messages_without_any_field_decide_nothing(tmp_path: Path) -> None:
    empty = [b"", b"\n\x00\x12\x00"]
    assert not check(write(tmp_path / "a.record", framed(*empty, *OTHERS))).faults
    assert not check(write(tmp_path / "b.record", framed(*empty, *some_examples(2)))).faults


def test_an_empty_file_is_a_fault_unless_it_is_allowed(tmp_path: Path, run: Callable[..., Ran]) -> None:
    path = write(tmp_path / "a.record", b"")
    assert kinds(check(path)) == ["empty"]
    found = check(path, allow_empty=True)
    assert (found.faults, found.format, found.records) == ([], "tfrecord", 0)
    assert run(path, "--allow-empty").err == "OK: 1 file, 0 records, 0 bytes\n"


def test_what_is_salvaged_says_that_undamaged_files_are_copied(tmp_path: Path, run: Callable[..., Ran]) -> None:
    write(tmp_path / "in" / "a.record", framed(*some_examples(3)))
    write(tmp_path / "in" / "b.record", framed(*some_examples(3))[:-2])
    ran = run(tmp_path / "in", "--salvage", tmp_path / "good.record")
    assert "salvaged 5 records" in ran.err
    assert "with all of 1 undamaged file; lost 1 record" in ran.err
