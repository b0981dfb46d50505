"""Detects what a value is from its bytes: an image and its size, audio, video, an array, a tensor, JSON, text."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from math import prod
from typing import Final, NamedTuple

from tar2tf_cli.errors import ImageError
from tar2tf_cli.formats.example_parser import fields
from tar2tf_cli.formats.magic import sniff
from tar2tf_cli.formats.npy import read_header

_MOST_JSON: Final = 1 << 20
_WITHOUT_HEADER: Final = tuple(f"image/{name}" for name in ("avif", "heic", "jp2", "jxl", "exr", "psd"))
_TEXT_HEAD: Final = 4096
_MOST_CHARACTERS: Final = 200


class Look(NamedTuple):
    """What a value is.

    Attributes:
        kind: such as `image/jpeg`, `text`, `json`, `npy` or `int64`; `bytes` for anything else.
        shape: width, height and channels of an image; width and height of a video; the shape of an array.
        seconds: duration of audio or video.
    """

    kind: str
    shape: tuple[int, ...] = ()
    seconds: float | None = None


def look_at(data: bytes, size: int | None = None) -> Look:
    """Detect what bytes are from their content; if that is cut, `size` is that of the whole."""
    kind = sniff(data)
    if kind and not kind.startswith("image/"):
        return _by_header(kind, data, len(data) if size is None else size)
    if kind:
        from tar2tf_cli.formats.image import header

        try:
            image = header(data)
            return Look(kind, (image.width, image.height, image.channels))
        except ImageError:
            if kind in _WITHOUT_HEADER or (kind == "image/tiff" and (size or 0) > len(data)):
                return Look(kind)
    return _tensor(data) or Look(_text_kind(data))


def _text_kind(data: bytes) -> str:
    text = _text(data)
    if text is None:
        return "bytes" if data else "empty"
    if text.lstrip()[:1] in ("{", "[") and len(data) <= _MOST_JSON:
        import json

        try:
            json.loads(data)
            return "json"
        except (ValueError, RecursionError):
            pass
    return "text"


def _text(data: bytes) -> str | None:
    """The beginning of a text; None if the bytes are not text."""
    head = data[:_TEXT_HEAD]
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        if len(head) == len(data) or error.start < len(head) - 3:  # otherwise the cut is inside a character
            return None
        text = head[: error.start].decode("utf-8")
    good = text and all(part.isprintable() or part in "\t\r\n" for part in text)
    return text if good else None


def example_of(data: bytes) -> str:
    """The beginning of a value: text on one line, other bytes in hexadecimal."""
    text = " ".join((_text(data) or "").split())
    return shortened(text) or data[:16].hex(" ") + (" …" if len(data) > 16 else "")


def shortened(text: str, most: int = _MOST_CHARACTERS) -> str:
    """Text cut to at most `most` characters, ending with an ellipsis if it was longer."""
    return text if len(text) <= most else text[: most - 1] + "…"


# --- Headers of audio, video and arrays ---


def _by_header(kind: str, data: bytes, size: int) -> Look:
    """What the header of a value of this kind says; nothing more than the kind if it is damaged, or of another kind."""
    try:
        found = _READERS[kind](data, size)
    except (ValueError, LookupError, struct.error, ZeroDivisionError):
        return Look(kind)
    return found._replace(kind=f"{kind} {found.kind}".rstrip())


def _audio(rate: int, channels: int, samples: float) -> Look:
    named = {1: "mono", 2: "stereo"}.get(channels, f"{channels} channels")
    return Look(f"{rate} Hz {named}", (), samples / rate if samples else None)


def _wav(data: bytes, whole: int) -> Look:
    """RIFF chunks: https://www.mmsp.ece.mcgill.ca/Documents/AudioFormats/WAVE/WAVE.html."""
    position, form, samples = 12, b"", 0.0
    while position + 8 <= len(data):
        name, size = struct.unpack_from("<4sI", data, position)
        if name == b"fmt ":
            form = data[position + 8 : position + 24]
        if name == b"fact":
            (samples,) = struct.unpack_from("<I", data, position + 8)
        if name == b"data":
            code, channels, rate, _, align, _ = struct.unpack("<HHIIHH", form)
            if code in _UNCOMPRESSED:  # the size is unknown to writers of pipes
                samples = min(size, whole - position - 8) / align
            return _audio(rate, channels, samples)
        position += 8 + size + size % 2
    return Look("")


_UNCOMPRESSED: Final = (1, 3, 6, 7, 0xFFFE)  # PCM, floats, A-law, mu-law, extensible


