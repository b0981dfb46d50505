"""Requests over libcurl, which keeps connections open, and their responses.

https://curl.se/libcurl/c describes its options and errors. A request for a small object takes less than half of
the CPU time that urllib3 needs.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, Final, NoReturn

from tar2tf_cli.errors import SourceError, UsageError
from tar2tf_cli.stores.network import wrong_scheme
from tar2tf_cli.stores.retries import Transient
from tar2tf_cli.stores.wire import Wire, pycurl

__all__ = ["Connections", "Response"]


_TLS: Final = (
    pycurl.E_SSL_CONNECT_ERROR,
    pycurl.E_PEER_FAILED_VERIFICATION,
    pycurl.E_SSL_CACERT_BADFILE,
    pycurl.E_SSL_CERTPROBLEM,
)
_TLS_ALERT: Final = b"\x15\x03"
_NOT_TLS: Final = re.compile("wrong version number|record layer failure|unknown protocol|http request|packet length")
_BROKEN_OFF: Final = (
    pycurl.E_GOT_NOTHING,
    pycurl.E_PARTIAL_FILE,
    pycurl.E_RECV_ERROR,
    pycurl.E_SEND_ERROR,
    pycurl.E_SSL_CONNECT_ERROR,
)


class _Headers(dict[str, str]):
    """Headers by name in lower case."""

    def get(self, name: str, default: Any = None) -> Any:
        """Return a header's value; names are not case-sensitive."""
        return super().get(name.lower(), default)

    def add(self, line: bytes) -> None:
        """Add a line of a response; values of a header that is repeated are joined by commas."""
        name, _, value = line.decode("latin-1").partition(":")
        name, value = name.lower(), value.strip()
        self[name] = f"{self[name]}, {value}" if name in self else value


class Connections:
    """Connections that the threads of one process take in turns."""

    def __init__(self) -> None:
        self._idle: list[Wire] = []

    def take(self) -> Wire:
        """Return a wire for one thread."""
        try:
            return self._idle.pop()
        except IndexError:
            return Wire()

    def take_back(self, wire: Wire) -> None:
        """Keep the connections of a wire, which has no requests any more, for others."""
        self._idle.append(wire)

    def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: BinaryIO | bytes | None,
        options: Mapping[int, Any],
        *,
        wait: float,
        server: str,
        tls_hint: str,
        wire: Wire | None = None,
    ) -> Response:
        """Begin a request and return its response, none of which may have been received.

        Args:
            method: the HTTP method.
            url: where it goes.
            headers: its headers.
            body: what is sent; a file needs a Content-Length.
            options: more options of libcurl.
            wait: seconds without data after which the server counts as stalled.
            server: the server's URL, for errors.
            tls_hint: what to do when a certificate is rejected.
            wire: what it shares with other requests; one of its own by default.

        Raises:
            UsageError: when a header is not valid.
        """
        mine = wire or self.take()
        easy = mine.handle()
        for option, value in options.items():
            easy.setopt(option, value)
        easy.setopt(pycurl.URL, url)
        easy.setopt(pycurl.CUSTOMREQUEST, method)
        given = dict(headers)
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
            raise UsageError("a header of the request would hold a line break", hint="check the token or password")
        easy.setopt(pycurl.HTTPHEADER, [line.encode("latin-1") for line in lines])
        owner = None if wire else self
        return Response(owner, mine, easy, None if isinstance(body, bytes) else body, wait, server, tls_hint)


