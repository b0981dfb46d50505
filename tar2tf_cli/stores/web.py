"""What the stores share that send requests with libcurl, and the simplest of them: objects behind http:// and https://."""

from __future__ import annotations

import os
import re
import sys
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Final
from urllib.parse import quote, unquote, urlsplit

from tar2tf_cli.errors import SourceError, UsageError, changed
from tar2tf_cli.spec.urls import min_rate, server_of, without_secrets
from tar2tf_cli.stores import retries as network
from tar2tf_cli.stores.base import ObjectInfo
from tar2tf_cli.stores.retries import HTTP_TO_HTTPS, TRANSIENT, Transient, check_status
from tar2tf_cli.stores.store import SMALL, Store
from tar2tf_cli.stores.transfer import Body, crc32c_of

if TYPE_CHECKING:
    from tar2tf_cli.stores.curl import Response, Wire


_AT_ONCE: Final = 32
_MOST_AT_ONCE: Final = 128
SLOW: Final = 0.01  # seconds for as many answers from which on more requests at once may save time
_LONGER: Final = 1.5  # times as long for twice as many: the server is busy, not far away
_REDIRECTS: Final = 20
_SUPPRESS_CONNECT_HEADERS: Final = 265  # CURLOPT_SUPPRESS_CONNECT_HEADERS, for which pycurl has no name
_BUFFER: Final = 1 << 18  # bytes that libcurl receives or sends at once


