"""What a terminal shows."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import pytest

from commands import SECONDS, convert, end, start, tar2tf, wait_until
from images import jpeg, photo
from shards import samples, write_members, write_tar

pytestmark = pytest.mark.xdist_group("terminal")

# --- Terminals ---


def on_a_terminal(*arguments: str | Path, environment: dict[str, str], feed: bytes = b"", bars: int = 0) -> str:
    """What a run writes to the terminal that is its stderr, while its stdin comes slowly, piece after piece it took.

    Args:
        bars: how often a bar must have been drawn before the rest comes at once; 0 if none is expected.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    base = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    process = start(
        *arguments,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env={**base, "TERM": "xterm-256color", "COLUMNS": "100", **environment},
    )
    os.close(theirs)
    text, step = b"", len(feed) // 64 + 1
    try:
        assert process.stdin
        for position in range(0, len(feed), step):
            process.stdin.write(feed[position : position + step])
            process.stdin.flush()
            wait_until(lambda: not unread(process.stdin) or process.poll() is not None, "the piece to be taken")
            if not bars or text.count(b"B/s") < bars:
                time.sleep(0.05 if bars else 0.02)
            while select.select([ours], [], [], 0)[0]:
                text += os.read(ours, 65536)
        process.stdin.close()
        process.stdin = None
        while select.select([ours], [], [], SECONDS)[0]:
            try:
                text += os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
    finally:
        end(process)
        os.close(ours)
    return text.decode()