class Response:
    """The response to one request.

    Attributes:
        status: the HTTP status.
        server: the URL of the server that sent it.
        on_end: called when nothing more will be received.
        most: how many bytes of the body may be held; with more, the request fails.
    """

    def __init__(
        self,
        owner: Connections | None,
        wire: Wire,
        easy: Any,
        body: BinaryIO | None,
        wait: float,
        server: str,
        tls_hint: str,
    ) -> None:
        self.status = 0
        self.server = server
        self.on_end: Callable[[], None] | None = None
        self.most = sys.maxsize
        self._owner = owner
        self._wire = wire
        self._easy: Any = easy
        self._wait = wait
        self._tls_hint = tls_hint
        self._headers = _Headers()
        self._lines: list[bytes] = []  # of headers that were not looked at
        self._pieces: deque[bytes] = deque()
        self._held = 0  # bytes in the pieces
        self._begun = False
        self._moved = time.monotonic()  # when there was data last
        self._failure: tuple[int, str, int] | None = None
        easy.setopt(pycurl.HEADERFUNCTION, self._take_header)
        easy.setopt(pycurl.WRITEFUNCTION, self._take)
        if body is not None:
            self._upload = body
            easy.setopt(pycurl.READFUNCTION, self._give)
        wire.begin(easy, self)

    def begin(self) -> Response:
        """Wait for the headers, and return the response itself.

        Raises:
            Transient: when the server is not reached or does not answer.
            SourceError: when its certificate is rejected, or it speaks HTTP instead of HTTPS or the reverse.
            UsageError: when the URL is not valid.
        """
        while self._easy and not (self._begun or self._held):
            self.advance()
        if not self.status:
            self._refuse()
        if self._failure and not self._begun:
            self._raise()
        return self

    @property
    def headers(self) -> _Headers:
        """The headers by name, which is not case-sensitive."""
        for line in self._lines:
            self._headers.add(line)
        self._lines.clear()
        return self._headers

    @property
    def is_open(self) -> bool:
        """Whether more may be received."""
        return self._easy is not None

    @property
    def is_whole(self) -> bool:
        """Whether all of it was received."""
        return self._easy is None and self._begun and self._failure is None

    def read(self, size: int | None = None) -> bytes:
        """Return `size` bytes of the body as it was sent, or all of it; less at its end, or where it breaks off.

        Raises:
            Transient: when the connection broke off before the end, and there is nothing else to return.
        """
        while self._easy and (size is None or self._held < size):
            self.advance()
        if self._failure and (size is None or not self._held):
            self._raise()
        left = self._held if size is None else min(size, self._held)
        self._held -= left
        parts = []
        while left:
            part = self._pieces.popleft()
            if len(part) > left:
                self._pieces.appendleft(part[left:])
                part = part[:left]
            parts.append(part)
            left -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def drain_conn(self) -> None:
        """Discard what is left of the body, so that the connection can be used again."""
        while self._easy:
            self.advance()
            self._pieces.clear()
            self._held = 0

    def close(self) -> None:
        """Close the connection, unless all of the body was received."""
        self._end()

    def advance(self) -> None:
        """Receive or send what can be now, for all requests of the wire; wait for it if there is nothing of this one.

        Raises:
            Transient: when the server has stalled.
        """
        before = self._moved
        self._wire.advance()
        if self._easy and self._moved == before:
            if time.monotonic() - before > self._wait:
                self._failure = pycurl.E_OPERATION_TIMEDOUT, "", 0
                self._end()
                raise Transient("no answer in time", self.server)
            self._wire.wait(min(self._wait, 1.0))

    def ended(self, failure: tuple[int, str, int] | None) -> None:
        """Take note that libcurl has finished: it received all, or failed with a code, a text and an errno."""
        self._failure = failure or (None if self._begun else (pycurl.E_GOT_NOTHING, "", 0))
        self._end()
        if self.on_end:
            self.on_end()

    def _end(self) -> None:
        if self._easy:
            self._wire.end(self._easy)
            self._easy = None
            if self._owner:
                self._owner.take_back(self._wire)

    def _take_header(self, line: bytes) -> None:
        if line.startswith(b"HTTP/"):
            self.status = int(line.split(None, 2)[1])
            self._headers, self._lines = _Headers(), []
        elif line in (b"\r\n", b"\n"):
            self._moved = time.monotonic()
            self._begun = self.status >= 200
        else:
            self._lines.append(line)

    def _take(self, data: bytes) -> int:
        self._moved = time.monotonic()
        self._pieces.append(data)
        self._held += len(data)
        return len(data) if self._held <= self.most else 0  # which has libcurl stop

    def _give(self, size: int) -> bytes:
        self._moved = time.monotonic()
        return self._upload.read(size)

    def _refuse(self) -> None:
        """Raise the error of an answer that does not begin like HTTP, if there was one."""
        data = b"".join(self._pieces)
        if data:
            self._end()
            if data.startswith(_TLS_ALERT):
                raise wrong_scheme(self.server, "https")
            raise Transient("the answer is not HTTP", self.server)

    def _raise(self) -> NoReturn:
        """Raise the error of a request that failed."""
        assert self._failure
        code, text, number = self._failure
        if code in _TLS and _NOT_TLS.search(text.lower()):
            raise wrong_scheme(self.server, "http")
        if code in _TLS and not number:
            raise SourceError(f"TLS failed: {text}", shard=self.server, hint=self._tls_hint)
        if code == pycurl.E_URL_MALFORMAT:
            raise UsageError(f"{self.server!r}, or what it redirects to, is not a valid URL")  # text may hold secrets
        if code == pycurl.E_OPERATION_TIMEDOUT:
            raise Transient("no answer in time", self.server)
        if number:
            raise Transient(os.strerror(number), self.server)
        broken = code in _BROKEN_OFF and "CONNECT" not in text  # which tells of a proxy
        raise Transient("the connection broke off" if broken else text, self.server)
