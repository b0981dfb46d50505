"""Extracts the entries of samples to files in a folder, and never outside it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from tar2tf_cli.checking.raw_samples import RawSample, values_of
from tar2tf_cli.errors import NothingFoundError, OutputExistsError, UsageError, write_errors
from tar2tf_cli.formats.example_parser import ParsedFeature
from tar2tf_cli.formats.record_file import WholeFile
from tar2tf_cli.formats.stored import StoredBytes
from tar2tf_cli.samples.names import KEY

__all__ = ["extract"]

_UNSAFE: Final = re.compile(r"[/\0]")
_HERE: Final = re.compile(r"^(\./)+")  # as in `tar cf x.tar -C FOLDER .`


def extract(samples: Iterable[RawSample], keys: Sequence[str], folder: str) -> Iterator[str]:
    """Write each entry of the samples with these keys to `FOLDER/KEY.ENTRY`; yield the path of each file.

    A feature's bytes are written as they are, and numbers as text, one a line; several bytes values of a feature are
    numbered. A slash in the name of a feature becomes an underscore. A record without a key is named by its number.

    Raises:
        UsageError: for a key that would lead out of the folder, and for a file that exists.
        NothingFoundError: when a key does not exist; the others are extracted.
        SourceError: when a shard cannot be read.
        SinkError: when a file cannot be written.
    """
    wanted = set(keys)
    for key in keys:
        _check(key)
    with write_errors(folder):
        os.makedirs(folder, exist_ok=True)
    for sample in samples:
        key = sample.key if sample.key is not None else str(sample.number)
        if key in wanted:
            for name, data in _entries(sample):
                yield _write(folder, f"{_HERE.sub('', key)}.{_UNSAFE.sub('_', name)}", data)
            wanted.discard(key)
            if not wanted:
                return
    if wanted:
        missing = ", ".join(sorted(wanted)[:3])
        raise NothingFoundError(f"there is no sample with the key {missing}", hint="tar2tf inspect --keys lists them")


def _check(key: str) -> None:
    parts = _HERE.sub("", key).split("/")
    if os.path.isabs(key) or any(part in ("", ".", "..") for part in parts) or "\0" in key:
        raise UsageError(f"the key {key!r} is not a path inside a folder, so it cannot be extracted")


def _entries(sample: RawSample) -> Iterator[tuple[str, bytes | StoredBytes]]:
    for name, value in values_of(sample.content).items():
        if name == KEY:
            continue
        if not isinstance(value, ParsedFeature):
            yield name, value
        elif value.kind == "bytes":
            yield from ((f"{number}.{name}", part) for number, part in enumerate(value.parts()))
        elif value.kind:
            yield f"{name}.txt", "".join(f"{number}\n" for number in value.values()).encode("ascii")


def _write(folder: str, name: str, data: bytes | StoredBytes) -> str:
    path = os.path.join(folder, name)
    parent, root = os.path.dirname(path), os.path.realpath(folder)
    if os.path.commonpath((root, os.path.realpath(parent))) != root:
        raise UsageError("a link on this path leads out of the folder", shard=path)
    with write_errors(path):
        os.makedirs(parent, exist_ok=True)
    if os.path.lexists(path):
        raise OutputExistsError("exists already", shard=path, hint="name another folder with --to")
    with WholeFile(path, lasting=False) as file:
        for piece in data.pieces() if isinstance(data, StoredBytes) else (data,):
            file.write([piece], len(piece))
    return path
