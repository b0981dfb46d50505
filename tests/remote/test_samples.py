"""Samples to which the ops were applied in a cluster: what is sent for them, and how answers are read."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from commands import wait_until
from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.source import SampleFault
from tar2tf_cli.api.store import Body
from tar2tf_cli.api.values import KEY
from tar2tf_cli.errors import DamagedShardError, Lost, SampleError, SourceError, Tar2tfError
from tar2tf_cli.flow.sample_flow import InputFlow, ReadPlan
from tar2tf_cli.formats.example import FRAMING, Encoder, frame
from tar2tf_cli.formats.files import RecordFile
from tar2tf_cli.formats.image import convert_dtype, resize
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.remote.cluster import RemoteSamples
from tar2tf_cli.remote.server import AnswerWriter
from tar2tf_cli.remote.stream import (
    DONE,
    AnswerRequest,
    Settings,
    StreamReader,
    StreamWriter,
    from_example,
    to_features,
)
from tar2tf_cli.remote.transformers import of_cluster, withhold_end
from tar2tf_cli.spec.conversion import Conversion
from tar2tf_cli.stores import open_source
from verify_runs import a_tar, some_members

ARRAYS = [
    np.float64([1e300, np.nan]),
    np.float16([[0.5]]),
    np.arange(6, dtype=">i2").reshape(2, 3).T,
    np.zeros((0, 3), np.uint8),
    np.array(True),
    np.array(["text", "ü"]),
]


def encoded(sample: dict[str, Any]) -> bytes:
    return b"".join(part for part in Encoder().encode(to_features(sample))[0] if isinstance(part, bytes))


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: str(array.dtype))
def test_a_sample_arrives_as_it_was_sent(array: Any) -> None:
    sample = {KEY: "a/\udcff ü", "jpg": b"\0\xff", "empty": b"", "npy": array}
    found = from_example(encoded(dict(sample)))
    arrived = found.pop("npy")
    assert (arrived.dtype, arrived.shape) == (array.dtype.newbyteorder("="), array.shape)
    np.testing.assert_array_equal(arrived, array)
    assert found == {name: value for name, value in sample.items() if name != "npy"}


def test_a_transformer_sends_the_entries_that_were_selected_after_the_ops(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(a_tar(some_members(30)))
    conversion = Conversion(str(tmp_path / "a.tar"), "-", ops=["rename:label=cls"], select=["label"])
    made_for = Conversion(str(tmp_path / "a.tar"), "-", ops=["rename:label=cls"], types=["label=int64"], limit=None)
    settings = Settings.load(Settings.of(made_for).text)
    assert settings.of_samples == Settings.of(conversion).of_samples
    answer = tmp_path / "answer"
    asked = AnswerRequest.load(AnswerRequest(first=True, entries=["label"]).text)
    AnswerWriter(settings)(str(tmp_path / "a.tar"), "/b/a.tar", asked, str(answer), lambda: None)
    with answer.open("rb") as file:
        framed = [b"".join(parts) for _, parts, *_ in StreamReader(file, "x", settings.digest).records()]
    source = open_source(str(tmp_path))
    with InputFlow(ReadPlan.of(conversion, source), source.list(["a.tar"])[0]) as reading:
        expected = [{KEY: sample[KEY], "label": sample["cls"]} for sample in reading.samples()]
    assert [from_example(record[12:-4]) for record in framed] == expected


SETTINGS = Settings.of(Conversion("ais://b", "-"))


def answer_of(folder: Path, keys: list[str], failure: Tar2tfError | None = None) -> bytes:
    """An answer with samples of these keys, which ends with an error if there is one."""
    report = InputReport(samples=len(keys))
    report.skipped["no extension"] = 2
    report.errors.append({"shard": "o", "key": "bad", "member": "bad.jpg", "offset": 512, "message": "not a JPEG"})
    with RecordFile(str(folder / "answer")) as file:
        writer = StreamWriter(file, keys=False, settings=SETTINGS.digest)
        for key in keys:
            message = encoded({KEY: key, "jpg": b"\xff"})
            writer.add(key, frame([message], len(message)), len(message) + FRAMING)
        if failure:
            writer.fail(failure)
        else:
            writer.finish(report, 1)
    return (folder / "answer").read_bytes()


class Fetched(RemoteSamples):
    """Gives these answers, and notes which inputs were asked for."""

    def __init__(self, answers: dict[str, list[bytes]]) -> None:
        super().__init__(of_cluster("http://127.0.0.1:9", 1.0), SETTINGS, {}, ObjectInfo("a", 1, "1"))
        self.answers = answers
        self.asked: list[str] = []

    def answer(self, item: ObjectInfo, part: object) -> Body:
        self.asked.append(item.name)
        data = self.answers[item.name].pop(0)
        return Body(withhold_end(Response(data), None, DONE), lambda: None, 0, None, "made")

    def check_input(self, item: ObjectInfo, size: int | None, on_bytes: object) -> None:
        assert size == item.size


class Response:
    """The body of a response."""

    server = "target"
    headers: ClassVar[dict[str, str]] = {}

    def __init__(self, data: bytes) -> None:
        self._file = BytesIO(data)

    def read(self, size: int) -> bytes:
        return self._file.read(size)


def keys_of(source: Fetched, item: ObjectInfo, faults: list[SampleFault] | None = None) -> list[str]:
    noted = InputReport()
    found = [sample[KEY] for _, sample in source.samples(item, noted, ([] if faults is None else faults).append)]
    assert noted.skipped == {"no extension": 2}
    return found


def test_inputs_are_fetched_ahead_but_not_all(tmp_path: Path) -> None:
    names = ["a", "b", "c", "d", "bad", "e"]
    inputs = [ObjectInfo(name, 1, "1") for name in names]
    answers = {name: [answer_of(tmp_path, [name])] * 2 for name in names}
    answers["bad"] = [answer_of(tmp_path, [], SourceError("cannot be read"))]
    source = Fetched(answers)
    with source.prefetch(inputs, 2):
        assert keys_of(source, inputs[0]) == ["a"]
        wait_until(lambda: sorted(source.asked) == ["a", "b", "c"], "two more inputs")
        assert [keys_of(source, item) for item in inputs[1:4]] == [["b"], ["c"], ["d"]]
        wait_until(lambda: sorted(source.asked) == ["a", "b", "bad", "c", "d", "e"], "the rest")
        with pytest.raises(SourceError, match="cannot be read") as caught:
            keys_of(source, inputs[4])
        assert caught.value.shard == "ais://tar2tf/bad"
    assert [keys_of(source, item) for item in inputs if item.name != "bad"] == [["a"], ["b"], ["c"], ["d"], ["e"]]


def test_samples_are_given_before_the_answer_ends_and_faults_of_the_cluster_are_reported(tmp_path: Path) -> None:
    keys = [f"{number:05d}" for number in range(50_000)]
    whole, item, faults = answer_of(tmp_path, keys), ObjectInfo("a", 1, "1"), list[SampleFault]()
    error = SampleError("not a JPEG", key="00123")
    broken = answer_of(tmp_path, keys[:20_000], error)
    source = Fetched({"a": [whole[:2_000_000], whole, broken]})
    assert keys_of(source, item, faults) == keys  # the first answer broke off
    assert source.asked == ["a", "a"]
    assert [(fault.key, fault.member, fault.offset, fault.message) for fault in faults] == [
        ("bad", "bad.jpg", 512, "not a JPEG")
    ]
    samples = source.samples(item, InputReport(), faults.append)
    assert [next(samples)[1][KEY] for _ in range(20_000)] == keys[:20_000]
    with pytest.raises(SampleError, match="00123: not a JPEG"):
        next(samples)


def test_a_sample_whose_record_is_damaged_is_not_given(tmp_path: Path) -> None:
    data = bytearray(answer_of(tmp_path, ["a", "b", "c"]))
    data[data.index(b"b", 60)] ^= 1
    samples = Fetched({"a": [bytes(data)]}).samples(ObjectInfo("a", 1, "1"), InputReport(), [].append)
    assert next(samples)[1][KEY] == "a"
    with pytest.raises(DamagedShardError, match="CRC"):
        next(samples)


PIXELS = np.random.default_rng(5).integers(0, 256, (20, 30, 3), np.uint8)
SMALL: dict[str, tuple[Any, bool]] = {
    "converted to float32": (convert_dtype(PIXELS, "float32"), True),
    "converted to float16": (convert_dtype(PIXELS, "float16"), True),
    "converted to float64": (convert_dtype(PIXELS, "float64"), True),
    "cast to float32": (PIXELS.astype(np.float32), True),
    "cast to int64": (PIXELS.astype(np.int64), True),
    "big-endian and turned": (PIXELS.astype(">i4").T, True),
    "one level too many": (np.where(np.arange(1800) < 1799, 255, 256).astype(np.int32), False),
    "negative": (-PIXELS.astype(np.int16), False),
    "a negative zero at the end": (np.where(np.arange(1800) < 1799, 1, -0.0).astype(np.float32), False),
    "not a number": (np.where(np.arange(1800) < 1799, 1, np.nan).astype(np.float32), False),
    "one ulp beside": (np.nextafter(convert_dtype(PIXELS, "float32"), np.float32(2)), False),
    "resized": (resize(PIXELS, 17, 23), False),
    "bytes already": (PIXELS, False),
}


@pytest.mark.parametrize("name", SMALL)
def test_what_can_be_made_of_bytes_is_sent_as_bytes_and_arrives_bit_for_bit(name: str) -> None:
    array, shrinks = SMALL[name]
    message = encoded({KEY: "k", "jpg": array})
    arrived = from_example(message)["jpg"]
    assert (arrived.dtype, arrived.shape) == (array.dtype.newbyteorder("="), array.shape)
    assert arrived.tobytes() == array.astype(arrived.dtype).tobytes()
    assert (len(message) < array.size + 300) == (shrinks or array.itemsize == 1)


def test_damage_that_the_cluster_skipped_is_told_with_what_was_lost(tmp_path: Path) -> None:
    report = InputReport(samples=1)
    lost = Lost(1024, 1536, 512)
    where = {"shard": "o", "key": "k", "member": "k.jpg", "offset": 1024}
    report.errors.append({**where, "message": "is damaged", "lost": lost.to_json()})
    with RecordFile(str(tmp_path / "answer")) as file:
        writer = StreamWriter(file, keys=False, settings=SETTINGS.digest)
        message = encoded({KEY: "a", "jpg": b"x"})
        writer.add("a", frame([message], len(message)), len(message) + FRAMING)
        writer.finish(report, 1)
    faults = list[Any]()
    source = Fetched({"a": [(tmp_path / "answer").read_bytes()]})
    found = source.samples(ObjectInfo("a", 1, "1"), InputReport(), faults.append)
    assert [sample["jpg"] for _, sample in found] == [b"x"]
    (fault,) = faults
    assert (type(fault), fault.message, fault.kind, fault.lost) == (DamagedShardError, "is damaged", "damaged", lost)
    assert (fault.shard, fault.key, fault.member, fault.offset) == ("ais://tar2tf/a", "k", "k.jpg", 1024)
