"""What cloud stores do with answers of obstore, without a server: keys, tokens, large objects, addresses."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from servers import QuietHandler, serving
from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.store import Transient
from tar2tf_cli.errors import UsageError
from tar2tf_cli.stores import cloud, open_store
from tar2tf_cli.stores.cloud import AzureStore, CloudStore, GcsStore, S3Store, aws_provider, google_provider


@pytest.mark.parametrize(
    ("url", "endpoint", "message", "hint"),
    [
        ("s3://", None, "'s3://' does not name a bucket", "write s3://BUCKET/FOLDER"),
        ("s3:///shards", None, "'s3:///shards' does not name a bucket", "write s3://BUCKET/FOLDER"),
        ("gs://@", None, "'gs://@' does not name a bucket", "write gs://BUCKET/FOLDER"),
        ("az://a b/c", None, "'az://a b/c' does not name a bucket", "write az://BUCKET/FOLDER"),
        ("s3://b", "http://:1", "the endpoint 'http://:1' is not a URL", "write http://HOST:PORT"),
        ("s3://b", "h:0", "the endpoint 'http://h:0' is not a URL", "write http://HOST:PORT"),
        ("s3://b", "h:65536", "the endpoint 'http://h:65536' is not a URL", "write http://HOST:PORT"),
        ("s3://b", "ftp://h", "the endpoint 'ftp://h' is not a URL", "write http://HOST:PORT"),
        ("s3://b", "http://h/ä", "the endpoint 'http://h/ä' is not a URL", "write http://HOST:PORT"),
        ("s3://b", "http://me:pw@[h", "the endpoint 'http://[h' is not a URL", "write http://HOST:PORT"),
    ],
)
def test_an_address_that_is_none_is_a_usage_error(url: str, endpoint: str | None, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_store(url, endpoint=endpoint)
    assert (caught.value.message, caught.value.hint) == (message, hint)


@pytest.mark.parametrize(
    ("endpoint", "server"),
    [("h:1/", "http://h:1"), ("https://h", "https://h"), ("http://me:pw@h/x//", "http://h/x"), (None, "Amazon S3")],
)
def test_an_endpoint_may_lack_its_scheme(endpoint: str | None, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloud, "aws_endpoint", lambda: None)
    for name in S3Store.endpoints:
        monkeypatch.delenv(name, raising=False)
    assert S3Store("s3://b", endpoint).server == server


class Client:
    """A client of obstore that has one object, and keeps the calls that change something."""

    def __init__(self, size: int = 5) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.size = size

    def head(self, path: str) -> dict[str, object]:
        return {"path": path, "size": self.size, "e_tag": '"1"'}

    def get(self, path: str) -> SimpleNamespace:
        return SimpleNamespace(stream=lambda size: ("bytes of", path, size))

    def put(self, path: str, data: object, **how: object) -> None:
        self.calls.append(("put", path, data if isinstance(data, (tuple, Path)) else bytes(memoryview(data)), how))  # type: ignore[arg-type]

    def copy(self, path: str, target: str) -> None:
        self.calls.append(("copy", path, target))


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    client = Client()
    monkeypatch.setattr(CloudStore, "connect", lambda store: client)
    monkeypatch.setattr(CloudStore, "connect_for_uploads", lambda store, minutes: client)
    monkeypatch.setattr(AzureStore, "one_put", 5)
    monkeypatch.setattr(AzureStore, "abort_uploads", lambda store, name: client.calls.append(("abort", name)))
    return client


@pytest.mark.parametrize(
    ("size", "calls"),
    [
        (5, [("copy", "f/x", "f/y")]),
        (0, [("copy", "f/x", "f/y")]),
        (6, [("abort", "y"), ("put", "f/y", ("bytes of", "f/x", 64 << 20), {"chunk_size": 64 << 20})]),
    ],
)
def test_an_object_too_large_for_one_request_is_downloaded_and_uploaded(
    client: Client, size: int, calls: list[tuple[object, ...]]
) -> None:
    client.size = size
    open_store("az://b/f").copy("x", "y")
    assert client.calls == calls


@pytest.mark.parametrize(
    ("data", "absent", "how"),
    [
        (b"bytes", False, {"use_multipart": False, "mode": "overwrite"}),
        (b"", False, {"use_multipart": False, "mode": "overwrite"}),
        (b"other", True, {"use_multipart": False, "mode": "create"}),
    ],
)
def test_a_file_is_one_request_up_to_the_most_that_fits(
    client: Client, data: bytes, absent: bool, how: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AzureStore, "refuse_existing", lambda store, name: client.calls.append(("refuse", name)))
    (tmp_path / "x").write_bytes(data)
    open_store("az://b/f").put("x", str(tmp_path / "x"), absent=absent)
    assert client.calls == [*([("refuse", "x")] if absent else []), ("put", "f/x", data, how)]


def test_a_larger_file_is_uploaded_in_parts(client: Client, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"6 byte")
    open_store("az://b/f").put("x", str(tmp_path / "x"))
    parts = {"chunk_size": 64 << 20, "max_concurrency": 2}
    assert client.calls == [("abort", "x"), ("put", "f/x", tmp_path / "x", parts)]


def test_ctrl_c_while_obstore_works_stays_ctrl_c(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def head(path: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(client, "head", head)
    with pytest.raises(KeyboardInterrupt):
        open_store("az://b").head("x")


class _Stores:
    """A module of obstore that makes a GCS store only with a function that gets credentials."""

    def GCSStore(self, name: str, **options: Any) -> dict[str, Any]:
        if not options.get("credential_provider"):
            raise ValueError("no credentials in the file")
        return {"name": name, **options}


def test_google_auth_is_asked_if_obstore_does_not_know_the_kind_of_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setattr(cloud, "google_provider", lambda: "google-auth")
    made = GcsStore("gs://b").make(_Stores(), client_options={})
    assert made == {"name": "b", "client_options": {}, "config": {}, "credential_provider": "google-auth"}
    monkeypatch.setattr(cloud, "google_provider", lambda: None)
    with pytest.raises(ValueError, match=r"^no credentials in the file$"):
        GcsStore("gs://b").make(_Stores(), client_options={})


def test_an_emulator_of_google_gets_a_token_that_means_nothing() -> None:
    made = GcsStore("gs://b", "http://h").make(_Stores())
    assert (made["config"], made["credential_provider"]()) == (
        {"base_url": "http://h"},
        {"token": "none", "expires_at": None},
    )


def test_google_credentials_come_from_google_auth_if_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("obstore.auth.google")
    module.GoogleCredentialProvider = lambda: "provider"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "obstore.auth.google", module)
    assert google_provider() == "provider"
    monkeypatch.setitem(sys.modules, "obstore.auth.google", None)
    assert google_provider() is None


def boto3(monkeypatch: pytest.MonkeyPatch, error: Exception | None) -> None:
    """Have obstore's bridge to boto3 fail, or give what it was asked for."""

    def provider(**given: object) -> object:
        if error:
            raise error
        return given

    module = ModuleType("obstore.auth.boto3")
    module.Boto3CredentialProvider = provider  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "obstore.auth.boto3", module)


