"""Shards behind http(s)://, from servers that fail in every way."""

from __future__ import annotations

import itertools
import shutil
import socket
import ssl
import threading
from math import inf
from pathlib import Path
from typing import Any

import pytest

from clock import Clock
from commands import tar2tf, wait_until
from servers import FaultyServer, faulty_server, nobody_listens, self_signed
from sources import BucketSuite
from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.source import Source
from tar2tf_cli.errors import SourceError, UsageError
from tar2tf_cli.inputs.shard_set import resolve
from tar2tf_cli.stores import curl, open_source, open_store, read_with_folder, retries, transfer
from tar2tf_cli.testing.shards import read_all, tar_of
from tar2tf_cli.testing.sources import BIG


class TestHttp(BucketSuite):
    can_list = False

    @pytest.fixture
    def bucket(self, web: FaultyServer) -> str:
        self.web = web
        return f"{web.url}/bucket"

    def put(self, bucket: str, name: str, data: bytes) -> None:
        self.web.objects[f"bucket/{name}"] = data

    def delete(self, bucket: str, name: str) -> None:
        del self.web.objects[f"bucket/{name}"]


@pytest.fixture
def impatient(web: FaultyServer, quick_retries: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that stalls is given up soon, however slow it is before that; retries take no time."""
    monkeypatch.setattr(retries, "READ_SECONDS", 0.3)
    monkeypatch.setattr(curl, "time", Clock(web.monotonic))


@pytest.mark.usefixtures("impatient")
class TestAFaultyServer:
    @pytest.fixture
    def source(self, web: FaultyServer) -> Source:
        web.objects["b/x.tar"] = BIG
        return open_source(f"{web.url}/b")

    @pytest.fixture
    def item(self, source: Source) -> ObjectInfo:
        return source.list(["x.tar"])[0]

    @pytest.mark.parametrize("kind", ["truncate", "stall"])
    @pytest.mark.parametrize("after", [0, 1, 1_000_000, len(BIG) - 1])
    def test_a_broken_transfer_goes_on_where_it_stopped(
        self, web: FaultyServer, source: Source, item: ObjectInfo, kind: str, after: int
    ) -> None:
        web.fail("GET b/x", kind, after=after)
        assert read_all(source, item) == BIG
        asked = [wanted for method, _, wanted in web.log if method == "GET"]
        assert asked[0] is None
        if after > transfer.ResumingStream.BLOCK:
            offset = int(str(asked[1]).removeprefix("bytes=").rstrip("-"))
            assert after - transfer.ResumingStream.BLOCK <= offset <= after

    def test_a_connection_that_has_become_very_slow_is_given_up_for_another(
        self, web: FaultyServer, source: Source, item: ObjectInfo
    ) -> None:
        web.fail("GET b/x", "drip", after=1_000_000)
        assert read_all(source, item) == BIG
        asked = [wanted for method, _, wanted in web.log if method == "GET"]
        assert int(str(asked[1]).removeprefix("bytes=").rstrip("-")) >= 1_000_000

    def test_a_server_that_sends_next_to_nothing_is_given_up(
        self, web: FaultyServer, source: Source, item: ObjectInfo
    ) -> None:
        web.fail("GET b/x", "drip", times=-1)
        with pytest.raises(
            SourceError, match=r"fewer than [\d,]+ bytes arrived in 0 s; gave up after 1 attempt"
        ) as caught:
            read_all(open_source(source.bucket, retry_for=0), item)
        assert 0 < (caught.value.offset or 0) < 1000

    def test_half_an_object_is_an_error(self, web: FaultyServer, source: Source, item: ObjectInfo) -> None:
        web.fail("GET b/x", "short", times=-1, after=1000)
        with pytest.raises(SourceError, match="changed while it was being read") as caught:
            read_all(source, item)
        assert caught.value.shard == f"{web.url}/b/x.tar"

    def test_a_server_that_breaks_off_always_ends_in_an_error_that_names_object_and_offset(
        self, web: FaultyServer, source: Source, item: ObjectInfo
    ) -> None:
        web.fail("GET b/x", "truncate", times=-1, after=0)
        web.faults.insert(0, web.faults[0].__class__("GET b/x", "truncate", 1, 600_000))
        with pytest.raises(SourceError, match="the connection was lost; gave up after") as caught:
            read_all(source, item)
        assert caught.value.shard == f"{web.url}/b/x.tar"
        assert caught.value.offset == 600_000

    def test_progress_earns_more_attempts(
        self, web: FaultyServer, source: Source, item: ObjectInfo, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seconds = itertools.count(step=9)  # at each failure; without progress, the fifth is one too many
        monkeypatch.setattr(retries, "time", Clock(lambda: next(seconds)))
        for _ in range(4):
            web.fail("GET b/x", "truncate", times=1, after=1_300_000)
        web.fail("GET b/x", "truncate", times=3, after=0)
        assert read_all(source, item) == BIG

    def test_a_server_that_ignores_ranges_is_read_again_from_the_front(
        self, web: FaultyServer, source: Source, item: ObjectInfo
    ) -> None:
        web.fail("GET b/x", "truncate", after=2_000_000)
        web.fail("GET b/x", "no-range")
        assert read_all(source, item) == BIG

    @pytest.mark.parametrize("kind", ["truncate", "stall"])
    def test_an_object_replaced_between_two_parts_is_no_mixture(
        self, web: FaultyServer, source: Source, item: ObjectInfo, kind: str
    ) -> None:
        web.fail("GET b/x", kind, after=2_000_000)
        stream = source.open(item)
        stream.read(10)
        web.objects["b/x.tar"] = bytes(len(BIG))
        with pytest.raises(SourceError, match="changed while it was being read"):
            list(iter(lambda: stream.read(1 << 20), b""))

    def test_without_size_and_version_nothing_is_resumed(self, web: FaultyServer, source: Source) -> None:
        web.etags = False
        web.fail("GET b/x", "truncate", after=2_000_000)
        web.objects["b/x.tar"] = BIG
        (item,) = source.list(["x.tar"])
        assert item.version is None
        assert read_all(source, item) == BIG  # the size alone is guard enough

    @pytest.mark.parametrize("status", [500, 503, 429])
    def test_a_passing_error_is_passed_over(self, web: FaultyServer, source: Source, status: int) -> None:
        web.fail("HEAD b/x", "status", times=2, status=status)
        web.fail("GET b/x", "status", times=2, status=status)
        assert read_all(source, source.list(["x.tar"])[0]) == BIG

    @pytest.mark.parametrize(
        ("status", "words"), [(401, "credentials"), (403, "permission denied"), (404, "was deleted")]
    )
    def test_a_refusal_is_final(
        self, web: FaultyServer, source: Source, item: ObjectInfo, status: int, words: str
    ) -> None:
        web.fail("GET b/x", "status", times=-1, status=status)
        before = len(web.log)
        with pytest.raises(SourceError, match=words):
            read_all(source, item)
        assert len(web.log) == before + 1

    def test_redirects_are_followed(self, web: FaultyServer, source: Source) -> None:
        web.fail(" b/x", "redirect", times=-1)
        assert read_all(source, source.list(["x.tar"])[0]) == BIG

    def test_a_server_that_refuses_head_is_asked_for_a_byte(self, web: FaultyServer, source: Source) -> None:
        web.fail("HEAD", "status", times=-1, status=405)
        (item,) = source.list(["x.tar"])
        assert item.size == len(BIG)

    def test_a_reader_that_stops_early_is_not_far_ahead(
        self, web: FaultyServer, source: Source, item: ObjectInfo
    ) -> None:
        web.fail("GET b/x", "stall", after=3 * transfer.ResumingStream.BLOCK)
        stream = source.open(item)
        assert stream.read(1000)
        stream.close()

    def test_inputs_that_are_expected_are_asked_for_all_at_once(self, web: FaultyServer, source: Source) -> None:
        assert source.capabilities.remote
        for number in range(8):
            web.objects[f"b/y-{number}.tar"] = b"%d" % number
        items = source.list(["y-{0..7}.tar"])
        web.log.clear()
        all_there, take = threading.Barrier(8), web.take

        def together(request: str) -> Any:
            all_there.wait(timeout=100)
            return take(request)

        web.take = together  # type: ignore[method-assign]
        try:
            with source.prefetch(items):
                assert [read_all(source, item) for item in items] == [b"%d" % number for number in range(8)]
        finally:
            web.take = take  # type: ignore[method-assign]
        assert len(web.log) == 8

    def test_what_was_expected_and_not_opened_is_let_go_of(
        self, web: FaultyServer, source: Source, item: ObjectInfo
    ) -> None:
        assert source.capabilities.remote
        with source.prefetch([item]):
            wait_until(lambda: web.log and web.log[-1][0] == "GET", "the request")
        web.log.clear()
        assert read_all(source, item) == BIG
        assert [entry[0] for entry in web.log] == ["GET"]

    def test_sizes_are_asked_for_in_parallel(self, web: FaultyServer, source: Source) -> None:
        for number in range(32):
            web.objects[f"b/y-{number}.tar"] = b"y"
        there, all_there, take = itertools.count(), threading.Event(), web.take

        def together(request: str) -> Any:
            number = next(there)
            if number == 9:
                all_there.set()
            assert number == 0 or all_there.wait(timeout=100)  # one is asked alone, before all others
            return take(request)

        web.take = together  # type: ignore[method-assign]
        try:
            assert len(source.list(["y-{0..31}.tar"])) == 32
        finally:
            web.take = take  # type: ignore[method-assign]

    def test_a_server_that_answers_late_gets_more_requests_at_once(
        self, web: FaultyServer, source: Source, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tar2tf_cli.stores.curl.SLOW", -1.0)  # as no time passes here
        web.objects |= {f"b/y-{number}.tar": b"y" for number in range(97)}
        first, second, take = threading.Barrier(32), threading.Barrier(64), web.take
        others = itertools.count()

        def together(request: str) -> Any:
            if "y-0.tar" not in request:  # whose answer is waited for first
                (first if next(others) < 32 else second).wait(timeout=20)
            return take(request)

        monkeypatch.setattr(web, "take", together)
        assert len(source.list(["y-{0..96}.tar"])) == 97
        assert not first.broken
        assert not second.broken

    def test_a_small_shard_costs_one_request(self, web: FaultyServer, source: Source) -> None:
        web.objects["b/small.tar"] = b"small"
        (item,) = source.list(["small.tar"])
        web.log.clear()
        assert read_all(source, item) == b"small"
        assert web.log == [("GET", "b/small.tar", None)]

    def test_connections_are_used_again(
        self, web: FaultyServer, source: Source, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tar2tf_cli.stores.curl.SLOW", inf)
        for number in range(200):
            web.objects[f"b/y-{number}.tar"] = b"y"
        before = web.connections
        items = source.list(["y-{0..199}.tar"])
        assert source.capabilities.remote
        with source.prefetch(items):
            assert {read_all(source, item) for item in items} == {b"y"}
        assert web.connections - before <= 64

    def test_the_error_of_a_worker_reaches_the_user_as_one_line(self, web: FaultyServer, tmp_path: Path) -> None:
        web.objects["b/t.tar"] = tar_of(20, 100_000)
        web.fail("GET b/t", "status", times=-1, status=403)
        done = tar2tf("convert", f"{web.url}/b", "t.tar", "-o", tmp_path / "o.record")
        assert done.returncode == 3
        assert f"error: {web.url}/b/t.tar: permission denied (403)" in done.stderr
        web.faults.clear()
        done = tar2tf("convert", f"{web.url}/b", "t.tar", "-o", tmp_path / "o.record")
        assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("impatient")
class TestManySmallObjects:
    """Those that are fetched many at once by one thread, whatever happens to some of them."""

    COUNT = 40

    @pytest.fixture
    def source(self, web: FaultyServer) -> Source:
        web.objects |= {f"b/y-{number}.tar": b"%d" % number * 1000 for number in range(self.COUNT)}
        return open_source(f"{web.url}/b")

    @pytest.fixture
    def items(self, source: Source) -> list[ObjectInfo]:
        return source.list([f"y-{{0..{self.COUNT - 1}}}.tar"])

    def read(self, source: Source, items: list[ObjectInfo]) -> list[bytes]:
        with source.prefetch(items):
            return [read_all(source, item) for item in items]

    def wanted(self) -> list[bytes]:
        return [b"%d" % number * 1000 for number in range(self.COUNT)]

    def test_they_take_one_request_each_and_no_thread(
        self, web: FaultyServer, source: Source, items: list[ObjectInfo]
    ) -> None:
        web.log.clear()
        before = {thread.name for thread in threading.enumerate()}
        with source.prefetch(items):
            found = [read_all(source, item) for item in items]
            ours = {thread.name for thread in threading.enumerate()} - before
        assert found == self.wanted()
        assert not [name for name in ours if "tar2tf" in name]
        assert sorted(web.log) == sorted(("GET", f"b/{item.name}", None) for item in items)

    @pytest.mark.parametrize("kind", ["truncate", "stall", "redirect", "status"])
    def test_what_fails_once_is_fetched_again(
        self, web: FaultyServer, source: Source, items: list[ObjectInfo], kind: str
    ) -> None:
        web.fail("GET b/y-7", kind, after=10, status=503)
        assert self.read(source, items) == self.wanted()

    def test_a_redirect_without_end_is_an_error(
        self, web: FaultyServer, source: Source, items: list[ObjectInfo]
    ) -> None:
        web.fail("GET .*y-7", "redirect", times=-1)
        with pytest.raises(SourceError, match="redirects in a loop"):
            self.read(source, items)

    def test_one_that_was_replaced_by_a_large_one_has_changed(
        self, web: FaultyServer, source: Source, items: list[ObjectInfo]
    ) -> None:
        web.objects["b/y-9.tar"] = BIG
        with pytest.raises(SourceError, match="changed while it was being read"):
            self.read(source, items)

    def test_one_of_the_same_size_and_another_version_has_changed(
        self, web: FaultyServer, source: Source, items: list[ObjectInfo]
    ) -> None:
        web.objects["b/y-9.tar"] = b"8" * 1000
        with pytest.raises(SourceError, match=r"y-9\.tar.*changed while it was being read"):
            self.read(source, items)

    def test_one_that_is_deleted_is_named(self, web: FaultyServer, source: Source, items: list[ObjectInfo]) -> None:
        del web.objects["b/y-9.tar"]
        with pytest.raises(SourceError, match=r"y-9\.tar: was deleted after it had been listed"):
            self.read(source, items)

    def test_large_ones_among_them_are_read_as_a_stream(self, web: FaultyServer, source: Source) -> None:
        web.objects["b/y-3.tar"] = BIG
        items = source.list([f"y-{{0..{self.COUNT - 1}}}.tar"])
        found = self.read(source, items)
        assert found[3] == BIG
        assert found[4:] == self.wanted()[4:]

    def test_all_that_are_missing_are_found_with_one_request_each(self, web: FaultyServer, source: Source) -> None:
        for number in (3, 5):
            del web.objects[f"b/y-{number}.tar"]
        web.fail("HEAD b/y-7", "status", status=503)
        web.log.clear()
        with pytest.raises(SourceError, match=r"y-3\.tar.*y-5\.tar"):
            source.list([f"y-{{0..{self.COUNT - 1}}}.tar"])
        assert len(web.log) == self.COUNT + 1  # the one that failed once more


class TestHttpUsage:
    @pytest.mark.parametrize("templates", [["*.tar"], ["x-*.tar"]])
    def test_a_glob_is_a_usage_error(self, web: FaultyServer, templates: list[str]) -> None:
        with pytest.raises(UsageError, match="cannot be listed") as caught:
            open_source(f"{web.url}/b").list(templates)
        assert "braces" in (caught.value.hint or "")

    def test_a_file_that_is_not_there_is_named(self, web: FaultyServer) -> None:
        with pytest.raises(SourceError, match="there is no such file") as caught:
            resolve(f"{web.url}/b/nope.tar")
        assert caught.value.shard == f"{web.url}/b/nope.tar"

    def test_a_folder_without_a_template_is_a_usage_error(self, web: FaultyServer) -> None:
        with pytest.raises(UsageError, match="cannot be listed"):
            open_source(f"{web.url}/b/").list([])

    def test_secrets_in_a_url_are_not_shown(self, web: FaultyServer) -> None:
        web.objects["b/x.tar"] = b"x"
        url = web.url.replace("http://", "http://user:secret@") + "/b/x.tar?sig=hidden"
        source = open_source(url)
        (item,) = source.list([])
        assert source.locate(item.name) == source.bucket == f"{web.url}/b/x.tar"
        assert read_all(source, item) == b"x"

    def test_a_server_that_is_not_there_is_named(self) -> None:
        refused = pytest.raises(SourceError, match="Connection refused; gave up after 1 attempt ")
        with nobody_listens() as port, refused:
            open_source(f"http://127.0.0.1:{port}/b", retry_for=0).list(["x.tar"])

    def test_a_server_that_never_answers_is_given_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(retries, "READ_SECONDS", 0.3)
        with socket.create_server(("127.0.0.1", 0)) as mute, pytest.raises(SourceError, match="no answer in time"):
            open_source(f"http://127.0.0.1:{mute.getsockname()[1]}/b", retry_for=0).list(["x.tar"])

    def test_a_server_without_tls_is_named(self, web: FaultyServer) -> None:
        with pytest.raises(SourceError, match="speaks http, not https") as caught:
            open_source(f"{web.url.replace('http:', 'https:')}/b").list(["x.tar"])
        assert caught.value.hint == f"write {web.url}"

    def test_a_certificate_that_nobody_vouches_for_is_a_tls_error(self, tmp_path: Path) -> None:
        if not shutil.which("openssl"):
            pytest.skip("no openssl")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self_signed(tmp_path))
        with faulty_server(context) as state:
            for bucket, endpoint in (("ais://b", state.url), (f"{state.url}/b", None)):
                with pytest.raises(SourceError, match=r"TLS failed: .*self.signed certificate") as caught:
                    open_source(bucket, endpoint=endpoint).list(["x.tar"])
                assert "CA" in (caught.value.hint or "")

    def test_an_address_with_a_space_says_how_to_write_it(self) -> None:
        with pytest.raises(UsageError, match="not a valid URL") as caught:
            open_source("http://127.0.0.1/a b").list(["x.tar"])
        assert "%20" in (caught.value.hint or "")

    def test_a_second_url_is_not_a_template(self, web: FaultyServer) -> None:
        with pytest.raises(UsageError, match=r"'http://host/y\.tar' is a URL, not the name of a shard") as caught:
            open_source(f"{web.url}/b").list(["http://user:secret@host/y.tar"])
        assert "give one bucket" in (caught.value.hint or "")

    def test_unknown_schemes_are_told_the_known_ones(self) -> None:
        with pytest.raises(UsageError, match="ftp:// buckets are not supported"):
            open_source("ftp://host/x")


@pytest.mark.parametrize("status", [202, 204, 302, 304])
@pytest.mark.parametrize("method", ["HEAD", "GET"])
def test_an_answer_without_the_file_is_not_an_empty_file(web: FaultyServer, status: int, method: str) -> None:
    web.objects["b/x.tar"] = b"x"
    web.fail(f"{method} b/x", "status", times=-1, status=status)
    source = open_source(f"{web.url}/b")
    with pytest.raises(SourceError, match=f"the server answered {status}, without the file") as caught:
        read_all(source, source.list(["x.tar"])[0])
    assert caught.value.shard == f"{web.url}/b/x.tar"
    assert caught.value.hint == ("the file may not be ready yet, or may need a login: open the URL in a browser")


@pytest.mark.parametrize(
    ("url", "message", "hint"),
    [
        ("http:///x", "'http:///x' has no host", "write http://HOST/FOLDER"),
        ("https://me:pw@/x?token=y", "'https:///x' has no host", "write http://HOST/FOLDER"),
        ("http://me:pw@[h/x", "'http://[h/x' is not a valid URL", None),
    ],
)
def test_an_address_that_is_none_is_a_usage_error_without_its_secrets(url: str, message: str, hint: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        open_store(url)
    assert (caught.value.message, caught.value.hint) == (message, hint)


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("http://me:pw@h/a/b%20c.json?token=y", ("http://h/a/", "b c.json")),
        ("http://h/a/", None),
        ("http://h", None),
    ],
)
def test_the_url_of_a_file_has_a_folder(url: str, found: tuple[str, str] | None) -> None:
    parent = open_store(url).parent()
    assert (parent and (parent[0].locate(""), parent[1])) == found
    if not found:
        assert read_with_folder(url) is None


def test_a_refused_login_says_where_to_put_one(web: FaultyServer) -> None:
    web.objects["b/x.tar"] = b"x"
    web.fail("GET b/x", "status", times=-1, status=401)
    with pytest.raises(SourceError) as caught:
        open_store(f"{web.url}/b").fetch(ObjectInfo("x.tar", None, None), 0)
    message = "the server requires credentials, or rejected the given ones (401)"
    hint = "name the server's login in ~/.netrc, or write it as http://USER:PASSWORD@HOST/..."
    assert (caught.value.message, caught.value.hint) == (message, hint)


def test_a_range_beyond_the_end_means_that_the_file_has_changed(web: FaultyServer) -> None:
    web.objects["b/x.tar"] = b"x"
    web.fail("GET b/x", "status", times=-1, status=416)
    with pytest.raises(SourceError, match="changed while it was being read") as caught:
        open_store(f"{web.url}/b").fetch(ObjectInfo("x.tar", None, None), 7)
    assert (caught.value.shard, caught.value.offset) == (f"{web.url}/b/x.tar", 7)
