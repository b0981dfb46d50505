"""Compressed shards in any order: by the streams that they consist of, whoever wrote them."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import pickle
import random
import subprocess
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import zstandard

from commands import tar2tf
from read_back import assert_same, in_a_fork, load_both
from servers import FaultyServer
from shards import PHOTOS
from tar2tf_cli import open_records
from tar2tf_cli.errors import DamagedShardError, UsageError
from verify_runs import a_tar, flipped, framed, some_examples, write

DATA = framed(*some_examples(60))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own for each test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tar2tf"


def by_gnu_gzip(data: bytes) -> bytes:
    return subprocess.run(["gzip", "-c"], input=data, stdout=subprocess.PIPE, check=True).stdout


def in_streams(compress: Callable[[bytes], bytes], data: bytes = DATA) -> bytes:
    """Streams that begin and end anywhere, as parallel compressors make them."""
    edges = [0, *range(100, len(data), 1000), len(data)]
    return b"".join(compress(data[start:end]) for start, end in pairwise(edges))


@pytest.mark.parametrize(
    "stored",
    [
        by_gnu_gzip(DATA),
        in_streams(gzip.compress),
        in_streams(lambda data: gzip.compress(data) + bytes(7)),
        in_streams(lambda data: gzip.compress(data) + gzip.compress(b"")),
        in_streams(zstandard.compress),
        zstandard.compress(DATA),
        in_streams(bz2.compress),
        in_streams(lzma.compress),
        zlib.compress(DATA),
    ],
    ids=["gzip -c", "gzip", "padded", "with empty ones", "zstd", "one of zstd", "bzip2", "xz", "zlib"],
)
def test_records_are_those_of_the_same_shard_uncompressed(tmp_path: Path, stored: bytes) -> None:
    plain = open_records(write(tmp_path / "plain.record", DATA))
    for _ in range(2):  # the second one by the index that was kept
        records = open_records(write(tmp_path / "compressed.record", stored))
        assert len(records) == len(plain) == 60
        for number in (59, 0, 31, 30, -1):
            assert_same(records[number], plain[number])
        for one, other in zip(records, plain, strict=True):
            assert_same(one, other)
        order = [*range(59, -1, -7), 3, 3, 2]
        for one, other in zip(records.__getitems__(order), plain.__getitems__(order), strict=True):
            assert_same(one, other)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """The manifest of gzip shards with a limit, so that each consists of several members."""
    arguments = ("--compression", "gzip", "--max-shard-size", "30kB", "-j", "1")
    assert tar2tf("convert", PHOTOS, "-o", tmp_path / "out" / "a-<>.record.gz", *arguments).returncode == 0
    return tmp_path / "out" / "_a-manifest.json"


def test_gzip_shards_of_a_conversion_give_what_load_dataset_gives(made: Path) -> None:
    assert len(load_both(made)) == 24
    records = open_records(made)
    assert records.key("0017")["__key__"] == b"0017"
    assert "a-1.record.gz" in repr(records)


def test_shards_without_a_limit_consist_of_streams_too(tmp_path: Path) -> None:
    """TensorFlow, gzip and zstd read them as one; a stream of 40 MiB would be refused."""
    import tensorflow as tf

    noise = [random.Random(number).randbytes(2_000_000) for number in range(3)]
    entries = [*noise, *[bytes(5_000_000)] * 8]
    write(tmp_path / "a.tar", a_tar([(f"{number:02d}.bin", entry) for number, entry in enumerate(entries)]))
    for name, options in (("a.record.gz", []), ("a.tar.zst", ["--to", "tar"])):
        method = "gzip" if name.endswith("gz") else "zstd"
        done = tar2tf("convert", tmp_path / "a.tar", "-o", tmp_path / method / name, "--compression", method, *options)
        assert done.returncode == 0, done.stderr
        records = open_records(tmp_path / method / name)
        assert [record["bin"] for record in records] == entries
        assert [records[number]["bin"] for number in (10, 1)] == [entries[10], entries[1]]
    whole = subprocess.run(["gzip", "-dc", tmp_path / "gzip/a.record.gz"], stdout=subprocess.PIPE, check=True).stdout
    by_tensorflow = tf.data.TFRecordDataset(str(tmp_path / "gzip/a.record.gz"), "GZIP").as_numpy_iterator()
    assert whole == framed(*by_tensorflow)


@pytest.mark.parametrize("extension", ["tar.zst", "tar.gz"])
def test_compressed_tars_are_read_as_the_tars_that_they_were_made_of(tmp_path: Path, extension: str) -> None:
    method = {"tar.zst": "zstd", "tar.gz": "gzip"}[extension]
    arguments = ("--to", "tar", "--compression", method, "--max-shard-size", "200kB")
    assert tar2tf("convert", PHOTOS, "-o", tmp_path / f"out/a-<>.{extension}", *arguments).returncode == 0
    given, made = open_records(f"{PHOTOS}/photos-*.tar*"), open_records(tmp_path / "out")
    assert len(given) == len(made) == 24
    for one, other in zip(made, given, strict=True):
        assert_same(one, other)
    assert_same(made.key("0009"), given.key("0009"))


def test_only_the_streams_that_records_are_in_are_decompressed(tmp_path: Path) -> None:
    """Others may even be damaged; the error names the record."""
    members = [gzip.compress(framed(record)) for record in some_examples(9)]
    path = write(tmp_path / "a.record.gz", b"".join(members))
    records = open_records(path)
    good = list(records)
    damaged = b"".join(members[:4])
    before = path.stat().st_mtime_ns
    path.write_bytes(flipped(path.read_bytes(), len(damaged) + 20))
    os.utime(path, ns=(before, before))
    again = pickle.loads(pickle.dumps(records))
    for number in (0, 3, 5, 8):
        assert_same(again[number], good[number])
    offset = sum(len(gzip.decompress(member)) for member in members[:4])
    for read in (lambda: again[4], lambda: again.__getitems__([0, 4, 5]), lambda: list(again)):
        with pytest.raises(DamagedShardError, match=f"record 4, offset {offset}: .*gzip stream"):
            read()
    assert_same(again.__getitems__([3, 5])[1], good[5])


def test_a_stream_that_is_too_large_is_refused_and_what_is_proposed_helps(tmp_path: Path) -> None:
    record = some_examples(1)[0]
    data = framed(*[record] * ((33 << 20) // len(framed(record))))
    path = write(tmp_path / "large.record.gz", gzip.compress(data, 1))
    with pytest.raises(UsageError, match=r"gzip stream of more than 32 MiB, .*compression gzip") as caught:
        open_records(path)
    assert caught.value.shard == str(path)
    options = str(caught.value.hint).partition("'new-<>.record.gz' ")[2].partition(";")[0].split()
    assert options
    assert tar2tf("convert", path, "-o", tmp_path / "new-<>.record.gz", *options).returncode == 0
    records = open_records(tmp_path / "_new-manifest.json", raw=True)
    assert len(records) == len(data) // len(framed(record))
    assert records[-1] == record


def test_a_stream_that_holds_other_bytes_than_when_it_was_indexed_is_damaged(tmp_path: Path) -> None:
    path = write(tmp_path / "a.record.gz", in_streams(partial(gzip.compress, compresslevel=0)))
    records = open_records(path, raw=True)
    begin = len(gzip.compress(DATA[:100], 0))
    shorter = gzip.compress(DATA[100:1092], 0)
    named = shorter[:3] + b"\x08" + shorter[4:10] + b"a.recor\0" + shorter[10:]  # with a name of 8 bytes
    assert len(named) == len(gzip.compress(DATA[100:1100], 0))
    data, times = path.read_bytes(), path.stat()
    path.write_bytes(data[:begin] + named + data[begin + len(named) :])
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(DamagedShardError) as caught:
        list(records)
    assert (caught.value.message, caught.value.offset, caught.value.kind, caught.value.shard) == (
        "the gzip stream has 992 bytes now, but had 1,000 before",
        0,  # of the record
        "gzip",
        str(path),
    )


@pytest.mark.parametrize("zeros", [0, 1_000_000])
def test_zeros_after_the_end_of_a_compressed_tar_are_no_part_of_its_last_sample(tmp_path: Path, zeros: int) -> None:
    data = a_tar([(f"{number}.txt", b"%d" % number) for number in range(9)]) + bytes(zeros)
    path = write(tmp_path / "a.tar.gz", in_streams(partial(gzip.compress, compresslevel=1), data))
    for _ in range(2):
        records = open_records(path)
        assert [record["txt"] for record in records] == [b"%d" % number for number in range(9)]
        assert records[8]["txt"] == b"8"
        assert records.key("8")["txt"] == b"8"


@pytest.mark.parametrize("cut", [1, 9, 400])
def test_a_compressed_shard_that_is_cut_short_is_damaged(tmp_path: Path, cut: int) -> None:
    path = write(tmp_path / "a.record.gz", by_gnu_gzip(DATA)[:-cut])
    with pytest.raises(DamagedShardError, match="cut short"):
        open_records(path)


def test_streams_in_a_bucket_are_requested_one_by_one(web: FaultyServer, tmp_path: Path) -> None:
    """Random bytes do not shrink, so that each member takes more than a block of 64 KiB."""
    records = [random.Random(number).randbytes(200_000) for number in range(12)]
    members = [gzip.compress(framed(record), 1) for record in records]
    web.objects["in/a.record.gz"] = b"".join(members)
    found = open_records(f"{web.url}/in/a.record.gz", raw=True)
    assert list(found) == records
    web.log.clear()
    again = pickle.loads(pickle.dumps(found))  # which keeps no bytes
    assert again.__getitems__([7, 2]) == [records[7], records[2]]
    asked = [requested for _, _, requested in web.log if requested]
    sizes = [int(last) - int(first) + 1 for first, last in (one.removeprefix("bytes=").split("-") for one in asked)]
    assert sum(sizes) < len(web.objects["in/a.record.gz"]) / 3
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(again.__getitem__, [*range(12)] * 4)) == records * 4


def test_threads_and_forked_processes_read_the_same(made: Path) -> None:
    records: Any = open_records(made, raw=True)
    whole = list(records)
    order = [*range(24)] * 5
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(records.__getitem__, order)) == [whole[number] for number in order]
    assert in_a_fork(lambda: list(records) == whole)


def test_a_manifest_that_counts_other_records_is_an_error(made: Path) -> None:
    document = json.loads(made.read_text())
    document["shards"][0]["records"] += 1
    document["totals"]["records"] += 1
    made.write_text(json.dumps(document))
    with pytest.raises(DamagedShardError, match="in the manifest"):
        open_records(made)[0]
