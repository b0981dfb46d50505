"""A conversion that is run again: finished runs, changed inputs, two at once, and what is there already."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commands import SECONDS, convert, end, start, tar2tf, wait_until
from interruptions import WAYS, kill_once_published, reading_stdin, stderr_of
from shards import contents, every_file, mixed_shards, samples, samples_of, shards_in, small_shards, tree, write_tar
from tar2tf_cli.conversion import working_folder
from tar2tf_cli.conversion.run import convert as run_conversion
from tar2tf_cli.errors import SinkError
from tar2tf_cli.events import Events
from tar2tf_cli.spec.conversion import Conversion, Output

# --- 7. A finished run, changed inputs, changed spec ---


def stats(folder: Path) -> dict[str, tuple[int, int, int]]:
    """What shows whether a file was touched."""
    found = {str(path): path.lstat() for path in [folder, *folder.rglob("*")]}
    return {path: (status.st_ino, status.st_mtime_ns, status.st_size) for path, status in found.items()}


@pytest.mark.parametrize(
    "options",
    [
        ["train-<>.record", "--max-shard-size", "20kB"],
        ["train-<0>-of-<total>.record", "--records-per-shard", "50"],
        ["<split>/<>.record", "--split", "a=0.5,b=0.5"],
        ["<input>.record"],
        ["<input>"],
        ["one.record", "--index"],
        ["train-<>.record", "--limit", "0"],
    ],
)
def test_a_finished_run_is_a_no_op(options: list[str], small: Path, tmp_path: Path) -> None:
    path, *rest = options
    command = ["convert", small, "-o", tmp_path / path, *rest]
    assert tar2tf(*command).returncode == 0
    before = stats(tmp_path)
    done = tar2tf(*command, "-j", "3")
    assert done.returncode == 0
    assert "up to date" in done.stderr
    assert stats(tmp_path) == before


@pytest.mark.parametrize("spelled", ["{}/", "./{}", ".//{}/."])
def test_another_spelling_of_the_same_folder_is_the_same_command(spelled: str, small: Path, tmp_path: Path) -> None:
    command = ["-o", tmp_path / "x.record"]
    assert tar2tf("convert", small.name, *command, cwd=small.parent).returncode == 0
    done = tar2tf("convert", spelled.format(small.name), *command, cwd=small.parent)
    assert (done.returncode, "up to date" in done.stderr) == (0, True), done.stderr


def test_a_finished_run_that_skipped_samples_says_so_and_keeps_their_list(tmp_path: Path) -> None:
    write_tar(tmp_path / "in.tar", [*samples(10), ("x", {"cls": b"x", "jpg": b""})])
    errors = tmp_path / "errors.jsonl"
    command = ["convert", tmp_path / "in.tar", "-o", tmp_path / "x.record", "--type", "cls=int64"]
    command += ["--on-error", "skip", "--errors", errors]
    assert tar2tf(*command).returncode == 1
    listed = errors.read_text()
    assert listed.count("\n") == 1
    done = tar2tf(*command, "--json")
    assert done.returncode == 1
    assert "up to date" in done.stderr
    assert "1 sample skipped" in done.stderr
    assert json.loads(done.stdout)["skipped"]["samples"] == 1
    assert errors.read_text() == listed


def refused(*arguments: str | Path, folder: Path, **options: Any) -> str:
    """Run a command that has to refuse and to leave a folder as it is; what it says."""
    before = stats(folder)
    done = tar2tf(*arguments, **options)
    assert done.returncode == 2, done.stderr
    after = stats(folder)
    before.pop(str(folder), None), after.pop(str(folder), None)
    assert after == before
    return done.stderr


def test_changed_inputs_and_changed_specs_are_refused(tmp_path: Path) -> None:
    bucket, out = small_shards(tmp_path / "in"), tmp_path / "out"
    command = ["convert", bucket, "-o", out / "train-<>.record", "--max-shard-size", "20kB"]
    assert tar2tf(*command).returncode == 0
    for option, named in (
        (["--seed", "1", "--shuffle"], "seed was not given, is 1; shuffle was not given, is true"),
        (["--max-shard-size", "21kB"], "output.max_shard_size was 20000, is 21000"),
        (["--type", "cls=int64"], 'types was not given, is {"cls": "int64"}'),
        (["--index"], "output.index was not given, is true"),
    ):
        text = refused(*command, *option, folder=out)
        assert f"was made with other options: {named}" in text
        assert "--overwrite" in text
    write_tar(bucket / "small-1.tar", samples(60, first=5000))
    text = refused(*command, folder=out)
    assert "small-1.tar" in text
    assert "--overwrite" in text
    write_tar(bucket / "small-9.tar", samples(3, first=9000))
    assert "small-9.tar" in refused(*command, folder=out)


def test_an_interrupted_run_with_another_spec_is_refused(bucket: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ["convert", bucket, "-o", out / "train-<>.record", "-j", "2"]
    kill_once_published("train-2.record", *command, "--max-shard-size", "200kB")
    assert not (out / "_train-manifest.json").exists()
    text = refused(*command, "--max-shard-size", "300kB", folder=out)
    assert "interrupted" in text
    assert tar2tf(*command, "--max-shard-size", "3MB", "--overwrite").returncode == 0
    assert contents(*shards_in(out)) == samples_of(*sorted(bucket.iterdir()))


MEDDLING = """
import os, shutil
from tar2tf_cli.sinks import Flusher
def meddle(sample):
    if sample["__key__"] == "2000" and os.path.exists({new!r}):
        shutil.copyfile({new!r}, {path!r})
        os.unlink({new!r})
    return sample
