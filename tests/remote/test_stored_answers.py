"""Answers that end too early, and those of which a cluster stores the records and gives the end record later."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.store import Body, Store, Transient
from tar2tf_cli.errors import DamagedShardError, OutputExistsError, SinkError, SourceError
from tar2tf_cli.formats.checksums import crc32c
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.remote import cluster
from tar2tf_cli.remote.cluster import RemoteReading, RemoteSource
from tar2tf_cli.remote.server import AnswerWriter
from tar2tf_cli.remote.stream import DONE, AnswerRequest, Settings, StreamReader
from tar2tf_cli.remote.transformers import Transformers, withhold_end
from tar2tf_cli.spec.conversion import Conversion
from tar2tf_cli.stores.transfer import hasher
from verify_runs import a_tar, some_members

SETTINGS = Settings.of(Conversion("ais://b", "-"))


class Trickle:
    """A response of these bytes, at most 10,000 at a time."""

    server = "target"

    def __init__(self, data: bytes) -> None:
        self._file = BytesIO(data)

    def read(self, size: int) -> bytes:
        return self._file.read(min(size, 10_000))


def everything(data: bytes, size: int | None, end: bytes = b"") -> bytes:
    read = withhold_end(Trickle(data), size, end)  # type: ignore[arg-type]
    return b"".join(iter(lambda: read(1 << 18), b""))


@pytest.mark.parametrize("length", [0, 1, 65_536, 65_537, 300_000])
def test_a_whole_answer_is_read_to_its_end(length: int) -> None:
    data = bytes(range(256)) * (length // 256 + 1)
    assert everything(data[:length], length) == data[:length]
    assert everything(data[:length], None) == data[:length]


def test_what_a_cluster_appends_to_an_answer_that_broke_off_is_not_given() -> None:
    whole = bytes(range(256)) * 1000
    read = withhold_end(Trickle(whole[:200_000] + b'{"message": "ETL error"}'), len(whole), b"")  # type: ignore[arg-type]
    given = b"".join(read(10_000) for _ in range(13))
    assert len(given) > 100_000
    assert whole.startswith(given)
    with pytest.raises(Transient, match="ended after 200,024 of 256,000 bytes"):
        list(iter(lambda: read(1 << 18), b""))


def test_an_answer_of_unknown_size_is_whole_when_it_has_its_end() -> None:
    data = bytes(range(256)) * 1000
    assert everything(data + DONE, None, DONE) == data + DONE
    for broken in (data, data + DONE[:-1], data + b'{"message": "ETL error"}', b""):
        with pytest.raises(Transient, match="answer stopped"):
            everything(broken, None, DONE)


@pytest.fixture
def answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have a transformer answer for one tar."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "a.tar").write_bytes(a_tar(some_members(30)))

    def answer(part: Any = "") -> bytes:
        AnswerWriter(SETTINGS)(
            str(tmp_path / "a.tar"), "/b/a.tar", AnswerRequest(part=part), str(tmp_path / "x"), lambda: None
        )
        return (tmp_path / "x").read_bytes()

    return answer


@pytest.mark.parametrize("before", [(), ("records",)])
def test_the_records_and_the_end_record_are_answered_apart(
    answered: Any, before: tuple[str, ...], tmp_path: Path
) -> None:
    whole = answered()
    records = answered("records")
    if not before:
        answered("end")  # which takes the kept one, so that the next is made again
    end = answered("end")
    assert whole.startswith(records)
    made = StreamReader(BytesIO(end), "ais://b/a.tar", SETTINGS.digest).end()
    assert (made["bytes"], made["crc32c"], made["records"]) == (len(records), crc32c(records), 30)
    digest = hasher("xxhash2")
    assert digest is not None
    digest.update(records)
    assert made["xxh64"] == digest.hexdigest()
    assert list(tmp_path.glob("tar2tf-end-*")) == []


def test_only_an_end_record_of_these_settings_is_taken(answered: Any) -> None:
    with pytest.raises(DamagedShardError, match="not an end record"):
        StreamReader(BytesIO(answered()), "ais://b/a.tar", SETTINGS.digest).end()
    with pytest.raises(SourceError, match="other settings"):
        StreamReader(BytesIO(answered("end")), "ais://b/a.tar", "0123").end()


# --- What is asked of the shards that a cluster stored ---

RECORDS = b"the framed records"
END: dict[str, Any] = {
    "bytes": len(RECORDS),
    "crc32c": crc32c(RECORDS),
    "xxh64": "00000000000000ab",
    "size": 100,
    "report": InputReport().to_json(),
}
INPUT = ObjectInfo("a.tar", 100, "v1")


class Stored(Store):
    """A bucket in which an object is what a test says."""

    retry_for = 0.0

    def __init__(self, found: ObjectInfo | None, data: bytes = RECORDS) -> None:
        super().__init__("b", "")
        self.found, self.data = found, data
        self.removed: list[str] = []

    def list(self, prefix: str) -> Iterable[ObjectInfo]:
        return [self.found] if self.found else []

    def head(self, name: str) -> ObjectInfo | None:
        return self.found

    def fetch(self, item: ObjectInfo, start: int, size: int | None = None) -> Body:
        stream = BytesIO(self.data)
        stream.seek(start)
        unchecked = ("none", "")
        return Body(stream.read, stream.close, start, len(self.data), item.version, unchecked)

    def remove(self, name: str) -> None:
        self.removed.append(name)

    def locate(self, name: str) -> str:
        return f"ais://b/{name}"


class OnlyAnEnd:
    """An answer that holds nothing but this end record."""

    def __init__(self, end: dict[str, Any]) -> None:
        self._end = end

    def end(self) -> dict[str, Any]:
        return self._end


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Have a shard stored in a bucket whose end record is a given one, from an input that is found afterwards."""

    def stored(target: Stored, end: dict[str, Any] = END, now: ObjectInfo | None = INPUT) -> Any:
        monkeypatch.setattr(RemoteSource, "store_as", lambda *_: None)
        monkeypatch.setattr(RemoteSource, "answer", lambda *_: Body(lambda _: b"", lambda: None, 0, 0, None))
        monkeypatch.setattr(cluster, "StreamReader", lambda *_: OnlyAnEnd(end))
        return RemoteSource(Transformers(Stored(now)), SETTINGS, {}, INPUT).make_shard(INPUT, target, "x")

    return stored


