"""The manifest's `lineage`: what each input gave, and which shards its records are in, so that `--update` need not read
it again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from tar2tf_cli.conversion.sharding import Origin

if TYPE_CHECKING:
    from tar2tf_cli.inputs.report import InputReport

__all__ = ["Lineage", "listed"]

_MOST_KNOWN: Final = 10_000


class Lineage:
    """What each input gave, in input order; equal inputs share one description, however many there are.

    Attributes:
        schemas: the features that inputs have: encoding, dtype and shape by name.
        inputs: what each input gave, as in the manifest, with the number of its schema.
    """

    def __init__(self, schemas: list[dict[str, Any]] | None = None, inputs: list[dict[str, Any]] | None = None) -> None:
        self.schemas = schemas or []
        self.inputs = inputs or []
        self._known: dict[Hashable, dict[str, Any]] = {}
        self._numbers: dict[str, int] = {}

    def add(self, report: InputReport) -> None:
        """Add what reading the next input reported."""
        key = (report.schema.key, report.samples, report.faulty, *sorted(report.skipped.items()))
        known = self._known.get(key)
        if known is None:
            if len(self._known) == _MOST_KNOWN:
                self._known.clear()
            known = self._known[key] = self._described(report)
        self.inputs.append(known)

    def _described(self, report: InputReport) -> dict[str, Any]:
        features = report.schema.describe()
        counts = {name: feature.pop("count") for name, feature in features.items()}
        number = self._numbers.setdefault(json.dumps(features), len(self.schemas))
        if number == len(self.schemas):
            self.schemas.append(features)
        rest = {name: count for name, count in counts.items() if count != report.samples}
        whole = {"samples": report.samples, "faulty": report.faulty, "skipped": dict(sorted(report.skipped.items()))}
        return {**whole, "schema": number, "counts": rest}

    def report(self, number: int) -> InputReport:
        """What reading an input reported."""
        from tar2tf_cli.features.schema import Schema
        from tar2tf_cli.inputs.report import InputReport

        given = self.inputs[number]
        features = self.schemas[given["schema"]]
        looks = {name: (look["encoding"], look["dtype"], tuple(look["shape"])) for name, look in features.items()}
        counts = {(name,): given["counts"].get(name, given["samples"]) for name in features}
        schema = Schema(Counter(counts), looks)
        return InputReport(given["samples"], Counter(given["skipped"]), schema=schema, faulty_before=given["faulty"])

    def lines(self, origins: Iterable[Sequence[Origin]]) -> Iterator[str]:
        """The lineage as JSON in pieces, with one line for each schema, input and shard.

        Args:
            origins: where the records of each shard come from.
        """
        mark = "{"
        for name, items in (("schemas", self.schemas), ("inputs", self.inputs), ("shards", origins)):
            yield f'{mark}\n  "{name}": '
            yield from listed(map(json.dumps, items), "   ")
            mark = ","
        yield "\n }"


def listed(items: Iterable[str], indent: str) -> Iterator[str]:
    """A JSON list of items that are JSON, each in a line of its own."""
    mark = "["
    for item in items:
        yield f"{mark}\n{indent}{item}"
        mark = ","
    yield "[]" if mark == "[" else f"\n{indent[:-1]}]"
