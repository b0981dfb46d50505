"""A worker's report on one input, and the notes for the user that follow from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Final, TypeVar

from tar2tf_cli.errors import DamagedShardError, Lost, Tar2tfError, count
from tar2tf_cli.features.feature_map import Schema
from tar2tf_cli.samples.keys import split_name
from tar2tf_cli.spec.conversion import Input
from tar2tf_cli.structs import dataclass, field, new_counter

T = TypeVar("T")


@dataclass(eq=False, repr=False)
class InputReport:
    """The statistics and faults of one input that was read.

    Attributes:
        samples: number of samples that became examples.
        skipped: number of skipped members, by reason.
        filtered: number of samples that options and ops filtered out, by option or op; `asked` in JSON, as in the
            manifest.
        boxes: numbers of boxes that were clipped at the edge of their image, dropped because they left it, or invalid.
        keys: numbers of the keys of `--keys` that the input has.
        matched: for each joined dataset, the rows that match a sample.
        more_rows: for each joined dataset, how many of these rows match a sample that an earlier row matches.
        unmatched: for each joined dataset, the number of samples without a match.
        unmatched_keys: for each joined dataset, the key of the first sample without a match; empty if there is none.
        errors: skipped faulty samples: shard, key, member, offset, message, and `lost` if bytes were not read.
        faulty_before: number of faulty samples that an earlier conversion skipped, which are not in `errors`.
        lost_before: the parts that the earlier conversion could not read, as from `Lost.to_json`.
        schema: types and shapes of the features.
        described: CSV rows that describe the stored examples, if the input is a list of examples.
        archives: number of tar archives in the input, end to end.
        split_differs: a member that the other key rule would assign to another sample, if that may be intended.
        not_adjacent: number of samples whose members are not adjacent and were regrouped.
        lacking: a note on entries that only the last sample lacks, if there are any.
        groups: the keys of the groups of samples, if samples are grouped, until they are compared with earlier ones.
        group_before: the key of the first group, if it began in an earlier input, and the number of its samples here.
        group_after: the key of the group that continues in the next input, and the number of samples read there.
        sample_keys: the key of each sample with a digest, in input order, if duplicates are skipped later.
        palettes: the entries that `decode` found to be PNGs with a palette.
        other_records: number of records that are not a tf.train.Example, and were copied unchanged.
    """

    samples: int = 0
    skipped: Counter[str] = field(default_factory=new_counter)
    filtered: Counter[str] = field(default_factory=new_counter)
    boxes: Counter[str] = field(default_factory=new_counter)
    keys: list[int] = field(default_factory=list)
    matched: list[list[int]] = field(default_factory=list)
    more_rows: list[int] = field(default_factory=list)
    unmatched: list[int] = field(default_factory=list)
    unmatched_keys: list[str] = field(default_factory=list)
    errors: list[dict[str, Any]] = field(default_factory=list)
    schema: Schema = field(default_factory=Schema)
    described: str = ""
    archives: int = 1
    split_differs: str | None = None
    not_adjacent: int = 0
    lacking: str | None = None
    groups: list[str] = field(default_factory=list)
    group_before: dict[str, int] = field(default_factory=dict)
    group_after: dict[str, int] = field(default_factory=dict)
    sample_keys: list[str] = field(default_factory=list)
    palettes: list[str] = field(default_factory=list)
    other_records: int = 0
    faulty_before: int = 0
    lost_before: list[dict[str, int | None]] = field(default_factory=list)

    def add_matches(
        self,
        rows: Sequence[int | None],
        keys: Sequence[str | bytes],
        dataset: int,
        datasets: int,
        more: Sequence[int] = (),
    ) -> None:
        """Count matches in a joined dataset.

        Args:
            rows: the row that matches each sample, or None.
            keys: the keys of the samples.
            dataset: the number of the dataset.
            datasets: the number of datasets.
            more: additional rows that match these samples.
        """
        if not self.matched:
            self.matched = [[] for _ in range(datasets)]
            self.more_rows = [0] * datasets
            self.unmatched = [0] * datasets
            self.unmatched_keys = [""] * datasets
        self.matched[dataset] += [row for row in rows if row is not None]
        self.matched[dataset] += more
        self.more_rows[dataset] += len(more)
        if missing := rows.count(None):
            self.unmatched[dataset] += missing
            key = keys[rows.index(None)]
            name = key.decode("utf-8", "surrogateescape") if isinstance(key, bytes) else key
            self.unmatched_keys[dataset] = self.unmatched_keys[dataset] or name

    def take_matches(self, other: InputReport) -> None:
        """Add the match counts of another report on the same input."""
        if self.matched:
            for own, more in zip(self.matched, other.matched, strict=False):
                own += more
            self.more_rows = [sum(pair) for pair in zip(self.more_rows, other.more_rows, strict=False)]
            self.unmatched = [sum(pair) for pair in zip(self.unmatched, other.unmatched, strict=False)]
            keys = zip(self.unmatched_keys, other.unmatched_keys, strict=False)
            self.unmatched_keys = [own_key or key for own_key, key in keys]
        else:
            self.matched, self.unmatched, self.unmatched_keys = other.matched, other.unmatched, other.unmatched_keys
            self.more_rows = other.more_rows

    @property
    def faulty(self) -> int:
        """The number of skipped faulty samples."""
        return len(self.errors) + self.faulty_before

    @property
    def lost(self) -> list[Lost]:
        """The unreadable parts of the input, each of which also has an error."""
        ranges = [*self.lost_before, *(error["lost"] for error in self.errors if "lost" in error)]
        return [Lost.from_json(lost) for lost in ranges]

    def _occurred(self) -> dict[str, Any]:
        """Return the schema and the fields that are neither 0 nor empty."""
        return dict(filter(itemgetter(1), vars(self).items()))

    def __reduce__(self) -> tuple[Callable[[dict[str, Any]], InputReport], tuple[dict[str, Any]]]:
        """Pickle what occurred only: all fields of a small input would take as long as reading it."""
        return _restored, (self._occurred(),)

    def to_json(self) -> dict[str, object]:
        """Return the report as plain JSON."""
        return {**self.without_schema(), "schema": self.schema.to_json()}

    def without_schema(self) -> dict[str, object]:
        """Return the fields that are neither 0 nor empty, and differ from a new report, without the schema, as plain
        JSON."""
        values = self._occurred()
        del values["schema"]
        return {_JSON_KEYS.get(name, name): _ordered(value) for name, value in values.items() if value != _EMPTY[name]}

    def as_before(self) -> dict[str, object]:
        """Return the counts as plain JSON, from which `from_json` restores the report of an earlier run."""
        kept = {
            "samples": self.samples,
            "skipped": self.skipped,
            "asked": self.filtered,
            "boxes": self.boxes,
            "keys": self.keys,
            "matched": self.matched,
            "unmatched": self.unmatched,
            "unmatched_keys": self.unmatched_keys,
            "groups": self.groups and [self.groups[0], self.groups[-1]],
            "faulty_before": self.faulty,
            "lost_before": (self.errors or self.lost_before) and [part.to_json() for part in self.lost],
        }
        return {name: _ordered(value) for name, value in filter(itemgetter(1), kept.items())}

    @classmethod
    def from_json(cls, whole: dict[str, Any], schema: Schema | None = None) -> InputReport:
        """Restore a report from the JSON of `to_json`; a given schema completes JSON without one."""
        schema = schema or Schema.from_json(whole["schema"])
        values = {**whole, "filtered": whole.get("asked", {})}
        values.pop("asked", None)
        counts = {name: Counter(values.get(name, {})) for name in ("skipped", "filtered", "boxes")}
        return cls(**{**values, **counts, "schema": schema})


def _restored(values: dict[str, Any]) -> InputReport:
    return InputReport(**values)


def _ordered(value: T) -> T | dict[str, int]:
    """Sort counts by name, as batches and single samples count in different orders; leave other values alone."""
    return dict(sorted(value.items())) if isinstance(value, Counter) else value


def fault_note(error: Tar2tfError) -> dict[str, object]:
    """Return a fault as reports store it: shard, key, member, offset, message, and `lost` for unread bytes."""
    note: dict[str, Any] = {name: getattr(error, name) for name in ("shard", "key", "member", "offset", "message")}
    if isinstance(error, DamagedShardError) and error.lost:
        note["lost"] = error.lost.to_json()
    return note


_EMPTY: Final = vars(InputReport())
_JSON_KEYS: Final = {"filtered": "asked"}
"""Keys in JSON of the fields that have another name there."""


class Notes:
    """Notes for the user about the inputs of a conversion or dataset.

    Args:
        spec: the options for reading the inputs, which may make a note unnecessary.
        note: called with each note.

    Attributes:
        given: the kinds of notes already given, as only the first of each kind is useful.
    """

    def __init__(self, spec: Input, note: Callable[[str], None]) -> None:
        self._spec = spec
        self._note = note
        self.given: set[str] = set()

    def add(self, name: str, report: InputReport) -> None:
        """Emit the notes that follow from the report on an input.

        Args:
            name: its path or URL.
            report: the result of reading it.
        """
        if report.archives > 1:
            self._note(f"note: {name} holds {report.archives} archives end to end; all were read")
        if report.split_differs and self._spec.key_split == "first":
            self.once("split", _split_note(report.split_differs))
        if report.not_adjacent and not self._spec.regroup:
            self.once("regroup", _regroup_note(name, report.not_adjacent))
        if report.lacking:
            self.once("lacking", f"note: {name}: {report.lacking}; such samples are converted without it")

        if report.other_records:
            what = f"{count(report.other_records, 'record')} of {name}"
            self.once("others", f"note: {what} are not tf.train.Examples; they are copied unchanged")

    def once(self, kind: str, message: str | None) -> None:
        """Emit a note unless it is None or one of its kind was emitted before."""
        if message and kind not in self.given:
            self.given.add(kind)
            self._note(message)


def _split_note(name: str) -> str:
    key, entry = split_name(name, "first")
    other_key, other_entry = split_name(name, "last")
    return (
        f"note: {name} is treated as key {key!r}, entry {entry!r}; "
        f"with --key-split last it would be key {other_key!r}, entry {other_entry!r}"
    )


def _regroup_note(name: str, scattered: int) -> str:
    return (
        f"note: members of {count(scattered, 'sample')} are not adjacent in {name}; such shards are read again to "
        "regroup them, in the order in which the keys first appear"
    )
