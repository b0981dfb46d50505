"""The manners of the command line: what goes where, exit codes, options, terminals, and no traceback for any input."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import socket
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from shards import (
    COMMAND,
    PHOTOS,
    SECONDS,
    contents,
    convert,
    end,
    records,
    samples,
    samples_of,
    shards_in,
    sizes,
    small_shards,
    start,
    tar2tf,
    tree,
    write_members,
    write_tar,
)
from tar2tf_cli.cli import cli


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_shards(tmp_path_factory.mktemp("small"))


# --- Data on stdout, all else on stderr; exit codes ---


def test_success_says_one_line_on_stderr_and_nothing_on_stdout(bucket: Path, tmp_path: Path) -> None:
    done = convert(bucket, "-o", tmp_path / "x.record")
    assert done.stdout == ""
    assert re.fullmatch(r"246 records, [\d.]+ KB in 1 shard, manifest \S+/x-manifest.json\n", done.stderr)


def test_quiet_says_nothing_but_errors(bucket: Path, tmp_path: Path) -> None:
    done = convert(bucket, "-o", tmp_path / "x.record", "-q")
    assert done.stdout + done.stderr == ""
    done = tar2tf("convert", bucket, "nothing-*.tar", "-o", tmp_path / "y.record", "-q")
    assert done.returncode == 3
    assert done.stderr.startswith("error: ")


def test_quiet_still_tells_of_skipped_samples(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "in.tar", [*samples(3), ("bad", {"cls": b"x", "jpg": b""})])
    done = tar2tf(
        *["convert", tar, "-o", tmp_path / "x.record", "--type", "cls=int64", "--on-error", "skip", "--quiet"]
    )
    assert done.returncode == 1
    assert "'cls'" in done.stderr


def test_verbose_names_each_shard(bucket: Path, tmp_path: Path) -> None:
    done = convert(bucket, "-o", tmp_path / "train-<>.record", "--records-per-shard", "100", "-v")
    shards = shards_in(tmp_path)
    assert len(shards) == 3
    for shard in shards:
        assert f"{shard}: {len(records(shard))} records, {shard.stat().st_size:,} bytes" in done.stderr


def test_json_is_one_document_on_stdout(bucket: Path, tmp_path: Path) -> None:
    command = [bucket, "-o", tmp_path / "train-<>.record", "--records-per-shard", "100", "--json"]
    first, second = json.loads(convert(*command).stdout), json.loads(convert(*command, "-q").stdout)
    assert first == {
        "manifest": str(tmp_path / "train-manifest.json"),
        "up_to_date": False,
        "inputs": 4,
        "records": 246,
        "bytes": sum(sizes(shards_in(tmp_path))),
        "shards": json.loads((tmp_path / "train-manifest.json").read_text())["shards"],
        "skipped": {"samples": 0, "members": {}},
    }
    assert second == {**first, "up_to_date": True}


def test_json_and_records_do_not_share_stdout(bucket: Path) -> None:
    done = tar2tf("convert", bucket, "-o", "-", "--json")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "--json" in done.stderr


def test_a_reader_that_goes_away_gets_no_traceback(bucket: Path, tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "in.tar", samples(300, 10_000))
    for shards in (bucket, tar):
        script = f"{' '.join(COMMAND)} convert {shards} -o - | head -c 100 | wc -c; exit ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=SECONDS, check=False)
        assert done.stdout.strip() == "100"
        assert "Traceback" not in done.stderr
        assert done.returncode in (0, 3), "0 where all fitted into the pipe"
        assert len(done.stderr.splitlines()) <= 1
    assert done.returncode == 3
    assert "standard output was closed" in done.stderr


def test_a_field_that_the_shell_took_away_is_told(bucket: Path, tmp_path: Path) -> None:
    for path, told in (("out/train-<>.record", True), ("'out/train-<>.record'", False), ("out/train", False)):
        script = f"{' '.join(COMMAND)} convert {bucket} -o {path} --overwrite"
        done = subprocess.run(
            ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        assert done.returncode == 0, done.stderr
        assert ("needs quotes, such as -o 'out/train-<>.record'" in done.stderr) == told


def test_stdout_that_cannot_be_written_is_an_error(bucket: Path, tmp_path: Path) -> None:
    for options in (["-o", tmp_path / "x.record", "--json"], ["-o", tmp_path / "y.record", "--dry-run"], ["-o", "-"]):
        with open("/dev/full", "w") as full:
            done = tar2tf("convert", bucket, *options, capture_output=False, stdout=full, stderr=subprocess.PIPE)
        assert done.returncode == 3
        assert "No space left" in done.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_do_no_harm(closed: str, bucket: Path, tmp_path: Path) -> None:
    expected = tmp_path / "expected"
    convert(bucket, "-o", expected / "train-<>.record", "--records-per-shard", "50")
    script = (
        f"{' '.join(COMMAND)} convert {bucket} -o '{tmp_path}/out/train-<>.record' --records-per-shard 50 -v {closed}"
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    assert tree(tmp_path / "out") == tree(expected)


def test_records_do_not_vanish_into_a_closed_stdout(bucket: Path) -> None:
    script = f"{' '.join(COMMAND)} convert {bucket} -o - >&-"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 3
    assert done.stderr == "error: standard output is closed\n"


# --- Help and near misses ---


def test_help_leads_with_examples_and_names_every_option() -> None:
    done = tar2tf("convert", "--help")
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.index("tar2tf convert shards") < done.stdout.index("--max-shard-size")
    for option in cli.get_command(None, "convert").params:  # type: ignore[arg-type, union-attr]
        for name in option.opts:
            assert not name.startswith("-") or name in done.stdout


def test_every_option_and_command_has_a_help_text() -> None:
    for name in cli.list_commands(None):  # type: ignore[arg-type]
        command = cli.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None
        assert command.help
        for option in command.params:
            assert isinstance(option, click.Argument) or getattr(option, "help", None), f"{name} {option.opts}"


@pytest.mark.parametrize(("wrong", "meant"), [("convrt", "convert"), ("verfy", "verify"), ("inspekt", "inspect")])
def test_a_mistyped_command_is_answered_with_the_near_one(wrong: str, meant: str) -> None:
    done = tar2tf(wrong, "x")
    assert done.returncode == 2
    assert f"Did you mean '{meant}'?" in done.stderr
    assert done.stdout == ""


def test_mistyped_options_are_answered_with_the_near_one(bucket: Path) -> None:
    done = tar2tf("convert", bucket, "-o", "x", "--max-shard-sze", "1MB")
    assert done.returncode == 2
    assert "--max-shard-size" in done.stderr
    done = tar2tf("convert", bucket, "-o", "x-<inpt>")
    assert done.returncode == 2
    assert "<input>" in done.stderr


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ([], "-o"),
        (["-o", ""], "path"),
        (["-o", "out/"], "'out/'"),
        (["-o", "."], "'.'"),
        (["-o", ".."], "'..'"),
        (["-o", "x", "--max-shard-size", "0"], "size"),
        (["-o", "x", "--max-shard-size", "-1"], "size"),
        (["-o", "x", "--max-shard-size", "ten"], "size"),
        (["-o", "x", "--max-shard-size", ""], "size"),
        (["-o", "x", "--max-shard-size", "10XB"], "size"),
        (["-o", "x", "--max-shard-size", "1e999"], "size"),
        (["-o", "x", "-j", "0"], "-j"),
        (["-o", "x", "-j", "two"], "-j"),
        (["-o", "x", "--num-shards", "0"], "--num-shards"),
        (["-o", "x", "--num-shards", "99999999999999"], "--num-shards"),
        (["-o", "x", "--num-shards", "2", "--max-shard-size", "1MB"], "--num-shards"),
        (["-o", "x", "--records-per-shard", "-5"], "--records-per-shard"),
        (["-o", "x", "--limit", "-1"], "--limit"),
        (["-o", "x", "--limit", "99999999999999999999999"], "--limit"),
        (["-o", "x", "--seed", "x"], "--seed"),
        (["-o", "x", "--key-split", "middle"], "--key-split"),
        (["-o", "x", "--compression", "zip"], "--compression"),
        (["-o", "x", "--type", "cls"], "cls"),
        (["-o", "x", "--type", "cls=int"], "int64"),
        (["-o", "x", "--on-error", "ignore"], "--on-error"),
        (["-o", "x", "--split", "a=0.5,b=0.5"], "<split>"),
        (["-o", "<split>", "--split", "a=0.5,b=0.6"], "1.1"),
        (["-o", "<split>", "--split", "a=0.5,a=0.5"], "split"),
        (["-o", "<split>", "--split", "a=nan,b=1"], "split"),
        (["-o", "<split>", "--split", "a/b=1"], "split"),
        (["-o", "<split>", "--split", "../a=0.5,b=0.5"], "split"),
        (["-o", "<split>", "--split", "x"], "split"),
        (["-o", "<split>-x"], "--split"),
        (["-o", "x-<total>"], "<total>"),
        (["-o", "x-<>-<>"], "number"),
        (["-o", "x-<>", "--index", "--compression", "gzip"], "--index"),
        (["-o", "-", "--index"], "standard output"),
        (["-o", "-", "--max-shard-size", "1MB"], "standard output"),
        (["-o", "<input>", "--shuffle"], "<input>"),
        (["-o", "<input>-<split>", "--split", "a=1"], "<input>"),
    ],
)
def test_what_cannot_be_carried_out_is_a_usage_error(
    options: list[str], named: str, bucket: Path, tmp_path: Path
) -> None:
    done = tar2tf("convert", bucket, *options, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert named in done.stderr
    assert done.stdout == ""
    assert not list(tmp_path.iterdir())


def test_version_names_python_and_what_it_stands_on() -> None:
    done = tar2tf("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("tar2tf ")
    assert f"Python {sys.version.split()[0]}" in done.stdout
    assert "tensorflow 2." in done.stdout


# --- Sizes and environment ---


@pytest.mark.parametrize(
    ("text", "size"),
    [("100MB", 10**8), ("100MiB", 100 * 2**20), ("1GiB", 2**30), ("1.5 kB", 1500), ("12345", 12345), ("1k", 1000)],
)
def test_sizes_are_decimal_or_binary_as_written(text: str, size: int, bucket: Path, tmp_path: Path) -> None:
    done = convert(bucket, "-o", tmp_path / "x", "--max-shard-size", text, "--dry-run", "--json")
    assert json.loads(done.stdout)["output"]["max_shard_size"] == size


def test_options_can_be_given_in_the_environment_and_flags_win(bucket: Path, tmp_path: Path) -> None:
    environment = {
        "TAR2TF_OUTPUT": str(tmp_path / "train-<>.record"),
        "TAR2TF_MAX_SHARD_SIZE": "20kB",
        "TAR2TF_TYPE": "cls=int64 jpg=bytes",
        "TAR2TF_NUM_WORKERS": "2",
        "TAR2TF_JSON": "1",
        "TAR2TF_INDEX": "1",
    }
    document = json.loads(convert(bucket, env=environment).stdout)
    assert len(document["shards"]) > 3
    features = json.loads((tmp_path / "train-manifest.json").read_text())["features"]
    assert features["cls"]["dtype"] == "int64"
    assert len(list(tmp_path.glob("*.idx"))) == len(document["shards"])
    convert(bucket, "-o", tmp_path / "flag.record", "--max-shard-size", "10MB", env=environment)
    assert (tmp_path / "flag-00000.record").exists()
    bad = tar2tf("convert", bucket, "-o", tmp_path / "y", env={"TAR2TF_NUM_WORKERS": "many"})
    assert bad.returncode == 2
    assert "--num-workers" in bad.stderr


def test_every_environment_variable_is_named_like_its_flag() -> None:
    from tar2tf_cli.cli.convert import command

    for option in command.params:
        flag = next((name for name in option.opts if name.startswith("--")), None)
        if flag:
            expected = "TAR2TF_" + flag.removeprefix("--").replace("-", "_").upper()
            automatic = f"TAR2TF_{(option.name or '').upper()}"
            explicit = [option.envvar] if isinstance(option.envvar, str) else list(option.envvar or [])
            assert expected in [*explicit, automatic], flag


# --- Dry run ---


def test_a_dry_run_shows_plan_and_first_sample_and_writes_nothing(bucket: Path, tmp_path: Path) -> None:
    errors = tmp_path / "errors.jsonl"
    errors.write_text("from before\n")
    done = convert(
        *[bucket, "-o", tmp_path / "out" / "train-<>.record", "--max-shard-size", "20kB", "--type", "cls=int64"],
        *["--errors", errors, "--dry-run"],
    )
    assert "4 inputs" in done.stdout
    assert "small-0.tar" in done.stdout
    assert "train-<>.record" in done.stdout
    for name in ("__key__", "cls", "jpg"):
        assert name in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["errors.jsonl"]
    assert errors.read_text() == "from before\n"


def test_a_dry_run_does_not_wait_for_stdin(tmp_path: Path) -> None:
    read, write = os.pipe()
    try:
        done = convert("-", "-o", tmp_path / "x", "--dry-run", stdin=read, timeout=20)
    finally:
        os.close(read), os.close(write)
    assert "1 input" in done.stdout
    assert not list(tmp_path.iterdir())


# --- Terminals ---


def on_a_terminal(*arguments: str | Path, environment: dict[str, str], feed: bytes = b"", pause: float = 0.15) -> str:
    """What a run writes to the terminal that is its stderr, while its stdin comes slowly."""
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
    text = b""
    try:
        assert process.stdin
        for position in range(0, len(feed), len(feed) // 8 + 1):
            process.stdin.write(feed[position : position + len(feed) // 8 + 1])
            process.stdin.flush()
            time.sleep(pause)
        process.stdin.close()
        process.stdin = None
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline and select.select([ours], [], [], SECONDS)[0]:
            try:
                text += os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
    finally:
        end(process)
        os.close(ours)
    return text.decode()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_bar_moves_on_a_terminal_and_goes_away(workers: str, tmp_path: Path) -> None:
    feed = write_tar(tmp_path / "in.tar", samples(400)).read_bytes()
    text = on_a_terminal("convert", "-", "-o", tmp_path / "x", "-j", workers, environment={}, feed=feed, pause=0.3)
    assert text.count("B/s") >= 2
    assert text.rstrip().splitlines()[-1].rpartition("\r")[2].startswith("400 records")


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
    done = convert(tar, "-o", tmp_path / "x")
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
        terminal.planned(1, None)
        now = 1100.0
        terminal.progress(5_000_000)
    assert capsys.readouterr().err.splitlines() == ["5 MB read in 100 s"]


# --- No traceback for any input ---


def bad_inputs(root: Path) -> dict[str, Path]:
    """Things that are no tar, by name."""
    made = {
        "empty file": b"",
        "text": b"This is not a tar file.\n" * 100,
        "garbage": bytes(range(256)) * 40,
        "zeros then text": bytes(1024) + b"text" * 300,
        "gzip of text": b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03" + b"text" * 200,
        "gzip magic": b"\x1f\x8b",
        "half a header": b"a.jpg" + bytes(100),
        "a header of letters": b"x" * 512,
    }
    paths = {}
    for number, (name, data) in enumerate(made.items()):
        paths[name] = root / f"{number}.tar"
        paths[name].write_bytes(data)
    return paths


def test_files_that_are_no_tar_are_errors_that_name_them(tmp_path: Path) -> None:
    for name, path in bad_inputs(tmp_path).items():
        for command in (["convert", path, "-o", tmp_path / "out" / "x.record"], ["inspect", path], ["verify", path]):
            done = tar2tf(*command, timeout=20)
            expected = (0, 1, 3) if command[0] == "inspect" else (1, 3)
            assert done.returncode in expected, f"{command[0]} {name}: {done.returncode} {done.stderr}"
            if command[0] == "convert":
                assert done.returncode == 3, name
                assert str(path) in done.stderr.splitlines()[0], name
    assert not list((tmp_path / "out").glob("[!.]*"))


def test_paths_that_cannot_be_read_or_written_are_errors(
    bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out" / "x.record"
    file, empty = tmp_path / "file", tmp_path / "empty"
    file.write_text("")
    empty.mkdir()
    (empty / "dir.tar").mkdir()
    (empty / "link.tar").symlink_to("nowhere")
    with socket.socket(socket.AF_UNIX) as listener:
        monkeypatch.chdir(tmp_path)  # a socket's path is short
        listener.bind("socket")
    cases: list[tuple[list[str | Path], int, str]] = [
        ([tmp_path / "missing", "-o", out], 3, "missing"),
        ([bucket, "missing.tar", "-o", out], 3, "missing.tar"),
        ([bucket, "small-{0..9}.tar", "-o", out], 3, "small-4.tar"),
        ([bucket, "*.zip", "-o", out], 3, "*.zip"),
        ([bucket, "{0..99999999999999999}.tar", "-o", out], 2, "1,000,000"),
        ([bucket, "{" * 50 + "a,b" + "}" * 49, "-o", out], 2, "braces"),
        ([bucket, "{a,b}" * 40, "-o", out], 2, "1,000,000"),
        ([bucket / "small-0.tar", "small-0.tar", "-o", out], 3, "template"),
        ([tmp_path / "empty", "dir.tar", "-o", out], 3, "is a directory"),
        ([tmp_path / "empty", "link.tar", "-o", out], 3, "link.tar"),
        ([tmp_path / "socket", "-o", out], 3, "socket"),
        ([bucket, "-o", file / "x.record"], 3, str(file)),
        ([bucket, "-o", tmp_path / ("x" * 300)], 3, "name too long"),
        ([bucket, "-o", "/proc/x.record"], 3, "/proc"),
        ([bucket, "-o", out, "--errors", tmp_path / "no" / "e.jsonl"], 3, "e.jsonl"),
        ([bucket, "-o", out, "--errors", tmp_path, "--overwrite"], 3, str(tmp_path)),
        (["nowhere://x", "-o", out], 2, "nowhere"),
        (["-", "*.tar", "-o", out], 2, "template"),
    ]
    for arguments, code, named in cases:
        done = tar2tf("convert", *arguments, timeout=30)
        assert done.returncode == code, (arguments, done.stderr)
        assert named.lower() in done.stderr.lower(), (arguments, done.stderr)
        assert not out.exists()


@pytest.mark.parametrize("kind", ["bucket", "member of the bucket"])
def test_a_pipe_where_a_shard_should_be_does_not_hang(kind: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.tar")
    arguments = [tmp_path / "x.tar"] if kind == "bucket" else [tmp_path, "x.tar"]
    done = tar2tf("convert", *arguments, "-o", tmp_path / "x.record", timeout=3)
    assert done.returncode in (2, 3)
    assert "x.tar" in done.stderr


def test_a_folder_that_may_not_be_written_is_an_error(bucket: Path, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    tmp_path.chmod(0o500)
    done = tar2tf("convert", bucket, "-o", tmp_path / "x.record")
    assert done.returncode == 3
    assert str(tmp_path) in done.stderr


ODD_NAMES = [
    "with blank",
    "ünï-日本-🙂",
    "new\nline",
    "quo'te\"s",
    "-dash",
    "back\\slash",
    "tab\t",
    "per%cent",
    "[glob]*?",
]


def test_odd_file_names_are_just_names(tmp_path: Path) -> None:
    bucket, out = tmp_path / "in", tmp_path / "out" / " ".join(ODD_NAMES)
    tars = {name: write_tar(bucket / f"{name}.tar", [(f"{name}/x", {"txt": name.encode()})]) for name in ODD_NAMES}
    convert(bucket, "-o", out / "<input>-<>.record", "-v")
    for name, tar in tars.items():
        assert contents(out / f"{name}-1.record") == samples_of(tar)
    assert "up to date" in convert(bucket, "-o", out / "<input>-<>.record").stderr
    joined = f"{' '.join(ODD_NAMES)}-<>.record"
    convert(bucket, "-o", out / joined, "--num-shards", "2", "--index", "--overwrite")
    convert(bucket, "--dry-run", "-o", out / joined)
    for name, tar in list(tars.items())[-3:]:
        convert(bucket, tar.name, "-o", tmp_path / "one" / f"{name}.record")
        assert contents(tmp_path / "one" / f"{name}.record") == samples_of(tar)
    convert(bucket / "-dash.tar", "--output=-dash.record", cwd=tmp_path)
    assert contents(tmp_path / "-dash.record") == samples_of(tars["-dash"])


def test_names_that_are_not_utf8_can_be_printed(tmp_path: Path) -> None:
    tar = write_members(tmp_path / "in" / "caf\udce9.tar", [("\udce9.txt", b"1"), ("\udce9.txt", b"2")])
    for locale in ("C.UTF-8", "C", "POSIX"):
        environment = {"LC_ALL": locale, "LANG": locale}
        dry = tar2tf("convert", tmp_path / "in", "-o", tmp_path / "x", "--dry-run", env=environment)
        assert dry.returncode in (0, 3)
        done = tar2tf("convert", tar, "-o", tmp_path / "x", env=environment)
        assert done.returncode == 3
        assert "twice" in done.stderr


def test_paths_may_be_relative_absolute_or_at_home(bucket: Path, tmp_path: Path) -> None:
    options = ["--records-per-shard", "100", "-q"]
    convert(bucket, "-o", "plain/train-<>.record", *options, cwd=tmp_path)
    convert(bucket, "-o", "./dotted/train-<>.record", *options, cwd=tmp_path)
    convert(bucket, "-o", f"{tmp_path}/absolute//train-<>.record", *options, cwd="/")
    convert(bucket, "-o", "~/home/train-<>.record", *options, cwd="/", env={"HOME": str(tmp_path)})
    (tmp_path / "sub").mkdir()
    convert(bucket, "-o", "../up/train-<>.record", *options, cwd=tmp_path / "sub")
    trees = [tree(tmp_path / name) for name in ("plain", "dotted", "absolute", "home", "up")]
    assert all(found == trees[0] for found in trees)
    assert len(trees[0]) == 4


def test_output_beside_the_input_is_not_taken_for_input(tmp_path: Path) -> None:
    small_shards(tmp_path, shards=2)
    for _ in range(2):
        done = convert(".", "-o", "<input>.record", cwd=tmp_path)
    assert "up to date" in done.stderr
    assert contents(tmp_path / "small-1.record") == samples_of(tmp_path / "small-1.tar")


def test_hidden_files_and_other_kinds_are_no_shards(tmp_path: Path) -> None:
    small_shards(tmp_path, shards=1)
    for name in (".hidden.tar", "x.zip", "x.tar.bz2", "README", ".sub/x.tar"):
        write_tar(tmp_path / name, samples(3))
    document = json.loads(convert(tmp_path, "-o", tmp_path / "out" / "x", "--json").stdout)
    assert document["inputs"] == 1


# --- What is imported ---

POISON = "import pathlib; pathlib.Path({marker!r}).touch(); raise ImportError('this module is not to be imported')"


@pytest.mark.parametrize(
    "arguments",
    [
        ["convert", str(PHOTOS), "-o", "{out}/a-<>.record", "--type", "cls=int64", "-j", "2"],
        ["convert", str(PHOTOS), "-o", "{out}/b-<>.record", "--max-shard-size", "50kB", "-j", "1", "--json"],
        ["convert", str(PHOTOS), "-o", "{out}/c-<>.record", "--shuffle", "--compression", "gzip", "-j", "2"],
        ["convert", str(PHOTOS), "-o", "{out}/d-<>.record", "--dry-run"],
        ["inspect", str(PHOTOS)],
        ["inspect", "{made}"],
        ["verify", "{made}"],
        ["verify", str(PHOTOS)],
        ["convert", "--help"],
        ["inspect", "--help"],
        ["verify", "--help"],
        ["--help"],
        ["--version"],
    ],
    ids=lambda arguments: " ".join(Path(argument).name for argument in arguments),
)
def test_tensorflow_is_never_imported(arguments: list[str], tmp_path: Path) -> None:
    made = tmp_path / "made.record"
    if "{made}" in arguments:
        convert(PHOTOS, "-o", made)
    marker = tmp_path / "imported"
    for name in ("tensorflow", "keras"):
        (tmp_path / "poison" / name).mkdir(parents=True)
        (tmp_path / "poison" / name / "__init__.py").write_text(POISON.format(marker=str(marker)))
    filled = [argument.format(out=tmp_path / "out", made=made) for argument in arguments]
    done = tar2tf(*filled, env={"PYTHONPATH": str(tmp_path / "poison")})
    assert done.returncode == 0, done.stderr
    assert not marker.exists()


def imported_by(*arguments: str) -> set[str]:
    """Names of the modules in a process that has run the command."""
    script = (
        "import sys, atexit\nfrom tar2tf_cli.cli import main\n"
        "atexit.register(lambda: print('\\n'.join(sys.modules), file=sys.stderr))\nmain(sys.argv[1:])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=SECONDS, check=True
    )
    return set(done.stderr.splitlines())


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    loaded = imported_by(*arguments)
    heavy = {"numpy", "tensorflow", "requests", "cv2", "simplejpeg", "pydantic", "ruamel", "tqdm", "isal", "aistore"}
    assert "tar2tf_cli.cli" in loaded
    assert not loaded & heavy


def test_a_plain_conversion_imports_nothing_that_it_does_not_need(tmp_path: Path) -> None:
    loaded = imported_by("convert", str(PHOTOS), "-o", str(tmp_path / "x.record"))
    heavy = {"numpy", "tensorflow", "requests", "cv2", "simplejpeg", "pydantic", "ruamel", "aistore", "fsspec"}
    assert "tar2tf_cli.conversion.run" in loaded
    assert not loaded & heavy


def test_the_command_runs_within_a_python_program_too() -> None:
    result: Any = CliRunner().invoke(cli, ["--help"])
    assert result.exit_code == 0
    assert "convert" in result.output
