"""Transfers for every store: broken transfers resume, slow ones get more connections, and checksums are verified."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import queue
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from functools import cache
from typing import Final, Protocol, TypeAlias

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.store import Body, Transient
from tar2tf_cli.errors import SourceError, Tar2tfError, changed, machine_error
from tar2tf_cli.formats.checksums import crc32c
from tar2tf_cli.stores.retries import CONNECT_SECONDS, READ_SECONDS, RetryPolicy, call_with_retries, in_thread, min_rate
from tar2tf_cli.structs import NamedTuple


def whole_body(body: Body, item: ObjectInfo) -> bytes | None:
    """Return the bytes of a received body; None unless they are complete and match the item's checksum.

    Raises:
        Transient: when the transfer broke off.
    """
    if body.size != item.size or not body.is_of(item.size, item.version):
        return None
    kind, expected = body.checksum or item.checksum or ("", "")
    data = body.read(body.size or 0)
    if made := hasher(kind):
        made.update(data)
    return data if len(data) == body.size and (made is None or made.hexdigest() == expected.lower()) else None


Fetch: TypeAlias = Callable[[int, "int | None"], Body]


class Hasher(Protocol):
    """Computes a checksum, like an object of `hashlib`."""

    def update(self, data: bytes, /) -> object: ...

    def hexdigest(self) -> str: ...


class _Crc32c:
    def __init__(self) -> None:
        self._value = 0

    def update(self, data: bytes) -> None:
        self._value = crc32c(data, self._value)

    def hexdigest(self) -> str:
        return f"{self._value:08x}"


def hasher(kind: str) -> Hasher | None:
    """Return an object that computes a kind of checksum; None for kinds that are not checked."""
    if kind in ("xxhash", "xxhash2"):  # both are XXH64
        import xxhash

        digest: Hasher = xxhash.xxh64()
        return digest
    if kind in ("md5", "sha256"):
        return hashlib.md5(usedforsecurity=False) if kind == "md5" else hashlib.sha256()
    return _Crc32c() if kind == "crc32c" else None


def crc32c_of(goog_hash: str) -> tuple[str, str] | None:
    """Return the CRC-32C in an `x-goog-hash` header, which Google Cloud Storage also sends over plain HTTP."""
    match = re.search(r"crc32c=([\w+/=]+)", goog_hash)
    return ("crc32c", base64.b64decode(match[1]).hex()) if match else None


class FetchThreads:
    """Pool of threads for fetching, since starting a thread costs as much as fetching a small object."""

    LINGER: Final = 0.5  # seconds for which an idle thread waits for another job

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0

    def run(self, job: Callable[[], None]) -> None:
        """Run a job in an idle thread, or in a new one."""
        with self._lock:
            self._jobs.put(job)
            if self._idle:
                self._idle -= 1
                return
        threading.Thread(target=self._serve, daemon=True, name="tar2tf-fetch").start()

    def _serve(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=self.LINGER)
            except queue.Empty:
                with self._lock:
                    if self._jobs.empty():
                        self._idle -= 1
                        return
                continue
            job()
            with self._lock:
                self._idle += 1


@cache
def _threads_of(process: int) -> FetchThreads:
    return FetchThreads()


def fetch_threads() -> FetchThreads:
    """Return the threads of this process."""
    return _threads_of(os.getpid())


class BlockQueue:
    """Bounded queue of blocks from the thread that fetches them to the reader.

    Attributes:
        closed: set when the reader needs no more blocks.
        waited: seconds that the reader waited.
    """

    MOST: Final = 32  # blocks fetched ahead

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[bytes | BaseException] = queue.SimpleQueue()
        self._permits = threading.Semaphore(2)
        self._granted = 2
        self.closed = threading.Event()
        self.waited = 0.0

    def put(self, block: bytes) -> bool:
        """Enqueue a block once there is room; return False if the reader needs no more."""
        self._permits.acquire()
        if self.closed.is_set():
            return False
        self._queue.put(block)
        return True

    def end(self, outcome: bytes | BaseException) -> None:
        """Enqueue the end of the transfer: b"", or the error that ended it."""
        self._queue.put(outcome)

    def get(self, longest: float | None) -> bytes | BaseException:
        """Return the next block, or the end of the transfer.

        Args:
            longest: seconds to wait for it; None for no limit.

        Raises:
            queue.Empty: when it did not arrive in that time.
        """
        try:
            return self._queue.get_nowait()
        except queue.Empty:
            began = time.monotonic()
        block = self.wait(longest)
        self.waited += time.monotonic() - began
        return block

    def wait(self, longest: float | None) -> bytes | BaseException:
        """Wait for the next block, as `get` does."""
        return self._queue.get(timeout=longest)

    def taken(self) -> None:
        """Note that a block was taken; readers that continue get more blocks fetched ahead."""
        self._permits.release()
        if self._granted < self.MOST:
            self._granted += 1
            self._permits.release()

    def close(self) -> None:
        """Make the fetching thread stop."""
        self.closed.set()
        self._permits.release()


class _ExpectedChecksum(NamedTuple):
    """The checksum that an object must have, computed as its bytes arrive.

    Attributes:
        hasher: computes it.
        value: the checksum in hexadecimal.
        ask: requests the current value from the store; None if it cannot change.
    """

    hasher: Hasher
    value: str
    ask: Callable[[], str | None] | None


class ResumingStream:
    """A stream of an object's bytes, fetched ahead by a thread that starts at the first read.

    Args:
        fetch: requests the object from an offset on, or that many bytes of it; raises `Transient` or SourceError.
        item: the object; a size or version that is None is taken from the first response.
        name: its name in errors.
        retry_for: as in `RetryPolicy`.
        watched: whether to give up when a block does not arrive, for transfers that do not detect stalls themselves.

    Attributes:
        item: the object, with the size and version reported by its server once bytes were read.
        blocks: blocks that were fetched and not yet read.
    """

    BLOCK: Final = 1 << 18

    def __init__(self, fetch: Fetch, item: ObjectInfo, name: str, retry_for: float, *, watched: bool = False) -> None:
        self._fetch = fetch
        self._retry_for = retry_for
        self._longest = self._longest_wait() if watched else None
        self.item = item
        self._name = name
        self._checksum: _ExpectedChecksum | None = None
        self.blocks = BlockQueue()
        self._pending = b""
        self._position = 0  # position in the pending bytes
        self._begun = False
        self._ended: BaseException | bytes | None = None

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes; b"" only after all bytes were received and match the checksum.

        Raises:
            SourceError: when the object cannot be read to its end, is not the one that was listed, or is damaged.
        """
        if self._position == len(self._pending):
            self._pending, self._position = self._next(), 0
        begin, self._position = self._position, min(self._position + size, len(self._pending))
        return self._pending[begin : self._position]  # slicing a whole block does not copy it

    def begin(self, threads: FetchThreads | None = None) -> None:
        """Start fetching the first blocks, in a new thread or one of a pool."""
        if not self._begun:
            self._begun = True
            run = threads.run if threads else in_thread
            run(self._run)

    def close(self) -> None:
        """Stop fetching; the fetching thread closes its connection itself."""
        self.blocks.close()

    def _next(self) -> bytes:
        self.begin()
        block = self._ended if self._ended is not None else self._received()
        if isinstance(block, BaseException):
            self._ended = block
            raise block
        if not block:
            self._ended = block
        self.blocks.taken()
        return block

    def _received(self) -> bytes | BaseException:
        began = time.monotonic()
        try:
            return self.blocks.get(self._longest)
        except queue.Empty:
            return self._too_slow(time.monotonic() - began)

    def _longest_wait(self) -> float | None:
        """Return the maximum time in seconds for the next block, including retries; None for no limit."""
        rate = min_rate()
        return self._retry_for + CONNECT_SECONDS + READ_SECONDS + self.BLOCK / rate if rate else None

    def _too_slow(self, seconds: float) -> SourceError:
        self.blocks.closed.set()
        message = f"fewer than {self.BLOCK:,} bytes arrived in {seconds:.0f} s; gave up"
        hint = "run the same command again on a faster network, or set TAR2TF_MIN_RATE lower"
        return SourceError(message, shard=self._name, hint=hint)

    def _run(self) -> None:
        try:
            for block in self._download():
                if not self.blocks.put(block):
                    return
            self.blocks.end(b"")
        except Tar2tfError as error:
            self.blocks.end(error)
        except BaseException as error:
            self.blocks.end(machine_error(error) or SourceError(f"{type(error).__name__}: {error}", shard=self._name))

    def _download(self) -> Iterator[bytes]:
        """Yield the blocks of the object in order, and verify their checksum."""
        offset = 0
        for block in self._in_order():
            offset += len(block)
            if self._checksum:
                self._checksum.hasher.update(block)
            yield block
        if self.blocks.closed.is_set() or not self._checksum:
            return
        actual, expected, ask = self._checksum.hasher.hexdigest(), self._checksum.value, self._checksum.ask
        if actual != expected and ask:
            expected = call_with_retries(ask, self._retry_for, shard=self._name) or actual
        if actual != expected:
            raise self._error(f"the bytes received have the checksum {actual}, the object has {expected}", offset)

    def _in_order(self) -> Iterator[bytes]:
        return self._from(0)

    def _from(self, offset: int, end: int | None = None) -> Generator[bytes, None, None]:
        """Yield the bytes between two offsets in blocks, with retries."""
        policy, known = RetryPolicy(self._retry_for, self.blocks.closed.wait), 0
        while not self.blocks.closed.is_set():
            try:
                began = time.monotonic()
                with contextlib.closing(self._attach(offset, end)) as body:
                    self._skip_known(body, offset, known)
                    while data := body.read(self.BLOCK if end is None else min(self.BLOCK, end - offset)):
                        policy.received(len(data), time.monotonic() - began)
                        offset += len(data)
                        if self.item.version is None:
                            known = crc32c(data, known)
                        yield data
                        began = time.monotonic()
                goal = self.item.size if end is None else end
                if goal is None or offset == goal:
                    return
                if offset > goal:
                    raise self._error(f"is longer than its {goal:,} bytes", offset)
                raise Transient(f"the transfer ended after {offset:,} of {goal:,} bytes")
            except Transient as fault:
                policy.wait(fault, shard=self._name, offset=offset)

    def _attach(self, offset: int, end: int | None) -> Body:
        """Request the bytes from an offset up to `end`, or to the end of the object, and check the object's version."""
        again = offset > 0 and self.item.version is None  # without a version, compare all bytes from the beginning
        body = self._fetch(0 if again else offset, None if end is None else end - offset)
        blind = offset > 0 and not again and body.size is None and body.version is None
        if blind or not body.is_of(self.item.size, self.item.version):
            body.close()
            if blind:
                message = "the transfer stopped, and cannot be resumed: the server reports neither size nor version"
                raise self._error(message, offset)
            raise changed(self._name, offset)
        if offset == 0:
            size = body.size if self.item.size is None else self.item.size
            self.item = self.item._replace(size=size, version=self.item.version or body.version)
            checksum = body.checksum or self.item.checksum
            if checksum and (made := hasher(checksum[0])):
                self._checksum = _ExpectedChecksum(made, checksum[1].lower(), body.ask)
        return body

    def _skip_known(self, body: Body, offset: int, known: int) -> None:
        """Discard bytes that were received before; if the object has no version, compare their CRC-32C."""
        missing, crc = offset - body.start, 0
        if missing < 0:
            message = f"the server returned the wrong range: asked from byte {offset:,}, got byte {body.start:,}"
            raise self._error(message, offset)
        while missing:
            data = body.read(min(missing, self.BLOCK))
            if not data:
                raise Transient(f"the transfer ended after {offset - missing:,} bytes")
            missing -= len(data)
            if self.item.version is None:
                crc = crc32c(data, crc)
        if offset and self.item.version is None and crc != known:
            raise changed(self._name, offset)

    def _error(self, message: str, offset: int) -> SourceError:
        return SourceError(message, shard=self._name, offset=offset)


