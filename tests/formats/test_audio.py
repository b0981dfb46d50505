"""Sound: WAV against TensorFlow, the wave module and libsndfile; FLAC and Ogg against what was encoded."""

from __future__ import annotations

import io
import os
import struct
import sys

import numpy as np
import pytest
import soundfile
import tensorflow as tf

from tar2tf_cli.errors import SampleError, UsageError
from tar2tf_cli.formats.decoding import decode_wav, decode_with_libsndfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

SHAPES = [(samples, channels) for samples in (0, 1, 2, 99, 16_000) for channels in (1, 2, 3, 6)]


def waves(samples: int, channels: int, dtype: str = "int16") -> np.ndarray:
    limits = np.iinfo(dtype)
    noise = np.random.default_rng(samples).integers(limits.min, limits.max, (samples, channels), dtype, endpoint=True)
    noise[:1] = limits.min
    return noise


def wav(
    form: int, bits: int, channels: int, rate: int, sound: bytes, *, more: bytes = b"", before: bytes = b""
) -> bytes:
    align = channels * bits // 8
    fmt = struct.pack("<HHIIHH", form, channels, rate, rate * align, align, bits) + more
    body = b"WAVEfmt " + struct.pack("<I", len(fmt)) + fmt + before + b"data" + struct.pack("<I", len(sound)) + sound
    return b"RIFF" + struct.pack("<I", len(body)) + body


def saved(sound: np.ndarray, rate: int, format: str, subtype: str) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, sound, rate, format=format, subtype=subtype)
    return file.getvalue()


def test_a_wav_of_16_bits_is_what_tensorflow_makes_of_it() -> None:
    cases = [
        wav(1, 16, channels, rate, waves(samples, channels).tobytes(), before=before)
        for samples, channels in SHAPES
        for rate in (8000, 44100, 192000)
        for before in (b"", b"LIST\x04\0\0\0abcd")
    ]
    assert len(cases) > 100
    for data in cases:
        theirs = tf.audio.decode_wav(data)
        found = decode_wav(data)
        np.testing.assert_array_equal(found[""], theirs.audio)
        assert (found[""].dtype, found["sample_rate"]) == (np.float32, theirs.sample_rate.numpy())


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"])
@pytest.mark.parametrize("format", ["WAV", "WAVEX"])
def test_every_width_is_what_libsndfile_makes_of_it(format: str, subtype: str) -> None:
    for samples, channels in SHAPES:
        data = saved(waves(samples, channels), 22050, format, subtype)
        theirs, rate = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)
        found = decode_wav(data)
        np.testing.assert_allclose(found[""], theirs, rtol=0, atol=2**-24)
        assert found["sample_rate"] == rate == 22050


def test_what_a_pipe_writes_has_no_size_and_is_read_to_its_end() -> None:
    data = wav(1, 16, 2, 8000, waves(50, 2).tobytes())
    place = data.index(b"data") + 4
    piped = data[:place] + b"\xff\xff\xff\xff" + data[place + 4 :]
    np.testing.assert_array_equal(decode_wav(piped)[""], decode_wav(data)[""])
    np.testing.assert_array_equal(decode_wav(piped[:-1])[""], decode_wav(data)[""][:-1])


def test_chunks_of_an_odd_size_are_padded() -> None:
    sound = waves(9, 1).tobytes()
    odd = wav(1, 16, 1, 8000, sound, before=b"LIST\x03\0\0\0abc\0")
    np.testing.assert_array_equal(decode_wav(odd)[""], decode_wav(wav(1, 16, 1, 8000, sound))[""])


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (wav(1, 16, 1, 8000, bytes(99)), "99 bytes of sound, which is not a multiple of 2"),
        (wav(1, 16, 1, 8000, bytes(98))[:-1], "truncated WAV: 98 bytes of sound by its header, but 97"),
        (wav(1, 16, 1, 8000, bytes(98))[:30], "no sound in it"),
        (wav(1, 12, 1, 8000, bytes(98)), "format 1 of 12 bits"),
        (wav(7, 8, 1, 8000, bytes(98)), "format 7 of 8 bits"),
        (wav(1, 16, 0, 8000, bytes(98)), "0 channels"),
        (b"RIFF\xff\xff\xff\xffWAVE" + bytes(60), "no sound|cut short"),
        (b"RIFF\x08\0\0\0WAVEdata\0\0\0\0", "its format is cut short"),
    ],
)
def test_a_wav_that_is_not_whole_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(SampleError, match=words):
        decode_wav(data)


