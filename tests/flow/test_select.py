"""The selection of samples by their keys, and what is joined to them, in batches and one by one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

from kernel_build import built, needs_compiler
from shards import write_tar
from tar2tf_cli import Conversion, Input
from tar2tf_cli.api.values import RecordBatch
from tar2tf_cli.conversion.plan import make_plan
from tar2tf_cli.flow.sample_flow import InputFlow
from tar2tf_cli.flow.select import digest_in
from tar2tf_cli.formats import kernel
from tar2tf_cli.formats.example import decode
from tar2tf_cli.formats.tfrecord import RecordReader
from tar2tf_cli.inputs.report import InputReport

pytestmark = needs_compiler

SAMPLES = 400
CAPTIONED = [f"{number:04d}" for number in range(0, SAMPLES, 3)]


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tar of plain samples, of which each third has a caption in a table, and a list of keys."""
    folder = tmp_path_factory.mktemp("bucket")
    samples = [(f"{number:04d}", {"cls": b"%d" % (number % 10), "txt": b"text"}) for number in range(SAMPLES)]
    write_tar(folder / "a.tar", samples)
    (folder / "captions.csv").write_text("key,caption\n" + "".join(f"{key},of {key}\n" for key in CAPTIONED))
    (folder / "keys").write_text("".join(f"{number:04d}\n" for number in range(0, SAMPLES, 2)))
    return folder


class Selected(NamedTuple):
    """What is made of the samples.

    Attributes:
        examples: the examples.
        digests: the digest of each sample by which duplicates are found; empty where none are looked for.
        report: the report.
        batched: how many examples came in batches.
    """

    examples: list[dict[str, Any]]
    digests: list[tuple[int, int]]
    report: InputReport
    batched: int


def selected(bucket: Path, native: ModuleType | None, **options: Any) -> Selected:
    """Select samples, with the kernel or without."""
    given = {name: options.pop(name) for name in ("join", "join_missing", "keys") if name in options}
    plan = make_plan(Conversion(Input(str(bucket / "a.tar"), **given), str(bucket / "x.record"), **options))
    batched, data, digests = 0, bytearray(), list[tuple[int, int]]()
    with patch.object(kernel, "native", lambda: native), plan.joined():
        for joined in plan.joins:
            joined.prepare()
        with InputFlow(plan.read_plan(), plan.inputs[0]) as flow:
            for made in flow.records_and_batches():
                if isinstance(made, RecordBatch):
                    batched += len(made)
                    data += made.data
                    digests += made.digests
                else:
                    data += b"".join(made[1])
                    digests += [digest_in(made[0], None)] if "drop_duplicates" in options else []
    return Selected([*examples(bytes(data))], digests, flow.report, batched)


def examples(data: bytes) -> Iterator[dict[str, Any]]:
    from io import BytesIO

    for _, message in RecordReader(BytesIO(data), "x"):
        yield {name: values[0] for name, (_, values) in decode(message).items()}


def keys_of(made: list[dict[str, Any]]) -> list[str]:
    return [example["__key__"].decode() for example in made]


def both(bucket: Path, **options: Any) -> tuple[list[dict[str, Any]], InputReport]:
    """What is made of the samples with the kernel, which is the same without it."""
    made, expected = selected(bucket, built(), **options), selected(bucket, None, **options)
    assert made.batched > 0
    assert expected.batched == 0
    assert made.examples == expected.examples
    assert made.digests == expected.digests
    of_made, of_expected = made.report.to_json(), expected.report.to_json()
    assert of_made == of_expected
    assert [*of_made.get("asked", {}).items()] == [*of_expected.get("asked", {}).items()]
    return made.examples, made.report


def test_a_filter_sees_the_entries_that_are_joined(bucket: Path) -> None:
    join = {"join": [str(bucket / "captions.csv")], "join_missing": "keep"}
    made, report = both(bucket, **join, ops=["filter:caption"])
    assert keys_of(made) == CAPTIONED
    assert [example["caption"] for example in made] == [f"of {key}".encode() for key in CAPTIONED]
    assert report.filtered == {"filter:caption": SAMPLES - len(CAPTIONED)}
    made, _ = both(bucket, **join, ops=["filter:!caption"])
    assert keys_of(made) == [key for key in (f"{number:04d}" for number in range(SAMPLES)) if key not in CAPTIONED]


def test_entries_go_with_their_own_sample_where_others_are_skipped(bucket: Path) -> None:
    join = {"join": [str(bucket / "captions.csv")], "join_missing": "skip"}
    made, report = both(bucket, **join, keys=str(bucket / "keys"), ops=["filter:cls=0,4"])
    numbers = [number for number in range(0, SAMPLES, 6) if number % 10 in (0, 4)]
    assert keys_of(made) == [f"{number:04d}" for number in numbers]
    assert [example["caption"] for example in made] == [b"of %04d" % number for number in numbers]
    counts = {"--keys": SAMPLES // 2, "--join": SAMPLES // 2 - 67, "filter:cls=0,4": 67 - len(numbers)}
    assert report.filtered == counts
    assert list(report.to_json()["asked"]) == sorted(counts)


@pytest.mark.parametrize("what", ["*", "cls"])
def test_digests_go_with_their_own_sample_where_others_are_skipped(bucket: Path, what: str) -> None:
    made, _ = both(bucket, drop_duplicates=what, ops=["filter:cls=3,4"])
    assert len(made) == SAMPLES // 5


def test_a_part_of_the_samples_is_the_same_in_batches(bucket: Path) -> None:
    made, report = both(bucket, sample=0.5, seed=3)
    assert 150 < len(made) < 250
    assert report.filtered == {"--sample": SAMPLES - len(made)}
    assert report.samples == len(made)
