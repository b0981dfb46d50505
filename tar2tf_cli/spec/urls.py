"""URLs of buckets as users write them: which are any, and what in them may be secret."""

from __future__ import annotations

import re
from typing import Final

from tar2tf_cli.errors import UsageError

__all__ = ["check_url", "is_remote", "without_secrets"]

_USER: Final = re.compile(r"(?<=://)(?:[^/@:]+:[^@]*|[^/@]+)@")  # a key of S3 may hold slashes
_WEB_USER: Final = re.compile(r"(?<=://)[^/?#]*@")
_WEB_QUERY: Final = re.compile(r"[?#].*", re.DOTALL)
_QUERY: Final = re.compile(r"\?[\w.~-]+=.*", re.DOTALL)


def without_secrets(url: str) -> str:
    """A URL as it may be shown and kept: without user, password and query; a path as it is."""
    if not is_remote(url):
        return url
    if url.startswith(("http://", "https://")):
        return _WEB_USER.sub("", _WEB_QUERY.sub("", url))
    return _USER.sub("", _QUERY.sub("", url))


def check_url(url: str) -> None:
    """Refuse what may be secret in the URL of a store, which would end up in names, logs and manifests.

    Web addresses may hold it: it is sent, but never stored.

    Raises:
        UsageError: which does not repeat it.
    """
    shown = without_secrets(url)
    if shown != url and not url.startswith(("http://", "https://")):
        raise UsageError(
            f"the URL {shown} comes with a user, password or query, and must not",
            hint="give credentials as the store's own tools take them: by environment, profile or token file",
        )


def is_remote(bucket: str) -> bool:
    """Whether a bucket is written as a URL."""
    return "://" in bucket
