"""Ops on images: encoded bytes to arrays (height, width, channels) and back, and operations on arrays."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from tar2tf_cli.api.values import KEY, Sample
from tar2tf_cli.errors import ImageError, SampleError, UsageError
from tar2tf_cli.formats import image
from tar2tf_cli.formats.decoding import Parts, Wanted, decode
from tar2tf_cli.formats.files import StoredBytes
from tar2tf_cli.formats.image import codecs, headers
from tar2tf_cli.ops.base import (
    JsonSchema,
    Op,
    OpContext,
    Rule,
    keyword_aliases,
    one_of,
    optional,
    register,
    rule,
    text,
    whole_number,
    yes_or_no,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


_PYTHON_TYPES: Final = {float: "float32", int: "int32", bool: "bool"}


@dataclass(frozen=True)
class _ImageOp(Op):
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


@rule(enum=list(codecs.CHANNELS))
def _channels(channels: Any, label: str) -> int:
    number = whole_number()(channels, label)
    if number not in codecs.CHANNELS:
        raise ValueError(f"{label} must be 0 (those of the file), 1 (gray) or 3 (RGB), not {number}")
    return number


@register
@dataclass(frozen=True)
class Decode(_ImageOp):
    """Decode an image, sound or array.

    The content of the entry decides, not its name. A JPEG, PNG, BMP or WebP becomes uint8 (height, width, channels),
    with the same pixels as `tf.io.decode_image`; a GIF or an animated WebP becomes uint8 (frames, height, width,
    channels). CHANNELS is 1 for gray, 3 for RGB, and 0 to keep the file's channels. With dtype=uint16, a PNG keeps its
    16 bits. A WAV becomes float32 (samples, channels), and its rate becomes the entry EXT/sample_rate; FLAC and Ogg
    need the extra `audio`. An npy file becomes its array, of any dtype except objects. Each array of an npz file
    becomes an entry EXT/NAME.

    >>> parse_op("decode:jpg,3") == Decode("jpg", channels=3)
    True
    """

    name = "decode"
    usage = "decode:EXT[,CHANNELS][,dtype=uint16]"
    examples: ClassVar[tuple[str, ...]] = (
        "decode:jpg",
        "decode:jpg,3",
        "decode:png,dtype=uint16",
        "decode:npy",
        "decode:wav",
    )
    checks: ClassVar[Mapping[str, Rule[Any]]] = {"channels": _channels, "dtype": one_of(*codecs.DEPTHS)}

    channels: int = 0
    dtype: str = "uint8"

    def apply(self, sample: Sample, context: OpContext) -> Sample:
        data = self.entry(sample, self.ext)
        if not isinstance(data, bytes):
            raise ImageError(f"{self.name}: entry {self.ext!r} is {type(data).__name__}, not bytes")
        try:
            parts = self._decoded(data, Wanted(self.channels, self.dtype, context.max_pixels))
        except (SampleError, ValueError) as error:
            fault = error if isinstance(error, SampleError) else SampleError(f"{self.name}: {error}")
            raise fault.at(member=f"{sample[KEY]}.{self.ext}") from None
        if context.palettes is not None and headers.is_palette(data):
            context.palettes.add(self.ext)
        if "" not in parts:
            del sample[self.ext]
        for name, value in parts.items():
            sample[f"{self.ext}/{name}" if name else self.ext] = value
        return sample

    def _decoded(self, data: bytes, wanted: Wanted) -> Parts:
        return decode(data, wanted)


@register
class Orient(Decode):
    """Decode an image and turn it upright (EXIF).

    Use it instead of decode, which ignores the EXIF orientation, as TensorFlow does. The result equals that of Pillow's
    `exif_transpose`.

    >>> parse_op("orient:jpg") == Orient("jpg")
    True
    """

    name = "orient"
    usage = "orient:EXT[,CHANNELS][,dtype=uint16]"
    examples = ("orient:jpg", "orient:jpg,3")

    def apply(self, sample: Sample, context: OpContext) -> Sample:
        if not isinstance(sample.get(self.ext, b""), (bytes, StoredBytes)):
            message = f"orient: entry {self.ext!r} is decoded, which drops its EXIF orientation"
            raise ImageError(message, hint=f"write orient:{self.ext} instead of decode:{self.ext}")
        return super().apply(sample, context)

    def _decoded(self, data: bytes, wanted: Wanted) -> Parts:
        if headers.image_format(data) is None:
            raise ImageError("orient: not an image")
        pixels = super()._decoded(data, wanted)[""]
        turn = headers.orientation(data)
        return {"": image.oriented(pixels, turn) if turn > 1 else pixels}


@rule(enum=list(image.DTYPES))
def _dtype_name(dtype: Any, label: str) -> str:
    """Return the name of a dtype, given as a name, a Python type, or a NumPy or TensorFlow dtype."""
    name = _PYTHON_TYPES.get(dtype) if isinstance(dtype, type) else None
    name = name or getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    return str(one_of(*image.DTYPES)(name, label))


@dataclass(frozen=True)
class _DtypeOp(_ImageOp):
    checks: ClassVar[Mapping[str, Rule[Any]]] = {"dtype": _dtype_name}

    dtype: Any


@register
class Convert(_DtypeOp):
    """Change the dtype and scale the values.

    The result equals that of `tf.image.convert_image_dtype`.

    >>> parse_op("convert:jpg,float32") == Convert("jpg", "float32")
    True
    """

    name = "convert"
    usage = "convert:EXT,DTYPE"
    examples = ("convert:jpg,float32",)

    def change(self, pixels: NDArray[Any], key: str, context: OpContext) -> Any:
        return image.convert_dtype(pixels, self.dtype)


@register
class Cast(_DtypeOp):
    """Change the dtype and keep the values.

    Values outside the range of the dtype are clipped, as in `tf.saturate_cast`.

    >>> parse_op("cast:jpg,uint8") == Cast("jpg", "uint8")
    True
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


