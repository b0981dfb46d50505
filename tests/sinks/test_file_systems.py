"""File systems that lack a call: network and user-space ones have no locks, or flush no folders."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from commands import tar2tf
from tar2tf_cli.formats import files
from tar2tf_cli.formats.files import make_folders, sync
from tar2tf_cli.testing.shards import tar_of

WITHOUT = """
import errno, fcntl, os, stat, sys
from tar2tf_cli.cli import main
call, number = sys.argv.pop(1), int(sys.argv.pop(1))
fsync = os.fsync
def no_locks(descriptor, how):
    raise OSError(number, os.strerror(number))
def no_folders(descriptor):
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        raise OSError(number, os.strerror(number))
    fsync(descriptor)
if call != "fsync":
    fcntl.flock = no_locks
if call != "flock":
    os.fsync = no_folders
main(sys.argv[1:])
"""


@pytest.mark.parametrize(
    ("call", "number", "words"),
    [
        ("flock", errno.ENOSYS, "has no locks"),
        ("flock", errno.EOPNOTSUPP, "has no locks"),
        ("flock", errno.ENOLCK, "has no locks"),
        ("fsync", errno.EINVAL, "cannot flush folders"),
    ],
)
def test_a_run_goes_on_without_what_its_file_system_lacks(tmp_path: Path, call: str, number: int, words: str) -> None:
    (tmp_path / "in.tar").write_bytes(tar_of(3))
    done = tar2tf(call, str(number), "convert", tmp_path / "in.tar", "-o", tmp_path / "new/x-<>.record", code=WITHOUT)
    assert done.returncode == 0, done.stderr
    assert words in done.stderr
    assert {"x-1.record", "_x-manifest.json"} <= {*os.listdir(tmp_path / "new")}


def test_all_that_a_file_system_lacks_is_said(tmp_path: Path) -> None:
    (tmp_path / "in.tar").write_bytes(tar_of(3))
    command = ("convert", tmp_path / "in.tar", "-o", tmp_path / "new/x-<>.record")
    done = tar2tf("both", str(errno.ENOSYS), *command, code=WITHOUT)
    assert (done.stderr.count("has no locks"), done.stderr.count("cannot flush folders")) == (1, 1), done.stderr


def test_a_folder_that_cannot_be_flushed_for_another_reason_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(descriptor: int) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(Exception, match=r"broken|error"):
        sync(str(tmp_path))


def test_the_folders_above_new_ones_are_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[str] = []
    monkeypatch.setattr(files, "sync", flushed.append)
    make_folders(str(tmp_path / "a/b/c"))
    assert flushed == [str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a/b")]
    make_folders(str(tmp_path / "a/b/c"))
    assert len(flushed) == 3


def test_a_file_where_a_folder_should_be_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(OSError, match=r"exists|Not a directory"):
        make_folders(str(tmp_path / "a"))
