"""Memory of decoded images that is used again."""

from __future__ import annotations

import importlib.util
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from images import (
    jpeg,
)
from tar2tf_cli.formats.image import decode, resize
from tar2tf_cli.formats.image import pixels as buffers
from tar2tf_cli.formats.image.pixels import buffer


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """No memory of the images of other tests."""
    monkeypatch.setattr(buffers, "kept_blocks", buffers.KeptBlocks())


# --- Memory that is used again ---


def test_memory_of_an_array_is_used_again_only_when_nobody_holds_it() -> None:
    first = buffer((20, 30, 3), "uint8")
    place = first.ctypes.data
    first[...] = 7
    part = first[5:, ::2, 1].T
    del first
    second = buffer((20, 30, 3), "uint8")
    second[...] = 9
    assert not np.shares_memory(part, second)
    assert (part == 7).all()
    del part
    third = buffer((10, 12, 3), "float32")
    assert third.ctypes.data == place
    assert third.dtype == np.float32
    assert not np.shares_memory(second, third)


def test_images_that_are_kept_stay_as_they_were_decoded() -> None:
    encoded = [jpeg(np.full((40, 60, 3), level, np.uint8)) for level in range(0, 250, 10)]
    images = [decode(data) for data in encoded]
    resized = [resize(image, 20, 30) for image in images]
    for data, image, small in zip(encoded, images, resized, strict=True):
        assert (decode(data) == image).all()
        assert (resize(image, 20, 30) == small).all()


def test_where_references_are_not_counted_exactly_no_memory_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first = buffer((70, 30, 3), "uint8")
    kept = len(buffers.kept_blocks.blocks)
    monkeypatch.setattr(buffers, "COUNTED", False)
    place = first.ctypes.data
    del first
    assert buffer((70, 30, 3), "uint8").shape == (70, 30, 3)
    assert all(buffer((70, 30, 3), "uint8").ctypes.data != place for _ in range(3))
    assert len(buffers.kept_blocks.blocks) == kept


@pytest.mark.parametrize(("answer", "counted"), [(None, True), (True, True), (False, False)])
def test_references_are_counted_under_a_gil_alone(
    answer: bool | None, counted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(sys, "_is_gil_enabled", raising=False)
    if answer is not None:
        monkeypatch.setattr(sys, "_is_gil_enabled", lambda: answer, raising=False)
    fresh = importlib.util.find_spec(buffers.__name__)
    assert fresh
    assert fresh.loader
    module = importlib.util.module_from_spec(fresh)
    fresh.loader.exec_module(module)
    assert module.COUNTED is counted


def test_each_thread_has_memory_of_its_own() -> None:
    held = buffer((64, 64, 3), "uint8")
    place = held.ctypes.data
    del held
    with ThreadPoolExecutor(1) as threads:
        other = threads.submit(buffer, (64, 64, 3), "uint8").result()
    assert other.ctypes.data != place


def test_memory_that_is_kept_is_bounded() -> None:
    for side in range(1000, 2000, 100):
        buffer((side, side, 3), "float32")
    assert sum(block.size for block in buffers.kept_blocks.blocks) <= 32 << 20
    huge = buffer((4000, 4000, 3), "uint8")
    place = huge.ctypes.data
    del huge
    assert all(block.ctypes.data != place for block in buffers.kept_blocks.blocks)
