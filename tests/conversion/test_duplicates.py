"""`--drop-duplicates`: the first sample of each digest stays, however records are made and divided among shards."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands import tar2tf
from hypothesis_profile import example_count
from shards import Sample, samples_of, shards_in, tree, write_tar
from tar2tf_cli import load_dataset, open_records
from tar2tf_cli.conversion.publish import Summary
from tar2tf_cli.conversion.repeats import DuplicateIndex
from tar2tf_cli.conversion.run import convert
from tar2tf_cli.errors import SampleError, UsageError
from tar2tf_cli.spec.conversion import Conversion, Output


def keys_in(manifest: str | Path | None) -> list[str]:
    assert manifest
    return [record["__key__"].decode() for record in open_records(manifest)]


def firsts(every: list[Sample], *names: str) -> list[str]:
    """The keys of the first samples with each content, in order."""
    seen: dict[Any, str] = {}
    for key, entries in every:
        seen.setdefault(tuple(sorted((name, entries[name]) for name in names or entries)), key)
    return [*seen.values()]


@pytest.fixture(scope="module", params=[30, 12_000], ids=["small", "large"])
def bucket(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five shards in which texts come back, within a shard and in others, and whole samples do, too."""
    folder = tmp_path_factory.mktemp("repeated")
    draw = random.Random(request.param)
    for shard in range(5):
        contents = []
        for number in range(40):
            text = b"%d" % draw.randrange(70)
            entries = {"cls": b"%d" % draw.randrange(2), "txt": text, "bin": text * (request.param // len(text))}
            names = draw.sample(sorted(entries), 3)  # in any order
            contents.append((f"{shard}{number:03d}", {name: entries[name] for name in names}))
        write_tar(folder / f"{shard}.tar{'.gz' if shard == 3 else ''}", contents)
    return folder


def run(bucket: Path, out: Path, workers: int = 1, path: str = "a-<>.record", **options: Any) -> Summary:
    limits = {name: options.pop(name) for name in ("num_shards", "compression", "max_shard_size") if name in options}
    output = Output(str(out / path), **limits)
    return convert(Conversion(str(bucket), output, **options), workers=workers)


@pytest.mark.parametrize(("option", "names"), [(True, ()), ("*", ()), ("txt", ("txt",)), ("bin", ("bin",))])
def test_the_first_of_each_stays_for_any_number_of_workers(
    option: Any, names: tuple[str, ...], bucket: Path, tmp_path: Path
) -> None:
    every = samples_of(*sorted(bucket.iterdir()))
    expected = firsts(every, *names)
    assert len(expected) < len(every)
    one = run(bucket, tmp_path / "1", drop_duplicates=option, max_shard_size=4_000)
    run(bucket, tmp_path / "2", 2, drop_duplicates=option, max_shard_size=4_000)
    assert keys_in(one.manifest) == expected
    assert tree(tmp_path / "1") == tree(tmp_path / "2")
    assert one.filtered == {"--drop-duplicates": len(every) - len(expected)}
    manifest = json.loads((tmp_path / "1/_a-manifest.json").read_text())
    assert manifest["skipped"]["asked"] == dict(one.filtered)
    assert manifest["spec"]["drop_duplicates"] == ("*" if option is True else option)
    whole = {record["__key__"]: record for record in open_records(run(bucket, tmp_path / "all").manifest or "")}
    assert [whole[key.encode()] for key in expected] == [*open_records(one.manifest or "")]


@pytest.mark.parametrize(
    "options",
    [
        {"shuffle": True, "num_shards": 3},
        {"num_shards": 4},
        {"compression": "gzip", "max_shard_size": 2_000},
        {"split": "a=0.5,b=0.5", "path": "<split>-<>.record", "max_shard_size": 3_000},
        {"path": "<input>.record"},
        {"path": "a-<>.tar", "max_shard_size": 60_000},
        {"path": "a.record"},
    ],
    ids=str,
)
def test_every_layout_holds_the_firsts_and_no_other(options: dict[str, Any], bucket: Path, tmp_path: Path) -> None:
    expected = firsts(samples_of(*sorted(bucket.iterdir())), "txt")
    made = [run(bucket, tmp_path / str(workers), workers, drop_duplicates="txt", **options) for workers in (1, 2)]
    assert tree(tmp_path / "1") == tree(tmp_path / "2")
    if str(options.get("path")).endswith("tar"):
        found = [key for key, _ in samples_of(*shards_in(tmp_path / "1", "*.tar"))]
    else:
        found = [one["__key__"].numpy().decode() for one in load_dataset(made[0].manifest or "")]
    assert sorted(found) == sorted(expected)
    if not options.get("shuffle") and "split" not in options:
        assert found == expected
    assert tar2tf("verify", made[0].manifest or "", "--against", bucket).returncode == 0


def test_what_filters_skip_is_no_first_and_the_limit_counts_what_stays(bucket: Path, tmp_path: Path) -> None:
    every = samples_of(*sorted(bucket.iterdir()))
    ones = [(key, entries) for key, entries in every if entries["cls"] == b"1"]
    made = run(bucket, tmp_path / "a", drop_duplicates="txt", ops=["filter:cls=1"])
    assert keys_in(made.manifest) == firsts(ones, "txt")
    limited = run(bucket, tmp_path / "b", 2, drop_duplicates="txt", limit=17)
    assert keys_in(limited.manifest) == firsts(every, "txt")[:17]
    assert tar2tf("verify", limited.manifest or "", "--against", bucket).returncode == 0


def test_several_records_of_one_sample_are_no_duplicates_of_each_other(tmp_path: Path) -> None:
    write_tar(tmp_path / "in/a.tar", [("0", {"txt": b"x"}), ("1", {"txt": b"x"}), ("2", {"txt": b"y"})])
    (tmp_path / "twice.py").write_text("def twice(sample):\n    return [sample, dict(sample, n=b'2')]\n")
    made = run(tmp_path / "in", tmp_path / "out", drop_duplicates=True, ops=[f"func:{tmp_path}/twice.py:twice"])
    assert keys_in(made.manifest) == ["0", "0", "2", "2"]
    assert made.filtered == {"--drop-duplicates": 1}


def test_a_sample_without_the_entry_is_faulty(tmp_path: Path) -> None:
    write_tar(tmp_path / "in/a.tar", [("0", {"txt": b"x"}), ("1", {"jpg": b"x"}), ("2", {"txt": b"x"})])
    with pytest.raises(SampleError, match="--drop-duplicates: has no entry 'txt', only jpg") as raised:
        run(tmp_path / "in", tmp_path / "out", drop_duplicates="txt")
    assert (raised.value.key, raised.value.shard) == ("1", str(tmp_path / "in/a.tar"))
    made = run(tmp_path / "in", tmp_path / "skipped", drop_duplicates="txt", on_error="skip")
    assert keys_in(made.manifest) == ["0"]
    assert made.skipped_samples == 1


def test_an_update_brings_back_a_sample_whose_first_is_gone(bucket: Path, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for path in bucket.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    command = ["convert", folder, "--drop-duplicates=txt", "--max-shard-size", "40kB", "-o"]
    assert tar2tf(*command, tmp_path / "out/a-<>.record").returncode == 0
    (folder / "1.tar").unlink()
    write_tar(folder / "9.tar", [("9000", {"txt": b"0", "cls": b"1", "bin": b""})])
    done = tar2tf(*command, tmp_path / "out/a-<>.record", "--update")
    assert done.returncode == 0, done.stderr
    assert tar2tf(*command, tmp_path / "new/a-<>.record").returncode == 0
    assert tree(tmp_path / "out") == tree(tmp_path / "new")
    assert keys_in(tmp_path / "out/_a-manifest.json") == firsts(samples_of(*sorted(folder.iterdir())), "txt")


@pytest.mark.parametrize("options", [[], ["--shuffle"], ["--num-shards", "2"], ["--op", "filter:cls=0"]], ids=str)
@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_keys_of_duplicates_are_listed(workers: str, options: list[str], bucket: Path, tmp_path: Path) -> None:
    every = samples_of(*sorted(bucket.iterdir()))
    if "--op" in options:
        every = [sample for sample in every if sample[1]["cls"] == b"0"]
    first = set(firsts(every, "txt"))
    out = ("-o", tmp_path / "out/a-<>.record", "-j", workers, *options)
    done = tar2tf("convert", bucket, "--drop-duplicates=txt", "--duplicates", tmp_path / "keys", *out)
    assert done.returncode == 0, done.stderr
    expected = [key for key, _ in every if key not in first]
    assert (tmp_path / "keys").read_text().split() == expected
    again = tar2tf("convert", bucket, "--keys", tmp_path / "keys", "-o", tmp_path / "dropped.record")
    assert again.returncode == 0, again.stderr
    assert keys_in(tmp_path / "dropped.record") == expected


def test_a_list_of_duplicates_holds_every_key_that_a_tar_can_have(tmp_path: Path) -> None:
    keys = ["007", "new\nline", "caf\udce9", "\\back", "last\r"]
    write_tar(tmp_path / "in.tar", [("one", {"txt": b"x"}), *((key, {"txt": b"x"}) for key in keys)])
    lists = ("--drop-duplicates", "--duplicates", tmp_path / "keys")
    assert tar2tf("convert", tmp_path / "in.tar", *lists, "-o", tmp_path / "a.record").returncode == 0
    done = tar2tf("convert", tmp_path / "in.tar", "--keys", tmp_path / "keys", "-o", tmp_path / "b.record")
    assert done.returncode == 0, done.stderr
    found = [record["__key__"] for record in open_records(tmp_path / "b.record")]
    assert found == [key.encode("utf-8", "surrogateescape") for key in keys]


def test_a_list_of_duplicates_survives_an_interrupted_run(bucket: Path, tmp_path: Path) -> None:
    broken = tmp_path / "in"
    shutil.copytree(bucket, broken)
    last = (broken / "4.tar").read_bytes()
    command = ("convert", broken, "--drop-duplicates=txt", "--duplicates", tmp_path / "keys", "-j", "1")
    command += ("--max-shard-size", "40kB", "-o", tmp_path / "out/a-<>.record")
    (broken / "4.tar").write_bytes(last[:700])
    assert tar2tf(*command).returncode == 3
    (broken / "4.tar").write_bytes(last)
    done = tar2tf(*command)
    assert done.returncode == 0, done.stderr
    every = samples_of(*sorted(bucket.iterdir()))
    first = set(firsts(every, "txt"))
    assert (tmp_path / "keys").read_text().split() == [key for key, _ in every if key not in first]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "add --drop-duplicates"),
        (["--drop-duplicates", "--update"], "use --overwrite"),
        (["--drop-duplicates", "--keys", "{}/keys"], "--duplicates: the conversion itself reads or writes"),
    ],
)
def test_duplicates_are_listed_where_they_are_looked_for(
    options: list[str], message: str, bucket: Path, tmp_path: Path
) -> None:
    (tmp_path / "keys").write_text("0000\n")
    command = ("--duplicates", tmp_path / "keys", *(option.format(tmp_path) for option in options))
    done = tar2tf("convert", bucket, *command, "-o", tmp_path / "out.record")
    assert done.returncode == 2
    assert message in done.stderr
    assert (tmp_path / "keys").read_text() == "0000\n"


