"""`tar2tf verify --decode`: images and arrays that cannot be decoded are found inside whole records and tars."""

from __future__ import annotations

import io
import struct
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import soundfile
import tensorflow as tf
from PIL import Image
from skimage import data

from shards import write_tar
from tar2tf_cli import Conversion, convert, verify
from verify_runs import Ran, a_tar, an_example, check, framed, kinds, write

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


def test_a_progressive_jpeg_without_its_later_scans_is_found(tmp_path: Path) -> None:
    file = io.BytesIO()
    Image.fromarray(PIXELS).save(file, "JPEG", progressive=True)
    whole = file.getvalue()
    half = whole[: whole.rindex(b"\xff\xc4")] + b"\xff\xd9"
    tf.io.decode_jpeg(half)
    path = write(tmp_path / "x", framed(an_example(jpg=whole), an_example(jpg=half), an_example(jpg=JPEG)))
    (fault,) = check(path, decode=True).faults
    assert (fault.record, "without its later scans" in fault.message) == (1, True)


def test_images_of_a_tar_are_decoded(tmp_path: Path) -> None:
    members = [(f"{n}.{name}", data) for n in range(5) for name, data in WHOLE.items()]
    members[8] = ("2.jpg", HALVES["jpg"])
    path = write(tmp_path / "x.tar", a_tar(members))
    assert not check(path).faults
    found = check(path, decode=True)
    assert (kinds(found), found.records) == (["undecodable"], 5)
    assert found.faults[0].message.startswith("sample 2: 'jpg' cannot be decoded")


@pytest.mark.parametrize("suffix", ["tar", "record"])
def test_each_faulty_entry_of_a_sample_is_named(suffix: str, tmp_path: Path) -> None:
    entries = {"jpg": HALVES["jpg"], "npy": b"\x00\x01\x02", "png": PNG}
    write_tar(tmp_path / "a.tar", [(str(number), entries) for number in range(3)])
    convert(Conversion(str(tmp_path / "a.tar"), str(tmp_path / "a.record")), workers=1)
    (file,) = verify(tmp_path / f"a.{suffix}", decode=True, workers=1).files
    named = [fault.message.split("'")[1] for fault in file.faults]
    assert (sorted(named), {fault.kind for fault in file.faults}) == (["jpg"] * 3 + ["npy"] * 3, {"undecodable"})
    assert not file.not_decoded


def test_damage_is_found_with_and_without_decoding(tmp_path: Path) -> None:
    data = bytearray(framed(*[an_example(jpg=JPEG, n=n) for n in range(20)]))
    data[-30] ^= 1
    data[2] ^= 1
    path = write(tmp_path / "x.record", bytes(data[:-10]))
    plain, decoded = check(path), check(path, decode=True)
    assert plain == decoded
    assert kinds(plain) == ["length_crc", "truncated"]


# --- Formats ---


def saved(kind: str, pixels: np.ndarray = PIXELS, **options: object) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue()


FRAMES = [Image.fromarray(PIXELS[..., channel]) for channel in range(3)]
OTHERS = {
    "gif": lambda: saved("GIF"),
    "gif, one colour": lambda: saved("GIF", PIXELS[:1, :1]),
    "gif, interlaced": lambda: saved("GIF", PIXELS[..., 0], interlace=1),
    "gif, frames": lambda: saved("GIF", PIXELS[..., 0], save_all=True, append_images=FRAMES),
    "gif, photograph": lambda: saved("GIF", data.astronaut()),
    "webp": lambda: saved("WEBP"),
    "webp, lossless": lambda: saved("WEBP", lossless=True),
    "tiff": lambda: saved("TIFF"),
    "tiff, gray": lambda: saved("TIFF", PIXELS[..., 0]),
    "tiff, lzw": lambda: saved("TIFF", compression="tiff_lzw"),
    "tiff, deflate": lambda: saved("TIFF", data.astronaut(), compression="tiff_adobe_deflate"),
    "tiff, pages": lambda: saved("TIFF", save_all=True, append_images=FRAMES),
}


@cache
def other(name: str) -> bytes:
    """An image, made when it is first wanted."""
    return OTHERS[name]()


