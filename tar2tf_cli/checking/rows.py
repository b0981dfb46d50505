"""Rows of digests for each sample of a file, with its key and the digests of its entries as details.

The details of a sample are the size of its key, or 4,294,967,295 if it has none, and the key; the number of its
entries; and for each entry the size of its name, its 64-bit digest, and the name. Sizes and counts have 32 bits. The
kernel makes rows and details of the same form (`sample_rows` and `record_rows` in digest_rows.h) from plain samples,
and from records that are examples of the usual form.
"""

from __future__ import annotations

import os
import re
import struct
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from types import ModuleType
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import xxhash

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.source import Source
from tar2tf_cli.api.values import KEY, Batch, Feature, Kind, Sample, StoredValue
from tar2tf_cli.checking.files import FileContext, contents_of, features_of, raise_error
from tar2tf_cli.checking.matching import digest_of
from tar2tf_cli.errors import DamagedShardError, SampleError, write_errors
from tar2tf_cli.features.feature_map import FeatureMap, TypeName, give_types
from tar2tf_cli.formats.example import TAGS, ParsedFeature, feature_in, int64_list, varint
from tar2tf_cli.formats.files import StoredBytes, whole
from tar2tf_cli.formats.npy import read_array
from tar2tf_cli.formats.streams import foreign
from tar2tf_cli.inputs.open_shard import OpenShard
from tar2tf_cli.inputs.tar_samples import TarSamples
from tar2tf_cli.samples.keys import key_of
from tar2tf_cli.structs import dataclass, field

ROW: Final = np.dtype([(name, "<u8") for name in ("whole", "content", "key", "details")])
"""A sample: digests of all of it, of its entries and of its key (0 if it has none), and the offset of its details."""

_PACKED: Final = struct.Struct("<4Q")

EntryDigests: TypeAlias = dict[str, int]
"""The digest of each entry of a sample."""

Details: TypeAlias = tuple["str | None", EntryDigests]
"""The key of a sample, if it has one, and its entries."""

_64_BITS: Final = (1 << 64) - 1
_SIZE: Final = struct.Struct("<I")
_ENTRY: Final = struct.Struct("<IQ")
_IN_MAP: Final = struct.Struct("=3i")
_NO_KEY: Final = (1 << 32) - 1
_SEVERAL: Final = 1
"""Stands for several bytes values where a digest is seeded by the tag of a list."""
_COPIED: Final = 1 << 12  # copying up to this many bytes is faster than a memoryview
_LONG_VARINT: Final = re.compile(rb"[\x80-\xff]\x00|[\x80-\xff]{9}[\x02-\x7f]")


class FileRows(NamedTuple):
    """The rows of one file.

    Attributes:
        is_shard: whether it is a tar or TFRecord; otherwise there are no rows.
        instead: the format of a file that is not a shard, and what to do with it, if it is known.
        samples: number of samples.
        size: stored size of the file in bytes.
        rows: the path of a file with a row for each sample.
        details: the path of a file with the details of the samples.
        numbers: the features that hold numbers, or several values, and their kinds.
    """

    is_shard: bool
    instead: tuple[str, str] | None = None
    samples: int = 0
    size: int = 0
    rows: str = ""
    details: str = ""
    numbers: Mapping[str, Kind | None] = {}


@dataclass(eq=False, repr=False)
class RowsContext(FileContext):
    """The context of tasks that compute rows.

    Attributes:
        sources: list and open the files of each dataset.
        folder: the folder for the files that tasks write.
        numbers: the features that hold numbers in the TFRecords that tars are compared with, and their kinds.
    """

    sources: Sequence[Source] = ()
    folder: str = ""
    numbers: Mapping[str, Kind | None] = field(default_factory=dict)


def rows_of(dataset: int, item: ObjectInfo, context: RowsContext) -> FileRows:
    """Compute the rows of a file of one of the datasets.

    Raises:
        SourceError: when the file cannot be read, or is damaged.
        SampleError: when a sample of a tar is faulty.
    """
    source = context.sources[dataset]
    rows = _rows(source, item, context, regroup=False)
    if rows is None:
        rows = _rows(source, item, context, regroup=True)
        assert rows
    return rows


