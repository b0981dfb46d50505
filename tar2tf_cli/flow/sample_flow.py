"""The one flow: samples in, what their steps make of them out, in order, in one thread or in several.

A caller hands over samples (or examples), the `Steps` that are done to each by itself, and the policy for faulty ones:

| caller | samples | steps | results |
|---|---|---|---|
| `Reading`, for `convert` | of one input | ops, features, ops on examples | are encoded as records |
| `Dataset` in memory | of all shards | ops, the element | become tensors |
| `Pipeline` | what one's own stage gives | those up to the next stage of one's own | go to that stage |
| `--dry-run` | the first one | one op after the other | are shown |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from tar2tf_cli.errors import SampleError, Tar2tfError
from tar2tf_cli.features.feature_map import FeatureMap
from tar2tf_cli.features.presets import find_preset, of_record_to_example
from tar2tf_cli.features.tf_example import TFExample, key_of
from tar2tf_cli.features.transformations import transform
from tar2tf_cli.flow.threads import CHUNK, in_threads
from tar2tf_cli.ops.base import Op, OpContext, apply_ops
from tar2tf_cli.samples.grouping import KEY, Sample
from tar2tf_cli.spec.conversion import Conversion

__all__ = ["Faults", "OnFault", "Steps", "check_most", "context_of", "feature_map_of", "flow"]

OnFault: TypeAlias = Callable[[Any], None]
"""Called with the error of each faulty sample; when it returns, the sample is skipped."""

Where: TypeAlias = Callable[[], Mapping[str, Any]]
"""Where the sample read last is from: shard, member and offset, as far as they are known."""


@dataclass(frozen=True, slots=True)
class Steps:
    """What is done to each sample by itself, whichever thread does it.

    Attributes:
        context: what ops may depend on besides the sample.
        ops: what a sample goes through first.
        features: makes a sample something else, its features as a rule; None leaves it.
        example_ops: what an example goes through then.
    """

    context: OpContext
    ops: tuple[Op, ...] = ()
    features: Callable[[Sample], Any] | None = None
    example_ops: tuple[Op, ...] = ()

    def __call__(self, item: Any) -> Iterator[Any]:
        """What becomes of a sample or example: nothing, one result or several.

        Raises:
            SampleError: when one of the steps cannot treat it.
        """
        for sample in apply_ops(item, self.ops, self.context) if self.ops else (item,):
            made = self.features(sample) if self.features else sample
            if self.example_ops:
                example = made if type(made) is TFExample else TFExample(made)
                yield from transform(example, self.example_ops, self.context)
            else:
                yield made

    def each(self) -> Iterator[tuple[Op | None, Steps]]:
        """The same one by one: each op, and None with all that comes behind the ops."""
        for op in self.ops:
            yield op, Steps(self.context, (op,))
        yield None, replace(self, ops=())


class Faults:
    """The policy for faulty samples: the first is raised, or all are noted until there are too many.

    Args:
        skip: whether they are noted and skipped.
        most: how many may be skipped; None for any number.
        noted: where shard, key, member, offset and message of each skipped one are appended.
    """

    def __init__(
        self, *, skip: bool = False, most: int | None = None, noted: list[dict[str, Any]] | None = None
    ) -> None:
        self._skip = skip
        self._most = most
        self._noted = [] if noted is None else noted

    def __call__(self, error: Tar2tfError) -> None:
        """Skip a faulty sample, or raise the error, as the policy is.

        Raises:
            Tar2tfError: the error itself, or that there are too many.
        """
        if not self._skip:
            raise error
        self._noted.append({name: getattr(error, name) for name in ("shard", "key", "member", "offset", "message")})
        check_most(self._noted, self._most)


def check_most(noted: Sequence[Mapping[str, Any]], most: int | None) -> None:
    """See that not too many samples were skipped.

    Raises:
        Tar2tfError: when there are more than `most`.
    """
    if most is not None and len(noted) > most:
        raise Tar2tfError(
            f"{len(noted)} samples failed, more than --max-errors {most} allows",
            hint=f"the first: {noted[0]['message']}",
        )


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
    """What steps make of samples, in the order of these; the number of threads does not show in it.

    Args:
        items: samples or examples; with several threads a few are read ahead.
        steps: what becomes of one of them, such as `Steps`; called in any thread.
        on_fault: called in order with a faulty one's error, which names its key and place; what is behind it goes on.
        where: where the item read last is from.
        finish: what is left to be done with each result in order, with the key of its item; what it returns is given
            out, and a result that it finds faulty is skipped alone.
        threads: how many work on items.
        chunk: most neighbouring items that one thread gets at once.

    Raises:
        SampleError: whatever `on_fault` raises.
    """
    if threads > 1:
        yield from in_threads(
            ((item, key_of(item) or "", where()) for item in items), steps, on_fault, finish, threads, chunk
        )
        return
    for item in items:
        key: str = item[KEY] if type(item) is dict else key_of(item) or ""
        results: Iterator[Any] | None = None
        left = True
        while left:  # a fault of one result does not end the others
            try:
                results = results or iter(steps(item))
                for result in results:
                    yield finish(key, result)
                left = False
            except SampleError as error:
                on_fault(error.at(key=key, **where()))
                left = results is not None


def context_of(conversion: Conversion) -> OpContext:
    """What the ops of a conversion may depend on."""
    return OpContext(conversion.seed, conversion.max_pixels, conversion.image_size)


def feature_map_of(conversion: Conversion) -> FeatureMap:
    """What makes features of the samples of a conversion."""
    preset = find_preset(conversion.preset) if conversion.preset else None
    if conversion.record_to_example:
        preset = of_record_to_example(conversion.record_to_example)
    return FeatureMap(conversion.types, conversion.select, preset, context_of(conversion))