PROFILE_HINT = "check AWS_PROFILE; roles and single sign-on need boto3: pip install boto3"


def test_boto3_is_asked_only_if_files_of_aws_may_hold_credentials(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    boto3(monkeypatch, None)
    assert aws_provider() is None
    (tmp_path / ".aws").mkdir()
    (given,) = aws_provider().values()  # type: ignore[union-attr]
    assert given.total_seconds() == 600
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    assert aws_provider() is None
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    boto3(monkeypatch, RuntimeError("Received None"))
    assert aws_provider() is None
    for words, message in (
        ("Received None from session", "AWS's configuration holds no credentials"),
        ("no profile (p)", "AWS: no profile (p)"),
    ):
        boto3(monkeypatch, RuntimeError(words))
        monkeypatch.setenv("AWS_PROFILE", "p")
        with pytest.raises(UsageError) as caught:
            aws_provider()
        assert (caught.value.message, caught.value.hint) == (message, PROFILE_HINT)


@pytest.mark.parametrize(
    ("status", "headers", "found"),
    [
        (206, {"Content-MD5": "4vxWjbX4hZmpmgZ2eTlKtQ=="}, "e2fc568db5f88599a99a067679394ab5"),
        (200, {"x-ms-blob-content-md5": "4vxWjbX4hZmpmgZ2eTlKtQ=="}, "e2fc568db5f88599a99a067679394ab5"),
        (206, {}, None),
        (404, {"Content-MD5": "4vxWjbX4hZmpmgZ2eTlKtQ=="}, None),
        (503, {}, None),
    ],
)
def test_a_checksum_is_asked_for_with_the_first_byte(
    status: int, headers: dict[str, str], found: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str | None] = []

    class Server(QuietHandler):
        def do_GET(self) -> None:
            asked.append(self.headers["Range"])
            whole = self.headers["Range"] is None
            self.send_response(200 if whole else status)
            named = {
                "ETag": '"1"',
                "Last-Modified": "Mon, 23 Nov 2026 17:47:15 GMT",
                "Content-Length": "5" if whole else "1",
            }
            for name, value in {**named, **({} if whole else headers)}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(b"bytes" if whole else b"b")

    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "me")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
    with serving(Server) as url:
        body = open_store("az://b", endpoint=url).fetch(ObjectInfo("x", None, None), 0)
        assert (body.checksum, body.ask is None) == (("md5", ""), False)
        assert body.read(5) == b"bytes"
        assert body.ask
        if status == 503:
            with pytest.raises(Transient, match=r"^the server answered 503$") as caught:
                body.ask()
            assert caught.value.server == url
        else:
            assert body.ask() == found
    assert asked == [None, "bytes=0-0"]


