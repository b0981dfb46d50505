"""URLs of buckets: parse them, remove their secrets, and hold the options of connections to their servers."""

from __future__ import annotations

import re
from typing import Final

from tar2tf_cli.errors import UsageError
from tar2tf_cli.structs import TypedDict

_USER: Final = r"(?<=://)(?:[^/@:]+:[^@]*|[^/@]+)@"  # an S3 key may contain slashes
_WEB_USER: Final = r"(?<=://)[^/?#]*@"
_WEB_QUERY: Final = r"(?s)[?#].*"
_SERVER: Final = r"(?si)(https?://)(?:[^/?#]*@)?([^/?#@]+)(?:[/?#].*)?"
_QUERY: Final = r"(?s)\?[\w.~-]+=.*"


def without_secrets(url: str) -> str:
    """Return a URL without user, password and query, safe to show and store; a path is not changed."""
    if not is_remote(url):
        return url
    if is_web(url):
        return re.sub(_WEB_USER, "", re.sub(_WEB_QUERY, "", url))
    return re.sub(_USER, "", re.sub(_QUERY, "", url))


def as_recorded(bucket: str) -> str:
    """Return a bucket as manifests record it: without secrets, and equal for `shards`, `./shards` and `shards/`."""
    if is_remote(bucket):
        return without_secrets(bucket).rstrip("/")
    plain = "/".join(part for part in bucket.split("/") if part not in ("", ".")) or "."
    root = "/" if bucket.startswith("/") else "./" if bucket.startswith("./") and plain[0] in "~-" else ""
    return root + plain


def check_url(url: str) -> None:
    """Raise an error for secrets in the URL of a store, which would appear in names, logs and manifests.

    Web addresses may contain them: they are sent, but never stored.

    Raises:
        UsageError: when the URL has secrets; the message does not repeat them.
    """
    shown = without_secrets(url)
    if shown != url and not is_web(url):
        raise UsageError(
            f"the URL {shown} must not contain a user, password or query",
            hint="give credentials as for the store's own tools: by environment, profile or token file",
        )


def is_remote(bucket: str) -> bool:
    """Whether a bucket is written as a URL."""
    return "://" in bucket


def is_web(url: str) -> bool:
    """Whether a URL names a file or folder of a web server, whose URLs may have a query."""
    return url.startswith(("http://", "https://"))


def split_query(url: str) -> tuple[str, str, str]:
    """Split a URL into its address, a question mark and its query, which are empty in paths and URLs of buckets."""
    return url.partition("?") if is_web(url) else (url, "", "")


def server_of(url: str) -> str:
    """Return scheme, host and port of a URL, without user and password.

    Raises:
        UsageError: when it is not a web address; the message does not repeat it, as it may hold secrets.
    """
    match = re.fullmatch(_SERVER, url)
    if not match:
        raise UsageError("the address, or where it redirects to, is not a valid URL")
    return match[1] + match[2]


class ConnectionOptions(TypedDict, total=False):
    """Keyword arguments of functions that open buckets.

    Keys:
        endpoint: the server's URL, for AIStore and for servers other than the clouds' own for S3, GCS and Azure.
        retry_for: for how many seconds failed requests are repeated without progress; None for TAR2TF_RETRY_FOR or 60.
        no_sign_request: whether requests carry no credentials, as for public buckets.
    """

    endpoint: str | None
    retry_for: float | None
    no_sign_request: bool