class _NoRangesError(Exception):
    """Raised when the server ignores the range and sends the whole object."""


class ParallelStream(ResumingStream):
    """A stream over one connection, or over several if one is too slow for its reader.

    Object stores limit the rate of a connection, often to less than 100 MB/s. At most `CONNECTIONS + 1` parts are in
    memory.

    Attributes:
        start: offset of the first byte that is read, set before reading; not 0 only if the object's version is known.
    """

    start = 0

    PART: Final = 8 << 20
    CONNECTIONS: Final = 4
    MOSTLY: Final = 0.75
    """The share of the time that a reader waits for a connection that is too slow."""

    FAST: Final = 100e6
    """Bytes a second from which on one connection is enough."""

    def _in_order(self) -> Iterator[bytes]:
        offset = measured = self.start
        began, waited = time.monotonic(), self.blocks.waited
        blocks = self._from(offset)
        for block in blocks:
            yield block
            offset += len(block)
            if offset - measured >= self.PART and self._can_run_parallel(offset):
                seconds = time.monotonic() - began
                if self.blocks.waited - waited > self.MOSTLY * seconds and offset - measured < self.FAST * seconds:
                    blocks.close()
                    yield from self._in_parallel(offset)
                    return
                measured, began, waited = offset, time.monotonic(), self.blocks.waited

    def _can_run_parallel(self, offset: int) -> bool:
        """Whether enough bytes remain for parallel requests, and a replaced object would be noticed."""
        return self.item.size is not None and self.item.size - offset > 2 * self.PART and self.item.version is not None

    def _in_parallel(self, offset: int) -> Iterator[bytes]:
        """Yield the remaining bytes, requesting several parts in parallel."""
        size = self.item.size or 0
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
