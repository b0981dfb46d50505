"""The store that the reference shows is used by its URLs, and passes the suites that are shipped."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from added_package import declare
from commands import SECONDS
from shards import write_tar

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "extending.md").read_text(encoding="utf-8")
STORE, TESTS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
(DECLARED,) = re.findall(r'^\[project\.entry-points\."([\w.]+)"\]\nram = "([\w.:]+)"', PAGE, re.MULTILINE)


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the store of the page, installed, and its tests."""
    (tmp_path / "memory_store.py").write_text(STORE)
    (tmp_path / "test_memory_store.py").write_text(TESTS)
    group, target = DECLARED
    monkeypatch.setenv("PYTHONPATH", str(declare(tmp_path, "memory-store", f"[{group}]\nram = {target}\n")))
    return tmp_path


def run(*command: object, folder: Path) -> subprocess.CompletedProcess[str]:
    text = [sys.executable, *map(str, command)]
    return subprocess.run(text, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)


def test_the_store_of_the_page_passes_the_suites(environment: Path) -> None:
    done = run(
        "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "test_memory_store.py", folder=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^[4-9]\d passed", done.stdout, re.MULTILINE), done.stdout


def test_the_store_of_the_page_is_fifty_lines() -> None:
    assert len(STORE.splitlines()) <= 55


def test_a_store_without_put_is_refused_as_output_before_anything_is_read(environment: Path) -> None:
    write_tar(environment / "in.tar", [("a", {"txt": b"one"})])
    module = environment / "memory_store.py"
    module.write_text(STORE[: STORE.index("    def put(")])
    done = run("-m", "tar2tf_cli", "convert", "in.tar", "-o", "ram://bucket/x.record", folder=environment)
    assert done.returncode == 2
    assert "ram:// buckets cannot be written to" in done.stderr
    assert "write to a folder, ais://, s3://, gs://, az:// or hf://buckets/" in done.stderr
    assert "Traceback" not in done.stderr
