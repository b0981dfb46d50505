"""Transfers and retries for every store: a broken transfer resumes, and the received bytes are checked.

A store raises `Transient` for failures that a retry may fix. `persist` retries single requests, `ResumingStream` whole
downloads; `Patience` is the one policy for both: it decides how long to pause, and when to give up.
"""

from __future__ import annotations

import contextlib
import hashlib
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from tar2tf_cli.errors import SourceError, Tar2tfError, changed
from tar2tf_cli.formats.tfrecord import crc32c
from tar2tf_cli.stores.base import ObjectInfo

__all__ = ["Body", "FetchThreads", "NoSuchObject", "Patience", "ResumingStream", "Transient", "hasher", "persist"]

FIRST_PAUSE: Final = 0.25
"""Seconds before the second attempt; each further pause is twice as long, up to `LONGEST_PAUSE`."""

LONGEST_PAUSE: Final = 4.0

T = TypeVar("T")


class Transient(Exception):
    """A failure that a retry may fix.

    Args:
        message: what happened.
        server: URL or name of the server or node that failed.
        after: how many seconds the server asks to wait before the next request (Retry-After).
    """

    def __init__(self, message: str, server: str = "", after: float = 0) -> None:
        super().__init__(message)
        self.server = server
        self.after = after


class NoSuchObject(SourceError):
    """The bucket exists, but has no object of that name."""


class Patience:
    """Pauses after each failure, and gives up when a time has passed without progress.

    Pauses vary at random, so that many processes do not come back to a busy server at the same moment.

    Args:
        seconds: how long to keep trying after the first failure; 0 for a single attempt.
        pause: waits that many seconds.
    """

    def __init__(self, seconds: float, pause: Callable[[float], object] = time.sleep) -> None:
        self._seconds = seconds
        self._pause = pause
        self._failures = 0
        self._began = 0.0

    def renew(self) -> None:
        """Start afresh, since there was progress."""
        self._failures = 0

    def wait(self, fault: Transient, **where: Any) -> None:
        """Pause before the next attempt.

        Raises:
            SourceError: when the time is up, or would be before the server wants to be asked again.
        """
        now = time.monotonic()
        if not self._failures:
            self._began = now
        self._failures += 1
        left = self._began + self._seconds - now
        if left <= 0 or fault.after > left:
            raise self._given_up(fault, now - self._began, where)
        pause = min(FIRST_PAUSE * 2 ** (self._failures - 1), LONGEST_PAUSE) * random.uniform(0.75, 1)
        self._pause(min(max(pause, fault.after), left))

    def _given_up(self, fault: Transient, lasted: float, where: dict[str, Any]) -> SourceError:
        attempts = f"{self._failures} attempt{'s' if self._failures > 1 else ''}"
        server = "" if str(where.get("shard")).startswith(fault.server) else f"{fault.server}: "
        message = f"{server}{fault}; gave up after {attempts} in {lasted:.0f} s"
        if fault.after:
            message += f", as the server asks to wait {fault.after:.0f} s"
        hint = "the same command continues when the server is back; --retry-for SECONDS waits longer for it"
        return SourceError(message, hint=hint, **where)


def persist(action: Callable[[], T], retry_for: float, **where: Any) -> T:
    """Return the result of an action, retried after each `Transient`; Ctrl-C does not wait for it.

    Args:
        action: sends a request.
        retry_for: as in `Patience`.
        where: what the request is about, for the error.

    Raises:
        SourceError: when no attempt succeeded.
    """
    patience = Patience(retry_for)
    alone = threading.current_thread() is threading.main_thread()
    while True:
        try:
            return _interruptible(action) if alone else action()
        except Transient as fault:
            patience.wait(fault, **where)


