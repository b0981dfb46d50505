"""Processes samples in several threads; the results keep their order, whatever the number of threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tar2tf_cli.errors import SampleError
from tar2tf_cli.formats.example import Feature

if TYPE_CHECKING:
    from concurrent.futures import Future

__all__ = ["CHUNK", "Placed", "work_in_threads"]

CHUNK: Final = 8  # items passed to a thread at once; passing one can cost more than processing it
_WEIGHT: Final = 1 << 16  # a chunk of this many bytes gets no further items; decoded, they may be ten times as large
_AHEAD: Final = 1  # chunks beyond one per thread

Placed: TypeAlias = "tuple[Any, str, Mapping[str, Any]]"
"""An item, or one of its results or errors, with the item's key and place."""

Steps: TypeAlias = Callable[[Any], Iterable[Any]]


def work_in_threads(items: Iterator[Placed], steps: Steps, threads: int, most: int = CHUNK) -> Iterator[Placed]:
    """Results and errors of items, in order; a few chunks are in progress at any time."""
    from concurrent.futures import ThreadPoolExecutor

    waiting: deque[Future[list[Any]]] = deque()
    with ThreadPoolExecutor(threads, "tar2tf-samples") as pool:
        try:
            for chunk in _chunks(items, most):
                waiting.append(pool.submit(_work_on, chunk, steps))
                if len(waiting) >= threads + _AHEAD:
                    yield from _raised(waiting.popleft().result())
            while waiting:
                yield from _raised(waiting.popleft().result())
        finally:
            for future in waiting:
                future.cancel()


def _chunks(items: Iterator[Placed], most: int) -> Iterator[list[Any]]:
    """Lists of consecutive items; if reading raised, the exception comes last, so that the items before are kept."""
    chunk: list[Any] = []
    weight = 0
    try:
        for item in items:
            chunk.append(item)
            weight += sum(map(_bytes, item[0].values()))
            if len(chunk) == most or weight >= _WEIGHT:
                yield chunk
                chunk, weight = [], 0
    except Exception as error:
        chunk.append(error)
    if chunk:
        yield chunk


def _bytes(value: Any) -> int:
    """The approximate size in bytes of an entry or feature."""
    if isinstance(value, bytes):
        return len(value)
    return len(value.message) if isinstance(value, Feature) else getattr(value, "nbytes", 0)


def _work_on(chunk: list[Any], steps: Steps) -> list[Any]:
    """Results and errors in order; if the work stopped at another exception, that comes last."""
    results: list[Any] = []
    try:
        chunk.reverse()
        while chunk:
            placed = chunk.pop()  # not kept until the end of the chunk, as its arrays are large
            if isinstance(placed, Exception):
                raise placed
            item, key, place = placed
            try:
                for result in steps(item):
                    results.append((result, key, place))
            except SampleError as error:
                results.append((error, key, place))
    except Exception as error:
        results.append(error)
    return results


def _raised(results: list[Any]) -> Iterator[Placed]:
    for result in results:
        if isinstance(result, Exception):
            raise result
        yield result
