"""What the tests of conversions that ended early share."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from shards import (
    SECONDS,
    Process,
    children,
    end,
    start,
    tree,
    wait_until,
)

WAYS = {
    "direct": ["--max-shard-size", "400kB"],
    "measured": ["--max-shard-size", "400kB", "--type", "cls=int64"],
    "spooled": ["--max-shard-size", "100kB", "--op", "drop_empty"],
    "shuffled": ["--records-per-shard", "100", "--shuffle", "--index"],
}


def final(folder: Path) -> dict[str, bytes]:
    """What stands under final names: all but working folders; a file that goes away meanwhile is left out."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if not any(part.startswith(".") for part in path.relative_to(folder).parts):
            with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                found[str(path.relative_to(folder))] = path.read_bytes()
    return found


CALLS = ("open", "replace", "rename", "unlink", "rmdir", "makedirs", "fsync", "write", "writev")
SCENES: dict[str, tuple[str, list[str], str]] = {
    # name: input, options of the conversion, options of one that stood there before
    "direct": ("large", ["-o", "out/train-<>.record", "--max-shard-size", "60kB"], ""),
    "spooled": ("small", ["-o", "out/train-<>.record", "--max-shard-size", "8kB", "--index"], ""),
    "by total": ("small", ["-o", "out/<0>-of-<total>.record", "--records-per-shard", "30"], ""),
    "splits": ("small", ["-o", "out/<split>/<>.record", "--split", "a=0.6,b=0.4", "--num-shards", "2"], ""),
    "shuffled": ("small", ["-o", "out/train-<>.record", "--shuffle", "--num-shards", "3"], ""),
    "spools as shards": ("small", ["-o", "out/<input>-whole.record", "--op", "drop_empty"], ""),
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


def end_at_each_call(scene: str, *, full: bool) -> int:
    """Run a scene in the current folder once for each call, and continue it; returns how many calls there are."""
    kind, options, before = SCENES[scene]
    arguments = ["convert", kind, *options, "-j", "1"]
    foreign = {"train-7x.record": b"not ours", "notes.txt": b"nor this"}

    def prepare() -> dict[str, bytes]:
        shutil.rmtree("out", ignore_errors=True)
        if before:
            with other_inputs(kind) if scene == "updating" else contextlib.nullcontext():
                index = [option for option in options if option == "--index"]
                command = ["convert", kind, *options[:2], before, *index, "-j", "1"]
                assert run_here(command) == 0, Path("log").read_text()
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
        wait_until(lambda: len(children(process.pid)) == 2, "two workers")
        yield process
    finally:
        end(process)


def stderr_of(process: Process) -> str:
    """What a process says until it ends by itself."""
    assert process.stderr
    process.wait(SECONDS)
    text = process.stderr.read().decode()
    assert "Traceback" not in text
    return text


if __name__ == "__main__":
    os.fsync = lambda descriptor: None  # nobody pulls the plug here
    print(end_at_each_call(sys.argv[1], full=False), end_at_each_call(sys.argv[1], full=True))
