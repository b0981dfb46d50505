"""What the tests of whole conversions share: tars made by tarfile, the command in its own process, plain oracles."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import random
import signal
import struct
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import forked

Process = forked.Process | subprocess.Popen[bytes]
"""A command that was started."""

Sample = tuple[str, dict[str, bytes]]
"""Key and entries by extension."""

PHOTOS = Path(__file__).parents[1] / "data"
COMMAND = [sys.executable, "-m", "tar2tf_cli"]
SECONDS = 120
"""Longest that any process of the tests may take, and that anything is waited for: no more than a guard."""


# --- Tars ---


def samples(count: int, size: int = 300, *, first: int = 0, folder: str = "") -> list[Sample]:
    """Samples `0000`, `0001`, … of a `cls` text and a `jpg` of random bytes, `size` of them on average."""
    made = []
    for number in range(first, first + count):
        noise = random.Random(number)
        jpg = noise.randbytes(noise.randrange(size // 2, size + size // 2))
        made.append((f"{folder}{number:04d}", {"cls": b"%d" % (number % 10), "jpg": jpg}))
    return made


def write_tar(path: Path, contents: Iterable[Sample]) -> Path:
    """A tar of samples, gzipped where the name says so."""
    return write_members(path, [(f"{key}.{name}", data) for key, entries in contents for name, data in entries.items()])


def write_members(path: Path, members: Iterable[tuple[str, bytes]]) -> Path:
    """A tar of regular files in the order given."""
    path.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    data = buffer.getvalue()
    path.write_bytes(gzip.compress(data, 1, mtime=0) if path.name.endswith("gz") else data)
    return path


def small_shards(folder: Path, shards: int = 4, each: int = 60) -> Path:
    """Shards of small samples, whose records are spooled."""
    for number in range(shards):
        write_tar(folder / f"small-{number}.tar", samples(each + number, first=number * 1000))
    return folder


def large_shards(folder: Path, shards: int = 4, each: int = 12, size: int = 12_000) -> Path:
    """Shards of samples large enough that their records are written straight from the tar."""
    for number in range(shards):
        write_tar(folder / f"large-{number}.tar", samples(each + number, size, first=number * 1000))
    return folder


def mixed_shards(folder: Path) -> Path:
    """Shards of every kind that may lie side by side, some of one sample."""
    write_tar(folder / "a.tar", samples(70, first=0))
    write_tar(folder / "b.tar.gz", samples(50, 900, first=1000))
    write_tar(folder / "c.tar", samples(14, 12_000, first=2000))
    write_tar(folder / "d.tar", samples(1, first=2900))
    write_tar(folder / "e.tgz", samples(12, 12_000, first=3000))
    write_tar(folder / "f.tar", samples(1, 30_000, first=4000))
    return folder


def members_of(shard: Path) -> Iterator[tuple[str, bytes]]:
    """Names and data of a tar's files, as tarfile reads them."""
    with tarfile.open(shard) as tar:
        for info in tar:
            file = tar.extractfile(info)
            assert file is not None
            yield info.name, file.read()


def samples_of(*shards: Path) -> list[Sample]:
    """The samples of tars in the order of their first members, keys split at the first dot of the base name."""
    found: list[Sample] = []
    for shard in shards:
        grouped: dict[str, dict[str, bytes]] = {}
        for name, data in members_of(shard):
            base = name.rpartition("/")[2]
            key = name[: len(name) - len(base) + base.index(".")]
            grouped.setdefault(key, {})[name[len(key) + 1 :].lower()] = data
        found += grouped.items()
    return found


# --- Records ---


def records(*paths: Path) -> list[bytes]:
    """The records of TFRecord files in order, by the framing alone; gzip is read by its magic number."""
    found = []
    for path in paths:
        data = path.read_bytes()
        data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        position = 0
        while position < len(data):
            (length,) = struct.unpack_from("<Q", data, position)
            found.append(data[position + 12 : position + 12 + length])
            assert len(found[-1]) == length
            position += length + 16
    return found


def examples(*paths: Path) -> list[dict[str, Any]]:
    """Features of the records by name, each a list of values, as TensorFlow's protobuf parses them."""
    import tensorflow as tf

    found = []
    for parsed in map(tf.train.Example.FromString, records(*paths)):
        features = parsed.features.feature
        found.append({name: list(getattr(value, value.WhichOneof("kind")).value) for name, value in features.items()})
    return found


def contents(*paths: Path) -> list[Sample]:
    """The records as samples of bytes."""
    found = []
    for features in examples(*paths):
        (key,) = features.pop("__key__")
        found.append((os.fsdecode(key), {name: value for name, (value,) in features.items()}))
    return found


def keys(*paths: Path) -> list[str]:
    """The key of each record."""
    return [key for key, _ in contents(*paths)]


# --- The command ---


