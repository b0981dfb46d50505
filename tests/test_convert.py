"""Whole conversions through the command line: same bytes for any number of workers, order, fill, wire format."""

from __future__ import annotations

import gzip
import json
import os
import resource
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

from shards import (
    COMMAND,
    PHOTOS,
    SECONDS,
    Sample,
    contents,
    convert,
    examples,
    keys,
    large_shards,
    mixed_shards,
    records,
    samples,
    samples_of,
    shards_in,
    sizes,
    small_shards,
    tar2tf,
    tree,
    write_members,
    write_tar,
)

MAKERS: dict[str, Callable[[Path], object]] = {
    "small": small_shards,
    "large": large_shards,
    "mixed": mixed_shards,
    "one": lambda folder: write_tar(folder / "one.tar", samples(40, 5000)),
    "empty": lambda folder: write_tar(folder / "empty.tar", []),
    "photos": lambda folder: [
        os.link(path, folder / path.name) if not folder.mkdir(exist_ok=True) else None
        for path in PHOTOS.glob("photos-*")
    ],
}


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A bucket of each kind, made once."""
    root = tmp_path_factory.mktemp("inputs")

    def make(kind: str) -> Path:
        if not (root / kind).exists():
            MAKERS[kind](root / kind)
        return root / kind

    return make


def scattered(folder: Path) -> Path:
    """Shards in which all `cls` members come before all `jpg` members."""
    for number in range(3):
        chosen = samples(20, first=number * 100)
        members = [(f"{key}.{name}", entries[name]) for name in ("cls", "jpg") for key, entries in chosen]
        write_members(folder / f"scattered-{number}.tar", members)
    return folder


# --- 1. The same bytes for any number of workers ---

LAYOUTS = {
    "one file": ["all.record"],
    "max-shard-size": ["train-<>.record", "--max-shard-size", "20kB"],
    "max-shard-size below a record": ["train-<>.record", "--max-shard-size", "500"],
    "num-shards": ["train-<>.record", "--num-shards", "7"],
    "records-per-shard": ["train-<00>.record", "--records-per-shard", "9"],
    "both limits": ["train-<>.record", "--records-per-shard", "9", "--max-shard-size", "30kB"],
    "limit": ["train-<>.record", "--limit", "83", "--max-shard-size", "20kB"],
    "shuffle": ["train-<>.record", "--shuffle", "--seed", "3", "--max-shard-size", "20kB"],
    "shuffle and limit": ["train-<>.record", "--shuffle", "--limit", "50", "--records-per-shard", "8"],
    "shuffle into num-shards": ["train-<>.record", "--shuffle", "--num-shards", "4"],
    "split": ["<split>-<000>.record", "--split", "train=0.7,val=0.2,test=0.1", "--max-shard-size", "20kB"],
    "split folders": ["<split>/<0>.record", "--split", "train=0.5,val=0.5", "--num-shards", "3"],
    "split and shuffle": ["<split>-<>.record", "--split", "a=0.5,b=0.5", "--shuffle", "--records-per-shard", "20"],
    "gzip": ["all.record.gz", "--compression", "gzip"],
    "gzip and size": ["train-<>.record.gz", "--compression", "gzip", "--max-shard-size", "20kB"],
    "gzip and num-shards": ["train-<>.record.gz", "--compression", "gzip", "--num-shards", "3"],
    "gzip, split and limit": [
        *["<split>-<>.gz", "--compression", "gzip", "--split", "a=0.5,b=0.5"],
        *["--limit", "60", "--max-shard-size", "9kB"],
    ],
    "gzip and shuffle": ["train-<>.gz", "--compression", "gzip", "--shuffle", "--max-shard-size", "20kB"],
    "index": ["train-<>.record", "--index", "--max-shard-size", "20kB"],
    "types": ["train-<>.record", "--type", "cls=int64", "--max-shard-size", "20kB"],
    "key-split": ["train-<>.record", "--key-split", "last", "--max-shard-size", "20kB"],
    "regroup": ["train-<>.record", "--regroup", "--max-shard-size", "20kB"],
    "input": ["<input>.record"],
    "input and size": ["<input>-<>.record", "--max-shard-size", "20kB"],
    "input and num-shards": ["<input>-<>.record", "--num-shards", "2"],
    "total": ["train-<000>-of-<total>.record", "--max-shard-size", "20kB"],
    "total and split": ["<split>-<0>-of-<total>.record", "--split", "a=0.5,b=0.5", "--records-per-shard", "10"],
    "skip": ["train-<>.record", "--on-error", "skip", "--max-shard-size", "20kB"],
}

CASES = [
    *[("mixed", layout) for layout in LAYOUTS],
    *[("small", layout) for layout in ("one file", "max-shard-size", "shuffle", "gzip and size", "total")],
    *[("large", layout) for layout in ("one file", "max-shard-size", "num-shards", "input", "limit", "index", "total")],
    *[("one", layout) for layout in ("one file", "max-shard-size", "gzip and size", "num-shards")],
    *[("empty", layout) for layout in ("one file", "num-shards", "shuffle")],
]


@pytest.mark.parametrize(("kind", "layout"), CASES)
def test_any_number_of_workers_writes_the_same_bytes(
    kind: str, layout: str, inputs: Callable[[str], Path], tmp_path: Path
) -> None:
    path, *options = LAYOUTS[layout]
    bucket = inputs(kind)

    def converted(workers: int) -> dict[str, bytes]:
        out = tmp_path / f"j{workers}"
        convert(bucket, "-o", out / path, "-j", str(workers), *options)
        return tree(out)

    with ThreadPoolExecutor() as pool:
        trees = list(pool.map(converted, (1, 2, 5)))
    assert trees[0] == trees[1] == trees[2]
    manifests = [name for name in trees[0] if name.endswith(".json")]
    assert len(manifests) == 1, "the working folder is gone, and one manifest stands"
    listed = {shard["path"] for shard in json.loads(trees[0][manifests[0]])["shards"]}
    assert set(trees[0]) == {*listed, *manifests, *(f"{name}.idx" for name in listed if "--index" in options)}


@pytest.mark.parametrize("kind", ["mixed", "large"])
def test_standard_output_is_the_same_stream_for_any_number_of_workers(
    kind: str, inputs: Callable[[str], Path], tmp_path: Path
) -> None:
    convert(inputs(kind), "-o", tmp_path / "one.record")
    for workers in ("1", "2", "5"):
        command = [*COMMAND, "convert", inputs(kind), "-o", "-", "-j", workers]
        done = subprocess.run(command, capture_output=True, check=True, timeout=SECONDS)
        assert done.stdout == (tmp_path / "one.record").read_bytes()


@pytest.mark.parametrize("options", [[], ["--select", "image=jpg,label=cls", "--type", "label=int64"]])
def test_every_way_of_reading_gives_the_same_records(options: list[str], tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "in" / "x.tar", samples(30, 12_000))
    gz = tmp_path / "x.tgz"
    gz.write_bytes(gzip.compress(tar.read_bytes()))
    convert(tar, "-o", tmp_path / "direct.record", *options)
    convert(gz, "-o", tmp_path / "gzip.record", *options)
    convert(tar, "-o", tmp_path / "spooled.record", "--on-error", "skip", *options)
    with tar.open() as stdin:
        convert("-", "-o", tmp_path / "stdin.record", *options, stdin=stdin)
    convert(tmp_path / "in", "-o", tmp_path / "regrouped.record", "--regroup", *options)
    assert len({path.read_bytes() for path in tmp_path.glob("*.record")}) == 1
    features = [json.loads(path.read_bytes())["features"] for path in tmp_path.glob("*.json")]
    assert len(features) == 5
    assert all(found == features[0] for found in features)


def test_the_bytes_do_not_depend_on_where_the_output_lies(inputs: Callable[[str], Path], tmp_path: Path) -> None:
    options = ["--max-shard-size", "20kB", "-q"]
    convert(inputs("mixed"), "-o", tmp_path / "a" / "train-<>.record", *options)
    convert(inputs("mixed"), "-o", "train-<>.record", *options, cwd=(tmp_path / "a").parent)
    (tmp_path / "b").mkdir()
    convert(inputs("mixed"), "-o", "./b/train-<>.record", *options, cwd=tmp_path)
    assert tree(tmp_path / "a") == tree(tmp_path / "b")


# --- 2. Order ---


@pytest.mark.parametrize("kind", ["small", "large", "mixed"])
def test_shards_in_number_order_hold_the_samples_in_input_order(
    kind: str, inputs: Callable[[str], Path], tmp_path: Path
) -> None:
    bucket = inputs(kind)
    convert(bucket, "-o", tmp_path / "train-<>.record", "--max-shard-size", "20kB", "-j", "5")
    shards = shards_in(tmp_path)
    assert len(shards) > 3
    assert contents(*shards) == samples_of(*sorted(bucket.iterdir()))


def test_braces_give_the_order_and_globs_are_sorted(inputs: Callable[[str], Path], tmp_path: Path) -> None:
    bucket = inputs("small")
    convert(bucket, "small-{3..1}.tar", "-o", tmp_path / "braces.record")
    assert contents(tmp_path / "braces.record") == samples_of(*(bucket / f"small-{n}.tar" for n in (3, 2, 1)))
    convert(bucket, "small-3.tar", "small-[01].tar", "-o", tmp_path / "globs.record")
    assert contents(tmp_path / "globs.record") == samples_of(*(bucket / f"small-{n}.tar" for n in (3, 0, 1)))


def test_a_tar_file_as_bucket_is_that_one_shard(inputs: Callable[[str], Path], tmp_path: Path) -> None:
    convert(inputs("small") / "small-2.tar", "-o", tmp_path / "one.record")
    assert contents(tmp_path / "one.record") == samples_of(inputs("small") / "small-2.tar")


# --- 3. Limits and fill ---


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize(("size", "limit"), [(300, 8_000), (900, 20_000), (12_000, 200_000)])
def test_no_shard_exceeds_its_limit_and_the_mean_fill_is_at_least_85_percent(
    compression: str, size: int, limit: int, tmp_path: Path
) -> None:
    for number in range(3):
        write_tar(tmp_path / "in" / f"{number}.tar", samples(5 * limit // size, size, first=number * 1000))
    options = ["--max-shard-size", str(limit), "--compression", compression]
    convert(tmp_path / "in", "-o", tmp_path / "train-<>.record", *options)
    taken = sizes(shards_in(tmp_path))
    assert len(taken) >= 10
    assert max(taken) <= limit
    assert sum(taken) / len(taken) >= 0.85 * limit
    assert contents(*shards_in(tmp_path)) == samples_of(*sorted((tmp_path / "in").iterdir()))


def test_gzip_shards_of_text_fill_up_by_their_size_on_disk(tmp_path: Path) -> None:
    texts: list[Sample] = [
        (f"{number:05d}", {"txt": b" ".join(b"%d %d" % (number, number * word % 977) for word in range(300))})
        for number in range(600)
    ]
    write_tar(tmp_path / "in.tar", texts)
    options = ["--max-shard-size", "40kB", "--compression", "gzip"]
    convert(tmp_path / "in.tar", "-o", tmp_path / "train-<>.record", *options)
    taken = sizes(shards_in(tmp_path))
    assert len(taken) >= 10
    assert max(taken) <= 40_000
    assert sum(taken) / len(taken) >= 0.85 * 40_000
    assert contents(*shards_in(tmp_path)) == texts


def test_a_record_larger_than_the_limit_is_a_shard_of_its_own_and_is_told(tmp_path: Path) -> None:
    write_tar(tmp_path / "in.tar", [*samples(5), ("big", {"jpg": bytes(9000)}), *samples(5, first=5)])
    done = convert(tmp_path / "in.tar", "-o", tmp_path / "train-<>.record", "--max-shard-size", "4kB")
    found = [[key for key, _ in contents(shard)] for shard in shards_in(tmp_path)]
    assert ["big"] in found
    assert all(size <= 4000 or keys == ["big"] for size, keys in zip(sizes(shards_in(tmp_path)), found, strict=True))
    assert "1 record larger than --max-shard-size" in done.stderr


def test_a_shard_is_closed_only_before_the_record_that_would_pass_the_limit(tmp_path: Path) -> None:
    write_tar(tmp_path / "in.tar", samples(100))
    convert(tmp_path / "in.tar", "-o", tmp_path / "all.record")
    lengths = [len(record) + 16 for record in records(tmp_path / "all.record")]
    limit = sum(lengths[:13])
    convert(tmp_path / "in.tar", "-o", tmp_path / "train-<>.record", "--max-shard-size", str(limit))
    shards = shards_in(tmp_path, "train-*.record")
    assert len(records(shards[0])) == 13, "a shard may be exactly as large as its limit"
    position = 0
    for shard, following in zip(shards, [*shards[1:], None], strict=True):
        position += len(records(shard))
        assert following is None or shard.stat().st_size + lengths[position] > limit


def test_num_shards_are_equal_within_one_record(inputs: Callable[[str], Path], tmp_path: Path) -> None:
    convert(inputs("mixed"), "-o", tmp_path / "train-<>.record", "--num-shards", "7")
    counts = [len(records(shard)) for shard in shards_in(tmp_path)]
    assert len(counts) == 7
    assert sum(counts) == 148
    assert max(counts) - min(counts) == 1


def test_more_shards_than_records_leave_none_empty(tmp_path: Path) -> None:
    write_tar(tmp_path / "in.tar", samples(3))
    convert(tmp_path / "in.tar", "-o", tmp_path / "train-<0>-of-<total>.record", "--num-shards", "10")
    assert [path.name for path in shards_in(tmp_path)] == [f"train-{number}-of-3.record" for number in range(3)]


def test_records_per_shard_are_full_up_to_the_last(inputs: Callable[[str], Path], tmp_path: Path) -> None:
    convert(inputs("mixed"), "-o", tmp_path / "train-<>.record", "--records-per-shard", "25")
    assert [len(records(shard)) for shard in shards_in(tmp_path)] == [25, 25, 25, 25, 25, 23]


@pytest.mark.parametrize("limit", [0, 1, 70, 71, 83, 148, 1000])
def test_the_limit_takes_the_first_samples(limit: int, inputs: Callable[[str], Path], tmp_path: Path) -> None:
    bucket = inputs("mixed")
    convert(bucket, "-o", tmp_path / "train-<>.record", "--limit", str(limit), "--records-per-shard", "30")
    assert contents(*shards_in(tmp_path)) == samples_of(*sorted(bucket.iterdir()))[:limit]
    manifest = json.loads((tmp_path / "train-manifest.json").read_bytes())
    assert manifest["totals"]["records"] == min(limit, 148)
    assert all(feature["count"] == min(limit, 148) for feature in manifest["features"].values())


def test_a_numbered_path_without_a_limit_has_one_of_256_mib(inputs: Callable[[str], Path], tmp_path: Path) -> None:
    done = convert(inputs("small"), "-o", tmp_path / "train-<>.record", "--dry-run", "--json")
    assert json.loads(done.stdout)["output"]["max_shard_size"] == 256 * 1024 * 1024


# --- Paths ---


def test_fields_of_the_path_are_filled_in(inputs: Callable[[str], Path], tmp_path: Path) -> None:
    def names(path: str, *options: str) -> list[str]:
        out = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        convert(inputs("small"), "small-{0,1}.tar", "-o", out / path, *options)
        return sorted(tree(out))

    four = ["--records-per-shard", "40"]
    assert names("train-<>.record", *four)[:3] == ["train-1.record", "train-2.record", "train-3.record"]
    assert names("train-{}.record", *four)[:3] == ["train-1.record", "train-2.record", "train-3.record"]
    assert names("<00008>", *four) == ["00008", "00009", "00010", "00011", "manifest.json"]
    assert names("train.record", *four)[:2] == ["train-00000.record", "train-00001.record"]
    assert names("train.record") == ["train-manifest.json", "train.record"]
    assert names("t-<00>-of-<total>", *four)[:4] == ["t-00-of-04", "t-01-of-04", "t-02-of-04", "t-03-of-04"]
    assert names("x/<input>.record") == ["x/manifest.json", "x/small-0.record", "x/small-1.record"]
    assert names("my <input>/<>.rec", *four)[1:4] == ["my small-0/1.rec", "my small-0/2.rec", "my small-1/1.rec"]


def test_each_input_has_its_own_file(inputs: Callable[[str], Path], tmp_path: Path) -> None:
    convert(inputs("mixed"), "-o", tmp_path / "<input>.record", "-j", "5")
    for tar in inputs("mixed").iterdir():
        stem = tar.name.partition(".")[0]
        assert (tmp_path / f"{stem}.record").exists() == (stem != "d"), "no file for the input without samples"
        if stem != "d":
            assert contents(tmp_path / f"{stem}.record") == samples_of(tar)


def test_two_inputs_of_one_stem_do_not_share_a_file(tmp_path: Path) -> None:
    write_tar(tmp_path / "in" / "a.tar", samples(3))
    write_tar(tmp_path / "in" / "a.tar.gz", samples(3))
    done = tar2tf("convert", tmp_path / "in", "-o", tmp_path / "out" / "<input>.record")
    assert done.returncode == 2
    assert "'a'" in done.stderr
    assert not (tmp_path / "out").exists()


# --- Shuffle and split ---


def test_shuffled_records_of_different_inputs_interleave(inputs: Callable[[str], Path], tmp_path: Path) -> None:
    bucket = inputs("small")
    convert(bucket, "-o", tmp_path / "train-<>.record", "--shuffle", "--seed", "1", "--records-per-shard", "40")
    shards = shards_in(tmp_path)
    found, original = contents(*shards), samples_of(*sorted(bucket.iterdir()))
    assert found != original
    assert sorted(found) == sorted(original)
    for shard in shards[:-1]:
        assert len({key[0] for key in keys(shard)}) == 4, "each shard of 40 has samples of all four inputs"
    places = {key: place for place, (key, _) in enumerate(original)}
    kept_neighbours = sum(places[b[0]] == places[a[0]] + 1 for a, b in pairwise(found))
    assert kept_neighbours < 10


def test_the_seed_decides_the_order(inputs: Callable[[str], Path], tmp_path: Path) -> None:
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        convert(inputs("small"), "-o", tmp_path / f"{name}.record", "--shuffle", "--seed", seed)
    a, b, c = (keys(tmp_path / f"{name}.record") for name in "abc")
    assert a == b
    assert a != c
    assert sorted(a) == sorted(c)


def test_the_summary_says_how_far_records_were_shuffled(inputs: Callable[[str], Path], tmp_path: Path) -> None:
    done = convert(inputs("small"), "-o", tmp_path / "a.record", "--shuffle", "--seed", "7")
    assert "all 246 records with each other, seed 7" in done.stderr


def test_shuffling_more_inputs_than_files_may_be_open_works(tmp_path: Path) -> None:
    for number in range(150):
        write_tar(tmp_path / "in" / f"{number:03d}.tar", samples(3, first=number * 10))
    convert(
        *[tmp_path / "in", "-o", tmp_path / "all.record", "--shuffle", "-j", "2"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100)),
    )
    assert sorted(contents(tmp_path / "all.record")) == samples_of(*sorted((tmp_path / "in").iterdir()))


def test_a_split_is_whole_and_near_its_fractions(inputs: Callable[[str], Path], tmp_path: Path) -> None:
    bucket = inputs("small")
    convert(bucket, "-o", tmp_path / "<split>-<>.record", "--split", "train=0.7,val=0.3", "--records-per-shard", "30")
    train, val = (contents(*shards_in(tmp_path, f"{name}-*.record")) for name in ("train", "val"))
    assert sorted(train + val) == sorted(samples_of(*bucket.iterdir()))
    assert train == sorted(train), "each split keeps the input order"
    assert 0.6 < len(train) / 246 < 0.8
    shards = json.loads((tmp_path / "manifest.json").read_bytes())["shards"]
    assert {shard["split"] for shard in shards} == {"train", "val"}


def test_a_split_is_stable_as_data_grows(inputs: Callable[[str], Path], tmp_path: Path) -> None:
    def split_of(template: str, out: Path, *options: str) -> dict[str, str]:
        convert(inputs("small"), template, "-o", out / "<split>.record", "--split", "train=0.8,val=0.2", *options)
        return {key: path.stem for path in out.glob("*.record") for key in keys(path)}

    before = split_of("small-{1..2}.tar", tmp_path / "before")
    after = split_of("small-{0..3}.tar", tmp_path / "after", "--shuffle")
    assert len(after) > len(before)
    assert {key: after[key] for key in before} == before


# --- Wire format ---


def parsed_by_tf_data(paths: list[Path], compression: str = "") -> list[Sample]:
    """The records as tf.data reads them and tf.io.parse_single_example parses them."""
    import tensorflow as tf

    found = []
    for record in tf.data.TFRecordDataset([str(path) for path in paths], compression_type=compression):
        names = tf.train.Example.FromString(record.numpy()).features.feature
        parsed = tf.io.parse_single_example(record, {name: tf.io.FixedLenFeature([], tf.string) for name in names})
        entries = {name: value.numpy() for name, value in parsed.items()}
        found.append((os.fsdecode(entries.pop("__key__")), entries))
    return found


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("kind", ["mixed", "photos"])
def test_tensorflow_reads_what_the_tar_holds(
    kind: str, compression: str, inputs: Callable[[str], Path], tmp_path: Path
) -> None:
    bucket = inputs(kind)
    options = ["--compression", compression, "--max-shard-size", "60kB"]
    convert(bucket, "-o", tmp_path / "train-<>.record", *options)
    found = parsed_by_tf_data(shards_in(tmp_path), "GZIP" if compression == "gzip" else "")
    assert found == samples_of(*sorted(bucket.iterdir()))


def test_odd_names_and_sizes_arrive_unchanged(tmp_path: Path) -> None:
    odd: list[Sample] = [
        ("plain", {"bin": b""}),
        ("folder/below/x", {"bin": b"\0" * 511, "txt": b"text\r\n"}),
        ("./dotted", {"bin": bytes(range(256)) * 2}),
        ("with blank and 'quotes' \"double\"", {"bin": b"1"}),
        ("new\nline", {"bin": b"2"}),
        ("ünïcödé-日本-🙂", {"bin": b"3"}),
        ("long-" + "x" * 300, {"bin": bytes(1_500_000)}),
        ("many", {f"field{number:03d}": b"%d" % number for number in range(300)} | {"bin": b""}),
        ("two-dots", {"seg.png": b"4", "bin": b"5"}),
    ]
    write_tar(tmp_path / "in.tar", odd)
    for name, options in (("direct", []), ("spooled", ["--on-error", "skip"]), ("gzip", ["--compression", "gzip"])):
        convert(tmp_path / "in.tar", "-o", tmp_path / f"{name}.record", *options)
        compression = "GZIP" if name == "gzip" else ""
        assert parsed_by_tf_data([tmp_path / f"{name}.record"], compression) == odd


def test_names_that_are_not_utf8_arrive_as_the_bytes_they_are(tmp_path: Path) -> None:
    write_members(tmp_path / "in.tar", [("caf\udce9.txt", b"1")])
    convert(tmp_path / "in.tar", "-o", tmp_path / "x.record")
    assert examples(tmp_path / "x.record") == [{"__key__": [b"caf\xe9"], "txt": [b"1"]}]


def test_features_are_written_in_sorted_order(tmp_path: Path) -> None:
    write_members(tmp_path / "in.tar", [("a.zz", b"1"), ("a.b", b"2"), ("b.b", b"3"), ("b.zz", b"4")])
    convert(tmp_path / "in.tar", "-o", tmp_path / "x.record")
    for record in records(tmp_path / "x.record"):
        assert 0 < record.index(b"__key__") < record.index(b"\x01b") < record.index(b"zz")


def test_typed_features_are_numbers(tmp_path: Path) -> None:
    import tensorflow as tf

    typed: list[Sample] = [
        ("a", {"i": b"7", "f": b"0.5", "il": b"1 2 3", "fl": b"[1.5, -2]", "raw": b"x"}),
        ("b", {"i": b" -9223372036854775808\n", "f": b"1e3", "il": b"", "fl": b"3", "raw": b"\xff\x00"}),
    ]
    write_tar(tmp_path / "in.tar", typed)
    types = ["--type", "i=int64,f=float", "--type", "il=int64_list", "--type", "fl=float_list,raw=bytes_list"]
    convert(tmp_path / "in.tar", "-o", tmp_path / "x.record", *types)
    description = {
        "__key__": tf.io.FixedLenFeature([], tf.string),
        "i": tf.io.FixedLenFeature([], tf.int64),
        "f": tf.io.FixedLenFeature([], tf.float32),
        "il": tf.io.VarLenFeature(tf.int64),
        "fl": tf.io.VarLenFeature(tf.float32),
        "raw": tf.io.FixedLenFeature([], tf.string),
    }
    found = []
    for record in tf.data.TFRecordDataset(str(tmp_path / "x.record")):
        parsed = tf.io.parse_single_example(record, description)
        lists = (parsed["il"].values.numpy().tolist(), parsed["fl"].values.numpy().tolist())
        found.append((parsed["i"].numpy(), parsed["f"].numpy(), *lists, parsed["raw"].numpy()))
    assert found == [(7, 0.5, [1, 2, 3], [1.5, -2], b"x"), (-(2**63), 1000, [], [3], b"\xff\x00")]
    features = json.loads((tmp_path / "x-manifest.json").read_bytes())["features"]
    assert {name: feature["dtype"] for name, feature in features.items()} == {
        "__key__": "bytes",
        "raw": "bytes",
        "i": "int64",
        "il": "int64",
        "f": "float32",
        "fl": "float32",
    }


def test_a_feature_of_two_kinds_is_an_error_naming_the_second_shard(tmp_path: Path) -> None:
    for number, text in enumerate((b"7", b"seven")):
        write_tar(tmp_path / "in" / f"a-{number}.tar", [(f"{number}", {"cls": text})])
    function = tmp_path / "kinds.py"
    function.write_text("def number(s):\n    return {**s, 'cls': int(s['cls'])} if s['cls'].isdigit() else s\n")
    done = tar2tf("convert", tmp_path / "in", "-o", tmp_path / "out" / "a.record", "--op", f"func:{function}:number")
    assert done.returncode == 3, done.stderr
    assert "a-1.tar" in done.stderr
    assert "cls" in done.stderr


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *[("int64", text) for text in (b"", b"x", b"1.5", b"1 2", b"9223372036854775808", b"\xff", b"[1", b"{}")],
        *[("float", text) for text in (b"", b"one", b"1 2", b"[[1]]", b"null")],
        *[("int64_list", text) for text in (b"1 x", b"[1.5]", b'["a"]', b"[null]")],
        ("int64_list", b"[" * 5000),
        ("float_list", b"1 2 x"),
    ],
)
def test_text_that_is_not_of_its_type_is_an_error_naming_shard_and_key(kind: str, text: bytes, tmp_path: Path) -> None:
    write_tar(tmp_path / "in.tar", [("good", {"cls": b"1"}), ("bad", {"cls": text}), ("fine", {"cls": b"1"})])
    done = tar2tf("convert", tmp_path / "in.tar", "-o", tmp_path / "out" / "x.record", "--type", f"cls={kind}")
    assert done.returncode == 3
    first = done.stderr.splitlines()[0]
    assert f"{tmp_path}/in.tar" in first
    assert "sample bad" in first
    assert "cls" in first
    assert not list((tmp_path / "out").glob("*.record"))


def test_index_lines_lead_to_the_records(inputs: Callable[[str], Path], tmp_path: Path) -> None:
    convert(inputs("mixed"), "-o", tmp_path / "train-<>.record", "--index", "--max-shard-size", "50kB")
    assert len(list(tmp_path.glob("*.idx"))) == len(shards_in(tmp_path)) > 2
    for shard in shards_in(tmp_path):
        data, position = shard.read_bytes(), 0
        lines = Path(f"{shard}.idx").read_text().splitlines()
        for line, record in zip(lines, records(shard), strict=True):
            offset, size = map(int, line.split())
            assert offset == position
            assert data[offset + 12 : offset + size - 4] == record
            position += size
        assert position == len(data)


def test_the_manifest_says_what_was_written(inputs: Callable[[str], Path], tmp_path: Path) -> None:
    import google_crc32c

    bucket = inputs("mixed")
    convert(bucket, "-o", tmp_path / "train-<>.record", "--max-shard-size", "20kB")
    manifest = json.loads((tmp_path / "train-manifest.json").read_bytes())
    assert [entry["name"] for entry in manifest["inputs"]] == sorted(path.name for path in bucket.iterdir())
    assert [entry["size"] for entry in manifest["inputs"]] == sizes(sorted(bucket.iterdir()))
    shards = shards_in(tmp_path)
    assert [tmp_path / entry["path"] for entry in manifest["shards"]] == shards
    assert [entry["bytes"] for entry in manifest["shards"]] == sizes(shards)
    assert [entry["records"] for entry in manifest["shards"]] == [len(records(shard)) for shard in shards]
    digests = [f"crc32c:{google_crc32c.value(shard.read_bytes()):08x}" for shard in shards]
    assert [entry["digest"] for entry in manifest["shards"]] == digests
    totals = {"inputs": 6, "shards": len(shards), "records": 148, "bytes": sum(sizes(shards))}
    assert manifest["totals"] == totals
    assert {name: feature["count"] for name, feature in manifest["features"].items()} == {
        "__key__": 148,
        "cls": 148,
        "jpg": 148,
    }


# --- Keys ---


def test_the_key_ends_at_the_first_or_the_last_dot(tmp_path: Path) -> None:
    write_members(tmp_path / "in.tar", [("a/x.1.JPG", b"1"), ("a/x.1.cls", b"2")])
    first = convert(tmp_path / "in.tar", "-o", tmp_path / "first.record")
    assert examples(tmp_path / "first.record") == [{"__key__": [b"a/x"], "1.jpg": [b"1"], "1.cls": [b"2"]}]
    assert first.stderr.count("--key-split last") == 1, "a difference between the rules is told once"
    last = convert(tmp_path / "in.tar", "-o", tmp_path / "last.record", "--key-split", "last")
    assert examples(tmp_path / "last.record") == [{"__key__": [b"a/x.1"], "JPG": [b"1"], "cls": [b"2"]}]
    assert "--key-split" not in last.stderr


def test_members_of_one_sample_that_stand_apart_need_regroup(tmp_path: Path) -> None:
    bucket = scattered(tmp_path / "in")
    done = tar2tf("convert", bucket, "-o", tmp_path / "out" / "x.record")
    assert done.returncode == 3
    assert "scattered-0.tar" in done.stderr
    assert "'0000'" in done.stderr
    assert "--regroup" in done.stderr
    convert(bucket, "-o", tmp_path / "out" / "x.record", "--regroup")
    assert contents(tmp_path / "out" / "x.record") == [*samples(20), *samples(20, first=100), *samples(20, first=200)]


def test_what_is_no_sample_is_passed_over_and_counted(tmp_path: Path) -> None:
    members = [
        ("._a.jpg", b"x"),
        ("a.jpg", b"1"),
        ("__meta__", b"{}"),
        ("b.jpg", b"2"),
        ("README", b"r"),
        (".hid", b""),
    ]
    write_members(tmp_path / "in.tar", members)
    done = convert(tmp_path / "in.tar", "-o", tmp_path / "x.record")
    assert keys(tmp_path / "x.record") == ["a", "b"]
    skipped = json.loads((tmp_path / "x-manifest.json").read_bytes())["skipped"]
    assert sum(skipped["members"].values()) == 4
    for reason in skipped["members"]:
        assert reason in done.stderr


# --- Faulty samples ---


def faulty_shards(folder: Path) -> Path:
    """Four shards, of which the first is slow to read; faults in all but the first."""
    write_tar(folder / "0.tar", [(key, entries | {"cls": b"1"}) for key, entries in samples(4000, 2000, first=10_000)])
    for number in range(1, 4):
        chosen = samples(10, first=number * 100)
        for bad in (3, 7)[:number]:
            chosen[bad] = (chosen[bad][0], chosen[bad][1] | {"cls": b"no number"})
        write_tar(folder / f"{number}.tar", chosen)
    return folder


@pytest.fixture(scope="session")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return faulty_shards(tmp_path_factory.mktemp("faulty"))


BAD_KEYS = ["0103", "0203", "0207", "0303", "0307"]


@pytest.mark.parametrize("workers", ["1", "2", "5"])
def test_the_first_error_in_input_order_is_told_for_any_number_of_workers(
    workers: str, faulty: Path, tmp_path: Path
) -> None:
    done = tar2tf("convert", faulty, "-o", tmp_path / "x.record", "--type", "cls=int64", "-j", workers)
    assert done.returncode == 3
    assert "1.tar" in done.stderr.splitlines()[0]
    assert "0103" in done.stderr.splitlines()[0]
    assert not list(tmp_path.glob("*.record"))


def test_skipped_samples_are_listed_in_input_order_for_any_number_of_workers(faulty: Path, tmp_path: Path) -> None:
    trees = []
    for workers in ("1", "5"):
        out, errors = tmp_path / workers, tmp_path / f"{workers}.jsonl"
        policy = ["--on-error", "skip", "--errors", errors, "--max-shard-size", "100kB"]
        done = tar2tf(
            *["convert", faulty, "-o", out / "train-<>.record", "--type", "cls=int64", "-j", workers, *policy]
        )
        assert done.returncode == 1
        assert "5 samples skipped" in done.stderr
        faults = [json.loads(line) for line in errors.read_text().splitlines()]
        assert [fault["key"] for fault in faults] == BAD_KEYS
        for fault in faults:
            assert fault["shard"] == str(faulty / f"{fault['key'][1]}.tar")
            assert "'cls'" in fault["message"]
            assert isinstance(fault["offset"], int)
        trees.append(tree(out))
    assert trees[0] == trees[1]
    manifest = json.loads(trees[0]["train-manifest.json"])
    assert manifest["skipped"]["samples"] == 5
    assert manifest["totals"]["records"] == 4025
    assert not set(BAD_KEYS) & set(keys(*shards_in(tmp_path / "1")))


def test_offsets_of_skipped_samples_lead_to_their_headers(faulty: Path, tmp_path: Path) -> None:
    options = ["--on-error", "skip", "--errors", tmp_path / "e.jsonl", "--type", "cls=int64"]
    tar2tf("convert", faulty, "[123].tar", "-o", tmp_path / "x.record", *options)
    for line in (tmp_path / "e.jsonl").read_text().splitlines():
        fault = json.loads(line)
        data = Path(fault["shard"]).read_bytes()
        assert data[fault["offset"] :].startswith(fault["key"].encode() + b".")


def test_too_many_faulty_samples_end_the_run(faulty: Path, tmp_path: Path) -> None:
    command = ["convert", faulty, "-o", tmp_path / "x.record", "--type", "cls=int64", "--on-error", "skip"]
    done = tar2tf(*command, "--max-errors", "4")
    assert done.returncode == 3
    assert "--max-errors 4" in done.stderr
    assert not list(tmp_path.glob("*.record"))
    assert tar2tf(*command, "--max-errors", "5", "--overwrite").returncode == 1


def test_repeated_and_missing_entries_are_faulty_samples(tmp_path: Path) -> None:
    members = [("a.cls", b"1"), ("a.cls", b"2"), ("b.cls", b"1"), ("c.jpg", b"x"), ("b.jpg", b"again"), ("d.cls", b"4")]
    write_members(tmp_path / "in.tar", members)
    errors = tmp_path / "e.jsonl"
    options = ["--type", "cls=int64", "--on-error", "skip", "--errors", errors]
    done = tar2tf("convert", tmp_path / "in.tar", "-o", tmp_path / "x.record", *options)
    assert done.returncode == 1
    faults = [json.loads(line) for line in errors.read_text().splitlines()]
    assert [fault["key"] for fault in faults] == ["a", "c", "b"] or [fault["key"] for fault in faults] == [
        "a",
        "b",
        "c",
    ]
    assert keys(tmp_path / "x.record") == ["b", "d"]


def test_faults_alike_are_told_in_one_line(tmp_path: Path) -> None:
    write_tar(tmp_path / "in.tar", [(f"{number:04d}", {"cls": b"x%d" % number}) for number in range(1204)])
    options = ["--type", "cls=int64", "--on-error", "skip"]
    done = tar2tf("convert", tmp_path / "in.tar", "-o", tmp_path / "x.record", *options)
    assert done.returncode == 1
    assert "1,204 x " in done.stderr
    assert len(done.stderr.splitlines()) < 6


# --- Bytes that are not a whole tar ---


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("kind", ["small", "large", "gz"])
def test_a_cut_shard_leaves_nothing_under_its_final_name(kind: str, workers: str, tmp_path: Path) -> None:
    bucket = tmp_path / "in"
    write_tar(bucket / "0.tar", samples(20, 12_000 if kind == "large" else 300))
    damaged = write_tar(bucket / ("1.tar.gz" if kind == "gz" else "1.tar"), samples(20, 12_000))
    whole = damaged.read_bytes() if kind == "gz" else damaged.read_bytes().rstrip(b"\0")
    for cut in (len(whole) - 5, len(whole) // 2, 100, 0):
        damaged.write_bytes(whole[:cut])
        done = tar2tf("convert", bucket, "-o", tmp_path / str(cut) / "one.record", "-j", workers)
        assert done.returncode == 3
        assert str(damaged) in done.stderr.splitlines()[0]
        assert not list((tmp_path / str(cut)).glob("[!.]*"))
