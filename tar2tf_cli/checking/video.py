"""Headers of videos: size, duration and frame count of MP4, Matroska and WebM, without decoding."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple


class VideoHeader(NamedTuple):
    """Properties of a video that its container states.

    Attributes:
        shape: width and height; empty if it has no picture.
        seconds: its duration; None if it is unknown.
        frames: the number of its frames; None if it is unknown.
        sound: rate and channels of its sound; None if it has none, or its kind is unknown.
    """

    shape: tuple[int, ...] = ()
    seconds: float | None = None
    frames: int | None = None
    sound: tuple[int, int] | None = None


# --- MP4: boxes of ISO/IEC 14496-12 ---


class _MediaTrack(NamedTuple):
    """A track of an MP4 file.

    Attributes:
        number: its number, by which fragments name it.
        shape: width and height of its picture; empty for sound.
        scale: units of time for each second.
        frames: the number of its samples outside of fragments.
        sound: rate and channels.
    """

    number: int
    shape: tuple[int, ...]
    scale: int
    frames: int
    sound: tuple[int, int] | None


def mp4_header(data: bytes, whole: int) -> VideoHeader:
    """Read the header of an MP4: of the whole movie, or of its fragments.

    Args:
        data: the file, or the beginning of it.
        whole: the size of the file in bytes.

    Raises:
        ValueError, LookupError, struct.error, ZeroDivisionError: when it is damaged.
    """
    seconds: float | None = None
    tracks: list[_MediaTrack] = []
    ticks: dict[int, int] = {}  # the default duration of a sample of each track
    for _, start, end in _boxes_at(data, 0, len(data), b"moov"):
        for name, first, last in _boxes(data, start, end):
            if name == b"mvhd":
                form, skip = (">IQ", 20) if data[first] else (">II", 12)
                scale, duration = struct.unpack_from(form, data, first + skip)
                seconds = duration / scale or None  # fragments have durations of their own
            elif name == b"trak":
                tracks.append(_track(data, first, last))
        for _, first, _ in _boxes_at(data, start, end, b"mvex", b"trex"):
            number, _, default = struct.unpack_from(">III", data, first + 4)
            ticks[number] = default
    picture = next((track for track in tracks if track.shape), None)
    sound = next((track.sound for track in tracks if track.sound), None)
    counted = picture or next(iter(tracks), None)
    if counted is None:
        return VideoHeader(seconds=seconds, sound=sound)
    frames, duration = counted.frames, 0
    if len(data) >= whole:
        more, duration = _in_fragments(data, counted.number, ticks.get(counted.number, 0))
        frames += more
    if duration and (counted.frames or seconds is None):  # a fully fragmented movie may state the total duration
        seconds = (seconds or 0) + duration / counted.scale
    return VideoHeader(counted.shape, seconds, (frames or None) if picture else None, sound)


def _track(data: bytes, start: int, end: int) -> _MediaTrack:
    number, shape = 0, (0, 0)
    for _, first, last in _boxes_at(data, start, end, b"tkhd"):
        (number,) = struct.unpack_from(">I", data, first + (20 if data[first] else 12))
        wide, high = struct.unpack_from(">II", data, last - 8)
        shape = wide >> 16, high >> 16
    scale = frames = 0
    for _, first, _ in _boxes_at(data, start, end, b"mdia", b"mdhd"):
        (scale,) = struct.unpack_from(">I", data, first + (20 if data[first] else 12))
    for _, first, _ in _boxes_at(data, start, end, b"mdia", b"minf", b"stbl", b"stsz"):
        (frames,) = struct.unpack_from(">I", data, first + 8)
    return _MediaTrack(number, shape if all(shape) else (), scale, frames, _sound(data[start:end]))


def _sound(track: bytes) -> tuple[int, int] | None:
    """Return sample rate and channels from a track's AudioSampleEntry; None for other tracks."""
    entry = track.find(b"mp4a", track.find(b"stsd"))
    if entry < 0 or b"stsd" not in track:
        return None
    channels, rate = struct.unpack_from(">H6xH", track, entry + 20)
    return rate, channels


_BASE, _DESCRIPTION, _DURATION = 0x1, 0x2, 0x8
_OFFSET, _FLAGS, _TICKS, _SIZES, _EACH_FLAGS, _TIMES = 0x1, 0x4, 0x100, 0x200, 0x400, 0x800


