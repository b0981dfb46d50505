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
from tar2tf_cli import diff, inspect, open_records

if TYPE_CHECKING:
    from types import ModuleType

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.xdist_group("readers")]

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")


@pytest.fixture(scope="module")
def tfds() -> ModuleType:
    module: ModuleType = pytest.importorskip("tensorflow_datasets")
    module.display_progress_bar(False)
    return module


def picture(number: int, channels: int = 3) -> Any:
    return np.random.default_rng(number).integers(0, 255, (4 + number % 3, 5, channels), dtype=np.uint8)


def flat_features(features: Any) -> dict[str, Any]:
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
        "text": features.Text(),
        "pair": features.Translation(["en", "de"]),
        "fixed": features.Tensor(shape=(2, 3), dtype=np.float32),
        "rows": features.Tensor(shape=(None, 2), dtype=np.int32),
        "bools": features.Tensor(shape=(3,), dtype=np.bool_),
        "raw": features.Tensor(shape=(2, 2), dtype=np.uint8, encoding="bytes"),
        "packed": features.Tensor(shape=(2, 2), dtype=np.float64, encoding="zlib"),
        "any": features.Tensor(shape=(None, None), dtype=np.float32, encoding="bytes"),
        "maybe": features.Scalar(np.int32, optional=True),
        "list": features.Sequence(np.int64),
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
        "text": f"tü{n}",
        "pair": {"en": f"a{n}", "de": "b"},
        "fixed": np.full((2, 3), n, np.float32),
        "rows": np.full((n % 3, 2), n, np.int32),
        "bools": [True, False, n % 2 == 0],
        "raw": np.full((2, 2), n, np.uint8),
        "packed": np.full((2, 2), n, np.float64),
        "any": np.full((n % 3, 2), n, np.float32),
        "maybe": n if n % 2 else None,
        "list": list(range(n % 4)),
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


def test_samples_have_the_types_of_the_features(built: Path) -> None:
    if built.parts[-2] != "flat":
        forms = open_records(built).schema()
        assert forms["steps/action"] == ("float64", (None, 2), False)
        return
    sample = open_records(built, split="train")[3]
    for name in INTEGERS:
        assert sample[f"n_{name}"].dtype == np.dtype(name)
    for name, dtype in (("flag", np.bool_), ("f16", np.float16), ("f64", np.float64), ("raw", np.uint8)):
        assert sample[name].dtype == dtype
    assert sample["fixed"].shape == (2, 3)


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
