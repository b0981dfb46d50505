"""The reference compares verify with other tools on the same damaged files: each is run, and the table is checked."""

from __future__ import annotations

import gzip
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from verify_runs import Ran, a_tar, an_example, flipped, framed, some_examples, some_members, write

pytestmark = pytest.mark.xdist_group("pages")

PAGE = Path(__file__).parents[2] / "docs/reference/inspect-verify.md"
JPEG = tf.io.encode_jpeg(np.zeros((40, 40, 3), np.uint8)).numpy()
RECORDS = [framed(record) for record in some_examples(10)]
WHOLE = b"".join(RECORDS)
THIRD = len(b"".join(RECORDS[:3]))
TAR = a_tar(some_members(10))

FILES: dict[str, bytes] = {
    "a bit of record 3's data flipped": flipped(WHOLE, THIRD + 20),
    "a bit of record 3's length flipped": flipped(WHOLE, THIRD + 1),
    "cut 10 bytes short": WHOLE[:-10],
    "16 bytes appended": WHOLE + b"trailing garbage",
    "512 zeros appended": WHOLE + bytes(512),
    "record 3 is not an Example": b"".join([*RECORDS[:3], framed(b"not an example"), *RECORDS[4:]]),
    "half a JPEG in record 3": framed(*[an_example(jpg=JPEG[: len(JPEG) // (1 + (n == 3))], n=n) for n in range(10)]),
    "gzip without its last 4 bytes": gzip.compress(WHOLE, mtime=0)[:-4],
    "a tar cut inside a member": TAR[:5000],
    "a tar cut between members": TAR[:3072],
    "a tar whose last sample lacks a member": a_tar(some_members(10)[:-1]),
}
OPTIONS = {"half a JPEG in record 3": ("--decode",)}

_TFRECORD = """
import contextlib, io, json, sys
import tfrecord.reader
from tfrecord.tools.tfrecord2idx import create_index

found = {}
for path in sys.argv[1:]:
    number, ended = 0, ""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        try:
            for _ in tfrecord.reader.tfrecord_loader(path, None):
                number += 1
        except Exception as error:
            ended = type(error).__name__
        create_index(path, path + ".index")
    with open(path + ".index") as index:
        found[path] = [number, ended, len(index.readlines()), said.getvalue()]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compared")
    for number, data in enumerate(FILES.values()):
        write(folder / f"{number}.file", data)
    return folder


@pytest.fixture(scope="module")
def by_tfrecord(folder: Path) -> dict[str, Any]:
    """What the tfrecord package and its tfrecord2idx say; its messages clash with TensorFlow's in one process."""
    if not importlib.util.find_spec("tfrecord"):
        pytest.skip("no tfrecord: pip install tfrecord")
    paths = [str(folder / f"{number}.file") for number in range(len(FILES))]
    done = subprocess.run([sys.executable, "-c", _TFRECORD, *paths], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def by_verify(ran: Ran) -> str:
    (file,) = ran.json["files"]
    faults = file["faults"]
    if not faults:
        return f"{'a note that names it' if file['notes'] else 'nothing'}; {file['records']} good"
    after = faults[0].get("after")
    good = faults[0]["before"]["records"] + after["records"] if after else file["records"]
    where = f", record {faults[0]['record']}" if faults[0]["record"] is not None else ""
    return f"`{faults[0]['kind']}`{where}; {good} good"


def by_tf_data(path: Path) -> str:
    number = 0
    try:
        for _ in tf.data.TFRecordDataset(str(path), "GZIP" if path.read_bytes()[:2] == b"\x1f\x8b" else ""):
            number += 1
    except tf.errors.DataLossError:
        return f"error after {number}"
    return f"reads {number}"


def by_tar(path: Path) -> str:
    done = subprocess.run(["tar", "-tf", str(path)], capture_output=True, text=True, check=False)
    return f"exit {done.returncode}"


def rows() -> dict[str, list[str]]:
    text = PAGE.read_text(encoding="utf-8")
    section = re.search(r"^## Compared with other tools\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    assert section
    cells = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in section[1].splitlines() if line.startswith("| ")
    ]
    return {row[0]: row[1:] for row in cells if row[0] in FILES}


def test_the_table_says_what_each_tool_says(folder: Path, by_tfrecord: dict[str, Any], run: Callable[..., Ran]) -> None:
    found = {}
    for number, name in enumerate(FILES):
        path = folder / f"{number}.file"
        verify = by_verify(run(path, "--json", *OPTIONS.get(name, ())))
        if "tar" in name:
            found[name] = [verify, "-", "-", "-", by_tar(path)]
            continue
        read, error, indexed, _ = by_tfrecord[str(path)]
        reader = f"error after {read}" if error else f"reads {read}"
        found[name] = [verify, by_tf_data(path), reader, f"indexes {indexed}", "-"]
    assert rows() == found