def _number_of(unit: str, most: float) -> Rule[float]:
    """Accept a number of a unit, which may be negative."""

    @rule(type="number")
    def check(value: Any, label: str) -> float:
        try:
            number = float(value or 0)
        except (TypeError, ValueError):
            number = float("nan")
        if not -most < number < most:
            raise ValueError(f"{label} must be a number{unit}, not {value!r}")
        return number

    return check


_angle: Final = _number_of(" of degrees", 1e6)
_number: Final = _number_of("", 1e9)


class _ResamplingOp(_ImageOp):
    """An op that makes pixels of several, unless by the method nearest."""

    method: str | None

    def notes(self, palettes: Collection[str] = ()) -> list[str]:
        if self.method or not (self.ext in palettes or image.is_named_like_mask(self.ext)):
            return []
        advice = f"if {self.ext!r} holds classes, write method=nearest, else method=bilinear"
        return [f"warning: {self.name} mixes neighbouring pixels; {advice}"]


@register
@dataclass(frozen=True)
class Resize(_ResamplingOp):
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
    checks: ClassVar[Mapping[str, Rule[Any]]] = {
        "size": optional(_size),
        "method": optional(one_of(*image.METHODS)),
        "antialias": yes_or_no,
        "short": optional(whole_number(1)),
        "long": optional(whole_number(1)),
        "only_if": optional(one_of("larger", "smaller")),
    }

    size: Any = None
    method: str | None = None
    antialias: bool = False
    short: int | None = None
    long: int | None = None
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

    def change(self, pixels: NDArray[Any], key: str, context: OpContext) -> Any:
        rows, columns = pixels.shape[:2]
        height, width = self.size or image.scaled_size(rows, columns, short=self.short, long=self.long)
        fits = {"larger": height >= rows and width >= columns, "smaller": height <= rows and width <= columns}
        if fits.get(self.only_if or ""):
            return pixels if self.method == "nearest" else image.cast(pixels, "float32")
        self._check_size(height, width, context)
        return image.resample(pixels, height, width, self.method or "bilinear", antialias=self.antialias)


@register
@dataclass(frozen=True)
class Pad(_ResamplingOp):
    """Scale to fit height x width, and pad the rest.

    It keeps the ratio, as `tf.image.resize_with_pad` does. The result is float32; method=nearest keeps the dtype. New
    pixels are 0, or FILL.

    >>> parse_op("pad:jpg,224x224") == Pad("jpg", (224, 224))
    True
    """

    name = "pad"
    usage = "pad:EXT,HEIGHTxWIDTH[,FILL][,METHOD]"
    examples = ("pad:jpg,224x224", "pad:jpg,224,fill=128", "pad:png,224x224,255,nearest")
    checks: ClassVar[Mapping[str, Rule[Any]]] = {
        "size": _size,
        "fill": _number,
        "method": optional(one_of(*image.METHODS)),
        "antialias": yes_or_no,
    }

    size: Any
    fill: float = 0.0
    method: str | None = None
    antialias: bool = False

    def change(self, pixels: NDArray[Any], key: str, context: OpContext) -> Any:
        height, width = self.size
        self._check_size(height, width, context)
        return image.pad(pixels, height, width, self.fill, self.method or "bilinear", antialias=self.antialias)


