"""The truncation matrix of users.md: wherever a shard is cut, an error names the place and nothing is published."""

from __future__ import annotations

import io
import json
import os
import random
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from commands import COMMAND, SECONDS, tar2tf
from make_bytes import END, File, files_of, gzipped, long_name, member, pax, tar_of
from shards import records
from tar2tf_cli.conversion.run import convert
from tar2tf_cli.errors import SampleError, Tar2tfError
from tar2tf_cli.formats.streams import open_stream
from tar2tf_cli.formats.tar import BLOCK, TarReader
from tar2tf_cli.samples.grouping import Grouper
from tar2tf_cli.spec.conversion import Conversion, Input, Output

pytestmark = [pytest.mark.spread, pytest.mark.on_disk]

Cut = Callable[[bytes], Iterable[int]]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory where there is one: thousands of conversions flush their journals in it."""
    root = tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    yield Path(root)
    shutil.rmtree(root)


def noisy(files: list[File]) -> list[File]:
    """The same files with data that does not compress."""
    return [(name, random.Random(name).randbytes(len(data))) for name, data in files]


def converted(folder: Path, shard: str, data: bytes, *, ignore_missing_end: bool = False, **options: object) -> int:
    """Convert a shard of these bytes; returns how many records were published.

    Raises:
        Tar2tfError: after it was seen that nothing was published.
    """
    (folder / shard).write_bytes(data)
    output = folder / "out"
    spec = Conversion(
        Input(str(folder / shard), ignore_missing_end=ignore_missing_end),
        Output(str(output / "x-<>.record"), max_shard_size=1 << 30),
        **options,  # type: ignore[arg-type]
    )
    try:
        summary = convert(spec, workers=1, overwrite=True)
    except Tar2tfError:
        assert [path.name for path in output.iterdir() if not path.name.startswith(".")] == []
        raise
    published = len(records(*output.glob("*.record")))
    assert summary.records == published
    shutil.rmtree(output)
    return published


def read(_: Path, shard: str, data: bytes, *, ignore_missing_end: bool = False, **options: object) -> int:
    """Read a shard of these bytes with the reader of a conversion alone; returns how many samples it holds."""

    def fault(error: SampleError) -> None:
        raise error

    stream = open_stream(io.BytesIO(data), shard)
    tar = TarReader(stream, shard, need_end=not ignore_missing_end)
    return sum(1 for _ in Grouper(shard, fault).samples(tar))


def each_way(cuts: Iterable[int]) -> Iterator[tuple[Callable[..., int], int]]:
    """Cuts, every fortieth for a whole conversion and the others for its reader."""
    return ((read if number % 40 else converted, cut) for number, cut in enumerate(cuts))


def assert_names_the_place(error: Tar2tfError, shard: str, size: int) -> None:
    assert error.exit_code == 3
    assert shard in str(error)
    offset = re.search(r", offset (\d+): ", str(error))
    assert offset, str(error)
    assert shard.endswith("gz") or int(offset[1]) <= size


# --- Every cut ---

TINY = tar_of([("a.cls", b"7"), ("a.jpg", b"picture")])
EXTENDED = long_name(b"a" * 120 + b".cls") + member(b"a", b"7") + pax({"path": "a" * 120 + ".jpg"}) + member(b"b") + END
SMALL = tar_of(files_of(70, 50))
LARGE = tar_of(files_of(65, 8500))
FEW = tar_of(noisy(files_of(5, 3000)))


def every_byte(data: bytes) -> Iterable[int]:
    return range(len(data))


def every_block(data: bytes) -> Iterable[int]:
    edges = {cut for edge in range(0, len(data), BLOCK) for cut in (edge - 1, edge, edge + 1)}
    return sorted(cut for cut in edges if 0 <= cut < len(data))


def every_seventh_block(data: bytes) -> Iterable[int]:
    """Blocks of a large shard in steps that meet every kind of place, and all those of its beginning and end."""
    cuts = list(every_block(data))
    return [*cuts[:60], *cuts[60:-60:7], *cuts[-60:]]


def every_block_and_trailer(data: bytes) -> Iterable[int]:
    heads = [match.start() for match in re.finditer(rb"\x1f\x8b\x08\x00\x00\x00\x00\x00", data)]
    trailers = {cut for head in [*heads, len(data)] for cut in range(head - 12, head + 12)}
    return sorted(cut for cut in trailers | {*every_block(data)} if 0 <= cut < len(data))


MATRIX: dict[str, tuple[str, bytes, Cut, dict[str, object]]] = {
    "a tiny tar": ("s.tar", TINY, every_byte, {}),
    "a tiny tar, spooled": ("s.tar", TINY, every_byte, {"shuffle": True}),
    "a tiny tar of long names": ("s.tar", EXTENDED, every_byte, {}),
    "a tiny tgz": ("s.tgz", gzipped(TINY), every_byte, {}),
    "a tiny tgz of several members": ("s.tgz", gzipped(TINY, 700, 1024, 2048), every_byte, {}),
    "small samples": ("s.tar", SMALL, every_block, {}),
    "small samples, gzipped": ("s.tar.gz", gzipped(SMALL), every_byte, {}),
    "large samples": ("s.tar", LARGE, every_seventh_block, {}),
    "large samples, spooled": ("s.tar", LARGE, every_seventh_block, {"shuffle": True}),
    "a few samples": ("s.tar", FEW, every_block, {}),
    "a few samples, gzipped": ("s.tar.gz", gzipped(FEW), every_block_and_trailer, {}),
    "a few samples in gzip members": (
        "s.tar.gz",
        gzipped(FEW, 1024, 4608, 5000, 9000, len(FEW) - 1024),
        every_block_and_trailer,
        {},
    ),
}


@pytest.mark.parametrize("case", MATRIX)
def test_a_cut_shard_is_an_error_that_names_it_and_publishes_nothing(case, folder):
    shard, data, cuts, options = MATRIX[case]
    for convert_or_read, cut in each_way(cuts(data)):
        with pytest.raises(Tar2tfError) as caught:
            convert_or_read(folder, shard, data[:cut], **options)
        assert_names_the_place(caught.value, shard, cut)
    assert converted(folder, shard, data, **options) > 0


@pytest.mark.parametrize("padding", [9216, 100_000])
def test_a_cut_in_the_padding_behind_the_end_loses_nothing(padding, folder):
    whole = TINY + bytes(padding)
    for cut in (len(TINY), len(TINY) + 1, len(TINY) + BLOCK, len(whole) - 1, len(whole)):
        assert converted(folder, "s.tar", whole[:cut]) == 1


def test_a_cut_second_archive_is_found_behind_a_whole_first(folder):
    first, second = tar_of(files_of(3)), tar_of([("x.cls", b"1"), ("x.jpg", b"2")])
    for convert_or_read, cut in each_way(range(len(first) + 1, len(first + second))):
        with pytest.raises(Tar2tfError) as caught:
            convert_or_read(folder, "s.tar", (first + second)[:cut])
        assert_names_the_place(caught.value, "s.tar", cut)
    assert converted(folder, "s.tar", first + second) == 4


# --- Writers that leave the end out ---


@pytest.mark.parametrize("options", [{}, {"shuffle": True}], ids=["direct", "spooled"])
@pytest.mark.parametrize("shard", ["s.tar", "s.tgz"])
def test_with_a_missing_end_ignored_a_half_last_sample_is_still_an_error(shard, options, folder):
    files = files_of(4, 700)
    size = len(tar_of(files[:2], end=b""))
    whole = tar_of(files, end=b"")
    for cut in every_block(whole):
        if cut == 0 or cut % size == 0:
            continue
        data = gzipped(whole[:cut]) if shard == "s.tgz" else whole[:cut]
        if cut == 2 * BLOCK:  # the first sample's first member, alone: nothing says that it is half a sample
            assert converted(folder, shard, data, ignore_missing_end=True, **options) == 1
            continue
        with pytest.raises(Tar2tfError) as caught:
            converted(folder, shard, data, ignore_missing_end=True, **options)
        assert_names_the_place(caught.value, shard, cut)
    for samples in range(1, 5):
        data = tar_of(files[: 2 * samples], end=b"")
        data = gzipped(data) if shard == "s.tgz" else data
        assert converted(folder, shard, data, ignore_missing_end=True, **options) == samples
        with pytest.raises(Tar2tfError, match="ignore_missing_end=True"):
            converted(folder, shard, data, **options)


def test_with_a_missing_end_ignored_cut_gzip_is_still_an_error(folder):
    data = gzipped(tar_of(files_of(3, 100), end=b""))
    for convert_or_read, cut in each_way(range(len(data))):
        with pytest.raises(Tar2tfError) as caught:
            convert_or_read(folder, "s.tgz", data[:cut], ignore_missing_end=True)
        assert_names_the_place(caught.value, "s.tgz", cut)


# --- Overwritten blocks ---


@pytest.mark.parametrize("options", [{}, {"shuffle": True}], ids=["direct", "spooled"])
@pytest.mark.parametrize("filling", [b"\0", b"\xff"], ids=["zeros", "ones"])
def test_an_overwritten_header_is_an_error(filling, options, folder):
    whole = tar_of(files_of(4, 700))
    headers = [place for place in range(0, len(whole) - 2 * BLOCK, BLOCK) if whole[place : place + 4].isdigit()]
    assert len(headers) == 8
    for place in headers:
        data = whole[:place] + filling * BLOCK + whole[place + BLOCK :]
        with pytest.raises(Tar2tfError) as caught:
            converted(folder, "s.tar", data, **options)
        assert_names_the_place(caught.value, "s.tar", len(data))


# --- The command ---

SAMPLED = {
    "inside the first header": ("s.tar", TINY[:100]),
    "inside data": ("s.tar", SMALL[: 40 * BLOCK + 7]),
    "between members": ("s.tar", LARGE[: 2 * BLOCK]),
    "before the end": ("s.tar", SMALL[:-1024]),
    "inside the end": ("s.tar", LARGE[:-512]),
    "nothing left": ("s.tar", b""),
    "inside gzip": ("s.tar.gz", gzipped(SMALL)[:900]),
    "before a gzip trailer": ("s.tar.gz", gzipped(SMALL)[:-8]),
    "inside a gzip trailer": ("s.tar.gz", gzipped(LARGE)[:-1]),
    "between gzip members": ("s.tar.gz", gzipped(LARGE[:8192])),
}


@pytest.mark.parametrize("case", SAMPLED)
def test_the_command_exits_with_3_and_publishes_nothing(case, tmp_path):
    shard, data = SAMPLED[case]
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    (bucket / shard).write_bytes(data)
    done = tar2tf("convert", bucket, "-o", tmp_path / "out/x-<>.record", "-j", "2", "--json")
    assert done.returncode == 3
    assert json.loads(done.stdout)["error"]["exit_code"] == 3
    assert re.search(rf"^error: .*{shard}, .*offset \d+: .", done.stderr)
    assert [path.name for path in (tmp_path / "out").iterdir() if path.name[0] != "."] == []


@pytest.mark.parametrize("data", [TINY[:-1024], gzipped(TINY)[:-1]], ids=["tar", "tgz"])
def test_the_command_finds_a_cut_on_standard_input(data, tmp_path):
    command = [*COMMAND, "convert", "-", "-o", str(tmp_path / "x-<>.record")]
    done = subprocess.run(command, input=data, capture_output=True, timeout=SECONDS)
    assert done.returncode == 3
    assert re.search(rb"^error: <stdin>, sample a, offset \d+: ", done.stderr)
    assert list(tmp_path.glob("x*")) == []


def test_a_cut_shard_among_whole_ones_leaves_no_manifest(tmp_path):
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    for number, data in enumerate([SMALL, SMALL, SMALL[:-512]]):
        (bucket / f"s{number}.tar").write_bytes(data)
    done = tar2tf("convert", bucket, "-o", tmp_path / "out/x-<>.record", "--max-shard-size", "1GB")
    assert done.returncode == 3
    assert "s2.tar, sample 0069, offset 143360: " in done.stderr
    assert [path.name for path in (tmp_path / "out").iterdir() if path.name[0] != "."] == []
