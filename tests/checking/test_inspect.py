"""`tar2tf inspect`: counts are exact, kinds come from the bytes, tables fit, nothing more is read than is needed."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import tarfile
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import convert
from inspect_runs import a_jpeg, a_png, look_into
from shards import PHOTOS
from tar2tf_cli import inspect
from tar2tf_cli.checking.inspect import read_samples
from tar2tf_cli.inputs.tar_samples import TarRules
from tar2tf_cli.stores.directory import DirectorySource
from verify_runs import Ran, a_tar, an_example, framed, in_a_process, write, write_with_tensorflow

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


# --- What is counted ---


@pytest.mark.parametrize("name", ["x.tar", "x.tar.gz"])
def test_members_that_are_not_part_of_a_sample_are_counted(
    name: str, tmp_path: Path, run_inspect: Callable[..., Ran]
) -> None:
    data = a_tar([("README", b"x"), ("._a.jpg", b"x"), ("a.jpg", b"x"), ("LICENSE", b"x")])
    write(tmp_path / name, gzip.compress(data) if name.endswith("gz") else data)
    ran = run_inspect(tmp_path / name)
    assert ran.code == 0
    assert "2 members skipped: no extension" in ran.err
    assert "1 member skipped: AppleDouble (._*)" in ran.err
    assert run_inspect(tmp_path / name, "--json").json["skipped"] == {"AppleDouble (._*)": 1, "no extension": 2}


def test_the_photographs_are_described(run_inspect: Callable[..., Ran]) -> None:
    ran = run_inspect(PHOTOS, "--json")
    document = ran.json
    assert ran.code == 0
    assert list(document) == ["format", "shards", "samples", "bytes", "entries"]
    assert (document["format"], document["samples"]) == ("tar", 24)
    assert [Path(shard["path"]).name for shard in document["shards"]] == [
        "photos-0.tar",
        "photos-1.tar",
        "photos-2.tar",
        "photos-3.tar.gz",
    ]
    assert [shard["samples"] for shard in document["shards"]] == [6] * 4
    assert document["bytes"] == sum(shard["bytes"] for shard in document["shards"])
    assert document["bytes"] == sum(path.stat().st_size for path in PHOTOS.glob("photos-*"))
    entries = document["entries"]
    assert {name: entry["count"] for name, entry in entries.items()} == {"cls": 24, "jpg": 24, "json": 24}
    assert entries["jpg"]["kind"] == "image/jpeg 160-256x120-224x1-3"
    assert (entries["cls"]["kind"], entries["json"]["kind"]) == ("text", "json")
    assert json.loads(entries["json"]["example"])["label"]["name"] == "cat"


def test_sizes_are_those_of_the_members(run_inspect: Callable[..., Ran]) -> None:
    sizes = []
    for path in PHOTOS.glob("photos-*"):
        with tarfile.open(path) as tar:
            sizes += [member.size for member in tar if member.name.endswith(".jpg")]
    entry = run_inspect(PHOTOS, "--json").json["entries"]["jpg"]
    assert (entry["min"], entry["max"]) == (min(sizes), max(sizes))
    assert entry["mean"] == pytest.approx(sum(sizes) / len(sizes), abs=0.01)
    assert entry["unit"] == "bytes"


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_features_are_described_by_kind_and_length(tmp_path: Path, compression: str) -> None:
    records = [
        an_example(
            image=a_png(),
            label=n,
            scores=[0.5] * (n + 1),
            words=[b"one", b"two"],
            none=[],
            **({"odd": 1} if n % 2 else {}),
        )
        for n in range(5)
    ]
    contents = look_into(write_with_tensorflow(tmp_path / "x", records, compression))
    assert (contents.format, contents.samples) == ("tfrecord", 5)
    entries = {name: stats.to_json() for name, stats in contents.entries.items()}
    assert list(entries) == ["image", "label", "none", "odd", "scores", "words"]
    assert entries["image"]["kind"] == "image/png 5x3x3"
    number = {"count": 5, "kind": "int64", "unit": "values", "min": 1, "mean": 1.0, "max": 1, "example": "0"}
    assert entries["label"] == {**number, "range": [0, 4]}
    assert (entries["scores"]["min"], entries["scores"]["mean"], entries["scores"]["max"]) == (1, 3.0, 5)
    assert (entries["scores"]["kind"], entries["scores"]["example"]) == ("float", "0.5")
    assert (entries["words"]["kind"], entries["words"]["min"], entries["words"]["example"]) == (
        "list of text",
        6,
        "[one, …]",
    )
    assert (entries["none"]["kind"], entries["none"]["max"]) == ("unset", 0)
    assert entries["odd"]["count"] == 2


def test_the_range_and_mean_of_numbers_are_those_of_all_values(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    random = np.random.default_rng(1)
    records, wide, ids = [], [], []
    for number in range(300):
        wide.append(random.normal(0, 1e3, number % 40).astype("f4"))
        ids.append(random.integers(-(2**62), 2**62, 1 + number % 3))
        floats = [*map(float, wide[-1]), float("nan")]
        records.append(an_example(ids=[*map(int, ids[-1])], label=number - 7, wide=floats))
    (tmp_path / "a").mkdir()
    write_with_tensorflow(tmp_path / "a" / "x", records[:100])
    write_with_tensorflow(tmp_path / "a" / "y", records[100:])
    ran = run_inspect(tmp_path / "a", "-j", "2")
    rows = {line.split()[0]: line for line in ran.out.splitlines() if line.strip()}
    whole = np.concatenate(wide)
    assert re.search(
        rf"float, 1-40 values +{whole.min():.6g} +{whole.mean(dtype=float):.6g} +{whole.max():.6g}", rows["wide"]
    )
    assert re.search(r"int64 +-7 +142.5 +292 +-7", rows["label"])
    ranges = {name: entry["range"] for name, entry in run_inspect(tmp_path / "a", "--json").json["entries"].items()}
    assert ranges["ids"] == [np.concatenate(ids).min(), np.concatenate(ids).max()]
    assert ranges["wide"] == [whole.min(), whole.max()]


def test_long_lists_are_shortened_in_the_example(tmp_path: Path) -> None:
    contents = look_into(write_with_tensorflow(tmp_path / "x", [an_example(x=list(range(3072)))]))
    assert contents.entries["x"].example == "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, …]"
    assert contents.entries["x"].most == 3072


def test_records_that_are_no_example_are_counted_and_said(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    path = write_with_tensorflow(tmp_path / "x", [an_example(a=1), b"hello", a_png()])
    ran = run_inspect(path, "--json")
    assert (ran.code, ran.json["samples"], ran.json["entries"]["a"]["count"]) == (0, 3, 1)
    assert "2 records: not a tf.train.Example" in ran.err


def test_a_directory_of_both_is_mixed(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    write(tmp_path / "a.record", a_tar([("0.jpg", a_jpeg()), ("0.cls", b"1")]))
    write_with_tensorflow(tmp_path / "b.tar", [an_example(jpg=a_jpeg(), label=1)])
    write(tmp_path / "README", b"text")
    write(tmp_path / "a.record.idx", b"0 9\n")
    ran = run_inspect(tmp_path, "--json")
    assert ran.json["format"] == "mixed"
    assert [shard["format"] for shard in ran.json["shards"]] == ["tar", "tfrecord"]
    assert ran.json["entries"]["jpg"]["count"] == 2
    assert ran.err == "1 file skipped (neither tar nor TFRecord): README\n"
    assert "2 tar and TFRecord shards, 2 samples" in run_inspect(tmp_path).out


def test_the_manifest_beside_shards_is_not_reported_as_skipped(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    convert(PHOTOS, "-o", tmp_path / "out" / "x-<>.record")
    ran = run_inspect(tmp_path / "out")
    assert (ran.code, ran.err) == (0, "")
    assert run_inspect(tmp_path / "out" / "*.json").code == 0


def test_a_template_does_not_mean_indexes_of_the_shards_it_means(
    tmp_path: Path, run_inspect: Callable[..., Ran]
) -> None:
    for name in ("x-0-of-2", "x-1-of-2"):
        write(tmp_path / "train" / f"{name}.idx", b"0 9\n")
        write_with_tensorflow(tmp_path / "train" / name, [an_example(label=1)])
    assert run_inspect(tmp_path, "**/x-*-of-*", "--json").json["samples"] == 2
    assert run_inspect(tmp_path, "train/x-1-of-2.idx").code == 3


def test_the_result_does_not_depend_on_the_number_of_workers() -> None:
    results = [in_a_process("inspect", PHOTOS, "--json", "-j", workers) for workers in ("1", "2", "5")]
    assert results[0] == results[1] == results[2]
    assert results[0].code == 0


def test_the_result_does_not_depend_on_how_a_tar_is_read(tmp_path: Path) -> None:
    members = []
    for number in range(250):
        members += [(f"{number:04d}.cls", b"%d" % number), (f"{number:04d}.png", a_png(2 + number % 2, 3))]
        members += [(f"{number:04d}.txt", b"rare")] if number in (170, 171, 200) else []
    plain = write(tmp_path / "plain.tar", a_tar(members))
    zipped = write(tmp_path / "zipped.tar.gz", gzip.compress(plain.read_bytes()))
    found = [look_into(plain), look_into(zipped), look_into(plain, rules=TarRules(regroup=True))]
    documents = [{name: stats.to_json() for name, stats in contents.entries.items()} for contents in found]
    assert documents[0] == documents[1] == documents[2]
    assert documents[0]["png"]["kind"] == "image/png 3x2-3x3"
    assert (documents[0]["txt"]["kind"], documents[0]["txt"]["count"]) == ("text", 3)
    assert [contents.samples for contents in found] == [250] * 3


def test_faulty_samples_are_not_counted_and_said(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    path = write(tmp_path / "x.tar", a_tar([("a.cls", b"1"), ("b.cls", b"2"), ("a.txt", b"3"), ("c.cls", b"4")]))
    ran = run_inspect(path, "--json", "--no-regroup")
    assert (ran.code, ran.json["samples"]) == (0, 3)
    assert "1 faulty sample not counted" in ran.err


# --- What is read ---


class _Counting:
    """A stream that adds up what is read of it."""

    def __init__(self, raw: Any, read: list[int]) -> None:
        self._raw = raw
        self._read = read

    def read(self, size: int, /) -> bytes:
        data: bytes = self._raw.read(size)
        self._read.append(len(data))
        return data

    def seek(self, offset: int) -> None:
        self._raw.seek(offset)

    def fileno(self) -> int:
        return int(self._raw.fileno())

    def close(self) -> None:
        self._raw.close()


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of all reads of local files."""
    sizes: list[int] = []
    original, by_offset = DirectorySource.open, os.pread
    monkeypatch.setattr(DirectorySource, "open", lambda self, item: _Counting(original(self, item), sizes))

    def pread(descriptor: int, size: int, offset: int) -> bytes:
        data = by_offset(descriptor, size, offset)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(os, "pread", pread)
    return sizes


