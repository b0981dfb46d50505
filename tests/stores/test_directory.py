"""Folders as a store."""

from __future__ import annotations

from pathlib import Path

import pytest

from sources import SourceSuite


class TestDirectory(SourceSuite):
    @pytest.fixture
    def bucket(self, tmp_path: Path) -> str:
        return str(tmp_path / "bucket")

    def put(self, bucket: str, name: str, data: bytes) -> None:
        path = Path(bucket, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
