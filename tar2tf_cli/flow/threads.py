"""Work on samples in threads, in order: what comes out does not depend on how many there are."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tar2tf_cli.errors import SampleError
from tar2tf_cli.formats.example import Feature

if TYPE_CHECKING:
    from concurrent.futures import Future

__all__ = ["CHUNK", "in_threads"]

CHUNK: Final = 16  # items that go to a thread at once, as handing them over costs more than many a sample does
_WEIGHT: Final = 4 << 20  # bytes from which on a thread gets no more of them
_AHEAD: Final = 2  # chunks beyond one per thread

Placed: TypeAlias = "tuple[Any, str, Mapping[str, Any]]"
"""An item, or a result or error made of it, with the item's key and place."""

Steps: TypeAlias = Callable[[Any], Iterable[Any]]


def in_threads(
    items: Iterator[Placed],
    steps: Steps,
    on_fault: Callable[[SampleError], None],
    finish: Callable[[str, Any], Any],
    threads: int,
    most: int,
) -> Iterator[Any]:
    """What `flow` gives, worked on by several threads; items with key and place are read and finished in this one."""
    for result, key, place in _made(items, steps, threads, most):
        try:
            if isinstance(result, SampleError):
                raise result
            yield finish(key, result)
        except SampleError as error:
            on_fault(error.at(key=key, **place))


def _made(items: Iterator[Placed], steps: Steps, threads: int, most: int) -> Iterator[Placed]:
    """Results and faults of items, in order; a few chunks are on their way at any time."""
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
    """Neighbouring items; at last the exception that ended them, so that those before are not lost."""
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
    """About how many bytes an entry or a feature takes."""
    if isinstance(value, bytes):
        return len(value)
    return len(value.message) if isinstance(value, Feature) else getattr(value, "nbytes", 0)


def _work_on(chunk: list[Any], steps: Steps) -> list[Any]:
    """Results and faults in order; at last the exception that ended them."""
    results: list[Any] = []
    try:
        for placed in chunk:
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
