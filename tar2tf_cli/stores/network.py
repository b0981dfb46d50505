"""What all clients of servers share: time limits, files of certificates and logins, and one error."""

from __future__ import annotations

import os
from typing import Final

from tar2tf_cli.errors import SourceError, UsageError

__all__ = ["CONNECT_SECONDS", "READ_SECONDS", "file_of", "wrong_scheme"]

CONNECT_SECONDS: Final = 5.0
"""Seconds that connecting may take."""

READ_SECONDS: Final = 10.0
"""Seconds without data after which a server counts as stalled."""


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
