"""Fixtures of this room."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from commands import convert
from input_buckets import MAKERS
from interruptions import WAYS
from shards import every_file, large_shards, small_shards


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough work for a kill to hit any part of it."""
    return large_shards(tmp_path_factory.mktemp("large"), shards=6, each=120)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_shards(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def undisturbed(bucket: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, bytes]]:
    """What an undisturbed run of each way writes."""
    root = tmp_path_factory.mktemp("undisturbed")

    def made(way: str) -> dict[str, bytes]:
        if not (root / way).exists():
            convert(bucket, "-o", root / way / "train-<>.record", *WAYS[way])
        return every_file(root / way)

    return made


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A bucket of each kind, made once."""
    root = tmp_path_factory.mktemp("inputs")

    def make(kind: str) -> Path:
        if not (root / kind).exists():
            MAKERS[kind](root / kind)
        return root / kind

    return make
