"""Builds the peer in go_tfdata/ against the public Go module; nothing of the module is kept here."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

MODULE: Final = "github.com/NVIDIA/go-tfdata"
VERSION: Final = "v0.3.1"
SOURCE: Final = Path(__file__).with_name("go_tfdata") / "main.go"


class NotBuilt(Exception):
    """The peer cannot be built here; says why."""


def build(folder: Path) -> Path:
    """Build the program in a folder that is kept for later runs; the Go command fetches the module.

    Raises:
        NotBuilt: when there is no Go command, or it cannot fetch or build the module.
    """
    program = folder / "main"
    if program.exists() and program.stat().st_mtime > SOURCE.stat().st_mtime:
        return program
    if not shutil.which("go"):
        raise NotBuilt("there is no go command on PATH")
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(SOURCE, folder)
    (folder / "go.mod").write_text(f"module peer\n\ngo 1.13\n\nrequire {MODULE} {VERSION}\n")
    command = ["go", "build", "-mod=mod", "-o", program.name, "."]
    done = subprocess.run(command, cwd=folder, env={**os.environ, "GOWORK": "off"}, capture_output=True, text=True)
    if done.returncode:
        raise NotBuilt(" ".join(done.stderr.split()) or f"go build exited with {done.returncode}")
    return program
