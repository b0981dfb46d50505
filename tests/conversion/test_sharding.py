"""Which record goes into which shard: limits kept, order kept, nothing lost, for any sizes and options."""

from __future__ import annotations

import gzip
import random
import tempfile
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from operator import itemgetter

import pytest
from hypothesis import example as example_of
from hypothesis import given
from hypothesis import strategies as st

from hypothesis_profile import example_count
from spooled_units import conversion, indexed
from tar2tf_cli.conversion import sharding
from tar2tf_cli.conversion.sharding import PlannedShard, ShardPlanner, rows_of, sorted_tables
from tar2tf_cli.conversion.spool import InputUnits, SpoolIndex, StoredIndex
from tar2tf_cli.spec.conversion import Conversion

LIMIT = 1000

sizes = st.lists(st.integers(16, 300) | st.integers(16, 2500), max_size=25)
inputs_of_any_sizes = st.lists(sizes, max_size=4)
counts = st.integers(1, 12)

Record = tuple[int, int]
"""A record by the number of its input and its own number in it."""


def laid_out(conversion: Conversion, inputs: list[list[int]], stems: str = "abcdefgh") -> list[PlannedShard]:
    """The shards; those of shuffled records have the pieces that their tables say."""
    parts = [indexed(conversion, number, sizes)[0] for number, sizes in enumerate(inputs)]
    with tempfile.TemporaryDirectory() as folder:
        tables = partial(sorted_tables, path=lambda number: f"{folder}/{number}", first=len(stems))
        layout = ShardPlanner(conversion, list(stems), tables=tables)
        shards = []
        for number, part in enumerate(parts):
            if layout.full:
                break
            shards += layout.add(number, part)
        shards += layout.finish()
        assert layout.totals == Counter(shard.lane for shard in shards)
        assert layout.open_groups == set()
        return [in_spools(shard, folder, parts) for shard in shards] if conversion.shuffle else shards


def in_spools(shard: PlannedShard, folder: str, parts: list[InputUnits]) -> PlannedShard:
    """A shard with the pieces of spools that the rows of tables stand for."""
    found = PlannedShard(shard.lane, shard.number)
    for piece in shard.pieces:
        rows = list(zip(*rows_of(f"{folder}/{piece.group}", piece.first, piece.units), strict=True))
        assert len(rows) == piece.units
        assert sum(size for _, _, size in rows) == piece.size
        for group, start, size in rows:
            unit = list(parts[group].spool.ends).index(start)
            assert parts[group].spool.sizes[unit] == size
            found.add(parts[group], unit, unit + 1)
    assert (found.size, found.records) == (shard.size, shard.records)
    return found


def records_of(shard: PlannedShard) -> Iterator[Record]:
    for piece in shard.pieces:
        for number in range(piece.first, piece.first + piece.units):
            yield piece.group, number


def all_records(inputs: list[list[int]]) -> list[Record]:
    return [(source, number) for source, sizes in enumerate(inputs) for number in range(len(sizes))]


def check(shards: list[PlannedShard], inputs: list[list[int]]) -> None:
    """What holds for every layout of plain records: no gap in numbers, no empty shard, honest sums, joined pieces."""
    for lane in {shard.lane for shard in shards}:
        numbers = [shard.number for shard in shards if shard.lane == lane]
        assert numbers == list(range(len(numbers)))
    for shard in shards:
        records = list(records_of(shard))
        assert shard.records == len(records) > 0
        assert shard.size == sum(inputs[source][number] for source, number in records)
        for piece in shard.pieces:
            assert piece.start == sum(inputs[piece.group][: piece.first])
            assert piece.size == sum(inputs[piece.group][piece.first : piece.first + piece.units])
        for one, next_one in pairwise(shard.pieces):
            assert (one.group, one.first + one.units) != (next_one.group, next_one.first)


# --- Limits ---


@example_count(200)
@given(inputs_of_any_sizes)
@example_of([[16, 5000, 16], [984, 16, 16], [], [1000, 1001]])
def test_a_shard_never_exceeds_its_limit_unless_it_holds_one_larger_record(inputs):
    shards = laid_out(conversion(max_shard_size=LIMIT), inputs)
    check(shards, inputs)
    assert all(shard.size <= LIMIT or shard.records == 1 for shard in shards)
    assert [record for shard in shards for record in records_of(shard)] == all_records(inputs)


