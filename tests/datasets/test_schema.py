"""A feature has one form in all samples of `open_records(default=)`, so that they can be batched; `schema` says it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import tar2tf
from make_bytes import npy
from tar2tf_cli import open_records
from tar2tf_cli.errors import UsageError
from verify_runs import a_tar, an_example, framed, write

RECORDS = [
    an_example(label=1, text=b"a", boxes=[1.0, 2.0]),
    an_example(label=2),
    an_example(label=3, text=b"c", boxes=[3.0], score=0.5),
]


def is_equal(sample: dict[str, Any], expected: dict[str, Any]) -> bool:
    return sample.keys() == expected.keys() and all(
        type(sample[name]) is type(value) and np.array_equal(sample[name], value) for name, value in expected.items()
    )


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return write(tmp_path / "in" / "a.record", framed(*RECORDS))


@pytest.fixture
def tar(tmp_path: Path) -> Path:
    members = [("0.cls", b"0"), ("0.txt", b"a"), ("1.cls", b"1"), ("2.cls", b"2"), ("2.json", b"{}")]
    return write(tmp_path / "in" / "a.tar", a_tar(members))


def test_the_schema_says_what_is_stored(record: Path) -> None:
    forms = {name: (form.dtype, form.shape, form.optional) for name, form in open_records(record).schema().items()}
    assert forms == {
        "label": ("int64", (), False),
        "text": ("bytes", (), True),
        "boxes": ("float32", (None,), True),
        "score": ("float32", (), True),
    }


def test_each_sample_has_each_feature_in_one_form(record: Path) -> None:
    defaults = {"text": b"", "score": np.float32(-1)}
    records = open_records(record, default=defaults)
    floats = [np.array(values, np.float32) for values in ([1, 2], [], [3])]
    expected = [
        {"label": np.int64(1), "text": b"a", "boxes": floats[0], "score": np.float32(-1)},
        {"label": np.int64(2), "text": b"", "boxes": floats[1], "score": np.float32(-1)},
        {"label": np.int64(3), "text": b"c", "boxes": floats[2], "score": np.float32(0.5)},
    ]
    for read in ([*records], records.__getitems__([0, 1, 2]), [records[n] for n in range(3)]):
        assert all(map(is_equal, read, expected)), read
    copy = pickle.loads(pickle.dumps(records))
    assert all(map(is_equal, copy[1:], expected[1:]))


@pytest.mark.parametrize(
    ("default", "value"), [(0, np.float32(0)), (0.1, np.float32(0.1)), (float("nan"), np.float32("nan"))]
)
def test_a_number_of_python_gets_the_dtype_of_its_feature(record: Path, default: float, value: np.float32) -> None:
    (batch,) = open_records(record, default={"score": default}).batches(3)
    assert batch["score"].dtype == np.float32
    assert np.array_equal(batch["score"], np.array([value, value, 0.5], np.float32), equal_nan=True)


@pytest.mark.parametrize("default", [0.5, 2**63, float("nan")])
def test_a_number_that_the_dtype_of_a_feature_does_not_have_is_kept(tmp_path: Path, default: float) -> None:
    path = write(tmp_path / "a.record", framed(an_example(label=1, text=b"a"), an_example(text=b"b")))
    records = open_records(path, default={"label": default})
    assert type(records[0]["label"]) is np.int64
    assert records[1]["label"] is default


def test_one_value_may_stand_for_all_that_is_missing(tar: Path) -> None:
    none = [*open_records(tar, default=None)]
    assert [sample["txt"] for sample in none] == [b"a", None, None]
    assert {*map(tuple, none)} == {("cls", "txt", "__key__", "json")}
    assert [sample["json"] for sample in open_records(tar, default="")] == [b"", b"", b"{}"]


def test_optional_features_without_a_default_are_arrays_of_one_value_or_none(tar: Path) -> None:
    texts = [sample["txt"] for sample in open_records(tar, default={})]
    assert [(text.dtype, text.tolist()) for text in texts] == [(object, [b"a"]), (object, []), (object, [])]


def test_a_manifest_says_the_schema_and_nothing_is_read(tar: Path, tmp_path: Path) -> None:
    convert = ("convert", tar, "-o", tmp_path / "o.record", "--type", "cls=int64", "-q")
    assert tar2tf(*convert).returncode == 0
    records = open_records(next(tmp_path.glob("*manifest.json")), default={"txt": b"none"})
    assert {name: form.optional for name, form in records.schema().items()} == {
        "__key__": False,
        "cls": False,
        "json": True,
        "txt": True,
    }
    assert [(sample["cls"], sample["txt"], len(sample["json"])) for sample in records] == [
        (0, b"a", 0),
        (1, b"none", 0),
        (2, b"none", 1),
    ]


def test_the_schema_of_tars_is_that_of_their_headers(tar: Path) -> None:
    forms = open_records(tar).schema()
    assert {name: form.optional for name, form in forms.items()} == {
        "cls": False,
        "txt": True,
        "__key__": False,
        "json": True,
    }
    assert {form.dtype for form in forms.values()} == {"bytes"}


def test_raw_records_have_no_schema(record: Path) -> None:
    with pytest.raises(UsageError) as caught:
        open_records(record, raw=True).schema()
    assert str(caught.value) == "raw=True returns the bytes of records, which have no schema; leave it out"


def test_forms_that_differ_between_records_are_widened(tmp_path: Path) -> None:
    records = [
        an_example(a=1, b=[1, 2], c=1, d=b"a", e=[1.0]),
        an_example(a=[1, 2], b=[3, 4], c=0.5, d=1, e=[2.0, 3.0]),
    ]
    for order in (records, records[::-1]):
        forms = open_records(write(tmp_path / "x.record", framed(*order))).schema()
        assert {name: (form.dtype, form.shape, form.optional) for name, form in forms.items()} == {
            "a": ("int64", (None,), False),
            "b": ("int64", (2,), False),
            "c": ("mixed", (1,), False),
            "d": ("mixed", (1,), False),
            "e": ("float32", (None,), False),
        }


def test_arrays_of_several_dimensions_are_lists_of_any_length(tmp_path: Path) -> None:
    arrays = [np.zeros((2, 3), np.uint8), np.zeros((4, 3), np.uint8), np.zeros(3, np.uint8)]
    for name, some in (("two", arrays[:2]), ("three", arrays)):
        tar = write(tmp_path / f"{name}.tar", a_tar((f"{n}.npy", npy(array)) for n, array in enumerate(some)))
        form = open_records(tar, preset="webdataset").schema()["npy"]
        assert (form.dtype, form.shape) == ("uint8", (None, 3) if name == "two" else (None,))


def test_a_default_of_nothing_that_there_is_is_refused(tar: Path) -> None:
    with pytest.raises(UsageError, match=r"default names 'tzt', which no sample has; did you mean 'txt'"):
        open_records(tar, default={"tzt": b""})[0]
    with pytest.raises(UsageError, match="default must be a number"):
        open_records(tar, default=[1])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="raw=True"):
        open_records(tar, raw=True, default=0)


@pytest.mark.parametrize("index", [1.0, None, [0, 1], np.array([0])])
def test_an_index_that_is_no_number_is_refused_with_what_reads_several(tar: Path, index: Any) -> None:
    words = rf"read by their numbers, not by {type(index).__name__}; \.__getitems__ reads several"
    with pytest.raises(TypeError, match=words):
        open_records(tar)[index]
    with pytest.raises(TypeError, match=words):
        open_records(tar).__getitems__([0, index])


def test_a_key_in_the_place_of_a_number_names_what_reads_by_key(tar: Path) -> None:
    with pytest.raises(TypeError, match=r"\.key\('2'\) reads the one with this key"):
        open_records(tar)["2"]  # type: ignore[call-overload]


# --- Readers that batch ---


def test_torch_collates_them(record: Path) -> None:
    torch = pytest.importorskip("torch")
    records = open_records(record, default={"text": b"", "score": 0.0, "boxes": np.float32(0)})
    narrow = [{name: value for name, value in sample.items() if name not in ("text", "boxes")} for sample in records]
    (batch,) = torch.utils.data.DataLoader(narrow, batch_size=3)
    assert batch["score"].tolist() == [0, 0, 0.5]


def test_hugging_face_makes_a_dataset_of_them(record: Path) -> None:
    datasets = pytest.importorskip("datasets")
    records = open_records(record, default=None)
    made = datasets.Dataset.from_generator(lambda: iter(records))
    assert made["text"][:] == [b"a", None, b"c"]
    assert made["score"][:] == [None, None, 0.5]


def test_grain_batches_them(record: Path) -> None:
    grain = pytest.importorskip("grain")
    records = open_records(record, default={"score": np.float32(0), "text": b"-"})
    source = grain.MapDataset.source(records).map(
        lambda item: {name: item[name] for name in ("label", "score", "text")}
    )
    batch = source.batch(3)[0]
    assert batch["score"].tolist() == [0, 0, 0.5]
    assert batch["text"].tolist() == [b"a", b"-", b"c"]
