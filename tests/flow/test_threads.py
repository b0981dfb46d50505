"""One tar and several CPUs: threads make its examples, and nothing shows it but the time."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import SECONDS, tar2tf
from shards import PHOTOS, samples_of, tree, write_tar
from tar2tf_cli import convert
from tar2tf_cli.compat.transformations import by_key_value, by_sample_f, select
from tar2tf_cli.conversion.plan import make_plan
from tar2tf_cli.errors import SampleError
from tar2tf_cli.flow.sample_flow import InputFlow, ReadOptions, ReadPlan
from tar2tf_cli.flow.transform import Located, work_in_threads
from tar2tf_cli.ops import Cast, Decode, Func, Op, Resize, Rotate
from tar2tf_cli.spec.conversion import Conversion, Input, Output
from tar2tf_cli.stores import open_source

OPS = ("--op", "decode:jpg", "--op", "rotate:jpg", "--op", "resize:jpg,40x30", "--op", "cast:jpg,uint8")
FAULTY = {3: b"no image", 40: b"", 41: b"\xff\xd8\xff cut", 99: b"GIF89a" + bytes(20)}


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tar of 120 photos, of which some are none."""
    photos = [entries["jpg"] for _, entries in samples_of(*sorted(PHOTOS.glob("*.tar")))]
    contents = [
        (f"{number:03d}", {"cls": b"%d" % number, "jpg": FAULTY.get(number) or photos[number % len(photos)]})
        for number in range(120)
        if number not in FAULTY or FAULTY[number]
    ]
    return write_tar(tmp_path_factory.mktemp("one") / "one.tar", contents)


