"""Videos are recognised with size and duration, and `verify --decode` decodes them where PyAV is installed."""

from __future__ import annotations

import io
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import tar2tf
from shards import write_tar
from tar2tf_cli.checking.contents import detect_kind
from tar2tf_cli.checking.decode import ValueChecker

av = pytest.importorskip("av")


FRAGMENTS = {
    "by keyframes": "frag_keyframe+empty_moov",
    "with a base of their own": "frag_keyframe+empty_moov+default_base_moof",
    "after a movie": "frag_keyframe",
    "by frames": "frag_every_frame+empty_moov",
}


def video(form: str, codec: str, frames: int = 20, **options: str) -> bytes:
    file = io.BytesIO()
    with av.open(file, "w", format=form, options=options) as container:
        fill(container, codec, frames)
    return file.getvalue()


def fill(container: Any, codec: str, frames: int) -> None:
    stream = container.add_stream(codec, rate=10)
    stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
    for number in range(frames):
        frame = av.VideoFrame.from_ndarray(np.full((48, 64, 3), 10 * number, np.uint8), format="rgb24")
        for packet in stream.encode(frame):
            container.mux(packet)
    for packet in stream.encode():
        container.mux(packet)


@pytest.mark.parametrize(("form", "codec"), [("webm", "libvpx"), ("matroska", "mpeg4"), ("mp4", "mpeg4")])
def test_the_header_of_a_video_has_its_size_and_duration(form: str, codec: str) -> None:
    look = detect_kind(video(form, codec))
    assert look.shape == (64, 48)
    assert look.seconds == pytest.approx(2, abs=0.2)


@pytest.mark.parametrize(("form", "codec"), [("mp4", "mpeg4"), ("webm", "libvpx"), ("matroska", "mpeg4")])
def test_the_number_of_frames_is_counted_in_the_container(form: str, codec: str, tmp_path: Path) -> None:
    assert detect_kind(video(form, codec)).frames == 20
    name = {"matroska": "mkv"}.get(form, form)
    write_tar(tmp_path / "a.tar", [("0", {name: video(form, codec)}), ("1", {name: video(form, codec, 10)})])
    shown = tar2tf("inspect", tmp_path / "a.tar").stdout
    assert " 64x48 1-2 s" in shown
    assert "10-20 frames" in shown


@pytest.mark.parametrize("frames", [1, 20])
@pytest.mark.parametrize("flags", FRAGMENTS.values(), ids=FRAGMENTS)
def test_frames_and_duration_of_fragments_are_counted(flags: str, frames: int) -> None:
    data = video("mp4", "mpeg4", frames, movflags=flags)
    with av.open(io.BytesIO(data)) as container:
        decoded = list(container.decode(video=0))
    look = detect_kind(data)
    assert look.frames == len(decoded) == frames
    assert look.shape == (64, 48)
    assert look.seconds == pytest.approx(frames / 10, abs=0.11)


def test_of_a_beginning_the_frames_are_not_counted() -> None:
    for data in (video("webm", "libvpx"), video("mp4", "mpeg4", movflags="frag_keyframe+empty_moov")):
        look = detect_kind(data[:-9], len(data))
        assert (look.shape, look.frames) == ((64, 48), None)


def faults_of(data: bytes) -> tuple[list[tuple[str, str]], dict[str, int]]:
    """The faults of a value named `v`, and the kinds of values that are not decoded."""
    unknown = Counter[str]()
    return ValueChecker(unknown).undecodable([("v", data)]), dict(unknown)


@pytest.mark.parametrize(("form", "codec"), [("webm", "libvpx"), ("mp4", "mpeg4")])
def test_a_whole_video_decodes_and_a_damaged_one_is_found(form: str, codec: str) -> None:
    data = video(form, codec)
    assert faults_of(data) == ([], {})
    ((kind, message),), _ = faults_of(data[: len(data) // 3])
    assert (kind, message.partition(": ")[0]) == ("undecodable", "'v' cannot be decoded")


def test_a_video_without_all_of_its_frames_is_truncated(tmp_path: Path) -> None:
    def fault(data: bytes) -> str:
        ((_, message),), unknown = faults_of(data)
        assert unknown == {}
        return message.removeprefix("'v' cannot be decoded: ")

    path = tmp_path / "index-first.mp4"
    with av.open(str(path), "w", format="mp4", options={"movflags": "faststart"}) as container:
        fill(container, "mpeg4", 20)
    data = path.read_bytes()
    assert faults_of(data) == ([], {})
    frames = data.index(b"mdat") + 4
    assert fault(data[:frames]) == "it is truncated: 0 of 20 frames"
    assert fault(data[: frames + 900]).startswith("it is truncated: 1")
    webm = video("webm", "libvpx")
    cluster = webm.index(b"\x1f\x43\xb6\x75")
    assert fault(webm[:cluster]) == "it is damaged: End of file"
    assert fault(webm[: cluster + 40]) == "it is truncated: 0 of 0 frames"


def test_a_video_file_with_nothing_but_sound_is_none() -> None:
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("aac", rate=8000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.rate = 8000
        for packet in (*stream.encode(frame), *stream.encode()):
            container.mux(packet)
    data = file.getvalue()
    assert faults_of(data) == ([("undecodable", "'v' cannot be decoded: it has no video")], {})


def test_without_pyav_a_video_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    data = video("mp4", "mpeg4")
    monkeypatch.setitem(sys.modules, "av", None)
    assert faults_of(data) == ([], {"video/mp4 (decoding videos needs pip install 'tar2tf-cli[video]')": 1})
