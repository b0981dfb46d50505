"""pycurl, with the libcurl of its wheel."""

from __future__ import annotations

import os
import sys
from typing import Any, Final

__all__ = ["pycurl"]


def _imported() -> Any:
    """Import pycurl; TensorFlow, if loaded before, has another libcurl, which would be found first."""
    flags = sys.getdlopenflags()
    sys.setdlopenflags(flags | getattr(os, "RTLD_DEEPBIND", 0))
    try:
        import pycurl
    finally:
        sys.setdlopenflags(flags)
    return pycurl


pycurl: Final = _imported()
