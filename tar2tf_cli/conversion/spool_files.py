"""The index and spool files of groups in the working folder, with a count of the users of each spool."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Set
from functools import lru_cache, partial

from tar2tf_cli.conversion.spool import SpoolIndex, StoredIndex
from tar2tf_cli.conversion.worker import InputGroup, Worker, groups_in, load_group
from tar2tf_cli.errors import SourceError


class SpoolFiles:
    """Loads the saved indexes of groups, and removes a spool once no input and no shard needs it.

    Args:
        worker: provides the paths of the files.

    Attributes:
        saved: numbers of the groups that an interrupted run read.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._users: Counter[int] = Counter()  # inputs to divide and shards to write, by group
        self._index = lru_cache(maxsize=1)(self._load_index)
        self.saved = groups_in(worker.folder)

    def saved_group(self, number: int) -> InputGroup | None:
        """Load a group that an interrupted run read; None if its file is missing or damaged."""
        return load_group(self._worker.path(number, "index")) if number in self.saved else None

    def saved_groups(self) -> Iterator[InputGroup]:
        """Iterate over the groups that an interrupted run read, loading each."""
        return filter(None, map(self.saved_group, self.saved))

    def unload(self, group: InputGroup) -> None:
        """Drop the index of a group from memory, so that it is read from its file whenever it is needed."""
        group.stored = StoredIndex(partial(self._index, group.number))

    def _load_index(self, number: int) -> SpoolIndex:
        group = load_group(self._worker.path(number, "index"))
        if group is None:
            raise SourceError("an index in the working folder was damaged", hint="run the same command again")
        return group.index

    def need(self, groups: Iterable[int]) -> None:
        """Count one more user of each group's spool."""
        self._users.update(groups)

    def hand_over(self, groups: Iterable[int]) -> None:
        """Count one user less of each group's spool, but remove none, as shards need them next."""
        self._users.subtract(groups)

    def release(self, groups: Set[int], *, still_open: Set[int]) -> None:
        """Count one user less of each group's spool, and remove spools without users.

        Args:
            groups: numbers of the groups.
            still_open: groups with records in incomplete shards, whose spools are kept.
        """
        self._users.subtract(groups)
        for group in groups - still_open:
            if not self._users[group]:
                del self._users[group]
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._worker.path(group, "spool"))
