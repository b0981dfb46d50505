"""HTTP requests for every store that speaks plain HTTP: the settings of a server, redirects, credentials.

Proxies, CAs and .netrc are those that requests would use.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO, Final
from urllib.parse import urljoin

from tar2tf_cli.errors import SourceError, UsageError
from tar2tf_cli.stores import network
from tar2tf_cli.stores.network import file_of
from tar2tf_cli.stores.retries import Transient

if TYPE_CHECKING:
    from tar2tf_cli.stores.curl import Response
    from tar2tf_cli.stores.wire import Wire

__all__ = ["WebClient", "server_of"]

_AT_ONCE: Final = 32  # which hides the latency of most networks

_REDIRECTS: Final = 20
_URL: Final = re.compile(r"(https?://)([^/?#]*@)?([^/?#]+)([^#]*)(?:#.*)?", re.DOTALL | re.IGNORECASE)
_SUPPRESS_CONNECT_HEADERS: Final = 265  # CURLOPT_SUPPRESS_CONNECT_HEADERS, for which pycurl has no name
_BUFFER: Final = 1 << 18  # bytes that libcurl receives or sends at once


class WebClient:
    """Connections to servers, shared by the threads of one process.

    Args:
        headers: sent with each request, to every server; credentials of .netrc or a URL only to their own.
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
        from tar2tf_cli.stores.curl import Connections

        self._headers = dict(headers or {})
        self._verify, self._cert = verify, cert
        self._connect, self._read = timeout or (network.CONNECT_SECONDS, network.READ_SECONDS)
        self._tls_hint = tls_hint
        self._connections = Connections()
        self._settings: dict[str, dict[int, Any]] = {}

    def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        body: BinaryIO | bytes | None = None,
        *,
        wait: float = 0,
    ) -> Response:
        """Send one request, and return the response with its body unread.

        Args:
            method: the HTTP method.
            url: where it goes.
            headers: those of the request alone.
            body: what is sent.
            wait: seconds without data that the server may take, if they are more than usual.

        Raises:
            Transient: when the server is not reached or does not answer.
            SourceError: when its certificate is rejected, or it speaks HTTP instead of HTTPS or the reverse.
            UsageError: when the URL is not valid.
        """
        return self._begin(method, url, headers, body, wait=wait).begin()

    def _begin(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        body: BinaryIO | bytes | None = None,
        *,
        wait: float = 0,
        wire: Wire | None = None,
    ) -> Response:
        scheme, user, host, rest = _parts(url)
        origin = scheme + user + host
        options = self._settings.get(origin) or self._settings.setdefault(origin, self._options(origin))
        return self._connections.request(
            method,
            scheme + host + (rest if rest.startswith("/") else f"/{rest}"),
            {**self._headers, **(headers or {})},
            body,
            options,
            wait=max(self._read, wait),
            server=scheme + host,
            tls_hint=self._tls_hint,
            wire=wire,
        )

    def follow(self, method: str, url: str, headers: Mapping[str, str] | None = None, *, wait: float = 0) -> Response:
        """Send a request, and go where the server redirects to.

        Raises:
            SourceError: as `send` does, and when the server redirects in a loop.
        """
        for _ in range(_REDIRECTS):
            response = self.send(method, url, headers, wait=wait)
            onward = _onward(response, url)
            if onward is None:
                return response
            response.drain_conn()
            url = onward
        raise SourceError("the server redirects in a loop")

    def each(self, method: str, urls: Iterable[str], most: int) -> Generator[Response | None, None, None]:
        """Send a request for each URL, many at once, and follow redirects.

        Yields:
            The responses in order, each received whole; None for one that failed or has more than `most` bytes.
        """
        wire = self._connections.take()
        requested = (_Requested(partial(self._begin, wire=wire), method, url, most) for url in urls)
        coming = deque(islice(requested, _AT_ONCE))
        try:
            while coming:
                response = coming.popleft().received()
                coming.extend(islice(requested, 1))
                yield response
        finally:
            for one in coming:
                one.close()
            self._connections.take_back(wire)

    def _options(self, origin: str) -> dict[int, Any]:
        """Options of libcurl for requests to a server."""
        from tar2tf_cli.stores.wire import pycurl

        proxy, auth = _proxy_and_login(origin)
        options: dict[int, Any] = {
            pycurl.NOSIGNAL: 1,
            pycurl.TCP_NODELAY: 1,
            pycurl.HTTP_VERSION: pycurl.CURL_HTTP_VERSION_1_1,
            pycurl.HTTP09_ALLOWED: 1,  # so that an answer that is not HTTP can be looked at
            _SUPPRESS_CONNECT_HEADERS: 1,
            pycurl.BUFFERSIZE: _BUFFER,
            pycurl.UPLOAD_BUFFERSIZE: _BUFFER,
            pycurl.CONNECTTIMEOUT_MS: int(self._connect * 1000),
            pycurl.PROXY: proxy,
        }
        if "https://" in (origin[:8].lower(), proxy[:8].lower()):
            options |= _tls(self._verify, self._cert)
        if any(auth) and "Authorization" not in self._headers:
            options |= {pycurl.USERNAME: auth[0], pycurl.PASSWORD: auth[1]}
        return options


