"""Headers of videos made byte for byte, in forms that encoders write rarely: PyAV is not needed."""

from __future__ import annotations

import struct
from typing import Any

from tar2tf_cli.checking.contents import detect_kind

# --- MP4 ---


def box(name: bytes, *contents: bytes, large: bool = False, endless: bool = False) -> bytes:
    """A box, whose size may be in 64 bits, or 0, which means that it goes to the end."""
    content = b"".join(contents)
    if large:
        return struct.pack(">I4sQ", 1, name, 16 + len(content)) + content
    return struct.pack(">I4s", 0 if endless else 8 + len(content), name) + content


def full(name: bytes, form: str, *numbers: int, flags: int = 0, version: int = 0, more: bytes = b"") -> bytes:
    return box(name, struct.pack(f">I{form}", version << 24 | flags, *numbers), more)


def track(number: int, frames: int = 0, scale: int = 10, side: int = 64, version: int = 0) -> bytes:
    times = "QQ" if version else "II"
    size = struct.pack(">II", side << 16, side << 15)
    tkhd = full(b"tkhd", f"{times}I", 0, 0, number, version=version, more=bytes(60) + size)
    mdhd = full(b"mdhd", f"{times}I", 0, 0, scale, version=version, more=bytes(8))
    stsz = full(b"stsz", "II", 0, frames)
    return box(b"trak", tkhd, box(b"mdia", mdhd, box(b"minf", box(b"stbl", stsz))))


def movie(*tracks: bytes, ticks: int = 0, version: int = 0, extends: dict[int, int] | None = None) -> bytes:
    mvhd = full(b"mvhd", "QQIQ" if version else "IIII", 0, 0, 1000, ticks, version=version, more=bytes(80))
    trex = [full(b"trex", "III", number, 1, default) for number, default in (extends or {}).items()]
    return box(b"moov", mvhd, *tracks, *([box(b"mvex", *trex)] if trex else []))


def fragment(number: int, *boxes: bytes, flags: int = 0, fields: bytes = b"") -> bytes:
    return box(b"moof", box(b"traf", full(b"tfhd", "I", number, flags=flags, more=fields), *boxes))


def run(count: int, *numbers: int, flags: int = 0) -> bytes:
    return full(b"trun", f"I{len(numbers)}I", count, *numbers, flags=flags)


FTYP = box(b"ftyp", b"isom" + bytes(12))
EXTENDED = movie(track(1), track(2, side=0), extends={1: 3, 2: 7})

MP4: dict[str, tuple[bytes, tuple[Any, ...]]] = {
    "plain": (movie(track(1, 25), ticks=2500), ((64, 32), 2.5, 25)),
    "64-bit times": (movie(track(1, 25, version=1), ticks=2500, version=1), ((64, 32), 2.5, 25)),
    "64-bit size of a box": (box(b"free", bytes(9), large=True) + movie(track(1, 5), ticks=500), ((64, 32), 0.5, 5)),
    "a box to the end": (movie(track(1, 5), ticks=500) + box(b"mdat", bytes(9), endless=True), ((64, 32), 0.5, 5)),
    "the picture is the second track": (
        movie(track(1, 99, side=0), track(2, 5), ticks=500),
        ((64, 32), 0.5, 5),
    ),
    "sound only": (movie(track(1, 99, side=0), ticks=500), ((), 0.5, None)),
    "no tracks": (movie(ticks=500), ((), 0.5, None)),
    "the default duration of the movie": (EXTENDED + fragment(1, run(4)), ((64, 32), 1.2, 4)),
    "several runs and fragments": (
        EXTENDED + fragment(1, run(4), run(2)) + fragment(1, run(1)),
        ((64, 32), 2.1, 7),
    ),
    "a fragment of another track": (EXTENDED + fragment(2, run(100)) + fragment(1, run(4)), ((64, 32), 1.2, 4)),
    "the default duration of the fragment": (
        EXTENDED + fragment(1, run(4), flags=0x8, fields=struct.pack(">I", 5)) + fragment(1, run(1)),
        ((64, 32), 2.3, 5),
    ),
    "a default duration after base and description": (
        EXTENDED + fragment(1, run(4), flags=0xB, fields=struct.pack(">QII", 77, 66, 5)),
        ((64, 32), 2.0, 4),
    ),
    "a default duration after the base": (
        EXTENDED + fragment(1, run(4), flags=0x9, fields=struct.pack(">QI", 77, 5)),
        ((64, 32), 2.0, 4),
    ),
    "a default duration after the description": (
        EXTENDED + fragment(1, run(4), flags=0xA, fields=struct.pack(">II", 66, 5)),
        ((64, 32), 2.0, 4),
    ),
    "a duration of each sample": (EXTENDED + fragment(1, run(3, 1, 2, 4, flags=0x100)), ((64, 32), 0.7, 3)),
    "durations after the offset of the data": (
        EXTENDED + fragment(1, run(2, 900, 1, 2, flags=0x101)),
        ((64, 32), 0.3, 2),
    ),
    "durations after offset and first flags": (
        EXTENDED + fragment(1, run(2, 900, 800, 1, 2, flags=0x105)),
        ((64, 32), 0.3, 2),
    ),
    "durations after the first flags": (
        EXTENDED + fragment(1, run(2, 800, 1, 2, flags=0x104)),
        ((64, 32), 0.3, 2),
    ),
    "durations with sizes": (EXTENDED + fragment(1, run(2, 1, 90, 2, 90, flags=0x300)), ((64, 32), 0.3, 2)),
    "durations with flags": (EXTENDED + fragment(1, run(2, 1, 90, 2, 90, flags=0x500)), ((64, 32), 0.3, 2)),
    "durations with times": (EXTENDED + fragment(1, run(2, 1, 90, 2, 90, flags=0x900)), ((64, 32), 0.3, 2)),
    "durations with everything": (
        EXTENDED + fragment(1, run(2, 900, 800, 1, 7, 8, 9, 2, 7, 8, 9, flags=0xF05)),
        ((64, 32), 0.3, 2),
    ),
    "fragments after a movie": (
        movie(track(1, 10), ticks=1000, extends={1: 2}) + fragment(1, run(5)),
        ((64, 32), 2.0, 15),
    ),
    "a fragmented movie that states its duration": (
        movie(track(1), ticks=4000, extends={1: 2}) + fragment(1, run(5)),
        ((64, 32), 4.0, 5),
    ),
}


