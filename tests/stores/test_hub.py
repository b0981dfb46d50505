"""Datasets of the Hugging Face Hub, against a double of its routes; and its buckets, whose door redirects readers."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import quote, unquote

import pytest

from commands import tar2tf
from hub import Hub, git_digest, hub_server
from servers import Forwarder, serving
from sources import BucketSuite
from tar2tf_cli import Conversion, Input, Output, convert
from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.errors import SourceError, UsageError
from tar2tf_cli.stores import open_source, open_store
from tar2tf_cli.stores.hub import token
from tar2tf_cli.testing.shards import read_all, tar_of

DATASET = "hf://datasets/me/photos"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    with hub_server() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
        for name in ("HF_TOKEN", "HF_TOKEN_PATH"):
            monkeypatch.delenv(name, raising=False)
        yield hub


class TestHub(BucketSuite):
    # what is replaced or deleted later is read as it was, at the commit that the source was opened with
    test_a_replaced_object_is_an_error = None
    test_an_object_deleted_after_the_listing_is_told = None
    test_a_version_changes_with_the_bytes = None
    test_another_version_than_the_listed_one_is_not_taken_for_it = None

    @pytest.fixture
    def bucket(self, hub: Hub) -> str:
        self.hub = hub
        return DATASET

    def put(self, bucket: str, name: str, data: bytes) -> None:
        folder = bucket.removeprefix(DATASET).strip("/")
        self.hub.commit(**{f"{folder}/{name}".lstrip("/"): data})


def test_a_branch_is_resolved_once_and_read_at_its_commit(hub: Hub) -> None:
    hub.commit(**{"x.tar": b"before it changed"})
    source = open_source(DATASET)
    (item,) = source.list(["x.tar"])
    hub.commit(**{"x.tar": b"after it changed!"})
    assert read_all(source, item) == b"before it changed"
    assert sum("/revision/" in request for request in hub.seen) == 1


def test_a_revision_is_a_branch_a_commit_or_an_escaped_ref(hub: Hub) -> None:
    first = hub.commit(**{"x.tar": b"the first commit"})
    hub.commit(**{"x.tar": b"the second commit"})
    hub.commit("refs/convert/parquet", **{"x.tar": b"of the branch"})
    for revision, data in (
        (first, b"the first commit"),
        ("main", b"the second commit"),
        (quote("refs/convert/parquet", safe=""), b"of the branch"),
    ):
        source = open_source(f"{DATASET}@{revision}")
        (item,) = source.list([])
        assert read_all(source, item) == data
        assert source.locate(item.name) == f"{DATASET}@{revision}/x.tar"
    with pytest.raises(SourceError, match="Invalid rev id: nothing"):
        open_source(f"{DATASET}@nothing").list([])


def test_the_commit_is_recorded_and_a_new_one_without_other_shards_changes_nothing(hub: Hub, tmp_path: Path) -> None:
    sha = hub.commit(**{"x.tar": tar_of(5)})
    conversion = Conversion(Input(DATASET), Output(str(tmp_path / "x.record")))
    manifest = convert(conversion).manifest
    assert manifest
    assert json.loads(Path(manifest).read_text())["spec"]["input"]["revision"] == sha
    hub.commit(**{"README.md": b"words about the photos"})
    assert convert(conversion).up_to_date


def test_a_listing_goes_on_over_pages(hub: Hub) -> None:
    hub.commit(**{f"p-{number}.tar": b"p" for number in range(10)}, **{"notes.txt": b"no shard"})
    assert [item.name for item in open_source(DATASET).list(["*.tar"])] == [f"p-{number}.tar" for number in range(10)]


def test_a_byte_changed_on_the_way_is_an_error(hub: Hub) -> None:
    hub.commit(**{"x.tar": bytes(1_000_000)})
    source = open_source(DATASET)
    (item,) = source.list([])
    hub.damaged = True
    with pytest.raises(SourceError, match="the bytes received have the checksum"):
        read_all(source, item)


def test_the_token_is_not_sent_to_the_server_of_the_bytes(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.token = "secret"
    hub.commit(**{"x.tar": b"gated bytes", "y.tar": b"more of them"})
    with pytest.raises(SourceError, match="Access to dataset me/photos is restricted") as caught:
        open_source(DATASET).list([])
    assert "hf auth login" in (caught.value.hint or "")
    monkeypatch.setenv("HF_TOKEN", "secret")
    source = open_source(DATASET)
    items = source.list([])
    with source.prefetch(items):
        assert [read_all(source, item) for item in items] == [b"gated bytes", b"more of them"]
    assert hub.authorizations
    assert not any(hub.authorizations)


def test_the_login_of_the_command_hf_is_used(hub: Hub, tmp_path: Path) -> None:
    hub.token = "from the file"
    hub.commit(**{"x.tar": b"x"})
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "token").write_text("from the file\n")
    assert open_source(DATASET).list([])
    with pytest.raises(SourceError, match="restricted"):
        open_source(DATASET, no_sign_request=True).list([])


LIBRARY = """
import json, sys
from huggingface_hub import HfApi, get_token, hf_hub_download
from huggingface_hub.utils import build_hf_headers
api = HfApi()
sha = api.dataset_info("me/photos", revision="main").sha
listed = {
    entry.path: [entry.size, entry.lfs.sha256 if entry.lfs else None]
    for entry in api.list_repo_tree("me/photos", repo_type="dataset", revision=sha, recursive=True)
}
path = hf_hub_download("me/photos", "a/x.tar", repo_type="dataset", revision=sha, cache_dir=sys.argv[1])
print(json.dumps([sha, listed, open(path, "rb").read().decode()]))
"""


def paths(requests: list[str]) -> list[str]:
    """The paths of requests for a dataset; the package may ask for news of its own, too."""
    return [request.partition("?")[0].split(" ")[1] for request in requests if "/datasets/" in request]


def test_the_hub_s_own_package_sends_the_same_requests_and_tokens(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("huggingface_hub")
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    monkeypatch.setenv("HF_TOKEN", "secret")
    hub.token, hub.page = "secret", 2
    hub.commit(**{"a/x.tar": b"the bytes of a tar", "a/y.tar": b"those of another", "s.txt": b"small"})
    ran = subprocess.run([sys.executable, "-c", LIBRARY, tmp_path], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    sha, listed, data = json.loads(ran.stdout.splitlines()[-1])
    theirs, their_tokens, their_bytes = [*hub.seen], [*hub.tokens], [*hub.authorizations]
    for seen in (hub.seen, hub.tokens, hub.authorizations):
        seen.clear()
    source = open_source(DATASET)
    items = source.list(["**/*"])
    assert {item.name: [item.size, item.checksum and item.checksum[1]] for item in items} == listed
    first = next(item for item in items if item.name == "a/x.tar")
    assert read_all(source, first) == data.encode()
    assert source.listing_info().identity == {"revision": sha}
    assert paths(theirs) == paths(hub.seen)  # a HEAD of the package stands for our GET, which follows the redirect
    assert {"Bearer secret"} == {*hub.tokens} <= {*their_tokens}
    assert {*their_bytes} == {*hub.authorizations} == {None}


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"HF_TOKEN": " given\n"},
        {"HUGGING_FACE_HUB_TOKEN": "older"},
        {"HF_TOKEN": "given", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"},
        {"HF_HOME": "HOME"},
        {"HF_HOME": "$PLACE/home"},
        {"HF_TOKEN_PATH": "HOME/other", "HF_HOME": "HOME"},
        {"XDG_CACHE_HOME": "HOME/cache"},
    ],
    ids=str,
)
def test_the_token_is_the_one_that_the_hub_s_package_sends(
    environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("huggingface_hub")
    for name in ("HF_TOKEN", "HF_TOKEN_PATH", "HF_HOME", "XDG_CACHE_HOME", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "home"
    for path, text in (("token", "of the home\r\n"), ("other", "of a path"), ("cache/huggingface/token", "of XDG")):
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(text)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PLACE", str(tmp_path))
    for name, value in environment.items():
        monkeypatch.setenv(name, value.replace("HOME", str(home)))
    code = "from huggingface_hub.utils import build_hf_headers as h; print(h().get('authorization'))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    found = token()
    assert (f"Bearer {found}" if found else "None") == ran.stdout.strip()


def test_a_login_that_expires_is_left_to_the_hub_s_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    for name in ("HF_TOKEN", "HF_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    package = ModuleType("huggingface_hub")
    package.get_token = lambda: "renewed"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", package)
    (tmp_path / "token").write_text("of a browser")
    assert token() == "of a browser"
    (tmp_path / "stored_tokens").write_text("[one]\nhf_token = of a browser\nrefresh_token = x\nexpires_at = 1\n")
    assert token() == "renewed"
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert token() == "of a browser"
    (tmp_path / "token").write_text("another one")
    assert token() == "another one"


def test_a_refused_look_at_a_file_is_an_error(hub: Hub) -> None:
    hub.commit(**{"x.tar": b"x", "y.tar": b"y"})
    source = open_source(DATASET)
    source.list(["x.tar"])
    hub.token = "no longer public"
    with pytest.raises(SourceError, match="401"):
        source.list(["y.tar"])
    assert hub.seen[-1].startswith("HEAD ")


@pytest.mark.parametrize("headers", [{"Retry-After": "7"}, {"RateLimit": '"api";r=0;t=7'}])
def test_a_limit_of_requests_is_obeyed(hub: Hub, headers: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("tar2tf_cli.stores.retries.time.sleep", pauses.append)
    monkeypatch.setattr("tar2tf_cli.stores.retries.RetryPolicy.__init__.__defaults__", (pauses.append,))
    hub.commit(**{"x.tar": b"x"})
    hub.refusals.append((429, headers))
    assert len(open_source(DATASET, retry_for=60).list([])) == 1
    assert pauses == [7.0]
    hub.refusals.append((429, {"Retry-After": "3600"}))
    with pytest.raises(SourceError, match="because the server asked to wait 3600 s"):
        open_source(DATASET, retry_for=60).list([])


def test_a_dataset_is_not_written_to(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "in.tar").write_bytes(tar_of(2))
    done = tar2tf("convert", tmp_path / "in.tar", "-o", f"{DATASET}/x.record")
    assert done.returncode == 2
    assert "cannot be written to" in done.stderr


DATASETS = "write hf://datasets/USER/NAME, hf://datasets/USER/NAME@REVISION/PATH or hf://buckets/USER/NAME"
BUCKETS = "write hf://buckets/USER/NAME or hf://buckets/USER/NAME/FOLDER"


@pytest.mark.parametrize(
    ("url", "what", "hint"),
    [
        ("hf://datasets/me", "a dataset or bucket of the Hugging Face Hub", DATASETS),
        ("hf://datasets/me/x@", "a dataset or bucket of the Hugging Face Hub", DATASETS),
        ("hf://me/photos", "a dataset or bucket of the Hugging Face Hub", DATASETS),
        ("hf://models/me/x", "a dataset or bucket of the Hugging Face Hub", DATASETS),
        ("hf://buckets/me", "a bucket of the Hugging Face Hub", BUCKETS),
        ("hf://buckets/me/", "a bucket of the Hugging Face Hub", BUCKETS),
        ("hf://buckets/me/x@main", "a bucket of the Hugging Face Hub", BUCKETS),
    ],
)
def test_other_urls_are_refused_with_the_right_form(url: str, what: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_store(url)
    assert (caught.value.message, caught.value.hint) == (f"{url!r} is not {what}", hint)


def test_objects_are_located_as_the_user_wrote_their_bucket() -> None:
    for bucket in ("hf://datasets/me/x@v1", "hf://datasets/me/x", "hf://buckets/me/x"):
        assert open_store(bucket).locate("y.tar") == f"{bucket}/y.tar"
        assert open_store(f"{bucket}/f/g/").locate("y.tar") == f"{bucket}/f/g/y.tar"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"<html>", "its answer is not JSON"),
        (b"[]", "its answer names no commit"),
        (b'{"sha": 5}', "its answer names no commit"),
        (b'{"sha": "1"}', "its answer is not a listing"),
    ],
)
def test_a_server_that_is_no_hub_is_told_apart(body: bytes, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stranger(Forwarder):
        def do_GET(self) -> None:
            self.answer(200, {}, body)

    monkeypatch.setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
    with serving(Stranger) as url, pytest.raises(SourceError) as caught:
        list(open_store(DATASET, endpoint=url).list(""))
    message = f"the endpoint is not a Hugging Face Hub: {why}"
    assert (caught.value.message, caught.value.shard, caught.value.hint) == (message, url, "check HF_ENDPOINT")


@pytest.mark.parametrize(
    ("headers", "body", "said"),
    [
        ({"X-Error-Message": "in a header"}, b'{"error": "in the body"}', ": in a header"),
        ({}, b'{"error": "in the body"}', ": in the body"),
        ({}, b'{"other": 1}', ""),
        ({}, b'["a list"]', ""),
        ({}, b"<html>", ""),
    ],
)
@pytest.mark.parametrize(("status", "words"), [(403, "permission denied (403)"), (418, "the server answered 418")])
def test_a_refusal_is_repeated_in_the_words_of_the_hub(
    headers: dict[str, str], body: bytes, said: str, status: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing(Forwarder):
        def do_GET(self) -> None:
            self.answer(status, headers, body)

    monkeypatch.setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
    with serving(Refusing) as url, pytest.raises(SourceError) as caught:
        list(open_store(DATASET, endpoint=url).list(""))
    login = "run `hf auth login` or set HF_TOKEN, and accept the dataset's terms if it has any"
    assert (caught.value.message, caught.value.hint) == (words + said, login if status == 403 else None)


def test_a_folder_that_is_not_there_is_empty_and_a_dataset_that_is_not_there_an_error(hub: Hub) -> None:
    assert list(open_store(f"{DATASET}/nowhere").list("")) == []
    with pytest.raises(SourceError, match="Repository not found"):
        list(open_store("hf://datasets/me/other").list(""))


def test_what_a_look_at_a_file_finds(hub: Hub) -> None:
    large = b"a large file, which is stored elsewhere"
    hub.commit(**{"f/small.tar": b"small", "f/large.tar": large})
    store = open_store(f"{DATASET}/f")
    digest = hashlib.sha256(large).hexdigest()
    assert store.head("small.tar") == ObjectInfo("small.tar", 5, git_digest(b"small"))
    assert store.head("large.tar") == ObjectInfo("large.tar", len(large), digest, ("sha256", digest))
    assert store.head("none.tar") is None
    assert list(store.list("")) == [
        ObjectInfo("large.tar", len(large), digest, ("sha256", digest)),
        ObjectInfo("small.tar", 5, git_digest(b"small")),
    ]
    assert [item.name for item in store.list("s")] == ["small.tar"]


@pytest.mark.parametrize(
    ("variables", "files", "found"),
    [
        ({}, {}, None),
        ({"HF_TOKEN": " a\r\n"}, {}, "a"),
        ({"HF_TOKEN": "", "HUGGING_FACE_HUB_TOKEN": "b"}, {}, "b"),
        ({"HF_TOKEN": "a", "HUGGING_FACE_HUB_TOKEN": "b"}, {"home/token": "c"}, "a"),
        ({"HF_TOKEN": " "}, {"home/token": "c\n"}, "c"),
        ({"HF_TOKEN": "a", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}, {}, None),
        ({"HF_TOKEN": "a", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "yes"}, {}, None),
        ({"HF_TOKEN": "a", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "0"}, {}, "a"),
        ({"HF_OIDC_RESOURCE": "x", "HF_TOKEN": "a"}, {}, "of the package"),
        ({"HF_TOKEN_PATH": "TMP/mine"}, {"mine": "d", "home/token": "c"}, "d"),
        ({"HF_HOME": ""}, {"cache/huggingface/token": "e"}, "e"),
        ({"HF_HOME": "$XDG_CACHE_HOME/h"}, {"cache/h/token": "f"}, "f"),
        ({}, {"home/token": ""}, None),
        ({}, {"home/token": "c", "home/stored_tokens": "[x]\nhf_token = c\nrefresh_token = r\n"}, "of the package"),
        ({}, {"home/token": "c", "home/stored_tokens": "[x]\nhf_token = c\n[y]\nrefresh_token = r\n"}, "c"),
    ],
)
def test_a_token_is_found_in_variables_before_files(
    variables: dict[str, str],
    files: dict[str, str],
    found: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package = ModuleType("huggingface_hub")
    package.get_token = lambda: "of the package"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", package)
    for name in [name for name in os.environ if name.startswith(("HF_", "HUGGING_FACE_"))]:
        monkeypatch.delenv(name)
    for name, value in {"XDG_CACHE_HOME": "TMP/cache", "HF_HOME": "TMP/home", **variables}.items():
        monkeypatch.setenv(name, value.replace("TMP", str(tmp_path)))
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert token() == found


def test_a_token_file_that_cannot_be_read_is_a_usage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("HF_", "HUGGING_FACE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    path = tmp_path / "token"
    path.mkdir()
    with pytest.raises(UsageError) as caught:
        token()
    reason = f"[Errno 21] Is a directory: {str(path)!r}"
    assert caught.value.message == f"{path} cannot be read as the file of `hf auth login`: {reason}"


class TestBucket(BucketSuite):
    """The door is moto's S3, in front of which the owner's name is taken from paths; objects are read elsewhere."""

    @pytest.fixture
    def bucket(
        self, s3: str, s3_client: Any, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[str]:
        self.client, self.seen = s3_client, list[dict[str, str]]()
        self.name = f"b{abs(hash(request.node.nodeid)):x}"
        s3_client.create_bucket(Bucket=self.name)
        seen = self.seen

        class Bytes(Forwarder):
            url = s3

            def forward(self, data: bytes) -> None:
                seen.append(dict(self.headers.items()))
                del self.headers["If-Match"]  # which the server of the bytes knows nothing of
                super().forward(data)

        class Door(Forwarder):
            url = s3

            def forward(self, data: bytes) -> None:
                self.path = self.path.removeprefix("/me")
                bucket, _, key = self.path[1:].partition("/")
                if self.command == "GET" and key and "?" not in key:
                    signed = s3_client.generate_presigned_url("get_object", {"Bucket": bucket, "Key": unquote(key)})
                    self.answer(
                        302, {"Location": other.replace("127.0.0.1", "localhost") + signed.removeprefix(s3)}, b""
                    )
                else:
                    super().forward(data)

        with serving(Bytes) as other, serving(Door) as url:
            monkeypatch.setenv("HF_S3_ENDPOINT", url)
            for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_SESSION_TOKEN"):
                monkeypatch.delenv(name, raising=False)
            yield f"hf://buckets/me/{self.name}"

    def put(self, bucket: str, name: str, data: bytes) -> None:
        folder = bucket.partition(self.name)[2].strip("/")
        self.client.put_object(Bucket=self.name, Key=f"{folder}/{name}".lstrip("/"), Body=data)

    def test_the_signature_of_a_request_does_not_follow_its_redirect(self, bucket: str) -> None:
        self.put(bucket, "x.tar", b"bytes")
        assert read_all(open_source(bucket), ObjectInfo("x.tar", None, None)) == b"bytes"
        assert self.seen
        assert not any("authorization" in map(str.lower, headers) for headers in self.seen)

    def test_a_session_token_is_refused(self, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_SESSION_TOKEN", "precious")
        with pytest.raises(UsageError, match="a session token cannot be used"):
            open_source(bucket).list(["*.tar"])
