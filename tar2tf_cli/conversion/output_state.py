"""Existing files of an output, and the decision to keep, continue, update, replace or refuse them."""

from __future__ import annotations

import contextlib
import json
import os
import re
from array import array
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, lru_cache, partial
from io import BytesIO
from itertools import islice
from typing import Any, BinaryIO, Final, Literal, TypeAlias

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.conversion.plan import Plan, lanes_of
from tar2tf_cli.conversion.sharding import InputRange, PlannedShard, ShardPlanner, ShardReport
from tar2tf_cli.conversion.spool import InputUnits, SpoolIndex, pack_columns, unpack_columns
from tar2tf_cli.conversion.working_folder import WorkingFolder
from tar2tf_cli.errors import DamagedShardError, OutputExistsError, UsageError, count, few
from tar2tf_cli.features.feature_map import Schema
from tar2tf_cli.formats.checksums import crc32c
from tar2tf_cli.formats.files import RecordFile, write_whole
from tar2tf_cli.inputs.manifest import VERSION, Manifest, ShardEntry, changes_between, differing
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.sinks import Sink, open_sink
from tar2tf_cli.spec.conversion import Conversion
from tar2tf_cli.spec.templates import PathTemplate, check_replaceable, hidden_name
from tar2tf_cli.stores import connection_options
from tar2tf_cli.structs import dataclass, field

JournalEntry: TypeAlias = list[Any]
"""A finished shard: lane, number, size, records, CRC-32C, and its path if known."""

CHANGED: Final = -1
"""The size that the journal records for a shard that other programs changed."""

NO_MANIFEST: Final = "--update needs the manifest of the last run, and a stream or a generator of paths has none"


