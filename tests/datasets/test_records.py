"""Records in any order: a sequence, over shards of any kind, that never gives wrong bytes."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import random
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands import tar2tf, wait_until
from make_bytes import tar_of
from read_back import assert_same, in_a_fork
from servers import FaultyServer
from shards import PHOTOS, samples, write_tar
from tar2tf_cli import Records, load_dataset, open_records
from tar2tf_cli.datasets.indexes import Indexes, RecordLayout
from tar2tf_cli.errors import DamagedShardError, SourceError, Tar2tfError, UsageError
from tar2tf_cli.formats.tfrecord import RecordReader
from tar2tf_cli.stores.directory import FileRanges
from tar2tf_cli.stores.ranges import ObjectRanges
from verify_runs import an_example, flipped, framed, some_examples, write

COUNTS = [5, 0, 7, 1]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own for each test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tar2tf"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Four shards, one of them empty, of 13 records in all."""
    first = 0
    for number, count in enumerate(COUNTS):
        write(tmp_path / "out" / f"x-{number}.record", framed(*some_examples(count, first)))
        first += count
    return tmp_path / "out"


def manifest_of(folder: Path) -> Path:
    (found,) = folder.glob("*manifest.json")
    return found


def labels(found: Any) -> list[int]:
    return [int(item["label"]) for item in found]


def test_examples_are_read_by_their_numbers(out: Path) -> None:
    records = open_records(out)
    assert len(records) == 13
    order = random.Random(1).sample(range(13), 13)
    assert labels(records[number] for number in order) == order
    assert labels(records.__getitems__(order)) == order
    assert labels(records) == [*range(13)]
    assert records[3]["jpg"] == bytes(range(43))


@given(st.lists(st.integers(-13, 12), max_size=30), st.slices(13))
def test_it_is_a_sequence(numbers: list[int], part: slice) -> None:
    records, whole = SHARED[0], [*range(13)]
    assert labels(records.__getitems__(numbers)) == [whole[number] for number in numbers]
    assert labels(records[part]) == whole[part]
    assert len(records[part]) == len(whole[part])
    assert labels(records[part][::-1]) == whole[part][::-1]


SHARED: list[Records] = []


@pytest.fixture(scope="module", autouse=True)
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    path = write(tmp_path_factory.mktemp("shared") / "x.record", framed(*some_examples(13)))
    SHARED.append(open_records(path, index_folder=""))
    yield
    SHARED.clear()


@pytest.mark.parametrize("number", [13, -14, 1 << 70])
def test_there_is_no_record_behind_the_last(out: Path, number: int) -> None:
    records = open_records(out)
    with pytest.raises(IndexError, match="there are 13"):
        records[number]
    with pytest.raises(IndexError):
        records.__getitems__([0, number])
    with pytest.raises(IndexError):
        records[:5][5]


def test_an_index_may_be_a_numpy_integer_and_nothing_but_an_integer(out: Path) -> None:
    records = open_records(out)
    assert int(records[np.int32(4)]["label"]) == 4
    for wrong in (1.0, "1", None):
        with pytest.raises(TypeError):
            records[wrong]  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("x-2.record", [*range(5, 12)]),
        ("x-{2..3}.record", [*range(5, 13)]),
        ("x-*.record", [*range(13)]),
        ("x-[02].record", [*range(12)]),
        (["x-3.record", "x-0.record"], [12, *range(5)]),
        (["x-0.record", "x-0.record"], [*range(5)] * 2),
    ],
)
def test_shards_are_files_and_templates_in_the_order_given(out: Path, given: Any, expected: list[int]) -> None:
    paths = [out / name for name in given] if isinstance(given, list) else os.path.join(out, given)
    assert labels(open_records(paths)) == expected


