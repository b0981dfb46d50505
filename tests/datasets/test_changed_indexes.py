"""An index file that was changed in any way never gives samples that the shard does not have."""

from __future__ import annotations

import random
import struct
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from commands import tar2tf
from tar2tf_cli import open_records
from tar2tf_cli.errors import Tar2tfError
from verify_runs import Ran, a_tar, check, edit, framed, in_a_process, kinds, some_examples, write

MEMBERS = [
    (f"{n:03d}.{name}", b"%d" % n * size) for n in range(9) for name, size in (("cls", 1), ("txt", 300 * (n % 3)))
]
NUMBERS = [0, 1, 511, 512, 1023, 1024, 1 << 31, 1 << 62, 1 << 63, 1 << 64, 10**30, -512]


def changed(index: bytes, random: random.Random) -> bytes:
    """An index with one to three changes: of bits, bytes, words or lines."""
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        lines = index.split(b"\n")
        line = random.randrange(len(lines))
        words = lines[line].split(b" ")
        word = random.randrange(len(words))
        change = random.randrange(8)
        if change == 0 and index:
            at = random.randrange(len(index))
            index = index[:at] + bytes([index[at] ^ 1 << random.randrange(8)]) + index[at + 1 :]
            continue
        if change == 1:
            words[word] = b"%d" % random.choice(NUMBERS)
        elif change == 2 and words[word].isdigit():
            words[word] = b"%d" % (int(words[word]) + random.choice((-1024, -512, -1, 1, 512, 1024, 2560)))
        elif change == 3:
            other = random.randrange(len(words))
            words[word], words[other] = words[other], words[word]
        elif change == 4 and len(words) > 4:
            words = words[4:] if random.random() < 0.5 else words[:-4]
        lines[line] = b" ".join(words)
        if change == 5:
            lines[line], lines[line - 1] = lines[line - 1], lines[line]
        elif change == 6:
            del lines[line]
            lines[0] = lines[0].replace(b" 9", b" 8")
        elif change == 7:
            lines[line : line + 1] *= 2
            lines[0] = lines[0].replace(b" 9", b" 10")
        index = b"\n".join(lines)
    return index


def indexes(index: bytes, count: int, seed: int) -> Iterator[bytes]:
    chance = random.Random(seed)
    return (changed(index, chance) for _ in range(count))


def same_or_an_error(path: Path, expected: list[dict[str, bytes]], index: bytes) -> None:
    """Whoever reads in whatever order gets the samples that the shard has, or an error of ours."""
    order = random.Random(len(index)).sample(range(len(expected)), len(expected))
    try:
        records = open_records(path, index_folder="")
        assert len(records) == len(expected), index
        assert [records[number] for number in order] == [expected[number] for number in order], index
        for sample in expected:
            if "__key__" in sample:
                assert records.key(sample["__key__"]) == sample, index
    except Tar2tfError:
        pass


@pytest.mark.parametrize("manifest", [False, True])
@pytest.mark.parametrize("pax", [False, True])
def test_a_changed_index_of_a_tar_gives_no_other_samples(tmp_path: Path, pax: bool, manifest: bool) -> None:
    members = [(f"{'long' * 30 if pax else ''}{name}", data) for name, data in MEMBERS]
    tar = write(tmp_path / "in" / "x.tar", a_tar(members))
    path = tar
    if manifest:
        assert tar2tf("convert", tar, "-o", tmp_path / "o.tar", "-q").returncode == 0
        tar, path = tmp_path / "o.tar", next(tmp_path.glob("*manifest.json"))
    assert tar2tf("index", tar, "-q").returncode == 0
    expected = [dict(sample) for sample in open_records(tar, index_folder="")]
    beside = Path(f"{tar}.idx")
    for index in indexes(beside.read_bytes(), 400, manifest + 2 * pax):
        beside.write_bytes(index)
        same_or_an_error(path, expected, index)


def test_a_changed_index_of_a_tfrecord_gives_no_other_records(tmp_path: Path) -> None:
    path = write(tmp_path / "in.record", framed(*some_examples(9)))
    assert tar2tf("convert", path, "-o", tmp_path / "o.record", "--index", "-q").returncode == 0
    manifest = next(tmp_path.glob("*manifest.json"))
    expected = [dict(record) for record in open_records(path, index_folder="")]
    beside = tmp_path / "o.record.idx"
    for index in indexes(beside.read_bytes(), 400, 5):
        beside.write_bytes(index)
        same_or_an_error(manifest, expected, index)


def test_a_manifest_with_another_count_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "in.record", framed(*some_examples(9)))
    assert tar2tf("convert", path, "-o", tmp_path / "o.record", "-q").returncode == 0
    manifest = edit(next(tmp_path.glob("*manifest.json")), lambda document: document["shards"][0].update(records=8))
    with pytest.raises(Tar2tfError, match="has 9 records, but 8 in the manifest"):
        open_records(manifest, index_folder="")[0]


@pytest.mark.parametrize("version", ["energon", "v1.1"])
def test_the_index_of_another_tool_is_no_fault_and_stays(tmp_path: Path, version: str, run: Callable[..., Ran]) -> None:
    tar = write(tmp_path / "x.tar", a_tar(MEMBERS))
    with tarfile.open(tar) as members:
        ends = [*[member.offset for member in members][::2], members.offset]
    index = struct.pack(f"<{len(ends)}Q", *ends) if version == "energon" else b"v1.1 9\ncls 512 1 txt 1536 0\n"
    beside = write(tmp_path / "x.tar.idx", index)
    ran = run(tar)
    assert (ran.code, "which tar2tf does not use" in ran.err) == (0, version == "v1.1")
    indexed = in_a_process("index", tar)
    assert (indexed.code, beside.read_bytes(), "--overwrite" in indexed.err) == (2 * (version == "v1.1"), index, False)
    assert len(open_records(tar, index_folder="")) == 9


def test_an_index_of_energon_with_other_offsets_is_a_fault(tmp_path: Path) -> None:
    tar = write(tmp_path / "x.tar", a_tar(MEMBERS))
    write(tmp_path / "x.tar.idx", struct.pack("<3Q", 0, 512, 20480))
    assert kinds(check(tar)) == ["index"]