def test_credentials_that_cannot_sign_a_url_ask_for_no_checksum(monkeypatch: pytest.MonkeyPatch) -> None:
    class Answer:
        def __init__(self) -> None:
            self.range = (0, 5)
            self.meta = {"path": "x", "size": 5, "e_tag": None}

        def stream(self, size: int) -> Any:
            return iter([b"bytes"])

    class Unsigning:
        def get(self, path: str, options: object) -> Answer:
            return Answer()

    monkeypatch.setattr(AzureStore, "connect", lambda store: Unsigning())
    body = open_store("az://b", endpoint="http://h").fetch(ObjectInfo("x", None, None), 0)
    assert body.ask
    assert body.ask() is None
    assert open_store("az://b", endpoint="https://h").fetch(ObjectInfo("x", None, None), 0).ask is None


def test_the_etag_of_s3_is_an_md5_unless_a_key_of_the_user_s_own_encrypts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAR2TF_CHECK_ETAG", raising=False)
    store, md5 = S3Store("s3://b", "http://h"), "0" * 32
    etag, kind = {"ETag": f'"{md5}"'}, "x-amz-server-side-encryption"
    assert store.checksum_in(etag) == store.checksum_in({**etag, kind: "AES256"}) == md5
    assert store.checksum_in({**etag, kind: "aws:kms"}) is None
    assert store.checksum_in({**etag, f"{kind}-customer-algorithm": "AES256"}) is None
    assert store.checksum_in({"ETag": f'"{md5}-2"'}) is None
    assert store.checksum_in({}) is None
    monkeypatch.setenv("TAR2TF_CHECK_ETAG", "0")
    assert store.checksum_in(etag) is None


class Kept:
    """A module of obstore that gives back the class and the arguments of a store."""

    def __getattr__(self, kind: str) -> Any:
        return lambda name, **options: (kind, name, options)


@pytest.mark.parametrize(
    ("unsigned", "keys", "endpoint", "config", "stays"),
    [
        (True, {"aws_access_key_id": "a"}, "http://h", {"skip_signature": True}, False),
        (False, {"aws_access_key_id": "a"}, "http://h:1", {"aws_access_key_id": "a"}, True),
        (False, {}, "http://h", {}, False),
        (False, {"aws_access_key_id": "a"}, None, {"aws_access_key_id": "a", "region": "eu-west-1"}, False),
        (True, {}, None, {"skip_signature": True, "region": "eu-west-1"}, False),
    ],
)
def test_s3_is_asked_with_the_keys_and_the_server_of_the_user(
    unsigned: bool,
    keys: dict[str, str],
    endpoint: str | None,
    config: dict[str, object],
    stays: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_") or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    for name, value in (("keys", keys), ("provider", None), ("endpoint", None)):
        monkeypatch.setattr(cloud, f"aws_{name}", lambda value=value: value)
    monkeypatch.setattr(cloud, "region_of", lambda bucket: {"region": "eu-west-1"})
    store = S3Store("s3://b/f", endpoint)
    store.unsigned = unsigned
    at = {"endpoint": endpoint, "aws_endpoint_url_s3": endpoint} if endpoint else {}
    within = {"proxy_url": "http://127.0.0.1:1", "proxy_excludes": "h"} if stays else {}
    assert store.make(Kept(), client_options={"a": 1}) == (
        "S3Store",
        "b",
        {
            "config": {"disable_bulk_delete": True, **config, **at},
            "credential_provider": None,
            "client_options": {"a": 1, **within},
        },
    )
    assert store.exclusive is not bool(endpoint)


@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize("endpoint", [None, "https://h"])
def test_other_clouds_are_asked_at_the_server_of_the_user(
    unsigned: bool, endpoint: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*GcsStore.endpoints, *AzureStore.endpoints):
        monkeypatch.delenv(name, raising=False)
    signing = {"skip_signature": True} if unsigned else {}
    for kind, scheme, option in ((GcsStore, "gs", "base_url"), (AzureStore, "az", "endpoint")):
        store = kind(f"{scheme}://b", endpoint)
        store.unsigned = unsigned
        at = {option: endpoint} if endpoint else {}
        name = {"gs": "GCSStore", "az": "AzureStore"}[scheme]
        assert store.make(Kept(), timeout=1) == (name, "b", {"config": {**signing, **at}, "timeout": 1})
        assert store.exclusive is not bool(endpoint)


def test_options_that_obstore_refuses_are_a_usage_error_of_the_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(store: AzureStore, stores: object, **options: object) -> None:
        raise ValueError("Generic Azure error: Account must be specified\nmore")

    monkeypatch.setattr(AzureStore, "make", refuse)
    with pytest.raises(UsageError) as caught:
        _ = AzureStore("az://b", "http://h").client
    found = caught.value
    assert (found.message, found.shard, found.hint) == ("Account must be specified", "az://b", AzureStore.login)
