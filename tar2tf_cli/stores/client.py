"""The base class of stores that keep a client, with its connections, in each process."""

from __future__ import annotations

import os
import threading
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tar2tf_cli.api.store import Store

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")
_connecting: Final = threading.RLock()


class ClientStore(Store):
    """A store with a client for each process, which its threads share; it is pickled without them."""

    def __init__(self, bucket: str, root: str) -> None:
        super().__init__(bucket, root)
        self._clients: dict[tuple[object, ...], Any] = {}

    @property
    def client(self) -> Any:
        """The client of this process, shared by its threads."""
        return self.of_process(self.connect)

    def of_process(self, make: Callable[..., T], *arguments: object) -> T:
        """Return a function's result, computed once for this process and all its threads, also after a fork."""
        key = (os.getpid(), make.__name__, *arguments)
        with _connecting:
            if key not in self._clients:
                self._clients[key] = make(*arguments)
            made: T = self._clients[key]
        return made

    @abstractmethod
    def connect(self) -> object:
        """Make a client for the store's methods; it must not retry by itself."""

    def at(self, root: str) -> Self:
        """Return the store at another folder of the bucket, sharing its clients."""
        other = super().at(root)
        other._clients = self._clients
        return other

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_clients": {}}
