"""Atomic publishing in order: a shard gets its final name once it and all shards before it are whole.

Shards are written to a working folder that the sink chooses; the manifest is written last, and then the working folder
is removed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tar2tf_cli.conversion.existing import Decision, Destination, decide, find_finished
from tar2tf_cli.conversion.manifest import Manifest, ShardEntry, digest, without_collection
from tar2tf_cli.conversion.sharding import Shard, ShardReport
from tar2tf_cli.conversion.spool import Part
from tar2tf_cli.conversion.update import SizesFile
from tar2tf_cli.errors import OutputExistsError, SinkError, count, few, write_errors
from tar2tf_cli.events import Events
from tar2tf_cli.formats.files import RecordFile, crc32c_of_file, sync
from tar2tf_cli.inputs.report import InputReport

if TYPE_CHECKING:
    from tar2tf_cli.conversion.update import Earlier
    from tar2tf_cli.stores.store import Store


_CACHE: Final = "set XDG_CACHE_HOME to a folder that can be written to, for unfinished work"


class Publisher:
    """Publishes the output of one conversion, from the first unfinished shard to the manifest; a context manager.

    Args:
        destination: what will be written, and what may be replaced.
        events: notified as shards are published.

    Attributes:
        up_to_date: the manifest, if the conversion was finished by an earlier run and there is nothing to do.
        manifest: path or URL of the manifest, as shown to users.
        folder: the working folder.
        earlier: the earlier conversion that is brought up to date; None to convert everything.
        resumes: whether an interrupted run left shards that are whole.

    Raises:
        OutputExistsError: on entering, when a file that this conversion does not claim is in the way.
        SinkError: when the folder cannot be created, another run holds its lock, or a file cannot be published.
    """

    def __init__(self, destination: Destination, events: Events) -> None:
        self._destination = destination
        self._sink = destination.sink
        self._events = events
        self._working_folder = destination.working_folder()
        self.folder = self._working_folder.path
        self._entries: dict[str, dict[int, ShardReport]] = {}  # by lane and number
        self._published: dict[str, int] = {}
        self._sizes: SizesFile | None = None
        self.earlier: Earlier | None = None
        self.up_to_date: Manifest | None = None
        self.manifest: str | None = destination.where
        self._replaces = False  # whether an older manifest is gone, as it would be wrong
        self.resumes = False

    def __enter__(self) -> Publisher:
        where = (self._sink.locate(self._destination.root),) if self._sink.renames else (self.folder, _CACHE)
        try:
            with write_errors(*where):
                self._begin()
        except BaseException:
            self._working_folder.give_up()
            raise
        return self

    def _begin(self) -> None:
        """Leave a finished conversion as it is; otherwise take over the files of an earlier run."""
        self.up_to_date = None if os.path.lexists(self.folder) else find_finished(self._destination)
        if self.up_to_date:
            return
        self._working_folder.lock()
        with without_collection():
            self._decision = decision = decide(self._destination, self._working_folder)
        if decision.error:
            raise decision.error
        self.up_to_date, self.earlier = decision.finished, decision.earlier
        if self.up_to_date:  # another run may have finished it, perhaps without cleaning up
            self._working_folder.remove()
            return
        self._sink.reserve(decision.run, self._destination.digest, replaces=self._destination.overwrite)
        self._take_over(decision)
        if decision.others:
            left = few(decision.others)
            self._events.note(f"note: the existing manifest lists files with other names, which stay: {left}")
        if decision.changes:
            self._events.note(f"updating: {decision.changes}")
        elif decision.everything:
            self._events.note(f"note: everything is converted again: {decision.everything}")
        self.resumes = bool(decision.sealed)
        if self.resumes:
            self._events.resumed(len(decision.sealed))

    def _take_over(self, decision: Decision) -> None:
        """Remove what an interrupted run left that this one does not continue, and start the journal."""
        folder = self._working_folder
        if decision.continues:
            folder.clear(strays=True)
        else:
            folder.clear()
            self._sink.drop_staged()
        root = self._destination.root
        head: dict[str, Any] = {
            "identity": self._destination.identity,
            "replaces": sorted(os.path.relpath(path, root) for path in decision.stale),
            "run": decision.run,
        }
        if decision.earlier and decision.previous:  # they are gone while files are replaced
            head["previous"] = decision.previous.to_bytes().decode("ascii")
            decision.earlier.save(os.path.join(self.folder, "previous.sizes"))
        folder.begin_journal(head, keep=decision.interrupted)

    def add_input(self, report: InputReport, part: Part) -> None:
        """Note the sizes of the records of the next input, in input order."""
        plan = self._destination.plan
        if plan.tracked and not self._sizes:
            self._sizes = SizesFile(os.path.join(self.folder, "sizes.part"), plan.conversion)
        if self._sizes:
            self._sizes.add(report, part)

    def __exit__(self, *exception: object) -> None:
        try:
            if self._sizes:
                self._sizes.abandon()
            if self.earlier:
                self.earlier.close()
            self._sink.close()
        finally:
            self._working_folder.give_up()
        if not os.path.lexists(self.folder):  # else the same command continues here
            with contextlib.suppress(SinkError):
                self._sink.release()

    @property
    def reads_shards(self) -> bool:
        """Whether finished shards are read again, for example to upload them."""
        return not self._sink.renames

    @property
    def store(self) -> Store | None:
        """The bucket in which others may write shards; None for folders, and while an update keeps what is there."""
        return None if self.earlier else self._sink.store

    def final_names(self, stems: Sequence[str]) -> tuple[list[str], frozenset[str]]:
        """Get ready for shards that others write, one for each stem; their names, and those that may be replaced."""
        shards = [Shard(stem, 0) for stem in stems]
        for path in self.journal:
            sync(path)
        self._working_folder.note({"paths": [*map(self._destination.listed_path, shards)]})
        self._begin_to_replace()
        return [*map(self._destination.path, shards)], frozenset(self._decision.replaceable)

    @property
    def journal(self) -> Sequence[str]:
        """Local files that must be flushed to disk before anything is published."""
        return self._working_folder.unsynced

    def unsynced(self, shard: Shard) -> list[str]:
        """Local files that must be flushed to disk before a shard may be sealed."""
        part = shard.part(self.folder)
        return [part, f"{part}.idx"] if self._destination.with_index else [part]

    def whole(self, shard: Shard) -> ShardReport | None:
        """The report of a shard, if an interrupted run left it whole, whether published or not."""
        if (entry := self._decision.sealed.get(shard.place)) is None:
            return None
        _, _, size, records, crc, _ = entry
        part = shard.part(self.folder)
        there = self._sink.part_size(part)
        if os.path.exists(part) and crc32c_of_file(part) != crc:  # it was damaged after the run was interrupted
            there = -1
        if there is None and not self._destination.by_total:
            there = self._sink.size(self._destination.path(shard))
        if there == size and records == shard.records:
            return ShardReport(size, records, crc)
        del self._decision.sealed[shard.place]
        return None

    def seal(self, shard: Shard, report: ShardReport) -> None:
        """Record that a shard is whole, and publish it once all shards before it have been published."""
        by_total = self._destination.by_total
        if self._decision.sealed.pop(shard.place, None) is None:
            path = None if by_total else self._destination.listed_path(shard)  # it is known only at the end
            self._working_folder.note([shard.lane, shard.number, report.size, report.records, report.crc, path])
        self._entries.setdefault(shard.lane, {})[shard.number] = report
        if by_total or self.earlier:  # what is there stays valid until all of the new is whole
            for path in filter(os.path.exists, self.unsynced(shard)):
                if self.earlier and self.earlier.report(shard) == report:
                    os.unlink(path)  # there is nothing to replace
                else:
                    self._sink.stage(path)
        else:
            self._publish(shard.lane)

    def finish(self, manifest: Manifest, documents: Mapping[str, bytes]) -> list[ShardEntry]:
        """Publish the remaining shards, the documents and the completed manifest; remove the working folder.

        Returns:
            The shards in the manifest's order, with paths relative to its folder.
        """
        destination = self._destination
        documents = {self._sink.inside(path): data for path, data in documents.items()}
        manifest.shards = self._shards()
        manifest.documents.extend(path.removeprefix(destination.prefix) for path in documents)
        with write_errors(destination.where):
            if destination.by_total:
                self._working_folder.note({"paths": [entry.path for entry in manifest.shards]})
            if destination.by_total or self.earlier:
                self._sink.flush(())
            for lane in self._entries:
                self._publish(lane)
            shards = [destination.prefix + entry.path for entry in manifest.shards]
            self._remove_stale({os.path.normpath(path) for path in (*documents, *shards)})
            self._sink.flush({os.path.dirname(path) or "." for path in shards})
            self._check_published(manifest.shards)
            for path, data in documents.items():
                self._write(path, [data])
            self._sink.check_reserved()
            self._publish_sizes(manifest)
            self._write(destination.manifest, manifest.lines())
            self._working_folder.remove()
        return [*manifest.shards]

    def _check_published(self, entries: Sequence[ShardEntry]) -> None:
        """Check that nobody removed or cut a published shard; one in a bucket was looked at when it arrived there.

        Raises:
            SinkError: when one is gone, or has another size.
        """
        for entry in entries if self._sink.renames else ():
            path = self._destination.prefix + entry.path
            size = self._sink.size(path)
            if size != entry.bytes:
                there = "is gone" if size is None else f"has {size:,} bytes, not the {entry.bytes:,} that were written"
                hint = "another program changed it during the conversion; run the same command again"
                raise SinkError(there, shard=self._sink.locate(path), hint=hint)

    def _publish_sizes(self, manifest: Manifest) -> None:
        """Publish the sizes of all records, or remove those of an earlier conversion."""
        if self._sizes:
            sizes, self._sizes = self._sizes, None
            manifest.sizes = digest(sizes.close())
            self._sink.publish(os.path.join(self.folder, "sizes.part"), self._destination.sizes)
            self._sink.flush(())
        elif self._decision.replaceable or self._decision.stale:
            self._sink.remove(self._destination.sizes)

    def _shards(self) -> list[ShardEntry]:
        """All shards, with paths relative to the manifest's folder."""
        shards = []
        for lane in filter(self._entries.__contains__, dict.fromkeys(self._destination.plan.lanes)):
            split = lane if "split" in self._destination.template.fields else None
            for number, report in sorted(self._entries[lane].items()):
                path = self._path(Shard(lane, number)).removeprefix(self._destination.prefix)
                shards.append(ShardEntry(path, report.records, report.size, digest(report.crc), split))
        return shards

    def _path(self, shard: Shard) -> str:
        return self._destination.path(shard, len(self._entries[shard.lane]))

    def _publish(self, lane: str) -> None:
        """Give a lane's next shards their final names, up to the first that is not whole."""
        entries, number = self._entries[lane], self._published.get(lane, 0)
        while number in entries:
            shard = Shard(lane, number)
            report = entries[number]
            path = self._path(shard)
            self._move(shard.part(self.folder), path)
            self._events.shard(self._sink.locate(path), report.records, report.size)
            number += 1
        self._published[lane] = number

    def _move(self, part: str, path: str) -> None:
        """Publish a shard and its `--index`."""
        if self._sink.part_size(part) is None:
            return  # published by the run that was interrupted
        suffixes = (".idx", "") if self._destination.with_index else ("",)
        for final in (path + suffix for suffix in suffixes):
            if os.path.normpath(final) not in self._decision.replaceable and self._sink.exists(final, now=True):
                where = self._sink.locate(final)
                raise OutputExistsError("another program wrote it during the conversion", shard=where, replaceable=True)
        self._begin_to_replace()
        for suffix in suffixes:
            if not suffix or self._sink.part_size(part + suffix) is not None:
                final = path + suffix
                self._sink.publish(part + suffix, final, replaces=os.path.normpath(final) in self._decision.replaceable)

    def _begin_to_replace(self) -> None:
        """Remove an older manifest, which would be wrong from here on."""
        if not self._replaces and self._sink.exists(self._destination.manifest, now=True):
            self._sink.remove(self._destination.manifest)
            self._sink.flush([self._destination.root])
        self._replaces = True

    def _remove_stale(self, written: set[str]) -> None:
        """Remove what an earlier conversion wrote and this one did not."""
        gone = self._decision.stale - written
        if gone:
            self._begin_to_replace()
        for path in gone if self._destination.with_index else self._decision.stale:
            self._sink.remove(f"{path}.idx")  # before its shard, as a run that is killed here looks for shards
        for path in gone:
            self._sink.remove(path)
        if gone:
            names = few(sorted(os.path.relpath(path, self._destination.root) for path in gone))
            self._events.note(f"note: removed {count(len(gone), 'file')} of the earlier output: {names}")

    def _write(self, path: str, parts: Iterable[bytes]) -> None:
        """Write a document; it appears under its name once it is whole and flushed to disk."""
        part = os.path.join(self.folder, "document.part")
        with RecordFile(part) as file:
            file.write(iter(parts), 0)
            file.sync()
        self._sink.publish(part, path)
        self._sink.flush([self._destination.root])