@pytest.mark.parametrize("width", [16, 24])
def test_a_flac_is_what_was_encoded(width: int) -> None:
    for samples, channels in SHAPES[4:]:
        sound = waves(samples, channels)
        data = saved(sound, 16000, "FLAC", f"PCM_{width}")
        found = decode_with_libsndfile(data)
        np.testing.assert_array_equal(found[""], sound / np.float32(32768))
        assert (found[""].dtype, found["sample_rate"]) == (np.float32, 16000)


@pytest.mark.parametrize("width", [16, 24])
def test_an_aiff_is_what_was_encoded_and_half_of_one_is_refused(width: int) -> None:
    for samples, channels in SHAPES[4:]:
        sound = waves(samples, channels)
        data = saved(sound, 16000, "AIFF", f"PCM_{width}")
        found = decode_with_libsndfile(data)
        np.testing.assert_array_equal(found[""], sound / np.float32(32768))
        assert (found[""].dtype, found["sample_rate"]) == (np.float32, 16000)
        with pytest.raises(SampleError, match="truncated AIFF"):
            decode_with_libsndfile(data[: len(data) * 2 // 3])


@pytest.mark.parametrize("codec", ["VORBIS", "OPUS"])
def test_an_ogg_sounds_like_what_was_encoded(codec: str) -> None:
    time = np.arange(48000) / 48000
    sound = np.stack([np.sin(time * 2000), np.cos(time * 3000)], axis=1) * 0.5
    found = decode_with_libsndfile(saved(sound, 48000, "OGG", codec))
    assert (found[""].shape, found[""].dtype, found["sample_rate"]) == (sound.shape, np.float32, 48000)
    assert np.abs(found[""][500:-500] - sound[500:-500]).max() < 0.05


@pytest.mark.parametrize("format", ["FLAC", "OGG"])
def test_half_a_flac_or_ogg_is_refused(format: str) -> None:
    data = saved(waves(48000, 1), 48000, format, "PCM_16" if format == "FLAC" else "VORBIS")
    for part in (60, len(data) // 2, len(data) - 3000):
        with pytest.raises(SampleError, match=r"damaged|truncated"):
            decode_with_libsndfile(data[:part])


@pytest.mark.parametrize("format", ["FLAC", "VORBIS", "OPUS"])
def test_a_changed_byte_of_flac_or_ogg_never_makes_a_shorter_sound(format: str) -> None:
    kind = ("FLAC", "PCM_16") if format == "FLAC" else ("OGG", format)
    data = saved(waves(48000, 1), 48000, *kind)
    whole = decode_with_libsndfile(data)[""]
    refused = 0
    for place in range(200, len(data), len(data) // 40):
        changed = bytearray(data)
        changed[place] ^= 0x55
        try:
            assert decode_with_libsndfile(bytes(changed))[""].shape == whole.shape
        except SampleError:
            refused += 1
    assert refused > 20


def test_a_header_that_promises_more_than_memory_holds_is_refused() -> None:
    data = bytearray(saved(waves(3000, 2), 16000, "FLAC", "PCM_16"))
    data[21:26] = bytes([data[21] | 0x0F, 0xFF, 0xFF, 0xFF, 0xFF])  # 2^36 samples
    with pytest.raises(SampleError, match=r"truncated|damaged"):
        decode_with_libsndfile(bytes(data))


def test_without_soundfile_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(UsageError, match=r"soundfile") as caught:
        decode_with_libsndfile(b"fLaC")
    assert caught.value.hint == "pip install 'tar2tf-cli[audio]'"
