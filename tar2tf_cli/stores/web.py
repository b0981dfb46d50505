"""The base class of stores that use libcurl, and the store of http:// and https:// URLs."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import ClassVar, Final
from urllib.parse import quote, unquote, urlsplit

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.store import Body, BulkStore, Transient
from tar2tf_cli.errors import SourceError, UsageError, changed
from tar2tf_cli.spec.urls import without_secrets
from tar2tf_cli.stores.client import ClientStore
from tar2tf_cli.stores.curl import Response, WebClient
from tar2tf_cli.stores.retries import HTTP_TO_HTTPS, check_status
from tar2tf_cli.stores.source import SMALL
from tar2tf_cli.stores.transfer import crc32c_of

_MOST_TEXT: Final = 1 << 16


def text_of(response: Response) -> str:
    """Return the beginning of a response's body as text, and release its connection."""
    text = response.read(_MOST_TEXT)
    response.close()
    return text.decode("utf-8", "replace")


def byte_range(start: int, size: int | None = None) -> dict[str, str]:
    """Return the Range header for a part of an object; nothing for all of it (RFC 9110, 14.2)."""
    if size is not None:
        return {"Range": f"bytes={start}-{start + size - 1}"}
    return {"Range": f"bytes={start}-"} if start else {}


def body_of(raw: Response, start: int, version: str | None, checksum: tuple[str, str] | None = None) -> Body:
    """Wrap the response to a GET that began at an offset of an object."""
    length = raw.headers.get("Content-Length")
    size = int(length) if length is not None and length.isdecimal() else None
    begins = 0
    if raw.status == 206:
        match = re.match(r"bytes (\d+)-\d+/(\d+|\*)", raw.headers.get("Content-Range", ""))
        if not match:
            raise Transient("the server returned a range without saying which")
        begins = int(match[1])
        size = int(match[2]) if match[2] != "*" else None

    return Body(raw.read, raw.close, begins, size, version, checksum)


class WebStore(ClientStore, BulkStore):
    """A store whose objects have URLs; its client is a `WebClient`.

    Attributes:
        missing: statuses from which it is certain that an object does not exist.
    """

    missing: ClassVar[tuple[int, ...]] = ()

    @abstractmethod
    def request_url(self, method: str, name: str) -> str:
        """Return the URL of an object for requests of a method."""

    @abstractmethod
    def body(self, response: Response, start: int = 0) -> Body:
        """Return the body of a successful response."""

    def described(self, response: Response, name: str) -> ObjectInfo:
        """Return the object that a successful HEAD response describes."""
        body = self.body(response)
        return ObjectInfo(name, body.size, body.version, body.checksum)

    def head_each(self, names: Sequence[str]) -> Mapping[str, ObjectInfo | None]:
        """Send a HEAD for each object; objects whose request fails are left out of the result."""
        objects: dict[str, ObjectInfo | None] = {}
        urls = (self.request_url("HEAD", name) for name in names)
        for name, response in zip(names, self.client.each("HEAD", urls, SMALL), strict=True):
            if response and response.status in (200, *self.missing):
                objects[name] = self.described(response, name) if response.status == 200 else None
        return objects

    def fetch_each(self, items: Sequence[ObjectInfo]) -> Generator[Body | None, None, None]:
        """Send a GET for each object."""
        urls = (self.request_url("GET", item.name) for item in items)
        for response in self.client.each("GET", urls, SMALL):
            yield self.body(response) if response and response.status == 200 else None


_IDENTITY: Final = {"Accept-Encoding": "identity"}  # as stored: .tar.gz must not be decompressed in transit
_LOGIN: Final = "name the server's login in ~/.netrc, or write it as http://USER:PASSWORD@HOST/..."


