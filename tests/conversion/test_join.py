"""`--join`: samples get the entries that other datasets have under their keys, whatever these are and in any order."""

from __future__ import annotations

import csv
import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commands import tar2tf
from shards import Sample, samples, samples_of, tree, write_members, write_tar
from tar2tf_cli import open_records
from tar2tf_cli.conversion.publish import Summary
from tar2tf_cli.conversion.run import convert
from tar2tf_cli.errors import DamagedShardError, SampleError, SourceError, UsageError
from tar2tf_cli.spec.conversion import Conversion, Input, Output

KEYS = [f"{shard}/{number:04d}" for shard in "abc" for number in range(40)]


def caption(key: str) -> str:
    return f'a "photo", of {key}\non two lines'


def rows(path: Path, keys: list[str]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["caption", "key", "score"])
        writer.writerows([caption(key), key, len(key)] for key in keys)
    return path


def lines(path: Path, keys: list[str]) -> Path:
    objects = [{"caption": caption(key), "key": key, "score": str(len(key)), "none": None} for key in keys]
    path.write_text("".join(json.dumps(one) + "\n" for one in objects))
    return path


def zipped(table: Path) -> Path:
    path = table.with_name(f"{table.name}.gz")
    path.write_bytes(gzip.compress(table.read_bytes()))
    return path


def as_samples(keys: list[str]) -> list[Sample]:
    return [(key, {"caption": caption(key).encode(), "score": b"%d" % len(key)}) for key in keys]


def tars(path: Path, keys: list[str], suffix: str = "tar") -> Path:
    for number in range(3):
        write_tar(path / f"{number}.{suffix}", as_samples(keys[number::3]))
    return path


def records(path: Path, keys: list[str]) -> Path:
    bucket = tars(path / "tars", keys)
    convert(Conversion(str(bucket), Output(str(path / "out/c-<>.record"), records_per_shard=50)), workers=1)
    return path / "out"


KINDS: dict[str, Callable[[Path, list[str]], Path]] = {
    "csv": lambda path, keys: rows(path / "captions.csv", keys),
    "jsonl": lambda path, keys: lines(path / "captions.jsonl", keys),
    "csv.gz": lambda path, keys: zipped(rows(path / "captions.csv", keys)),
    "jsonl.gz": lambda path, keys: zipped(lines(path / "captions.jsonl", keys)),
    "tar": lambda path, keys: tars(path / "captions", keys),
    "tar.gz": lambda path, keys: tars(path / "captions", keys, "tar.gz"),
    "tfrecord": lambda path, keys: records(path / "captions", keys) / "*.record",
    "manifest": lambda path, keys: records(path / "captions", keys) / "_c-manifest.json",
}


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    for number, shard in enumerate("abc"):
        of_shard = [(f"{shard}/{key}", entries) for key, entries in samples(40, 2_000)]
        write_tar(tmp_path / f"in/{shard}.tar{'.gz' if number == 1 else ''}", of_shard)
    return tmp_path / "in"


def run(bucket: Path, out: Path, *join: Path, workers: int = 1, **options: Any) -> Summary:
    about = {name: options.pop(name) for name in ("join_key", "join_missing") if name in options}
    output = Output(str(out / options.pop("path", "all-<>.record")), max_shard_size=60_000)
    return convert(Conversion(Input(str(bucket), join=[*map(str, join)], **about), output, **options), workers=workers)


def expected(bucket: Path, keys: list[str]) -> list[dict[str, bytes]]:
    """What a dict of the captions makes of the samples."""
    captions = dict(as_samples(keys))
    every = samples_of(*sorted(bucket.iterdir()))
    return [{"__key__": key.encode(), **entries, **captions[key]} for key, entries in every if key in captions]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", ["same", "any"])
def test_entries_of_the_same_key_are_added_whatever_has_them(
    kind: str, order: str, bucket: Path, tmp_path: Path
) -> None:
    keys = [*KEYS, "more/1", "more/2"]
    if order == "any":
        random.Random(7).shuffle(keys)
    joined = KINDS[kind](tmp_path, keys)
    one = run(bucket, tmp_path / "1", joined)
    assert [*open_records(one.manifest or "")] == expected(bucket, keys)
    run(bucket, tmp_path / "2", joined, workers=2)
    assert tree(tmp_path / "1") == tree(tmp_path / "2")
    assert tar2tf("verify", one.manifest or "", "--against", bucket).returncode == 0


