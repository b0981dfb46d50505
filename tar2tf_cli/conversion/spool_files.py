"""The files of groups in the working folder of a conversion, and who still needs each spool."""

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
        worker: knows where the files are.

    Attributes:
        saved: numbers of the groups that an interrupted run read.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._users: Counter[int] = Counter()  # how many inputs to come and unwritten shards need a group's spool
        self._index = lru_cache(maxsize=1)(self._load_index)
        self.saved = groups_in(worker.folder)

    def saved_group(self, number: int) -> InputGroup | None:
        """Load a group that an interrupted run read; None if there is none, or if its file is damaged."""
        return load_group(self._worker.path(number, "index")) if number in self.saved else None

    def saved_groups(self) -> Iterator[InputGroup]:
        """Load the groups that an interrupted run read, one after the other."""
        return filter(None, map(self.saved_group, self.saved))

    def unload(self, group: InputGroup) -> None:
        """Have the index of a group read from its file whenever it is needed, and not kept in memory."""
        group.stored = StoredIndex(partial(self._index, group.number))

    def _load_index(self, number: int) -> SpoolIndex:
        group = load_group(self._worker.path(number, "index"))
        if group is None:
            raise SourceError("an index in the working folder was damaged", hint="run the same command again")
        return group.index

    def need(self, groups: Iterable[int]) -> None:
        """Count one more user of the spool of each of these groups."""
        self._users.update(groups)

    def hand_over(self, groups: Iterable[int]) -> None:
        """Count one user less of the spool of each of these groups, without removing any, as shards need them next."""
        self._users.subtract(groups)

    def release(self, groups: Set[int], *, still_open: Set[int]) -> None:
        """Count one user less of the spool of each of these groups, and remove those that nobody needs.

        Args:
            groups: numbers of the groups.
            still_open: groups with records in shards that are not complete, whose spools stay in any case.
        """
        self._users.subtract(groups)
        for group in groups - still_open:
            if not self._users[group]:
                del self._users[group]
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._worker.path(group, "spool"))