@register
@dataclass(frozen=True)
class Crop(_ImageOp):
    """Cut out height x width.

    It keeps the middle, and pads smaller images with 0, as `tf.image.resize_with_crop_or_pad` does. AT is another
    place: a side, a corner such as top-left, or random, which depends on the seed and the key.

    >>> parse_op("crop:jpg,224x224") == Crop("jpg", (224, 224))
    True
    """

    name = "crop"
    usage = "crop:EXT,HEIGHTxWIDTH[,AT]"
    examples = ("crop:jpg,224x224", "crop:jpg,224,top-left", "crop:jpg,224x224,at=random")
    checks: ClassVar[Mapping[str, Rule[Any]]] = {"size": _size, "at": one_of(*image.PLACES)}

    size: Any
    at: str = "center"

    def change(self, pixels: NDArray[Any], key: str, context: OpContext) -> Any:
        height, width = self.size
        self._check_size(height, width, context)
        return image.crop(pixels, height, width, self.at, seed=context.seed, key=key)


@register
@dataclass(frozen=True)
class Rotate(_ResamplingOp):
    """Rotate clockwise by degrees, or at random.

    Without ANGLE, or with 0, the angle is random, and depends on the seed and the key. By the METHOD bilinear, pixels
    are interpolated, except by multiples of 90 degrees; use nearest for masks.

    >>> parse_op("rotate:jpg,90") == Rotate("jpg", 90)
    True
    """

    name = "rotate"
    usage = "rotate:EXT[,ANGLE][,METHOD]"
    examples = ("rotate:jpg,90", "rotate:jpg", "rotate:png,20,nearest")
    checks: ClassVar[Mapping[str, Rule[Any]]] = {"angle": _angle, "method": optional(one_of(*image.TURNING))}

    angle: float = 0.0
    method: str | None = None

    def notes(self, palettes: Collection[str] = ()) -> list[str]:
        return [] if self.angle and not self.angle % 90 else super().notes(palettes)

    def change(self, pixels: NDArray[Any], key: str, context: OpContext) -> Any:
        angle = self.angle or image.random_angle(context.seed, key)
        return image.rotate(pixels, angle, self.method or "bilinear")


@register
class CenterCrop(_ImageOp):
    """Crop to the largest centred square.

    >>> parse_op("center_crop:jpg") == CenterCrop("jpg")
    True
    """

    name = "center_crop"
    usage = "center_crop:EXT"
    examples = ("center_crop:jpg",)

    def change(self, pixels: NDArray[Any], key: str, context: OpContext) -> Any:
        return image.center_crop(pixels)


@register
@dataclass(frozen=True)
class Encode(_ImageOp):
    """Encode a uint8 array as JPEG or PNG.

    The quality of a JPEG is 1 to 100; the default is 95.

    >>> parse_op("encode:jpg,png") == Encode("jpg", "png")
    True
    """

    name = "encode"
    usage = "encode:EXT,jpeg|png[,quality=Q]"
    examples = ("encode:jpg,jpeg", "encode:jpg,jpeg,quality=90", "encode:png,png")
    checks: ClassVar[Mapping[str, Rule[Any]]] = {"format": one_of("jpeg", "png"), "quality": whole_number(1, 100)}

    format: Literal["jpeg", "png"] = "jpeg"
    quality: int = 95

    def notes(self, palettes: Collection[str] = ()) -> list[str]:
        if self.format != "jpeg" or not image.is_named_like_mask(self.ext):
            return []
        return [f"warning: JPEG changes pixels; if {self.ext!r} holds classes, write encode:{self.ext},png"]

    def change(self, pixels: NDArray[Any], key: str, context: OpContext) -> Any:
        return codecs.encode(pixels, self.format, self.quality)


for _op in (_ImageOp, Decode, Orient, _DtypeOp, Resize, Pad, Crop, Rotate, Encode):
    keyword_aliases(_op, ext_name="ext", dst_type="dtype", dst_size="size")
