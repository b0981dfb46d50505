"""Small images, and `inspect` run on one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tar2tf_cli.checking.contents import Contents
from tar2tf_cli.checking.inspect import inspect


def a_png(height: int = 3, width: int = 5, channels: int = 3) -> bytes:
    return bytes(tf.io.encode_png(np.zeros((height, width, channels), np.uint8)).numpy())


def a_jpeg(height: int = 8, width: int = 16) -> bytes:
    return bytes(tf.io.encode_jpeg(np.zeros((height, width, 3), np.uint8)).numpy())


def look_into(path: Path, **options: Any) -> Contents:
    return inspect(str(path), workers=1, **options)
