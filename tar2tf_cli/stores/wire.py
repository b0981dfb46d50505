"""Libcurl, and what one thread has under way with it: https://curl.se/libcurl/c describes its options and errors."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tar2tf_cli.stores.curl import Response

__all__ = ["Wire", "pycurl"]


def _imported() -> Any:
    """Import pycurl with the libcurl of its wheel; TensorFlow, if loaded before, has one that would be found first."""
    flags = sys.getdlopenflags()
    sys.setdlopenflags(flags | getattr(os, "RTLD_DEEPBIND", 0))
    try:
        import pycurl
    finally:
        sys.setdlopenflags(flags)
    return pycurl


pycurl: Final = _imported()


class Wire:
    """Requests of one thread that are under way at the same time, and the connections that stay open for later ones."""

    def __init__(self) -> None:
        self._multi = pycurl.CurlMulti()
        self._idle: list[Any] = []
        self._open: dict[Any, Response] = {}

    def handle(self) -> Any:
        """Return a handle of libcurl that no request uses."""
        return self._idle.pop() if self._idle else pycurl.Curl()

    def begin(self, easy: Any, response: Response) -> None:
        """Begin the request that a handle describes."""
        self._open[easy] = response
        self._multi.add_handle(easy)

    def end(self, easy: Any) -> None:
        """End a request, whether it is complete or not."""
        self._multi.remove_handle(easy)
        del self._open[easy]
        easy.reset()  # which lets go of the response
        self._idle.append(easy)

    def advance(self) -> None:
        """Send and receive what can be now, for all requests."""
        self._multi.perform()
        more = 1
        while more:
            more, whole, failed = self._multi.info_read()
            for easy in whole:
                self._open[easy].ended(None)
            for easy, code, text in failed:
                self._open[easy].ended((code, text, easy.getinfo(pycurl.OS_ERRNO)))

    def wait(self, seconds: float) -> None:
        """Wait until there is something to send or receive."""
        if self._multi.select(seconds) < 0:
            time.sleep(0.005)  # libcurl waits for something else than a socket
