"""Write the files that `energon prepare` of Megatron Energon writes, from the headers of the tars alone.

Next to each tar, `TAR.idx` has the offsets of its samples. The folder `.nv-meta` has `.info.json` with the number of
samples of each tar, `split.yaml`, `index.sqlite` with the position of each sample and entry, `index.uuid`, and
`dataset.yaml`, which defines the type of its samples.
"""

from __future__ import annotations

import json
import os
import sqlite3
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Final

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.datasets.adjacent_files import AdjacentFiles
from tar2tf_cli.datasets.indexes import index_lines_of, open_uncompressed
from tar2tf_cli.errors import OutputExistsError, UsageError, write_errors
from tar2tf_cli.events import Events
from tar2tf_cli.formats.checksums import blake2b
from tar2tf_cli.inputs.energon_index import (
    DALI,
    EnergonSample,
    dali_path_for_energon,
    energon_samples,
    index_writer,
    packed_offsets,
)
from tar2tf_cli.inputs.shard_set import ShardSet, nothing_found, resolve
from tar2tf_cli.inputs.tar_index import NotAdjacentTarError

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tar2tf_cli.spec.urls import ConnectionOptions

FOLDER: Final = ".nv-meta"
"""The folder, in that of the tars, of the files that describe all of them."""

_USUAL_SPLITS: Final = ("train", "val", "test")
_OTHER_KEYS: Final = "tar2tf convert IN -o 'new-<>.tar' --key '<input>/<key>' makes keys that differ"
_CRUDE: Final = b"__module__: megatron.energon\n__class__: CrudeWebdataset\n"
_TABLES: Final = """
CREATE TABLE samples (
    tar_file_id INTEGER NOT NULL, sample_key TEXT NOT NULL UNIQUE, sample_index INTEGER NOT NULL,
    byte_offset INTEGER, byte_size INTEGER
);
CREATE TABLE sample_parts (
    tar_file_id INTEGER, sample_index INTEGER, part_name TEXT,
    content_byte_offset INTEGER, content_byte_size INTEGER
);
"""
_INDEXES: Final = """
CREATE INDEX idx_samples_by_tar_and_idx ON samples(tar_file_id, sample_index);
CREATE INDEX idx_sample_parts_seq ON sample_parts(tar_file_id, sample_index, content_byte_offset);
CREATE INDEX idx_sample_parts_full
    ON sample_parts(tar_file_id, sample_index, part_name, content_byte_offset, content_byte_size);
"""


def prepare_energon(
    bucket: str,
    templates: Sequence[str] = (),
    *,
    dali: bool = False,
    overwrite: bool = False,
    **connection: Unpack[ConnectionOptions],
) -> Iterator[tuple[str, int]]:
    """Write the files that Megatron Energon needs to read a folder of tars; yield each index and its sample count.

    Splits are taken from the manifest, or from the names of the shards; without any, all shards belong to `train`. An
    existing `dataset.yaml` is kept; a new one makes samples dicts, with the class `CrudeWebdataset`.

    Args:
        bucket: a folder, a shard, or a template of files, or the URL of any of these.
        templates: names in the bucket, or further paths.
        dali: also write the index of each tar for NVIDIA DALI, as `a.idx` for `a.tar`.
        overwrite: whether to replace files that describe other shards, and to move DALI's indexes to `a.idx`.
        connection: `ConnectionOptions` of remote buckets.

    Raises:
        OutputExistsError: when another file has one of these names.
        SourceError: when a tar is damaged or cannot be read.
        UsageError: when Energon cannot read a shard, two samples have the same key, or the bucket cannot be written to.
    """
    files = AdjacentFiles.of(bucket, **connection)
    shards = resolve(bucket, templates, paths=True, **connection)
    if not shards.items:
        raise nothing_found(bucket)
    for note in shards.notes():
        Events().note(note)
    paths = {item.name: files.inside(shards.source.locate(item.name)) for item in shards.items}
    folder = _folder_of(files.inside(shards.bucket) if _is_folder(shards) else None, [*paths.values()])
    names = {name: _relative(path, folder) for name, path in paths.items()}
    meta = os.path.join(folder, FOLDER)
    counts, state = dict[str, int](), blake2b()
    index = os.path.join(meta, "index.sqlite")
    with files:
        with files.local(index) as local, closing(_Database(local, files.locate(index), [*names.values()])) as database:
            for item in shards.items:
                with open_uncompressed(shards.source, item) as shard:
                    if shard.traits.holds != "sample":
                        message = f"is a {shard.kind.name if shard.kind else 'file'}, and Energon reads tars"
                        hint = "tar2tf convert IN -o 'new-<>.tar' writes tars"
                        raise UsageError(message, shard=shard.name, hint=hint)
                    samples = list(energon_samples(shard.seekable or shard, shard.name))
                database.add(samples)
                data = packed_offsets(samples)
                _write_index(files, shards, item, data, dali=dali, overwrite=overwrite)
                state.update(data)
                counts[names[item.name]] = len(samples)
                yield f"{shards.source.locate(item.name)}.idx", len(samples)
            database.keep(overwrite=overwrite)
        state.update(json.dumps(counts).encode())
        _describe(files, meta, counts, _split_parts(names, shards.splits), state.digest()[:16], overwrite=overwrite)


