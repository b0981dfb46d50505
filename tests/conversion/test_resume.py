"""What is there when a conversion ends too early, and that the same command then comes to the same bytes."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commands import SECONDS, children, convert, end, is_running, members, start, tar2tf, wait_until
from interruptions import END, SCENES, WAYS, final, kill_once_published, reading_stdin, stderr_of
from shards import every_file, samples, shards_in, write_tar
from tar2tf_cli.conversion.run import convert as run_conversion
from tar2tf_cli.events import Events
from tar2tf_cli.spec.conversion import Conversion, Input, Output

pytestmark = pytest.mark.spread


END_WHEN_SEALED = """
import os, signal, sys
from tar2tf_cli.cli import main
from tar2tf_cli.conversion.working_folder import WorkingFolder
note, noted = WorkingFolder.note, []
def killed(folder, entry):
    note(folder, entry)
    noted.append(entry)
    if len(noted) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
WorkingFolder.note = killed
main(sys.argv[1:])
"""
"""The command, killed when its second shard is whole."""


def assert_whole(found: dict[str, bytes], expected: dict[str, bytes]) -> None:
    """Whatever stands under a final name is as it has to be, and the manifest comes last."""
    for name, data in found.items():
        assert name in expected, f"{name} does not belong there"
        assert data == expected[name], f"{name} is not whole"
    if any(name.endswith("manifest.json") for name in found):
        assert found.keys() == expected.keys(), "the manifest stands before all shards do"


# --- 6. Atomicity ---


@pytest.mark.on_disk
@pytest.mark.xdist_group("killed")
@pytest.mark.parametrize("way", WAYS)
def test_whatever_stands_under_a_final_name_is_whole_and_never_changes(
    way: str, bucket: Path, undisturbed: Callable[[str], dict[str, bytes]], tmp_path: Path
) -> None:
    expected, out = undisturbed(way), tmp_path / "out"
    out.mkdir()
    done = threading.Event()
    seen: dict[str, int] = {}
    wrong: list[str] = []

    def look() -> None:
        for path in out.iterdir():
            if path.name.startswith("."):
                continue
            status = path.stat()
            if seen.setdefault(path.name, status.st_ino) != status.st_ino:
                wrong.append(f"{path.name} was replaced")
            if path.name not in expected or status.st_size != len(expected[path.name]):
                wrong.append(f"{path.name} has {status.st_size} bytes")
            elif path.read_bytes() != expected[path.name]:
                wrong.append(f"{path.name} has other bytes")

    def watch() -> None:
        while not done.is_set():
            look()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        convert(bucket, "-o", out / "train-<>.record", *WAYS[way])
    finally:
        done.set()
        watcher.join(SECONDS)
    look()
    assert not wrong
    assert len(seen) > 3
    assert every_file(out) == expected


@pytest.mark.on_disk
@pytest.mark.xdist_group("killed")
@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("way", WAYS)
def test_a_full_disk_is_told_and_the_same_command_continues(
    way: str, workers: str, bucket: Path, undisturbed: Callable[[str], dict[str, bytes]], tmp_path: Path
) -> None:
    command = ["convert", bucket, "-o", tmp_path / "train-<>.record", "-j", workers, *WAYS[way]]

    done = tar2tf(*command, file_size=300_000)
    assert done.returncode == 3
    first = done.stderr.splitlines()[0]
    assert str(tmp_path) in first
    assert os.strerror(errno.EFBIG) in first
    assert "same command" in done.stderr
    assert_whole(final(tmp_path), undisturbed(way))
    assert tar2tf(*command).returncode == 0
    assert every_file(tmp_path) == undisturbed(way)


@pytest.mark.on_disk
@pytest.mark.xdist_group("killed")
def test_a_full_standard_output_is_told(small: Path) -> None:
    with open("/dev/full", "w") as full:
        done = tar2tf("convert", small, "-o", "-", capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 3
    assert os.strerror(errno.ENOSPC) in done.stderr


@pytest.mark.parametrize("workers", [1, 2])
def test_nothing_is_published_before_it_and_the_journal_are_on_the_disk(
    workers: int, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where power fails, what is under a final name is whole, and the journal says whose it is."""
    out, journal = tmp_path / "out", tmp_path / "out" / ".train-manifest.tar2tf" / "journal"
    fsync, replace, synced, published = os.fsync, os.replace, set[int](), list[str]()

    def noted_fsync(descriptor: int) -> None:
        fsync(descriptor)
        synced.add(os.fstat(descriptor).st_ino)

    def noted_replace(old: str, new: str) -> None:
        if not os.path.basename(old).startswith(".") and os.path.dirname(new) == str(out):
            needed = [old, journal, journal.parent, out] if "manifest.json" in new else [old, journal, journal.parent]
            assert {os.stat(path).st_ino for path in needed} <= synced, f"{new} came too early"
            published.append(os.path.basename(new))
        replace(old, new)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    conversion = Conversion(str(small), Output(f"{out}/train-<>.record", records_per_shard=100))
    run_conversion(conversion, workers=workers)
    shards = ["train-1.record", "train-2.record", "train-3.record"]
    assert published == [*shards, ".train-manifest.sizes", "_train-manifest.json"]


