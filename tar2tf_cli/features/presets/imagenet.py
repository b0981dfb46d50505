"""The preset imagenet: features named as in TF-slim's ImageNet records."""

from __future__ import annotations

from typing import Final

from tar2tf_cli.api.op import OpContext
from tar2tf_cli.api.values import Sample
from tar2tf_cli.features.presets import LABEL_ENTRIES, Preset, encoded_image, filename_of, label_of, text_of
from tar2tf_cli.ops.base import IMAGE_ENTRIES

IMAGENET_FEATURES: Final = tuple(
    f"image/{name}"
    for name in (
        *("height", "width", "colorspace", "channels", "class/label", "class/synset", "class/text", "format"),
        *("filename", "encoded"),
    )
)


def imagenet(sample: Sample, context: OpContext) -> dict[str, object]:
    """Make features named as in TF-slim's ImageNet records; the image is an RGB JPEG, converted if necessary.

    Source of the names: tensorflow/models, research/slim/datasets/build_imagenet_data.py.
    """
    from tar2tf_cli.formats.image import codecs, headers

    data = encoded_image(sample, "imagenet")
    header = headers.header(data)
    if (header.format, header.channels) == ("jpeg", 3) or header.height * header.width > context.max_pixels:
        codecs.decode(data, max_pixels=context.max_pixels)  # checks size and integrity
    data = codecs.to_rgb_jpeg(data, max_pixels=context.max_pixels)
    return {**imagenet_features(sample, header.height, header.width, "JPEG"), "image/encoded": data}


def imagenet_features(sample: Sample, height: int, width: int, image_format: str) -> dict[str, object]:
    """Make all features but the image itself."""
    return {
        "image/height": height,
        "image/width": width,
        "image/colorspace": b"RGB",
        "image/channels": 3,
        "image/class/label": label_of(sample),
        "image/class/synset": text_of(sample, "synset"),
        "image/class/text": text_of(sample, "text"),
        "image/format": image_format.encode(),
        "image/filename": filename_of(sample),
    }


PRESET: Final = Preset(
    imagenet,
    IMAGENET_FEATURES,
    uses=("max_pixels",),
    decodes=True,
    selects=(*IMAGE_ENTRIES, *LABEL_ENTRIES, "synset", "text", "filename"),
)
