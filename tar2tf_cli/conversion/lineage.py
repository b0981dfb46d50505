"""The manifest's `lineage`: what each input gave, and which shards its records are in, so that `--update` need not read
it again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tar2tf_cli.conversion.sharding import Origin

if TYPE_CHECKING:
    from tar2tf_cli.inputs.report import InputReport

__all__ = ["lineage_lines", "origins_of", "reports_of"]


def lineage_lines(reports: Sequence[InputReport], origins: Sequence[Sequence[Origin]]) -> str:
    """The lineage as JSON, with one line for each schema, input and shard.

    Args:
        reports: the report of each input.
        origins: where the records of each shard come from.
    """
    schemas: dict[str, int] = {}
    inputs = []
    for report in reports:
        features = report.schema.describe()
        counts = {name: feature.pop("count") for name, feature in features.items()}
        number = schemas.setdefault(_dumps(features), len(schemas))
        rest = {name: count for name, count in counts.items() if count != report.samples}
        whole = {"samples": report.samples, "faulty": report.faulty, "skipped": dict(sorted(report.skipped.items()))}
        inputs.append(_dumps({**whole, "schema": number, "counts": rest}))
    columns = {"schemas": list(schemas), "inputs": inputs, "shards": [_dumps(pieces) for pieces in origins]}
    return "{\n" + ",\n".join(f'  "{name}": [{_lines(lines)}]' for name, lines in columns.items()) + "\n }"


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True)


def _lines(items: Sequence[str]) -> str:
    return "\n   " + ",\n   ".join(items) + "\n  " if items else ""


def reports_of(lineage: dict[str, Any]) -> Iterator[InputReport]:
    """What reading each input reported."""
    from tar2tf_cli.features.feature_map import Schema
    from tar2tf_cli.inputs.report import InputReport

    for given in lineage["inputs"]:
        features = lineage["schemas"][given["schema"]]
        looks = {name: (look["encoding"], look["dtype"], tuple(look["shape"])) for name, look in features.items()}
        counts = {(name,): given["counts"].get(name, given["samples"]) for name in features}
        schema = Schema(Counter(counts), looks)
        yield InputReport(given["samples"], Counter(given["skipped"]), schema=schema, faulty_before=given["faulty"])


def origins_of(lineage: dict[str, Any]) -> list[list[Origin]]:
    """Where the records of each shard come from."""
    return [[Origin(*piece) for piece in pieces] for pieces in lineage["shards"]]
