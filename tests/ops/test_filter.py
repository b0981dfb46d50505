"""filter keeps the samples for which its condition holds: every form of it, and what it refuses."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

from commands import tar2tf
from shards import PHOTOS, records, samples_of, write_tar
from tar2tf_cli import open_records
from tar2tf_cli.errors import SampleError, UsageError
from tar2tf_cli.ops import Filter, Op, OpContext, parse_op
from tar2tf_cli.ops.base import apply_ops

SAMPLE: dict[str, Any] = {
    "__key__": "a/7",
    "jpg": b"\xff\xd8",
    "cls": b" 3\n",
    "txt": b"a cat, asleep",
    "json": json.dumps(
        {"score": 0.5, "id": 2**60 + 1, "ok": True, "none": None, "tags": ["x", "y"], "a.b": {"c>d": "7"}}
    ).encode(),
    "empty": b"",
    "vector": np.arange(3),
    "number": np.array([2.5], "f4"),
}


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("jpg", True),
        ("png", False),
        ("!png", True),
        ("!jpg", False),
        ("json:score", True),
        ("json:scores", False),
        ("!json:scores", True),
        ("!json:tags.1", False),
        ("json:tags.2", False),
        ("cls=3", True),
        ("cls == 3", True),
        ("cls=2,3", True),
        ("cls=2,4", False),
        ("cls=03", False),
        ("cls!=3", False),
        ("cls!=4,5", True),
        ("cls>=3", True),
        ("cls>3", False),
        ("cls<1e3", True),
        ("cls<=-3", False),
        ("png=3", False),
        ("png!=3", False),
        ("png<3", False),
        ('txt="a cat, asleep"', True),
        ('txt=dog,"a cat, asleep"', True),
        ("txt=a cat", False),
        ('empty=""', True),
        ("__key__=a/6,a/7", True),
        ("json:score>=0.5", True),
        ("json:score = 0.50", True),
        ("json:score!=0.5", False),
        ("json:id=1152921504606846977", True),
        ("json:id=1152921504606846976", False),
        ("json:id>1152921504606846976", True),
        ("json:ok=true", True),
        ("json:none=null", True),
        ("json:tags.0=x", True),
        ('json:["a.b","c>d"]=7', True),
        ('json:["a.b","c>d"]>6', True),
        ("number=2.5", True),
        ("number<2.5", False),
    ],
)
def test_a_condition_holds_or_not(condition: str, holds: bool) -> None:
    op = Filter(condition)
    for same in (op, pickle.loads(cloudpickle.dumps(op))):  # as on another machine
        found = [*apply_ops(dict(SAMPLE), [same], OpContext())]
        assert found == ([SAMPLE] if holds else [])


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("txt<3", "'txt' is not a number: 'a cat, asleep'"),
        ("json:ok>0", "'json:ok' is not a number: 'true'"),
        ("cls:score=1", "nothing at 'score'"),
        ("txt:score=1", "entry 'txt' is not JSON"),
        ("vector=1", "'vector' is not a single value"),
        ("json:tags=x", "'json:tags' is not a single value"),
    ],
)
def test_what_cannot_be_compared_makes_a_faulty_sample(condition: str, message: str) -> None:
    if condition.startswith("cls:"):  # which is JSON, and has no paths
        assert not [*apply_ops(dict(SAMPLE), [Filter(condition)], OpContext())]
        return
    with pytest.raises(SampleError, match=message):
        [*apply_ops(dict(SAMPLE), [Filter(condition)], OpContext())]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("filter", "condition must be text"),
        ("filter:=3", "cannot read the condition '=3'"),
        ("filter:cls=", "needs values between commas"),
        ("filter:cls=3,,4", "needs values between commas"),
        ("filter:cls=3,", "needs values between commas"),
        ('filter:txt="a', "not text in double quotes"),
        ("filter:cls<a", "compares 'cls' with one number"),
        ("filter:cls<1,2", "compares 'cls' with one number"),
        ("filter:!cls=3", "takes either !cls or cls!=3"),
        ("filter:json:[1=3", "cannot read the condition"),
        ("filter:json:boxes.*=3", "cannot read the condition"),
    ],
)
def test_a_condition_that_is_none_is_wrong_usage(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        parse_op(text)
    assert "write filter:ENTRY" in str(raised.value)


def test_flag_spec_file_and_class_mean_the_same() -> None:
    for op in Filter.examples:
        condition = op.partition(":")[2]
        parsed: Op = parse_op(op)
        assert parsed == parse_op({"filter": condition}) == Filter(condition)
        assert parse_op(parsed.canonical()) == parsed
        assert hash(parsed) == hash(Filter(condition))


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three shards of 40 samples with a score in JSON, of which every fifth has none, and every fourth a text."""
    folder = tmp_path_factory.mktemp("scored")
    for shard in range(3):
        contents = []
        for number in range(40 * shard, 40 * shard + 40):
            about = {"score": number / 120} if number % 5 else {}
            entries = {"cls": b"%d" % (number % 7), "json": json.dumps(about).encode()}
            contents.append((f"{number:04d}", {**entries, **({"txt": b"t"} if number % 4 == 0 else {})}))
        write_tar(folder / f"{shard}.tar", contents)
    return folder