def test_of_a_local_tar_little_more_than_the_headers_is_read(tmp_path: Path, read: list[int]) -> None:
    path = write(tmp_path / "x.tar", a_tar((f"{number:04d}.bin", bytes(100_000)) for number in range(500)))
    contents = look_into(path)
    assert (contents.samples, contents.entries["bin"].total) == (500, 50_000_000)
    assert sum(read) < 500 * 4096 + 102 * 101_000 + (2 << 20)


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_a_few_samples_cost_a_few_samples(tmp_path: Path, read: list[int], compress: Callable[[bytes], bytes]) -> None:
    noise = np.random.default_rng(1).bytes(100_000)
    path = write(tmp_path / "x.tar", compress(a_tar((f"{number:04d}.bin", noise) for number in range(200))))
    assert len(list(islice(read_samples(str(path), heads_only=True), 3))) == 3
    assert sum(read) < 2 << 20


def test_shards_behind_the_samples_asked_for_are_not_opened(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    write(tmp_path / "a.tar", a_tar([(f"{number}.txt", b"x") for number in range(3)]))
    write(tmp_path / "b.tar", b"damaged")
    assert run_inspect(tmp_path, "*.tar", "-n", "3").code == 0
    ran = run_inspect(tmp_path, "*.tar", "-n", "4")
    assert (ran.code, "b.tar: is text that begins with" in ran.err) == (3, True)


# --- Samples in full ---


def test_the_first_samples_are_printed(run_inspect: Callable[..., Ran]) -> None:
    ran = run_inspect(PHOTOS, "-n", "7")
    assert ran.code == 0
    titles = [line for line in ran.lines if not line.startswith(" ")]
    assert titles[0] == f"{PHOTOS}/photos-0.tar: sample 0, 0000"
    assert titles[6] == f"{PHOTOS}/photos-1.tar: sample 0, 0006"
    assert len(titles) == 7
    assert (
        ran.lines[3]
        == '  json  json                     64 B  {"label": {"name": "cat", "id": 0}, "width": 160, "height": 120}'
    )


def test_samples_join_the_document_in_json(run_inspect: Callable[..., Ran]) -> None:
    document = run_inspect(PHOTOS, "-n", "2", "--json").json
    assert document["samples"] == 24
    assert [sample["key"] for sample in document["first"]] == ["0000", "0001"]
    assert document["first"][0]["entries"]["cls"] == {"kind": "text", "unit": "bytes", "size": 1, "value": "0"}


def test_records_without_a_key_are_printed_by_number(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    path = write_with_tensorflow(tmp_path / "x", [an_example(label=[5, 6]), b"no example"])
    ran = run_inspect(path, "-n", "9")
    assert ran.lines == [
        f"{path}: record 0",
        "  label  int64  2  [5, 6]",
        f"{path}: record 1",
        "  (not a tf.train.Example)  text  10 B  no example",
    ]


# --- Errors ---


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("x.tar", a_tar([("a.cls", b"1"), ("b.cls", b"2")])[:700], "cut short"),
        ("x.tar.gz", gzip.compress(a_tar([("a.cls", b"1"), ("b.cls", b"2")]), mtime=0)[:-9], "cut short"),
        ("x.record", b"text", "neither a tar nor a TFRecord"),
        ("x.record", b"", "is empty"),
    ],
)
@pytest.mark.parametrize("options", [(), ("-n", "5")])
def test_a_damaged_shard_is_an_error(
    tmp_path: Path, run_inspect: Callable[..., Ran], name: str, data: bytes, words: str, options: tuple[str, ...]
) -> None:
    ran = run_inspect(write(tmp_path / name, data), *options)
    assert ran.code == 3
    assert not ran.out or options or ": 1 tar shard, 1 sample" in ran.out
    assert words in ran.err
    assert name in ran.err


