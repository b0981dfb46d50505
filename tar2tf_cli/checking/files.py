"""Reads many files with workers: the context that tasks share, and the results in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tar2tf_cli.engines.base import Task
from tar2tf_cli.engines.gather import gather
from tar2tf_cli.events import Events
from tar2tf_cli.inputs.tar_samples import TarRules
from tar2tf_cli.stores import ObjectInfo, Source

__all__ = ["FileContext", "read_files"]


@dataclass(slots=True)
class FileContext:
    """The context that the tasks of one run share.

    Attributes:
        source: where the files are.
        rules: how tars are read.
        on_bytes: called with the number of stored bytes after each read of a file.
    """

    source: Source
    rules: TarRules
    on_bytes: Callable[[int], None] | None = None


def read_files(
    items: Sequence[ObjectInfo], tasks: Sequence[Task], context: FileContext, workers: int | None, events: Events
) -> list[Any]:
    """Run one task per file and return the results in order; `events` is notified of progress in bytes."""
    known = [item.size or 0 for item in items]
    size = None if any(item.size is None for item in items) else sum(known)

    def begin() -> None:
        events.planned(len(items), size)

    return gather(tasks, context, costs=known, workers=workers, begin=begin, progress=events.progress)
