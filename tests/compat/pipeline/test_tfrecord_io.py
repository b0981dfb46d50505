"""`TFRecordReader` and `TFRecordWriter` against TensorFlow's."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest

from shards import records, tree
from tar2tf_cli.errors import (
    DamagedShardError,
    OutputExistsError,
    SampleError,
    SourceError,
)
from tar2tf_cli.pipeline import (
    TFExample,
    TFRecordReader,
    TFRecordWriter,
)
from verify_runs import framed

# --- Reader and writer ---


def example_of(number: int) -> TFExample:
    example = TFExample()
    example.add_int64("n", number)
    return example


@pytest.mark.parametrize("opened", [False, True])
def test_tensorflow_and_the_reader_read_what_the_writer_writes(tmp_path: Path, opened: bool) -> None:
    import tensorflow as tf

    path = tmp_path / "out" / "n.record"
    path.parent.mkdir()
    file = path.open("wb") if opened else None
    with TFRecordWriter(file or path) as writer:
        for number in range(100):
            example = example_of(number)
            writer.write(example.to_bytes() if number % 2 else example)
    if file:
        file.close()
    assert (writer.records, writer.size) == (100, path.stat().st_size)
    read = [tf.train.Example.FromString(record.numpy()) for record in tf.data.TFRecordDataset(str(path))]
    assert [list(example.features.feature["n"].int64_list.value) for example in read] == [[n] for n in range(100)]
    assert [example.get_int64("n") for example in TFRecordReader(path)] == list(range(100))
    assert list(TFRecordReader(io.BytesIO(path.read_bytes())).records()) == records(path)
    packed = path.with_suffix(".gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert len(list(TFRecordReader(packed))) == 100
    assert [path.name for path in path.parent.iterdir() if path.name.startswith(".")] == []


def test_flush_hands_all_records_over_to_an_open_file() -> None:
    out = io.BytesIO()
    with TFRecordWriter(out) as writer:
        for number in range(3):
            writer.write(example_of(number))
            writer.flush()
            read = TFRecordReader(io.BytesIO(out.getvalue()))
            assert [example.get_int64("n") for example in read] == list(range(number + 1))
    with pytest.raises(ValueError, match="closed"):
        writer.flush()


def test_the_reader_reads_what_tensorflow_writes(tmp_path: Path) -> None:
    import tensorflow as tf

    path = str(tmp_path / "tf.record")
    with tf.io.TFRecordWriter(path) as writer:
        for number in range(10):
            feature = tf.train.Feature(int64_list=tf.train.Int64List(value=[number]))
            writer.write(tf.train.Example(features=tf.train.Features(feature={"n": feature})).SerializeToString())
    reader = TFRecordReader(path)
    assert [example.get_int64("n") for example in reader] == list(range(10))
    assert len(list(reader)) == 10


def test_a_writer_whose_block_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(TypeError), TFRecordWriter(tmp_path / "out.record") as writer:
        writer.write(7)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="closed"):
        writer.write(example_of(1))


def test_a_closed_writer_writes_nothing_more(tmp_path: Path) -> None:
    for out in (tmp_path / "out.record", io.BytesIO()):
        writer = TFRecordWriter(out)
        writer.write(b"first")
        writer.close()
        for again in (
            writer.close,
            lambda writer=writer: writer.write(b"second"),
            lambda writer=writer: writer.write({}),
        ):
            with pytest.raises(ValueError, match=r"^the writer is closed$"):
                again()
        assert (writer.records, writer.size) == (1, 21)
        data = out.getvalue() if isinstance(out, io.BytesIO) else out.read_bytes()
        assert data == framed(b"first")


def test_a_record_may_be_as_large_as_a_message_of_protobuf() -> None:
    class Large(bytes):
        def __len__(self) -> int:
            return 1 << 31

    writer = TFRecordWriter(io.BytesIO())
    with pytest.raises(SampleError) as caught:
        writer.write(Large())
    limit = "more than protobuf's limit of 2,147,483,647"
    assert str(caught.value) == f"the record has 2,147,483,648 bytes, {limit}"
    assert (writer.records, writer.size) == (0, 0)


def test_a_file_that_gives_no_bytes_is_an_error_that_names_it() -> None:
    class Empty:
        name = "pipe"

        def read(self, size: int) -> None:
            return None

    with pytest.raises(SourceError) as caught:
        list(TFRecordReader(Empty()))
    assert (caught.value.message, caught.value.shard, caught.value.hint) == (
        "read() returned NoneType instead of bytes",
        "pipe",
        "open it in binary mode, without O_NONBLOCK",
    )


def test_a_writer_does_not_replace_what_appeared_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "out.record"
    writer = TFRecordWriter(path)
    writer.write(example_of(1))
    path.write_bytes(b"another's")
    with pytest.raises(OutputExistsError):
        writer.close()
    assert tree(tmp_path) == {"out.record": b"another's"}


@pytest.mark.parametrize(
    ("place", "kind", "number"), [(0, "length_crc", 1), (9, "length_crc", 1), (20, "data_crc", 1), (-1, "data_crc", 1)]
)
def test_the_reader_compares_every_crc(tmp_path: Path, place: int, kind: str, number: int) -> None:
    out = io.BytesIO()
    with TFRecordWriter(out) as writer:
        for n in range(2):
            writer.write(example_of(n))
    data = bytearray(out.getvalue())
    half = len(data) // 2
    data[half + place if place >= 0 else place] ^= 1
    path = tmp_path / "damaged.record"
    path.write_bytes(data)
    read = []
    with pytest.raises(DamagedShardError, match=rf"damaged\.record, record {number}, offset {half}") as caught:
        read.extend(TFRecordReader(path))
    assert caught.value.kind == kind
    path.write_bytes(out.getvalue()[:-1])
    with pytest.raises(DamagedShardError, match="1 bytes short"):
        list(TFRecordReader(path))


def test_a_record_that_is_no_example_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "text.record"
    with TFRecordWriter(path) as writer:
        writer.write(example_of(1))
        writer.write(b"no example")
    with pytest.raises(DamagedShardError, match=r"text\.record, record 1, offset \d+: is not a tf\.train\.Example"):
        list(TFRecordReader(path))
    assert list(TFRecordReader(path).records())[1] == b"no example"


def test_importing_the_pipeline_does_not_import_tensorflow() -> None:
    import subprocess
    import sys

    code = "import sys, tar2tf_cli.pipeline; print([m for m in ('tensorflow', 'numpy', 'cv2') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


def test_a_writer_that_is_never_closed_leaves_no_file_and_says_so(tmp_path: Path) -> None:
    writer = TFRecordWriter(tmp_path / "x.record")
    writer.write(example_of(1))
    with pytest.warns(RuntimeWarning, match="x.record was not written, as its TFRecordWriter was not closed"):
        del writer
    assert tree(tmp_path) == {}


def test_an_example_without_features_names_none() -> None:
    with pytest.raises(SampleError, match=r"^has no feature 'a'$"):
        TFExample().get_int64("a")
