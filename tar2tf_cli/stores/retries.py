"""Failure handling for every store: HTTP statuses, retryable failures, pauses, and when to give up.

A store raises `Transient` for a failure that a retry may fix. `call_with_retries` retries single requests,
`ResumingStream` retries downloads, and `RetryPolicy` is the one policy for both.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, TypeVar

from tar2tf_cli.api.store import NoSuchObject, Transient
from tar2tf_cli.errors import Location, SourceError, UsageError
from tar2tf_cli.events import waiting
from tar2tf_cli.ops.rules import accepted, seconds

if TYPE_CHECKING:
    from typing_extensions import Unpack

CONNECT_SECONDS: Final = 5.0
"""Seconds that connecting may take."""

READ_SECONDS: Final = 10.0
"""Seconds without data after which a server counts as stalled."""


def seconds_from_env(variable: str, otherwise: float) -> float:
    """Return the seconds in an environment variable, or a default if it is not set.

    Raises:
        UsageError: when it is not a number of seconds.
    """
    return accepted(seconds, os.environ.get(variable) or otherwise, variable)


def min_rate() -> float:
    """Return the minimum rate in bytes per second that counts as progress: TAR2TF_MIN_RATE, or 1000."""
    rule = partial(seconds, unit="bytes a second")
    return accepted(rule, os.environ.get("TAR2TF_MIN_RATE") or 1000.0, "TAR2TF_MIN_RATE")


def retry_seconds(given: float | None) -> float:
    """Return how many seconds to retry: those given, else those in the environment, else 60.

    Raises:
        UsageError: when it is not a number of seconds.
    """
    return seconds_from_env("TAR2TF_RETRY_FOR", 60.0) if given is None else accepted(seconds, given, "retry_for")


def wrong_scheme(server: str, speaks: str) -> SourceError:
    """Create the error for a server that speaks HTTP where HTTPS was expected, or the reverse."""
    hint = f"write {speaks}://{server.partition('://')[2] or server}"
    return SourceError(
        f"the server speaks {speaks}, not {'http' if speaks == 'https' else 'https'}", shard=server, hint=hint
    )


def tls_failed(server: str, reason: str, hint: str) -> SourceError:
    """Create the error for a rejected certificate; its hint depends on whether the certificate has expired."""
    if re.search("(?i)expired|not yet valid|NotValidYet", reason):
        hint = "the server's certificate must be renewed, unless this machine's clock is wrong"
    return SourceError(f"TLS failed: {reason}", shard=server, hint=hint)


def path_from_env(variable: str) -> str | None:
    """Return the path in an environment variable; None when it is not set.

    Raises:
        UsageError: when the file or folder does not exist.
    """
    path = os.path.expanduser(os.environ.get(variable, ""))
    if path and not os.path.exists(path):
        raise UsageError(f"{variable} is set to {path}, which does not exist")
    return path or None


def first_path_from_env(variables: Iterable[str]) -> str | None:
    """Return the path in the first environment variable that is set, as `path_from_env` does."""
    return next(filter(None, map(path_from_env, variables)), None)


_CA: Final = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")


def ca_bundle() -> str:
    """Return the path of the CA certificates to trust: from the environment, else certifi's."""
    return first_path_from_env(_CA) or certifi_bundle()


def certifi_bundle() -> str:
    """Return the path of certifi's CA certificates, without `certifi.where`, whose imports take 8 ms."""
    certifi = find_spec("certifi")
    return os.path.join(os.path.dirname(str(certifi and certifi.origin)), "cacert.pem")


FIRST_PAUSE: Final = 0.25
"""Seconds before the second attempt; each further pause is twice as long, up to `LONGEST_PAUSE`."""

LONGEST_PAUSE: Final = 4.0

_SAID_AFTER: Final = 4
"""How many failures in a row, about two seconds of them, are reported, once."""

T = TypeVar("T")


NOT_TLS: Final = re.compile("wrong version number|record layer failure|unknown protocol|http request|packet length")
"""Messages of OpenSSL about a server that speaks HTTP instead of HTTPS."""

HTTP_TO_HTTPS: Final = re.compile("HTTP request to an HTTPS server|plain HTTP request was sent to HTTPS port")
"""Answers of HTTPS servers written in Go, and of nginx, to plain HTTP."""

TRANSIENT: Final = (408, 425, 429, *(status for status in range(500, 600) if status not in (501, 505)))
"""Statuses of failures that a retry may fix."""

_MEANING: Final = {
    401: "the server requires credentials, or rejected the given ones (401)",
    403: "permission denied (403)",
    404: "no such object (404)",
    410: "no such object (410)",
}


def check_status(
    status: int,
    message: str,
    where: str,
    hint: str | None = None,
    *,
    server: str = "",
    after: float = 0,
) -> None:
    """Raise the error for an HTTP status; return if it is a success.

    Args:
        status: the HTTP status.
        message: the server's message, if any.
        where: the object or bucket.
        hint: the hint when the server refuses.
        server: the server, if the object's URL does not name it.
        after: seconds that the server asks to wait before the next request.

    Raises:
        Transient: for failures that a retry may fix.
        NoSuchObject: for an object that does not exist.
        SourceError: for all other failures.
    """
    if status < 400:
        return
    words = f": {message}" if message else ""
    if status in TRANSIENT:
        raise Transient(f"the server answered {status}{words}", server, after)
    if status == 400 and HTTP_TO_HTTPS.search(message):
        raise wrong_scheme(server or where, "https")
    kind = NoSuchObject if status in (404, 410) else SourceError
    raise kind(f"{_MEANING.get(status, f'the server answered {status}')}{words}", shard=where, hint=hint)


