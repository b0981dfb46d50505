"""`tar2tf verify --decode`: images and arrays that cannot be decoded are found inside whole records and tars."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from checked import a_tar, an_example, check, framed, kinds, write
from tar2tf_cli.checking.decode import in_threads

PIXELS = np.random.default_rng(0).integers(0, 255, (40, 50, 3), np.uint8)
JPEG, PNG = tf.io.encode_jpeg(PIXELS).numpy(), tf.io.encode_png(PIXELS).numpy()


def an_array(**options: object) -> bytes:
    file = io.BytesIO()
    np.save(file, np.arange(9.0), **options)
    return file.getvalue()


WHOLE = {"jpg": JPEG, "png": PNG, "npy": an_array(), "text": b"BMW and other words"}
HALVES = {name: data[: len(data) // 2] for name, data in WHOLE.items()}


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("name", ["jpg", "png", "npy"])
def test_half_an_image_or_array_inside_a_whole_record_is_found(tmp_path: Path, name: str, workers: int) -> None:
    records = [an_example(**WHOLE, n=n) for n in range(30)]
    records[17] = an_example(**{**WHOLE, name: HALVES[name]}, n=17)
    path = write(tmp_path / "x", framed(*records))
    assert not check(path).faults
    found = check(path, decode=True)
    ((fault),) = found.faults
    assert (fault.kind, fault.record, fault.offset) == ("undecodable", 17, len(framed(*records[:17])))
    assert f"'{name}' cannot be decoded: " in fault.message
    assert (found.records, found.good.records) == (30, 29)


@pytest.mark.parametrize("data", [b"", b"\0" * 500, HALVES["png"][5:]])
def test_bytes_that_are_no_image_are_found_among_images(tmp_path: Path, data: bytes) -> None:
    records = [an_example(**{"image/encoded": JPEG}), an_example(**{"image/encoded": data})]
    found = check(write(tmp_path / "x", framed(*records)), decode=True)
    assert [(fault.kind, fault.record) for fault in found.faults] == [("undecodable", 1)]


def test_what_is_neither_image_nor_array_is_left_alone(tmp_path: Path) -> None:
    values = [b"BMW", b"BM", b"GIF", b"\xff\xd8", b"words", b"", JPEG]
    records = [an_example(caption=value, raw=bytes(700), pickled=an_array()) for value in values]
    assert not check(write(tmp_path / "x", framed(*records)), decode=True).faults


def test_images_of_a_tar_are_decoded(tmp_path: Path) -> None:
    members = [(f"{n}.{name}", data) for n in range(5) for name, data in WHOLE.items()]
    members[8] = ("2.jpg", HALVES["jpg"])
    path = write(tmp_path / "x.tar", a_tar(members))
    assert not check(path).faults
    found = check(path, decode=True)
    assert (kinds(found), found.records) == (["undecodable"], 5)
    assert found.faults[0].message.startswith("sample 2: 'jpg' cannot be decoded")


def test_damage_is_found_with_and_without_decoding(tmp_path: Path) -> None:
    data = bytearray(framed(*[an_example(jpg=JPEG, n=n) for n in range(20)]))
    data[-30] ^= 1
    data[2] ^= 1
    path = write(tmp_path / "x.record", bytes(data[:-10]))
    plain, decoded = check(path), check(path, decode=True)
    assert plain == decoded
    assert kinds(plain) == ["length_crc", "truncated"]


def test_items_read_before_an_error_are_judged_first() -> None:
    def items() -> Iterator[int]:
        yield from range(50)
        raise ValueError("the end")

    seen = []
    with pytest.raises(ValueError, match="the end"):  # noqa: PT012 - what comes before it matters
        for item, faults in in_threads(items(), lambda number: [("kind", str(number))], 3):
            seen.append(item)
            assert faults == [("kind", str(item))]
    assert seen == list(range(50))