class Destination:
    """The output of a conversion before it is written: its paths, and its identity.

    Args:
        plan: the conversion and its inputs.
        sink: publishes the shards.
        overwrite: whether files that this conversion does not claim may be replaced.
        update: whether the output of the same spec from other inputs is brought up to date.
        remove_many: whether an update may remove more than half of the inputs.
        own: the manifest's path if it does not follow from the template.

    Attributes:
        template: the path template of the shards, relative to the sink.
        manifest: the manifest's path.
        documents: paths of the files to be written next to the manifest.
    """

    def __init__(
        self,
        plan: Plan,
        sink: Sink,
        *,
        overwrite: bool = False,
        update: bool = False,
        remove_many: bool = False,
        own: str | None = None,
    ) -> None:
        self.plan = plan
        self.sink = sink
        self.overwrite = overwrite
        self.update = update
        self.remove_many = remove_many
        self.template = PathTemplate.parse(sink.inside(plan.conversion.output.template.text))
        self.manifest = own or self.template.manifest()
        self.documents = [sink.inside(name) for name in plan.documents()]

    @property
    def where(self) -> str:
        """The manifest's path or URL, as shown to users."""
        return self.sink.locate(self.manifest)

    @property
    def prefix(self) -> str:
        """The prefix of all shard paths that is omitted in the manifest."""
        return self.manifest[: -len(os.path.basename(self.manifest))]

    @property
    def root(self) -> str:
        """The manifest's folder."""
        return self.prefix or "."

    @property
    def sizes(self) -> str:
        """Path of the sizes of all records, for `--update`."""
        return self.prefix + hidden_name(os.path.basename(self.manifest), ".sizes")

    @property
    def with_index(self) -> bool:
        """Whether each shard has an `--index`."""
        return self.plan.conversion.output.index

    @property
    def by_total(self) -> bool:
        """Whether the shards' paths are known only once all shards are written."""
        return "total" in self.template.fields

    @property
    def resumable(self) -> bool:
        """Whether the inputs are known to be the same as in an interrupted run."""
        return self.plan.source.capabilities.resumable

    @cached_property
    def _manifest(self) -> Manifest:
        return self.plan.manifest()

    @cached_property
    def identity(self) -> dict[str, Any]:
        """The identity of the conversion, as in `Manifest.identity`."""
        return self._manifest.identity()

    @property
    def relative_template(self) -> str:
        """The path template of the shards relative to the manifest's folder."""
        return self.template.text[len(self.prefix) :]

    @property
    def digest(self) -> str:
        """A digest of the conversion's identity, equal for the same command on other machines."""
        return self._manifest.conversion

    def is_of_same_options(self, identity: dict[str, Any] | None) -> bool:
        """Whether an identity has the options of this conversion, perhaps with other inputs."""
        return identity is not None and identity["version"] == VERSION and not self.other_options(identity["spec"])

    def is_same(self, identity: dict[str, object] | None) -> bool:
        """Whether an identity is that of this conversion, regardless of how its inputs were listed."""
        return self.is_of_same_options(identity) and (identity or {})["inputs"] == self.identity["inputs"]

    def other_options(self, spec: dict[str, object]) -> list[str]:
        """Return the keys that differ in another conversion's spec, except those that only list its inputs."""
        listed_by = self.plan.source.listing_info().listed_by
        return [name for name in differing(spec, self.identity["spec"]) if name not in listed_by]

    def working_folder(self) -> WorkingFolder:
        """The folder in which the output is made; it may not exist yet."""
        begins = os.path.commonprefix([self.template.earlier_manifest(), self.template.text]).rstrip("-")  # noqa: RUF071 - of names
        return WorkingFolder(self.sink.prepare(self.manifest, begins), self.where)

    def path(self, shard: PlannedShard, total: int = 0) -> str:
        """Return the path of a shard."""
        return self.template.path(shard.number, total=total, split=shard.lane, stem=shard.lane)

    def listed_path(self, shard: PlannedShard) -> str:
        """Return the path of a shard relative to the manifest's folder, as the manifest lists it."""
        return self.path(shard).removeprefix(self.prefix)

    def own(self, paths: Iterable[str]) -> set[str]:
        """Return the normalised paths of the files, listed in a manifest or journal, that match this output's template.

        No other listed file is ever removed or replaced: none outside the output's folder, no hidden file, no file
        behind a symbolic link, and none with another name.
        """
        regex, documents = self._listed_regex, {*self.documents, *map(self.template.document_path, _DOCUMENTS)}
        names, is_real = set(), lru_cache(maxsize=None)(self._is_real)
        for path in map(os.path.normpath, paths):
            whole = os.path.normpath(os.path.join(self.root, path))
            fits = regex.match(path) or regex.match(path.removesuffix(".idx")) or self.prefix + path in documents
            if fits and not _is_hidden(path, self.template.text) and is_real(os.path.dirname(path)):
                names.add(whole)
        return names

    @cached_property
    def _listed_regex(self) -> re.Pattern[str]:
        """Regular expression for the paths of shards relative to the manifest's folder."""
        return PathTemplate.parse(self.template.text.removeprefix(self.prefix)).regex()

    def _is_real(self, folder: str) -> bool:
        """Whether a folder below the manifest's is reached without symbolic links."""
        root = os.path.realpath(self.root)
        return not self.sink.renames or os.path.realpath(os.path.join(root, folder)) == os.path.normpath(
            os.path.join(root, folder)
        )

    def has_shard(self, entry: ShardEntry) -> bool:
        """Whether a shard of an earlier manifest exists with its recorded size and its `--index`."""
        path = self.prefix + entry.path
        there = self.sink.size(path) == entry.bytes
        return there and (not self.with_index or self.sink.size(f"{path}.idx") is not None)

    def existing(self) -> set[str]:
        """Return the normalised paths of existing files that match the template, and of indexes if they are wanted.

        Raises:
            OutputExistsError: when one of them is a folder.
        """
        regex = self._listed_regex
        exact = not self.template.fields & {"split", "input"}  # otherwise a folder could match by accident
        names = set()
        for relative, is_folder in self.sink.walk(
            self.root, nested="/" in self.template.text.removeprefix(self.prefix)
        ):
            if is_folder and not exact:
                continue
            if regex.match(relative) or (self.with_index and regex.match(relative.removesuffix(".idx"))):
                path = os.path.normpath(os.path.join(self.root, relative))
                if is_folder:
                    hint = f"remove it, or {_ELSEWHERE}"
                    raise OutputExistsError("is a directory, but a file is to be written here", shard=path, hint=hint)
                names.add(path)
        return names - {os.path.normpath(self.manifest)}

    def previous(self) -> Manifest | None:
        """Return the existing manifest, or None.

        Raises:
            DamagedShardError: when the file is another document, or damaged.
        """
        data = self.sink.read(self.manifest)
        return None if data is None else Manifest.from_bytes(data, self.where)

    def published_sizes(self) -> BinaryIO | None:
        """Open the file of record sizes published with the existing manifest; None if there is none."""
        if self.sink.renames:
            with contextlib.suppress(OSError):
                return open(self.sizes, "rb")
            return None
        data = self.sink.read(self.sizes)
        return None if data is None else BytesIO(data)