@pytest.fixture(scope="module")
def whole(one: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The photos alone."""
    contents = [sample for sample in samples_of(one) if int(sample[0]) not in FAULTY]
    return write_tar(tmp_path_factory.mktemp("whole") / "whole.tar", contents)


def plan(tar: Path, *ops: Any, **options: Any) -> Any:
    return make_plan(Conversion(Input(str(tar)), Output("x-<>.record"), ops=ops, **options))


def test_the_bytes_do_not_depend_on_threads(whole: Path, tmp_path: Path) -> None:
    trees = []
    for workers in ("1", "2", "5"):
        out = tmp_path / workers
        done = tar2tf("convert", whole, "-o", out / "t-<>.record", "--max-shard-size", "100kB", "-j", workers, *OPS)
        assert done.returncode == 0, done.stderr
        trees.append(tree(out))
    assert trees[0] == trees[1] == trees[2]
    assert len(trees[0]) > 3


@pytest.mark.parametrize("cut", [None, 200_000], ids=["whole", "cut short"])
def test_faulty_samples_are_told_in_order(one: Path, tmp_path: Path, cut: int | None) -> None:
    shard = tmp_path / "s.tar"
    shard.write_bytes(one.read_bytes()[:cut])
    told = []
    for workers in ("1", "4"):
        out, errors = tmp_path / workers, tmp_path / f"{workers}.jsonl"
        command = ("convert", shard, "-o", out / "t-<>.record", "-j", workers, *OPS)
        done = tar2tf(*command, "--on-error", "skip", "--errors", errors, timeout=SECONDS)
        assert done.returncode == 1, done.stderr
        told.append((tree(out), errors.read_text()))
    assert told[0] == told[1]
    faults = [json.loads(line) for line in told[0][1].splitlines()]
    assert [fault["key"] for fault in faults] == (["003", "041", "099"] if cut is None else ["003", "021"])
    offsets = [fault["offset"] for fault in faults]
    assert offsets == sorted(offsets)


def test_the_first_fault_stops_the_run_whoever_met_it(one: Path, tmp_path: Path) -> None:
    failures = []
    for workers in ("1", "4"):
        done = tar2tf("convert", one, "-o", tmp_path / "t-<>.record", "-j", workers, *OPS)
        assert done.returncode == 3
        failures.append(done.stderr)
    assert failures[0] == failures[1]
    assert "003" in failures[0]


def test_the_work_is_done_in_threads(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = set()
    apply = Decode.apply

    def noting(op: Decode, sample: Any, context: Any) -> Any:
        seen.add(threading.current_thread())
        return apply(op, sample, context)

    monkeypatch.setattr(Decode, "apply", noting)
    source = open_source(str(whole))
    spec = plan(whole, Decode("jpg")).conversion
    examples = []
    for threads in (1, 3):
        seen.clear()
        with InputFlow(ReadPlan.of(spec, source), source.list(())[0], ReadOptions(threads=threads)) as reading:
            examples.append([(key, b"".join(parts)) for key, parts, *_ in reading.records()])
        assert (threading.main_thread() in seen) == (threads == 1)
    assert examples[0] == examples[1]
    assert reading.report.errors == []


def test_items_read_before_an_error_are_worked_on_first() -> None:
    def items() -> Iterator[Located]:
        yield from (({"number": number}, "", {}) for number in range(50))
        raise ValueError("the end")

    seen = []
    with pytest.raises(ValueError, match="the end"):  # noqa: PT012 - what comes before it matters
        for result, _, _ in work_in_threads(items(), lambda item: [item["number"]], 3):
            seen.append(result)
    assert seen == list(range(50))


def test_a_fault_has_the_place_of_its_own_sample(one: Path) -> None:
    source = open_source(str(one))
    spec = plan(one, Decode("jpg")).conversion
    places = []
    for threads in (1, 3):
        with (
            InputFlow(ReadPlan.of(spec, source), source.list(())[0], ReadOptions(threads=threads)) as reading,
            pytest.raises(SampleError) as caught,
        ):
            list(reading.records())
        places.append((caught.value.key, caught.value.offset, caught.value.shard))
    assert places[0] == places[1]
    assert places[0][0] == "003"


class _OfTheUser(Op):
    """An op that is not registered."""

    name = "of_the_user"
    usage = "of_the_user"

    def apply(self, sample: Any, context: Any) -> Any:
        return sample


@pytest.mark.parametrize(
    ("ops", "options", "threads"),
    [
        ((Decode("jpg"),), {}, 6),
        ((), {"preset": "imagenet-tensor"}, 6),
        ((Rotate("jpg"), Resize("jpg", (2, 2)), Cast("jpg", "uint8")), {"shuffle": True, "limit": 3}, 6),
        ((), {}, 1),
        ((), {"preset": "image-label"}, 1),
        ((Decode("jpg"),), {"limit": 3}, 1),
        ((Decode("jpg"), Func(np.copy)), {}, 1),
        ((Decode("jpg"), select(by_sample_f(list))), {}, 1),
        ((Decode("jpg"), select(by_key_value("cls", 1))), {}, 6),
        ((Decode("jpg"), _OfTheUser()), {}, 1),
        ((Decode("jpg"),), {"record_to_example": np.copy}, 1),
    ],
)
def test_threads_are_for_images_and_never_for_functions_of_the_users(
    whole: Path, ops: tuple[Any, ...], options: dict[str, Any], threads: int
) -> None:
    assert plan(whole, *ops, **options).threads(6) == threads


@pytest.mark.parametrize(("cpus", "threads"), [(1, 1), (4, 1), (7, 1), (8, 2), (15, 3), (96, 8)])
def test_tars_that_keep_the_cpus_busy_get_one_thread_each(cpus: int, threads: int) -> None:
    assert plan(PHOTOS, Decode("jpg")).threads(cpus) == threads


def test_an_image_folder_is_divided_already(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "x.jpg").write_bytes(samples_of(PHOTOS / "photos-0.tar")[0][1]["jpg"])
    output = Output(str(tmp_path / "out/t.record"))
    spec = Conversion(Input(str(tmp_path), kind="imagefolder"), output, preset="imagenet-tensor")
    assert make_plan(spec).threads(6) == 1
    assert convert(spec, workers=2).records == 1


def test_few_large_items_are_held_at_once() -> None:
    read: list[int] = []

    def items() -> Iterator[Located]:
        for number in range(40):
            read.append(number)
            yield {"jpg": bytes(100_000)}, str(number), {}

    results = work_in_threads(items(), lambda item: [len(item["jpg"])], 2)
    assert next(results) == (100_000, "0", {})
    assert len(read) <= 5
    assert len(list(results)) == 39
