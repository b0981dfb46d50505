"""The preset segmentation: an image and a mask of classes, named as in DeepLab's records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tar2tf_cli.api.op import OpContext
from tar2tf_cli.api.values import Sample
from tar2tf_cli.errors import SampleError
from tar2tf_cli.features.presets import IMAGE_FEATURES, Preset, first_of, image_entry, image_for_reader
from tar2tf_cli.ops.annotations import Geometry, Mask
from tar2tf_cli.ops.base import IMAGE_ENTRIES

MASK_ENTRIES: Final = ("mask", "seg", "segmentation", "mask.png", "seg.png", "segmentation.png", "label.png", "png")
"""Names of entries for the mask; the first that is present is used."""

_MASK: Final = "image/segmentation/class"


def segmentation(sample: Sample, context: OpContext) -> dict[str, object]:
    """Make the features of the encoded image, and of a PNG mask of the same size whose pixels are class numbers.

    Source of the names: tensorflow/models, research/deeplab/datasets/build_data.py.
    """
    from tar2tf_cli.formats.image import codecs, headers

    features, header = image_for_reader(sample, "segmentation")
    masks = [name for name in MASK_ENTRIES if name in sample and name != image_entry(sample)]
    mask = first_of(sample, masks or MASK_ENTRIES[:-1], "mask", "--select image=ENTRY,mask=ENTRY")
    form = headers.header(mask) if isinstance(mask, bytes) else None
    if not form or form.format != "png":
        what = form.format.upper() if form else "decoded"
        hint = "make it one with the ops decode and encode:EXT,png" if form else "add encode:EXT,png as the last op"
        raise SampleError(f"the mask is {what}, but only a PNG keeps the numbers of classes", hint=hint)
    if (form.height, form.width) != (header.height, header.width):
        sizes = f"{form.height}x{form.width}, but the image {header.height}x{header.width}"
        raise SampleError(f"the mask has {sizes} pixels (height x width)")
    if headers.is_palette(mask):
        mask = codecs.encode(codecs.decode_indices(mask, max_pixels=context.max_pixels), "png")
    return {
        **features,
        "image/channels": header.channels,
        f"{_MASK}/encoded": mask,
        f"{_MASK}/format": b"png",
    }


def segmentation_geometry(selected: Mapping[str, str]) -> Geometry:
    """Return the declaration of the mask."""
    at = (selected["mask"],) if "mask" in selected else MASK_ENTRIES
    return Geometry(masks=(Mask(at, of=selected.get("image")),))


PRESET: Final = Preset(
    segmentation,
    (*IMAGE_FEATURES, "image/channels", f"{_MASK}/encoded", f"{_MASK}/format"),
    light=True,
    geometry=segmentation_geometry,
    selects=(*IMAGE_ENTRIES, *MASK_ENTRIES, "filename"),
)
