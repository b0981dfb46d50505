"""The ops resize, which scales images, and pad, which keeps their ratio."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from tar2tf_cli.api.op import OpContext
from tar2tf_cli.formats import image
from tar2tf_cli.formats.image.geometry import Move, Size, placed, scaled
from tar2tf_cli.ops.base import keyword_aliases, register
from tar2tf_cli.ops.image import Pixels, ResamplingOp, size_rule
from tar2tf_cli.ops.rules import Rule, number_of, one_of, optional, whole_number, yes_or_no
from tar2tf_cli.structs import dataclass


@register
@dataclass(frozen=True)
class Resize(ResamplingOp):
    """Scale to height x width, bilinear, float32.

    METHOD is any method of `tf.image.resize`; nearest keeps the dtype, so use it for masks. short=N or long=N scales
    that side to N and keeps the ratio. only_if=larger scales only images that are larger than the new size,
    only_if=smaller only those that are smaller.

    >>> parse_op("resize:png,64x64,nearest") == Resize("png", (64, 64), "nearest")
    True
    """

    name = "resize"
    usage = "resize:EXT,HEIGHTxWIDTH[,METHOD] or resize:EXT,short=N"
    examples = (
        "resize:jpg,224x224",
        "resize:png,224,nearest",
        "resize:jpg,short=256,antialias=true",
    )
    checks: ClassVar[Mapping[str, Rule[object]]] = {
        "size": optional(size_rule),
        "method": optional(one_of(*image.METHODS)),
        "antialias": yes_or_no,
        "short": optional(whole_number(1)),
        "long": optional(whole_number(1)),
        "only_if": optional(one_of("larger", "smaller")),
    }

    stretches = True
    exactly_one = ("size", "short", "long")

    size: Any = None
    method: str | None = None
    antialias: bool = False
    short: int | None = None
    long: int | None = None
    only_if: str | None = None

    def change(self, pixels: Pixels, key: str, context: OpContext) -> Pixels:
        rows, columns = pixels.shape[:2]
        height, width = self.size or image.scaled_size(rows, columns, short=self.short, long=self.long)
        if self.only_if and self._fits(height - rows, width - columns):
            return pixels if self.method == "nearest" else image.cast(pixels, "float32")
        self.check_size(height, width, context)
        return image.resample(pixels, height, width, self.method or "bilinear", antialias=self.antialias)

    def _fits(self, down: int, across: int) -> bool:
        """Whether `only_if` leaves an image unchanged that would gain this many rows and columns."""
        return min(down, across) >= 0 if self.only_if == "larger" else max(down, across) <= 0

    def move(self, before: Size, after: Size, key: str, context: OpContext) -> Move:
        return scaled(before, after)


@register
@dataclass(frozen=True)
class Pad(ResamplingOp):
    """Scale to fit height x width, and pad the rest.

    It keeps the ratio, as `tf.image.resize_with_pad` does. The result is float32; method=nearest keeps the dtype. New
    pixels are 0, or FILL.

    >>> parse_op("pad:jpg,224x224") == Pad("jpg", (224, 224))
    True
    """

    name = "pad"
    usage = "pad:EXT,HEIGHTxWIDTH[,FILL][,METHOD]"
    examples = ("pad:jpg,224x224", "pad:jpg,224,fill=128", "pad:png,224x224,255,nearest")
    checks: ClassVar[Mapping[str, Rule[object]]] = {
        "size": size_rule,
        "fill": number_of("", 1e9),
        "method": optional(one_of(*image.METHODS)),
        "antialias": yes_or_no,
    }

    size: Any
    fill: float = 0.0
    method: str | None = None
    antialias: bool = False

    def change(self, pixels: Pixels, key: str, context: OpContext) -> Pixels:
        height, width = self.size
        self.check_size(height, width, context)
        return image.pad(pixels, height, width, self.fill, self.method or "bilinear", antialias=self.antialias)

    def move(self, before: Size, after: Size, key: str, context: OpContext) -> Move:
        inner, top, left = image.pad_layout(*before, *after)
        return placed(before, inner, after, top, left)


for _op in (Resize, Pad):
    keyword_aliases(_op, ext_name="ext", dst_size="size")
