"""No traceback for any input."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from commands import convert, tar2tf
from shards import PHOTOS, contents, samples, samples_of, small_shards, tree, write_members, write_tar

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
            done = tar2tf(*command)
            assert done.returncode == (1 if command[0] == "verify" else 3), f"{command[0]} {name}: {done.stderr}"
            where = done.stdout if command[0] == "verify" else done.stderr
            assert str(path) in where.splitlines()[0], f"{command[0]} {name}: {where}"
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
        done = tar2tf("convert", *arguments)
        assert done.returncode == code, (arguments, done.stderr)
        assert named.lower() in done.stderr.lower(), (arguments, done.stderr)
        assert not out.exists()


@pytest.mark.parametrize("kind", ["bucket", "member of the bucket"])
def test_a_pipe_where_a_shard_should_be_does_not_hang(kind: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.tar")
    arguments = [tmp_path / "x.tar"] if kind == "bucket" else [tmp_path, "x.tar"]
    done = tar2tf("convert", *arguments, "-o", tmp_path / "x.record")
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
    for name in (".hidden.tar", ".sub/x.tar"):
        write_tar(tmp_path / name, samples(3))
    for name in ("x.zip", "x.tar.lz4", "README"):
        (tmp_path / name).write_text("no shard")
    document = json.loads(convert(tmp_path, "-o", tmp_path / "out" / "x", "--json").stdout)
    assert document["inputs"] == 1


@pytest.mark.parametrize(
    ("package", "words"),
    [
        ("ruamel.yaml", ["convert", "--spec", "-"]),
        ("obstore", ["inspect", "s3://bucket"]),
        (
            "simplejpeg",
            ["convert", PHOTOS, "-o", "x.record", "--op", "decode:jpg", "--on-error", "skip"],
        ),
    ],
)
def test_a_missing_package_is_named(package: str, words: list[str], tmp_path: Path) -> None:
    program = f"import sys; sys.modules[{package!r}] = None; from tar2tf_cli.cli import main; main()"
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    *_, first, second = done.stderr.splitlines()
    assert (done.returncode, done.stdout, "pip install" in second) == (2, "", True)
    assert first.endswith(f"the Python package {package.partition('.')[0]!r} is not installed")


def test_a_current_directory_that_is_gone_is_named(tmp_path: Path) -> None:
    script = f"cd '{tmp_path}' && rmdir '{tmp_path}' && exec '{sys.executable}' -m tar2tf_cli verify ."
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    done = subprocess.run(["sh", "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.splitlines()[-1] == "error: the current directory: No such file or directory"
