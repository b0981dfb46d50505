"""The one flow: applies steps to samples and yields the results in order, using one thread or several.

A caller passes samples (or examples), the `Steps` to apply to each of them, and the policy for faulty ones:

| caller | samples | steps | results |
|---|---|---|---|
| `Reading`, for `convert` | of one input | ops, features, ops on examples | are encoded as records |
| `Dataset` in memory | of all shards | ops, then the selections or a function | become tensors |
| `Pipeline` | the output of a custom stage | those up to the next custom stage | go to that stage |
| `--dry-run` | the first one | one op at a time | are shown |
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tar2tf_cli.errors import DamagedShardError, SampleError, Tar2tfError, count
from tar2tf_cli.features.feature_map import FeatureMap
from tar2tf_cli.features.presets import find_preset, of_record_to_example
from tar2tf_cli.features.tf_example import TFExample, transform
from tar2tf_cli.formats.example import Feature
from tar2tf_cli.formats.stored import whole_sample
from tar2tf_cli.ops.base import Op, OpContext, apply_ops
from tar2tf_cli.samples.grouping import Batch
from tar2tf_cli.samples.names import KEY, Sample, key_of
from tar2tf_cli.spec.conversion import Conversion
from tar2tf_cli.stores.base import OnFault

if TYPE_CHECKING:
    from concurrent.futures import Future


CHUNK: Final = 8  # items passed to a thread at once; passing one can cost more than processing it
_WEIGHT: Final = 1 << 16  # a chunk of this many bytes gets no further items; decoded, they may be ten times as large
_AHEAD: Final = 1  # chunks beyond one per thread

Located: TypeAlias = "tuple[Any, str, Mapping[str, Any]]"
"""An item, or one of its results or errors, with the item's key and place."""

Work: TypeAlias = Callable[[Any], Iterable[Any]]


def work_in_threads(items: Iterator[Located], steps: Work, threads: int, most: int = CHUNK) -> Iterator[Located]:
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


def _chunks(items: Iterator[Located], most: int) -> Iterator[list[Any]]:
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


def _work_on(chunk: list[Any], steps: Work) -> list[Any]:
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


def _raised(results: list[Any]) -> Iterator[Located]:
    for result in results:
        if isinstance(result, Exception):
            raise result
        yield result


Where: TypeAlias = Callable[[], Mapping[str, Any]]
"""Returns where the last sample read came from: shard, member and offset, as far as they are known."""


@dataclass(slots=True, eq=False, repr=False)
class Steps:
    """What is done to each sample, independently of the others and of the thread.

    Attributes:
        context: what ops may depend on besides the sample.
        ops: applied to the sample first.
        features: turns the sample into its features, or into something else; None leaves it unchanged.
        example_ops: applied to the example last.
    """

    context: OpContext
    ops: tuple[Op, ...] = ()
    features: Callable[[Sample], Any] | None = None
    example_ops: tuple[Op, ...] = ()

    def __call__(self, item: Any) -> Iterator[Any]:
        """Apply the steps to a sample or example; yields no result, one or several.

        Raises:
            SampleError: when one of the steps fails on it.
        """
        for sample in apply_ops(item, self.ops, self.context) if self.ops else (item,):
            made = self.features(sample) if self.features else sample
            if self.example_ops:
                example = made if type(made) is TFExample else TFExample(whole_sample(made))
                yield from transform(example, self.example_ops, self.context)
            else:
                yield made

    def each(self) -> Iterator[tuple[Op | None, Steps]]:
        """The same steps one at a time: each op by itself, then None with everything that follows the ops."""
        for op in self.ops:
            yield op, Steps(self.context, (op,))
        yield None, replace(self, ops=())


