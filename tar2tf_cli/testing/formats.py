"""The test suite that every shard format passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tar2tf_cli import open_records
from tar2tf_cli.api.shard_format import ShardFormat
from tar2tf_cli.checking.verify import verify
from tar2tf_cli.conversion.run import convert
from tar2tf_cli.plugins import find_format, format_of
from tar2tf_cli.samples.keys import key_of
from tar2tf_cli.spec.conversion import Conversion, Input, Output
from tar2tf_cli.testing.shards import tar_of


class FormatSuite:
    """Tests of a shard format: recognition, reading, random access, damage, and output independent of workers.

    Override `name`.

    Attributes:
        name: the format's name, as after `--to`.
    """

    name: str

    @pytest.fixture
    def shard(self, tmp_path: Path) -> Path:
        """Write a shard of twenty samples."""
        return self.convert(tmp_path, workers=1)

    def convert(self, folder: Path, workers: int) -> Path:
        """Convert a tar of twenty samples into one shard of the format."""
        (folder / "in.tar").write_bytes(tar_of(20))
        suffix = next(iter(find_format(self.name).traits.suffixes), f".{self.name}")
        shard = folder / f"out-{workers}{suffix}"
        convert(Conversion(Input(str(folder / "in.tar")), Output(str(shard), to=self.name)), workers=workers)
        return shard

    def test_the_format_is_found_by_its_name(self) -> None:
        found = find_format(self.name)
        assert isinstance(found, ShardFormat)
        assert found.name == self.name

    def test_a_shard_is_recognized_by_its_first_bytes(self, shard: Path) -> None:
        head, found = shard.read_bytes()[:4096], find_format(self.name)
        assert format_of(head) is found
        assert found.recognizes(head)

    def test_any_number_of_workers_writes_the_same_bytes(self, shard: Path, tmp_path: Path) -> None:
        assert self.convert(tmp_path, workers=2).read_bytes() == shard.read_bytes()

    def test_units_follow_each_other_and_each_is_one_sample(self, shard: Path) -> None:
        found, end = find_format(self.name), 0
        with shard.open("rb") as stream:
            units = found.units(stream, str(shard))
            for number, (offset, unit) in enumerate(units):
                sample = found.sample(unit, str(shard), "first")
                assert (offset, key_of(sample)) == (end, f"{number:06d}")
                end += len(unit)
        assert (number + 1, units.offset) == (20, end)

    def test_samples_are_read_in_any_order_and_verified(self, shard: Path) -> None:
        records = open_records(shard, index_folder="")
        assert [key_of(records[number]) for number in (19, 0, 7)] == ["000019", "000000", "000007"]
        assert verify(str(shard)).ok

    def test_a_shard_that_is_cut_short_is_not_ok(self, shard: Path) -> None:
        data = shard.read_bytes()
        shard.write_bytes(data[: len(data) // 2 + 1])
        assert not verify(str(shard)).ok
