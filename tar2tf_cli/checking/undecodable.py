"""Finds values that a training would fail on, by decoding them: images, and arrays in npy files.

JPEG, PNG, BMP, GIF and WebP are what `tf.io.decode_image` takes. What cannot be decoded here, such as a TIFF of an
uncommon kind, is counted by its kind instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from threading import Lock
from typing import Final, TypeAlias

from tar2tf_cli.errors import ImageError
from tar2tf_cli.formats import image, npy
from tar2tf_cli.formats.example_parser import parse
from tar2tf_cli.formats.image.headers import check_gif, tiff_pages
from tar2tf_cli.formats.image.lazy import cv2, np
from tar2tf_cli.formats.magic import sniff
from tar2tf_cli.formats.stored import DEFAULT_MAX_PIXELS

_NAMED: Final = {"jpg": "image/", "jpeg": "image/", "png": "image/", "bmp": "image/", "npy": "npy"}

Faults: TypeAlias = Sequence[tuple[str, str]]
"""The faults of one record or sample, each as its kind and a message."""

_Value: TypeAlias = tuple[str, bytes]


class Values:
    """Remembers what the values of each name are, to find one that differs, such as an image without its beginning.

    Attributes:
        unknown: how many images and arrays of each kind cannot be decoded here, so that nothing is known of them.
    """

    def __init__(self) -> None:
        self.unknown: Counter[str] = Counter()
        self._kinds: dict[str, str] = {}
        self._lock = Lock()

    def odd(self, values: Iterable[_Value]) -> list[tuple[str, str]]:
        """The faults of values that are not images or arrays, although their name or those before say so."""
        found = []
        for name, data in values:
            kind = _kind(data).partition("/")[0]
            wanted = self._kinds.get(name) or _NAMED.get(name.rpartition(".")[2], "").rstrip("/")
            if kind in ("image", "npy"):
                self._kinds[name] = kind
            elif wanted:
                what = "an image" if wanted == "image" else "an npy array"
                state = "empty" if not data else f"not {what}"
                found.append(("undecodable", f"{name!r} is {state}, where {what} is expected"))
        return found

    def undecodable(self, values: Iterable[_Value]) -> list[tuple[str, str]]:
        """The faults of images and arrays that are damaged; may be called in several threads."""
        found = []
        for name, data in values:
            kind = _kind(data)
            try:
                if decode := _DECODERS.get(kind):
                    decode(data)
                elif kind.startswith("image/"):
                    raise _UnknownError
            except _UnknownError as error:
                with self._lock:
                    self.unknown[f"{kind} {error}".rstrip()] += 1
            except (ImageError, ValueError) as error:
                found.append(("undecodable", f"{name!r} cannot be decoded: {error}"))
        return found


def record_values(message: bytes) -> list[_Value]:
    """The bytes values of a tf.train.Example with the names of their features."""
    features = parse(message, sequence=True).values()
    return [(feature.name, part) for feature in features if feature.kind == "bytes" for part in feature.parts()]


def _kind(data: bytes) -> str:
    kind = sniff(data[:16]) or ""
    if kind == "image/bmp" and (len(data) < 26 or any(data[6:10])):
        return ""  # a text may begin with BM, too
    return kind


class _UnknownError(Exception):
    """Nobody here can tell whether a value is whole; says why, or nothing."""


def _decode_webp(data: bytes) -> None:
    if int.from_bytes(data[4:8], "little") + 8 > len(data):
        raise ValueError("it is cut short")
    if not _opencv_decodes(data):
        raise ValueError("it is damaged")


def _decode_tiff(data: bytes) -> None:
    pages = list(tiff_pages(data))
    if not _opencv_decodes(data):
        if all(page.common for page in pages):
            raise ValueError("it is damaged")
        raise _UnknownError("of an uncommon kind")


def _opencv_decodes(data: bytes) -> bool:
    """Whether OpenCV decodes an image: all pages of it.

    Raises:
        ImageError: when the header is damaged, or it has more pixels than are decoded.
    """
    cv2.utils.logging.setLogLevel(0)  # what it finds is said once, with the place
    shape = image.header(data)
    if shape.height * shape.width > DEFAULT_MAX_PIXELS:
        raise ImageError(f"{shape.height}x{shape.width} pixels are more than the limit of {DEFAULT_MAX_PIXELS}")
    try:
        whole, images = cv2.imdecodemulti(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    except cv2.error:
        return False
    return bool(whole and images)


def _decode_array(data: bytes) -> None:
    try:
        npy.read_array(data)
    except npy.PickledError:
        raise _UnknownError("of Python objects") from None


_DECODERS: Final[dict[str, Callable[[bytes], object]]] = {
    "image/jpeg": image.decode,
    "image/png": image.decode,
    "image/bmp": image.decode,
    "image/gif": check_gif,
    "image/webp": _decode_webp,
    "image/tiff": _decode_tiff,
    "npy": _decode_array,
}
