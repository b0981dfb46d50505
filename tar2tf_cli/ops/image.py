"""Base classes of ops on images, which are arrays (height, width, channels), and updates of what describes an image."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeAlias

from tar2tf_cli.api.op import OpContext
from tar2tf_cli.api.values import KEY, Sample
from tar2tf_cli.errors import ImageError, UsageError
from tar2tf_cli.formats import image
from tar2tf_cli.ops.base import DeclaredOp, missing_entry, names_matching
from tar2tf_cli.ops.rules import Rule, rule, text, whole_number
from tar2tf_cli.structs import dataclass

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tar2tf_cli.formats.image.geometry import Move, Size

Pixels: TypeAlias = "NDArray[np.generic]"
"""An image of any dtype: (height, width, channels)."""

MOVES: Final = "__moves__"
"""The entry that holds the moves of each image of a sample, if boxes, points or masks are declared."""


@dataclass(frozen=True)
class ImageOp(DeclaredOp):
    """An op on the decoded image in the entry `ext`, or in each entry whose name matches it as a glob.

    Attributes:
        moves: whether pixels change their positions, in which case `move` is implemented.
        stretches: whether an image is only scaled, so that coordinates as fractions of its sides do not change.
    """

    releases_gil = True
    by_name = True
    on_pixels = True
    checks: ClassVar[Mapping[str, Rule[object]]] = {"ext": text}
    moves: ClassVar[bool] = False
    stretches: ClassVar[bool] = False

    ext: str

    def apply(self, sample: Sample, context: OpContext) -> Sample:
        for name in self.entries(sample):
            pixels = self._array(sample, name)
            sample[name] = changed = self.change(pixels, sample[KEY], context)
            if self.moves and self.has_annotations(sample, name):
                self.record_move(sample, name, self.move(pixels.shape[:2], changed.shape[:2], sample[KEY], context))
        return sample

    def change(self, pixels: Pixels, key: str, context: OpContext) -> Any:
        """Return the changed image of the sample with this key."""
        raise NotImplementedError

    def move(self, before: Size, after: Size, key: str, context: OpContext) -> Move:
        """Return how the op moves the image of the sample with this key, given its sizes before and after."""
        raise NotImplementedError

    def entries(self, sample: Sample) -> Collection[str]:
        """Return the names of the entries to work on.

        Raises:
            SampleError: when no entry matches a glob.
        """
        if "*" not in self.ext:
            return (self.ext,)
        names = names_matching(sample, self.ext)
        if not names:
            raise missing_entry(sample, f"{self.name}: has no entry {self.ext!r}", self.ext, f"--op {self.name}")
        return names

    def has_annotations(self, sample: Sample, name: str) -> bool:
        """Whether a sample has annotations or a description of an image, which must be updated after a move."""
        return MOVES in sample or not describing_entries(name).isdisjoint(sample)

    def record_move(self, sample: Sample, name: str, move: Move) -> None:
        """Record the move of an image for its annotations, and update the sizes stored with it.

        Raises:
            UsageError: when the image has undeclared boxes of the Object Detection API.
        """
        if move.before != move.after:
            update_sizes(sample, name, move.after)
        if (moves := sample.get(MOVES)) is not None:
            moves.setdefault(name, []).append(move)
            return
        prefix = name.removesuffix("/encoded")
        if f"{prefix}/object/bbox/xmin" in sample and not self.stretches:
            message = f"{self.name} moves the pixels of {name!r}, but its boxes {prefix}/object/bbox would not move"
            raise UsageError(message, hint=f"add --boxes {prefix}/object/bbox")

    def check_size(self, height: int, width: int, context: OpContext) -> None:
        """Raise an error before an op makes an image larger than may be decoded.

        Raises:
            UsageError: when the image has more pixels than `max_pixels`.
        """
        if height * width > context.max_pixels:
            message = f"{self.name}: {height}x{width} pixels are more than the limit of {context.max_pixels}"
            raise UsageError(message, hint="choose a smaller size, or raise --max-pixels")

    def _array(self, sample: Sample, name: str) -> Pixels:
        import numpy as np

        value = self.entry(sample, name)
        if isinstance(value, np.ndarray):
            if value.ndim != 3:
                message = f"{self.name}: entry {name!r} is an array of shape {list(value.shape)}, not an image"
                hint = "an image is [height, width, channels]; write a function for others: --op func:FILE.py:NAME"
                raise ImageError(message, hint=hint)
            return value
        what = "encoded bytes" if isinstance(value, bytes) else f"{type(value).__name__}"
        message = f"{self.name}: entry {name!r} is {what}, not a decoded image"
        raise ImageError(message, hint=f"add --op decode:{self.ext} before it")


@rule(
    anyOf=[
        {"type": "array", "items": whole_number(1).schema, "minItems": 2, "maxItems": 2},
        {"type": "string", "pattern": "^[1-9][0-9]*(x[1-9][0-9]*)?$"},
        whole_number(1).schema,
    ]
)
def size_rule(size: object, label: str) -> tuple[int, int]:
    """Parse height and width from `224x224`, (224, 224) or, for a square, `224` or 224."""
    several = not isinstance(size, str) and hasattr(size, "__iter__")
    parts: list[object] = list(size) if several else [*str(size).split("x")]  # type: ignore[call-overload]
    try:
        numbers = [whole_number(1)(part, label) for part in parts]
    except ValueError:
        numbers = []
    if len(numbers) != 2 and (several or len(numbers) != 1):
        raise ValueError(f"{label} must be HEIGHTxWIDTH in pixels, not {size!r}")
    return numbers[0], numbers[-1]


class ResamplingOp(ImageOp):
    """Base class of ops that interpolate pixels, unless by the method nearest."""

    moves = True
    method: str | None

    def notes(self, palettes: Collection[str] = ()) -> list[str]:
        if self.method or not (fnmatch.filter(palettes, self.ext) or image.is_named_like_mask(self.ext)):
            return []
        advice = f"if {self.ext!r} holds classes, write method=nearest, else method=bilinear"
        return [f"warning: {self.name} mixes neighbouring pixels; {advice}"]


# --- Entries that describe an image: its sizes, format and digest ---


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