def test_several_datasets_are_joined_before_ops_and_to_tars(bucket: Path, tmp_path: Path) -> None:
    write_tar(tmp_path / "more/m.tar", [(key, {"txt": key.encode()}) for key in reversed(KEYS)])
    table = rows(tmp_path / "captions.csv", KEYS)
    made = run(bucket, tmp_path / "out", table, tmp_path / "more", ops=["rename:text=txt"], path="new-<>.tar")
    found = samples_of(*sorted((tmp_path / "out").glob("*.tar"), key=lambda path: int(path.stem[4:])))
    assert [key for key, _ in found] == KEYS
    assert all(entries["text"] == key.encode() for key, entries in found)
    assert all(entries["caption"] == caption(key).encode() for key, entries in found)
    assert tar2tf("verify", made.manifest or "", "--against", bucket).returncode == 0


def test_a_sample_without_a_partner_is_faulty_skipped_or_kept(bucket: Path, tmp_path: Path) -> None:
    some = KEYS[:100]
    table = rows(tmp_path / "captions.csv", some)
    with pytest.raises(SampleError, match=r"has no match in .*captions.csv") as raised:
        run(bucket, tmp_path / "error", table)
    assert (raised.value.key, raised.value.shard) == (KEYS[100], str(bucket / "c.tar"))
    made = run(bucket, tmp_path / "skip", table, join_missing="skip", workers=2)
    assert [*open_records(made.manifest or "")] == expected(bucket, some)
    assert made.filtered == {"--join": 20}
    kept = [*open_records(run(bucket, tmp_path / "keep", table, join_missing="keep").manifest or "")]
    assert [record["__key__"].decode() for record in kept] == KEYS
    assert ["caption" in record and bool(len(record["caption"])) for record in kept] == [True] * 100 + [False] * 20
    done = tar2tf("convert", bucket, "-o", tmp_path / "faulty.record", "--join", table, "--on-error", "skip")
    assert done.returncode == 1
    assert "20 samples skipped" in done.stderr


def test_entries_that_both_have_are_an_error_that_names_them(bucket: Path, tmp_path: Path) -> None:
    write_tar(tmp_path / "more/m.tar", [(key, {"cls": b"1", "jpg": b"2", "txt": b"3"}) for key in KEYS])
    done = tar2tf("convert", bucket, "-o", tmp_path / "out.record", "--join", tmp_path / "more", "--on-error", "skip")
    assert done.returncode == 2
    assert f"a.tar, sample a/0000: has the entries cls, jpg, and so has {tmp_path / 'more'}" in done.stderr


def test_a_key_that_is_there_twice_is_an_error_that_says_where(bucket: Path, tmp_path: Path) -> None:
    write_tar(tmp_path / "more/1.tar", as_samples(KEYS))
    write_tar(tmp_path / "more/2.tar", as_samples([KEYS[7]]))
    with pytest.raises(UsageError, match=f"the key '{KEYS[7]}' is in .*1.tar and in .*2.tar"):
        run(bucket, tmp_path / "out", tmp_path / "more")
    with pytest.raises(UsageError, match=f"the key '{KEYS[3]}' is in .*captions.csv twice"):
        run(bucket, tmp_path / "out", rows(tmp_path / "captions.csv", [*KEYS, KEYS[3]]))


def test_the_column_with_the_keys_is_named_or_guessed(bucket: Path, tmp_path: Path) -> None:
    table = tmp_path / "captions.tsv"
    table.write_text("image\ttext\n" + "".join(f"{key}\tt{key}\n" for key in KEYS))
    with pytest.raises(UsageError, match=r"no column is called __key__ or key.*join_key; columns: image, text"):
        run(bucket, tmp_path / "out", table)
    with pytest.raises(UsageError, match="there is no column 'imag'; did you mean 'image'"):
        run(bucket, tmp_path / "out", table, join_key="imag")
    made = run(bucket, tmp_path / "out", table, join_key="image")
    assert [record["text"] for record in open_records(made.manifest or "")] == [f"t{key}".encode() for key in KEYS]


