"""Ordered atomic publishing: shards are made in a working folder and renamed when whole, the manifest comes last.

The working folder lies beside the output (`.train-manifest.tar2tf`), holds everything an interrupted run has made, and
goes when the manifest stands. Its journal tells which shards are whole; one process at a time holds its lock.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import time
from typing import Any, Final

from tar2tf_cli.errors import DamagedShardError, OutputExistsError, SinkError
from tar2tf_cli.events import Events
from tar2tf_cli.job import ShardReport
from tar2tf_cli.layout import Shard
from tar2tf_cli.manifest import Manifest, ShardEntry, digest
from tar2tf_cli.paths import PathTemplate
from tar2tf_cli.sinks import RecordFile

__all__ = ["Commit"]

_LOCK_SECONDS: Final = 5.0
_OVERWRITE: Final = "pass --overwrite to replace what is there, or choose another output path"


class Commit:
    """The output of one conversion, from the first unfinished shard to the manifest; a context manager.

    Args:
        template: the path template of the shards.
        manifest: the manifest to be, of which spec and inputs are known.
        overwrite: whether files that this conversion does not claim may be replaced.
        resumable: whether the inputs are known to be the same ones as in an interrupted run.

    Attributes:
        up_to_date: whether there is nothing to do.
        folder: the working folder.
        sealed: shards that an interrupted run left whole, by lane and number.

    Raises:
        OutputExistsError: on entering, when something that this conversion does not claim is in the way.
        SinkError: when the folder cannot be made, another run holds it, or a file cannot be published.
    """

    def __init__(
        self, template: PathTemplate, manifest: Manifest, events: Events, *, overwrite: bool, resumable: bool
    ) -> None:
        self._template = template
        self._identity = manifest.identity()
        self._events = events
        self._overwrite = overwrite
        self._resumable = resumable
        self._manifest_path = template.manifest()
        name = os.path.basename(self._manifest_path)
        self._prefix = self._manifest_path[: -len(name)]
        self._root = self._prefix or "."
        self.folder = os.path.join(self._root, f".{name.removesuffix('.json')}.tar2tf")
        self._by_total = "total" in template.fields
        self._entries: dict[str, dict[int, ShardEntry]] = {}
        self._published: dict[str, int] = {}
        self._stale: set[str] = set()
        self._lock = self._journal = -1
        self.sealed: dict[tuple[str, int], ShardReport] = {}
        self.up_to_date = False

    def __enter__(self) -> Commit:
        if self._is_up_to_date():
            self.up_to_date = True
            return self
        try:
            self._take_lock()
            self._survey()
        except OSError as error:
            self._release()
            raise _failed(self.folder, error) from None
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
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
            entry = {"lane": shard.lane, "number": shard.number, **_fields(report)}
            self._append(entry)
            self.sealed[shard.lane, shard.number] = report
        path = self._final_path(shard.lane, shard.number, 0)
        self._entries.setdefault(shard.lane, {})[shard.number] = ShardEntry(
            path, report.records, report.size, digest(report.crc), shard.lane if self._has("split") else None
        )
        if not self._by_total:
            self._publish(shard.lane)

    def finish(self, manifest: Manifest) -> list[ShardEntry]:
        """Publish what is left, then the manifest with its shards filled in; the working folder goes.

        Returns:
            The shards, in the manifest's order, with paths as seen from its folder.
        """
        for lane in self._entries:
            self._publish(lane)
        for entry in self._shards(""):
            self._stale.discard(os.path.normpath(entry.path))
        try:
            for path in self._stale:
                _remove(path)
                _remove(path + ".idx")
            for folder in {os.path.dirname(entry.path) or "." for entry in self._shards("")}:
                _sync_folder(folder)
            manifest.shards.extend(self._shards(self._prefix))
            self._write_manifest(manifest.to_bytes())
            shutil.rmtree(self.folder)
        except OSError as error:
            raise _failed(self._manifest_path, error) from None
        return manifest.shards

    def _shards(self, prefix: str) -> list[ShardEntry]:
        shards = []
        for lane, entries in self._entries.items():
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
            try:
                self._move(part, final)
            except OSError as error:
                raise _failed(final, error) from None
            number += 1
            self._events.shard(final, entries[number - 1].records, entries[number - 1].bytes)
        self._published[lane] = number

    def _move(self, part: str, final: str) -> None:
        if not os.path.exists(part):
            return  # published by the run that was interrupted
        _remove(self._manifest_path)  # from here on an older one would lie
        os.makedirs(os.path.dirname(final) or ".", exist_ok=True)
        if os.path.exists(part + ".idx"):
            os.replace(part + ".idx", final + ".idx")
        os.replace(part, final)

    def _write_manifest(self, data: bytes) -> None:
        part = os.path.join(self.folder, "manifest.part")
        with RecordFile(part) as file:
            file.write([data], len(data))
            file.sync()
        os.replace(part, self._manifest_path)
        _sync_folder(self._root)

    def _is_up_to_date(self) -> bool:
        if self._overwrite or not self._resumable:
            return False
        found = _load_manifest(self._manifest_path)
        if found is None or found.identity() != self._identity:
            return False
        return all(_size(os.path.join(self._root, shard.path)) == shard.bytes for shard in found.shards)

    def _take_lock(self) -> None:
        os.makedirs(self.folder, exist_ok=True)
        self._lock = os.open(os.path.join(self.folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        deadline = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise SinkError(
                        "another tar2tf is writing this output", shard=self._manifest_path, hint="wait until it is done"
                    ) from None
                time.sleep(0.05)

    def _survey(self) -> None:
        """See what an earlier run left, keep what is ours, refuse what is not."""
        journal = os.path.join(self.folder, "journal")
        head, lines = _read_journal(journal)
        ours = head is not None and head["identity"] == self._identity
        previous = _load_manifest(self._manifest_path)
        claimed: set[str] = set()
        if previous is not None:
            shards = {os.path.normpath(os.path.join(self._root, shard.path)) for shard in previous.shards}
            if previous.identity() != self._identity and not self._overwrite:
                raise OutputExistsError(
                    _what_changed(previous, self._identity), shard=self._manifest_path, hint=_OVERWRITE
                )
            claimed |= shards
        existing = self._existing()
        if ours:
            claimed |= existing  # there was nothing foreign when the journal was begun
        if not self._overwrite and (unclaimed := sorted(existing - claimed)):
            interrupted = " by an interrupted run with other inputs or another spec" if head and not ours else ""
            raise OutputExistsError(
                f"is there already{interrupted or ', and no manifest of this conversion claims it'}",
                shard=unclaimed[0],
                hint=_OVERWRITE,
            )
        self._stale = (set(head["replaces"]) if head and ours else claimed) & existing
        if ours and self._resumable:
            self._resume(lines)
        else:
            self._clear()
        self._journal = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        if not (ours and self._resumable):
            self._append({"identity": self._identity, "replaces": sorted(self._stale)})
            os.fsync(self._journal)  # or a crash could leave shards that nobody claims

    def _resume(self, lines: list[dict[str, Any]]) -> None:
        for line in lines:
            shard, report = Shard(line.pop("lane"), line.pop("number")), ShardReport(**line)
            part = self.unfinished_path(shard)
            whole = (
                [part] if os.path.exists(part) or self._by_total else [self._final_path(shard.lane, shard.number, 0)]
            )
            if _size(whole[0]) == report.size:
                self.sealed[shard.lane, shard.number] = report
        if self.sealed:
            self._events.resumed(len(self.sealed))

    def _clear(self) -> None:
        for name in os.listdir(self.folder):
            if name != "lock":
                os.unlink(os.path.join(self.folder, name))

    def _existing(self) -> set[str]:
        """Normalised paths on disk that the template could have given."""
        text = self._template.text.removeprefix(self._prefix)
        regex = PathTemplate.parse(text).regex()
        found = set()
        for folder, folders, files in os.walk(self._root):
            folders[:] = [name for name in folders if "/" in text and not name.startswith(".")]
            for path in (os.path.join(folder, name) for name in files):
                if regex.match(os.path.relpath(path, self._root)):
                    found.add(os.path.normpath(path))
        return found

    def _append(self, entry: dict[str, Any]) -> None:
        line = json.dumps(entry).encode() + b"\n"
        try:
            if os.write(self._journal, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise _failed(os.path.join(self.folder, "journal"), error) from None

    def _release(self) -> None:
        for descriptor in (self._journal, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._journal = self._lock = -1


def _fields(report: ShardReport) -> dict[str, int]:
    return {"size": report.size, "records": report.records, "crc": report.crc}


def _read_journal(path: str) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """First line and further lines of a journal; a last line cut short is left out."""
    try:
        with open(path, "rb") as file:
            lines = file.read().split(b"\n")[:-1]
    except FileNotFoundError:
        return None, []
    try:
        head, *entries = [json.loads(line) for line in lines]
    except ValueError:
        return None, []
    return head, entries


def _load_manifest(path: str) -> Manifest | None:
    """The manifest at a path; one of another kind stands for an empty one, which claims nothing."""
    try:
        return Manifest.load(path)
    except DamagedShardError:
        return Manifest({}, [])


def _what_changed(previous: Manifest, identity: dict[str, Any]) -> str:
    if not previous.inputs:
        return "is there already, and is not a manifest of this conversion"
    if previous.inputs != identity["inputs"]:
        before = {entry["name"]: entry for entry in previous.inputs}
        now = {entry["name"]: entry for entry in identity["inputs"]}
        names = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
        return f"was made from other inputs: {', '.join(names[:3]) or 'their order'} changed"
    return "was made with another spec"


def _size(path: str) -> int | None:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return None


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _sync_folder(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _failed(path: str, error: OSError) -> SinkError:
    return SinkError(f"cannot be written: {error.strerror or error}", shard=path)
