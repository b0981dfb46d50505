"""What is made of answers of an AIStore cluster, as a double gives them: its own errors, and what is no cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servers import QuietHandler, serving
from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.store import NoSuchObject, Store, Transient
from tar2tf_cli.errors import SourceError, UsageError
from tar2tf_cli.stores import ais, open_store
from tar2tf_cli.stores.ais import credentials, tls

SIZED = {"Content-Length": "5", "Ais-Version": "3"}


class Cluster:
    """A proxy that gives its map, and one answer to everything else.

    Attributes:
        url: its address.
        answer: status, headers and body.
        seen: method and path of each other request.
        bucket: the status of its bucket.
        version: the version of its map.
    """

    def __init__(self) -> None:
        self.url = ""
        self.answer: tuple[int, dict[str, str], bytes] = (200, {}, b"")
        self.seen: list[str] = []
        self.bucket = 200
        self.version = "7"

    def store(self, url: str = "ais://b") -> Store:
        return open_store(url, endpoint=self.url)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    cluster = Cluster()

    class Proxy(QuietHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0) if self.command != "PUT" else 0)
            if "/v1/daemon" in self.path:
                return self.reply(200, {}, json.dumps({"version": cluster.version, "daemon_type": "target"}).encode())
            if self.command == "HEAD" and "/v1/buckets/" in self.path:
                return self.reply(cluster.bucket, {}, b"")
            cluster.seen.append(f"{self.command} {self.path}")
            return self.reply(*cluster.answer)

        do_HEAD = do_PUT = do_DELETE = do_GET

        def reply(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    monkeypatch.setattr(ais, "SETTLING", 0.0)
    for name in ("AIS_AUTHN_TOKEN", "AIS_AUTHN_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    with serving(Proxy) as cluster.url:
        yield cluster


def said(message: str, **more: Any) -> bytes:
    return json.dumps({"message": message, "status": 400, **more}).encode()


NO_CLUSTER = "the endpoint is not an AIStore cluster: "


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"<html>", f"{NO_CLUSTER}Expecting value: line 1 column 1 (char 0)"),
        (b"[]", f"{NO_CLUSTER}its answer is not a listing"),
    ],
)
def test_what_is_no_listing_is_no_cluster(cluster: Cluster, body: bytes, message: str) -> None:
    cluster.answer = (200, {}, body)
    with pytest.raises(SourceError) as caught:
        list(cluster.store().list(""))
    assert (caught.value.message, caught.value.shard) == (message, cluster.url)


@pytest.mark.parametrize(
    "page", [{}, {"entries": []}, {"entries": [], "continuation_token": 5}, {"continuation_token": ""}]
)
def test_a_page_that_says_not_whether_it_is_the_last_is_asked_for_again(
    cluster: Cluster, page: dict[str, object]
) -> None:
    cluster.answer = (200, {}, json.dumps(page).encode())
    with pytest.raises(Transient, match=r"^the answer is not a page of a listing$") as caught:
        list(cluster.store().list(""))
    assert caught.value.server == cluster.url


@pytest.mark.parametrize(("url", "versions"), [("ais://b/f", ["sum", "2", None]), ("ais+s3://b/f", [None, None, None])])
def test_entries_of_a_listing_have_size_and_version(cluster: Cluster, url: str, versions: list[str | None]) -> None:
    entries: list[dict[str, str]] = [
        {"name": "f/a.tar", "size": "5", "checksum": "sum", "version": "1"},
        {"name": "f/b.tar", "size": "6", "version": "2"},
        {"name": "f/c.tar"},
        {"name": "other/d.tar", "size": "7"},
    ]
    cluster.answer = (200, {}, json.dumps({"entries": entries, "continuation_token": ""}).encode())
    assert list(cluster.store(url).list("")) == [
        ObjectInfo(name, size, version)
        for name, size, version in zip(("a.tar", "b.tar", "c.tar"), (5, 6, 0), versions, strict=True)
    ]


LATER = "run the same command again when its writer is done"
REJECTED = "the server requires credentials, or rejected the given ones (401): no token"
CHECK = "check the URL and the endpoint"


@pytest.mark.parametrize(
    ("status", "body", "kind", "message", "hint"),
    [
        (416, said("invalid range"), SourceError, "changed while it was being read", LATER),
        (400, said("connection refused"), Transient, "connection refused", ""),
        (400, said("p[xy]: bad name"), SourceError, "the server answered 400: bad name", None),
        (403, said("access denied"), SourceError, "permission denied (403): access denied", ais.LOGIN),
        (401, said("no token"), SourceError, REJECTED, ais.LOGIN),
        (503, said("busy"), Transient, "the server answered 503: busy", ""),
        (500, b"", Transient, "the server answered 500", ""),
        (404, b"<html>", SourceError, f"{NO_CLUSTER}it answered 404", "check --endpoint or AIS_ENDPOINT"),
        (404, said("bucket ais://b does not exist"), Transient, "a node does not know the bucket yet", ""),
        (404, said("no such thing"), SourceError, "no such bucket: no such thing", CHECK),
        (404, said("gone", tcode="ErrNotFound"), NoSuchObject, "no such object (404): gone", None),
        (404, said("gone", url_path="/v1/objects/b/x"), NoSuchObject, "no such object (404): gone", None),
        (404, said("no bucket", url_path="/v1/objects/b/x", tcode="ErrBck"), SourceError, "no bucket", CHECK),
    ],
    ids=lambda value: str(value)[:50],
)
def test_a_refusal_is_repeated_in_the_words_of_the_cluster(
    cluster: Cluster, status: int, body: bytes, kind: type[Exception], message: str, hint: str | None
) -> None:
    cluster.answer = (status, {}, body)
    with pytest.raises((SourceError, Transient)) as caught:
        cluster.store().fetch(ObjectInfo("x", None, None), 0)
    found: Any = caught.value
    assert (type(found), getattr(found, "message", str(found)), found.hint) == (kind, message, hint)


def test_a_bucket_that_no_node_knows_is_named(cluster: Cluster) -> None:
    cluster.answer, cluster.bucket = (404, {}, said("bucket ais://b does not exist")), 404
    with pytest.raises(SourceError) as caught:
        cluster.store().fetch(ObjectInfo("x", None, None), 0)
    assert caught.value.message == "bucket ais://b does not exist"


def test_a_target_in_place_of_a_proxy_is_told_apart(cluster: Cluster) -> None:
    cluster.answer = (400, {}, said("not a proxy", node="t[abc]"))
    with pytest.raises(SourceError) as caught:
        cluster.store().fetch(ObjectInfo("x", None, None), 0)
    assert (caught.value.message, caught.value.shard, caught.value.hint) == (
        "the endpoint is a target of the cluster, not a proxy",
        cluster.url,
        "give the address of a proxy with --endpoint or AIS_ENDPOINT",
    )


def test_an_object_is_described_by_the_headers_of_its_answer(cluster: Cluster) -> None:
    cluster.answer = (200, {**SIZED, "Ais-Checksum-Type": "xxhash2", "Ais-Checksum-Value": "ab"}, b"bytes")
    store = cluster.store("ais://b/f")
    assert store.head("x y") == ObjectInfo("x y", 5, "ab", ("xxhash2", "ab"))
    assert cluster.seen == ["HEAD /v1/objects/b/f/x%20y?provider=ais&props=size%2Cchecksum%2Cversion%2Ccustom"]
    cluster.answer = (200, SIZED, b"bytes")
    assert store.head("x") == ObjectInfo("x", 5, "3")
    cluster.answer = (200, {**SIZED, "Ais-Custom-Md": "source=aws, ETag=tag"}, b"bytes")
    assert cluster.store("ais+s3://b").head("x") == ObjectInfo("x", 5, "tag")
    body = cluster.store("ais+s3://b").fetch(ObjectInfo("x", None, None), 0)
    assert (body.read(10), body.version) == (b"bytes", "tag")


def test_an_upload_that_is_not_redirected_goes_to_no_cluster(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"bytes")
    with pytest.raises(SourceError) as caught:
        cluster.store().put("x", str(tmp_path / "x"))
    assert caught.value.message == f"{NO_CLUSTER}it does not redirect uploads"
    assert cluster.seen == ["PUT /v1/objects/b/x?provider=ais"]


def test_copies_and_removals_are_single_requests(cluster: Cluster) -> None:
    store = cluster.store("ais://#ns/b/f")
    store.copy("x", "y")
    store.remove("x")
    where = "/v1/objects/b/f/x?provider=ais&namespace=%40%23ns"
    assert cluster.seen == [f"PUT {where}&object_to=ais%2F%40%23ns%2Fb%2Ff%2Fy", f"DELETE {where}"]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"other": 1}', "not JSON"])
def test_a_file_without_a_token_is_a_usage_error(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIS_AUTHN_TOKEN", raising=False)
    path = tmp_path / "token"
    path.write_text(text)
    monkeypatch.setenv("AIS_AUTHN_TOKEN_FILE", str(path))
    with pytest.raises(UsageError) as caught:
        credentials()
    assert caught.value.message == f"{path} is not a token file such as `ais auth login` writes"


def test_a_token_comes_from_the_variable_before_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / ".config" / "ais" / "cli" / "auth.token"
    path.parent.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("AIS_AUTHN_TOKEN", "AIS_AUTHN_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    assert credentials() == {}
    path.write_text('{"token": "of the file"}')
    assert credentials() == {"Authorization": "Bearer of the file"}
    monkeypatch.setenv("AIS_AUTHN_TOKEN", "of the variable")
    assert credentials() == {"Authorization": "Bearer of the variable"}


@pytest.mark.parametrize(
    ("variables", "settings"),
    [
        ({}, (True, None)),
        ({"AIS_CLIENT_CA": "FILE"}, ("FILE", None)),
        ({"AIS_CLIENT_CA": "FILE", "AIS_SKIP_VERIFY_CRT": "true"}, (False, None)),
        ({"AIS_SKIP_VERIFY": "YES"}, (False, None)),
        ({"AIS_SKIP_VERIFY": "no"}, (True, None)),
        ({"AIS_CRT": "FILE"}, (True, None)),
        ({"AIS_CRT": "FILE", "AIS_CRT_KEY": "FILE"}, (True, ("FILE", "FILE"))),
    ],
)
def test_certificates_are_those_of_the_clusters_variables(
    variables: dict[str, str], settings: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.touch()
    for name in ("AIS_CLIENT_CA", "AIS_CRT", "AIS_CRT_KEY", "AIS_SKIP_VERIFY_CRT", "AIS_SKIP_VERIFY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value.replace("FILE", str(path)))
    assert str(tls()) == str(settings).replace("FILE", str(path))


def test_an_object_that_is_not_there_is_none_and_its_removal_no_error(cluster: Cluster) -> None:
    cluster.answer = (404, {"Hdr-Error": said("gone", tcode="ErrNotFound").decode()}, b"")
    store = cluster.store()
    assert store.head("x") is None
    store.remove("x")


def test_an_object_that_is_missing_while_nodes_join_is_asked_for_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ais, "SETTLING", 60.0)
    cluster.answer = (404, {}, said("gone", tcode="ErrNotFound"))
    store = cluster.store()
    with pytest.raises(NoSuchObject):
        store.fetch(ObjectInfo("x", None, None), 0)
    cluster.version = "8"
    with pytest.raises(Transient, match=r"^a node left or joined$") as caught:
        store.fetch(ObjectInfo("x", None, None), 0)
    assert caught.value.server == cluster.url
