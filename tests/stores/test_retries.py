"""One policy for requests that fail: how long to go on, when to pause, and what the error says."""

from __future__ import annotations

import threading
import time
from concurrent.futures import TimeoutError as FutureTimeoutError
from email.utils import formatdate
from pathlib import Path

import pytest

from commands import tar2tf
from quick_retries import PATIENT
from servers import FaultyServer, faulty_server, nobody_listens
from shards import PHOTOS
from tar2tf_cli import events
from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.store import NoSuchObject, Transient
from tar2tf_cli.cli.output import Terminal
from tar2tf_cli.errors import SourceError, UsageError
from tar2tf_cli.spec.yaml_file import build
from tar2tf_cli.stores import open_source, retries
from tar2tf_cli.stores.ais import timeouts
from tar2tf_cli.stores.retries import FIRST_PAUSE, LONGEST_PAUSE, READ_SECONDS, RetryPolicy
from tar2tf_cli.testing.shards import read_all, tar_of
from tar2tf_cli.testing.sources import BIG
from verify_runs import convert


class TestPatience:
    def pauses(self, seconds: float, *faults: Transient) -> list[float]:
        made: list[float] = []
        patience = RetryPolicy(seconds, made.append)
        for fault in faults:
            patience.wait(fault, shard="x")
        return made

    def test_pauses_grow_to_a_limit(self) -> None:
        made = self.pauses(1000, *[Transient("busy")] * 8)
        doubled = [min(FIRST_PAUSE * 2**number, LONGEST_PAUSE) for number in range(8)]
        assert all(0.75 * most <= pause <= most for pause, most in zip(made, doubled, strict=True))

    def test_a_server_is_not_asked_before_it_wants_to_be(self) -> None:
        assert self.pauses(60, Transient("busy", after=7), Transient("busy", after=0.01)) == [
            7,
            pytest.approx(2 * FIRST_PAUSE, rel=0.26),
        ]

    def test_a_server_that_wants_more_time_than_there_is_is_an_error_at_once(self) -> None:
        with pytest.raises(
            SourceError, match="busy; gave up after 1 attempt in 0 s, because the server asked to wait 99 s"
        ):
            self.pauses(60, Transient("busy", after=99))

    def test_without_patience_there_is_one_attempt(self) -> None:
        with pytest.raises(SourceError, match="http://node: gone; gave up after 1 attempt in 0 s") as caught:
            self.pauses(0, Transient("gone", "http://node"))
        assert "run the same command again" in (caught.value.hint or "")

    def test_a_server_that_stays_away_is_logged_once(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(events, "reporter", events.log_waiting)  # a command may have run in this process
        self.pauses(1000, *[Transient("refused", "http://node")] * 3)
        assert not caplog.messages
        self.pauses(1000, *[Transient("refused", "http://node")] * 8)
        assert caplog.messages == ["x: http://node: refused; retrying for 1000 s, Ctrl-C stops it"]

    def test_a_command_says_it_once_for_all_requests_that_fail_together(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(events, "reporter", events.reporter)  # which Terminal replaces
        with Terminal():
            for _ in range(32):
                self.pauses(1000, *[Transient("refused", "http://node")] * 5)
        assert capsys.readouterr().err.count("retrying for") == 1

    def test_progress_gives_all_the_time_again(self, quick_retries: None) -> None:
        patience = RetryPolicy(0.05)
        for _ in range(4):
            patience.wait(Transient("busy"))
            patience.received(1_000_000, 0)
        patience.received(1, 0)  # is next to nothing
        patience.wait(Transient("busy"))
        with pytest.raises(SourceError, match="after 2 attempts"):
            patience.wait(Transient("busy"))


@pytest.mark.parametrize("quiet", [True, False])
def test_a_command_says_what_it_waits_for(quiet: bool, tmp_path: Path) -> None:
    options = ["-o", tmp_path / "x.record", "--retry-for", "2", *(["-q"] if quiet else [])]
    with nobody_listens() as port:
        done = tar2tf("convert", f"http://127.0.0.1:{port}/a-{{0..3}}.tar", *options, code=PATIENT)
    assert done.returncode == 3
    assert done.stderr.count("retrying for") == (0 if quiet else 1), done.stderr
    assert "gave up after" in done.stderr


def test_a_worker_that_waits_says_so_through_its_command(web: FaultyServer, tmp_path: Path) -> None:
    web.objects["b/x.tar"] = PHOTOS.joinpath("photos-0.tar").read_bytes()
    web.fail("GET b/x", "status", times=-1, status=503)
    options = ["--retry-for", "2", "-j", "2", "--op", "drop_empty"]
    done = tar2tf("convert", f"{web.url}/b/x.tar", "-o", tmp_path / "x.record", *options, code=PATIENT)
    assert done.returncode == 3
    assert done.stderr.count("the server answered 503; retrying for") == 1, done.stderr


@pytest.mark.parametrize("written", ["1", None], ids=["seconds", "a date"])
def test_retry_after_is_honoured(web: FaultyServer, written: str | None) -> None:
    web.objects["b/x.tar"] = b"x"
    began = time.monotonic()
    web.fail("GET b/x", "status", status=503, retry_after=written or formatdate(time.time() + 2, usegmt=True))
    assert read_all(open_source(f"{web.url}/b"), ObjectInfo("x.tar", 1, None)) == b"x"
    assert time.monotonic() - began > 0.9


def test_a_server_that_comes_back_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    wait, failures = RetryPolicy.wait, list[Transient]()

    def failed(self: RetryPolicy, fault: Transient, **where: str) -> None:
        failures.append(fault)
        if len(failures) == 2:
            server.listen()
        wait(self, fault, **where)

    monkeypatch.setattr(RetryPolicy, "wait", failed)
    with faulty_server(sleeps=True) as server:
        server.objects["b/x.tar"] = BIG
        source = open_source(f"{server.url}/b")
        (item,) = source.list(["x.tar"])
        assert read_all(source, item) == BIG
    assert len(failures) == 2


def test_flag_and_environment_say_how_long(web: FaultyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    web.objects["b/x.tar"] = tar_of(3)
    web.fail("GET b/x", "status", times=-1, status=503)
    command = (f"{web.url}/b", "x.tar", "-o", tmp_path / "x.record")
    monkeypatch.setenv("TAR2TF_RETRY_FOR", "0")
    for options, attempts in (((), "1 attempt "), (("--retry-for", "0.3"), "3 attempts ")):
        failed = tar2tf("convert", *command, *options, code=PATIENT)
        assert failed.returncode == 3
        assert f"the server answered 503; gave up after {attempts}" in failed.stderr
        assert "run the same command again" in failed.stderr
    web.faults.clear()
    assert convert(*command).code == 0
    assert convert(*command, "--retry-for", "17").code == 0  # not another conversion


def test_a_spec_says_how_long_and_refuses_what_is_no_time() -> None:
    spec = {"input": {"bucket": "b"}, "output": {"path": "x.record"}}
    assert build({**spec, "retry_for": 5}).retry_for == 5
    assert "retry_for" not in build({**spec, "retry_for": 5}).canonical()
    for value in (-1, "soon", float("nan"), True):
        with pytest.raises(UsageError, match="retry_for must be a number of seconds"):
            build({**spec, "retry_for": value})


def test_the_environment_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAR2TF_RETRY_FOR", "soon")
    assert retries.retry_seconds(3) == 3
    with pytest.raises(UsageError, match="TAR2TF_RETRY_FOR must be a number of seconds"):
        retries.retry_seconds(None)


def test_the_timeouts_of_aistore_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIS_CONNECT_TIMEOUT", "2.5")
    assert timeouts() == (2.5, READ_SECONDS)
    monkeypatch.setenv("AIS_READ_TIMEOUT", "-1")
    with pytest.raises(UsageError, match="AIS_READ_TIMEOUT must be a number of seconds, 0 or more, not '-1'"):
        timeouts()


@pytest.mark.parametrize("reason", ["SSL certificate problem: certificate has expired", "Expired", "NotValidYet"])
def test_no_other_authority_mends_a_certificate_whose_time_is_over(reason: str) -> None:
    assert "renewed" in str(retries.tls_failed("https://x", reason, "set REQUESTS_CA_BUNDLE").hint)
    assert retries.tls_failed("https://x", "self-signed certificate", "set a CA").hint == "set a CA"


TO_HTTPS = "plain HTTP request was sent to HTTPS port"


@pytest.mark.parametrize(
    ("status", "message", "kind", "words", "hint"),
    [
        (400, "", SourceError, "the server answered 400", "ask"),
        (400, TO_HTTPS, SourceError, "the server speaks https, not http", "write https://h"),
        (401, "no", SourceError, "the server requires credentials, or rejected the given ones (401): no", "ask"),
        (403, "", SourceError, "permission denied (403)", "ask"),
        (404, "no", NoSuchObject, "no such object (404): no", "ask"),
        (410, "", NoSuchObject, "no such object (410)", "ask"),
        (418, "no", SourceError, "the server answered 418: no", "ask"),
    ],
)
def test_a_status_that_lasts_is_an_error_about_the_object(
    status: int, message: str, kind: type[SourceError], words: str, hint: str
) -> None:
    with pytest.raises(SourceError) as caught:
        retries.check_status(status, message, "http://h/x", "ask", server="http://h")
    assert (type(caught.value), caught.value.message, caught.value.hint) == (kind, words, hint)
    assert caught.value.shard == ("http://h" if "speaks" in words else "http://h/x")


def test_a_status_that_may_pass_is_tried_again_and_a_success_is_none() -> None:
    for status in sorted(retries.TRANSIENT):
        with pytest.raises(Transient) as caught:
            retries.check_status(status, "busy", "http://h/x", server="http://h", after=3)
        found = caught.value
        assert (str(found), found.server, found.after) == (f"the server answered {status}: busy", "http://h", 3)
    for status in (200, 206, 302, 399):
        retries.check_status(status, "", "http://h/x")


def test_a_call_without_a_minimum_rate_takes_its_time_in_this_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAR2TF_MIN_RATE", "0")
    found = retries.call_within_limit(threading.current_thread, 5, "http://h")
    assert found is threading.current_thread()


def test_a_call_that_takes_too_long_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "CONNECT_SECONDS", 0.0)
    monkeypatch.setattr(retries, "READ_SECONDS", 0.01)
    monkeypatch.setenv("TAR2TF_MIN_RATE", "100")
    ended = threading.Event()
    with pytest.raises(Transient, match=r"^the answer did not come in 0 s$") as caught:
        retries.call_within_limit(lambda: ended.wait(60), 1, "http://h")
    ended.set()
    assert caught.value.server == "http://h"


def test_a_call_within_the_time_returns_or_raises_in_its_own_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAR2TF_MIN_RATE", "100")

    def late() -> None:
        raise FutureTimeoutError("of its own")

    assert retries.call_within_limit(lambda: 7, 5, "http://h") == 7
    with pytest.raises(FutureTimeoutError, match=r"^of its own$"):
        retries.call_within_limit(late, 5, "http://h")