class HttpStore(WebStore):
    """Files under a base URL, or the single file at the URL; they cannot be listed.

    Credentials come from the URL itself or .netrc, certificates from REQUESTS_CA_BUNDLE, proxies from HTTPS_PROXY.
    """

    can_list = False
    missing = (404, 410)

    def __init__(self, bucket: str, endpoint: str | None = None) -> None:
        try:
            url = urlsplit(bucket)
            named = url.hostname
        except ValueError:  # the exception may repeat secrets
            raise UsageError(f"{without_secrets(bucket)!r} is not a valid URL") from None
        if not named:
            raise UsageError(f"{without_secrets(bucket)!r} has no host", hint="write http://HOST/FOLDER")
        path = url.path
        super().__init__(without_secrets(bucket), path if path.endswith("/") else f"{path}/")
        self._server = f"{url.scheme}://{url.netloc.rpartition('@')[2]}"
        self._asked = f"{url.scheme}://{url.netloc}"
        self._query = f"?{url.query}" if url.query else ""
        self._names_file = not path.endswith("/") and bool(path)

    def connect(self) -> WebClient:
        """Create a client that keeps connections open."""
        return WebClient(_IDENTITY)

    def parent(self) -> tuple[HttpStore, str] | None:
        """Return the parent folder and the file name, if the URL does not end with a slash."""
        folder = super().parent() if self._names_file else None
        return (folder[0], unquote(folder[1])) if folder else None

    def list(self, prefix: str) -> Iterable[ObjectInfo]:
        """Raise an error, as HTTP has no listing.

        Raises:
            UsageError: always.
        """
        raise UsageError(
            f"{self.locate('')} cannot be listed: HTTP has no listings",
            hint="name the shards with braces, such as 'train-{0000..0146}.tar'",
        )

    def head(self, name: str) -> ObjectInfo | None:
        """Return size and ETag by HEAD, or by a GET of one byte if the server refuses HEAD."""
        response = self._request("HEAD", name)
        response.drain()
        if response.status in (400, 403, 405, 501):
            response = self._request("GET", name, Range="bytes=0-0")
        if response.status not in (*self.missing, 416):
            self._check(response, name)
        response.close()
        return None if response.status in self.missing else self.described(response, name)

    def fetch(self, item: ObjectInfo, start: int, size: int | None = None) -> Body:
        """Send a GET, with a Range header unless all bytes are wanted."""
        response = self._request("GET", item.name, **byte_range(start, size))
        if response.status == 416:
            response.close()
            raise changed(self.locate(item.name), start)
        self._check(response, item.name)
        return self.body(response, start)

    def locate(self, name: str) -> str:
        """Return the URL of a file, without secrets."""
        return f"{self._server}{self.root}{quote(name)}"

    def _request(self, method: str, name: str, **headers: str) -> Response:
        response: Response = self.client.send(method, self.request_url(method, name), headers)
        return response

    def request_url(self, method: str, name: str) -> str:
        """Return the URL of a file, including its secrets."""
        return f"{self._asked}{self.root}{quote(name)}{self._query}"

    def body(self, response: Response, start: int = 0) -> Body:
        """Return the body of a response, with the checksum header of Google Cloud Storage."""
        headers = response.headers
        return body_of(response, start, _version(headers), crc32c_of(headers.get("x-goog-hash", "")))

    def _check(self, response: Response, name: str) -> None:
        """Raise the error of a response that does not contain the file."""
        if response.status < 400 and response.status not in (200, 206):
            response.close()
            todo = "the file may not be ready yet, or may need a login: open the URL in a browser"
            message = f"the server answered {response.status}, without the file"
            raise SourceError(message, shard=self.locate(name), hint=todo)
        if response.status >= 400:
            text = text_of(response)
            said = text if HTTP_TO_HTTPS.search(text) else ""  # other servers send HTML pages
            hint = _LOGIN if response.status == 401 else None
            check_status(
                response.status, said, self.locate(name), hint, server=self._server, after=response.retry_after
            )


def _version(headers: Mapping[str, str]) -> str | None:
    return headers.get("ETag") or headers.get("Last-Modified")
