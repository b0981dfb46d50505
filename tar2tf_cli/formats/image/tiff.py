"""The pages of a TIFF and where their pixels lie: TIFF 6.0, section 2."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

__all__ = ["TiffPage", "tiff_pages"]

_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC, _SAMPLES = 256, 257, 258, 259, 262, 277
_PLACES: Final = ((273, 279), (324, 325))
"""Tags of the offsets and sizes of strips, and of tiles."""

_FORMS: Final = {1: "B", 2: "B", 3: "H", 4: "I"}
_COMMON_BITS: Final = ({8}, {16})
_COMMON_COMPRESSIONS: Final = (1, 5, 8, 32773, 32946)  # none, LZW, deflate, PackBits, deflate
_COMMON_COLORS: Final = (0, 1, 2, 3)  # gray, RGB, palette
_MOST_PAGES: Final = 10_000


class TiffPage(NamedTuple):
    """One image of a TIFF.

    Attributes:
        common: whether its kind of pixels is one that every reader knows.
    """

    height: int
    width: int
    channels: int
    common: bool


def tiff_pages(data: bytes) -> Iterator[TiffPage]:
    """Yield the pages of a TIFF, whose pixels lie within the data.

    Raises:
        ValueError: when it is cut short or damaged.
    """
    order = "<" if data[:2] == b"II" else ">"
    seen: set[int] = set()
    try:
        (place,) = struct.unpack_from(f"{order}I", data, 4)
        while place:
            if place in seen or len(seen) == _MOST_PAGES:
                raise ValueError("its pages do not end")
            seen.add(place)
            (entries,) = struct.unpack_from(f"{order}H", data, place)
            tags = dict(_tag(data, order, place + 2 + 12 * entry) for entry in range(entries))
            yield _page(tags, len(data))
            (place,) = struct.unpack_from(f"{order}I", data, place + 2 + 12 * entries)
    except struct.error:
        raise ValueError("it is cut short") from None
    if not seen:
        raise ValueError("it has no page")


def _tag(data: bytes, order: str, place: int) -> tuple[int, tuple[int, ...]]:
    """Return the number of a tag, and its values; none for values that are not whole numbers."""
    tag, kind, count = struct.unpack_from(f"{order}HHI", data, place)
    if kind not in _FORMS:
        return tag, ()
    form = struct.Struct(f"{order}{min(count, len(data))}{_FORMS[kind]}")
    if form.size > 4:
        (place,) = struct.unpack_from(f"{order}I", data, place + 8)
        return tag, form.unpack_from(data, place)
    return tag, form.unpack_from(data, place + 8)


def _page(tags: dict[int, tuple[int, ...]], size: int) -> TiffPage:
    def first(tag: int, otherwise: int = 0) -> int:
        return (*tags.get(tag, ()), otherwise)[0]

    offsets, sizes = next(((tags[a], tags[b]) for a, b in _PLACES if a in tags and b in tags), ((), ()))
    if any(offset + length > size for offset, length in zip(offsets, sizes, strict=False)):
        raise ValueError("it is cut short: pixels lie behind its end")
    if not (first(_WIDTH) and first(_HEIGHT) and offsets):
        raise ValueError("a page has no pixels")
    common = (
        set(tags.get(_BITS, ())) in _COMMON_BITS
        and first(_COMPRESSION, 1) in _COMMON_COMPRESSIONS
        and first(_PHOTOMETRIC) in _COMMON_COLORS
    )
    return TiffPage(first(_HEIGHT), first(_WIDTH), first(_SAMPLES, 1), common)
