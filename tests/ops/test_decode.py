"""What `decode` and `orient` make of images, sound and arrays, through the real conversion and back."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import PIL.ImageOps
import pytest
import soundfile
import tensorflow as tf

from commands import tar2tf
from images import photo, png
from op_cases import IMAGES, encoded, loaded
from shards import write_tar
from tar2tf_cli import load_dataset, open_records
from tar2tf_cli.errors import SampleError
from tar2tf_cli.ops import Decode, OpContext, Orient, Rename, parse_op
from tar2tf_cli.ops.annotations import Boxes, Geometry
from tar2tf_cli.ops.base import apply_ops
from tar2tf_cli.ops.geometry import follow_image

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def sound(format: str, samples: np.ndarray, rate: int = 16000) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=format)
    return file.getvalue()


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def result(op: str, **entries: Any) -> dict[str, Any]:
    (sample,) = apply_ops({"__key__": "k", **entries}, [parse_op(op)], OpContext())
    return sample


@pytest.mark.parametrize("format", ["wav", "flac"])
def test_sound_becomes_samples_and_their_rate(format: str, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(-32768, 32767, (500, 2), np.int16)
    write_tar(tmp_path / "in" / "a.tar", [("0001", {format: sound(format.upper(), noise), "cls": b"1"})])
    (item,) = loaded(tmp_path / "in", tmp_path / "out", Decode(format))
    expected = tf.audio.decode_wav(sound("WAV", noise))
    assert item[format].dtype == tf.float32
    np.testing.assert_array_equal(item[format], expected.audio)
    assert int(item[f"{format}/sample_rate"]) == int(expected.sample_rate)


def test_selections_take_the_parts_of_what_was_decoded(tmp_path: Path) -> None:
    entries = {"wav": sound("WAV", np.zeros((5, 1), np.int16)), "npz": npz(x=np.arange(3.0), y=np.array([[1, 2]]))}
    write_tar(tmp_path / "a.tar", [("0001", entries)])
    out = tmp_path / "x.record"
    ops = ("--op", "decode:wav", "--op", "decode:npz", "--select", "audio=wav,rate=wav/sample_rate,x=npz/x,y=npz/y")
    assert tar2tf("convert", tmp_path / "a.tar", "-o", out, *ops).returncode == 0
    (item,) = load_dataset(str(tmp_path / "_x-manifest.json"))
    assert set(item) == {"audio", "rate", "x", "y"}
    record = open_records(str(tmp_path / "_x-manifest.json"))[0]
    for name, value in {"audio": np.zeros((5, 1), "f4"), "rate": 16000, "x": np.arange(3.0), "y": [[1, 2]]}.items():
        np.testing.assert_array_equal(item[name], value)
        np.testing.assert_array_equal(record[name], value)
    assert record["x"].dtype == np.float64


def test_each_array_of_an_npz_is_an_entry_and_the_file_is_none() -> None:
    sample = result("decode:left.npz", **{"left.npz": npz(x=np.arange(3), shape=np.array(7))})
    assert list(sample) == ["__key__", "left.npz/x", "left.npz/shape"]


def test_a_gif_has_frames_and_a_webp_one_image() -> None:
    gif, webp = encoded((9, 8), "GIF", "P"), encoded((9, 8), "WEBP")
    np.testing.assert_array_equal(result("decode:gif", gif=gif)["gif"], tf.io.decode_gif(gif))
    np.testing.assert_array_equal(result("decode:gif,3", gif=gif)["gif"], tf.io.decode_gif(gif))
    np.testing.assert_array_equal(result("decode:webp", webp=webp)["webp"], tf.io.decode_webp(webp)[0])
    for op in ("decode:gif,1", "decode:gif,dtype=uint16"):
        with pytest.raises(SampleError, match="frames are decoded to uint8 of 3 channels"):
            result(op, gif=gif)


def test_a_depth_map_keeps_its_16_bits_through_a_conversion(tmp_path: Path) -> None:
    data = png(0, 16)
    write_tar(tmp_path / "in" / "a.tar", [("0001", {"depth.png": data})])
    (item,) = loaded(tmp_path / "in", tmp_path / "out", Decode("depth.png", dtype="uint16"))
    assert item["depth.png"].dtype == tf.uint16
    np.testing.assert_array_equal(item["depth.png"], tf.io.decode_png(data, dtype=tf.uint16))


@pytest.mark.parametrize("op", ["decode:x,3", "decode:x,dtype=uint16"])
@pytest.mark.parametrize("data", [npz(a=np.zeros(3)), sound("WAV", np.zeros((5, 1), np.int16))])
def test_only_an_image_can_be_given_channels_or_a_dtype(op: str, data: bytes) -> None:
    with pytest.raises(SampleError, match=r"it is (npz|audio/wav), but channels and dtype are only"):
        result(op, x=data)


# --- Orientation ---


def turned(orientation: int, format: str = "PNG") -> bytes:
    file, exif = io.BytesIO(), PIL.Image.Exif()
    exif[0x0112] = orientation
    PIL.Image.fromarray(photo(20, 30)).save(file, format, exif=exif)
    return file.getvalue()


def test_images_are_turned_as_exif_says(tmp_path: Path) -> None:
    images = {f"{orientation:04d}": turned(orientation) for orientation in range(1, 9)}
    write_tar(tmp_path / "in" / "a.tar", [(key, {"png": data}) for key, data in images.items()])
    found = loaded(tmp_path / "in", tmp_path / "out", Rename(image="png"), Orient("image", 3))
    for item, data in zip(found, images.values(), strict=True):
        expected = PIL.ImageOps.exif_transpose(PIL.Image.open(io.BytesIO(data)))
        np.testing.assert_array_equal(item["image"], np.array(expected))


def test_orient_takes_the_place_of_decode() -> None:
    pixels = result("decode:jpg", jpg=turned(6, "JPEG"))
    with pytest.raises(SampleError, match="drops its EXIF orientation") as caught:
        result("orient:jpg", jpg=pixels["jpg"])
    assert caught.value.hint == "write orient:jpg instead of decode:jpg"
    upright = result("orient:jpg", jpg=turned(6, "JPEG"))["jpg"]
    np.testing.assert_array_equal(upright, np.rot90(pixels["jpg"], -1))
    with pytest.raises(SampleError, match="orient: not an image"):
        result("orient:npy", npy=npz(x=np.zeros(3)))
    with pytest.raises(SampleError, match="has no entry 'png'"):
        result("orient:png", jpg=b"")


def test_a_glob_decodes_each_entry_that_matches_and_other_ops_follow() -> None:
    sample = {"__key__": "a", **{f"frame{number}.jpg": IMAGES["0000"] for number in (2, 10, 1)}, "cls": b"1"}
    ops = [parse_op("decode:frame*.jpg"), parse_op("resize:*.jpg,5x7"), parse_op("flip:*.jpg")]
    (made,) = apply_ops(sample, ops, OpContext())
    alone = [parse_op(op) for op in ("decode:jpg", "resize:jpg,5x7", "flip:jpg")]
    (single,) = apply_ops({"__key__": "a", "jpg": IMAGES["0000"]}, alone, OpContext())
    for number in (1, 2, 10):
        np.testing.assert_array_equal(made[f"frame{number}.jpg"], single["jpg"])
    with pytest.raises(SampleError, match=r"has no entry '\*.png'"):
        [*apply_ops({"__key__": "a", "jpg": b""}, [parse_op("decode:*.png")], OpContext())]


@pytest.mark.parametrize("ratio", [2, 4, 8])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_a_reduced_jpeg_has_the_pixels_of_tensorflow(ratio: int, mode: str) -> None:
    for size in ((64, 48), (65, 47), (100, 33), (17, 16)):
        data = encoded(size, mode=mode)
        theirs = tf.io.decode_jpeg(data, ratio=ratio).numpy()
        at_least = "x".join(map(str, theirs.shape[:2]))
        (made,) = apply_ops({"__key__": "a", "jpg": data}, [parse_op(f"decode:jpg,at_least={at_least}")], OpContext())
        np.testing.assert_array_equal(made["jpg"], theirs)


def test_a_jpeg_keeps_at_least_the_size_that_is_asked_for() -> None:
    data = encoded((64, 48))
    whole, half, eighth = (64, 48), (32, 24), (8, 6)
    for asked, expected in (("65x1", whole), ("64x48", whole), ("33x1", whole), ("32x24", half), ("1x1", eighth)):
        (made,) = apply_ops({"__key__": "a", "jpg": data}, [parse_op(f"decode:jpg,at_least={asked}")], OpContext())
        assert made["jpg"].shape[:2] == expected


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_the_indices_of_a_palette_are_those_of_pillow(bits: int) -> None:
    indices = np.random.default_rng(bits).integers(0, 1 << bits, (13, 21), np.uint8)
    stored = PIL.Image.fromarray(indices, "P")
    stored.putpalette([*range(256)] * 3)
    file = io.BytesIO()
    stored.save(file, "PNG", bits=bits)
    (made,) = apply_ops({"__key__": "a", "seg.png": file.getvalue()}, [parse_op("decode:seg.png,indices")], OpContext())
    np.testing.assert_array_equal(made["seg.png"][..., 0], np.array(PIL.Image.open(io.BytesIO(file.getvalue()))))


# --- What is stored next to an image ---


def sizes(op: str, data: bytes, **known: Any) -> dict[str, Any]:
    """The pixels' shape and the entries next to an image after an op, with boxes that follow the image."""
    boxes = np.array([[10, 5, 10, 10]], "f8")
    sample = {"__key__": "k", "jpg": data, "boxes": boxes, **{f"jpg/{name}": value for name, value in known.items()}}
    (made,) = apply_ops(sample, follow_image([parse_op(op)], Geometry((Boxes("boxes"),))), OpContext())
    return {name.removeprefix("jpg/"): getattr(made[name], "tolist", lambda name=name: made[name])() for name in made
            if name not in ("jpg", "__key__")} | {"is": made["jpg"].shape}  # fmt: skip


