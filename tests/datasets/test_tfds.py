"""What `export tfds` writes is read by TensorFlow Datasets, where it is installed; what it cannot read is refused."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

from commands import tar2tf
from make_bytes import npy
from shards import PHOTOS, write_tar
from tar2tf_cli import Conversion, Input, Output, convert, load_dataset
from tar2tf_cli.datasets.tfds import export_tfds
from tar2tf_cli.errors import OutputExistsError, UsageError
from tar2tf_cli.ops import Func
from verify_runs import Ran

pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.xdist_group("readers"),
]  # other people's code warns of what it likes


def ran(*arguments: Any) -> Ran:
    done = tar2tf(*arguments)
    return Ran(done.returncode, done.stdout, done.stderr)


def as_read(folder: Path, split: str) -> tuple[Any, list[dict[str, Any]]]:
    """The features that TensorFlow Datasets knows of a folder, and the examples of a split in order."""
    tfds = pytest.importorskip("tensorflow_datasets")
    builder = tfds.builder_from_directory(str(folder))
    config = tfds.ReadConfig(interleave_cycle_length=1)
    return builder.info, list(tfds.as_numpy(builder.as_dataset(split=split, read_config=config)))


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of images in two classes, converted with splits."""
    for place, name in enumerate(["cat", "dog"]):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(9):
            pixels = np.random.default_rng(number).integers(0, 256, (20 + number, 30, 3), dtype=np.uint8)
            cv2.imwrite(str(tmp_path / "photos" / name / f"{number}.jpg"), pixels // (place + 1))
    out = tmp_path / "out"
    options = ("--split", "train=0.7,val=0.3", "--records-per-shard", "4", "-j", "1")
    done = ran("convert", "--from", "imagefolder", tmp_path / "photos", "-o", out / "<split>-<00000>.record", *options)
    assert done.code == 0, done.err
    return out


def test_images_and_labels_with_names_are_read_by_tensorflow_datasets(photos: Path) -> None:
    done = ran("export", "tfds", photos, "--name", "pets:2.0.1")
    assert done.code == 0, done.err
    written = {Path(line).name for line in done.out.splitlines()}
    assert written == {"dataset_info.json", "features.json", "label.labels.txt"}
    whole = list(load_dataset(photos / "_manifest.json").as_numpy_iterator())
    found = []
    for split in ("train", "val"):
        info, examples = as_read(photos, split)
        assert info.splits[split].num_examples == len(examples) > 0
        found += examples
    assert (info.name, str(info.version)) == ("pets", "2.0.1")
    label, image = info.features["label"], info.features["image"]
    assert (type(label).__name__, label.names) == ("ClassLabel", ["cat", "dog"])
    assert (type(image).__name__, image.shape, image.encoding_format) == ("Image", (None, None, 3), "jpeg")
    assert len(found) == len(whole) == 18
    import tensorflow as tf

    for one, other in zip(found, whole, strict=True):
        assert one["label"] == other["label"]
        assert label.int2str(one["label"]).encode() == other["synset"]
        np.testing.assert_array_equal(one["image"], tf.io.decode_image(other["image"], 3))


def test_as_supervised_gives_the_image_and_its_class(photos: Path) -> None:
    export_tfds(photos, description="Pets", citation="@misc{pets}")
    tfds = pytest.importorskip("tensorflow_datasets")
    builder = tfds.builder_from_directory(str(photos))
    assert builder.info.supervised_keys == ("image", "label")
    assert (builder.info.description, builder.info.citation) == ("Pets", "@misc{pets}")
    for image, label in tfds.as_numpy(builder.as_dataset(split="train", as_supervised=True)):
        assert image.ndim == 3
        assert label in (0, 1)


def test_supervised_keys_can_be_named(photos: Path) -> None:
    assert ran("export", "tfds", photos, "--supervised", "filename,synset").code == 0
    items = json.loads((photos / "dataset_info.json").read_bytes())["supervisedKeys"]["tuple"]["items"]
    assert items == [{"featureKey": "filename"}, {"featureKey": "synset"}]
    done = ran("export", "tfds", photos, "--supervised", "image,nothing")
    assert done.code == 2
    assert "'image,nothing' are not two features" in done.err


def test_shards_named_as_by_tensorflow_datasets_are_converted_by_its_tools(tmp_path: Path) -> None:
    out = tmp_path / "pets" / "1.0.0"
    path = out / "pets-<split>.tfrecord-<00000>-of-<total>"
    options = ("--split", "train=0.5,test=0.5", "--tfds", "pets", "-j", "1")
    assert ran("convert", PHOTOS, "-o", path, *options).code == 0
    assert template_of(out) == ["{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"] * 2


def encoded_image(kind: str, channels: int, number: int) -> bytes:
    shape = (4, 5) if channels == 1 else (4, 5, channels)
    pixels = np.random.default_rng(number).integers(0, 256, shape, dtype=np.uint8)
    return bytes(cv2.imencode(kind, pixels)[1])


@pytest.mark.parametrize(
    ("late", "channels"),
    [((".png", 3), 3), ((".png", 4), 4), ((".jpg", 3), 3), ((".webp", 3), None), (("text", 0), None)],
)
def test_the_form_of_a_feature_follows_from_all_of_its_values(
    tmp_path: Path, late: tuple[str, int], channels: int | None
) -> None:
    images = [encoded_image(".png", 1, number) for number in range(80)]
    images.append(b"no image" if late[0] == "text" else encoded_image(*late, 80))
    write_tar(tmp_path / "in.tar", [(f"{number:03d}", {"png": data}) for number, data in enumerate(images)])
    options = ("--select", "png", "--tfds", "late", "-j", "1")
    assert ran("convert", tmp_path / "in.tar", "-o", tmp_path / "out" / "a.record", *options).code == 0
    feature = json.loads((tmp_path / "out" / "features.json").read_bytes())["featuresDict"]["features"]["png"]
    if channels is None:
        assert feature["pythonClassName"].endswith("Text")
    else:
        assert feature["image"]["shape"]["dimensions"] == ["-1", "-1", str(channels)]
    _, found = as_read(tmp_path / "out", "train")
    import tensorflow as tf

    for one, data in zip(found, images, strict=True):
        wanted = tf.io.decode_image(data, channels).numpy() if channels else data
        np.testing.assert_array_equal(one["png"], wanted)


MADE: list[dict[str, Any]] = [
    {
        "number": n,
        "real": n / 2,
        "text": f"n{n}",
        "words": [f"w{i}" for i in range(n + 1)],
        "fixed": np.arange(6, dtype="float32").reshape(2, 3) + n,
        "bytes": np.arange(6, dtype="uint8").reshape(2, 3) + n,
        "rows": np.arange(3 * (n + 1), dtype="uint8").reshape(n + 1, 3),
        "free": np.zeros((n + 1, n + 2), "float32"),
        "pixels": np.zeros((n + 1, n + 2, 3), "uint8"),
        "flag": n == 1,
        "ints": [*range(n), 7],
        **({"some": 5, "piece": b"p"} if n else {}),
    }
    for n in range(3)
]


@pytest.fixture
def everything(tmp_path: Path) -> Path:
    """A conversion to features of every kind."""
    write_tar(tmp_path / "in" / "a.tar", [(f"{n}", {"x": b""}) for n in range(3)])
    op = Func(lambda sample: {**MADE[int(sample["__key__"])], "__key__": sample["__key__"]})
    output = Output(str(tmp_path / "out" / "all.record"))
    convert(Conversion(Input(str(tmp_path / "in")), output, ops=(op,)), workers=1)
    return tmp_path / "out"


def test_features_of_every_kind_are_read_by_tensorflow_datasets(everything: Path) -> None:
    export_tfds(everything)
    info, found = as_read(everything, "train")
    assert (info.name, info.splits["train"].num_shards) == ("out", 1)
    for item, made in zip(found, MADE, strict=True):
        assert (item["number"], item["real"], item["text"]) == (made["number"], made["real"], made["text"].encode())
        assert [word.decode() for word in item["words"]] == made["words"]
        for name in ("fixed", "bytes", "rows"):
            np.testing.assert_array_equal(item[name], made[name])
            assert item[name].dtype == made[name].dtype
        assert item["free"].reshape(item["free/shape"]).shape == made["free"].shape
        assert item["pixels"] == made["pixels"].tobytes()
        assert item["flag"] == made["flag"]
        assert item["ints"].tolist() == made["ints"]
        assert (item["some"].tolist(), item["piece"].tolist()) == (([5], [b"p"]) if "some" in made else ([], []))


def template_of(folder: Path) -> list[str]:
    return [split["filepathTemplate"] for split in json.loads((folder / "dataset_info.json").read_bytes())["splits"]]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("x-<00000>.record", "x-{SHARD_INDEX}.record"),
        ("{}-<00000>-of-<total>.tfrecord", None),
        ("x.tfrecord-<00000>-of-<total>", "x.tfrecord-{SHARD_X_OF_Y}"),
        ("sub/x-<00000>.record", "sub/x-{SHARD_INDEX}.record"),
    ],
)
def test_shards_are_found_by_the_template_of_tensorflow_datasets(
    tmp_path: Path, path: str, expected: str | None
) -> None:
    out = tmp_path / "out"
    done = ran("convert", PHOTOS, "-o", f"{out}/{path}", "--num-shards", "3", "-j", "1")
    if expected is None:
        assert done.code == 2
        return
    (manifest,) = out.glob("**/*manifest.json")
    export_tfds(manifest)
    expected = expected.removeprefix("sub/")
    assert template_of(manifest.parent) == [expected]


