"""What is there when a conversion ends too early, and that the same command then comes to the same bytes."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shards import (
    SECONDS,
    children,
    contents,
    convert,
    end,
    is_running,
    large_shards,
    mixed_shards,
    samples,
    samples_of,
    shards_in,
    small_shards,
    start,
    tar2tf,
    tree,
    wait_until,
    write_tar,
)

WAYS = {
    "direct": ["--max-shard-size", "400kB"],
    "measured": ["--max-shard-size", "400kB", "--type", "cls=int64"],
    "spooled": ["--max-shard-size", "100kB", "--op", "drop_empty"],
    "shuffled": ["--records-per-shard", "100", "--shuffle", "--index"],
}


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough work for a kill to hit any part of it."""
    return large_shards(tmp_path_factory.mktemp("large"), shards=6, each=250)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_shards(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def undisturbed(bucket: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, bytes]]:
    """What an undisturbed run of each way writes."""
    root = tmp_path_factory.mktemp("undisturbed")

    def made(way: str) -> dict[str, bytes]:
        if not (root / way).exists():
            convert(bucket, "-o", root / way / "train-<>.record", *WAYS[way])
        return tree(root / way)

    return made


def final(folder: Path) -> dict[str, bytes]:
    """What stands under final names: all but working folders; a file that goes away meanwhile is left out."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if not any(part.startswith(".") for part in path.relative_to(folder).parts):
            with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                found[str(path.relative_to(folder))] = path.read_bytes()
    return found


def assert_whole(found: dict[str, bytes], expected: dict[str, bytes]) -> None:
    """Whatever stands under a final name is as it has to be, and the manifest comes last."""
    for name, data in found.items():
        assert name in expected, f"{name} does not belong there"
        assert data == expected[name], f"{name} is not whole"
    if any(name.endswith("manifest.json") for name in found):
        assert found.keys() == expected.keys(), "the manifest stands before all shards do"


# --- 6. Atomicity ---


@pytest.mark.parametrize("way", WAYS)
def test_whatever_stands_under_a_final_name_is_whole_and_never_changes(
    way: str, bucket: Path, undisturbed: Callable[[str], dict[str, bytes]], tmp_path: Path
) -> None:
    expected, out = undisturbed(way), tmp_path / "out"
    out.mkdir()
    done = threading.Event()
    seen: dict[str, int] = {}
    wrong: list[str] = []

    def watch() -> None:
        while not done.is_set():
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

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        convert(bucket, "-o", out / "train-<>.record", *WAYS[way])
    finally:
        done.set()
        watcher.join(SECONDS)
    assert not wrong
    assert len(seen) > 3
    assert tree(out) == expected


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("way", WAYS)
def test_a_full_disk_is_told_and_the_same_command_continues(
    way: str, workers: str, bucket: Path, undisturbed: Callable[[str], dict[str, bytes]], tmp_path: Path
) -> None:
    command = ["convert", bucket, "-o", tmp_path / "train-<>.record", "-j", workers, *WAYS[way]]

    def small_files() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))

    done = tar2tf(*command, preexec_fn=small_files)
    assert done.returncode == 3
    first = done.stderr.splitlines()[0]
    assert str(tmp_path) in first
    assert os.strerror(errno.EFBIG) in first
    assert "same command" in done.stderr
    assert_whole(final(tmp_path), undisturbed(way))
    assert tar2tf(*command).returncode == 0
    assert tree(tmp_path) == undisturbed(way)


def test_a_full_standard_output_is_told(small: Path) -> None:
    with open("/dev/full", "w") as full:
        done = tar2tf("convert", small, "-o", "-", capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 3
    assert os.strerror(errno.ENOSPC) in done.stderr


# --- 6 and 7 in every step: this file, run as a script, ends a conversion at each call that changes the disk ---

CALLS = ("open", "replace", "rename", "unlink", "rmdir", "makedirs", "fsync", "write", "writev")
SCENES: dict[str, tuple[str, list[str], str]] = {
    # name: input, options of the conversion, options of one that stood there before
    "direct": ("large", ["-o", "out/train-<>.record", "--max-shard-size", "60kB"], ""),
    "spooled": ("small", ["-o", "out/train-<>.record", "--max-shard-size", "8kB", "--index"], ""),
    "by total": ("small", ["-o", "out/<0>-of-<total>.record", "--records-per-shard", "30"], ""),
    "splits": ("small", ["-o", "out/<split>/<>.record", "--split", "a=0.6,b=0.4", "--num-shards", "2"], ""),
    "shuffled": ("small", ["-o", "out/train-<>.record", "--shuffle", "--num-shards", "3"], ""),
    "overwriting": (
        "small",
        ["-o", "out/train-<>.record", "--records-per-shard", "40", "--overwrite"],
        "--records-per-shard=12",
    ),
    "overwriting by total": (
        "small",
        ["-o", "out/t-<>-of-<total>.record", "--records-per-shard", "40", "--overwrite"],
        "--records-per-shard=12",
    ),
}


class Ending:
    """Ends the process, or fails with a full disk, at the n-th call that changes the disk."""

    def __init__(self, number: int, *, full: bool) -> None:
        self.left = number
        self.full = full

    def install(self) -> None:
        for name in CALLS:
            setattr(os, name, self.wrapped(getattr(os, name), name))

    def wrapped(self, call: Callable[..., Any], name: str) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            if name == "open" and not args[1] & os.O_CREAT:
                return call(*args, **options)
            self.left -= 1
            if self.left == 0:
                if not self.full:
                    os.kill(os.getpid(), signal.SIGKILL)
                if name in ("write", "writev"):  # a full disk takes a part first
                    data = args[1] if name == "write" else b"".join(args[1])
                    ORIGINAL_WRITE(args[0], bytes(data)[: len(data) // 2])
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return call(*args, **options)

        return counted


ORIGINAL_WRITE = os.write


def run_here(arguments: list[str], number: int = 0, *, full: bool = False) -> int:
    """Run the command in a fork of this process, ended at a call; its exit code, or minus the signal."""
    from tar2tf_cli.cli import main

    pid = os.fork()
    if pid == 0:
        log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if number:
            Ending(number, full=full).install()
        try:
            main(arguments)
        except SystemExit as done:
            os._exit(int(done.code or 0))
        except BaseException:
            import traceback

            traceback.print_exc()
        os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def end_at_each_call(scene: str, *, full: bool) -> int:
    """Run a scene in the current folder once for each call, and continue it; returns how many calls there are."""
    kind, options, before = SCENES[scene]
    arguments = ["convert", kind, *options, "-j", "1"]
    foreign = {"train-7x.record": b"not ours", "notes.txt": b"nor this"}

    def prepare() -> dict[str, bytes]:
        shutil.rmtree("out", ignore_errors=True)
        if before:
            assert run_here(["convert", kind, *options[:2], before, "-j", "1"]) == 0, Path("log").read_text()
        Path("out").mkdir(exist_ok=True)
        for name, data in foreign.items():
            Path("out", name).write_bytes(data)
        return final(Path("out"))

    from tar2tf_cli.cli import main

    with contextlib.suppress(SystemExit):
        main(["convert", kind, *options, "-j", "1", "-q"])  # all is imported here, once, instead of in each fork
    former = prepare()
    assert run_here(arguments) == 0, Path("log").read_text()
    expected = tree(Path("out"))
    for number in range(1, 1000, 2 if full else 1):
        prepare()
        code = run_here(arguments, number, full=full)
        log, found = Path("log").read_text(), final(Path("out"))
        if code == 0 and not full:
            assert tree(Path("out")) == expected
            return number - 1
        assert code == (3 if full else -signal.SIGKILL) or (full and code == 0), f"call {number}: {code}\n{log}"
        assert "Traceback" not in log, f"call {number}: {log}"
        for name, data in found.items():
            assert data in (expected.get(name), former.get(name)), f"call {number}: {name} is not whole"
        manifest = next((data for name, data in found.items() if name.endswith("manifest.json")), None)
        if manifest is not None and manifest != former.get("train-manifest.json", former.get("t-manifest.json")):
            assert found == expected, f"call {number}: a manifest stands before its shards do"
        elif manifest is not None:
            assert found == former, f"call {number}: the former manifest does not tell what is there"
        if full and code == 0:
            return number - 1
        again = random.Random(number).randrange(1, 40)
        if number % 2:
            run_here(arguments, again, full=not full)
        assert run_here(arguments) == 0, f"calls {number}, {again}: " + Path("log").read_text()
        assert tree(Path("out")) == expected, f"calls {number}, {again}: {tree(Path('out')).keys()}"
    raise AssertionError("the conversion makes too many calls")


@pytest.mark.parametrize("scene", SCENES)
def test_a_run_killed_or_out_of_space_at_any_call_continues_to_the_same_bytes(scene: str, tmp_path: Path) -> None:
    write_tar(tmp_path / "small" / "a.tar", samples(40))
    write_tar(tmp_path / "small" / "b.tar.gz", samples(30, first=100))
    write_tar(tmp_path / "large" / "a.tar", samples(8, 12_000))
    write_tar(tmp_path / "large" / "b.tar", samples(7, 12_000, first=100))
    done = subprocess.run(
        [sys.executable, __file__, scene], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    killed, full = map(int, done.stdout.split())
    assert killed >= 20
    assert full >= 20


# --- 7. SIGKILL ---


def kill_group(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)


def kill_parent(process: subprocess.Popen[bytes]) -> None:
    """Kill the parent alone; its workers end by themselves, and nobody writes any longer."""
    workers = children(process.pid)
    process.kill()
    process.wait(SECONDS)
    wait_until(lambda: not any(map(is_running, workers)), "the workers to end")


@pytest.mark.parametrize("kill", [kill_group, kill_parent])
@pytest.mark.parametrize("way", ["direct", "spooled"])
def test_a_run_killed_at_random_moments_continues_to_the_same_bytes(
    way: str,
    kill: Callable[[subprocess.Popen[bytes]], None],
    bucket: Path,
    undisturbed: Callable[[str], dict[str, bytes]],
    tmp_path: Path,
) -> None:
    expected, out = undisturbed(way), tmp_path / "out"
    command = ["convert", bucket, "-o", out / "train-<>.record", "-j", "3", "-q", *WAYS[way]]
    began = time.monotonic()
    assert tar2tf(*command).returncode == 0
    whole = time.monotonic() - began
    shutil.rmtree(out)
    moments = random.Random(way)
    kills = resumed = 0
    while kills < (20 if kill is kill_group else 8):
        process = start(*command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(moments.uniform(0.1, 1.0) * whole)
            finished = process.poll() is not None
            if not finished:
                kill(process)
                kills += 1
        finally:
            _, stderr = process.communicate(timeout=SECONDS)
            end(process)
        found = final(out)
        assert_whole(found, expected)
        resumed += bool(found) and len(found) < len(expected)
        if finished:
            assert process.returncode == 0, stderr
            assert tree(out) == expected
            shutil.rmtree(out)
    assert tar2tf(*command).returncode == 0
    assert tree(out) == expected, "the same bytes, and no working folder is left"
    assert resumed, "at least one kill hit a run that had published some of its shards"


def test_what_an_interrupted_run_published_is_kept(bucket: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ["convert", bucket, "-o", out / "train-<>.record", "-j", "2", "--max-shard-size", "200kB"]
    process = start(*command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: (out / "train-3.record").exists() or process.poll() is not None, "the third shard")
    finally:
        end(process)
    assert not (out / "train-manifest.json").exists()
    before = {path.name: path.stat().st_ino for path in shards_in(out)}
    done = tar2tf(*command)
    assert done.returncode == 0
    assert "continuing an interrupted run" in done.stderr
    assert {name: (out / name).stat().st_ino for name in before} == before


@contextlib.contextmanager
def reading_stdin(tar: Path, *options: str | Path) -> Iterator[subprocess.Popen[bytes]]:
    """A run that has read the first half of a tar on standard input and waits for the rest, with two workers."""
    process = start(
        *["convert", "-", "-j", "2", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdin
        process.stdin.write(tar.read_bytes()[:20_000])
        process.stdin.flush()
        wait_until(lambda: len(children(process.pid)) == 2, "two workers")
        yield process
    finally:
        end(process)


def stderr_of(process: subprocess.Popen[bytes]) -> str:
    """What a process says until it ends by itself."""
    assert process.stderr
    process.wait(SECONDS)
    text = process.stderr.read().decode()
    assert "Traceback" not in text
    return text


@pytest.mark.parametrize("which", [0, 1])
def test_a_killed_worker_ends_the_run_with_a_clear_message(which: int, tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "in.tar", samples(100))
    with reading_stdin(tar, "-o", tmp_path / "out" / "x.record") as process:
        os.kill(sorted(children(process.pid))[which], signal.SIGKILL)
        text = stderr_of(process)
    assert process.returncode == 3
    assert "worker process was ended by SIGKILL" in text
    assert "-j" in text
    assert len(text.splitlines()) == 2
    assert not list((tmp_path / "out").glob("[!.]*"))


def test_a_killed_worker_names_the_shard_it_was_at(bucket: Path, tmp_path: Path) -> None:
    named = 0
    for attempt in range(20):
        out = tmp_path / str(attempt)
        process = start(
            *["convert", bucket, "-o", out / "x.record", "-j", "2", "--op", "drop_empty"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        try:
            wait_until(
                lambda out=out, process=process: list(out.glob(".*/*.spool")) or process.poll() is not None, "it"
            )
            for worker in children(process.pid)[:1]:
                os.kill(worker, signal.SIGKILL)
            text = stderr_of(process)
        finally:
            end(process)
        if process.returncode == 3:
            first = text.splitlines()[0]
            assert "SIGKILL" in first
            named += str(bucket) in first or str(out) in first
        if named == 2:
            return
    raise AssertionError("no message named the shard")


def test_workers_that_wait_for_input_end_with_their_parent(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "in.tar", samples(100))
    with reading_stdin(tar, "-o", tmp_path / "out" / "x.record") as process:
        workers = children(process.pid)
        process.kill()
        wait_until(lambda: not any(map(is_running, workers)), "the workers to end")


# --- Ctrl-C ---


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


@pytest.mark.parametrize("workers", ["1", "3"])
def test_ctrl_c_during_work_ends_with_130_and_the_same_command_continues(
    workers: str, bucket: Path, undisturbed: Callable[[str], dict[str, bytes]], tmp_path: Path
) -> None:
    expected, out = undisturbed("spooled"), tmp_path / "out"
    command = ["convert", bucket, "-o", out / "train-<>.record", "-j", workers, *WAYS["spooled"]]
    interrupted = 0

    def journal() -> int:
        return next((path.stat().st_ino for path in out.glob(".*/journal")), 0)

    for _ in range(5):
        before = journal()
        process = start(*command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            wait_until(lambda process=process, before=before: journal() != before or process.poll() is not None, "work")
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            text = stderr_of(process)
        finally:
            end(process)
        assert_whole(final(out), expected)
        if process.returncode == 0:
            shutil.rmtree(out)
            continue
        assert process.returncode == 130
        lines = [line for line in text.splitlines() if line and not line.startswith("continuing")]
        assert lines[0].endswith("interrupted")
        assert len(lines) == 2
        interrupted += 1
    assert interrupted
    assert tar2tf(*command).returncode == 0
    assert tree(out) == expected


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


def test_a_finished_run_that_skipped_samples_says_so_and_keeps_their_list(tmp_path: Path) -> None:
    write_tar(tmp_path / "in.tar", [*samples(10), ("x", {"cls": b"x", "jpg": b""})])
    errors = tmp_path / "errors.jsonl"
    command = ["convert", tmp_path / "in.tar", "-o", tmp_path / "x.record", "--type", "cls=int64"]
    command += ["--on-error", "skip", "--errors", errors]
    assert tar2tf(*command).returncode == 1
    listed = errors.read_text()
    assert listed.count("\n") == 1
    done = tar2tf(*command, "--json")
    assert done.returncode == 0
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
        (["--seed", "1", "--shuffle"], "seed, shuffle"),
        (["--max-shard-size", "21kB"], "output.max_shard_size"),
        (["--type", "cls=int64"], "types"),
        (["--index"], "output.index"),
    ):
        text = refused(*command, *option, folder=out)
        assert f"was made with another spec: {named} changed" in text
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
    process = start(*command, "--max-shard-size", "200kB", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: (out / "train-2.record").exists() or process.poll() is not None, "the second shard")
    finally:
        end(process)
    assert not (out / "train-manifest.json").exists()
    text = refused(*command, "--max-shard-size", "300kB", folder=out)
    assert "interrupted" in text
    assert tar2tf(*command, "--max-shard-size", "3MB", "--overwrite").returncode == 0
    assert contents(*shards_in(out)) == samples_of(*sorted(bucket.iterdir()))


def test_overwrite_leaves_no_stale_shard_of_the_former_manifest(small: Path, tmp_path: Path) -> None:
    reference = tmp_path / "reference"
    convert(small, "-o", reference / "train-<>.tfrecord", "--records-per-shard", "100")
    out = tmp_path / "out"
    for path in ("train-<>.record", "train-<000>.tfrecord", "train-<>.tfrecord"):
        convert(small, "-o", out / path, "--records-per-shard", "9", "--overwrite", "--index")
        assert len(list(out.glob("train-*record"))) == 28
        assert len(list(out.glob("*.idx"))) == 28
    (out / "train-foreign.tfrecord").write_text("keep me")
    convert(small, "-o", out / "train-<>.tfrecord", "--records-per-shard", "100", "--overwrite")
    (out / "train-foreign.tfrecord").unlink()
    assert tree(out) == tree(reference)


def test_overwrite_removes_nothing_outside_its_folder(small: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious.record"
    precious.write_text("keep me")
    out = tmp_path / "out"
    convert(small, "-o", out / "train-<>.record")
    manifest = json.loads((out / "train-manifest.json").read_text())
    for path in ("../precious.record", str(precious), "x/../../precious.record"):
        manifest["shards"].append({**manifest["shards"][0], "path": path})
    (out / "train-manifest.json").write_text(json.dumps(manifest))
    convert(small, "-o", out / "train-<>.record", "--overwrite", "--shuffle")
    assert precious.read_text() == "keep me"


@pytest.mark.parametrize("what", ["train-2.record", "train-2.record.idx", "train-manifest.json"])
def test_what_was_deleted_is_made_again_by_the_same_command(what: str, small: Path, tmp_path: Path) -> None:
    command = ["convert", small, "-o", tmp_path / "train-<>.record", "--max-shard-size", "20kB", "--index"]
    assert tar2tf(*command).returncode == 0
    expected = tree(tmp_path)
    (tmp_path / what).unlink()
    if what == "train-manifest.json":
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


# --- Two at once ---


def test_the_same_command_twice_at_once_comes_to_the_same_bytes(
    bucket: Path, undisturbed: Callable[[str], dict[str, bytes]], tmp_path: Path
) -> None:
    command = ["convert", bucket, "-o", tmp_path / "train-<>.record", "-j", "2", *WAYS["direct"]]
    processes = [start(*command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for _ in range(3)]
    try:
        texts = [process.communicate(timeout=SECONDS)[1].decode() for process in processes]
    finally:
        for process in processes:
            end(process)
    assert [process.returncode for process in processes] == [0, 0, 0], texts
    assert sum("up to date" in text for text in texts) == 2
    assert tree(tmp_path) == undisturbed("direct")


def test_a_second_run_on_an_output_that_is_being_written_says_so(small: Path, tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "in.tar", samples(100))
    with reading_stdin(tar, "-o", tmp_path / "out" / "x.record") as process:
        done = tar2tf("convert", small, "-o", tmp_path / "out" / "x.record")
        assert done.returncode == 3
        assert "another tar2tf is writing this output" in done.stderr
        assert process.poll() is None
    assert not list((tmp_path / "out").glob("[!.]*"))


# --- 8. What is there already ---


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("train-1.record", []),
        ("train-999.record", []),
        ("train-manifest.json", []),
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
        wait_until(lambda: list((tmp_path / "out").glob(".*/journal")), "the working folder")
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


if __name__ == "__main__":
    os.fsync = lambda descriptor: None  # nobody pulls the plug here
    print(end_at_each_call(sys.argv[1], full=False), end_at_each_call(sys.argv[1], full=True))
