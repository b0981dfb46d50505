"""How the servers of buckets are reached: settings of a run that do not change what it writes."""

from __future__ import annotations

import os
from typing import Any, Final, TypedDict

from tar2tf_cli.ops.rules import accepted

__all__ = ["Reach", "seconds", "seconds_in", "wanted_retry_for"]

_RETRY_FOR: Final = 60.0
_VARIABLE: Final = "TAR2TF_RETRY_FOR"


class Reach(TypedDict, total=False):
    """Keyword arguments of everything that opens buckets.

    Keys:
        endpoint: the server's URL, for AIStore and for servers other than the clouds' own for S3, GCS and Azure.
        retry_for: for how many seconds failed requests are repeated without progress; None for TAR2TF_RETRY_FOR or 60.
        no_sign_request: whether requests carry no credentials, as for public buckets.
    """

    endpoint: str | None
    retry_for: float | None
    no_sign_request: bool


def seconds(value: Any, label: str) -> float:
    """Accept a number of seconds, 0 or more."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1
    if isinstance(value, bool) or not number >= 0:
        raise ValueError(f"{label} must be a number of seconds, 0 or more, not {value!r}")
    return number


def seconds_in(variable: str, otherwise: float) -> float:
    """Return the seconds in an environment variable, or others where it is not set.

    Raises:
        UsageError: when it is not a number of seconds.
    """
    return accepted(seconds, os.environ.get(variable) or otherwise, variable)


def wanted_retry_for(given: float | None) -> float:
    """Return the seconds given, else those in the environment, else 60."""
    return seconds_in(_VARIABLE, _RETRY_FOR) if given is None else given