@pytest.mark.parametrize("name", OTHERS)
def test_gif_webp_and_tiff_are_whole_or_cut_short(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    whole = other(name)
    cuts = [whole[: len(whole) * part // 9] for part in range(3, 9)]
    path = write(tmp_path / "x", framed(*[an_example(image=value) for value in (whole, *cuts, whole)]))
    found = check(path, decode=True)
    assert [(fault.kind, fault.record) for fault in found.faults] == [("undecodable", n) for n in range(1, 7)]
    assert not found.not_decoded
    assert capfd.readouterr().err == ""


file = io.BytesIO()
np.save(file, np.array([{}, None]), allow_pickle=True)
OBJECTS = file.getvalue()
CMYK = Image.fromarray(PIXELS).convert("CMYK")
UNKNOWN = {
    "image/avif": b"\0\0\0\x20ftypavif" + bytes(90),
    "image/heic": b"\0\0\0\x20ftypheic" + bytes(90),
    "image/jp2": b"\0\0\0\x0cjP  \r\n\x87\n" + bytes(90),
    "npy of Python objects": OBJECTS,
}


def sound(format: str) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, np.random.default_rng(0).integers(-9999, 9999, 48000, np.int16), 48000, format=format)
    return file.getvalue()


def arrays() -> bytes:
    file = io.BytesIO()
    np.savez(file, x=np.arange(99.0), y=np.arange(5))
    return file.getvalue()


@pytest.mark.parametrize("name", ["wav", "flac", "ogg", "npz"])
def test_sound_and_npz_are_decoded_and_garbage_of_their_name_is_found(name: str, tmp_path: Path) -> None:
    whole = arrays() if name == "npz" else sound(name.upper())
    values = [whole, whole[: len(whole) // 2], bytes(500), b"", whole]
    path = write(tmp_path / "x.tar", a_tar([(f"{n}.{name}", value) for n, value in enumerate(values)]))
    found = check(path, decode=True)
    assert [(fault.kind, fault.message.partition(":")[0]) for fault in found.faults] == [
        ("undecodable", f"sample {n}") for n in (1, 2, 3)
    ]
    assert "expected" in found.faults[1].message
    assert not found.not_decoded
    assert not check(path).faults


def test_what_is_not_decoded_is_counted_and_text_and_numbers_are_not(tmp_path: Path) -> None:
    binary = {
        "weights": b"\x80\xff\0" * 33,
        "zip": b"PK\x03\x04" + bytes(90),
    }
    pixels = {"image": bytes(range(200)) * 3, "image/shape": [20, 10, 3]}
    texts = {"txt": "Übung".encode(), "caption": b"", "json": b'{"a": 1}'}
    found = check(write(tmp_path / "x", framed(an_example(**binary, **pixels, **texts))), decode=True)
    assert not found.faults
    assert found.not_decoded == {"unknown bytes": 1, "zip": 1}


def test_what_is_not_decoded_in_front_of_damage_is_counted_too(tmp_path: Path) -> None:
    record = framed(an_example(x=b"PK\x03\x04" + bytes(90)))
    found = check(write(tmp_path / "x", record + record[:-1] + b"\xff" + record), decode=True)
    assert ([fault.kind for fault in found.faults], found.not_decoded) == (["data_crc"], {"zip": 2})


def test_without_soundfile_flac_is_counted_as_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "x.tar", a_tar([("0.flac", sound("FLAC")), ("1.wav", sound("WAV"))]))
    monkeypatch.setitem(sys.modules, "soundfile", None)
    found = check(path, decode=True)
    assert (found.faults, [*found.not_decoded.values()]) == ([], [1])
    assert "soundfile" in next(iter(found.not_decoded))


def test_what_cannot_be_decoded_here_is_counted_by_its_kind(tmp_path: Path, run: Callable[..., Ran]) -> None:
    path = write(tmp_path / "x.record", framed(*[an_example(value=value) for value in [*UNKNOWN.values()] * 3]))
    tar = write(tmp_path / "x.tar", a_tar([(f"{n}.bin", value) for n, value in enumerate(UNKNOWN.values())]))
    ran = run(path, tar, "--decode", "--json")
    assert ran.code == 0
    assert [file["not_decoded"] for file in ran.json["files"]] == [dict.fromkeys(UNKNOWN, 3), dict.fromkeys(UNKNOWN, 1)]
    said = run(path, "--decode").err
    assert "note: 12 values not decoded, because tar2tf cannot decode this kind: 3 image/avif, 3 image/heic" in said


def test_overwritten_pixels_of_a_deflated_tiff_are_found(tmp_path: Path) -> None:
    """OpenCV returns the pixels before the damage."""
    whole = other("tiff, deflate")

    def fault(data: bytes) -> str:
        found = check(write(tmp_path / "x", framed(an_example(t=data))), decode=True)
        assert not found.not_decoded
        ((message),) = (fault.message for fault in found.faults)
        return message.removeprefix("'t' cannot be decoded: damaged TIFF: its pixels cannot be inflated: ")

    def overwritten(start: int, number: int) -> bytes:
        return whole[:start] + bytes(number) + whole[start + number :]

    error = "Error -3 while decompressing data: "
    assert fault(overwritten(1000, 1000)) == f"{error}invalid distance too far back"
    assert fault(overwritten(len(whole) // 2, 1000)) == f"{error}incorrect data check"
    (sizes,) = struct.unpack_from("<I", whole, whole.index(struct.pack("<HHI", 279, 4, 13)) + 8)
    (first,) = struct.unpack_from("<I", whole, sizes)
    shorter = whole[:sizes] + struct.pack("<I", first - 9) + whole[sizes + 4 :]
    assert fault(shorter) == "their stream does not end"
    assert not check(write(tmp_path / "y", framed(an_example(t=whole))), decode=True).faults


def test_a_tiff_of_an_uncommon_kind_is_not_called_damaged(tmp_path: Path) -> None:
    file = io.BytesIO()
    CMYK.save(file, "TIFF", compression="jpeg")
    found = check(write(tmp_path / "x", framed(an_example(t=file.getvalue()))), decode=True)
    assert not found.faults
    lzma = saved("TIFF", compression="lzma")
    found = check(write(tmp_path / "l", framed(an_example(t=lzma))), decode=True)
    assert (found.faults, found.not_decoded) == ([], {"image/tiff of an uncommon kind": 1})
    bomb = bytearray(other("tiff"))
    place = bomb.index(struct.pack("<HHI", 256, 4, 1)) + 8
    bomb[place : place + 4] = struct.pack("<I", 1 << 30)
    (fault,) = check(write(tmp_path / "y", framed(an_example(t=bytes(bomb)))), decode=True).faults
    assert "more than the limit" in fault.message
