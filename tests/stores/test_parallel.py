"""Large objects over several connections."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import closing
from io import BytesIO
from math import inf

import pytest

from clock import Clock
from commands import wait_until
from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.store import Body, Transient
from tar2tf_cli.errors import SourceError
from tar2tf_cli.stores import transfer
from tar2tf_cli.stores.transfer import BlockQueue, ParallelStream, ResumingStream

DATA = random.Random(7).randbytes(6_000_000)


class Announced(BlockQueue):
    """A queue of blocks that says when its reader begins to wait.

    Args:
        waits: released once for each wait.
    """

    def __init__(self, waits: threading.Semaphore) -> None:
        super().__init__()
        self._waits = waits

    def wait(self, longest: float | None) -> bytes | BaseException:
        self._waits.release()
        return super().wait(None)


class Server:
    """An object that each connection sends slowly: time passes only while a connection sends, and its reader waits.

    Args:
        version: the version of the object that it reports.
        ranges: offset from which on it answers with bytes from the first on, whatever is asked for.

    Attributes:
        asked: first byte and number of bytes of each request.
        now: the time in seconds.
    """

    now = 0.0

    def __init__(self, *, version: str | None = "v", ranges: float = inf) -> None:
        self.asked: list[tuple[int, int | None]] = []
        self.version = self.listed = version
        self.checksum: tuple[str, str] | None = None
        self.fault: Callable[[int], None] = lambda start: None
        self._ranges = ranges
        self.connections: set[object] = set()
        self._lock = threading.Lock()
        self._waits = threading.Semaphore(0)  # of the reader, for the only connection
        self._several = threading.Event()  # have been open at once

    def fetch(self, start: int, size: int | None) -> Body:
        self.fault(start)
        with self._lock:
            self.asked.append((start, size))
            self.connections.add(token := object())
            if len(self.connections) > 2:
                self._several.set()
        begin = start if start < self._ranges else 0
        stream = BytesIO(DATA[begin : None if size is None or not self._ranges else begin + size])

        def read(count: int) -> bytes:
            if (start, size) == (0, None):
                assert self._waits.acquire(timeout=100)
                Server.now += 0.002
            elif size is not None:
                assert self._several.wait(timeout=100)
            return stream.read(count)

        return Body(read, lambda: self.connections.discard(token), begin, len(DATA), self.version, self.checksum)

    def stream(self) -> ResumingStream:
        stream = ParallelStream(self.fetch, ObjectInfo("x", len(DATA), self.listed), "x", 0.2)
        stream.blocks = Announced(self._waits)
        return stream

    def let_go(self) -> None:
        """Send without waiting for anybody."""
        self._waits.release(1000)
        self._several.set()

    def read(self) -> bytes:
        with closing(self.stream()) as stream:
            return b"".join(iter(lambda: stream.read(1 << 18), b""))


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ParallelStream, "BLOCK", 1 << 16)
    monkeypatch.setattr(ParallelStream, "PART", 1 << 18)


@pytest.fixture(autouse=True)
def server_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "time", Clock(lambda: Server.now))


def test_a_reader_that_waits_for_one_connection_gets_several() -> None:
    server = Server()
    assert server.read() == DATA  # its parts are sent once three of them were asked for
    (first, size), *others = server.asked
    assert (first, size) == (0, None)
    begins = sorted(begin for begin, _ in others)
    assert begins[0] <= 3 << 18
    assert all(size is not None and size <= 1 << 18 for _, size in others)
    assert len(begins) == len(set(begins))


@pytest.mark.parametrize(("attribute", "value"), [("FAST", 0.0), ("MOSTLY", 100.0)])
def test_one_connection_is_enough_if_it_is_fast_or_its_reader_slow(
    monkeypatch: pytest.MonkeyPatch, attribute: str, value: float
) -> None:
    monkeypatch.setattr(ParallelStream, attribute, value)
    server = Server()
    assert server.read() == DATA
    assert server.asked == [(0, None)]


@pytest.mark.parametrize("version", [None, "v"])
def test_parts_are_only_put_together_if_a_replacement_would_be_noticed(version: str | None) -> None:
    server = Server(version=version)
    assert server.read() == DATA
    assert (len(server.asked) == 1) == (version is None)


def test_a_server_without_ranges_is_read_in_order() -> None:
    server = Server(ranges=0)
    assert server.read() == DATA
    assert len(server.asked) <= 1 + ParallelStream.CONNECTIONS + 1


def test_a_server_that_knows_no_ranges_any_more_is_read_on_in_order() -> None:
    server = Server(ranges=3_000_000)
    assert server.read() == DATA
    assert max(start for start, _ in server.asked) >= 3_000_000


def test_the_checksum_of_the_whole_object_is_compared() -> None:
    server = Server()
    server.checksum = "md5", "0" * 32
    with pytest.raises(SourceError, match="checksum"):
        server.read()


def test_an_object_that_is_replaced_meanwhile_is_an_error() -> None:
    server = Server()

    def replace(start: int) -> None:
        if start > 2_000_000:
            server.version = "w"

    server.fault = replace
    with pytest.raises(SourceError, match="changed"):
        server.read()


def test_parts_are_requested_again_after_a_failure_and_then_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tar2tf_cli.stores.retries.FIRST_PAUSE", 0.001)
    server, failed = Server(), set[int]()

    def fail_once(start: int) -> None:
        if start and start not in failed:
            failed.add(start)
            raise Transient("reset", "server")

    server.fault = fail_once
    assert server.read() == DATA
    assert failed

    def fail(start: int) -> None:
        if start > 3_000_000:
            raise Transient("reset", "server")

    server.fault = fail
    with pytest.raises(SourceError, match="server: reset; gave up") as caught:
        server.read()
    assert (caught.value.offset or 0) > 3_000_000


def test_closing_ends_the_threads() -> None:
    server = Server()
    stream = server.stream()
    for _ in range(12):
        stream.read(1 << 16)
    stream.close()
    server.let_go()
    wait_until(lambda: not server.connections, "the connections to be closed")