def destination(plan: Plan, *, endpoint: str | None, apart: bool = False, **how: bool) -> Destination:
    """Return the destination of a plan's conversion, in a folder or a bucket.

    Args:
        plan: the conversion.
        endpoint: URL of the store that holds the output.
        apart: whether the manifest gets another name if a manifest of other files has its usual name, as `train.record`
            and `train-<>.record` both have `_train-manifest.json`.
        **how: `overwrite`, `update` and `remove_many`, as for a `Destination`.

    Raises:
        UsageError: when both `overwrite` and `update` are given, or the store cannot be written to.
    """
    if how.get("remove_many") and not how.get("update"):
        raise UsageError("--remove-many is only for --update")
    if how.get("update") and how.get("overwrite"):
        raise UsageError(
            "--update keeps the shards that have not changed, and --overwrite replaces all: use one of them"
        )
    conversion, path = plan.conversion, plan.conversion.output.path
    sink = open_sink(path, **connection_options(path, conversion, endpoint))
    usual = Destination(plan, sink, own=None, **how)
    earlier = usual.template.earlier_manifest()
    if not sink.exists(usual.manifest) and sink.exists(earlier):  # an earlier version wrote it
        usual = Destination(plan, sink, own=earlier, **how)
    if apart and _is_taken(usual):
        return Destination(plan, sink, own=usual.template.own_manifest(), **how)
    return usual


def _is_taken(there: Destination) -> bool:
    """Whether other files' manifest has the usual name, now or when an earlier run chose another name."""
    if there.sink.exists(there.template.own_manifest(), now=True):
        return True
    with contextlib.suppress(DamagedShardError):
        previous = there.previous()
        if previous and previous.files:
            ours = there.template.regex()
            return not any(ours.match(there.prefix + path) for path in previous.files)
    return False


Action: TypeAlias = 'Literal["new", "up to date", "continue", "update", "overwrite", "refuse"]'
_ELSEWHERE: Final = "choose another output path"
_DOCUMENTS: Final = ("labels.json", "examples.csv")
"""Documents that sources write next to the manifest; deleted when their conversion is replaced."""