def test_relative_paths_are_those_of_the_working_folder(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(out)
    for path in (".", "*.record", ["x-0.record", "x-1.record", "x-2.record", "x-3.record"]):
        assert labels(open_records(path)) == [*range(13)]


def test_values_without_a_manifest_are_those_stored(tmp_path: Path) -> None:
    numbers = [0, 1, 127, 128, -1, 1 << 62, -(1 << 63), *range(-40, 300, 7)]
    stored = {"one": 7, "few": [1, -2], "many": numbers, "f": 0.5, "fs": [0.5, -1.0], "b": b"x", "bs": [b"", b"y"]}
    path = write(tmp_path / "a.record", framed(an_example(**stored), b""))
    found, empty = open_records(path)
    assert empty == {}
    objects = np.array([b"", b"y"], object)
    arrays = {"few": np.array([1, -2]), "many": np.array(numbers), "fs": np.array([0.5, -1], "float32"), "bs": objects}
    assert_same(found, {"one": np.int64(7), "f": np.float32(0.5), "b": b"x", **arrays})
    found["many"][0] = found["fs"][0] = 1  # both belong to the caller


@pytest.fixture
def photos(converted: Path, tmp_path: Path) -> Path:
    """A conversion of 24 photographs, to be damaged."""
    return Path(shutil.copytree(converted, tmp_path / "photos"))


def test_several_manifests_and_splits_are_one_sequence(tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ("--type", "cls=int64", "--split", "train=0.7,val=0.3", "--records-per-shard", "4")
    assert tar2tf("convert", PHOTOS, "-o", out / "<split>-<>.record", *options, "-j", "1").returncode == 0
    manifest = manifest_of(out)
    whole = list(load_dataset(manifest).as_numpy_iterator())
    train, val = (open_records(manifest, split=name) for name in ("train", "val"))
    assert len(train) + len(val) == 24
    for one, other in zip([*train, *val], whole, strict=True):
        assert_same(one, other)
    assert len(open_records([manifest, str(manifest), next(out.glob("val-1.record"))])) == 48 + len(val[:4])
    with pytest.raises(UsageError, match=r"'test'.*train, val"):
        open_records(manifest, split="test")
    assert len(open_records(out, split="train")) == len(train)
    with pytest.raises(UsageError, match="named without a manifest, which would list the split 'train'"):
        open_records(out / "train-1.record", split="train")
    with pytest.raises(UsageError, match=r"no split 'val'; splits: train$"):
        load_dataset(out / "train-1.record", split="val")


@pytest.mark.parametrize("read", [load_dataset, open_records])
def test_a_note_says_if_splits_become_one_dataset(
    read: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_tar(tmp_path / "a.tar", samples(40))
    out = tmp_path / "out"
    split = ("--split", "a=0.5,b=0.5", "-j", "1")
    assert tar2tf("convert", tmp_path / "a.tar", "-o", out / "<split>-<>.record", *split).returncode == 0
    for named in (out, manifest_of(out)):
        caplog.clear()
        assert len(read(named)) == 40
        assert [record.message for record in caplog.records] == [
            "note: the shards belong to the splits a, b; split='a' chooses one"
        ]
        caplog.clear()
        assert 0 < len(read(named, split="a")) < 40
        assert not caplog.records


def test_a_folder_stands_for_its_manifest(photos: Path) -> None:
    write(photos / "label.labels.txt", b"cat")
    whole = list(load_dataset(manifest_of(photos)).as_numpy_iterator())
    for one, other in zip(open_records(photos), whole, strict=True):
        assert_same(one, other)
    shutil.copy(manifest_of(photos), photos / "_b-manifest.json")
    with pytest.raises(UsageError, match=r"has 2 manifests; name one: _b-manifest\.json, _photos-manifest\.json"):
        open_records(photos)
    assert len(open_records(photos / "_b-manifest.json", photos / "photos-1.record")) == 30


def test_shards_that_a_manifest_lists_are_indexed_when_they_are_read(photos: Path, cache: Path) -> None:
    records = open_records(manifest_of(photos))
    assert len(records) == 24
    assert not cache.exists()
    assert records[7].keys() == {"__key__", "cls", "jpg", "json"}
    assert len(list(cache.iterdir())) == 1


# --- Indexes ---


def scans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of shards that are scanned from now on."""
    names: list[str] = []
    scan = RecordLayout.scan

    def noted(layout: RecordLayout, shard: Any, ranges: Any) -> Any:
        names.append(shard.name)
        return scan(layout, shard, ranges)

    monkeypatch.setattr(RecordLayout, "scan", noted)
    return names


def test_a_shard_is_scanned_once(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scanned = scans(monkeypatch)
    for _ in range(3):
        assert labels(open_records(out)) == [*range(13)]
    assert sorted(scanned) == [str(out / f"x-{number}.record") for number in range(4)]
    open_records(out, index_folder="")
    assert len(scanned) == 8


def test_an_index_is_not_used_for_another_version_of_the_shard(out: Path) -> None:
    path = out / "x-0.record"
    assert labels(open_records(path)) == [*range(5)]
    os.utime(write(path, framed(*some_examples(5, 70))), ns=(1, 1))
    assert labels(open_records(path)) == [*range(70, 75)]


def test_a_damaged_index_is_made_again(out: Path, cache: Path) -> None:
    open_records(out)
    for path in cache.iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    assert labels(open_records(out)) == [*range(13)]


def test_a_cache_that_is_a_file_does_no_harm(out: Path, tmp_path: Path) -> None:
    assert labels(open_records(out, index_folder=write(tmp_path / "file", b""))) == [*range(13)]


def lines(counts: list[int]) -> bytes:
    ends = np.cumsum([0, *counts]).tolist()
    return b"".join(b"%d %d\n" % pair for pair in zip(ends, counts, strict=False))


def test_an_index_beside_a_shard_saves_the_scan_where_a_manifest_says_how_many_records_there_are(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = photos / "indexed"
    assert tar2tf("convert", PHOTOS, "-o", out / "a-<>.record", "--num-shards", "2", "--index").returncode == 0
    scanned = scans(monkeypatch)
    assert [item["__key__"] for item in open_records(manifest_of(out))] == [
        item["__key__"] for item in load_dataset(manifest_of(out)).as_numpy_iterator()
    ]
    assert scanned == []


@pytest.mark.parametrize("records", [[b"a" * 30, b"b" * 10], [b"a" * 10, b"b" * 10, b"c" * 4]])
def test_an_index_of_another_shard_is_not_used(records: list[bytes], tmp_path: Path) -> None:
    path = write(tmp_path / "a.record", framed(b"x" * 20, b"y" * 20))
    write(tmp_path / "a.record.idx", lines([len(record) + 16 for record in records]))
    assert path.stat().st_size == len(framed(*records))
    assert list(open_records(path, raw=True)) == [b"x" * 20, b"y" * 20]


def indexed(folder: Path, sizes: list[int]) -> Path:
    """The manifest of a shard of 1,000 records of equal sizes, beside which there is an index with other ones."""
    tar = write(folder / "in.tar", tar_of([(f"{number:04}.txt", b"%040d" % number) for number in range(1000)]))
    assert tar2tf("convert", tar, "-o", folder / "out" / "a.record").returncode == 0
    write(folder / "out" / "a.record.idx", lines(sizes))
    return manifest_of(folder / "out")


def size_of_each(folder: Path) -> int:
    return (folder / "out" / "a.record").stat().st_size // 1000


def texts(found: Any) -> list[int]:
    return [int(item["txt"]) for item in found]


def test_an_index_that_turns_out_to_be_wrong_is_replaced(tmp_path: Path) -> None:
    manifest = indexed(tmp_path, [])
    sizes = [size_of_each(tmp_path)] * 1000
    sizes[501], sizes[502] = sizes[501] - 1, sizes[502] + 1
    write(tmp_path / "out" / "a.record.idx", lines(sizes))
    for read in (lambda r: r[501], lambda r: r[502], lambda r: [*r][501], lambda r: r.__getitems__([501])[0]):
        assert texts([read(open_records(manifest))])[0] in (501, 502)
    assert texts(open_records(manifest)) == [*range(1000)]


@pytest.mark.parametrize("by_manifest", [True, False])
@pytest.mark.parametrize("change", ["two lines are joined", "the last lines are joined"])
def test_an_index_with_joined_lines_gives_no_other_record(tmp_path: Path, change: str, by_manifest: bool) -> None:
    manifest = indexed(tmp_path, [])
    size, at = size_of_each(tmp_path), 149 if change == "two lines are joined" else 998
    write(tmp_path / "out" / "a.record.idx", lines([size] * at + [2 * size] + [size] * (998 - at)))
    records = open_records(manifest if by_manifest else tmp_path / "out" / "a.record")
    assert texts(records[number] for number in (at + 1, at, 0, 999)) == [at + 1, at, 0, 999]
    assert len(records) == 1000


@pytest.mark.parametrize("options", [(), ("--index",)])
def test_shards_in_a_bucket_are_indexed_once(
    tmp_path: Path, web: FaultyServer, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    out = tmp_path / "out"
    arguments = ("--num-shards", "2", "-j", "1", *options)
    assert tar2tf("convert", PHOTOS, "-o", out / "a-<>.record", *arguments).returncode == 0
    web.objects.update({f"in/{path.name}": path.read_bytes() for path in out.iterdir()})
    whole = list(load_dataset(manifest_of(out)).as_numpy_iterator())
    scanned = scans(monkeypatch)
    for _ in range(3):
        records = open_records(f"{web.url}/in/_a-manifest.json")
        for number in (17, 3, 23):
            assert_same(records[number], whole[number])
    assert len(scanned) == (0 if options else 2)
    web.objects["in/a-1.record"] = framed(*some_examples(12))
    with pytest.raises(DamagedShardError, match="in the manifest"):
        open_records(f"{web.url}/in/_a-manifest.json")


def test_shards_on_a_web_server_need_the_name_of_their_manifest(photos: Path, web: FaultyServer) -> None:
    web.objects.update({f"in/{path.name}": path.read_bytes() for path in photos.iterdir() if path.is_file()})
    manifest, shard = manifest_of(photos).name, min(photos.glob("*.record")).name
    assert len(load_dataset(f"{web.url}/in/{manifest}")) == 24
    with pytest.raises(UsageError, match="cannot be listed, so that its manifest is not found; name the manifest"):
        load_dataset(f"{web.url}/in/{shard}")


@pytest.mark.parametrize("to", ["tfrecord", "tar"])
def test_from_a_bucket_nothing_is_requested_but_indexes_and_blocks_with_what_is_read(
    tmp_path: Path, web: FaultyServer, to: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ObjectRanges, "MOST_AROUND", 0)  # near, however long answers take on this machine
    write_tar(tmp_path / "in" / "a.tar", [(f"{number:04}", {"bin": bytes(2000)}) for number in range(2000)])
    out = tmp_path / "out"
    ran = tar2tf("convert", tmp_path / "in", "-o", out / "x-<>", "--num-shards", "2", "--to", to, "--index", "-j", "1")
    assert ran.returncode == 0
    web.objects.update({f"in/{path.name}": path.read_bytes() for path in out.iterdir()})
    records = open_records(f"{web.url}/in/_x-manifest.json")
    assert len(records) == 2000
    assert [request for request in web.log if request[0] == "GET"] == [("GET", "in/_x-manifest.json", None)]
    web.log.clear()
    assert records[700]["__key__"] == b"0700"
    assert {path for _, path, _ in web.log} == {"in/x-1", "in/x-1.idx"}, "the other shard is left alone"
    web.log.clear()
    assert [item["__key__"] for item in records.__getitems__([401, 1, 400])] == [b"0401", b"0001", b"0400"]
    assert sum(map(size_of, web.log)) <= 4 << 16, "two blocks of 64 KiB, or those beside them, too"


def size_of(request: tuple[str, str, str | None]) -> int:
    """How many bytes of a shard were asked for."""
    assert request[2], f"the whole file: {request}"
    first, last = map(int, request[2].removeprefix("bytes=").split("-"))
    return last + 1 - first


def test_a_batch_has_its_requests_on_their_way_together(web: FaultyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    web.objects["in/a.record"] = framed(*[bytes(200_000)] * 64)
    records = open_records(f"{web.url}/in/a.record", raw=True)
    opened = open_records(f"{web.url}/in/a.record", raw=True)
    assert len(records) == len(opened) == 64
    together, take = threading.Barrier(16), web.take

    def all_there(request: str) -> Any:
        together.wait(timeout=20)  # is broken, and raises, unless 16 requests wait here
        return take(request)

    monkeypatch.setattr(web, "take", all_there)
    assert len(opened.__getitems__([*range(1, 64, 4)])) == 16
    assert not together.broken


def test_records_of_more_shards_than_are_requested_at_once_are_in_the_order_asked_for(web: FaultyServer) -> None:
    for shard in range(40):
        web.objects[f"in/{shard:02}.record"] = framed(
            *[b"%d %d" % (shard, number) + bytes(90_000) for number in (0, 1)]
        )
    records = open_records(f"{web.url}/in/{{00..39}}.record", raw=True)
    numbers = [number * 7 % 80 for number in range(80)]
    wanted = [b"%d %d" % divmod(number, 2) for number in numbers]
    assert [record.rstrip(b"\0") for record in records.__getitems__(numbers)] == wanted
    assert [record.rstrip(b"\0") for record in records] == [b"%d %d" % divmod(number, 2) for number in range(80)]


def test_whoever_closes_records_does_not_stop_those_who_read_a_view_or_in_another_thread(web: FaultyServer) -> None:
    web.objects["in/a.record"] = framed(*[bytes(200_000)] * 16)
    records = open_records(f"{web.url}/in/a.record", raw=True)
    with records[3:5] as part:
        assert len(list(part)) == 2
    assert len(records.__getitems__([2, 9])) == 2
    with ThreadPoolExecutor() as readers:
        reading = [readers.submit(records.__getitems__, [number, 15 - number]) for number in [*range(8)] * 4]
        while not all(future.done() for future in reading):
            records.close()
    assert [len(future.result()) for future in reading] == [2] * 32


def test_an_index_is_not_kept_for_a_shard_whose_server_gives_no_version(
    web: FaultyServer, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    web.objects["in/a.record"] = framed(*some_examples(9))
    kept = f"is read to the end .*; the index is kept in {cache}"
    for etags, words in ((True, kept), (False, "each time it is opened")):
        web.etags = etags
        caplog.clear()
        assert labels(open_records(f"{web.url}/in/a.record")) == [*range(9)]
        (said,) = caplog.messages
        assert re.search(rf"a\.record has no index, so it .*{words}", said)
    assert len(list(cache.rglob("*.index"))) == 1


# --- Faults ---


@pytest.mark.parametrize(("position", "kind"), [(20, "data_crc"), (3, "length_crc")])
def test_a_damaged_record_is_an_error_and_the_others_are_not(photos: Path, position: int, kind: str) -> None:
    manifest, path = manifest_of(photos), photos / "photos-3.record"
    records = open_records(manifest)
    good = records[14]
    before = sum(entry["records"] for entry in json.loads(manifest.read_bytes())["shards"][:2])
    offset = [offset for offset, _ in RecordReader(BytesIO(path.read_bytes()), path.name)][13 - before]
    status = path.stat()
    write(path, flipped(path.read_bytes(), offset + position))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # so that the index stays
    damaged = open_records(manifest)
    for read in (lambda: damaged[13], lambda: list(damaged), lambda: damaged.__getitems__([13, 14])):
        with pytest.raises(DamagedShardError, match="verify --salvage") as caught:
            read()
        error = caught.value
        assert (error.kind, error.shard, error.member, error.offset) == (kind, str(path), "record 1", offset)
    assert_same(damaged[14], good)
    assert_same(damaged[11], records[11])


def test_a_damaged_length_of_a_shard_without_index_is_an_error_that_says_what_to_do(out: Path) -> None:
    path = out / "x-2.record"
    write(path, flipped(path.read_bytes(), 0))
    with pytest.raises(DamagedShardError, match=r"record 0, offset 0: the CRC .* tar2tf verify --salvage"):
        open_records(out)


@pytest.mark.parametrize("data", [b"\xff" * 20, framed(b"x")])
def test_a_record_that_is_not_an_example_can_be_read_raw(tmp_path: Path, data: bytes) -> None:
    path = write(tmp_path / "a.record", framed(data))
    with pytest.raises(DamagedShardError, match=r"record 0, offset 0: .*raw=True") as caught:
        open_records(path)[0]
    assert caught.value.kind == "not_an_example"
    assert open_records(path, raw=True)[0] == data


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (gzip.compress(b"What is here", mtime=0), "is text that begins with 'What is here', neither a TFRecord"),
        (gzip.compress(gzip.compress(framed(b"x"), mtime=0), mtime=0), "is compressed twice, neither a TFRecord"),
        (b"PK\x03\x04" + b"z" * 40, "is a zip archive, neither a TFRecord nor a tar"),
        (b"# What is here\n" * 9, "is text that begins with '# What is here .*, neither a TFRecord"),
        (
            bytes(range(128, 256)),
            "is neither a TFRecord nor a tar, or its first bytes are damaged; name",
        ),
    ],
)
def test_other_files_are_refused_with_what_to_do(tmp_path: Path, data: bytes, words: str) -> None:
    path = write(tmp_path / "a.record", data)
    with pytest.raises(UsageError, match=words) as caught:
        open_records(path)
    assert caught.value.shard == str(path)


def test_shards_that_are_missing_or_of_another_size_are_errors_at_once(photos: Path) -> None:
    manifest, path = manifest_of(photos), photos / "photos-2.record"
    data = path.read_bytes()
    write(path, data[:-1])
    with pytest.raises(DamagedShardError, match=r"photos-2\.record: the file has .* bytes, but"):
        open_records(manifest)
    path.unlink()
    with pytest.raises(SourceError, match=r"photos-2\.record: is missing"):
        open_records(manifest)
    write(path, framed(*[b""] * 7, b"x" * (len(data) - 8 * 16)))
    with pytest.raises(DamagedShardError, match="8 records, but 6 in the manifest"):
        open_records(manifest)[8]


@pytest.mark.parametrize("path", ["nowhere", "nowhere.json", "nowhere-*.record"])
def test_nothing_at_a_path_is_an_error(tmp_path: Path, path: str) -> None:
    with pytest.raises(SourceError, match="nowhere"):
        open_records(tmp_path / path)


def test_no_path_at_all_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="there are no shards"):
        open_records([])


def test_a_shard_that_changed_since_it_was_opened_is_an_error(out: Path) -> None:
    records = open_records(out / "x-0.record")
    write(out / "x-0.record", framed(*some_examples(6)))
    with pytest.raises(SourceError, match="changed"):
        pickle.loads(pickle.dumps(records))[0]


def test_a_shard_that_is_written_to_while_it_is_open_is_an_error_too(tmp_path: Path) -> None:
    shard = write(tmp_path / "x.tar", tar_of([("a.cls", b"1"), ("b.cls", b"2")]))
    records = open_records(shard)
    assert records[0]["cls"] == b"1"
    shard.write_bytes(tar_of([("a.cls", b"1"), ("b.cls", b"3")]))
    with pytest.raises(SourceError, match=r"x\.tar: changed"):
        wait_until(lambda: records[1]["cls"] not in (b"2", b"3"), "it is noticed")


@given(st.data())
def test_damaged_bytes_give_records_or_an_error(data: st.DataObject) -> None:
    whole = framed(*RAW)
    place = data.draw(st.integers(0, len(whole) - 1))
    damaged = data.draw(st.sampled_from([flipped(whole, place), whole[:place], whole[place:], whole[:place] + whole]))
    path = write(FOLDER[0] / f"{os.urandom(8).hex()}.record", damaged)
    found = []
    try:
        records = open_records(path, raw=True, index_folder="")
        for number in range(len(records)):
            found += [records[number]]
    except Tar2tfError:
        pass
    assert set(found) <= set(RAW)


RAW = [b"%d" % number * number for number in range(12)]
FOLDER: list[Path] = []


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    FOLDER[:] = [tmp_path_factory.mktemp("raw")]


# --- Processes and threads ---


def test_it_can_be_pickled_and_the_copy_needs_no_index_again(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = open_records(out)[2:9]
    scanned = scans(monkeypatch)
    copied = pickle.loads(pickle.dumps(records))
    assert labels(copied) == [*range(2, 9)]
    assert repr(copied) == repr(records) == f"<7 records of 4 shards: {out}/x-0.record … {out}/x-3.record>"
    assert scanned == []


def test_threads_read_at_once(photos: Path) -> None:
    records = open_records(manifest_of(photos))
    keys = [item["__key__"] for item in load_dataset(manifest_of(photos)).as_numpy_iterator()]
    order = [random.Random(3).randrange(24) for _ in range(400)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda n: records[n]["__key__"], order)) == [keys[number] for number in order]


def test_forked_processes_read_what_their_parent_had_begun_to_read(photos: Path) -> None:
    records = open_records(manifest_of(photos))
    keys = [item["__key__"] for item in records]
    assert in_a_fork(lambda: [item["__key__"] for item in records] == keys)
    assert in_a_fork(lambda: records[23]["__key__"] == keys[23])
    assert records[0]["__key__"] == keys[0]


def test_few_files_stay_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FileRanges, "MOST_OPEN", 4)
    for number in range(12):
        write(tmp_path / f"{number:02d}.record", framed(*some_examples(2, 2 * number)))
    before = len(os.listdir("/proc/self/fd"))
    records = open_records(str(tmp_path / "*.record"))
    assert labels(records.__getitems__([*range(23, -1, -1)])) == [*range(23, -1, -1)]
    assert len(os.listdir("/proc/self/fd")) <= before + 4
    del records
    assert len(os.listdir("/proc/self/fd")) == before


def test_several_readers_of_many_files_fit_into_a_process(tmp_path: Path) -> None:
    for number in range(150):
        write(tmp_path / f"{number:03d}.record", framed(*some_examples(2, 2 * number)))
    code = (
        "import resource, sys; from tar2tf_cli import Tar2tfError, open_records\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))\n"
        "readers = [open_records(sys.argv[1]) for _ in range(5)]\n"
        "print([sum(len(record) for record in reader) for reader in readers])\n"
        "files = [open(sys.executable) for _ in range(128 - len(__import__('os').listdir('/proc/self/fd')))]\n"
        "try: list(open_records(sys.argv[1]))\n"
        "except Tar2tfError as error: print(type(error).__name__, error.hint)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "*.record")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    refused = "SourceError raise the limit (ulimit -n 65536), then run the same command"
    assert (done.stdout, done.stderr) == (f"{[900] * 5}\n{refused}\n", "")


def test_tensorflow_is_not_imported(photos: Path) -> None:
    code = (
        "import sys; from tar2tf_cli import open_records; r = open_records(sys.argv[1]); list(r); r[3];"
        "print(sorted({'tensorflow', 'obstore', 'requests', 'urllib3', 'cv2', 'click'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code, str(manifest_of(photos))]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"


def test_indexes_are_kept_in_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    path = write(tmp_path / "a.record", framed(b""))
    open_records(path)
    assert len(list((tmp_path / ".cache" / "tar2tf").iterdir())) == 1
    assert Indexes().folder == str(tmp_path / ".cache" / "tar2tf")


def test_a_program_that_ends_with_open_files_says_nothing(out: Path) -> None:
    """When Python ends, it clears modules before some objects."""
    program = (
        "import sys; from tar2tf_cli import open_records; from tar2tf_cli.stores import directory\n"
        "records = open_records(sys.argv[1]); records[0]; directory.os = None"
    )
    done = subprocess.run([sys.executable, "-c", program, out / "x-0.record"], stderr=subprocess.PIPE, check=True)
    assert done.stderr == b""