@example_count(200)
@given(inputs_of_any_sizes, st.none() | counts)
def test_a_shard_is_closed_only_when_the_next_record_would_pass_its_limit(inputs, most):
    shards = laid_out(conversion(max_shard_size=LIMIT, records_per_shard=most), inputs)
    check(shards, inputs)
    for shard, next_one in pairwise(shards):
        source, number = next(records_of(next_one))
        assert shard.size + inputs[source][number] > LIMIT or shard.records == most


@given(inputs_of_any_sizes, counts)
def test_records_per_shard_fills_every_shard_but_the_last(inputs, most):
    shards = laid_out(conversion(records_per_shard=most), inputs)
    check(shards, inputs)
    assert all(shard.records == most for shard in shards[:-1])
    assert [record for shard in shards for record in records_of(shard)] == all_records(inputs)


@given(inputs_of_any_sizes)
def test_without_a_limit_there_is_one_shard_or_none(inputs):
    shards = laid_out(conversion("x.record"), inputs)
    check(shards, inputs)
    assert len(shards) == (1 if any(inputs) else 0)


def test_a_numbered_path_without_a_limit_has_shards_of_256_mib():
    assert conversion("x-<>.record").output.limit == 256 << 20
    assert conversion("x-<>.record", num_shards=3).output.limit is None
    assert conversion("x.record").output.limit is None


