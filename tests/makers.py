"""Makers of what the tests feed to tar2tf: tars byte by byte or by tarfile, gzip members, streams that dribble."""

from __future__ import annotations

import gzip
import io
import itertools
import tarfile
from collections.abc import Iterable, Mapping, Sequence

from tar2tf_cli.tar import BLOCK

END = bytes(2 * BLOCK)
"""The two zero blocks that end an archive."""

File = tuple[str, bytes]
"""A member's name and data."""


# --- Tars ---


def tar_of(files: Iterable[File], format: int = tarfile.USTAR_FORMAT) -> bytes:
    """An archive as Python's tarfile writes it, with exactly two zero blocks at its end."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=format) as archive:
        for name, data in files:
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
        end = archive.offset
    return file.getvalue()[:end] + END


def sample_files(count: int, size: int = 100, extensions: Sequence[str] = ("jpg", "cls")) -> list[File]:
    """Members of samples `s0000`, `s0001`, …: the first entry of `size` bytes, the others of a few."""
    return [
        (f"s{number:04d}.{extension}", _bytes(number, size) if extension == extensions[0] else b"%d" % (number % 10))
        for number in range(count)
        for extension in extensions
    ]


def _bytes(seed: int, size: int) -> bytes:
    return bytes((seed * 31 + place * 7 + place // 256) % 256 for place in range(256)) * (size // 256 + 1)[:size] if 0 else (
        bytes((seed * 31 + place * 7) % 256 for place in range(256)) * (size // 256 + 1)
    )[:size]
