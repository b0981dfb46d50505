"""What checks shards finds the same with the kernel and without: every fault, number and count, whatever the bytes."""

from __future__ import annotations

import gzip
import io
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example as given_example
from hypothesis import given, settings
from hypothesis import strategies as st

from diff_rows import rows_in
from example_messages import encoded, features_of_any_kind, hand_encoded_examples, in_bytes
from kernel_build import built, needs_compiler
from tar2tf_cli import diff
from tar2tf_cli.checking import inspect as inspect_module
from tar2tf_cli.checking.faults import Expectations, FileReport
from tar2tf_cli.checking.inspect import inspect
from tar2tf_cli.checking.verify import verify
from tar2tf_cli.checking.verify_records import Checker, check_tfrecord
from tar2tf_cli.errors import Tar2tfError
from tar2tf_cli.features.described import Expected
from tar2tf_cli.formats import kernel
from tar2tf_cli.formats.streams import Cursor
from tar2tf_cli.formats.tfrecord import RecordReader
from verify_runs import a_tar, an_example, convert, flipped, framed, write

pytestmark = needs_compiler


def outcome(data: bytes, *, native: Any, size: int = 1 << 18, **schema: Any) -> tuple[Any, int]:
    """Everything that checking a TFRecord gives, its good records too, and how many records Python checked."""
    kept = bytearray()
    report, checker, python = FileReport("x", "tfrecord"), Checker(Expectations(**schema)), 0

    def check(message: bytes) -> Any:
        nonlocal python
        python += 1
        return checker.check(message)

    with (
        patch.object(kernel, "built", lambda: native),
        patch.object(Cursor, "CHUNK", size),
    ):
        reader = RecordReader(io.BytesIO(data), "x", want="heads", accept=checker, keep=kept.extend)
        check_tfrecord(reader, check, report, keep=lambda record: kept.extend(framed(record)))
    report.features, report.sequences = checker.counts(), checker.sequences
    report.close()
    return (report, kept), python


def same(data: bytes, **options: Any) -> int:
    """Check bytes in both ways, which must agree; return how many records the kernel checked."""
    (found, left), (wanted, everything) = (outcome(data, native=native, **options) for native in (built(), None))
    assert found == wanted
    return everything - left


usual = st.fixed_dictionaries(
    {"jpg": st.tuples(st.just("bytes"), st.lists(st.binary(max_size=90), max_size=2))},
    optional={
        "label": st.tuples(st.just("int64"), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3)),
        "x": st.tuples(st.just("float"), st.lists(st.floats(width=32), max_size=2)),
        "label/shape": st.tuples(st.just("int64"), st.lists(st.integers(0, 3), max_size=2)),
    },
)
messages = st.one_of(
    *[usual.map(encoded)] * 4, features_of_any_kind.map(encoded), hand_encoded_examples, st.binary(max_size=20)
)
schemas = st.dictionaries(
    st.sampled_from(["jpg", "label", "x", "label/shape"]),
    st.builds(
        Expected,
        st.sampled_from([None, "bytes", "int64", "float"]),
        st.sampled_from([None, 0, 1, 2, 2**40]),
        st.sampled_from([None, None, 8]),
        st.sampled_from([None, None, (1, None)]),
    ),
)
changes = st.lists(st.tuples(st.integers(0, 1 << 14), st.binary(max_size=3)), max_size=3)