def _is_folder(shards: ShardSet) -> bool:
    """Whether the user named a folder, not single shards in it."""
    return shards.listed or os.path.isdir(shards.bucket)


def _folder_of(named: str | None, paths: Sequence[str]) -> str:
    """Return the data set's folder: the one that the user named, or the common one of all shards."""
    return os.path.commonpath(list(map(os.path.dirname, paths))) if named is None else named


def _relative(path: str, folder: str) -> str:
    name = os.path.relpath(path, folder)
    if "{" in name or not name.isprintable():
        raise UsageError("has a name that Energon takes for a template", shard=path, hint="rename the shard")
    return name.replace(os.sep, "/")


def _write_index(
    files: AdjacentFiles, shards: ShardSet, item: ObjectInfo, data: bytes, *, dali: bool, overwrite: bool
) -> None:
    """Write the Energon index of a tar, and its DALI index under another name if requested or already present."""
    tar = files.inside(shards.source.locate(item.name))
    path = f"{tar}.idx"
    is_dali = index_writer(files.read(path) or b"") == DALI
    if is_dali and not (dali or overwrite):
        hint = f"--for dali,energon writes DALI's as {os.path.basename(dali_path_for_energon(tar))}, and Energon's here"
        raise OutputExistsError(
            "is an index of DALI, and Energon's needs this name", shard=files.locate(path), hint=hint
        )
    if dali or is_dali:
        lines = b"".join(index_lines_of(shards.source, item, "first"))
        other = dali_path_for_energon(tar)
        files.write({other: lines}, "exists, and is not DALI's index of this shard", overwrite=overwrite)
    what = "exists, and is not Energon's index of this shard"
    files.write({path: data}, what, overwrite=overwrite or is_dali)


