"""HTTP requests over libcurl, one or many at once, on connections that stay open.

https://curl.se/libcurl/c describes its options and errors. A request for a small object takes less than half of
the CPU time that urllib3 needs.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from functools import partial
from importlib import import_module
from itertools import islice
from math import inf
from types import ModuleType
from typing import Any, BinaryIO, Final, NoReturn

from tar2tf_cli.api.store import Transient
from tar2tf_cli.errors import SourceError, UsageError
from tar2tf_cli.spec.urls import server_of
from tar2tf_cli.stores import retries as network
from tar2tf_cli.stores.retries import NOT_TLS, TRANSIENT, min_rate, tls_failed, wrong_scheme
from tar2tf_cli.structs import NamedTuple


def _imported() -> ModuleType:
    """Import pycurl with its own libcurl, even if TensorFlow has already loaded another one."""
    flags = sys.getdlopenflags()
    sys.setdlopenflags(flags | getattr(os, "RTLD_DEEPBIND", 0))
    try:
        return import_module("pycurl")
    finally:
        sys.setdlopenflags(flags)


pycurl: Final = _imported()


_TLS: Final = (
    pycurl.E_SSL_CONNECT_ERROR,
    pycurl.E_PEER_FAILED_VERIFICATION,
    pycurl.E_SSL_CACERT_BADFILE,
    pycurl.E_SSL_CERTPROBLEM,
)
_BROKEN_OFF: Final = (
    pycurl.E_GOT_NOTHING,
    pycurl.E_PARTIAL_FILE,
    pycurl.E_RECV_ERROR,
    pycurl.E_SEND_ERROR,
    pycurl.E_SSL_CONNECT_ERROR,
)
_UNREACHED: Final = (errno.ECONNREFUSED, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL)
_PROXY: Final = re.compile(r" over (proxy \S+)")
_ESCAPE: Final = "write characters that a URL may not contain as %XX, such as %20 for a space"
_BAD_URL: Final = (pycurl.E_URL_MALFORMAT, pycurl.E_UNSUPPORTED_PROTOCOL)


def raise_mapped(code: int, text: str, number: int, server: str, tls_hint: str, *, stalled: str) -> NoReturn:
    """Raise our error for a libcurl failure.

    Args:
        code: libcurl's code.
        text: libcurl's message.
        number: the system's errno; 0 if there is none.
        server: the server to which the request was last sent.
        tls_hint: the hint when a certificate is rejected.
        stalled: the message for a server that has stalled.

    Raises:
        Transient: for failures that a retry may fix.
        UsageError: for a URL that is not valid.
        SourceError: for all other failures.
    """
    number *= code == pycurl.E_COULDNT_CONNECT or number not in _UNREACHED  # the errno is of another address
    if code in _TLS and NOT_TLS.search(text.lower()):
        raise wrong_scheme(server, "http")
    if code in _TLS and not number:
        raise tls_failed(server, text, tls_hint)
    if code in _BAD_URL:  # libcurl's text may contain secrets
        raise UsageError("the address, or where it redirects to, is not a valid URL", hint=_ESCAPE)
    if code == pycurl.E_TOO_MANY_REDIRECTS:
        raise SourceError("the server redirects in a loop", shard=server)
    if code == pycurl.E_OPERATION_TIMEDOUT:
        raise Transient(stalled, server)
    if number:
        raise Transient(": ".join([*_PROXY.findall(text), os.strerror(number)]), server)
    broken = code in _BROKEN_OFF and "CONNECT" not in text  # CONNECT in the text points to a proxy
    raise Transient("the connection was lost" if broken else text, server)


_TLS_ALERT: Final = b"\x15\x03"
_AT_ONCE: Final = 32
_MOST_AT_ONCE: Final = 128
SLOW: Final = 0.01  # seconds per window of answers, above which more concurrent requests may save time
_LONGER: Final = 1.5  # a slowdown for twice as many requests that means a busy, not a distant server
_REDIRECTS: Final = 20
_SUPPRESS_CONNECT_HEADERS: Final = 265  # CURLOPT_SUPPRESS_CONNECT_HEADERS, which pycurl does not export
_BUFFER: Final = 1 << 18  # bytes that libcurl receives or sends at once


class _Headers(dict[str, str]):
    """HTTP headers by name in lower case."""

    def get(self, name: str, default: Any = None) -> Any:
        """Return a header's value; names are not case-sensitive."""
        return super().get(name.lower(), default)

    def add(self, line: bytes) -> None:
        """Add a header line of a response; values of a repeated header are joined by commas."""
        name, _, value = line.decode("latin-1").partition(":")
        name, value = name.lower(), value.strip()
        self[name] = f"{self[name]}, {value}" if name in self else value


