"""Shards in S3."""

from __future__ import annotations

import errno
import hashlib
import os
import pickle
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from commands import tar2tf
from servers import Forwarder, QuietHandler, cutting_proxy, nobody_listens, serving
from shards import write_tar
from sources import BucketSuite
from tar2tf_cli import open_records
from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.errors import MachineError, SourceError, UsageError
from tar2tf_cli.stores import cloud, open_source, open_store, retries
from tar2tf_cli.stores.cloud import S3Store
from tar2tf_cli.stores.objects import look_up
from tar2tf_cli.stores.source import ObjectSource
from tar2tf_cli.testing.shards import read_all
from tar2tf_cli.testing.sources import BIG

pytestmark = pytest.mark.xdist_group("s3")


def anonymous_memory() -> int:
    """Bytes of this process that are not pages of files."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) << 10


KEYS = "aws_access_key_id = a\naws_secret_access_key = b\n"


def aws_files(home: Path, **profiles: dict[str, str]) -> None:
    """Write AWS's files: what each profile has, by the name of the file."""
    (home / ".aws").mkdir()
    for file, sections in profiles.items():
        prefix = "profile " if file == "config" else ""
        text = "".join(f"[{'' if name == 'default' else prefix}{name}]\n{lines}" for name, lines in sections.items())
        (home / ".aws" / file).write_text(text)


