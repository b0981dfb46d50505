"""Packages with parts of their own, installed for a test."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

ADDED = Path(__file__).parent / "added"
"""A package with one part of each kind."""


def install(folder: Path) -> Path:
    """Install that package into a folder, as pip does, and return the folder."""
    shutil.copytree(ADDED / "parts", folder / "parts")
    return declare(folder, "parts", (ADDED / "entry_points.txt").read_text())


def declare(folder: Path, package: str, entry_points: str) -> Path:
    """Write the metadata of a package into a folder, and return the folder."""
    metadata = folder / f"{package}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(entry_points)
    return folder


def put_on_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process import the packages in a folder; of those that it has imported from another, what is lacking."""
    for package in folder.iterdir():
        if package.name in sys.modules:
            monkeypatch.setattr(sys.modules[package.name], "__path__", [str(package)])
    monkeypatch.syspath_prepend(folder)
