"""A real AIStore, one proxy and two targets, passes the suite of all sources; and what is special to it."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from commands import tar2tf, wait_until
from manifest_suite import WritableManifestSuite
from servers import (
    AWS_MISSING,
    Forwarder,
    Node,
    QuietHandler,
    ais_cluster,
    faulty_server,
    knows_aws,
    moto_server,
    nobody_listens,
    private_network,
    serving,
    wait_for,
)
from sink_suite import RemoteSinkSuite
from sources import BucketSuite
from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.errors import SinkError, SourceError, UsageError
from tar2tf_cli.sinks.objects import ObjectSink
from tar2tf_cli.stores import open_source, open_store, retries, transfer
from tar2tf_cli.stores.ais import AisStore
from tar2tf_cli.stores.source import ObjectSource
from tar2tf_cli.testing.shards import read_all, tar_of
from tar2tf_cli.testing.sources import BIG

pytestmark = pytest.mark.xdist_group("aistore")

NODES: list[Node] = []
"""The nodes of the cluster, if it is one of our own."""

AWS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_REGION": "us-east-1"}


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("aistore", reason="no AIStore SDK: pip install aistore")
    before = dict(os.environ)
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: (os.environ.clear(), os.environ.update(before)))
        try:
            if knows_aws():
                stack.enter_context(private_network())
                os.environ |= {"S3_ENDPOINT": stack.enter_context(moto_server()), **AWS}
            folder, s3 = tmp_path_factory.mktemp("ais"), os.environ.get("S3_ENDPOINT")
            cluster = ais_cluster(folder, s3=s3, nodes=None if "AIS_ENDPOINT" in os.environ else NODES)
            os.environ["AIS_ENDPOINT"] = stack.enter_context(cluster)
        except (FileNotFoundError, PermissionError) as error:
            pytest.skip(str(error))
        yield os.environ["AIS_ENDPOINT"]


@pytest.fixture(scope="module")
def client(endpoint: str) -> Any:
    from aistore.sdk import Client

    return Client(endpoint)


class _Guard(QuietHandler):
    status: int
    message: str

    def do_GET(self) -> None:
        body = json.dumps({"status": self.status, "message": self.message}).encode()
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def guard() -> Iterator[str]:
    """A proxy that answers every request in the same words."""
    _Guard.status, _Guard.message = 401, "token expired"
    with serving(_Guard) as url:
        yield url


PASSING = [
    "p[qzAt47111]: no storage targets in the cluster",
    'p[a]: failed to call t[b] list[S4_0], err: Get "http://10.0.0.1:5/v1": dial tcp: connect: connection refused',
]


@pytest.fixture
def ais(client: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """An empty bucket, which goes afterwards."""
    bucket = client.bucket(f"b{abs(hash(request.node.nodeid)):x}").create()
    yield bucket
    bucket.delete()


@pytest.fixture
def bucket(ais: Any) -> str:
    return f"ais://{ais.name}"


def put(ais: Any, name: str, data: bytes) -> None:
    ais.object(name).get_writer().put_content(data)


class TestAistore(BucketSuite):
    @pytest.fixture
    def bucket(self, ais: Any) -> str:
        self.ais = ais
        return f"ais://{ais.name}"

    def put(self, bucket: str, name: str, data: bytes) -> None:
        put(self.ais, name, data)


class TestListing:
    def test_goes_on_over_pages(self, ais: Any, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tar2tf_cli.stores.ais.AisStore.PAGE", 7)
        for number in range(30):
            put(ais, f"p-{number:04d}.tar", b"p")
        assert [item.name for item in open_source(bucket).list([])] == [f"p-{number:04d}.tar" for number in range(30)]

    def test_reads_the_clusters_own_templates(self, ais: Any, bucket: str) -> None:
        for number in range(12):
            put(ais, f"p-{number:03d}.tar", b"p")
        source = open_source(bucket)
        assert [item.name for item in source.list(["p-@002.tar"])] == ["p-000.tar", "p-001.tar", "p-002.tar"]
        assert len(source.list(["p-%03d.tar"])) == 12

    def test_numbers_come_in_their_order(self, ais: Any, bucket: str) -> None:
        for number in (10, 9, 2, 100):
            put(ais, f"p-{number}.tar", b"p")
        put(ais, "p-2-old.tar", b"p")
        names = [item.name for item in open_source(bucket).list(["p-%d.tar"])]
        assert names == ["p-2.tar", "p-9.tar", "p-10.tar", "p-100.tar"]

    def test_knows_namespaces(self, client: Any) -> None:
        from aistore.sdk.types import Namespace

        inner = client.bucket("inner", namespace=Namespace(name="space")).create()
        try:
            put(inner, "x.tar", b"in a namespace")
            source = open_source("ais://#space/inner")
            (item,) = source.list(["*.tar"])
            assert read_all(source, item) == b"in a namespace"
            assert source.locate("x.tar") == "ais://#space/inner/x.tar"
            with pytest.raises(SourceError, match="does not exist"):
                open_source("ais://inner").list(["*.tar"])
        finally:
            inner.delete()


class TestTransfers:
    def test_a_broken_transfer_goes_on_where_it_stopped(self, ais: Any, bucket: str) -> None:
        put(ais, "x.tar", BIG)
        store = open_store(bucket)
        fetch, starts = store.fetch, []

        def breaking(item: ObjectInfo, start: int, size: int | None = None) -> transfer.Body:
            body = fetch(item, start, size)
            starts.append(body.start)
            if len(starts) < 4:
                whole, left = body.read, [2]

                def read(size: int) -> bytes:
                    left[0] -= 1
                    if left[0] < 0:
                        raise retries.Transient("broken by the test")
                    return whole(size)

                body.read = read
            return body

        store.fetch = breaking  # type: ignore[method-assign]
        source = ObjectSource(store)
        (item,) = source.list(["x.tar"])
        assert read_all(source, item) == BIG
        block = transfer.ResumingStream.BLOCK
        assert starts == [0, 2 * block, 4 * block, 6 * block]

    def test_an_object_replaced_between_two_parts_is_no_mixture(self, ais: Any, bucket: str) -> None:
        put(ais, "x.tar", BIG)
        store = open_store(bucket)
        fetch = store.fetch

        def replaced(item: ObjectInfo, start: int, size: int | None = None) -> transfer.Body:
            body = fetch(item, start, size)
            whole, left = body.read, [2]

            def first(size: int) -> bytes:
                left[0] -= 1
                if left[0]:
                    return whole(size)
                body.close()  # or the cluster would keep the writer waiting
                put(ais, "x.tar", bytes(len(BIG)))
                raise retries.Transient("broken by the test")

            if start == 0:
                body.read = first
            return body

        store.fetch = replaced  # type: ignore[method-assign]
        source = ObjectSource(store)
        (item,) = source.list(["x.tar"])
        with pytest.raises(SourceError, match="changed while it was being read"):
            read_all(source, item)

    def test_damaged_bytes_do_not_pass_the_checksum(self, ais: Any, bucket: str) -> None:
        put(ais, "x.tar", BIG)
        store = open_store(bucket)
        fetch = store.fetch

        def damaged(item: ObjectInfo, start: int) -> transfer.Body:
            body = fetch(item, start)
            read = body.read
            body.read = lambda size: read(size).replace(b"the end", b"The end")
            return body

        store.fetch = damaged  # type: ignore[method-assign]
        source = ObjectSource(store)
        with pytest.raises(SourceError, match="checksum"):
            read_all(source, source.list(["x.tar"])[0])


class TestEndpoint:
    def test_an_option_tells_where_the_cluster_is_for_both_ends(
        self, ais: Any, bucket: str, endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("AIS_ENDPOINT")
        put(ais, "in.tar", tar_of(20))
        command = ("convert", bucket, "in.tar", "-o", f"{bucket}/out/t-<>.record")
        environment = {"XDG_CACHE_HOME": str(tmp_path)}
        assert tar2tf(*command, env=environment).returncode == 2
        done = tar2tf(*command, "--endpoint", endpoint.removeprefix("http://"), env=environment)
        assert done.returncode == 0, done.stderr
        assert f"manifest {bucket}/out/_t-manifest.json" in done.stderr
        names = [item.name for item in open_source(f"{bucket}/out", endpoint=endpoint).list(["*"])]
        assert names == ["_t-manifest.json", "t-1.record"]


HELD = """
import itertools, os, sys, time
from tar2tf_cli.cli import main
from tar2tf_cli.stores.ais import AisStore
number, folder = int(sys.argv.pop(1)), sys.argv.pop(1)
put, count = AisStore.put, itertools.count(1)
def held(store, name, path, **how):
    if not name.endswith("/claim") and next(count) == number:
        open(f"{folder}/there", "w").close()
        while not os.path.exists(f"{folder}/killed"):
            time.sleep(0.01)
    return put(store, name, path, **how)