@example_count(50)
@given(st.data(), st.integers(200, 5000))
def test_shards_are_85_percent_full_with_at_least_ten_shards_worth_of_data(data, limit):
    records = st.integers(16, limit // 11)  # with eleven to a shard, nine tenths can be proved
    inputs: list[list[int]] = [[]]
    while sum(map(sum, inputs)) < 10 * limit:
        inputs[-1] += data.draw(st.lists(records, min_size=40, max_size=40))
        if data.draw(st.booleans()):
            inputs.append([])
    shards = laid_out(conversion(max_shard_size=limit), inputs)
    check(shards, inputs)
    assert sum(shard.size for shard in shards) >= 0.85 * limit * len(shards)


# --- Equal shares ---


@given(inputs_of_any_sizes, counts)
@example_of([[16]], 5)
@example_of([[16] * 7], 3)
def test_num_shards_gives_equal_counts_within_one_and_no_empty_shard(inputs, number):
    shards = laid_out(conversion(num_shards=number), inputs)
    check(shards, inputs)
    total = len(all_records(inputs))
    assert len(shards) == min(number, total)
    assert [shard.records for shard in shards] == [
        total // number + (place < total % number) for place in range(len(shards))
    ]
    assert [record for shard in shards for record in records_of(shard)] == all_records(inputs)


@pytest.mark.parametrize("path", ["x-<>.record", "<input>-<>.record"])
@given(inputs=inputs_of_any_sizes, number=counts)
def test_a_number_of_records_known_beforehand_changes_no_shard(path, inputs, number):
    spec = conversion(path, num_shards=number)
    known = ShardPlanner(spec, list("abcdefgh"), len(all_records(inputs)))
    shards = [
        shard for source, sizes in enumerate(inputs) for shard in known.add(source, indexed(spec, source, sizes)[0])
    ]
    assert [*shards, *known.finish()] == laid_out(spec, inputs)


@given(inputs_of_any_sizes, counts)
def test_each_split_has_its_number_of_equal_shards(inputs, number):
    spec = conversion("<split>-<>.record", num_shards=number, split={"train": 0.5, "val": 0.5})
    shards = laid_out(spec, inputs)
    check(shards, inputs)
    for lane in ("train", "val"):
        shares = [shard.records for shard in shards if shard.lane == lane]
        assert not shares or max(shares) - min(shares) <= 1
        assert len(shares) == min(number, sum(shares))


# --- The first so many ---


@given(inputs_of_any_sizes, st.integers(0, 30), st.sampled_from(["max_shard_size", "num_shards", "records_per_shard"]))
def test_a_limit_keeps_the_first_samples_and_no_others(inputs, most, option):
    shards = laid_out(conversion(limit=most, **{option: 4 if option != "max_shard_size" else LIMIT}), inputs)
    check(shards, inputs)
    assert [record for shard in shards for record in records_of(shard)] == all_records(inputs)[:most]


def test_a_reached_limit_asks_for_no_more_inputs():
    spec = conversion(limit=3, max_shard_size=LIMIT)
    layout = ShardPlanner(spec, ["a", "b"])
    assert not layout.full
    list(layout.add(0, indexed(spec, 0, [16] * 5)[0]))
    assert layout.full
    assert ShardPlanner(conversion(limit=0), []).full


# --- Splits and inputs ---


@given(inputs_of_any_sizes)
def test_every_record_goes_into_the_shards_of_one_split_in_order(inputs):
    spec = conversion("<split>-<>.record", max_shard_size=LIMIT, split={"train": 0.5, "val": 0.3, "test": 0.2})
    shards = laid_out(spec, inputs)
    check(shards, inputs)
    lanes: dict[str, list[Record]] = {}
    for shard in shards:
        lanes.setdefault(shard.lane, []).extend(records_of(shard))
    assert set(lanes) <= {"train", "val", "test"}
    assert sorted(record for records in lanes.values() for record in records) == all_records(inputs)
    assert all(records == sorted(records) for records in lanes.values())
    assert all(shard.size <= LIMIT or shard.records == 1 for shard in shards)


def test_a_split_is_stable_as_data_grows_and_keeps_its_fractions():
    spec = conversion("<split>-<>.record", split={"train": 0.8, "val": 0.2})

    def lanes(count: int) -> list[int]:
        return list(indexed(spec, 0, [16] * count)[0].spool.lanes)

    assert lanes(2000)[:500] == lanes(500)
    assert 0.77 < lanes(2000).count(0) / 2000 < 0.83


@given(inputs_of_any_sizes)
def test_a_path_with_the_input_s_name_keeps_inputs_apart(inputs):
    shards = laid_out(conversion("<input>-<>.record", max_shard_size=LIMIT), inputs)
    check(shards, inputs)
    assert all({piece.group for piece in shard.pieces} == {"abcdefgh".index(shard.lane)} for shard in shards)
    assert [record for shard in shards for record in records_of(shard)] == all_records(inputs)


@given(inputs_of_any_sizes)
def test_standard_output_gets_each_input_as_soon_as_it_is_read(inputs):
    shards = laid_out(conversion("-"), inputs)
    check(shards, inputs)
    assert [{piece.group for piece in shard.pieces} for shard in shards] == [
        {source} for source, sizes in enumerate(inputs) if sizes
    ]


@given(inputs_of_any_sizes)
def test_open_groups_are_those_with_records_in_unfinished_shards(inputs):
    spec = conversion(max_shard_size=LIMIT)
    layout = ShardPlanner(spec, [])
    done: Counter[int] = Counter()
    for source, sizes in enumerate(inputs):
        for shard in layout.add(source, indexed(spec, source, sizes)[0]):
            done.update(number for number, _ in records_of(shard))
        unfinished = {number for number in range(source + 1) if done[number] < len(inputs[number])}
        assert layout.open_groups == unfinished


# --- Shuffled ---


def order(seed: int, inputs: list[list[int]], **options: object) -> list[Record]:
    shards = laid_out(conversion(shuffle=True, seed=seed, **options), inputs)
    check(shards, inputs)
    return [record for shard in shards for record in records_of(shard)]


@given(inputs_of_any_sizes, st.integers(0, 2**64))
@example_of([[], []], 0)
@example_of([], 0)
def test_shuffling_keeps_every_record_once_and_every_limit(inputs, seed):
    shards = laid_out(conversion(shuffle=True, seed=seed, max_shard_size=LIMIT), inputs)
    check(shards, inputs)
    assert all(shard.size <= LIMIT or shard.records == 1 for shard in shards)
    assert sorted(record for shard in shards for record in records_of(shard)) == all_records(inputs)
    assert order(seed, inputs, max_shard_size=LIMIT) == [record for shard in shards for record in records_of(shard)]


def test_the_order_depends_on_the_seed_and_mixes_all_inputs():
    inputs = [[16] * 100, [16] * 100]
    orders = [order(seed, inputs) for seed in range(5)]
    assert len({tuple(records) for records in orders}) == 5
    for records in orders:
        assert 30 < sum(source for source, _ in records[:100]) < 70
        assert sum(one < other for one, other in pairwise(records)) < 130


def test_shuffled_records_do_not_depend_on_how_they_are_divided():
    inputs = [[50] * 30, [70] * 30]
    assert order(1, inputs, records_per_shard=7) == order(1, inputs, num_shards=4) == order(1, inputs)
    assert order(1, inputs, limit=10) == order(1, inputs)[:10]


# --- Compressed ---


@example_count(50)
@given(inputs_of_any_sizes, st.sampled_from([{}, {"records_per_shard": 3}, {"shuffle": True}, {"limit": 9}]))
@example_of([[20, 5000, 20, 20, 20]], {})
def test_compressed_shards_keep_their_limit_on_disk_and_every_record(inputs, options):
    spec = conversion(max_shard_size=LIMIT, compression="gzip", **options)
    made = [indexed(spec, source, sizes) for source, sizes in enumerate(inputs)]
    shards = laid_out(spec, inputs)
    kept = b""
    for shard in shards:
        data = b"".join(made[piece.group][1][piece.start : piece.start + piece.size] for piece in shard.pieces)
        assert len(data) == shard.size
        assert shard.size <= LIMIT or shard.records == 1
        assert shard.records <= options.get("records_per_shard", 1000)
        kept += gzip.decompress(data)
    wanted = [random.Random(number).randbytes(size) for sizes in inputs for number, size in enumerate(sizes)]
    if "shuffle" not in options:
        assert kept == b"".join(wanted[: options.get("limit")])
    assert sum(shard.records for shard in shards) == len(wanted[: options.get("limit")])


def test_compressed_shards_are_85_percent_full():
    limit = 20_000
    spec = conversion(max_shard_size=limit, compression="gzip")
    shards = laid_out(spec, [[200] * 500, [300] * 500])
    assert len(shards) >= 10
    assert sum(shard.size for shard in shards) >= 0.85 * limit * len(shards)


# --- Tables ---


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 5) | st.integers(0, 2**64 - 1), st.integers(16, 90)), max_size=12)),
    st.none() | st.integers(0, 30),
)
@example_of([[(7, 20)] * 12, [(7, 30)] * 12], 20)
@example_of([[(2**64 - 1, 20), (0, 30)]], None)
def test_tables_have_every_record_in_order_however_few_are_sorted_at_once(inputs, most):
    parts = [
        InputUnits(group, SpoolIndex(size for _, size in records), 0, len(records))
        for group, records in enumerate(inputs)
    ]
    for part, records in zip(parts, inputs, strict=True):
        part.spool.order.extend(number for number, _ in records)
    rows = [
        (number, group, part.spool.start(unit), size)
        for group, (part, records) in enumerate(zip(parts, inputs, strict=True))
        for unit, (number, size) in enumerate(records)
    ]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharding, "SORTED_AT_ONCE", 4)
        patch.setattr(sharding, "MOST_FILES", 5)
        path = partial("{}/{}".format, folder)
        found = []
        for lane, table in sorted_tables(parts, most, path, 3):
            assert lane == 0
            first = rows_of(path(table.group), 0, 1)
            found += zip(*rows_of(path(table.group), 0, table.stop), strict=True)
            assert list(table.spool.loaded().sizes) == [size for _, _, size in found[len(found) - table.stop :]]
            assert [column[0] for column in first] == [*found[len(found) - table.stop]]
    assert found == [row[1:] for row in sorted(rows, key=itemgetter(0))][:most]


def test_memory_of_a_shuffle_does_not_grow_with_the_number_of_records(tmp_path):
    numbers = random.Random(1)

    def load(number: int) -> SpoolIndex:
        index = SpoolIndex([100] * 10_000)
        index.order.frombytes(numbers.randbytes(80_000))
        return index

    def peak(records: int) -> int:
        parts = [
            InputUnits(number, StoredIndex(partial(load, number)), 0, 10_000) for number in range(records // 10_000)
        ]
        tracemalloc.start()
        try:
            tables = [table for _, table in sorted_tables(parts, None, f"{tmp_path}/{{}}".format, 0)]
            assert sum(table.stop for table in tables) == records
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(60_000) < 12e6
    assert peak(300_000) < 12e6


# --- Indexes ---


@pytest.mark.parametrize("records", [[], [2, 1, 3]])
def test_an_index_counts_units_records_and_bytes(records):
    index = SpoolIndex([10, 20, 30], records)
    assert list(index.ends) == [0, 10, 30, 60]
    assert index.size(1, 3) == 50
    assert index.start(2) == 30
    assert index.count() == (sum(records) or 3)
    assert index.count(1, 2) == (records[1] if records else 1)
    index.offsets.extend([0, 1024, 4096])
    assert index.start(2) == 4096
