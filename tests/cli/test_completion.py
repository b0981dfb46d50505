"""Shell completion in the shells themselves, typed into a terminal: local paths, options, ops, presets, types."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import shutil
import signal
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import fork_server
from commands import tar2tf
from tar2tf_cli.checking.codes import EXPLANATIONS
from tar2tf_cli.cli import cli
from tar2tf_cli.cli.grammar import SHELLS
from tar2tf_cli.ops import OPS
from tar2tf_cli.ops.base import summary
from tar2tf_cli.plugins import preset_names

START = {"bash": ["--norc", "-i"], "zsh": ["-f", "-i"], "fish": ["--no-config", "-i"]}
READY = {
    "bash": "bind 'set enable-bracketed-paste off'; PS1='> '; eval \"$(tar2tf completion bash)\"",
    "zsh": "PS1='> '; autoload -U compinit; compinit -D; eval \"$(tar2tf completion zsh)\"",
    "fish": "function fish_prompt; echo '> '; end; set fish_autosuggestion_enabled 0; tar2tf completion fish | source",
}


class Shell:
    """An interactive shell in a terminal, in a folder of its own."""

    def __init__(self, name: str, folder: Path) -> None:
        self.folder = folder / "work"
        self._answered, self._out = folder / "answered", folder / "out"
        for path in (self.folder, folder / "bin"):
            path.mkdir()
        self._script("tar2tf", f"{fork_server.command()} \"$@\"; touch '{self._answered}'")
        self._script("show", f"printf '%s\\n' \"$@\" > '{self._out}~'; mv '{self._out}~' '{self._out}'")
        self.terminal, end = pty.openpty()
        path = f"{folder}/bin:{os.environ['PATH']}"
        self.process = subprocess.Popen(
            [name, *START[name]],
            stdin=end,
            stdout=end,
            stderr=end,
            cwd=self.folder,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # fish needs to be in control of it
            env={**os.environ, "PATH": path, "HOME": str(folder), "TERM": "vt100", "PYTHONPATH": os.getcwd()},
        )
        os.close(end)
        self._type(f"{READY[name]}; show ready\r")
        self._wait(self._out)

    def _script(self, name: str, text: str) -> None:
        path = self.folder.parent / "bin" / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def completed(self, line: str) -> list[str]:
        """The arguments in a line after the tab key."""
        self._answered.unlink(missing_ok=True)
        self._type(line + "\t")
        self._wait(self._answered)
        while self._read(0.2):
            pass
        self._type("\x01show \r")  # instead of running the line
        return self._wait(self._out).splitlines()[1:]

    def _type(self, text: str) -> None:
        os.write(self.terminal, text.encode())

    def _read(self, seconds: float) -> bytes:
        ready, _, _ = select.select([self.terminal], [], [], seconds)
        return os.read(self.terminal, 65536) if ready else b""

    def _wait(self, path: Path) -> str:
        """Wait until a file appears, and take its text."""
        end, seen = time.monotonic() + 120, b""
        while not path.exists():
            assert time.monotonic() < end, f"no answer: {seen!r}"
            seen += self._read(0.02)
        text = path.read_text()
        path.unlink()
        return text

    def close(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.terminal)


@pytest.fixture(scope="module", params=START)
def shell(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    if not shutil.which(request.param):
        pytest.skip(f"there is no {request.param}")
    shell = Shell(request.param, tmp_path_factory.mktemp(request.param))
    (shell.folder / "other.tar").touch()
    (shell.folder / "my file.tar").touch()
    (shell.folder / "folder" / "inner").mkdir(parents=True)
    yield shell
    shell.close()


@pytest.mark.xdist_group("terminal")
@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("tar2tf convert oth", ["convert", "other.tar"]),
        ("tar2tf verify folder/in", ["verify", "folder/inner"]),
        ("tar2tf inspect my", ["inspect", "my file.tar"]),
        ("tar2tf convert --max-sh", ["convert", "--max-shard-size"]),
        ("tar2tf convert --op cent", ["convert", "--op", "center_crop:"]),
        ("tar2tf convert --op encode:jpg,jp", ["convert", "--op", "encode:jpg,jpeg"]),
        ("tar2tf convert --type cls=byt", ["convert", "--type", "cls=bytes"]),
        ("tar2tf convert --compression=gz", ["convert", "--compression=gzip"]),
    ],
)
def test_the_tab_key_completes(line: str, completed: list[str], shell: Shell) -> None:
    assert [word.removesuffix("/") for word in shell.completed(line)] == completed


def proposed(line: str, monkeypatch: pytest.MonkeyPatch, shell: str = "zsh") -> list[str]:
    monkeypatch.setenv("COMP_LINE", line)
    text = SHELLS[shell](cli, {}, "tar2tf", "_TAR2TF_COMPLETE").complete()
    return [part.partition("\t")[0] for part in text.splitlines()]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("tar2tf convert --op ", [f"{name}:" if name != "drop_empty" else name for name in OPS]),
        ("tar2tf convert --op c", ["convert:", "cast:", "crop:", "center_crop:"]),
        ("tar2tf convert --op cast:jpg,uint", [f"cast:jpg,uint{bits}" for bits in (8, 16, 32)]),
        ("tar2tf convert --op cast:jp", []),
        ("tar2tf convert --op cast:jpg,uint8,", []),
        ("tar2tf convert --op resize:jpg,", []),
        ("tar2tf convert --op nothing:jpg,", []),
        ("tar2tf convert --op keep:jpg,", []),
        ("tar2tf convert --op func:cr", ["file"]),
        ("tar2tf convert --preset ", preset_names()),
        ("tar2tf convert --type ", []),
        ("tar2tf convert --type=a=int64_", ["--type=a=int64_list"]),
        ("tar2tf convert --labels ", ["imagenet", "file"]),
        ("tar2tf convert --labels a=", ["a=imagenet", "a=auto", "file"]),
        ("tar2tf convert --labels a=au", ["a=auto", "file"]),
        ("tar2tf convert --labels au", ["file"]),
        ("tar2tf convert --preset imagenet-", ["imagenet-tensor"]),
        ("tar2tf convert --preset none", []),
        ("tar2tf inspect x --preset seg", ["segmentation"]),
        ("tar2tf ops ce", ["center_crop"]),
        ("tar2tf ops decode fl", ["flip"]),
        ("tar2tf ops ", list(OPS)),
        ("tar2tf explain data", [code for code in EXPLANATIONS if code.startswith("data")]),
        ("tar2tf explain gap tr", [code for code in EXPLANATIONS if code.startswith("tr")]),
        ("tar2tf explain ", list(EXPLANATIONS)),
        ("tar2tf convert --op func:", ["file"]),
        ("tar2tf convert --op no", []),
        ("tar2tf convert --on-error ", ["fail", "skip"]),
        ("tar2tf convert ", ["file"]),
        ("tar2tf convert a.tar b", ["file"]),
        ("tar2tf verify --key-split l", ["last"]),
        ("tar2tf completion ", list(SHELLS)),
        ("tar2tf ", list(cli.list_commands(None))),  # type: ignore[arg-type]
        ("tar2tf convert 'my fi", ["file"]),
    ],
)
def test_what_is_proposed(line: str, expected: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert proposed(line, monkeypatch) == expected


def test_a_proposal_has_its_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    def lines(line: str) -> list[str]:
        monkeypatch.setenv("COMP_LINE", line)
        return SHELLS["zsh"](cli, {}, "tar2tf", "_TAR2TF_COMPLETE").complete().splitlines()

    ops = {name: summary(op) for name, op in OPS.items()}
    assert lines("tar2tf ops ") == [f"{name}\t{text}" for name, text in ops.items()]
    assert lines("tar2tf convert --op fli") == [f"flip:\t{ops['flip']}"]
    assert lines("tar2tf convert --op drop") == [f"drop_empty\t{ops['drop_empty']}"]
    assert lines("tar2tf explain data_") == [f"data_crc\t{EXPLANATIONS['data_crc'].means}"]
    assert lines("tar2tf convert --labels x=")[:2] == ["x=imagenet\tImageNet-1k", "x=auto\tall values, sorted"]


def test_bash_gets_what_follows_its_own_word_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMP_WORDBREAKS", " \t\n\"'><=;|&(:")
    assert proposed("tar2tf convert --type=a=int64_", monkeypatch, "bash") == ["int64_list"]
    assert proposed("tar2tf convert --op cast:jpg,uint1", monkeypatch, "bash") == ["jpg,uint16"]
    monkeypatch.setenv("COMP_WORDBREAKS", " \t\n")
    assert proposed("tar2tf convert --op cast:jpg,uint1", monkeypatch, "bash") == ["cast:jpg,uint16"]
    assert proposed("tar2tf convert so", monkeypatch, "bash") == [], "it lists files by itself"


@pytest.mark.parametrize("shell", START)
def test_the_command_prints_the_script_of_a_shell(shell: str) -> None:
    assert tar2tf("completion", shell).stdout == SHELLS[shell].script
    assert tar2tf("completion", "csh").stderr.startswith("error: shell must be 'bash', 'zsh' or 'fish', not 'csh'")


@pytest.mark.parametrize(
    "line", ["inspect x --to ", "verify x --salvage ", "verify x --against ", "convert --example-class "]
)
def test_options_that_take_a_path_complete_local_paths(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert proposed(f"tar2tf {line}", monkeypatch) == ["file"]
