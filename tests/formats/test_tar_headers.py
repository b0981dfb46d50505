"""Headers of tars that are written: GNU tar, bsdtar, tarfile and our own reader find the names and sizes in them."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tar2tf_cli.formats.tar import BLOCK, END, MTIME, header, header_size, padding
from tar_reading import files

NAMES = [
    b"a.jpg",
    b"x" * 96 + b".cls",
    b"x" * 97 + b".cls",
    b"d" * 155 + b"/" + b"e" * 96 + b".cls",
    b"d" * 156 + b"/a.cls",
    b"/" + b"a" * 100 + b".cls",
    b"deep/" * 60 + b"a.cls",
    "ü".encode() * 49 + b".a",
    "ü".encode() * 90 + b".a",
    "größe/日本.txt".encode(),
]


def archive(names: list[bytes], data: bytes = b"data") -> bytes:
    return b"".join(header(name, len(data)) + data + padding(len(data)) for name in names) + END


def test_tarfile_reads_what_was_written() -> None:
    with tarfile.open(fileobj=io.BytesIO(archive(NAMES))) as tar:
        found = tar.getmembers()
        assert [info.name.encode() for info in found] == NAMES
        for info in found:
            assert (info.mode, info.uid, info.gid, info.mtime, info.size) == (0o644, 0, 0, MTIME, 4)
            assert info.isreg()
            read = tar.extractfile(info)
            assert read is not None
            assert read.read() == b"data"


@pytest.mark.parametrize("program", ["tar", "bsdtar"])
def test_programs_read_what_was_written_without_a_word(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    command = [program, "-t", "-f", "-", *(["--quoting-style=literal"] if program == "tar" else [])]
    done = subprocess.run(
        command, input=archive(NAMES), capture_output=True, check=True, timeout=60, env={"LC_ALL": "C.UTF-8"}
    )
    assert done.stdout.splitlines() == NAMES
    assert not done.stderr or program == "tar"  # which says that it would remove a leading slash
    assert done.stderr.count(b"\n") <= 1


@given(
    st.lists(st.binary(min_size=1, max_size=300).map(lambda name: name.replace(b"\0", b"0")), min_size=1, max_size=5),
    st.binary(max_size=1100),
)
def test_any_name_and_data_are_read_again(names: list[bytes], data: bytes) -> None:
    named = [name.rstrip(b"/") + b".a" for name in names]
    found = files(archive(named, data))
    assert [(name.encode("utf-8", "surrogateescape"), read) for name, read in found] == [(name, data) for name in named]
    assert all(len(header(name, len(data))) == header_size(name) for name in named)


def test_one_block_is_enough_for_all_but_long_names() -> None:
    blocks = [len(header(name, 1)) // BLOCK for name in NAMES]
    assert blocks == [1, 1, 3, 1, 3, 3, 3, 1, 3, 1]


def test_sizes_are_written_in_digits_and_from_eight_gibibytes_on_in_binary() -> None:
    for size in (0, 1, 512, 2**31 - 1, 2**33 - 1, 2**33, 9 * 2**40):
        (info,) = [tarfile.TarInfo.frombuf(header(b"a.bin", size), "utf-8", "strict")]
        assert info.size == size


@pytest.mark.parametrize("program", ["tar", "bsdtar"])
def test_programs_read_what_follows_a_member_of_nine_gibibytes(program: str, tmp_path: Path) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    size = 9 << 30
    with (tmp_path / "x.tar").open("wb") as file:
        file.write(header(b"a.bin", size))
        file.seek(size, os.SEEK_CUR)
        file.write(header(b"b.bin", 1) + b"b" + padding(1) + END)
    listed = subprocess.run([program, "-tf", tmp_path / "x.tar"], capture_output=True, check=True, timeout=60)
    assert listed.stdout.split() == [b"a.bin", b"b.bin"]
