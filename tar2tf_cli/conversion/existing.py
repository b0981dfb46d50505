"""What exists at the output already: kept and continued, replaced, or refused, and what `--update` keeps of it."""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from tar2tf_cli.conversion.manifest import Lineage, Manifest
from tar2tf_cli.conversion.plan import Plan
from tar2tf_cli.conversion.sharding import Origin, Shard, ShardPlanner, ShardReport
from tar2tf_cli.conversion.spool import Part, SpoolIndex
from tar2tf_cli.conversion.working_folder import WorkingFolder
from tar2tf_cli.errors import DamagedShardError, OutputExistsError, UsageError
from tar2tf_cli.formats.checksums import blake2b
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.sinks import Sink, open_sink
from tar2tf_cli.spec.conversion import Conversion
from tar2tf_cli.spec.output_path import PathTemplate, check_replaceable
from tar2tf_cli.stores import ObjectInfo, endpoint_for

if TYPE_CHECKING:
    from tar2tf_cli.conversion.manifest import InputChanges


class Content(NamedTuple):
    """Which records a shard holds: so many of each input, those of the first input after the ones in earlier shards.

    Attributes:
        skipped: how many records of the first origin's input are in the shards before it.
        origins: what it holds of each input.
    """

    skipped: int = 0
    origins: Sequence[Origin] = ()

    def followed_by(self, origins: list[Origin]) -> Content:
        """The content of the next shard of the lane."""
        if not self.origins or self.origins[-1].source != origins[0].source:
            return Content(0, origins)
        return Content(self.origins[-1].records + (self.skipped if len(self.origins) == 1 else 0), origins)


class EarlierShard(NamedTuple):
    """A shard of the earlier conversion.

    Attributes:
        content: with the numbers that the inputs have now; -1 for one that changed or is gone.
        there: whether the sink still has it.
    """

    content: Content
    report: ShardReport
    there: bool


class Segment(NamedTuple):
    """The records of one input in one shard.

    Attributes:
        number: the number of the shard in its lane.
        records: how many records of other inputs the shard has before them.
        size: the size of those in bytes.
        origin: what the shard holds of this input.
    """

    number: int
    records: int
    size: int
    origin: Origin

    @property
    def begins(self) -> bool:
        """Whether the shard begins with them."""
        return not self.records


@dataclass(slots=True, eq=False, repr=False)
class EarlierOutput:
    """What an earlier conversion with the same spec made.

    Attributes:
        lineage: what reading its inputs reported.
        numbers: the numbers that unchanged inputs had then, by the numbers that they have now.
        segments: the segments of each unchanged input, in order and by lane.
        shards: all shards, by lane and number.
        broken: unchanged inputs with records in a shard that is gone, or that others of its inputs changed.
    """

    lineage: Lineage
    numbers: dict[int, int]
    segments: dict[int, dict[str, list[Segment]]]
    shards: dict[tuple[str, int], EarlierShard] = field(default_factory=dict)
    broken: set[int] = field(default_factory=set)

    @classmethod
    def of(
        cls,
        manifest: Manifest,
        inputs: Sequence[ObjectInfo],
        lane_of: Callable[[str | None, str], str],
        is_there: Callable[[str, int], bool],
    ) -> EarlierOutput:
        """Compare a manifest with the inputs of a new conversion.

        Args:
            manifest: the manifest, with its lineage.
            inputs: the inputs of the new conversion.
            lane_of: the lane of a shard, by its split and the name of its first input.
            is_there: whether the sink has a shard of this path and size.
        """
        now = _renumbered(manifest.inputs, inputs)
        before = {new: old for old, new in now.items()}
        earlier = cls(manifest.lineage or Lineage(), before, {number: {} for number in before})
        totals: Counter[str] = Counter()
        contents: dict[str, Content] = defaultdict(Content)
        for entry in manifest.shards:
            lane = lane_of(entry.split, manifest.inputs[entry.origins[0].source].name)
            origins = [origin._replace(source=now.get(origin.source, -1)) for origin in entry.origins]
            content = contents[lane] = contents[lane].followed_by(origins)
            report = ShardReport(entry.bytes, entry.records, int(entry.digest.rpartition(":")[2], 16))
            earlier._add(lane, totals[lane], EarlierShard(content, report, is_there(entry.path, entry.bytes)))
            totals[lane] += 1
        return earlier

    def report(self, source: int) -> InputReport:
        """What reading an unchanged input reported."""
        return self.lineage.report(self.numbers[source])

    def _add(self, lane: str, number: int, shard: EarlierShard) -> None:
        self.shards[lane, number] = shard
        unchanged = {origin.source for origin in shard.content.origins} - {-1}
        if not shard.there or len(unchanged) < len(shard.content.origins):
            self.broken |= unchanged
        records = size = 0
        for origin in shard.content.origins:
            if origin.source >= 0:
                self.segments[origin.source].setdefault(lane, []).append(Segment(number, records, size, origin))
            records += origin.records
            size += origin.size


