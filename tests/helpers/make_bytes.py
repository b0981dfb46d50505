"""Build the bytes of tars (at once or header by header), gzip members and npy files."""

from __future__ import annotations

import gzip
import io
import itertools
import tarfile
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tar2tf_cli.formats.tar import BLOCK

END = bytes(2 * BLOCK)
"""The two zero blocks that end an archive."""

File = tuple[str, bytes]
"""A member's name and data."""


# --- Tars ---


def tar_of(files: Iterable[File], format: int = tarfile.GNU_FORMAT, end: bytes = END, **options: object) -> bytes:
    """An archive of regular files as Python's tarfile writes it, its padding replaced by `end`."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=format, **options) as archive:  # type: ignore[call-overload]
        for name, data in files:
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
        length = archive.offset
    return buffer.getvalue()[:length] + end


def files_of(count: int, size: int = 100) -> list[File]:
    """Members `0000.cls` and `0000.jpg`, `0001.cls`, …: a digit, and `size` bytes that differ from member to member."""
    pattern = bytes(range(256))
    files = []
    for number in range(count):
        data = (pattern[number % 256 :] + pattern) * (size // 256 + 1)
        files += [(f"{number:04d}.cls", b"%d" % (number % 10)), (f"{number:04d}.jpg", data[:size])]
    return files


def header(
    name: bytes,
    size: int | bytes = 0,
    kind: bytes = b"0",
    *,
    magic: bytes = b"ustar\x0000",
    prefix: bytes = b"",
    signed: bool = False,
    checksum: str = "{:06o}\0 ",
    link: bytes = b"",
) -> bytes:
    """A tar header; a size given as bytes is the field itself, and `signed` adds up bytes as old writers did."""
    number = size if isinstance(size, bytes) else b"%011o\0" % size
    fields = [
        (name, 100),
        (b"0000644\0", 8),
        (b"0000000\0", 8),
        (b"0000000\0", 8),
        (number, 12),
        (b"00000000000\0", 12),
        (b" " * 8, 8),
        (kind, 1),
        (link, 100),
        (magic, 8),
        (b"", 80),
        (prefix, 155),
    ]
    block = b"".join(value.ljust(width, b"\0") for value, width in fields).ljust(BLOCK, b"\0")
    total = sum(byte - 256 if signed and byte > 127 else byte for byte in block)
    return block[:148] + checksum.format(total).encode().ljust(8, b"\0") + block[156:]


def padded(data: bytes) -> bytes:
    """Data filled up to whole blocks."""
    return data + bytes(-len(data) % BLOCK)


def member(
    name: bytes, data: bytes = b"", kind: bytes = b"0", size: int | bytes | None = None, **fields: object
) -> bytes:
    """A header and data; the header tells the data's size unless another is given."""
    return header(name, len(data) if size is None else size, kind, **fields) + padded(data)  # type: ignore[arg-type]


def pax(records: dict[str, str], kind: bytes = b"x") -> bytes:
    """A pax extended header that says more of the member behind it."""
    body = b""
    for key, value in records.items():
        rest = f" {key}={value}\n".encode("utf-8", "surrogateescape")
        length = next(number for number in itertools.count(len(rest)) if number == len(str(number)) + len(rest))
        body += b"%d" % length + rest
    return member(b"PaxHeaders/x", body, kind)


def long_name(name: bytes) -> bytes:
    """GNU tar's extended header for a name of more than 100 bytes."""
    return member(b"././@LongLink", name + b"\0", b"L", magic=b"ustar  \0")


# --- Streams ---


def gzipped(data: bytes, *cuts: int) -> bytes:
    """Data as gzip members end to end, divided at the cuts."""
    edges = [0, *cuts, len(data)]
    return b"".join(gzip.compress(data[start:end], 6, mtime=0) for start, end in itertools.pairwise(edges))


class Dribble(io.BytesIO):
    """A stream that gives at most the next of `most` bytes at a time, round and round."""

    def __init__(self, data: bytes, most: Sequence[int] = (1,)) -> None:
        super().__init__(data)
        self._most = itertools.cycle(most)

    def read(self, size: int | None = -1, /) -> bytes:
        most = next(self._most)
        return super().read(most if size is None or size < 0 else min(size, most))


# --- Arrays ---


def npy(array: Any, version: tuple[int, int] | None = None) -> bytes:
    """An array as NumPy saves it."""
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asanyarray(array), version)
    return file.getvalue()
