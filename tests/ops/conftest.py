"""Fixtures of this room."""

from __future__ import annotations

from pathlib import Path

import pytest

from shards import write_tar


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two shards of JPEGs of different sizes, one of them gray, with a class each."""
    from op_cases import IMAGES  # and TensorFlow with it

    folder = tmp_path_factory.mktemp("images")
    found = [(key, {"jpg": data, "cls": key[-1:].encode()}) for key, data in IMAGES.items()]
    write_tar(folder / "a.tar", found[:3])
    write_tar(folder / "b.tar", found[3:])
    return folder