def test_what_cannot_be_joined_is_refused(bucket: Path, tmp_path: Path) -> None:
    for options in ({"join_key": "key"}, {"join_missing": "skip"}):
        with pytest.raises(UsageError, match="--join-many and --join-missing need --join"):
            Input("in", **options)  # type: ignore[arg-type]
    with pytest.raises(SourceError, match="no such"):
        run(bucket, tmp_path / "out", tmp_path / "nowhere")
    for name, text, message in (
        ("empty.csv", "", "has no rows"),
        ("header.csv", "key,caption\n", "has no rows"),
        ("ragged.csv", "key,caption\na/0000\n", "row 1: the row has 1 cells"),
        ("list.json", '[{"key": "a/0000"}]', "row 1: the row is not a JSON object"),
        ("without.jsonl", '{"key": "a/0000", "x": 1}\n{"x": 2}\n', "row 2: has no key in 'key'"),
        ("photos.zip", "PK\x03\x04" + "\0" * 600, "photos.zip: cannot be joined: it is a zip"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(SourceError) as raised:
            run(bucket, tmp_path / "out", tmp_path / name)
        assert name in str(raised.value)
        assert message in str(raised.value)
    scattered = [("a/0000.x", b"1"), ("a/0001.x", b"1"), ("a/0000.y", b"1")]
    write_members(tmp_path / "scattered.tar", scattered)
    with pytest.raises(UsageError, match="not adjacent"):
        run(bucket, tmp_path / "out", tmp_path / "scattered.tar")
    cut = write_tar(tmp_path / "cut.tar", as_samples(KEYS))
    cut.write_bytes(cut.read_bytes()[:30_000])
    with pytest.raises(DamagedShardError, match="cut"):
        run(bucket, tmp_path / "out", cut)


def test_joined_inputs_are_in_the_manifest_and_a_change_of_them_is_one_of_the_conversion(
    bucket: Path, tmp_path: Path
) -> None:
    table = rows(tmp_path / "captions.csv", KEYS)
    command = ["convert", bucket, "-o", tmp_path / "out/a-<>.record", "--join", table, "--max-shard-size", "60kB"]
    assert tar2tf(*command).returncode == 0
    spec = json.loads((tmp_path / "out/_a-manifest.json").read_text())["spec"]["input"]
    assert spec["join"] == [str(table)]
    (listed,) = spec["joined"]
    assert [(item["name"], item["size"]) for item in listed] == [("captions.csv", table.stat().st_size)]
    assert "up to date" in tar2tf(*command).stderr
    table.write_text(table.read_text().replace("photo", "drawing"))
    refused = tar2tf(*command)
    assert refused.returncode == 2
    assert f"was made from other inputs of --join: 1 changed (captions.csv of {table})" in refused.stderr
    assert "pass --update or --overwrite" in refused.stderr
    done = tar2tf(*command, "--update")
    assert done.returncode == 0, done.stderr
    assert all(b"drawing" in record["caption"] for record in open_records(tmp_path / "out/_a-manifest.json"))
    write_tar(bucket / "d.tar", [("a/9999", {"jpg": b"1"})])
    table.write_text(table.read_text() + '"a drawing",a/9999,3\n')
    assert tar2tf(*command, "--update").returncode == 0
    assert tar2tf(*command[:3], tmp_path / "new/a-<>.record", *command[4:]).returncode == 0
    assert tree(tmp_path / "out") == tree(tmp_path / "new")


def test_a_joined_input_that_changes_while_it_is_used_is_an_error(bucket: Path, tmp_path: Path) -> None:
    joined = tars(tmp_path / "more", KEYS)
    (tmp_path / "touch.py").write_text(
        "import os\n\ndef touch(sample):\n    os.utime(os.environ['TOUCHED'], (1, 1))\n    return sample\n"
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TOUCHED", str(joined / "1.tar"))
        with pytest.raises(SourceError, match="changed") as raised:
            run(bucket, tmp_path / "out", joined, ops=[f"func:{tmp_path}/touch.py:touch"])
    assert raised.value.shard == str(joined / "1.tar")
    assert not (tmp_path / "out/_all-manifest.json").exists()


def test_verify_against_finds_a_wrong_caption(bucket: Path, tmp_path: Path) -> None:
    table = rows(tmp_path / "captions.csv", KEYS)
    made = run(bucket, tmp_path / "out", table)
    text = table.read_text()
    table.write_text(text.replace(f"of {KEYS[5]}", f"of {KEYS[5]}!"))
    report = json.loads(tar2tf("verify", made.manifest or "", "--against", bucket, "--json").stdout)
    faults = [fault for file in report["files"] for fault in file["faults"]]
    assert [fault["kind"] for fault in faults] == ["changed"]
    assert f"the record of the sample {KEYS[5]!r} differs in 'caption'" in faults[0]["message"]


@pytest.mark.xdist_group("s3")
def test_buckets_are_joined_by_ranges(bucket: Path, s3: str, tmp_path: Path) -> None:
    import boto3

    client = boto3.client("s3")
    client.create_bucket(Bucket="joined")
    keys = random.Random(3).sample(KEYS, len(KEYS))
    for path in tars(tmp_path / "captions", keys).iterdir():
        client.upload_file(str(path), "joined", path.name)
    done = tar2tf("convert", bucket, "-o", tmp_path / "out/a.record", "--join", "s3://joined")
    assert done.returncode == 0, done.stderr
    assert [*open_records(tmp_path / "out/_a-manifest.json")] == expected(bucket, keys)
