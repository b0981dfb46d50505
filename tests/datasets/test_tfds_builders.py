"""Data sets that TensorFlow Datasets itself built keep every value, whatever its type, when they are resharded."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from commands import tar2tf
from shards import records
from tar2tf_cli import diff, inspect, load_dataset, open_records

if TYPE_CHECKING:
    from types import ModuleType

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.xdist_group("readers")]

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


@pytest.fixture(scope="module")
def tfds() -> ModuleType:
    module: ModuleType = pytest.importorskip("tensorflow_datasets")
    module.display_progress_bar(False)
    return module


def picture(number: int, channels: int = 3) -> Any:
    return np.random.default_rng(number).integers(0, 255, (4 + number % 3, 5, channels), dtype=np.uint8)


def flat_features(features: Any) -> dict[str, Any]:
    """A feature of each type but Audio with `file_format`, which TensorFlow Datasets decodes by pydub only."""
    return {
        "flag": np.bool_,
        **{f"n_{name}": getattr(np, name) for name in INTEGERS},
        "f16": np.float16,
        "f32": np.float32,
        "f64": np.float64,
        "label": features.ClassLabel(names=["cat", "dog", "eel"]),
        "box": features.BBoxFeature(),
        "image": features.Image(shape=(None, None, 3), encoding_format="png"),
        "mask": features.LabeledImage(labels=3, shape=(None, None, 1)),
        "audio": features.Audio(dtype=np.int64),
        "stereo": features.Audio(shape=(None, 2), dtype=np.float32, sample_rate=8000),
        "text": features.Text(),
        "pair": features.Translation(["en", "de"]),
        "fixed": features.Tensor(shape=(2, 3), dtype=np.float32),
        "rows": features.Tensor(shape=(None, 2), dtype=np.int32),
        "bools": features.Tensor(shape=(3,), dtype=np.bool_),
        "raw": features.Tensor(shape=(2, 2), dtype=np.uint8, encoding="bytes"),
        "packed": features.Tensor(shape=(2, 2), dtype=np.float64, encoding="zlib"),
        "any": features.Tensor(shape=(None, None), dtype=np.float32, encoding="bytes"),
        "strings": features.Tensor(shape=(2,), dtype=np.str_),
        "depth": features.Image(shape=(4, 5, 1), dtype=np.float32),
        "languages": features.TranslationVariableLanguages(["en", "de"]),
        "maybe": features.Scalar(np.int32, optional=True),
        "maybes": features.Tensor(shape=(2,), dtype=np.float32, optional=True),
        "list": features.Sequence(np.int64),
        "three": features.Sequence(np.uint64, length=3),
        "texts": features.Sequence(features.Text()),
        "boxes": features.Sequence({"box": features.BBoxFeature(), "label": features.ClassLabel(num_classes=4)}),
    }


def flat_example(features: Any, n: int) -> dict[str, Any]:
    return {
        "flag": n % 2 == 0,
        **{f"n_{name}": n for name in INTEGERS},
        "f16": n / 2,
        "f32": n / 2,
        "f64": n / 2,
        "label": n % 3,
        "box": features.BBox(0.1, 0.2, 0.3, 0.4 + n / 100),
        "image": picture(n),
        "mask": picture(n, 1) % 3,
        "audio": np.arange(n),
        "stereo": np.full((n, 2), n / 50, np.float32),
        "text": f"tü{n}",
        "pair": {"en": f"a{n}", "de": "b"},
        "fixed": np.full((2, 3), n, np.float32),
        "rows": np.full((n % 3, 2), n, np.int32),
        "bools": [True, False, n % 2 == 0],
        "raw": np.full((2, 2), n, np.uint8),
        "packed": np.full((2, 2), n, np.float64),
        "any": np.full((n % 3, 2), n, np.float32),
        "strings": [f"s{n}", "ü"],
        "depth": np.full((4, 5, 1), n / 3, np.float32),
        "languages": {"en": [f"a{n}", "b"], "de": "c"} if n % 3 else {"de": "d"},
        "maybe": n if n % 2 else None,
        "maybes": np.full(2, n, np.float32) if n % 2 else None,
        "list": list(range(n % 4)),
        "three": [n, 0, 2**63 - 1],
        "texts": [f"a{i}" for i in range(n % 3)],
        "boxes": [{"box": features.BBox(0.0, 0.0, 1.0, 1.0), "label": i} for i in range(n % 3)],
    }


def nested_features(features: Any) -> dict[str, Any]:
    return {
        "steps": features.Dataset(
            {
                "obs": {
                    "image": features.Image(shape=(None, None, 3), encoding_format="png"),
                    "state": features.Tensor(shape=(3,), dtype=np.float32),
                },
                "action": features.Tensor(shape=(2,), dtype=np.float64),
                "first": np.bool_,
                "text": features.Text(),
            }
        ),
        "meta": {"id": np.int64, "path": features.Text()},
        "ragged": features.Sequence(features.Sequence(np.int64)),
        "deeper": features.Sequence(features.Sequence(features.Sequence(features.ClassLabel(names=["a", "b"])))),
        "numbers": features.Dataset(np.uint64),
        "parts": features.Dataset({"name": features.Text(), "boxes": features.Sequence(features.BBoxFeature())}),
        "words": features.Sequence({"w": features.Sequence(features.Text())}),
        "video": features.Video(shape=(None, 4, 4, 3)),
        "images": features.Sequence(features.Image(shape=(4, 4, 3))),
        "tensors": features.Sequence(features.Tensor(shape=(2, 2), dtype=np.float32)),
    }


def nested_example(features: Any, n: int) -> dict[str, Any]:
    step = lambda i: {  # noqa: E731
        "obs": {"image": picture(i), "state": np.arange(3, dtype=np.float32) * i},
        "action": np.array([n, i], np.float64),
        "first": i == 0,
        "text": f"s{i}",
    }
    return {
        "steps": [step(i) for i in range(1 + n % 4)],
        "meta": {"id": n, "path": f"p{n}"},
        "ragged": [list(range(i)) for i in range(n % 4)],
        "deeper": [[[i % 2] * i for i in range(n % 3)], []],
        "numbers": list(range(n % 4)),
        "parts": [{"name": f"n{i}", "boxes": [features.BBox(0.0, 0.1, 1.0, 1.0)] * i} for i in range(n % 3)],
        "words": [{"w": ["a"] * i} for i in range(n % 3)],
        "video": np.full((1 + n % 2, 4, 4, 3), n, np.uint8),
        "images": [np.full((4, 4, 3), i, np.uint8) for i in range(n % 3)],
        "tensors": [np.full((2, 2), i, np.float32) for i in range(n % 3)],
    }


KINDS = {
    "flat": (flat_features, flat_example, {"train": (0, 40), "validation": (40, 50)}, ("image", "label")),
    "nested": (nested_features, nested_example, {"train": (0, 12)}, None),
}


@pytest.fixture(scope="module", params=KINDS)
def built(tfds: ModuleType, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a data set that a builder of TensorFlow Datasets wrote, in four shards a split."""
    features, example, splits, supervised = KINDS[request.param]

    class Builder(tfds.core.GeneratorBasedBuilder):  # type: ignore[misc,name-defined]
        VERSION = tfds.core.Version("1.2.0")
        code_path = None  # there are no files of checksums next to the code
        name = request.param

        def _info(self) -> Any:
            all_of_them = tfds.features.FeaturesDict(features(tfds.features))
            return tfds.core.DatasetInfo(builder=self, features=all_of_them, supervised_keys=supervised)

        def _split_generators(self, manager: Any) -> dict[str, Iterator[tuple[int, dict[str, Any]]]]:
            return {split: self._numbered(*ends) for split, ends in splits.items()}

        def _numbered(self, first: int, end: int) -> Iterator[tuple[int, dict[str, Any]]]:
            for number in range(first, end):
                yield number, example(tfds.features, number)

        def _generate_examples(self) -> None:
            raise AssertionError("the splits have generators of their own")

    builder = Builder(data_dir=tmp_path_factory.mktemp(request.param))
    builder.download_and_prepare(download_config=tfds.download.DownloadConfig(num_shards=4))
    return Path(builder.data_path)


