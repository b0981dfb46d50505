"""Ctrl-C at any moment, and readers of the output that go away."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from commands import COMMAND, SECONDS, convert, tar2tf
from shards import PHOTOS, samples, write_tar

AT_IMPORT = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["CTRL_C_AT"]:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
"""


@pytest.mark.parametrize(
    "module",
    [
        *("tar2tf_cli.cli", "click", "tar2tf_cli.errors", "tar2tf_cli.cli.convert", "tar2tf_cli.cli.options"),
        *("tar2tf_cli.cli.output", "tar2tf_cli.conversion.run", "tar2tf_cli.formats.tar"),
    ],
)
def test_ctrl_c_during_imports_ends_with_130(module: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(AT_IMPORT)
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = tar2tf("convert", PHOTOS, "-o", tmp_path / "x.record", env={"PYTHONPATH": path, "CTRL_C_AT": module})
    assert done.returncode == 130
    assert done.stderr.partition("\n")[0] in ("", "error: interrupted")
    assert not (tmp_path / "x.record").exists()


def test_ctrl_c_while_python_runs_a_string_ends_with_130_and_not_by_a_signal(tmp_path: Path) -> None:
    """Dataclasses and named tuples are made in this way, so that it happens often."""
    (tmp_path / "sitecustomize.py").write_text(AT_IMPORT.replace("os.kill(", "exec('raise KeyboardInterrupt') or ("))
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    for module in ("tar2tf_cli.cli", "tar2tf_cli.conversion.run"):
        done = tar2tf("convert", PHOTOS, "-o", tmp_path / "x.record", env={"PYTHONPATH": path, "CTRL_C_AT": module})
        assert done.returncode == 130


def test_ctrl_c_while_ctrl_c_is_reported_ends_with_130(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(AT_IMPORT)
    (tmp_path / "tqdm.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    variables = {"PYTHONPATH": path, "CTRL_C_AT": "tar2tf_cli.conversion.publish"}
    done = tar2tf("convert", PHOTOS, "-o", tmp_path / "x.record", "--progress", env=variables)
    assert done.returncode == 130


@pytest.mark.parametrize(
    "command",
    [
        "convert {good} -o - -j 1",
        "convert {good} -o - -j 2",
        "inspect {good}",
        "inspect {good} --json",
        "verify {bad}",
        "--help",
        "convert --help",
        "--version",
    ],
)
def test_a_reader_that_is_gone_ends_the_command_in_silence(command: str, tmp_path: Path) -> None:
    good, bad = write_tar(tmp_path / "good.tar", samples(300)), tmp_path / "bad.tar"
    bad.write_bytes(good.read_bytes()[:2000])  # a fault is a line on standard output
    arguments = [word.format(good=good, bad=bad) for word in command.split()]
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = tar2tf(*arguments, capture_output=False, stdout=writer, stderr=subprocess.PIPE)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


def test_what_a_reader_took_before_it_went_is_whole(tmp_path: Path) -> None:
    write_tar(tmp_path / "in.tar", samples(3000))
    convert(tmp_path / "in.tar", "-o", tmp_path / "x.record")
    inspect = shlex.join([*COMMAND, "inspect", str(tmp_path / "x.record")])
    keys = f"{inspect} | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", keys], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.stdout.count("\n") == 1
    assert done.returncode in (0, 141), "0 where all fitted into the pipe"
    assert done.stderr == ""