def test_an_older_manifest_is_gone_from_the_disk_before_a_shard_is_replaced_and_the_new_one_is_there_to_last(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where power fails, no manifest lists shards of another conversion."""
    out, events = tmp_path / "out", list[tuple[str, str]]()

    def convert_to_shards_of(records: int) -> None:
        output = Output(f"{out}/train-<>.record", records_per_shard=records)
        run_conversion(Conversion(str(small), output), workers=1, overwrite=True)

    def note(name: str, call: Callable[..., None]) -> None:
        def noted(*given: Any) -> None:
            synced = name == "fsync" and os.path.samestat(os.fstat(given[0]), os.stat(out))
            events.append((name, "out" if synced else os.path.basename(str(given[-1]))))
            call(*given)

        monkeypatch.setattr(os, name, noted)

    convert_to_shards_of(100)
    for name in ("fsync", "unlink", "replace"):
        note(name, getattr(os, name))
    convert_to_shards_of(50)
    gone, first = events.index(("unlink", "_train-manifest.json")), events.index(("replace", "train-1.record"))
    assert ("fsync", "out") in events[gone:first]
    made = events.index(("replace", "_train-manifest.json"))
    assert ("fsync", "out") in events[made : events.index(("unlink", "journal"))]


@pytest.mark.parametrize("scene", SCENES)
def test_a_run_killed_or_out_of_space_at_any_call_continues_to_the_same_bytes(scene: str, tmp_path: Path) -> None:
    write_tar(tmp_path / "small" / "a.tar", samples(40))
    write_tar(tmp_path / "small" / "b.tar.gz", samples(30, first=100))
    write_tar(tmp_path / "large" / "a.tar", samples(8, 12_000))
    write_tar(tmp_path / "large" / "b.tar", samples(7, 12_000, first=100))
    (tmp_path / "records").mkdir()
    for name in ("large/a.tar", "large/b.tar", "small/b.tar.gz"):
        done = tar2tf("convert", tmp_path / name, "-o", tmp_path / f"records/{name[0]}{name[6]}.record")
        assert done.returncode == 0, done.stderr
        for path in (tmp_path / "records").glob("*manifest.*"):
            path.unlink()
    done = tar2tf(scene, code="import interruptions; interruptions.end_at_each_call()", cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr
    killed, full = map(int, done.stdout.split())
    assert killed >= 20
    assert full >= 20


# --- 7. SIGKILL ---


@pytest.mark.on_disk
@pytest.mark.xdist_group("killed")
@pytest.mark.parametrize("kill", ["kill all", "kill"])
@pytest.mark.parametrize("way", ["direct", "spooled"])
def test_a_run_killed_at_random_moments_continues_to_the_same_bytes(
    way: str, kill: str, bucket: Path, undisturbed: Callable[[str], dict[str, bytes]], tmp_path: Path
) -> None:
    """Moments are calls of the parent that change the disk; its workers are wherever they happen to be then."""
    expected, out = undisturbed(way), tmp_path / "out"
    command = ["convert", bucket, "-o", out / "train-<>.record", "-j", "3", "-q", *WAYS[way]]
    calls = int(tar2tf("never", kill, *command, code=END).stdout)
    shutil.rmtree(out)
    moments = random.Random(way)
    kills = resumed = 0
    while kills < (20 if kill == "kill all" else 8):
        moment = str(moments.randrange(calls * 9 // 10))
        process = start(moment, kill, *command, code=END, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            process.wait(SECONDS)
            wait_until(lambda process=process: not members(process.pid), "workers to end by themselves")
        finally:
            _, stderr = process.communicate(timeout=SECONDS)
            end(process)
        found = final(out)
        assert_whole(found, expected)
        resumed += bool(found) and len(found) < len(expected)
        if process.returncode == -signal.SIGKILL:
            kills += 1
        else:  # a run that continues makes fewer calls
            assert process.returncode == 0, stderr
            assert every_file(out) == expected
            shutil.rmtree(out)
    assert tar2tf(*command).returncode == 0
    assert every_file(out) == expected, "the same bytes, and no working folder is left"
    assert resumed, "at least one kill hit a run that had published some of its shards"


@pytest.mark.on_disk
@pytest.mark.xdist_group("killed")
@pytest.mark.parametrize("suffix", ["", ".idx"])
def test_a_whole_shard_that_was_damaged_after_a_kill_is_not_published(
    bucket: Path, tmp_path: Path, suffix: str
) -> None:
    """Of a conversion whose shards wait until all of them are whole."""
    command = [
        "convert",
        bucket,
        "-o",
        tmp_path / "out" / "t-<>-of-<total>.record",
        "--records-per-shard",
        "40",
        "--index",
    ]
    assert tar2tf(*command[:3], tmp_path / "fresh" / "t-<>-of-<total>.record", *command[4:]).returncode == 0
    process = start(*command, "-j", "1", code=END_WHEN_SEALED, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    process.communicate(timeout=SECONDS)
    (part,) = sorted((tmp_path / "out").glob(f".*/shard-*.part{suffix}"))[:1]
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    done = tar2tf(*command)
    assert done.returncode == 0, done.stderr
    assert every_file(tmp_path / "out") == every_file(tmp_path / "fresh")


@pytest.mark.on_disk
@pytest.mark.xdist_group("killed")
def test_what_an_interrupted_run_published_is_kept(bucket: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ["convert", bucket, "-o", out / "train-<>.record", "-j", "2", "--max-shard-size", "200kB"]
    kill_once_published("train-3.record", *command)
    assert not (out / "_train-manifest.json").exists()
    before = {path.name: path.stat().st_ino for path in shards_in(out)}
    assert len(before) == 3
    done = tar2tf(*command)
    assert done.returncode == 0
    assert "continuing an interrupted run" in done.stderr
    assert {name: (out / name).stat().st_ino for name in before} == before


@pytest.mark.xdist_group("killed")
@pytest.mark.on_disk
@pytest.mark.xdist_group("killed")
@pytest.mark.parametrize("way", ["direct", "spooled"])
def test_progress_of_a_continued_run_begins_where_the_first_ended(way: str, bucket: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    kill_once_published("train-3.record", "convert", bucket, "-o", out / "train-<>.record", "-j", "1", *WAYS[way])
    inputs = {path.name: path.stat().st_size for path in sorted(bucket.iterdir())}
    read = list(out.glob(".*/input-*.index"))
    read_before = sum([*inputs.values()][: len(read)]) if way == "spooled" else sum(map(len, final(out).values()))

    class Heard(Events):
        def __init__(self) -> None:
            self.heard: list[int | None] = []

        def planned(self, inputs: int, size: int | None, done: int = 0) -> None:
            self.heard += [size, done]

        def progress(self, size: int) -> None:
            self.heard.append(size)

        def resumed(self, shards: int) -> None: ...

    options = {"max_shard_size": "400kB"} if way == "direct" else {"max_shard_size": "100kB"}
    ops = () if way == "direct" else ("drop_empty",)
    events = Heard()
    run_conversion(
        Conversion(Input(bucket), Output(out / "train-<>.record", **options), ops=ops), workers=1, events=events
    )
    size, done, *progress = events.heard
    assert (size, done) == (sum(inputs.values()), read_before)
    assert 0 < read_before < sum(inputs.values())
    assert progress == sorted(progress)
    assert read_before <= progress[0]
    assert 0.8 * sum(inputs.values()) < progress[-1] <= sum(inputs.values())


@pytest.mark.parametrize("which", [0, 1])
def test_a_killed_worker_ends_the_run_with_a_clear_message(which: int, tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "in.tar", samples(100))
    with reading_stdin(tar, "-o", tmp_path / "out" / "x.record") as process:
        os.kill(sorted(children(process.pid))[which], signal.SIGKILL)
        text = stderr_of(process)
    assert process.returncode == 3
    assert "worker process was killed by SIGKILL" in text
    assert "-j" in text
    assert len(text.splitlines()) == 2
    assert not list((tmp_path / "out").glob("[!.]*"))


AT_A_FILE = """
import os, signal, sys
from tar2tf_cli.cli import main
word, run, call = sys.argv.pop(1), os.getpid(), os.open
def opened(path, flags, *mode, **options):
    if os.getpid() != run and flags & os.O_CREAT and word in os.path.basename(path):
        os.kill(os.getpid(), signal.SIGKILL)
    return call(path, flags, *mode, **options)
os.open = opened
main(sys.argv[1:])
"""


@pytest.mark.xdist_group("killed")
@pytest.mark.parametrize("at", ["spool", "shard-"])
def test_a_killed_worker_names_the_shard_it_was_at(at: str, bucket: Path, tmp_path: Path) -> None:
    """At the records of an input, or at a shard that is written from them."""
    out = tmp_path / "out" / "x.record"
    done = tar2tf(at, "convert", bucket, "-o", out, "-j", "2", "--op", "drop_empty", code=AT_A_FILE)
    assert done.returncode == 3
    first = done.stderr.splitlines()[0]
    assert "SIGKILL" in first
    assert str(bucket if at == "spool" else out) in first


def test_workers_that_wait_for_input_end_with_their_parent(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "in.tar", samples(100))
    with reading_stdin(tar, "-o", tmp_path / "out" / "x.record") as process:
        workers = children(process.pid)
        process.kill()
        wait_until(lambda: not any(map(is_running, workers)), "the workers to end")


# --- Ctrl-C ---


@pytest.mark.xdist_group("killed")
def test_ctrl_c_while_waiting_for_input_ends_with_130_and_one_clear_line(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "in.tar", samples(100))
    for workers in ("1", "2"):
        with reading_stdin(tar, "-o", tmp_path / workers / "x.record") as process:
            os.killpg(process.pid, signal.SIGINT)
            text = stderr_of(process)
        assert process.returncode == 130
        lines = [line for line in text.splitlines() if line]
        assert lines[0].endswith("interrupted")
        assert len(lines) <= 2
        assert not list((tmp_path / workers).glob("[!.]*"))


@pytest.mark.xdist_group("killed")
@pytest.mark.parametrize("workers", ["1", "3"])
def test_ctrl_c_during_work_ends_with_130_and_the_same_command_continues(
    workers: str, bucket: Path, undisturbed: Callable[[str], dict[str, bytes]], tmp_path: Path
) -> None:
    expected, out = undisturbed("spooled"), tmp_path / "out"
    command = ["convert", bucket, "-o", out / "train-<>.record", "-j", workers, *WAYS["spooled"]]
    for moment in ("train-1.record", "30", "train-20.record", "60", "train-60.record"):
        done = tar2tf(moment, "ctrl-c", *command, code=END)
        assert_whole(final(out), expected)
        assert done.returncode == 130, done.stderr
        lines = [line for line in done.stderr.splitlines() if line and not line.startswith("continuing")]
        assert lines[0].endswith("interrupted")
        assert len(lines) == 2
    assert tar2tf(*command).returncode == 0
    assert every_file(out) == expected
