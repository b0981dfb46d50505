"""Spools that shards are copied from: cut short, written again differently, or very many."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tar2tf_cli import Conversion, Input, Output
from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.conversion import read_inputs, write_shard
from tar2tf_cli.conversion.sharding import Piece, PlannedShard, ShardReport
from tar2tf_cli.conversion.worker import InputGroup, TaskInputs, Worker
from tar2tf_cli.errors import SourceError
from tar2tf_cli.formats.checksums import crc32c
from tar2tf_cli.stores import open_source


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    """The context of tasks whose spools lie in the folder."""
    conversion = Conversion(Input(str(tmp_path)), Output(str(tmp_path / "x.record")))
    inputs = TaskInputs(conversion, open_source(str(tmp_path)), [ObjectInfo("0.tar", 100, "1")])
    return Worker(inputs, str(tmp_path))


def test_a_spool_that_is_shorter_than_its_index_says_is_an_error(worker: Worker) -> None:
    Path(worker.path(0, "spool")).write_bytes(bytes(99))
    piece = Piece(0, 0, 1, 0, 100, True)
    descriptor = os.open(worker.path(0, "spool"), os.O_RDONLY)
    try:
        for read in (
            lambda: [*write_shard.from_spool(descriptor, piece)],
            lambda: write_shard.record_at(descriptor, 50, 50),
        ):
            with pytest.raises(SourceError, match="cut short") as caught:
                read()
            assert caught.value.hint == "run the same command again"
    finally:
        os.close(descriptor)


def test_spools_are_closed_again_when_there_are_many(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_shard, "MOST_OPEN", 3)
    monkeypatch.setattr(write_shard, "open_spool", lambda worker, group: os.open(os.devnull, os.O_RDONLY))
    before = set(os.listdir("/proc/self/fd"))
    with write_shard.OpenSpools(worker) as spools:
        for group in (0, 1, 2, 0, 3, 4, 4, 0):
            os.fstat(spools[group])
            assert len(set(os.listdir("/proc/self/fd")) - before) <= 4  # one of them is that of the folder
    assert len(set(os.listdir("/proc/self/fd")) - before) <= 1


@pytest.mark.parametrize("found", [None, InputGroup((0,), spool_crc=7)])
def test_a_spool_that_is_written_again_must_be_the_one_that_was_there(
    worker: Worker, found: InputGroup | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def written(worker: Worker, numbers: tuple[int, ...]) -> InputGroup:
        Path(worker.path(numbers[0], "spool")).write_bytes(b"again")
        return InputGroup(numbers, spool_crc=8)

    monkeypatch.setattr(write_shard, "load_group", lambda path: found)
    monkeypatch.setattr(write_shard, "spool_inputs", written)
    with pytest.raises(SourceError, match=r"0\.tar: changed"):
        write_shard.open_spool(worker, 0)
    Path(worker.path(0, "spool")).unlink()
    monkeypatch.setattr(write_shard, "load_group", lambda path: InputGroup((0,), spool_crc=8))
    os.close(write_shard.open_spool(worker, 0))


@pytest.mark.parametrize("scratch", ["", "apart"])
def test_a_spool_that_becomes_a_shard_stays_where_another_attempt_may_need_it(
    worker: Worker, scratch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_shard, "load_group", lambda path: InputGroup((0,), spool_crc=7))
    worker.scratch = str(tmp_path / scratch) if scratch else ""
    os.makedirs(tmp_path / scratch, exist_ok=True)
    shard = PlannedShard("", 0, [Piece(0, 0, 1, 0, 5, True)], 5, 1)
    spool, part = Path(worker.path(0, "spool")), Path(shard.part(worker.scratch or worker.folder))
    spool.write_bytes(b"bytes and more")
    assert write_shard.WriteShard(shard).run(worker) == ShardReport(5, 1, crc32c(b"bytes"))
    assert spool.exists()
    part.unlink()
    spool.write_bytes(b"bytes")
    assert write_shard.WriteShard(shard).run(worker) == ShardReport(5, 1, 7)  # with the CRC of the spool
    assert part.read_bytes() == b"bytes"
    assert spool.exists() == bool(scratch)


@pytest.mark.parametrize(
    ("numbers", "spool", "kept"), [((0, 1), b"bytes", True), ((0, 1, 2), b"bytes", False), ((0, 1), b"bytez", False)]
)
def test_what_is_left_of_other_inputs_or_damaged_is_read_again(
    worker: Worker, numbers: tuple[int, ...], spool: bytes, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, again = InputGroup(numbers, spool_crc=crc32c(b"bytes")), InputGroup((0, 1))
    Path(worker.path(0, "spool")).write_bytes(spool)
    monkeypatch.setattr(read_inputs, "load_group", lambda path: left)
    monkeypatch.setattr(read_inputs, "measure_inputs", lambda worker, numbers: again)
    assert read_inputs.ReadInputs((0, 1)).run(worker) is (left if kept else again)