class WebClient:
    """Connections to servers, shared by the threads of one process.

    libcurl follows redirects, and finds proxies in the environment and logins in .netrc by itself.

    Args:
        headers: sent with each request; where its server redirects to another one, without `Authorization`.
        verify: whether certificates are checked, or the path of the CA certificates.
        cert: paths of the client's certificate and key.
        timeout: seconds for connecting, and seconds without data.
        tls_hint: what to do when a certificate is rejected.
    """

    def __init__(
        self,
        headers: Mapping[str, str] | None = None,
        *,
        verify: bool | str = True,
        cert: tuple[str, str] | None = None,
        timeout: tuple[float, float] | None = None,
        tls_hint: str = "set REQUESTS_CA_BUNDLE to the server's CA",
    ) -> None:
        from tar2tf_cli.stores import curl

        self._curl = curl
        self._headers = dict(headers or {})
        connect, self._read = timeout or (network.CONNECT_SECONDS, network.READ_SECONDS)
        self._least = max(1, int(min_rate() * self._read))
        self._tls_hint = tls_hint
        self._idle: list[Wire] = []
        self._window = Window()
        pycurl, logged_in = curl.pycurl, "Authorization" in self._headers
        self._options: dict[int, Any] = {
            pycurl.NOSIGNAL: 1,
            pycurl.TCP_NODELAY: 1,
            pycurl.HTTP_VERSION: pycurl.CURL_HTTP_VERSION_1_1,
            pycurl.HTTP09_ALLOWED: 1,  # so that an answer that is not HTTP can be looked at
            _SUPPRESS_CONNECT_HEADERS: 1,
            pycurl.BUFFERSIZE: _BUFFER,
            pycurl.UPLOAD_BUFFERSIZE: _BUFFER,
            pycurl.CONNECTTIMEOUT_MS: int(connect * 1000),
            pycurl.MAXREDIRS: _REDIRECTS,
            pycurl.REDIR_PROTOCOLS: pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS,
            pycurl.UNRESTRICTED_AUTH: 0,
            pycurl.NETRC: pycurl.NETRC_IGNORED if logged_in else pycurl.NETRC_OPTIONAL,
            pycurl.NETRC_FILE: os.path.expanduser(os.environ.get("NETRC") or "~/.netrc"),
            **dict(zip((pycurl.SSLCERT, pycurl.SSLKEY), cert or (), strict=False)),
        }
        if verify:
            bundle = verify if isinstance(verify, str) else network.authorities()
            self._options[pycurl.CAPATH if os.path.isdir(bundle) else pycurl.CAINFO] = bundle
        else:
            self._options |= {pycurl.SSL_VERIFYPEER: 0, pycurl.SSL_VERIFYHOST: 0}

    def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        body: BinaryIO | bytes | None = None,
        *,
        wait: float = 0,
        follow: bool = True,
    ) -> Response:
        """Send one request, and return the response with its body unread.

        Args:
            method: the HTTP method.
            url: where it goes.
            headers: those of the request alone.
            body: what is sent; a file needs a Content-Length.
            wait: seconds without data that the server may take, if they are more than usual.
            follow: whether to go where the server redirects to.

        Raises:
            Transient: when the server is not reached or does not answer.
            SourceError: when its certificate is rejected, it speaks HTTP instead of HTTPS or the reverse, or it
                redirects in a loop.
            UsageError: when the URL or a header is not valid.
        """
        wire = self._wire()
        on_end = partial(self._idle.append, wire)
        return self._begin(wire, method, url, headers, body, wait=wait, follow=follow, on_end=on_end).begin()

    def each(self, method: str, urls: Iterable[str], most: int) -> Generator[Response | None, None, None]:
        """Send a request for each URL, many at once.

        Yields:
            The responses in order, each received whole; None for one that failed or has more than `most` bytes.
        """
        wire, window = self._wire(), self._window
        begun = (self._begin(wire, method, url, most=most) for url in urls)
        coming = deque(islice(begun, window.size))
        try:
            while coming:
                response, asked = coming.popleft(), time.monotonic()
                whole = response.received()
                window.answered(response.status if whole else None, time.monotonic() - asked)
                coming.extend(islice(begun, max(0, window.size - len(coming))))
                yield response if whole else None
        finally:
            for response in coming:
                response.close()
            self._idle.append(wire)

    def _wire(self) -> Wire:
        try:
            return self._idle.pop()
        except IndexError:
            return self._curl.Wire()

    def _begin(
        self,
        wire: Wire,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        body: BinaryIO | bytes | None = None,
        *,
        wait: float = 0,
        most: int = sys.maxsize,
        follow: bool = True,
        on_end: Callable[[], object] = lambda: None,
    ) -> Response:
        server_of(url)  # raises for what is not a web address
        pycurl, proxy = self._curl.pycurl, os.environ.get("HTTP_PROXY")
        easy = wire.handle(method, url, {**self._headers, **(headers or {})}, body)
        for option, value in self._options.items():
            easy.setopt(option, value)
        easy.setopt(pycurl.FOLLOWLOCATION, int(follow))
        if proxy and "http_proxy" not in os.environ and url[:5].lower() == "http:":
            easy.setopt(pycurl.PROXY, proxy)  # libcurl reads this one in lower case only
        file = None if isinstance(body, bytes) else body
        limits: dict[str, Any] = {"wait": max(self._read, wait), "least": self._least, "most": most}
        return self._curl.Response(
            wire, easy, url, file, **limits, follows=follow, tls_hint=self._tls_hint, on_end=on_end
        )


class Window:
    """How many requests are under way at once: twice as many each time, as long as that takes no longer.

    Attributes:
        size: how many.
    """

    def __init__(self) -> None:
        self.size = self._left = _AT_ONCE
        self._most = _MOST_AT_ONCE
        self._waited, self._before = 0.0, inf

    def answered(self, status: int | None, seconds: float) -> None:
        """Note the status of an answer, None if it did not come, and how long it was waited for."""
        if status is None or status in TRANSIENT:
            self.size = self._most = _AT_ONCE
        self._waited += seconds
        self._left -= 1
        if self._left > 0:
            return
        if self._waited > _LONGER * self._before:
            self._most = self.size
        elif self._waited > SLOW:
            self.size = min(2 * self.size, self._most)
        self._waited, self._before, self._left = 0.0, self._waited, self.size


_MOST_TEXT: Final = 1 << 16


def text_of(response: Response) -> str:
    """Return the beginning of a response's body as text, and release its connection."""
    text = response.read(_MOST_TEXT)
    response.close()
    return text.decode("utf-8", "replace")


