"""TensorFlow trains from what `tar2tf convert` makes of the sample shards: what all of this is for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import convert
from shards import PHOTOS, shards_in

pytestmark = [pytest.mark.spread, pytest.mark.on_disk]


def test_keras_learns_the_classes_of_the_sample_photos(tmp_path: Path) -> None:
    convert(PHOTOS, "-o", tmp_path / "photos-<>.record", "--max-shard-size", "60kB", "--type", "cls=int64")
    shards = [str(path) for path in shards_in(tmp_path)]
    assert len(shards) > 2

    import tensorflow as tf

    tf.keras.utils.set_random_seed(1)
    description = {"jpg": tf.io.FixedLenFeature([], tf.string), "cls": tf.io.FixedLenFeature([], tf.int64)}

    def parse(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        example = tf.io.parse_single_example(record, description)
        image = tf.io.decode_jpeg(example["jpg"], channels=3)
        return tf.image.resize(image, [24, 24]) / 255.0, example["cls"]

    count = json.loads((tmp_path / "_photos-manifest.json").read_bytes())["totals"]["records"]
    samples = tf.data.TFRecordDataset(shards).map(parse, num_parallel_calls=2).cache()
    samples = samples.apply(tf.data.experimental.assert_cardinality(count))
    assert sorted(int(label) for _, label in samples) == [0] * 5 + [1] * 5 + [2] * 5 + [3] * 5 + [4] * 4

    model = tf.keras.Sequential(
        [
            tf.keras.Input([24, 24, 3]),
            tf.keras.layers.Conv2D(8, 3, strides=2, activation="relu"),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(32, activation="relu"),
            tf.keras.layers.Dense(5),
        ]
    )
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.Adam(0.005), loss, metrics=["accuracy"])
    history = model.fit(samples.shuffle(24, seed=1).batch(8), epochs=40, shuffle=False, verbose=0).history
    assert history["loss"][-1] < history["loss"][0] / 4
    assert model.evaluate(samples.batch(24), verbose=0, return_dict=True)["accuracy"] > 0.9
