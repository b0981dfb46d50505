"""Devices and pipes as outputs: they are written to like standard output, and nothing replaces them."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from commands import SECONDS, convert, tar2tf
from shards import shards_in, small_shards


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    return small_shards(tmp_path / "in")


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    os.mkfifo(tmp_path / "out" / "x.record")
    return tmp_path / "out" / "x.record"


@pytest.mark.parametrize("options", [[], ["--overwrite"], ["-j", "1"], ["--shuffle"]], ids=str)
def test_a_pipe_is_written_to(options: list[str], bucket: Path, pipe: Path, tmp_path: Path) -> None:
    convert(bucket, "-o", tmp_path / "file" / "x.record", *options)
    came: list[bytes] = []
    reader = threading.Thread(target=lambda: came.append(pipe.read_bytes()), daemon=True)
    reader.start()
    done = convert(bucket, "-o", pipe, *options)
    reader.join(SECONDS)
    assert came == [(tmp_path / "file" / "x.record").read_bytes()]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert os.listdir(pipe.parent) == ["x.record"]
    assert str(pipe) in done.stderr


@pytest.mark.parametrize("options", [[], ["--overwrite"], ["--json"]], ids=str)
def test_a_device_is_written_to(options: list[str], bucket: Path) -> None:
    before = os.listdir("/dev"), os.stat("/dev/null").st_ino
    convert(bucket, "-o", "/dev/null", *options)
    assert (os.listdir("/dev"), os.stat("/dev/null").st_ino) == before
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_link_to_a_device_stays_one(bucket: Path, tmp_path: Path) -> None:
    (tmp_path / "x.record").symlink_to("/dev/null")
    convert(bucket, "-o", tmp_path / "x.record", "--overwrite")
    assert (tmp_path / "x.record").readlink() == Path("/dev/null")


def test_a_device_that_takes_nothing_is_an_error(bucket: Path) -> None:
    done = tar2tf("convert", bucket, "-o", "/dev/full")
    assert done.returncode == 3
    assert "/dev/full: cannot be written: No space left" in done.stderr


def test_standard_output_has_names_in_dev(bucket: Path, tmp_path: Path) -> None:
    expected = convert(bucket, "-o", tmp_path / "x.record")
    assert expected.stdout == ""
    for options in ([], ["--overwrite"]):
        done = convert(bucket, "-o", "/dev/stdout", *options)
        assert os.fsencode(done.stdout) == (tmp_path / "x.record").read_bytes().replace(b"\r\n", b"\n")


@pytest.mark.parametrize("options", [["--max-shard-size", "1MB"], ["--records-per-shard", "9"], ["--index"]], ids=str)
def test_a_pipe_is_not_divided(options: list[str], bucket: Path, pipe: Path) -> None:
    done = tar2tf("convert", bucket, "-o", pipe, *options)
    assert done.returncode == 2
    assert f"{pipe} is a single stream" in done.stderr
    assert os.listdir(pipe.parent) == ["x.record"]


@pytest.mark.parametrize("name", ["train-2.record", "_train-manifest.json", "train-1.record.idx"])
def test_a_pipe_among_the_shards_is_refused_even_with_overwrite(name: str, bucket: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    command = ["convert", bucket, "-o", tmp_path / "train-<>.record", "--records-per-shard", "50", "--index"]
    for options in ([], ["--overwrite"]):
        done = tar2tf(*command, *options)
        assert done.returncode == 2
        assert f"{tmp_path / name}: is a device or pipe, which cannot be replaced" in done.stderr
    assert stat.S_ISFIFO((tmp_path / name).stat().st_mode)
    assert not shards_in(tmp_path, "train-1.record")
    assert not list(tmp_path.glob(".*"))


def test_a_directory_is_refused(bucket: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    for options in ([], ["--overwrite"]):
        done = tar2tf("convert", bucket, "-o", tmp_path / "out", *options)
        assert done.returncode == 2
        assert f"{tmp_path / 'out'}' is a directory" in done.stderr
    assert os.listdir(tmp_path / "out") == []