def _rows(source: Source, item: ObjectInfo, context: RowsContext, *, regroup: bool) -> FileRows | None:
    """Compute the rows of a file; None if a key appeared again, so that samples must be regrouped."""
    tars: list[TarSamples] = []

    def end(tar: TarSamples) -> None:
        tar.check_end()
        tars.append(tar)

    rules = context.rules._replace(regroup=regroup or context.rules.regroup)
    with (
        OpenShard(source, item, context.on_bytes) as shard,
        write_errors(context.folder),
        closing(_RowFiles(context.folder)) as files,
    ):
        digester = EntryDigester(context.numbers if shard.kind and shard.kind.traits.holds == "sample" else {})
        try:
            for _, content in contents_of(shard, rules, raise_error, end, raise_error, _KernelRows(files, digester)):
                entries = content if isinstance(content, dict) else features_of(content)
                key = key_of(entries)
                files.add(key, *digester.digests(key, entries))
        except DamagedShardError as error:
            raise error.at(hint="run tar2tf verify to list all faults") from None
    if any(tar.must_regroup for tar in tars):
        return None
    if not shard.kind:
        return FileRows(False, foreign(shard.head))
    return FileRows(True, None, files.samples, shard.size, files.rows, files.details, digester.numbers)


def content_of(entries: EntryDigests) -> int:
    """Return the digest of a sample without its key, independent of the order of its entries."""
    return sum(entries.values()) & _64_BITS


class EntryDigester:
    """Computes the digests of entries.

    Args:
        wanted: the numeric features of the records with which samples of a tar are compared: entries of these names are
            parsed as by `convert --type`, if possible.

    Attributes:
        numbers: the features of records that hold numbers, or several values, and their kinds.
    """

    def __init__(self, wanted: Mapping[str, Kind | None]) -> None:
        self._wanted = wanted
        self._seeds: dict[tuple[str, Kind, bool], int] = {}
        self.numbers: dict[str, Kind | None] = {}

    def digests(self, key: str | None, entries: Sample) -> tuple[int, EntryDigests]:
        """Return the digest of a key (0 if there is none), and the digests of entries."""
        if self._wanted:
            entries = _as_features(entries, self._wanted)
        made = {name: self._digest(name, value) for name, value in entries.items() if name != KEY or key is None}
        return (0 if key is None else self._of_bytes(KEY, key.encode("utf-8", "surrogateescape")) or 1), made

    def _digest(self, name: str, value: Any) -> int:
        if type(value) is bytes:
            return self._of_bytes(name, value)
        if isinstance(value, StoredBytes):
            return digest_of(value.pieces(), self._seed(name, "bytes"))
        if value.kind == "bytes" and value.count == 1:
            ((start, end),) = value.runs
            data = value.message if end - start < _COPIED else memoryview(value.message)
            return self._of_bytes(name, data[start:end])
        self.numbers[name] = value.kind
        return digest_of(_parts(value), self._seed(name, value.kind, several=True))

    def _of_bytes(self, name: str, data: bytes | memoryview) -> int:
        return int(xxhash.xxh64_intdigest(data, self._seed(name, "bytes")))

    def _seed(self, name: str, kind: Kind, *, several: bool = False) -> int:
        seed = self._seeds.get((name, kind, several))
        if seed is None:
            tag = _SEVERAL if several and kind == "bytes" else TAGS[kind][0]
            seed = self._seeds[name, kind, several] = digest_of([name.encode("utf-8", "surrogateescape")], tag)
        return seed

    def maps(self, batch: Batch) -> list[bytes | None] | None:
        """Return each signature's entries as features for the kernel; None where Python must process them.

        The result is None if no entry has to be converted.
        """
        return [self._map(names) for names in batch.names()] if self._wanted else None

    def _map(self, names: Sequence[str]) -> bytes | None:
        made = []
        for number, name in enumerate((KEY, *names)):
            base = name.removesuffix(".npy")
            if not self._wanted.keys().isdisjoint((f"{name}/shape", f"{base}/shape", *([base] * (base != name)))):
                return None
            kind = self._wanted.get(name) if number else None
            data = name.encode()
            made.append(_IN_MAP.pack(number, TAGS[kind or "bytes"][0], len(data)) + data)
        return b"".join(made)


def _parts(feature: ParsedFeature) -> Iterator[bytes]:
    """Return a feature's values in a canonical form, as there are many encodings."""
    parts = feature.parts()
    if feature.kind == "int64" and any(map(_LONG_VARINT.search, parts)):
        parts = _parsed(int64_list(feature.values())).parts()
    for part in parts:
        if feature.kind == "bytes":
            yield TAGS["bytes"] + varint(len(part))
        yield part


# --- Conversion of tar entries to features for comparison ---


