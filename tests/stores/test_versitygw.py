"""Shards in an S3 server that checks signatures, regions and permissions, unlike moto: versitygw on a folder."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from commands import tar2tf
from optional_servers import started
from servers import S3_KEYS, UNRELIABLE, Forwarder, go_command, serving, unreliable_proxy, versitygw
from sources import BucketSuite, PlainSuite
from tar2tf_cli import Conversion, Output, convert
from tar2tf_cli.errors import SinkError, SourceError
from tar2tf_cli.inputs.unfinished import hidden_in, unfinished_of
from tar2tf_cli.sinks import open_sink
from tar2tf_cli.stores import cloud, open_source, open_store, retries
from tar2tf_cli.stores.cloud import S3Store
from tar2tf_cli.testing.shards import read_all, tar_of

pytestmark = pytest.mark.xdist_group("s3")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("versitygw") / "buckets"


@pytest.fixture(scope="module")
def gateway(folder: Path) -> Iterator[str]:
    with started(versitygw(folder)) as url, pytest.MonkeyPatch.context() as patch:
        for name, value in {**S3_KEYS, "AWS_ENDPOINT_URL": url}.items():
            patch.setenv(name, value)
        yield url


@pytest.fixture
def bucket(gateway: str, folder: Path, request: pytest.FixtureRequest) -> str:
    name = f"b{abs(hash(request.node.nodeid)):x}"
    (folder / name).mkdir()
    return f"s3://{name}"


def put(bucket: str, name: str, data: bytes, folder: Path) -> None:
    (folder / "object").write_bytes(data)
    open_store(bucket).put(name, str(folder / "object"))


class TestVersitygw(BucketSuite, PlainSuite):
    def address(self) -> str:
        return self.url

    @pytest.fixture
    def bucket(self, bucket: str, gateway: str, tmp_path: Path) -> str:
        self.folder, self.url = tmp_path, gateway
        return bucket

    def put(self, bucket: str, name: str, data: bytes) -> None:
        put(bucket, name, data, self.folder)


REFUSALS = [
    ({"AWS_ACCESS_KEY_ID": "nobody"}, "wrong access key"),
    ({"AWS_SECRET_ACCESS_KEY": "nope"}, "wrong secret key"),
    ({"AWS_REGION": "eu-west-9"}, "wrong region"),
    ({"AWS_ACCESS_KEY_ID": "other", "AWS_SECRET_ACCESS_KEY": "other-secret"}, "permission denied"),
]


@pytest.mark.parametrize(("variables", "words"), REFUSALS, ids=[words for _, words in REFUSALS])
def test_each_refusal_is_named_at_once_when_listing_reading_and_writing(
    bucket: str, gateway: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], words: str
) -> None:
    put(bucket, "x.tar", tar_of(3), tmp_path)
    (item,) = open_source(bucket).list(["x.tar"])
    if words == "permission denied":
        user = ["create-user", "--access", "other", "--secret", "other-secret", "--role", "user"]
        root = ["--access", S3_KEYS["AWS_ACCESS_KEY_ID"], "--secret", S3_KEYS["AWS_SECRET_ACCESS_KEY"]]
        command = [str(go_command("versitygw")), "admin", *root, "--endpoint-url", gateway, *user]
        subprocess.run(command, check=True, capture_output=True)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "part").write_bytes(b"part")
    sink = open_sink(f"{bucket}/t-<>.record")

    def write() -> None:
        sink.publish(str(tmp_path / "part"), "t-1.record")
        sink.flush([""])

    monkeypatch.setattr(retries.RetryPolicy, "wait", None)  # nothing is tried again
    for action in (
        lambda: open_source(bucket).list(["*"]),
        lambda: open_source(bucket).list(["x.tar"]),
        lambda: read_all(open_source(bucket), item),
        write,
    ):
        with pytest.raises((SourceError, SinkError), match=words) as caught:
            action()
        assert caught.value.hint
    sink.close()


def test_a_public_bucket_is_read_without_credentials(
    bucket: str, gateway: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boto3 = pytest.importorskip("boto3")
    put(bucket, "x.tar", tar_of(3), tmp_path)
    name = bucket.removeprefix("s3://")
    who = {"Effect": "Allow", "Principal": "*", "Action": ["s3:GetObject", "s3:ListBucket"]}
    policy = {"Statement": [{**who, "Resource": [f"arn:aws:s3:::{name}", f"arn:aws:s3:::{name}/*"]}]}
    keys = {
        "aws_access_key_id": S3_KEYS["AWS_ACCESS_KEY_ID"],
        "aws_secret_access_key": S3_KEYS["AWS_SECRET_ACCESS_KEY"],
    }
    client = boto3.client("s3", endpoint_url=gateway, region_name=S3_KEYS["AWS_REGION"], **keys)
    client.put_bucket_policy(Bucket=name, Policy=json.dumps(policy))
    for variable in S3_KEYS:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1")
    command = ("convert", bucket, "-o", tmp_path / "x.record")
    refused = tar2tf(*command)
    assert refused.returncode == 3
    assert "no credentials were found" in refused.stderr
    assert "--no-sign-request" in refused.stderr
    done = tar2tf(*command, "--no-sign-request")
    assert done.returncode == 0, done.stderr
    assert tar2tf("inspect", bucket, "--no-sign-request").returncode == 0


def test_an_upload_in_parts_that_a_killed_run_left_is_aborted(
    bucket: str, gateway: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boto3 = pytest.importorskip("boto3")
    keys = dict(zip(("aws_access_key_id", "aws_secret_access_key", "region_name"), S3_KEYS.values(), strict=True))
    client, name = boto3.client("s3", endpoint_url=gateway, **keys), bucket.removeprefix("s3://")
    for key in ("a/big.record", "a/big.record.other"):
        upload = client.create_multipart_upload(Bucket=name, Key=key)["UploadId"]
        client.upload_part(Bucket=name, Key=key, UploadId=upload, PartNumber=1, Body=bytes(5 << 20))
    monkeypatch.setattr(S3Store, "one_put", 1 << 20)
    monkeypatch.setattr(cloud, "PART", 5 << 20)
    data = bytes(range(256)) * (6 << 12)
    put(f"{bucket}/a", "big.record", data, tmp_path)
    left = [upload["Key"] for upload in client.list_multipart_uploads(Bucket=name)["Uploads"]]
    assert left == ["a/big.record.other"]
    assert client.get_object(Bucket=name, Key="a/big.record")["Body"].read() == data


def test_a_bad_network_changes_no_byte(
    bucket: str, gateway: str, tmp_path: Path, quick_retries: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    for number in range(12):
        data = tar_of(40, 4000, first=40 * number)
        (tmp_path / "in" / f"{number:02d}.tar").write_bytes(data)
        put(bucket, f"in/{number:02d}.tar", data, tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    expected, limit = tmp_path / "out", {"records_per_shard": 50}
    convert(Conversion(tmp_path / "in", Output(expected / "t-<>.record", **limit)), workers=1)
    monkeypatch.setattr(retries, "READ_SECONDS", 0.5)
    spec = Conversion(f"{bucket}/in", Output(f"{bucket}/out/t-<>.record", **limit), retry_for=300)
    with unreliable_proxy(gateway, seed=1) as (url, done):
        convert(spec, workers=1, endpoint=url)
    assert set(UNRELIABLE) < set(done)
    source = open_source(f"{bucket}/out")
    found = {item.name: read_all(source, item) for item in source.list(["*.record"])}
    assert found == {path.name: path.read_bytes() for path in expected.glob("*.record")}


def test_workers_are_forked_beside_the_threads_of_obstore(bucket: str, tmp_path: Path) -> None:
    put(bucket, "x.tar", tar_of(3), tmp_path)
    code = f"""
