"""The op flip, which mirrors images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from tar2tf_cli.api.op import OpContext
from tar2tf_cli.formats import image
from tar2tf_cli.formats.image.geometry import Move, Size, mirrored, scaled
from tar2tf_cli.ops.base import register
from tar2tf_cli.ops.image import ImageOp, Pixels
from tar2tf_cli.ops.rules import Rule, probability
from tar2tf_cli.structs import dataclass


@register
@dataclass(frozen=True)
class Flip(ImageOp):
    """Flip left to right.

    With P, only that fraction of the images is flipped; which ones depends on the seed and the key. The result equals
    that of `tf.image.flip_left_right`.

    >>> parse_op("flip:jpg,p=0.5") == Flip("jpg", 0.5)
    True
    """

    name = "flip"
    usage = "flip:EXT[,p=P]"
    examples = ("flip:jpg", "flip:jpg,p=0.5")
    moves = True
    checks: ClassVar[Mapping[str, Rule[object]]] = {"p": probability}

    p: float = 1.0

    def change(self, pixels: Pixels, key: str, context: OpContext) -> Pixels:
        return image.flipped(pixels) if self._flips(key, context) else pixels

    def move(self, before: Size, after: Size, key: str, context: OpContext) -> Move:
        return mirrored(before) if self._flips(key, context) else scaled(before, after)

    def _flips(self, key: str, context: OpContext) -> bool:
        return image.random_fraction(context.seed, key, 3) < self.p