def _as_features(entries: Sample, wanted: Mapping[str, Kind | None]) -> Sample:
    """Convert entries that hold numbers as text or array, also those named `NAME.npy`, to features."""
    made: dict[str, Any] = {}
    for name, value in entries.items():
        kind, base = wanted.get(name) if name != KEY else None, name.removesuffix(".npy")
        if f"{name}/shape" in wanted:
            made |= _array(name, value)
        elif base != name and not wanted.keys().isdisjoint((base, f"{base}/shape")):
            made |= {part: data for part, data in _array(base, value).items() if part in (base, *wanted)}
        elif kind == "int64" or kind == "float":
            made[name] = _numbers(name, value, "int64_list" if kind == "int64" else "float_list")
        else:
            made[name] = value
    return made


def _numbers(name: str, value: bytes | StoredBytes, kind: TypeName) -> object:
    values: dict[str, Any] = {name: value}
    try:
        give_types(values, {name: kind})
    except SampleError:
        return value
    return _parsed(values[name])


def _array(name: str, value: bytes | StoredBytes) -> dict[str, object]:
    try:
        features = FeatureMap({}).features({KEY: "", name: read_array(whole(value))})
    except (SampleError, ValueError):
        return {name: value}
    return {name: _parsed(made) for name, made in features.items() if name != KEY}


def _parsed(feature: bytes | StoredValue | Feature) -> Any:
    return feature_in(feature.message, 0, len(feature.message)) if isinstance(feature, Feature) else feature


# --- Files of rows ---


class _RowFiles:
    """The two files that a task writes, so that its memory and its result stay small.

    Attributes:
        rows: path of the rows.
        details: path of their details.
        size: size of the details in bytes.
        samples: number of samples added.
    """

    def __init__(self, folder: str) -> None:
        self.size = self.samples = 0
        (rows, self.rows), (details, self.details) = tempfile.mkstemp(dir=folder), tempfile.mkstemp(dir=folder)
        self._rows, self._details = os.fdopen(rows, "wb"), os.fdopen(details, "wb")

    def add(self, key: str | None, key_digest: int, entries: EntryDigests) -> None:
        """Add the row and details of a sample."""
        content = content_of(entries)
        row = _PACKED.pack((content + key_digest) & _64_BITS, content, key_digest, self.size)
        self.add_many(row, _packed_details(key, entries))

    def add_many(self, rows: bytes, details: bytes) -> int:
        """Add rows and details of several samples; return their number."""
        self._rows.write(rows)
        self._details.write(details)
        self.size += len(details)
        self.samples += len(rows) // ROW.itemsize
        return len(rows) // ROW.itemsize

    def close(self) -> None:
        """Close both files."""
        self._rows.close()
        self._details.close()


class _KernelRows:
    """Computes the rows of plain samples and usual examples with the kernel.

    Args:
        files: receive the rows.
        digester: has the names of numeric entries, and receives those of numeric features.
    """

    def __init__(self, files: _RowFiles, digester: EntryDigester) -> None:
        self._files = files
        self._digester = digester

    def take(self, native: ModuleType, data: bytes | bytearray, start: int, end: int, /) -> tuple[int, int]:
        """Compute the rows of records; return their end and number."""
        stop, rows, details, numbers = native.record_rows(data, start, end, self._files.size)
        self._digester.numbers |= numbers
        return stop, self._files.add_many(rows, details)

    def take_batch(self, batch: Batch, native: ModuleType, /) -> bool:
        """Compute the rows of a batch's samples; return False if an entry is unusual."""
        maps = self._digester.maps(batch)
        made = native.sample_rows(batch.data, batch.rows, batch.spans, batch.signatures, self._files.size, maps)
        if made:
            self._files.add_many(*made)
        return made is not None


def _packed_details(key: str | None, entries: EntryDigests) -> bytes:
    data = b"" if key is None else key.encode("utf-8", "surrogateescape")
    parts = [_SIZE.pack(_NO_KEY if key is None else len(data)), data, _SIZE.pack(len(entries))]
    for name, digest in entries.items():
        encoded = name.encode("utf-8", "surrogateescape")
        parts += (_ENTRY.pack(len(encoded), digest), encoded)
    return b"".join(parts)


def details_in(data: memoryview) -> Details:
    """Parse a sample's key and entry digests at the beginning of packed details."""
    (size,), at, key = _SIZE.unpack_from(data), _SIZE.size, None
    if size != _NO_KEY:
        key = str(data[at : at + size], "utf-8", "surrogateescape")
        at += size
    (count,), at = _SIZE.unpack_from(data, at), at + _SIZE.size
    entries: EntryDigests = {}
    for _ in range(count):
        (size, digest), at = _ENTRY.unpack_from(data, at), at + _ENTRY.size
        entries[str(data[at : at + size], "utf-8", "surrogateescape")] = digest
        at += size
    return key, entries