def test_size_duration_and_frames_of_an_mp4_are_those_of_its_boxes() -> None:
    for name, (data, expected) in MP4.items():
        found = detect_kind(FTYP + data)
        assert (found.shape, found.seconds, found.frames) == expected, name


def test_fragments_are_not_counted_if_some_of_the_file_is_missing() -> None:
    data = FTYP + EXTENDED + fragment(1, run(4))
    found = detect_kind(data, len(data) + 1)
    assert (found.shape, found.seconds, found.frames) == ((64, 32), None, None)


# --- Matroska ---


def element(name: int, *contents: bytes, unknown: bool = False) -> bytes:
    content = b"".join(contents)
    size = b"\x01" + b"\xff" * 7 if unknown else (1 << 56 | len(content)).to_bytes(8, "big")
    return name.to_bytes((name.bit_length() + 7) // 8, "big") + size + content


def entry(number: int, width: int | None = None, height: int = 32) -> bytes:
    video = [] if width is None else [element(0xE0, element(0xB0, bytes([width])), element(0xBA, bytes([height])))]
    return element(0xAE, element(0xD7, bytes([number])), *video)


def block(number: int) -> bytes:
    return element(0xA3, bytes([0x80 | number]), bytes(9))


def grouped(number: int) -> bytes:
    return element(0xA0, element(0xA1, bytes([0x80 | number]), bytes(9)))


def segment(*contents: bytes, **options: bool) -> bytes:
    return element(0x1A45DFA3, element(0x4282, b"webm")) + element(0x18538067, *contents, **options)


def info(duration: bytes, scale: bytes = b"") -> bytes:
    return element(0x1549A966, *([element(0x2AD7B1, scale)] if scale else []), element(0x4489, duration))


TRACKS = element(0x1654AE6B, entry(1), entry(2, 64), entry(3, 99))
CLUSTER = element(0x1F43B675, block(1), block(2), grouped(2), block(3), block(2))
SECONDS = info(struct.pack(">d", 2500))

MATROSKA: dict[str, tuple[bytes, tuple[Any, ...]]] = {
    "blocks of the first video": (segment(SECONDS, TRACKS, CLUSTER, CLUSTER), ((64, 32), 2.5, 6)),
    "unknown sizes": (
        segment(SECONDS, TRACKS, element(0x1F43B675, block(2), unknown=True), unknown=True),
        ((64, 32), 2.5, 1),
    ),
    "a duration in 32 bits": (segment(info(struct.pack(">f", 500)), TRACKS, CLUSTER), ((64, 32), 0.5, 3)),
    "another scale": (segment(info(struct.pack(">d", 5), b"\x3b\x9a\xca\x00"), TRACKS, CLUSTER), ((64, 32), 5.0, 3)),
    "no duration": (segment(TRACKS, CLUSTER), ((64, 32), None, 3)),
    "no blocks": (segment(SECONDS, TRACKS), ((64, 32), 2.5, None)),
    "sound": (segment(SECONDS, element(0x1654AE6B, entry(1)), CLUSTER), ((), 2.5, None)),
    "an invalid number after the first cluster": (
        segment(SECONDS, TRACKS, CLUSTER) + b"\0" * 18,
        ((64, 32), 2.5, None),
    ),
    "a number that is cut off": (segment(SECONDS, TRACKS, CLUSTER) + b"\x1f", ((64, 32), 2.5, None)),
}


def test_size_duration_and_frames_of_a_webm_are_those_of_its_elements() -> None:
    for name, (data, expected) in MATROSKA.items():
        found = detect_kind(data)
        assert (found.shape, found.seconds, found.frames) == expected, name
        assert detect_kind(data, len(data) + 1).frames is None, name