def unread(pipe: Any) -> int:
    """How many bytes are in a pipe."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_bar_moves_on_a_terminal_and_goes_away(workers: str, tmp_path: Path) -> None:
    feed = write_tar(tmp_path / "in.tar", samples(400)).read_bytes()
    text = on_a_terminal("convert", "-", "-o", tmp_path / "x", "-j", workers, environment={}, feed=feed, bars=2)
    assert text.count("B/s") >= 2
    assert text.rstrip().splitlines()[-1].rpartition("\r")[2].startswith("400 records")


def test_with_a_limit_the_bar_ends_at_100_percent(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import time\n\ndef slow(sample):\n    time.sleep(0.05)\n    return sample\n")
    for number in range(3):
        write_tar(tmp_path / "in" / f"{number}.tar", samples(40, 1_000_000, first=40 * number))
    options = ("--limit", "30", "--op", f"func:{tmp_path / 'slow.py'}:slow", "-j", "1")
    text = on_a_terminal("convert", tmp_path / "in", "-o", tmp_path / "x", *options, environment={})
    drawn = [int(percent) for percent in re.findall(r"(\d+)%\|", text)]
    assert drawn[0] < 50
    assert drawn[-1] == 100


@pytest.mark.parametrize(
    ("options", "environment"),
    [([], {"TERM": "dumb"}), (["--no-progress"], {}), (["-q"], {})],
)
def test_no_bar_where_it_is_unwanted(options: list[str], environment: dict[str, str], tmp_path: Path) -> None:
    feed = write_tar(tmp_path / "in.tar", samples(400)).read_bytes()
    text = on_a_terminal("convert", "-", "-o", tmp_path / "x", *options, environment=environment, feed=feed)
    assert "B/s" not in text
    assert "\x1b" not in text


def test_no_bar_in_a_file(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "in.tar", samples(400))
    done = convert(tar, "-o", tmp_path / "x.record")
    assert "\r" not in done.stderr
    assert "\x1b" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("environment", "colours"),
    [
        ({}, True),
        ({"NO_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
        ({"TERM": "dumb", "FORCE_COLOR": "1"}, True),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
    ],
)
def test_colours_on_a_terminal(environment: dict[str, str], colours: bool) -> None:
    text = on_a_terminal("convert", "/nowhere", "-o", "x", environment=environment)
    assert ("\x1b[" in text) == colours
    assert "no such directory or file" in text


@pytest.mark.parametrize(("environment", "colours"), [({}, False), ({"FORCE_COLOR": "1"}, True)])
def test_colours_in_a_file(environment: dict[str, str], colours: bool) -> None:
    done = tar2tf("convert", "/nowhere", "-o", "x", env={"NO_COLOR": "", "FORCE_COLOR": "", **environment})
    assert ("\x1b[" in done.stderr) == colours


def test_names_in_messages_cannot_affect_a_terminal(tmp_path: Path) -> None:
    name = "a\x1b[2J\nerror: fake"
    good = [("b.cls", b"1"), ("b.jpg", jpeg(photo(8, 8)))]
    write_members(tmp_path / "x.tar", [(f"{name}.cls", b"1"), (f"{name}.jpg", b"none"), *good])
    arguments = ("convert", tmp_path / "x.tar", "-o", tmp_path / "x\x1b[2J.record", "-v")
    refused = tar2tf(*arguments, "--op", "decode:jpg", env={"FORCE_COLOR": "1"})
    first, hint, *_ = refused.stderr.splitlines()
    assert r"x.tar, member a\x1b[2J\nerror: fake.jpg, offset 0: cannot be" in first
    assert (first.count("\x1b"), "\x1b" in hint) == (3, False)  # of the word in colour
    assert "\x1b" not in tar2tf(*arguments, "--dry-run").stdout
    skipped = tar2tf(*arguments, "--op", "decode:jpg", "--on-error", "skip").stderr.splitlines()
    assert not any(line.startswith("error") for line in skipped)
    done = tar2tf(*arguments, "--overwrite", env={"FORCE_COLOR": "1"})
    assert (done.stderr.count(r"x\x1b[2J.record"), "\x1b" in done.stderr) == (1, False)


def test_a_newline_in_a_name_does_not_begin_a_line_of_a_note_or_summary(tmp_path: Path) -> None:
    key = "a\nerror: fake"
    write_members(tmp_path / "x.tar", [("b.txt", b"1"), (f"{key}.mask.png", b"1"), (f"{key}2.txt", b"none")])
    (tmp_path / "keys").write_text("\\no\\nerror: fake\nb\n")
    arguments = ("convert", tmp_path / "x.tar", "-o", tmp_path / "x.record", "--on-error", "skip")
    noted = tar2tf(*arguments, "--type", "txt=int64", "--keys", tmp_path / "keys", "--keys-missing", "skip").stderr
    noted += tar2tf(*arguments, "--overwrite", "--type", "txt=int64").stderr
    assert r"a\nerror: fake.mask.png is treated as key" in noted
    assert not any(line.startswith("error") for line in noted.splitlines())


def test_a_spec_with_several_problems_has_a_line_for_each(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("sed: 1\nlimt: 2\n")
    done = tar2tf("convert", "--spec", tmp_path / "x.yaml")
    assert [":1:1: " in line or ":2:1: " in line for line in done.stderr.splitlines()[:2]] == [True, True]


def test_without_a_terminal_a_plain_line_tells_how_far_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tar2tf_cli.cli import output

    now = 1000.0
    monkeypatch.setattr(output.time, "monotonic", lambda: now)
    with output.Terminal() as terminal:
        terminal.planned(3, 1_000_000_000)
        for second in range(100):
            now = 1000.0 + second
            terminal.progress(second * 10_000_000)
    assert capsys.readouterr().err.splitlines() == [
        "31% of 1 GB read, about 69 s left",
        "62% of 1 GB read, about 38 s left",
        "93% of 1 GB read, about 7 s left",
    ]
    now = 1000.0
    with output.Terminal() as terminal:
        terminal.planned(3, 1_000_000_000, 600_000_000)  # of which an interrupted run read 600 MB
        now = 1100.0
        terminal.progress(600_000_000)
        now = 1150.0
        terminal.progress(700_000_000)
    assert capsys.readouterr().err.splitlines() == ["600 MB read in 100 s", "70% of 1 GB read, about 450 s left"]
    now = 1000.0
    with output.Terminal() as terminal:
        terminal.planned(1, None)
        now = 1100.0
        terminal.progress(5_000_000)
    assert capsys.readouterr().err.splitlines() == ["5 MB read in 100 s"]


@pytest.mark.parametrize("words", ["convert - -o x.record", "verify -", "inspect -", "convert in.tar -o -"])
def test_a_terminal_gets_no_records_and_is_not_waited_for(words: str, tmp_path: Path) -> None:
    write_tar(tmp_path / "in.tar", samples(1))
    ours, theirs = pty.openpty()
    try:
        done = tar2tf(
            *words.split(),
            cwd=tmp_path,
            stdin=theirs,
            stdout=theirs,
            stderr=subprocess.PIPE,
            capture_output=False,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 2
    assert "terminal" in done.stderr.splitlines()[0]
