"""Tars as shards: what webdataset, GNU tar, bsdtar and tarfile read is what was in the input, under every limit."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import shutil
import subprocess
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from webdataset.tariterators import group_by_keys, tar_file_expander

from commands import COMMAND, SECONDS, convert, tar2tf
from shards import (
    Sample,
    every_file,
    large_shards,
    members_of,
    records,
    samples,
    samples_of,
    shards_in,
    small_shards,
    tree,
    write_members,
    write_tar,
)
from tar2tf_cli import Conversion, Output, open_records
from tar2tf_cli import convert as convert_in_python
from tar2tf_cli.datasets.load import load_dataset
from tar2tf_cli.errors import UsageError

pytestmark = pytest.mark.spread

LAYOUTS = {
    "one": ["all.tar"],
    "size": ["new-<>.tar", "--max-shard-size", "60kB"],
    "count": ["new-<00000>.tar", "--num-shards", "5"],
    "records": ["new-<0>-of-<total>.tar", "--records-per-shard", "17"],
    "gzip": ["all.tar.gz"],
    "gzip and size": ["new-<>.tar.gz", "--max-shard-size", "40kB"],
    "gzip and records": ["new-<>.tgz", "--records-per-shard", "17"],
    "zstd": ["all.tar.zst"],
    "zstd and size": ["new-<>.tar.zst", "--max-shard-size", "40kB"],
    "a name of its own": ["new-<>.data", "--to", "tar", "--max-shard-size", "60kB"],
    "input": ["new-<input>.tar"],
}


def sources(bucket: Path) -> list[Sample]:
    return samples_of(*sorted(path for path in bucket.iterdir() if ".tar" in path.name or path.suffix == ".tgz"))


def written(folder: Path) -> list[Path]:
    """The shards that the manifest in a folder lists, in order."""
    (manifest,) = folder.glob("*manifest.json")
    return [folder / shard["path"] for shard in json.loads(manifest.read_text())["shards"]]


def by_webdataset(paths: list[Path]) -> list[Sample]:
    """What webdataset reads, one shard after the other."""
    found = []
    for path in paths:
        with path.open("rb") as stream:
            for sample in group_by_keys(tar_file_expander([{"url": str(path), "stream": stream}])):
                entries = {name: data for name, data in sample.items() if not name.startswith("__")}
                found.append((sample["__key__"], entries))
    return found


def by_program(program: str, path: Path) -> tuple[list[str], bytes]:
    """The names that GNU tar or bsdtar lists, and the data of all members; neither may have anything to say."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")

    def run(*options: str) -> bytes:
        command = [program, *options, "-f", str(path)]
        environment = {"LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"]}
        done = subprocess.run(command, capture_output=True, check=True, timeout=SECONDS, env=environment)
        assert not done.stderr
        return done.stdout

    names = run("-t", *(["--quoting-style=literal"] if program == "tar" else []))
    return names.decode().splitlines(), run("-x", "-O")


