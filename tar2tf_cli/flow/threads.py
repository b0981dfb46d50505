"""Work on a stream in threads, in order: what comes out does not depend on how many there are."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tar2tf_cli.errors import SampleError
from tar2tf_cli.formats.example import Feature

if TYPE_CHECKING:
    from concurrent.futures import Future

__all__ = ["in_threads", "weight_of"]

_CHUNK: Final = 16  # items that go to a thread at once, as handing them over costs more than many a sample does
_WEIGHT: Final = 4 << 20  # bytes from which on a thread gets no more of them
_AHEAD: Final = 2  # chunks beyond one per thread

Fault: TypeAlias = Callable[[SampleError], None]
Chunk: TypeAlias = tuple["list[Any]", "str | None"]


def in_threads(
    items: Iterator[Any],
    work: Callable[[Iterator[Any], Fault], Iterator[Any]],
    threads: int,
    where: Callable[[], str | None],
    fault: Fault,
    weigh: Callable[[Any], int] | None = None,
) -> Iterator[Any]:
    """The items that `work` makes of items, in the order of those; a few are read ahead.

    Args:
        work: from neighbouring items, and what to call with faulty ones, to results; called in threads.
        where: the shard that the item read last is from.
        fault: called with faulty items in order, not in a thread.
        weigh: about how many bytes an item takes; of a dict it is known without.
    """
    from concurrent.futures import ThreadPoolExecutor

    waiting: deque[Future[tuple[list[Any], Exception | None]]] = deque()
    failure: Exception | None = None
    with ThreadPoolExecutor(threads, "tar2tf-pipeline") as pool:
        try:
            for chunk in _chunks(items, where, weigh or weight_of):
                if isinstance(chunk, Exception):
                    failure = chunk
                    break
                waiting.append(pool.submit(_work_on, chunk, work))
                if len(waiting) >= threads + _AHEAD:
                    yield from _results(waiting.popleft().result(), fault)
            while waiting:
                yield from _results(waiting.popleft().result(), fault)
        finally:
            for future in waiting:
                future.cancel()
    if failure is not None:
        raise failure


def _chunks(
    items: Iterator[Any], where: Callable[[], str | None], weigh: Callable[[Any], int]
) -> Iterator[Chunk | Exception]:
    """Neighbouring items of one shard; at last the exception that ended them, so that those before are not lost."""
    chunk: list[Any] = []
    weight = 0
    shard: str | None = None
    failure: Exception | None = None
    try:
        for item in items:
            if chunk and (len(chunk) == _CHUNK or weight >= _WEIGHT or where() != shard):
                yield chunk, shard
                chunk, weight = [], 0
            shard = where()
            chunk.append(item)
            weight += weigh(item)
    except Exception as error:
        failure = error
    if chunk:
        yield chunk, shard
    if failure is not None:
        yield failure


def weight_of(item: Mapping[str, Any]) -> int:
    """About how many bytes a sample or example takes."""
    return sum(map(_bytes, item.values()))


def _bytes(value: Any) -> int:
    """About how many bytes an entry or a feature takes."""
    if isinstance(value, bytes):
        return len(value)
    return len(value.message) if isinstance(value, Feature) else getattr(value, "nbytes", 0)


class _Faulty:
    """Stands for a faulty item among results."""

    def __init__(self, error: SampleError) -> None:
        self.error = error


def _work_on(chunk: Chunk, work: Callable[[Iterator[Any], Fault], Iterator[Any]]) -> tuple[list[Any], Exception | None]:
    """Results and faults in order, and the exception that ended them."""
    items, shard = chunk
    results: list[Any] = []
    try:
        for result in work(iter(items), lambda error: results.append(_Faulty(error.at(shard=shard)))):
            results.append(result)
    except Exception as error:
        return results, error
    return results, None


def _results(done: tuple[list[Any], Exception | None], fault: Fault) -> Iterator[Any]:
    results, failure = done
    for result in results:
        if isinstance(result, _Faulty):
            fault(result.error)
        else:
            yield result
    if failure is not None:
        raise failure