def only_aws(monkeypatch: pytest.MonkeyPatch, home: Path, **variables: str) -> None:
    """Have a home of AWS's files, and no variables of AWS but these."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


class TestS3(BucketSuite):
    @pytest.fixture
    def bucket(self, s3_client: Any, request: pytest.FixtureRequest) -> str:
        self.client = s3_client
        name = f"b{abs(hash(request.node.nodeid)):x}"
        s3_client.create_bucket(Bucket=name)
        return f"s3://{name}"

    def put(self, bucket: str, name: str, data: bytes) -> None:
        self.client.put_object(Bucket=bucket.removeprefix("s3://"), Key=name, Body=data)

    def test_a_listing_goes_on_over_pages(self, bucket: str, s3: str) -> None:
        for number in range(205):
            self.put(bucket, f"p-{number:04d}.tar", b"p")
        asked: list[str] = []

        class Logging(Forwarder):
            url = s3

            def do_GET(self) -> None:
                asked.append(self.path)
                super().do_GET()

        with serving(Logging) as url:
            assert len(open_source(bucket, endpoint=url).list(["p-*.tar"])) == 205
        assert ["continuation-token" in path for path in asked[-4:]] == [False, True, True, False]
        assert asked[-1].endswith("start-after=p-0203.tar")  # a page of the last object alone: nothing is behind it

    @pytest.mark.usefixtures("quick_retries")
    @pytest.mark.parametrize("kind", ["close", "stall"])
    def test_a_broken_transfer_goes_on_where_it_stopped(
        self, bucket: str, s3: str, kind: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if kind == "stall":
            monkeypatch.setattr(retries, "READ_SECONDS", 0.5)
        self.put(bucket, "x.tar", BIG)
        cuts = [(1_000_000, kind), (2_000_000, kind)]
        with cutting_proxy(urlsplit(s3).port or 0, cuts) as port:
            source = open_source(bucket, endpoint=f"http://127.0.0.1:{port}")
            (item,) = source.list(["x.tar"])
            assert read_all(source, item) == BIG
        assert not cuts

    def test_shards_and_manifests_in_a_folder_with_a_question_mark_are_found(
        self, bucket: str, s3: str, tmp_path: Path
    ) -> None:
        write_tar(tmp_path / "a.tar", [("a", {"txt": b"x"})])
        assert tar2tf("convert", tmp_path, "-o", tmp_path / "out/x-<>.record").returncode == 0
        for path in (tmp_path / "out").iterdir():
            self.put(bucket, f"which?/{path.name}", path.read_bytes())
        for name in ("which?", "which?/_x-manifest.json", "which?/*-manifest.json", "which?/x-{1..1}.record"):
            assert [record["__key__"] for record in open_records(f"{bucket}/{name}")] == [b"a"], name

    def test_a_missing_bucket_is_named(self, s3: str) -> None:
        with pytest.raises(SourceError) as caught:
            open_source("s3://there-is-no-such-bucket").list(["*.tar"])
        assert caught.value.shard == "s3://there-is-no-such-bucket"

    def test_a_folder_made_by_a_console_is_not_a_shard(self, bucket: str) -> None:
        for name in ("folder/", "folder/x.tar", "empty/", "empty.tar"):
            self.put(bucket, name, b"")
        assert [item.name for item in open_source(bucket).list(["*"])] == ["empty.tar"]

    def test_a_name_that_cannot_be_read_is_an_error_at_once(self, bucket: str) -> None:
        self.put(bucket, "folder//x.tar", b"x")
        for template in ("folder//x.tar", "**/*.tar"):
            with pytest.raises(SourceError, match="empty path segment") as caught:
                open_source(bucket).list([template])
            assert "write single slashes, rename such objects" in (caught.value.hint or "")
        self.put(bucket, "good/x.tar", b"x")
        assert [item.name for item in open_source(bucket).list(["good/*.tar"])] == ["good/x.tar"]

    @pytest.mark.parametrize("size", [0, 5, 100_000_000])
    def test_an_upload_is_one_request_in_flat_memory(self, bucket: str, s3: str, tmp_path: Path, size: int) -> None:
        with (tmp_path / "part").open("wb") as file:
            file.truncate(size)
        logged: list[str] = []

        class Logging(Forwarder):
            url = s3

            def do_GET(self) -> None:
                logged.append(f"{self.command} {self.path}")
                super().do_GET()

        open_store(bucket).put("warm", str(tmp_path / "part"))
        before, most, done = anonymous_memory(), 0, threading.Event()

        def watch() -> None:
            nonlocal most
            while not done.wait(0.01):
                most = max(most, anonymous_memory())

        watching = threading.Thread(target=watch)
        watching.start()
        open_store(bucket).put("x.tar", str(tmp_path / "part"))
        done.set()
        watching.join()
        assert most - before < 30 << 20
        with serving(Logging) as url:
            open_store(bucket, endpoint=url).put("y.tar", str(tmp_path / "part"))
        assert logged == [f"PUT /{bucket.removeprefix('s3://')}/y.tar"]
        assert [item.size for item in open_source(bucket).list(["{x,y}.tar"])] == [size, size]

    @pytest.mark.parametrize("variables", [{}, {"AWS_PROFILE": "there-is-none"}])
    def test_missing_credentials_are_named_at_once(
        self, bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variables: dict[str, str]
    ) -> None:
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setattr(retries.RetryPolicy, "wait", None)  # nothing is tried again
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        refused = pytest.raises((SourceError, UsageError), match=r"no credentials were found|could not be found")
        with nobody_listens() as port, refused as caught:
            monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{port}")
            open_source(bucket).list(["*.tar"])
        assert "AWS_PROFILE" in (caught.value.hint or "")

    @pytest.mark.parametrize("in_config", [False, True])
    def test_the_keys_of_a_profile_are_used_without_boto3(
        self, bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, in_config: bool
    ) -> None:
        self.put(bucket, "x.tar", b"x")
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        monkeypatch.setitem(sys.modules, "obstore.auth.boto3", None)
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("AWS_PROFILE", "mine")
        aws_files(tmp_path, **{"config" if in_config else "credentials": {"mine": KEYS}})
        with nobody_listens() as port:
            monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{port}")
            assert len(open_source(bucket).list(["*.tar"])) == 1

    def test_a_role_takes_boto3(self, bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.setitem(sys.modules, "obstore.auth.boto3", None)
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("AWS_PROFILE", "mine")
        aws_files(tmp_path, credentials={"mine": KEYS}, config={"mine": "role_arn = arn:aws:iam::1:role/r\n"})
        with pytest.raises(UsageError) as caught:
            open_source(bucket).list(["*.tar"])
        assert "pip install boto3" in (caught.value.hint or "")

    @pytest.mark.parametrize("variable", ["AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CA_BUNDLE"])
    def test_a_file_that_a_variable_names_and_is_not_there_is_named_with_the_variable(
        self, bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
    ) -> None:
        if variable != "AWS_CA_BUNDLE":
            monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv(variable, "/nowhere/aws")
        with pytest.raises(UsageError, match=f"^{variable} is set to /nowhere/aws, which does not exist$"):
            open_source(bucket).list(["*.tar"])

    def test_files_without_credentials_are_named(
        self, bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        (tmp_path / "config").write_text("[profile mine]\nregion = us-east-1\n")
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
        monkeypatch.setenv("AWS_PROFILE", "mine")
        with pytest.raises(UsageError, match="no credentials") as caught:
            open_source(bucket).list(["*.tar"])
        assert "AWS_PROFILE" in (caught.value.hint or "")

    def test_a_sign_on_that_expired_is_an_error_at_once(
        self, bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.setenv("HOME", str(tmp_path))
        sso = "sso_start_url = https://x.invalid/start\nsso_region = us-east-1\nsso_account_id = 1\nsso_role_name = r\n"
        (tmp_path / "config").write_text(f"[profile mine]\nregion = us-east-1\n{sso}")
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
        monkeypatch.setenv("AWS_PROFILE", "mine")
        monkeypatch.setattr(retries.RetryPolicy, "wait", None)  # nothing is tried again
        with pytest.raises(SourceError, match="SSO Token") as caught:
            open_source(bucket).list(["*.tar"])
        assert "aws sso login" in (caught.value.hint or "")

    def test_ctrl_c_does_not_wait_for_a_server_that_is_silent(self, s3: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as mute:

            def interrupt() -> None:
                with mute.accept()[0] as connection:
                    connection.recv(1)  # the request
                    os.kill(os.getpid(), signal.SIGINT)
                    ended.wait(100)

            ended, thread = threading.Event(), threading.Thread(target=interrupt)
            thread.start()
            try:
                with pytest.raises(KeyboardInterrupt):
                    open_source("s3://b", endpoint=f"http://127.0.0.1:{mute.getsockname()[1]}").list(["*.tar"])
                assert thread.is_alive(), "the server is still silent"
            finally:
                ended.set()
                thread.join()

    @pytest.mark.parametrize("endpoint", ["http://a b", "http://[::1", "http://h:99999", "ftp://host", "http://"])
    def test_an_endpoint_that_is_not_a_url_is_a_usage_error(self, endpoint: str) -> None:
        with pytest.raises(UsageError, match="is not a URL"):
            open_source("s3://b", endpoint=endpoint)

    def test_an_endpoint_where_nobody_listens_is_named(self, s3: str) -> None:
        with nobody_listens() as port:
            endpoint = f"http://127.0.0.1:{port}"
            with pytest.raises(SourceError, match=f"{endpoint}: Connection refused.*; gave up after 1 attempt "):
                open_source("s3://b", endpoint=endpoint, retry_for=0).list(["*.tar"])


class _Drip(QuietHandler):
    """Sends the beginning of an answer, and then a byte now and then: of the body or, to HEAD, of a header."""

    def do_GET(self) -> None:
        about = {"ETag": '"1"', "Content-Length": "1000000", "Last-Modified": "Mon, 23 Nov 2026 17:47:15 GMT"}
        ranged = "Range" in self.headers
        if ranged:
            about |= {"Content-Length": "500000", "Content-Range": "bytes 0-499999/500000"}
        head = "HTTP/1.1 206 Part\r\n" if ranged else "HTTP/1.1 200 OK\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in about.items())
        self.wfile.write((head + ("\r\n" if self.command == "GET" else "x-more: ")).encode())
        with suppress(OSError):
            for _ in range(60):
                self.wfile.write(b"x")
                self.wfile.flush()
                time.sleep(0.05)

    do_HEAD = do_GET


@pytest.mark.usefixtures("s3")
@pytest.mark.parametrize("what", ["listing", "head", "range"])
def test_an_answer_that_comes_byte_by_byte_is_given_up(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "READ_SECONDS", 0.5)
    monkeypatch.setattr(retries, "CONNECT_SECONDS", 0.5)
    monkeypatch.setenv("TAR2TF_MIN_RATE", "1e9")
    began = time.monotonic()
    with serving(_Drip) as url:
        store = open_store("s3://bucket", endpoint=url, retry_for=0)
        ask: dict[str, Callable[[], object]] = {
            "listing": lambda: ObjectSource(store).list(["*.tar"]),
            "head": lambda: look_up(store, "x.tar"),
            "range": lambda: ObjectSource(store).ranges().read(ObjectInfo("x.tar", 500_000, "1"), 0, 500_000),
        }
        with pytest.raises(SourceError, match=r"the answer did not come in 1 s|no answer in time"):
            ask[what]()
    assert time.monotonic() - began < 3


@pytest.mark.parametrize(
    ("headers", "variables", "is_checked"),
    [
        ({}, {}, True),
        ({"x-amz-server-side-encryption": "AES256"}, {}, True),
        ({"x-amz-server-side-encryption": "aws:kms"}, {}, False),
        ({"x-amz-server-side-encryption-customer-algorithm": "AES256"}, {}, False),
        ({}, {"TAR2TF_CHECK_ETAG": "0"}, False),
    ],
)
@pytest.mark.usefixtures("s3")
def test_an_etag_that_is_no_md5_is_not_taken_for_one(
    headers: dict[str, str], variables: dict[str, str], is_checked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    class Encrypted(QuietHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            about = {"ETag": f'"{"0" * 32}"', "Content-Length": "5", "Last-Modified": "Mon, 23 Nov 2026 17:47:15 GMT"}
            for name, value in {**about, **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(b"bytes")

        do_HEAD = do_GET

    with serving(Encrypted) as url:
        source = open_source("s3://bucket", endpoint=url)
        (item,) = source.list(["x.tar"])
        with pytest.raises(SourceError, match="the checksum") if is_checked else nullcontext():
            assert read_all(source, item) == b"bytes"


class _Refusal(QuietHandler):
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


@pytest.mark.usefixtures("s3", "quick_retries")
@pytest.mark.parametrize(
    ("status", "code", "words", "attempts"),
    [
        (403, "AccessDenied", "permission denied", 1),
        (403, "NotKnownToUs", r"permission denied \(403\): said the server", 1),
        (400, "ExpiredToken", "the credentials expired: said the server", 1),
        (403, "InvalidAccessKeyId", "wrong access key: said the server", 1),
        (403, "SignatureDoesNotMatch", "wrong secret key: said the server", 1),
        (400, "AuthorizationHeaderMalformed", "wrong region: said the server", 1),
        (301, "PermanentRedirect", "wrong region", 1),
        (404, "NoSuchBucket", "no such bucket", 1),
        (503, "SlowDown", "gave up after", 0),
    ],
)
def test_a_refusal_of_s3_is_one_clear_error(status: int, code: str, words: str, attempts: int) -> None:
    handler = type("Handler", (_Refusal,), {"status": status, "code": code, "asked": 0})
    with serving(handler) as url, pytest.raises(SourceError, match=words) as caught:
        open_source("s3://b", endpoint=url).list(["*.tar"])
    assert caught.value.shard == "s3://b"
    assert handler.asked == attempts or (not attempts and handler.asked > 2)


@pytest.mark.parametrize(
    ("credentials", "config", "variables", "found"),
    [
        ({"default": KEYS}, {}, {}, {"aws_access_key_id": "a", "aws_secret_access_key": "b"}),
        (
            {"p": KEYS + "aws_session_token = t\n", "default": "aws_access_key_id = other\n"},
            {"p": "aws_session_token = old\nregion = eu-west-1\n"},
            {"AWS_PROFILE": "p"},
            {"aws_access_key_id": "a", "aws_secret_access_key": "b", "aws_session_token": "t", "region": "eu-west-1"},
        ),
        (
            {},
            {"default": f"{KEYS}region = eu-west-1\n"},
            {"AWS_REGION": "us-east-1"},
            {"aws_access_key_id": "a", "aws_secret_access_key": "b"},
        ),
        ({"default": KEYS}, {}, {"AWS_ACCESS_KEY_ID": "mine"}, {}),
        ({"default": KEYS}, {}, {"AWS_PROFILE": "other"}, {}),
        ({"default": "aws_access_key_id = a\n"}, {}, {}, {}),
        ({"default": KEYS}, {"default": "sso_session = s\n"}, {}, {}),
        ({"default": KEYS}, {"default": "credential_process = tool\n"}, {}, {}),
        ({"default": "not = a file\nof keys"}, {}, {}, {}),
        ({}, {}, {}, {}),
    ],
)
def test_keys_are_found_as_aws_finds_them(
    credentials: dict[str, str],
    config: dict[str, str],
    variables: dict[str, str],
    found: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    only_aws(monkeypatch, tmp_path, **variables)
    aws_files(tmp_path, credentials=credentials, config=config)
    assert cloud.aws_keys() == found


@pytest.mark.parametrize(
    ("given", "variables", "found"),
    [
        (None, {}, "http://127.0.0.1:1"),
        (None, {"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}, None),
        (None, {"AWS_ENDPOINT_URL": "http://127.0.0.1:2"}, "http://127.0.0.1:2"),
        ("http://127.0.0.1:3", {"AWS_ENDPOINT_URL": "http://127.0.0.1:2"}, "http://127.0.0.1:3"),
        (None, {"AWS_PROFILE": "other"}, None),
    ],
)
def test_a_profile_may_name_a_server(
    given: str | None, variables: dict[str, str], found: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    only_aws(monkeypatch, tmp_path, **variables)
    aws_files(tmp_path, config={"default": "endpoint_url = http://127.0.0.1:1\n"})
    assert S3Store("s3://mine", given).server == (found or S3Store.cloud)


def test_a_bucket_whose_reader_pays_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str | None] = []

    class Paid(Forwarder):
        def do_GET(self) -> None:
            asked.append(self.headers.get("x-amz-request-payer"))
            headers = {"Content-Length": "1", "ETag": "e", "Last-Modified": "Sun, 22 Nov 2026 12:00:00 GMT"}
            self.answer(200, headers, b"x")

    only_aws(monkeypatch, tmp_path, AWS_REQUEST_PAYER="true", AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b")
    with serving(Paid) as url:
        assert open_source("s3://mine", endpoint=url, retry_for=0).find(["x.tar"])
    assert set(asked) == {"requester"}


def test_a_region_is_looked_up_once_for_all_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    only_aws(monkeypatch, tmp_path)
    asked: list[str] = []

    def region_of(bucket: str) -> dict[str, str]:
        asked.append(bucket)
        return {"region": "eu-central-1"}

    monkeypatch.setattr(cloud, "region_of", region_of)
    store = open_store("s3://mine", no_sign_request=True)
    assert store.client.config["region"] == "eu-central-1"
    assert pickle.loads(pickle.dumps(store)).client.config["region"] == "eu-central-1"
    assert asked == ["mine"]


def test_a_machine_without_ca_certificates_uses_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in cloud.CA_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    make, given = S3Store.make, []

    def bare(self: S3Store, stores: Any, **options: Any) -> Any:
        given.append("root_certificate" in options["client_options"])
        if not given[-1]:
            raise OSError("No CA certificates were loaded from the system")
        return make(self, stores, **options)

    monkeypatch.setattr(S3Store, "make", bare)
    assert open_store("s3://mine", endpoint="http://127.0.0.1:1").client
    assert given == [False, True]


class TestAForkedProcess:
    """obstore in processes that were forked after it was used."""

    @pytest.fixture(autouse=True)
    def used(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cloud, "runtime_memory", [*cloud.runtime_memory])
        assert cloud.obstore_store().MemoryStore().list()

    def outcomes(self, count: int = 1) -> list[int]:
        """The exit codes of forked processes that use obstore."""
        found = []
        for _ in range(count):
            if not (pid := os.fork()):
                code = 1
                with suppress(UsageError):
                    store = cloud.obstore_store().MemoryStore()
                    store.put("x", b"x")
                    code = int(len(next(iter(store.list()))) != 1)
                os._exit(code)
            found.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        return found

    def test_they_share_a_copy_that_needs_no_room_on_a_disk(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tempfile, "TemporaryDirectory", None)
        assert self.outcomes(2) == [0, 0]
        assert (library := find_spec("obstore._obstore"))
        assert os.fstat(cloud.runtime_memory[0]).st_size == os.stat(str(library.origin)).st_size

    def test_half_a_copy_is_made_again(self) -> None:
        os.truncate(cloud.runtime_memory[0], 1000)
        assert self.outcomes() == [0]

    def test_a_system_without_such_files_has_a_copy_on_disk(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cloud, "runtime_memory", [])
        assert self.outcomes() == [0]
        monkeypatch.setattr(tempfile, "TemporaryDirectory", lambda: nullcontext("/dev/null/folder"))
        assert self.outcomes() == [1]


def test_the_region_of_a_bucket_is_looked_up_at_amazon(monkeypatch: pytest.MonkeyPatch) -> None:
    class Amazon(Forwarder):
        def do_GET(self) -> None:
            region = {"x-amz-bucket-region": "eu-central-1"} if self.path == "/mine" else {}
            self.answer(403 if region else 404, region, b"")

    with serving(Amazon) as url:
        monkeypatch.setattr(cloud, "AMAZON", url)
        assert cloud.region_of("mine") == {"region": "eu-central-1"}
        assert cloud.region_of("nobody-s") == {}
    assert cloud.region_of("mine") == {}  # nobody answers


SIGN_IN = b"<html><body><form action='/login'><input name='user'/></form></body></html>"
ERROR = b'<?xml version="1.0"?><Error><Code>InternalError</Code></Error>'


@pytest.fixture(scope="module")
def pages(s3_client: Any) -> str:
    """A bucket of 250 objects, which no test changes: moto's pages have 100 here."""
    s3_client.create_bucket(Bucket="pages")
    for number in range(250):
        s3_client.put_object(Bucket="pages", Key=f"p-{number:04d}.tar", Body=b"p")
    return "pages"


