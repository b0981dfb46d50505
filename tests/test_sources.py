"""Every source passes one suite; what is special to HTTP and S3 comes after it. AIStore's is in test_aistore.py."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import socket
import ssl
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from servers import FaultyServer, cutting_proxy, faulty_server, free_ports, gcs_server, moto_server, self_signed
from tar2tf_cli.errors import SourceError, UsageError
from tar2tf_cli.inputs.open_shard import list_files
from tar2tf_cli.spec.templates import from_aistore
from tar2tf_cli.spec.urls import without_secrets
from tar2tf_cli.stores import ObjectInfo, Source, open_source, read_document
from tar2tf_cli.stores import transfer as resume

BIG = os.urandom(1 << 20) * 5 + b"the end"


def read_all(source: Source, item: ObjectInfo, size: int = 1 << 16) -> bytes:
    stream = source.open(item)
    try:
        return b"".join(iter(lambda: stream.read(size), b""))
    finally:
        stream.close()


def tar_of(count: int, size: int = 2000, first: int = 0) -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        for number in range(first, first + count):
            for entry, data in (("jpg", bytes([number % 251]) * size), ("cls", b"%d" % (number % 10))):
                info = tarfile.TarInfo(f"{number:06d}.{entry}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return whole.getvalue()


def tar2tf(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tar2tf_cli", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, env={**os.environ, **environment}, check=False
    )


class SourceSuite:
    """What every source must do; a subclass tells how objects get into its bucket."""

    can_list = True
    endpoint: str | None = None

    def put(self, bucket: str, name: str, data: bytes) -> None:
        raise NotImplementedError

    @pytest.fixture
    def bucket(self) -> str:
        raise NotImplementedError

    def fill(self, bucket: str, **objects: bytes) -> Source:
        for name, data in objects.items():
            self.put(bucket, name.replace("__", "/") + ".tar", data)
        return open_source(bucket, endpoint=self.endpoint)

    def test_braces_name_objects_in_their_order(self, bucket: str) -> None:
        source = self.fill(bucket, x_0=b"zero", x_1=b"one")
        items = source.list(["x_{1..0}.tar"])
        assert [(item.name, item.size) for item in items] == [("x_1.tar", 3), ("x_0.tar", 4)]
        assert all(item.version for item in items)

    def test_many_names_are_found_by_few_requests(self, bucket: str) -> None:
        source = self.fill(bucket, **{f"n_{number:02d}": b"%d" % number for number in range(30)}, n_x=b"other")
        items = source.list(["n_{00..29}.tar"])
        assert [item.size for item in items] == [1] * 10 + [2] * 20

    def test_a_glob_names_objects_sorted(self, bucket: str) -> None:
        if not self.can_list:
            pytest.skip("no listing")
        source = self.fill(bucket, b_2=b"2", b_10=b"10", other=b"x", b_sub__b_3=b"deep")
        assert [item.name for item in source.list(["b_*.tar"])] == ["b_10.tar", "b_2.tar"]
        assert [item.name for item in source.list(["**/b_*.tar"])] == ["b_10.tar", "b_2.tar", "b_sub/b_3.tar"]

    def test_without_a_template_every_tar_is_meant(self, bucket: str) -> None:
        if not self.can_list:
            pytest.skip("no listing")
        source = self.fill(bucket, one=b"1", two=b"2")
        self.put(bucket, "readme.txt", b"no shard")
        assert [item.name for item in source.list([])] == ["one.tar", "two.tar"]

    def test_a_bucket_that_names_an_object_is_that_one_shard(self, bucket: str) -> None:
        self.fill(bucket, folder__one=b"just one")
        source = open_source(f"{bucket}/folder/one.tar", endpoint=self.endpoint)
        (item,) = source.list([])
        assert (item.name, item.size, item.stem) == ("one.tar", 8, "one")
        assert read_all(source, item) == b"just one"
        assert source.locate(item.name).endswith("folder/one.tar")

    def test_a_document_is_read_by_its_url(self, bucket: str) -> None:
        if "://" not in bucket:
            pytest.skip("no URL")
        self.put(bucket, "folder/t-manifest.json", b"{}")
        assert read_document(f"{bucket}/folder/t-manifest.json", endpoint=self.endpoint) == b"{}"
        assert read_document(f"{bucket}/folder/u-manifest.json", endpoint=self.endpoint) is None

    def test_names_are_relative_to_a_folder_of_the_bucket(self, bucket: str) -> None:
        self.fill(bucket, folder__one=b"1", one=b"outside")
        source = open_source(f"{bucket}/folder", endpoint=self.endpoint)
        (item,) = source.list(["one.tar"])
        assert read_all(source, item) == b"1"

    def test_a_missing_object_is_named(self, bucket: str) -> None:
        source = self.fill(bucket, x_0=b"zero")
        with pytest.raises(SourceError, match=r"has no x_1\.tar, x_2\.tar, x_3\.tar and 16 more"):
            source.list(["x_{0..19}.tar"])

    @pytest.mark.parametrize("name", ["a b.tar", "ä+1%.tar", "q?r#s.tar"])
    def test_odd_names_are_read(self, bucket: str, name: str) -> None:
        self.put(bucket, name, b"odd")
        source = open_source(bucket, endpoint=self.endpoint)
        (item,) = source.list([name])
        assert read_all(source, item) == b"odd"

    def test_all_bytes_come_whatever_is_asked_for_at_once(self, bucket: str) -> None:
        source = self.fill(bucket, big=BIG)
        (item,) = source.list(["big.tar"])
        for size in (1000, 1 << 16, 1 << 24):
            assert read_all(source, item, size) == BIG

    def test_an_object_without_bytes_is_read(self, bucket: str) -> None:
        source = self.fill(bucket, empty=b"")
        (item,) = source.list(["empty.tar"])
        assert (item.size, read_all(source, item)) == (0, b"")

    def test_an_object_is_read_by_its_name_alone(self, bucket: str) -> None:
        source = self.fill(bucket, x=b"known by name")
        assert read_all(source, ObjectInfo("x.tar", None, None)) == b"known by name"

    def test_the_url_of_an_object_is_that_object(self, bucket: str) -> None:
        self.fill(bucket, x=tar_of(3))
        source = open_source(f"{bucket}/x.tar", endpoint=self.endpoint)
        (item,) = list_files(source, ())  # as `inspect` and `verify` do
        assert source.locate(item.name) == f"{bucket}/x.tar"
        assert read_all(source, item) == tar_of(3)

    def test_a_missing_object_cannot_be_opened(self, bucket: str) -> None:
        source = self.fill(bucket, x=b"x")
        with pytest.raises(SourceError) as caught:
            read_all(source, ObjectInfo("y.tar", None, None))
        assert "y.tar" in (caught.value.shard or "")

    def test_a_replaced_object_is_an_error(self, bucket: str) -> None:
        source = self.fill(bucket, x=b"before")
        (item,) = source.list(["x.tar"])
        time.sleep(0.02)  # a coarse clock must see the difference
        self.put(bucket, "x.tar", b"after!")
        with pytest.raises(SourceError, match="changed while it was being"):
            read_all(source, item)

    def test_a_stream_may_be_closed_early(self, bucket: str) -> None:
        source = self.fill(bucket, big=BIG)
        (item,) = source.list(["big.tar"])
        for _ in range(3):
            stream = source.open(item)
            assert stream.read(10)
            stream.close()

    def test_a_pickled_source_reads(self, bucket: str) -> None:
        source = self.fill(bucket, x=b"pickled")
        (item,) = source.list(["x.tar"])
        again: Source = pickle.loads(pickle.dumps(source))
        assert read_all(again, item) == b"pickled"

    @pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
    def test_a_forked_process_reads(self, bucket: str) -> None:
        source = self.fill(bucket, big=BIG)
        (item,) = source.list(["big.tar"])
        assert read_all(source, item) == BIG
        pid = os.fork()
        if not pid:
            os._exit(0 if read_all(source, item) == BIG else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

    def test_converting_gives_the_same_bytes_as_from_a_directory(self, bucket: str, tmp_path: Path) -> None:
        (tmp_path / "shards").mkdir()
        for number in range(4):
            data = tar_of(50, first=50 * number)
            (tmp_path / "shards" / f"s-{number}.tar").write_bytes(data)
            self.put(bucket, f"s-{number}.tar", data)
        outputs = []
        for source in (str(tmp_path / "shards"), bucket):
            out = tmp_path / f"out{len(outputs)}"
            options = ["--endpoint", self.endpoint] if self.endpoint and source is bucket else []
            done = tar2tf(
                "convert", source, "s-{0..3}.tar", "-o", out / "t-<>.record", "--records-per-shard", "70", *options
            )
            assert done.returncode == 0, done.stderr
            outputs.append({path.name: path.read_bytes() for path in out.glob("*.record")})
        assert len(outputs[0]) == 3
        assert outputs[0] == outputs[1]


class TestDirectory(SourceSuite):
    @pytest.fixture
    def bucket(self, tmp_path: Path) -> str:
        return str(tmp_path / "bucket")

    def put(self, bucket: str, name: str, data: bytes) -> None:
        path = Path(bucket, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


@pytest.fixture(scope="module")
def server() -> Iterator[FaultyServer]:
    with faulty_server() as state:
        yield state


@pytest.fixture
def web(server: FaultyServer) -> FaultyServer:
    server.objects.clear()
    server.faults.clear()
    server.log.clear()
    server.etags = True
    return server


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses and time-outs as short as a test can bear."""
    monkeypatch.setattr(resume, "_PAUSES", (0.01,) * 4)
    for module in ("http", "ais", "cloud"):
        monkeypatch.setattr(f"tar2tf_cli.stores.{module}.READ_SECONDS", 0.5)


