"""Image sizes stored in entries of a sample, which are updated when the image changes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

from tar2tf_cli.api.values import Sample


class SizeEntries(NamedTuple):
    """Names of the entries that may describe an image.

    Attributes:
        height: entries with the number of rows.
        width: entries with the number of columns.
        channels: entries with the number of channels.
        shape: entries with height and width, and perhaps channels, as a list.
        format: entries with the name of the encoding.
        digest: entries with the SHA-256 of the encoded bytes, in hexadecimal digits.
    """

    height: tuple[str, ...]
    width: tuple[str, ...]
    channels: tuple[str, ...]
    shape: tuple[str, ...]
    format: tuple[str, ...]
    digest: tuple[str, ...]


@lru_cache(maxsize=256)
def size_entries(name: str) -> SizeEntries:
    """Return the names by which manifests, TF-slim, the Object Detection API and image-label describe an image.

    The image `image/encoded` is described by `image/height`, the image `x` by `x/height`, and `image_raw` by `height`.
    """
    prefixes = [name] if not name.endswith("/encoded") else [name, name.removesuffix("/encoded")]
    under = {
        part: tuple(f"{prefix}/{part}" for prefix in prefixes)
        for part in ("height", "width", "channels", "shape", "format", "key/sha256")
    }
    if name == "image_raw":
        return SizeEntries(("height",), ("width",), ("depth",), under["shape"], (), ())
    return SizeEntries(*under.values())


@lru_cache(maxsize=256)
def describing_entries(name: str) -> frozenset[str]:
    """Return the names of all entries that may describe an image, and of boxes of the Object Detection API on it."""
    described_by = chain.from_iterable(size_entries(name))
    return frozenset((*described_by, f"{name.removesuffix('/encoded')}/object/bbox/xmin"))


def update_sizes(sample: Sample, name: str, size: Sequence[int]) -> None:
    """Write the new size of an image into the entries that hold its former size, keeping their form.

    Args:
        sample: the sample.
        name: the entry of the image.
        size: height, width, and the number of channels if that may have changed.
    """
    entries = size_entries(name)
    for names, number in zip(entries, size, strict=False):
        for entry in names:
            if entry in sample:
                sample[entry] = _in_form(sample[entry], number)
    for entry in entries.shape:
        if entry in sample and len(known := _numbers(sample[entry])) in (2, 3):
            sample[entry] = _list_in_form(sample[entry], [*size, *known[len(size) :]][: len(known)])


def update_encoding(sample: Sample, name: str, encoding: str, data: bytes) -> None:
    """Write the new encoding of an image, and its digest, into the entries that hold the former ones."""
    entries = size_entries(name)
    for entry in entries.format:
        if isinstance(known := sample.get(entry), bytes):
            sample[entry] = encoding.upper().encode() if known.isupper() else encoding.encode()
    for entry in entries.digest:
        if isinstance(sample.get(entry), bytes):
            from hashlib import sha256

            sample[entry] = sha256(data).hexdigest().encode()


def _in_form(known: object, number: int) -> object:
    """Convert a number to the type of the value that it replaces: text, a NumPy scalar or array, or a plain number."""
    if isinstance(known, bytes):
        return b"%d" % number
    if getattr(known, "shape", ()):
        return _list_in_form(known, [number])
    return known.dtype.type(number) if hasattr(known, "dtype") else number


def _list_in_form(known: Any, numbers: Sequence[int]) -> Any:
    if isinstance(known, bytes):
        return b" ".join(b"%d" % number for number in numbers)
    if not hasattr(known, "dtype"):
        return type(known)(numbers)
    import numpy as np

    return np.array(numbers, known.dtype).view(type(known))


def _numbers(known: Any) -> Sequence[int]:
    """Return the numbers of a stored shape; none for a value that is not a list."""
    if isinstance(known, bytes):
        return [int(part) for part in known.split() if part.isdigit()]
    if isinstance(known, (list, tuple)):
        return known
    return known.tolist() if getattr(known, "ndim", 0) == 1 else ()
