"""Shards that are written while they fill up."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from shards import samples, tree, write_tar
from tar2tf_cli.conversion import write_shard
from tar2tf_cli.conversion.run import convert
from tar2tf_cli.conversion.sharding import Piece, PlannedShard
from tar2tf_cli.conversion.write_shard import WriteShard
from tar2tf_cli.errors import SinkError, WorkerError
from tar2tf_cli.formats.files import RecordFile
from tar2tf_cli.spec.conversion import Conversion, Output

EACH = 70 * 300


@pytest.fixture(autouse=True)
def worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_shard, "MIN_EARLY_BYTES", EACH)


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[PlannedShard]:
    """The shards that tasks write, and not the conversion while they fill up."""
    shards: list[PlannedShard] = []

    def written(self: WriteShard, *arguments: object) -> object:
        shards.append(self.shard)
        return run(self, *arguments)  # type: ignore[arg-type]

    run = WriteShard.run
    monkeypatch.setattr(WriteShard, "run", written)
    return shards


def converted(bucket: Path, out: Path, *, workers: int = 1, **limits: int) -> dict[str, bytes]:
    convert(Conversion(str(bucket), Output(str(out / "x-<>.record"), **limits)), workers=workers)
    return tree(out)


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    for number in range(6):
        write_tar(tmp_path / "in" / f"{number}.tar", samples(70, first=70 * number))
    return tmp_path / "in"


@pytest.mark.parametrize(
    "limits", [{}, {"max_shard_size": 40_000}, {"records_per_shard": 130}, {"num_shards": 2}, {"max_shard_size": 7000}]
)
@pytest.mark.parametrize("workers", [1, 2])
def test_the_bytes_are_those_of_shards_that_are_written_at_last(
    limits: dict[str, int], workers: int, bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = converted(bucket, tmp_path / "a", workers=workers, **limits)
    monkeypatch.setattr(write_shard, "MIN_EARLY_BYTES", 1 << 40)
    assert found == converted(bucket, tmp_path / "b", workers=workers, **limits)


def test_the_only_shard_is_written_while_inputs_are_read(
    bucket: Path, tmp_path: Path, left: list[PlannedShard]
) -> None:
    converted(bucket, tmp_path / "out")
    assert not left


def test_a_shard_that_is_not_spooled_to_its_end_is_left_to_a_task(
    bucket: Path, tmp_path: Path, left: list[PlannedShard]
) -> None:
    write_tar(bucket / "7.tar", samples(30, 12_000, first=1000))
    found = converted(bucket, tmp_path / "out")
    assert len(left) == 1
    assert found["x-1.record"].count(b"__key__") == 450


def test_a_full_disk_ends_the_conversion_and_the_same_one_continues(
    bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: RecordFile, parts: Sequence[bytes], size: int) -> None:
        if "shard--" in file.path:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        hand_over(file, parts, size)

    hand_over = RecordFile.hand_over
    with monkeypatch.context() as patch:
        patch.setattr(RecordFile, "hand_over", full)
        with pytest.raises(SinkError, match="No space left"):
            converted(bucket, tmp_path / "out")
    assert converted(bucket, tmp_path / "out") == converted(bucket, tmp_path / "other")


def test_what_cannot_be_read_back_ends_the_conversion(
    bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(write_shard, "from_spool", broken)
    with pytest.raises(WorkerError, match=r"OSError: .*Input/output error"):
        converted(bucket, tmp_path / "out")


def test_a_shard_of_which_something_is_there_is_left_to_a_task(tmp_path: Path) -> None:
    shard = PlannedShard("", 0, [Piece(0, 0, 1, 0, EACH, spooled=True)], EACH, 1)
    assert write_shard.EagerShardWriter.is_suitable(shard, str(tmp_path))
    Path(shard.part(str(tmp_path))).touch()
    assert not write_shard.EagerShardWriter.is_suitable(shard, str(tmp_path))


def test_a_conversion_that_fails_stops_writing(bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (bucket / "5.tar").write_bytes(b"damage")
    run, threads = write_shard.EagerShardWriter.run, list[threading.Thread]()

    def noted(self: write_shard.EagerShardWriter) -> None:
        threads.append(threading.current_thread())
        run(self)

    monkeypatch.setattr(write_shard.EagerShardWriter, "run", noted)
    with pytest.raises(Exception, match="not a tar"):
        converted(bucket, tmp_path / "out")
    assert [thread.is_alive() for thread in threads] == [False]
