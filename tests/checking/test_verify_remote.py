"""A manifest in a bucket is verified as one in a folder is: the same faults, the same exit codes, on real stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from manifest_suite import (
    ManifestSuite,
    WritableManifestSuite,
    flip,
)
from servers import FaultyServer, faulty_server
from verify_runs import Ran, faults_of

pytestmark = pytest.mark.spread


class TestS3(WritableManifestSuite):
    @pytest.fixture
    def place(self, s3_client: Any, request: pytest.FixtureRequest) -> str:
        name = f"v{abs(hash(request.node.nodeid)):x}"
        s3_client.create_bucket(Bucket=name)
        return f"s3://{name}/deep/folder"


class TestGcs(WritableManifestSuite):
    @pytest.fixture
    def place(self, gcs: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
        import requests

        monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs)
        name = f"v{abs(hash(request.node.nodeid)):x}"
        requests.post(f"{gcs}/storage/v1/b", json={"name": name}, timeout=60).raise_for_status()
        return f"gs://{name}/folder"


class TestHttp(ManifestSuite):
    can_list = False

    @pytest.fixture
    def web(self) -> Iterator[FaultyServer]:
        with faulty_server() as state:
            yield state

    @pytest.fixture
    def place(self, web: FaultyServer) -> str:
        self.web = web
        return f"{web.url}/folder"

    def put(self, place: str, path: Path) -> None:
        self.web.objects[f"folder/{path.name}"] = path.read_bytes()

    @pytest.mark.parametrize("method", ["HEAD", "GET"])
    def test_a_shard_that_may_not_be_read_is_not_missing(
        self,
        place: str,
        out: Path,
        run: Callable[..., Ran],
        method: str,
    ) -> None:
        url = self.upload(place, out)
        self.web.fail(f"{method} folder/photos-2", "status", times=-1, status=401)
        ran = run(url, "--json")
        if method == "GET":
            assert (ran.code, faults_of(ran)) == (1, [("photos-2.record", "damaged", "unreadable")])
            assert "the server requires credentials" in ran.out
        else:
            assert (ran.code, ran.out) == (3, "")
            assert f"error: {place}/photos-2.record: the server requires credentials" in ran.err

    def test_secrets_of_its_url_reach_the_shards_and_no_message(
        self,
        place: str,
        out: Path,
        run: Callable[..., Ran],
    ) -> None:
        flip(out)
        url = self.upload(place, out)
        ran = run(url.replace("http://", "http://user:secret@") + "?sig=hidden", "--verbose")
        assert ran.code == 1
        assert f"{place}/photos-3.record: record 0" in ran.out
        assert not any(word in ran.out + ran.err for word in ("secret", "hidden"))
