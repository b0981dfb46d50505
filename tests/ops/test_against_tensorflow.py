"""Ops through the real conversion, with TensorFlow as the oracle; one meaning for flag, spec file and Python class."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from op_cases import IMAGES, D, cropped, decoded, encoded, loaded, run
from shards import tree, write_tar
from tar2tf_cli import load_dataset
from tar2tf_cli.conversion.run import convert
from tar2tf_cli.ops import (
    Cast,
    CenterCrop,
    Convert,
    Crop,
    Decode,
    Encode,
    Keep,
    Op,
    OpContext,
    Orient,
    Pad,
    Rename,
    Resize,
    Rotate,
    parse_op,
)
from tar2tf_cli.ops.base import apply_ops
from tar2tf_cli.spec.conversion import Conversion, Input, Output

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


# --- Each op and chains of them, against TensorFlow ---


def turned(image: tf.Tensor) -> tf.Tensor:
    return tf.image.rot90(image, 3)


TO = tf.image.convert_image_dtype
BY = tf.image.resize
CHAINS: dict[str, tuple[Sequence[Op], Callable[[bytes], tf.Tensor], float]] = {
    "decode": ([D], decoded, 0),
    **{
        f"convert to {dtype}": ([D, Convert("jpg", dtype)], lambda b, dtype=dtype: TO(decoded(b), dtype), 0)
        for dtype in ("uint8", "float16", "float32", "uint16", "int16", "int32", "int64")
    },
    "resize up and down": ([D, Resize("jpg", (28, 36))], lambda b: BY(decoded(b), (28, 36)), 0.01),
    "resize of floats": (
        [D, Convert("jpg", "float32"), Resize("jpg", (20, 20))],
        lambda b: BY(TO(decoded(b), tf.float32), (20, 20)),
        0.01 / 255,
    ),
    "the original's defaults": (
        [D, Convert("jpg", "float32"), Resize("jpg", (224, 224))],
        lambda b: BY(TO(decoded(b), tf.float32), (224, 224)),
        0.01 / 255,
    ),
    "resize, cast": ([D, Resize("jpg", (20, 30)), Cast("jpg", "uint8")], lambda b: BY(decoded(b), (20, 30)), 1.01),
    "pad": ([D, Pad("jpg", (40, 50))], lambda b: tf.image.resize_with_pad(decoded(b), 40, 50), 0.01),
    "crop": ([D, Crop("jpg", (30, 40))], lambda b: tf.image.resize_with_crop_or_pad(decoded(b), 30, 40), 0),
    "cast to int8": ([D, Cast("jpg", "int8")], lambda b: tf.saturate_cast(decoded(b), tf.int8), 0),
    "cast to float32": ([D, Cast("jpg", "float32")], lambda b: tf.saturate_cast(decoded(b), tf.float32), 0),
    "cast to int32": ([D, Cast("jpg", "int32")], lambda b: tf.saturate_cast(decoded(b), tf.int32), 0),
    "rotate by 90": ([D, Rotate("jpg", 90)], lambda b: turned(decoded(b)), 0),
    "rotate by -90": ([D, Rotate("jpg", -90)], lambda b: tf.image.rot90(decoded(b), 1), 0),
    "rotate by 180": ([D, Rotate("jpg", 180)], lambda b: tf.image.rot90(decoded(b), 2), 0),
    "rotate by 360": ([D, Rotate("jpg", 360)], decoded, 0),
    "center_crop": ([D, CenterCrop("jpg")], lambda b: cropped(decoded(b)), 0),
    "all of them": (
        [D, CenterCrop("jpg"), Rotate("jpg", 90), Resize("jpg", (18, 18)), Convert("jpg", "float16")],
        lambda b: tf.cast(BY(turned(cropped(decoded(b))), (18, 18)), tf.float16),
        0.13,  # half a unit of the last place of float16 below 256
    ),
    "encode to png": (
        [D, Encode("jpg", "png"), D, Rotate("jpg", 90)],
        lambda b: turned(decoded(tf.io.encode_png(decoded(b)))),
        0,
    ),
    "encode to jpeg": (
        [D, Encode("jpg", "jpeg", 80), D],
        lambda b: decoded(tf.io.encode_jpeg(decoded(b), quality=80, chroma_downsampling=True)),
        0,
    ),
    "an order": (
        [D, Resize("jpg", (11, 13)), Rotate("jpg", 90), Resize("jpg", (20, 20))],
        lambda b: BY(turned(BY(decoded(b), (11, 13))), (20, 20)),
        0.02,
    ),
}


@pytest.mark.parametrize("chain", CHAINS)
def test_ops_in_a_conversion_do_what_tensorflow_does(chain: str, bucket: Path, tmp_path: Path) -> None:
    ops, oracle, tolerance = CHAINS[chain]
    found = loaded(bucket, tmp_path, *ops)
    assert [item["__key__"].numpy().decode() for item in found] == list(IMAGES)
    for item, data in zip(found, IMAGES.values(), strict=True):
        expected = oracle(data)
        image = item["jpg"]
        assert image.shape == expected.shape
        if chain != "resize, cast":
            assert image.dtype == expected.dtype
        if tolerance:
            assert np.abs(image.numpy().astype("f8") - expected.numpy().astype("f8")).max() <= tolerance
        else:
            np.testing.assert_array_equal(image, expected)


def test_a_cast_of_what_was_resized_saturates_and_truncates(bucket: Path, tmp_path: Path) -> None:
    found = loaded(bucket, tmp_path, Decode("jpg"), Resize("jpg", (50, 60)), Cast("jpg", "uint8"))
    apart = []
    for item, data in zip(found, IMAGES.values(), strict=True):
        assert item["jpg"].dtype == tf.uint8
        expected = tf.saturate_cast(BY(decoded(data), (50, 60)), tf.uint8)
        apart.append(np.abs(item["jpg"].numpy().astype(int) - expected.numpy().astype(int)))
    assert max(part.max() for part in apart) <= 1
    assert np.mean([part.mean() for part in apart]) < 0.003  # where a whole number lies within the tolerance of resize


def test_float64_pixels_come_back_in_double_precision(bucket: Path, tmp_path: Path) -> None:
    found = loaded(bucket, tmp_path, Decode("jpg"), Convert("jpg", "float64"))
    for item, data in zip(found, IMAGES.values(), strict=True):
        np.testing.assert_array_equal(item["jpg"], TO(decoded(data), tf.float64))


@pytest.mark.parametrize("format", ["PNG", "BMP"])
@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA"])
def test_png_and_bmp_are_decoded_whatever_they_are_called(format: str, mode: str, tmp_path: Path) -> None:
    data = encoded((20, 31), format, mode)
    write_tar(tmp_path / "in" / "a.tar", [("0001", {"jpg": data})])
    (item,) = loaded(tmp_path / "in", tmp_path / "out", Decode("jpg"))
    np.testing.assert_array_equal(item["jpg"], decoded(data))


@pytest.mark.parametrize(
    "chain",
    [
        [D, Rotate("jpg"), Resize("jpg", (32, 32)), Cast("jpg", "uint8")],
        [D, CenterCrop("jpg"), Encode("jpg", "jpeg"), Rename(image="jpg"), Keep("image")],
        [D, Convert("jpg", "float32")],
        [
            Orient("jpg"),
            Crop("jpg", 20, "random"),
            Pad("jpg", 30, 9, "lanczos3"),
            Resize("jpg", short=7, method="area"),
        ],
    ],
    ids=["random", "encode", "floats", "sizes"],
)
def test_any_number_of_workers_gives_the_same_bytes(chain: list[Op], bucket: Path, tmp_path: Path) -> None:
    outputs = []
    for workers in (1, 2):
        run(bucket, tmp_path / str(workers), *chain, workers=workers)
        outputs.append(tree(tmp_path / str(workers)))
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) == 2


def test_random_angles_differ_by_key_and_by_seed(bucket: Path, tmp_path: Path) -> None:
    def images(folder: str, *ops: Op, **options: Any) -> list[np.ndarray]:
        return [item["jpg"].numpy() for item in loaded(bucket, tmp_path / folder, D, *ops, **options)]

    plain, zero, one = images("plain"), images("0", Rotate("jpg")), images("1", Rotate("jpg"), seed=1)
    assert all(not np.array_equal(a, b) for a, b in zip(plain, zero, strict=True))
    assert all(not np.array_equal(a, b) for a, b in zip(zero, one, strict=True))
    again = images("again", Rotate("jpg", 0))
    assert all(np.array_equal(a, b) for a, b in zip(zero, again, strict=True))


def test_a_random_angle_does_not_depend_on_the_samples_before(bucket: Path, tmp_path: Path) -> None:
    all_of_them = loaded(bucket, tmp_path / "all", D, Rotate("jpg"))
    output = Output(str(tmp_path / "b" / "all.record"))
    summary = convert(Conversion(Input(str(bucket), ("b.tar",)), output, ops=(D, Rotate("jpg"))), workers=1)
    for one, other in zip(all_of_them[3:], load_dataset(summary.manifest), strict=True):
        np.testing.assert_array_equal(one["jpg"], other["jpg"])


@pytest.mark.parametrize(
    ("op", "oracle"),
    [
        ("resize:png,20x31,method=nearest", lambda image: BY(image, (20, 31), "nearest")),
        ("resize:png,20x31,lanczos3,antialias=true", lambda image: BY(image, (20, 31), "lanczos3", antialias=True)),
        ("resize:png,long=48", lambda image: BY(image, (48, 48), preserve_aspect_ratio=True)),
        ("resize:png,short=24", lambda image: BY(image, (24, 32))),
        ("resize:png,short=24,only_if=larger", lambda image: BY(image, (24, 32))),
        ("resize:png,short=24,only_if=smaller", lambda image: tf.cast(image, tf.float32)),
        ("resize:png,99,only_if=larger", lambda image: tf.cast(image, tf.float32)),
        ("resize:png,60x80,gaussian,only_if=larger", lambda image: tf.cast(image, tf.float32)),
        ("resize:png,60x80,gaussian", lambda image: BY(image, (60, 80), "gaussian")),
    ],
)
def test_a_resize_by_method_or_side_is_that_of_tensorflow(op: str, oracle: Callable[[tf.Tensor], tf.Tensor]) -> None:
    data = encoded((60, 80), "PNG")
    sample = next(apply_ops({"__key__": "k", "png": data}, [parse_op("decode:png"), parse_op(op)], OpContext()))
    theirs = oracle(decoded(data)).numpy()
    assert sample["png"].dtype == theirs.dtype
    np.testing.assert_allclose(sample["png"], theirs, rtol=0, atol=0 if "nearest" in op else 0.01)
