"""Failures of libcurl as our errors: https://curl.se/libcurl/c/libcurl-errors.html."""

from __future__ import annotations

import errno
import os
import re
from typing import Final, NoReturn

from tar2tf_cli.errors import SourceError, UsageError
from tar2tf_cli.stores.network import wrong_scheme
from tar2tf_cli.stores.pycurl_module import pycurl
from tar2tf_cli.stores.retries import Transient

__all__ = ["raise_as_ours"]

_TLS: Final = (
    pycurl.E_SSL_CONNECT_ERROR,
    pycurl.E_PEER_FAILED_VERIFICATION,
    pycurl.E_SSL_CACERT_BADFILE,
    pycurl.E_SSL_CERTPROBLEM,
)
_NOT_TLS: Final = re.compile("wrong version number|record layer failure|unknown protocol|http request|packet length")
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


def raise_as_ours(code: int, text: str, number: int, server: str, tls_hint: str, *, stalled: str) -> NoReturn:
    """Raise our error for a request that failed.

    Args:
        code: libcurl's code.
        text: its own words.
        number: the system's errno; 0 if there is none.
        server: the server that the request was last sent to.
        tls_hint: what to do when a certificate is rejected.
        stalled: what to say of a server that has stalled.

    Raises:
        Transient: for failures that a retry may fix.
        UsageError: for a URL that is not valid.
        SourceError: for the rest.
    """
    number *= code == pycurl.E_COULDNT_CONNECT or number not in _UNREACHED  # which another address of it was
    if code in _TLS and _NOT_TLS.search(text.lower()):
        raise wrong_scheme(server, "http")
    if code in _TLS and not number:
        raise SourceError(f"TLS failed: {text}", shard=server, hint=tls_hint)
    if code in _BAD_URL:  # whose text may hold secrets
        raise UsageError("the address, or where it redirects to, is not a valid URL", hint=_ESCAPE)
    if code == pycurl.E_TOO_MANY_REDIRECTS:
        raise SourceError("the server redirects in a loop", shard=server)
    if code == pycurl.E_OPERATION_TIMEDOUT:
        raise Transient(stalled, server)
    if number:
        raise Transient(": ".join([*_PROXY.findall(text), os.strerror(number)]), server)
    broken = code in _BROKEN_OFF and "CONNECT" not in text  # which tells of a proxy
    raise Transient("the connection broke off" if broken else text, server)
