"""Fixtures of this room."""

from __future__ import annotations

from pathlib import Path

import pytest

from shards import small_shards


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_shards(tmp_path_factory.mktemp("small"))