AisStore.put = held
main(sys.argv[1:])
"""
"""The command, of which an upload waits until a node was killed."""


class TestOutages:
    """What a node that dies and comes back does to a run."""

    @pytest.fixture(autouse=True)
    def patient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TAR2TF_RETRY_FOR", "250")  # a node may start slowly

    @pytest.fixture
    def nodes(self, endpoint: str) -> Iterator[dict[str, Node]]:
        """The proxy, which does not wait for its targets when it is started again, and a target."""
        if not NODES:
            pytest.skip("the cluster at AIS_ENDPOINT is not ours to kill")
        if "-skip_startup" not in NODES[0].command:
            NODES[0].command.append("-skip_startup")
        yield {"proxy": NODES[0], "target": NODES[1]}
        for node in NODES[:2]:
            if node.process and node.process.poll() is not None:
                node.start()
        ready = [f"{node.url}/v1/health?readiness=true" for node in NODES[:2]]
        wait_for(lambda: all(requests.get(url, timeout=2).ok for url in ready), *(node.process for node in NODES))

    @pytest.fixture
    def target(self, nodes: dict[str, Node]) -> Node:
        return nodes["target"]

    @pytest.mark.parametrize(("victim", "moment"), [("target", 1), ("target", 2), ("proxy", 1)])
    def test_a_node_killed_while_shards_are_read_and_written_changes_no_byte(
        self, ais: Any, bucket: str, nodes: dict[str, Node], tmp_path: Path, victim: str, moment: int
    ) -> None:
        (tmp_path / "in").mkdir()
        for number in range(24):
            data = tar_of(100 if number % 2 else 10, 4000, first=100 * number)  # one thread fetches the small ones
            put(ais, f"in/{number:02d}.tar", data)
            (tmp_path / "in" / f"{number:02d}.tar").write_bytes(data)
        options = ("--records-per-shard", "70", "-j", "2")
        expected = tmp_path / "out"
        assert tar2tf("convert", tmp_path / "in", "-o", f"{expected}/t-<>.record", *options).returncode == 0

        def be_away() -> None:
            wait_until((tmp_path / "there").exists, "an upload")
            nodes[victim].kill()
            (tmp_path / "killed").touch()
            time.sleep(1)
            nodes[victim].start()

        killer = threading.Thread(target=be_away)
        killer.start()
        upload = str(random.Random(f"{victim} {moment}").randrange(1, 19))
        command = ("convert", f"{bucket}/in", "-o", f"{bucket}/out/t-<>.record", *options)
        cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
        done = tar2tf(upload, tmp_path, *command, env=cache, code=HELD)
        killer.join()
        assert done.returncode == 0, f"killed at upload {upload}: {done.stderr}"
        source = open_source(f"{bucket}/out")
        found = {item.name: read_all(source, item) for item in source.list(["*.record"])}
        assert found == {path.name: path.read_bytes() for path in expected.glob("*.record")}
        assert tar2tf("verify", f"{bucket}/out/_t-manifest.json").returncode == 0

    def test_a_listing_waits_for_a_dead_target(
        self, ais: Any, bucket: str, target: Node, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for number in range(20):
            put(ais, f"{number:02d}.tar", b"x")
        target.kill()
        wait, failures = retries.RetryPolicy.wait, list[retries.Transient]()

        def failed(self: retries.RetryPolicy, fault: retries.Transient, **where: str) -> None:
            if not failures:
                target.start()
            failures.append(fault)
            wait(self, fault, **where)

        monkeypatch.setattr(retries.RetryPolicy, "wait", failed)
        assert len(open_source(bucket).list(["*.tar"])) == 20
        assert failures

    def test_a_target_that_stays_away_is_named(self, ais: Any, bucket: str, target: Node, tmp_path: Path) -> None:
        for number in range(12):
            put(ais, f"{number:02d}.tar", tar_of(3, first=3 * number))
        source = open_source(bucket, retry_for=0.2)
        items = source.list(["*.tar"])
        target.kill()
        with pytest.raises(SourceError, match=f"{target.url}: Connection refused; gave up after") as caught:
            [read_all(source, item) for item in items]
        assert "run the same command again" in (caught.value.hint or "")
        with pytest.raises(SourceError, match=r"failed to call t\[.*gave up after"):
            source.list(["*.tar"])

    def test_a_listing_while_a_node_joins_is_not_taken(
        self, ais: Any, bucket: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put(ais, "x.tar", b"x")
        versions = iter("1233")
        monkeypatch.setattr(AisStore, "cluster_map", lambda self: next(versions))
        assert len(open_source(bucket).list(["*.tar"])) == 1
        assert not list(versions)

    def test_an_object_that_moves_between_nodes_is_waited_for(
        self, ais: Any, bucket: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store, versions = open_store(bucket), iter("1222")
        monkeypatch.setattr(AisStore, "cluster_map", lambda self: next(versions))
        for _ in range(2):
            with pytest.raises(retries.Transient, match="a node left or joined"):
                store.head("x.tar")
        monkeypatch.setattr("tar2tf_cli.stores.ais.SETTLING", 0)
        assert store.head("x.tar") is None

    @pytest.mark.parametrize("message", PASSING)
    def test_a_run_goes_on_when_a_cluster_has_started(
        self, ais: Any, bucket: str, endpoint: str, tmp_path: Path, message: str
    ) -> None:
        """The proxy says this in answer to the first request of each kind."""
        put(ais, "x.tar", tar_of(3))
        turns = Counter[tuple[str, bytes]]()

        class Starting(Forwarder):
            url = endpoint

            def do_GET(self) -> None:
                data = self.body()
                turns[self.path, data] += 1
                if turns[self.path, data] > 1:
                    return self.forward(data)
                return self.answer(400, {}, json.dumps({"status": 400, "message": message}).encode())

        with serving(Starting) as url:
            done = tar2tf("convert", bucket, "-o", tmp_path / "t-<>.record", "--endpoint", url)
        assert done.returncode == 0, done.stderr
        assert turns.total() >= 6

    def test_a_bucket_that_a_node_does_not_know_yet_is_waited_for(
        self, ais: Any, bucket: str, endpoint: str, tmp_path: Path
    ) -> None:
        """A node says this of a new bucket in answer to every other request, until the proxy has told it."""
        put(ais, "x.tar", tar_of(3))
        turns = itertools.count()

        class Late(Forwarder):
            url = endpoint

            def do_GET(self) -> None:
                data = self.body()
                if self.command == "HEAD" or "what=" in self.path or next(turns) % 2:
                    return self.forward(data)
                document = {"status": 404, "message": f'bucket "{bucket}" does not exist', "tcode": "ErrBckNotFound"}
                return self.answer(404, {}, json.dumps(document).encode())

        with serving(Late) as url:
            done = tar2tf("convert", bucket, "-o", tmp_path / "t-<>.record", "--endpoint", url)
        assert done.returncode == 0, done.stderr
        assert next(turns) >= 4

    @pytest.mark.parametrize("message", PASSING)
    def test_what_a_cluster_says_while_it_starts_is_repeated_when_time_is_up(self, guard: str, message: str) -> None:
        _Guard.status, _Guard.message = 400, message
        with pytest.raises(SourceError, match="gave up after 1 attempt"):
            open_source("ais://b", endpoint=guard, retry_for=0).list(["*.tar"])


class TestErrors:
    @pytest.mark.parametrize("answer", [b"{}", b'{"entries": [{"name": "x.tar", "size": "1"}]}'])
    def test_a_page_that_does_not_say_whether_it_is_the_last_is_none(self, endpoint: str, answer: bytes) -> None:
        class Stranger(Forwarder):
            url = endpoint

            def do_GET(self) -> None:
                data = self.body()
                return self.answer(200, {}, answer) if "/v1/buckets/" in self.path else self.forward(data)

        with serving(Stranger) as url, pytest.raises(SourceError, match="is not a page of a listing"):
            open_source("ais://b", endpoint=url, retry_for=0).list(["*.tar"])

    def test_an_endpoint_that_is_a_target_is_told_apart(self, ais: Any, bucket: str, endpoint: str) -> None:
        if not NODES:
            pytest.skip("the targets of the cluster at AIS_ENDPOINT are not known")
        put(ais, "x.tar", b"x")
        with pytest.raises(SourceError, match="the endpoint is a target of the cluster") as caught:
            open_source(bucket, endpoint=NODES[1].url).list(["*.tar"])
        assert "proxy" in (caught.value.hint or "")

    def test_http_and_https_mixed_up_is_told(self, ais: Any, bucket: str, endpoint: str) -> None:
        other = endpoint.replace("http:", "https:")
        with pytest.raises(SourceError, match="the server speaks http, not https") as caught:
            open_source(bucket, endpoint=other).list(["*.tar"])
        assert caught.value.hint == f"write {endpoint}"

    def test_a_missing_bucket_is_named(self, endpoint: str) -> None:
        with pytest.raises(SourceError, match="does not exist") as caught:
            open_source("ais://no-such-bucket").list(["*.tar"])
        assert caught.value.shard == "ais://no-such-bucket"
        assert caught.value.hint == "check the URL and the endpoint"

    def test_a_cloud_that_the_cluster_does_not_know_is_an_error(self, endpoint: str) -> None:
        with pytest.raises(SourceError, match="GCP backend is missing"):
            open_source("ais+gs://bucket").list(["*.tar"])

    def test_one_line_and_exit_code_3(self, ais: Any, bucket: str, tmp_path: Path) -> None:
        put(ais, "half.tar", tar_of(20)[:15000])
        for template, words in (("nope.tar", "has no 'nope.tar'"), ("half.tar", "cut short")):
            done = tar2tf("convert", bucket, template, "-o", tmp_path / "o.record")
            assert done.returncode == 3
            assert words in done.stderr
            assert done.stderr.count("error:") == 1

    def test_a_refused_connection_fails_within_seconds(self) -> None:
        with nobody_listens() as port:
            endpoint = f"http://127.0.0.1:{port}"
            with pytest.raises(SourceError, match=f"{endpoint}: Connection refused; gave up after 1 attempt "):
                open_source("ais://b", endpoint=endpoint, retry_for=0).list(["*.tar"])

    def test_a_server_that_is_no_aistore_is_told_apart(self) -> None:
        with faulty_server() as state, pytest.raises(SourceError, match="not an AIStore cluster") as caught:
            open_source("ais://b", endpoint=state.url).list(["*.tar"])
        assert caught.value.shard == state.url

    def test_without_an_endpoint_the_user_is_told_how_to_give_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("AIS_ENDPOINT", raising=False)
        with pytest.raises(UsageError, match="no address of the AIStore cluster is given") as caught:
            open_source("ais://b")
        assert "AIS_ENDPOINT" in (caught.value.hint or "")

    @pytest.mark.parametrize("bucket", ["ais://", "ais:///x", "ais+ftp://b", "ais://@uuid"])
    def test_a_uri_that_is_none_is_a_usage_error(self, bucket: str) -> None:
        with pytest.raises(UsageError, match="not an AIStore bucket"):
            open_source(bucket, endpoint="http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("bucket", "where"),
    [
        ("ais://b", "ais/@#/b/x"),
        ("ais://b/f/g", "ais/@#/b/f/g/x"),
        ("ais+s3://b", "aws/@#/b/x"),
        ("ais+gs://b/f/", "gcp/@#/b/f/x"),
        ("ais://@uuid#ns/b/f", "ais/@uuid#ns/b/f/x"),
        ("ais://#ns/b", "ais/@#ns/b/x"),
        ("ais://@uuid/b", "ais/@uuid#/b/x"),
    ],
)
def test_uris_are_read_as_the_cluster_reads_them(bucket: str, where: str) -> None:
    store: Any = open_store(bucket, endpoint="proxy:8080")
    assert store.uname("x") == where
    assert store.endpoint == "http://proxy:8080"


class TestTokens:
    """What a cluster of its own does not show; `test_ais_tokens` has the rest."""

    def refused(self, guard: str) -> None:
        with pytest.raises(SourceError, match=r"401.*token expired") as caught:
            open_source("ais://b", endpoint=guard).list(["*.tar"])
        assert "ais auth login" in (caught.value.hint or "")

    def test_a_token_that_the_cluster_repeats_is_not_shown(self, guard: str, monkeypatch: pytest.MonkeyPatch) -> None:
        token = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhZG1pbiJ9.1T72A80d-OuO_aKVUcZk"
        monkeypatch.setenv("AIS_AUTHN_TOKEN", token)
        _Guard.message = f'invalid token from header "Authorization": token expired [err: token revoked]: {token}'
        with pytest.raises(SourceError, match=r"\[err: token revoked\]") as caught:
            open_source("ais://b", endpoint=guard).list(["*.tar"])
        assert not any(part in str(caught.value) for part in token.split("."))

    def test_a_token_file_that_is_not_there_is_a_usage_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("AIS_AUTHN_TOKEN", raising=False)
        monkeypatch.setenv("AIS_AUTHN_TOKEN_FILE", "/no/such/file")
        with pytest.raises(UsageError, match="which does not exist"):
            open_source("ais://b", endpoint="http://127.0.0.1:1").list(["*.tar"])

    def test_the_sdk_writes_nothing_to_standard_error(self, guard: str, capfd: pytest.CaptureFixture[str]) -> None:
        self.refused(guard)
        assert capfd.readouterr() == ("", "")


class TestAistoreManifest(WritableManifestSuite):
    @pytest.fixture
    def place(self, ais: Any) -> str:
        return f"ais://{ais.name}/folder"


class TestAistoreSink(RemoteSinkSuite):
    @pytest.fixture
    def place(self, ais: Any) -> str:
        return f"ais://{ais.name}/folder"

    def test_damage_shows_by_the_clusters_checksum(
        self, sink: ObjectSink, place: str, parts: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put = sink.store.put

        def damaged(name: str, path: str, *, absent: bool = False) -> None:
            whole = Path(path).read_bytes()
            Path(path).write_bytes(whole[:-1] + b"?")
            put(name, path, absent=absent)
            Path(path).write_bytes(whole)

        monkeypatch.setattr(sink.store, "put", damaged)
        self.publish(sink, parts, sink.inside(f"{place}/t-1.record"), b"whole")
        with pytest.raises(SinkError, match="the xxhash2 of the object differs"):
            sink.flush([""])


@pytest.fixture(scope="module")
def s3_behind(endpoint: str) -> Any:
    """A client of the S3 that is behind the cluster."""
    if "S3_ENDPOINT" not in os.environ:
        pytest.skip(AWS_MISSING)
    import boto3

    return boto3.client("s3", endpoint_url=os.environ["S3_ENDPOINT"], region_name=AWS["AWS_REGION"])


@pytest.fixture
def cloud(s3_behind: Any, request: pytest.FixtureRequest) -> str:
    """The name of a new bucket in the S3 that is behind the cluster."""
    name = f"b{abs(hash(request.node.nodeid)):x}"
    s3_behind.create_bucket(Bucket=name)
    return name


class TestCloudBehindAistore(BucketSuite):
    @pytest.fixture
    def bucket(self, s3_behind: Any, cloud: str) -> str:
        self.s3 = s3_behind
        return f"ais+s3://{cloud}"

    def put(self, bucket: str, name: str, data: bytes) -> None:
        self.s3.put_object(Bucket=bucket.removeprefix("ais+s3://"), Key=name, Body=data)

    def test_a_missing_bucket_is_named(self, endpoint: str) -> None:
        with pytest.raises(SourceError, match="bucket") as caught:
            open_source("ais+s3://no-such-bucket").list(["*.tar"])
        assert caught.value.shard == "ais+s3://no-such-bucket"

    def test_versions_do_not_depend_on_what_the_cluster_has_cached(self, bucket: str) -> None:
        self.s3.put_bucket_versioning(
            Bucket=bucket.removeprefix("ais+s3://"), VersioningConfiguration={"Status": "Enabled"}
        )
        names = [f"p-{number:02d}.tar" for number in range(20)]
        for name in names:
            self.put(bucket, name, name.encode())
        source = open_source(bucket)
        cold = source.list(["p-*.tar"])
        assert [read_all(source, item) for item in cold] == [name.encode() for name in names]
        assert None not in {item.version for item in cold}
        identities = [(item.name, item.version) for item in cold]
        assert identities == [(item.name, item.version) for item in open_source(bucket).list(["p-*.tar"])]
        assert identities == [(item.name, item.version) for item in open_source(bucket).list(names)]

    def test_a_second_run_is_a_no_op(self, bucket: str, tmp_path: Path) -> None:
        for number in range(20):
            self.put(bucket, f"in/{number:02d}.tar", tar_of(10, first=10 * number))
        command = ("convert", f"{bucket}/in", "-o", f"{bucket}/out/t-<>.record", "--records-per-shard", "70")
        for words in ("200 records", "up to date: 200 records"):
            done = tar2tf(*command, env={"XDG_CACHE_HOME": str(tmp_path)})
            assert done.returncode == 0, done.stderr
            assert words in done.stderr
        assert tar2tf("verify", f"{bucket}/out/_t-manifest.json").returncode == 0


class TestCloudBehindAistoreSink(RemoteSinkSuite):
    @pytest.fixture
    def place(self, cloud: str) -> str:
        return f"ais+s3://{cloud}/folder"
