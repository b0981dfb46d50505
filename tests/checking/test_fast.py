"""`tar2tf verify --fast`: framing and lengths are checked, and data is not even read."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest

from tar2tf_cli.formats.streams import PlainStream
from verify_runs import Ran, an_example, check, flipped, framed, kinds, manifest_of, some_examples, write

SIZES = (10, 300_000, 70_000, 50, 1_000_000, 20)
RECORDS = [framed(an_example(x=b"a" * size)) for size in SIZES]


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
@pytest.mark.parametrize("number", range(len(SIZES)))
def test_damaged_lengths_are_found_and_damaged_data_is_not(
    tmp_path: Path, number: int, compress: Callable[[bytes], bytes]
) -> None:
    for place, expected in ((2, ["length_crc"]), (9, ["length_crc"]), (20, []), (-2, [])):
        records = [*RECORDS]
        records[number] = flipped(records[number], place)
        found = check(write(tmp_path / "x.record", compress(b"".join(records))), fast=True)
        assert (kinds(found), found.records) == (expected, 6 - len(expected))
        for fault in found.faults:
            assert (fault.record, fault.offset) == (number, sum(map(len, RECORDS[:number])))


@pytest.mark.parametrize("number", range(len(SIZES)))
def test_a_file_cut_short_is_found(tmp_path: Path, number: int) -> None:
    start, whole = sum(map(len, RECORDS[:number])), b"".join(RECORDS)
    for length in (start + 11, start + 13, start + len(RECORDS[number]) - 1):
        found = check(write(tmp_path / "x", whole[:length]), fast=True)
        assert (kinds(found), found.records, found.faults[0].offset) == (["truncated"], number, start)
        assert number == 0 or found.faults[0].lost == length - start


def test_a_compressed_file_does_not_end_where_it_has_given_as_many_bytes_as_it_takes(tmp_path: Path) -> None:
    piece, size = 1 << 15, 1 << 16  # bytes decompressed at once, and compressed
    more = len(framed(an_example(x=bytes(30_000)))) - 30_000
    across = [an_example(x=bytes(length - more)) for length in (piece - 5, piece)]  # lengths that two pieces share
    data = framed(*across, *[an_example(x=bytes(1000))] * 1000)

    def compressed(name: str) -> bytes:
        with gzip.GzipFile(name, "wb", fileobj=(file := BytesIO())) as stream:
            stream.write(data)
        return file.getvalue()

    stored = compressed("x" * (size - len(compressed("x")) + 1))
    assert len(stored) == size
    found = check(write(tmp_path / "x.record.gz", stored), fast=True)
    assert (found.faults, found.records) == ([], 1002)


def test_data_of_large_records_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, read = write(tmp_path / "x", framed(an_example(x=bytes(3_000_000))) * 5), []
    stored = PlainStream.read

    def counted(stream: PlainStream, size: int) -> bytes:
        data = stored(stream, size)
        read.append(len(data))
        return data

    monkeypatch.setattr(PlainStream, "read", counted)
    assert check(path, fast=True).records == 5
    assert sum(read) < 500_000


def test_a_manifest_is_verified_fast(out: Path, run: Callable[..., Ran]) -> None:
    assert run(manifest_of(out), "--fast").code == 0
    path = out / "photos-2.record"
    path.write_bytes(path.read_bytes() + framed(*some_examples(1)))
    ran = run(manifest_of(out), "--fast", "--json")
    assert {fault["kind"] for file in ran.json["files"] for fault in file["faults"]} == {"size", "count"}


def test_fast_reads_no_data_to_decode(tmp_path: Path, run: Callable[..., Ran]) -> None:
    assert run(write(tmp_path / "x", RECORDS[0]), "--fast", "--decode").code == 2
