"""URLs of buckets as users write them: recognising them, and removing secrets."""

from __future__ import annotations

import re
from typing import Final

from tar2tf_cli.errors import UsageError

__all__ = ["as_recorded", "check_url", "is_remote", "server_of", "without_secrets"]

_USER: Final = re.compile(r"(?<=://)(?:[^/@:]+:[^@]*|[^/@]+)@")  # an S3 key may contain slashes
_WEB_USER: Final = re.compile(r"(?<=://)[^/?#]*@")
_WEB_QUERY: Final = re.compile(r"[?#].*", re.DOTALL)
_SERVER: Final = re.compile(r"(https?://)(?:[^/?#]*@)?([^/?#]+).*", re.DOTALL | re.IGNORECASE)
_QUERY: Final = re.compile(r"\?[\w.~-]+=.*", re.DOTALL)


def without_secrets(url: str) -> str:
    """Return a URL without user, password and query, safe to show and store; a path is not changed."""
    if not is_remote(url):
        return url
    if url.startswith(("http://", "https://")):
        return _WEB_USER.sub("", _WEB_QUERY.sub("", url))
    return _USER.sub("", _QUERY.sub("", url))


def as_recorded(bucket: str) -> str:
    """Return a bucket as in the manifest: without secrets, and the same for `shards`, `./shards` and `shards/`."""
    if is_remote(bucket):
        return without_secrets(bucket).rstrip("/")
    plain = "/".join(part for part in bucket.split("/") if part not in ("", ".")) or "."
    root = "/" if bucket.startswith("/") else "./" if bucket.startswith("./") and plain[0] in "~-" else ""
    return root + plain


def check_url(url: str) -> None:
    """Refuse secrets in the URL of a store, which would end up in names, logs and manifests.

    Web addresses may contain them: they are sent, but never stored.

    Raises:
        UsageError: when there are any; the message does not repeat them.
    """
    shown = without_secrets(url)
    if shown != url and not url.startswith(("http://", "https://")):
        raise UsageError(
            f"the URL {shown} must not contain a user, password or query",
            hint="give credentials as for the store's own tools: by environment, profile or token file",
        )


def is_remote(bucket: str) -> bool:
    """Whether a bucket is written as a URL."""
    return "://" in bucket


def server_of(url: str) -> str:
    """Return scheme, host and port of a URL, without user and password.

    Raises:
        UsageError: when it is not a web address; the message does not repeat it, as it may hold secrets.
    """
    found = _SERVER.fullmatch(url)
    if not found:
        raise UsageError("the address, or where it redirects to, is not a valid URL")
    return found[1] + found[2]
