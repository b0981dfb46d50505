"""Files of records: both kinds take the same bytes and tell the same faults."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from commands import convert, tar2tf
from shards import samples, tree, write_tar
from tar2tf_cli import convert as run
from tar2tf_cli.errors import SinkError
from tar2tf_cli.formats import files
from tar2tf_cli.formats.checksums import crc32c
from tar2tf_cli.formats.files import DirectFile, RecordFile, WholeFile, shard_file, write_all, write_whole
from tar2tf_cli.spec.conversion import Conversion, Input, Output

pytestmark = pytest.mark.on_disk

needs_direct = pytest.mark.skipif(not hasattr(os, "O_DIRECT"), reason="there is no O_DIRECT on this system")
KINDS = [RecordFile, pytest.param(DirectFile, marks=needs_direct)]
PAGE = os.sysconf("SC_PAGESIZE")
BLOCK = DirectFile.BLOCK


def written(kind: type[RecordFile], path: Path, parts: list[bytes]) -> RecordFile:
    with kind(str(path)) as file:
        for part in parts:
            file.write([part], len(part))
    return file


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "sizes",
    [
        [],
        [0],
        [1],
        [PAGE],
        [PAGE - 1, 2],
        [BLOCK],
        [BLOCK - 1, 1, 1],
        [BLOCK, BLOCK, PAGE + 1],
        [3 * BLOCK + 5],
        [7] * 5000,
        [600, 0, 70_000] * 150,
    ],
    ids=lambda sizes: f"{len(sizes)} parts of {sum(sizes)} bytes",
)
def test_the_bytes_are_those_that_were_written(kind: type[RecordFile], sizes: list[int], tmp_path: Path) -> None:
    noise = random.Random(len(sizes))
    parts = [noise.randbytes(size) for size in sizes]
    file = written(kind, tmp_path / "f", parts)
    data = b"".join(parts)
    assert (tmp_path / "f").read_bytes() == data
    assert (file.size, file.crc) == (len(data), crc32c(data))


@needs_direct
def test_large_shards_go_past_the_page_cache(tmp_path: Path) -> None:
    with shard_file(str(tmp_path / "large"), 100_000_000) as large, shard_file(str(tmp_path / "small"), 1000) as small:
        assert isinstance(large, DirectFile)
        assert type(small) is RecordFile


@needs_direct
def test_whole_blocks_are_written_directly_and_the_rest_is_not(tmp_path: Path, monkeypatch: Any) -> None:
    seen = []
    write = os.write

    def noting(descriptor: int, data: Any) -> int:
        seen.append((bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT), len(data)))
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", noting)
    written(DirectFile, tmp_path / "f", [bytes(BLOCK + PAGE + 1)])
    assert seen == [(True, BLOCK), (True, PAGE), (False, 1)]


@needs_direct
def test_a_file_system_that_refuses_gets_the_same_bytes(tmp_path: Path, monkeypatch: Any) -> None:
    write = os.write

    def refusing(descriptor: int, data: Any) -> int:
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", refusing)
    data = random.Random(1).randbytes(2 * BLOCK + 77)
    written(DirectFile, tmp_path / "f", [data])
    assert (tmp_path / "f").read_bytes() == data


@needs_direct
def test_a_write_that_takes_less_goes_on_behind_it(tmp_path: Path, monkeypatch: Any) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[: max(len(data) // 3, 1)]))
    data = random.Random(1).randbytes(2 * BLOCK + 77)
    written(DirectFile, tmp_path / "f", [data])
    assert (tmp_path / "f").read_bytes() == data


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, BLOCK, 5 * BLOCK + 1], ids=["at the end", "a block", "many blocks"])
def test_a_full_disk_is_an_error_and_leaves_no_thread(kind: type[RecordFile], size: int) -> None:
    before = threading.active_count()
    with pytest.raises(SinkError, match="No space left") as caught:
        written(kind, Path("/dev/full"), [bytes(size)])
    assert caught.value.shard == "/dev/full"
    assert threading.active_count() == before


@pytest.mark.parametrize("kind", KINDS)
def test_what_fails_meanwhile_closes_the_file(kind: type[RecordFile], tmp_path: Path) -> None:
    before = os.listdir("/dev/fd"), threading.active_count()
    file = kind(str(tmp_path / "f"))
    file.write([bytes(3 * BLOCK)], 3 * BLOCK)
    file.__exit__(RuntimeError, RuntimeError("meanwhile"), None)
    assert (os.listdir("/dev/fd"), threading.active_count()) == before


@pytest.fixture(scope="module")
def tars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tars")
    for number in range(3):
        write_tar(folder / f"{number}.tar", samples(60, 500_000, first=60 * number))
    return folder


@needs_direct
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("on_error", ["fail", "skip"], ids=["from tars", "from spools"])
def test_conversions_give_the_same_bytes_either_way(
    tars: Path, tmp_path: Path, workers: int, on_error: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []
    of_size = files.DirectFile
    monkeypatch.setattr(files, "DirectFile", lambda path: opened.append(1) or of_size(path))
    trees = []
    for name, flag in (("direct", os.O_DIRECT), ("plain", 0)):
        monkeypatch.setattr(files, "O_DIRECT", flag)
        output = Output(str(tmp_path / name / "t-<>.record"), max_shard_size=25_000_000)
        run(Conversion(Input(str(tars)), output, on_error=on_error), workers=workers)
        trees.append(tree(tmp_path / name))
    assert trees[0] == trees[1]
    assert sorted(len(data) > 20_000_000 for data in trees[0].values()) == [False, False, True, True, True]
    if workers == 1:  # otherwise forked workers open most of them
        assert len(opened) == 4


@needs_direct
def test_a_limit_on_file_size_is_told_and_the_same_command_continues(tars: Path, tmp_path: Path) -> None:
    command = ["convert", tars, "-o", tmp_path / "out/t-<>.record", "--max-shard-size", "25MB"]

    failed = tar2tf(*command, file_size=9_000_000)
    assert failed.returncode == 3
    assert failed.stderr.count("error:") == 1
    assert os.strerror(errno.EFBIG) in failed.stderr
    assert not list((tmp_path / "out").glob("*.record"))
    convert(*command[1:])
    assert tar2tf("verify", tmp_path / "out/_t-manifest.json").returncode == 0


def test_a_whole_file_appears_when_it_is_closed_and_replaces_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"before")
    with WholeFile(str(path)) as file:
        file.write([b"a", b"fter"], 5)
        file.flush()
        assert path.read_bytes() == b"before"
    assert [found.name for found in tmp_path.iterdir()] == ["f"]
    assert path.read_bytes() == b"after"


def test_nothing_is_left_of_a_whole_file_that_is_abandoned(tmp_path: Path) -> None:
    file = WholeFile(str(tmp_path / "f"))
    file.write([b"half"], 4)
    file.__exit__(RuntimeError, RuntimeError("meanwhile"), None)
    assert not list(tmp_path.iterdir())


def test_a_pipe_or_an_open_file_is_written_to_and_never_replaced(tmp_path: Path) -> None:
    inner, outer = os.pipe()
    with open(inner, "rb") as reader, open(outer, "wb") as pipe, open(tmp_path / "f", "wb") as file:
        (tmp_path / "link").symlink_to(f"/dev/fd/{pipe.fileno()}")
        write_whole(str(tmp_path / "link"), [b"pi", b"pe"])
        write_whole(f"/dev/fd/{file.fileno()}", [b"file"])
        assert reader.read(4) == b"pipe"
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "f").read_bytes() == b"file"


@pytest.mark.parametrize("call", ["writev", "fsync", "replace"])
def test_a_whole_file_that_cannot_be_written_is_an_error_that_names_it(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, full)
    with pytest.raises(SinkError, match="cannot be written: No space left") as caught:
        write_whole(str(tmp_path / "f"), [b"data"])
    assert caught.value.shard == str(tmp_path / "f")
    assert not list(tmp_path.iterdir())


def test_what_is_taken_in_parts_is_written_whole() -> None:
    taken: list[bytes] = []

    def write(data: bytes) -> int:
        taken.append(data[:3])
        return len(taken[-1])

    write_all(write, b"0123456789")
    assert taken == [b"012", b"345", b"678", b"9"]
    with pytest.raises(BlockingIOError):
        write_all(lambda data: 0, b"x")