def test_a_damaged_length_is_an_error_that_points_to_verify(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    path = write_with_tensorflow(tmp_path / "x.record", [an_example(a=1), an_example(a=2)])
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    ran = run_inspect(path)
    assert (ran.code, "1 TFRecord shard, 1 record" in ran.out) == (3, True)
    assert "record 1" in ran.err
    assert "tar2tf verify" in ran.err


@pytest.mark.parametrize("options", [(), ("-n", "1"), ("--json",)])
def test_a_directory_without_shards_is_an_error(
    tmp_path: Path, run_inspect: Callable[..., Ran], options: tuple[str, ...]
) -> None:
    for _ in range(2):
        ran = run_inspect(tmp_path, *options)
        assert (ran.code, ran.out) == (3, "")
        assert "holds no tar or TFRecord" in ran.err
        write(tmp_path / "README.md", b"text")


@pytest.mark.parametrize(
    ("arguments", "code"), [(("nowhere",), 3), ((PHOTOS, "-n", "0"), 2), ((), 2), ((PHOTOS, "nothing-*"), 3)]
)
def test_exit_codes(run_inspect: Callable[..., Ran], arguments: tuple[str | Path, ...], code: int) -> None:
    ran = run_inspect(*arguments)
    assert (ran.code, ran.out) == (code, "")
    assert "Traceback" not in ran.err


def test_a_missing_end_is_accepted_on_request(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    path = write(tmp_path / "x.tar", a_tar([("a.cls", b"1"), ("b.cls", b"2")])[:2048])
    assert run_inspect(path).code == 3
    assert run_inspect(path, "--ignore-missing-end", "--json").json["samples"] == 2


def test_kinds_of_lists_that_change_are_counted_in_all_records(tmp_path: Path) -> None:
    records = [an_example(score=0.5)] * 300 + [an_example(score=b"half")] * 200
    path = write(tmp_path / "x.record", framed(*records))
    stats = inspect(str(path), workers=1).entries["score"]
    assert (stats.kind, stats.to_json()["kinds"]) == ("float (300), text (200)", {"float": 300, "bytes": 200})


def test_a_sequence_example_without_anything_in_it_is_one(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    ran = run_inspect(write(tmp_path / "x.record", framed(b"\n\x00\x12\x00", b"\n\x00\x12\x00")))
    assert "2 records: tf.train.SequenceExample" in ran.err
    assert "not a tf.train.Example" not in ran.err


@pytest.mark.parametrize("pure", ["0", "1"])
def test_the_entries_of_many_samples_are_counted_and_measured(
    tmp_path: Path, pure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAR2TF_PURE", pure)
    sizes: dict[str, list[int]] = {"cls": [], "txt": []}
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for number in range(900):
            for name in ("cls", "txt") if number % 3 else ("txt",):
                size = 1 + (number * 7 + len(sizes[name])) % 40
                info = tarfile.TarInfo(f"{number:04d}.{name}")
                info.size = size
                tar.addfile(info, io.BytesIO(b"x" * size))
                sizes[name].append(size)
    found = inspect(tmp_path / "a.tar").to_json()
    assert found["samples"] == 900
    for name, of in sizes.items():
        about = found["entries"][name]
        assert (about["count"], about["missing"]) == (len(of), 900 - len(of))
        assert (about["min"], round(about["mean"], 1), about["max"]) == (min(of), round(sum(of) / len(of), 1), max(of))


def test_the_first_hundred_values_of_a_single_tar_are_examined(tmp_path: Path) -> None:
    members = [(f"{number:03}.x", b"text" if number < 90 else a_png(2, 2)) for number in range(120)]
    stats = inspect(str(write(tmp_path / "a.tar", a_tar(members)))).entries["x"]
    assert (stats.count, stats.kinds.total()) == (120, 100)
    assert stats.kinds["text"] == 90
