"""The base class of stores that keep one client, with its connections, in each process."""

from __future__ import annotations

import os
import threading
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tar2tf_cli.api.store import ObjectExists, Store

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")
_connecting: Final = threading.RLock()


class ClientStore(Store):
    """A store whose threads share one client per process; pickling leaves clients out."""

    def __init__(self, bucket: str, root: str) -> None:
        super().__init__(bucket, root)
        self._clients: dict[tuple[object, ...], Any] = {}

    @property
    def client(self) -> Any:
        """The client of this process, shared by its threads."""
        return self.of_process(self.connect)

    def of_process(self, make: Callable[..., T], *arguments: object) -> T:
        """Return a function's result, computed once per process (again after a fork) and shared by its threads."""
        key = (os.getpid(), make.__name__, *arguments)
        with _connecting:
            if key not in self._clients:
                self._clients[key] = make(*arguments)
            made: T = self._clients[key]
        return made

    @abstractmethod
    def connect(self) -> object:
        """Create a client for the store's methods; it must not retry requests itself."""

    def refuse_existing(self, name: str) -> None:
        """Raise `ObjectExists` if an object exists, for a `put` to a server without conditional uploads."""
        if self.head(name):
            raise ObjectExists("already exists", shard=self.locate(name))

    def __copy__(self) -> Self:
        """Return the store for use at another folder of the bucket; both share their clients."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_clients": {}}
