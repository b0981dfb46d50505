"""Large objects over several connections, where one is slower than what reads them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tar2tf_cli.stores.retries import in_thread
from tar2tf_cli.stores.transfer import Body, ResumingStream

if TYPE_CHECKING:
    from concurrent.futures import Future

__all__ = ["ParallelStream"]


class _NoRangesError(Exception):
    """The server answers with the whole object."""


class ParallelStream(ResumingStream):
    """Begins with one request for the whole object; when its reader has to wait, requests parts of it at the same time.

    Object stores limit the rate of a connection, often to less than 100 MB/s. The parts in memory are at most
    `CONNECTIONS + 1`.
    """

    PART: Final = 8 << 20
    CONNECTIONS: Final = 4
    MOSTLY: Final = 0.75
    """The share of the time that a reader waits for a connection that is too slow."""

    FAST: Final = 100e6
    """Bytes a second from which on one connection is enough."""

    def _in_order(self) -> Iterator[bytes]:
        offset, measured = 0, 0
        began, waited = time.monotonic(), self._waited
        blocks = self._from(0)
        for block in blocks:
            yield block
            offset += len(block)
            if offset - measured >= self.PART and self._is_worth_it(offset):
                seconds = time.monotonic() - began
                if self._waited - waited > self.MOSTLY * seconds and offset - measured < self.FAST * seconds:
                    blocks.close()
                    yield from self._at_once(offset)
                    return
                measured, began, waited = offset, time.monotonic(), self._waited

    def _is_worth_it(self, offset: int) -> bool:
        """Whether much is left, and a replacement of the object would be noticed."""
        return self._size is not None and self._size - offset > 2 * self.PART and self._version is not None

    def _at_once(self, offset: int) -> Iterator[bytes]:
        """Yield the rest of the object, of which the next parts are on their way."""
        size = self._size or 0
        begins = iter(range(offset, size, self.PART))
        coming: deque[Future[list[bytes]]] = deque()

        def request() -> None:
            if (begin := next(begins, None)) is not None:
                coming.append(in_thread(lambda: [*self._from(begin, min(begin + self.PART, size))])[1])

        for _ in range(self.CONNECTIONS):
            request()
        while coming:
            try:
                part = coming.popleft().result()
            except _NoRangesError:
                yield from self._from(offset)
                return
            request()
            offset += sum(map(len, part))
            yield from part

    def _attach(self, offset: int, end: int | None) -> Body:
        body = super()._attach(offset, end)
        if end is not None and body.start != offset:
            body.close()
            raise _NoRangesError
        return body