class _Requested:
    """A request among others, and those that it is redirected to."""

    def __init__(self, begin: Callable[[str, str], Response], method: str, url: str, most: int) -> None:
        self._begin, self._most = begin, most
        self._redirects = 0
        self._send(method, url)

    def _send(self, method: str, url: str) -> None:
        self._response = self._begin(method, url)
        self._response.most = self._most
        self._response.on_end = partial(self._follow, method, url)

    def _follow(self, method: str, url: str) -> None:
        onward = _onward(self._response, url)
        if onward is not None and self._redirects < _REDIRECTS:
            self._redirects += 1
            with contextlib.suppress(UsageError):
                self._send(method, onward)

    def received(self) -> Response | None:
        """Receive the response, and whatever comes of the others in the meantime."""
        with contextlib.suppress(Transient):
            while self._response.is_open:
                self._response.advance()
        return self._response if self._response.is_whole else None

    def close(self) -> None:
        """Stop receiving."""
        self._response.on_end = None
        self._response.close()


def _onward(response: Response, url: str) -> str | None:
    """Where a response redirects to; None if it does not."""
    location = response.headers.get("Location")
    return urljoin(url, location) if location and response.status in (301, 302, 303, 307, 308) else None


def server_of(url: str) -> str:
    """Return scheme, host and port of a URL, without user and password."""
    scheme, _, host, _ = _parts(url)
    return scheme + host


def _parts(url: str) -> Sequence[str]:
    """Split a URL into scheme, user, host and the rest.

    Raises:
        UsageError: when it is not a web address; the message does not repeat it, as it may hold secrets.
    """
    found = _URL.fullmatch(url)
    if not found:
        raise UsageError("the address, or where it redirects to, is not a valid URL")
    return found.groups("")


def _proxy_and_login(origin: str) -> tuple[str, tuple[str, str]]:
    """Return a server's proxy, user and password as requests finds them, whose import is saved where there are none."""
    files = [os.environ["NETRC"]] if "NETRC" in os.environ else ["~/.netrc", "~/_netrc"]
    told = any(name.lower().endswith("_proxy") for name in os.environ)
    if sys.platform == "linux" and not told and "@" not in origin and not any(map(_exists, files)):
        return "", ("", "")
    from requests.utils import get_auth_from_url, get_environ_proxies, get_netrc_auth, select_proxy

    auth: tuple[str, str] = get_netrc_auth(origin) or get_auth_from_url(origin)
    return select_proxy(origin, get_environ_proxies(origin)) or "", auth


def _exists(path: str) -> bool:
    return os.path.exists(os.path.expanduser(path))


def _tls(verify: bool | str, cert: tuple[str, str] | None) -> dict[int, Any]:
    """Options of libcurl for TLS; the CAs are requests' own where no others are given."""
    from requests.utils import DEFAULT_CA_BUNDLE_PATH

    from tar2tf_cli.stores.wire import pycurl

    options: dict[int, Any] = dict(zip((pycurl.SSLCERT, pycurl.SSLKEY), cert or (), strict=False))
    if not verify:
        return {**options, pycurl.SSL_VERIFYPEER: 0, pycurl.SSL_VERIFYHOST: 0}
    bundle = verify if isinstance(verify, str) else None
    bundle = bundle or file_of("REQUESTS_CA_BUNDLE") or file_of("CURL_CA_BUNDLE") or DEFAULT_CA_BUNDLE_PATH
    return {**options, pycurl.CAPATH if os.path.isdir(bundle) else pycurl.CAINFO: bundle}