def plain(value: Any) -> Any:
    """A value with its dtype, whatever holds it, so that equal values compare equal."""
    if isinstance(value, Mapping):
        return {name: plain(inner) for name, inner in sorted(value.items())}
    if hasattr(value, "to_list"):  # a ragged tensor
        return str(value.dtype), value.to_list()
    if hasattr(value, "element_spec"):
        return [plain(inner) for inner in value]
    return str(value.dtype), np.asarray(value.numpy()).tolist()


def values(tfds: ModuleType, folder: Path) -> dict[str, list[Any]]:
    """What TensorFlow Datasets reads of each split, in order."""
    builder = tfds.builder_from_directory(str(folder))
    config = tfds.ReadConfig(interleave_cycle_length=1)
    return {split: [*map(plain, builder.as_dataset(split=split, read_config=config))] for split in builder.info.splits}


def resharded(folder: Path, out: Path, *more: str) -> Path:
    name, version = folder.parts[-2:]
    target = out / name / version
    path = target / f"{name}-<split>.tfrecord-<00000>-of-<total>"
    done = tar2tf("convert", folder, "-o", path, *more, "-q")
    assert done.returncode == 0, done.stderr
    return target


@pytest.mark.parametrize("shards", ["1", "7"])
def test_every_value_stays_when_a_data_set_is_resharded(
    tfds: ModuleType, built: Path, tmp_path: Path, shards: str
) -> None:
    after = resharded(built, tmp_path, "--num-shards", shards)
    assert values(tfds, after) == values(tfds, built)
    assert (after / "features.json").read_bytes() == (built / "features.json").read_bytes()
    splits = tfds.builder_from_directory(str(after)).info.splits
    assert {split.num_shards for split in splits.values()} == {int(shards)}
    assert tar2tf("verify", after, "-q").returncode == 0


