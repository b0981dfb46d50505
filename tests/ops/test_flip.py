"""flip: left to right, always or for a fraction of the images."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tar2tf_cli.errors import UsageError
from tar2tf_cli.ops import OpContext, parse_op
from tar2tf_cli.ops.base import apply_ops

IMAGE = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)


def flipped(key: str, flag: str = "flip:jpg", seed: int = 0) -> np.ndarray:
    (sample,) = apply_ops({"__key__": key, "jpg": IMAGE}, [parse_op(flag)], OpContext(seed=seed))
    return np.asarray(sample["jpg"])


@pytest.mark.parametrize("pixels", [IMAGE, IMAGE[..., :1], IMAGE.astype("f4") / 7, IMAGE[:1], IMAGE[:, :1]])
def test_flip_equals_that_of_tensorflow(pixels: np.ndarray) -> None:
    (sample,) = apply_ops({"__key__": "k", "jpg": pixels}, [parse_op("flip:jpg")], OpContext())
    np.testing.assert_array_equal(sample["jpg"], tf.image.flip_left_right(pixels).numpy())


def test_with_p_that_fraction_of_the_images_is_flipped_by_seed_and_key() -> None:
    mirror = IMAGE[:, ::-1]
    chosen = [np.array_equal(flipped(f"{number}", "flip:jpg,p=0.25"), mirror) for number in range(1000)]
    assert 200 < sum(chosen) < 300
    assert chosen == [np.array_equal(flipped(f"{number}", "flip:jpg,p=0.25"), mirror) for number in range(1000)]
    others = [np.array_equal(flipped(f"{number}", "flip:jpg,p=0.25", seed=1), mirror) for number in range(1000)]
    assert chosen != others
    assert not any(np.array_equal(flipped(f"{number}", "flip:jpg,p=0"), mirror) for number in range(100))


@pytest.mark.parametrize("p", ["2", "-0.1", "nan", "often"])
def test_p_is_a_number_from_0_to_1(p: str) -> None:
    with pytest.raises(UsageError, match="p must be a number from 0 to 1"):
        parse_op(f"flip:jpg,p={p}")
