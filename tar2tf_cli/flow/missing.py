"""A feature that has a type and is missing: from one sample, which is faulty, or from all, which is a usage error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tar2tf_cli.errors import SampleError
from tar2tf_cli.features.feature_map import MissingFeatureError, no_such_feature
from tar2tf_cli.flow.sample_flow import OnFault

__all__ = ["MissingFeatures"]


class MissingFeatures:
    """Holds back samples without a typed feature until one of the input has it, or the input ends.

    Args:
        policy: called with the error of each faulty sample, in order, once it is known that the features exist.
        shard: the input, for the error.
        skip: whether the policy skips faulty samples; if not, the first error is enough.

    Attributes:
        held: the errors held back; empty once the features are known to exist.
    """

    def __init__(self, policy: OnFault, shard: str, *, skip: bool) -> None:
        self._policy = policy
        self._skip = skip
        self._shard = shard
        self._seen: set[str] = set()
        self._decided = False
        self.held: list[MissingFeatureError] = []

    def __call__(self, error: SampleError) -> None:
        """Hold the error back if its feature may be missing from all samples, or pass it to the policy."""
        if self._decided or not isinstance(error, MissingFeatureError):
            self._policy(error)
            return
        self._seen.update(error.names)
        if self._skip or not self.held:
            error.__traceback__ = None  # it would keep the sample in memory
            self.held.append(error)
        if all(held.name in self._seen for held in self.held):
            self.release()

    def release(self) -> None:
        """Pass what was held back to the policy, as the features exist."""
        self._decided = True
        held, self.held = self.held, []
        for error in held:
            self._policy(error)

    def watched(self, results: Iterator[Any]) -> Iterator[Any]:
        """Yield the results of an input.

        Raises:
            UsageError: at its end, when none of its samples has a feature that has a type.
        """
        yield from results
        for error in self.held:
            if error.name not in self._seen:
                raise no_such_feature(error.name, self._seen, self._shard)
        self.release()
