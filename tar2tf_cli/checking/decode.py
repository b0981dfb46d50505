"""Decodes values, to find those that a training would fail on: images, and arrays in npy files."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from tar2tf_cli.errors import ImageError
from tar2tf_cli.formats.example_parser import parse
from tar2tf_cli.formats.magic import sniff

if TYPE_CHECKING:
    from concurrent.futures import Future

__all__ = ["Faults", "Value", "Values", "in_threads", "record_values", "undecodable"]

_NAMED: Final = {"jpg": "image/", "jpeg": "image/", "png": "image/", "bmp": "image/", "npy": "npy"}

Faults: TypeAlias = Sequence[tuple[str, str]]
"""The faults of one record or sample, each as its kind and a message."""

Value: TypeAlias = tuple[str, bytes]

T = TypeVar("T")


class Values:
    """Remembers what the values of each name are, to find one that differs, such as an image without its beginning."""

    def __init__(self) -> None:
        self._kinds: dict[str, str] = {}

    def odd(self, values: Iterable[Value]) -> list[tuple[str, str]]:
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


def record_values(message: bytes) -> list[Value]:
    """The bytes values of a tf.train.Example with the names of their features."""
    features = parse(message, sequence=True).values()
    return [(feature.name, part) for feature in features if feature.kind == "bytes" for part in feature.parts()]


def undecodable(values: Iterable[Value]) -> list[tuple[str, str]]:
    """The faults of images and arrays that cannot be decoded; TensorFlow could not decode them either."""
    found = []
    for name, data in values:
        decode = _DECODERS.get(_kind(data))
        if decode and (problem := decode(data)):
            found.append(("undecodable", f"{name!r} cannot be decoded: {problem}"))
    return found


def _kind(data: bytes) -> str:
    kind = sniff(data[:16]) or ""
    if kind == "image/bmp" and (len(data) < 26 or any(data[6:10])):
        return ""  # a text may begin with BM, too
    return kind


def _decode_image(data: bytes) -> str | None:
    from tar2tf_cli.formats.image import decode

    try:
        decode(data)
    except ImageError as error:
        return error.message
    except MemoryError:
        return "it does not fit into memory"
    return None


def _decode_with_opencv(data: bytes) -> str | None:
    import cv2
    import numpy as np

    try:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    except cv2.error as error:
        return str(error).strip()
    return "it is damaged" if image is None else None


def _decode_array(data: bytes) -> str | None:
    from tar2tf_cli.formats.npy import PickledError, read_array

    try:
        read_array(data)
    except PickledError:
        return None
    except ValueError as error:
        return str(error)
    return None


_DECODERS: Final[dict[str, Callable[[bytes], str | None]]] = {
    "image/jpeg": _decode_image,
    "image/png": _decode_image,
    "image/bmp": _decode_image,
    "npy": _decode_array,
    "image/webp": _decode_with_opencv,
}


# --- In parallel ---

_AHEAD: Final = 8  # items per thread that are read and not judged


def in_threads(items: Iterable[T], judge: Callable[[T], Faults], threads: int) -> Iterator[tuple[T, Faults]]:
    """Yield each item with what `judge` finds, in order; a few items per thread are read ahead.

    When reading raises, the items before are yielded first.
    """
    from concurrent.futures import ThreadPoolExecutor

    waiting: deque[tuple[T, Future[Faults]]] = deque()
    failure: Exception | None = None
    reader = iter(items)
    with ThreadPoolExecutor(threads, "tar2tf-decode") as pool:
        while True:
            try:
                item = next(reader)
            except StopIteration:
                break
            except Exception as error:
                failure = error
                break
            waiting.append((item, pool.submit(judge, item)))
            if len(waiting) > _AHEAD * threads:
                first, found = waiting.popleft()
                yield first, found.result()
        for first, found in waiting:
            yield first, found.result()
    if failure:
        raise failure
