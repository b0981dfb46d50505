"""Decoding of the values of records and samples in threads, for `verify --decode`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, TypeAlias

from tar2tf_cli.checking.faults import FileReport
from tar2tf_cli.errors import SampleError
from tar2tf_cli.structs import NamedTuple

if TYPE_CHECKING:
    from tar2tf_cli.api.values import Sample
    from tar2tf_cli.checking.decode import ValueChecker
    from tar2tf_cli.flow.transform import Located

Faults: TypeAlias = Sequence[tuple[str, str]]
"""The faults of one record or sample, each as its kind and a message."""

NamedValue: TypeAlias = tuple[str, bytes]
"""The name of an entry or feature, and its bytes."""


class CheckedUnit(NamedTuple):
    """A record or sample with the faults found so far.

    Attributes:
        values: its entries, or its bytes as the only entry.
        faults: its faults.
        key: the key of a sample; empty for a record.
        number: the number of a record; 0 for a sample.
        offset: its byte offset in the decompressed shard.
        data: the bytes of a record.
    """

    values: Sample
    faults: Faults
    key: str
    number: int
    offset: int
    data: bytes = b""


def value_checker(report: FileReport, threads: int) -> ValueChecker | None:
    """Return the checker of a shard's values; None if there are no threads for decoding."""
    if not threads:
        return None
    from tar2tf_cli.checking.decode import ValueChecker  # only here, as it imports all that reads images

    return ValueChecker(report.not_decoded)


def decoded(
    items: Iterator[CheckedUnit],
    values: Callable[[Sample], Iterable[NamedValue]],
    checker: ValueChecker | None,
    threads: int,
    numbers: Mapping[str, Set[int]] | None = None,
) -> Iterator[CheckedUnit]:
    """Iterate over items in order, with the faults found by decoding their values if there is a checker.

    Args:
        items: records or samples after their own checks.
        values: returns the values of an item.
        checker: decodes values; None to pass the items on.
        threads: number of threads that decode.
        numbers: the permitted class numbers of boxes, by feature; other features may have any.
    """
    if checker is None:
        yield from items
        return
    from tar2tf_cli.checking.decode import box_faults
    from tar2tf_cli.flow.transform import work_in_threads

    def located() -> Iterator[Located[CheckedUnit]]:
        for item in items:
            boxes = box_faults(item.data, numbers or {}) if item.data else ()
            faults = item.faults or [*checker.odd(values(item.values)), *boxes]
            yield {} if item.faults else item.values, "", item._replace(faults=faults)

    for faults, _, item in work_in_threads(located(), lambda item: [checker.undecodable(values(item))], threads):
        assert not isinstance(faults, SampleError)
        yield item._replace(faults=[*item.faults, *faults])
