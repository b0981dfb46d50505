"""Conversions that are killed, or find the disk full, at any of their system calls, and are continued."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from commands import SECONDS, Process, children, end, start, tar2tf, wait_until
from shards import every_file
from tar2tf_cli.conversion import write_shard

WAYS = {
    "direct": ["--max-shard-size", "400kB"],
    "measured": ["--max-shard-size", "400kB", "--type", "cls=int64"],
    "spooled": ["--max-shard-size", "100kB", "--op", "drop_empty"],
    "shuffled": ["--records-per-shard", "100", "--shuffle", "--index"],
    "tars": ["--max-shard-size", "400kB", "--to", "tar"],
    "compressed tars": ["--max-shard-size", "400kB", "--to", "tar", "--compression", "gzip"],
}


def final(folder: Path) -> dict[str, bytes]:
    """What stands under final names: all but working folders; a file that goes away meanwhile is left out."""
    found = {}
    for path in sorted(folder.rglob("*")):
        *above, name = path.relative_to(folder).parts
        if not any(part.startswith(".") for part in above) and (not name.startswith(".") or name.endswith(".sizes")):
            with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                found[str(path.relative_to(folder))] = path.read_bytes()
    return found


def manifest_in(found: dict[str, bytes]) -> bytes | None:
    return next((data for name, data in found.items() if name.endswith("manifest.json")), None)


CALLS = ("open", "replace", "rename", "unlink", "rmdir", "makedirs", "fsync", "write", "writev")
SCENES: dict[str, tuple[str, list[str], str]] = {
    # name: input, options of the conversion, options of one that stood there before
    "direct": ("large", ["-o", "out/train-<>.record", "--max-shard-size", "60kB"], ""),
    "spooled": ("small", ["-o", "out/train-<>.record", "--max-shard-size", "8kB", "--index"], ""),
    "filling": ("small", ["-o", "out/train-<>.record", "--max-shard-size", "13kB"], ""),
    "by total": ("small", ["-o", "out/<0>-of-<total>.record", "--records-per-shard", "30"], ""),
    "splits": ("small", ["-o", "out/<split>/<>.record", "--split", "a=0.6,b=0.4", "--num-shards", "2"], ""),
    "shuffled": ("small", ["-o", "out/train-<>.record", "--shuffle", "--num-shards", "3"], ""),
    "spools as shards": ("small", ["-o", "out/<input>-whole.record", "--op", "drop_empty"], ""),
    "tars": ("small", ["-o", "out/train-<>.tar", "--max-shard-size", "80kB"], ""),
    "shuffled tars": ("small", ["-o", "out/train-<>.tar.gz", "--max-shard-size", "20kB", "--shuffle"], ""),
    "records": ("records", ["-o", "out/train-<>.record", "--max-shard-size", "60kB", "--index"], ""),
    "shuffled records": ("records", ["-o", "out/train-<>.record", "--shuffle", "--num-shards", "2"], ""),
    "overwriting": (
        "small",
        ["-o", "out/train-<>.record", "--records-per-shard", "40", "--overwrite"],
        "--records-per-shard=12",
    ),
    "updating": (
        "small",
        ["-o", "out/train-<>.record", "--records-per-shard=12", "--index", "--update"],
        "--records-per-shard=12",
    ),
    "overwriting by total": (
        "small",
        ["-o", "out/t-<>-of-<total>.record", "--records-per-shard", "40", "--overwrite"],
        "--records-per-shard=12",
    ),
}


class Ending:
    """Counts the calls of this process that change the disk; at the n-th, the disk is full or the process is killed.

    With n = 0 nothing ends: `at_each` is called before each call, when the disk is as a kill would leave it.
    """

    def __init__(self, number: int = 0, *, full: bool = False, at_each: Callable[[int], None] | None = None) -> None:
        self.calls = 0
        self.number = number
        self.full = full
        self.at_each = at_each
        self.lock = threading.RLock()
        self.inside = False

    def __enter__(self) -> Ending:
        self.originals = {name: getattr(os, name) for name in CALLS}
        for name, call in self.originals.items():
            setattr(os, name, self.wrapped(call, name))
        return self

    def __exit__(self, *error: object) -> None:
        for name, call in self.originals.items():
            setattr(os, name, call)

    def wrapped(self, call: Callable[..., Any], name: str) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            if name == "open" and not args[1] & os.O_CREAT:
                return call(*args, **options)
            with self.lock:
                if self.inside:
                    return call(*args, **options)
                self.calls += 1
                if self.at_each:
                    self.inside = True
                    self.at_each(self.calls)
                    self.inside = False
                if self.calls == self.number:
                    if not self.full:
                        os.kill(os.getpid(), signal.SIGKILL)
                    if name in ("write", "writev"):  # a full disk takes a part first
                        data = args[1] if name == "write" else b"".join(args[1])
                        self.originals["write"](args[0], bytes(data)[: len(data) // 2])
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return call(*args, **options)

        return counted


def run_here(arguments: list[str], ending: Ending | None = None) -> int:
    """Run the command in this process, which writes to `log`; returns its exit code."""
    from tar2tf_cli.cli import main

    log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    kept = [os.dup(1), os.dup(2)]
    for stream in (1, 2):
        os.dup2(log, stream)
    try:
        with ending or contextlib.nullcontext():
            main(arguments)
    except SystemExit as done:
        return int(done.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        for stream, saved in enumerate(kept, 1):
            os.dup2(saved, stream)
            os.close(saved)
        os.close(log)
    return 99


def run_killed(arguments: list[str], number: int) -> int:
    """Run the command in a fork of this process, killed at a call; its exit code, or minus the signal."""
    pid = os.fork()
    if pid == 0:
        os._exit(run_here(arguments, Ending(number)))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def place(folder: str) -> None:
    """Put a copy of a folder in the place of the output."""
    shutil.rmtree("out", ignore_errors=True)
    shutil.copytree(folder, "out")


@contextlib.contextmanager
def other_inputs(folder: str) -> Iterator[None]:
    """For an update, the inputs of the run before it: a longer tar in the place of the last."""
    first, *_, last = sorted(Path(folder).iterdir())
    last.rename("away")
    shutil.copy2(first, Path(folder, "c.tar"))
    try:
        yield
    finally:
        Path(folder, "c.tar").unlink()
        Path("away").rename(last)


class Scene:
    """A conversion in the current folder, and what it makes there of what stood there before."""

    def __init__(self, name: str) -> None:
        kind, options, before = SCENES[name]
        if name == "filling":
            write_shard.MIN_EARLY_BYTES = 1000
        self.arguments = ["convert", kind, *options, "-j", "1"]
        if before:
            with other_inputs(kind) if name == "updating" else contextlib.nullcontext():
                index = [option for option in options if option == "--index"]
                assert run_here(["convert", kind, *options[:2], before, *index, "-j", "1"]) == 0, Path(
                    "log"
                ).read_text()
        Path("out").mkdir(exist_ok=True)
        for foreign, data in {"train-7x.record": b"not ours", "notes.txt": b"nor this"}.items():
            Path("out", foreign).write_bytes(data)
        self.former = final(Path("out"))
        shutil.copytree("out", "before")
        self.calls = 0
        self.kept: list[int] = []
        self._last: dict[Path, bytes] = {}
        assert run_here(self.arguments, Ending(at_each=self._keep)) == 0, Path("log").read_text()
        self.expected = every_file(Path("out"))

    def _keep(self, number: int) -> None:
        """Keep what a kill at this call would leave, if that differs from what one at the call before would."""
        self.calls = number
        found = {path: path.read_bytes() if path.is_file() else b"" for path in Path("out").rglob("*")}
        if found != self._last:
            self._last = found
            self.kept.append(number)
            shutil.copytree("out", f"killed-{number}")

    def check(self, where: str) -> None:
        """What stands there after the run ended at a call is whole, and a manifest is that of what stands there."""
        found = final(Path("out"))
        for name, data in found.items():
            assert data in (self.expected.get(name), self.former.get(name)), f"{where}: {name} is not whole"
        manifest = next((data for name, data in found.items() if name.endswith("manifest.json")), None)
        if manifest is not None and manifest != self.former.get(
            "_train-manifest.json", self.former.get("_t-manifest.json")
        ):
            assert found == self.expected, f"{where}: a manifest stands before its shards do"
        elif manifest is not None:
            assert found == self.former, f"{where}: the former manifest does not tell what is there"

    def goes_on(self, where: str) -> None:
        """The same command comes to the same bytes."""
        assert run_here(self.arguments) == 0, f"{where}: " + Path("log").read_text()
        assert every_file(Path("out")) == self.expected, f"{where}: {every_file(Path('out')).keys()}"


def kill_at_each_call(scene: Scene) -> None:
    """Continue whatever a kill at any call leaves; every second time the disk is full before it can."""
    for turn, number in enumerate(scene.kept, 1):
        if turn % 10:
            place(f"killed-{number}")
        else:  # a signal does what is taken for it
            place("before")
            assert run_killed(scene.arguments, number) == -signal.SIGKILL
        again = random.Random(number).randrange(1, 40)
        scene.check(f"call {number}")
        if turn % 2:
            run_here(scene.arguments, Ending(again, full=True))
        scene.goes_on(f"calls {number}, {again}")


def fill_the_disk_at_each_call(scene: Scene) -> int:
    """Continue after the disk was full at every second call, and it was killed then. Returns the last."""
    for number in range(1, 1000, 2):
        place("before")
        code, log = run_here(scene.arguments, Ending(number, full=True)), Path("log").read_text()
        assert code in (0, 3), f"call {number}: {code}\n{log}"
        assert "Traceback" not in log, f"call {number}: {log}"
        scene.check(f"call {number}")
        if code == 0:
            return number - 1
        again = random.Random(number).randrange(1, 40)
        run_killed(scene.arguments, again)
        scene.goes_on(f"calls {number}, {again}")
    raise AssertionError("the conversion makes too many calls")


@contextlib.contextmanager
def reading_stdin(tar: Path, *options: str | Path) -> Iterator[Process]:
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
        wait_until(lambda: len(children(process.pid)) == 2, "two workers", process=process)
        yield process
    finally:
        end(process)


def stderr_of(process: Process) -> str:
    """What a process says until it ends by itself."""
    assert process.stderr
    process.wait(SECONDS)
    text = process.stderr.read().decode()
    assert "Traceback" not in text, text
    return text


ENDS: dict[str, Callable[[], object]] = {
    "kill all": lambda: os.killpg(0, signal.SIGKILL),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "ctrl-c": lambda: os.killpg(0, signal.SIGINT),
}
"""How a command ends itself: with its workers, alone, or as a terminal does it."""

END = "import interruptions; interruptions.end_at()"
"""The code of a process that does `end_at`."""


def end_at() -> None:
    """What a process of its own does: run the command that follows two arguments, and end it at one moment.

    The first argument is the number of a call that changes the disk, or the name of a file that is published, and the
    other one of `ENDS`. Prints how many calls there were, if it came to its end.
    """
    from tar2tf_cli.cli import main

    when, how = sys.argv.pop(1), ENDS[sys.argv.pop(1)]
    run, replace = os.getpid(), os.replace

    def at_each(call: int) -> None:
        if str(call) == when and os.getpid() == run:  # workers count for themselves
            how()

    def published(old: str, new: str) -> None:
        replace(old, new)
        if os.path.basename(new) == when:
            how()

    os.replace = published
    with (ending := Ending(at_each=at_each)):
        try:
            main(sys.argv[1:])
        finally:
            print(ending.calls)


def kill_once_published(name: str, *command: str | Path) -> None:
    """Run a command that is killed with its workers as soon as it has published a file of this name."""
    killed = tar2tf(name, "kill all", *command, code=END)
    assert killed.returncode == -signal.SIGKILL, killed.stderr


def end_at_each_call() -> None:
    """What a process of its own does: the only argument is a scene; prints how often the command was ended."""
    os.fsync = lambda descriptor: None  # nobody pulls the plug here
    scene = Scene(sys.argv[1])
    kill_at_each_call(scene)
    print(len(scene.kept), fill_the_disk_at_each_call(scene))
