"""The shard formats of the package pass the suite that formats of other packages run."""

from __future__ import annotations

import io
import shutil
import tarfile

import pytest

from added_package import ADDED, declare, put_on_path
from tar2tf_cli.errors import DamagedShardError, SampleError, UsageError
from tar2tf_cli.formats.example import frame
from tar2tf_cli.plugins import find_format, format_names
from tar2tf_cli.testing.formats import FormatSuite


class TestTar(FormatSuite):
    """Tars."""

    name = "tar"


class TestTFRecord(FormatSuite):
    """TFRecords."""

    name = "tfrecord"


class TestAddedFormat(FormatSuite):
    """A format of another package."""

    name = "ljson"

    @pytest.fixture(autouse=True)
    def installed(self, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = tmp_path_factory.mktemp("packages")
        shutil.copytree(ADDED / "parts", folder / "parts")
        put_on_path(declare(folder, "parts", "[tar2tf.formats]\nljson = parts.ljson:FORMAT\n"), monkeypatch)


def test_the_default_format_comes_first_and_no_other_name_is_one() -> None:
    assert format_names() == ["tfrecord", "tar"]
    with pytest.raises(UsageError, match=r"no shard format 'zip'"):
        find_format("zip")


def test_a_record_that_is_no_example_is_a_faulty_sample() -> None:
    with pytest.raises(SampleError, match=r"not a tf\.train\.Example"):
        find_format("tfrecord").sample(b"".join(frame([b"\xff"], 1)), "x", "first")


def test_units_after_damage_to_a_record_are_found_and_those_of_a_tar_are_not() -> None:
    records = [b"".join(frame([bytes([number]) * 50], 50)) for number in range(3)]
    damaged = records[0] + records[1][:-1] + bytes([records[1][-1] ^ 1]) + records[2]
    units = find_format("tfrecord").units(io.BytesIO(damaged), "x")
    found = []
    with pytest.raises(DamagedShardError) as caught:
        found += [unit for _, unit in units]
    assert units.resume(caught.value)
    assert [unit for _, unit in units] == [records[2]]
    assert caught.value.lost is not None
    assert not find_format("tar").units(io.BytesIO(b""), "x").resume(caught.value)


def test_a_tar_is_recognized_where_one_header_is_damaged() -> None:
    tar = find_format("tar")
    member = tarfile.TarInfo("0001.cls").tobuf()
    damaged = b"?" + member[1:]
    assert tar.recognizes(damaged)
    assert not tar.recognizes(b"\1" * 512)
    assert tar.recognizes(b"\1" * 512 + member, damaged=True)
    assert not tar.recognizes(b"\1" * 512 + damaged, damaged=True)