def _in_fragments(data: bytes, number: int, ticks: int) -> tuple[int, int]:
    """Return the number of a track's samples in all fragments, and their total duration (8.8.7 and 8.8.8)."""
    frames = duration = 0
    for _, start, end in _boxes_at(data, 0, len(data), b"moof", b"traf"):
        default = ticks
        for name, first, _ in _boxes(data, start, end):
            if name == b"tfhd":
                flags, track = struct.unpack_from(">II", data, first)
                if track != number:
                    break
                if flags & _DURATION:
                    skip = 8 * bool(flags & _BASE) + 4 * bool(flags & _DESCRIPTION)
                    (default,) = struct.unpack_from(">I", data, first + 8 + skip)
            elif name == b"trun":
                flags, count = struct.unpack_from(">II", data, first)
                frames += count
                duration += _ticks_of_run(data, first, flags, count) if flags & _TICKS else count * default
    return frames, duration


def _ticks_of_run(data: bytes, start: int, flags: int, count: int) -> int:
    """Return the total duration of a run of samples that states each duration."""
    step = sum(4 for flag in (_TICKS, _SIZES, _EACH_FLAGS, _TIMES) if flags & flag)
    first = start + 8 + 4 * bool(flags & _OFFSET) + 4 * bool(flags & _FLAGS)
    return sum(struct.unpack_from(">I", data, first + step * sample)[0] for sample in range(count))


def _boxes_at(data: bytes, start: int, end: int, *path: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Iterate over all boxes at a path of names: name, content start and content end."""
    for name, first, last in _boxes(data, start, end):
        if name == path[0]:
            if path[1:]:
                yield from _boxes_at(data, first, last, *path[1:])
            else:
                yield name, first, last


def _boxes(data: bytes, position: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    while position + 8 <= end:
        size, name = struct.unpack_from(">I4s", data, position)
        start = position + 8
        if size == 1:
            size, start = struct.unpack_from(">Q", data, start)[0], start + 8
        size = size or end - position
        yield name, start, min(position + size, end)
        position += max(size, 8)


# --- Matroska: elements of RFC 9559 ---

_SEGMENT, _INFO, _TRACKS, _TRACK, _VIDEO = 0x18538067, 0x1549A966, 0x1654AE6B, 0xAE, 0xE0
_SCALE, _LENGTH, _NUMBER, _WIDTH, _HEIGHT = 0x2AD7B1, 0x4489, 0xD7, 0xB0, 0xBA
_CLUSTER, _GROUP, _BLOCK, _SIMPLE = 0x1F43B675, 0xA0, 0xA1, 0xA3
_WITHIN: Final = frozenset((_SEGMENT, _INFO, _TRACKS, _TRACK, _VIDEO, _CLUSTER, _GROUP))


def matroska_header(data: bytes, whole: int) -> VideoHeader:
    """Read the header of a Matroska or WebM file; its frames are the blocks of the first video track.

    Args:
        data: the file, or the beginning of it.
        whole: the size of the file in bytes.

    Raises:
        struct.error: when its duration is damaged.
    """
    found: dict[int, bytes] = {}
    blocks: dict[int, int] = {}  # frames of each track
    picture = latest = 0  # numbers of tracks
    complete = len(data) >= whole
    try:
        for element, start, end in _elements(data, 0, len(data)):
            if element in (_BLOCK, _SIMPLE):
                track, _ = _ebml_number(data, start)
                blocks[track] = blocks.get(track, 0) + 1
            elif element == _NUMBER:
                latest = int.from_bytes(data[start:end], "big")
            elif element in (_SCALE, _LENGTH, _WIDTH, _HEIGHT):
                picture = picture or (latest if element == _WIDTH else 0)
                found.setdefault(element, data[start:end])
    except (LookupError, ValueError):
        complete = False
    number = {name: int.from_bytes(value, "big") for name, value in found.items()}
    seconds = None
    if _LENGTH in found:
        (ticks,) = struct.unpack(">f" if len(found[_LENGTH]) == 4 else ">d", found[_LENGTH])
        seconds = ticks * number.get(_SCALE, 1_000_000) / 1e9
    shape = (number[_WIDTH], number[_HEIGHT]) if _WIDTH in number and _HEIGHT in number else ()
    return VideoHeader(shape, seconds, blocks.get(picture) if complete else None)


def _elements(data: bytes, position: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Iterate over EBML elements, descending into those that lead to a video's header and blocks."""
    while position < end:
        element, position = _ebml_number(data, position, keep=True)
        size, start = _ebml_number(data, position)
        stop = end if size < 0 else min(start + size, end)
        yield element, start, stop
        if element in _WITHIN:
            yield from _elements(data, start, stop)
        position = stop


def _ebml_number(data: bytes, position: int, *, keep: bool = False) -> tuple[int, int]:
    """Return a variable-size number (RFC 8794, 4) and the position after it; -1 for an unknown size."""
    length = 9 - data[position].bit_length()
    if not 1 <= length <= 8:
        raise ValueError
    number = int.from_bytes(data[position : position + length], "big")
    if not keep:
        number &= (1 << 7 * length) - 1
        number = -1 if number == (1 << 7 * length) - 1 else number
    return number, position + length