def _flac(data: bytes, whole: int) -> Look:
    """The STREAMINFO block: RFC 9639, section 8.2."""
    packed = int.from_bytes(data[18:26], "big")
    rate, channels, samples = packed >> 44, (packed >> 41 & 7) + 1, packed & (1 << 36) - 1
    return _audio(rate, channels, samples)


def _npy(data: bytes, whole: int) -> Look:
    (descr, _, shape), _ = read_header(data)
    return Look(_numpy_name(descr), shape)


def _numpy_name(code: object) -> str:
    text = str(code).lstrip("<>|=")
    named = {"f": "float", "i": "int", "u": "uint", "c": "complex"}
    return f"{named[text[0]]}{8 * int(text[1:])}" if text[:1] in named else {"b1": "bool"}.get(text, text)


def _mp4(data: bytes, whole: int) -> Look:
    """Boxes of ISO/IEC 14496-12: moov/mvhd has the duration, moov/trak/tkhd the size of a track, and mp4a its sound."""
    seconds: float | None = None
    shape: tuple[int, ...] = ()
    sound = ""
    for name, start, end in _boxes(data, 0, len(data)):
        if name != b"moov":
            continue
        for inner, first, last in _boxes(data, start, end):
            if inner == b"mvhd":
                form, skip = (">IQ", 20) if data[first] else (">II", 12)
                scale, duration = struct.unpack_from(form, data, first + skip)
                seconds = duration / scale or None  # fragments have durations of their own
            elif inner == b"trak":
                sound = sound or _sound(data[first:last])
                ends = [stop for box, _, stop in _boxes(data, first, last) if box == b"tkhd"]
                sizes = (struct.unpack_from(">II", data, stop - 8) for stop in ends)
                shape = next(((wide >> 16, high >> 16) for wide, high in sizes if wide and high), shape)
    return Look(sound, shape, seconds)


def _sound(track: bytes) -> str:
    """Rate and channels by a track's AudioSampleEntry in stsd; empty for a track of another kind."""
    entry = track.find(b"mp4a", track.find(b"stsd"))
    if entry < 0 or b"stsd" not in track:
        return ""
    channels, rate = struct.unpack_from(">H6xH", track, entry + 20)
    return _audio(rate, channels, 0).kind


def _boxes(data: bytes, position: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    while position + 8 <= end:
        size, name = struct.unpack_from(">I4s", data, position)
        start = position + 8
        if size == 1:
            size, start = struct.unpack_from(">Q", data, start)[0], start + 8
        size = size or end - position
        yield name, start, min(position + size, end)
        position += max(size, 8)


_READERS: Final = {
    "audio/wav": _wav,
    "audio/flac": _flac,
    "audio/mp4": _mp4,
    "npy": _npy,
    "video/mp4": _mp4,
}

# --- Serialized tensors ---

_DTYPES: Final = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 7: "string", 9: "int64", 10: "bool",
    14: "bfloat16", 17: "uint16", 19: "float16", 22: "uint32", 23: "uint64",
}  # fmt: skip
"""DataType in tensorflow/core/framework/types.proto."""

_WIDTHS: Final = {"float64": 8, "int64": 8, "uint64": 8, "float32": 4, "int32": 4, "uint32": 4, "uint8": 1, "int8": 1}


def _tensor(data: bytes) -> Look | None:
    """Read dtype and shape of a tf.io.serialize_tensor value; None if the bytes are something else.

    The message is TensorProto in tensorflow/core/framework/tensor.proto: 1 is the dtype, 2 the shape, 4 the content.
    """
    if data[:1] != b"\x08" or data[1:2] == b"" or data[1] not in _DTYPES or data[2:3] != b"\x12":
        return None
    try:
        found = {tag: (start, end) for tag, start, end in fields(data, 0, len(data), 0)}
        shape = tuple(_dimension(data, *place) for _, *place in fields(data, *found.get(0x12, (0, 0)), 1))
    except (ValueError, IndexError):
        return None
    dtype = _DTYPES[data[1]]
    start, end = found.get(0x22, (0, 0))
    size = prod(shape) * _WIDTHS.get(dtype, 0)
    if any(tag >> 3 > 17 for tag in found) or (start < end and size and size != end - start):
        return None
    return Look(f"tensor {dtype}", shape)


def _dimension(data: bytes, start: int, end: int) -> int:
    """The size in a TensorShapeProto.Dim, which is its field 1."""
    number = 0
    for tag, first, last in fields(data, start, end, 2):
        if tag == 0x08:
            number = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(data[first:last]))
    return number
