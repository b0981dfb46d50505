"""The op rotate, which rotates images by an angle."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import ClassVar

from tar2tf_cli.api.op import OpContext
from tar2tf_cli.formats import image
from tar2tf_cli.formats.image.geometry import Move, Size, rotated
from tar2tf_cli.ops.base import keyword_aliases, register
from tar2tf_cli.ops.image import Pixels, ResamplingOp
from tar2tf_cli.ops.rules import Rule, number_of, one_of, optional
from tar2tf_cli.structs import dataclass


@register
@dataclass(frozen=True)
class Rotate(ResamplingOp):
    """Rotate clockwise by degrees, or at random.

    Without ANGLE, or with 0, the angle is random, and depends on the seed and the key. With the METHOD bilinear, pixels
    are interpolated, except at multiples of 90 degrees; use nearest for masks.

    >>> parse_op("rotate:jpg,90") == Rotate("jpg", 90)
    True
    """

    name = "rotate"
    usage = "rotate:EXT[,ANGLE][,METHOD]"
    examples = ("rotate:jpg,90", "rotate:jpg", "rotate:png,20,nearest")
    checks: ClassVar[Mapping[str, Rule[object]]] = {
        "angle": number_of(" of degrees", 1e6),
        "method": optional(one_of(*image.TURNING)),
    }

    angle: float = 0.0
    method: str | None = None

    def notes(self, palettes: Collection[str] = ()) -> list[str]:
        return [] if self.angle and not self.angle % 90 else super().notes(palettes)

    def change(self, pixels: Pixels, key: str, context: OpContext) -> Pixels:
        return image.rotate(pixels, self._angle(key, context), self.method or "bilinear")

    def move(self, before: Size, after: Size, key: str, context: OpContext) -> Move:
        return rotated(before, self._angle(key, context))

    def _angle(self, key: str, context: OpContext) -> float:
        return self.angle or image.random_angle(context.seed, key)


keyword_aliases(Rotate, ext_name="ext")
