"""`tar2tf verify --salvage`: every good record of every input is in the new file, and nothing else."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import tensorflow as tf

from servers import FaultyServer
from tar2tf_cli import verify
from tar2tf_cli.errors import OutputExistsError, Tar2tfError, UsageError
from verify_runs import SEVERAL, Ran, a_tar, an_example, flipped, framed, some_examples, write

COPY, CREATE = "copy it to the bucket afterwards", "create the folder first"


def damaged(folder: Path) -> list[bytes]:
    """Three files with damage; returns their good records in order."""
    first, second, third = some_examples(20), some_examples(20, 100), some_examples(20, 200)
    parts = [framed(record) for record in first]
    parts[3], parts[9] = flipped(parts[3], 30), flipped(parts[9], 1)
    write(folder / "a.record", b"".join(parts) + b"garbage")
    write(folder / "b.record", framed(*second[:5], b"not an example", *second[5:])[:-3])
    write(folder / "c.record", gzip.compress(framed(*third)))
    return [*first[:3], *first[4:9], *first[10:], *second[:-1], *third]


@pytest.mark.parametrize("workers", [(), SEVERAL])
def test_every_good_record_is_saved_in_order(tmp_path: Path, run: Callable[..., Ran], workers: tuple[str, ...]) -> None:
    good = damaged(tmp_path / "in")
    ran = run(tmp_path / "in", "--salvage", tmp_path / "good.record", "--json", *workers)
    assert [record.numpy() for record in tf.data.TFRecordDataset(str(tmp_path / "good.record"))] == good
    saved = ran.json["salvaged"]
    assert (ran.code, saved["records"], saved["lost"]["records"]) == (1, len(good), 5)
    assert saved["bytes"] == (tmp_path / "good.record").stat().st_size
    lost = sum(fault.get("lost") or 0 for file in ran.json["files"] for fault in file["faults"])
    assert saved["lost"]["bytes"] == lost
    assert sorted(path.name for path in tmp_path.iterdir()) == ["good.record", "in"]
    assert run(tmp_path / "good.record").code == 0


def test_what_cannot_be_decoded_is_not_saved_with_decode(tmp_path: Path, run: Callable[..., Ran]) -> None:
    good = [an_example(text=b"%d" % number) for number in range(3)]
    undecodable = an_example(jpg=b"\xff\xd8\xff\xe0 and nothing more")
    write(tmp_path / "a.record", framed(*good[:1], undecodable, *good[1:]))
    assert run(tmp_path / "a.record", "--salvage", tmp_path / "all").code == 0
    assert run(tmp_path / "a.record", "--decode", "--salvage", tmp_path / "good").code == 1
    assert (tmp_path / "all").read_bytes() == (tmp_path / "a.record").read_bytes()
    assert (tmp_path / "good").read_bytes() == framed(*good)


def test_the_summary_says_what_was_lost(tmp_path: Path, run: Callable[..., Ran]) -> None:
    good = damaged(tmp_path / "in")
    ran = run(tmp_path / "in", "--salvage", tmp_path / "x")
    assert f"salvaged {len(good)} records" in ran.err
    assert "lost 5 records" in ran.err


def test_an_existing_file_is_not_replaced(tmp_path: Path, run: Callable[..., Ran]) -> None:
    damaged(tmp_path / "in")
    taken = write(tmp_path / "x", b"precious")
    ran = run(tmp_path / "in", "--salvage", taken)
    assert (ran.code, "already exists" in ran.err, taken.read_bytes()) == (2, True, b"precious")
    for path in ("s3://bucket/x", tmp_path / "no" / "x"):
        assert run(tmp_path / "in", "--salvage", path).code == 2
    assert run(tmp_path / "in", "--salvage", tmp_path / "y", "--fast").code == 2
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("s3://bucket/x", UsageError("--salvage writes a local file", shard="s3://bucket/x", hint=COPY)),
        ("no/x", UsageError("is not a file in an existing folder", shard="no/x", hint=CREATE)),
        ("in/a.record/x", UsageError("is not a file in an existing folder", shard="in/a.record/x", hint=CREATE)),
        ("no/", UsageError("is not a file in an existing folder", shard="no/", hint=CREATE)),
        ("in", OutputExistsError("already exists; --salvage writes a new file", shard="in", hint="name another file")),
    ],
    ids=str,
)
def test_good_records_are_saved_in_a_new_file_of_an_existing_folder(
    path: str, error: Tar2tfError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged(tmp_path / "in")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(type(error)) as caught:
        verify("in", salvage=path, workers=1)
    assert (str(caught.value), caught.value.hint) == (str(error), error.hint)
    assert sorted(one.name for one in tmp_path.rglob("*")) == ["a.record", "b.record", "c.record", "in"]


def test_records_before_damage_of_a_compressed_file_are_saved_and_the_rest_is_said_to_be_lost(
    tmp_path: Path, run: Callable[..., Ran]
) -> None:
    records = [random.Random(number).randbytes(900) for number in range(200)]
    data = framed(*[an_example(jpg=record) for record in records])
    cut, damaged = gzip.compress(data)[:-9000], bytearray(gzip.compress(data))
    damaged[len(damaged) // 2] ^= 255
    folder = tmp_path / "in"
    write(folder / "first.record.gz", gzip.compress(framed(*some_examples(9)))[:100])
    write(folder / "cut.record.gz", cut)
    write(folder / "damaged.tfrecord-00000-of-00001.gz", bytes(damaged))
    write(folder / "nothing.record.gz", b"\x1f\x8b\x08\0damaged")
    write(folder / "notes.record.txt", b"nothing")
    ran = run(folder, "--salvage", tmp_path / "x", "--json")
    saved = ran.json["salvaged"]
    assert [(Path(file["path"]).name[0], file["status"]) for file in ran.json["files"]] == [
        (name, "damaged") for name in "cdfn"
    ]
    assert saved["lost"] == {"records": 1, "bytes": len(framed(an_example(jpg=records[0]))), "cut": 4, "tars": 0}
    assert saved["records"] > 180 + 50
    found = [record.numpy() for record in tf.data.TFRecordDataset(str(tmp_path / "x"))]
    assert len(found) == saved["records"] == sum(file["records"] for file in ran.json["files"]) - 1
    assert "and the rest of 4 files that cannot be read" in run(folder, "--salvage", tmp_path / "y").err


def test_tars_have_no_records_and_this_is_said(tmp_path: Path, run: Callable[..., Ran]) -> None:
    write(tmp_path / "in" / "x.tar", a_tar([("a.txt", b"a"), ("b.txt", b"b")])[:1500])
    ran = run(tmp_path / "in", "--salvage", tmp_path / "x")
    assert (ran.code, (tmp_path / "x").exists()) == (2, False), ran.err
    assert "truncated" in ran.out
    assert "--salvage works on TFRecords, but the inputs are tars" in ran.err
    write(tmp_path / "in" / "y.record", framed(*some_examples(3)))
    ran = run(tmp_path / "in", "--salvage", tmp_path / "x")
    assert (ran.code, (tmp_path / "x").read_bytes()) == (1, framed(*some_examples(3)))
    assert "1 tar not salvaged: to recover intact samples" in ran.err


def test_what_is_remote_is_salvaged_too(tmp_path: Path, run: Callable[..., Ran], web: FaultyServer) -> None:
    web.objects["x.record"] = flipped(framed(*some_examples(5)), 30)
    web.objects["y.record.gz"] = gzip.compress(framed(*some_examples(5)))
    for name, number in (("x.record", 4), ("y.record.gz", 5)):
        ran = run(f"{web.url}/{name}", "--salvage", tmp_path / name, "--json")
        assert ran.json["salvaged"]["records"] == number
        assert len(list(tf.data.TFRecordDataset(str(tmp_path / name)))) == number
