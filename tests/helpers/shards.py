"""Tars made by tarfile, and the samples and records of shards as tarfile and TensorFlow read them."""

from __future__ import annotations

import gzip
import io
import os
import random
import struct
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

Sample = tuple[str, dict[str, bytes]]
"""Key and entries by extension."""

PHOTOS = Path(__file__).parents[1] / "data"


# --- Tars ---


def samples(count: int, size: int = 300, *, first: int = 0, folder: str = "") -> list[Sample]:
    """Samples `0000`, `0001`, … of a `cls` text and a `jpg` of random bytes, `size` of them on average."""
    made = []
    for number in range(first, first + count):
        noise = random.Random(number)
        jpg = noise.randbytes(noise.randrange(size // 2, size + size // 2))
        made.append((f"{folder}{number:04d}", {"cls": b"%d" % (number % 10), "jpg": jpg}))
    return made


def write_tar(path: Path, contents: Iterable[Sample]) -> Path:
    """A tar of samples, gzipped where the name says so."""
    return write_members(path, [(f"{key}.{name}", data) for key, entries in contents for name, data in entries.items()])


def write_members(path: Path, members: Iterable[tuple[str, bytes]]) -> Path:
    """A tar of regular files in the order given."""
    path.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    data = buffer.getvalue()
    path.write_bytes(gzip.compress(data, 1, mtime=0) if path.name.endswith("gz") else data)
    return path


def small_shards(folder: Path, shards: int = 4, each: int = 60) -> Path:
    """Shards of small samples, whose records are spooled."""
    for number in range(shards):
        write_tar(folder / f"small-{number}.tar", samples(each + number, first=number * 1000))
    return folder


def large_shards(folder: Path, shards: int = 4, each: int = 12, size: int = 12_000) -> Path:
    """Shards of samples large enough that their records are written straight from the tar."""
    for number in range(shards):
        write_tar(folder / f"large-{number}.tar", samples(each + number, size, first=number * 1000))
    return folder


def mixed_shards(folder: Path) -> Path:
    """Shards of every kind that may lie side by side, some of one sample."""
    write_tar(folder / "a.tar", samples(70, first=0))
    write_tar(folder / "b.tar.gz", samples(50, 900, first=1000))
    write_tar(folder / "c.tar", samples(14, 12_000, first=2000))
    write_tar(folder / "d.tar", samples(1, first=2900))
    write_tar(folder / "e.tgz", samples(12, 12_000, first=3000))
    write_tar(folder / "f.tar", samples(1, 30_000, first=4000))
    return folder


def members_of(shard: Path) -> Iterator[tuple[str, bytes]]:
    """Names and data of a tar's files, as tarfile reads them."""
    with tarfile.open(shard) as tar:
        for info in tar:
            file = tar.extractfile(info)
            assert file is not None
            yield info.name, file.read()


def samples_of(*shards: Path) -> list[Sample]:
    """The samples of tars in the order of their first members, keys split at the first dot of the base name."""
    found: list[Sample] = []
    for shard in shards:
        grouped: dict[str, dict[str, bytes]] = {}
        for name, data in members_of(shard):
            base = name.rpartition("/")[2]
            key = name[: len(name) - len(base) + base.index(".")]
            grouped.setdefault(key, {})[name[len(key) + 1 :].lower()] = data
        found += grouped.items()
    return found


# --- Records ---


def records(*paths: Path) -> list[bytes]:
    """The records of TFRecord files in order, by the framing alone; gzip is read by its magic number."""
    found = []
    for path in paths:
        data = path.read_bytes()
        data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        position = 0
        while position < len(data):
            (length,) = struct.unpack_from("<Q", data, position)
            found.append(data[position + 12 : position + 12 + length])
            assert len(found[-1]) == length
            position += length + 16
    return found


def examples(*paths: Path) -> list[dict[str, Any]]:
    """Features of the records by name, each a list of values, as TensorFlow's protobuf parses them."""
    tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

    found = []
    for parsed in map(tf.train.Example.FromString, records(*paths)):
        features = parsed.features.feature
        found.append({name: list(getattr(value, value.WhichOneof("kind")).value) for name, value in features.items()})
    return found


def contents(*paths: Path) -> list[Sample]:
    """The records as samples of bytes."""
    found = []
    for features in examples(*paths):
        (key,) = features.pop("__key__")
        found.append((os.fsdecode(key), {name: value for name, (value,) in features.items()}))
    return found


def keys(*paths: Path) -> list[str]:
    """The key of each record."""
    return [key for key, _ in contents(*paths)]


# --- Folders ---


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder by path: hidden ones, too, apart from the sizes that are published for `--update`."""
    return {name: data for name, data in every_file(folder).items() if not name.endswith(".sizes")}


def every_file(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def shards_in(folder: Path, pattern: str = "*.record") -> list[Path]:
    """Output shards in number order."""

    def number(path: Path) -> tuple[str, int, str]:
        digits = "".join(character for character in path.stem if character.isdigit())
        return str(path.parent), int(digits or 0), path.name

    return sorted(folder.glob(pattern), key=number)


def sizes(paths: Sequence[Path]) -> list[int]:
    """Bytes on disk of each file."""
    return [path.stat().st_size for path in paths]
