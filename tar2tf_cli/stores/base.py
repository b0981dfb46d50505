"""Read-ahead of inputs, and the templates of a source's shards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.source import Source
from tar2tf_cli.errors import UsageError
from tar2tf_cli.spec.urls import is_remote, without_secrets
from tar2tf_cli.structs import Generic

T = TypeVar("T")


class ReadAhead(Generic[T]):
    """Read-ahead: transfers of objects that will be needed soon, started in order and a few at a time.

    Args:
        items: objects that will be taken.
        begin: starts the transfer of an object and returns it.
        most: number of transfers started before the first is taken; taking one starts another.
    """

    def __init__(self, items: Iterable[ObjectInfo], begin: Callable[[ObjectInfo], T], most: int) -> None:
        self._coming = iter([*items])
        self._begin = begin
        self._begun: dict[ObjectInfo, T] = {}
        for _ in range(most):
            self._begin_next()

    def _begin_next(self) -> None:
        if item := next(self._coming, None):
            self._begun[item] = self._begin(item)

    def take(self, item: ObjectInfo) -> T | None:
        """Return the transfer started for an object and forget it; None if there is none."""
        self._begin_next()
        return self._begun.pop(item, None)

    def rest(self) -> list[T]:
        """Stop starting transfers, and return those that nobody took."""
        self._coming = iter(())
        left = [*self._begun.values()]
        self._begun.clear()
        return left


def templates_of(source: Source, templates: Sequence[str]) -> Sequence[str]:
    """Return the given templates; if there are none, the default templates of a source's bucket.

    Raises:
        UsageError: when both the caller and the bucket give templates, or a template is a URL.
    """
    if url := next(filter(is_remote, templates), None):
        hint = "give one bucket, then names of shards in it, such as '{a,b}.tar'"
        message = f"{without_secrets(url)!r} is a URL, not the name of a shard in this bucket"
        raise UsageError(message, shard=source.bucket, hint=hint)
    if templates and source.templates:
        message = f"{source.templates[0]!r} is a template already, so it cannot be followed by {templates[0]!r}"
        raise UsageError(message, shard=source.bucket, hint="give a bucket first, then its templates")
    return templates or source.templates
