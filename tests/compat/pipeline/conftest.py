"""Fixtures of this room."""

from __future__ import annotations

from pathlib import Path

import pytest

from shards import samples, small_shards, write_tar


@pytest.fixture
def tar(tmp_path: Path) -> Path:
    """Forty samples of a cls and a jpg."""
    return write_tar(tmp_path / "in" / "train.tar", samples(40))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_shards(tmp_path_factory.mktemp("small"))
