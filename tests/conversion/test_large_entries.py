"""Entries that are not held in memory: stored in pieces, the same bytes; what needs them whole has a limit."""

from __future__ import annotations

import gzip
import json
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest

import tar2tf_cli
from commands import convert, tar2tf
from images import by_pillow, photo
from make_bytes import END, member
from shards import contents, examples, samples, shards_in, write_members, write_tar
from tar2tf_cli import Dataset, Pipeline, inspect, open_records
from tar2tf_cli.checking.inspect import read_samples
from tar2tf_cli.cli import main
from tar2tf_cli.errors import SampleError, UsageError
from tar2tf_cli.events import Events
from tar2tf_cli.ops import Func, Select
from tar2tf_cli.spec.conversion import Conversion, Input, Output

SMALL = ["--max-entry-size", "3kB"]
"""A limit above which entries stay in files; those of the tests are of 2.5 to 7.5 kB, and of one byte."""

LAYOUTS = {
    "one file": ["all.record"],
    "sizes": ["<>.record", "--max-shard-size", "20kB"],
    "skip": ["all.record", "--on-error", "skip"],
    "shuffle": ["<>.record", "--shuffle", "--records-per-shard", "7"],
    "gzip": ["all.gz", "--compression", "gzip"],
    "gzip and size": ["<>.gz", "--compression", "gzip", "--max-shard-size", "20kB"],
    "index": ["<>.record", "--index", "--max-shard-size", "20kB"],
    "select": ["all.record", "--select", "image=jpg,label=cls", "--type", "label=int64", "--type", "image=bytes"],
    "ops": ["all.record", "--op", "rename:image=jpg", "--op", "keep:image,cls=3", "--op", "drop_empty"],
    "webdataset": ["all.record", "--preset", "webdataset"],
    "regroup": ["all.record", "--regroup"],
    "tar": ["<>.tar", "--max-shard-size", "40kB"],
    "tar and skip": ["all.tar", "--on-error", "skip"],
    "tar and select": ["all.tar", "--select", "image=jpg,label=cls", "--type", "label=int64"],
    "tar, gzip and size": ["<>.tar.gz", "--max-shard-size", "20kB"],
}


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_entries_in_files_make_the_same_records(layout: str, suffix: str, tmp_path: Path) -> None:
    path, *options = LAYOUTS[layout]
    tar = write_tar(tmp_path / f"in{suffix}", samples(30, 5000))
    for way, more in (("held", []), ("stored", SMALL)):
        convert(tar, "-o", tmp_path / way / path, *options, *more)
    found = [
        {file.name: file.read_bytes() for file in (tmp_path / way).iterdir() if file.suffix != ".json"}
        for way in ("held", "stored")
    ]
    assert found[0] == found[1]
    assert len(found[0]) >= 1


def test_standard_input_and_output_too(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "in.tar", samples(10, 5000))
    convert(tar, "-o", tmp_path / "held.record")
    with tar.open() as stdin:
        convert("-", "-o", tmp_path / "stored.record", *SMALL, stdin=stdin)
    assert (tmp_path / "held.record").read_bytes() == (tmp_path / "stored.record").read_bytes()


def test_a_hard_link_to_a_large_entry(tmp_path: Path) -> None:
    data = bytes(range(256)) * 20
    with tarfile.open(tmp_path / "in.tar", "w") as tar:
        (tmp_path / "a.bin").write_bytes(data)
        tar.add(tmp_path / "a.bin", "a.bin")
        link = tarfile.TarInfo("b.bin")
        link.type, link.linkname = tarfile.LNKTYPE, "a.bin"
        tar.addfile(link)
    gz = tmp_path / "in.tar.gz"
    gz.write_bytes(gzip.compress((tmp_path / "in.tar").read_bytes()))
    for tar in (tmp_path / "in.tar", gz):
        convert(tar, "-o", tmp_path / "x.record", "--overwrite", *SMALL)
        assert contents(tmp_path / "x.record") == [("a", {"bin": data}), ("b", {"bin": data})]


def test_samples_of_many_entries_are_stored_once_they_are_large(tmp_path: Path) -> None:
    members = [(f"{key}.{number:03}", bytes([number]) * 700_000) for key in "ab" for number in range(100)]
    write_members(tmp_path / "in.tar", members)
    convert(tmp_path / "in.tar", "-o", tmp_path / "x.record")
    found = contents(tmp_path / "x.record")
    assert [(f"{key}.{name}", data) for key, entries in found for name, data in sorted(entries.items())] == members


# --- What needs an entry whole ---

