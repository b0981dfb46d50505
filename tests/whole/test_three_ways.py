"""A spec file, a one-liner and a Python script, word for word as the documentation has them, write the same bytes."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

from commands import tar2tf
from readme import block
from shards import PHOTOS, examples, shards_in, tree

PAGE = "docs/reference/three-ways.md"

pytestmark = [pytest.mark.spread, pytest.mark.on_disk]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A working directory with the sample shards where that page has them."""
    shutil.copytree(PHOTOS, tmp_path / "tests" / "data")
    return tmp_path


def by_spec(place: Path, workers: str) -> None:
    (place / "photos.yaml").write_text(block("spec", PAGE))
    done = tar2tf("convert", "--spec", "photos.yaml", "-j", workers, cwd=place)
    assert done.returncode == 0, done.stderr


def by_one_liner(place: Path, workers: str) -> None:
    words = shlex.split(block("oneliner", PAGE))
    assert words[0] == "tar2tf"
    done = tar2tf(*words[1:], "-j", workers, cwd=place)
    assert done.returncode == 0, done.stderr


def by_script(place: Path, workers: str) -> None:
    script = block("script", PAGE)
    if workers == "1":
        script = script.rstrip().removesuffix(")") + ", workers=1)\n"
    done = tar2tf(code=script, cwd=place)
    assert done.returncode == 0, done.stderr


def by_dataset(place: Path, workers: str) -> None:
    script = f"""
from tar2tf_cli import Dataset
from tar2tf_cli.ops import Cast, Decode, Func, Resize

data = Dataset(
    "tests/data",
    conversions=[Decode("jpg"), Resize("jpg", (64, 64)), Cast("jpg", "uint8")],
    selections={{"image": "jpg", "label": "cls"}},
)
options = dict(max_shard_size="100kB", num_workers={workers})
paths = data.load("photos-{{1..3}}.tar*", path="small/photos-{{}}.record", **options)
assert paths == [f"small/photos-{{number}}.record" for number in range(1, len(paths) + 1)], paths
"""
    done = tar2tf(code=script, cwd=place)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("workers", ["1", "2"])
def test_spec_one_liner_and_script_write_the_same_records_and_manifest(workers: str, place: Path) -> None:
    outputs = {}
    for way in (by_spec, by_one_liner, by_script):
        shutil.rmtree(place / "small", ignore_errors=True)
        way(place, workers)
        outputs[way.__name__] = tree(place / "small")
    assert outputs["by_spec"] == outputs["by_one_liner"] == outputs["by_script"]
    names = set(outputs["by_spec"])
    assert "_photos-manifest.json" in names
    assert len(names) >= 3


def test_the_three_ways_make_what_they_say(place: Path) -> None:
    by_one_liner(place, "2")
    found = examples(*shards_in(place / "small"))
    assert len(found) == 18
    assert {tuple(sorted(item)) for item in found} == {("image", "image/shape", "label")}
    assert {len(item["image"][0]) for item in found} == {64 * 64 * 3}
    assert [item["label"][0] for item in found[:6]] == [1, 2, 3, 4, 0, 1]


def test_each_way_finds_that_another_has_done_the_work(place: Path) -> None:
    by_one_liner(place, "2")
    before = {path: path.stat().st_mtime_ns for path in (place / "small").iterdir()}
    by_spec(place, "1")
    by_script(place, "2")
    assert {path: path.stat().st_mtime_ns for path in (place / "small").iterdir()} == before


def test_dataset_with_a_path_writes_what_the_command_line_writes(place: Path) -> None:
    by_dataset(place, "2")
    by_python = tree(place / "small")
    shutil.rmtree(place / "small")
    words = [word for word in shlex.split(block("oneliner", PAGE))[1:] if word not in ("--type", "label=int64")]
    words = [word.replace("photos-<>", "photos-{}") for word in words]
    done = tar2tf(*words, cwd=place)
    assert done.returncode == 0, done.stderr
    assert tree(place / "small") == by_python