def test_filters_of_a_conversion_are_counted_in_summary_and_manifest(scored: Path, tmp_path: Path) -> None:
    every = samples_of(*sorted(scored.glob("*.tar")))
    by_class = [(key, entries) for key, entries in every if entries["cls"] in (b"3", b"5")]
    by_score = [key for key, entries in by_class if json.loads(entries["json"]).get("score", 0) >= 0.5]
    assert by_score
    spec = tmp_path / "spec.yaml"
    spec.write_text("ops: ['filter:cls=3,5', {filter: 'json:score>=0.5'}]\n")
    made = {}
    for workers in (1, 2):
        out = tmp_path / str(workers)
        flags = ["--op", "filter:cls=3,5", "--op", "filter:json:score>=0.5"] if workers == 1 else ["--spec", spec]
        done = tar2tf("convert", scored, "-o", out / "all.record", "-j", workers, *flags)
        assert done.returncode == 0, done.stderr
        assert f"{len(every) - len(by_class)} samples skipped: filter:cls=3,5" in done.stderr
        assert f"{len(by_class) - len(by_score)} samples skipped: filter:json:score>=0.5" in done.stderr
        made[workers] = (out / "all.record").read_bytes(), (out / "_all-manifest.json").read_bytes()
        assert [one["__key__"].decode() for one in open_records(out / "_all-manifest.json")] == by_score
    assert made[1] == made[2]
    manifest = json.loads(made[1][1])
    assert manifest["spec"]["ops"] == [{"filter": "cls=3,5"}, {"filter": "json:score>=0.5"}]
    assert manifest["skipped"] == {
        "samples": 0,
        "members": {},
        "asked": {
            "filter:cls=3,5": len(every) - len(by_class),
            "filter:json:score>=0.5": len(by_class) - len(by_score),
        },
    }
    again = tar2tf("convert", scored, "-o", out / "all.record", "--spec", spec)
    assert "up to date" in again.stderr
    assert f"{len(by_class) - len(by_score)} samples skipped: filter:json:score>=0.5" in again.stderr
    assert tar2tf("verify", out / "_all-manifest.json", "--against", scored).returncode == 0


def test_threads_count_what_they_skip_as_one_does(tmp_path: Path) -> None:
    jpeg = samples_of(PHOTOS / "photos-0.tar")[0][1]["jpg"]
    samples = [
        (f"{number:02d}", {"jpg": b"no image", **({"txt": b"x"} if number < 10 else {})}) for number in range(40)
    ]
    done = tar2tf(
        "convert",
        write_tar(tmp_path / "0.tar", [*samples, ("good", {"jpg": jpeg})]),
        "-o",
        tmp_path / "a.record",
        "-j",
        "8",
        "--op",
        "filter:!txt",
        "--op",
        "decode:jpg",
        "--on-error",
        "skip",
    )
    assert "10 samples skipped: filter:!txt" in done.stderr
    assert "30 samples skipped" in done.stderr


def test_an_output_from_which_everything_is_skipped_is_noted(scored: Path, tmp_path: Path) -> None:
    done = tar2tf("convert", scored, "-o", tmp_path / "a.record", "--op", "filter:clz=3")
    assert done.returncode == 0
    assert "warning: no records were written, because all samples were skipped: filter:clz=3 120" in done.stderr
    assert not records(*tmp_path.glob("*.record"))


def test_the_dry_run_shows_that_the_first_sample_is_skipped(scored: Path, tmp_path: Path) -> None:
    done = tar2tf("convert", scored, "-o", tmp_path / "a.record", "--op", "filter:cls=3", "--dry-run")
    assert "after filter cls=3: dropped" in done.stdout


@pytest.mark.parametrize(
    ("plain", "worded"),
    [
        ("n=1,2", "n,eq,1,2"),
        ("n!=1", "n,ne,1"),
        ("n<2", "n,lt,2"),
        ("n<=2", "n,le,2"),
        ("n>1", "n,gt,1"),
        ("n>=2", "n,ge,2"),
    ],
)
def test_words_compare_as_signs_do_and_need_no_quotes(plain: str, worded: str) -> None:
    for number in range(4):
        sample = {"__key__": "a", "n": b"%d" % number}
        kept = [parse_op(f"filter:{form}").apply(sample, OpContext()) for form in (plain, worded)]
        assert kept[0] == kept[1]
    assert parse_op("filter:json:score,ge,0.5").apply({"__key__": "a", "json": b'{"score": 0.7}'}, OpContext())
