"""What a worker reports about an input it has read."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any, Final

from tar2tf_cli.features.schema import Schema

__all__ = ["InputReport"]


@dataclass(slots=True, eq=False, repr=False)
class InputReport:
    """The result of reading one input.

    Attributes:
        samples: the number of samples that became examples.
        skipped: members skipped, by reason.
        errors: faulty samples skipped: shard, key, member, offset, message.
        faulty_before: number of faulty samples that an earlier conversion skipped, which are not in `errors`.
        schema: types and shapes of the features.
        described: CSV rows that describe the stored examples, if the input is a list of examples.
        archives: number of tar archives in the input, end to end.
        split_differs: a member that the other key rule would name differently, if any.
        not_adjacent: number of samples whose members are not adjacent and were put together.
        lacking: what the last sample lacks that all others have, if anything.
        placed: whether the records are a shard at its final place already.
    """

    samples: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    errors: list[dict[str, Any]] = field(default_factory=list)
    schema: Schema = field(default_factory=Schema)
    described: str = ""
    archives: int = 1
    split_differs: str | None = None
    not_adjacent: int = 0
    lacking: str | None = None
    faulty_before: int = 0
    placed: bool = False

    @property
    def faulty(self) -> int:
        """The number of faulty samples skipped."""
        return len(self.errors) + self.faulty_before

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain JSON."""
        return {**self.without_schema(), "schema": self.schema.to_json()}

    def without_schema(self) -> dict[str, Any]:
        """Return what differs from an empty report, except for the schema, as plain JSON."""
        return {name: value for name in _PLAIN if (value := getattr(self, name)) != getattr(_EMPTY, name)}

    @classmethod
    def from_json(cls, whole: dict[str, Any], schema: Schema | None = None) -> InputReport:
        """Return the report that `to_json` returned as JSON; the schema, if given, is that of one without."""
        schema = schema or Schema.from_json(whole["schema"])
        return cls(**{**whole, "skipped": Counter(whole.get("skipped", {})), "schema": schema})


_EMPTY: Final = InputReport()
_PLAIN: Final = [item.name for item in fields(InputReport) if item.name != "schema"]