class CurlPool:
    """Concurrent requests of one thread, and the idle connections that later requests reuse."""

    def __init__(self) -> None:
        self._multi = pycurl.CurlMulti()
        self._idle: list[Any] = []
        self._open: dict[Any, Response] = {}

    def handle(self, method: str, url: str, headers: Mapping[str, str], body: BinaryIO | bytes | None) -> Any:
        """Return a libcurl handle for a request.

        Args:
            method: the HTTP method.
            url: the URL.
            headers: its headers.
            body: the content to send; a file needs a Content-Length.

        Raises:
            UsageError: when a header is not valid.
        """
        given = dict(headers)
        easy = self._idle.pop() if self._idle else pycurl.Curl()
        easy.setopt(pycurl.URL, url.encode("utf-8", "surrogateescape"))
        easy.setopt(pycurl.CUSTOMREQUEST, method)
        if method == "HEAD":
            easy.setopt(pycurl.NOBODY, 1)
        elif isinstance(body, bytes):
            easy.setopt(pycurl.POSTFIELDS, body)
            given.setdefault("Content-Type", "")
        elif body is None:
            if method in ("PUT", "POST"):
                given.setdefault("Content-Length", "0")
        else:
            easy.setopt(pycurl.UPLOAD, 1)
            easy.setopt(pycurl.INFILESIZE_LARGE, int(given.pop("Content-Length")))
        lines = [f"{name}: {value}" if value else f"{name}:" for name, value in {**given, "Expect": ""}.items()]
        if any("\n" in line or "\r" in line for line in lines):
            raise UsageError("a header of the request would contain a line break", hint="check the token or password")
        try:
            easy.setopt(pycurl.HTTPHEADER, [line.encode("latin-1") for line in lines])
        except UnicodeEncodeError as error:
            message = f"a header of the request would contain {error.object[error.start]!r}, which HTTP does not allow"
            raise UsageError(message, hint="check the token or password") from None
        return easy

    def begin(self, easy: object, response: Response) -> None:
        """Start the request of a handle."""
        self._open[easy] = response
        self._multi.add_handle(easy)

    def end(self, easy: Any) -> None:
        """End a request, whether or not it is complete."""
        self._multi.remove_handle(easy)
        del self._open[easy]
        easy.reset()  # drops the reference to the response
        self._idle.append(easy)

    def advance(self) -> None:
        """Send and receive without waiting, for all requests of the pool."""
        self._multi.perform()
        more = 1
        while more:
            more, whole, failed = self._multi.info_read()
            for easy in whole:
                self._open[easy].ended(None)
            for easy, code, text in failed:
                self._open[easy].ended((code, text, easy.getinfo(pycurl.OS_ERRNO)))

    def wait(self, seconds: float) -> None:
        """Wait until there is something to send or receive."""
        if self._multi.select(seconds) < 0:
            time.sleep(0.005)  # libcurl is not waiting for a socket


class RequestOptions(NamedTuple):
    """Timeouts and limits of a request.

    Attributes:
        wait: seconds with fewer bytes than `least` after which the server counts as stalled.
        least: the number of bytes that counts as progress.
        most: the maximum number of bytes of the body to hold in memory; with more, the request fails.
        follows: whether libcurl follows redirects.
        tls_hint: the hint when a certificate is rejected.
    """

    wait: float
    least: int
    tls_hint: str
    most: int = sys.maxsize
    follows: bool = True


class Received:
    """Buffer for the bytes of a body that were received and not yet read.

    Attributes:
        size: the number of these bytes.
    """

    __slots__ = ("_pieces", "size")

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self.size = 0

    def add(self, data: bytes) -> None:
        """Append bytes."""
        self._pieces.append(data)
        self.size += len(data)

    def take(self, size: int) -> bytes:
        """Remove and return at most `size` bytes."""
        left = min(size, self.size)
        self.size -= left
        parts = []
        while left:
            part = self._pieces.popleft()
            if len(part) > left:
                self._pieces.appendleft(part[left:])
                part = part[:left]
            parts.append(part)
            left -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


class _TransferProgress:
    """The progress of a transfer, which tells a slow server from a stalled one.

    Attributes:
        moved: whether anything was received or sent since the pool was last advanced.
        waited: seconds without progress.
        came: bytes received in that time.
    """

    __slots__ = ("came", "moved", "waited")

    def __init__(self) -> None:
        self.moved = False
        self.waited, self.came = 0.0, 0

    def made(self) -> None:
        """Note progress."""
        self.moved, self.waited, self.came = True, 0.0, 0

    def received(self, size: int, least: int) -> None:
        """Count received bytes; `least` bytes since the last progress are progress."""
        self.moved = True
        self.came += size
        if self.came >= least:
            self.made()


