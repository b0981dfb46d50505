"""Reads many files with workers: the context that tasks share, and the results in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tar2tf_cli.engines.gather import gather
from tar2tf_cli.events import Events
from tar2tf_cli.inputs.tar_samples import TarRules
from tar2tf_cli.stores import ObjectInfo, Source

__all__ = ["FileContext", "FileTask", "read_files"]


@dataclass(slots=True, eq=False, repr=False)
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


class FileTask(NamedTuple):
    """Reads one file.

    Attributes:
        item: the file.
        read: called with the file and the context.
    """

    item: ObjectInfo
    read: Callable[[ObjectInfo, Any], Any]

    def __str__(self) -> str:
        return self.item.name

    def run(self, context: FileContext) -> Any:
        """The result of reading the file."""
        return self.read(self.item, context)


def read_files(tasks: Sequence[FileTask], context: FileContext, workers: int | None, events: Events) -> list[Any]:
    """Run one task per file and return the results in order; `events` is notified of progress in bytes."""
    known = [task.item.size or 0 for task in tasks]
    size = None if any(task.item.size is None for task in tasks) else sum(known)

    def begin() -> None:
        events.planned(len(tasks), size)

    return gather(tasks, context, costs=known, workers=workers, begin=begin, progress=events.progress)
