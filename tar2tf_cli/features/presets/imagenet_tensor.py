"""The preset imagenet-tensor: the features of imagenet with decoded pixels."""

from __future__ import annotations

from typing import Final

from tar2tf_cli.api.op import OpContext
from tar2tf_cli.api.values import Sample
from tar2tf_cli.errors import SampleError
from tar2tf_cli.features.presets import LABEL_ENTRIES, Preset, first_of
from tar2tf_cli.features.presets.imagenet import IMAGENET_FEATURES, imagenet_features
from tar2tf_cli.formats.example import raw
from tar2tf_cli.ops.base import IMAGE_ENTRIES


def imagenet_tensor(sample: Sample, context: OpContext) -> dict[str, object]:
    """Make the features of `imagenet` with pixels instead of the encoded image.

    Pixels are uint8, RGB, in C order (height, width, channels), and the format is `tensor`. With an image size, the
    largest centred square is cut out and scaled to that size.
    """
    import numpy as np

    from tar2tf_cli.formats import image
    from tar2tf_cli.formats.image import codecs

    value = first_of(sample, IMAGE_ENTRIES, "image")
    pixels = codecs.decode(value, 3, max_pixels=context.max_pixels) if isinstance(value, bytes) else value
    if not isinstance(pixels, np.ndarray) or pixels.ndim != 3:
        raise SampleError(f"the preset imagenet-tensor needs an image, not {type(pixels).__name__}")
    if pixels.shape[2] != 3:
        pixels = np.repeat(pixels[:, :, :1], 3, axis=2) if pixels.shape[2] < 3 else pixels[:, :, :3]
    dtype = pixels.dtype
    if context.image_size:
        pixels = image.resize(image.center_crop(pixels), context.image_size, context.image_size)
    # interpolated uint8 values need no clamping, and a plain conversion takes a third of the time
    pixels = pixels.astype(np.uint8) if dtype == np.uint8 else image.cast(pixels, "uint8")
    height, width, _ = pixels.shape
    data = np.ascontiguousarray(pixels).data.cast("B")
    return {**imagenet_features(sample, height, width, "tensor"), "image/encoded": raw(data, pixels.shape)}


PRESET: Final = Preset(
    imagenet_tensor,
    IMAGENET_FEATURES,
    uses=("image_size", "max_pixels"),
    decodes=True,
    selects=(*IMAGE_ENTRIES, *LABEL_ENTRIES, "synset", "text", "filename"),
)