NEEDS = {
    "decode": ["--op", "decode:jpg"],
    "your function": ["--op", "func:own.py:same"],
    "type": ["--type", "jpg=int64_list"],
    "JSON": ["--select", "jpg:label"],
    "keep": ["--op", "keep:cls,jpg=3"],
    "image-label": ["--preset", "image-label"],
}


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz"])
@pytest.mark.parametrize("need", NEEDS)
def test_an_entry_above_the_limit_is_a_faulty_sample(need: str, suffix: str, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def same(sample):\n    return sample\n")
    write_members(tmp_path / f"in{suffix}", [("a.jpg", bytes(5000)), ("a.cls", b"1")])
    arguments = ["convert", f"in{suffix}", "-o", "x.record", *NEEDS[need], *SMALL]
    done = tar2tf(*arguments, cwd=tmp_path)
    assert done.returncode == 3
    assert "a.jpg" in done.stderr
    assert "is 5,000 bytes long" in done.stderr
    assert "3,000" in done.stderr
    assert "--max-entry-size" in done.stderr
    skipped = tar2tf(*arguments, "--on-error", "skip", cwd=tmp_path)
    assert skipped.returncode == 3  # as no sample is left
    assert "1 sample skipped as faulty\n  1 x is 5,000 bytes long" in skipped.stderr


@pytest.mark.parametrize("how", ["file", "stdin", "regroup"])
@pytest.mark.parametrize("linked", [False, True], ids=["file", "hard link"])
def test_a_member_of_more_than_2_gib_is_a_fault_only_if_it_becomes_part_of_an_example(
    how: str, linked: bool, tmp_path: Path
) -> None:
    """As nobody reads it, it may be a hole in the file."""
    path, size = tmp_path / "in.tar", (2 << 30) + 5
    with path.open("wb") as file:
        file.write(member(b"a.cls", b"6") + member(b"a.bin", b"", size=b"\x80" + size.to_bytes(11, "big")))
        file.seek(size + (-size & 511), os.SEEK_CUR)
        file.write(member(b"b.bin", b"", kind=b"1", link=b"a.bin") if linked else member(b"b.bin", b"x"))
        file.write(member(b"b.cls", b"7") + END)
    for option in (["--op", "keep:cls"], ["--select", "cls"]):
        out = tmp_path / f"{option[0]}.record"
        if how == "stdin":
            with path.open("rb") as file:
                done = tar2tf("convert", "-", "-o", out, *option, stdin=file)
        else:
            done = tar2tf("convert", path, "-o", out, *option, *(["--regroup"] if how == "regroup" else []))
        if linked and how == "stdin":
            assert "this input can be read only once" in done.stderr
            continue
        assert done.returncode == 0, done.stderr
        assert [one["cls"] for one in open_records(out)] == [b"6", b"7"]
    failed = tar2tf("convert", path, "-o", tmp_path / "x.record", "--on-error", "skip")
    assert failed.returncode == (3 if linked else 1)  # no sample is left
    assert "2,147,483,6" in failed.stderr
    failed = tar2tf("convert", path, "-o", tmp_path / "y.record")
    assert (failed.returncode, "in.tar, sample a" in failed.stderr) == (3, True), failed.stderr
    assert tar2tf("verify", path).returncode == 0


def test_an_entry_up_to_the_limit_is_used(tmp_path: Path) -> None:
    image = by_pillow(photo(20, 30), "PNG", "RGB")
    write_members(tmp_path / "in.tar", [("a.png", image), ("a.bin", bytes(len(image) + 1))])
    options = ["--op", "decode:png", "--max-entry-size", str(len(image))]
    convert(tmp_path / "in.tar", "-o", tmp_path / "x.record", *options)
    (found,) = examples(tmp_path / "x.record")
    assert len(found["png"][0]) == 20 * 30 * 3
    assert found["bin"] == [bytes(len(image) + 1)], "an entry that no op names may be larger"


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz"])
def test_an_entry_of_one_byte_above_the_limit_is_refused(suffix: str, tmp_path: Path) -> None:
    tar = tmp_path / f"in{suffix}"
    write_members(tar, [("a.json", b'{"a": "b"}'.ljust(3001))])
    for most in (3001, 3000):
        selected = {"a": "json:a"}
        conversion = Conversion(str(tar), str(tmp_path / f"{most}.record"), select=selected, max_entry_size=most)
        if most == 3001:
            assert tar2tf_cli.convert(conversion, workers=1).records == 1
            continue
        with pytest.raises(SampleError) as caught:
            tar2tf_cli.convert(conversion, workers=1)
        fault = "is 3,001 bytes long, but must fit in memory, where the limit is 3,000"
        hint = "raise --max-entry-size (max_entry_size in YAML and Python), or leave the entry out"
        assert (caught.value.message, caught.value.member, caught.value.hint) == (fault, "a.json", hint)


def test_the_limit_in_yaml_and_python(tmp_path: Path) -> None:
    spec = "input: {bucket: in.tar}\noutput: {path: x.record}\nmax_entry_size: 1GiB\n"
    write_members(tmp_path / "in.tar", [("a.jpg", bytes(5000))])
    (tmp_path / "spec.yaml").write_text(spec)
    convert("--spec", "spec.yaml", cwd=tmp_path)
    assert json.loads((tmp_path / "_x-manifest.json").read_bytes())["spec"]["max_entry_size"] == 1 << 30
    assert Conversion("in", "out").max_entry_size == 512 << 20
    assert Conversion("in", "out", max_entry_size="1MB").max_entry_size == 10**6
    with pytest.raises(UsageError, match="max_entry_size"):
        Conversion("in", "out", max_entry_size="much")


@pytest.mark.parametrize("out", ["x.record", "x-<>.record"])
def test_a_pipeline_has_the_limit_too(out: str, tmp_path: Path) -> None:
    write_members(tmp_path / "in.tar", [("a.bin", bytes(5000))])

    def go(most: str, *, own: bool) -> None:
        pipeline = Pipeline(max_entry_size=most).from_tar(tmp_path / "in.tar")
        pipeline = pipeline.with_samples_stage(lambda made: made) if own else pipeline
        pipeline.sample_to_tf_example().to_tf_record(tmp_path / out, overwrite=True).do()

    go("3kB", own=False)
    assert examples(*shards_in(tmp_path)) == [{"__key__": [b"a"], "bin": [bytes(5000)]}]
    with pytest.raises(SampleError, match=r"a\.bin.*is 5,000 bytes long"):
        go("3kB", own=True)
    go("1MB", own=True)


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz"])
def test_functions_and_datasets_get_bytes(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tar2tf_cli.formats.files.LARGE_VALUE", 1000)
    write_tar(tmp_path / f"in{suffix}", samples(6, 5000))

    def check(sample: dict[str, object]) -> dict[str, object]:
        assert type(sample["jpg"]) is bytes
        return {**sample, "size": np.int64(len(sample["jpg"]))}

    made = Dataset(str(tmp_path), None, [Func(check)], [Select("size")]).load(f"in{suffix}")
    assert [int(size) for size in made] == [len(entries["jpg"]) for _, entries in samples(6, 5000)]


def test_the_dry_run_shows_a_large_entry(tmp_path: Path) -> None:
    write_members(tmp_path / "in.tar", [("a.bin", bytes(5000))])
    done = tar2tf("convert", tmp_path / "in.tar", "-o", tmp_path / "x.record", "--dry-run", *SMALL)
    assert "bytes, 5,000 long" in done.stdout


@pytest.mark.parametrize("pure", ["", "1"])
def test_entries_that_stay_in_files_count_as_read(pure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tar2tf_cli.engines.base.PROGRESS_SECONDS", -1)  # after every block
    monkeypatch.setenv("TAR2TF_PURE", pure)
    tar = write_tar(tmp_path / "in.tar", samples(30, 5000))
    seen: list[int] = []

    class Progress(Events):
        def progress(self, size: int) -> None:
            seen.append(size)

    conversion = Conversion(str(tar), str(tmp_path / "x.record"), max_entry_size=3000)
    tar2tf_cli.convert(conversion, workers=1, events=Progress())
    assert seen == sorted(seen)
    assert seen[-1] == tar.stat().st_size


# --- What is larger than an example may be ---


@pytest.fixture
def with_a_huge_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compressed tar with a member that is too large to be copied, as if an example had at most 1 MB."""
    monkeypatch.setattr("tar2tf_cli.formats.tar.MAX_RECORD", 1_000_000)
    members = [("a.bin", b"a"), ("huge.bin", b"beginning" + bytes(2_000_000)), ("z.bin", b"z")]
    write_members(tmp_path / "in.tar.gz", members)
    return tmp_path / "in.tar.gz"


def test_a_member_too_large_to_be_copied_is_a_fault_of_its_sample_in_tars_too(with_a_huge_one: Path) -> None:
    out = with_a_huge_one.with_name("new.tar")
    done = tar2tf_cli.convert(Conversion(Input(with_a_huge_one), Output(out), on_error="skip"), workers=1)
    assert (done.records, done.skipped_samples) == (2, 1)
    assert [sample["__key__"] for sample in open_records(out)] == [b"a", b"z"]


def test_a_member_too_large_to_be_copied_is_inspected(with_a_huge_one: Path) -> None:
    seen = inspect(with_a_huge_one, workers=1)
    assert (seen.samples, seen.entries["bin"].most) == (3, 2_000_009)
    raw = [*read_samples(str(with_a_huge_one), heads_only=True)]
    assert raw[1].entries["bin"].example.startswith("62 65 67 69 6e")


@pytest.mark.parametrize("pure", ["0", "1"])
def test_a_small_limit_of_entries_holds_for_many_samples_at_once(
    pure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TAR2TF_PURE", pure)
    write_members(tmp_path / "x.tar", ((f"{number}.txt", b"5" * (100 + (number == 3))) for number in range(5)))
    convert = ["convert", str(tmp_path / "x.tar"), "-o", str(tmp_path / "x.record"), "--op", "filter:txt>0"]
    with pytest.raises(SystemExit, match="3"):
        main([*convert, "--max-entry-size", "100"])
    assert "member 3.txt, offset 3072: is 101 bytes long, but must fit in memory, where the limit is 100" in (
        capsys.readouterr().err
    )
    with pytest.raises(SystemExit, match="0"):
        main([*convert, "--max-entry-size", "101"])