def test_as_supervised_still_gives_input_and_target(tfds: ModuleType, built: Path, tmp_path: Path) -> None:
    after = tfds.builder_from_directory(str(resharded(built, tmp_path, "--num-shards", "2")))
    if KINDS[built.parts[-2]][3] is None:
        assert after.info.supervised_keys is None
        return
    image, label = next(iter(after.as_dataset(split="validation", as_supervised=True)))
    assert (image.dtype.name, image.shape[2], label.dtype.name) == ("uint8", 3, "int64")


def test_diff_compares_values_and_the_types_of_features(built: Path, tmp_path: Path) -> None:
    after = resharded(built, tmp_path, "--num-shards", "2")
    assert diff(built, after).equal
    features = after / "features.json"
    features.write_text(features.read_text().replace('"dtype": "float64"', '"dtype": "float32"'))
    found = diff(built, after)
    name, shape = ("f64", "") if built.parts[-2] == "flat" else ("steps/action", " [?, 2]")
    assert found.types[name] == (f"Tensor float64{shape}", f"Tensor float32{shape}")
    assert (found.equal, found.counts["changed"]) == (False, 0)
    assert f"type: {name} is Tensor float64{shape} in A" in tar2tf("diff", built, after).stdout


def test_inspect_names_the_type_of_each_feature(built: Path) -> None:
    types = inspect(built).types
    expected = {
        "flat": {"flag": "Tensor bool", "n_uint16": "Tensor uint16", "label": "ClassLabel int64", "image": "Image",
                 "boxes/box": "BBoxFeature float32 [?, 4]", "maybe": "Scalar int32", "rows": "Tensor int32 [?, 2]"},
        "nested": {"steps/obs/image": "Image [?]", "steps/first": "Tensor bool [?]", "video": "Video [?]",
                   "ragged/ragged_row_lengths_0": "row lengths int64 [?]"},
    }[built.parts[-2]]  # fmt: skip
    assert {name: types[name] for name in expected} == expected
    assert {*types} == {*inspect(built).entries}


TYPES = {
    "flat": {
        **{f"n_{name}": (name, ()) for name in INTEGERS},
        "flag": ("bool", ()), "f16": ("float16", ()), "f64": ("float64", ()), "raw": ("uint8", (2, 2)),
        "label": ("int64", ()), "box": ("float32", (4,)), "fixed": ("float32", (2, 3)), "bools": ("bool", (3,)),
        "rows": ("int32", (None, 2)), "audio": ("int64", (None,)), "stereo": ("float32", (None, 2)),
        "three": ("uint64", (3,)), "list": ("int64", (None,)), "boxes/box": ("float32", (None, 4)),
    },
    "nested": {
        "steps/action": ("float64", (None, 2)), "steps/first": ("bool", (None,)), "meta/id": ("int64", ()),
        "steps/obs/state": ("float32", (None, 3)), "numbers": ("uint64", (None,)), "tensors": ("float32", (None, 2, 2)),
        "ragged/ragged_row_lengths_0": ("int64", (None,)), "ragged/ragged_flat_values": ("int64", (None,)),
    },
}  # fmt: skip
"""The dtype and the shape of features, as `features.json` gives them."""