@pytest.mark.parametrize("checksum", [("xxhash2", "00000000000000AB"), ("crc32c", f"{END['crc32c']:08x}"), None])
def test_a_shard_is_taken_that_has_the_size_and_the_checksum_of_its_end_record(
    store: Callable[..., Any], checksum: tuple[str, str] | None
) -> None:
    target = Stored(ObjectInfo("x", len(RECORDS), "1", checksum))
    assert store(target) == END
    assert target.removed == []


@pytest.mark.parametrize(
    ("found", "data"),
    [
        (None, RECORDS),
        (ObjectInfo("x", len(RECORDS) + 1, "1", ("crc32c", f"{END['crc32c']:08x}")), RECORDS),
        (ObjectInfo("x", len(RECORDS), "1", ("crc32c", "00000000")), RECORDS),
        (ObjectInfo("x", len(RECORDS), "1", ("md5", "00")), RECORDS[::-1]),
        (ObjectInfo("x", len(RECORDS), "1"), RECORDS[::-1]),
    ],
)
def test_a_shard_of_other_bytes_is_removed(store: Callable[..., Any], found: ObjectInfo | None, data: bytes) -> None:
    target = Stored(found, data)
    with pytest.raises(SinkError, match="stored other bytes than its transformer sent") as caught:
        store(target)
    assert (caught.value.shard, target.removed) == ("ais://b/x", ["x"])


def test_a_shard_without_records_is_removed(store: Callable[..., Any]) -> None:
    target = Stored(ObjectInfo("x", 0, "1"), b"")
    end = store(target, {**END, "bytes": 0, "crc32c": 0})
    assert (end["bytes"], target.removed) == (0, ["x"])


@pytest.mark.parametrize("now", [None, ObjectInfo("a.tar", 100, "v2")])
def test_an_input_that_changed_meanwhile_is_an_error(store: Callable[..., Any], now: ObjectInfo | None) -> None:
    with pytest.raises(SourceError, match="changed while it was being read"):
        store(Stored(ObjectInfo("x", len(RECORDS), "1")), now=now)


@pytest.mark.parametrize(
    ("listed", "size", "counted"),
    [(INPUT, 100, [100]), (ObjectInfo("a.tar", None, None), 99, [99]), (ObjectInfo("a.tar", None, "v1"), None, [0])],
)
def test_the_bytes_of_an_input_are_counted_once_its_records_are_known_to_be_of_it(
    listed: ObjectInfo, size: int | None, counted: list[int]
) -> None:
    found: list[int] = []
    source = RemoteSource(Transformers(Stored(INPUT)), SETTINGS, {}, INPUT)  # type: ignore[arg-type]
    source.check_input(listed, size, found.append)
    source.check_input(listed, size, None)
    assert found == counted


def test_an_input_of_another_size_than_was_read_is_an_error(store: Callable[..., Any]) -> None:
    with pytest.raises(SourceError, match="changed while it was being read"):
        store(Stored(ObjectInfo("x", len(RECORDS), "1")), {**END, "size": 99})


def test_a_run_that_continues_another_knows_the_shards_that_were_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends, target = [{**END, "settings": SETTINGS.digest}], Stored(None)
    monkeypatch.setattr(RemoteSource, "make_shard", lambda *_: ends.pop())
    maker = RemoteSource(Transformers(target), SETTINGS, {}, INPUT)
    ((task,), context) = maker.shard_tasks({"x": INPUT}, target, (), str(tmp_path))
    stored = task.run(context)
    assert (stored.size, stored.crc) == (len(RECORDS), END["crc32c"])
    target.found = ObjectInfo("x", len(RECORDS), "1")
    again = task.run(context)
    assert (again.size, again.crc) == (stored.size, stored.crc)
    target.found = ObjectInfo("x", len(RECORDS) + 1, "1")
    with pytest.raises(OutputExistsError, match="another program wrote it"):
        task.run(context)


def test_an_answer_is_read_to_its_end_even_if_not_all_records_are_wanted(answered: Any, tmp_path: Path) -> None:
    stream, finished = BytesIO(answered()), list[int | None]()
    with RemoteReading(stream, "ais://b/a.tar", SETTINGS.digest, finished.append) as reading:
        next(iter(reading.records()))
    assert (reading.report.samples, finished, stream.closed) == (30, [(tmp_path / "a.tar").stat().st_size], True)
