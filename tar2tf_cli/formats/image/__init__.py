"""Images: decoding, operations on pixels, encoding, each with TensorFlow's results.

An image is a numpy array (height, width, channels). A function's result depends only on its arguments;
nothing here knows samples or ops. numpy, OpenCV and libjpeg-turbo are imported by the first call that needs
them: reading a header, drawing an angle and `tar2tf --help` never do.
"""

from __future__ import annotations

from tar2tf_cli.formats.image.codecs import CHANNELS, decode, encode, to_rgb_jpeg
from tar2tf_cli.formats.image.headers import ImageHeader, header, image_format
from tar2tf_cli.formats.image.pixels import DTYPES, cast, center_crop, convert_dtype, random_angle, resize, rotate
from tar2tf_cli.formats.image.resampling import METHODS, resample, scaled_size

__all__ = [
    "CHANNELS",
    "DTYPES",
    "METHODS",
    "ImageHeader",
    "cast",
    "center_crop",
    "convert_dtype",
    "decode",
    "encode",
    "header",
    "image_format",
    "random_angle",
    "resample",
    "resize",
    "rotate",
    "scaled_size",
    "to_rgb_jpeg",
]
