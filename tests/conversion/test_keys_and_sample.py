"""`--keys` and `--sample`: which samples are converted, whichever way they are read, and which keys are missing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commands import tar2tf
from input_buckets import MAKERS
from shards import every_file, samples, samples_of, shards_in, tree, write_tar
from tar2tf_cli import open_records
from tar2tf_cli.conversion.publish import Summary
from tar2tf_cli.conversion.run import convert
from tar2tf_cli.errors import SourceError, UsageError
from tar2tf_cli.spec.conversion import Conversion, Input, Output
from tar2tf_cli.spec.key_lists import key_line
from verify_runs import an_example, framed


def keys_in(manifest: str | Path | None) -> list[str]:
    assert manifest
    return [record["__key__"].decode() for record in open_records(manifest)]


def all_keys(bucket: Path) -> list[str]:
    return [key for key, _ in samples_of(*(path for path in sorted(bucket.iterdir()) if ".t" in path.name))]


def run(
    bucket: Path, out: Path, workers: int = 1, *, keys: Path | None = None, missing: str = "error", **options: object
) -> Summary:
    input_ = Input(str(bucket), keys=keys, keys_missing=missing)  # type: ignore[arg-type]
    output = Output(str(out / "all-<>.record"), max_shard_size=60_000)
    return convert(Conversion(input_, output, **options), workers=workers)  # type: ignore[arg-type]


@pytest.fixture(params=["small", "large", "mixed"])
def bucket(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Shards whose records are spooled, written straight from the tars, or either."""
    MAKERS[request.param](tmp_path / "in")
    return tmp_path / "in"


def listed(path: Path, keys: list[str]) -> Path:
    path.write_text("".join(f"{key}\n" for key in keys))
    return path


def test_only_listed_keys_are_converted_whatever_order_they_are_in(bucket: Path, tmp_path: Path) -> None:
    every = all_keys(bucket)
    wanted = listed(tmp_path / "keys.txt", [*reversed(every[1::3]), every[1]])
    one = run(bucket, tmp_path / "1", keys=wanted)
    two = run(bucket, tmp_path / "2", 2, keys=wanted)
    assert keys_in(one.manifest) == every[1::3]
    assert tree(tmp_path / "1") == tree(tmp_path / "2")
    assert one.filtered == {"--keys": len(every) - len(every[1::3])}
    assert one.left_out()["asked"] == json.loads((tmp_path / "2/_all-manifest.json").read_text())["skipped"]["asked"]
    assert two.keys_missing == ()
    assert tar2tf("verify", tmp_path / "1/_all-manifest.json", "--against", bucket).returncode == 0


def test_records_of_listed_samples_are_those_of_a_conversion_of_everything(bucket: Path, tmp_path: Path) -> None:
    every = all_keys(bucket)
    whole = {record["__key__"]: record for record in open_records(run(bucket, tmp_path / "a").manifest or "")}
    part = run(bucket, tmp_path / "b", keys=listed(tmp_path / "keys", every[::2]))
    assert [whole[key.encode()] for key in every[::2]] == [*open_records(part.manifest or "")]


def test_keys_that_no_input_has_are_an_error_that_lists_them_or_are_recorded(tmp_path: Path) -> None:
    bucket = MAKERS["small"](tmp_path / "in")
    keys = listed(tmp_path / "keys.txt", ["nowhere", "0001", "", "gone/2", "0003"])
    command = ["convert", bucket, "-o", tmp_path / "out/a.record", "--keys", keys]
    done = tar2tf(*command)
    assert done.returncode == 3
    assert f"{keys}: no input has these 2 of 4 keys: nowhere, gone/2" in done.stderr
    assert "--keys-missing skip" in done.stderr
    assert not (tmp_path / "out/_a-manifest.json").exists()
    done = tar2tf(*command, "--keys-missing", "skip")
    assert done.returncode == 0
    assert "2 keys of --keys not in any input: nowhere, gone/2" in done.stderr
    assert json.loads((tmp_path / "out/_a-manifest.json").read_text())["skipped"]["keys_missing"] == [
        "nowhere",
        "gone/2",
    ]
    again = tar2tf(*command, "--keys-missing", "skip")
    assert "up to date" in again.stderr
    assert "2 keys of --keys not in any input" in again.stderr


def test_what_inspect_prints_is_a_list_of_keys(tmp_path: Path) -> None:
    write_tar(tmp_path / "in/a.tar", [("ä/1", {"txt": b"1"}), ("b c", {"txt": b"2"}), (" d", {"txt": b"3"})])
    printed = tar2tf("inspect", tmp_path / "in", "--keys").stdout
    (tmp_path / "keys").write_bytes("﻿".encode() + printed.replace("\n", "\r\n").encode())
    assert keys_in(run(tmp_path / "in", tmp_path / "out", keys=tmp_path / "keys").manifest) == ["ä/1", "b c", " d"]