class TestHttp(SourceSuite):
    can_list = False

    @pytest.fixture
    def bucket(self, web: FaultyServer) -> str:
        self.web = web
        return f"{web.url}/bucket"

    def put(self, bucket: str, name: str, data: bytes) -> None:
        self.web.objects[f"bucket/{name}"] = data


@pytest.mark.usefixtures("hurry")
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
        if after > resume.ResumingStream.BLOCK:
            offset = int(str(asked[1]).removeprefix("bytes=").rstrip("-"))
            assert after - resume.ResumingStream.BLOCK <= offset <= after

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
        with pytest.raises(SourceError, match="given up after 5 attempts") as caught:
            read_all(source, item)
        assert caught.value.shard == f"{web.url}/b/x.tar"
        assert caught.value.offset == 600_000

    def test_progress_earns_more_attempts(self, web: FaultyServer, source: Source, item: ObjectInfo) -> None:
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

    @pytest.mark.parametrize(("status", "words"), [(401, "credentials"), (403, "permission denied"), (404, "no such")])
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
        web.fail("GET b/x", "stall", after=3 * resume.ResumingStream.BLOCK)
        stream = source.open(item)
        assert stream.read(1000)
        stream.close()

    def test_inputs_that_are_expected_are_asked_for_all_at_once(self, web: FaultyServer, source: Source) -> None:
        assert source.remote
        for number in range(8):
            web.objects[f"b/y-{number}.tar"] = b"%d" % number
        items = source.list(["y-{0..7}.tar"])
        web.log.clear()
        all_there, take = threading.Barrier(8), web.take

        def together(request: str) -> Any:
            all_there.wait(timeout=20)
            return take(request)

        web.take = together  # type: ignore[method-assign]
        try:
            with source.expecting(items):
                assert [read_all(source, item) for item in items] == [b"%d" % number for number in range(8)]
        finally:
            web.take = take  # type: ignore[method-assign]
        assert len(web.log) == 8

    def test_what_was_expected_and_not_opened_is_let_go_of(
        self, web: FaultyServer, source: Source, item: ObjectInfo
    ) -> None:
        assert source.remote
        with source.expecting([item]):
            while not web.log or web.log[-1][0] != "GET":
                time.sleep(0.01)
        web.log.clear()
        assert read_all(source, item) == BIG
        assert [entry[0] for entry in web.log] == ["GET"]

    def test_sizes_are_asked_for_in_parallel(self, web: FaultyServer, source: Source) -> None:
        for number in range(32):
            web.objects[f"b/y-{number}.tar"] = b"y"
        together, most, lock = 0, 0, threading.Lock()
        take = web.take

        def slow(request: str) -> Any:
            nonlocal together, most
            with lock:
                together += 1
                most = max(most, together)
            time.sleep(0.05)
            with lock:
                together -= 1
            return take(request)

        web.take = slow  # type: ignore[method-assign]
        try:
            assert len(source.list(["y-{0..31}.tar"])) == 32
        finally:
            web.take = take  # type: ignore[method-assign]
        assert most > 8

    def test_a_small_shard_costs_one_request(self, web: FaultyServer, source: Source) -> None:
        web.objects["b/small.tar"] = b"small"
        (item,) = source.list(["small.tar"])
        web.log.clear()
        assert read_all(source, item) == b"small"
        assert web.log == [("GET", "b/small.tar", None)]

    def test_the_error_of_a_worker_reaches_the_user_as_one_line(self, web: FaultyServer, tmp_path: Path) -> None:
        web.objects["b/t.tar"] = tar_of(20, 100_000)
        web.fail("GET b/t", "status", times=-1, status=403)
        done = tar2tf("convert", f"{web.url}/b", "t.tar", "-o", tmp_path / "o.record")
        assert done.returncode == 3
        assert f"error: {web.url}/b/t.tar: permission denied (403)" in done.stderr
        web.faults.clear()
        done = tar2tf("convert", f"{web.url}/b", "t.tar", "-o", tmp_path / "o.record")
        assert done.returncode == 0, done.stderr