def _interruptible(action: Callable[[], T]) -> T:
    """Run an action in a thread, as the main thread gets no signals while it waits in a Rust library."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(action())
        except BaseException as error:
            future.set_exception(error)

    thread = threading.Thread(target=run, daemon=True, name="tar2tf-request")
    thread.start()
    try:
        return future.result()
    finally:
        if future.done():
            thread.join()  # a process with one thread can be forked


@dataclass(slots=True)
class Body:
    """The response to a request for an object from an offset on.

    Attributes:
        read: returns at most this many bytes, b"" at the end; raises `Transient` when the transfer breaks off.
        close: releases the connection.
        start: offset of the first byte, which is 0 if the server ignores ranges.
        size: size in bytes of the whole object; None when the server does not say.
        version: as in `ObjectInfo`.
        checksum: kind of the whole object's checksum, and its value in hexadecimal.
    """

    read: Callable[[int], bytes]
    close: Callable[[], None]
    start: int
    size: int | None
    version: str | None
    checksum: tuple[str, str] | None = None


class Hasher(Protocol):
    """Computes a checksum, like an object of `hashlib`."""

    def update(self, data: bytes, /) -> Any: ...

    def hexdigest(self) -> str: ...


class _Crc32c:
    def __init__(self) -> None:
        self._value = 0

    def update(self, data: bytes) -> None:
        self._value = crc32c(data, self._value)

    def hexdigest(self) -> str:
        return f"{self._value:08x}"


def hasher(kind: str) -> Hasher | None:
    """Return a checksum object by its AIStore name; None for kinds that are not checked."""
    if kind in ("xxhash", "xxhash2"):  # both are XXH64
        import xxhash

        digest: Hasher = xxhash.xxh64()
        return digest
    if kind == "md5":
        return hashlib.md5(usedforsecurity=False)
    return _Crc32c() if kind == "crc32c" else None


class FetchThreads:
    """Threads that run one job after another, as starting a thread costs as much as fetching a small object.

    Args:
        linger: for how many seconds a thread waits for another job.
    """

    def __init__(self, linger: float = 0.5) -> None:
        self._linger = linger
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
                job = self._jobs.get(timeout=self._linger)
            except queue.Empty:
                with self._lock:
                    if self._jobs.empty():
                        self._idle -= 1
                        return
                continue
            job()
            with self._lock:
                self._idle += 1


class ResumingStream:
    """The bytes of an object, fetched ahead by a thread that starts at the first read.

    Args:
        fetch: requests the object from an offset on; raises `Transient` or SourceError.
        item: the object; fields that are None are taken from the first response.
        name: its name in errors.
        retry_for: as in `Patience`; each new byte is progress.
    """

    BLOCK: Final = 1 << 18
    MOST_AHEAD: Final = 32  # blocks

    def __init__(self, fetch: Callable[[int], Body], item: ObjectInfo, name: str, retry_for: float) -> None:
        self._fetch = fetch
        self._closed = threading.Event()
        self._patience = Patience(retry_for, self._closed.wait)
        self._item = item
        self._name = name
        self._size = item.size
        self._version = item.version
        self._hasher: Hasher | None = None
        self._checksum: str | None = None
        self._blocks: queue.SimpleQueue[bytes | BaseException] = queue.SimpleQueue()
        self._permits = threading.Semaphore(2)
        self._granted = 2
        self._pending = b""
        self._begun = False
        self._ended: BaseException | bytes | None = None

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes; b"" only after all of them were received and match the checksum.

        Raises:
            SourceError: when the object cannot be read to its end, is not the one that was listed, or is damaged.
        """
        if not self._pending:
            self._pending = self._next()
        if len(self._pending) <= size:
            data, self._pending = self._pending, b""
        else:
            data, self._pending = self._pending[:size], self._pending[size:]
        return data

    def begin(self, threads: FetchThreads | None = None) -> None:
        """Start fetching the first blocks, in a thread of its own or one of a group."""
        if not self._begun:
            self._begun = True
            (threads or FetchThreads(0)).run(self._run)

    def close(self) -> None:
        """Stop fetching; the thread closes its connection by itself."""
        self._closed.set()
        self._permits.release()

    def _next(self) -> bytes:
        self.begin()
        block = self._ended if self._ended is not None else self._blocks.get()
        if isinstance(block, BaseException):
            self._ended = block
            raise block
        if not block:
            self._ended = block
        self._permits.release()
        if self._granted < self.MOST_AHEAD:  # a reader that continues gets more read-ahead
            self._granted += 1
            self._permits.release()
        return block

    def _run(self) -> None:
        try:
            for block in self._download():
                self._permits.acquire()
                if self._closed.is_set():
                    return
                self._blocks.put(block)
            self._blocks.put(b"")
        except Tar2tfError as error:
            self._blocks.put(error)
        except BaseException as error:
            self._blocks.put(SourceError(f"{type(error).__name__}: {error}", shard=self._name))

    def _download(self) -> Iterator[bytes]:
        offset = 0
        while not self._closed.is_set():
            try:
                with contextlib.closing(self._attach(offset)) as body:
                    self._skip_known(body, offset)
                    while data := body.read(self.BLOCK):
                        offset += len(data)
                        if self._hasher:
                            self._hasher.update(data)
                        self._patience.renew()
                        yield data
                if self._size is None or offset == self._size:
                    break
                if offset > self._size:
                    raise self._error(f"is longer than its {self._size:,} bytes", offset)
                raise Transient(f"the transfer ended after {offset:,} of {self._size:,} bytes")
            except Transient as fault:
                self._patience.wait(fault, shard=self._name, offset=offset)
        else:
            return
        if self._hasher and (found := self._hasher.hexdigest()) != self._checksum:
            raise self._error(f"the bytes received have the checksum {found}, the object has {self._checksum}", offset)

    def _attach(self, offset: int) -> Body:
        """Request the rest of the object, and check that it is still the same one."""
        body = self._fetch(offset)
        same_size = self._size is None or body.size in (self._size, None)
        same_version = self._version is None or body.version in (self._version, None)
        blind = offset > 0 and body.size is None and body.version is None
        if blind or not same_size or not same_version:
            body.close()
            if blind:
                message = "the transfer broke off, and the server reports neither size nor version to resume by"
                raise self._error(message, offset)
            raise changed(self._name, offset)
        if offset == 0:
            self._size, self._version = body.size if self._size is None else self._size, self._version or body.version
            checksum = body.checksum or self._item.checksum
            if checksum and (made := hasher(checksum[0])):
                self._hasher, self._checksum = made, checksum[1].lower()
        return body

    def _skip_known(self, body: Body, offset: int) -> None:
        """Discard bytes received before, as the server ignores ranges."""
        missing = offset - body.start
        if missing < 0:
            message = f"the server returned the wrong range: asked from byte {offset:,}, got byte {body.start:,}"
            raise self._error(message, offset)
        while missing:
            data = body.read(min(missing, self.BLOCK))
            if not data:
                raise Transient(f"the transfer ended after {offset - missing:,} bytes")
            missing -= len(data)

    def _error(self, message: str, offset: int) -> SourceError:
        return SourceError(message, shard=self._name, offset=offset)