@dataclass(eq=False, repr=False)
class Decision:
    """The decision how a run treats existing output, made before the run changes anything.

    Attributes:
        run: an identifier of this run and of the runs that continue it.
        error: the reason to refuse the output, or None.
        finished: the manifest of the same conversion, if it is finished and nothing is to be done.
        continues: whether an interrupted run of the same conversion is continued.
        interrupted: whether such a run exists; it cannot be continued if its inputs can be read only once.
        replaceable: normalised paths of existing files that may be replaced.
        published: normalised paths of files that a killed run of the same conversion must have written, as only its
            claim remains; a file is kept if it has the bytes to be written.
        stale: normalised paths of files that are removed once the output is complete, unless replaced.
        others: paths of files in the existing manifest that are kept because they do not match the template.
        sealed: the journal entries of an interrupted run's finished shards, which may be missing, by lane and number.
        earlier: the conversion whose shards an update may keep; None to convert everything.
        previous: the manifest of that conversion.
        changes: a description of the difference between its inputs and the current ones.
        everything: the reason why an update converts everything again; empty otherwise.
    """

    run: str = field(default_factory=lambda: os.urandom(8).hex())
    error: OutputExistsError | None = None
    finished: Manifest | None = None
    continues: bool = False
    interrupted: bool = False
    replaceable: set[str] = field(default_factory=set)
    published: set[str] = field(default_factory=set)
    stale: set[str] = field(default_factory=set)
    others: list[str] = field(default_factory=list)
    sealed: dict[tuple[str, int], JournalEntry] = field(default_factory=dict)
    earlier: EarlierConversion | None = None
    previous: Manifest | None = None
    changes: str = ""
    everything: str = ""

    def close(self) -> None:
        """Close the file of sizes, if it is open."""
        if self.earlier:
            self.earlier.close()

    @property
    def outcome(self) -> tuple[Action, str]:
        """The decision as a word, and a sentence about it, which is empty for a new output."""
        if self.error:
            return "refuse", f"would refuse: {self.error.sentence}"
        if self.finished:
            return "up to date", "up to date: nothing to do"
        if self.sealed:
            return "continue", f"would continue an interrupted run that finished {count(len(self.sealed), 'shard')}"
        if self.published:
            return (
                "continue",
                f"would continue a killed run, and compare {count(len(self.published), 'file')} that it left",
            )
        if self.changes:
            return "update", f"would update: {self.changes}"
        if self.everything:
            return "update", f"would convert everything again: {self.everything}"
        if replaced := sorted(self.replaceable | self.stale):
            return "overwrite", f"would replace {count(len(replaced), 'existing file')} ({few(replaced)})"
        return "new", ""


def decide(there: Destination, folder: WorkingFolder) -> Decision:
    """Decide how to treat the existing output; called by the publisher and by the dry run.

    Args:
        there: the files that the conversion will write.
        folder: the working folder, which may not exist.
    """
    try:
        finished = find_finished(there)
        return Decision(finished=finished) if finished else _unfinished(there, folder)
    except OutputExistsError as error:
        return Decision(error=error)


def find_finished(there: Destination) -> Manifest | None:
    """Return the manifest of the same conversion if it was finished and all its files exist; otherwise None."""
    manifest = None
    if there.resumable and not there.overwrite:
        with contextlib.suppress(DamagedShardError):
            manifest = there.previous()
    if manifest is None or not there.is_same(manifest.identity()) or not all(map(there.has_shard, manifest.shards)):
        return None
    return manifest if all(there.sink.size(path) is not None for path in there.documents) else None


def _unfinished(there: Destination, folder: WorkingFolder) -> Decision:
    """Decide about an output that is new, unfinished, of another conversion, or of other inputs.

    Raises:
        OutputExistsError: when a file exists that this conversion may not replace.
    """
    folder.check()
    head, entries = folder.read_journal()
    of_journal = head["identity"] if head else None
    made = Decision(interrupted=there.is_same(of_journal), replaceable=there.existing())
    made.continues = made.interrupted and there.resumable
    if head and "run" in head:
        made.run = head["run"]
    previous = _previous(there)
    listed = there.own(previous.files) if previous else set()
    documents = {os.path.normpath(path) for path in there.documents if there.sink.exists(path)}
    _check_irreplaceable(there, made.replaceable | documents)
    if not there.is_of_same_options(of_journal):  # otherwise it was checked before that journal was begun
        claimed = listed | documents if previous else listed
        foreign = _foreign(made.replaceable | documents, claimed) if not there.overwrite else []
        if foreign and of_journal is not None:
            left = "was left by an interrupted run with other options"
            raise OutputExistsError(left, shard=there.sink.locate(foreign[0]), replaceable=True)
        if foreign and there.sink.reserved_by() != there.digest:
            raise not_listed(there.sink.locate(foreign[0]))
        made.published = set(foreign)
        made.replaceable -= made.published
    replaced = there.own(head.get("replaces", [])) if head else set()
    if not made.interrupted:
        replaced |= listed | there.own(path for entry in entries for path in _published(entry))
    made.stale = {path for path in replaced if there.sink.exists(path)}
    made.others = (
        sorted(set(previous.files) - {os.path.relpath(path, there.root) for path in listed}) if previous else []
    )
    made.sealed = _sealed(entries) if made.continues else {}
    if previous and there.update and not there.remove_many and 2 * len(there.plan.inputs) < len(previous.inputs):
        raise OutputExistsError(
            f"was made from {len(previous.inputs):,} inputs, and there are only {len(there.plan.inputs):,} now: "
            f"{changes_between(previous.inputs, there.plan.inputs)}",
            shard=there.where,
            hint="pass --remove-many if the other inputs were removed on purpose; otherwise check the listing",
        )
    if made.interrupted and head and "previous" in head:  # a run was killed while it replaced that manifest's files
        previous = Manifest.from_bytes(head["previous"].encode(), there.where)
        _bring_up_to_date(made, there, previous, lambda: folder.open("previous.sizes"))
    elif previous and there.update:
        _bring_up_to_date(made, there, previous, there.published_sizes)
    return made


