"""Fixtures of this room."""

from __future__ import annotations

from pathlib import Path

import pytest

from recorder_runs import make_toys


@pytest.fixture
def toys(tmp_path: Path) -> tuple[Path, Path]:
    return make_toys(tmp_path)
