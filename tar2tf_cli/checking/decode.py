"""Decoding for `verify --decode`: each value must be intact, and of the kind that its name and earlier values imply.

Boxes of the Object Detection API are checked too, as faulty ones break training.
"""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from threading import Lock
from typing import Final

from tar2tf_cli.api.op import DEFAULT_MAX_PIXELS
from tar2tf_cli.checking.contents import is_text
from tar2tf_cli.errors import ImageError, SampleError, UsageError
from tar2tf_cli.formats.decoding import can_decode, decode
from tar2tf_cli.formats.example import ParsedFeature, parse
from tar2tf_cli.formats.image import codecs, cv2, headers, np, opencv
from tar2tf_cli.formats.image.headers import tiff_pages
from tar2tf_cli.formats.npy import PickledError
from tar2tf_cli.formats.streams import sniff

_SOUND = ("audio", "sound")
_NAMED: Final = {
    **dict.fromkeys(("jpg", "jpeg", "png", "bmp", "gif", "webp", "tif", "tiff"), ("image", "an image")),
    **dict.fromkeys(("wav", "flac", "ogg", "mp3"), _SOUND),
    "npy": ("npy", "an npy array"),
    "npz": ("npz", "an npz file"),
}
"""The kind of value that a name promises, and its name in messages."""

_PROMISES: Final = dict(_NAMED.values())
_HEAD: Final = 1024


class ValueChecker:
    """Checks the kind of each value against its name and earlier values of the same name, and decodes values.

    Args:
        unknown: counts the values of each kind that cannot be checked, because no decoder for them is installed.
    """

    def __init__(self, unknown: Counter[str]) -> None:
        self._unknown = unknown
        self._kinds: dict[str, str] = {}
        self._lock = Lock()

    def odd(self, values: Iterable[tuple[str, bytes]]) -> list[tuple[str, str]]:
        """Return faults for values that are no image, sound or array, although name or earlier values imply it."""
        faults = []
        for name, data in values:
            kind = _kind(data).partition("/")[0]
            wanted = self._kinds.get(name) or _expected_kind(name)
            if kind in _PROMISES:
                self._kinds[name] = kind
            elif wanted:
                what = _PROMISES[wanted]
                state = "empty" if not data else f"not {what}"
                faults.append(("undecodable", f"{name!r} is {state}, where {what} is expected"))
        return faults

    def undecodable(self, values: Iterable[tuple[str, bytes]]) -> list[tuple[str, str]]:
        """Return faults for damaged images, sounds and arrays; thread-safe."""
        faults = []
        for name, data in values:
            kind = _kind(data)
            if _expected_kind(name) and kind.partition("/")[0] not in _PROMISES:
                continue  # reported by `odd`
            try:
                _try(kind, data)
            except _UnknownError as error:
                with self._lock:
                    self._unknown[f"{kind or 'unknown bytes'} {error}".rstrip()] += 1
            except (SampleError, ValueError) as error:
                faults.append(("undecodable", f"{name!r} cannot be decoded: {error}"))
        return faults


def _expected_kind(name: str) -> str:
    """Return the kind of value that a name's extension implies; empty if it implies none."""
    return _NAMED.get(name.rpartition(".")[2], ("", ""))[0]


def _kind(data: bytes) -> str:
    kind = sniff(data[:_HEAD]) or ""
    if kind == "image/bmp" and (len(data) < 26 or any(data[6:10])):
        return ""  # text may begin with BM too
    return kind


class _UnknownError(Exception):
    """Raised if no decoder can tell whether a value is intact; the message says why, or is empty."""


def _try(kind: str, data: bytes) -> None:
    """Decode a value, and raise an error if it is damaged.

    Raises:
        _UnknownError: when no decoder for the value is installed, and it is not text.
        SampleError, ValueError: when the value is damaged.
    """
    if kind == "image/tiff":
        _decode_tiff(data)
    elif kind.startswith("video/"):
        decode_video(data)
    elif kind == "image/png":
        codecs.check_png(data)
    elif can_decode(kind):
        try:
            decode(data)
        except PickledError:
            raise _UnknownError("of Python objects") from None
        except UsageError as error:
            raise _UnknownError(f"({error.message})") from None
        if kind == "image/jpeg" and headers.lacks_scans(data):
            raise ValueError("it is a progressive JPEG without its later scans, so it is coarser than it was")
    elif kind or not is_text(data):
        raise _UnknownError