def test_whatever_the_keys_are_inspect_prints_them_as_a_list_of_keys(tmp_path: Path) -> None:
    names = ["tab\t1", "ideographic\u3000space", "no-break\u00a0space", "\udcff", "back\\slash", r"\t", "a\x1b[31m"]
    write_tar(tmp_path / "in/a.tar", [(name, {"txt": b"1"}) for name in [*names, "other"]])
    keyless = [an_example(n=number) for number in range(3)]
    (tmp_path / "in/b.c.record").write_bytes(framed(*keyless, an_example(__key__=b"k", n=3)))
    for shard, wanted in (("a.tar", names), ("b.c.record", ["b_c-000000", "b_c-000001", "b_c-000002", "k"])):
        printed = tar2tf("inspect", tmp_path / "in" / shard, "--keys").stdout.split("\n")[: len(wanted)]
        assert printed == [os.fsdecode(key_line(key)).removesuffix("\n") for key in wanted]
        (tmp_path / "keys").write_bytes(os.fsencode("\n".join(printed)))
        ran = run(tmp_path / "in" / shard, tmp_path / "out" / shard, keys=tmp_path / "keys")
        assert ran.records == len(wanted)


def test_another_list_is_another_conversion_under_the_same_name(tmp_path: Path) -> None:
    bucket = MAKERS["small"](tmp_path / "in")
    keys = listed(tmp_path / "keys.txt", ["0001"])
    command = ["convert", bucket, "-o", tmp_path / "out/a.record", "--keys", keys]
    assert tar2tf(*command).returncode == 0
    listed(keys, ["0002"])
    refused = tar2tf(*command)
    assert refused.returncode == 2
    assert "keys_digest" in refused.stderr
    assert tar2tf("verify", tmp_path / "out/_a-manifest.json", "--against", bucket).returncode == 2
    assert tar2tf(*command, "--overwrite").returncode == 0
    assert keys_in(tmp_path / "out/_a-manifest.json") == ["0002"]
    spec = tmp_path / "spec.yaml"
    spec.write_text(json.dumps({**json.loads((tmp_path / "out/_a-manifest.json").read_text())["spec"]}))
    assert "up to date" in tar2tf("convert", "--spec", spec, "-o", tmp_path / "out/a.record").stderr


@pytest.mark.parametrize(
    ("text", "message"), [(None, "No such file"), ("", "lists no keys"), ("\n\n", "lists no keys")]
)
def test_a_list_that_is_none_is_an_error_before_anything_is_read(
    text: str | None, message: str, tmp_path: Path
) -> None:
    MAKERS["small"](tmp_path / "in")
    if text is not None:
        (tmp_path / "keys").write_text(text)
    with pytest.raises(SourceError, match=message) as raised:
        run(tmp_path / "in", tmp_path / "out", keys=tmp_path / "keys")
    assert raised.value.shard == str(tmp_path / "keys")
    assert not [*every_file(tmp_path).keys() & {"out"}]


def test_keys_missing_without_keys_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match="--keys-missing needs --keys"):
        Input("in", keys_missing="skip")


def test_an_update_knows_the_keys_of_inputs_that_it_does_not_read(tmp_path: Path) -> None:
    bucket = tmp_path / "in"
    write_tar(bucket / "a.tar", samples(30))
    keys = listed(tmp_path / "keys.txt", ["0003", "0005", "0105"])
    command = ["convert", bucket, "-o", tmp_path / "out/a-<>.record", "--keys", keys]
    assert tar2tf(*command, "--keys-missing", "skip").returncode == 0
    write_tar(bucket / "b.tar", samples(30, first=100))
    done = tar2tf(*command, "--update")
    assert done.returncode == 0, done.stderr
    assert "57 samples skipped: --keys" in done.stderr
    assert keys_in(tmp_path / "out/_a-manifest.json") == ["0003", "0005", "0105"]
    assert tar2tf(*command[:3], tmp_path / "new/a-<>.record", *command[4:]).returncode == 0
    assert tree(tmp_path / "out") == tree(tmp_path / "new")


# --- A part of the samples ---


