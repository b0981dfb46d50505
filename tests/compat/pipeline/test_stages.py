"""Stages of one's own in a Pipeline."""

from __future__ import annotations

import re
import textwrap
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import tar2tf_cli.pipeline
from pipeline_runs import made_of
from servers import QuietHandler
from shards import examples, records, samples, write_tar
from tar2tf_cli.errors import StageError
from tar2tf_cli.pipeline import (
    Pipeline,
    TFExample,
    TFRecordReader,
)

# --- Stages of one's own ---


def test_the_stages_of_the_documentation_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The documentation's examples as they stand: a logger that counts, and a service that samples are sent to."""
    blocks = re.findall(r"(?:^(?:    .*)?\n)+", tar2tf_cli.pipeline.__doc__ or "", re.MULTILINE)
    logger, service_client = (textwrap.dedent(block) for block in blocks if "def " in block)
    logged, served = tmp_path / "logged.record", tmp_path / "served.record"
    many, some = write_tar(tmp_path / "many.tar", samples(2100, 20)), write_tar(tmp_path / "some.tar", samples(60))
    exec(logger, {"Pipeline": Pipeline, "tar": many, "out": logged})
    assert capsys.readouterr().out == "1,000 samples\n2,000 samples\n"
    assert len(records(logged)) == 2100
    with Service() as (url, service):
        exec(service_client, {"Pipeline": Pipeline, "tar": some, "out": served, "url": url})
    assert service.answered == 60
    expected = [(key.encode(), entries["jpg"][::-1]) for key, entries in samples(60)]
    assert [(features["__key__"][0], features["jpg"][0]) for features in examples(served)] == expected


