"""Buckets of small, large and mixed shards for conversions, by name."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from shards import PHOTOS, large_shards, mixed_shards, samples, small_shards, write_tar

MAKERS: dict[str, Callable[[Path], object]] = {
    "small": small_shards,
    "large": large_shards,
    "mixed": mixed_shards,
    "one": lambda folder: write_tar(folder / "one.tar", samples(40, 5000)),
    "photos": lambda folder: shutil.copytree(PHOTOS, folder, ignore=shutil.ignore_patterns("[!p]*")),
}
