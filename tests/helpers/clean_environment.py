"""Give all tests the same environment, without proxies, keys, servers or settings of the user."""

from __future__ import annotations

import os
import re

_USERS = re.compile(
    r"(https?|ftp|all|no)_proxy|(AWS|AZURE|GOOGLE|GCLOUD|AIS|RAY|TAR2TF|XDG)_\w+"
    r"|S3_ENDPOINT|(NO|FORCE|CLICOLOR)_COLOR|CLICOLOR\w*|COLUMNS|LINES|NETRC|MOTO_\w+|COMP_\w+|PIP_\w+|RES_OPTIONS",
    re.IGNORECASE,
)
_WANTED = ("AIS_ENDPOINT", "S3_ENDPOINT", "TAR2TF_PURE")
"""Variables that are meant for the tests: a cluster, its S3 backend, and whether to run without the kernel."""

USERS: dict[str, str] = {}
"""What was taken away, for programs that go to the network: npm."""


def forget() -> None:
    """Remove variables from this process's environment that would change how the command, servers or clients behave."""
    USERS.update({name: os.environ.pop(name) for name in [*os.environ] if _USERS.fullmatch(name)})
    os.environ.update({name: USERS.pop(name) for name in _WANTED if name in USERS})
    os.environ["NETRC"] = os.devnull  # or `requests` would send what is in ~/.netrc
