"""A package with one part of each kind, installed for a test."""

from __future__ import annotations

import shutil
from pathlib import Path

ADDED = Path(__file__).parent / "added"


def install(folder: Path) -> Path:
    """Install the package into a folder, as pip does, and return the folder."""
    shutil.copytree(ADDED / "parts", folder / "parts")
    metadata = folder / "parts-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: parts\nVersion: 1.0\n")
    shutil.copy(ADDED / "entry_points.txt", metadata)
    return folder
