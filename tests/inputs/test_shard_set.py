"""What belongs together: the shards that a user names, resolved alike for every command and function."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commands import tar2tf
from interruptions import kill_once_published
from shards import large_shards, records, samples, shards_in, small_shards, write_tar
from tar2tf_cli import open_records, verify
from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.conversion.run import convert
from tar2tf_cli.errors import SourceError, Tar2tfError, UsageError
from tar2tf_cli.inputs.manifest import Manifest, changes_between, differing, read_document
from tar2tf_cli.inputs.numbering import conflicting_totals, splits_of
from tar2tf_cli.inputs.shard_set import nothing_found, resolve
from tar2tf_cli.spec.conversion import Conversion, Output
from tar2tf_cli.spec.templates import FileSpec
from verify_runs import an_example, framed, write


def some(count: int, first: int = 0) -> bytes:
    return framed(*(an_example(__key__=b"%04d" % number, n=number) for number in range(first, first + count)))


def run(*arguments: str | Path, code: int = 0, **options: Any) -> str:
    """What a command prints on standard error, and on standard output; it must end with this code."""
    done = tar2tf(*arguments, **options)
    assert done.returncode == code, done.stderr
    return done.stderr + done.stdout


# --- 1: what a folder holds ---


@pytest.mark.parametrize(
    "names",
    [
        ["A.TAR", "b.tar", "e.tar"],
        ["a.record", "b.tfrec", "part-r-00000"],
        ["f_00-3.tfrec"],
        ["a.tfr", "b.tfrecord.deflate"],
        ["x-00000-of-00001.gz"],
    ],
)
def test_convert_inspect_verify_and_diff_find_the_same_shards(names: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for number, name in enumerate(names):
        if name.lower().endswith(".tar"):
            write_tar(folder / name, samples(3, first=3 * number))
        else:
            write(folder / name, some(3, 3 * number))
    (folder / "README.md").write_text("these are shards")
    count = 3 * len(names)
    assert "1 file skipped (neither tar nor TFRecord): README.md" in run("convert", folder, "-o", tmp_path / "o.record")
    assert len(records(tmp_path / "o.record")) == count
    for command in ("verify", "inspect"):
        assert f"{count} " in run(command, folder)
    assert f"equal: {count}" in run("diff", folder, folder)
    with open_records(str(folder)) as found:
        assert len(found) == count


def test_a_folder_of_tars_and_tfrecords_is_an_error_that_says_how_to_choose(tmp_path: Path) -> None:
    write_tar(tmp_path / "in/a-1.tar", samples(3))
    write(tmp_path / "in/part-r-00000", some(3))
    for command in (
        ["convert", tmp_path / "in", "-o", tmp_path / "o.record"],
        ["diff", tmp_path / "in", tmp_path / "in"],
    ):
        said = run(*command, code=2)
        assert "holds 1 tar and 1 TFRecord" in said
        assert "'a-*.tar' or 'part-r-*'" in said
    with pytest.raises(UsageError, match="holds 1 tar and 1 TFRecord"):
        open_records(str(tmp_path / "in"))
    run("convert", tmp_path / "in", "part-r-*", "-o", tmp_path / "o.record")
    assert len(records(tmp_path / "o.record")) == 3


def test_what_lies_next_to_shards_is_no_shard(tmp_path: Path) -> None:
    folder = small_shards(tmp_path / "in", shards=2)
    run("convert", folder, "-o", tmp_path / "out/x-<>.record", "--num-shards", "2", "--index")
    (tmp_path / "out/notes.json").write_text("{}")
    (tmp_path / "out/_SUCCESS").write_text("")
    run("convert", *sorted((tmp_path / "out").glob("*")), "-o", tmp_path / "o.record")
    assert len(records(tmp_path / "o.record")) == 121


# --- 2: numbering ---


@pytest.fixture
def gap(tmp_path: Path) -> Path:
    for number in (0, 1, 3):
        write(tmp_path / f"rec/t.tfrecord-{number:05d}-of-00004", some(1, number))
    return tmp_path / "rec"


def test_a_set_that_states_its_total_and_lacks_a_shard_is_an_error(gap: Path, tmp_path: Path) -> None:
    said = run("convert", gap, "-o", tmp_path / "o.record", code=3)
    assert "the shard t.tfrecord-00002-of-00004 is missing" in said
    assert "--ignore-gaps" in said
    assert not (tmp_path / "o.record").exists()
    assert "t.tfrecord-00002-of-00004" in run("verify", gap, code=1)
    for command in ("inspect", "diff"):
        given = [gap, gap] if command == "diff" else [gap]
        assert "note: 1 shard missing from the numbering, first: t.tfrecord-00002-of-00004" in run(command, *given)


def test_gaps_that_are_accepted_are_recorded_every_time(gap: Path, tmp_path: Path) -> None:
    command = ["convert", gap, "-o", tmp_path / "o.record", "--ignore-gaps"]
    for _ in range(2):
        assert "the inputs lack t.tfrecord-00002-of-00004" in run(*command)
    manifest = json.loads((tmp_path / "_o-manifest.json").read_text())
    assert manifest["skipped"]["gaps"] == ["t.tfrecord-00002-of-00004"]
    run("verify", tmp_path / "_o-manifest.json")


def test_a_gap_without_a_total_is_a_note_in_convert_and_a_fault_in_verify(tmp_path: Path) -> None:
    for number in (0, 1, 3):
        write_tar(tmp_path / f"in/x-{number:03d}.tar", samples(3, first=3 * number))
    assert "note: 1 shard missing from the numbering, first: x-002.tar" in run(
        "convert", tmp_path / "in", "-o", tmp_path / "o.record"
    )
    assert "x-002.tar: this shard is missing from the numbering (gap)" in run("verify", tmp_path / "in", code=1)


def test_two_totals_for_one_prefix_are_an_error(tmp_path: Path) -> None:
    for name in ("x-00000-of-00001", "x-00000-of-00002", "x-00001-of-00002"):
        write(tmp_path / "in" / name, some(1))
    assert "state different totals" in run("convert", tmp_path / "in", "-o", tmp_path / "o.record", code=2)
    assert "state different numbers of shards (totals)" in run("verify", tmp_path / "in", code=1)
    run("convert", tmp_path / "in", "*-of-00002", "-o", tmp_path / "o.record")


@pytest.mark.parametrize("template", ["t.tfrecord-00000-of-00004", "*-0000[01]-*", "*-0000[03]-*"])
def test_to_name_some_shards_of_a_set_is_no_gap(gap: Path, tmp_path: Path, template: str) -> None:
    for command in (["verify", gap, template], ["convert", gap, template, "-o", tmp_path / "o.record"]):
        assert "missing" not in run(*command)
    paths = [*gap.glob(template)][:1]
    assert "missing" not in run("verify", *paths)


def test_totals_conflict_only_in_one_series() -> None:
    assert conflicting_totals(["a-0-of-2", "b-0-of-3", "a-1-of-2"]) == ()
    assert conflicting_totals(["a-0-of-2.gz", "a-0-of-3.gz"]) == ("a-0-of-2.gz", "a-0-of-3.gz")


def test_a_name_with_a_number_of_shards_is_read_and_written(tmp_path: Path) -> None:
    shards = small_shards(tmp_path / "in", shards=2)
    run("convert", shards, "-o", tmp_path / "out/x.tfrecord@3")
    names = [f"x.tfrecord-0000{number}-of-00003" for number in range(3)]
    assert [path.name for path in shards_in(tmp_path / "out", "x.*-of-*")] == names
    for given in ([tmp_path / "out/x.tfrecord@3"], [tmp_path / "out", "x.tfrecord@3"]):
        run("convert", *given, "-o", tmp_path / "again.record", "--overwrite")
        assert records(tmp_path / "again.record") == records(*shards_in(tmp_path / "out", "x.*-of-*"))
    assert "3 files, 121 records" in run("verify", tmp_path / "out/x.tfrecord@3")
    (tmp_path / "out" / names[1]).unlink()
    assert f"has no {names[1]!r}" in run("convert", tmp_path / "out/x.tfrecord@3", "-o", tmp_path / "o.record", code=3)
    run("convert", shards, "-o", tmp_path / "tars/y.tar@2")
    assert sorted(path.name for path in (tmp_path / "tars").glob("*.tar")) == [
        "y-00000-of-00002.tar",
        "y-00001-of-00002.tar",
    ]
    write(tmp_path / "one@3", some(2))
    run("verify", tmp_path / "one@3")


@pytest.mark.parametrize("name", ["x", "a@b", "x@0", "x-@00100-s", "{a,b}@3", "x@64/y"])
def test_other_names_state_no_number_of_shards(name: str) -> None:
    assert FileSpec.parse(name) is None


# --- 3: unfinished conversions ---


@pytest.fixture
def unfinished(tmp_path: Path) -> Path:
    """A folder with some shards of a conversion that was killed."""
    shards = large_shards(tmp_path / "in", shards=6, each=40, size=60_000)
    out = tmp_path / "out"
    command = ["convert", shards, "-o", out / "x-<>.record", "--max-shard-size", "700kB", "-j", "1"]
    kill_once_published("x-1.record", *command)
    assert (out / ".x-manifest.tar2tf/journal").exists()
    return out


def test_an_unfinished_conversion_never_passes_for_a_complete_one(unfinished: Path, tmp_path: Path) -> None:
    said = "_x-manifest.json is not finished"
    assert f"{said} (unfinished)" in run("verify", unfinished, code=1)
    assert f"{said} (unfinished)" in run("verify", *shards_in(unfinished), code=1)
    assert said in run("convert", unfinished, "-o", tmp_path / "o.record", code=3)
    assert "the inputs lack _x-manifest.json" in run(
        "convert", unfinished, "-o", tmp_path / "o.record", "--ignore-gaps"
    )
    assert said in run("inspect", unfinished)
    assert said in run("diff", unfinished, unfinished)
    run("convert", tmp_path / "in", "-o", unfinished / "x-<>.record", "--max-shard-size", "700kB", "-j", "1")
    run("verify", unfinished)


@pytest.mark.parametrize(
    ("second", "options"),
    [("x-00001.record", ["x.record"]), ("x-1.record", ["<split>/x-<>.record", "--split", "train=0.9,val=0.1"])],
)
def test_an_unfinished_conversion_is_noticed_however_its_output_is_named(
    second: str, options: list[str], tmp_path: Path
) -> None:
    shards = large_shards(tmp_path / "in", shards=6, each=40, size=60_000)
    path, *split = options
    command = ["convert", shards, "--max-shard-size", "700kB", "-j", "1", *split, "-o", tmp_path / "out" / path]
    kill_once_published(second, *command)
    folder = next(tmp_path.glob("out/**/x-*.record")).parent
    assert "_x-manifest.json is not finished (unfinished)" in run("verify", folder, code=1)


def test_an_update_that_was_killed_is_noticed_among_several_manifests(unfinished: Path, tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "small.tar", samples(3))
    for name in ("first", "second"):
        run("convert", tar, "-o", tmp_path / name / "x-<>.record")
    shutil.copytree(unfinished / ".x-manifest.tar2tf", tmp_path / "first/.x-manifest.tar2tf")
    manifests = [str(tmp_path / f"{name}/_x-manifest.json") for name in ("first", "second")]
    says = f"the conversion that writes {manifests[0]} is not finished"
    for one, other in (manifests, manifests[::-1]):
        shards = resolve(one, [other])
        assert [*shards.notes()] == [f"note: {says}"]
        assert shards.lacking() == ["_x-manifest.json"]
        with pytest.raises(SourceError) as caught:
            shards.check_complete()
        hint = "run the command that writes it again, or add --ignore-gaps to use the shards that exist"
        assert (caught.value.message, caught.value.hint) == (says, hint)


def test_a_folder_above_that_may_not_be_listed_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shards, listed = small_shards(tmp_path / "in"), os.listdir

    def refusing(folder: str) -> list[str]:
        if folder == str(tmp_path):
            raise PermissionError(13, "Permission denied", folder)
        return listed(folder)

    monkeypatch.setattr(os, "listdir", refusing)
    assert verify(str(shards), workers=1).ok


def test_the_conversion_itself_may_continue_in_the_folder_of_its_inputs(tmp_path: Path) -> None:
    shards = large_shards(tmp_path / "in", shards=6, each=40, size=60_000)
    command = ["convert", shards, "-o", shards / "x-<>.record", "--max-shard-size", "700kB", "-j", "1"]
    kill_once_published("x-1.record", *command)
    run(*command)
    assert len(records(*shards_in(shards))) == 255


# --- 4: earlier outputs, and splits ---


def test_outputs_of_earlier_conversions_are_no_inputs(tmp_path: Path) -> None:
    for name, first in (("a.tar", 0), ("b.tar", 10)):
        write_tar(tmp_path / name, samples(10, first=first))
    run("convert", ".", "-o", "small.tar", "--limit", "3", cwd=tmp_path)
    for _ in range(2):
        said = run("convert", ".", "-o", "all-<>.tar", "--num-shards", "2", cwd=tmp_path)
        assert "left out, which earlier conversions made of the others" in said
    assert "20 samples" in run("inspect", ".", cwd=tmp_path)
    assert sum(len(list(open_records(str(path)))) for path in sorted(tmp_path.glob("all-*.tar"))) == 20
    assert "2 files, 20 samples" in run("verify", ".", cwd=tmp_path)


def test_an_output_elsewhere_is_a_folder_of_shards_as_any_other(tmp_path: Path) -> None:
    shards = small_shards(tmp_path / "in", shards=2)
    run("convert", shards, "-o", tmp_path / "out/x-<>.record", "--num-shards", "3")
    shutil.copytree(tmp_path / "out", tmp_path / "copy")
    write(tmp_path / "copy/y.record", some(3, 9000))
    run("convert", tmp_path / "copy", "-o", tmp_path / "o.record")
    assert len(records(tmp_path / "o.record")) == 124


@pytest.fixture
def splits(tmp_path: Path) -> Path:
    for name, first in (("train-00000-of-00002", 0), ("train-00001-of-00002", 5), ("validation-00000-of-00001", 10)):
        write(tmp_path / "tf" / name, some(5, first))
    return tmp_path / "tf"


def test_splits_are_kept_or_chosen_and_never_merged_in_silence(splits: Path, tmp_path: Path) -> None:
    said = run("convert", splits, "-o", tmp_path / "o.record", code=2)
    assert "holds the splits train, validation" in said
    assert "<split>" in said
    with pytest.raises(UsageError, match="holds the splits train, validation"):
        open_records(str(splits))
    run("convert", splits, "train*", "-o", tmp_path / "train.record")
    assert len(records(tmp_path / "train.record")) == 10
    assert "note: the shards belong to the splits train, validation" in run(
        "convert", splits, "*", "-o", tmp_path / "all.record"
    )
    run("convert", splits, "-o", tmp_path / "out/<split>-<>.record")
    assert len(records(*shards_in(tmp_path / "out", "train-*"))) == 10
    assert len(records(*shards_in(tmp_path / "out", "validation-*"))) == 5


def test_an_output_with_splits_is_resharded_without_a_new_split(tmp_path: Path) -> None:
    shards = small_shards(tmp_path / "in", shards=3)
    run("convert", shards, "-o", tmp_path / "a/<split>-<>.record", "--split", "first=0.7,second=0.3")
    for given in (tmp_path / "a/_manifest.json", tmp_path / "a"):
        out = tmp_path / f"b-{given.name}"
        run("convert", given, "-o", out / "<split>-<000>.record", "--num-shards", "2")
        for split in ("first", "second"):
            before, after = (shards_in(folder, f"{split}-*") for folder in (tmp_path / "a", out))
            assert records(*after) == records(*before)
        manifest = json.loads((out / "_manifest.json").read_text())
        assert {shard["split"] for shard in manifest["shards"]} == {"first", "second"}
    assert "holds the splits first, second" in run(
        "convert", tmp_path / "a/_manifest.json", "-o", tmp_path / "o.record", code=2
    )


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (["train-0", "val-0"], ["train", "val"]),
        (["d-train.tfrecord-00000-of-00001", "d-test.tfrecord-00000-of-00001"], ["train", "test"]),
        (["train/0.tar", "validation/0.tar"], ["train", "validation"]),
        (["test-bed-train-0", "test-bed-val-0"], ["train", "val"]),
        (["train-0", "train-1"], []),
        (["a-0", "a-1"], []),
        (["training_0", "testing_0"], ["training", "testing"]),
    ],
)
def test_the_splits_that_names_state(names: list[str], splits: list[str]) -> None:
    assert [*splits_of(names).values()] == splits


# --- 6: what cannot be read ---

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 10240\n"
UNREADABLE = {"1.tar": (POINTER, "Git LFS pointer"), "2.tar": (b"", "empty"), "3.tar": (b"<html>404</html>", "text")}


def test_what_cannot_be_read_is_named_by_every_command(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    good = write_tar(folder / "0.tar", samples(3))
    other = write_tar(tmp_path / "other/0.tar", samples(3)).parent
    for name, (data, _) in UNREADABLE.items():
        write(folder / name, data)
    for command in (["inspect", folder], ["index", folder], ["diff", other, folder]):
        said = run(*command, code=3)
        for name, (_, what) in UNREADABLE.items():
            assert f"{name}: is " in said
            assert what in said
    assert "3 of 4 files faulty" in run("verify", folder, code=1)
    assert "1.tar" in run("convert", folder, "-o", tmp_path / "o.record", code=3)
    assert not (tmp_path / "o.record").exists()
    said = run("convert", good, "--join", folder, "--join-missing", "keep", "-o", tmp_path / "o.record", code=3)
    assert "1.tar: cannot be joined: it is a Git LFS pointer" in said
    (tmp_path / "empty.tfrecord").write_bytes(b"")
    said = run("convert", good, "--join", tmp_path / "empty.tfrecord", "-o", tmp_path / "o.record", code=3)
    assert "empty.tfrecord: is empty, so nothing can be joined" in said


# --- 7: side files of other tools ---


def test_files_that_describe_shards_to_other_tools_are_named_and_left_alone(tmp_path: Path) -> None:
    for number in range(2):
        write(tmp_path / f"in/d-train.tfrecord-0000{number}-of-00002", some(2, 2 * number))
    info = b'{"name": "d", "version": "1.0.0", "splits": [{"name": "train", "shardLengths": ["2", "2"]}]}'
    write(tmp_path / "in" / "dataset_info.json", info)
    write(tmp_path / "in" / "features.json", b'{"featuresDict": {}}')
    said = "described for TensorFlow Datasets, by dataset_info.json, features.json: d 1.0.0 with 1 split (train)"
    for command in (["inspect"], ["verify"], ["convert", "-o", tmp_path / "o.record"]):
        assert said in run(command[0], tmp_path / "in", *command[1:])
    with open_records(str(tmp_path / "in")) as found:
        assert len(found) == 4


# --- 8: words ---


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (
            ["a-1.tar", "part-r-00000"],
            "holds 1 tar and 1 TFRecord; name one kind with a template, such as 'a-*.tar' or 'part-r-*'",
        ),
        (
            ["a.tar", "b.tar", "x.tfrecord", "y.record"],
            "holds 2 tars and 2 TFRecords; name one kind with a template, such as '*.tar' or '*.tfrecord'",
        ),
        (
            ["a.tar", "records"],
            "holds 1 tar and 1 TFRecord; name one kind with a template, such as '*.tar' or 'records'",
        ),
        (
            ["x-00000-of-00001", "x-00000-of-00002", "x-00001-of-00002"],
            "holds shards of two sets with one name: x-00000-of-00001 and x-00000-of-00002 state different totals;"
            " name the shards of one with a template, such as '*-of-00002'",
        ),
        (
            ["x-00000-of-00002"],
            "the shard x-00001-of-00002 is missing; restore it, or add ignore_gaps=True to convert the others",
        ),
        (
            ["x-00001-of-00005", "x-00003-of-00005", "y-00000-of-00002"],
            "the shard x-00000-of-00005 and 3 more are missing; restore it, or add"
            " ignore_gaps=True to convert the others",
        ),
        (
            ["train-0.record", "test-0.record", "test-1.record"],
            "holds the splits test, train; keep each, or name one with a template, such as 'test*'",
        ),
    ],
    ids=lambda value: value.partition("; ")[0] if isinstance(value, str) else "",
)
def test_sets_that_are_no_set_are_refused_with_what_to_do(names: list[str], says: str, tmp_path: Path) -> None:
    for number, name in enumerate(names):
        if name.endswith(".tar"):
            write_tar(tmp_path / name, samples(2, first=2 * number))
        else:
            write(tmp_path / name, some(2, 2 * number))
    shards = resolve(str(tmp_path))
    found = []
    for check in (shards.check_kinds, shards.check_totals, shards.check_one_split, shards.check_complete):
        try:
            check(*["keep each, or "] * (check == shards.check_one_split))  # type: ignore[operator]
        except Tar2tfError as error:
            found.append(str(error))
    assert found[:1] == [f"{tmp_path}: {says}"]


def test_notes_name_what_was_left_out_and_what_is_missing(tmp_path: Path) -> None:
    for number in (0, 2, 5):
        write(tmp_path / f"x-{number}.record", some(2, number))
    for name in ("a.txt", "b.md", "x-0.record.idx", "x-7.record.idx"):
        write(tmp_path / name, b"1 2\n")
    shards = resolve(str(tmp_path))
    assert [item.name for item in shards.items] == ["x-0.record", "x-2.record", "x-5.record"]
    assert [*shards.notes()] == ["note: 3 shards missing from the numbering, first: x-1.record"]
    assert [*shards.notes(of_faults=False)] == []
    assert [*shards.note_on_others()] == ["2 files skipped (neither tar nor TFRecord): a.txt, b.md"]
    assert shards.lacking() == []
    for name in ("x-1-of-4", "x-3-of-4"):
        write(tmp_path / "of" / name, some(1))
    assert resolve(str(tmp_path / "of")).lacking() == ["x-0-of-4", "x-2-of-4"]


def test_a_folder_has_one_manifest(tmp_path: Path) -> None:
    write_tar(tmp_path / "in.tar", samples(4))
    for name in ("a", "b", "c", "d"):
        run("convert", tmp_path / "in.tar", "-o", tmp_path / f"out/{name}.record")
    with pytest.raises(UsageError) as caught:
        resolve(str(tmp_path / "out")).folder_manifest()
    names = "_a-manifest.json, _b-manifest.json, _c-manifest.json"
    assert str(caught.value) == f"{tmp_path}/out: has 4 manifests; name one: {names}"
    for name in ("b", "c", "d"):
        (tmp_path / f"out/_{name}-manifest.json").unlink()
    assert resolve(str(tmp_path / "out")).folder_manifest() == f"{tmp_path}/out/_a-manifest.json"
    assert resolve(str(tmp_path / "out/a.record")).folder_manifest() is None


# --- In one process ---


def refused(function: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[str, str, str | None, str | None]:
    """The class of an error, its message, path and hint."""
    with pytest.raises(Tar2tfError) as raised:
        function(*arguments, **options)
    return type(raised.value).__name__, raised.value.message, raised.value.shard, raised.value.hint


def test_paths_that_name_no_shards_are_refused_or_become_inputs_that_fail(tmp_path: Path) -> None:
    tar = str(write_tar(tmp_path / "a.tar", samples(1)))
    other = str(write_tar(tmp_path / "b.tar", samples(1)))
    (tmp_path / "empty").mkdir()
    empty, missing = str(tmp_path / "empty"), str(tmp_path / "c.tar")
    assert [*map(str, resolve(tar, [other], paths=True).splits)] == []
    assert [item.name for item in resolve(tar, [other], paths=True).items] == [tar, other]
    hint = "for shards in subfolders, give a template such as '**/*'"
    nothing = ("NoShardsError", "holds no tar or TFRecord", empty, "name the shards with a template")
    assert refused(resolve, tar, [empty], paths=True) == nothing
    (tmp_path / "empty" / "notes.txt").write_text("no shard")
    assert refused(resolve, tar, [empty], paths=True) == (*nothing[:3], hint)
    tolerant = resolve(tar, [empty], paths=True, tolerant=True)
    assert [item.name for item in tolerant.items] == [tar, empty]
    with pytest.raises(SourceError) as raised:
        tolerant.source.open(tolerant.items[1])
    assert (raised.value.message, raised.value.shard) == (nothing[1], empty)
    assert refused(resolve, tar, [other, tar], paths=True) == ("UsageError", "is given twice", tar, None)
    message = f"there is no such file or directory, and {tar} is a single file, so it takes no template"
    assert refused(resolve, tar, [other, missing], paths=True) == ("SourceError", message, missing, None)
    message = "a manifest takes no template, as it lists its shards; give only further manifests"
    assert refused(resolve, str(tmp_path / "_x-manifest.json"), [tar]) == ("UsageError", message, None, None)


def test_a_bucket_without_shards_says_how_to_name_them() -> None:
    hints = {
        "https://a/b?key=1": ("https://a/b", "name its shards with braces, such as 'train-{0000..0146}.tar'"),
        "http://a/b": ("http://a/b", "name its shards with braces, such as 'train-{0000..0146}.tar'"),
        "s3://a/b": ("s3://a/b", "for shards in subfolders, give a template such as '**/*'"),
    }
    for bucket, (shown, hint) in hints.items():
        error = nothing_found(bucket)
        assert (error.message, error.shard, error.hint) == ("holds no tar or TFRecord", shown, hint)
    assert nothing_found("s3://a", "look").hint == "look"


def test_a_set_has_faults_that_say_what_it_lacks(tmp_path: Path) -> None:
    for name in ("t-00000-of-00002", "t-00001-of-00002", "t-00000-of-00003"):
        write(tmp_path / name, some(1))
    shards = resolve(str(tmp_path))
    assert [*shards.faults()] == [
        "2 shards missing from the numbering, first: t-00001-of-00003",
        "t-00000-of-00002 and t-00000-of-00003 state different totals",
    ]
    assert [*shards.notes(of_faults=False)] == []
    assert [*shards.notes()] == [f"note: {fault}" for fault in shards.faults()]


def test_manifests_that_cannot_be_read_are_refused_with_their_reason(tmp_path: Path) -> None:
    folder, missing = str(tmp_path), str(tmp_path / "_x-manifest.json")
    hint = "name the manifest in it"
    assert refused(read_document, folder) == ("SourceError", "is a folder, not a manifest", folder, hint)
    assert refused(read_document, missing) == ("NothingFoundError", "the manifest does not exist", missing, None)
    assert Manifest.load(missing) is None
    assert refused(Manifest.load, folder) == ("SourceError", "cannot be read: Is a directory", folder, None)
    paths = {"a-<>.record": True, "a-<>-<>.record": False, "a.record": True}
    manifests = {path: Manifest({"output": {"path": path, "num_shards": 2}}, (), ()) for path in paths}
    assert {path: manifest.template is not None for path, manifest in manifests.items()} == paths


def test_changes_between_inputs_are_counted_and_named() -> None:
    a, b, c, d = (ObjectInfo(name, 1, "1") for name in "abcd")
    assert changes_between([a, b], [a, c, d]) == "2 added (c, d), 1 removed (b)"
    assert changes_between([a, b], [a._replace(size=2), b._replace(version="2")]) == "2 changed (a, b)"
    assert changes_between([a], [a, a]) == "1 added (a)"
    assert changes_between([a, b], [b, a]) == "their order changed"
    before = {"a": 1, "b": {"c": 1, "d": {"e": 1}}, "f": 1}
    assert differing(before, {"a": 1, "b": {"c": 2, "d": {"e": 2}}, "g": 1}) == ["b.c", "b.d.e", "f", "g"]
    assert differing(before, before) == []
    assert differing({"b": {"c": 1}}, {"b": 1}) == ["b"]


def made(source: Path, to: Path, **options: Any) -> Path:
    """Convert in this process; return the manifest."""
    summary = convert(Conversion(str(source), Output(str(to), **options)), workers=1)
    assert summary.manifest
    return Path(summary.manifest)


def test_shards_that_a_conversion_made_of_others_in_the_folder_are_left_out(tmp_path: Path) -> None:
    for name, first in (("a.tar", 0), ("b.tar", 10)):
        write_tar(tmp_path / name, samples(10, first=first))
    made(tmp_path, tmp_path / "new-<>.tar", num_shards=2)
    shards = resolve(str(tmp_path))
    assert [item.name for item in shards.items] == ["a.tar", "b.tar"]
    assert shards.left_out.outputs == ["new-1.tar", "new-2.tar"]
    assert [*shards.notes()] == [
        "note: 2 shards left out, which earlier conversions made of the others: new-1.tar, new-2.tar"
    ]
    assert [document.path for document in shards.documents] == [str(tmp_path / "_new-manifest.json")]
    (tmp_path / "a.tar").unlink()
    (tmp_path / "b.tar").unlink()
    alone = resolve(str(tmp_path))
    assert [item.name for item in alone.items] == ["new-1.tar", "new-2.tar"]
    assert not alone.left_out.outputs


def test_a_manifest_gives_shards_in_its_order_with_splits_and_features(tmp_path: Path) -> None:
    write_tar(tmp_path / "in/a.tar", samples(40))
    out = tmp_path / "out"
    split = convert(
        Conversion(
            str(tmp_path / "in"), Output(str(out / "<split>-<>.record"), records_per_shard=9), split="b=0.5,a=0.5"
        ),
        workers=1,
    )
    manifest = str(split.manifest)
    listed = [shard.path for shard in read_document(manifest).manifest.shards]
    for named in (manifest, str(out)):
        shards = resolve(named)
        assert sorted(item.name for item in shards.items) == sorted(listed)
        assert {name: shards.splits[name] for name in listed} == {name: name[0] for name in listed}
        assert {*shards.described} == {*listed}
        assert {frozenset(features) for features in shards.described.values()} == {
            frozenset(shards.described[listed[0]])
        }
    assert [item.name for item in resolve(manifest).items] == listed
    one = resolve(str(out / listed[0]))
    assert (one.splits, {*one.described}) == ({listed[0]: listed[0][0]}, {listed[0]})
    assert resolve(str(out / listed[0]), described=False).described == {}


def test_shards_that_a_manifest_lists_and_are_missing_or_changed_are_refused_or_tolerated(tmp_path: Path) -> None:
    write_tar(tmp_path / "in/a.tar", samples(20))
    manifest = made(tmp_path / "in", tmp_path / "out/x-<>.record", num_shards=2)
    other = made(tmp_path / "in", tmp_path / "two/y.record")
    first, second = sorted(manifest.parent.glob("x-*"))
    both = resolve(str(manifest), [str(other)])
    assert [Path(item.name).name for item in both.items] == ["x-1.record", "x-2.record", "y.record"]
    assert len(both.documents) == 2
    size = second.stat().st_size
    with second.open("ab") as file:
        file.write(b"more")
    message = f"the file has {size + 4:,} bytes, but {size:,} in the manifest"
    hint = "see tar2tf verify; restore it from a copy, or convert again"
    assert refused(resolve, str(manifest)) == ("DamagedShardError", message, str(second), hint)
    assert len(resolve(str(manifest), tolerant=True).items) == 2
    first.unlink()
    second.write_bytes(second.read_bytes()[:-4])
    missing = ("NothingFoundError", "is missing", str(first), "restore it from a copy, or convert again")
    assert refused(resolve, str(manifest)) == missing
    tolerated = resolve(str(manifest), tolerant=True)
    assert len(tolerated.items) == 2
    assert refused(tolerated.source.open, tolerated.items[0])[1:3] == missing[1:3]
    other.write_text("{}")
    message = "is not a tar2tf manifest"
    hint = "convert writes it next to the shards, such as out/_train-manifest.json"
    assert refused(resolve, str(other), tolerant=True) == ("DamagedShardError", message, str(other), hint)
    several = resolve(str(manifest), [str(other)], tolerant=True)
    assert [Path(item.name).name for item in several.items] == ["x-1.record", "x-2.record", other.name]
    assert refused(several.source.open, several.items[2])[1:3] == (message, str(other))
    found = resolve(str(other.parent))
    assert ([item.name for item in found.items], found.documents) == (["y.record"], ())