def _split_parts(names: Mapping[str, str], splits: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the shards of each split; shards without a split are left out."""
    if not splits:
        return {split: list(names.values()) if split == "train" else [] for split in _USUAL_SPLITS}
    parts: dict[str, list[str]] = {}
    for name, relative in names.items():
        if split := splits.get(name):
            parts.setdefault(split, []).append(relative)
        else:
            Events().note(f"note: {relative} belongs to no split, so Energon does not read it")
    return parts


def _describe(
    files: AdjacentFiles,
    meta: str,
    counts: Mapping[str, int],
    parts: Mapping[str, Sequence[str]],
    digest: bytes,
    *,
    overwrite: bool,
) -> None:
    """Write the data set's documents; `.info.json`, without which Energon ignores the others, comes last."""
    made = {
        "index.uuid": str(uuid.UUID(bytes=digest, version=5)).encode(),
        "split.yaml": _yaml(parts),
        ".info.json": json.dumps({"shard_counts": counts}, indent=2, ensure_ascii=False).encode(),
    }
    there = {name: files.read(os.path.join(meta, name)) for name in (*made, "dataset.yaml")}
    if _counts_in(there[".info.json"]) == counts and list(_counts_in(there[".info.json"])) == list(counts):
        for name in (".info.json", "index.uuid", *(() if overwrite else ("split.yaml",))):
            made[name] = there[name] or made[name]
    if there["dataset.yaml"] is None:
        made = {"dataset.yaml": _CRUDE, **made}
    what = "exists, and describes other shards"
    files.write({os.path.join(meta, name): data for name, data in made.items()}, what, overwrite=overwrite)


def _counts_in(info: bytes | None) -> dict[str, int]:
    with suppress(ValueError, AttributeError):
        return dict(json.loads(info or b"").get("shard_counts", {}))
    return {}


def _yaml(parts: Mapping[str, Sequence[str]]) -> bytes:
    """Return the content of `split.yaml`, with strings in JSON, a subset of YAML."""
    lines = ["split_parts:"]
    for split, names in parts.items():
        lines.append(f"  {json.dumps(split)}:{'' if names else ' []'}")
        lines += [f"  - {json.dumps(name, ensure_ascii=False)}" for name in names]
    return "\n".join([*lines, "exclude: []", ""]).encode()


class _Database:
    """SQLite database of the positions of all samples, by tar and by key; `keep` renames it to its path.

    Args:
        path: path of the file.
        shown: path or URL of the file in errors.
        names: names of the tars, in order.
    """

    def __init__(self, path: str, shown: str, names: Sequence[str]) -> None:
        self._path = path
        self._shown = shown
        self._part = f"{path}.part"
        self._names = names
        self._tar = 0
        with write_errors(path), suppress(FileNotFoundError):
            os.remove(self._part)
        with write_errors(path):
            open(self._part, "xb").close()
        self._open = sqlite3.connect(self._part, isolation_level=None)
        self._open.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;" + _TABLES)
        self._open.execute("BEGIN")

    def add(self, samples: Sequence[EnergonSample]) -> None:
        """Add the samples of the next tar.

        Raises:
            UsageError: when another sample has the same key, or a key is not UTF-8.
        """
        rows = ((self._tar, one.key, number, one.start, one.end - one.start) for number, one in enumerate(samples))
        parts = ((self._tar, number, *part) for number, one in enumerate(samples) for part in one.parts)
        try:
            self._open.executemany("INSERT INTO samples VALUES (?, ?, ?, ?, ?)", rows)
            self._open.executemany("INSERT INTO sample_parts VALUES (?, ?, ?, ?, ?)", parts)
        except sqlite3.IntegrityError:
            raise self._twice(samples) from None
        except UnicodeEncodeError as error:
            message = f"the name {error.object!r} is not UTF-8, so Energon cannot read it"
            raise UsageError(message, shard=self._names[self._tar], hint=_OTHER_KEYS) from None
        self._tar += 1

    def _twice(self, samples: Sequence[EnergonSample]) -> UsageError:
        """Return the error for the first duplicate key."""
        seen = set[str]()
        query = "SELECT tar_file_id FROM samples WHERE sample_key = ? AND tar_file_id < ?"
        for key in (sample.key for sample in samples):
            before = self._open.execute(query, (key, self._tar)).fetchone()
            if before or key in seen:
                break
            seen.add(key)
        name = self._names[self._tar]
        if before:
            message = f"the key {key!r} is also that of a sample in {self._names[before[0]]}; Energon needs other keys"
            return UsageError(message, shard=name, hint=_OTHER_KEYS)
        message = f"the members of the sample {key!r} are not adjacent"
        return NotAdjacentTarError(
            message, shard=name, hint="tar2tf convert IN -o 'new-<>.tar' writes tars in which they are"
        )

    def keep(self, *, overwrite: bool) -> None:
        """Rename the file to its path.

        Raises:
            OutputExistsError: when a database with other samples has this path, unless it may be overwritten.
        """
        self._open.execute("COMMIT")
        self._open.executescript(_INDEXES)
        if os.path.exists(self._path) and not overwrite and not self._same():
            raise OutputExistsError("has other samples", shard=self._shown, hint="add --overwrite to replace it")
        self._open.close()
        with write_errors(self._path):
            os.replace(self._part, self._path)

    def _same(self) -> bool:
        """Whether the existing database has equal samples and entries."""
        try:
            with closing(sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)) as other:
                return all(
                    _digest_of(other, table) == _digest_of(self._open, table) for table in ("samples", "sample_parts")
                )
        except sqlite3.Error:
            return False

    def close(self) -> None:
        """Close the file, and remove it unless it was renamed."""
        self._open.close()
        with suppress(FileNotFoundError):
            os.remove(self._part)


def _digest_of(database: sqlite3.Connection, table: str) -> bytes:
    state = blake2b()
    for row in database.execute(f"SELECT * FROM {table} ORDER BY rowid"):
        state.update(repr(row).encode())
    return state.digest()