@pytest.mark.parametrize("path", ["x-<>.record", "x-<000>.record", "x-<00001>.record"])
def test_other_names_are_refused_with_one_that_works(tmp_path: Path, path: str) -> None:
    assert ran("convert", PHOTOS, "-o", tmp_path / "out" / path, "--num-shards", "3", "-j", "1").code == 0
    done = ran("export", "tfds", tmp_path / "out")
    assert done.code == 2
    assert "does not find shards that are named like x-" in done.err
    assert "<split>.tfrecord-<00000>-of-<total>" in done.err
    assert not (tmp_path / "out" / "dataset_info.json").exists()


def test_files_that_describe_something_else_are_not_replaced(photos: Path) -> None:
    info = photos / "dataset_info.json"
    export_tfds(photos)
    first = info.read_bytes()
    export_tfds(photos)
    with pytest.raises(OutputExistsError, match=r"dataset_info\.json: exists, .*; add overwrite=True"):
        export_tfds(photos, "other")
    assert info.read_bytes() == first
    export_tfds(photos, "other", overwrite=True)
    assert json.loads(info.read_bytes())["name"] == "other"


def test_convert_describes_its_output_each_time_it_is_run(tmp_path: Path) -> None:
    info = tmp_path / "out" / "dataset_info.json"
    for _ in range(2):
        options = ("--split", "train=0.5,test=0.5", "--tfds", "photos:1.2.0", "-j", "1")
        done = ran("convert", PHOTOS, "-o", tmp_path / "out" / "x-<split>.tfrecord-<00000>-of-<total>", *options)
        assert done.code == 0, done.err
        document = json.loads(info.read_bytes())
        assert (document["name"], document["version"], len(document["splits"])) == ("photos", "1.2.0", 2)
        info.unlink()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["-o", "out/x-<>.record"], "does not find shards that are named out/x-<>.record"),
        (["-o", "out/<input>.record"], "does not find shards that are named out/<input>.record"),
        (["-o", "-"], "it reads shards in a folder"),
        (["-o", "s3://bucket/x-<00000>.record"], "--tfds describes shards in a folder"),
        (["-o", "out/x.record", "--compression", "gzip"], "it cannot read compressed shards"),
        (["-o", "out/x.record", "--tfds", "1"], "'1' cannot be the name of a dataset"),
    ],
)
def test_convert_refuses_what_it_could_not_describe(tmp_path: Path, options: list[str], words: str) -> None:
    done = tar2tf("convert", PHOTOS, "--tfds", "photos", *options, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_a_version_is_named_by_the_one_above(tmp_path: Path) -> None:
    out = tmp_path / "pets" / "3.1.0"
    assert ran("convert", PHOTOS, "-o", out / "pets-train.tfrecord-<00000>-of-<total>", "-j", "1").code == 0
    export_tfds(out)
    info = json.loads((out / "dataset_info.json").read_bytes())
    assert (info["name"], info["version"]) == ("pets", "3.1.0")


def test_labels_of_the_conversion_are_names_of_classes(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert (
        ran("convert", PHOTOS, "-o", out / "a.record", "--select", "cls", "--labels", "cls=auto", "-j", "1").code == 0
    )
    export_tfds(out)
    features = json.loads((out / "features.json").read_bytes())["featuresDict"]["features"]
    assert features["cls"]["classLabel"] == {"numClasses": "5"}
    assert (out / "cls.labels.txt").read_text() == "0\n1\n2\n3\n4\n"


def test_a_label_map_can_be_given(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert ran("convert", PHOTOS, "-o", out / "a.record", "--type", "cls=int64", "-j", "1").code == 0
    names = tmp_path / "names.txt"
    names.write_text("zero\none\ntwo\n")
    export_tfds(out, labels={"cls": str(names)})
    features = json.loads((out / "features.json").read_bytes())["featuresDict"]["features"]
    assert features["cls"]["classLabel"] == {"numClasses": "3"}
    assert features["jpg"]["image"]["shape"]["dimensions"] == ["-1", "-1", "3"]
    assert (out / "cls.labels.txt").read_text() == "zero\none\ntwo\n"


FEATURES = "tensorflow_datasets.core.features."
TEXT = {"pythonClassName": f"{FEATURES}text_feature.Text", "text": {}}


def a_picture(kind: str, mode: str) -> bytes:
    file = io.BytesIO()
    Image.new(mode, (3, 2)).save(file, kind)
    return file.getvalue()


def a_tensor(dtype: str, *lengths: int, encoding: str = "none") -> dict[str, Any]:
    shape = {"dimensions": [str(length) for length in lengths]} if lengths else {}
    kind = "tensor_feature.Tensor" if lengths or encoding != "none" else "scalar.Scalar"
    return {"pythonClassName": FEATURES + kind, "tensor": {"dtype": dtype, "encoding": encoding, "shape": shape}}


def an_image(channels: int, encoding: str | None = None) -> dict[str, Any]:
    about = {"dtype": "uint8", "shape": {"dimensions": ["-1", "-1", str(channels)]}}
    known = {"encodingFormat": encoding} if encoding else {}
    return {"pythonClassName": f"{FEATURES}image_feature.Image", "image": about | known}


def entries_of(number: int) -> dict[str, bytes]:
    """Entries of every form; some differ between the samples 0 and 1, and some are only in sample 1."""
    arrays = {
        "raw": np.zeros((2, 3), np.uint8),
        "one_unknown": np.zeros((number + 1, 3), np.uint8),
        "two_unknown": np.zeros((number + 1, number + 2), np.uint8),
        "floats_unknown": np.zeros((number + 1, number + 2), np.float32),
        "floats": np.zeros(2, np.float32),
        "double": np.array(1.0),
    }
    images = {
        "jpg": ("JPEG", "RGB"),
        "gray": ("PNG", "L"),
        "gray_and_rgb": ("PNG", "L" if number else "RGB"),
        "gray_and_rgba": ("PNG", "RGBA" if number else "L"),
        "two_channels": ("PNG", "LA"),
        "two_kinds": ("PNG" if number else "JPEG", "RGB"),
        "two_kinds_and_alpha": ("PNG", "RGBA") if number else ("JPEG", "RGB"),
        "bmp": ("BMP", "RGB"),
        "tiff": ("TIFF", "RGB"),
    }
    others = {"txt": b"x", "n": b"%d" % number, "f": b"0.5", "list": b"[1]" if number else b"[1, 2]"}
    optional = {"some": b"1", "some_png": a_picture("PNG", "L")} if number else {}
    made = {name: a_picture(*about) for name, about in images.items()}
    return {**{f"{name}.npy": npy(array) for name, array in arrays.items()}, **made, **others, **optional}


def test_each_form_of_a_feature_is_described(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "a.tar", [(str(number), entries_of(number)) for number in range(2)])
    types = "n=int64,f=float,list=int64_list"
    assert ran("convert", tar, "-o", tmp_path / "out/x.record", "--op", "decode:*.npy", "--type", types).code == 0
    export_tfds(tmp_path / "out", "forms")
    assert json.loads((tmp_path / "out/features.json").read_bytes())["featuresDict"]["features"] == {
        "__key__": TEXT,
        "bmp": an_image(3),
        "double.npy": a_tensor("float64", encoding="bytes"),
        "f": a_tensor("float32"),
        "floats.npy": a_tensor("float32", 2),
        "floats.npy/shape": a_tensor("int64", 1),
        "floats_unknown.npy": a_tensor("float32", -1),
        "floats_unknown.npy/shape": a_tensor("int64", 2),
        "gray": an_image(1, "png"),
        "gray_and_rgb": an_image(3, "png"),
        "gray_and_rgba": an_image(4, "png"),
        "jpg": an_image(3, "jpeg"),
        "list": a_tensor("int64", -1),
        "n": a_tensor("int64"),
        "one_unknown.npy": a_tensor("uint8", -1, 3, encoding="bytes"),
        "one_unknown.npy/shape": a_tensor("int64", 2),
        "raw.npy": a_tensor("uint8", 2, 3, encoding="bytes"),
        "raw.npy/shape": a_tensor("int64", 2),
        "some": a_tensor("string", -1),
        "some_png": a_tensor("string", -1),
        "tiff": TEXT,
        "two_channels": an_image(4, "png"),
        "two_kinds": an_image(3),
        "two_kinds_and_alpha": TEXT,
        "two_unknown.npy": a_tensor("string"),
        "two_unknown.npy/shape": a_tensor("int64", 2),
        "txt": TEXT,
    }
    size = (tmp_path / "out/x.record").stat().st_size
    split = {"name": "train", "filepathTemplate": "x.record", "shardLengths": ["2"], "numBytes": str(size)}
    info = {"name": "forms", "version": "1.0.0", "fileFormat": "tfrecord", "splits": [split]}
    assert json.loads((tmp_path / "out/dataset_info.json").read_bytes()) == info


def test_numbers_of_classes_may_have_gaps_up_to_a_limit(photos: Path, tmp_path: Path) -> None:
    names = tmp_path / "names.csv"
    error = f"error: {names}: has labels that are not numbered from 0\n"
    for text, code in (
        ("cat,0\ndog,1021\n", 2),
        ("cat,-1\ndog,0\n", 2),
        ("cat,0\ndog,1020\n", 0),
        ("cat,1\ndog,3\n", 0),
    ):
        names.write_text(text)
        done = ran("export", "tfds", photos, "--class-names", f"label={names}", "--overwrite")
        assert (done.code, done.err) == (code, error if code else ""), text
    assert (photos / "label.labels.txt").read_text() == "unused-0\ncat\nunused-2\ndog\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--supervised", "image"], "--supervised: 'image' are not two features of the dataset\n  name an input and"),
        (["--supervised", "image,x"], "--supervised: 'image,x' are not two features of the dataset\n  name an input"),
        (
            ["--name", "1photos"],
            "'1photos' cannot be the name of a dataset\n  use letters, digits and _, such as my_photos",
        ),
        (["--name", "photos:1.0"], "'1.0' is not a version\n  write three numbers, such as my_photos:1.0.0"),
        (["--name", "my photos"], "'my photos' cannot be the name of a dataset"),
        (["--name", "photos:1"], "'1' is not a version\n  write three numbers"),
        (["--class-names", "names.txt"], "--class-names takes FEATURE=FILE, not 'names.txt'"),
        (
            ["--class-names", "jpg=names.txt"],
            "a class\n  features of whole numbers: label",
        ),
    ],
)
def test_wrong_arguments_are_usage_errors(photos: Path, arguments: list[str], words: str) -> None:
    done = ran("export", "tfds", photos, *arguments)
    assert done.code == 2
    assert words in done.err


def test_there_has_to_be_one_manifest(photos: Path, tmp_path: Path) -> None:
    (photos / "_b-manifest.json").write_bytes((photos / "_manifest.json").read_bytes())
    with pytest.raises(UsageError, match=r"has 2 manifests; name one: _b-manifest\.json, _manifest\.json"):
        export_tfds(photos)
    (tmp_path / "a.record").touch()
    with pytest.raises(UsageError, match="has no manifest"):
        export_tfds(tmp_path)


def test_compressed_shards_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert ran("convert", PHOTOS, "-o", out / "a.record", "--compression", "gzip", "-j", "1").code == 0
    with pytest.raises(UsageError, match="cannot read gzip shards"):
        export_tfds(out)
