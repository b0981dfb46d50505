"""Presets: exactly the features that training code elsewhere knows, parsed as that code parses them."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from commands import tar2tf
from images import astronaut
from read_back import load_both
from shards import PHOTOS, records, write_tar
from tar2tf_cli import default_record_parser
from tar2tf_cli.conversion.run import convert
from tar2tf_cli.errors import SampleError, UsageError
from tar2tf_cli.features.presets import find_preset
from tar2tf_cli.features.presets.imagenet_tensor import imagenet_tensor
from tar2tf_cli.formats.example import raw
from tar2tf_cli.ops import Decode, OpContext, Resize, Select
from tar2tf_cli.spec.conversion import Conversion, Input, Output


def encoded(height: int, width: int, format: str = "JPEG", mode: str = "RGB") -> bytes:
    file = io.BytesIO()
    PIL.Image.fromarray(astronaut()).resize((width, height)).convert(mode).save(file, format)
    return file.getvalue()


def run(folder: Path, entries: dict[str, bytes], preset: str | None, key: str = "n01/0007", **options: Any) -> Path:
    """The one shard that a sample becomes."""
    write_tar(folder / "in" / "a.tar", [(key, entries)])
    output = Output(str(folder / "out" / "all.record"))
    convert(Conversion(Input(str(folder / "in")), output, preset=preset, **options), workers=1)
    return folder / "out" / "all.record"


def parsed(path: Path, description: dict[str, Any]) -> dict[str, Any]:
    """The one record by a description that must name every feature of it."""
    (record,) = records(path)
    assert set(tf.train.Example.FromString(record).features.feature) == set(description)
    return {name: value.numpy() for name, value in tf.io.parse_single_example(record, description).items()}


ONE_INT, SINGLE_BYTES_TAG = tf.io.FixedLenFeature([], tf.int64), tf.io.FixedLenFeature([], tf.string)
IMAGE_LABEL = {"height": ONE_INT, "width": ONE_INT, "depth": ONE_INT, "label": ONE_INT, "image_raw": SINGLE_BYTES_TAG}
SLIM = {
    # tensorflow/models, research/slim/datasets/imagenet.py and build_imagenet_data.py, boxes left out
    "image/height": ONE_INT,
    "image/width": ONE_INT,
    "image/colorspace": tf.io.FixedLenFeature([], tf.string),
    "image/channels": ONE_INT,
    "image/class/label": tf.io.FixedLenFeature([], tf.int64, -1),
    "image/class/synset": SINGLE_BYTES_TAG,
    "image/class/text": tf.io.FixedLenFeature([], tf.string, ""),
    "image/format": tf.io.FixedLenFeature([], tf.string, "jpeg"),
    "image/filename": SINGLE_BYTES_TAG,
    "image/encoded": tf.io.FixedLenFeature([], tf.string, ""),
}


@pytest.mark.parametrize(
    ("format", "mode", "depth"),
    [("JPEG", "RGB", 3), ("JPEG", "L", 1), ("JPEG", "CMYK", 3), ("PNG", "RGBA", 4), ("PNG", "L", 1), ("BMP", "RGB", 3)],
)
def test_image_label_has_the_size_that_decoding_finds(format: str, mode: str, depth: int, tmp_path: Path) -> None:
    data = encoded(31, 47, format, mode)
    found = parsed(run(tmp_path, {"jpg": data, "cls": b"4\n"}, "image-label"), IMAGE_LABEL)
    assert found == {"height": 31, "width": 47, "depth": depth, "label": 4, "image_raw": data}
    assert tf.io.decode_image(data).shape == (31, 47, depth)


def test_the_default_parser_reads_image_label(tmp_path: Path) -> None:
    data = encoded(31, 47)
    path = run(tmp_path, {"jpg": data, "cls": b"4"}, "image-label")
    ((image, label),) = tf.data.TFRecordDataset(str(path)).map(default_record_parser)
    assert (image.dtype, image.shape, label.dtype, label.numpy()) == (tf.float32, (224, 224, 3), tf.int32, 4)
    expected = tf.image.resize(tf.io.decode_jpeg(data), (224, 224))
    np.testing.assert_allclose(image, expected, atol=0.01)


def test_image_label_does_not_decode(tmp_path: Path) -> None:
    data = encoded(31, 47)
    cut = data[: len(data) // 2]
    assert parsed(run(tmp_path, {"jpg": cut, "cls": b"1"}, "image-label"), IMAGE_LABEL)["height"] == 31


def test_imagenet_has_the_names_of_tf_slim_and_the_very_jpeg(tmp_path: Path) -> None:
    data = encoded(31, 47)
    entries = {"jpg": data, "cls": b"281", "synset": b"n02123045", "text": b"tabby, tabby cat"}
    found = parsed(run(tmp_path, entries, "imagenet"), SLIM)
    assert found == {
        "image/height": 31,
        "image/width": 47,
        "image/colorspace": b"RGB",
        "image/channels": 3,
        "image/class/label": 281,
        "image/class/synset": b"n02123045",
        "image/class/text": b"tabby, tabby cat",
        "image/format": b"JPEG",
        "image/filename": b"0007.jpg",
        "image/encoded": data,
    }


@pytest.mark.parametrize(
    ("format", "mode"),
    [("JPEG", "CMYK"), ("JPEG", "L"), ("PNG", "RGB"), ("PNG", "RGBA"), ("PNG", "L"), ("PNG", "LA"), ("BMP", "RGB")],
)
def test_imagenet_makes_an_rgb_jpeg_of_what_is_none_whatever_its_name(format: str, mode: str, tmp_path: Path) -> None:
    data = encoded(31, 47, format, mode)
    found = parsed(run(tmp_path, {"jpg": data, "cls": b"1"}, "imagenet"), SLIM)
    assert found["image/encoded"][:3] == b"\xff\xd8\xff"
    with PIL.Image.open(io.BytesIO(found["image/encoded"])) as image:
        assert (image.mode, image.size) == ("RGB", (47, 31))
    by_tensorflow = tf.io.encode_jpeg(tf.io.decode_image(data, channels=3), quality=100)
    np.testing.assert_array_equal(tf.io.decode_jpeg(found["image/encoded"]), tf.io.decode_jpeg(by_tensorflow))
    assert (found["image/format"], found["image/channels"], found["image/height"]) == (b"JPEG", 3, 31)


@pytest.mark.parametrize(("format", "mode"), [("JPEG", "RGB"), ("JPEG", "L"), ("PNG", "RGBA"), ("PNG", "LA")])
def test_imagenet_tensor_holds_the_pixels_as_rgb(format: str, mode: str, tmp_path: Path) -> None:
    data = encoded(31, 47, format, mode)
    path = run(tmp_path, {"jpg": data, "cls": b"1"}, "imagenet-tensor")
    found = parsed(path, SLIM)
    expected = tf.io.decode_image(data).numpy()
    expected = expected[..., :3] if expected.shape[2] > 2 else np.repeat(expected[..., :1], 3, axis=2)
    pixels = np.frombuffer(found["image/encoded"], np.uint8).reshape(31, 47, 3)
    np.testing.assert_array_equal(pixels, expected)
    assert (found["image/format"], found["image/colorspace"], found["image/channels"]) == (b"tensor", b"RGB", 3)
    (item,) = load_both(_manifest(path))
    assert (item["image/encoded"].dtype, item["image/encoded"].shape) == (tf.uint8, (31, 47, 3))
    np.testing.assert_array_equal(item["image/encoded"], expected)


def _manifest(path: Path) -> Path:
    (found,) = path.parent.glob("*manifest.json")
    return found


def test_images_of_differing_sizes_keep_their_own_in_imagenet_tensor(tmp_path: Path) -> None:
    sizes = [(31, 47), (20, 20), (50, 9)]
    samples = [(f"{n}", {"jpg": encoded(*size), "cls": b"%d" % n}) for n, size in enumerate(sizes)]
    write_tar(tmp_path / "in" / "a.tar", samples)
    output = Output(str(tmp_path / "out" / "all.record"))
    summary = convert(Conversion(Input(str(tmp_path / "in")), output, preset="imagenet-tensor"), workers=1)
    found = load_both(summary.manifest)
    for item, (_, entries) in zip(found, samples, strict=True):
        np.testing.assert_array_equal(item["image/encoded"], tf.io.decode_jpeg(entries["jpg"]))


def test_an_image_size_crops_the_centre_and_scales_it(tmp_path: Path) -> None:
    data = encoded(40, 60)
    path = run(tmp_path, {"jpg": data, "cls": b"1"}, "imagenet-tensor", image_size=24)
    (item,) = load_both(_manifest(path))
    expected = tf.image.resize(tf.io.decode_jpeg(data)[:, 10:50], (24, 24))
    assert item["image/encoded"].shape == (24, 24, 3)
    assert (item["image/height"].numpy(), item["image/width"].numpy()) == (24, 24)
    apart = np.abs(item["image/encoded"].numpy().astype(int) - tf.saturate_cast(expected, tf.uint8).numpy())
    assert apart.max() <= 1
    assert apart.mean() < 0.02  # where a whole number lies within the tolerance of resize


def test_imagenet_tensor_takes_pixels_that_ops_made(tmp_path: Path) -> None:
    data = encoded(40, 60)
    ops = (Decode("jpg"), Resize("jpg", (10, 12)))
    path = run(tmp_path, {"jpg": data, "cls": b"1"}, "imagenet-tensor", ops=ops)
    assert parsed(path, SLIM)["image/height"] == 10


@pytest.mark.parametrize(
    ("pixels", "found"),
    [
        (np.array([[[9]]], np.uint8), [9, 9, 9]),
        (np.array([[[9, 200]]], np.uint8), [9, 9, 9]),
        (np.array([[[1, 2, 3]]], np.uint8), [1, 2, 3]),
        (np.array([[[1, 2, 3, 4]]], np.uint8), [1, 2, 3]),
        (np.array([[[1.6, 255.4, 300]]], np.float32), [1, 255, 255]),
        (np.zeros((1, 1)), "ndarray"),
        ([[[1, 2, 3]]], "list"),
    ],
    ids=repr,
)
def test_pixels_of_any_channels_become_rgb(pixels: Any, found: Any) -> None:
    sample = {"__key__": "k", "image": pixels, "label": 1}
    if isinstance(found, str):
        with pytest.raises(SampleError, match=f"^the preset imagenet-tensor needs an image, not {found}$"):
            imagenet_tensor(sample, OpContext())
        return
    made = imagenet_tensor(sample, OpContext())
    assert made["image/encoded"] == raw(bytes(found), (1, 1, 3))
    assert (made["image/height"], made["image/width"]) == (1, 1)


@pytest.mark.parametrize("name", ["image", "jpg", "jpeg", "png", "bmp", "img"])
@pytest.mark.parametrize("label", ["label", "cls", "class"])
def test_presets_find_the_image_and_the_label_by_their_usual_names(name: str, label: str, tmp_path: Path) -> None:
    path = run(tmp_path, {name: encoded(8, 9, "PNG"), label: b"5"}, "image-label")
    assert parsed(path, IMAGE_LABEL)["label"] == 5


def test_a_selection_names_other_entries_for_a_preset(tmp_path: Path) -> None:
    entries = {"left.jpg": encoded(8, 9), "right.jpg": encoded(9, 8), "y": b"3", "cls": b"1"}
    select = {"image": Select("right.jpg"), "label": Select("y")}
    assert parsed(run(tmp_path, entries, "image-label", select=select), IMAGE_LABEL)["height"] == 9
    assert parsed(run(tmp_path / "2", entries, "image-label", select=select), IMAGE_LABEL)["label"] == 3


@pytest.mark.parametrize("preset", ["image-label", "imagenet", "imagenet-tensor"])
@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"cls": b"1"}, "none of the entries image, jpg"),
        ({"jpg": encoded(8, 9)}, "none of the entries label, cls"),
        ({"jpg": encoded(8, 9), "cls": b"cat"}, "label b'cat' is not a whole number"),
        ({"jpg": encoded(8, 9), "cls": b"1.5"}, "label b'1.5' is not a whole number"),
        ({"jpg": b"text", "cls": b"1"}, "cannot be decoded"),
        ({"jpg": b"", "cls": b"1"}, "cannot be decoded"),
    ],
)
def test_what_a_preset_lacks_is_an_error_naming_the_sample(
    preset: str, entries: dict[str, bytes], words: str, tmp_path: Path
) -> None:
    with pytest.raises(SampleError, match=words) as caught:
        run(tmp_path, entries, preset)
    assert caught.value.key == "n01/0007"
    assert (caught.value.shard or "").endswith("a.tar")


def test_a_label_out_of_json_must_be_a_whole_number(tmp_path: Path) -> None:
    from tar2tf_cli.ops import SelectJSON

    select = {"image": Select("jpg"), "label": SelectJSON("json", "y")}
    with pytest.raises(SampleError, match=r"3\.7 is not a whole number"):
        run(tmp_path, {"jpg": encoded(8, 9), "json": b'{"y": 3.7}'}, "image-label", select=select)
    path = run(tmp_path / "2", {"jpg": encoded(8, 9), "json": b'{"y": 3.0}'}, "image-label", select=select)
    assert parsed(path, IMAGE_LABEL)["label"] == 3


@pytest.mark.parametrize("preset", ["image-label", "imagenet"])
def test_a_preset_of_encoded_images_says_that_this_one_is_decoded(preset: str, tmp_path: Path) -> None:
    with pytest.raises(SampleError, match="decoded") as caught:
        run(tmp_path, {"jpg": encoded(8, 9), "cls": b"1"}, preset, ops=(Decode("jpg"),))
    assert "encode" in (caught.value.hint or "")


def test_a_preset_that_does_not_exist_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'imagenett'.*image-label, imagenet, imagenet-tensor"):
        run(tmp_path, {"jpg": b""}, "imagenett")


def test_types_are_laid_over_a_preset(tmp_path: Path) -> None:
    path = run(tmp_path, {"jpg": encoded(8, 9), "cls": b"1"}, "image-label", types={"label": "float"})
    assert parsed(path, {**IMAGE_LABEL, "label": tf.io.FixedLenFeature([], tf.float32)})["label"] == 1.0


def test_presets_work_from_the_command_line(tmp_path: Path) -> None:
    command = ["convert", PHOTOS, "-o", tmp_path / "all.record", "--preset", "imagenet-tensor", "--image-size", "16"]
    done = tar2tf(*command, "-j", "2")
    assert done.returncode == 0, done.stderr
    found = load_both(_manifest(tmp_path / "all.record"))
    assert len(found) == 24
    assert {tuple(item["image/encoded"].shape) for item in found} == {(16, 16, 3)}
    assert [int(item["image/class/label"]) for item in found[:6]] == [0, 1, 2, 3, 4, 0]
    wrong = tar2tf("convert", PHOTOS, "-o", tmp_path / "x.record", "--preset", "imagenet-tensro")
    assert wrong.returncode == 2
    assert "imagenet-tensor" in wrong.stderr


def test_more_pixels_than_by_default_reach_the_preset_imagenet(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def decode(data: bytes, channels: int, *, max_pixels: int) -> np.ndarray:
        seen.append(max_pixels)
        return np.zeros((8, 9, 3), np.uint8)

    monkeypatch.setattr("tar2tf_cli.formats.image.codecs.decode", decode)
    sample = {"__key__": "0", "png": encoded(8, 9, "PNG"), "cls": b"1"}
    assert find_preset("imagenet").make(sample, OpContext(max_pixels=2**30))["image/encoded"][:2] == b"\xff\xd8"
    assert seen == [2**30]


@pytest.mark.parametrize(
    ("preset", "select", "name"),
    [
        ("imagenet", "image=jpg,label=cls,caption=txt", "caption"),
        ("detection", "image=jpg,boxes=json:b,label=json:l,score=json:s", "score"),
        ("segmentation", "image=jpg,mask=png,depth=npy", "depth"),
        ("image-label", "image=jpg,label=cls,synset=txt", "synset"),
    ],
)
def test_a_selection_that_a_preset_would_leave_out_is_refused(preset: str, select: str, name: str) -> None:
    with pytest.raises(UsageError, match=f"the preset {preset} would leave out the selected feature '{name}'"):
        Conversion("shards", "x.record", preset=preset, select=select)