def _renumbered(before: Sequence[ObjectInfo], now: Sequence[ObjectInfo]) -> dict[int, int]:
    """The numbers that unchanged inputs have now, by their numbers before."""
    numbers: dict[tuple[Any, ...], deque[int]] = defaultdict(deque)
    for number, item in enumerate(now):
        if item.version is not None:
            numbers[item[:3]].append(number)
    found: dict[int, int] = {}
    for number, item in enumerate(before):
        if same := numbers.get(item[:3]):
            found[number] = same.popleft()
    return found


class UpdatePlanner(ShardPlanner):
    """Divides units among shards as `ShardPlanner` does, and says which shards of an earlier conversion are the same.

    Args:
        conversion: the conversion, in which each shard depends only on the inputs up to it.
        stems: the inputs' stems.
        earlier: the earlier conversion.
    """

    def __init__(self, conversion: Conversion, stems: list[str], earlier: EarlierOutput) -> None:
        super().__init__(conversion, stems, tracked=True)
        self._earlier = earlier
        self._contents: dict[str, Content] = defaultdict(Content)  # of the last shard of each lane
        self._parts: dict[int, Part] = {}  # of inputs that were read, perhaps with records in open or waiting shards
        self._waiting: list[tuple[Shard, Content]] = []  # shards with records of inputs that must be read
        self._closed_any = False  # since units were last forgotten

    @property
    def reads(self) -> Sequence[int]:
        """Numbers of the inputs that certainly have to be read: new and changed ones, and those beside them."""
        earlier = self._earlier
        return [number for number in super().reads if number not in earlier.segments or number in earlier.broken]

    @property
    def missing(self) -> Sequence[int]:
        """Numbers of inputs added before that have to be read before another is added, in ascending order."""
        return sorted({origin.source for shard, _ in self._waiting for origin in shard.origins} - self._parts.keys())

    @property
    def open_groups(self) -> set[int]:
        """Numbers of the groups with units in incomplete shards."""
        return {part.group for part in self._parts.values()}

    def known(self, source: int) -> InputReport | None:
        """The report of an unchanged input that begins where it did in each lane; None if it must be read."""
        segments = self._earlier.segments.get(source)
        if segments is None or source in self._earlier.broken:
            return None
        in_place = all(self._is_in_place(lane, first) for lane, (first, *_) in segments.items())
        return self._earlier.report(source) if in_place else None

    def _is_in_place(self, lane: str, segment: Segment) -> bool:
        shard, number = self._open.get(lane), self.totals.get(lane, 0)
        if shard and segment.begins and not self._room(shard, SpoolIndex([segment.origin.first]), 0):
            shard, number = None, number + 1
        before = (shard.records, shard.size) if shard else (0, 0)
        return (number, *before) == (segment.number, segment.records, segment.size)

    def add(self, source: int, part: Part | None) -> Iterator[Shard]:
        """Divide an input's units among shards, or take those of an input that is missing.

        Yields:
            Shards that are the same as before, and others as soon as all their inputs have been read.
        """
        if part:
            self._parts[source] = part
        if not self._waiting:
            yield from self._unless_waiting(super().add(source, part) if part else self._put_in_place(source))
        yield from self._released()

    def finish(self) -> Iterator[Shard]:
        """Yield the remaining shards once there are no more inputs."""
        yield from self._unless_waiting(super().finish())
        yield from self._released()

    def _put_in_place(self, source: int) -> Iterator[Shard]:
        """Add the records of an input to shards as before, without knowing their units."""
        for lane, segments in self._earlier.segments[source].items():
            for segment in segments:
                if segment.begins and lane in self._open:
                    yield self._closed(lane)
                shard = self._opened(lane)
                shard.records += segment.origin.records
                shard.size += segment.origin.size
                shard.came_from(segment.origin)
        if self._by_input:
            yield from self._close()

    def _unless_waiting(self, shards: Iterable[Shard]) -> Iterator[Shard]:
        """Compare each shard with the earlier one; one that is not the same waits until all its units are known."""
        for shard in shards:
            content = self._contents[shard.lane] = self._contents[shard.lane].followed_by(shard.origins)
            earlier = self._earlier.shards.get(shard.place)
            if earlier and earlier.there and earlier.content == content:
                shard.pieces, shard.kept = [], earlier.report
                yield shard
            elif sum(piece.size for piece in shard.pieces) == shard.size:
                yield shard
            else:
                self._waiting.append((shard, content))
            self._closed_any = True

    def _released(self) -> Iterator[Shard]:
        """Yield the waiting shards if nothing is missing, and forget the units that no shard to come needs."""
        if self.missing:
            return
        yield from (self._filled_in(*waiting) for waiting in self._waiting)
        if self._waiting or self._closed_any:
            self._waiting, self._closed_any = [], False
            needed = {origin.source for shard in self._open.values() for origin in shard.origins}
            self._parts = {source: part for source, part in self._parts.items() if source in needed}

    def _filled_in(self, shard: Shard, content: Content) -> Shard:
        """Find the units of a shard's records, now that its inputs have been read."""
        shard.pieces, shard.size, shard.records = [], 0, 0
        skipped = content.skipped
        for source, records, *_ in content.origins:
            part = self._parts[source]
            runs = (run for run in self._runs(source, part) if run.lane == shard.lane)
            for unit in (unit for run in runs for unit in range(run.first, run.first + run.length)):
                if skipped <= 0 < skipped + records:
                    shard.add(part, unit, unit + 1)
                skipped -= part.spool.count(unit, unit + 1)
            skipped = 0
        return shard


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
        self.resumable = plan.source.abilities().resumable

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What the conversion is (`Manifest.identity`)."""
        return self.plan.manifest().identity()

    @property
    def conversion(self) -> str:
        """A digest of what the conversion is, equal for the same command on other machines."""
        return blake2b(json.dumps(self.identity, sort_keys=True).encode()).hexdigest()

    def working_folder(self) -> WorkingFolder:
        """The folder in which the output is made; it may not be there yet."""
        return WorkingFolder(self.sink.prepare(self.manifest, self.begins), self.where)

    def other_options(self, spec: dict[str, Any]) -> list[str]:
        """Keys that differ in another conversion's spec, except those that only list its inputs."""
        from tar2tf_cli.conversion.manifest import differing

        listed_by = self.plan.source.known().listed_by
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

    def previous(self) -> Manifest | None:
        """The existing manifest.

        Raises:
            DamagedShardError: when there is another document, or a damaged one.
        """
        data = self.sink.read(self.manifest)
        return None if data is None else Manifest.from_bytes(data, self.where)

    def finished(self) -> Manifest | None:
        """The manifest of an identical conversion, if it was finished and all its files exist; otherwise None."""
        manifest = None
        if self.resumable and not self.overwrite:
            with contextlib.suppress(DamagedShardError):
                manifest = self.previous()
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