def decode_video(data: bytes) -> None:
    """Decode all frames of a video with PyAV."""
    try:
        import av
    except ImportError:
        raise _UnknownError("(decoding videos needs pip install 'tar2tf-cli[video]')") from None
    try:
        with av.open(io.BytesIO(data)) as container:
            if not container.streams.video:
                raise ValueError("it has no video")
            stream = container.streams.video[0]
            frames = sum(1 for _ in container.decode(stream))
    except av.FFmpegError as error:
        raise ValueError(f"it is damaged: {error.strerror}") from None
    if not frames or frames < stream.frames:
        raise ValueError(f"it is truncated: {frames:,} of {stream.frames:,} frames")


def _decode_tiff(data: bytes) -> None:
    """Decode all pages of a TIFF with OpenCV."""
    shape = headers.header(data)
    if shape.height * shape.width > DEFAULT_MAX_PIXELS:
        raise ImageError(f"{shape.height}x{shape.width} pixels are more than the limit of {DEFAULT_MAX_PIXELS}")
    pages = list(tiff_pages(data))
    try:
        with opencv("decode a TIFF"):
            whole, images = cv2.imdecodemulti(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    except ImageError:
        whole, images = False, ()
    if not (whole and images):
        if all(page.common for page in pages):
            raise ValueError("it is damaged")
        raise _UnknownError("of an uncommon kind")


# --- Boxes ---

_MARK: Final = b"/bbox/xmin"
_SIDES: Final = ("xmin", "ymin", "xmax", "ymax")
_ROUNDED: Final = 1e-4  # fraction of its length by which a side may exceed the image, as float32 rounds


def box_faults(message: bytes, numbers: Mapping[str, Set[int]]) -> list[tuple[str, str]]:
    """Return the faults of an example's boxes and classes, each as kind and message.

    Args:
        message: the example.
        numbers: the permitted class numbers, by feature.
    """
    if _MARK not in message:
        return []
    try:
        features = parse(message)
    except ValueError:
        return []
    prefixes = [name.removesuffix("/xmin") for name in features if name.endswith("/bbox/xmin")]
    return [("box", fault) for prefix in prefixes for fault in _box_faults(prefix, features, numbers)]


def _box_faults(prefix: str, features: Mapping[str, ParsedFeature], numbers: Mapping[str, Set[int]]) -> Iterator[str]:
    columns = [_numbers(features, f"{prefix}/{side}", "float") for side in _SIDES]
    if len({len(column) for column in columns}) > 1:
        sizes = ", ".join(f"{len(column)} {side}" for side, column in zip(_SIDES, columns, strict=True))
        yield f"the boxes {prefix!r} have lists of different lengths: {sizes}"
        return
    for number, box in enumerate(zip(*columns, strict=True)):
        left, top, right, bottom = box
        shown = f"box {number} of {prefix!r}, [{left:g}, {top:g}, {right:g}, {bottom:g}],"
        if not all(map(math.isfinite, box)):
            yield f"{shown} has a number that is not finite"
        elif right <= left or bottom <= top:
            yield f"{shown} has no area"
        elif min(left, top) < -_ROUNDED or max(right, bottom) > 1 + _ROUNDED:
            yield f"{shown} is not inside the image: sides are fractions from 0 to 1"
    labels = f"{prefix.rpartition('/')[0]}/class/label"
    classes = _numbers(features, labels, "int64")
    if classes and len(classes) != len(columns[0]):  # class names in texts may replace the numbers
        yield f"{prefix!r} has {len(columns[0])} boxes, but {labels!r} has {len(classes)} classes"
    for number, label in enumerate(classes):
        if label < 1:
            yield f"item {number} of {labels!r} is {label:g}, but classes are numbered from 1, as 0 is the background"
        elif label not in numbers.get(labels, (label,)):
            yield f"item {number} of {labels!r} is {label:g}, which the label map in the manifest does not have"


def _numbers(features: Mapping[str, ParsedFeature], name: str, kind: str) -> Sequence[float]:
    feature = features.get(name)
    return feature.values() if feature and feature.kind == kind else ()
