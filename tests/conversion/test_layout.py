"""Limits, fill, paths, shuffling and splits of the shards that a conversion writes."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from commands import convert, tar2tf
from shards import Sample, contents, keys, records, samples, samples_of, shards_in, sizes, tree, write_tar

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
    manifest = json.loads((tmp_path / "_train-manifest.json").read_bytes())
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
    assert names("train-<>.record", *four)[1:4] == ["train-1.record", "train-2.record", "train-3.record"]
    assert names("train-{}.record", *four)[1:4] == ["train-1.record", "train-2.record", "train-3.record"]
    assert names("<00008>", *four) == ["00008", "00009", "00010", "00011", "_manifest.json"]
    assert names("train.record", *four)[1:3] == ["train-00000.record", "train-00001.record"]
    assert names("train.record") == ["_train-manifest.json", "train.record"]
    assert names("t-<00>-of-<total>", *four)[1:5] == ["t-00-of-04", "t-01-of-04", "t-02-of-04", "t-03-of-04"]
    assert names("x/<input>.record") == ["x/_manifest.json", "x/small-0.record", "x/small-1.record"]
    assert names("my <input>/<>.rec", *four)[1:4] == ["my small-0/1.rec", "my small-0/2.rec", "my small-1/1.rec"]


def test_each_input_has_its_own_file(inputs: Callable[[str], Path], tmp_path: Path) -> None:
    convert(inputs("mixed"), "-o", tmp_path / "<input>.record", "-j", "5")
    for tar in inputs("mixed").iterdir():
        stem = tar.name.partition(".")[0]
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
    assert "shuffled 246 records across all shards, seed 7" in done.stderr


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
    shards = json.loads((tmp_path / "_manifest.json").read_bytes())["shards"]
    assert {shard["split"] for shard in shards} == {"train", "val"}


def test_a_split_is_stable_as_data_grows(inputs: Callable[[str], Path], tmp_path: Path) -> None:
    def split_of(template: str, out: Path, *options: str) -> dict[str, str]:
        convert(inputs("small"), template, "-o", out / "<split>.record", "--split", "train=0.8,val=0.2", *options)
        return {key: path.stem for path in out.glob("*.record") for key in keys(path)}

    before = split_of("small-{1..2}.tar", tmp_path / "before")
    after = split_of("small-{0..3}.tar", tmp_path / "after", "--shuffle")
    assert len(after) > len(before)
    assert {key: after[key] for key in before} == before