_ELSEWHERE: Final = "choose another output path"


class Takeover:
    """Finds the files of an earlier run, keeps those of this conversion, refuses others; writes nothing before `begin`.

    Attributes:
        found: normalised paths of existing files that may be replaced.
        stale: normalised paths of files that are removed once the output is whole, unless they are replaced.
        sealed: what an interrupted run noted of whole shards, which may be gone since, by lane and number.
        earlier: the earlier conversion that is brought up to date; None to convert everything.
        changes: how its inputs differ from those now.
        everything: why an update converts everything again; empty if it does not.

    Raises:
        OutputExistsError: when a file that this conversion does not claim is in the way.
    """

    def __init__(self, claim: Claim, folder: WorkingFolder) -> None:
        self._claim = claim
        self._sink = claim.sink
        self._folder = folder
        self.earlier: EarlierOutput | None = None
        self.changes: InputChanges | None = None
        self.everything = ""
        head, entries = folder.read_journal()
        head = head or {"identity": None, "replaces": []}
        self.run: str = head.get("run") or os.urandom(8).hex()  # the name of this run, and of those that continue it
        self._ours = head["identity"] == claim.identity
        self._continues = self._ours and claim.resumable
        previous = self._checked_previous()
        files = self._inside(previous.files) if previous else set()
        self.found = self._existing()
        self._check_found(files, head["identity"], has_manifest=previous is not None)
        self.stale = self._to_replace(files, head, entries)
        self.sealed: dict[tuple[str, int], JournalEntry] = _sealed(entries) if self._continues else {}
        self._previous: Manifest | None = None  # that of the conversion that is brought up to date
        self._bring_up_to_date(previous, head)

    def begin(self) -> None:
        """Remove what an interrupted run left that this one does not continue, and start the journal."""
        if self._continues:
            self._folder.clear(strays=True)
        else:
            self._folder.clear()
            self._sink.drop_staged()
        self._begin_journal()

    def _bring_up_to_date(self, previous: Manifest | None, head: dict[str, Any]) -> None:
        """Compare with the earlier conversion, if that can save any work."""
        claim = self._claim
        if previous is None and self._ours and "previous" in head:  # killed while it replaced that manifest's files
            previous = Manifest.from_bytes(head["previous"].encode(), claim.where)
        elif previous is None or not claim.update:
            return
        if names := claim.other_options(previous.spec):
            self.everything = f"the options have changed ({', '.join(names[:3])})"
        elif option := claim.plan.why_everything:
            self.everything = f"with {option}, each shard depends on all inputs"
        elif not previous.lineage and previous.inputs:
            self.everything = "the manifest does not say which records came from which input"
        else:
            from tar2tf_cli.conversion.manifest import InputChanges

            self.changes = InputChanges.between(previous.inputs, claim.plan.inputs)
            self.earlier = EarlierOutput.of(previous, claim.plan.inputs, claim.lane, claim.is_there)
            self._previous = previous

    def _checked_previous(self) -> Manifest | None:
        """The existing manifest, unless this conversion may not replace it; a damaged one lists nothing."""
        claim, hint = self._claim, None
        try:
            previous = claim.previous()
        except DamagedShardError as error:
            if claim.overwrite:
                return Manifest({}, [])
            reason = f"already exists, and {error.message}"
        else:
            if previous is None or claim.update or claim.overwrite:
                return previous
            if previous.identity() != claim.identity:
                reason, hint = _what_changed(previous, claim)
            elif claim.resumable:
                return previous
            else:
                reason = "already exists, and tar2tf cannot tell whether the input is still the same"
        raise OutputExistsError(reason, shard=claim.where, hint=hint, replaceable=True)

    def _check_found(self, files: set[str], interrupted: dict[str, Any] | None, *, has_manifest: bool) -> None:
        """Raise if something is in the way.

        Args:
            files: what the existing manifest lists.
            interrupted: the identity of an interrupted run.
            has_manifest: whether there is a manifest, which claims the documents beside it.
        """
        documents = {os.path.normpath(path) for path in self._claim.documents if self._sink.exists(path)}
        self._check_irreplaceable(self.found | documents)
        if not (self._ours or _is_same_command(interrupted, self._claim)):  # or it was checked for the journal
            claimed = files | documents if has_manifest else files
            self._check_foreign(self.found | documents, claimed, interrupted=interrupted is not None)

    def _to_replace(self, files: set[str], head: dict[str, Any], entries: list[Any]) -> set[str]:
        """What is there of an earlier conversion's files, and of those that another interrupted run published."""
        replaced = self._inside(head["replaces"])
        if not self._ours:
            replaced |= files | self._inside(path for entry in entries for path in published(entry))
        return {path for path in replaced if self._sink.exists(path)}

    def _existing(self) -> set[str]:
        """Normalised paths of existing files that match the template, including indexes if they are wanted.

        Raises:
            OutputExistsError: when one of them is a folder.
        """
        claim = self._claim
        text = claim.template.text.removeprefix(claim.prefix)
        regex = PathTemplate.parse(text).regex()
        exact = not claim.template.fields & {"split", "input"}  # otherwise a folder could match by accident
        found = set()
        for relative, is_folder in self._sink.walk(claim.root, nested="/" in text):
            if is_folder and not exact:
                continue
            if regex.match(relative) or (claim.with_index and regex.match(relative.removesuffix(".idx"))):
                path = os.path.normpath(os.path.join(claim.root, relative))
                if is_folder:
                    hint = f"remove it, or {_ELSEWHERE}"
                    raise OutputExistsError("is a directory, but a file is to be written here", shard=path, hint=hint)
                found.add(path)
        return found - {os.path.normpath(claim.manifest)}

    def _check_irreplaceable(self, paths: set[str]) -> None:
        """Raise if an input, a device or a pipe would be replaced."""
        plan = self._claim.plan
        inputs = {_file(path) for path in plan.source.paths(plan.inputs)} if paths else set()
        for where in map(self._sink.locate, sorted(paths)):
            if _file(where) in inputs:
                raise OutputExistsError("is an input of this conversion", shard=where, hint=_ELSEWHERE)
            check_replaceable(where)

    def _check_foreign(self, paths: set[str], claimed: set[str], *, interrupted: bool) -> None:
        """Raise if files that this conversion does not claim would be replaced."""
        foreign = sorted(path for path in paths - claimed if path.removesuffix(".idx") not in claimed)
        if foreign and not self._claim.overwrite:
            left = "was left by an interrupted run with other options"
            reason = left if interrupted else "already exists, and no manifest of this conversion lists it"
            raise OutputExistsError(reason, shard=self._sink.locate(foreign[0]), replaceable=True)

    def _begin_journal(self) -> None:
        """Start a new journal, with the manifest that is brought up to date: it is gone while files are replaced."""
        replaces = sorted(os.path.relpath(path, self._claim.root) for path in self.stale)
        head = {"identity": self._claim.identity, "replaces": replaces, "run": self.run}
        if self._previous:
            head["previous"] = self._previous.to_bytes().decode("ascii")
        self._folder.begin_journal(head, keep=self._ours)

    def _inside(self, paths: Iterable[str]) -> set[str]:
        """Normalised paths of the files listed in a manifest or journal, without any that lead outside its folder."""
        inside = (os.path.normpath(path) for path in paths if not os.path.isabs(path))
        root = self._claim.root
        return {os.path.normpath(os.path.join(root, path)) for path in inside if path.split(os.sep)[0] != ".."}


