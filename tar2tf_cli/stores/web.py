"""HTTP requests over connections that stay open, for every store that speaks plain HTTP.

urllib3 sends them, as requests takes three times its CPU for a small object; proxies, CAs and .netrc are those that
requests would use.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple
from urllib.parse import urljoin

from tar2tf_cli.errors import SourceError, UsageError
from tar2tf_cli.stores import network
from tar2tf_cli.stores.network import file_of, network_errors

if TYPE_CHECKING:
    from tar2tf_cli.stores.http_wire import Response

__all__ = ["WebClient", "server_of"]

_CONNECTIONS: Final = 64
_REDIRECTS: Final = 20
_URL: Final = re.compile(r"(https?://)([^/?#]*@)?([^/?#]+)([^#]*)(?:#.*)?", re.DOTALL | re.IGNORECASE)


class _Route(NamedTuple):
    """How requests get to one server.

    Attributes:
        send: sends a request, like `urlopen` of urllib3.
        base: what the URL in a request begins with: nothing, or the server where a proxy has to know it.
        headers: sent with each request.
    """

    send: Callable[..., Any]
    base: str
    headers: dict[str, str]


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
        self._headers = dict(headers or {})
        self._verify, self._cert = verify, cert
        self._connect, self._read = timeout or (network.CONNECT_SECONDS, network.READ_SECONDS)
        self._tls_hint = tls_hint
        self._routes: dict[str, _Route] = {}

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
        from urllib3 import Timeout

        scheme, user, host, rest = _parts(url)
        origin = scheme + user + host
        with network_errors(scheme + host, self._tls_hint):
            route = self._routes.get(origin) or self._routes.setdefault(origin, self._route(origin))
            response: Response = route.send(
                method,
                route.base + (rest if rest.startswith("/") else f"/{rest}"),
                body=body,
                headers={**route.headers, **(headers or {})},
                timeout=Timeout(connect=self._connect, read=max(self._read, wait)),
                retries=False,
                redirect=False,
                preload_content=False,
            )
        response.server = scheme + host
        return response

    def follow(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, *, wait: float = 0
    ) -> tuple[Response, str]:
        """Send a request, and go where the server redirects to; return the response and the server that sent it.

        Raises:
            SourceError: as `send` does, and when the server redirects in a loop.
        """
        for _ in range(_REDIRECTS):
            response = self.send(method, url, headers, wait=wait)
            location = response.headers.get("Location")
            if response.status not in (301, 302, 303, 307, 308) or not location:
                return response, server_of(url)
            response.drain_conn()
            url = urljoin(url, location)
        raise SourceError("the server redirects in a loop")

    def _route(self, origin: str) -> _Route:
        from requests.utils import get_auth_from_url, get_environ_proxies, get_netrc_auth, select_proxy
        from urllib3 import PoolManager, ProxyManager, make_headers

        from tar2tf_cli.stores.http_wire import POOLS

        auth = get_netrc_auth(origin) or get_auth_from_url(origin)
        headers = {**make_headers(basic_auth=":".join(auth) if any(auth) else None), **self._headers}
        server = server_of(origin)
        proxy = select_proxy(origin, get_environ_proxies(origin))
        settings: dict[str, Any] = {"maxsize": _CONNECTIONS}
        if "https://" in (origin[:8].lower(), (proxy or "")[:8].lower()):
            settings |= _tls(self._verify, self._cert)
        if not proxy:
            manager = PoolManager(**settings)
            manager.pool_classes_by_scheme = POOLS
            return _Route(manager.connection_from_url(server).urlopen, "", headers)
        proxy = proxy if "://" in proxy else f"http://{proxy}"
        user = ":".join(get_auth_from_url(proxy))
        own = make_headers(proxy_basic_auth=user) if user != ":" else None
        manager = ProxyManager(proxy, proxy_headers=own, **settings)
        manager.pool_classes_by_scheme = POOLS
        return _Route(manager.urlopen, server, headers)


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


def _tls(verify: bool | str, cert: tuple[str, str] | None) -> dict[str, Any]:
    """Return urllib3's settings for TLS; the CAs are requests' own where no others are given."""
    from requests.utils import DEFAULT_CA_BUNDLE_PATH
    from urllib3 import disable_warnings
    from urllib3.exceptions import InsecureRequestWarning

    settings: dict[str, Any] = dict(zip(("cert_file", "key_file"), cert or (), strict=False))
    if not verify:
        disable_warnings(InsecureRequestWarning)  # the user has said so
        return {**settings, "cert_reqs": "CERT_NONE", "assert_hostname": False}
    bundle = verify if isinstance(verify, str) else None
    bundle = bundle or file_of("REQUESTS_CA_BUNDLE") or file_of("CURL_CA_BUNDLE") or DEFAULT_CA_BUNDLE_PATH
    return {**settings, "cert_reqs": "CERT_REQUIRED", "ca_cert_dir" if os.path.isdir(bundle) else "ca_certs": bundle}
