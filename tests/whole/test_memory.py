"""Memory of each process, measured from outside: it depends neither on a shard's size nor on how many there are."""

from __future__ import annotations

import io
import itertools
import os
import subprocess
import sys
import tarfile
import zlib
from pathlib import Path

import pytest

from commands import COMMAND, SECONDS
from tar2tf_cli.formats.example import Encoder, frame

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc"),
    pytest.mark.xdist_group("memory"),
    pytest.mark.on_disk,
]

MOST = 40e6  # of a process that maps no files of its own
MOST_WITH_FILES = 55e6
LARGE = 130_000_000  # more than any process may have
WAYS = {
    "direct": ["-j", "2"],
    "in one process": ["-j", "1"],
    "spooled": ["-j", "2", "--on-error", "skip"],
    "gzip": ["-j", "2", "--compression", "gzip", "--on-error", "skip"],
}


def large_tar(path: Path, size: int, entry: int) -> Path:
    """A tar of about `size` bytes whose samples are a JPEG-like entry and a class."""
    data = bytes(range(256)) * (entry // 256)
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for number in range(size // entry):
            for name, content in ((f"{number:06d}.cls", b"7"), (f"{number:06d}.jpg", data)):
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return path


@pytest.fixture(scope="module")
def tars(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("tars")
    return {
        "30 MB": large_tar(root / "30.tar", 30_000_000, 50_000),
        "300 MB": large_tar(root / "300.tar", 300_000_000, 50_000),
    }


def scattered_tar(path: Path, size: int, entry: int) -> Path:
    """A tar whose classes all come first, and then its JPEG-like entries."""
    data = bytes(range(256)) * (entry // 256)
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in (("cls", b"7"), ("jpg", data)):
            for number in range(size // entry):
                info = tarfile.TarInfo(f"{number:06d}.{name}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return path


MEASURE = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
"""A small process in between, as the measured one begins with the memory of that which starts it."""


def peak_resident(*arguments: str | Path) -> int:
    """The most resident memory that any process of a command had, mapped files and shared pages included."""
    command = [sys.executable, "-S", "-c", MEASURE, *COMMAND, *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=SECONDS)
    return int(done.stdout) * 1024


@pytest.mark.parametrize("way", WAYS)
def test_memory_does_not_grow_with_the_shard(way: str, tars: dict[str, Path], tmp_path: Path) -> None:
    peaks = {
        name: peak_resident("convert", tar, "-o", tmp_path / "x.record", "--overwrite", "-q", *WAYS[way])
        for name, tar in tars.items()
    }
    (tmp_path / "x.record").unlink()
    assert 5e6 < peaks["300 MB"] < MOST, peaks
    assert peaks["300 MB"] < 1.15 * peaks["30 MB"], peaks


@pytest.mark.parametrize("name", ["in.tar", "in.tar.gz"])
def test_samples_that_are_not_adjacent_are_put_together_in_little_memory(name: str, tmp_path: Path) -> None:
    tar = scattered_tar(tmp_path / name, LARGE, 100_000)
    peak = peak_resident("convert", tar, "-o", tmp_path / "x.record", "-q", "-j", "1")
    (tmp_path / "x.record").unlink()
    assert 5e6 < peak < MOST, peak


def sparse_tar(path: Path, size: int, count: int = 1) -> Path:
    """A tar of a few samples with an entry of zeros each; the file is sparse, or gzip of about a thousandth."""

    def header(name: str, size: int) -> bytes:
        info = tarfile.TarInfo(name)
        info.size = size
        return info.tobuf(tarfile.GNU_FORMAT)

    with path.open("wb") as file:
        compressor = zlib.compressobj(1, zlib.DEFLATED, 31)
        for number in range(count):
            first = header(f"{number}.bin", size)
            tail = bytes(-size % 512) + header(f"{number}.cls", 1) + b"7".ljust(512, b"\0")
            tail += bytes(1024) if number == count - 1 else b""
            if path.suffix == ".tar":
                file.write(first)
                file.seek(size, os.SEEK_CUR)
                file.write(tail)
                continue
            zeros = itertools.repeat(bytes(1 << 20), size >> 20)
            for data in itertools.chain([first], zeros, [bytes(size % (1 << 20)), tail]):
                file.write(compressor.compress(data))
        if path.suffix != ".tar":
            file.write(compressor.flush())
    return path


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("in.tar", ["--index"]),
        ("in.tar.gz", []),
        ("in.tar.gz", ["--regroup"]),
        ("in.tar", ["--compression", "gzip", "--max-shard-size", "1GB"]),
    ],
)
def test_large_entries_are_copied_in_pieces(name: str, options: list[str], tmp_path: Path) -> None:
    tar = sparse_tar(tmp_path / name, LARGE)
    out = tmp_path / "x.record"
    assert peak_resident("convert", tar, "-o", out, "-q", "-j", "1", *options) < MOST_WITH_FILES
    assert peak_resident("inspect", tar, "-q") < MOST_WITH_FILES
    assert peak_resident("verify", tar, "-q") < MOST_WITH_FILES
    if "--compression" not in options:
        assert LARGE < out.stat().st_size < LARGE + 200
        assert peak_resident("inspect", out, "-q") < MOST_WITH_FILES
        assert peak_resident("verify", out, "-q") < MOST_WITH_FILES


@pytest.mark.parametrize("options", [[], ["--on-error", "skip"], ["--compression", "gzip"]], ids=" ".join)
def test_entries_of_a_few_megabytes_are_not_held_in_memory(options: list[str], tmp_path: Path) -> None:
    tar = sparse_tar(tmp_path / "in.tar", 7_000_000, 6)
    assert peak_resident("convert", tar, "-o", tmp_path / "x.record", "-q", "-j", "1", *options) < 40e6


def test_of_a_compressed_tar_only_few_of_them_are(tmp_path: Path) -> None:
    tar = sparse_tar(tmp_path / "in.tar.gz", 5_900_000, 6)
    assert peak_resident("convert", tar, "-o", tmp_path / "x.record", "-q", "-j", "1") < MOST_WITH_FILES
    assert peak_resident("inspect", tar, "-q") < MOST_WITH_FILES


def test_memory_of_a_comparison_hardly_grows_with_the_number_of_samples(tmp_path: Path) -> None:
    """A group of digests takes 8 MB, and each sample 80 bytes: 64 are pages of a file, which the system takes back."""
    peaks = []
    for count in (1_000, 100_000):
        record = b"".join(
            b"".join(frame(*Encoder().encode({"__key__": b"%07d" % number, "x": b"1"}))) for number in range(count)
        )
        (tmp_path / f"{count}.record").write_bytes(record)
        peaks.append(peak_resident("diff", *[tmp_path / f"{count}.record"] * 2, "-q", "-j", "1"))
    assert peaks[1] < peaks[0] + 8e6 + 80 * 100_000


def test_salvage_copies_in_pieces(tmp_path: Path) -> None:
    record = b"".join(frame(*Encoder().encode({"x": bytes(1_000_000)})))
    (tmp_path / "x.record").write_bytes(40 * record)
    out = tmp_path / "good.record"
    assert peak_resident("verify", tmp_path / "x.record", "--salvage", out, "-q") < 35e6
    assert out.stat().st_size == 40 * len(record)