class TestHttpUsage:
    @pytest.mark.parametrize("templates", [["*.tar"], ["x-*.tar"]])
    def test_a_glob_is_a_usage_error(self, web: FaultyServer, templates: list[str]) -> None:
        with pytest.raises(UsageError, match="cannot be listed") as caught:
            open_source(f"{web.url}/b").list(templates)
        assert "braces" in (caught.value.hint or "")

    def test_a_file_that_is_not_there_is_named(self, web: FaultyServer) -> None:
        source = open_source(f"{web.url}/b/nope.tar")
        with pytest.raises(SourceError, match="there is no such file") as caught:
            list_files(source, ())
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

    def test_a_refused_connection_fails_within_seconds(self) -> None:
        began = time.monotonic()
        with pytest.raises(SourceError, match="Connection refused; given up after 5 attempts"):
            open_source(f"http://127.0.0.1:{free_ports(1)[0]}/b").list(["x.tar"])
        assert time.monotonic() - began < 6

    def test_a_server_that_never_answers_is_given_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(resume, "_PAUSES", (0.01,))
        monkeypatch.setattr("tar2tf_cli.stores.http.READ_SECONDS", 0.3)
        with socket.create_server(("127.0.0.1", 0)) as mute, pytest.raises(SourceError, match="no answer within"):
            open_source(f"http://127.0.0.1:{mute.getsockname()[1]}/b").list(["x.tar"])

    def test_a_server_without_tls_is_a_tls_error(self, web: FaultyServer) -> None:
        with pytest.raises(SourceError, match="TLS failed"):
            open_source(f"{web.url.replace('http:', 'https:')}/b").list(["x.tar"])

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

    def test_unknown_schemes_are_told_the_known_ones(self) -> None:
        with pytest.raises(UsageError, match="there are no ftp:// buckets"):
            open_source("ftp://host/x")