def _bring_up_to_date(
    made: Decision, there: Destination, previous: Manifest, open_sizes: Callable[[], BinaryIO | None]
) -> None:
    """Fill in the earlier conversion and its differences, if an update can keep any of its shards."""
    if others := there.other_options(previous.spec):
        made.everything = f"the options have changed ({', '.join(others[:3])})"
    elif option := there.plan.full_update_reason:
        made.everything = f"with {option}, each shard depends on all inputs"
    elif not previous.is_as_written:
        made.everything = "the manifest was changed after it was written"
    elif (sizes := open_sizes()) is None:
        made.everything = f"{there.sink.locate(there.sizes)}, the sizes of its records, is missing"
    else:
        try:
            made.earlier = EarlierConversion(previous, sizes, there.plan, there.listed_path, there.has_shard)
        except (ValueError, LookupError, TypeError, OverflowError):
            sizes.close()
            made.everything = f"{there.sink.locate(there.sizes)} does not list the sizes of the records"
            return
        made.previous = previous
        made.changes = changes_between(previous.inputs, there.plan.inputs)


def _previous(there: Destination) -> Manifest | None:
    """Return the existing manifest, unless this conversion may not replace it; a damaged one lists nothing."""
    hint = None
    try:
        previous = there.previous()
    except DamagedShardError as error:
        if there.overwrite:
            return Manifest({}, [])
        reason = f"already exists, and {error.message}"
    else:
        if previous is None or there.update or there.overwrite:
            return previous
        if not there.is_same(previous.identity()):
            reason, hint = _what_changed(previous, there)
        elif there.resumable:
            return previous
        else:
            reason = "already exists, and tar2tf cannot tell whether the input is still the same"
    raise OutputExistsError(reason, shard=there.where, hint=hint, replaceable=True)


def _what_changed(previous: Manifest, there: Destination) -> tuple[str, str | None]:
    """Describe the difference from an earlier conversion, with a hint if `--overwrite` is not the only choice."""
    hint = "pass --update to redo only what changed, --overwrite to replace everything, or choose another output path"
    names = there.other_options(previous.spec)
    if not names and previous.identity()["inputs"] != there.identity["inputs"]:
        return f"was made from other inputs: {changes_between(previous.inputs, there.plan.inputs)}", hint
    if names == ["input.joined"]:
        hint = "pass --update or --overwrite to convert everything again, or choose another output path"
        changes = changes_between(_joined_in(previous.spec), _joined_in(there.identity["spec"]))
        return f"was made from other inputs of --join: {changes}", hint
    changed = names or differing(previous.spec, there.identity["spec"])
    shown = [
        f"{name} was {_value(previous.spec, name)}, is {_value(there.identity['spec'], name)}" for name in changed[:3]
    ]
    return f"was made with other options: {'; '.join(shown)}", None if names else hint


def _joined_in(spec: dict[str, Any]) -> list[ObjectInfo]:
    """Return the inputs of the datasets that a recorded spec joins."""
    datasets = zip(spec["input"]["join"], spec["input"].get("joined", []), strict=False)
    return [
        ObjectInfo(f"{item['name']} of {bucket}", item["size"], item["version"])
        for bucket, items in datasets
        for item in items
    ]


def _value(spec: dict[str, object], name: str) -> str:
    """Return the value of a key of a spec, such as `output.index`, as a short text."""
    value: Any = spec
    for key in name.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    shown = "not given" if value is None else json.dumps(value)
    return shown if len(shown) <= 60 else f"{shown[:60]}…"


