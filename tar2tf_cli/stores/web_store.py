"""What every store has whose requests libcurl sends."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, ClassVar

from tar2tf_cli.stores.base import ObjectInfo
from tar2tf_cli.stores.objects import SMALL, Store
from tar2tf_cli.stores.transfer import Body

if TYPE_CHECKING:
    from tar2tf_cli.stores.curl import Response

__all__ = ["WebStore"]


class WebStore(Store):
    """A store with a URL for each object; its client is a `WebClient`.

    Attributes:
        missing: statuses that say for certain that an object does not exist.
    """

    missing: ClassVar[tuple[int, ...]] = ()

    @abstractmethod
    def request_url(self, method: str, name: str) -> str:
        """Return where a request for an object goes."""

    @abstractmethod
    def body(self, response: Response, start: int = 0) -> Body:
        """Return the body of a response that is a success."""

    def described(self, response: Response, name: str) -> ObjectInfo:
        """Return the object that a successful response to HEAD describes."""
        body = self.body(response)
        return ObjectInfo(name, body.size, body.version, body.checksum)

    def head_each(self, names: Sequence[str]) -> Sequence[ObjectInfo | None]:
        """Send a HEAD for each object; what fails is left to `head`."""
        found: dict[str, ObjectInfo | None] = {}
        urls = (self.request_url("HEAD", name) for name in names)
        for name, response in zip(names, self.client.each("HEAD", urls, SMALL), strict=True):
            if response and response.status in (200, *self.missing):
                found[name] = self.described(response, name) if response.status == 200 else None
        rest = [name for name in names if name not in found]
        found.update(zip(rest, super().head_each(rest), strict=True))
        return [found[name] for name in names]

    def fetch_each(self, items: Sequence[ObjectInfo]) -> Generator[Body | None, None, None]:
        """Send a GET for each object."""
        urls = (self.request_url("GET", item.name) for item in items)
        for response in self.client.each("GET", urls, SMALL):
            yield self.body(response) if response and response.status == 200 else None