class Service:
    """A service that answers with the bytes it was sent, backwards, once it was asked twice at the same time."""

    def __init__(self) -> None:
        self.asked = self.answered = 0
        lock = threading.Lock()
        two = threading.Event()
        service = self

        class Handler(QuietHandler):
            def do_POST(self) -> None:
                with lock:
                    service.asked += 1
                    if service.asked == 2:
                        two.set()
                data = self.rfile.read(int(self.headers["Content-Length"]))
                assert two.wait(timeout=100)
                with lock:
                    service.answered += 1
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data[::-1])

        class Server(ThreadingHTTPServer):
            request_queue_size = 64

        self.server = Server(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> tuple[str, Service]:
        self.thread.start()
        return f"http://127.0.0.1:{self.server.server_port}", self

    def __exit__(self, *exception: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def test_every_stage_can_be_ones_own(tmp_path: Path) -> None:
    kept: list[TFExample] = []

    def tar_stage() -> Iterator[dict[str, Any]]:
        for number in range(5):
            yield {"__key__": str(number), "n": number}

    def samples_stage(items: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
        return sorted(items, key=lambda sample: -sample["n"])

    def convert_stage(items: Iterator[dict[str, Any]]) -> Iterator[TFExample]:
        for sample in items:
            example = TFExample()
            example.add_int64("n", sample["n"])
            yield example

    def examples_stage(items: Iterator[TFExample]) -> Iterator[TFExample]:
        return (example for example in items if example.get_int64("n") != 2)

    def record_stage(items: Iterator[TFExample]) -> None:
        kept.extend(items)

    pipeline = Pipeline().with_tar_stage(tar_stage).with_samples_stage(samples_stage)
    pipeline.with_sample2tfexample_stage(convert_stage).with_tfexamples_stage(examples_stage)
    done = pipeline.with_tfrecord_stage(record_stage).do()
    assert [example.get_int64("n") for example in kept] == [4, 3, 1, 0]
    assert done.records == 4


def test_a_tfrecord_stage_may_be_a_generator(tar: Path) -> None:
    kept = []

    def record_stage(items: Iterator[TFExample]) -> Iterator[TFExample]:
        for item in items:
            kept.append(item)
            yield item

    Pipeline().from_tar(tar).sample_to_tf_example().with_tfrecord_stage(record_stage).do()
    assert len(kept) == 40


def test_stages_are_lazy(tar: Path) -> None:
    seen = []

    def watched(items: Iterator[Any]) -> Iterator[Any]:
        for item in items:
            seen.append(item["__key__"])
            yield item

    def first_two(items: Iterator[TFExample]) -> None:
        next(items)
        next(items)

    pipeline = Pipeline().from_tar(tar).with_samples_stage(watched).sample_to_tf_example()
    assert not seen
    assert pipeline.with_tfrecord_stage(first_two).do().records == 2
    assert seen == ["0000", "0001"]


def test_a_stage_may_end_early(tar: Path, tmp_path: Path) -> None:
    made = made_of(tar, tmp_path, lambda p: p.with_samples_stage(lambda items: (next(items) for _ in range(3))))
    assert [features["__key__"][0] for features in made] == [b"0000", b"0001", b"0002"]


def test_a_stage_may_fetch_ahead_in_a_thread_of_its_own(tar: Path, tmp_path: Path) -> None:
    import queue

    def ahead(items: Iterator[Any]) -> Iterator[Any]:
        fetched: queue.Queue[Any] = queue.Queue(4)

        def fetch() -> None:
            for item in items:
                fetched.put(item)
            fetched.put(None)

        thread = threading.Thread(target=fetch)
        thread.start()
        yield from iter(fetched.get, None)
        thread.join()

    assert len(made_of(tar, tmp_path, lambda p: p.with_samples_stage(ahead))) == 40


def test_what_a_stage_keeps_of_a_sample_stays_a_sample(tar: Path, tmp_path: Path) -> None:
    kept: list[Any] = []

    def keeping(items: Iterator[Any]) -> Iterator[Any]:
        for item in items:
            kept.append(item)
            yield item

    made_of(tar, tmp_path, lambda p: p.with_samples_stage(keeping))
    assert [(sample["__key__"], sample["cls"]) for sample in kept] == [(key, e["cls"]) for key, e in samples(40)]


def test_methods_are_found_by_their_names_in_go(tar: Path, tmp_path: Path) -> None:
    def seen(examples):
        yield from examples

    pipeline = Pipeline()
    pipeline.FromTar(tar).SampleToTFExample().with_tf_examples_stage(seen).ToTFRecord(tmp_path / "x.record").Do()
    assert (tmp_path / "x.record").stat().st_size
    with pytest.raises(AttributeError, match="has no method 'from_zar'; did you mean 'from_tar'"):
        pipeline.from_zar(tar)


def test_read_of_go_is_answered_with_iteration(tar: Path, tmp_path: Path) -> None:
    with pytest.raises(AttributeError, match=r"Pipeline has no method 'Read'; iterate over samples\(\)"):
        Pipeline().from_tar(tar).Read()
    reader = TFRecordReader(tmp_path / "x.record")
    for name, instead in (("Read", "over it"), ("ReadAllExamples", "over it"), ("ReadNext", r"over records\(\)")):
        with pytest.raises(AttributeError, match=f"TFRecordReader has no method '{name}'; iterate {instead}"):
            getattr(reader, name)

    def reads(samples):
        while sample := samples.Read():
            yield sample

    pipeline = Pipeline().from_tar(tar).with_samples_stage(reads).sample_to_tf_example()
    with pytest.raises(StageError, match="has no attribute 'Read'; iterate over what the stage is given: `for item in"):
        pipeline.to_tf_record(tmp_path / "x.record").do()


def test_a_stage_with_a_read_method_is_answered_with_generators(tar: Path, tmp_path: Path) -> None:
    class Reader:
        def Read(self):
            return None

    pipeline = Pipeline().from_tar(tar).with_samples_stage(lambda samples: Reader()).sample_to_tf_example()
    with pytest.raises(StageError, match=r"returned Reader instead of an iterator; write a generator"):
        pipeline.to_tf_record(tmp_path / "x.record").do()
