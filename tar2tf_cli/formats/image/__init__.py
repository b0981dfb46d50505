"""Images: decoding, operations on pixels, encoding, each with TensorFlow's results.

An image is a numpy array (height, width, channels). A function's result depends only on its arguments;
nothing here knows samples or ops. numpy, OpenCV and libjpeg-turbo are imported by the first call that needs
them: reading a header, drawing an angle and `tar2tf --help` never do.
"""

from __future__ import annotations

from tar2tf_cli.formats.image.codecs import (
    CHANNELS,
    DEPTHS,
    check_png,
    decode,
    decode_frames,
    encode,
    to_rgb_jpeg,
)
from tar2tf_cli.formats.image.headers import ImageHeader, has_frames, header, image_format, is_palette, orientation
from tar2tf_cli.formats.image.pixels import (
    DTYPES,
    METHODS,
    PLACES,
    TURNING,
    cast,
    center_crop,
    convert_dtype,
    crop,
    distinct_values,
    is_named_like_mask,
    oriented,
    pad,
    random_angle,
    resample,
    resize,
    rotate,
    scaled_size,
    values_described,
)

__all__ = [
    "CHANNELS",
    "DEPTHS",
    "DTYPES",
    "METHODS",
    "PLACES",
    "TURNING",
    "ImageHeader",
    "cast",
    "center_crop",
    "check_png",
    "convert_dtype",
    "crop",
    "decode",
    "decode_frames",
    "distinct_values",
    "encode",
    "has_frames",
    "header",
    "image_format",
    "is_named_like_mask",
    "is_palette",
    "orientation",
    "oriented",
    "pad",
    "random_angle",
    "resample",
    "resize",
    "rotate",
    "scaled_size",
    "to_rgb_jpeg",
    "values_described",
]
