"""Every sink passes one suite: local folders, S3 (moto), emulators of Google's cloud and Azure; AIStore elsewhere."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from commands import tar2tf
from quick_retries import PATIENT
from servers import azure_container, refusing_proxy
from sink_suite import RemoteSinkSuite, SinkSuite
from tar2tf_cli.errors import SinkError, Tar2tfError, UsageError
from tar2tf_cli.sinks import open_sink
from tar2tf_cli.testing.shards import tar_of

pytestmark = pytest.mark.spread


class TestDirectorySink(SinkSuite):
    @pytest.fixture
    def place(self, tmp_path: Path) -> str:
        (tmp_path / "out").mkdir()
        return str(tmp_path / "out")

    def test_files_are_found_in_folders_whose_names_end_with_a_dot(self, place: str) -> None:
        (Path(place) / "v1.").mkdir()
        (Path(place) / "v1." / "x.record").touch()
        assert [*open_sink(f"{place}/t").walk(place, nested=True)] == [("v1.", True), ("v1./x.record", False)]


class TestS3Sink(RemoteSinkSuite):
    @pytest.fixture
    def place(self, s3_client: Any, request: pytest.FixtureRequest) -> str:
        name = f"o{abs(hash(request.node.nodeid)):x}"
        s3_client.create_bucket(Bucket=name)
        return f"s3://{name}/folder"

    @pytest.mark.parametrize(
        ("status", "code", "words"),
        [
            (403, "AccessDenied", "permission denied"),
            (507, "InsufficientStorage", "gave up after"),
            (0, "", "gave up after"),
        ],
        ids=["403", "507", "broken off"],
    )
    def test_a_server_that_refuses_from_some_upload_on_is_told_and_the_same_command_continues(
        self,
        place: str,
        shards: Path,
        tmp_path: Path,
        s3: str,
        status: int,
        code: str,
        words: str,
    ) -> None:
        command = (
            "convert",
            shards,
            "-o",
            f"{place}/t-<>.record",
            "--records-per-shard",
            "30",
            "-j",
            "2",
            "--retry-for",
            "0.3",
        )
        with refusing_proxy(s3, after=3, status=status, code=code) as endpoint:
            failed = tar2tf(*command, env={"AWS_ENDPOINT_URL": endpoint}, code=PATIENT)
        self.assert_the_same_command_continues(failed, place, shards, tmp_path, words, f"{place}/t-")


COUNT_CLIENTS = """
import os
import obstore.store

class Counted(obstore.store.S3Store):
    def __new__(cls, *arguments, **options):
        with open(os.environ["CLIENTS"], "a") as file:
            file.write(f"{os.getpid()}\\n")
        return super().__new__(cls, *arguments, **options)

obstore.store.S3Store = Counted
"""


@pytest.mark.xdist_group("s3")
@pytest.mark.parametrize("way", ["from", "to", "from and to", "verify"])
def test_a_process_opens_one_client_for_all_objects_of_a_bucket_and_one_for_uploads(
    way: str,
    s3_client: Any,
    tmp_path: Path,
) -> None:
    name = f"c{abs(hash(way)):x}"
    s3_client.create_bucket(Bucket=name)
    (tmp_path / "shards").mkdir()
    for number in range(24):
        data = tar_of(10, first=10 * number)
        (tmp_path / "shards" / f"s-{number:02}.tar").write_bytes(data)
        s3_client.put_object(Bucket=name, Key=f"in/s-{number:02}.tar", Body=data)
    (tmp_path / "sitecustomize.py").write_text(COUNT_CLIENTS)  # which workers import, too, whoever starts them
    log = tmp_path / "clients"
    environment = {
        "CLIENTS": str(log),
        "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    bucket = f"s3://{name}/in" if way.startswith("from") else tmp_path / "shards"
    out = f"s3://{name}/out" if way != "from" else tmp_path / "out"
    command = ("convert", bucket, "s-*.tar", "-o", f"{out}/t-<>.record", "--records-per-shard", "10", "-j", "2")
    done = tar2tf(*command, env=environment)
    assert done.returncode == 0, done.stderr
    if way == "verify":
        log.unlink()
        done = tar2tf("verify", f"{out}/_t-manifest.json", "-j", "2", env=environment)
        assert done.returncode == 0, done.stderr
    *workers, main = sorted(Counter(log.read_text().split()).values())
    assert main == {"from": 1, "to": 2, "from and to": 3, "verify": 1}[way]
    assert set(workers) <= {1}
    assert len(workers) <= 3  # two that read, and one beside them that writes shards


class TestGcsSink(RemoteSinkSuite):
    @pytest.fixture
    def place(self, gcs: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
        import requests

        monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs)
        name = f"o{abs(hash(request.node.nodeid)):x}"
        requests.post(f"{gcs}/storage/v1/b", json={"name": name}, timeout=60).raise_for_status()
        return f"gs://{name}/folder"


class TestAzureSink(RemoteSinkSuite):
    @pytest.fixture
    def place(self, azure: str, request: pytest.FixtureRequest) -> str:
        name = f"o{abs(hash(request.node.nodeid)):x}"
        azure_container(azure, name)
        return f"az://{name}/folder"


@pytest.mark.parametrize("path", ["http://host/t-<>.record", "ftp://host/x", "s3://<split>/t-<>.record"])
def test_places_that_cannot_be_written_are_usage_errors(path: str) -> None:
    with pytest.raises(UsageError):
        open_sink(path)


def test_a_bucket_without_a_path_in_it_is_named() -> None:
    with pytest.raises(UsageError, match="the output path 's3://bucket' has no file name") as caught:
        open_sink("s3://bucket")
    assert caught.value.hint == "add one, such as 's3://bucket/train-<>.record'"


def test_sink_errors_are_in_the_tree() -> None:
    assert issubclass(SinkError, Tar2tfError)