def test_a_part_is_the_same_for_any_order_and_grows_with_the_data(bucket: Path, tmp_path: Path) -> None:
    every = all_keys(bucket)
    half = run(bucket, tmp_path / "half", sample=0.5)
    assert tree(tmp_path / "half") == (run(bucket, tmp_path / "two", 2, sample=0.5), tree(tmp_path / "two"))[1]
    chosen = keys_in(half.manifest)
    assert chosen == [key for key in every if key in set(chosen)]
    assert half.filtered == {"--sample": len(every) - len(chosen)}
    quarter = keys_in(run(bucket, tmp_path / "quarter", sample=0.25).manifest)
    assert set(quarter) < set(chosen)
    write_tar(bucket / "0.tar", samples(20, first=7000))
    grown = keys_in(run(bucket, tmp_path / "grown", sample=0.5).manifest)
    assert [key for key in grown if key in set(every)] == chosen
    assert tar2tf("verify", tmp_path / "grown/_all-manifest.json", "--against", bucket).returncode == 0


def test_a_part_depends_on_the_seed_and_not_on_the_split(tmp_path: Path) -> None:
    write_tar(tmp_path / "in/a.tar", [(f"{number:05d}", {"txt": b"t"}) for number in range(4000)])
    found = {
        seed: keys_in(run(tmp_path / "in", tmp_path / str(seed), sample=0.5, seed=seed).manifest) for seed in (0, 1)
    }
    for chosen in found.values():
        assert abs(len(chosen) - 2000) < 150  # 4.7 standard deviations
    assert abs(len({*found[0]} & {*found[1]}) - 1000) < 150
    output = Output(str(tmp_path / "split/<split>.record"))
    summary = convert(Conversion(str(tmp_path / "in"), output, sample=0.5, split="train=0.5,val=0.5"), workers=1)
    counts = [shard.records for shard in summary.shards]
    assert len(counts) == 2
    assert abs(counts[0] - counts[1]) < 210


@pytest.mark.parametrize("part", [0, -0.1, 1.01, True, "a", float("nan")])
def test_a_part_is_above_0_and_up_to_1(part: object) -> None:
    with pytest.raises(UsageError, match="sample must be a fraction greater than 0 and at most 1"):
        Conversion("in", "out", sample=part)  # type: ignore[arg-type]


def test_limit_counts_the_samples_that_are_chosen(tmp_path: Path, bucket: Path) -> None:
    chosen = keys_in(run(bucket, tmp_path / "all", sample=0.5).manifest)
    assert keys_in(run(bucket, tmp_path / "some", sample=0.5, limit=9).manifest) == chosen[:9]
    keys = listed(tmp_path / "keys", [*chosen, "none"])
    limited = run(bucket, tmp_path / "few", keys=keys, limit=9)
    assert keys_in(limited.manifest) == chosen[:9]
    assert limited.keys_missing == ()


def test_images_of_a_folder_are_chosen_like_samples_of_tars(tmp_path: Path, made_image: Callable[[], bytes]) -> None:
    for number in range(40):
        path = tmp_path / "photos/cat" / f"{number:03d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(made_image())
    options = ["convert", "--from", "imagefolder", tmp_path / "photos"]
    assert tar2tf(*options, "-o", tmp_path / "a.record", "--sample", "0.5").returncode == 0
    chosen = keys_in(tmp_path / "_a-manifest.json")
    assert 5 < len(chosen) < 35
    assert tar2tf(*options, "-o", tmp_path / "b.record", "--sample", "0.5", "--limit", "5").returncode == 0
    assert keys_in(tmp_path / "_b-manifest.json") == chosen[:5]
    done = tar2tf(*options, "-o", tmp_path / "c.record", "--keys", listed(tmp_path / "keys", chosen[:3]))
    assert done.returncode == 0, done.stderr
    assert keys_in(tmp_path / "_c-manifest.json") == chosen[:3]
    assert os.path.exists(shards_in(tmp_path, "c.record")[0])


@pytest.mark.parametrize(
    "option", [{"sample": 0.5}, {"keys": True}, {"ops": ["filter:cls=3,5"]}, {"ops": ["filter:cls>=7"]}], ids=str
)
def test_samples_of_tfrecords_are_chosen_like_those_of_tars(option: dict[str, Any], tmp_path: Path) -> None:
    MAKERS["small"](tmp_path / "in")
    wanted = listed(tmp_path / "keys", all_keys(tmp_path / "in")[::4])
    options = {**option, "keys": wanted} if "keys" in option else option
    of_tars = run(tmp_path / "in", tmp_path / "a", types={"cls": "int64"}, **options)
    every = run(tmp_path / "in", tmp_path / "all", types={"cls": "int64"})
    of_records = run(Path(every.manifest or ""), tmp_path / "b", 2, **options)
    assert [*open_records(of_records.manifest or "")] == [*open_records(of_tars.manifest or "")]
    assert of_records.filtered == of_tars.filtered != {}


@pytest.fixture
def made_image() -> Callable[[], bytes]:
    from op_cases import IMAGES

    return lambda: IMAGES["0000"]