def _is_hidden(path: str, template: str) -> bool:
    """Whether a file or one of its folders is hidden, unless the template itself begins with a dot there."""
    parts = path.split(os.sep)
    shown = [part[:1] == "." for part in template.split("/")[-len(parts) :]]
    return any(part[:1] == "." and not own for part, own in zip(parts, shown, strict=False))


def _check_irreplaceable(there: Destination, paths: set[str]) -> None:
    """Raise an error if an input, a device or a pipe would be replaced."""
    plan = there.plan
    inputs = {_file(path) for path in plan.paths(plan.inputs)} if paths else set()
    for where in map(there.sink.locate, sorted(paths)):
        if _file(where) in inputs:
            raise OutputExistsError("is an input of this conversion", shard=where, hint=_ELSEWHERE)
        check_replaceable(where)


def _foreign(paths: set[str], claimed: set[str]) -> list[str]:
    """Return the files that no manifest of this conversion lists and that are not the index of a listed shard."""
    return sorted(path for path in paths - claimed if path.removesuffix(".idx") not in claimed)


def not_listed(where: str) -> OutputExistsError:
    """Make the error for a file that this conversion does not claim."""
    reason = "already exists, and no manifest of this conversion lists it"
    return OutputExistsError(reason, shard=where, replaceable=True)


def _published(entry: JournalEntry | dict[str, Any]) -> Iterable[str]:
    """Return the paths that a journal entry records as published or about to be published."""
    if isinstance(entry, dict):
        return list(entry.get("paths", []))
    return [path for path in entry[5:] if path is not None]


def _sealed(entries: list[object]) -> dict[tuple[str, int], JournalEntry]:
    """Return the journal entries of finished shards without later changes, by lane and number."""
    last = {(entry[0], entry[1]): entry for entry in entries if type(entry) is list and len(entry) == 6}
    return {place: entry for place, entry in last.items() if entry[2] != CHANGED}


def _file(path: str) -> tuple[int, int] | str:
    """Return a key that is equal for two paths of the same file."""
    try:
        status = os.stat(path)
    except OSError:
        return path
    return status.st_dev, status.st_ino


_AT_ONCE: Final = 1 << 20
_COLUMNS: Final = ("sizes", "records", "lanes", "high", "low")
_NONE: Final = array("B")
_NO_OTHERS: Final = [array("Q") for _ in _COLUMNS[2:]]
_BLOCK_INPUTS: Final = 64
_BLOCK_UNITS: Final = 1 << 16


class PublishedColumns:
    """Selects the columns of an input's index that are published for later updates.

    Args:
        conversion: the conversion.

    Attributes:
        columns: names of the columns; for tars also the key hashes, as keys must be unique within a shard.
    """

    def __init__(self, conversion: Conversion) -> None:
        output = conversion.output
        self.columns: tuple[str, ...] = _COLUMNS if output.traits.holds == "record" else (*_COLUMNS, "keys")
        divided = output.is_limited or output.limit is not None or conversion.split
        self._together = not (divided or conversion.drop_duplicates is not None)

    def of(self, part: InputUnits) -> list[array[int]]:
        """Return the columns of an input's units, summed to one unit if inputs are never divided among shards."""
        index, first, stop = part.spool, part.first, part.stop
        if self._together and first < stop:
            columns = [array("Q", [index.size(first, stop)]), array("Q", [index.count(first, stop)]), *_NO_OTHERS]
        else:
            columns = [getattr(index, name)[first:stop] for name in _COLUMNS]
        if "keys" in self.columns:
            columns.append(index.keys_of(first, stop))
        return columns