def tar2tf(*args: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, output captured; a traceback on either stream fails the test.

    The process is forked from a warm one, unless options ask for what only a real start can give it: those are
    options of `subprocess.run`, and variables of the interpreter.
    """
    changed = options.pop("env", {})
    words, environment = [*map(str, args)], {**os.environ, **changed}
    if options.keys() <= {"cwd", "input", "stdin", "timeout", "code", "file_size"} and not any(
        name.startswith("PYTHON") for name in changed
    ):
        if "input" in options:
            options["input"] = os.fsencode(options["input"])
        if "stdin" in options:
            options["stdin"] = options["stdin"] if isinstance(options["stdin"], int) else options["stdin"].fileno()
        raw = forked.run(words, env=environment, **{"timeout": SECONDS, **options})
        done = subprocess.CompletedProcess(words, raw.returncode, _text(raw.stdout), _text(raw.stderr))
    else:
        if "input" in options:
            options["input"] = os.fsdecode(options["input"])
        options = {"capture_output": True, "text": True, "errors": "surrogateescape", "timeout": SECONDS, **options}
        done = subprocess.run([*COMMAND, *words], env=environment, check=False, **options)
    assert "Traceback" not in (done.stderr or ""), done.stderr
    return done


def _text(data: bytes) -> str:
    return os.fsdecode(data).replace("\r\n", "\n")


def convert(*args: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """`tar2tf convert` that has to succeed."""
    done = tar2tf("convert", *args, **options)
    assert done.returncode == 0, done.stderr
    return done


def python(*args: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run `python` with these arguments in a process of its own; options are those of `forked.run`."""
    environment = {**os.environ, **options.pop("env", {})}
    done = forked.run([*map(str, args)], python=True, env=environment, **{"timeout": SECONDS, **options})
    return subprocess.CompletedProcess(done.args, done.returncode, _text(done.stdout), _text(done.stderr))


def start(*args: str | Path, **options: Any) -> Process:
    """Start the command as the leader of a process group, forked from a warm one if only streams are asked for.

    `code` is Python to run instead, as in `forked.run`.
    """
    asked = {name: options.get(name) for name in ("stdin", "stdout", "stderr")}
    if options.keys() <= {*asked, "code"} and set(asked.values()) <= {None, subprocess.PIPE, subprocess.DEVNULL}:
        return forked.Process([*map(str, args)], **asked, code=options.get("code"))
    return start_anew(*args, **options)


def start_anew(*args: str | Path, **options: Any) -> subprocess.Popen[bytes]:
    """Start the command in an interpreter of its own, as the leader of a process group."""
    return subprocess.Popen([*COMMAND, *map(str, args)], start_new_session=True, **options)


def end(process: Process) -> str:
    """Kill a process and its group, whatever is left of them; what it wrote to standard error, if that is a pipe."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return _text(process.communicate(timeout=SECONDS)[1] or b"")


def children(pid: int) -> list[int]:
    """Processes whose parent is this one; Linux only."""
    return [each for each, (_, parent, _) in _processes().items() if parent == str(pid)]


def members(group: int) -> list[int]:
    """Processes of a group that run, so no zombies; Linux only."""
    return [each for each, (state, _, leader) in _processes().items() if leader == str(group) and state != "Z"]


def is_running(pid: int) -> bool:
    """Whether a process is there and not a zombie that nobody has asked after."""
    return _processes().get(pid, "Z")[0] != "Z"


def _processes() -> dict[int, list[str]]:
    """State, parent and group of each process, as proc(5) has them after its name."""
    found = {}
    for entry in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            found[int(entry)] = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()[:3]
    return found


def wait_until(
    condition: Callable[[], Any], what: str, seconds: float = SECONDS, process: Process | None = None
) -> Any:
    """The condition's value once it is true.

    Raises:
        AssertionError: when it is not in time, or the process that makes it true has ended before; with its errors.
    """
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if process is not None and process.poll() is not None and not condition():
            raise AssertionError(f"ended with {process.returncode} before {what}: {end(process)}")
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds} s in vain for {what}: {end(process) if process else ''}")
        time.sleep(0.002)
    return value


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder by path: hidden ones, too, apart from the sizes that are published for `--update`."""
    return {name: data for name, data in every_file(folder).items() if not name.endswith(".sizes")}


def every_file(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def shards_in(folder: Path, pattern: str = "*.record") -> list[Path]:
    """Output shards in number order."""

    def number(path: Path) -> tuple[str, int, str]:
        digits = "".join(character for character in path.stem if character.isdigit())
        return str(path.parent), int(digits or 0), path.name

    return sorted(folder.glob(pattern), key=number)


def sizes(paths: Sequence[Path]) -> list[int]:
    """Bytes on disk of each file."""
    return [path.stat().st_size for path in paths]
