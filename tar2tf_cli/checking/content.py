"""Detects what a value is from its bytes (an image and its size, text, audio, an array), and sums up many values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from tar2tf_cli.checking.media import media_header, tensor_header
from tar2tf_cli.errors import ImageError
from tar2tf_cli.formats.magic import sniff

__all__ = ["Look", "Stats", "example_of", "look_at", "shortened", "text_of"]

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
        found = media_header(kind, data, size)
        return Look(f"{kind} {found.detail}".rstrip(), found.shape, found.seconds)
    if kind:
        from tar2tf_cli.formats.image import header

        try:
            image = header(data)
            return Look(kind, (image.width, image.height, image.channels))
        except ImageError:
            if kind in _WITHOUT_HEADER or (kind == "image/tiff" and (size or 0) > len(data)):
                return Look(kind)
    if tensor := tensor_header(data):
        return Look(f"tensor {tensor.detail}", tensor.shape)
    return Look(_text_kind(data))


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
    return text_of(data) or data[:16].hex(" ") + (" …" if len(data) > 16 else "")


def text_of(data: bytes) -> str:
    """The beginning of a text on one line; empty for other bytes."""
    return shortened(" ".join((_text(data) or "").split()))


def shortened(text: str, most: int = _MOST_CHARACTERS) -> str:
    """Text cut to at most `most` characters, ending with an ellipsis if it was longer."""
    return text if len(text) <= most else text[: most - 1] + "…"


@dataclass(slots=True)
class Stats:
    """What the values of one entry or feature have in common.

    Attributes:
        unit: the unit of `least`, `most` and `total`: bytes or, for lists of numbers, values.
        count: how many samples have the entry or feature.
        example: one of the values, shortened.
        kinds: how many of the examined values have each kind.
        shapes: the smallest and largest dimensions of each kind of image, video or array; empty if their number varies.
        seconds: the shortest and longest duration of each kind of audio or video.
        values: the smallest and largest number of values of a feature in a record.
        lists: the kinds of lists that hold the values of a feature; None for a feature without a list.
        shaped: what a feature NAME/shape is the shape of: `values`, or `uint8` for bytes; empty if of neither, and None
            if there is no such feature.
    """

    unit: Literal["bytes", "values"] = "bytes"
    count: int = 0
    total: int = 0
    least: int = 0
    most: int = 0
    example: str | None = None
    kinds: Counter[str] = field(default_factory=Counter)
    shapes: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)
    seconds: dict[str, tuple[float, float]] = field(default_factory=dict)
    values: tuple[int, int] | None = None
    lists: set[str | None] = field(default_factory=set)
    shaped: str | None = None

    @property
    def mean(self) -> float:
        """Mean of the sizes."""
        return self.total / self.count if self.count else 0.0

    @property
    def kind(self) -> str:
        """The kinds, most frequent first, such as `image/jpeg 500x375x3` or `image/png 28-32x28-32x1, text`."""
        return ", ".join(self._described(kind) for kind, _ in self.kinds.most_common()) or "bytes"

    def add(self, size: int) -> None:
        """Add the size of a value."""
        self.least = size if not self.count or size < self.least else self.least
        self.most = size if size > self.most else self.most
        self.count += 1
        self.total += size

    def add_list(self, kind: str | None, number: int) -> None:
        """Add the kind of a list and its number of values; None for a feature without a list."""
        if kind not in self.lists:
            self.lists.add(kind)
        if kind is None:
            return
        if self.values is None:
            self.values = number, number
        elif not self.values[0] <= number <= self.values[1]:
            self.values = min(self.values[0], number), max(self.values[1], number)

    def look(self, look: Look, example: Callable[[], str]) -> None:
        """Add what a value is; `example` is called for the first value only."""
        self.kinds[look.kind] += 1
        if self.example is None:
            self.example = example()
        if look.shape:
            self._widen(look.kind, look.shape, look.shape)
        if look.seconds is not None:
            self._lengthen(look.kind, look.seconds, look.seconds)

    def update(self, other: Stats) -> None:
        """Add the statistics of another shard."""
        if self.example is None:
            self.example = other.example
        if not self.count:
            self.unit = other.unit
        if self.values and other.values:
            self.values = min(self.values[0], other.values[0]), max(self.values[1], other.values[1])
        self.values = self.values or other.values
        self.lists |= other.lists
        self.shaped = (
            other.shaped if self.shaped in (None, other.shaped) else self.shaped if other.shaped is None else ""
        )
        self.least = min(self.least, other.least) if self.count and other.count else self.least or other.least
        self.most = max(self.most, other.most)
        self.count += other.count
        self.total += other.total
        self.kinds.update(other.kinds)
        for kind, (low, high) in other.shapes.items():
            self._widen(kind, low, high)
        for kind, (short, long) in other.seconds.items():
            self._lengthen(kind, short, long)

    def to_json(self, missing: int = 0) -> dict[str, Any]:
        """As plain JSON, with the number of samples that lack the entry, if any do."""
        return {
            "count": self.count,
            **({"missing": missing} if missing else {}),
            "kind": self.kind,
            "unit": self.unit,
            "min": self.least,
            "mean": round(self.mean, 2),
            "max": self.most,
            "example": self.example,
        }

    def _widen(self, kind: str, low: tuple[int, ...], high: tuple[int, ...]) -> None:
        known_low, known_high = self.shapes.get(kind, (low, high))
        same = len(known_low) == len(low) == len(known_high)
        widened = tuple(map(min, known_low, low)), tuple(map(max, known_high, high))
        self.shapes[kind] = widened if same else ((), ())

    def _lengthen(self, kind: str, short: float, long: float) -> None:
        known = self.seconds.get(kind, (short, long))
        self.seconds[kind] = min(known[0], short), max(known[1], long)

    def _described(self, kind: str) -> str:
        parts = [kind]
        if sizes := [_range(low, high) for low, high in zip(*self.shapes.get(kind, ((), ())), strict=True)]:
            parts.append("x".join(sizes))
        if kind in self.seconds:
            parts.append(_range(*(f"{seconds:.3g}" for seconds in self.seconds[kind])) + " s")
        return " ".join(parts)


def _range(low: object, high: object) -> str:
    return str(low) if low == high else f"{low}-{high}"
