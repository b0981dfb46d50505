"""Responses of every HTTP server: statuses as our errors, ranges, checksums."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Final

from tar2tf_cli.errors import SourceError
from tar2tf_cli.stores.retries import NoSuchObject, Transient, wrong_scheme
from tar2tf_cli.stores.transfer import Body

if TYPE_CHECKING:
    from tar2tf_cli.stores.curl import Response


HTTP_TO_HTTPS: Final = re.compile("HTTP request to an HTTPS server|plain HTTP request was sent to HTTPS port")
"""What servers written in Go, and nginx, answer to HTTP where they speak HTTPS."""

_MOST_TEXT: Final = 1 << 16
TRANSIENT: Final = (408, 425, 429, *(status for status in range(500, 600) if status not in (501, 505)))
"""Statuses of failures that a retry may fix."""

_MEANING: Final = {
    401: "the server requires credentials, or rejected these (401)",
    403: "permission denied (403)",
    404: "no such object (404)",
    410: "no such object (410)",
}


def check_status(
    status: int,
    message: str,
    where: str,
    hint: str | None = None,
    *,
    server: str = "",
    after: float = 0,
) -> None:
    """Raise the error for an HTTP status; return if it is a success.

    Args:
        status: the HTTP status.
        message: the server's own words, if any.
        where: the object or bucket.
        hint: what to do when the server refuses.
        server: the server, if the object's URL does not name it.
        after: how many seconds the server asks to wait before the next request.

    Raises:
        Transient: for failures that a retry may fix.
        NoSuchObject: for an object that does not exist.
        SourceError: for the rest.
    """
    if status < 400:
        return
    words = f": {message}" if message else ""
    if status in TRANSIENT:
        raise Transient(f"the server answered {status}{words}", server, after)
    if status == 400 and HTTP_TO_HTTPS.search(message):
        raise wrong_scheme(server or where, "https")
    kind = NoSuchObject if status in (404, 410) else SourceError
    raise kind(f"{_MEANING.get(status, f'the server answered {status}')}{words}", shard=where, hint=hint)


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


def crc32c_of(goog_hash: str) -> tuple[str, str] | None:
    """Return the CRC-32C in an `x-goog-hash` header, which Google Cloud Storage also sends over plain HTTP."""
    match = re.search(r"crc32c=([\w+/=]+)", goog_hash)
    return ("crc32c", base64.b64decode(match[1]).hex()) if match else None