@pytest.mark.usefixtures("quick_retries")
@pytest.mark.parametrize("answer", [SIGN_IN, ERROR], ids=["sign-in", "error"])
@pytest.mark.parametrize("times", [1, 1000], ids=["once", "always"])
def test_an_answer_that_is_no_listing_does_not_end_one(s3: str, pages: str, answer: bytes, times: int) -> None:
    class Stranger(Forwarder):
        url = s3
        left = times

        def do_GET(self) -> None:
            if "continuation-token" in self.path and Stranger.left > 0:
                Stranger.left -= 1
                self.answer(200, {"Content-Type": "text/html"}, answer)
            else:
                super().do_GET()

    with serving(Stranger) as url:
        listed = [item.name for item in open_source(f"s3://{pages}", endpoint=url).list(["p-*.tar"])]
    assert listed == [f"p-{number:04d}.tar" for number in range(250)]


@pytest.mark.usefixtures("quick_retries")
def test_a_proxy_that_asks_to_sign_in_behind_the_first_page_is_an_error(s3: str, pages: str) -> None:
    class Stranger(Forwarder):
        url = s3

        def do_GET(self) -> None:
            if "continuation-token" in self.path or "start-after" in self.path:
                self.answer(200, {"Content-Type": "text/html"}, SIGN_IN)
            else:
                super().do_GET()

    with (
        serving(Stranger) as url,
        pytest.raises(SourceError, match="is not a listing; gave up"),
    ):
        open_source(f"s3://{pages}", endpoint=url).list(["p-*.tar"])


