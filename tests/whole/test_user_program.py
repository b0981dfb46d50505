"""The public names: listed, documented, light to import, and typed, as a program of a user's finds them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tar2tf_cli
import user_program
from shards import PHOTOS

pytestmark = [pytest.mark.spread, pytest.mark.on_disk]

ROOT = Path(tar2tf_cli.__file__).parent


def test_public_names_are_listed_documented_and_there() -> None:
    assert set(tar2tf_cli.__all__) <= set(dir(tar2tf_cli))
    for name in tar2tf_cli.__all__:
        assert getattr(tar2tf_cli, name).__name__ == name
        assert name in (tar2tf_cli.__doc__ or "")
        assert getattr(tar2tf_cli, name).__doc__


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'convrt'"):
        tar2tf_cli.convrt  # noqa: B018


def test_importing_the_package_and_its_specs_imports_nothing_heavy() -> None:
    script = "import sys, tar2tf_cli; tar2tf_cli.Conversion('in', 'x.record'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert not {"numpy", "tensorflow", "pydantic", "ruamel", "click", "cv2", "requests"} & set(done.stdout.split())


def test_a_program_runs_and_passes_mypy_strict(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    assert (ROOT / "py.typed").exists()
    command = [sys.executable, "-m", "mypy", "--strict", "--disallow-any-unimported", "--follow-imports=silent"]
    done = subprocess.run(
        [*command, "--cache-dir", os.devnull, user_program.__file__],
        capture_output=True,
        text=True,
        timeout=280,
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT.parent)},
    )
    assert done.returncode == 0, done.stdout
    user_program.main(PHOTOS, tmp_path)
