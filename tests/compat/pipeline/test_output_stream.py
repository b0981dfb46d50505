"""Files and streams that a Pipeline writes."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shards import records, samples, write_tar
from tar2tf_cli.errors import (
    OutputExistsError,
    SampleError,
    SinkError,
    UsageError,
)
from tar2tf_cli.pipeline import (
    Pipeline,
)

# --- Outputs ---


def test_a_file_that_is_there_is_not_overwritten_unasked(tar: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.record"
    out.write_bytes(b"precious")
    with pytest.raises(OutputExistsError, match=r"out\.record: already exists"):
        Pipeline().from_tar(tar).sample_to_tf_example().to_tf_record(out).do()
    assert out.read_bytes() == b"precious"
    Pipeline().from_tar(tar).sample_to_tf_example().to_tf_record(out, overwrite=True).do()
    assert len(records(out)) == 40


def test_a_file_appears_only_when_it_is_whole(tar: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "er" / "out.record"
    seen = []

    def watched(items: Iterator[Any]) -> Iterator[Any]:
        for item in items:
            seen.append(out.exists())
            yield item

    Pipeline().from_tar(tar).with_samples_stage(watched).sample_to_tf_example().to_tf_record(out).do()
    assert seen == [False] * 40
    assert [path.name for path in out.parent.iterdir()] == ["out.record"]


def test_an_older_file_stays_when_a_run_fails(tar: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.record"
    out.write_bytes(b"older")
    pipeline = Pipeline().from_tar(tar).sample_to_tf_example({"jpg": "int64"})
    with pytest.raises(SampleError):
        pipeline.to_tf_record(out, overwrite=True).do()
    assert out.read_bytes() == b"older"


class Trickle:
    """An unbuffered output that takes three bytes at a time."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> int:
        self.data += data[:3]
        return min(len(data), 3)


class Full(io.RawIOBase):
    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        raise OSError(28, "No space left on device")


def test_file_objects_that_take_little_or_nothing(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "few.tar", samples(3, 20))
    whole, little = io.BytesIO(), Trickle()
    Pipeline().from_tar(tar).sample_to_tf_example().to_tf_record(whole).do()
    Pipeline().from_tar(tar).sample_to_tf_example().to_tf_record(little).do()
    assert little.data == whole.getvalue()
    with pytest.raises(SinkError, match="No space left on device"):
        Pipeline().from_tar(tar).sample_to_tf_example().to_tf_record(Full()).do()
    closed = io.BytesIO()
    closed.close()
    with pytest.raises(SinkError, match="closed"):
        Pipeline().from_tar(tar).sample_to_tf_example().to_tf_record(closed).do()


def test_a_directory_or_device_as_output_is_refused(tar: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a directory"):
        Pipeline().from_tar(tar).sample_to_tf_example().to_tf_record(tmp_path).do()
    with pytest.raises(UsageError, match="not a regular file"):
        Pipeline().from_tar(tar).sample_to_tf_example().to_tf_record("/dev/null", overwrite=True).do()


def test_memory_does_not_grow_with_the_tar(tmp_path: Path) -> None:
    import tracemalloc

    tar = write_tar(tmp_path / "large.tar", ((f"{n:05}", {"bin": bytes(1_000_000)}) for n in range(100)))
    tracemalloc.start()
    try:
        for workers in (1, 2):
            pipeline = Pipeline().from_tar(tar).sample_to_tf_example()
            pipeline.to_tf_record(tmp_path / f"{workers}.record", num_workers=workers).do()
        assert tracemalloc.get_traced_memory()[1] < 45e6
    finally:
        tracemalloc.stop()
