"""Encoded bytes to arrays and back: decode, orient and encode."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tar2tf_cli.api.op import OpContext
from tar2tf_cli.api.values import KEY, Sample
from tar2tf_cli.errors import ImageError, SampleError
from tar2tf_cli.formats import image
from tar2tf_cli.formats.decoding import Parts, Wanted, decode
from tar2tf_cli.formats.files import StoredBytes
from tar2tf_cli.formats.image import codecs, headers
from tar2tf_cli.ops.base import keyword_aliases, register
from tar2tf_cli.ops.image import ImageOp
from tar2tf_cli.ops.rules import Rule, one_of, rule, whole_number

if TYPE_CHECKING:
    from numpy.typing import NDArray


@rule(enum=list(codecs.CHANNELS))
def _channels(channels: Any, label: str) -> int:
    number = whole_number()(channels, label)
    if number not in codecs.CHANNELS:
        raise ValueError(f"{label} must be 0 (those of the file), 1 (gray) or 3 (RGB), not {number}")
    return number


@register
@dataclass(frozen=True)
class Decode(ImageOp):
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


@register
@dataclass(frozen=True)
class Encode(ImageOp):
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


for _op in (Decode, Orient, Encode):
    keyword_aliases(_op, ext_name="ext")