def _what_changed(previous: Manifest, claim: Claim) -> tuple[str, str | None]:
    """What differs from an earlier conversion; and a hint, if there is more to do about it than `--overwrite`."""
    from tar2tf_cli.conversion.manifest import InputChanges, differing

    hint = "pass --update to redo only what changed, --overwrite to replace everything, or choose another output path"
    names = claim.other_options(previous.spec)
    if not names and previous.identity()["inputs"] != claim.identity["inputs"]:
        return f"was made from other inputs: {InputChanges.between(previous.inputs, claim.plan.inputs)}", hint
    found = names or differing(previous.spec, claim.identity["spec"])
    return f"was made with other options: {', '.join(found[:3])} changed", None if names else hint


def _sealed(entries: list[Any]) -> dict[tuple[str, int], JournalEntry]:
    """The entries of whole shards, by lane and number."""
    return {(entry[0], entry[1]): entry for entry in entries if type(entry) is list and len(entry) == 6}


def _is_same_command(identity: dict[str, Any] | None, claim: Claim) -> bool:
    """Whether an interrupted run was of the same conversion, perhaps of other inputs."""
    if identity is None or identity["version"] != claim.identity["version"]:
        return False
    return not claim.other_options(identity["spec"])


def _file(path: str) -> tuple[int, int] | str:
    """A key that is equal for two paths to the same file."""
    try:
        status = os.stat(path)
    except OSError:
        return path
    return status.st_dev, status.st_ino