def fits(value: Any, dtype: str, shape: tuple[int | None, ...]) -> bool:
    alike = [length in (None, own) for length, own in zip(shape, value.shape, strict=True)]
    return value.dtype == np.dtype(dtype) and all(alike)


def test_samples_have_the_types_of_the_features(built: Path) -> None:
    sample = open_records(built, split="train")[3]
    for name, (dtype, shape) in TYPES[built.parts[-2]].items():
        assert fits(sample[name], dtype, shape), name


def test_tensors_have_the_types_of_the_features(built: Path) -> None:
    specs = load_dataset(built, split="train").element_spec
    for name, (dtype, shape) in TYPES[built.parts[-2]].items():
        assert (specs[name].dtype.name, tuple(specs[name].shape)) == (dtype, shape), name


def test_ops_receive_the_types_of_the_features(built: Path, tmp_path: Path) -> None:
    (tmp_path / "op.py").write_text(
        "def note(sample):\n"
        "    types = {name: f'{v.dtype} {v.ndim}' for name, v in sample.items() if hasattr(v, 'ndim')}\n"
        "    return {'__key__': sample['__key__'], **types}\n"
    )
    op = f"func:{tmp_path / 'op.py'}:note"
    done = tar2tf("convert", built, "-o", tmp_path / "o-<split>.record", "--op", op, "-q")
    assert done.returncode == 0, done.stderr
    seen = open_records(tmp_path / "o-train.record")[3]
    expected = {name: f"{dtype} {len(shape)}".encode() for name, (dtype, shape) in TYPES[built.parts[-2]].items()}
    assert {name: seen[name] for name in expected} == expected


def test_diff_shows_values_of_these_types(tfds: ModuleType, built: Path, tmp_path: Path) -> None:
    import tensorflow as tf

    after = resharded(built, tmp_path, "--num-shards", "1")
    (shard,) = after.glob("*-train.tfrecord*")
    before, sample = records(shard), open_records(built, split="train")[3]
    example = tf.train.Example.FromString(before[3])
    feature = example.features.feature
    if built.parts[-2] == "flat":
        feature["flag"].int64_list.value[0] ^= 1
        feature["raw"].bytes_list.value[0] = bytes([1, 2, 3, 4])
        expected = [
            f"flag: {sample['flag']} -> {not sample['flag']}",
            f"raw: uint8 2x2 {sample['raw'].ravel().tolist()} -> uint8 2x2 [1, 2, 3, 4]",
        ]
    else:
        feature["steps/first"].int64_list.value[0] = 0
        steps = sample["steps/first"].tolist()
        expected = [f"steps/first: bool {len(steps)} {steps} -> bool {len(steps)} {[False, *steps[1:]]}"]
    with tf.io.TFRecordWriter(str(shard)) as writer:
        for number, record in enumerate(before):
            writer.write(example.SerializeToString() if number == 3 else record)
    shown = tar2tf("diff", built, after, "-v").stdout
    assert [line.strip() for line in shown.splitlines()[1:]] == expected


@pytest.mark.skipif(importlib.util.find_spec("apache_beam") is None, reason="needs apache-beam, as convert_format does")
def test_convert_format_makes_array_records_of_what_was_resharded(
    tfds: ModuleType, built: Path, tmp_path: Path
) -> None:
    after = resharded(built, tmp_path, "--num-shards", "3")
    out = tmp_path / "array_record"
    command = [sys.executable, "-m", "tensorflow_datasets.scripts.cli.main", "convert_format"]
    options = [f"--dataset_version_dir={after}", "--out_file_format=array_record", f"--out_dir={out}"]
    ran = subprocess.run([*command, *options], capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stderr
    from array_record.python.array_record_module import ArrayRecordReader

    for split in tfds.builder_from_directory(str(after)).info.splits:
        made = [ArrayRecordReader(str(path)).read_all() for path in sorted(out.glob(f"*-{split}.array_record*"))]
        assert [record for shard in made for record in shard] == records(*sorted(after.glob(f"*-{split}.tfrecord*")))