class SizesFile(RecordFile):
    """Writes report and unit sizes of each input to a file, in input order: a few bytes for each record.

    Inputs are written in blocks, as small inputs would cost more than their records. A block depends only on the
    inputs before and in it, so that the file is the same however they were read.

    Args:
        path: the file's path.
        conversion: the conversion.
    """

    def __init__(self, path: str, conversion: Conversion) -> None:
        super().__init__(path)
        self._measure = PublishedColumns(conversion)
        self._schema: Schema | None = None  # of the last input
        self._begin_block()

    def _begin_block(self) -> None:
        self._reports: list[dict[str, object]] = []
        self._lengths: list[list[int]] = []  # of each column of each input
        self._columns = [array("Q") for _ in self._measure.columns]

    def add(self, report: InputReport, part: InputUnits) -> None:
        """Append the next input."""
        whole = report.as_before()
        if report.schema is not self._schema:  # inputs that were read together share it
            if self._schema is None or report.schema.key != self._schema.key:
                whole["schema"] = report.schema.to_json()
            self._schema = report.schema
        columns = self._measure.of(part)
        self._reports.append(whole)
        self._lengths.append([*map(len, columns)])
        for column, more in zip(self._columns, columns, strict=True):
            column.extend(more)
        if len(self._reports) == _BLOCK_INPUTS or len(self._columns[0]) >= _BLOCK_UNITS:
            self._end_block()

    def flush(self) -> None:
        """Write the inputs so far to the operating system."""
        self._end_block()
        super().flush()

    def _end_block(self) -> None:
        if self._reports:
            head = {"reports": self._reports, "lengths": self._lengths}
            parts = pack_columns(head, map(_narrow, self._columns))
            self._begin_block()
            self.write(parts, sum(map(len, parts)))


def _narrow(column: array[int]) -> array[int]:
    """Convert a column to the smallest integer type that holds all of its numbers."""
    if not column:
        return _NONE
    for code in "BHI":
        try:
            return array(code, column)
        except OverflowError:
            continue
    return column


