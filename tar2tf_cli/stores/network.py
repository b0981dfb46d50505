"""What all clients of servers share: time limits, files of certificates and logins, and one error."""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib.util import find_spec
from typing import Final

from tar2tf_cli.errors import SourceError, UsageError

__all__ = ["CONNECT_SECONDS", "LEAST", "READ_SECONDS", "file_of", "first_file", "own_bundle", "wrong_scheme"]

CONNECT_SECONDS: Final = 5.0
"""Seconds that connecting may take."""

READ_SECONDS: Final = 10.0
"""Seconds without data after which a server counts as stalled."""

LEAST: Final = 1000
"""Bytes that are progress; fewer in `READ_SECONDS` are as good as none."""


def wrong_scheme(server: str, speaks: str) -> SourceError:
    """Make the error for a server that speaks HTTP where HTTPS was expected, or the reverse."""
    hint = f"write {speaks}://{server.partition('://')[2] or server}"
    return SourceError(
        f"the server speaks {speaks}, not {'http' if speaks == 'https' else 'https'}", shard=server, hint=hint
    )


def file_of(variable: str) -> str | None:
    """Return the path in an environment variable; None when it is not set.

    Raises:
        UsageError: when there is no such file or folder.
    """
    path = os.path.expanduser(os.environ.get(variable, ""))
    if path and not os.path.exists(path):
        raise UsageError(f"{variable} is set to {path}, which does not exist")
    return path or None


def first_file(variables: Iterable[str]) -> str | None:
    """Return the path in the first of some environment variables that is set, as `file_of` does."""
    return next(filter(None, map(file_of, variables)), None)


def own_bundle() -> str:
    """Return the path of certifi's CA certificates, which `certifi.where` gives after imports of 8 ms."""
    certifi = find_spec("certifi")
    return os.path.join(os.path.dirname(str(certifi and certifi.origin)), "cacert.pem")
