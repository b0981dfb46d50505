"""Tars whose members are not adjacent, as GNU tar writes a folder in directory order."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from commands import convert, tar2tf
from images import jpeg
from make_bytes import END, member
from servers import FaultyServer
from shards import contents, examples, keys, samples, shards_in, tree, write_members
from tar2tf_cli import Dataset, Pipeline
from tar2tf_cli.conversion.run import convert as run_conversion
from tar2tf_cli.conversion.write_shard import WriteShard
from tar2tf_cli.errors import WorkerError
from tar2tf_cli.ops import Select
from tar2tf_cli.spec.conversion import Conversion
from verify_runs import Ran

NOTE = "are not adjacent"
Entries = tuple[str, dict[str, bytes]]


def shuffled(made: Sequence[Entries], seed: int = 1) -> tuple[list[tuple[str, bytes]], list[Entries]]:
    """All members in a random order, and the samples in the order in which their keys first appear."""
    members = [(f"{key}.{name}", data) for key, entries in made for name, data in entries.items()]
    random.Random(seed).shuffle(members)
    order = list(dict.fromkeys(name.partition(".")[0] for name, _ in members))
    return members, sorted(made, key=lambda sample: order.index(sample[0]))


def scattered(path: Path, count: int = 40, *, first: int = 0, size: int = 300) -> list[Entries]:
    members, expected = shuffled(samples(count, size, first=first))
    write_members(path, members)
    return expected


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz"])
@pytest.mark.parametrize("size", [300, 20_000])
def test_a_folder_packed_by_gnu_tar_in_any_order_just_converts(size: int, suffix: str, tmp_path: Path) -> None:
    members, expected = shuffled(samples(60, size))
    (tmp_path / "photos").mkdir()
    for name, data in members:
        (tmp_path / "photos" / name).write_bytes(data)
    names = "".join(f"photos/{name}\n" for name, _ in members)
    tar = ["tar", "-caf", f"in{suffix}", "--no-recursion", "photos", "-T", "-"]
    subprocess.run(tar, cwd=tmp_path, input=names, text=True, check=True)
    done = convert(tmp_path / f"in{suffix}", "-o", tmp_path / "out.record")
    assert contents(tmp_path / "out.record") == [(f"photos/{key}", entries) for key, entries in expected]
    assert done.stderr.count(NOTE) == 1


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz"])
@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize(
    "options",
    [
        ["--select", "jpg,label=cls", "--type", "label=int64"],
        ["--op", "rename:label=cls", "--select", "label"],
        ["--type", "cls=int64"],
        ["--labels", "cls=auto"],
        ["--preset", "image-label", "--select", "image=jpg,label=cls"],
        ["--select", "label=cls", "--on-error", "skip"],
    ],
    ids=str,
)
def test_half_of_a_sample_lacks_nothing(options: list[str], workers: str, suffix: str, tmp_path: Path) -> None:
    image = jpeg(np.zeros((8, 8, 3), np.uint8))
    for shard in range(2):
        made = [(f"{shard}-{n:02d}", {"jpg": image, "cls": b"%d" % n}) for n in range(20)]
        members = [(f"{key}.{name}", made_of[name]) for name in ("jpg", "cls") for key, made_of in made]
        write_members(tmp_path / "in" / f"{shard}.tar", members)
        if suffix == ".tar.gz":
            plain = tmp_path / "in" / f"{shard}.tar"
            plain.with_suffix(suffix).write_bytes(gzip.compress(plain.read_bytes()))
            plain.unlink()
    done = convert(tmp_path / "in", "-o", tmp_path / "out.record", *options, "-j", workers)
    label = "cls" if "cls=int64" in options or "cls=auto" in options else "label"
    found = [int(record[label][0]) for record in examples(tmp_path / "out.record")]
    assert (found, done.stderr.count(NOTE)) == ([*range(20)] * 2, 1)


def test_a_sample_that_lacks_an_entry_is_faulty_all_the_same(tmp_path: Path) -> None:
    write_members(
        tmp_path / "in.tar", [("a.jpg", b"1"), ("b.jpg", b"2"), ("b.cls", b"3"), ("c.jpg", b"4"), ("c.cls", b"5")]
    )
    failed = tar2tf("convert", tmp_path / "in.tar", "-o", tmp_path / "out.record", "--select", "cls")
    assert (failed.returncode, "sample a" in failed.stderr, "has no entry 'cls'" in failed.stderr) == (3, True, True)


OPTIONS = {
    "one file": ["all.record"],
    "sizes": ["<>.record", "--max-shard-size", "20kB"],
    "shuffled": ["<>.record", "--shuffle", "--records-per-shard", "20"],
    "split": ["<split>-<>.record", "--split", "a=0.5,b=0.5"],
    "skip": ["all.record", "--on-error", "skip"],
    "op": ["all.record", "--op", "drop_empty", "--num-shards", "3"],
    "gzip": ["<>.gz", "--compression", "gzip", "--max-shard-size", "20kB"],
    "limit": ["all.record", "--limit", "55"],
}


@pytest.mark.parametrize("layout", OPTIONS)
def test_shards_are_the_same_for_any_number_of_workers_and_with_regroup(layout: str, tmp_path: Path) -> None:
    bucket, (path, *options) = tmp_path / "in", OPTIONS[layout]
    write_members(bucket / "0.tar", sorted(shuffled(samples(30))[0]))
    scattered(bucket / "1.tar", first=100)
    scattered(bucket / "2.tar.gz", first=200)
    ways = {"j1": ["-j", "1"], "j4": ["-j", "4"], "regroup": ["-j", "2", "--regroup"]}
    for way, more in ways.items():
        done = convert(bucket, "-o", tmp_path / way / path, *options, *more)
        assert done.stderr.count(NOTE) == (way != "regroup"), "one line for the run"
    found = [{name: data for name, data in tree(tmp_path / way).items() if not name.endswith(".json")} for way in ways]
    assert found[0] == found[1] == found[2]
    assert tree(tmp_path / "j1") == tree(tmp_path / "j4")


def test_samples_before_the_key_that_returns_are_written_once_and_in_order(tmp_path: Path) -> None:
    made = samples(300, 12_000)
    members = [(f"{key}.{name}", data) for key, entries in made for name, data in entries.items()]
    members.append(members.pop(2))  # the second sample's class comes at the very end
    write_members(tmp_path / "in.tar", members)
    convert(tmp_path / "in.tar", "-o", tmp_path / "out" / "<>.record", "--max-shard-size", "500kB", "-j", "2")
    assert contents(*shards_in(tmp_path / "out")) == made


def test_an_http_server_s_tar_is_fetched_again_and_regrouped(web: FaultyServer, tmp_path: Path) -> None:
    expected = scattered(tmp_path / "in.tar")
    web.objects["in.tar"] = (tmp_path / "in.tar").read_bytes()
    done = convert(f"{web.url}/in.tar", "-o", tmp_path / "out.record")
    assert contents(tmp_path / "out.record") == expected
    assert done.stderr.count(NOTE) == 1


def test_no_regroup_makes_it_an_error(tmp_path: Path) -> None:
    scattered(tmp_path / "in.tar")
    done = tar2tf("convert", tmp_path / "in.tar", "-o", tmp_path / "out.record", "--no-regroup")
    assert done.returncode == 3
    assert "appears again" in done.stderr
    assert "--regroup" in done.stderr
    (tmp_path / "spec.yaml").write_text("input: {bucket: in.tar, regroup: false}\noutput: {path: out.record}\n")
    assert tar2tf("convert", "--spec", "spec.yaml", cwd=tmp_path).returncode == 3
    (tmp_path / "spec.yaml").write_text("input: {bucket: in.tar, regroup: true}\noutput: {path: out.record}\n")
    assert NOTE not in convert("--spec", "spec.yaml", cwd=tmp_path).stderr, "it was asked for"


def test_standard_input_needs_regroup(tmp_path: Path) -> None:
    expected = scattered(tmp_path / "in.tar")
    for suffix, data in (
        ("", (tmp_path / "in.tar").read_bytes()),
        ("gz", gzip.compress((tmp_path / "in.tar").read_bytes())),
    ):
        (tmp_path / f"stdin{suffix}").write_bytes(data)
        with (tmp_path / f"stdin{suffix}").open() as stdin:
            done = tar2tf("convert", "-", "-o", tmp_path / "refused.record", stdin=stdin)
        assert done.returncode == 3
        assert "--regroup" in done.stderr
        with (tmp_path / f"stdin{suffix}").open() as stdin:
            convert("-", "-o", tmp_path / "out.record", "--regroup", "--overwrite", stdin=stdin)
        assert contents(tmp_path / "out.record") == expected


def test_a_member_that_comes_twice_is_still_an_error(tmp_path: Path) -> None:
    members, _ = shuffled(samples(10))
    write_members(tmp_path / "in.tar", [*members, members[0]])
    done = tar2tf("convert", tmp_path / "in.tar", "-o", tmp_path / "out.record")
    assert done.returncode == 3
    assert "the same member appears twice" in done.stderr
    done = tar2tf("convert", tmp_path / "in.tar", "-o", tmp_path / "out.record", "--on-error", "skip")
    assert done.returncode == 1
    assert len(keys(tmp_path / "out.record")) == 9


def test_a_finished_run_is_up_to_date_and_an_interrupted_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = scattered(tmp_path / "in.tar", size=12_000)
    conversion = Conversion(str(tmp_path / "in.tar"), str(tmp_path / "out.record"))

    def stop(*_: object) -> None:
        raise OSError("stopped")

    with monkeypatch.context() as patch:
        patch.setattr(WriteShard, "run", stop)
        with pytest.raises(WorkerError, match="stopped"):
            run_conversion(conversion, workers=1)
    with monkeypatch.context() as patch:
        patch.setattr("tar2tf_cli.conversion.read_inputs.spool_inputs", stop)  # the spool is there already
        assert run_conversion(conversion, workers=1).records == 40
    assert contents(tmp_path / "out.record") == expected
    assert run_conversion(conversion).up_to_date


# --- Damage ---


def damaged(tmp_path: Path, *, suffix: str = ".tar") -> tuple[Path, list[Entries], str]:
    """A scattered tar with one header overwritten; its samples, and the key of the one that is lost."""
    members, expected = shuffled(samples(40))
    path = write_members(tmp_path / "in.tar", members)
    data = bytearray(path.read_bytes())
    name = members[30][0]
    position = data.index(name.encode())
    data[position : position + 512] = b"\xff" * 512
    path.unlink()
    path = tmp_path / f"in{suffix}"
    path.write_bytes(gzip.compress(data) if suffix.endswith("gz") else data)
    return path, expected, name.partition(".")[0]


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz"])
@pytest.mark.parametrize("options", [[], ["--regroup"]])
def test_damage_loses_what_is_damaged_and_not_the_shard(options: list[str], suffix: str, tmp_path: Path) -> None:
    path, expected, lost = damaged(tmp_path, suffix=suffix)
    assert tar2tf("convert", path, "-o", tmp_path / "out.record", *options).returncode == 3
    done = tar2tf("convert", path, "-o", tmp_path / "out.record", "--on-error", "skip", *options)
    assert done.returncode == 1
    assert "was not read" in done.stderr
    assert contents(tmp_path / "out.record") == [sample for sample in expected if sample[0] != lost]


def test_a_truncated_tar_keeps_the_samples_that_are_whole(tmp_path: Path) -> None:
    members, expected = shuffled(samples(40))
    path = write_members(tmp_path / "in.tar", members)
    whole = path.read_bytes()
    cut = whole.index(members[60][0].encode())
    path.write_bytes(whole[: cut + 700])
    assert tar2tf("convert", path, "-o", tmp_path / "out.record").returncode == 3
    assert tar2tf("convert", path, "-o", tmp_path / "out.record", "--on-error", "skip").returncode == 1
    lost = {name.partition(".")[0] for name, _ in members[60:]}
    assert contents(tmp_path / "out.record") == [sample for sample in expected if sample[0] not in lost]


def test_a_damaged_gzip_keeps_the_samples_that_are_whole(tmp_path: Path) -> None:
    members, expected = shuffled(samples(40, 100_000))
    path = write_members(tmp_path / "in.tar.gz", members)
    path.write_bytes(path.read_bytes()[:-3000])
    done = tar2tf("convert", path, "-o", tmp_path / "out.record", "--regroup")
    assert done.returncode == 3
    assert "gzip" in done.stderr
    assert tar2tf("convert", path, "-o", tmp_path / "out.record", "--regroup", "--on-error", "skip").returncode == 1
    found = contents(tmp_path / "out.record")
    assert 10 < len(found) < 40
    assert all(sample in expected for sample in found)


# --- Elsewhere ---


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz"])
def test_a_dataset_gives_whole_samples(suffix: str, tmp_path: Path) -> None:
    members, expected = shuffled(
        [(f"{number:03}", {"cls": b"%d" % number, "png": b"png" * 50}) for number in range(30)]
    )
    write_members(tmp_path / f"in{suffix}", members)
    made = Dataset(str(tmp_path), None, [], [Select("cls"), Select("png")]).load(f"in{suffix}")
    assert [int(cls) for cls, png in made] == [int(entries["cls"]) for _, entries in expected]


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("suffix", [".tar", ".tar.gz"])
def test_a_pipeline_gives_whole_samples(suffix: str, own: bool, tmp_path: Path) -> None:
    expected = scattered(tmp_path / f"in{suffix}")
    for out in ("out.record", "out-<>.record"):
        pipeline = Pipeline().from_tar(tmp_path / f"in{suffix}").transform_samples(lambda sample: sample)
        pipeline = pipeline.with_samples_stage(lambda made: made) if own else pipeline
        pipeline.sample_to_tf_example().to_tf_record(tmp_path / out).do()
    assert contents(tmp_path / "out.record") == contents(tmp_path / "out-1.record") == expected


@pytest.mark.parametrize("regroup", [None, True])
def test_an_open_file_in_a_pipeline_is_regrouped(regroup: bool | None, tmp_path: Path) -> None:
    expected = scattered(tmp_path / "in.tar")
    out = tmp_path / "out.record"
    with (tmp_path / "in.tar").open("rb") as file:
        Pipeline().from_tar(file, regroup=regroup).sample_to_tf_example().to_tf_record(out).do()
    assert contents(out) == expected


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz"])
def test_the_dry_run_shows_a_whole_sample_and_a_limit_takes_the_first(suffix: str, tmp_path: Path) -> None:
    expected = scattered(tmp_path / f"in{suffix}")
    ran = tar2tf("convert", tmp_path / f"in{suffix}", "-o", tmp_path / "out.record", "--dry-run", "--json")
    steps = json.loads(ran.stdout)["steps"]
    assert set(steps[0]["entries"]) >= {"cls", "jpg"}
    assert suffix != ".tar" or json.loads(ran.stdout)["estimate"]["records"] == 40
    convert(tmp_path / f"in{suffix}", "-o", tmp_path / "out.record", "--limit", "3")
    assert contents(tmp_path / "out.record") == expected[:3]


def test_ordinary_tars_are_read_once_and_without_a_note(tmp_path: Path) -> None:
    write_members(tmp_path / "in.tar", sorted(shuffled(samples(40))[0]))
    assert NOTE not in convert(tmp_path / "in.tar", "-o", tmp_path / "out.record").stderr
    assert len(examples(tmp_path / "out.record")) == 40


@pytest.mark.parametrize(("last", "lacks"), [("3", False), ("2", True)])
def test_a_sample_in_the_middle_of_the_shard_was_not_cut_short(last: str, lacks: bool, tmp_path: Path) -> None:
    """The last key to appear lacks an entry, but members of other samples come after its own."""
    names = ["1.cls", "3.cls", *(f"{key}.txt" for key in ("1", "2", "3") if key != last), f"{last}.txt"]
    write_members(tmp_path / "in.tar", [(name, b"x") for name in names])
    done = tar2tf("convert", tmp_path / "in.tar", "-o", tmp_path / "x.record")
    assert (done.returncode, "the last sample, 2, lacks cls" in done.stderr) == (0, lacks)


def test_inspect_says_how_many_samples_are_not_adjacent(
    tmp_path: Path, run_inspect: Callable[..., Ran], run: Callable[..., Ran]
) -> None:
    members = [("a.x", b"1"), ("b.x", b"2"), ("b.y", b"3"), ("a.y", b"4"), ("c.x", b"5"), ("c.y", b"6")]
    for name in ("in.tar", "in.tar.gz"):
        write_members(tmp_path / name, members)
        ran = run_inspect(tmp_path / name)
        assert ran.code == 0
        assert "1 sample with members that are not adjacent" in ran.out
        assert "3 samples" in ran.out
        found = run_inspect(tmp_path / name, "--json").json
        assert (found["samples"], found["not_adjacent"], found["shards"][0]["not_adjacent"]) == (3, 1, 1)
        assert found["entries"]["y"]["count"] == 3
        ran = run(tmp_path / name)
        assert ran.code == 0, "it is not a fault"
        assert "1 sample with members that are not adjacent" in ran.err
        assert run(tmp_path / name, "--json").json["files"][0]["not_adjacent"] == 1
        assert run(tmp_path / name, "--no-regroup").code == 1
    write_members(tmp_path / "in.tar", sorted(members))
    assert "adjacent" not in run_inspect(tmp_path / "in.tar").out
    assert "not_adjacent" not in run_inspect(tmp_path / "in.tar", "--json").json


def test_the_first_samples_that_inspect_shows_are_whole(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    expected = scattered(tmp_path / "in.tar.gz")
    shown = run_inspect(tmp_path / "in.tar.gz", "-n", "2", "--json").json["first"]
    assert [(sample["key"], set(sample["entries"])) for sample in shown] == [
        (key, set(entries)) for key, entries in expected[:2]
    ]


@pytest.mark.parametrize("options", [[], ["--regroup"]])
@pytest.mark.parametrize("damaged", range(6))
def test_samples_on_both_sides_of_a_damaged_header_are_faulty_even_if_few_have_all_entries(
    damaged: int, options: list[str], tmp_path: Path
) -> None:
    names = [f"{number}.{name}" for number in range(8) for name in ("cls", "jpg", *(["json"] if number == 4 else []))]
    members = [member(name.encode(), b"1") for name in names]
    data, begin = bytearray(b"".join(members) + END), 1024 * (6 + damaged)
    data[begin + 20] ^= 1
    (tmp_path / "x.tar").write_bytes(data)
    done = tar2tf("convert", tmp_path / "x.tar", "-o", tmp_path / "x.record", "--on-error", "skip", *options)
    assert done.returncode == 1
    complete = {
        str(number): {"cls": b"1", "jpg": b"1", **({"json": b"1"} if number == 4 else {})} for number in range(8)
    }
    for key, entries in contents(tmp_path / "x.record"):
        assert entries == complete[key]


@pytest.mark.parametrize("options", [(), ("--regroup",)])
def test_only_the_samples_next_to_a_damaged_header_are_faulty(options: tuple[str, ...], tmp_path: Path) -> None:
    data = bytearray(b"".join(member(b"%d.cls" % number, b"1") for number in range(9)) + END)
    data[3 * 1024 + 20] ^= 1
    (tmp_path / "x.tar").write_bytes(data)
    done = tar2tf("convert", tmp_path / "x.tar", "-o", tmp_path / "x.record", "--on-error", "skip", *options)
    assert (done.returncode, keys(tmp_path / "x.record")) == (1, ["0", "1", "5", "6", "7", "8"])


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, b"Z"])
def test_a_member_that_cannot_be_an_entry_makes_a_sample_that_came_before_faulty(kind: bytes, tmp_path: Path) -> None:
    """a.jpg, b.jpg, a.png, b.png: when a.png comes, a was given without it."""
    with tarfile.open(tmp_path / "in.tar", "w") as tar:
        for name in ("a.jpg", "b.jpg", "a.png", "b.png"):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = (kind, "elsewhere") if name == "a.png" else (tarfile.REGTYPE, "")
            tar.addfile(info)
    for options in ((), ("--op", "drop_empty"), ("--regroup",)):
        out = tmp_path / f"x{len(options)}-{options[:1] == ('--regroup',)}.record"
        done = tar2tf("convert", tmp_path / "in.tar", "-o", out, "--on-error", "skip", *options)
        assert (done.returncode, keys(out)) == (1, ["b"])
