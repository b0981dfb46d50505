"""What tests of stores share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def netrc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Write a .netrc with a login for a host."""

    def write(host: str) -> None:
        (tmp_path / "netrc").write_text(f"machine {host} login me password secret\n")
        (tmp_path / "netrc").chmod(0o600)

    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    return write