class Response:
    """The response to one request.

    Args:
        pool: the pool that sends the request.
        easy: libcurl's handle, which describes the request.
        url: the URL.
        body: the file that is sent, if any.
        options: its timeouts and limits.
        on_end: called when nothing more will be received.

    Attributes:
        status: the HTTP status.
        headers: the headers by name, which is not case-sensitive.
        retry_after: seconds that the server asks to wait (RFC 9110, 10.2.3); known once the response has ended.
    """

    def __init__(
        self,
        pool: CurlPool,
        easy: Any,
        url: str,
        body: BinaryIO | None,
        options: RequestOptions,
        on_end: Callable[[], object],
    ) -> None:
        self.status = 0
        self.retry_after = 0
        self._pool = pool
        self._easy: Any = easy
        self._url = url
        self._options = options
        self._on_end = on_end
        self.headers = _Headers()
        self._received = Received()
        self._progress = _TransferProgress()
        self._begun = False
        self._failure: tuple[int, str, int] | None = None
        easy.setopt(pycurl.HEADERFUNCTION, self._take_header)
        easy.setopt(pycurl.WRITEFUNCTION, self._take)
        if body is not None:
            easy.setopt(pycurl.READFUNCTION, partial(self._give, body))
        pool.begin(easy, self)

    def begin(self) -> Response:
        """Wait for the headers, and return the response itself.

        Raises:
            Transient: when the server is not reached or does not answer.
            SourceError: when its certificate is rejected, it speaks HTTP instead of HTTPS or the reverse, or it
                redirects in a loop.
            UsageError: when the URL is not valid.
        """
        while self._easy and not (self._begun or self._received.size):
            self._advance()
        if not self.status:
            self._refuse()
        if self._failure and not self._begun:
            self._raise()
        return self

    def received(self) -> bool:
        """Wait for the rest of the response, and return whether it is complete."""
        while self._easy:
            self._advance()
        return self._begun and self._failure is None

    @property
    def server(self) -> str:
        """The URL of the server that the request was last sent to."""
        return server_of(self._last_url())

    def _last_url(self) -> str:
        redirected = self._easy and self._easy.getinfo(pycurl.REDIRECT_COUNT)
        return str(self._easy.getinfo(pycurl.EFFECTIVE_URL)) if redirected else self._url

    def read(self, size: int | None = None) -> bytes:
        """Return `size` bytes of the raw body, or all of it; fewer at its end, or if the connection breaks off.

        Raises:
            Transient: when the connection was lost before the end, and there is nothing else to return.
        """
        held = self._received
        while self._easy and (size is None or held.size < size):
            self._advance()
        if self._failure and (size is None or not held.size):
            self._raise()
        return held.take(held.size if size is None else size)

    def drain(self) -> None:
        """Discard the remaining body, so that the connection can be reused."""
        while self._easy:
            self._advance()
            self._received.take(self._received.size)

    def close(self) -> None:
        """Close the connection, unless the whole body was received."""
        if self._easy:
            self._url, self.retry_after = self._last_url(), self._easy.getinfo(pycurl.RETRY_AFTER)
            self._pool.end(self._easy)
            self._easy = None
            self._on_end()

    def _advance(self) -> None:
        """Send and receive without waiting, for all requests of the pool; wait if this response got nothing.

        A stalled server counts as a broken connection.
        """
        progress, wait = self._progress, self._options.wait
        progress.moved = False
        self._pool.advance()
        if progress.moved or not self._easy:
            return
        if progress.waited > wait:
            self._failure = pycurl.E_OPERATION_TIMEDOUT, "", 0
            self.close()
            return
        began = time.monotonic()
        self._pool.wait(min(wait, 1.0))
        progress.waited += time.monotonic() - began

    def ended(self, failure: tuple[int, str, int] | None) -> None:
        """Note that libcurl has finished the request, successfully or with a code, a text and an errno."""
        self._failure = failure or (None if self._begun else (pycurl.E_GOT_NOTHING, "", 0))
        self.close()

    def _take_header(self, line: bytes) -> None:
        if line.startswith(b"HTTP/"):
            self.status = int(line.split(None, 2)[1])
            self.headers = _Headers()
        elif line in (b"\r\n", b"\n"):
            self._progress.made()
            self._begun = self.status >= 200 and not (self._options.follows and self._redirects())
        else:
            self.headers.add(line)

    def _redirects(self) -> bool:
        return 300 <= self.status < 400 and bool(self.headers.get("Location"))

    def _take(self, data: bytes) -> int:
        self._progress.received(len(data), self._options.least)
        self._received.add(data)
        return len(data) if self._received.size <= self._options.most else 0  # 0 makes libcurl stop

    def _give(self, body: BinaryIO, size: int) -> bytes:
        self._progress.made()
        return body.read(size)

    def _refuse(self) -> None:
        """Raise an error if the answer did not begin like HTTP."""
        if data := self._received.take(self._received.size):
            self.close()
            if data.startswith(_TLS_ALERT):
                raise wrong_scheme(self.server, "https")
            raise Transient("the answer is not HTTP", self.server)

    def _raise(self) -> NoReturn:
        """Raise the error of a request that failed."""
        assert self._failure
        progress, options = self._progress, self._options
        slow = f"fewer than {options.least:,} bytes arrived in {progress.waited:.0f} s"
        stalled = slow if progress.came else "no answer in time"
        raise_mapped(*self._failure, self.server, options.tls_hint, stalled=stalled)