class Faults:
    """The policy for faulty samples: raise the first error, or skip samples until there are too many.

    Args:
        skip: whether faulty samples are recorded and skipped.
        most: how many may be skipped; None for no limit.
        noted: the shard, key, member, offset and message of each skipped sample are appended to this list, and `lost`
            where a part of the shard could not be read.
        option: how the caller's users ask for faulty samples to be skipped; None if they cannot.
    """

    def __init__(
        self,
        *,
        skip: bool = False,
        most: int | None = None,
        noted: list[dict[str, Any]] | None = None,
        option: str | None = None,
    ) -> None:
        self._hint = f"correct the sample, or skip such samples with {option}" if option else None
        self._skip = skip
        self._most = most
        self._noted = [] if noted is None else noted

    def __call__(self, error: Tar2tfError) -> None:
        """Skip a faulty sample or raise its error, depending on the policy.

        Raises:
            Tar2tfError: the error itself, or an error saying that there are too many.
        """
        if not self._skip:
            raise error.at(hint=self._hint)
        noted = {name: getattr(error, name) for name in ("shard", "key", "member", "offset", "message")}
        if isinstance(error, DamagedShardError) and error.lost:
            noted["lost"] = error.lost.to_json()
        self._noted.append(noted)
        if self._most is not None:
            check_most(len(self._noted), self._most, self._noted)


def check_most(failed: int, most: int, noted: Sequence[Mapping[str, Any]]) -> None:
    """Check that no more than `most` samples were skipped.

    Args:
        failed: how many were skipped.
        most: how many may be.
        noted: those of them that were found just now.

    Raises:
        Tar2tfError: when there are more than `most`.
    """
    if failed > most:
        hint = f"the first: {noted[0]['message']}" if noted else None
        raise Tar2tfError(f"{count(failed, 'sample')} failed, more than --max-errors {most} allows", hint=hint)


def flow(
    items: Iterable[Any],
    steps: Callable[[Any], Iterable[Any]],
    on_fault: OnFault,
    *,
    where: Where = dict,
    finish: Callable[[str, Any], Any] = lambda key, result: result,
    threads: int = 1,
    chunk: int = CHUNK,
) -> Iterator[Any]:
    """Apply steps to samples and yield the results in input order, whatever the number of threads.

    Args:
        items: samples or examples; with several threads, a few are read ahead. With one, also batches of samples whose
            records are made already, which skip the steps.
        steps: called with each item, in any thread; returns its results. Usually `Steps`.
        on_fault: called in input order with the error of each faulty item, which names its key and place. If it
            returns, the item is skipped.
        where: returns where the last item read came from.
        finish: called in input order with the key of the item and each of its results; its return value is yielded.
            If it raises SampleError, only that result is skipped.
        threads: number of threads that run `steps`.
        chunk: most consecutive items passed to a thread at once.

    Raises:
        SampleError: raised by `on_fault`.
    """
    if threads > 1:
        placed = ((item, key_of(item) or "", where()) for item in items)
        for result, key, place in work_in_threads(placed, steps, threads, chunk):
            try:
                if isinstance(result, SampleError):
                    raise result
                yield finish(key, result)
            except SampleError as error:
                on_fault(_of_input(error, key, place))
        return
    for item in items:
        if type(item) is Batch:
            yield finish(item.last, item)
            continue
        key = item[KEY] if type(item) is dict else key_of(item) or ""
        results: Iterator[Any] | None = None
        left = True
        while left:  # an error in one result does not stop the others
            try:
                results = results or iter(steps(item))
                for result in results:
                    yield finish(key, result)
                left = False
            except SampleError as error:
                on_fault(_of_input(error, key, where()))
                left = results is not None


def _of_input(error: SampleError, key: str, place: Mapping[str, Any]) -> SampleError:
    """The error with the key that the sample has in the input, whatever ops made of it, and its place there."""
    error.key = key or error.key
    return error.at(**place)


def context_of(conversion: Conversion) -> OpContext:
    """What the ops of a conversion may depend on."""
    return OpContext(conversion.seed, conversion.max_pixels, conversion.image_size)


def feature_map_of(conversion: Conversion) -> FeatureMap:
    """The feature map of a conversion: it turns samples into features."""
    preset = find_preset(conversion.preset).make if conversion.preset else None
    if conversion.record_to_example:
        preset = of_record_to_example(conversion.record_to_example)
    return FeatureMap(conversion.types, conversion.select, preset, context_of(conversion))
