"""What tests find around them is the same for everyone: no proxies, keys, servers or settings of the user."""

from __future__ import annotations

import os
import re

_USERS = re.compile(
    r"(https?|ftp|all|no)_proxy|(AWS|AZURE|GOOGLE|GCLOUD|AIS|RAY|TAR2TF|XDG)_\w+"
    r"|S3_ENDPOINT|(NO|FORCE|CLICOLOR)_COLOR|CLICOLOR\w*|COLUMNS|LINES|NETRC|MOTO_\w+|COMP_\w+|PIP_\w+|RES_OPTIONS",
    re.IGNORECASE,
)
_WANTED = ("AIS_ENDPOINT", "S3_ENDPOINT", "TAR2TF_PURE")
"""What the tests are told on purpose: where a cluster is, the S3 behind it, and to do without the kernel."""

USERS: dict[str, str] = {}
"""What was taken away, for programs that go to the network: npm."""


def forget() -> None:
    """Take out of this process's environment what would change what the command, servers, or their clients do."""
    USERS.update({name: os.environ.pop(name) for name in [*os.environ] if _USERS.fullmatch(name)})
    os.environ.update({name: USERS.pop(name) for name in _WANTED if name in USERS})
    os.environ["NETRC"] = os.devnull  # or `requests` would send what is in ~/.netrc
