"""Audio, video, arrays and tensors are described by their headers; what is no such header is left alone."""

from __future__ import annotations

import io
import struct
import wave
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from inspect_runs import look_into
from make_bytes import npy
from tar2tf_cli.checking.contents import Stats, detect_kind
from tar2tf_cli.formats.image import MOST_VALUES
from verify_runs import a_tar, write


def a_wav(seconds: float = 0.5, rate: int = 16_000, channels: int = 2) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as wav:
        wav.setnchannels(channels)
        wav.setsampwidth(2)
        wav.setframerate(rate)
        wav.writeframes(bytes(int(seconds * rate) * channels * 2))
    return file.getvalue()


def a_flac(rate: int = 44_100, channels: int = 1, samples: int = 88_200) -> bytes:
    packed = rate << 44 | channels - 1 << 41 | 15 << 36 | samples
    return b"fLaC\x80\0\0\x22" + bytes(10) + packed.to_bytes(8, "big") + bytes(16)


def box(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I4s", 8 + len(content), name) + content


def an_mp4(seconds: float = 2.5, width: int = 320, height: int = 240) -> bytes:
    mvhd = box(b"mvhd", bytes(12) + struct.pack(">II", 1000, int(seconds * 1000)) + bytes(80))
    tkhd = box(b"tkhd", bytes(76) + struct.pack(">II", width << 16, height << 16))
    return box(b"ftyp", b"isom" + bytes(12)) + box(b"mdat", bytes(99)) + box(b"moov", mvhd + box(b"trak", tkhd))


def a_tensor(value: object) -> bytes:
    return bytes(tf.io.serialize_tensor(value).numpy())


def riff(form: bytes, *chunks: tuple[bytes, bytes], unknown: bool = False) -> bytes:
    """A RIFF file; of unknown size as one that was written to a pipe."""
    sizes = [0xFFFFFFFF if unknown and name == b"data" else len(content) for name, content in chunks]
    body = b"".join(
        struct.pack("<4sI", name, size) + content for (name, content), size in zip(chunks, sizes, strict=True)
    )
    return form + struct.pack("<I", 0xFFFFFFFF if unknown else len(body) + 4) + b"WAVE" + body


PCM = (b"fmt ", struct.pack("<HHIIHH", 1, 1, 8000, 16_000, 2, 16))
ADPCM = (b"fmt ", struct.pack("<HHIIHHH", 2, 1, 8000, 4096, 256, 4, 32))
SECOND = (b"data", bytes(16_000))


def an_m4a(brand: bytes = b"M4A ") -> bytes:
    entry = box(b"mp4a", bytes(16) + struct.pack(">HHII", 2, 16, 0, 48_000 << 16))
    mvhd = box(b"mvhd", bytes(12) + struct.pack(">II", 1000, 3000) + bytes(80))
    sound = box(b"mdia", box(b"minf", box(b"stbl", box(b"stsd", bytes(8) + entry))))
    return box(b"ftyp", brand + bytes(12)) + box(b"moov", mvhd + box(b"trak", sound))


DESCRIBED = {
    "audio/wav 8000 Hz mono 1 s": [
        riff(b"RIFF", PCM, SECOND, unknown=True),
        riff(b"RF64", (b"ds64", bytes(28)), PCM, SECOND, unknown=True),
        riff(b"RIFF", ADPCM, (b"fact", struct.pack("<I", 8000)), (b"data", bytes(4096))),
    ],
    "audio/ogg": [b"OggS\0\2" + bytes(20) + b"\1\x1e\x01vorbis"],
    "audio/mp4 48000 Hz stereo 3 s": [an_m4a()],
    "video/mp4 48000 Hz stereo 3 s": [an_m4a(b"isom")],
    "video/mp4 320x240": [an_mp4(0)],
    "audio/aiff": [b"FORM\0\0\0\x04AIFF"],
    "video/x-matroska": [b"\x1aE\xdf\xa3\x93\x42\x82\x88matroska"],
    "image/heic": [b"\0\0\0\x18ftypheic"],
    "audio/wav 16000 Hz stereo 0.5 s": [a_wav()],
    "audio/wav 16000 Hz mono 1-2.5 s": [a_wav(1, channels=1), a_wav(2.5, channels=1)],
    "audio/flac 44100 Hz mono 2 s": [a_flac()],
    "video/mp4 320x240 2.5 s": [an_mp4()],
    "npy float32 3-5x2": [npy(np.zeros((n, 2), np.float32)) for n in (3, 5)],
    "npy uint8": [npy(np.zeros((2, 2), np.uint8)), npy(np.zeros(7, np.uint8))],
    "npy bool 4": [npy(np.zeros(4, bool))],
    "tensor float32 2x3": [a_tensor(np.ones((2, 3), np.float32))],
    "tensor string 2": [a_tensor([b"a", b"b"])],
    "tensor int64": [a_tensor(tf.constant(5, tf.int64))],
}


@pytest.mark.parametrize("kind", DESCRIBED)
def test_values_are_described_by_their_headers(kind: str) -> None:
    stats = Stats()
    for data in DESCRIBED[kind]:
        stats.look(detect_kind(data), str)
    assert stats.kind == kind


@pytest.mark.parametrize("kind", DESCRIBED)
def test_a_header_cut_anywhere_is_no_error(kind: str) -> None:
    for cut in range(len(DESCRIBED[kind][0])):
        detect_kind(DESCRIBED[kind][0][:cut])


BEGINNINGS = [b"RIFF\0\0\0\0WAVE", b"fLaC", b"\x93NUMPY\1\0", b"\0\0\0\x18ftypisom", b"\x08\x01\x12"]


@given(st.sampled_from(BEGINNINGS), st.binary(max_size=200))
def test_any_bytes_have_a_header_or_none(beginning: bytes, data: bytes) -> None:
    detect_kind(beginning + data)


def test_a_tensor_has_as_many_bytes_as_its_shape_says_and_no_unknown_field() -> None:
    whole = a_tensor(np.ones((2, 3), np.float32))
    assert detect_kind(whole).kind == "tensor float32"
    as_int64 = whole[:1] + b"\x09" + whole[2:]
    unknown_field = whole + b"\x9a\x01\x00"  # number 19
    known_field = whole + b"\x8a\x01\x00"  # number 17
    no_content = whole[: whole.index(b"\x22")]
    kinds = [detect_kind(data).kind for data in (as_int64, unknown_field, known_field, no_content)]
    assert kinds == ["bytes", "bytes", "tensor float32", "tensor float32"]


def test_the_distinct_values_of_masks_are_counted_up_to_a_limit(tmp_path: Path) -> None:
    def mask(first: int, number: int) -> bytes:
        values = np.arange(first, first + number)
        colors = np.stack([values // 256, values % 256, np.zeros(number)], axis=-1).astype(np.uint8)
        return bytes(tf.io.encode_png(colors[None]).numpy())

    for spans, counted in (
        ([(0, 4), (4, 4)], 8),
        ([(0, 4), (2, 4)], 6),
        ([(0, 3000), (2000, 2096)], MOST_VALUES),
        ([(0, 3000), (2000, 2097)], MOST_VALUES + 1),
        ([(0, 3000), (3000, 3000)], MOST_VALUES + 1),
    ):
        tar = a_tar((f"{number}.seg.png", mask(*span)) for number, span in enumerate(spans))
        contents = look_into(write(tmp_path / "x.tar", tar))
        assert contents.entries["seg.png"].to_json()["distinct"] == counted, spans


def test_the_duration_of_a_long_recording_does_not_need_all_of_it() -> None:
    whole = a_wav(600, 8000, 1)
    assert detect_kind(whole[:1000], len(whole)).seconds == 600
    assert detect_kind(b"II*\0\xff\0\0\0", 1 << 30).kind == "image/tiff"


def test_sounds_that_differ_in_rate_are_grouped(tmp_path: Path) -> None:
    sounds = [a_wav(0.1, rate) for rate in (8000, 16_000, 44_100, 8000)]
    path = write(tmp_path / "x.tar", a_tar((f"{n}.wav", sound) for n, sound in enumerate(sounds)))
    assert look_into(path).entries["wav"].kind == "audio/wav 3 rates stereo"
    path = write(tmp_path / "y.tar", a_tar((f"{n}.wav", a_wav(0.1, 8000, n + 1)) for n in range(2)))
    assert look_into(path).entries["wav"].kind == "audio/wav 8000 Hz 2 channel layouts"


def test_arrays_of_several_dtypes_are_grouped(tmp_path: Path) -> None:
    arrays = [npy(np.zeros(3, dtype)) for dtype in ("f4", "i8")]
    path = write(
        tmp_path / "x.tar", a_tar([*((f"{n}.npy", data) for n, data in enumerate(arrays)), ("2.npy", b"text")])
    )
    assert look_into(path).entries["npy"].kind == "npy 2 dtypes (2), text (1)"
