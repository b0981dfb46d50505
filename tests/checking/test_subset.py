"""`tar2tf verify --subset`: each run reads a part of the shards, and all parts together are all shards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.checking.subset import Subset
from tar2tf_cli.errors import UsageError
from verify_runs import Ran, a_tar, convert, flipped, framed, some_examples, write

ITEMS = [ObjectInfo(f"s-{number:04d}.tar", 1000 + number % 7 * 100, None) for number in range(500)]


def test_each_shard_is_in_exactly_one_part() -> None:
    chosen = [Subset.parse(f"{part}/30").choose(ITEMS) for part in range(1, 31)]
    assert all(sum(column) == 1 for column in zip(*chosen, strict=True))
    assert max(map(sum, chosen)) < 3 * len(ITEMS) / 30


def test_a_new_shard_changes_the_part_of_no_other() -> None:
    assert Subset.parse("3/30").choose([*ITEMS, ObjectInfo("new.tar", 1, None)])[:-1] == Subset.parse("3/30").choose(
        ITEMS
    )


@pytest.mark.parametrize(("subset", "days"), [("5%", 20), ("10kB", 66), ("100%", 1), ("1MB", 1)])
def test_all_shards_are_read_in_time_and_a_part_each_day(subset: str, days: int) -> None:
    read = [Subset.parse(subset).choose(ITEMS, day) for day in range(730_000, 730_000 + days + 1)]
    counts = Counter(place for chosen in read for place, is_read in enumerate(chosen) if is_read)
    assert len(counts) == len(ITEMS)
    sizes = [sum(item.size or 0 for item, is_read in zip(ITEMS, chosen, strict=True) if is_read) for chosen in read]
    total = sum(item.size or 0 for item in ITEMS)
    assert max(sizes) <= total / days * 1.2 + 2000


@pytest.mark.parametrize("subset", ["0/3", "4/3", "3", "0%", "101%", "x", "-1GB", "1/0"])
def test_what_is_no_part_is_refused(subset: str) -> None:
    if subset == "3":  # bytes
        assert Subset.parse(subset).bytes == 3
        return
    with pytest.raises(UsageError, match="--subset must be a part, a percentage or a size"):
        Subset.parse(subset)


def test_of_the_other_shards_existence_and_size_are_checked(tmp_path: Path, run: Callable[..., Ran]) -> None:
    source = write(tmp_path / "in.record", framed(*some_examples(40)))
    assert convert(source, "-o", tmp_path / "out" / "x-<>.record", "--records-per-shard", "4").code == 0
    manifest, shards = tmp_path / "out" / "_x-manifest.json", sorted((tmp_path / "out").glob("*.record"))
    for shard in shards:
        write(shard, flipped(shard.read_bytes(), 20))
    found = [run(manifest, "--subset", f"{part}/3", "--json").json["files"] for part in (1, 2, 3)]
    faulty = [file["path"] for files in found for file in files if file["status"] != "ok"]
    assert sorted(faulty) == [str(shard) for shard in shards]
    assert all(len(files) == 10 and any(file.get("unread") for file in files) for files in found)
    shards[0].write_bytes(shards[0].read_bytes()[:-1])
    shards[1].unlink()
    for part in (1, 2, 3):
        ran = run(manifest, "--subset", f"{part}/3")
        assert "x-1.record: the file has" in ran.out
        assert "x-10.record: the file is missing" in ran.out
        assert "not read: not in the subset" in ran.err


def test_a_subset_of_intact_shards_is_ok(tmp_path: Path, run: Callable[..., Ran]) -> None:
    for number in range(9):
        write(tmp_path / f"s-{number}.tar", a_tar([(f"{number}.a", b"1")]))
    totals = [run(tmp_path, "--subset", f"{part}/2").err.splitlines() for part in (1, 2)]
    assert all(lines[-1].startswith("OK: ") for lines in totals)
    assert sum(int(lines[-1].split()[1]) for lines in totals) == 9
    assert run(tmp_path, "--subset", "1/2", "--salvage", tmp_path / "x").code == 2