SECRETS = [
    "s3://user:secret@bucket/folder",
    "s3://KEY:sec/secret+@bucket/folder",
    "s3://secret@bucket",
    "s3://bucket/folder?token=secret",
    "gs://user:secret@bucket/folder",
    "gs://bucket/x.json?token=secret",
    "ais://user:secret@bucket",
    "ais://bucket/folder?token=secret",
    "ais+s3://user:secret@bucket/folder",
    "gopher://user:secret@bucket",
]


class TestSecrets:
    def run(self, capfd: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[object, str]:
        """Exit code and all output of a command in this process."""
        from tar2tf_cli.cli import main

        with pytest.raises(SystemExit) as ended:
            main([*map(str, arguments)])
        return ended.value.code, "".join(capfd.readouterr())

    @pytest.mark.parametrize("url", SECRETS)
    def test_credentials_where_they_do_not_belong_are_refused_and_not_repeated(
        self, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        (tmp_path / "shards").mkdir()
        (tmp_path / "shards" / "s.tar").write_bytes(tar_of(3))
        (tmp_path / "spec.yaml").write_text(f"input: {{bucket: '{url}'}}\noutput: {{path: '{tmp_path}/x.record'}}")
        for command in (
            ["verify", url],
            ["inspect", url],
            ["convert", url, "-o", tmp_path / "x.record"],
            ["convert", url, "-o", tmp_path / "x.record", "--dry-run"],
            ["convert", "--spec", tmp_path / "spec.yaml"],
            ["convert", tmp_path / "shards", "-o", f"{url}/x-<>.record"],
            ["convert", tmp_path / "shards", "-o", url.replace("folder", "folder/x-<>.record")],
            ["convert", tmp_path / "shards", "-o", f"{url}/"],
        ):
            code, said = self.run(capfd, *command)
            assert (code, said.count("error:"), "secret" in said) == (2, 1, False), said
        assert sorted(os.listdir(tmp_path)) == ["shards", "spec.yaml"]

    def test_what_is_no_secret_stays(self) -> None:
        plain = ["ais://@uuid#ns/b/x", "ais://#ns/b", "s3://b/a:b@c/d", "s3://b/train-?.tar", "out/a:b@c?x=1", "-"]
        assert [without_secrets(url) for url in plain] == plain
        assert without_secrets("https://user:secret@host:1/a@b?sig=secret#secret") == "https://host:1/a@b"

    def test_those_of_a_web_address_are_kept_nowhere(
        self, web: FaultyServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        for number in range(4):
            web.objects[f"b/s-{number}.tar"] = tar_of(40, first=40 * number)
        web.fail("GET b/s-3", "status", times=1, status=403)
        url = web.url.replace("http://", "http://user:secret@") + "/b/?sig=secret"
        command = ["convert", url, "s-{0..3}.tar", "-o", tmp_path / "x-<>.record", "--records-per-shard", "30", "-v"]
        for words, code in (("--dry-run", 0), ("permission denied (403)", 3), ("continuing", 0), ("up to date", 0)):
            found, said = self.run(capfd, *command, *([words] if words == "--dry-run" else ["-j", "1"]))
            assert (found, words in said or words == "--dry-run", "secret" in said) == (code, True, False), said
            kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
            assert b"secret" not in kept
            assert bool(kept) == (words != "--dry-run")
        for options in (["-v"], ["-n", "1"], ["--json"]):
            found, said = self.run(capfd, "inspect", url, "s-{0..3}.tar", "-j", "1", *options)
            assert (found, "secret" in said) == (0, False), said
        for command in (
            ["inspect", url, "no.tar"],
            ["verify", url, "no.tar"],
            ["inspect", f"{url}/no"],
            ["verify", url],
        ):
            found, said = self.run(capfd, *command)
            assert (found in (2, 3), "secret" in said) == (True, False), said

    @pytest.mark.usefixtures("hurry")
    @pytest.mark.parametrize("bucket", ["ais://b", "s3://b"])
    def test_those_of_an_endpoint_are_not_shown(
        self, bucket: str, s3: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        endpoint = f"http://user:secret@127.0.0.1:{free_ports(1)[0]}"
        code, said = self.run(capfd, "convert", bucket, "-o", tmp_path / "x.record", "--endpoint", endpoint)
        assert (code, said.count("error:"), "secret" in said) == (3, 1, False), said

    @pytest.mark.parametrize(
        "url", ["http://user:secret@[::1/b", "http://user:secret@h:99999/b", "http://user:secret@"]
    )
    def test_an_address_that_is_none_does_not_show_them(self, url: str) -> None:
        with pytest.raises(UsageError) as caught:
            open_source(f"{url}?sig=secret").list(["x.tar"])
        assert "secret" not in str(caught.value)


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    pytest.importorskip("s3fs", reason="no s3fs: pip install 'tar2tf-cli[s3]'")
    pytest.importorskip("moto.server", reason="no moto: pip install 'moto[server]'")
    before = dict(os.environ)
    with moto_server() as url:
        os.environ.update(
            AWS_ENDPOINT_URL=url,
            AWS_ACCESS_KEY_ID="testing",
            AWS_SECRET_ACCESS_KEY="testing",
            AWS_DEFAULT_REGION="us-east-1",
        )
        try:
            yield url
        finally:
            os.environ.clear()
            os.environ.update(before)


@pytest.fixture(scope="module")
def s3_client(s3: str) -> Any:
    import boto3

    return boto3.client("s3")


class TestS3(SourceSuite):
    @pytest.fixture
    def bucket(self, s3_client: Any, request: pytest.FixtureRequest) -> str:
        self.client = s3_client
        name = f"b{abs(hash(request.node.nodeid)):x}"
        s3_client.create_bucket(Bucket=name)
        return f"s3://{name}"

    def put(self, bucket: str, name: str, data: bytes) -> None:
        self.client.put_object(Bucket=bucket.removeprefix("s3://"), Key=name, Body=data)

    def test_a_listing_goes_on_over_pages(self, bucket: str) -> None:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: self.put(bucket, f"p-{number:04d}.tar", b"p"), range(1005)))
        assert len(open_source(bucket).list(["p-*.tar"])) == 1005

    def test_damaged_bytes_do_not_pass_the_checksum(self, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
        from tar2tf_cli.stores import cloud

        self.client.put_object(Bucket=bucket.removeprefix("s3://"), Key="x.tar", Body=BIG, ChecksumAlgorithm="CRC32")
        source = open_source(bucket)
        (item,) = source.list(["x.tar"])
        told = cloud._s3_checksum
        seen = []
        monkeypatch.setattr(cloud, "_s3_checksum", lambda answer: seen.append(told(answer)) or ("crc32c", "0" * 8))
        with pytest.raises(SourceError, match="checksum"):
            read_all(source, item)
        assert seen[0] is not None
        assert seen[0][0] == "crc32"

    @pytest.mark.usefixtures("hurry")
    @pytest.mark.parametrize("kind", ["close", "stall"])
    def test_a_broken_transfer_goes_on_where_it_stopped(self, bucket: str, s3: str, kind: str) -> None:
        self.put(bucket, "x.tar", BIG)
        cuts = [(1_000_000, kind), (2_000_000, kind)]
        with cutting_proxy(urlsplit(s3).port or 0, cuts) as port:
            source = open_source(bucket, endpoint=f"http://127.0.0.1:{port}")
            (item,) = source.list(["x.tar"])
            assert read_all(source, item) == BIG
        assert not cuts

    def test_a_missing_bucket_is_named(self, s3: str) -> None:
        with pytest.raises(SourceError) as caught:
            open_source("s3://there-is-no-such-bucket").list(["*.tar"])
        assert caught.value.shard == "s3://there-is-no-such-bucket"

    def test_a_wrong_endpoint_fails_within_seconds(self, s3: str) -> None:
        began = time.monotonic()
        with pytest.raises(SourceError, match="given up after 5 attempts"):
            open_source("s3://b", endpoint=f"http://127.0.0.1:{free_ports(1)[0]}").list(["*.tar"])
        assert time.monotonic() - began < 15


class _Refusal(BaseHTTPRequestHandler):
    status, code, asked = 403, "AccessDenied", 0

    def do_GET(self) -> None:
        type(self).asked += 1
        body = f"<Error><Code>{self.code}</Code><Message>said the server</Message></Error>".encode()
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.usefixtures("s3", "hurry")
@pytest.mark.parametrize(
    ("status", "code", "words", "attempts"),
    [
        (403, "AccessDenied", "permission denied", 1),
        (400, "ExpiredToken", "permission denied", 1),
        (403, "InvalidAccessKeyId", "permission denied", 1),
        (404, "NoSuchBucket", "no such bucket", 1),
        (503, "SlowDown", "given up after 5 attempts", 5),
    ],
)
def test_a_refusal_of_s3_is_one_clear_error(status: int, code: str, words: str, attempts: int) -> None:
    handler = type("Handler", (_Refusal,), {"status": status, "code": code, "asked": 0})
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        with pytest.raises(SourceError, match=words) as caught:
            open_source("s3://b", endpoint=f"http://127.0.0.1:{server.server_port}").list(["*.tar"])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert caught.value.shard == "s3://b"
    assert handler.asked == attempts


@pytest.fixture(scope="module")
def gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("gcsfs", reason="no gcsfs: pip install 'tar2tf-cli[gcs]'")
    server = gcs_server(tmp_path_factory.mktemp("gcs"))
    try:
        url = server.__enter__()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    try:
        yield url
    finally:
        server.__exit__(None, None, None)


class TestGcs(SourceSuite):
    @pytest.fixture
    def bucket(self, gcs: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs)
        self.url = gcs
        name = f"b{abs(hash(request.node.nodeid)):x}"
        requests.post(f"{gcs}/storage/v1/b", json={"name": name}, timeout=5).raise_for_status()
        return f"gs://{name}"

    def test_a_missing_bucket_is_an_error(self, bucket: str) -> None:
        with pytest.raises(SourceError) as caught:
            open_source("gs://no-such-bucket-anywhere").list(["*.tar"])
        assert caught.value.shard == "gs://no-such-bucket-anywhere"

    def put(self, bucket: str, name: str, data: bytes) -> None:
        url = f"{self.url}/upload/storage/v1/b/{bucket.removeprefix('gs://')}/o"
        requests.post(url, params={"uploadType": "media", "name": name}, data=data, timeout=5).raise_for_status()


def test_a_missing_extra_is_answered_with_the_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, extra in (("s3fs", "s3"), ("gcsfs", "gcs")):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(UsageError, match="extra") as caught:
            open_source(f"{'s3' if extra == 's3' else 'gs'}://bucket").list(["x.tar"])
        assert caught.value.hint == f"pip install 'tar2tf-cli[{extra}]'"


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("p-@100-s", "p-{000..100}-s"),
        ("p-@00100", "p-{00000..00100}"),
        ("p-@2-g-@010-s", "p-{0..2}-g-{000..010}-s"),
        ("p-%06d.tar", "p-%06d.tar"),
        ("p-{0..3}@2", "p-{0..3}@2"),
        ("plain.tar", "plain.tar"),
    ],
)
def test_templates_of_aistore_are_read(theirs: str, ours: str) -> None:
    assert from_aistore(theirs) == ours


def test_help_does_not_need_any_sdk() -> None:
    imports = "import sys, tar2tf_cli.cli, tar2tf_cli.conversion.run"
    code = f"{imports}; print({{'requests', 'aistore', 'fsspec'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
