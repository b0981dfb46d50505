"""Shards in Azure Blob Storage."""

from __future__ import annotations

from pathlib import Path

import pytest

from servers import azure_container
from sources import BucketSuite, PlainSuite
from tar2tf_cli.errors import SourceError, UsageError
from tar2tf_cli.stores import open_source, open_store

pytestmark = pytest.mark.xdist_group("azure")


class TestAzure(BucketSuite, PlainSuite):
    def address(self) -> str:
        return self.url

    @pytest.fixture
    def bucket(self, azure: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
        self.folder, self.url = tmp_path, azure
        name = f"b{abs(hash(request.node.nodeid)):x}"
        azure_container(azure, name)
        return f"az://{name}"

    def put(self, bucket: str, name: str, data: bytes) -> None:
        (self.folder / "object").write_bytes(data)
        open_store(bucket).put(name, str(self.folder / "object"))

    def test_a_missing_container_is_named(self, azure: str) -> None:
        with pytest.raises(SourceError, match="no such bucket") as caught:
            open_source("az://no-such-container").list(["*.tar"])
        assert caught.value.shard == "az://no-such-container"

    def test_a_wrong_key_is_named(self, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "AAAA")
        with pytest.raises(SourceError, match="permission denied") as caught:
            open_source(bucket).list(["*.tar"])
        assert "AZURE_STORAGE_ACCOUNT_KEY" in (caught.value.hint or "")


def test_without_an_account_the_variables_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ENDPOINT", "ACCOUNT_NAME", "ACCOUNT_KEY"):
        monkeypatch.delenv(f"AZURE_STORAGE_{name}", raising=False)
    with pytest.raises(UsageError, match="Account must be specified") as caught:
        open_source("az://container").list(["*.tar"])
    assert "AZURE_STORAGE_ACCOUNT_NAME" in (caught.value.hint or "")
