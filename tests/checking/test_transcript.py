"""All that `inspect`, `verify` and `diff` print and write of a few small shards, to the letter.

After a change of what they print, `python tests/checking/test_transcript.py` writes `transcript.txt` again.
"""

from __future__ import annotations

import shutil
import struct
import sys
import tempfile
import zlib
from pathlib import Path

import numpy as np
import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from make_bytes import npy
from pages import a_wav
from shards import PHOTOS
from transcripts import played, renew, sections
from verify_runs import a_tar, an_example, flipped, framed, some_examples, write

TRANSCRIPT = Path(__file__).with_name("transcript.txt")
SECTIONS = sections(TRANSCRIPT)


def a_png(width: int, height: int, color: int = 2) -> bytes:
    """The header of a PNG, which is all that is read of it."""
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, color, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header)) + bytes(30)


def make(folder: Path) -> Path:
    """Make a tar of entries of several kinds, TFRecords of examples, damaged shards, and two tars that differ."""
    entries = [
        {"cls": b"7", "json": b'{"a": 1}', "npy": npy(np.ones((2, 3), "f4")), "png": a_png(5, 3), "wav": a_wav()},
        {"cls": b"12", "bin": bytes(range(200)), "npy": npy(np.ones((4, 3), "f4")), "png": a_png(9, 8, 0)},
    ]
    members = [(f"{number}.{name}", data) for number, one in enumerate(entries) for name, data in one.items()]
    write(folder / "kinds.tar", a_tar([("README", b"x"), *members, ("._1.png", b"x")]))
    some = [{"image": a_png(5, 3), "label": n, "scores": [0.5] * (n + 1), "words": [b"one", b"two"]} for n in range(3)]
    some[1]["odd"] = 1
    write(folder / "r" / "r-0.record", framed(*[an_example(**one) for one in some]))
    more = an_example(image=a_png(7, 7), label=-1, scores=[0.25], words=[b"2", b"3"])
    write(folder / "r" / "r-1.record", framed(more, b"hello"))
    data = framed(*some_examples(5))
    write(folder / "bad" / "a.record", flipped(data, 20) + b"more")
    write(folder / "bad" / "b.record", data[:-3])
    write(folder / "bad" / "c.record", framed(*some_examples(2)))
    write(folder / "bad" / "d.tar", a_tar([("0.txt", b"1"), ("0.cls", b"1"), ("1.txt", b"1")])[:1700])
    write(folder / "bad" / "notes", b"text")
    data = a_tar([(f"{number}.txt", b"%d" % number) for number in range(4)])
    write(folder / "beheaded.tar", b"\xaa" * 512 + data[512:])
    same = [("2.cls", b"1"), ("5.cls", b"1"), ("6.cls", b"1")]
    a = [("1.cls", b"3"), ("1.png", a_png(5, 3)), ("1.txt", b"one | two"), ("3.cls", b"7"), *same]
    b = [("1.cls", b"4"), ("1.png", a_png(9, 9)), ("1.json", b"{}"), ("4.cls", b"7"), *same[::-1]]
    write(folder / "a.tar", a_tar(a))
    write(folder / "b.tar", a_tar(b))
    shutil.copy(PHOTOS / "photos-0.tar", folder)
    return folder


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("shards"))


@pytest.mark.parametrize("title", SECTIONS)
def test_the_commands_print_what_the_transcript_says(title: str, shards: Path) -> None:
    assert played(SECTIONS[title], shards) == SECTIONS[title]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        folder = make(Path(temporary))
        renew(TRANSCRIPT, lambda title: folder)
