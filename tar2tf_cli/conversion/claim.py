"""What a conversion will write, and whether an earlier run wrote it already."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from functools import cached_property
from typing import Any, Final, TypeAlias

from tar2tf_cli.conversion.manifest import Manifest
from tar2tf_cli.conversion.plan import Plan
from tar2tf_cli.conversion.sharding import Shard, ShardReport
from tar2tf_cli.conversion.working_folder import WorkingFolder
from tar2tf_cli.errors import DamagedShardError, UsageError
from tar2tf_cli.sinks import Sink, open_sink
from tar2tf_cli.spec.output_path import PathTemplate
from tar2tf_cli.stores import ObjectInfo, endpoint_for

__all__ = ["NO_MANIFEST", "Claim", "JournalEntry", "make_claim", "published"]

JournalEntry: TypeAlias = list[Any]
"""A whole shard: lane, number, size, records, CRC-32C, and its path as far as that is known."""

NO_MANIFEST: Final = "--update needs the manifest of the last run, and a stream or a generator of paths has none"


class Claim:
    """The files that a conversion will write, as known before anything is written.

    Args:
        plan: the conversion and its inputs.
        sink: where the shards are published.
        overwrite: whether files that this conversion does not claim may be replaced.
        update: whether the output of the same spec from other inputs is brought up to date.
        own: the manifest's path if it is not the one that follows from the template.

    Attributes:
        template: the path template of the shards, relative to the sink.
        manifest: the manifest's path.
        where: the same, or its URL, as shown to users.
        prefix: the prefix of all shard paths that is omitted in the manifest.
        root: the manifest's folder.
        begins: the common prefix of the paths of manifest, documents and shards.
        documents: paths of the files to be written beside the manifest.
        with_index: whether each shard has an `--index`.
        by_total: whether the shards' paths are known only once all shards are written.
        resumable: whether the inputs are known to be the same as in an interrupted run.
    """

    def __init__(
        self, plan: Plan, sink: Sink, *, overwrite: bool = False, update: bool = False, own: str | None = None
    ) -> None:
        output = plan.conversion.output
        self.plan = plan
        self.sink = sink
        self.overwrite = overwrite
        self.update = update
        self.template = PathTemplate.parse(sink.inside(output.template.text))
        self.manifest = own or self.template.manifest()
        self.where = sink.locate(self.manifest)
        self.prefix = self.manifest[: -len(os.path.basename(self.manifest))]
        self.root = self.prefix or "."
        self.begins = os.path.commonprefix([self.manifest, self.template.text]).rstrip("-")  # noqa: RUF071 - of names
        self.documents = [sink.inside(name) for name in plan.documents()]
        self.with_index = output.index
        self.by_total = "total" in self.template.fields
        self.resumable = plan.source.resumable

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What the conversion is (`Manifest.identity`)."""
        return self.plan.manifest().identity()

    def working_folder(self) -> WorkingFolder:
        """The folder in which the output is made; it may not be there yet."""
        return WorkingFolder(self.sink.prepare(self.manifest, self.begins), self.where)

    def other_options(self, spec: dict[str, Any]) -> list[str]:
        """Keys that differ in another conversion's spec, except those that only list its inputs."""
        from tar2tf_cli.conversion.changes import differing

        listed_by = self.plan.source.listed_by
        return [name for name in differing(spec, self.identity["spec"]) if name not in listed_by]

    def lane(self, split: str | None, name: str) -> str:
        """The lane of a shard, by its split or by the name of the input that its first record comes from."""
        return split or (ObjectInfo(name, None, None).stem if "input" in self.template.fields else "")

    def is_there(self, path: str, size: int) -> bool:
        """Whether a shard of an earlier manifest exists with its size, and with its `--index`."""
        path = self.prefix + path
        return self.sink.size(path) == size and (not self.with_index or self.sink.size(f"{path}.idx") is not None)

    def path(self, shard: Shard, total: int = 0) -> str:
        """A shard's path."""
        return self.template.path(shard.number, total=total, split=shard.lane, stem=shard.lane)

    def journal_entry(self, shard: Shard, report: ShardReport) -> JournalEntry:
        """The journal entry of a whole shard, with its path relative to the root if that is already known."""
        path = None if self.by_total else self.path(shard).removeprefix(self.prefix)
        return [shard.lane, shard.number, report.size, report.records, report.crc, path]

    def previous(self, *, late: bool = False) -> Manifest | None:
        """The existing manifest; `late` as for `Manifest.from_bytes`.

        Raises:
            DamagedShardError: when there is another document, or a damaged one.
        """
        data = self.sink.read(self.manifest)
        return None if data is None else Manifest.from_bytes(data, self.where, late=late)

    def finished(self) -> Manifest | None:
        """The manifest of an identical conversion, if it was finished and all its files exist; otherwise None."""
        manifest = None
        if self.resumable and not self.overwrite:
            with contextlib.suppress(DamagedShardError):
                manifest = self.previous(late=True)
        if manifest is None or manifest.identity() != self.identity:
            return None
        there = all(self.is_there(shard.path, shard.bytes) for shard in manifest.shards)
        return manifest if there and all(self.sink.size(path) is not None for path in self.documents) else None


def published(entry: JournalEntry | dict[str, Any]) -> Iterable[str]:
    """The paths that an entry of the journal says are published, or about to be."""
    if isinstance(entry, dict):
        return list(entry.get("paths", []))
    return [path for path in entry[5:] if path is not None]


def make_claim(
    plan: Plan, *, endpoint: str | None, overwrite: bool = False, update: bool = False, apart: bool = False
) -> Claim:
    """What a plan's conversion will write to files or objects.

    Args:
        plan: the conversion.
        endpoint: URL of the store that holds the output.
        overwrite: whether files that this conversion does not claim may be replaced.
        update: whether an earlier output is brought up to date.
        apart: whether the manifest gets a name of its own if its usual one is taken by other files' manifest: that of
            `train.record` and of `train-<>.record` is `train-manifest.json`.

    Raises:
        UsageError: when both `overwrite` and `update` are given, or the store cannot be written to.
    """
    if update and overwrite:
        raise UsageError(
            "--update keeps the shards that have not changed, and --overwrite replaces all: use one of them"
        )
    conversion, path = plan.conversion, plan.conversion.output.path
    endpoint = endpoint_for(path, conversion.input.bucket, endpoint)
    sink = open_sink(path, endpoint=endpoint, retry_for=conversion.retry_for)
    claim = Claim(plan, sink, overwrite=overwrite, update=update)
    if apart and _is_taken(claim):
        return Claim(plan, sink, overwrite=overwrite, update=update, own=claim.template.own_manifest())
    return claim


def _is_taken(claim: Claim) -> bool:
    """Whether the usual name is that of other files' manifest, now or when an earlier run chose a name of its own."""
    if claim.sink.exists(claim.template.own_manifest(), now=True):
        return True
    with contextlib.suppress(DamagedShardError):
        previous, ours = claim.previous(), claim.template.regex()
        if previous and previous.files:
            return not any(ours.match(claim.prefix + path) for path in previous.files)
    return False
