"""The ops decode, orient and encode, which convert encoded bytes to arrays and back."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Mapping
from typing import ClassVar, Final, Literal

from tar2tf_cli.api.op import OpContext
from tar2tf_cli.api.values import KEY, Sample
from tar2tf_cli.errors import ImageError, SampleError
from tar2tf_cli.formats import image
from tar2tf_cli.formats.decoding import ImageOptions, Parts, decode
from tar2tf_cli.formats.files import StoredBytes
from tar2tf_cli.formats.image import codecs, headers
from tar2tf_cli.formats.image.geometry import Move, oriented, scaled
from tar2tf_cli.ops.base import keyword_aliases, register
from tar2tf_cli.ops.image import ImageOp, size_rule, update_encoding, update_sizes
from tar2tf_cli.ops.rules import Rule, one_of, optional, rule, whole_number
from tar2tf_cli.structs import dataclass

INDICES: Final = "indices"
"""The value of `channels` for the indices of a palette."""


@rule(enum=[*codecs.CHANNELS, INDICES])
def _channels(channels: object, label: str) -> int | str:
    if channels == INDICES:
        return INDICES
    number = whole_number()(channels, label)
    if number not in codecs.CHANNELS:
        raise ValueError(f"{label} must be 0 (those of the file), 1 (gray), 3 (RGB) or {INDICES}, not {number}")
    return number


@register
@dataclass(frozen=True)
class Decode(ImageOp):
    """Decode an image, sound or array.

    The content of the entry decides, not its name. A JPEG, PNG, BMP or WebP becomes uint8 (height, width, channels),
    with the same pixels as `tf.io.decode_image`; a GIF or an animated WebP becomes uint8 (frames, height, width,
    channels). CHANNELS is 1 for gray, 3 for RGB, 0 to keep the file's channels, and indices for the indices of a PNG's
    palette, as masks have them: uint8 (height, width, 1). With dtype=uint16, a PNG keeps its 16 bits. A WAV becomes
    float32 (samples, channels), and its rate becomes the entry EXT/sample_rate; FLAC, Ogg, MP3 and AIFF need the
    extra `audio`. An npy file becomes its array, of any dtype except objects. Each array of an npz file becomes an
    entry EXT/NAME.

    A JPEG with at_least=HEIGHTxWIDTH is decoded at the smallest of 1/1, 1/2, 1/4 and 1/8 of its size at which both
    sides keep that many pixels, with the pixels of `tf.io.decode_jpeg(ratio=)`. Of 12 megapixels, that takes about 0.6
    of the time, as all of the file is still read, and an antialiased `resize` after it a fraction. Other images are
    decoded in full.

    EXT may be a glob: `decode:*.jpg` decodes each entry that matches. So do all ops on images.

    >>> parse_op("decode:jpg,3") == Decode("jpg", channels=3)
    True
    """

    name = "decode"
    usage = "decode:EXT[,CHANNELS][,dtype=uint16][,at_least=HEIGHTxWIDTH]"
    examples: ClassVar[tuple[str, ...]] = (
        "decode:jpg",
        "decode:jpg,3",
        "decode:jpg,at_least=256x256",
        "decode:seg.png,indices",
        "decode:png,dtype=uint16",
        "decode:npy",
        "decode:wav",
    )
    checks: ClassVar[Mapping[str, Rule[object]]] = {
        "channels": _channels,
        "dtype": one_of(*codecs.DEPTHS),
        "at_least": optional(size_rule),
    }

    channels: int | str = 0
    dtype: str = "uint8"
    at_least: tuple[int, int] | None = None

    def notes(self, palettes: Collection[str] = ()) -> list[str]:
        names = fnmatch.filter(palettes, self.ext) if self.channels == 1 else []
        return [
            f"note: {name!r} has a palette, of which decode:{name},1 gives the luminance of the colors; "
            f"for the indices, as masks have them, write decode:{name},indices"
            for name in sorted(names)
        ]

    def apply(self, sample: Sample, context: OpContext) -> Sample:
        for name in self.entries(sample):
            self._decode(sample, name, context)
        return sample

    def _decode(self, sample: Sample, name: str, context: OpContext) -> None:
        data = self.entry(sample, name)
        if not isinstance(data, bytes):
            raise ImageError(f"{self.name}: entry {name!r} is {type(data).__name__}, not bytes")
        try:
            parts, move = self._decoded(data, self._wanted(context))
        except (SampleError, ValueError) as error:
            fault = error if isinstance(error, SampleError) else SampleError(f"{self.name}: {error}")
            raise fault.at(member=f"{sample[KEY]}.{name}") from None
        if context.palettes is not None and headers.is_palette(data):
            context.palettes.add(name)
        if "" not in parts:
            del sample[name]
        for part, value in parts.items():
            sample[f"{name}/{part}" if part else name] = value
        if self.channels and self.has_annotations(sample, name):
            update_sizes(sample, name, sample[name].shape)
        if move and self.has_annotations(sample, name):
            self.record_move(sample, name, move)

    def _wanted(self, context: OpContext) -> ImageOptions:
        if isinstance(self.channels, str):
            return ImageOptions(0, self.dtype, context.max_pixels, self.at_least, indices=True)
        return ImageOptions(self.channels, self.dtype, context.max_pixels, self.at_least)

    def _decoded(self, data: bytes, wanted: ImageOptions) -> tuple[Parts, Move | None]:
        """Return the decoded parts of an entry, and the move from the image in the file, or None."""
        parts = decode(data, wanted)
        return parts, self._reduction(data, parts) if self.at_least else None

    @staticmethod
    def _reduction(data: bytes, parts: Parts) -> Move | None:
        """Return the move of an image that was decoded at a reduced size."""
        if headers.image_format(data) != "jpeg":
            return None
        header = headers.header(data)
        before, after = (header.height, header.width), parts[""].shape[:2]
        return scaled(before, after) if before != after else None


@register
class Orient(Decode):
    """Decode an image and turn it upright (EXIF).

    Use it instead of decode, which ignores the EXIF orientation, as TensorFlow does. The result equals that of Pillow's
    `exif_transpose`; where EXIF says nothing, the orientation in XMP counts. `inspect` counts the images that need it.

    >>> parse_op("orient:jpg") == Orient("jpg")
    True
    """

    name = "orient"
    usage = "orient:EXT[,CHANNELS][,dtype=uint16]"
    examples = ("orient:jpg", "orient:jpg,3")

    def _decode(self, sample: Sample, name: str, context: OpContext) -> None:
        if not isinstance(sample.get(name, b""), (bytes, StoredBytes)):
            message = f"orient: entry {name!r} is decoded, which drops its EXIF orientation"
            raise ImageError(message, hint=f"write orient:{self.ext} instead of decode:{self.ext}")
        super()._decode(sample, name, context)

    def _decoded(self, data: bytes, wanted: ImageOptions) -> tuple[Parts, Move | None]:
        if headers.image_format(data) is None:
            raise ImageError("orient: not an image")
        parts, move = super()._decoded(data, wanted)
        turn = headers.orientation(data)
        if turn <= 1:
            return parts, move
        pixels = parts[""]
        turned = oriented(pixels.shape[:2], turn)
        if move:  # scaled first, so that one move starts from the size in the file
            (a, _, _, _, e, _), (p, q, r, s, t, u) = move.matrix, turned.matrix
            turned = Move((p * a, q * e, r, s * a, t * e, u), move.before, turned.after)
        return {"": image.oriented(pixels, turn)}, turned


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
    checks: ClassVar[Mapping[str, Rule[object]]] = {"format": one_of("jpeg", "png"), "quality": whole_number(1, 100)}

    format: Literal["jpeg", "png"] = "jpeg"
    quality: int = 95

    def notes(self, palettes: Collection[str] = ()) -> list[str]:
        if self.format != "jpeg" or not image.is_named_like_mask(self.ext):
            return []
        return [f"warning: JPEG changes pixels; if {self.ext!r} holds classes, write encode:{self.ext},png"]

    def apply(self, sample: Sample, context: OpContext) -> Sample:
        for name in self.entries(sample):
            sample[name] = data = codecs.encode(self._array(sample, name), self.format, self.quality)
            update_encoding(sample, name, self.format, data)
        return sample


for _op in (Decode, Orient, Encode):
    keyword_aliases(_op, ext_name="ext")
