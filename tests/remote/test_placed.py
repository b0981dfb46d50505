"""Answers that end too early, and those of which a cluster stores the records and gives the end record later."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from checked import a_tar, some_members
from tar2tf_cli.errors import DamagedShardError, SourceError
from tar2tf_cli.formats.crc32c import crc32c
from tar2tf_cli.formats.tfrecord import RecordReader
from tar2tf_cli.remote.settings import Asked, Settings
from tar2tf_cli.remote.stream import StreamReader
from tar2tf_cli.remote.transform import Transform
from tar2tf_cli.spec.conversion import Conversion
from tar2tf_cli.stores.ais_etl import _held_back
from tar2tf_cli.stores.retries import Transient
from tar2tf_cli.stores.transfer import hasher

SETTINGS = Settings.of(Conversion("ais://b", "-"))


class Trickle:
    """A response of these bytes, at most 10,000 at a time."""

    server = "target"

    def __init__(self, data: bytes) -> None:
        self._file = BytesIO(data)

    def read(self, size: int) -> bytes:
        return self._file.read(min(size, 10_000))


def everything(data: bytes, size: int | None) -> bytes:
    read = _held_back(Trickle(data), size)  # type: ignore[arg-type]
    return b"".join(iter(lambda: read(1 << 18), b""))


@pytest.mark.parametrize("length", [0, 1, 65_536, 65_537, 300_000])
def test_a_whole_answer_is_read_to_its_end(length: int) -> None:
    data = bytes(range(256)) * (length // 256 + 1)
    assert everything(data[:length], length) == data[:length]
    assert everything(data[:length], None) == data[:length]


def test_what_a_cluster_appends_to_an_answer_that_broke_off_is_not_given() -> None:
    whole = bytes(range(256)) * 1000
    read = _held_back(Trickle(whole[:200_000] + b'{"message": "ETL error"}'), len(whole))  # type: ignore[arg-type]
    given = b"".join(read(10_000) for _ in range(13))
    assert len(given) > 100_000
    assert whole.startswith(given)
    with pytest.raises(Transient, match="ended after 200,024 of 256,000 bytes"):
        list(iter(lambda: read(1 << 18), b""))


@pytest.fixture
def answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have a transformer answer for one tar."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "a.tar").write_bytes(a_tar(some_members(30)))

    def answer(part: Any = "") -> bytes:
        Transform(SETTINGS)(str(tmp_path / "a.tar"), "/b/a.tar", Asked(part=part), str(tmp_path / "x"), lambda: None)
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
    assert made["first"] == len(next(iter(RecordReader(BytesIO(records), "x")))[1]) + 16
    assert list(tmp_path.glob("tar2tf-end-*")) == []


def test_only_an_end_record_of_these_settings_is_taken(answered: Any) -> None:
    with pytest.raises(DamagedShardError, match="not an end record"):
        StreamReader(BytesIO(answered()), "ais://b/a.tar", SETTINGS.digest).end()
    with pytest.raises(SourceError, match="other settings"):
        StreamReader(BytesIO(answered("end")), "ais://b/a.tar", "0123").end()
