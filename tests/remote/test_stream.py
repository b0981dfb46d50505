"""What a transformer sends: every cut and damaged byte is noticed, and a whole stream gives back what was sent."""

from __future__ import annotations

from array import array
from io import BytesIO
from pathlib import Path

import pytest

from tar2tf_cli.api.values import RecordBatch
from tar2tf_cli.errors import DamagedShardError, LackingError, SampleError, SourceError, Tar2tfError, UsageError
from tar2tf_cli.formats.checksums import crc32c
from tar2tf_cli.formats.example import FRAMING, frame
from tar2tf_cli.formats.files import RecordFile
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.remote.stream import StreamReader, StreamWriter, error_of, text_of_error

RECORDS = [("a/0001", b"\x0a\x03abc"), ("größe\udcff", b""), ("c", b"\x0a\x02" + b"\0" * 40)]


def stream_of(folder: Path, records: list[tuple[str, bytes]], *, keys: bool = True) -> bytes:
    report = InputReport(samples=len(records), split_differs="x.y.z")
    report.skipped["no extension"] = 2
    report.errors.append({"shard": "b/o.tar", "key": "k", "member": None, "offset": 512, "message": "not a JPEG"})
    with RecordFile(str(folder / "stream")) as file:
        writer = StreamWriter(file, keys=keys, settings="5e77")
        for key, data in records:
            writer.add(key, frame([data], len(data)), len(data) + FRAMING)
        writer.finish(report, 10240)
    return (folder / "stream").read_bytes()


class Trickle(BytesIO):
    """A stream that gives a few bytes at a time, however many are asked for."""

    def __init__(self, data: bytes, most: int) -> None:
        super().__init__(data)
        self._most = most

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(size if size and size > 0 else self._most, self._most))


def read(data: bytes, most: int = 1 << 20) -> tuple[StreamReader, list[tuple[str, bytes, int]]]:
    reader = StreamReader(Trickle(data, most), "ais://b/o.tar", "5e77")
    return reader, [(key, b"".join(parts), size) for key, parts, size, _ in reader.records()]


def framed(data: bytes) -> bytes:
    return b"".join(frame([data], len(data)))


@pytest.mark.parametrize("most", [1, 13, 1 << 20])
def test_a_whole_stream_gives_back_records_keys_and_report(tmp_path: Path, most: int) -> None:
    reader, records = read(stream_of(tmp_path, RECORDS), most)
    assert records == [(key, framed(data), len(data) + FRAMING) for key, data in RECORDS]
    assert reader.size == 10240
    assert reader.report.samples == 3
    assert reader.report.skipped == {"no extension": 2}
    assert reader.report.split_differs == "x.y.z"
    assert reader.report.errors[0]["shard"] == "ais://b/o.tar"  # as the client calls it


def test_without_keys_the_stream_is_the_records_and_the_end(tmp_path: Path) -> None:
    data = stream_of(tmp_path, RECORDS, keys=False)
    plain = b"".join(framed(record) for _, record in RECORDS)
    assert data.startswith(plain)
    assert [key for key, _, _ in read(data)[1]] == ["", "", ""]
    assert data[len(plain) + 12 :].startswith(b"\0end {")


def test_batches_arrive_as_records(tmp_path: Path) -> None:
    data = b"".join(framed(record) for _, record in RECORDS)
    sizes = array("Q", (len(record) + FRAMING for _, record in RECORDS)).tobytes()
    with RecordFile(str(tmp_path / "stream")) as file:
        writer = StreamWriter(file, keys=False, settings="5e77")
        writer.add_batch(RecordBatch(data, sizes))
        writer.finish(InputReport(samples=3), None)
    _, records = read((tmp_path / "stream").read_bytes())
    assert b"".join(record for _, record, _ in records) == data


def test_large_records_come_in_pieces(tmp_path: Path) -> None:
    large = b"\x0a" + bytes(range(256)) * 20_000
    stream = BytesIO(stream_of(tmp_path, [("a", large), ("b", b"\x0a\0")]))
    reader = StreamReader(stream, "x", "5e77")
    pieces = []
    for _, parts, *_ in reader.records():
        pieces.append(list(parts))
    assert b"".join(pieces[0]) == framed(large)
    assert len(pieces[0]) > 3
    assert len(pieces) == 2


