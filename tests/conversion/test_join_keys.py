"""Keys of the user's choice: `--key` names samples anew, `--join-on` and `--join-many` match rows by another key."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from commands import tar2tf
from shards import samples_of, tree, write_tar
from tar2tf_cli import open_records
from tar2tf_cli.conversion.publish import Summary
from tar2tf_cli.conversion.run import convert
from tar2tf_cli.errors import SampleError, SourceError, UsageError
from tar2tf_cli.spec.conversion import Conversion, Input, Output
from tar2tf_cli.spec.sample_keys import KeyTemplate

EACH = 30


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    """Two shards with equal keys, and a number of its own in the JSON entry of each sample."""
    for shard, first in (("a", 0), ("b", EACH)):
        contents = [
            (f"img_{number}_small", {"json": b'{"id": %d, "none": null}' % (first + number), "txt": b"%d\n" % number})
            for number in range(EACH)
        ]
        write_tar(tmp_path / f"in/{shard}.tar", contents)
    return tmp_path / "in"


def captions(path: Path, each: Sequence[int]) -> Path:
    """A table with several rows for a number, not next to each other."""
    rows = [
        {"image_id": number, "caption": f"{number} in words, {row}", "score": row}
        for row in range(max(each))
        for number, rows in enumerate(each)
        if row < rows
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def run(bucket: Path, out: Path, path: str = "x-<>.record", workers: int = 1, **options: Any) -> Summary:
    names = ("key", "keys", "join", "join_key", "join_on", "join_many", "join_missing", "template")
    about = {name: options.pop(name) for name in names if name in options}
    output = Output(str(out / path), records_per_shard=25)
    return convert(Conversion(Input(str(bucket), **about), output, **options), workers=workers)


def keys(made: Summary) -> list[str]:
    return [record["__key__"].decode() for record in open_records(made.manifest or "")]


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("<input>/<key>", [f"{shard}/img_{number}_small" for shard in "ab" for number in range(EACH)]),
        ("{json:id}", [str(number) for number in range(2 * EACH)]),
        ("<input>-<n:09>", [f"{shard}-{number:09d}" for shard in "ab" for number in range(EACH)]),
        ("<input>/<key:img_*_small>", [f"{shard}/{number}" for shard in "ab" for number in range(EACH)]),
        ("<input>/{txt}.x", [f"{shard}/{number}.x" for shard in "ab" for number in range(EACH)]),
    ],
)
def test_a_template_names_the_samples_whatever_the_workers(
    template: str, expected: list[str], bucket: Path, tmp_path: Path
) -> None:
    made = run(bucket, tmp_path / "1", key=template)
    assert keys(made) == expected
    run(bucket, tmp_path / "2", key=template, workers=2)
    assert tree(tmp_path / "1") == tree(tmp_path / "2")
    assert tar2tf("verify", made.manifest or "", "--against", bucket).returncode == 0


def test_tars_and_copied_records_get_new_keys_too(bucket: Path, tmp_path: Path) -> None:
    made = run(bucket, tmp_path / "records")
    again = run(Path(made.manifest or ""), tmp_path / "again", key="{json:id}")
    assert keys(again) == [str(number) for number in range(2 * EACH)]
    done = tar2tf("convert", bucket, "-o", tmp_path / "all.tar", "--key", "<input>/<key>")
    assert done.returncode == 0, done.stderr
    assert [key for key, _ in samples_of(tmp_path / "all.tar")] == [
        f"{shard}/img_{number}_small" for shard in "ab" for number in range(EACH)
    ]


def test_lists_of_keys_and_splits_see_the_new_keys(bucket: Path, tmp_path: Path) -> None:
    (tmp_path / "keys.txt").write_text("7\n43\n")
    assert keys(run(bucket, tmp_path / "out", key="{json:id}", keys=str(tmp_path / "keys.txt"))) == ["7", "43"]


def test_a_sample_without_the_value_of_its_key_is_faulty(bucket: Path, tmp_path: Path) -> None:
    with pytest.raises(SampleError, match=r"--key: json:none is nothing, not a text") as raised:
        run(bucket, tmp_path / "out", key="{json:none}")
    assert raised.value.key == "img_0_small"
    with pytest.raises(SampleError, match=r"the key 'img_0_small' is not of the form IMG_\*"):
        run(bucket, tmp_path / "out", key="<key:IMG_*>")
    done = tar2tf("convert", bucket, "-o", tmp_path / "x.record", "--key", "{jsn:id}")
    assert done.returncode == 2
    assert "--key names the entry 'jsn', which no sample of this input has; did you mean 'json'?" in done.stderr


@pytest.mark.parametrize("template", ["same", "<input>", "<n", "{json:*}", "<total>", "<n:x>", "<key:ab>", ""])
def test_a_template_that_names_no_sample_is_refused(template: str) -> None:
    with pytest.raises(UsageError):
        Input("in", key=template)


def test_numbers_that_begin_again_with_each_input_are_refused(bucket: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="counts the samples of each input, and there are 2"):
        run(bucket, tmp_path / "out", key="<n:09>")
    assert keys(run(bucket / "a.tar", tmp_path / "out", key="<n:03>"))[-1] == f"{EACH - 1:03d}"
    assert KeyTemplate("<n>").key({"__key__": "a"}, "x", 12) == "12"


def test_rows_are_joined_by_a_value_in_the_sample(bucket: Path, tmp_path: Path) -> None:
    table = captions(tmp_path / "captions.jsonl", [1] * 2 * EACH)
    made = run(bucket, tmp_path / "1", join=[str(table)], join_on="image_id=json:id")
    found = [record["caption"].decode() for record in open_records(made.manifest or "")]
    assert found == [f"{number} in words, 0" for number in range(2 * EACH)]
    run(bucket, tmp_path / "2", join=[str(table)], join_on="image_id=json:id", workers=2)
    assert tree(tmp_path / "1") == tree(tmp_path / "2")
    assert tar2tf("verify", made.manifest or "", "--against", bucket).returncode == 0
    named = run(bucket, tmp_path / "3", join=[str(table)], join_on="json:id", join_key="image_id")
    assert [record["caption"].decode() for record in open_records(named.manifest or "")] == found


@pytest.mark.parametrize("kind", ["tar", "tfrecord"])
@pytest.mark.parametrize("entry", ["meta:number", "number"])
def test_samples_of_shards_are_found_by_a_value_in_them(kind: str, entry: str, bucket: Path, tmp_path: Path) -> None:
    contents = [
        (f"other-{number}", {"meta": b'{"number": %d}' % number, "number": b"%d" % number, "text": b"no. %d" % number})
        for number in reversed(range(2 * EACH))
    ]
    other = write_tar(tmp_path / "other.tar", contents)
    if kind == "tfrecord":
        convert(Conversion(str(other), str(tmp_path / "other.record")), workers=1)
        other = tmp_path / "other.record"
    made = run(bucket, tmp_path / "out", join=[str(other)], join_on=f"{entry}=json:id")
    found = [*open_records(made.manifest or "")]
    assert [record["text"] for record in found] == [b"no. %d" % number for number in range(2 * EACH)]
    assert ("number" in found[0]) == (entry != "number")


def test_a_value_that_a_joined_sample_lacks_is_an_error_that_names_it(bucket: Path, tmp_path: Path) -> None:
    other = write_tar(tmp_path / "other.tar", [("one", {"meta": b"{}"})])
    with pytest.raises(SourceError, match="has nothing at 'number'") as raised:
        run(bucket, tmp_path / "out", join=[str(other)], join_on="meta:number=json:id")
    assert (raised.value.shard, raised.value.key) == (str(other), "one")


EACH_ROWS = [number % 3 for number in range(2 * EACH)]


def test_several_rows_become_lists_also_where_there_is_one(bucket: Path, tmp_path: Path) -> None:
    table = captions(tmp_path / "captions.jsonl", EACH_ROWS)
    about = {"join": [str(table)], "join_on": "image_id=json:id", "join_many": "list", "join_missing": "skip"}
    made = run(bucket, tmp_path / "1", **about)
    rows = [(number, count) for number, count in enumerate(EACH_ROWS) if count]
    assert made.joined == [{"bucket": str(table), "matched": len(rows), "unmatched": EACH - 10, "unused": 0}]
    every = [*open_records(made.manifest or "")]
    assert [[*record["caption"]] for record in every] == [
        [f"{number} in words, {row}".encode() for row in range(count)] for number, count in rows
    ]
    assert [record["score"].tolist() for record in every] == [[*range(count)] for _, count in rows]
    run(bucket, tmp_path / "2", **about, workers=2)
    assert tree(tmp_path / "1") == tree(tmp_path / "2")
    assert tar2tf("verify", made.manifest or "", "--against", bucket).returncode == 0


def test_a_sample_is_repeated_for_each_of_its_rows(bucket: Path, tmp_path: Path) -> None:
    table = captions(tmp_path / "captions.jsonl", EACH_ROWS)
    about = {"join": [str(table)], "join_on": "image_id=json:id", "join_many": "repeat", "join_missing": "keep"}
    made = run(bucket, tmp_path / "1", **about)
    ids = [json.loads(record["json"])["id"] for record in open_records(made.manifest or "")]
    assert ids == [number for number, count in enumerate(EACH_ROWS) for _ in range(max(count, 1))]
    assert (made.joined[0]["matched"], made.joined[0]["unused"]) == (40, 0)
    run(bucket, tmp_path / "2", **about, workers=2)
    assert tree(tmp_path / "1") == tree(tmp_path / "2")
    assert tar2tf("verify", made.manifest or "", "--against", bucket).returncode == 0
    with pytest.raises(UsageError, match="several samples of one key, which tars cannot hold"):
        run(bucket, tmp_path / "tar", "x-<>.tar", **about)


def test_rows_of_which_only_some_have_a_column_make_no_lists(bucket: Path, tmp_path: Path) -> None:
    table = tmp_path / "t.jsonl"
    table.write_text('{"key": 0, "a": 1, "b": 2}\n{"key": 0, "a": 3}\n')
    with pytest.raises(SampleError, match="only some of the 2 rows that match have 'b'"):
        run(bucket, tmp_path / "out", join=[str(table)], join_on="json:id", join_many="list")


@pytest.mark.parametrize(
    "options",
    [
        {"join_on": "json:id"},
        {"join_many": "list"},
        {"join": "x", "join_on": "id=json:id", "join_key": "id"},
        {"join": "x", "join_on": "=json:id"},
        {"join": "x", "join_on": "id=*.jpg"},
        {"join": "x", "join_many": "all"},
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        Input("in", **options)  # type: ignore[arg-type]
