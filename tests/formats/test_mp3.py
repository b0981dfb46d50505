"""MP3 is decoded as libsndfile decodes it, and damage that it skips is found."""

from __future__ import annotations

import io

import numpy as np
import pytest

from tar2tf_cli.errors import SampleError
from tar2tf_cli.formats.decoding import decode
from tar2tf_cli.formats.streams import sniff

soundfile = pytest.importorskip("soundfile")


def mp3(rate: int = 16000, channels: int = 1) -> bytes:
    time = np.arange(rate) / rate
    samples = np.stack([np.sin(2 * np.pi * 440 * time)] * channels, 1).astype("f4") / 2
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format="MP3")
    return file.getvalue()


@pytest.mark.parametrize("rate", [8000, 16000, 44100, 48000])
@pytest.mark.parametrize("channels", [1, 2])
def test_an_mp3_is_decoded_as_by_libsndfile(rate: int, channels: int) -> None:
    data = mp3(rate, channels)
    assert sniff(data) == "audio/mpeg"
    parts = decode(data)
    expected, known = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)
    np.testing.assert_allclose(parts[""], expected, rtol=0, atol=1e-6)  # which is decoded in other pieces
    assert (parts["sample_rate"], known) == (rate, rate)


def test_tags_before_and_after_the_frames_are_no_damage() -> None:
    data = mp3()
    tagged = b"ID3\x04\0\0\0\0\0\x0a" + bytes(10) + data + b"TAG" + bytes(125)
    assert len(decode(tagged)[""]) == len(decode(data)[""])


@pytest.mark.parametrize("cut", [0.3, 0.6, 0.99])
def test_a_truncated_mp3_is_refused(cut: float) -> None:
    data = mp3()
    with pytest.raises(SampleError, match="truncated"):
        decode(data[: int(len(data) * cut)])


def test_junk_among_the_frames_is_found() -> None:
    data = bytearray(mp3())
    middle = len(data) // 2
    data[middle : middle + 600] = bytes(600)
    with pytest.raises(SampleError, match="damaged MP3: no frame begins at byte"):
        decode(bytes(data))


@pytest.mark.parametrize("text", [b"\xff\xfeh\0i\0", b"\xff\xd8\xff\xe0", b"\xff\xff\xff\xff"])
def test_other_files_that_begin_alike_are_no_mp3(text: bytes) -> None:
    assert sniff(text) != "audio/mpeg"
