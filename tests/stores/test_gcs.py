"""Shards in Google Cloud Storage."""

from __future__ import annotations

import pytest
import requests

from sources import SourceSuite
from tar2tf_cli.errors import SourceError
from tar2tf_cli.stores import open_source


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