def byte_range(start: int, size: int | None = None) -> dict[str, str]:
    """Return the header of a request for a part of an object; none for all of it (RFC 9110, 14.2)."""
    if size is not None:
        return {"Range": f"bytes={start}-{start + size - 1}"}
    return {"Range": f"bytes={start}-"} if start else {}


def body_of(raw: Response, start: int, version: str | None, checksum: tuple[str, str] | None = None) -> Body:
    """Wrap a server's response to a request for an object from an offset on."""
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
        objects: dict[str, ObjectInfo | None] = {}
        urls = (self.request_url("HEAD", name) for name in names)
        for name, response in zip(names, self.client.each("HEAD", urls, SMALL), strict=True):
            if response and response.status in (200, *self.missing):
                objects[name] = self.described(response, name) if response.status == 200 else None
        rest = [name for name in names if name not in objects]
        objects.update(zip(rest, super().head_each(rest), strict=True))
        return [objects[name] for name in names]

    def fetch_each(self, items: Sequence[ObjectInfo]) -> Generator[Body | None, None, None]:
        """Send a GET for each object."""
        urls = (self.request_url("GET", item.name) for item in items)
        for response in self.client.each("GET", urls, SMALL):
            yield self.body(response) if response and response.status == 200 else None


_IDENTITY: Final = {"Accept-Encoding": "identity"}  # bytes as stored: .tar.gz must not be decompressed on the way
_LOGIN: Final = "name the server's login in ~/.netrc, or write it as http://USER:PASSWORD@HOST/..."


class HttpStore(WebStore):
    """Files below a base URL, or the one file at the URL; they cannot be listed.

    Credentials come from the URL itself or .netrc, certificates from REQUESTS_CA_BUNDLE, proxies from HTTPS_PROXY.
    """

    can_list = False
    missing = (404, 410)

    def __init__(self, bucket: str) -> None:
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
        """Make a client that keeps connections open."""
        return WebClient(_IDENTITY)

    def parent(self) -> tuple[HttpStore, str] | None:
        """Return the parent folder and the file name, if the URL does not end with a slash."""
        folder = super().parent() if self._names_file else None
        return (folder[0], unquote(folder[1])) if folder else None

    def listing(self, prefix: str) -> Iterable[ObjectInfo]:
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
        """Send a GET, with a range unless all bytes are wanted."""
        response = self._request("GET", item.name, **byte_range(start, size))
        if response.status == 416:
            response.close()
            raise changed(self.locate(item.name), start)
        self._check(response, item.name)
        return self.body(response, start)

    def locate(self, name: str) -> str:
        """Return the URL, without secrets."""
        return f"{self._server}{self.root}{quote(name)}"

    def _request(self, method: str, name: str, **headers: str) -> Response:
        response: Response = self.client.send(method, self.request_url(method, name), headers)
        return response

    def request_url(self, method: str, name: str) -> str:
        """Return the URL, with its secrets."""
        return f"{self._asked}{self.root}{quote(name)}{self._query}"

    def body(self, response: Response, start: int = 0) -> Body:
        """Return the body, with the checksum that Google Cloud Storage gives."""
        headers = response.headers
        return body_of(response, start, _version(headers), crc32c_of(headers.get("x-goog-hash", "")))

    def _check(self, response: Response, name: str) -> None:
        """Raise the error of a response that is not the file."""
        if response.status < 400 and response.status not in (200, 206):
            response.close()
            todo = "the file may not be ready yet, or may need a login: open the URL in a browser"
            message = f"the server answered {response.status}, without the file"
            raise SourceError(message, shard=self.locate(name), hint=todo)
        if response.status >= 400:
            text = text_of(response)
            said = text if HTTP_TO_HTTPS.search(text) else ""  # other servers answer with pages of HTML
            hint = _LOGIN if response.status == 401 else None
            check_status(
                response.status, said, self.locate(name), hint, server=self._server, after=response.retry_after
            )


def _version(headers: Mapping[str, str]) -> str | None:
    return headers.get("ETag") or headers.get("Last-Modified")


SCHEMES: Final = dict.fromkeys(("http", "https"), lambda bucket, endpoint: HttpStore(bucket))
