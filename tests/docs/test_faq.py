"""Every message on the page of errors is what the tool prints, word for word, for the command above it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from commands import tar2tf
from shards import PHOTOS, samples, write_members, write_tar

pytestmark = pytest.mark.xdist_group("pages")

PAGE = Path(__file__).parents[2] / "docs" / "faq.md"
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SHELLS = re.compile(r"-o [^' ]*<| \| ")


def sessions() -> list[tuple[str, str]]:
    """Each command of the page, and what the page says that it prints."""
    text = "".join(CONSOLE.findall(PAGE.read_text(encoding="utf-8")))
    return [(part.partition("\n")[0], part.partition("\n")[2]) for part in re.split(r"^\$ ", text, flags=re.M)[1:]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the commands of the page find: whole shards, and others with one fault each."""
    folder = tmp_path_factory.mktemp("faq")
    for number in range(4):
        write_tar(folder / "shards" / f"train-{number:04d}.tar", samples(20, first=20 * number))
    whole = (folder / "shards" / "train-0000.tar").read_bytes()
    with tarfile.open(folder / "shards" / "train-0000.tar") as tar:
        tenth, half = (tar.getmembers()[place].offset for place in (20, 21))
    (folder / "cut.tar").write_bytes(whole[: tenth + 600])
    (folder / "between.tar").write_bytes(whole[:tenth])
    (folder / "half.tar").write_bytes(whole[:half] + bytes(1024))
    (folder / "zeros.tar").write_bytes(whole + bytes(3 << 20))
    (folder / "error.tar").write_text("<!DOCTYPE html>\n<title>404 Not Found</title>\n")
    for name, members in {
        "readme": {"README": b"hello"},
        "names": {"0000.cls": b"cat"},
        "tiff": {"0000.jpg": b"II*\0\x08\0\0\0"},
        "page": {"0000.jpg": b"<html>404 Not Found"},
    }.items():
        write_members(folder / f"{name}.tar", members.items())
    write_members(folder / "twice.tar", [("0000.txt", b"a"), ("0000.txt", b"b")])
    write_members(folder / "apart.tar", [(f"{key}.{name}", b"0") for name in ("cls", "txt") for key in "ab"])
    write_members(folder / "dots.tar", [(f"a.{key}.{name}", b"0") for key in "12" for name in ("cls", "jpg")])
    for name in ("photos/cat", "photos/dog", "data/train/cat", "data/val/cat"):
        (folder / name).mkdir(parents=True)
        (folder / name / "0001.jpg").write_bytes(b"\xff\xd8\xff")
    shutil.make_archive(str(folder / "photos"), "zip", folder / "photos")
    (folder / "taken").mkdir()
    (folder / "taken" / "train-1.record").touch()
    made = tar2tf("convert", str(PHOTOS), "-o", "damaged/train-<>.record", "--max-shard-size", "100kB", cwd=folder)
    assert made.returncode == 0
    with (folder / "damaged" / "train-2.record").open("r+b") as file:
        file.seek(5000)
        file.write(b"X")
    return folder


def printed(command: str, folder: Path, environment: dict[str, str]) -> str:
    """What a terminal shows after a command; in a shell if the page is about what the shell does with it."""
    if SHELLS.search(command):
        done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True)
    else:
        name, *words = shlex.split(command)
        assert name == "tar2tf"
        done = tar2tf(*words, cwd=folder, env={"HOME": str(folder)})
    return done.stdout + done.stderr


def test_the_page_shows_what_the_commands_print(
    folder: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith(("AIS_", "AWS_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1")  # no cloud machine
    shown = sessions()
    assert len(shown) >= 20
    assert [(command, printed(command, folder, environment)) for command, _ in shown] == shown


def test_every_error_of_the_page_says_what_to_do() -> None:
    errors = [text for _, text in sessions() if text.startswith("error: ")]
    assert len(errors) >= 18
    assert [text for text in errors if len(text.splitlines()) != 2] == []


def test_tensorflow_says_what_the_page_quotes(session: Any, tmp_path: Path) -> None:
    code = """
import gzip
import tensorflow as tf
open("a.record", "wb").write(gzip.compress(bytes(1000)))
images = tf.data.Dataset.from_generator(lambda: map(tf.zeros, [(48, 64, 3), (49, 64, 3)]), tf.float32, (None, None, 3))
for dataset in (images.batch(2), tf.data.TFRecordDataset("a.record")):
    try:
        next(iter(dataset))
    except tf.errors.OpError as error:
        print(f"{type(error).__name__}: {error}")
"""
    ok, said = session.run(tmp_path, code)
    assert ok, said
    quoted = re.findall(r"^```text\n(.*?)\n```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert len(quoted) == 2
    for text in quoted:
        kind, _, message = text.partition(": ")
        assert f"{kind}: " in said
        assert message in said
