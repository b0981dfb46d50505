"""Members and faults of a tar, as TarReader reads them."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import pytest

from make_bytes import File, tar_of
from tar2tf_cli.errors import DamagedShardError
from tar2tf_cli.formats.tar import BLOCK, Member, TarReader

FILES = [
    ("a.jpg", b"picture" * 99),
    ("a.cls", b"1"),
    ("empty.txt", b""),
    ("deep/" * 40 + "name.jpg", bytes(BLOCK)),
    ("y" * 120 + ".jpg", b"y" * 513),
]


class SmallChunks(TarReader):
    """Reads a kilobyte at a time, so that a small tar shows what a large one does to the buffer."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.cursor.chunk = self.cursor.CHUNK = 1024


def read(data: bytes, reader: type[TarReader] = TarReader, **options: bool) -> list[Member]:
    return list(reader(io.BytesIO(data), "x.tar", **options))


def files(data: bytes, **options: bool) -> list[tuple[str, bytes]]:
    return [(name, content) for name, content, _, _ in read(data, **options)]


def archive(files: list[File], format: int) -> tuple[list[File], bytes]:
    """An archive of those files whose names the format has room for."""
    fitting = []
    for file in files:
        with contextlib.suppress(ValueError):
            tar_of([file], format)
            fitting.append(file)
    return fitting, tar_of(fitting, format)


def damage(data: bytes, **options: bool) -> DamagedShardError:
    """The error that a tar gives, read as a whole; by its headers alone it must give one, too."""
    with pytest.raises(DamagedShardError):
        read(data, headers_only=True, **options)
    with pytest.raises(DamagedShardError) as caught:
        read(data, **options)
    error = caught.value
    assert error.shard == "x.tar"
    assert error.offset is not None
    assert str(error).startswith("x.tar, ")
    return error


WHOLE = tar_of(FILES)
