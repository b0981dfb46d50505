"""Every sink passes one suite: local folders, S3 (moto), a Google Cloud Storage emulator; AIStore elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tar2tf_cli.errors import SinkError, Tar2tfError, UsageError
from tar2tf_cli.sinks import Sink, open_sink
from tar2tf_cli.sinks.objects import ObjectSink
from tar2tf_cli.sources import open_source
from test_sources import gcs, read_all, s3, s3_client, tar2tf, tar_of  # noqa: F401 - some are fixtures


class SinkSuite:
    """What every sink must do; `place` is an output folder as its user writes it."""

    @pytest.fixture
    def place(self) -> str:
        raise NotImplementedError

    @pytest.fixture
    def sink(self, place: str) -> Any:
        sink = open_sink(f"{place}/t-<>.record")
        yield sink
        sink.close()

    @pytest.fixture
    def parts(self, tmp_path: Path) -> Path:
        (tmp_path / "parts").mkdir()
        return tmp_path / "parts"

    def publish(self, sink: Sink, parts: Path, path: str, data: bytes) -> None:
        part = parts / path.replace("/", "-")
        part.write_bytes(data)
        sink.publish(str(part), path)

    def test_what_is_published_is_there_and_the_local_file_is_not(self, sink: Sink, place: str, parts: Path) -> None:
        path = sink.inside(f"{place}/t-1.record")
        assert not sink.exists(path, now=True)
        assert (sink.size(path), sink.read(path)) == (None, None)
        self.publish(sink, parts, path, b"whole")
        sink.flush([os.path.dirname(path)])
        assert sink.exists(path, now=True)
        assert sink.read(path) == b"whole"
        assert sink.locate(path) == f"{place}/t-1.record"
        assert not os.listdir(parts)
        again = open_sink(f"{place}/t-<>.record")
        assert again.size(path) == 5

    def test_publishing_replaces(self, sink: Sink, place: str, parts: Path) -> None:
        path = sink.inside(f"{place}/t-1.record")
        for data in (b"before", b"after!"):
            self.publish(sink, parts, path, data)
            sink.flush([os.path.dirname(path)])
        assert sink.read(path) == b"after!"

    def test_many_files_are_published(self, sink: Sink, place: str, parts: Path) -> None:
        folder = sink.inside(f"{place}/")
        paths = [os.path.join(folder, f"sub/t-{number}.record") for number in range(20)]
        for path in paths:
            self.publish(sink, parts, path, os.urandom(100_000))
        sink.flush({os.path.dirname(path) for path in paths})
        found = open_sink(f"{place}/t-<>.record").walk(os.path.normpath(folder), nested=True)
        assert sorted(name for name, is_folder in found if not is_folder) == sorted(
            f"sub/t-{number}.record" for number in range(20)
        )

    def test_walking_stops_at_folders_where_it_should(self, sink: Sink, place: str, parts: Path) -> None:
        folder = sink.inside(f"{place}/")
        for name in ("t-1.record", "sub/t-2.record"):
            self.publish(sink, parts, os.path.join(folder, name), b"x")
        sink.flush([os.path.join(folder, "sub")])
        fresh = open_sink(f"{place}/t-<>.record")
        found = [name for name, is_folder in fresh.walk(os.path.normpath(folder), nested=False) if not is_folder]
        assert found == ["t-1.record"]

    def test_removing_what_is_not_there_is_no_error(self, sink: Sink, place: str, parts: Path) -> None:
        path = sink.inside(f"{place}/t-1.record")
        self.publish(sink, parts, path, b"x")
        sink.flush([os.path.dirname(path)])
        for _ in range(2):
            sink.remove(path)
            assert not sink.exists(path)
            assert not sink.exists(path, now=True)

    def test_the_working_folder_is_local_and_of_this_output_alone(self, sink: Sink, place: str) -> None:
        first = sink.working_folder(sink.inside(f"{place}/a-manifest.json"))
        second = sink.working_folder(sink.inside(f"{place}/b-manifest.json"))
        assert first != second
        assert os.path.isabs(first)
        assert "://" not in first


class RemoteSinkSuite(SinkSuite):
    """What is true of buckets alone."""

    @pytest.fixture(autouse=True)
    def cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def test_a_missing_bucket_is_one_error(self, place: str, parts: Path) -> None:
        sink = open_sink(f"{place.partition('://')[0]}://no-such-bucket-anywhere/t-<>.record")
        self.publish(sink, parts, "t-1.record", b"x")
        with pytest.raises(SinkError) as caught:
            sink.flush([""])
        sink.close()
        assert "no-such-bucket-anywhere" in (caught.value.shard or "")
        assert (parts / "t-1.record").exists()

    def test_bytes_that_arrive_damaged_are_an_error(
        self, sink: ObjectSink, place: str, parts: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put = sink._store.put

        def damaged(name: str, path: str) -> None:
            whole = Path(path).read_bytes()
            Path(path).write_bytes(whole[:-1])
            put(name, path)
            Path(path).write_bytes(whole)

        monkeypatch.setattr(sink._store, "put", damaged)
        self.publish(sink, parts, sink.inside(f"{place}/t-1.record"), b"whole")
        with pytest.raises(SinkError, match="5 bytes were uploaded and 4 bytes arrived"):
            sink.flush([""])
        assert os.listdir(parts)

    @pytest.fixture
    def shards(self, tmp_path: Path) -> Path:
        folder = tmp_path / "shards"
        folder.mkdir()
        for number in range(6):
            (folder / f"s-{number}.tar").write_bytes(tar_of(40, 20_000, first=40 * number))
        return folder

    def objects(self, place: str) -> dict[str, bytes]:
        source = open_source(place)
        return {item.name: read_all(source, item) for item in source.list(["*"])}

    def local(self, shards: Path, *options: str) -> dict[str, bytes]:
        out = shards.parent / "local"
        done = tar2tf("convert", shards, "-o", out / "t-<>.record", *options)
        assert done.returncode == 0, done.stderr
        return {path.name: path.read_bytes() for path in out.iterdir()}

    @pytest.mark.parametrize("template", ["t-<>.record", "t-<000>-of-<total>.record"])
    def test_converting_to_a_bucket_gives_what_it_gives_in_a_folder(
        self, place: str, shards: Path, tmp_path: Path, template: str
    ) -> None:
        out = tmp_path / "local"
        for target in (str(out), place):
            done = tar2tf("convert", shards, "-o", f"{target}/{template}", "--records-per-shard", "50", "--index")
            assert done.returncode == 0, done.stderr
        expected = {path.name: path.read_bytes() for path in out.iterdir()}
        assert len(expected) == 11
        assert self.objects(place) == expected
        assert not os.listdir(tmp_path / "cache" / "tar2tf")

    def test_the_same_command_again_is_a_no_op(self, place: str, shards: Path) -> None:
        command = ("convert", shards, "-o", f"{place}/t-<>.record", "--records-per-shard", "50")
        assert tar2tf(*command).returncode == 0
        again = tar2tf(*command)
        assert again.returncode == 0
        assert "up to date" in again.stderr
        (shards / "s-6.tar").write_bytes(tar_of(3, first=900))
        changed = tar2tf(*command)
        assert changed.returncode == 2
        assert "s-6.tar changed" in changed.stderr
        assert tar2tf(*command, "--overwrite").returncode == 0

    def test_what_others_wrote_is_not_replaced(self, place: str, shards: Path, parts: Path, sink: Sink) -> None:
        self.publish(sink, parts, sink.inside(f"{place}/t-2.record"), b"precious")
        sink.flush([""])
        command = ("convert", shards, "-o", f"{place}/t-<>.record", "--records-per-shard", "50")
        refused = tar2tf(*command)
        assert refused.returncode == 2
        assert f"{place}/t-2.record: is there already" in refused.stderr
        assert self.objects(place) == {"t-2.record": b"precious"}
        assert tar2tf(*command, "--overwrite").returncode == 0
        assert self.objects(place) == self.local(shards, "--records-per-shard", "50")

    def test_a_killed_run_continues(self, place: str, shards: Path, tmp_path: Path) -> None:
        command = ["convert", str(shards), "-o", f"{place}/t-<>.record", "--records-per-shard", "3", "-j", "1"]
        process = subprocess.Popen([sys.executable, "-m", "tar2tf_cli", *command], stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        found = 0
        while found < 4 and process.poll() is None and time.monotonic() < deadline:
            fresh = open_sink(f"{place}/t-<>.record")
            found = len(list(fresh.walk(fresh.inside(place), nested=False)))
        assert process.poll() is None, "it was too quick to be killed"
        process.kill()
        process.wait()
        assert "t-manifest.json" not in self.objects(place)
        done = tar2tf(*command)
        assert done.returncode == 0, done.stderr
        assert "continuing an interrupted run" in done.stderr
        assert self.objects(place) == self.local(shards, "--records-per-shard", "3")
        assert not os.listdir(tmp_path / "cache" / "tar2tf")

    def test_a_failed_upload_is_exit_code_3_and_the_same_command_continues(self, place: str, shards: Path) -> None:
        missing = f"{place.partition('://')[0]}://no-such-bucket-anywhere"
        done = tar2tf("convert", shards, "-o", f"{missing}/t-<>.record")
        assert done.returncode == 3
        assert done.stderr.count("error:") == 1
        assert "Traceback" not in done.stderr


class TestDirectorySink(SinkSuite):
    @pytest.fixture
    def place(self, tmp_path: Path) -> str:
        (tmp_path / "out").mkdir()
        return str(tmp_path / "out")


class TestS3Sink(RemoteSinkSuite):
    @pytest.fixture
    def place(self, s3_client: Any, request: pytest.FixtureRequest) -> str:  # noqa: F811
        name = f"o{abs(hash(request.node.nodeid)):x}"
        s3_client.create_bucket(Bucket=name)
        return f"s3://{name}/folder"


class TestGcsSink(RemoteSinkSuite):
    @pytest.fixture
    def place(self, gcs: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:  # noqa: F811
        import requests

        monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs)
        name = f"o{abs(hash(request.node.nodeid)):x}"
        requests.post(f"{gcs}/storage/v1/b", json={"name": name}, timeout=5).raise_for_status()
        return f"gs://{name}/folder"


@pytest.mark.parametrize("path", ["http://host/t-<>.record", "ftp://host/x", "s3://<split>/t-<>.record"])
def test_places_that_cannot_be_written_are_usage_errors(path: str) -> None:
    with pytest.raises(UsageError):
        open_sink(path)


def test_sink_errors_are_in_the_tree() -> None:
    assert issubclass(SinkError, Tar2tfError)
