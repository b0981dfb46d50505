"""What a worker reports of an input that it has read."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from tar2tf_cli.features.feature_map import Schema

__all__ = ["InputReport"]


@dataclass(slots=True)
class InputReport:
    """What became of one input.

    Attributes:
        samples: how many became examples.
        skipped: members skipped, by reason.
        errors: faulty samples skipped: shard, key, member, offset, message.
        schema: what the features look like.
        described: CSV rows that describe what was stored, where examples are read.
        archives: tar archives end to end in the input.
        split_differs: a member that the other key rule would name differently, if any.
        spool_crc: CRC-32C of the spool; None when the input is read again instead.
    """

    samples: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    errors: list[dict[str, Any]] = field(default_factory=list)
    schema: Schema = field(default_factory=Schema)
    described: str = ""
    archives: int = 1
    split_differs: str | None = None
    spool_crc: int | None = None

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return {**asdict(self), "skipped": dict(self.skipped), "schema": self.schema.to_json()}

    @classmethod
    def from_json(cls, whole: dict[str, Any]) -> InputReport:
        """The report that `to_json` gave."""
        return cls(**{**whole, "skipped": Counter(whole["skipped"]), "schema": Schema.from_json(whole["schema"])})
