"""HTTP/1.1 on a connection of urllib3, with less work for each request than `http.client` and urllib3 do (RFC 9112).

urllib3 makes, keeps and checks the connections; requests and responses take a fifth of its CPU time here.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from http.client import BadStatusLine, LineTooLong, RemoteDisconnected
from io import BufferedReader
from typing import Any, BinaryIO, Final

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ProtocolError

from tar2tf_cli.errors import UsageError
from tar2tf_cli.stores.network import network_errors
from tar2tf_cli.stores.retries import Transient

__all__ = ["POOLS", "Response"]

_MOST_HEAD: Final = 1 << 16
_PIECE: Final = 1 << 18  # bytes of an upload that are sent at once
_STATUS: Final = re.compile(rb"HTTP/1\.([01]) (\d{3})\b")
_ACKNOWLEDGE: Final = getattr(socket, "TCP_QUICKACK", None)  # Linux only


class _Headers(dict[str, str]):
    """Headers by name in lower case."""

    def get(self, name: str, default: Any = None) -> Any:
        """Return a header's value; names are not case-sensitive."""
        return super().get(name.lower(), default)


class Response:
    """The response to one request; its connection goes back to the pool once the body has been read.

    Attributes:
        status: the HTTP status.
        headers: by name, which is not case-sensitive; values of a header that is repeated are joined by commas.
        server: the server's URL, for errors.
    """

    server = ""
    version_string = "HTTP/1.1"  # this and the rest are for urllib3's pool
    retries: Any = None
    _connection: Any = None
    _pool: Any = None

    def __init__(self, file: BufferedReader, method: str, sock: socket.socket) -> None:
        minor, self.status, self.headers, buffered = _head(file)
        while 100 <= self.status < 200:
            minor, self.status, self.headers, buffered = _head(file)
        get = self.headers.get
        self._file = file
        options = str(get("connection", "")).lower()
        self._keep = "close" not in options and (minor == b"1" or "keep-alive" in options)
        self._chunked = "chunked" in str(get("transfer-encoding", "")).lower()
        self._left: int | None = None
        length = get("content-length", "")
        if method == "HEAD" or self.status in (204, 304):
            self._left, self._chunked = 0, False
        elif self._chunked:
            self._left = self._next_chunk()
        elif length.isdecimal():
            self._left = int(length)
        else:
            self._keep = False
        if _ACKNOWLEDGE is not None and (self._left is None or self._left > buffered):
            # acknowledgements are delayed by up to 40 ms, for which servers with Nagle's algorithm hold back the rest
            with suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, _ACKNOWLEDGE, 1)

    @property
    def length_remaining(self) -> int | None:
        """How much of the body has not been read; None if that is not known."""
        return None if self._chunked else self._left

    def read(self, size: int | None = None) -> bytes:
        """Return `size` bytes of the body as it was sent, or all of it; less at its end, or where it breaks off.

        Raises:
            Transient: when the connection broke off before the end, and there is nothing else to return.
        """
        try:
            with network_errors(self.server):
                return self._read(size)
        except BaseException:
            self.close()
            raise

    def _read(self, size: int | None) -> bytes:
        if self._left is None:
            data = self._file.read(-1 if size is None else size)
            if size is None or len(data) < size:
                self.close()
            return data
        pieces: list[bytes] = []
        while self._left and (size is None or size > 0):
            data = self._file.read(self._left if size is None else min(size, self._left))
            if not data:
                if pieces and size is not None:
                    break
                raise ProtocolError("Connection broken")
            self._left -= len(data)
            size = None if size is None else size - len(data)
            pieces.append(data)
            if self._chunked and not self._left:
                self._file.readline(_MOST_HEAD)
                self._left = self._next_chunk()
        if not self._left:
            self.release_conn()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def drain_conn(self) -> None:
        """Discard what is left of the body, so that the connection can be used again."""
        with suppress(Transient):
            self.read()

    def release_conn(self) -> None:
        """Return the connection to its pool, unless the server closes it."""
        if not self._keep:
            self.close()
        elif self._pool and self._connection:
            self._pool._put_conn(self._connection)
            self._connection = None

    def close(self) -> None:
        """Close the connection, if it was not returned to its pool."""
        self._left, self._chunked = 0, False
        if self._connection:
            self._connection.close()
            self._connection = None

    def _next_chunk(self) -> int:
        line = self._file.readline(_MOST_HEAD)
        try:
            size = int(line.partition(b";")[0], 16)
        except ValueError:
            raise ProtocolError("Connection broken") from None
        if not size:  # trailers and an empty line follow
            while self._file.readline(_MOST_HEAD).strip():
                pass
        return size


