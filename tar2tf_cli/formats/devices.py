"""Paths that are written to and never replaced: devices, pipes and the names of open files."""

from __future__ import annotations

import os
import re
import stat
from functools import lru_cache
from typing import Final

__all__ = ["is_stream"]

_DESCRIPTORS: Final = re.compile(r"/dev|/proc/\d+/fd")


def is_stream(path: str) -> bool:
    """Whether there is something that is written to and never replaced: a device, a pipe, `/dev/stdout`."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    if stat.S_ISREG(mode):  # what the shell opened for us has a name in a folder of devices or descriptors
        return _holds_descriptors(os.path.dirname(path))
    return not stat.S_ISDIR(mode)


@lru_cache
def _holds_descriptors(folder: str) -> bool:
    return _DESCRIPTORS.fullmatch(os.path.realpath(folder)) is not None
