"""Ops on images: encoded bytes to arrays (height, width, channels) and back, and what can be done to arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from tar2tf_cli.errors import ImageError
from tar2tf_cli.ops.base import Op, OpContext, keyword_aliases, register, text_option
from tar2tf_cli.samples.grouping import KEY, Sample

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Cast", "CenterCrop", "Convert", "Decode", "Encode", "Resize", "Rotate"]

_PYTHON_TYPES: Final = {float: "float32", int: "int32", bool: "bool"}


def _set(op: Op, name: str, value: Any) -> None:
    object.__setattr__(op, name, value)


class _ImageOp(Op):
    """An op on the entry `ext`."""

    unlocked = True

    ext: str

    def __post_init__(self) -> None:
        text_option(self.ext, "ext")

    def array(self, sample: Sample) -> NDArray[Any]:
        """The entry as an array (height, width, channels).

        Raises:
            ImageError: when it is not decoded yet.
        """
        import numpy as np

        value = self.entry(sample, self.ext)
        if not isinstance(value, np.ndarray) or value.ndim != 3:
            what = "encoded bytes" if isinstance(value, bytes) else f"{type(value).__name__}"
            raise ImageError(
                f"{self.name}: entry {self.ext!r} is {what}, not a decoded image; put decode:{self.ext} before"
            )
        return value


@register
@keyword_aliases(ext_name="ext")
@dataclass(frozen=True)
class Decode(_ImageOp):
    """JPEG, PNG or BMP bytes to a uint8 array (height, width, channels), as `tf.io.decode_image` does."""

    name: ClassVar[str] = "decode"
    usage: ClassVar[str] = "decode:EXT"
    ext: str

    def apply(self, sample: Sample, context: OpContext) -> Sample:
        from tar2tf_cli.formats import image

        data = self.entry(sample, self.ext)
        if not isinstance(data, bytes):
            raise ImageError(f"decode: entry {self.ext!r} is no bytes but {type(data).__name__}")
        try:
            sample[self.ext] = image.decode(data, max_pixels=context.max_pixels)
        except ImageError as error:
            raise error.at(member=f"{sample[KEY]}.{self.ext}") from None
        return sample


@register
@keyword_aliases(ext_name="ext", dst_type="dtype")
@dataclass(frozen=True)
class Convert(_ImageOp):
    """Change the dtype and scale the values with it, as `tf.image.convert_image_dtype` does."""

    name: ClassVar[str] = "convert"
    usage: ClassVar[str] = "convert:EXT,DTYPE"
    ext: str
    dtype: Any

    def __post_init__(self) -> None:
        super().__post_init__()
        _set(self, "dtype", _dtype_name(self.dtype))

    def apply(self, sample: Sample, context: OpContext) -> Sample:
        from tar2tf_cli.formats import image

        sample[self.ext] = image.convert_dtype(self.array(sample), self.dtype)
        return sample


@register
@keyword_aliases(ext_name="ext", dst_size="size")
@dataclass(frozen=True)
class Resize(_ImageOp):
    """Scale to height x width, bilinear without antialiasing, float32, as `tf.image.resize` does."""

    name: ClassVar[str] = "resize"
    usage: ClassVar[str] = "resize:EXT,HEIGHTxWIDTH"
    ext: str
    size: Any

    def __post_init__(self) -> None:
        super().__post_init__()
        _set(self, "size", _size(self.size))

    def apply(self, sample: Sample, context: OpContext) -> Sample:
        from tar2tf_cli.formats import image

        sample[self.ext] = image.resize(self.array(sample), *self.size)
        return sample


@register
@keyword_aliases(ext_name="ext")
@dataclass(frozen=True)
class Rotate(_ImageOp):
    """Turn clockwise by an angle in degrees; without one, or with 0, by a random angle drawn from seed and key."""

    name: ClassVar[str] = "rotate"
    usage: ClassVar[str] = "rotate:EXT[,ANGLE]"
    ext: str
    angle: Any = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            angle = float(self.angle or 0)
        except (TypeError, ValueError):
            raise ValueError(f"angle must be a number of degrees, not {self.angle!r}") from None
        if not -1e6 < angle < 1e6:
            raise ValueError(f"angle must be a number of degrees, not {self.angle!r}")
        _set(self, "angle", angle)

    def apply(self, sample: Sample, context: OpContext) -> Sample:
        from tar2tf_cli.formats import image

        angle = self.angle or image.random_angle(context.seed, sample[KEY])
        sample[self.ext] = image.rotate(self.array(sample), angle)
        return sample


@register
@keyword_aliases(ext_name="ext")
@dataclass(frozen=True)
class CenterCrop(_ImageOp):
    """Cut out the largest centred square."""

    name: ClassVar[str] = "center_crop"
    usage: ClassVar[str] = "center_crop:EXT"
    ext: str

    def apply(self, sample: Sample, context: OpContext) -> Sample:
        from tar2tf_cli.formats import image

        sample[self.ext] = image.center_crop(self.array(sample))
        return sample


@register
@keyword_aliases(ext_name="ext", dst_type="dtype")
@dataclass(frozen=True)
class Cast(_ImageOp):
    """Change the dtype and keep the values, saturating at its ends, as `tf.saturate_cast` does."""

    name: ClassVar[str] = "cast"
    usage: ClassVar[str] = "cast:EXT,DTYPE"
    ext: str
    dtype: Any

    def __post_init__(self) -> None:
        super().__post_init__()
        _set(self, "dtype", _dtype_name(self.dtype))

    def apply(self, sample: Sample, context: OpContext) -> Sample:
        from tar2tf_cli.formats import image

        sample[self.ext] = image.cast(self.array(sample), self.dtype)
        return sample


@register
@keyword_aliases(ext_name="ext")
@dataclass(frozen=True)
class Encode(_ImageOp):
    """A uint8 array back to JPEG or PNG bytes; quality (1 to 100) is for JPEG."""

    name: ClassVar[str] = "encode"
    usage: ClassVar[str] = "encode:EXT,jpeg|png[,quality=Q]"
    ext: str
    format: Literal["jpeg", "png"] = "jpeg"
    quality: Any = 95

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.format not in ("jpeg", "png"):
            raise ValueError(f"format must be jpeg or png, not {self.format!r}")
        if not str(self.quality).isdecimal() or not 1 <= int(self.quality) <= 100:
            raise ValueError(f"quality must be from 1 to 100, not {self.quality!r}")
        _set(self, "quality", int(self.quality))

    def apply(self, sample: Sample, context: OpContext) -> Sample:
        from tar2tf_cli.formats import image

        sample[self.ext] = image.encode(self.array(sample), self.format, self.quality)
        return sample


def _dtype_name(dtype: Any) -> str:
    """The name of a dtype given as a name, a Python type, or a NumPy or TensorFlow dtype."""
    from tar2tf_cli.formats.image import DTYPES

    name = _PYTHON_TYPES.get(dtype) if isinstance(dtype, type) else None
    name = name or getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    if name not in DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, not {name!r}")
    return str(name)


def _size(size: Any) -> tuple[int, int]:
    """Height and width from `224x224`, `224`, (224, 224) or the like."""
    parts = size.split("x") if isinstance(size, str) else list(size) if hasattr(size, "__iter__") else [size]
    try:
        numbers = [int(part) for part in parts]
    except (TypeError, ValueError):
        numbers = []
    if len(numbers) not in (1, 2) or min(numbers) < 1:
        raise ValueError(f"size must be HEIGHTxWIDTH in pixels, not {size!r}")
    return numbers[0], numbers[-1]