class WebClient:
    """Connections to servers, shared by the threads of one process.

    libcurl follows redirects, and finds proxies in the environment and logins in .netrc by itself.

    Args:
        headers: sent with each request; without `Authorization` if it is redirected to another server.
        verify: whether certificates are checked, or the path of the CA certificates.
        cert: paths of the client's certificate and key.
        timeout: seconds for connecting, and seconds without data.
        tls_hint: the hint when a certificate is rejected.
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
        self._headers = dict(headers or {})
        connect, read = timeout or (network.CONNECT_SECONDS, network.READ_SECONDS)
        self._usual = RequestOptions(read, max(1, int(min_rate() * read)), tls_hint)
        self._idle: list[CurlPool] = []
        self._window = Window()
        logged_in = "Authorization" in self._headers
        self._options: dict[int, Any] = {
            pycurl.NOSIGNAL: 1,
            pycurl.TCP_NODELAY: 1,
            pycurl.HTTP_VERSION: pycurl.CURL_HTTP_VERSION_1_1,
            pycurl.HTTP09_ALLOWED: 1,  # to see answers that are not HTTP
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
            bundle = verify if isinstance(verify, str) else network.ca_bundle()
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
            url: the URL.
            headers: additional headers of this request.
            body: the content to send; a file needs a Content-Length.
            wait: seconds without data that the server may take, if it may take longer than usual.
            follow: whether to follow redirects.

        Raises:
            Transient: when the server is not reached or does not answer.
            SourceError: when its certificate is rejected, it speaks HTTP instead of HTTPS or the reverse, or it
                redirects in a loop.
            UsageError: when the URL or a header is not valid.
        """
        pool = self._take_pool()
        on_end = partial(self._idle.append, pool)
        return self._begin(pool, method, url, headers, body, wait=wait, follow=follow, on_end=on_end).begin()

    def each(self, method: str, urls: Iterable[str], most: int) -> Generator[Response | None, None, None]:
        """Send a request for each URL, many at once.

        Yields:
            The responses in order, each received completely; None for one that failed or has more than `most` bytes.
        """
        pool, window = self._take_pool(), self._window
        begun = (self._begin(pool, method, url, most=most) for url in urls)
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
            self._idle.append(pool)

    def _take_pool(self) -> CurlPool:
        try:
            return self._idle.pop()
        except IndexError:
            return CurlPool()

    def _begin(
        self,
        pool: CurlPool,
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
        server_of(url)  # raises an error for an invalid URL
        proxy = os.environ.get("HTTP_PROXY")
        easy = pool.handle(method, url, {**self._headers, **(headers or {})}, body)
        for option, value in self._options.items():
            easy.setopt(option, value)
        easy.setopt(pycurl.FOLLOWLOCATION, int(follow))
        if proxy and "http_proxy" not in os.environ and url[:5].lower() == "http:":
            easy.setopt(pycurl.PROXY, proxy)  # libcurl itself reads only the lower-case variable
        file = None if isinstance(body, bytes) else body
        options = self._usual._replace(wait=max(self._usual.wait, wait), most=most, follows=follow)
        return Response(pool, easy, url, file, options, on_end)


class Window:
    """The number of concurrent requests, which doubles as long as answers do not take longer.

    Attributes:
        size: the number of requests.
    """

    def __init__(self) -> None:
        self.size = self._left = _AT_ONCE
        self._most = _MOST_AT_ONCE
        self._waited, self._before = 0.0, inf

    def answered(self, status: int | None, seconds: float) -> None:
        """Record the status of an answer (None without one), and the seconds that it took."""
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
