"""What shards are copied from: spools that are cut short, were written again differently, or are very many."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tar2tf_cli.conversion import tasks
from tar2tf_cli.conversion.sharding import Piece, ShardReport
from tar2tf_cli.conversion.tasks import Group
from tar2tf_cli.errors import SourceError
from tar2tf_cli.formats.checksums import crc32c


@pytest.fixture
def worker(tmp_path: Path) -> Any:
    """What a task knows of its conversion, as far as it is about spools."""

    def path(number: int, kind: str) -> str:
        return str(tmp_path / f"input-{number}.{kind}")

    source = SimpleNamespace(locate=lambda name: f"in/{name}")
    return SimpleNamespace(path=path, new_path=path, source=source, inputs=[SimpleNamespace(name="0.tar")])


def test_a_spool_that_is_shorter_than_its_index_says_is_an_error(worker: Any) -> None:
    Path(worker.path(0, "spool")).write_bytes(bytes(99))
    piece = Piece(0, 0, 1, 0, 100, True)
    descriptor = os.open(worker.path(0, "spool"), os.O_RDONLY)
    try:
        for read in (lambda: [*tasks.from_spool(descriptor, piece)], lambda: tasks.record_at(descriptor, 50, 50)):
            with pytest.raises(SourceError, match="cut short") as caught:
                read()
            assert caught.value.hint == "run the same command again"
    finally:
        os.close(descriptor)


def test_spools_are_closed_again_when_there_are_many(worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "MOST_OPEN", 3)
    monkeypatch.setattr(tasks, "open_spool", lambda worker, group: os.open(os.devnull, os.O_RDONLY))
    before = set(os.listdir("/proc/self/fd"))
    with tasks._Spools(worker) as spools:
        for group in (0, 1, 2, 0, 3, 4, 4, 0):
            os.fstat(spools[group])
            assert len(set(os.listdir("/proc/self/fd")) - before) <= 4  # one of them is that of the folder
    assert len(set(os.listdir("/proc/self/fd")) - before) <= 1


@pytest.mark.parametrize("found", [None, SimpleNamespace(numbers=(0,), spool_crc=7)])
def test_a_spool_that_is_written_again_must_be_the_one_that_was_there(
    worker: Any, found: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def written(worker: Any, numbers: tuple[int, ...]) -> Any:
        Path(worker.path(numbers[0], "spool")).write_bytes(b"again")
        return SimpleNamespace(error=None, spool_crc=8)

    monkeypatch.setattr(tasks, "load_group", lambda path: found)
    monkeypatch.setattr(tasks, "spooled", written)
    with pytest.raises(SourceError, match=r"in/0\.tar: changed"):
        tasks.open_spool(worker, 0)
    Path(worker.path(0, "spool")).unlink()
    monkeypatch.setattr(tasks, "load_group", lambda path: SimpleNamespace(numbers=(0,), spool_crc=8))
    os.close(tasks.open_spool(worker, 0))


@pytest.mark.parametrize("scratch", ["", "apart"])
def test_a_spool_that_becomes_a_shard_stays_where_another_attempt_may_need_it(
    worker: Any, scratch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "load_group", lambda path: SimpleNamespace(spool_crc=7))
    worker.scratch = scratch
    spool, part = Path(worker.path(0, "spool")), tmp_path / "part"
    shard: Any = SimpleNamespace(pieces=[Piece(0, 0, 1, 0, 5, True)], records=1)
    spool.write_bytes(b"more than five")
    assert tasks.WriteShard(shard)._taken_over(worker, str(part)) is None
    spool.write_bytes(b"bytes")
    assert tasks.WriteShard(shard)._taken_over(worker, str(part)) == ShardReport(5, 1, 7)
    assert part.read_bytes() == b"bytes"
    assert spool.exists() == bool(scratch)


@pytest.mark.parametrize(
    ("numbers", "spool", "kept"), [((0, 1), b"bytes", True), ((0, 1, 2), b"bytes", False), ((0, 1), b"bytez", False)]
)
def test_what_is_left_of_other_inputs_or_damaged_is_read_again(
    worker: Any, numbers: tuple[int, ...], spool: bytes, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, again = Group(numbers, spool_crc=crc32c(b"bytes")), Group((0, 1))
    Path(worker.path(0, "spool")).write_bytes(spool)
    monkeypatch.setattr(tasks, "load_group", lambda path: left)
    monkeypatch.setattr(tasks, "measured", lambda worker, numbers: again)
    assert tasks.ReadInputs((0, 1))._made(worker) is (left if kept else again)
