"""Audio, video, arrays and tensors are described by their headers; what is no such header is left alone."""

from __future__ import annotations

import io
import struct
import wave

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from tar2tf_cli.checking.content import Stats, look_at
from tar2tf_cli.checking.media import media_header, tensor_header


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


def an_npy(array: object) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def a_tensor(value: object) -> bytes:
    return bytes(tf.io.serialize_tensor(value).numpy())


DESCRIBED = {
    "audio/wav 16000 Hz stereo 0.5 s": [a_wav()],
    "audio/wav 16000 Hz mono 1-2.5 s": [a_wav(1, channels=1), a_wav(2.5, channels=1)],
    "audio/flac 44100 Hz mono 2 s": [a_flac()],
    "video/mp4 320x240 2.5 s": [an_mp4()],
    "npy float32 3-5x2": [an_npy(np.zeros((n, 2), np.float32)) for n in (3, 5)],
    "npy uint8": [an_npy(np.zeros((2, 2), np.uint8)), an_npy(np.zeros(7, np.uint8))],
    "npy bool 4": [an_npy(np.zeros(4, bool))],
    "tensor float32 2x3": [a_tensor(np.ones((2, 3), np.float32))],
    "tensor string 2": [a_tensor([b"a", b"b"])],
    "tensor int64": [a_tensor(tf.constant(5, tf.int64))],
}


@pytest.mark.parametrize("kind", DESCRIBED)
def test_values_are_described_by_their_headers(kind: str) -> None:
    stats = Stats()
    for data in DESCRIBED[kind]:
        stats.look(look_at(data), str)
    assert stats.kind == kind


@pytest.mark.parametrize("kind", DESCRIBED)
def test_a_header_cut_anywhere_is_no_error(kind: str) -> None:
    for cut in range(len(DESCRIBED[kind][0])):
        look_at(DESCRIBED[kind][0][:cut])


@given(st.binary(max_size=200), st.sampled_from(["audio/wav", "audio/flac", "npy", "video/mp4"]))
def test_any_bytes_have_a_header_or_none(data: bytes, kind: str) -> None:
    media_header(kind, data)
    tensor_header(data)