@pytest.mark.usefixtures("quick_retries")
def test_a_proxy_that_asks_to_sign_in_is_not_an_empty_bucket(s3: str, s3_client: Any) -> None:
    s3_client.create_bucket(Bucket="no-objects")

    class Stranger(Forwarder):
        url = s3

        def do_GET(self) -> None:
            self.answer(200, {"Content-Type": "text/html"}, SIGN_IN)

    with (
        serving(Stranger) as url,
        pytest.raises(SourceError, match="is not a listing; gave up"),
    ):
        open_source("s3://no-objects", endpoint=url).list(["p-*.tar"])
    with pytest.raises(SourceError, match="is empty"):
        open_source("s3://no-objects").list([])


class PanicException(BaseException):
    """What pyo3 raises when a library in Rust has panicked; its own cannot be imported."""


@pytest.mark.parametrize("lacking", [PanicException("no threads"), MemoryError(), OSError(errno.EMFILE, "too many")])
def test_what_the_machine_lacks_is_not_retried(lacking: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    class Client:
        def head(self, name: str) -> None:
            raise lacking

    monkeypatch.setattr(S3Store, "connect", lambda self: Client())
    monkeypatch.setattr(retries, "FIRST_PAUSE", 1e9)
    with pytest.raises(MachineError, match=r"."):
        look_up(open_store("s3://b"), "x")


def test_a_clock_that_is_wrong_is_no_matter_of_credentials() -> None:
    answer = "403 Forbidden: <Error><Code>RequestTimeTooSkewed</Code><Message>The difference is too large.</Message>"
    with pytest.raises(SourceError, match="this machine's clock differs from the server's") as caught:
        cloud.raise_mapped(Exception(answer), "s3://b/x", "Amazon S3", "set AWS_PROFILE", None)
    assert caught.value.hint == "set the clock, then run the same command"


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_is_not_there_is_named(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with nobody_listens() as port:
        monkeypatch.setenv(f"{scheme}_proxy", f"http://me:secret@127.0.0.1:{port}")
        monkeypatch.delenv("no_proxy", raising=False)
        with pytest.raises(SourceError, match=rf"proxy 127\.0\.0\.1:{port}: Connection refused"):
            open_source("s3://b", endpoint=f"{scheme}://s3.example.org", retry_for=0).list(["*.tar"])


def test_a_session_token_is_not_sent_where_its_server_redirects_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "precious")
    received: list[str] = []

    class Other(Forwarder):
        def do_GET(self) -> None:
            received.append(str(self.headers))
            self.answer(200, {}, b"")

    class Redirecting(Forwarder):
        def do_GET(self) -> None:
            self.answer(307, {"Location": f"{elsewhere}{self.path}"}, b"")

    with serving(Other) as other, serving(Redirecting) as url:
        elsewhere = other.replace("127.0.0.1", "localhost")
        with pytest.raises(SourceError, match="the server redirects to another host"):
            open_source("s3://b", endpoint=url, retry_for=0).list(["*.tar"])
        with pytest.raises(SourceError, match="the server redirects to another host"):
            look_up(
                open_store(
                    "s3://b",
                    endpoint=url,
                ),
                "x",
            )
    assert not received


@pytest.mark.usefixtures("s3")
@pytest.mark.parametrize(("etag", "checks"), [(f"{'0' * 32}-3", ""), ("0" * 32, "0")])
def test_an_object_whose_checksum_s3_does_not_know_is_neither_hashed_nor_asked_about(
    etag: str, checks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object that was uploaded in parts has another ETag than its MD5."""
    monkeypatch.setenv("TAR2TF_CHECK_ETAG", checks)
    monkeypatch.setattr(hashlib, "md5", None)
    asked = list[str]()

    class InParts(QuietHandler):
        def do_GET(self) -> None:
            asked.append(self.command)
            self.send_response(200)
            about = {"ETag": f'"{etag}"', "Content-Length": "5", "Last-Modified": "Mon, 23 Nov 2026 17:47:15 GMT"}
            for name, value in about.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(b"bytes")

        do_HEAD = do_GET

    with serving(InParts) as url:
        source = open_source("s3://bucket", endpoint=url)
        (item,) = source.list(["x.tar"])
        assert read_all(source, item) == b"bytes"
    assert asked == ["HEAD", "GET"]
