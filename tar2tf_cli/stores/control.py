"""Control requests over `requests`: queries about a cluster or cloud, for which speed does not matter.

Objects are transferred by libcurl and obstore, in less than half of its CPU time. Importing `requests` takes longer
than converting a small bucket, so the first call imports it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn

from tar2tf_cli.api.store import Transient
from tar2tf_cli.errors import SourceError, UsageError
from tar2tf_cli.spec.urls import server_of
from tar2tf_cli.stores.retries import NOT_TLS, ca_bundle, tls_failed, wrong_scheme
from tar2tf_cli.structs import NamedTuple

if TYPE_CHECKING:
    import requests

_TLS_ALERT: Final = "\\x15\\x03"
"""Answer of an HTTPS server instead of a status line, as exceptions quote it."""


class Answer(NamedTuple):
    """The complete answer to a control request.

    Attributes:
        status: the HTTP status.
        headers: the headers by name, which is not case-sensitive.
        text: the body.
        server: the URL of the server that answered.
        retry_after: seconds that the server asks to wait; 0 if it does not say.
    """

    status: int
    headers: Mapping[str, str]
    text: str
    server: str
    retry_after: int


def ask(
    method: str,
    url: str,
    message: Mapping[str, object] | None = None,
    *,
    timeout: tuple[float, float],
    headers: Mapping[str, str] | None = None,
    verify: bool | str = True,
    cert: tuple[str, str] | None = None,
    tls_hint: str = "",
    follow: bool = True,
) -> Answer:
    """Send one control request; its headers are dropped if it is redirected to another server.

    Args:
        method: the HTTP method.
        url: the URL.
        message: sent as JSON.
        timeout: seconds for connecting, and seconds without data.
        headers: the request's headers, which replace a login in .netrc.
        verify: whether certificates are checked, or the path of the CA certificates.
        cert: paths of the client's certificate and key.
        tls_hint: the hint when a certificate is rejected.
        follow: whether to follow redirects.

    Raises:
        Transient: when the server cannot be reached or does not answer.
        SourceError: when its certificate is rejected, it speaks HTTP instead of HTTPS or the reverse, or it redirects
            in a loop.
        UsageError: when the URL or a header is not valid.
    """
    import requests

    def log_in(request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers.update(headers or {})
        return request

    if verify is False:  # at the user's request
        requests.packages.urllib3.disable_warnings()  # type: ignore[attr-defined]
    options: dict[str, Any] = {"verify": ca_bundle() if verify is True else verify, "cert": cert}
    try:
        response = requests.request(
            method, url, json=message, auth=log_in, timeout=timeout, allow_redirects=follow, **options
        )
    except (requests.RequestException, UnicodeError) as error:
        _raise_mapped(error, server_of(url), tls_hint)
    after = response.headers.get("Retry-After", "")
    seconds = int(after) if after.isdecimal() else 0
    return Answer(response.status_code, response.headers, response.text, server_of(response.url), seconds)


def parsed(text: str | bytes) -> dict[str, Any]:
    """Parse a JSON object; anything else, such as a truncated document, becomes an empty one."""
    try:
        document = json.loads(text)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _raise_mapped(error: Exception, server: str, tls_hint: str) -> NoReturn:
    """Raise our error for an exception of requests.

    Raises:
        Transient: for failures that a retry may fix.
        UsageError: for a URL or a header that is not valid.
        SourceError: for all other failures.
    """
    from requests import exceptions

    if isinstance(error, ValueError):  # requests raises it for invalid URLs and headers
        hint = "check the endpoint, and the token or password"
        raise UsageError("the address or a header of the request is not valid", hint=hint) from None
    if isinstance(error, exceptions.TooManyRedirects):
        raise SourceError("the server redirects in a loop", shard=server) from None
    if isinstance(error, exceptions.SSLError):
        if NOT_TLS.search(str(error).lower()):
            raise wrong_scheme(server, "http") from None
        raise tls_failed(server, _reason(error), tls_hint) from None
    if isinstance(error, exceptions.Timeout):
        raise Transient("no answer in time", server) from None
    if _TLS_ALERT in str(error):
        raise wrong_scheme(server, "https") from None
    proxy = "the proxy: " if isinstance(error, exceptions.ProxyError) else ""
    raise Transient(f"{proxy}{_reason(error)}", server) from None


def _reason(error: Exception) -> str:
    """Return the operating system's message for a failure, from inside the exceptions of three libraries."""
    for cause in _causes(error):
        if words := getattr(cause, "verify_message", ""):
            return str(words)
        if isinstance(cause, OSError) and cause.errno and cause.strerror:
            return os.strerror(cause.errno) if cause.errno > 0 else cause.strerror
    return "the connection was lost"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and all exceptions nested in it as reasons, arguments or causes."""
    yield error
    inside = (getattr(error, "reason", None), *error.args, error.__cause__, error.__context__)
    if following := next((each for each in inside if isinstance(each, BaseException)), None):
        yield from _causes(following)
