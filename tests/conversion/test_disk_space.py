"""The local disk holds only the shards in progress: a bucket is filled by way of a disk that holds a part of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from added_package import install, put_on_path
from commands import SECONDS, wait_until
from shards import write_tar
from tar2tf_cli import Conversion, convert
from tar2tf_cli.conversion.schedule import DiskSpace
from tar2tf_cli.ops import Func

SLOW_UPLOADS = """
import os, sys, time
from parts.shelf import ShelfStore
from tar2tf_cli.cli import main
put = ShelfStore.put
def slow_put(store, name, path, *, absent=False):
    time.sleep(os.path.getsize(path) / float(os.environ["BYTES_PER_SECOND"]))
    put(store, name, path, absent=absent)
ShelfStore.put = slow_put
main(sys.argv[1:])
"""


@pytest.fixture
def mount() -> list[str]:
    """The command that runs another one with a disk of 10 MB at the path `$DISK`."""
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    command.append('mount -t tmpfs -o size=10m tmpfs "$DISK" && exec "$0" "$@"')
    if (
        shutil.which("unshare") is None
        or subprocess.run(
            [*command, "true"], env={**os.environ, "DISK": "/mnt"}, capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("nothing can be mounted here")
    return command


@pytest.mark.parametrize("speed", ["inf", "2e6"])
def test_a_small_disk_is_enough_for_shards_on_their_way_to_a_bucket(
    speed: str, mount: list[str], tmp_path: Path
) -> None:
    disk, shelf = tmp_path / "disk", tmp_path / "shelf"
    disk.mkdir()
    shelf.mkdir()
    for number in range(10):
        entries = [(f"{number}-{sample}", {"bin": os.urandom(100_000)}) for sample in range(28)]
        write_tar(tmp_path / "tars" / f"{number}.tar", entries)
    (tmp_path / "packages").mkdir()
    env = {**os.environ, "PYTHONPATH": str(install(tmp_path / "packages")), "BYTES_PER_SECOND": speed}
    env |= {"DISK": str(disk), "XDG_CACHE_HOME": str(disk), "SHELF": str(shelf)}
    command = [*mount, sys.executable, "-c", SLOW_UPLOADS, "convert", str(tmp_path / "tars"), "-j", "2"]
    command += ["-o", "shelf://any/x-<>.record", "--max-shard-size", "2MB"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    assert "280 records" in done.stderr


def meet(sample: dict[str, Any]) -> dict[str, Any]:
    """Pass a sample once another process works on one, too."""
    folder = Path(os.environ["MEETING"])
    (folder / str(sample["__key__"])).touch()
    wait_until(lambda: len(os.listdir(folder)) == 2, "another process", seconds=20)
    return sample


def test_inputs_for_a_bucket_are_read_at_once_where_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("packages", "shelf", "meeting"):
        (tmp_path / name).mkdir()
    put_on_path(install(tmp_path / "packages"), monkeypatch)
    monkeypatch.setenv("SHELF", str(tmp_path / "shelf"))
    monkeypatch.setenv("MEETING", str(tmp_path / "meeting"))
    for name in "ab":
        write_tar(tmp_path / "in" / f"{name}.tar", [(name, {"txt": b"x"})])
    assert (
        convert(Conversion(str(tmp_path / "in"), "shelf://any/x-<>.record", ops=[Func(meet)]), workers=2).records == 2
    )


def test_a_disk_with_room_for_all_that_runs_lets_more_begin(tmp_path: Path) -> None:
    space = DiskSpace(str(tmp_path), shard=1 << 20)
    assert space.may_read(1 << 20)
    assert space.may_write(1 << 20)
    assert not space.may_read(1 << 60)
    space.begin_reading("one", 1 << 60)
    assert not space.may_write(1)
    assert not space.is_idle
    space.end("one", stored=1 << 60, spooled=0)
    assert space.is_idle
    assert space.may_read(1 << 60), "what is copied straight from inputs takes no room"


def test_space_is_reserved_for_what_runs_and_estimated_from_what_was_spooled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda folder: SimpleNamespace(f_bavail=10, f_frsize=100, f_bsize=7, f_bfree=99))
    space = DiskSpace("any", shard=300)

    def most(may: Callable[[int], bool]) -> int:
        """The largest size for which there is room."""
        return max((size for size in range(2001) if may(size)), default=-1)

    assert (most(space.may_read), most(space.may_write)) == (700, 1000)
    space.begin_reading("a", 200)
    space.begin_writing("b", 50)
    assert (most(space.may_read), most(space.may_write), space.is_idle) == (450, 750, False)
    space.end("a", stored=200, spooled=400)  # so that each byte of an input takes two
    assert (most(space.may_read), most(space.may_write), space.is_idle) == (325, 950, False)
    space.begin_reading("c", 100)
    assert (most(space.may_read), most(space.may_write)) == (225, 750)
    space.end("b")
    space.end("unknown")
    assert (most(space.may_write), space.is_idle) == (800, False)
    space.end("c", stored=600, spooled=0)
    assert (most(space.may_read), most(space.may_write), space.is_idle) == (1401, 1000, True)  # half a byte for each
