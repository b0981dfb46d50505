"""HTTP failures as our errors, for every store: statuses, broken connections, rejected certificates."""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import Iterator
from typing import Any, Final

from tar2tf_cli.errors import SourceError, UsageError
from tar2tf_cli.stores.transfer import Body, NoSuchObject, Transient

__all__ = ["CONNECT_SECONDS", "READ_SECONDS", "body_of", "check_status", "crc32c_of", "network_errors"]

CONNECT_SECONDS: Final = 5.0
"""Seconds that connecting may take."""

READ_SECONDS: Final = 10.0
"""Seconds without data after which a server counts as stalled."""

_TRANSIENT: Final = (408, 425, 429, *(status for status in range(500, 600) if status != 501))
_MEANING: Final = {
    401: "the server asks for credentials, or rejects these (401)",
    403: "permission denied (403)",
    404: "no such object (404)",
    410: "no such object (410)",
}


def check_status(status: int, message: str, where: str, hint: str | None = None) -> None:
    """Raise the error for an HTTP status; return if it is a success.

    Args:
        status: the HTTP status.
        message: the server's own words, if any.
        where: the object or bucket.
        hint: what to do when the server refuses.

    Raises:
        Transient: for failures that a retry may fix.
        NoSuchObject: for an object that does not exist.
        SourceError: for the rest.
    """
    if status < 400:
        return
    words = f": {message}" if message else ""
    if status in _TRANSIENT:
        raise Transient(f"the server answered {status}{words}")
    kind = NoSuchObject if status in (404, 410) else SourceError
    raise kind(f"{_MEANING.get(status, f'the server answered {status}')}{words}", shard=where, hint=hint)


@contextlib.contextmanager
def network_errors(
    where: str, tls_hint: str = "set REQUESTS_CA_BUNDLE to the server's CA", *, server: str = ""
) -> Iterator[None]:
    """Convert exceptions of requests and urllib3 to `Transient` or one of our errors.

    Args:
        where: the server or object, for errors that are final.
        tls_hint: what to do when a certificate is rejected.
        server: prefix of transient errors, if the object's URL does not name the server.
    """
    import requests
    import urllib3

    prefix = f"{server}: " if server else ""
    try:
        yield
    except requests.exceptions.SSLError as error:
        raise SourceError(f"TLS failed: {_reason(error)}", shard=where or None, hint=tls_hint) from None
    except (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema):  # the exception may repeat secrets
        raise UsageError(f"{where!r}, or what it redirects to, is not a valid URL") from None
    except requests.exceptions.TooManyRedirects:
        raise SourceError("the server redirects in a circle", shard=where) from None
    except (requests.Timeout, urllib3.exceptions.TimeoutError):
        raise Transient(f"{prefix}no answer within {READ_SECONDS:.0f} s") from None
    except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
        raise Transient(prefix + _reason(error)) from None


def _reason(error: BaseException) -> str:
    """Return the root cause of nested errors, in the system's words if there are any."""
    seen: set[int] = set()
    found: BaseException = error
    while id(found) not in seen:
        seen.add(id(found))
        inner = getattr(found, "reason", None)
        nested = (inner, *found.args, found.__cause__, found.__context__)
        found = next((part for part in nested if isinstance(part, BaseException) and id(part) not in seen), found)
    if isinstance(found, OSError) and found.strerror:
        return found.strerror
    text = re.sub(r"^.*?: (?=Failed|\[Errno)|<[^>]*>[:,]? ?", "", str(found)).strip() or type(found).__name__
    return re.sub(r"^IncompleteRead.*|.*[Rr]emote end closed.*|^Connection broken.*", "the connection broke off", text)


def body_of(raw: Any, start: int, version: str | None, checksum: tuple[str, str] | None = None) -> Body:
    """Wrap urllib3's response to a request for an object from an offset on."""
    length = raw.headers.get("Content-Length")
    size = int(length) if length is not None and length.isdecimal() else None
    begins = 0
    if raw.status == 206:
        match = re.match(r"bytes (\d+)-\d+/(\d+|\*)", raw.headers.get("Content-Range", ""))
        if not match:
            raise Transient("the server returned a range without saying which")
        begins = int(match[1])
        size = int(match[2]) if match[2] != "*" else None

    def read(count: int) -> bytes:
        with network_errors(""):
            data: bytes = raw.read(count, decode_content=False)
        return data

    return Body(read, raw.close, begins, size, version, checksum)


def crc32c_of(goog_hash: str) -> tuple[str, str] | None:
    """Return the CRC-32C in an `x-goog-hash` header, which Google Cloud Storage also sends over plain HTTP."""
    match = re.search(r"crc32c=([\w+/=]+)", goog_hash)
    return ("crc32c", base64.b64decode(match[1]).hex()) if match else None