from tar2tf_cli.engines.local import may_fork
from tar2tf_cli.stores import open_source
import os, threading
assert open_source({bucket!r}).list(["*.tar"])
assert len(os.listdir("/proc/self/task")) > 1
assert may_fork()
threading.Thread(target=threading.Event().wait, daemon=True).start()
assert not may_fork()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_home_that_cannot_be_written_to_is_named_instead_of_the_bucket(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.tar").write_bytes(tar_of(3))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/dev/null")
    with pytest.raises(SinkError, match="Not a directory") as caught:
        convert(Conversion(tmp_path / "x.tar", f"{bucket}/out/<>.record"), workers=1)
    assert str(caught.value.shard).startswith("/dev/null/.cache/tar2tf/")
    assert "set XDG_CACHE_HOME" in str(caught.value.hint)


@pytest.fixture
def many(bucket: str, folder: Path) -> str:
    """A bucket of 2,400 shards next to others, and two claims."""
    names = [*(f"in/a-{number:04}" for number in range(1200)), *(f"in/b-{number:04}" for number in range(1200))]
    for name in [*names, "in/.a-manifest.tar2tf/claim", "in/sub/.b-manifest.tar2tf/claim", "in/+x", "other"]:
        path = folder / bucket.removeprefix("s3://") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    return bucket


def listings(gateway: str) -> tuple[type[Forwarder], list[str]]:
    """A server that passes requests on, and the listings that it was asked for."""
    asked: list[str] = []

    class Logging(Forwarder):
        url = gateway

        def do_GET(self) -> None:
            asked.extend([self.path] if "list-type" in self.path else [])
            super().do_GET()

    return Logging, asked


@pytest.mark.parametrize(
    ("prefix", "expected", "pages"),
    [
        (".", [".a-manifest.tar2tf/claim"], 1),
        ("a-0", [f"a-{number:04}" for number in range(1000)], 2),
        ("a-0007", ["a-0007"], 1),
        ("c", [], None),
        ("sub/.", ["sub/.b-manifest.tar2tf/claim"], None),
    ],
)
def test_a_listing_ends_with_the_page_after_which_no_name_can_match(
    many: str, gateway: str, prefix: str, expected: list[str], pages: int | None
) -> None:
    handler, asked = listings(gateway)
    with serving(handler) as url:
        store = open_store(f"{many}/in/", endpoint=url)
        assert [item.name for item in store.list(prefix)] == expected
    assert pages in (None, len(asked))


def test_hidden_objects_are_known_once_their_folder_was_listed(many: str, gateway: str) -> None:
    handler, asked = listings(gateway)
    with serving(handler) as url:
        source = open_source(f"{many}/in", endpoint=url)
        assert hidden_in(f"{many}/in", source) is None
        assert len(source.list(["*"])) == 2401
        assert hidden_in(f"{many}/in", source) == [".a-manifest.tar2tf/claim"]
        assert hidden_in(f"{many}/in/sub", source) == [".b-manifest.tar2tf/claim"]
        assert hidden_in(f"{many}/in/a", source) == []
        assert hidden_in(many, source) is None
        before = len(asked)
        found = unfinished_of([f"{many}/in/a-0000"], source)
    assert not found, "a claim that is no JSON claims nothing"
    assert len(asked) == before + 1, "of the folder above alone"
