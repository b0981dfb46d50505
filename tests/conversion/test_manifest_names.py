"""A manifest has a name that readers of folders skip; the names of earlier versions are still read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from commands import convert, tar2tf
from shards import samples, write_tar
from tar2tf_cli import inspect, open_records
from tar2tf_cli.datasets.load import load_dataset


@pytest.fixture
def out(tmp_path: Path) -> Path:
    convert(write_tar(tmp_path / "in.tar", samples(20)), "-o", tmp_path / "out" / "x-<>.record")
    return tmp_path / "out"


def test_spark_hadoop_and_ray_see_nothing_but_the_shards(out: Path) -> None:
    """They skip names that begin with `_` or a dot, as Spark's own `_SUCCESS`."""
    assert [name for name in os.listdir(out) if not name.startswith(("_", "."))] == ["x-1.record"]
    assert (out / "_x-manifest.json").exists()


def test_the_folder_stands_for_the_dataset(out: Path) -> None:
    assert len(list(load_dataset(out))) == 20
    assert len(open_records(out, index_folder="")) == 20
    assert inspect(str(out)).samples == 20


def test_an_output_of_an_earlier_version_is_read_continued_and_updated(out: Path, tmp_path: Path) -> None:
    os.rename(out / "_x-manifest.json", out / "x-manifest.json")
    for named in (out, out / "x-manifest.json"):
        assert len(list(load_dataset(named))) == 20
        assert tar2tf("verify", named).returncode == 0
    command = ["convert", tmp_path / "in.tar", "-o", out / "x-<>.record"]
    assert "up to date" in tar2tf(*command).stderr
    write_tar(tmp_path / "in.tar", samples(30))
    assert tar2tf(*command, "--update").returncode == 0
    assert sorted(name for name in os.listdir(out) if name.endswith(".json")) == ["x-manifest.json"]
    assert len(open_records(out / "x-manifest.json", index_folder="")) == 30
