"""verify finds the same with the kernel and without: every fault, number and count, whatever the bytes."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example as given_example
from hypothesis import given, settings
from hypothesis import strategies as st

from example_messages import encoded, features_of_any_kind, hand_encoded_examples
from kernel_build import built, needs_compiler
from tar2tf_cli.checking.expectations import Expectations
from tar2tf_cli.checking.faults import FileReport
from tar2tf_cli.checking.verify import verify
from tar2tf_cli.checking.verify_records import Checker, check_tfrecord
from tar2tf_cli.features.described import Expected
from tar2tf_cli.formats import kernel
from tar2tf_cli.formats.streams import Cursor
from tar2tf_cli.formats.tfrecord import RecordReader
from verify_runs import an_example, framed

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
