"""Reading one input of each kind in one process: samples, places of faults, what damage costs, and the end."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from added.parts.ljson import FORMAT
from example_messages import encoded
from make_bytes import END, member, tar_of
from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.source import READ_ONCE
from tar2tf_cli.api.values import Batch
from tar2tf_cli.errors import DamagedShardError, SampleError, SourceError, Tar2tfError
from tar2tf_cli.features.feature_map import Schema
from tar2tf_cli.formats.example import frame
from tar2tf_cli.formats.kernel import native
from tar2tf_cli.inputs.energon_index import EnergonSample, energon_offsets, energon_samples, packed_offsets
from tar2tf_cli.inputs.open_shard import OpenShard
from tar2tf_cli.inputs.reader import InputReader, ReadRules
from tar2tf_cli.inputs.record_samples import FeatureInference, features_of, numbered, stem_of
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.inputs.tar_index import entry_names, find_members, find_samples, is_next
from tar2tf_cli.inputs.tar_samples import FileView, SeekableShard, TarRules
from tar2tf_cli.inputs.unit_samples import UnitSamples
from tar2tf_cli.stores.directory import DirectorySource

AS_USUAL = ReadRules()


def read(path: Path, rules: ReadRules = AS_USUAL) -> tuple[list[Any], list[Any], InputReport]:
    """The keys of the samples of a file with their places, its faults, and the report."""
    source, report, faults = DirectorySource(str(path)), InputReport(), list[Any]()

    def fault(error: Tar2tfError) -> None:
        faults.append((error.offset, error.message, error.lost and error.lost.to_json()))

    (item,) = source.list(())
    with InputReader(source, item, rules, report, fault) as reader:
        found = [(sample["__key__"], reader.content.offset) for sample in reader.samples()]
        assert reader.where()["shard"] == str(path)
        if reader.is_unusable():
            report = reader.report
    return found, faults, report


def raise_it(error: Tar2tfError) -> None:
    raise error


def units(*records: Any) -> bytes:
    data = [record if isinstance(record, bytes) else json.dumps(record).encode() for record in records]
    return b"".join(len(each).to_bytes(4, "little") + each for each in data)


@contextmanager
def unit_samples(path: Path, data: bytes) -> Iterator[tuple[UnitSamples, list[Any]]]:
    path.write_bytes(data)
    source, faults = DirectorySource(str(path)), list[Any]()

    def fault(error: SampleError) -> None:
        faults.append((error.message.partition(":")[0], error.member, error.offset))

    (item,) = source.list(())
    with OpenShard(source, item) as shard:
        yield UnitSamples(shard, FORMAT, "first", fault), faults


def test_units_of_another_format_have_keys_or_the_numbers_of_their_shard(tmp_path: Path) -> None:
    data = units({"__key__": "k", "n": 1}, b"{", {"n": 2}, {"n": 3})
    with unit_samples(tmp_path / "a.b.ljson", data) as (content, faults):
        found = [(sample, content.where(), content.offset) for sample in content.samples()]
        content.check_end()
        assert not content.resume(error := DamagedShardError("x", kind="truncated"))
    assert found == [
        ({"__key__": "k", "n": 1}, {"member": "record 0", "offset": 0}, 0),
        ({"__key__": "a_b_ljson-000002", "n": 2}, {"member": "record 2", "offset": 33}, 33),
        ({"__key__": "a_b_ljson-000003", "n": 3}, {"member": "record 3", "offset": 45}, 45),
    ]
    assert faults == [("the record is not JSON", "record 1", 28)]
    assert (content.seekable, content.regroups, content.may_regroup, content.must_regroup) == (False,) * 4
    assert content.count is None
    assert error.lost
    assert error.lost.to_json()["from"] == len(data)


def test_a_shard_of_another_format_without_units_is_refused(tmp_path: Path) -> None:
    with unit_samples(tmp_path / "a.ljson", b"") as (content, _):
        assert [*content.samples()] == []
        with pytest.raises(DamagedShardError) as raised:
            content.check_end()
    assert raised.value.message == "the shard holds no samples"
    assert (raised.value.kind, raised.value.hint) == ("empty", "leave it out")


def records(*messages: bytes) -> bytes:
    return b"".join(part for message in messages for part in frame([message], len(message)))


def test_records_have_their_own_keys_or_numbers_and_damage_costs_some(tmp_path: Path) -> None:
    messages = [encoded({"__key__": ("bytes", [b"k"])}), encoded({"n": ("int64", [1])}), encoded({"n": ("int64", [2])})]
    path = tmp_path / "t.1.record"
    data = records(*messages)
    path.write_bytes(data)
    second = len(records(messages[0]))
    third = second + len(records(messages[1]))
    found, faults, _ = read(path)
    assert found == [("k", 0), ("t_1-000001", second), ("t_1-000002", third)]
    assert faults == []
    path.write_bytes(data[: second + 12] + b"\xff" + data[second + 13 :])
    found, faults, _ = read(path, ReadRules(resumes=True))
    assert found == [("k", 0), ("t_1-000002", third)]
    assert [(offset, lost) for offset, _, lost in faults] == [
        (second, {"from": second, "to": third, "bytes": third - second})
    ]
    found, faults, _ = read(path)
    assert (found, len(faults)) == ([("k", 0)], 1)
    path.write_bytes(b"")
    found, faults, _ = read(path, ReadRules(only_records=True))
    assert (found, faults) == ([], [])


def test_keys_of_records_are_of_their_stems() -> None:
    stems = {"a/b.c.record": "b.c", "b.tfrecord-00000-of-00001": "b.tfrecord-00000-of-00001", "x": "x", "c.tar.gz": "c"}
    assert {path: stem_of(path) for path in stems} == stems
    assert (numbered("a.b"), numbered("a.b", 7)) == ("a_b-", "a_b-000007")


def test_a_stream_with_a_wrong_checksum_gives_no_samples_at_all(tmp_path: Path) -> None:
    path = tmp_path / "t.tar.gz"
    random = np.random.default_rng(3).bytes(300_000)
    data = bytearray(gzip.compress(tar_of([("a.x", random), ("b.x", random[::-1])])))
    data[-8] ^= 1
    path.write_bytes(data)
    _, faults, report = read(path, ReadRules(resumes=True))
    (error,) = report.errors
    ((offset, message, _),) = faults
    assert (error["offset"], error["shard"]) == (offset, str(path))
    assert error["message"] == f"{message}; any of its samples may be changed, so none is used"
    assert error["lost"] == {"from": 0, "to": None, "bytes": len(data)}


def test_a_key_that_comes_again_is_found_in_what_follows_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "t.tar"
    for again, data in (
        (True, tar_of([("a.x", b"1"), ("b.x", b"1"), ("c.x", b"1"), ("a.y", b"1")])),
        (False, tar_of([("a.x", b"1"), ("b.x", b"1"), ("c.x", b"1")])),
        (False, tar_of([("a.x", b"1"), ("b.x", b"1")])[:-1536]),
    ):
        path.write_bytes(data)
        source = DirectorySource(str(path))
        (item,) = source.list(())
        for resumes in (False, True):
            rules = ReadRules(resumes=resumes, tar=TarRules(regroup=None))
            with InputReader(source, item, rules, InputReport(), raise_it) as reader:
                assert next(iter(reader.samples()))["__key__"] == "a"
                assert reader.finds_key_again() is (again and not resumes)


# --- What is inferred of records ---


def test_features_of_records_have_forms_if_all_agree() -> None:
    looks = FeatureInference()
    for features in (
        {"n": ("int64", [1]), "list": ("float", [1.0, 2.0]), "some": ("bytes", [b"a"]), "mixed": ("int64", [1])},
        {"n": ("int64", [2]), "list": ("float", [1.0]), "mixed": ("bytes", [b"1"])},
    ):
        looks.look_at(features_of(encoded(features)))  # type: ignore[arg-type]  # lists of any kind
    looks.look_at(None)
    assert looks.others == 1
    assert looks.kinds() == {"n": "int64", "list": "float", "some": "bytes"}
    assert looks.forms().lists == frozenset({"list", "mixed"})


# --- Tars by offset ---


def test_a_view_reads_from_its_offset_and_counts(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(b"0123456789")
    counted: list[int] = []
    with path.open("rb") as file:
        view = FileView(file.fileno(), "t", counted.append)
        view.seek(7)
        assert [view.read(2), view.read(5), view.read(5), view.read(0)] == [b"78", b"9", b"", b""]
        assert counted == [2, 1, 0, 0]
        wrong = DamagedShardError("cut", kind="truncated")
        damaged = FileView(file.fileno(), "t", None, wrong)
        assert (damaged.read(10), damaged.read(0)) == (b"0123456789", b"")
        with pytest.raises(DamagedShardError) as raised:
            damaged.read(1)
        assert raised.value is wrong
    folder = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(SourceError) as failed:
        FileView(folder, "t").read(1)
    os.close(folder)
    assert (failed.value.message, failed.value.shard, failed.value.offset) == ("reading failed: Is a directory", "t", 0)


class Stream(io.BytesIO):
    """A stream whose read raises an error at its end."""

    def __init__(self, data: bytes, error: BaseException) -> None:
        super().__init__(data)
        self.error = error

    def read(self, size: int | None = -1, /) -> bytes:
        if data := super().read(size):
            return data
        raise self.error


def test_a_copy_ends_in_the_damage_of_its_stream_and_is_closed_after_other_errors() -> None:
    wrong = DamagedShardError("cut", kind="truncated")
    stream = Stream(b"0123", wrong)
    shard = SeekableShard(lambda: stream, "t", seekable=False)  # type: ignore[arg-type, return-value]  # a stream
    view = shard.view()
    assert view.read(10) == b"0123"
    with pytest.raises(DamagedShardError):
        view.read(1)
    assert stream.closed
    assert shard.fileno() == shard.fileno()
    shard.close()
    stream = Stream(b"0123", SourceError("gone"))
    with pytest.raises(SourceError):
        SeekableShard(lambda: stream, "t", seekable=False).view()  # type: ignore[arg-type, return-value]
    assert stream.closed


# --- Indexes of Energon ---


def energon(data: bytes) -> Any:
    try:
        return [*energon_samples(io.BytesIO(data), "t")]
    except Tar2tfError as error:
        return type(error).__name__, error.member, error.message, error.hint


def test_energon_finds_samples_by_its_own_rules() -> None:
    files = [("a.x", b"1"), ("a.y", b"2" * 600), ("noext", b""), ("b.x", b""), ("a.x", b"3")]
    samples = energon(tar_of(files))
    assert samples == [
        EnergonSample("a", 0, 3072, [("x", 512, 1), ("y", 1536, 600)]),
        EnergonSample("b", 3072, 3584, [("x", 3584, 0)]),
        EnergonSample("a", 3584, 4608, [("x", 4096, 1)]),
    ]
    offsets = packed_offsets(samples)
    assert energon_offsets(offsets) == [sample.start for sample in samples] + [samples[-1].end]
    for data in (b"", offsets[:-1], offsets[8:] + offsets[:8], (1).to_bytes(8, "little"), offsets + offsets[-8:]):
        assert energon_offsets(data) is None
    none = ("DamagedShardError", None, "has no samples, and Energon reads no such tar", None)
    assert energon(tar_of([("noext", b"")])) == none
    several = ("UsageError", None, "is several tars end to end, of which Energon reads the first")
    assert energon(tar_of(files[:1]) + tar_of(files[3:4]))[:3] == several
    link = member(b"a.x", kind=b"1", link=b"b.x")
    message = "is a link, which random access cannot follow"
    hint = "tar2tf convert IN -o 'new-<>.tar' writes tars in which it is a file"
    assert energon(link + END) == ("EntryError", "a.x", message, hint)
    assert [sample.key for sample in energon(member(b"link", kind=b"1", link=b"b") + tar_of(files[:1]))] == ["a"]


# --- What is read, and how often ---


class Once(DirectorySource):
    """A file that can be opened once, as standard input."""

    capabilities = READ_ONCE

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.opened = 0

    def open(self, item: ObjectInfo) -> Any:
        self.opened += 1
        assert self.opened == 1
        return super().open(item)


def test_records_of_an_input_that_is_read_once_have_the_forms_of_all_records(tmp_path: Path) -> None:
    path = tmp_path / "t.record"
    path.write_bytes(records(encoded({"n": ("int64", [1])}), encoded({"n": ("int64", [2, 3])})))

    def reading(how: str) -> list[Any]:
        source = Once(path)
        (item,) = source.list(())
        with InputReader(source, item, AS_USUAL, InputReport(), raise_it) as reader:
            if how == "samples":
                return [sample["n"] for sample in reader.samples()]
            assert reader.records
            return [reader.records.sample(key)["n"] for key, *_ in reader.records.framed()]

    found = {how: [np.asarray(one).tolist() for one in reading(how)] for how in ("samples", "framed")}
    assert found == {"samples": [[1], [2, 3]], "framed": [[1], [2, 3]]}


def test_copied_records_come_in_batches_of_some_size_without_the_damaged_ones(tmp_path: Path) -> None:
    path = tmp_path / "t.record"
    sizes = [50_000] * 12 + [400_000, 10]
    data = records(*(encoded({"x": ("bytes", [bytes(size)])}) for size in sizes))
    for cut in (0, 5):
        path.write_bytes(data[: len(data) - cut])
        source = DirectorySource(str(path))
        (item,) = source.list(())
        batches, faults = [], []
        with InputReader(source, item, AS_USUAL, InputReport(), faults.append) as reader:
            assert reader.records
            try:
                batches += reader.records.batches()
            except DamagedShardError as error:
                faults.append(error)
        assert len(faults) == bool(cut)
        assert data.startswith(b"".join(batch.data for batch in batches))
        counts = [len(batch) for batch in batches]
        assert sum(counts) == len(sizes) - bool(cut)
        assert max(counts) < 12


class Counting(io.BytesIO):
    """A stream that counts the bytes that are read."""

    total = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.total += len(data)
        return data


def test_positions_are_found_without_reading_large_members() -> None:
    data = tar_of([("a.x", bytes(5_000_000)), ("b.x", bytes(5_000_000))])
    for find in (find_samples, find_members, entry_names):
        stream = Counting(data)
        assert len([*find(stream, "t", "first")]) == 2  # type: ignore[operator]  # functions with the same arguments
        assert stream.total < 1_000_000
    stream = Counting(data)
    assert len([*energon_samples(stream, "t")]) == 2
    assert stream.total < 1_000_000
    stream = Counting(data)
    entry = next(iter(find_samples(io.BytesIO(data), "t", "first"))).entries[0]
    assert is_next(stream, 0, entry, "t", "first")
    assert stream.total < 1_000_000


# --- Records that are no samples ---


def sequence_example() -> bytes:
    steps = tf.train.FeatureList(feature=[tf.train.Feature(int64_list=tf.train.Int64List(value=[1]))])
    lists = tf.train.FeatureLists(feature_list={"steps": steps})
    key = {"__key__": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"s"]))}
    made = tf.train.SequenceExample(context=tf.train.Features(feature=key), feature_lists=lists)
    return bytes(made.SerializeToString())


ONE_KEY = "give each record one key, or leave out ops and selections, which need it"


def faults_of(path: Path, rules: ReadRules, *messages: bytes) -> tuple[list[Any], list[Any]]:
    """The keys of samples, and the places, messages and hints of faulty records."""
    path.write_bytes(records(*messages))
    source = DirectorySource(str(path))
    (item,) = source.list(())
    faults: list[Any] = []

    def fault(error: Tar2tfError) -> None:
        faults.append((error.member, error.message.partition(":")[0], error.hint))

    with InputReader(source, item, rules, InputReport(), fault) as reader:
        return [sample["__key__"] for sample in reader.samples()], faults


def test_records_that_are_no_samples_are_faulty_with_what_to_do(tmp_path: Path) -> None:
    good = encoded({"__key__": ("bytes", [b"k"]), "id": ("int64", [7]), "n": ("int64", [1])})
    two = encoded({"__key__": ("bytes", [b"a", b"b"]), "id": ("int64", [1, 2])})
    float_key, none = encoded({"__key__": ("float", [0.5])}), encoded({"n": ("int64", [1])})
    messages = (good, two, float_key, none, b"no message", sequence_example())
    path = tmp_path / "t.record"
    unparsed = "the record cannot be read as a sample"
    only = "can only be copied unchanged: leave out ops, selections and types"
    others = [
        ("record 4", unparsed, f"records of other kinds {only}"),
        ("record 5", unparsed, f"a tf.train.SequenceExample {only}"),
    ]
    wrong = "the feature '__key__' is not one text or whole number"
    keys = ["k", "t-000003"]
    assert faults_of(path, AS_USUAL, *messages) == (
        keys,
        [("record 1", wrong, ONE_KEY), ("record 2", wrong, ONE_KEY), *others],
    )
    missing = "the feature 'id' is missing, which --key-feature names"
    wrong = "the feature 'id' is not one text or whole number"
    assert faults_of(path, ReadRules(key_feature="id"), *messages) == (
        ["7"],
        [("record 1", wrong, ONE_KEY), ("record 2", missing, ONE_KEY), ("record 3", missing, ONE_KEY), *others],
    )


def test_copied_records_have_keys_and_become_samples_whatever_they_are(tmp_path: Path) -> None:
    path = tmp_path / "t.record"
    good = encoded({"__key__": ("bytes", [b"k"]), "n": ("int64", [1])})
    messages = (good, b"no message", sequence_example(), encoded({"n": ("int64", [1])}))
    path.write_bytes(records(*messages))
    source = DirectorySource(str(path))
    (item,) = source.list(())
    report = InputReport()
    with InputReader(source, item, AS_USUAL, report, raise_it) as reader:
        assert reader.records
        found = []
        for key, parts, size in reader.records.framed():
            reader.records.note()
            sample = reader.records.sample(key)
            found.append((key, b"".join(parts), size, reader.records.where(), sample.keys()))
            assert sample["__key__"] == key
    framed = [records(message) for message in messages]
    starts = [sum(map(len, framed[:number])) for number in range(4)]
    names = [{"__key__", "n"}, {"__key__", ""}, {"__key__", ""}, {"__key__", "n"}]
    keys = ["k", "t-000001", "s", "t-000003"]
    places = [{"member": f"record {number}", "offset": start} for number, start in enumerate(starts)]
    assert found == [*zip(keys, framed, map(len, framed), places, names, strict=True)]
    assert report.other_records == 2
    assert report.schema.looks == {"__key__": ("bytes", "bytes", ()), "n": ("int64", "int64", ())}
    assert sum(report.schema.signatures.values()) == 2


def test_a_compressed_record_file_with_a_wrong_checksum_leaves_no_statistics(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(records(*(encoded({"n": ("int64", [number])}) for number in range(9)))))
    data[-8] ^= 1
    path = tmp_path / "t.record.gz"
    path.write_bytes(data)
    source, report = DirectorySource(str(path)), InputReport()
    (item,) = source.list(())
    rules = ReadRules(resumes=True, only_records=True)
    with InputReader(source, item, rules, report, lambda error: None) as reader:
        assert reader.records
        for _ in reader.resuming(reader.records.framed):
            reader.records.note()
        assert reader.is_unusable()
    assert (reader.report.schema.looks, len(reader.report.errors)) == ({}, 1)


# --- Types and shapes that follow from records ---


def inferred(described: Any, *examples: dict[str, Any]) -> tuple[dict[str, Any], list[Any], Any]:
    """What follows for each feature, the numbers of records by the names of their features, and the ranks of arrays."""
    looks, schema = FeatureInference(described), Schema()
    for features in examples:
        looks.look_at(features_of(encoded(features)))
    looks.describe(schema)
    return schema.looks, sorted(schema.signatures.items()), looks.forms().ranks


def test_types_and_shapes_follow_from_all_records() -> None:
    found = inferred(
        {},
        {"n": ("int64", [1]), "pair": ("float", [1, 2]), "some": ("bytes", [b"a"]), "mixed": ("int64", [1])},
        {"n": ("int64", [2]), "pair": ("float", [1, 2]), "some": ("bytes", []), "mixed": ("float", [1.0])},
        {"n": ("int64", [3]), "none": ("int64", [])},
    )
    all_names = ("mixed", "n", "pair", "some")
    assert found == (
        {
            "n": ("int64", "int64", ()),
            "pair": ("float", "float32", (2,)),
            "some": ("bytes", "bytes", (None,)),
            "mixed": ("mixed", "", ()),
            "none": ("int64", "int64", (0,)),
        },
        [(all_names, 2), (("n", "none"), 1)],
        {},
    )


def test_features_with_shapes_are_arrays_if_all_shapes_match() -> None:
    first = {
        "a": ("float", [1.0] * 6),
        "a/shape": ("int64", [2, 3]),
        "v": ("float", [1.0] * 3),
        "v/shape": ("int64", [3]),
        "wrong": ("float", [1.0] * 4),
        "wrong/shape": ("int64", [5]),
        "alone/shape": ("int64", [1]),
        "x": ("int64", [1]),
        "x/shape": ("float", [1.0]),
    }
    second = {
        "a": ("float", [1.0] * 4),
        "a/shape": ("int64", [4, 1]),
        "v": ("float", [1.0] * 3),
        "v/shape": ("int64", [3]),
        "wrong": ("float", [1.0] * 4),
        "wrong/shape": ("int64", [4]),
    }
    looks, signatures, ranks = inferred({}, first, second)
    assert looks == {
        "a": ("float", "float32", (None, None)),
        "a/shape": ("int64", "int64", (2,)),
        "v": ("float", "float32", (3,)),
        "v/shape": ("int64", "int64", (1,)),
        "wrong": ("float", "float32", (4,)),
        "wrong/shape": ("int64", "int64", ()),
        "alone/shape": ("int64", "int64", ()),
        "x": ("int64", "int64", ()),
        "x/shape": ("float", "float32", ()),
    }
    assert signatures == [(tuple(sorted(first)), 1), (tuple(sorted(second)), 1)]
    assert ranks == {"a": 2, "v": 1, "wrong": None, "x": None}


def test_a_manifest_describes_features_as_far_as_records_agree() -> None:
    described = {
        "a": {"encoding": "raw", "dtype": "uint8", "shape": [2, 2]},
        "n": {"encoding": "int64", "dtype": "bool", "shape": []},
        "pair": {"encoding": "float", "dtype": "float64", "shape": [2]},
        "k/shape": {"encoding": "int64", "dtype": "int32", "shape": [2]},
        "any": {"encoding": "float", "dtype": "float16", "shape": [None]},
    }
    agreeing = {
        "a": ("bytes", [b"abcd"]),
        "n": ("int64", [1]),
        "pair": ("float", [1, 2]),
        "k/shape": ("int64", [1, 2]),
        "any": ("float", [1.0]),
    }
    others = {
        "a": ("bytes", [b"a", b"b"]),
        "n": ("float", [1.0]),
        "pair": ("float", [1.0]),
        "k/shape": ("int64", [1]),
        "any": ("float", [1.0, 2.0]),
    }
    assert inferred(described, agreeing)[0] == {
        name: (about["encoding"], about["dtype"], tuple(about["shape"])) for name, about in described.items()
    }
    assert inferred(described, agreeing, others)[0] == {
        "a": ("bytes", "bytes", (None,)),
        "n": ("mixed", "", ()),
        "pair": ("float", "float32", (None,)),
        "k/shape": ("int64", "int64", (None,)),
        "any": ("float", "float16", (None,)),
    }


def test_a_small_local_tar_is_read_once_to_an_end_that_needs_no_read(tmp_path: Path) -> None:
    path = tmp_path / "t.tar"
    path.write_bytes(tar_of([("1.txt", b"a"), ("2.txt", b"b")]))
    source, reads = DirectorySource(str(path)), list[int]()
    (item,) = source.list(())
    with InputReader(source, item, AS_USUAL, InputReport(), raise_it, reads.append, small=True) as reader:
        assert [sample["__key__"] for sample in reader.samples()] == ["1", "2"]
    assert reads == [path.stat().st_size]


@pytest.mark.parametrize("archives", [1, 2])
def test_the_kernel_and_python_count_the_same_archives(tmp_path: Path, archives: int) -> None:
    path = tmp_path / "t.tar"
    path.write_bytes(b"".join(tar_of([(f"{number}.txt", b"a")]) for number in range(archives)))
    source = DirectorySource(str(path))
    (item,) = source.list(())
    for kernel in (native(), None):
        report = InputReport()
        with InputReader(source, item, AS_USUAL, report, raise_it) as reader:
            found = sum(len(item) if isinstance(item, Batch) else 1 for item in reader.samples(kernel))
        assert (found, report.archives) == (archives, archives)


def test_a_tar_of_unknown_version_is_read_to_its_end_whatever_size_was_listed(tmp_path: Path) -> None:
    path = tmp_path / "t.tar"
    path.write_bytes(tar_of([("1.txt", b"a"), ("2.txt", b"b")]))
    source, item = DirectorySource(str(path)), ObjectInfo("t.tar", 1024, None)
    with InputReader(source, item, AS_USUAL, InputReport(), raise_it) as reader:
        assert [sample["__key__"] for sample in reader.samples()] == ["1", "2"]


def test_a_report_that_is_pickled_keeps_what_occurred() -> None:
    schema = Schema()
    schema.add_plain(("__key__", "txt"))
    report = InputReport(3, errors=[{"message": "is faulty"}], keys=[4], archives=2, schema=schema)
    report.filtered["--keys"] += 1
    other = pickle.loads(pickle.dumps(report))
    assert {**vars(other), "schema": other.schema.key} == {**vars(report), "schema": schema.key}
    assert len(pickle.dumps(InputReport())) < 300