submit = Flusher.submit
Flusher.submit = lambda flusher, paths, item: submit(flusher, [], item)  # shards before it are there at once
"""


@pytest.mark.parametrize("path", ["train-<>.record", "train-<0>-of-<total>.record"])
@pytest.mark.parametrize("kept", [True, False], ids=["more samples", "fewer samples"])
def test_after_an_input_changed_the_same_command_goes_on(path: str, kept: bool, tmp_path: Path) -> None:
    bucket = small_shards(tmp_path / "in")
    new = write_tar(tmp_path / "new.tar", samples(90 if kept else 1, first=2000))
    os.utime(bucket / "small-2.tar", ns=(1, 1))
    op = tmp_path / "op.py"
    op.write_text(MEDDLING.format(new=str(new), path=str(bucket / "small-2.tar")))
    command = ["convert", bucket, "-o", tmp_path / "out" / path, "--records-per-shard", "30", "-j", "1"]
    command += ["--op", f"func:{op}:meddle"]
    done = tar2tf(*command)
    assert done.returncode == 3
    assert "small-2.tar: changed while it was being read" in done.stderr
    assert "run the same command again" in done.stderr
    assert bool(shards_in(tmp_path / "out")) == ("total" not in path)
    assert tar2tf(*command).returncode == 0
    assert contents(*shards_in(tmp_path / "out")) == samples_of(*sorted(bucket.iterdir()))
    convert(*command[1:3], tmp_path / "fresh" / path, *command[4:])
    assert tree(tmp_path / "out").keys() == tree(tmp_path / "fresh").keys()


def test_overwrite_leaves_no_stale_shard_of_the_former_manifest(small: Path, tmp_path: Path) -> None:
    reference, out = tmp_path / "reference", tmp_path / "out"
    convert(small, "-o", reference / "train-<>.tfrecord", "--records-per-shard", "100")
    convert(small, "-o", out / "train-<>.tfrecord", "--records-per-shard", "9", "--index")
    assert len(list(out.glob("*.idx"))) == 28
    (out / "train-foreign.tfrecord").write_text("keep me")
    done = convert(small, "-o", out / "train-<>.tfrecord", "--records-per-shard", "100", "--overwrite")
    assert "removed 25 files of the earlier output: train-10.tfrecord, train-11.tfrecord" in done.stderr
    (out / "train-foreign.tfrecord").unlink()
    assert tree(out) == tree(reference)


def test_files_of_the_former_manifest_with_other_names_stay_and_are_named(small: Path, tmp_path: Path) -> None:
    convert(small, "-o", tmp_path / "train-<>.record", "--records-per-shard", "100")
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.record")}
    done = convert(small, "-o", tmp_path / "train-<>.tfrecord", "--overwrite")
    assert (
        "files with other names in the existing manifest are kept: train-1.record, train-2.record, train-3.record"
        in done.stderr
    )
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.record")} == before


@pytest.mark.parametrize("index", [[], ["--index"]])
def test_what_is_named_like_a_shard_and_is_none_is_kept_and_named(
    index: list[str], small: Path, tmp_path: Path
) -> None:
    for number in range(1, 6):
        (tmp_path / f"x-{number}.record").write_text("precious")
    command = [small, "-o", tmp_path / "x-<>.record", "--records-per-shard", "100", *index]
    done = convert(*command, "--overwrite")
    strays = "not part of this output, though named like its shards, and kept: x-4.record, x-5.record\n"
    assert strays in done.stderr
    assert [(tmp_path / f"x-{number}.record").read_text() for number in (4, 5)] == ["precious"] * 2
    verified = tar2tf("verify", tmp_path / "_x-manifest.json")
    assert (verified.returncode, "x-5.record: the manifest does not list this shard" in verified.stdout) == (1, True)
    (tmp_path / "x-4.record").unlink()
    (tmp_path / "x-5.record").unlink()
    assert "not part of" not in convert(*command, "--overwrite").stderr


@pytest.mark.parametrize("options", [["--overwrite"], ["--update"], []])
@pytest.mark.parametrize("template", ["x-<>.record", "<input>.record", "<split>/x-<>.record"])
def test_a_manifest_cannot_have_other_files_removed(
    template: str, options: list[str], small: Path, tmp_path: Path
) -> None:
    """None with another name, none that is hidden, and none behind a link."""
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    path, named = home / template, ["--split", "a=0.5,b=0.5"] if "<split>" in template else []
    convert(small, "-o", path, *named)
    (manifest,) = home.glob("*manifest.json")
    for place in (home / ".ssh" / "authorized_keys", home / "notes.txt", elsewhere / "x-9.record", elsewhere / "a.txt"):
        place.parent.mkdir(exist_ok=True)
        place.write_text("precious")
    (home / "link").symlink_to(elsewhere)
    whole = json.loads(manifest.read_text())
    others = [".ssh/authorized_keys", "notes.txt", "link/x-9.record", "link/a.txt"]
    whole["shards"] += [{**whole["shards"][0], "path": name} for name in others]
    whole["documents"] = others
    manifest.write_text(json.dumps(whole))
    (small_copy := tmp_path / "in").mkdir()
    for tar in sorted(small.iterdir())[:3]:
        shutil.copy2(tar, small_copy)
    tar2tf("convert", small_copy, "-o", path, *named, *options)
    found = [home / ".ssh" / "authorized_keys", home / "notes.txt", elsewhere / "x-9.record", elsewhere / "a.txt"]
    assert [place.read_text() for place in found] == ["precious"] * 4


def test_overwrite_removes_nothing_outside_its_folder(small: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious.record"
    precious.write_text("keep me")
    out = tmp_path / "out"
    convert(small, "-o", out / "train-<>.record")
    manifest = json.loads((out / "_train-manifest.json").read_text())
    for path in ("../precious.record", str(precious), "x/../../precious.record"):
        manifest["shards"].append({**manifest["shards"][0], "path": path})
    (out / "_train-manifest.json").write_text(json.dumps(manifest))
    convert(small, "-o", out / "train-<>.record", "--overwrite", "--shuffle")
    assert precious.read_text() == "keep me"


@pytest.mark.parametrize("what", ["train-2.record", "train-2.record.idx", "_train-manifest.json"])
def test_what_was_deleted_is_made_again_by_the_same_command(what: str, small: Path, tmp_path: Path) -> None:
    command = ["convert", small, "-o", tmp_path / "train-<>.record", "--max-shard-size", "20kB", "--index"]
    assert tar2tf(*command).returncode == 0
    expected = tree(tmp_path)
    (tmp_path / what).unlink()
    if what == "_train-manifest.json":
        assert "no manifest" in refused(*command, folder=tmp_path)
        command.append("--overwrite")
    assert tar2tf(*command).returncode == 0
    assert tree(tmp_path) == expected


def test_a_shard_that_was_cut_is_made_again_by_the_same_command(small: Path, tmp_path: Path) -> None:
    command = ["convert", small, "-o", tmp_path / "train-<>.record", "--max-shard-size", "20kB"]
    assert tar2tf(*command).returncode == 0
    expected = tree(tmp_path)
    os.truncate(tmp_path / "train-1.record", 1000)
    assert tar2tf(*command).returncode == 0
    assert tree(tmp_path) == expected


def test_what_a_run_that_was_killed_at_its_very_end_left_goes_with_the_next(small: Path, tmp_path: Path) -> None:
    command = ["convert", small, "-o", tmp_path / "x.record"]
    assert tar2tf(*command).returncode == 0
    folder = tmp_path / ".x-manifest.tar2tf"
    folder.mkdir()
    (folder / "lock").touch()
    (folder / "input-00000.index").touch()
    done = tar2tf(*command)
    assert done.returncode == 0
    assert "up to date" in done.stderr
    assert not folder.exists()


def test_the_second_tar_on_standard_input_does_not_replace_what_the_first_gave(tmp_path: Path) -> None:
    first, second = write_tar(tmp_path / "1.tar", samples(3)), write_tar(tmp_path / "2.tar", samples(3, first=5))
    out = tmp_path / "out"
    with first.open("rb") as stdin:
        assert tar2tf("convert", "-", "-o", out / "x.record", stdin=stdin).returncode == 0
    with second.open("rb") as stdin:
        assert "--overwrite" in refused("convert", "-", "-o", out / "x.record", folder=out, stdin=stdin)
    with second.open("rb") as stdin:
        assert tar2tf("convert", "-", "-o", out / "x.record", "--overwrite", stdin=stdin).returncode == 0
    assert contents(out / "x.record") == samples(3, first=5)


def test_an_interrupted_run_from_standard_input_begins_again(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "in.tar", samples(100))
    with reading_stdin(tar, "-o", tmp_path / "out" / "x.record"):
        pass
    assert list((tmp_path / "out").glob(".*"))
    with tar.open("rb") as stdin:
        convert("-", "-o", tmp_path / "out" / "x.record", stdin=stdin)
    assert contents(tmp_path / "out" / "x.record") == samples(100)


@pytest.mark.parametrize("what", ["link", "foreign file", "file"])
def test_a_working_folder_that_is_not_ours_is_refused_and_not_emptied(what: str, small: Path, tmp_path: Path) -> None:
    thesis, folder = tmp_path / "thesis", tmp_path / "out" / ".x-manifest.tar2tf"
    for place in (thesis, folder.parent):
        place.mkdir()
    (thesis / "chapter.tex").write_text("precious")
    if what == "link":
        folder.symlink_to(thesis)
    elif what == "file":
        folder.write_text("precious")
    else:
        shutil.copytree(thesis, folder)
    before = tree(tmp_path)
    for options in ([], ["--overwrite"], ["--update"]):
        done = tar2tf("convert", small, "-o", tmp_path / "out" / "x.record", *options)
        assert done.returncode == 2, done.stderr
        assert ".x-manifest.tar2tf" in done.stderr
        assert "move it away" in done.stderr
    dry = tar2tf("convert", small, "-o", tmp_path / "out" / "x.record", "--dry-run")
    assert "would refuse" in dry.stdout
    assert tree(tmp_path) == before


def test_equal_conversions_are_the_same_however_they_are_written(small: Path, tmp_path: Path) -> None:
    command = ["-o", tmp_path / "out" / "x-<>.record"]
    assert tar2tf("convert", small, *command).returncode == 0
    for same in (
        [small, *command, "--max-shard-size", "256MiB"],
        [small, "-o", tmp_path / "out" / "x-{}.record"],
        [small, "small-{0..3}.tar", *command],
        [small, "*.tar", *command],
    ):
        done = tar2tf("convert", *same)
        assert (done.returncode, "up to date" in done.stderr) == (0, True), done.stderr


def test_an_update_that_would_remove_more_than_half_stops_and_asks(tmp_path: Path) -> None:
    for number in range(7):
        write_tar(tmp_path / "in" / f"{number}.tar", samples(5, first=10 * number))
    command = ["convert", tmp_path / "in", "-o", tmp_path / "out" / "<input>.record"]
    assert tar2tf(*command).returncode == 0
    before = tree(tmp_path / "out")
    for number in range(4):
        (tmp_path / "in" / f"{number}.tar").unlink()
    for extra in ([], ["--dry-run"]):
        done = tar2tf(*command, "--update", *extra)
        assert done.returncode == (0 if extra else 2)
        assert "was made from 7 inputs, and there are only 3 now: 4 removed (0.tar" in done.stdout + done.stderr
        assert "--remove-many" in done.stdout + done.stderr
    assert tree(tmp_path / "out") == before
    assert tar2tf(*command, "--update", "--remove-many").returncode == 0
    assert len(list((tmp_path / "out").glob("*.record"))) == 3
    assert tar2tf(*command, "--remove-many").returncode == 2


@pytest.mark.parametrize("harm", [os.unlink, lambda path: os.truncate(path, 10)], ids=["removed", "cut"])
def test_a_published_shard_that_another_program_harms_is_an_error_at_the_end(
    harm: Callable[[str], None], small: Path, tmp_path: Path
) -> None:
    class Harming(Events):
        def shard(self, path: str, records: int, size: int) -> None:
            if path.endswith("t-1.record") and not (tmp_path / "done").exists():
                harm(path)
                (tmp_path / "done").touch()

    spec = Conversion(str(small), Output(str(tmp_path / "out" / "t-<>.record"), records_per_shard=20))
    with pytest.raises(SinkError, match="another program changed it during the conversion") as caught:
        run_conversion(spec, workers=1, events=Harming())
    assert str(caught.value.shard).endswith("t-1.record")
    assert not (tmp_path / "out" / "_t-manifest.json").exists()
    run_conversion(spec, workers=1)
    assert contents(*shards_in(tmp_path / "out")) == samples_of(*sorted(small.iterdir()))


# --- Two at once ---

LOCKING = """
import sys
from tar2tf_cli.cli import main
from tar2tf_cli.conversion import working_folder
working_folder.LOCK_SECONDS = {}
main(sys.argv[1:])
"""
"""The command, which waits so many seconds for another one."""


def test_the_same_command_twice_at_once_comes_to_the_same_bytes(
    bucket: Path, undisturbed: Callable[[str], dict[str, bytes]], tmp_path: Path
) -> None:
    command = ["convert", bucket, "-o", tmp_path / "train-<>.record", "-j", "2", *WAYS["direct"]]
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    processes = [start(*command, code=LOCKING.format(SECONDS), **streams) for _ in range(3)]
    try:
        texts = [process.communicate(timeout=SECONDS)[1].decode() for process in processes]
    finally:
        for process in processes:
            end(process)
    assert [process.returncode for process in processes] == [0, 0, 0], texts
    assert sum("up to date" in text for text in texts) == 2
    assert every_file(tmp_path) == undisturbed("direct")


def test_a_second_run_on_an_output_that_is_being_written_says_so(small: Path, tmp_path: Path) -> None:
    assert working_folder.LOCK_SECONDS == 5
    tar = write_tar(tmp_path / "in.tar", samples(100))
    with reading_stdin(tar, "-o", tmp_path / "out" / "x.record") as process:
        began = time.monotonic()
        done = tar2tf("convert", small, "-o", tmp_path / "out" / "x.record", code=LOCKING.format(0.3))
        assert done.returncode == 3
        assert time.monotonic() - began > 0.3
        host = os.uname().nodename
        assert f"another tar2tf (process {process.pid} on {host}) is writing this output" in done.stderr
        assert process.poll() is None
    assert not list((tmp_path / "out").glob("[!.]*"))


def test_only_a_run_that_wrote_something_leaves_a_working_folder(small: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "in" / "b.tar"
    damaged.parent.mkdir()
    damaged.write_bytes(sorted(small.iterdir())[0].read_bytes()[:700])
    command = ["convert", tmp_path / "in", "-o", tmp_path / "x-<>.record", "--records-per-shard", "2", "-j", "1"]
    assert tar2tf(*command).returncode == 3
    assert not list(tmp_path.glob(".*"))
    write_tar(tmp_path / "in" / "a.tar", samples(4))
    assert tar2tf(*command).returncode == 3
    (folder,) = tmp_path.glob(".*")
    damaged.write_bytes(b"")
    assert tar2tf(*command).returncode == 3
    assert folder.exists()


# --- 8. What is there already ---


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("train-1.record", []),
        ("train-999.record", []),
        ("_train-manifest.json", []),
        ("train-3.record.idx", ["--index"]),
    ],
)
def test_foreign_files_are_not_touched(name: str, options: list[str], small: Path, tmp_path: Path) -> None:
    (tmp_path / name).write_text("precious")
    command = ["convert", small, "-o", tmp_path / "train-<>.record", "--max-shard-size", "20kB", *options]
    text = refused(*command, folder=tmp_path)
    assert str(tmp_path / name) in text
    assert "--overwrite" in text
    assert not list(tmp_path.glob(".*")), "no working folder is left behind"
    assert tar2tf(*command, "--overwrite").returncode == 0
    (tmp_path / "train-999.record").unlink(missing_ok=True)
    assert contents(*shards_in(tmp_path)) == samples_of(*sorted(small.iterdir()))


def test_files_that_only_look_alike_are_in_nobodys_way(small: Path, tmp_path: Path) -> None:
    for name in ("train-x.record", "train-1.records", "xtrain-1.record", "val-1.record", "train-1.record.bak"):
        (tmp_path / name).write_text("precious")
    convert(small, "-o", tmp_path / "train-<>.record")
    assert sum(path.read_bytes() == b"precious" for path in tmp_path.iterdir()) == 5


def test_a_broken_link_in_the_way_is_a_foreign_file(small: Path, tmp_path: Path) -> None:
    (tmp_path / "x.record").symlink_to("nowhere")
    assert "x.record" in refused("convert", small, "-o", tmp_path / "x.record", folder=tmp_path)


@pytest.mark.parametrize("path", ["x.record", "train-<>.record"])
def test_a_directory_in_the_way_is_refused_even_with_overwrite(path: str, small: Path, tmp_path: Path) -> None:
    (tmp_path / path.replace("<>", "2")).mkdir()
    for options in ([], ["--overwrite"]):
        command = ["convert", small, "-o", tmp_path / path, "--records-per-shard", "50", *options]
        assert "is a directory" in refused(*command[:4], *options, folder=tmp_path)


def test_an_input_is_never_its_own_output(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "x-1.tar", samples(10))
    for output in (tar, tmp_path / "x-<>.tar"):
        for options in ([], ["--overwrite"]):
            assert str(tar) in refused("convert", tar, "-o", output, *options, folder=tmp_path)


def test_a_file_that_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "in.tar", samples(100))
    with reading_stdin(tar, "-o", tmp_path / "out" / "x.record") as process:
        wait_until(lambda: list((tmp_path / "out").glob(".*/journal")), "the working folder", process=process)
        (tmp_path / "out" / "x.record").write_text("precious")
        assert process.stdin
        process.stdin.write(tar.read_bytes()[20_000:])
        process.stdin.close()
        process.stdin = None
        assert "x.record" in stderr_of(process)
    assert process.returncode == 2
    assert (tmp_path / "out" / "x.record").read_text() == "precious"


def test_an_input_that_changes_meanwhile_is_told(tmp_path: Path) -> None:
    bucket = mixed_shards(tmp_path / "in")
    convert(bucket, "-o", tmp_path / "out" / "train-<>.record")
    os.utime(bucket / "a.tar", ns=(1, 1))
    assert "a.tar" in refused(*["convert", bucket, "-o", tmp_path / "out" / "train-<>.record"], folder=tmp_path / "out")