def test_an_end_record_with_ten_thousand_faulty_samples_arrives(tmp_path: Path) -> None:
    fault = {"shard": "b/o.tar", "key": "k" * 40, "member": None, "offset": 512, "message": "not a JPEG"}
    report = InputReport(samples=1, errors=[dict(fault) for _ in range(10_000)])
    with RecordFile(str(tmp_path / "stream")) as file:
        writer = StreamWriter(file, keys=True, settings="5e77")
        writer.add("a", frame([b"\x0a\0"], 2), 2 + FRAMING)
        writer.finish(report, None)
    reader, records = read((tmp_path / "stream").read_bytes())
    assert len(reader.report.errors) == 10_000
    assert len(records) == 1


def test_a_record_of_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DamagedShardError, match="record of an unknown kind"):
        read(framed(b"\0new ") + stream_of(tmp_path, RECORDS))


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"{}", b"7", b"\xff"])
def test_an_end_record_of_something_else_is_refused(text: bytes) -> None:
    with pytest.raises(DamagedShardError, match="the end record of the cluster's answer is malformed"):
        read(framed(b"\0end " + text))


@pytest.mark.parametrize("keys", [True, False])
def test_a_cut_at_any_byte_is_noticed(tmp_path: Path, keys: bool) -> None:
    data = stream_of(tmp_path, RECORDS, keys=keys)
    for end in range(len(data)):
        with pytest.raises(DamagedShardError) as caught:
            read(data[:end])
        assert caught.value.kind == "truncated"
        assert caught.value.shard == "ais://b/o.tar"


def test_any_damaged_byte_is_noticed(tmp_path: Path) -> None:
    data = stream_of(tmp_path, RECORDS)
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 0x11
        with pytest.raises(DamagedShardError):
            read(bytes(damaged))


def test_a_lost_record_is_noticed(tmp_path: Path) -> None:
    data = stream_of(tmp_path, RECORDS, keys=False)
    second = framed(RECORDS[1][1])
    first = framed(RECORDS[0][1])
    with pytest.raises(DamagedShardError, match="the cluster sent 3 records in 95 bytes, but 2 in 79 arrived"):
        read(first + data[len(first) + len(second) :])


@pytest.mark.parametrize("more", [b"x", b'{"status":500,"message":"ETL error"}'])
def test_what_follows_the_end_is_noticed(tmp_path: Path, more: bytes) -> None:
    with pytest.raises(DamagedShardError, match="continues after its end record"):
        read(stream_of(tmp_path, RECORDS) + more)


def test_an_error_message_in_the_place_of_a_record_is_noticed(tmp_path: Path) -> None:
    data = stream_of(tmp_path, RECORDS, keys=False)
    cut = data[: len(framed(RECORDS[0][1]))]
    with pytest.raises(DamagedShardError, match="CRC of the record's length"):
        read(cut + b'{"status":500,"message":"ETL error: unexpected EOF"}')


def test_other_settings_are_refused(tmp_path: Path) -> None:
    reader = StreamReader(BytesIO(stream_of(tmp_path, RECORDS)), "ais://b/o.tar", "0ther")
    with pytest.raises(SourceError, match="other settings than this conversion; start one with: tar2tf etl init"):
        list(reader.records())


@pytest.mark.parametrize(
    "error",
    [
        DamagedShardError("the tar ends in a member", kind="truncated", offset=1024, hint="fetch it again"),
        SampleError("not a JPEG", key="größe", member="größe.jpg", offset=0),
        UsageError('there is no "cls" {in} any sample'),
    ],
)
def test_errors_travel_as_text(error: Tar2tfError) -> None:
    text = f"ETL error: {text_of_error(error.at(shard='b/o.tar'))}\n"
    assert str(error) in text
    found = error_of(text, "ais://b/o.tar")
    assert type(found) is type(error)
    assert vars(found) == {**vars(error), "shard": "ais://b/o.tar"}


def test_an_error_that_only_a_room_knows_travels_as_the_kind_it_is() -> None:
    class OwnError(LackingError):
        """An error of a room."""

    found = error_of(text_of_error(OwnError("lacks it")), "x")
    assert type(found) is LackingError


def test_other_text_is_not_an_error_of_a_transformer() -> None:
    assert error_of('{"message":"no such object"}', "x") is None
    assert type(error_of(' tar2tf-error:{"error": "exit", "message": "m"}', "x")) is SourceError
    assert str(error_of('not a JPEG tar2tf-error:{"error": "Samp', "x")) == "x: not a JPEG"  # cut by a cluster
    assert type(error_of(' tar2tf-error:{"error": "SampleError", "message": "m"}","status":4}', "x")) is SampleError


def test_the_crc_is_that_of_all_bytes_before_the_end(tmp_path: Path) -> None:
    data = stream_of(tmp_path, RECORDS)
    end = data.index(b"\0end ") - 12
    assert f'"crc32c": {crc32c(data[:end])}'.encode() in data[end:]
