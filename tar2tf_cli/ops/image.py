"""Base classes of ops on images, which are arrays (height, width, channels)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tar2tf_cli.api.op import OpContext
from tar2tf_cli.api.values import KEY, Sample
from tar2tf_cli.errors import ImageError, UsageError
from tar2tf_cli.formats import image
from tar2tf_cli.ops.base import DeclaredOp
from tar2tf_cli.ops.rules import Rule, rule, text, whole_number

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class ImageOp(DeclaredOp):
    """An op on the decoded image in the entry `ext`."""

    releases_gil = True
    by_name = True
    checks: ClassVar[Mapping[str, Rule[Any]]] = {"ext": text}

    ext: str

    def apply(self, sample: Sample, context: OpContext) -> Sample:
        sample[self.ext] = self.change(self._array(sample), sample[KEY], context)
        return sample

    def change(self, pixels: NDArray[Any], key: str, context: OpContext) -> Any:
        """Return the changed image of the sample with this key."""
        raise NotImplementedError

    def _check_size(self, height: int, width: int, context: OpContext) -> None:
        """Refuse to make an image that is larger than any that may be decoded, before it takes memory.

        Raises:
            UsageError: when it has more pixels.
        """
        if height * width > context.max_pixels:
            message = f"{self.name}: {height}x{width} pixels are more than the limit of {context.max_pixels}"
            raise UsageError(message, hint="choose a smaller size, or raise --max-pixels")

    def _array(self, sample: Sample) -> NDArray[Any]:
        import numpy as np

        value = self.entry(sample, self.ext)
        if isinstance(value, np.ndarray):
            if value.ndim != 3:
                message = f"{self.name}: entry {self.ext!r} is an array of shape {list(value.shape)}, not an image"
                hint = "an image is [height, width, channels]; write a function for others: --op func:FILE.py:NAME"
                raise ImageError(message, hint=hint)
            return value
        what = "encoded bytes" if isinstance(value, bytes) else f"{type(value).__name__}"
        message = f"{self.name}: entry {self.ext!r} is {what}, not a decoded image"
        raise ImageError(message, hint=f"add --op decode:{self.ext} before it")


@rule(
    anyOf=[
        {"type": "array", "items": whole_number(1).schema, "minItems": 2, "maxItems": 2},
        {"type": "string", "pattern": "^[1-9][0-9]*(x[1-9][0-9]*)?$"},
        whole_number(1).schema,
    ]
)
def size_rule(size: Any, label: str) -> tuple[int, int]:
    """Parse height and width from `224x224`, (224, 224) or, for a square, `224` or 224."""
    several = not isinstance(size, str) and hasattr(size, "__iter__")
    parts = list(size) if several else str(size).split("x")
    try:
        numbers = [whole_number(1)(part, label) for part in parts]
    except ValueError:
        numbers = []
    if len(numbers) != 2 and (several or len(numbers) != 1):
        raise ValueError(f"{label} must be HEIGHTxWIDTH in pixels, not {size!r}")
    return numbers[0], numbers[-1]


class ResamplingOp(ImageOp):
    """An op that makes pixels of several, unless by the method nearest."""

    method: str | None

    def notes(self, palettes: Collection[str] = ()) -> list[str]:
        if self.method or not (self.ext in palettes or image.is_named_like_mask(self.ext)):
            return []
        advice = f"if {self.ext!r} holds classes, write method=nearest, else method=bilinear"
        return [f"warning: {self.name} mixes neighbouring pixels; {advice}"]
