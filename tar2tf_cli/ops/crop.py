"""The ops crop and center_crop, which cut out a part of an image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from tar2tf_cli.api.op import OpContext
from tar2tf_cli.formats import image
from tar2tf_cli.formats.image.geometry import Move, Size, placed
from tar2tf_cli.ops.base import keyword_aliases, register
from tar2tf_cli.ops.image import ImageOp, Pixels, size_rule
from tar2tf_cli.ops.rules import Rule, one_of
from tar2tf_cli.structs import dataclass


@register
@dataclass(frozen=True)
class Crop(ImageOp):
    """Cut out height x width.

    It keeps the middle, and pads smaller images with 0, as `tf.image.resize_with_crop_or_pad` does. AT is another
    position: a side, a corner such as top-left, or random, which depends on the seed and the key.

    >>> parse_op("crop:jpg,224x224") == Crop("jpg", (224, 224))
    True
    """

    name = "crop"
    usage = "crop:EXT,HEIGHTxWIDTH[,AT]"
    moves = True
    examples = ("crop:jpg,224x224", "crop:jpg,224,top-left", "crop:jpg,224x224,at=random")
    checks: ClassVar[Mapping[str, Rule[object]]] = {"size": size_rule, "at": one_of(*image.PLACES)}

    size: Any
    at: str = "center"

    def change(self, pixels: Pixels, key: str, context: OpContext) -> Pixels:
        height, width = self.size
        self.check_size(height, width, context)
        return image.crop(pixels, height, width, self.at, seed=context.seed, key=key)

    def move(self, before: Size, after: Size, key: str, context: OpContext) -> Move:
        top, left = image.crop_start(*before, *after, self.at, seed=context.seed, key=key)
        return placed(before, before, after, -top, -left)


@register
class CenterCrop(ImageOp):
    """Crop to the largest centred square.

    >>> parse_op("center_crop:jpg") == CenterCrop("jpg")
    True
    """

    name = "center_crop"
    usage = "center_crop:EXT"
    examples = ("center_crop:jpg",)
    moves = True

    def change(self, pixels: Pixels, key: str, context: OpContext) -> Pixels:
        return image.center_crop(pixels)

    def move(self, before: Size, after: Size, key: str, context: OpContext) -> Move:
        top, left = image.crop_start(*before, *after, "center")
        return placed(before, before, after, -top, -left)


for _op in (Crop, CenterCrop):
    keyword_aliases(_op, ext_name="ext", dst_size="size")
