"""Fixtures of this room."""

from __future__ import annotations

import json

import pytest

from jpeg_shards import IMAGES
from shards import write_tar


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Three shards, one of them gzipped, of images of different sizes with class and JSON."""
    folder = tmp_path_factory.mktemp("bucket")
    found = []
    for number, image in enumerate(IMAGES):
        about = {"annotations": [{"label": number * 10}], "box": [number, 0.5], "name": f"n{number}"}
        found.append(
            (f"{number:04d}", {"jpg": image, "cls": b"%d\n" % (number % 5), "json": json.dumps(about).encode()})
        )
    for shard, name in enumerate(("train-0.tar", "train-1.tar", "train-2.tar.gz")):
        write_tar(folder / name, found[shard * 8 : shard * 8 + 8])
    return str(folder)