@pytest.mark.parametrize("kind", ["mixed", "small", "large"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_reader_of_tars_finds_the_samples_of_the_input(
    kind: str, layout: str, inputs: Callable[[str], Path], tmp_path: Path
) -> None:
    path, *options = LAYOUTS[layout]
    convert(inputs(kind), "-o", tmp_path / path, *options)
    shards, expected = written(tmp_path), sources(inputs(kind))
    files = [(f"{key}.{name}", data) for key, entries in expected for name, data in entries.items()]
    for program in ("tar", "bsdtar"):
        listed, data = zip(*(by_program(program, shard) for shard in shards), strict=True)
        assert [name for names in listed for name in names] == [name for name, _ in files]
        assert b"".join(data) == b"".join(data for _, data in files)
    if "zst" not in path:
        assert [file for shard in shards for file in members_of(shard)] == files
        assert by_webdataset(shards) == expected
    assert tar2tf("verify", next(tmp_path.glob("*manifest.json")), "--against", inputs(kind)).returncode == 0


@pytest.mark.parametrize("layout", ["size", "gzip and size", "zstd and size"])
def test_a_shard_counts_its_end_and_is_closed_only_before_a_sample_that_would_pass_the_limit(
    layout: str, inputs: Callable[[str], Path], tmp_path: Path
) -> None:
    path, *options, limit = LAYOUTS[layout]
    most = int(limit.removesuffix("kB")) * 1000
    convert(inputs("mixed"), "-o", tmp_path / path, *options, limit)
    sizes = [shard.stat().st_size for shard in written(tmp_path)]
    single = [shard for shard in written(tmp_path) if shard.stat().st_size > most]
    assert len(sizes) >= 4
    assert not single
    if layout == "size":
        first = [
            sum(1024 + len(data) + -len(data) % 512 for data in entries.values()) - 512 * len(entries)
            for _, entries in (samples_of(shard)[0] for shard in written(tmp_path)[1:])
        ]
        assert all(size + more > most for size, more in zip(sizes, first, strict=False))


def test_members_have_a_fixed_owner_mode_and_time_whatever_theirs_were(tmp_path: Path) -> None:
    for name, moment in (("a", 1), ("b", 10**9)):
        with tarfile.open(tmp_path / f"{name}.tar", "w", format=tarfile.PAX_FORMAT) as tar:
            info = tarfile.TarInfo("x/1.txt")
            info.size, info.mtime, info.uid, info.uname, info.mode = 3, moment + 0.5, moment % 99, name, 0o400
            tar.addfile(info, io.BytesIO(b"abc"))
        convert(tmp_path / f"{name}.tar", "-o", tmp_path / f"new-{name}.tar")
    assert (tmp_path / "new-a.tar").read_bytes() == (tmp_path / "new-b.tar").read_bytes()
    with tarfile.open(tmp_path / "new-a.tar") as tar:
        (found,) = tar
        assert (found.mode, found.uid, found.uname, found.mtime) == (0o644, 0, "", 315_532_800)


def test_names_and_order_of_entries_stay_even_where_names_are_long(tmp_path: Path) -> None:
    names = [
        *("b.txt", "b.jpg", "b.cls", "a.jpg", "a.txt"),
        *(f"{'deep/' * 60}c.{name}" for name in ("png", "cls")),
        *(f"{'é' * 80}.{name}" for name in ("seg.png", "jpg")),
    ]
    members = [(name, name.encode()) for name in names]
    write_members(tmp_path / "in.tar", members)
    for pure in ("0", "1"):
        tar2tf("convert", tmp_path / "in.tar", "-o", tmp_path / f"out-{pure}.tar", env={"TAR2TF_PURE": pure})
        assert [*members_of(tmp_path / f"out-{pure}.tar")] == members


@pytest.mark.parametrize("options", [[], ["--shuffle", "--num-shards", "3"], ["--split", "a=0.5,b=0.5"]])
def test_tar_to_tfrecord_to_tar_to_tfrecord_gives_the_first_records(
    options: list[str], inputs: Callable[[str], Path], tmp_path: Path
) -> None:
    convert(inputs("mixed"), "-o", tmp_path / "first.record")
    name = "<split>-<>.tar" if "--split" in options else "new-<>.tar"
    convert(tmp_path / "first.record", "-o", tmp_path / "tars" / name, *options)
    convert(*written(tmp_path / "tars"), "-o", tmp_path / "again.record")
    first, again = records(tmp_path / "first.record"), records(tmp_path / "again.record")
    assert sorted(again) == sorted(first)
    if not options:
        assert again == first


def test_a_shuffled_reshard_has_every_sample_once_whatever_the_number_of_workers(
    inputs: Callable[[str], Path], tmp_path: Path
) -> None:
    options = ["--shuffle", "--num-shards", "6", "--seed", "5"]
    for workers in ("1", "4"):
        convert(inputs("mixed"), "-o", tmp_path / workers / "new-<00000>.tar", *options, "-j", workers)
    assert tree(tmp_path / "1") == tree(tmp_path / "4")
    found, expected = samples_of(*written(tmp_path / "1")), sources(inputs("mixed"))
    assert sorted(found) == sorted(expected)
    assert found != expected


@pytest.mark.parametrize("path", ["new-<>.tar", "new-<>.tar.gz"])
def test_an_update_gives_the_bytes_of_a_new_conversion(path: str, tmp_path: Path) -> None:
    bucket = large_shards(small_shards(tmp_path / "in"))
    command = ["-o", tmp_path / "out" / path, "--max-shard-size", "100kB"]
    convert(bucket, *command)
    write_tar(bucket / "m.tar", samples(40, 3000, first=7000))
    (bucket / "small-1.tar").unlink()
    done = convert(bucket, *command, "--update")
    assert " kept)" in done.stderr
    convert(bucket, "-o", tmp_path / "fresh" / path, "--max-shard-size", "100kB")
    assert every_file(tmp_path / "out") == every_file(tmp_path / "fresh")


def test_an_update_finds_a_key_that_is_there_already(tmp_path: Path) -> None:
    bucket = small_shards(tmp_path / "in")
    convert(bucket, "-o", tmp_path / "out.tar")
    write_tar(bucket / "z.tar", samples(1, first=1000))
    done = tar2tf("convert", bucket, "-o", tmp_path / "out.tar", "--update")
    assert done.returncode == 3
    assert "two samples with the same key would be in this tar, one of small-1.tar and one of z.tar" in done.stderr


@pytest.mark.parametrize(
    "options", [[], ["--shuffle"], ["--op", "drop_empty"], ["--compression", "gzip", "--to", "tar"]]
)
def test_two_samples_of_one_key_are_not_mixed_up_in_one_tar(options: list[str], tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_tar(tmp_path / "in" / f"{name}.tar", samples(9, 12_000, first=0 if name == "a" else 8))
    name = "out-<>.data" if "--to" in options else "out-<>.tar"
    done = tar2tf("convert", tmp_path / "in", "-o", tmp_path / "out" / name, *options)
    assert done.returncode == 3
    assert "two samples with the same key would be in this tar" in done.stderr
    assert ("one of a.tar and one of b.tar" in done.stderr) == ("--shuffle" not in options)
    assert not list((tmp_path / "out").glob("out-*"))
    convert(tmp_path / "in", "-o", tmp_path / "apart-<input>.tar")


@pytest.mark.parametrize("size", [500, 20_000])
@pytest.mark.parametrize("options", [[], ["--limit", "30"], ["--shuffle"]], ids=str)
def test_the_manifest_counts_the_samples_of_each_entry(size: int, options: list[str], tmp_path: Path) -> None:
    for number in range(2):
        write_tar(tmp_path / "in" / f"{number}.tar", samples(20, size, first=20 * number))
    convert(tmp_path / "in", "-o", tmp_path / "x.tar", *options)
    features = json.loads((tmp_path / "_x-manifest.json").read_text())["features"]
    count = 30 if "--limit" in options else 40
    assert {name: feature["count"] for name, feature in features.items()} == dict.fromkeys(features, count)
    assert {"jpg", "cls"} <= features.keys()


def test_a_folder_of_tars_is_read_in_the_order_of_its_manifest(tmp_path: Path) -> None:
    source = small_shards(tmp_path / "in", shards=1)
    convert(source, "-o", tmp_path / "out/x-<>.tar", "--records-per-shard", "6")
    assert (tmp_path / "out/x-10.tar").exists()
    for number, named in enumerate(("out", "out/_x-manifest.json")):
        convert(tmp_path / named, "-o", tmp_path / f"{number}.tar")
        assert tar2tf("diff", source, tmp_path / f"{number}.tar").returncode == 0


def test_on_standard_output_all_inputs_are_one_tar_with_one_end(tmp_path: Path) -> None:
    bucket = small_shards(tmp_path / "in")
    convert(bucket, "-o", tmp_path / "all.tar")
    command = [*COMMAND, "convert", bucket, "-o", "-", "--to", "tar"]
    done = subprocess.run(command, capture_output=True, check=True, timeout=SECONDS)
    assert done.stdout == (tmp_path / "all.tar").read_bytes()
    write_tar(bucket / "z.tar", samples(1, first=1000))
    done = subprocess.run(command, capture_output=True, timeout=SECONDS)
    assert done.returncode == 3
    assert b"two samples with the same key would be in this tar" in done.stderr


def test_ops_and_types_make_members_of_numbers_and_arrays(tmp_path: Path) -> None:
    import numpy as np

    array = np.arange(6, dtype=">f8").reshape(2, 3)
    buffer = io.BytesIO()
    np.save(buffer, array)
    write_members(tmp_path / "in.tar", [("a.cls", b" 7\n"), ("a.npy", buffer.getvalue()), ("a.json", b'{"x": [1, 2]}')])
    select = "label=cls,npy,boxes=json:x,a=json"
    convert(
        tmp_path / "in.tar",
        "-o",
        tmp_path / "out.tar",
        "--op",
        "decode:npy",
        "--select",
        select,
        "--type",
        "label=int64",
    )
    ((key, entries),) = by_webdataset([tmp_path / "out.tar"])
    assert key == "a"
    assert (entries["label"], entries["a"]) == (b"7", b'{"x": [1, 2]}')
    found = {name: np.load(io.BytesIO(entries[name])) for name in ("npy", "boxes.npy")}
    np.testing.assert_array_equal(found["npy"], array)
    assert found["npy"].dtype == np.float64
    assert found["boxes.npy"].tolist() == [1, 2]
    manifest = json.loads((tmp_path / "_out-manifest.json").read_text())
    assert {feature["encoding"] for feature in manifest["features"].values()} == {"bytes"}
    assert manifest["spec"]["output"] == {"path": "out.tar", "to": "tar"}


def test_a_preset_whose_features_no_tar_can_name_is_an_error_that_says_which(tmp_path: Path, photo_tar: Path) -> None:
    done = tar2tf("convert", photo_tar, "-o", tmp_path / "out.tar", "--preset", "imagenet")
    assert done.returncode == 3
    assert "cannot be named in a tar" in done.stderr
    assert "'image/" in done.stderr


@pytest.fixture
def photo_tar(inputs: Callable[[str], Path]) -> Path:
    return next(inputs("photos").glob("*.tar"))


def test_a_damaged_or_missing_tar_of_a_manifest_is_found(tmp_path: Path) -> None:
    convert(small_shards(tmp_path / "in"), "-o", tmp_path / "new-<>.tar", "--max-shard-size", "60kB")
    manifest, shards = tmp_path / "_new-manifest.json", written(tmp_path)
    assert tar2tf("verify", manifest).returncode == 0
    (tmp_path / "other.tar").write_bytes(shards[0].read_bytes())
    data = bytearray(shards[1].read_bytes())
    data[700] ^= 1
    shards[1].write_bytes(data)
    shards[2].unlink()
    shutil.copy(shards[0], tmp_path / "new-99.tar")
    write_tar(shards[3], samples_of(shards[3])[:-1])
    done = tar2tf("verify", manifest, "--json")
    assert done.returncode == 1
    faults = {
        Path(file["path"]).name: [fault["kind"] for fault in file["faults"]]
        for file in json.loads(done.stdout)["files"]
    }
    assert faults["new-1.tar"] == []
    assert faults["new-2.tar"] == ["digest"]
    assert faults["new-3.tar"] == ["missing"]
    assert {"size", "count"} <= set(faults["new-4.tar"])
    assert faults["new-99.tar"] == ["stray"]


def test_an_entry_that_the_manifest_does_not_know_is_found(tmp_path: Path) -> None:
    convert(small_shards(tmp_path / "in", shards=1), "-o", tmp_path / "new.tar")
    found = samples_of(tmp_path / "new.tar")
    found[3][1]["txt"] = b"new"
    del found[5][1]["cls"]
    write_tar(tmp_path / "new.tar", found)
    done = tar2tf("verify", tmp_path / "_new-manifest.json")
    assert "sample 0003 has an entry 'txt', which is not in the manifest (schema)" in done.stdout
    assert "sample 0005 lacks 'cls', which all others have (schema)" in done.stdout


def test_verify_against_names_the_entry_that_differs(tmp_path: Path) -> None:
    bucket = small_shards(tmp_path / "in", shards=2)
    convert(bucket, "-o", tmp_path / "new.tar")
    changed = samples_of(bucket / "small-0.tar")
    changed[4][1]["cls"] = b"other"
    write_tar(bucket / "small-0.tar", changed[:-1])
    done = tar2tf("verify", tmp_path / "_new-manifest.json", "--against", bucket)
    assert done.returncode == 1
    assert "the record of the sample '0004' differs in 'cls' from what" in done.stdout
    assert "the record of the sample '0059' was not made from a sample of the source" in done.stdout


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        ("x.tar.xz", [], "cannot write .tar.xz\n  use .tar, .tar.gz or .tar.zst"),
        ("x.tar.LZ4", [], "cannot write .tar.lz4"),
        ("x-<>.tzst", [], "cannot write .tzst\n  use .tar, .tar.gz or .tar.zst"),
        ("x.record.zst", [], "cannot write .zst\n  use .record, or .record.gz for gzip"),
        ("x.zip", [], "cannot write .zip"),
        ("x.record.gz", ["--compression", "zstd"], "--compression zstd is only for tars"),
        ("x.record.gz", ["--index"], "--index and --compression cannot"),
        ("x.tar", ["--compression", "gzip"], "has the name of a tar that is not compressed with gzip"),
        ("x.tar.gz", ["--compression", "zstd"], "has the name of a tar that is not compressed with zstd"),
        ("x.record", ["--compression", "zstd"], "--compression zstd is only for tars"),
        ("x.tar.zst", ["--index"], "--index and --compression cannot"),
        ("-", ["--to", "tar", "--compression", "gzip"], "a tar that goes to - is not compressed"),
        ("x.tar", ["--remote-exec"], "--remote-exec writes TFRecords, but the output is a tar"),
        ("x-<00000>.tar", ["--tfds", "x"], "it reads TFRecord shards, and the output is tar"),
        ("x.tar", ["--to", "tars"], "--to must be 'tfrecord' or 'tar', not 'tars'"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_read(
    path: str, options: list[str], message: str, tmp_path: Path
) -> None:
    done = tar2tf("convert", write_tar(tmp_path / "in.tar", samples(1)), "-o", path, *options, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr


def test_to_tfrecord_writes_records_under_any_name(tmp_path: Path) -> None:
    source = write_tar(tmp_path / "in.tar", samples(3))
    convert(source, "-o", tmp_path / "x.tar", "--to", "tfrecord")
    convert(source, "-o", tmp_path / "y.record")
    assert (tmp_path / "x.tar").read_bytes() == (tmp_path / "y.record").read_bytes()


def test_records_whose_path_ends_in_gz_are_compressed_without_being_asked(tmp_path: Path) -> None:
    import tensorflow as tf

    source = write_tar(tmp_path / "in.tar", samples(9))
    convert(source, "-o", tmp_path / "plain.record")
    convert(source, "-o", tmp_path / "a.record.gz", "--records-per-shard", "5")
    convert(source, "-o", tmp_path / "b.record", "--records-per-shard", "5", "--compression", "gzip")
    shards = shards_in(tmp_path, "a-*.gz")
    assert [path.name for path in shards] == ["a-00000.record.gz", "a-00001.record.gz"]
    assert [path.read_bytes() for path in shards] == [path.read_bytes() for path in shards_in(tmp_path, "b-*.record")]
    found = tf.data.TFRecordDataset([*map(str, shards)], "GZIP").as_numpy_iterator()
    assert [*found] == [*tf.data.TFRecordDataset(str(tmp_path / "plain.record")).as_numpy_iterator()]


def test_gzip_shards_are_one_member_each(inputs: Callable[[str], Path], tmp_path: Path) -> None:
    """As readers such as tarfile's streams stop behind the first one."""
    convert(inputs("small"), "-o", tmp_path / "new-<>.tar.gz", "--max-shard-size", "40kB")
    found = []
    for shard in written(tmp_path):
        with tarfile.open(shard, "r|gz") as tar:
            found += tar.getnames()
        assert gzip.decompress(shard.read_bytes())[-1024:] == bytes(1024)
    assert len(found) == 2 * len(sources(inputs("small")))


def test_a_large_gzip_tar_without_a_limit_is_one_member(tmp_path: Path) -> None:
    noise = random.Random(0)
    source = write_tar(tmp_path / "in.tar", [(f"{n}", {"bin": noise.randbytes(400_000)}) for n in range(8)])
    convert(source, "-o", tmp_path / "new.tar.gz")
    stream = zlib.decompressobj(wbits=31)
    assert stream.decompress((tmp_path / "new.tar.gz").read_bytes()).endswith(bytes(1024))
    assert (stream.eof, stream.unused_data) == (True, b"")


def test_the_index_of_a_tar_says_where_the_data_of_each_entry_is(tmp_path: Path) -> None:
    """In the format of DALI's wds2idx: extension, offset, size and name of each."""
    convert(small_shards(tmp_path / "in"), "-o", tmp_path / "new-<>.tar", "--max-shard-size", "60kB", "--index")
    for shard in written(tmp_path):
        data, (head, *lines) = shard.read_bytes(), (tmp_path / f"{shard.name}.idx").read_text().splitlines()
        words = [line.split() for line in lines]
        found = [
            (name, data[int(start) : int(start) + int(size)])
            for line in words
            for _, start, size, name in zip(*[iter(line)] * 4, strict=True)
        ]
        assert found == [*members_of(shard)]
        assert head == f"v1.2 {len(lines)}"
    assert tar2tf("verify", tmp_path / "_new-manifest.json").returncode == 0
    index = tmp_path / "new-1.tar.idx"
    index.write_text(index.read_text().replace("512", "513", 1))
    done = tar2tf("verify", tmp_path / "_new-manifest.json")
    assert done.returncode == 1
    assert "its index is wrong: line 2" in done.stdout


def test_the_index_of_a_tar_is_that_of_wds2idx(tmp_path: Path) -> None:
    source = write_tar(tmp_path / "in.tar", samples(30))
    convert(source, "-o", tmp_path / "x-<>.tar", "--num-shards", "3", "--index")
    for shard in written(tmp_path):
        index = shard.with_name(f"{shard.name}.idx")
        before = index.read_bytes()
        assert before.startswith(b"v1.2 10\n")
        index.unlink()
        assert tar2tf("index", shard).returncode == 0
        assert index.read_bytes() == before
    with tarfile.open(source) as tar:
        files = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
    for named in (tmp_path / "_x-manifest.json", f"{tmp_path}/x-*.tar"):
        records = open_records(named, index_folder="")
        read = [(each.pop("__key__").decode(), each) for each in records]
        assert {f"{key}.{name}": data for key, each in read for name, data in each.items()} == files
        assert "__key__" in records.key(read[17][0])


def test_the_dry_run_shows_the_members_of_the_first_sample(tmp_path: Path) -> None:
    write_members(tmp_path / "in.tar", [("a.json", b'{"x": [1, 2]}'), ("a.cls", b"7")])
    command = ["convert", tmp_path / "in.tar", "-o", tmp_path / "out.tar", "--select", "boxes=json:x,cls", "--type"]
    done = tar2tf(*command, "cls=int64", "--dry-run")
    shown = [line.split(maxsplit=1) for line in done.stdout.partition("members:\n")[2].splitlines()]
    assert shown[0][0] == "__key__"
    assert [name for name, _ in shown[1:]] == ["boxes.npy", "cls"]
    assert shown[2][1] == "bytes, 1 long: b'7'"
    assert "about 1 sample" in done.stdout
    assert convert(*command[1:], "cls=int64").stderr.startswith("1 sample, ")


def test_readers_of_records_say_that_shards_are_tars(tmp_path: Path) -> None:
    convert(write_tar(tmp_path / "in.tar", samples(3)), "-o", tmp_path / "x.tar")
    with pytest.raises(UsageError) as caught:
        load_dataset(tmp_path / "_x-manifest.json")
    hint = "read them with open_records or webdataset, or convert them to TFRecord: tar2tf convert"
    assert str(caught.value) == f"{tmp_path}/_x-manifest.json: its shards are tars, not TFRecord; {hint}"


def test_python_says_the_same(tmp_path: Path) -> None:
    source = write_tar(tmp_path / "in.tar", samples(30))
    convert(source, "-o", tmp_path / "a-<>.data", "--to", "tar", "--records-per-shard", "8")
    output = Output(tmp_path / "b-<>.data", to="tar", records_per_shard=8)
    convert_in_python(Conversion(source, output))
    assert [path.read_bytes() for path in shards_in(tmp_path, "a-*.data")] == [
        path.read_bytes() for path in shards_in(tmp_path, "b-*.data")
    ]


@pytest.mark.parametrize("way", ["plain", "op", "records"])
def test_spaces_at_the_ends_of_keys_are_kept(tmp_path: Path, way: str) -> None:
    keys = [" a", "b ", "c", "dir/ d "]
    shard = write_tar(tmp_path / "in.tar", [(key, {"txt": key.encode()}) for key in keys])
    if way == "records":
        assert tar2tf("convert", shard, "-o", tmp_path / "in.record").returncode == 0
        shard = tmp_path / "in.record"
    ops = ["--op", "rename:txt=txt,text"] if way == "op" else []
    assert tar2tf("convert", shard, "-o", tmp_path / "out.tar", *ops).returncode == 0
    assert samples_of(tmp_path / "out.tar") == [(key, {"txt": key.encode()}) for key in keys]
