"""The preset image-label: the features of the AIS tar2tf client's default record_to_example."""

from __future__ import annotations

from typing import Final

from tar2tf_cli.api.op import OpContext
from tar2tf_cli.api.values import Sample
from tar2tf_cli.features.presets import LABEL_ENTRIES, Preset, encoded_image, label_of
from tar2tf_cli.ops.base import IMAGE_ENTRIES


def image_label(sample: Sample, context: OpContext) -> dict[str, object]:
    """Make `height`, `width`, `depth`, `label` (int64) and `image_raw` (the encoded image) from a sample."""
    from tar2tf_cli.formats.image import headers

    data = encoded_image(sample, "image-label")
    header = headers.header(data)
    return {
        "height": header.height,
        "width": header.width,
        "depth": header.channels,
        "label": label_of(sample),
        "image_raw": data,
    }


PRESET: Final = Preset(
    image_label,
    ("height", "width", "depth", "label", "image_raw"),
    light=True,
    selects=(*IMAGE_ENTRIES, *LABEL_ENTRIES),
)
