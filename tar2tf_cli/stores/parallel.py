"""Large objects over several connections, where one is slower than what reads them."""

from __future__ import annotations

import queue
import time
from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import Final

from tar2tf_cli.stores.transfer import Body, FetchThreads, ResumingStream

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
        threads, size = FetchThreads(), self._size or 0
        begins = iter(range(offset, size, self.PART))
        coming: deque[queue.SimpleQueue[list[bytes] | BaseException]] = deque()

        def request() -> None:
            if (begin := next(begins, None)) is not None:
                coming.append(queue.SimpleQueue())
                threads.run(partial(self._receive, begin, min(begin + self.PART, size), coming[-1]))

        for _ in range(self.CONNECTIONS):
            request()
        while coming:
            part = coming.popleft().get()
            if isinstance(part, _NoRangesError):
                yield from self._from(offset)
                return
            if isinstance(part, BaseException):
                raise part
            request()
            offset += sum(map(len, part))
            yield from part

    def _receive(self, begin: int, end: int, answer: queue.SimpleQueue[list[bytes] | BaseException]) -> None:
        try:
            answer.put([*self._from(begin, end)])
        except BaseException as error:
            answer.put(error)

    def _attach(self, offset: int, end: int | None) -> Body:
        body = super()._attach(offset, end)
        if end is not None and body.start != offset:
            body.close()
            raise _NoRangesError
        return body