def test_verify_finds_a_duplicate_that_is_there_and_a_first_that_is_not(bucket: Path, tmp_path: Path) -> None:
    run(bucket, tmp_path / "out", path="a.record")
    made = run(bucket, tmp_path / "first", path="a.record", drop_duplicates="txt")
    spec = json.loads(Path(made.manifest or "").read_text())["spec"]
    for folder, kind in (("out", "unexpected"), ("first", "missing")):
        path = tmp_path / folder / "_a-manifest.json"
        text = json.loads(path.read_text())
        text["spec"] = {**spec}
        if folder == "first":
            del text["spec"]["drop_duplicates"]
        text.pop("checksum")
        path.write_text(json.dumps(text))
        report = json.loads(tar2tf("verify", path, "--against", bucket, "--json").stdout)
        assert {fault["kind"] for file in report["files"] for fault in file["faults"]} >= {kind}


@pytest.mark.parametrize("value", ["", 3, ["jpg"]])
def test_what_is_compared_is_one_entry_or_all(value: Any) -> None:
    with pytest.raises(UsageError, match="drop_duplicates must be text"):
        Conversion("in", "out", drop_duplicates=value)
    assert Conversion("in", "out", drop_duplicates=False).drop_duplicates is None


@given(st.lists(st.lists(st.tuples(st.integers(0, 8), st.integers(1, 3)), max_size=12), max_size=8))
@example_count(200)
def test_first_seen_finds_the_first_of_each_as_a_set_does(parts: list[list[tuple[int, int]]]) -> None:
    seen, known = DuplicateIndex(), set[int]()
    for part in parts:
        high, low, expected, repeated = [], [], [], []
        for number, (value, units) in enumerate(part):
            high += [value << 60, *[0] * (units - 1)]
            low += [1, *[0] * (units - 1)]
            expected += [value not in known] * units
            repeated += [number] * (value in known)
            known.add(value)
        found = seen.among(np.array(high, np.uint64), np.array(low, np.uint64))
        assert found.tolist() == expected
        assert seen.repeated == repeated


@pytest.mark.parametrize("path", ["x.record", "<input>.record", "x.tar"])
def test_an_input_of_which_nothing_is_left_is_no_duplicate(path: str, tmp_path: Path) -> None:
    for name, values in (("a", (1, 2, 1)), ("b", (9, 9)), ("c", (2, 3))):
        samples = [(f"{name}{place}", {"cls": b"%d" % value}) for place, value in enumerate(values)]
        write_tar(tmp_path / "in" / f"{name}.tar", samples)
    output = Output(str(tmp_path / "out" / path))
    given = Conversion(tmp_path / "in", output, ops=["filter:cls!=9"], drop_duplicates="cls")
    made = convert(given, workers=1)
    assert [one["__key__"] for one in open_records(made.manifest or "")] == [b"a0", b"a1", b"c1"]
    asked = json.loads(Path(made.manifest or "").read_text())["skipped"]["asked"]
    assert (made.records, asked) == (3, {"--drop-duplicates": 2, "filter:cls!=9": 2})
