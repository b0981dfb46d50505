"""How large an output will be, judging by the first samples of a few inputs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tar2tf_cli.conversion.plan import Plan
from tar2tf_cli.conversion.spool import gzip_stream
from tar2tf_cli.errors import Tar2tfError
from tar2tf_cli.flow.reading import Reading
from tar2tf_cli.stores import ObjectInfo

__all__ = ["Estimate", "estimate"]

_INPUTS: Final = 3
_SAMPLES: Final = 32
_SECONDS: Final = 1.0
_MOST_GZIP: Final = 1 << 20


class Estimate(NamedTuple):
    """What a conversion will write, about: records, bytes and shards."""

    records: int
    bytes: int
    shards: int


@dataclass(slots=True)
class _Seen:
    """What a few samples took and gave: stored bytes, records, bytes of records, those bytes as written."""

    consumed: int = 0
    records: int = 0
    size: int = 0
    written: int = 0


def estimate(plan: Plan) -> Estimate | None:
    """Convert the first samples of a few inputs of each kind, evenly spread, and scale the result by the inputs' sizes.

    Returns:
        The estimate; None if an input can be read only once, the sizes are unknown, or no sample could be converted.
    """
    size, spec = plan.size, plan.conversion
    if not (plan.source.repeatable and plan.inputs and size is not None):
        return None
    count = plan.source.count
    records = total = 0.0
    for group in _alike(plan.inputs, whole=count is not None):
        seen = _Seen()
        for place in sorted({round(each * (len(group) - 1) / (_INPUTS - 1)) for each in range(_INPUTS)}):
            with contextlib.suppress(Tar2tfError):  # the conversion will report it
                _look(plan, group[place], seen)
        if seen.records:
            stored = sum(item.size or 0 for item in group)
            found = count if count is not None else seen.records * stored / max(seen.consumed, 1)
            records += found
            total += found * (seen.written if spec.output.compression == "gzip" else seen.size) / seen.records
    if not records:
        return None
    part = 1.0 if spec.limit is None else min(1.0, spec.limit / records)
    return Estimate(round(records * part), round(total * part), _shards(plan, round(records * part), total * part))


def _alike(inputs: Sequence[ObjectInfo], *, whole: bool) -> list[list[ObjectInfo]]:
    """The inputs by the suffix of their names, as compressed ones have more samples in as many bytes."""
    groups: dict[str, list[ObjectInfo]] = {}
    for item in inputs:
        suffix = item.name[item.name.rfind(item.stem) + len(item.stem) :]
        groups.setdefault("" if whole else suffix, []).append(item)
    return list(groups.values())


def _look(plan: Plan, item: ObjectInfo, seen: _Seen) -> None:
    """Add the first samples of an input."""
    fetched: list[int] = []
    sizes: list[int] = []
    deadline, written, whole = time.monotonic() + _SECONDS, 0, item.size or 0
    with Reading(plan.work, plan.source, item, on_bytes=fetched.append, ahead=plan.source.seekable) as reading:
        consumed, blocks = whole, 0
        for _, parts, size in reading.records():
            late = sizes and time.monotonic() > deadline
            known = reading.seekable or len(fetched) > blocks  # with a new block, those before are used up
            if late or (known and len(sizes) >= _SAMPLES):
                consumed = reading.offset if reading.seekable else sum(fetched[: blocks or None])
                if reading.count:
                    consumed = round(whole * len(sizes) / reading.count)
                break
            blocks = len(fetched)
            sizes.append(size)
            if plan.conversion.output.compression == "gzip":
                written += round(size * _shrinks(parts))
    seen.records += len(sizes)
    seen.consumed += consumed
    seen.size += sum(sizes)
    seen.written += written


def _shrinks(parts: Iterable[bytes]) -> float:
    """The ratio of the sizes of a record with gzip and without, by its beginning."""
    taken, total = list[bytes](), 0
    for part in parts:
        taken.append(part)
        total += len(part)
        if total > _MOST_GZIP:
            break
    return sum(size for _, size in gzip_stream([(taken, total)])) / total


def _shards(plan: Plan, records: int, total: float) -> int:
    """How many shards that many records and bytes make."""
    output = plan.conversion.output
    count = 0
    for part in _lanes(plan):
        share = max(round(records * part), 1)
        if output.num_shards:
            count += min(output.num_shards, share)
        else:
            by_size = -(-total * part // output.limit) if output.limit else 1
            by_count = -(-share // output.records_per_shard) if output.records_per_shard else 1
            count += max(int(by_size), by_count, 1)
    return count if records else 0


def _lanes(plan: Plan) -> Iterator[float]:
    """The part of the records in each series of shards."""
    size = plan.size
    if "input" in plan.conversion.output.template.fields and size:
        yield from ((item.size or 0) / size for item in plan.inputs)
    else:
        yield from plan.conversion.split.values() or (1.0,)