def _head(file: BufferedReader) -> tuple[bytes, int, _Headers, int]:
    """Read status and headers; the last item is how much more has been received."""
    data = file.peek(1)
    end = data.find(b"\r\n\r\n")
    if end >= 0:
        lines, buffered = file.read(end + 4)[:end].split(b"\r\n"), len(data) - end - 4
    else:
        lines, buffered = _lines(file), 0
    found = _STATUS.match(lines[0])
    if not found:
        raise BadStatusLine(lines[0].decode("latin-1"))
    if end < 0 and lines.pop():
        raise RemoteDisconnected("Remote end closed connection without response")
    headers = _Headers()
    name = ""
    for line in lines[1:]:
        if line[:1] in (b" ", b"\t"):  # which continues the line before
            headers[name] = f"{headers.get(name, '')} {line.strip().decode('latin-1')}"
            continue
        key, _, value = line.decode("latin-1").partition(":")
        name, value = key.lower(), value.strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return found[1], int(found[2]), headers, buffered


def _lines(file: BufferedReader) -> list[bytes]:
    """Return the lines of a head that was not received in one piece; the last one is empty if it is whole."""
    lines: list[bytes] = []
    size = 0
    while line := file.readline(_MOST_HEAD):
        size += len(line)
        if size >= _MOST_HEAD:
            raise LineTooLong("header")
        lines.append(line.rstrip(b"\r\n"))
        if not lines[-1]:
            break
    if not lines:
        raise RemoteDisconnected("Remote end closed connection without response")
    return lines


class _Wire(HTTPConnection):
    """A connection of urllib3 that sends requests and reads responses by itself."""

    _method = ""
    _reader: tuple[socket.socket, BufferedReader] | None = None

    def request(  # type: ignore[override]
        self,
        method: str,
        url: str,
        body: BinaryIO | bytes | None = None,
        headers: Mapping[str, str] | None = None,
        **options: object,
    ) -> None:
        """Send one request; a file as `body` needs a Content-Length."""
        if self.sock is None:
            self.connect()
        sock: Any = self.sock
        sock.settimeout(self.timeout)
        given = {"Host": self._named, **(headers or {})}
        if isinstance(body, bytes) or (body is None and method in ("PUT", "POST")):
            given.setdefault("Content-Length", str(len(body or b"")))
        lines = [f"{method} {url} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items())]
        if any("\n" in line or "\r" in line for line in lines):
            raise UsageError("a header of the request would hold a line break", hint="check the token or password")
        head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
        self._method = method
        if body is None or isinstance(body, bytes):
            sock.sendall(head + (body or b""))
            return
        sock.sendall(head)
        while data := body.read(_PIECE):
            sock.sendall(data)

    @property
    def _named(self) -> str:
        """The server, as the Host header names it."""
        tunnel: str | None = self._tunnel_host
        host, port = (tunnel, self._tunnel_port) if tunnel else (self.host, self.port)
        host = f"[{host}]" if ":" in host and not host.startswith("[") else host
        return host if port == self.default_port else f"{host}:{port}"

    def getresponse(self) -> Response:  # type: ignore[override]
        """Read status and headers."""
        sock: Any = self.sock
        sock.settimeout(self.timeout)
        if self._reader is None or self._reader[0] is not sock:
            self._reader = sock, sock.makefile("rb", _MOST_HEAD)
        return Response(self._reader[1], self._method, sock)

    def close(self) -> None:
        """Close the connection."""
        if self._reader:
            self._reader[1].close()
            self._reader = None
        super().close()


class _SecureWire(_Wire, HTTPSConnection):
    """The same over TLS."""


class _WirePool(HTTPConnectionPool):
    ConnectionCls = _Wire  # type: ignore[assignment]


class _SecureWirePool(HTTPSConnectionPool):
    ConnectionCls = _SecureWire  # type: ignore[assignment]


POOLS: Final = {"http": _WirePool, "https": _SecureWirePool}
"""Classes of urllib3's pools, by scheme."""
