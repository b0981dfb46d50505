"""Tars that few writers make and GNU tar reads: headers in a row, bytes after the end, links that state a size."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from tar2tf_cli import open_records
from tar2tf_cli.formats.tar import BLOCK, END, header, padding
from tar_reading import files

RECORD = 10_240


def member(name: str, data: bytes = b"data") -> bytes:
    return header(name.encode(), len(data)) + data + padding(len(data))


def special(kind: bytes, data: bytes = b"", *, size: int | None = None, name: str = "special") -> bytes:
    """A header of any kind, which may state another size than that of its data."""
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, len(data) if size is None else size, "elsewhere"
    block = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    block[124:136] = b"%011o\0" % info.size  # tarfile writes 0 for links
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block) + data + padding(len(data))


def long_name(name: str) -> bytes:
    return special(b"L", name.encode() + b"\0")


def pax(**values: str) -> bytes:
    records = b""
    for key, value in values.items():
        rest = f" {key}={value}\n"
        length = next(size for size in range(len(rest), 999) if size == len(f"{size}{rest}"))
        records += f"{length}{rest}".encode()
    return special(b"x", records)


def filled(tar: bytes, rest: bytes = b"\0") -> bytes:
    """The tar up to a whole record, with the last bytes of something longer."""
    return tar + (rest * RECORD)[: -len(tar) % RECORD]


def names(tar: bytes) -> list[str]:
    return [name for name, _ in files(tar)]


@pytest.mark.parametrize(
    "headers",
    [
        [long_name("first.a"), long_name("second.a")],
        [pax(path="first.a"), pax(path="second.a")],
        [pax(path="first.a"), pax(comment="nothing")],
        [long_name("gnu.a"), pax(path="pax.a")],
        [pax(path="pax.a"), long_name("gnu.a")],
        [long_name("gnu.a"), pax(path="pax.a"), pax(comment="nothing")],
    ],
)
def test_of_several_extended_headers_the_last_of_each_kind_counts_as_for_gnu_tar(headers: Iterable[bytes]) -> None:
    tar = filled(b"".join(headers) + member("a.a") + END)
    if shutil.which("tar") is None:
        pytest.skip("tar is not installed")
    listed = subprocess.run(["tar", "-t"], input=tar, capture_output=True, check=True, timeout=60).stdout
    assert names(tar) == listed.decode().split()


@pytest.mark.parametrize("zeros", [0, BLOCK, 3 * BLOCK])
def test_old_bytes_in_the_rest_of_the_last_record_are_ignored(zeros: int, tmp_path: Path) -> None:
    tar = filled(member("a.a", b"1") + member("b.a", b"2") + END + bytes(zeros), b"old bytes")
    assert names(tar) == ["a.a", "b.a"]
    path = tmp_path / "x.tar"
    path.write_bytes(tar)
    assert [sample["a"] for sample in open_records(path, index_folder="")] == [b"1", b"2"]


def test_other_bytes_after_the_end_are_an_error() -> None:
    whole = member("a.a") + END
    for rest in (b"x" * BLOCK, filled(whole, b"x")[len(whole) :] + b"x" * RECORD, b"x" * 3000):
        with pytest.raises(Exception, match=r"not another archive|lost"):
            names(whole + rest)


@pytest.mark.parametrize("kind", [b"1", b"2", b"5"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_header_without_data_that_states_a_size_is_read_in_any_order(kind: bytes, place: int, tmp_path: Path) -> None:
    members = [member("a.a", b"1"), member("b.a", b"2")]
    members.insert(place, special(kind, size=1000, name="folder/" if kind == b"5" else "link"))
    path = tmp_path / "x.tar"
    path.write_bytes(filled(b"".join(members) + END))
    assert names(path.read_bytes()) == ["a.a", "b.a"]
    assert [sample["a"] for sample in open_records(path, index_folder="")] == [b"1", b"2"]
    with tarfile.open(path) as tar:
        assert len(tar.getnames()) == 3
