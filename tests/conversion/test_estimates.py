"""The estimate of a dry run: exact where all samples are looked at, and scaled by the inputs' sizes elsewhere."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest

from shards import write_tar
from tar2tf_cli import Conversion, Input, Output, convert
from tar2tf_cli.conversion.plan import make_plan
from tar2tf_cli.conversion.preview import Estimate, estimate
from tar2tf_cli.formats.image import codecs
from verify_runs import a_tar, write


def tars(folder: Path, number: int = 3, each: int = 5, size: int = 700) -> Path:
    for tar in range(number):
        contents = [(f"{tar}-{sample}", {"txt": b"%d" % sample + bytes(size - 1)}) for sample in range(each)]
        write_tar(folder / f"{tar}.tar", contents)
    return folder


def conversion(folder: Path, **options: Any) -> Conversion:
    of_output = {name: options.pop(name) for name in ("records_per_shard", "compression") if name in options}
    return Conversion(Input(str(folder / "in")), Output(str(folder / "out/x-<>.record"), **of_output), **options)


@pytest.mark.parametrize(
    ("options", "records"),
    [
        ({}, 15),
        ({"records_per_shard": 4}, 15),
        ({"records_per_shard": 15}, 15),
        ({"limit": 4, "records_per_shard": 2}, 4),
        ({"limit": 15}, 15),
        ({"limit": 99}, 15),
        ({"ops": ["filter:!txt"]}, None),
    ],
)
def test_few_samples_are_all_looked_at(options: dict[str, Any], records: int | None, tmp_path: Path) -> None:
    tars(tmp_path / "in")
    found = estimate(make_plan(conversion(tmp_path, **options)))
    if records is None:
        assert found is None
        return
    made = convert(conversion(tmp_path, **options), workers=1)
    size = sum(path.stat().st_size for path in (tmp_path / "out").glob("*.record"))
    assert found is not None
    assert (found.records, found.bytes, found.shards) == (records, size, len(made.shards))
    assert (made.records, found.shapes, found.palettes, found.seconds >= 0) == (records, [], [], True)
    assert size <= found.local <= 2.1 * size


def test_an_input_that_cannot_be_read_counts_with_its_size(tmp_path: Path) -> None:
    tars(tmp_path / "in")
    whole = estimate(make_plan(conversion(tmp_path)))
    (tmp_path / "in/1.tar").write_bytes(os.urandom((tmp_path / "in/0.tar").stat().st_size))
    found = estimate(make_plan(conversion(tmp_path)))
    assert whole is not None
    assert found is not None
    assert found[:3] == whole[:3]
    for number in (0, 2):
        (tmp_path / f"in/{number}.tar").write_bytes(b"no tar")
    assert estimate(make_plan(conversion(tmp_path))) is None


def test_rows_of_a_table_are_counted_from_those_that_are_looked_at(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/t.csv").write_text("key,word\n" + "".join(f"{row:05d},same\n" for row in range(2000)))
    given = Conversion(
        Input(str(tmp_path / "in/t.csv"), kind="table", columns="word=word"), Output(str(tmp_path / "x.record"))
    )
    found = estimate(make_plan(given))
    made = convert(given, workers=1)
    assert found is not None
    assert found.records == pytest.approx(made.records, rel=0.02)
    assert found.bytes == pytest.approx((tmp_path / "x.record").stat().st_size, rel=0.02)


def test_samples_that_are_regrouped_are_counted(tmp_path: Path) -> None:
    names = [f"{sample:03d}.{ext}" for ext in ("txt", "cls") for sample in range(100)]
    write(tmp_path / "in.tar", a_tar([(name, b"x" * 50) for name in names]))
    given = Conversion(Input(str(tmp_path / "in.tar"), regroup=True), Output(str(tmp_path / "x.record")))
    found = estimate(make_plan(given))
    assert found is not None
    assert found.records == convert(given, workers=1).records == 100
    assert found.bytes == pytest.approx((tmp_path / "x.record").stat().st_size, rel=0.01)


@pytest.mark.parametrize(("size", "apart"), [(3000, 0.1), (3 << 20, 0.01)])
def test_compressed_records_are_estimated_from_their_beginnings(size: int, apart: float, tmp_path: Path) -> None:
    for name, value in (("a", bytes(size)), ("b", os.urandom(size))):
        write_tar(tmp_path / "in" / f"{name}.tar", [("0", {"bin": value})])
    found = estimate(make_plan(conversion(tmp_path, compression="gzip")))
    convert(conversion(tmp_path, compression="gzip"), workers=1)
    assert found is not None
    written = sum(path.stat().st_size for path in (tmp_path / "out").iterdir() if not path.name.startswith("_"))
    assert found.bytes == pytest.approx(written, rel=apart)


def test_what_can_be_read_once_only_has_no_estimate() -> None:
    assert estimate(make_plan(Conversion(Input("-"), Output("x.record")))) is None


def test_shapes_that_differ_and_palettes_are_noted(tmp_path: Path) -> None:
    palette = io.BytesIO()
    PIL.Image.fromarray(np.zeros((4, 4), np.uint8), "P").save(palette, "PNG")
    jpeg = [codecs.encode(np.zeros((side, 8, 3), np.uint8), "jpeg") for side in (8, 9)]
    contents = [(f"{n}", {"jpg": data, "seg": palette.getvalue()}) for n, data in enumerate(jpeg)]
    write_tar(tmp_path / "in/0.tar", contents)
    found = estimate(make_plan(conversion(tmp_path, ops=["decode:jpg", "decode:seg,1"])))
    assert isinstance(found, Estimate)
    assert found.palettes == ["seg"]
    assert found.shapes == [
        "images of several sizes: jpg; make them equal with --op resize:jpg,224x224 or pad:jpg,224x224, "
        "or batch them with load_dataset(..., batch=N, ragged=True) or pad=True"
    ]
