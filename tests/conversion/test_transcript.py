"""All that `convert` prints and writes in text, to the letter: plans, summaries, faults, manifests.

After a change of what it prints, `python tests/conversion/test_transcript.py` writes `transcript.txt` again.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from shards import PHOTOS, write_members, write_tar
from transcripts import played, renew, sections

TRANSCRIPT = Path(__file__).with_name("transcript.txt")
SECTIONS = sections(TRANSCRIPT)

WORDS = ["one", "two", "two", "", "three", "one", "four", "five"]


def make(folder: Path) -> Path:
    """Make tars of words and of photographs, and a tar with faults of several kinds."""
    for number in range(2):
        some = enumerate(WORDS[4 * number : 4 * number + 4], 4 * number)
        write_tar(
            folder / "in" / f"{number}.tar", [(f"{n}", {"txt": w.encode(), "cls": b"%d" % (n % 3)}) for n, w in some]
        )
    for name in ("photos-0.tar", "photos-1.tar"):
        (folder / "photos").mkdir(exist_ok=True)
        shutil.copy(PHOTOS / name, folder / "photos")
    members = [("README", b"x"), ("a.cls", b"1"), ("b.cls", b"x"), ("c.cls", b"2"), ("d.cls", b"y"), ("c.txt", b"3")]
    write_members(folder / "faulty.tar", members)
    (folder / "words.csv").write_text("key,word,score\n0,one,0.5\n2,two,1\n3,two,2\n9,nine,7\n")
    (folder / "keys.txt").write_text("1\n5\n77\n")
    for path in folder.rglob("*.*"):
        os.utime(path, (10**9, 10**9))  # which is the version of an input
    return folder


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    return make(tmp_path)


@pytest.mark.parametrize("title", SECTIONS)
def test_convert_prints_what_the_transcript_says(title: str, shards: Path) -> None:
    assert played(SECTIONS[title], shards) == SECTIONS[title]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        renew(TRANSCRIPT, lambda title: make(Path(temporary, title)))
