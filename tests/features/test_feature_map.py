"""Values to features, and the schema that tells a reader of them: what goes in comes back, dtype, shape and all."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from read_back import load_both
from shards import examples, write_tar
from tar2tf_cli import load_dataset
from tar2tf_cli.conversion.publish import Summary
from tar2tf_cli.conversion.run import convert
from tar2tf_cli.datasets.parsing import feature_description
from tar2tf_cli.errors import SampleError, SourceError, UsageError
from tar2tf_cli.features.feature_map import FeatureMap, Schema
from tar2tf_cli.formats.example import bytes_list, float_list, int64_list, raw
from tar2tf_cli.inputs.manifest import Manifest
from tar2tf_cli.ops import Func
from tar2tf_cli.spec.conversion import Conversion, Input, Output

pytestmark = pytest.mark.spread

Made = Sequence[dict[str, Any]]


def written(folder: Path, made: Made, workers: int = 1, shards: int = 1, **options: Any) -> Summary:
    """A conversion in which the n-th sample is replaced by the n-th of these."""
    per = -(-len(made) // shards)
    for shard in range(shards):
        keys = range(shard * per, min((shard + 1) * per, len(made)))
        write_tar(folder / "in" / f"{shard}.tar", [(f"{key:03d}", {"x": b""}) for key in keys])
    output = Output(str(folder / "out" / "all.record"), **options.pop("output", {}))
    op = Func(lambda sample: {**made[int(sample["__key__"])], "__key__": sample["__key__"]})
    return convert(Conversion(Input(str(folder / "in")), output, ops=(op,), **options), workers=workers)


def loaded(folder: Path, made: Made, **options: Any) -> list[dict[str, tf.Tensor]]:
    return load_both(written(folder, made, **options).manifest)


ARRAYS = {
    dtype: np.arange(24).astype(dtype).reshape(2, 3, 4)
    for dtype in (*("uint8", "int8", "uint16", "int16", "uint32", "int32", "int64", "float16", "float32", "bool"),)
}


@pytest.mark.parametrize("dtype", ARRAYS)
def test_an_array_comes_back_in_its_dtype_and_shape(dtype: str, tmp_path: Path) -> None:
    (item,) = loaded(tmp_path, [{"a": ARRAYS[dtype]}])
    assert set(item) == {"__key__", "a"}
    assert (item["a"].dtype.name, item["a"].shape) == (dtype, (2, 3, 4))
    np.testing.assert_array_equal(item["a"], ARRAYS[dtype])


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float32", "float16"])
@pytest.mark.parametrize(
    "shapes",
    [
        [(2, 3, 4), (5, 1, 4), (1, 1, 4)],
        [(3,), (7,), (1,)],
        [(3,), (3,)],
        [(2, 5), (2, 9)],
        [(0, 3), (2, 3)],
        [(1, 2, 3, 4), (4, 3, 2, 1)],
        [(), ()],
    ],
    ids=str,
)
def test_arrays_of_any_shapes_come_back_in_their_own(
    dtype: str, shapes: Sequence[tuple[int, ...]], tmp_path: Path
) -> None:
    arrays = [(np.arange(np.prod(shape)) + 1).astype(dtype).reshape(shape) for shape in shapes]
    found = loaded(tmp_path, [{"a": array} for array in arrays])
    spec = load_dataset(manifest_of(tmp_path)).element_spec["a"]
    assert spec.shape.rank == len(shapes[0])
    assert spec.dtype.name in (dtype, "int64") if not shapes[0] else spec.dtype.name == dtype
    for item, array in zip(found, arrays, strict=True):
        assert item["a"].shape == array.shape
        np.testing.assert_array_equal(item["a"], array)


def manifest_of(folder: Path) -> Path:
    (found,) = (folder / "out").glob("*manifest.json")
    return found


def test_arrays_that_are_not_contiguous_or_not_little_endian_keep_their_values(tmp_path: Path) -> None:
    arrays = {
        "turned": np.arange(12, dtype="uint8").reshape(3, 4).T,
        "stepped": np.arange(12, dtype="float32")[::2],
        "big": np.arange(6, dtype=">f4").reshape(2, 3),
        "big_int": np.arange(6, dtype=">i4").reshape(2, 3),
    }
    (item,) = loaded(tmp_path, [arrays])
    for name, array in arrays.items():
        np.testing.assert_array_equal(item[name], array)


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (3, "int64", 3),
        (True, "int64", 1),
        (-(2**63), "int64", -(2**63)),
        (0.5, "float32", 0.5),
        (float("inf"), "float32", float("inf")),
        ("grün", "string", "grün".encode()),
        (b"\x00\xff", "string", b"\x00\xff"),
        (b"", "string", b""),
        (bytearray(b"ab"), "string", b"ab"),
        ([1, 2, 3], "int64", [1, 2, 3]),
        ((1, 2.5), "float32", [1, 2.5]),
        (["a", b"b"], "string", [b"a", b"b"]),
        (np.int16(4), "int16", 4),
        (np.float32(0.25), "float32", 0.25),
        (np.float64(1 / 3), "float64", 1 / 3),
        (np.complex64(1j), "complex64", 1j),
        (np.bool_(True), "bool", True),
        (np.str_("x"), "string", b"x"),
    ],
    ids=repr,
)
def test_a_python_value_comes_back_as_a_tensor(value: Any, dtype: str, expected: Any, tmp_path: Path) -> None:
    (item,) = loaded(tmp_path, [{"v": value}])
    assert item["v"].dtype.name == dtype
    assert item["v"].shape == np.shape(expected)
    assert np.asarray(item["v"]).tolist() == expected


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "it is null"),
        ({}, "dict"),
        (object(), "object"),
        ([], "empty list"),
        ([1, "a"], "int, str"),
        ([[1], 2], "different lengths"),
        ([None], "list of null cannot be"),
        ([np.int64(1), np.int64(2)], "list of int64 cannot be a feature; make it an array"),
        (2**63, ""),
        (1e300, ""),
        (1j, "complex"),
        (np.array(["a", "b"]), "array of str"),
        (np.array([1], np.longdouble), "array of longdouble"),
        (np.array([{}], dtype=object), "object"),
        (np.array(["2020-01-01"], dtype="datetime64[D]"), "datetime64"),
    ],
    ids=lambda value: "object()" if type(value) is object else repr(value),
)
def test_what_cannot_be_a_feature_is_an_error_naming_feature_and_sample(value: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(SampleError, match=f"sample 000.*'v' cannot become a feature: .*{words}"):
        written(tmp_path, [{"v": value}])


def test_infinities_and_the_least_numbers_of_float64_come_back(tmp_path: Path) -> None:
    (item,) = loaded(tmp_path, [{"v": np.array([np.inf, -np.inf, np.nan, 1e-300])}])
    assert item["v"].numpy().tolist()[:2] == [np.inf, -np.inf]
    assert item["v"].numpy()[3] == 1e-300


# --- What some samples lack ---


@pytest.mark.parametrize("gap", [0, 1, 2])
@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (b"text", "string"),
        (7, "int64"),
        ([1, 2, 3], "int64"),
        (np.ones((2, 3, 1), "uint8"), "uint8"),
        (np.ones((2, 3), "int32"), "int32"),
        (np.ones(4, "float16"), "float16"),
    ],
    ids=["bytes", "int", "list", "raw", "ints", "floats"],
)
def test_a_feature_that_a_sample_lacks_is_an_empty_tensor_there(
    gap: int, value: Any, dtype: str, tmp_path: Path
) -> None:
    made: list[dict[str, Any]] = [{"v": value, "always": 1} for _ in range(3)]
    del made[gap]["v"]
    found = loaded(tmp_path, made)
    for number, item in enumerate(found):
        assert item["always"].numpy() == 1
        assert item["v"].dtype.name == dtype
        if number == gap:
            assert tf.size(item["v"]) == 0
            assert item["v"].shape.rank == max(np.ndim(value), 1)
        else:
            np.testing.assert_array_equal(tf.reshape(item["v"], np.shape(value)), value)


def test_arrays_of_differing_sizes_that_some_samples_lack_come_back(tmp_path: Path) -> None:
    made = [{"v": np.ones((2, 3, 3), "uint8")}, {"w": 1}, {"v": np.zeros((5, 4, 3), "uint8")}]
    assert [tuple(item["v"].shape) for item in loaded(tmp_path, made)] == [(2, 3, 3), (0, 0, 0), (5, 4, 3)]


def test_with_a_limit_the_dataset_is_that_of_the_samples_written(tmp_path: Path) -> None:
    made = [
        {"a": number} if number % 2 else {"a": number, "b": np.full((number, 2), 3, "uint8")} for number in range(1, 9)
    ]
    found = loaded(tmp_path, made, limit=5, shards=2)
    assert [int(tf.reshape(item["a"], [])) for item in found] == [1, 2, 3, 4, 5]
    assert [tuple(item["b"].shape) for item in found] == [(0, 0), (2, 2), (0, 0), (4, 2), (0, 0)]
    none = written(tmp_path / "none", made, limit=0)
    assert load_both(none.manifest) == []


# --- Lists and single values ---


@pytest.mark.parametrize("order", list(permutations([1, [1], [1, 2]])), ids=str)
def test_one_value_among_lists_is_a_list_of_one(order: Sequence[Any], tmp_path: Path) -> None:
    found = loaded(tmp_path, [{"v": value} for value in order], shards=3)
    assert [item["v"].numpy().tolist() for item in found] == [v if isinstance(v, list) else [v] for v in order]


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ([{"v": 1}, {"v": 0.5}], "float32.*int64"),
        ([{"v": 1}, {"v": "a"}], "bytes.*int64"),
        ([{"v": np.ones((2, 2))}, {"v": np.ones((2, 2, 2))}], "float64 of rank 3.*rank 2"),
        ([{"v": np.ones(2, "uint8")}, {"v": np.ones(2, "int32")}], "int32.*uint8"),
        ([{"v": np.ones(2, "uint8")}, {"v": b"x"}], "bytes.*uint8"),
        ([{"v": np.ones(2, "float16")}, {"v": np.ones(2, "float32")}], "float32.*float16"),
    ],
)
@pytest.mark.parametrize("shards", [1, 2])
def test_a_feature_that_changes_its_kind_is_an_error_naming_it(
    made: Made, words: str, shards: int, tmp_path: Path
) -> None:
    with pytest.raises(SampleError, match=f"'v' is {words}.*types v=TYPE"):
        written(tmp_path, made, shards=shards)


def test_a_type_makes_one_kind_of_what_changes(tmp_path: Path) -> None:
    found = loaded(tmp_path, [{"v": 1}, {"v": 0.5}, {"v": "2"}], types={"v": "float"})
    assert [item["v"].numpy() for item in found] == [1, 0.5, 2]


LOOKS = st.sampled_from([int64_list([1], ()), int64_list([1]), int64_list([1, 2]), int64_list([]), int64_list([5, 6])])


@given(st.lists(LOOKS, min_size=1, max_size=6), st.randoms())
@settings(deadline=None)
def test_a_schema_does_not_depend_on_the_order_or_grouping_of_examples(features: list[Any], random: Any) -> None:
    def schema(parts: list[Any]) -> Schema:
        made = Schema()
        for part in parts:
            made.add({"v": part})
        return made

    whole = schema(features).describe()
    shuffled = random.sample(features, len(features))
    assert schema(shuffled).describe() == whole
    cut = random.randrange(len(features) + 1)
    joined = schema(features[:cut])
    joined.update(Schema.from_json(schema(features[cut:]).to_json()))
    assert joined.describe() == whole


# --- Kinds that do not go together ---

BYTE, BYTES_OF_ONE, WORDS = raw(b"x", ()), raw(b"x", (1,)), raw(b"xyxy", (2,), "uint16")
ONE, NUMBERS, SQUARE = int64_list([1], ()), int64_list([1, 2]), int64_list([1, 2, 3, 4], (2, 2))


@pytest.mark.parametrize(
    ("known", "look", "says"),
    [
        (BYTE, BYTES_OF_ONE, "uint8 of rank 1 here and uint8 of rank 0 elsewhere"),
        (BYTES_OF_ONE, BYTE, "uint8 of rank 0 here and uint8 of rank 1 elsewhere"),
        (BYTES_OF_ONE, WORDS, "uint16 of rank 1 here and uint8 of rank 1 elsewhere"),
        (WORDS, b"plain", "bytes of rank 0 here and uint16 of rank 1 elsewhere"),
        (b"plain", BYTE, "uint8 of rank 0 here and bytes of rank 0 elsewhere"),
        (b"plain", ONE, "int64 of rank 0 here and bytes of rank 0 elsewhere"),
        (ONE, SQUARE, "int64 of rank 2 here and int64 of rank 0 elsewhere"),
        (SQUARE, NUMBERS, "int64 of rank 1 here and int64 of rank 2 elsewhere"),
        (NUMBERS, float_list([1.0, 2.0]), "float32 of rank 1 here and int64 of rank 1 elsewhere"),
    ],
)
def test_kinds_that_do_not_go_together_are_named_with_what_to_do(known: Any, look: Any, says: str) -> None:
    schema = Schema()
    schema.add({"v": known})
    hint = "make it one kind with an op or --type v=TYPE"
    with pytest.raises(SampleError) as caught:
        schema.add({"v": look})
    assert caught.value.sentence == f"the feature 'v' is {says}; {hint}"
    apart, other = Schema(), Schema()
    apart.add({"v": known})
    other.add({"v": look})
    with pytest.raises(SampleError) as caught:
        apart.update(other)
    assert caught.value.sentence == f"the feature 'v' is {says}; {hint}"
    mixed = Schema(allows_mixed=True)
    for feature in (known, look, known):
        mixed.add({"v": feature, "n": ONE})
    assert (mixed.mixed, [*mixed.describe()]) == (["v"], ["n"])


@pytest.mark.parametrize(
    ("features", "shape"),
    [
        ([ONE, NUMBERS], [None]),
        ([NUMBERS, ONE, ONE], [None]),
        ([ONE, int64_list([1])], [1]),
        ([int64_list([1]), ONE], [1]),
        ([NUMBERS, int64_list([3, 4])], [2]),
        ([SQUARE, int64_list([1, 2], (1, 2)), SQUARE], [None, 2]),
        ([SQUARE, int64_list([])], [None, 2]),
        ([int64_list([]), SQUARE], [None, 2]),
        ([b"a", bytes_list([b"a", b"b"])], [None]),
        ([bytes_list([b"a"]), b"a"], [1]),
        ([BYTES_OF_ONE, raw(b"xy", (2,))], [None]),
        ([BYTE, raw(b"y", ())], []),
    ],
)
def test_shapes_that_differ_have_null_where_they_do(features: list[Any], shape: list[int | None]) -> None:
    schema = Schema()
    for feature in features:
        schema.add({"v": feature})
    (described,) = schema.describe().values()
    assert (described["shape"], described["count"]) == (shape, len(features))


# --- Files ---


@pytest.mark.parametrize("workers", [1, 2])
def test_ragged_images_in_several_gzip_shards_and_splits_come_back(workers: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    made = [{"image": rng.integers(0, 256, (n % 5 + 1, n % 3 + 2, 3)).astype("uint8"), "n": n} for n in range(20)]
    if workers == 2:
        made = [{"n": n} for n in range(20)]
    write_tar(tmp_path / "in" / "a.tar", [(f"{n:03d}", {"x": b""}) for n in range(10)])
    write_tar(tmp_path / "in" / "b.tar", [(f"{n:03d}", {"x": b""}) for n in range(10, 20)])
    summary = convert(
        Conversion(
            Input(str(tmp_path / "in")),
            Output(str(tmp_path / "out" / "<split>-<>.gz"), records_per_shard=3, compression="gzip"),
            ops=(Func(lambda sample: {**made[int(sample["__key__"])], "__key__": sample["__key__"]}),),
            split={"train": 0.6, "val": 0.4},
        ),
        workers=workers,
    )
    whole = {int(item["n"]): item for item in load_dataset(summary.manifest)}
    assert sorted(whole) == list(range(20))
    parts = [{int(item["n"]) for item in load_dataset(summary.manifest, split=name)} for name in ("train", "val")]
    assert parts[0] | parts[1] == set(range(20))
    assert not parts[0] & parts[1]
    assert all(parts)
    for split, part in zip((None, "train", "val"), ({*whole}, *parts), strict=True):
        assert int(load_dataset(summary.manifest, split=split).cardinality()) == len(part)
    for n, item in whole.items():
        if "image" in made[n]:
            np.testing.assert_array_equal(item["image"], made[n]["image"])
    with pytest.raises(UsageError, match=r"'test'.*train, val"):
        load_dataset(summary.manifest, split="test")


def test_a_dataset_is_in_the_order_written_and_starts_anew_each_time(tmp_path: Path) -> None:
    summary = written(tmp_path, [{"n": n} for n in range(30)], shards=3, output={"records_per_shard": 4})
    dataset = load_dataset(Path(summary.manifest or ""))
    for _ in range(2):
        assert [int(item["n"]) for item in dataset] == list(range(30))
    (batch,) = dataset.batch(30)
    assert batch["n"].shape == (30,)


def test_a_manifest_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="the manifest does not exist"):
        load_dataset(tmp_path / "nowhere.json")


def test_the_manifest_describes_what_tensorflow_parses(tmp_path: Path) -> None:
    summary = written(tmp_path, [{"i": 1, "l": [1.5, 2], "b": "x", "a": np.ones((2, 2), "int32")}] * 2)
    manifest = Manifest.load(summary.manifest or "")
    assert manifest
    assert manifest.features == {
        "__key__": {"dtype": "bytes", "shape": [], "encoding": "bytes", "count": 2},
        "a": {"dtype": "int32", "shape": [2, 2], "encoding": "int64", "count": 2},
        "a/shape": {"dtype": "int64", "shape": [2], "encoding": "int64", "count": 2},
        "b": {"dtype": "bytes", "shape": [], "encoding": "bytes", "count": 2},
        "i": {"dtype": "int64", "shape": [], "encoding": "int64", "count": 2},
        "l": {"dtype": "float32", "shape": [2], "encoding": "float", "count": 2},
    }
    description = feature_description(manifest.features, manifest.records)
    for record in tf.data.TFRecordDataset(str(tmp_path / "out" / "all.record")):
        parsed = tf.io.parse_single_example(record, description)
        assert (parsed["i"].numpy(), parsed["l"].numpy().tolist(), parsed["b"].numpy()) == (1, [1.5, 2], b"x")
    assert examples(tmp_path / "out" / "all.record")[0]["a"] == [1, 1, 1, 1]


def test_an_empty_array_of_another_rank_is_an_error(tmp_path: Path) -> None:
    arrays = [np.zeros(0, np.float32), np.ones((2, 4), np.float32)]
    for order in (arrays, arrays[::-1]):
        with pytest.raises(SampleError, match="of rank 1"):
            written(tmp_path, [{"a": array} for array in order])


def test_a_feature_map_leaves_plain_entries_as_they_are() -> None:
    sample = {"__key__": "k", "jpg": b"x"}
    assert FeatureMap({}).features(sample) == {"__key__": b"k", "jpg": b"x"}
    assert FeatureMap({}).plain


@pytest.mark.parametrize("make", [bytes_list, int64_list, float_list])
def test_an_empty_list_is_a_feature_of_no_values(make: Callable[[Any], Any]) -> None:
    assert make([]).shape == (0,)


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        ([1, 2], "int64", "holds 2 values instead of one"),
        (b"", "float", "holds 0 values instead of one"),
        (1.5, "int64", "1.5 is not a whole number"),
        ([1.0, 2.5], "int64_list", "2.5 is not a whole number"),
    ],
)
def test_what_is_not_one_number_or_not_whole_does_not_fit_its_type(value: Any, kind: Any, message: str) -> None:
    with pytest.raises(SampleError, match=message):
        FeatureMap({"v": kind}).features({"__key__": "k", "v": value})


@pytest.mark.parametrize("kind", ["bytes", "bytes_list", "int64", "float_list"])
def test_a_feature_that_a_preset_made_gets_no_other_type(kind: Any) -> None:
    made = FeatureMap({"v": kind}, preset=lambda values, context: {"v": int64_list([1, 2])})
    with pytest.raises(SampleError, match=rf"'v' is not of type {kind}: it is int64, shape \[2\] already"):
        made.features({"__key__": "k"})


@pytest.mark.parametrize(("feature", "kind"), [(int64_list([1, 2]), "int64_list"), (int64_list([1], ()), "int64")])
def test_a_feature_that_has_its_type_stays_as_it_is(feature: Any, kind: Any) -> None:
    made = FeatureMap({"v": kind}, preset=lambda values, context: {"v": feature})
    assert made.features({"__key__": "k"})["v"] == feature


def test_whole_floats_are_integers() -> None:
    found = FeatureMap({"v": "int64_list"}).features({"__key__": "k", "v": [1.0, 2.0]})
    assert found["v"] == int64_list([1, 2])


@pytest.mark.parametrize(
    ("value", "kind", "what"),
    [
        ({"a": 1}, "int64", "an object is not a whole number"),
        ([None], "float_list", "null is not a number"),
        ([[1], [2, 3]], "int64_list", "lists of different lengths, 1 and 2, are not an array; select a part of them"),
        (1.5, "int64", "1.5 is not a whole number"),
        (b"\xff", "int64", "the bytes are not UTF-8 text (position 0)"),
        ("[1, 2", "int64_list", "the text is not JSON: Expecting ',' delimiter: line 1 column 6 (char 5)"),
        (2**70, None, "a value does not fit in 64 bits"),
        ([10**400, 0.5], None, "a value does not fit in a float32"),
    ],
)
def test_a_value_that_does_not_fit_its_type_is_named_in_our_own_words(value: Any, kind: Any, what: str) -> None:
    with pytest.raises(SampleError) as caught:
        FeatureMap({"x": kind} if kind else {}).features({"__key__": "k", "x": value})
    assert caught.value.message.endswith(f": {what}")
