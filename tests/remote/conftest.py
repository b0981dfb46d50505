"""What the tests of transformers share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tar2tf_cli import Conversion, convert


@pytest.fixture
def local(tmp_path: Path) -> Callable[..., bytes]:
    """Convert a tar here with these options of `Conversion`; return the records."""

    def converted(tar: bytes, **options: Any) -> bytes:
        (tmp_path / "local.tar").write_bytes(tar)
        convert(Conversion(tmp_path / "local.tar", tmp_path / "local.record", **options), workers=1, overwrite=True)
        return (tmp_path / "local.record").read_bytes()

    return converted
