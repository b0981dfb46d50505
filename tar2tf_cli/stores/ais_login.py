"""How a client of an AIStore cluster identifies itself: by the variables and files of AIStore's own tools."""

from __future__ import annotations

import json
import os
from typing import Final

from tar2tf_cli.errors import UsageError
from tar2tf_cli.spec.reach import seconds_in
from tar2tf_cli.stores import network

__all__ = ["LOGIN", "TLS_HINT", "credentials", "timeouts", "tls"]

LOGIN: Final = "log in with `ais auth login`, or set AIS_AUTHN_TOKEN or AIS_AUTHN_TOKEN_FILE"
TLS_HINT: Final = "set AIS_CLIENT_CA to the cluster's CA certificate"
_TOKEN_FILE: Final = "~/.config/ais/cli/auth.token"
_TRUE: Final = ("1", "t", "true", "y", "yes", "on")


def credentials() -> dict[str, str]:
    """Return the header with the token: AIS_AUTHN_TOKEN, AIS_AUTHN_TOKEN_FILE, or the file of `ais auth login`.

    Raises:
        UsageError: when the file is not one.
    """
    token = os.environ.get("AIS_AUTHN_TOKEN") or _token_in_file()
    return {"Authorization": f"Bearer {token}"} if token else {}


def _token_in_file() -> str | None:
    given = network.file_of("AIS_AUTHN_TOKEN_FILE")
    path = os.path.expanduser(given or _TOKEN_FILE)
    try:
        with open(path, encoding="utf-8") as file:
            return str(json.load(file)["token"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        raise UsageError(f"{path} is not a token file such as `ais auth login` writes") from None


def tls() -> tuple[bool | str, tuple[str, str] | None]:
    """Return whether certificates are checked, or the path of the CA; and the paths of a client's certificate and key.

    Raises:
        UsageError: when a file does not exist.
    """
    authority, certificate, key = map(network.file_of, ("AIS_CLIENT_CA", "AIS_CRT", "AIS_CRT_KEY"))
    skip = os.environ.get("AIS_SKIP_VERIFY_CRT", os.environ.get("AIS_SKIP_VERIFY", ""))
    verify = False if skip.lower() in _TRUE else authority or True
    return verify, (certificate, key) if certificate and key else None


def timeouts() -> tuple[float, float]:
    """Return how many seconds connecting may take, and how many a node may send nothing.

    Raises:
        UsageError: when a variable is not a number.
    """
    connect = seconds_in("AIS_CONNECT_TIMEOUT", network.CONNECT_SECONDS)
    return connect, seconds_in("AIS_READ_TIMEOUT", network.READ_SECONDS)
