"""The one flow: results in order, faults by policy, whatever the number of threads."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shards import PHOTOS
from tar2tf_cli import Conversion
from tar2tf_cli.api.op import OpContext
from tar2tf_cli.errors import SampleError, Tar2tfError
from tar2tf_cli.flow.faults import FaultPolicy
from tar2tf_cli.flow.sample_flow import InputFlow, ReadOptions, ReadPlan, flow
from tar2tf_cli.flow.transform import Transform
from tar2tf_cli.ops import Func
from tar2tf_cli.stores import open_source

THREADS = pytest.mark.parametrize("threads", [1, 3])


def samples(count: int) -> Iterator[dict[str, Any]]:
    return ({"__key__": str(number), "n": number} for number in range(count))


def halves(sample: dict[str, Any]) -> Any:
    return ({**sample, "half": half} for half in "ab") if sample["n"] % 5 else None


@THREADS
def test_results_keep_the_order_of_their_samples(threads: int) -> None:
    steps = Transform(OpContext(), (Func(halves),), lambda sample: (sample["n"], sample["half"]))
    made = flow(samples(100), steps, FaultPolicy(), threads=threads)
    assert list(made) == [(number, half) for number in range(100) if number % 5 for half in "ab"]


@THREADS
def test_a_faulty_sample_is_raised_behind_all_before_it_with_its_key_and_place(threads: int) -> None:
    def broken(sample: dict[str, Any]) -> Any:
        if sample["n"] == 42:
            raise SampleError("broken")
        return [sample["n"]]

    place: dict[str, Any] = {}

    def placed() -> Iterator[dict[str, Any]]:
        for sample in samples(100):
            place["offset"] = sample["n"] * 512
            yield sample

    made: list[int] = []
    with pytest.raises(SampleError, match="broken") as caught:
        made.extend(flow(placed(), broken, FaultPolicy(), where=place.copy, threads=threads))
    assert (caught.value.key, caught.value.offset) == ("42", 42 * 512)
    taken = []
    for item in flow(placed(), broken, FaultPolicy(skip=True), where=place.copy, threads=threads):
        taken.append(item)
    assert taken == [number for number in range(100) if number != 42]


@THREADS
def test_a_result_that_cannot_be_finished_is_skipped_alone(threads: int) -> None:
    def finish(key: str, sample: dict[str, Any]) -> str:
        if sample["n"] == 7 and sample["half"] == "a":
            raise SampleError("of another kind")
        return f"{key}{sample['half']}"

    noted: list[dict[str, Any]] = []
    steps = Transform(OpContext(), (Func(halves),))
    made = list(flow(samples(10), steps, FaultPolicy(skip=True, noted=noted), finish=finish, threads=threads))
    assert made == [f"{n}{half}" for n in range(10) if n % 5 for half in "ab" if (n, half) != (7, "a")]
    assert noted == [{"shard": None, "key": "7", "member": None, "offset": None, "message": "of another kind"}]


def test_too_many_faults_are_an_error_that_gives_the_first() -> None:
    faults = FaultPolicy(skip=True, most=2)
    for number in range(2):
        faults(SampleError(f"fault {number}"))
    with pytest.raises(Tar2tfError, match="3 samples failed, more than --max-errors 2 allows; the first: fault 0"):
        faults(SampleError("one more"))


@pytest.mark.parametrize(
    ("options", "how"),
    [
        ({}, {}),
        ({}, {"small": True}),
        ({}, {"regroup": True}),
        ({"ops": ["decode:jpg"]}, {}),
        ({"ops": ["filter:cls=1"], "on_error": "skip"}, {"threads": 2}),
        ({"select": {"x": "cls"}, "types": {"x": "int64"}}, {}),
    ],
)
def test_nothing_of_an_input_stays_in_memory_once_it_is_read(
    options: dict[str, Any], how: dict[str, Any], tmp_path: Path
) -> None:
    """Nothing refers to itself in a circle, which would stay until Python looks for circles.

    What only some runs leave is of others, such as modules that are imported late.
    """
    source = open_source(str(PHOTOS))
    conversion = Conversion(str(PHOTOS), str(tmp_path / "x.record"), **options)
    items = source.list(["*.tar", "*.tar.gz"])

    def read() -> None:
        for item in items:
            with InputFlow(ReadPlan.of(conversion, source), item, ReadOptions(**how)) as reading:
                assert list(reading.records_and_batches())

    def circles_after_reading() -> int:
        gc.collect()
        read()
        return gc.collect()

    gc.disable()
    try:
        assert min(circles_after_reading() for _ in range(4)) == 0
    finally:
        gc.enable()