class RetryPolicy:
    """Retry policy: pauses after each failure, and gives up after a time without progress.

    Pauses vary at random, so that many processes do not retry a busy server at the same moment.

    Args:
        seconds: how long to keep trying after the first failure; 0 for a single attempt.
        pause: waits that many seconds.
    """

    def __init__(self, seconds: float, pause: Callable[[float], object] = time.sleep) -> None:
        self._seconds = seconds
        self._pause = pause
        self._rate = min_rate()
        self._failures = 0
        self._began = 0.0
        self._bytes = 0  # bytes since the last failure
        self._lasted = 0.0  # seconds since the last failure, including the pause

    def received(self, size: int, seconds: float) -> None:
        """Record a transfer's bytes and seconds; more than the minimum rate since the last failure is progress."""
        self._bytes += size
        self._lasted += seconds

    def wait(self, fault: Transient, **where: Unpack[Location]) -> None:
        """Pause before the next attempt.

        Raises:
            SourceError: when the time is up, or will be up before the server permits the next request.
        """
        now = time.monotonic()
        if self._bytes > self._rate * self._lasted:
            self._failures = 0
        if not self._failures:
            self._began = now
        self._failures += 1
        left = self._began + self._seconds - now
        if left <= 0 or fault.after > left:
            raise self._given_up(fault, now - self._began, where)
        if self._failures == _SAID_AFTER:
            what = f"{where.get('shard', '')}: {self._server(fault, where)}{fault}".lstrip(": ")
            waiting(f"{what}; retrying for {left:.0f} s, Ctrl-C stops it")
        import random  # takes 2 ms, needed only after a failure

        pause = min(FIRST_PAUSE * 2 ** (self._failures - 1), LONGEST_PAUSE) * random.uniform(0.75, 1)
        pause = min(max(pause, fault.after), left)
        self._bytes, self._lasted = 0, pause
        self._pause(pause)

    @staticmethod
    def _server(fault: Transient, where: Location) -> str:
        """Return the server that failed; nothing if the URL of the object already names it."""
        return "" if str(where.get("shard")).startswith(fault.server) else f"{fault.server}: "

    def _given_up(self, fault: Transient, lasted: float, where: Location) -> SourceError:
        attempts = f"{self._failures} attempt{'s' if self._failures > 1 else ''}"
        message = f"{self._server(fault, where)}{fault}; gave up after {attempts} in {lasted:.0f} s"
        if fault.after:
            message += f", because the server asked to wait {fault.after:.0f} s"
        hint = "run the same command again when the server is back; --retry-for SECONDS waits longer"
        error = SourceError(message, **where)
        error.hint = fault.hint or hint
        return error


def call_with_retries(action: Callable[[], T], retry_for: float, **where: Unpack[Location]) -> T:
    """Call a function, retrying after each `Transient`; Ctrl-C interrupts a call that is running.

    Args:
        action: sends a request.
        retry_for: as in `RetryPolicy`.
        where: the subject of the request, for the error.

    Raises:
        SourceError: when no attempt succeeded.
    """
    policy = RetryPolicy(retry_for)
    alone = threading.current_thread() is threading.main_thread()
    while True:
        try:
            return _interruptible(action) if alone else action()
        except Transient as fault:
            policy.wait(fault, **where)


def _interruptible(action: Callable[[], T]) -> T:
    """Run a function in a thread, as the main thread gets no signals while it waits in a Rust library."""
    thread, future = in_thread(action)
    try:
        return future.result()
    finally:
        if future.done():
            thread.join()  # so that the process can be forked with a single thread


def call_within_limit(action: Callable[[], T], size: int, server: str) -> T:
    """Call a function in a thread, and give up when its answer comes more slowly than the minimum rate allows.

    Args:
        action: sends the request, in a thread, which is abandoned when it takes too long.
        size: the maximum number of bytes of the answer, which determines the time at the minimum rate.
        server: the server.

    Raises:
        Transient: when the answer does not arrive in that time.
    """
    rate = min_rate()
    if not rate:
        return action()
    seconds = CONNECT_SECONDS + READ_SECONDS + size / rate
    future = in_thread(action)[1]
    try:
        return future.result(seconds)
    except FutureTimeoutError:
        if future.done():
            raise
        raise Transient(f"the answer did not come in {seconds:.0f} s", server) from None


def in_thread(action: Callable[[], T]) -> tuple[threading.Thread, Future[T]]:
    """Run a function in a daemon thread, which does not keep Python from exiting."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(action())
        except BaseException as error:
            future.set_exception(error)

    thread = threading.Thread(target=run, daemon=True, name="tar2tf-request")
    thread.start()
    return thread, future