def as_jpeg(data: bytes, orientation: int, width: int = 64) -> bytes:
    file, exif = io.BytesIO(), PIL.Image.Exif()
    exif[0x0112] = orientation
    PIL.Image.open(io.BytesIO(data)).resize((width, 40)).save(file, "JPEG", exif=exif)
    return file.getvalue()


@pytest.mark.parametrize(
    ("op", "data", "known", "made"),
    [
        ("decode:jpg", turned(1), {"channels": 3}, {"channels": 3, "boxes": [[10, 5, 10, 10]], "is": (20, 30, 3)}),
        ("decode:jpg,1", turned(1), {"channels": 3}, {"channels": 1, "boxes": [[10, 5, 10, 10]], "is": (20, 30, 1)}),
        (
            "decode:jpg,1",
            turned(1),
            {"shape": [20, 30, 3], "height": 20},
            {"shape": [20, 30, 1], "height": 20, "boxes": [[10, 5, 10, 10]], "is": (20, 30, 1)},
        ),
        (
            "decode:jpg,at_least=5x5",  # which only a JPEG can be
            turned(1),
            {"height": 20},
            {"height": 20, "boxes": [[10, 5, 10, 10]], "is": (20, 30, 3)},
        ),
        (
            "decode:jpg,at_least=20x32",
            as_jpeg(turned(1), 1),
            {"height": 40, "width": 64},
            {"height": 20, "width": 32, "boxes": [[5, 2.5, 5, 5]], "is": (20, 32, 3)},
        ),
        (
            "decode:jpg,at_least=21x32",
            as_jpeg(turned(1), 1),
            {"height": 40, "width": 64},
            {"height": 40, "width": 64, "boxes": [[10, 5, 10, 10]], "is": (40, 64, 3)},
        ),
        (
            "orient:jpg",
            turned(6),
            {"height": 20, "width": 30},
            {"height": 30, "width": 20, "boxes": [[5, 10, 10, 10]], "is": (30, 20, 3)},
        ),
        (
            "orient:jpg,at_least=20x20",
            as_jpeg(turned(1), 6),
            {"height": 40, "width": 64},
            {"height": 32, "width": 20, "boxes": [[12.5, 5, 5, 5]], "is": (32, 20, 3)},
        ),
        (
            "orient:jpg,at_least=20x20",
            as_jpeg(turned(1), 3),
            {"height": 40, "width": 64},
            {"height": 20, "width": 32, "boxes": [[22, 12.5, 5, 5]], "is": (20, 32, 3)},
        ),
        (
            "orient:jpg,at_least=20x20",
            as_jpeg(turned(1), 8),
            {"height": 40, "width": 64},
            {"height": 32, "width": 20, "boxes": [[2.5, 22, 5, 5]], "is": (32, 20, 3)},
        ),
        (
            "orient:jpg,at_least=20x10",
            as_jpeg(turned(1), 6, 21),  # of which 11 columns remain: the two factors differ
            {"width": 21},
            {"width": 20, "boxes": [[12.5, 10 * 11 / 21, 5, 10 * 11 / 21]], "is": (11, 20, 3)},
        ),
    ],
)
def test_sizes_and_boxes_are_those_of_the_decoded_image(
    op: str, data: bytes, known: dict[str, Any], made: dict[str, Any]
) -> None:
    found = sizes(op, data, **known)
    assert found == {**made, "boxes": [pytest.approx(made["boxes"][0])]}
