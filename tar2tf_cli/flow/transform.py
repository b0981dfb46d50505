"""The transform of samples: ops, then features, then ops on examples; in one thread or several."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from tar2tf_cli.api.op import Op, OpContext
from tar2tf_cli.api.values import Feature, Sample
from tar2tf_cli.errors import SampleError
from tar2tf_cli.formats.files import whole_sample
from tar2tf_cli.ops.base import apply_ops, as_flag
from tar2tf_cli.structs import dataclass, replace

if TYPE_CHECKING:
    from concurrent.futures import Future

CHUNK: Final = 8  # items passed to a thread at once; passing one can cost more than processing it
_WEIGHT: Final = 1 << 16  # a chunk of this many bytes gets no more items; decoded, they may be ten times as large
_AHEAD: Final = 1  # chunks beyond one per thread

R = TypeVar("R")
L = TypeVar("L")

Item: TypeAlias = Mapping[str, Any]
"""A sample or an example."""

Work: TypeAlias = Callable[[Any], Iterable[R]]
"""A function from an item to its results."""

Located: TypeAlias = tuple[Item, str, L]
"""An item with its key and location."""

LocatedResult: TypeAlias = tuple[R | SampleError, str, L]
"""A result of an item, or its error, with the item's key and location."""


@dataclass(frozen=True, eq=False, repr=False)
class Transform:
    """A thread-safe function from a sample or example to its results: none, one or several.

    Attributes:
        context: the context of ops.
        ops: applied to the sample first.
        features: turns the sample into its features or another value; None leaves it unchanged.
        example_ops: applied to the example last.
        skipped: called, in any thread, with each op that skips a sample.
    """

    context: OpContext
    ops: tuple[Op, ...] = ()
    features: Callable[[Sample], Any] | None = None
    example_ops: tuple[Op, ...] = ()
    skipped: Callable[[Op], None] | None = None

    def __call__(self, item: Sample) -> Iterator[object]:
        """Iterate over the results for a sample or example.

        Raises:
            SampleError: when an op fails, or the features cannot be made.
        """
        for sample in apply_ops(item, self.ops, self.context, skipped=self.skipped) if self.ops else (item,):
            made = self.features(sample) if self.features else sample
            if self.example_ops:
                from tar2tf_cli.features.tf_example import TFExample, transform

                example = made if type(made) is TFExample else TFExample(whole_sample(made))
                yield from transform(example, self.example_ops, self.context)
            else:
                yield made

    def function(self) -> Callable[[Sample], Iterable[object]]:
        """Return the fastest function that is equivalent to the transform."""
        features = self.features
        if self.ops or self.example_ops:
            return self
        return (lambda sample: (features(sample),)) if features else (lambda sample: (sample,))

    def for_input(self, palettes: set[str], filtered: Counter[str]) -> Transform:
        """Return the transform for the samples of one input.

        Args:
            palettes: receives the names of entries that ops find to be images with a palette.
            filtered: receives the number of samples that each op filters out.
        """
        if not (self.ops or self.example_ops):
            return self
        return replace(self, context=self.context._replace(palettes=palettes), skipped=_counting(filtered))

    def each(self) -> Iterator[tuple[Op | None, Transform]]:
        """Iterate over the steps of the transform: each op by itself, then None with everything after the ops."""
        for op in self.ops:
            yield op, Transform(self.context, (op,))
        yield None, replace(self, ops=())


def _counting(filtered: Counter[str]) -> Callable[[Op], None]:
    """Return a thread-safe callback that counts the samples that each op skips."""
    lock = threading.Lock()

    def skipped(op: Op) -> None:
        with lock:
            filtered[as_flag(op)] += 1

    return skipped


# --- Threads ---


def work_in_threads(
    items: Iterator[Located[L]], work: Work[R], threads: int, most: int = CHUNK
) -> Iterator[LocatedResult[R, L]]:
    """Process items in threads, and yield results and errors in order; a few chunks are in progress at a time."""
    from concurrent.futures import ThreadPoolExecutor

    waiting: deque[Future[list[LocatedResult[R, L] | Exception]]] = deque()
    with ThreadPoolExecutor(threads, "tar2tf-samples") as pool:
        try:
            for chunk in _chunks(items, most):
                waiting.append(pool.submit(_work_on, chunk, work))
                if len(waiting) >= threads + _AHEAD:
                    yield from _raised(waiting.popleft().result())
            while waiting:
                yield from _raised(waiting.popleft().result())
        finally:
            for future in waiting:
                future.cancel()


def _chunks(items: Iterator[Located[L]], most: int) -> Iterator[list[Located[L] | Exception]]:
    """Divide items into lists; if reading raises, the exception is the last item, so that earlier items are kept."""
    chunk: list[Located[L] | Exception] = []
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


def _bytes(value: object) -> int:
    """Return the approximate size in bytes of an entry or feature."""
    if isinstance(value, bytes):
        return len(value)
    return len(value.message) if isinstance(value, Feature) else getattr(value, "nbytes", 0)


def _work_on(chunk: list[Located[L] | Exception], work: Work[R]) -> list[LocatedResult[R, L] | Exception]:
    """Return the results and errors of a chunk in order; another exception that stopped the work comes last."""
    results: list[LocatedResult[R, L] | Exception] = []
    try:
        chunk.reverse()
        while chunk:
            located = chunk.pop()  # freed before the end of the chunk, as its arrays are large
            if isinstance(located, Exception):
                raise located
            item, key, location = located
            try:
                for result in work(item):
                    results.append((result, key, location))
            except SampleError as error:
                results.append((error, key, location))
    except Exception as error:
        results.append(error)
    return results


def _raised(results: list[LocatedResult[R, L] | Exception]) -> Iterator[LocatedResult[R, L]]:
    for result in results:
        if isinstance(result, Exception):
            raise result
        yield result