@settings(max_examples=50)  # one of which found what is given below
@given(
    records=st.lists(messages, max_size=12),
    again=st.integers(1, 5),
    changes=changes,
    cut=st.integers(0, 20),
    size=st.sampled_from([64, 300, 1 << 18]),
    schema=st.none() | schemas,
    required=st.frozensets(st.sampled_from(["jpg", "label"])),
)
@given_example([b"", b"\x0a\x00"], 3, [], 0, 64, None, frozenset())
def test_the_faults_and_counts_of_any_records_are_the_same(
    records: list[bytes],
    again: int,
    changes: list[tuple[int, bytes]],
    cut: int,
    size: int,
    schema: dict[str, Expected] | None,
    required: frozenset[str],
) -> None:
    data = framed(*records * again)
    for place, new in changes:
        place %= len(data) + 1
        data = data[:place] + new + data[place + len(new) // 2 :]
    same(data[: max(len(data) - cut, 0)] if cut < 10 else data, size=size, schema=schema, required=required)


RECORDS = [an_example(jpg=bytes(number % 7), label=number % 5) for number in range(300)]


def test_python_sees_only_records_of_which_there_was_none_like_them_before() -> None:
    odd = an_example(jpg=b"x", label=0.5)
    data = framed(*RECORDS, b"no example", *RECORDS, odd, *RECORDS)
    schema = {"jpg": Expected("bytes", 1), "label": Expected("int64", 1)}
    assert 901 - same(data) <= 4
    assert 901 - same(data, schema=schema, size=4096) <= 30
    assert same(data, size=4096) > 800


def test_of_many_names_and_kinds_the_kernel_knows_some() -> None:
    records = [an_example(**{f"name-{number % 100}": b"x", "label": number}) for number in range(1000)]
    assert same(framed(*records)) > 300
    records = [an_example(**{f"{bit}": b"x" for bit in range(12) if number >> bit & 1}) for number in range(4096)]
    assert same(framed(*records[:2000], *records[:600])) > 400


def test_records_larger_than_what_is_buffered_are_left_to_python() -> None:
    large = an_example(jpg=bytes(5000), label=1)
    assert same(framed(*RECORDS, large, *RECORDS, large), size=1000) > 500


@pytest.mark.parametrize("name", ["x.record", "x.record.gz"])
def test_compressed_files_and_those_of_manifests_are_read_in_the_same_way(
    name: str, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = framed(*RECORDS[:50], *RECORDS)
    Path(tmp_path, name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    reports = []
    for native in (built(), None):
        monkeypatch.setattr(kernel, "built", lambda native=native: native)
        reports.append([verify(str(path), workers=1).to_json() for path in (tmp_path / name, *out.glob("*.json"))])
    assert reports[0] == reports[1]
    assert [report["ok"] for report in reports[0]] == [True, True]


def test_without_the_instruction_python_checks_as_its_checksums_are_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow:
        hardware = 0

    monkeypatch.setattr(kernel, "built", Slow)
    assert outcome(framed(*RECORDS), native=Slow())[1] == 300


# --- inspect, diff and --against ---


def in_both_ways(find: Callable[[], Any], *, size: int = 1 << 18) -> Any:
    """What is found with the kernel, which must be what is found without it."""
    found = []
    for native in (built(), None):
        with patch.object(kernel, "built", lambda native=native: native), patch.object(Cursor, "CHUNK", size):
            found.append(find())
    assert found[0] == found[1]
    return found[0]


def inspected(path: Path) -> Any:
    contents = inspect(path, workers=1, damaged=True)
    shown = {
        name: (entry.summary(str), entry.values, entry.lists, repr(entry.numbers.decode().total))
        for name, entry in contents.entries.items()
    }
    return contents.to_json(), shown


LISTS = encoded({"x": ("bytes", [b"", b"y"]), "n": ("int64", []), "f": ("float", [math.nan, 1.5])})
KEYED = [encoded({"__key__": ("bytes", [b"k%d" % number]), "n": ("int64", [number])}) for number in range(3)]
LONG = bytes.fromhex("0a0c0a0a0a016e12051a030a01058000")  # which ends with a field that is no feature
NOT_SHORT = in_bytes(
    0x0A, in_bytes(0x0A, in_bytes(0x0A, b"n"), in_bytes(0x12, in_bytes(0x1A, in_bytes(0x0A, b"\x81\x00"))))
)
TWICE = in_bytes(
    0x0A, *[in_bytes(0x0A, in_bytes(0x0A, b"n"), in_bytes(0x12, in_bytes(0x0A, in_bytes(0x0A, b"1"))))] * 2
)


@settings(max_examples=60)
@given(
    records=st.lists(messages, max_size=8),
    again=st.integers(1, 40),
    changes=changes,
    size=st.sampled_from([64, 300, 1 << 18]),
)
@given_example([LISTS, *KEYED], 40, [], 1 << 18)
@given_example([LISTS, LONG, NOT_SHORT, TWICE, LISTS, b"", b"\x0a\x00"], 40, [], 1 << 18)
@given_example([encoded({"__key__": ("int64", [7])}), encoded({"__key__": ("bytes", [b"a", b"b"])})], 3, [], 300)
@given_example([encoded({"__key__": ("bytes", [b"\xff"])}), encoded({"n\xe4": ("bytes", [b"x"])})], 3, [], 300)
@given_example([encoded({"n": ("int64", [1])}), encoded({"n": ("float", [1.0])})], 40, [], 1 << 18)
def test_inspect_and_diff_find_the_same_in_any_records(
    tmp_path_factory: pytest.TempPathFactory,
    records: list[bytes],
    again: int,
    changes: list[tuple[int, bytes]],
    size: int,
) -> None:
    data = bytearray(framed(*records * again))
    for place, new in changes:
        place %= len(data) + 1
        data[place : place + len(new) // 2] = new
    path = tmp_path_factory.getbasetemp() / "any.record"
    path.write_bytes(data)
    with patch.object(inspect_module, "LOOKS", 3):
        in_both_ways(lambda: (inspected(path), rows_in(path)), size=size)


def test_records_whose_kinds_were_examined_do_not_come_to_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.record"
    path.write_bytes(framed(*[encoded({"n": ("int64", [number, -number])}) for number in range(3000)]))
    seen: list[bytes] = []
    add_record = inspect_module.add_record
    monkeypatch.setattr(
        inspect_module,
        "add_record",
        lambda contents, record, looks: seen.append(record) or add_record(contents, record, looks),
    )
    contents, shown = in_both_ways(lambda: inspected(path))
    assert contents["entries"]["n"]["range"] == [-2999, 2999]
    assert shown["n"] == (("int64, 2 values", "-2,999", "0", "2,999"), (2, 2), {"int64": 3000}, "0")
    assert len(seen) - 3000 < 300


def test_sums_of_large_numbers_do_not_depend_on_how_many_are_added_at_once(tmp_path: Path) -> None:
    path = tmp_path / "x.record"
    some = {"n": ("int64", [2**63 - 1] * 4), "f": ("float", [0.1, 1e30, -1e30, 1.0])}
    path.write_bytes(framed(*[encoded(some), encoded({**some, "f": ("float", [3e-7] * 5)})] * 5000))
    _, shown = in_both_ways(lambda: inspected(path), size=1 << 20)
    assert shown["n"][-1] == str((2**63 - 1) * 40_000)


ODD = {
    "swapped": lambda records: [records[1], records[0], *records[2:]],
    "doubled": lambda records: [*records, records[3]],
    "missing": lambda records: records[:50] + records[51:],
    "changed": lambda records: [*records[:60], an_example(__key__=b"060", txt=b"other", cls=b"1"), *records[61:]],
    "without a key": lambda records: [*records[:60], an_example(txt=b"other"), *records[61:]],
    "no example": lambda records: [*records[:60], b"no example", *records[61:]],
    "large": lambda records: [*records[:60], bytes(70_000), *records[61:]],
}


@pytest.mark.parametrize("change", [*ODD, "damaged", "typed", "floats"])
def test_against_and_diff_find_the_same_differences(change: str, tmp_path: Path) -> None:
    members = [
        (f"{number:03}.{name}", data)
        for number in range(100)
        for name, data in (("txt", b"%d.5" % number), ("cls", b"%d" % (number % 7)))
    ]
    source = write(tmp_path / "in" / "x.tar", a_tar(members))
    types = {"typed": ["--type", "cls=int64"], "floats": ["--type", "txt=float,cls=int64"]}.get(change, [])
    assert convert(source.parent, "-o", tmp_path / "out" / "x.record", *types).code == 0
    shard = tmp_path / "out" / "x.record"
    if change in ODD:
        records = [data for _, data in RecordReader(io.BytesIO(shard.read_bytes()), "x")]
        shard.write_bytes(framed(*ODD[change](records)))
    elif change == "damaged":
        shard.write_bytes(flipped(shard.read_bytes(), 3000))

    def differences(one: Path, other: Path) -> Any:
        try:
            return diff(one, other, workers=1).to_json()
        except Tar2tfError as error:
            return str(error)

    report = in_both_ways(lambda: verify(shard.parent, against=str(source.parent), workers=1).to_json(), size=4096)
    both = in_both_ways(lambda: differences(shard, source), size=4096)
    same = change in ("typed", "floats", "swapped")
    assert report["ok"] == (change in ("typed", "floats"))
    assert isinstance(both, str) == (change == "damaged")
    if not isinstance(both, str):
        assert (both["same"] == 100) == (same or change == "doubled")


def test_samples_whose_numbers_are_unusual_are_equal_to_their_features(tmp_path: Path) -> None:
    texts = ["7", "-0", "007", " 8 ", "9\n", "+3", str(2**63 - 1), str(-(2**63)), "1_0", "", "x"] * 20
    source = write(tmp_path / "x.tar", a_tar((f"{number:03}.cls", text.encode()) for number, text in enumerate(texts)))
    values = [encoded({"__key__": ("bytes", [b"%03d" % n]), "cls": ("int64", [7])}) for n in range(len(texts))]
    shard = write(tmp_path / "x.record", framed(*values))
    document = in_both_ways(lambda: diff(source, shard, workers=1).to_json())
    assert (document["same"], document["changed"]) == (40, 180)