class EarlierConversion:
    """The result of an earlier conversion with the same options and other inputs, read for `--update`.

    The sizes of its records are published next to the manifest. The ordinary planner divides them among shards again,
    which shows the records of each shard. The same planner then divides the sizes of the current inputs, of which only
    new and changed ones are read. A shard that holds the same records as before is kept.

    Args:
        manifest: the earlier manifest.
        sizes: the sizes published with the manifest.
        plan: the current conversion.
        path: returns the path of a shard as listed in a manifest.
        has_shard: returns whether the output has the shard of a manifest entry.

    Attributes:
        changed: numbers of the inputs that must be read: new and changed ones, in ascending order.

    Raises:
        ValueError: when the sizes do not match the manifest or its shards.
    """

    def __init__(
        self,
        manifest: Manifest,
        sizes: BinaryIO,
        plan: Plan,
        path: Callable[[PlannedShard], str],
        has_shard: Callable[[ShardEntry], bool],
    ) -> None:
        self._sizes = sizes
        self._measure = PublishedColumns(plan.conversion)
        self._block = lru_cache(maxsize=1)(self._read_block)
        self._blocks = array("Q")  # offsets in the file
        self._firsts = array("Q")  # the number of each block's first earlier input
        self._schemas: list[Schema] = []
        self._schema_of = array("Q")  # numbers of the earlier inputs
        self._shards: dict[tuple[str, int], tuple[list[InputRange], ShardReport]] = {}
        now = _renumbered(manifest.inputs, plan.inputs)
        self._before = {new: old for old, new in now.items()}
        self.changed = [number for number in range(len(plan.inputs)) if number not in self._before]
        self._check_sum(manifest.sizes)
        exact = not plan.conversion.output.compresses_shards
        entries = {entry.path: entry for entry in manifest.shards}
        for shard in self._planned(manifest, plan):
            entry = entries.pop(path(shard), None)
            if entry is None or entry.records != shard.records or (exact and entry.bytes != shard.size):
                raise ValueError("the sizes do not add up to the shards")
            if has_shard(entry):
                origins = [origin._replace(source=now.get(origin.source, -1)) for origin in shard.origins]
                crc = int(entry.digest.rpartition(":")[2], 16)
                self._shards[shard.lane_and_number] = origins, ShardReport(entry.bytes, entry.records, crc)
        if entries:
            raise ValueError("the sizes do not add up to the shards")

    def known(self, number: int) -> tuple[InputReport, InputUnits] | None:
        """Return the report of an input and the sizes of its units without reading it; None if new or changed."""
        old = self._before.get(number)
        if old is None:
            return None
        block = bisect_right(self._firsts, old) - 1
        report, columns = self._block(self._blocks[block])[old - self._firsts[block]]
        schema = self._schemas[self._schema_of[old]]
        return InputReport.from_json(report, schema), self._units(number, columns)

    def is_as_before(self, number: int, part: InputUnits) -> bool:
        """Whether an unchanged input that was read again has the units recorded earlier."""
        known, units = self.known(number), self._measure.of(part)
        return known is not None and all(
            getattr(known[1].spool, name) == column for name, column in zip(self._measure.columns, units, strict=True)
        )

    def close(self) -> None:
        """Close the file of sizes."""
        self._sizes.close()

    def save(self, path: str) -> None:
        """Copy the sizes to a file, so that an interrupted update can continue."""
        self._sizes.seek(0)
        write_whole(path, iter(partial(self._sizes.read, _AT_ONCE), b""))

    def report(self, shard: PlannedShard) -> ShardReport | None:
        """Return the report of the earlier shard with this lane and number, whatever it holds; None without one."""
        return self._shards[shard.lane_and_number][1] if shard.lane_and_number in self._shards else None

    def kept(self, shard: PlannedShard) -> ShardReport | None:
        """Return the report of a shard that exists already and holds the same records; otherwise None."""
        origins, report = self._shards.get(shard.lane_and_number, (None, None))
        return report if origins == shard.origins else None

    def _check_sum(self, digest: str | None) -> None:
        crc = 0
        while data := self._sizes.read(_AT_ONCE):
            crc = crc32c(data, crc)
        self._sizes.seek(0)
        if digest != f"crc32c:{crc:08x}":
            raise ValueError("the sizes are those of another conversion")

    def _planned(self, manifest: Manifest, plan: Plan) -> Iterator[PlannedShard]:
        """Yield the shards of the earlier conversion with the origins of their records."""
        lanes = lanes_of(plan.conversion, manifest.inputs, plan.shards.splits)
        planner = ShardPlanner(plan.work, lanes, tracked=True)
        for number, columns in self._in_order(len(manifest.inputs)):
            yield from planner.add(number, self._units(number, columns))
        yield from planner.finish()

    def _in_order(self, count: int) -> Iterator[tuple[int, list[array[int]]]]:
        """Yield the number and columns of each earlier input, and note its block and schema."""
        while (first := len(self._schema_of)) < count:
            self._firsts.append(first)
            self._blocks.append(self._sizes.tell())
            for number, (report, columns) in enumerate(self._block(self._blocks[-1]), first):
                if "schema" in report:  # otherwise that of the previous input
                    self._schemas.append(Schema.from_json(report["schema"]))
                self._schema_of.append(len(self._schemas) - 1)
                yield number, columns

    def _read_block(self, offset: int) -> list[tuple[dict[str, Any], list[array[int]]]]:
        """Read the report and columns of each input in the block at an offset."""
        self._sizes.seek(offset)
        head, columns = unpack_columns(self._sizes)
        rest = [iter(column) for column in columns]
        return [
            (report, [array("Q", islice(column, length)) for column, length in zip(rest, lengths, strict=True)])
            for report, lengths in zip(head["reports"], head["lengths"], strict=True)
        ]

    def _units(self, number: int, columns: list[array[int]]) -> InputUnits:
        units = SpoolIndex()
        for name, column in zip(self._measure.columns, columns, strict=True):
            setattr(units, name, column)
        return InputUnits(number, units, 0, len(units.sizes))


def _renumbered(before: Sequence[ObjectInfo], now: Sequence[ObjectInfo]) -> dict[int, int]:
    """Return the current numbers of unchanged inputs by their earlier numbers."""
    numbers: dict[tuple[Any, ...], deque[int]] = defaultdict(deque)
    for number, item in enumerate(now):
        if item.version is not None:
            numbers[item[:3]].append(number)
    new_numbers: dict[int, int] = {}
    for number, item in enumerate(before):
        if same := numbers.get(item[:3]):
            new_numbers[number] = same.popleft()
    return new_numbers
