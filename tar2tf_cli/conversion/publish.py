"""Ordered atomic publishing: shards are made in a working folder and published when whole, the manifest comes last.

The working folder is the sink's to choose, holds everything an interrupted run has made, and goes when the manifest
stands. Its journal tells which shards are whole; one process at a time holds its lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from tar2tf_cli.conversion.manifest import Manifest, ShardEntry, digest
from tar2tf_cli.conversion.sharding import Shard
from tar2tf_cli.conversion.tasks import ShardReport
from tar2tf_cli.errors import DamagedShardError, OutputExistsError, SinkError, write_failed
from tar2tf_cli.events import Events
from tar2tf_cli.formats.record_file import write_all, write_whole
from tar2tf_cli.sinks import Sink
from tar2tf_cli.spec.output_path import PathTemplate

__all__ = ["Commit"]

_LOCK_SECONDS: Final = 5.0
_OVERWRITE: Final = "pass --overwrite to replace what is there, or choose another output path"


class Commit:
    """The output of one conversion, from the first unfinished shard to the manifest; a context manager.

    Args:
        template: the path template of the shards, as a path of the sink.
        sink: where they are published.
        manifest: the manifest to be, of which spec and inputs are known.
        overwrite: whether files that this conversion does not claim may be replaced.
        resumable: whether the inputs are known to be the same ones as in an interrupted run.
        inputs: paths of the inputs, which not even `overwrite` replaces.
        lanes: names of all lanes in the order in which the manifest is to list their shards.
        documents: paths of what is to stand beside the manifest.

    Attributes:
        up_to_date: whether there is nothing to do.
        folder: the working folder.
        sealed: shards that an interrupted run left whole, by lane and number.
        lasting: whether shards must be on the disk before they are sealed.
        direct: whether nothing reads a shard once it is written.

    Raises:
        OutputExistsError: on entering, when something that this conversion does not claim is in the way.
        SinkError: when the folder cannot be made, another run holds it, or a file cannot be published.
    """

    lasting = True

    def __init__(
        self,
        template: PathTemplate,
        sink: Sink,
        manifest: Manifest,
        events: Events,
        *,
        overwrite: bool,
        resumable: bool,
        inputs: Sequence[str] = (),
        lanes: Sequence[str] = (),
        documents: Sequence[str] = (),
    ) -> None:
        self._template = template
        self._sink = sink
        self._identity = manifest.identity()
        self._events = events
        self._overwrite = overwrite
        self._resumable = resumable
        self._inputs = inputs
        self._lanes = {lane: place for place, lane in enumerate(lanes)}
        self._documents = documents
        self._manifest_path = template.manifest()
        self._with_index = bool(manifest.spec.get("output", {}).get("index"))
        name = os.path.basename(self._manifest_path)
        self._prefix = self._manifest_path[: -len(name)]
        self._root = self._prefix or "."
        self.folder = sink.prepare(self._manifest_path)
        self._by_total = "total" in template.fields
        self._entries: dict[str, dict[int, ShardEntry]] = {}
        self._published: dict[str, int] = {}
        self._found: set[str] = set()
        self._folders: set[str] = set()
        self._stale: set[str] = set()
        self._lock = self._journal = -1
        self.sealed: dict[tuple[str, int], ShardReport] = {}
        self.up_to_date = False
        self.direct = sink.renames

    def __enter__(self) -> Commit:
        try:
            self.up_to_date = not os.path.lexists(self.folder) and self._is_up_to_date()
            if not self.up_to_date:
                self._take_lock()
                self._begin()
        except OSError as error:
            self._give_up()
            raise write_failed(self._sink.locate(self._root), error) from None
        except BaseException:
            self._give_up()
            raise
        return self

    def _begin(self) -> None:
        """With the lock: leave a finished conversion as it is, else take stock and open the journal."""
        self.up_to_date = self._is_up_to_date()  # another run may have finished it, or ended before it cleaned up
        if self.up_to_date:
            self._remove_folder()
            self._release()
        else:
            self._survey()

    def __exit__(self, *exception: object) -> None:
        self._sink.close()
        self._release()

    def unfinished_path(self, shard: Shard) -> str:
        """Where a shard is written before it is whole."""
        return os.path.join(self.folder, f"shard-{shard.lane}-{shard.number:05d}.part")

    def index_path(self, shard: Shard) -> str:
        """Where a shard's `--index` is written before it is whole."""
        return self.unfinished_path(shard) + ".idx"

    def seal(self, shard: Shard, report: ShardReport) -> None:
        """Note that a shard is whole, and publish it once those before it are; its place is then final."""
        if (shard.lane, shard.number) not in self.sealed:
            self._append(self._line(shard, report))
            self.sealed[shard.lane, shard.number] = report
        path = self._final_path(shard.lane, shard.number, 0)
        self._entries.setdefault(shard.lane, {})[shard.number] = ShardEntry(
            path, report.records, report.size, digest(report.crc), shard.lane if self._has("split") else None
        )
        if self._by_total:
            self._stage(self.unfinished_path(shard))
        else:
            self._publish(shard.lane)

    def finish(self, manifest: Manifest, documents: Mapping[str, bytes]) -> list[ShardEntry]:
        """Publish what is left, then documents, then the manifest with its shards filled in; the working folder goes.

        Returns:
            The shards, in the manifest's order, with paths as seen from its folder.
        """
        if self._by_total:
            self._append({"paths": [entry.path for entry in self._shards(self._prefix)]})
            self._sink.flush(())
        for lane in self._entries:
            self._publish(lane)
        replaced = {os.path.normpath(path) for path in (*documents, *(entry.path for entry in self._shards("")))}
        try:
            for path in self._stale - replaced:
                self._sink.remove(path)
            for path in self._stale - replaced if self._with_index else self._stale:
                self._sink.remove(path + ".idx")
            self._sink.flush({os.path.dirname(entry.path) or "." for entry in self._shards("")})
            manifest.shards.extend(self._shards(self._prefix))
            manifest.documents.extend(path.removeprefix(self._prefix) for path in documents)
            for path, data in documents.items():
                self._write(path, data)
            self._write(self._manifest_path, manifest.to_bytes())
            self._remove_folder()
        except OSError as error:
            raise write_failed(self._sink.locate(self._manifest_path), error) from None
        return manifest.shards

    def _shards(self, prefix: str) -> list[ShardEntry]:
        shards = []
        for lane in sorted(self._entries, key=lambda lane: self._lanes.get(lane, 0)):
            entries = self._entries[lane]
            for number in range(len(entries)):
                entry = entries[number]
                path = self._final_path(lane, number, len(entries)).removeprefix(prefix)
                shards.append(ShardEntry(path, entry.records, entry.bytes, entry.digest, entry.split))
        return shards

    def _final_path(self, lane: str, number: int, total: int) -> str:
        return self._template.path(number, total=total, split=lane, stem=lane)

    def _has(self, field: str) -> bool:
        return field in self._template.fields

    def _publish(self, lane: str) -> None:
        """Rename the lane's next shards to their final names, as far as they are whole."""
        entries = self._entries[lane]
        number = self._published.get(lane, 0)
        while number in entries:
            final = self._final_path(lane, number, len(entries))
            part = self.unfinished_path(Shard(lane, number))
            self._move(part, final)
            number += 1
            self._events.shard(self._sink.locate(final), entries[number - 1].records, entries[number - 1].bytes)
        self._published[lane] = number

    def _stage(self, part: str) -> None:
        """Let a part wait for its name where the sink has room."""
        for path in (part, part + ".idx"):
            if os.path.exists(path):
                self._sink.stage(path)

    def _move(self, part: str, final: str) -> None:
        if self._sink.part_size(part) is None:
            return  # published by the run that was interrupted
        for path in (final, final + ".idx") if self._with_index else (final,):
            if os.path.normpath(path) not in self._found and self._sink.exists(path, now=True):
                raise OutputExistsError(
                    "appeared while the shard was being made", shard=self._sink.locate(path), hint=_OVERWRITE
                )
        self._sink.remove(self._manifest_path)  # from here on an older one would lie
        if self._sink.part_size(part + ".idx") is not None:
            self._sink.publish(part + ".idx", final + ".idx")
        self._sink.publish(part, final)

    def _write(self, path: str, data: bytes) -> None:
        """Write a document, which appears under its name when it is whole and on the disk."""
        part = os.path.join(self.folder, "document.part")
        write_whole(part, [data])
        self._sink.publish(part, path)
        self._sink.flush([self._root])

    def _is_up_to_date(self) -> bool:
        if self._overwrite or not self._resumable:
            return False
        found = self._load_manifest()
        if found is None or found.identity() != self._identity:
            return False
        if not all(self._sink.size(path) is not None for path in self._documents):
            return False
        for shard in found.shards:
            path = self._prefix + shard.path
            if self._sink.size(path) != shard.bytes or (self._with_index and self._sink.size(path + ".idx") is None):
                return False
        return True

    def _take_lock(self) -> None:
        deadline = time.monotonic() + _LOCK_SECONDS
        while not self._is_locked():
            if time.monotonic() > deadline:
                raise SinkError(
                    "another tar2tf is writing this output",
                    shard=self._sink.locate(self._manifest_path),
                    hint="wait until it is done",
                )
            time.sleep(0.05)

    def _is_locked(self) -> bool:
        """Try to lock; true once the lock is ours and still the file that other runs will find."""
        path = self._file("lock")
        os.makedirs(self.folder, exist_ok=True)
        with contextlib.suppress(FileNotFoundError, BlockingIOError):  # a run that ends removes the folder
            self._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(self._lock), os.stat(path)):
                return True
        self._release()
        return False

    def _survey(self) -> None:
        """See what an earlier run left, keep what is ours, refuse what is not."""
        head, lines = _read_journal(self._file("journal"))
        ours = head is not None and head["identity"] == self._identity
        previous = self._load_manifest()
        if previous is not None and not self._overwrite:
            self._check_previous(previous)
        claimed = self._inside(previous.files) if previous else set()
        self._found = self._existing()
        if ours:
            claimed |= self._found  # there was nothing foreign when the journal was begun
        self._check_found(claimed, interrupted=head is not None and not ours)
        self._check_documents(claimed=ours or previous is not None)
        left = [path for line in lines for path in line.get("paths", [])]
        if head is not None:
            claimed = self._inside(head["replaces"]) if ours else claimed | self._inside([*head["replaces"], *left])
        self._stale = {path for path in claimed if self._sink.exists(path)}
        if ours and self._resumable:
            self._resume(lines)
        else:
            self._clear("lock", "journal")
            self._sink.drop_staged()
        self._open_journal(left if ours else [])

    def _check_previous(self, previous: Manifest) -> None:
        """Refuse to go on where a manifest stands that this conversion may not replace."""
        changed = previous.identity() != self._identity
        if changed or not self._resumable:
            reason = (
                _what_changed(previous, self._identity)
                if changed
                else "is there already, and whether the input is still the same cannot be known"
            )
            raise OutputExistsError(reason, shard=self._sink.locate(self._manifest_path), hint=_OVERWRITE)

    def _check_documents(self, *, claimed: bool) -> None:
        """Refuse to go on where documents are in the way, or inputs where documents belong."""
        for path in filter(self._sink.exists, self._documents):
            where = self._sink.locate(path)
            if _place(where) in {_place(name) for name in self._inputs}:
                raise OutputExistsError(
                    "is an input of this conversion", shard=where, hint="choose another output path"
                )
            if not claimed and not self._overwrite:
                raise OutputExistsError(
                    "is there already, and no manifest of this conversion claims it", shard=where, hint=_OVERWRITE
                )

    def _check_found(self, claimed: set[str], *, interrupted: bool) -> None:
        """Refuse to go on where files are in the way that this conversion does not claim."""
        for path in sorted(self._found):
            if path in self._folders:
                raise OutputExistsError(
                    "is a directory where a file belongs", shard=path, hint="remove it, or choose another output path"
                )
        inputs = {_place(path) for path in self._inputs} if self._found else set()
        for path in sorted(self._found):
            where = self._sink.locate(path)
            if _place(where) in inputs:
                raise OutputExistsError(
                    "is an input of this conversion", shard=where, hint="choose another output path"
                )
        unclaimed = sorted(path for path in self._found - claimed if path.removesuffix(".idx") not in claimed)
        if unclaimed and not self._overwrite:
            left = " by an interrupted run with other inputs or another spec"
            reason = left if interrupted else ", and no manifest of this conversion claims it"
            raise OutputExistsError(f"is there already{reason}", shard=self._sink.locate(unclaimed[0]), hint=_OVERWRITE)

    def _resume(self, lines: list[dict[str, Any]]) -> None:
        for line in lines:
            if "lane" not in line:
                continue
            shard = Shard(line["lane"], line["number"])
            report = ShardReport(line["size"], line["records"], line["crc"])
            part = self.unfinished_path(shard)
            final = self._final_path(shard.lane, shard.number, 0)
            size = self._sink.part_size(part)
            if (self._sink.size(final) if size is None and not self._by_total else size) == report.size:
                self.sealed[shard.lane, shard.number] = report
        if self.sealed:
            self._events.resumed(len(self.sealed))

    def _open_journal(self, left: list[str]) -> None:
        """Write the journal anew, on the disk before any shard is published, or a crash could leave unclaimed ones.

        Args:
            left: paths from the root that this conversion may have published before.
        """
        replaces = sorted(os.path.relpath(path, self._root) for path in self._stale)
        sealed = [self._line(Shard(*place), report) for place, report in self.sealed.items()]
        head: list[dict[str, Any]] = [{"identity": self._identity, "replaces": replaces}, {"paths": left}]
        data = b"".join(map(_encode, [*head, *sealed]))
        path = self._file("journal")
        write_whole(path, [data])
        self._journal = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def _line(self, shard: Shard, report: ShardReport) -> dict[str, Any]:
        """A whole shard as the journal notes it, with its path from the root where that is known already."""
        line = {"lane": shard.lane, "number": shard.number, **asdict(report)}
        if not self._by_total:
            line["paths"] = [self._final_path(shard.lane, shard.number, 0).removeprefix(self._prefix)]
        return line

    def _clear(self, *kept: str) -> None:
        for name in os.listdir(self.folder):
            if name not in kept:
                os.unlink(self._file(name))

    def _remove_folder(self) -> None:
        """Remove the working folder, the lock last: whoever gets that next must find the folder empty."""
        self._clear("lock")
        _remove(self._file("lock"))
        with contextlib.suppress(OSError):  # another run has begun
            os.rmdir(self.folder)

    def _give_up(self) -> None:
        """Let go of the folder; nothing is left of it where nothing had begun."""
        with contextlib.suppress(OSError):
            if self._lock >= 0 and os.listdir(self.folder) == ["lock"]:
                self._remove_folder()
        self._release()

    def _file(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def _inside(self, paths: Iterable[str]) -> set[str]:
        """Normalised paths of files as a document beside the shards names them; none that lead out of its folder."""
        inside = (os.path.normpath(path) for path in paths if not os.path.isabs(path))
        return {os.path.normpath(os.path.join(self._root, path)) for path in inside if path.split(os.sep)[0] != ".."}

    def _existing(self) -> set[str]:
        """Normalised paths on disk that the template could have given, of indexes too where they are wanted."""
        text = self._template.text.removeprefix(self._prefix)
        regex = PathTemplate.parse(text).regex()
        exact = not self._template.fields & {"split", "input"}  # else a name says too little of a folder
        found = set()
        for relative, is_folder in self._sink.walk(self._root, nested="/" in text):
            if is_folder and not exact:
                continue
            if regex.match(relative) or (self._with_index and regex.match(relative.removesuffix(".idx"))):
                path = os.path.normpath(os.path.join(self._root, relative))
                found.add(path)
                if is_folder:
                    self._folders.add(path)
        return found - {os.path.normpath(self._manifest_path)}

    def _load_manifest(self) -> Manifest | None:
        """The manifest that is there; one of another kind stands for an empty one, which claims nothing."""
        data = self._sink.read(self._manifest_path)
        try:
            return None if data is None else Manifest.from_bytes(data, self._sink.locate(self._manifest_path))
        except DamagedShardError:
            return Manifest({}, [])

    def _append(self, entry: dict[str, Any]) -> None:
        line = _encode(entry)
        try:
            write_all(lambda rest: os.write(self._journal, rest), line)
        except OSError as error:
            raise write_failed(self._file("journal"), error) from None

    def _release(self) -> None:
        for descriptor in (self._journal, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._journal = self._lock = -1


def _encode(entry: dict[str, Any]) -> bytes:
    return json.dumps(entry).encode() + b"\n"


def _read_journal(path: str) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """First line and further lines of a journal, up to one that is cut short."""
    entries: list[dict[str, Any]] = []
    with contextlib.suppress(FileNotFoundError, ValueError), open(path, "rb") as file:
        for line in file:
            entries.append(json.loads(line))
    return (entries[0], entries[1:]) if entries else (None, [])


def _what_changed(previous: Manifest, identity: dict[str, Any]) -> str:
    if not previous.inputs:
        return "is there already, and is not a manifest of this conversion"
    if previous.inputs != identity["inputs"]:
        before = {entry["name"]: entry for entry in previous.inputs}
        now = {entry["name"]: entry for entry in identity["inputs"]}
        names = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
        return f"was made from other inputs: {', '.join(names[:3]) or 'their order'} changed"
    names = _differing(previous.spec, identity["spec"])
    return f"was made with another spec: {', '.join(names[:3]) or 'the version of the manifest'} changed"


def _differing(before: Any, now: Any, name: str = "") -> list[str]:
    """Names of what differs in two documents, with a dot between levels."""
    if not (isinstance(before, dict) and isinstance(now, dict)):
        return [] if before == now else [name]
    dot = f"{name}." if name else ""
    return [
        found
        for key in sorted(before.keys() | now.keys())
        for found in _differing(before.get(key), now.get(key), f"{dot}{key}")
    ]


def _place(path: str) -> tuple[int, int] | str:
    """What is equal for two paths to the same file."""
    try:
        status = os.stat(path)
    except OSError:
        return path
    return status.st_dev, status.st_ino


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
