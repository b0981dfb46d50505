"""Ops on images: encoded bytes to arrays (height, width, channels) and back, and operations on arrays."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from tar2tf_cli.errors import ImageError, SampleError, UsageError
from tar2tf_cli.formats import image, npy
from tar2tf_cli.ops.base import Op, OpContext, keyword_aliases, register
from tar2tf_cli.ops.rules import JsonSchema, Rule, one_of, optional, rule, text, whole_number, yes_or_no
from tar2tf_cli.samples.names import KEY, Sample

if TYPE_CHECKING:
    from numpy.typing import NDArray


_PYTHON_TYPES: Final = {float: "float32", int: "int32", bool: "bool"}


@dataclass(frozen=True)
class _ImageOp(Op):
    """An op on the decoded image in the entry `ext`."""

    unlocked = True
    by_name = True
    checks: ClassVar[Mapping[str, Rule[Any]]] = {"ext": text}

    ext: str

    def __post_init__(self) -> None:
        for name, check in self.checks.items():
            object.__setattr__(self, name, check(getattr(self, name), name))

    def apply(self, sample: Sample, context: OpContext) -> Sample:
        sample[self.ext] = self.change(self._array(sample), sample[KEY], context)
        return sample

    def change(self, pixels: NDArray[Any], key: str, context: OpContext) -> Any:
        """Return the changed image of the sample with this key."""
        raise NotImplementedError

    def _array(self, sample: Sample) -> NDArray[Any]:
        import numpy as np

        value = self.entry(sample, self.ext)
        if not isinstance(value, np.ndarray) or value.ndim != 3:
            what = "encoded bytes" if isinstance(value, bytes) else f"{type(value).__name__}"
            raise ImageError(
                f"{self.name}: entry {self.ext!r} is {what}, not a decoded image",
                hint=f"put decode:{self.ext} before it",
            )
        return value


@rule(enum=list(image.CHANNELS))
def _channels(channels: Any, label: str) -> int:
    number = whole_number()(channels, label)
    if number not in image.CHANNELS:
        raise ValueError(f"{label} must be 0 (as in the file), 1 (gray) or 3 (RGB), not {number}")
    return number


@register
@dataclass(frozen=True)
class Decode(_ImageOp):
    """Decode an image (JPEG, PNG, BMP) or npy array.

    An image becomes uint8 (height, width, channels), with the pixels of `tf.io.decode_image`. With 1 or 3 channels,
    every image becomes gray or RGB; with 0 or without, it has those of the file. An npy file becomes its array, of any
    dtype but Python objects. The content decides, not the name of the entry.
    """

    name = "decode"
    usage = "decode:EXT[,CHANNELS]"
    examples = ("decode:jpg", "decode:jpg,3", "decode:npy")
    checks: ClassVar[Mapping[str, Rule[Any]]] = {"ext": text, "channels": _channels}

    channels: Any = 0

    def apply(self, sample: Sample, context: OpContext) -> Sample:
        data = self.entry(sample, self.ext)
        if not isinstance(data, bytes):
            raise ImageError(f"decode: entry {self.ext!r} is {type(data).__name__}, not bytes")
        try:
            sample[self.ext] = self._decoded(data, context)
        except (ImageError, SampleError) as error:
            raise error.at(member=f"{sample[KEY]}.{self.ext}") from None
        return sample

    def _decoded(self, data: bytes, context: OpContext) -> NDArray[Any]:
        if not data.startswith(npy.MAGIC):
            return image.decode(data, self.channels, max_pixels=context.max_pixels)
        if self.channels:
            raise SampleError(f"decode: an npy array cannot be given {self.channels} channels; leave out the number")
        try:
            return npy.read_array(data)
        except ValueError as error:
            raise SampleError(f"decode: {error}") from None


@rule(enum=list(image.DTYPES))
def _dtype_name(dtype: Any, label: str) -> str:
    """Return the name of a dtype, given as a name, a Python type, or a NumPy or TensorFlow dtype."""
    name = _PYTHON_TYPES.get(dtype) if isinstance(dtype, type) else None
    name = name or getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    return str(one_of(*image.DTYPES)(name, label))


@dataclass(frozen=True)
class _DtypeOp(_ImageOp):
    checks: ClassVar[Mapping[str, Rule[Any]]] = {"ext": text, "dtype": _dtype_name}

    dtype: Any


@register
class Convert(_DtypeOp):
    """Change the dtype and scale the values.

    As `tf.image.convert_image_dtype` does.
    """

    name = "convert"
    usage = "convert:EXT,DTYPE"
    examples = ("convert:jpg,float32",)

    def change(self, pixels: NDArray[Any], key: str, context: OpContext) -> Any:
        return image.convert_dtype(pixels, self.dtype)


@register
class Cast(_DtypeOp):
    """Change the dtype and keep the values.

    They are limited to the range of the dtype, as `tf.saturate_cast` does.
    """

    name = "cast"
    usage = "cast:EXT,DTYPE"
    examples = ("cast:jpg,uint8",)

    def change(self, pixels: NDArray[Any], key: str, context: OpContext) -> Any:
        return image.cast(pixels, self.dtype)


@rule(
    anyOf=[
        {"type": "array", "items": whole_number(1).schema, "minItems": 2, "maxItems": 2},
        {"type": "string", "pattern": "^[1-9][0-9]*(x[1-9][0-9]*)?$"},
        whole_number(1).schema,
    ]
)
def _size(size: Any, label: str) -> tuple[int, int]:
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


@register
@dataclass(frozen=True)
class Resize(_ImageOp):
    """Scale to height x width, bilinear, float32.

    As `tf.image.resize` does, by any of its methods, of which nearest keeps the dtype and is the one for masks. With
    short=N or long=N instead of a size, that side becomes N and the ratio is kept. With only_if=larger or
    only_if=smaller, other images keep their size.
    """

    name = "resize"
    usage = "resize:EXT,HEIGHTxWIDTH[,METHOD] or resize:EXT,short=N"
    examples = ("resize:jpg,224x224", "resize:png,224,nearest", "resize:jpg,short=256,antialias=true")
    checks: ClassVar[Mapping[str, Rule[Any]]] = {
        "ext": text,
        "size": optional(_size),
        "method": optional(one_of(*image.METHODS)),
        "antialias": yes_or_no,
        "short": optional(whole_number(1)),
        "long": optional(whole_number(1)),
        "only_if": optional(one_of("larger", "smaller")),
    }

    size: Any = None
    method: str | None = None
    antialias: Any = False
    short: Any = None
    long: Any = None
    only_if: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if sum(given is not None for given in (self.size, self.short, self.long)) != 1:
            raise ValueError("needs one of 'size', 'short' and 'long'")

    @classmethod
    def schema(cls) -> JsonSchema:
        text_form, mapping, values = super().schema()["anyOf"]
        one = [{"required": [name]} for name in ("size", "short", "long")]
        return {"anyOf": [text_form, {**mapping, "oneOf": one}, {**values, "minItems": 2}]}

    @property
    def notes(self) -> list[str]:
        if self.method or not _MASK.search(self.ext):
            return []
        return [f"note: resize mixes neighbours; if {self.ext!r} is a mask, write method=nearest, else method=bilinear"]

    def change(self, pixels: NDArray[Any], key: str, context: OpContext) -> Any:
        height, width = self._target(*pixels.shape[:2])
        _check_size(height, width, context)
        return image.resample(pixels, height, width, self.method or "bilinear", antialias=self.antialias)

    def _target(self, rows: int, columns: int) -> tuple[int, int]:
        """The new size of an image of this size."""
        if self.size:
            height, width = self.size
        else:
            height, width = image.scaled_size(rows, columns, short=self.short, long=self.long)
        fits = {"larger": height >= rows and width >= columns, "smaller": height <= rows and width <= columns}
        return (rows, columns) if fits.get(self.only_if or "") else (height, width)


_MASK: Final = re.compile(r"(?i)(^|[._-])(mask|seg|segm|segmentation|label|labels|depth|instance|panoptic)s?($|[._-])")
"""What entries are called that hold classes or distances for each pixel."""


def _check_size(height: int, width: int, context: OpContext) -> None:
    """Refuse to make an image that is larger than any that may be decoded, before it takes memory.

    Raises:
        UsageError: when it has more pixels.
    """
    if height * width > context.max_pixels:
        message = f"resize: {height}x{width} pixels are more than the limit of {context.max_pixels}"
        raise UsageError(message, hint="choose a smaller size, or raise --max-pixels")


@rule(type="number")
def _angle(angle: Any, label: str) -> float:
    try:
        degrees = float(angle or 0)
    except (TypeError, ValueError):
        degrees = float("nan")
    if not -1e6 < degrees < 1e6:
        raise ValueError(f"{label} must be a number of degrees, not {angle!r}")
    return degrees


@register
@dataclass(frozen=True)
class Rotate(_ImageOp):
    """Rotate clockwise by degrees, or at random.

    Without an angle, or with 0, the angle is random; it depends on the seed and the key.
    """

    name = "rotate"
    usage = "rotate:EXT[,ANGLE]"
    examples = ("rotate:jpg,90", "rotate:jpg")
    checks: ClassVar[Mapping[str, Rule[Any]]] = {"ext": text, "angle": _angle}

    angle: Any = 0.0

    def change(self, pixels: NDArray[Any], key: str, context: OpContext) -> Any:
        return image.rotate(pixels, self.angle or image.random_angle(context.seed, key))


@register
class CenterCrop(_ImageOp):
    """Crop to the largest centred square."""

    name = "center_crop"
    usage = "center_crop:EXT"
    examples = ("center_crop:jpg",)

    def change(self, pixels: NDArray[Any], key: str, context: OpContext) -> Any:
        return image.center_crop(pixels)


@register
@dataclass(frozen=True)
class Encode(_ImageOp):
    """Encode a uint8 array as JPEG or PNG.

    The quality, from 1 to 100, is for JPEG; the default is 95.
    """

    name = "encode"
    usage = "encode:EXT,jpeg|png[,quality=Q]"
    examples = ("encode:jpg,jpeg", "encode:jpg,jpeg,quality=90", "encode:png,png")
    checks: ClassVar[Mapping[str, Rule[Any]]] = {
        "ext": text,
        "format": one_of("jpeg", "png"),
        "quality": whole_number(1, 100),
    }

    format: Literal["jpeg", "png"] = "jpeg"
    quality: Any = 95

    def change(self, pixels: NDArray[Any], key: str, context: OpContext) -> Any:
        return image.encode(pixels, self.format, self.quality)


for _op in (_ImageOp, Decode, _DtypeOp, Resize, Rotate, Encode):
    keyword_aliases(_op, ext_name="ext", dst_type="dtype", dst_size="size")
