"""Fixtures of this room."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def out(converted: Path, tmp_path: Path) -> Path:
    """A conversion of the photographs, to be damaged."""
    return Path(shutil.copytree(converted, tmp_path / "out"))
