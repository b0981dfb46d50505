"""Presets: known feature sets of existing training code and readers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from tar2tf_cli.errors import SampleError, UsageError, meant
from tar2tf_cli.formats.example import raw
from tar2tf_cli.formats.example_parser import parse_features
from tar2tf_cli.formats.npy import read_array
from tar2tf_cli.formats.stored import StoredBytes, whole, whole_sample
from tar2tf_cli.ops.base import OpContext, called
from tar2tf_cli.ops.base import label as name_of
from tar2tf_cli.samples.names import KEY, Sample

Make: TypeAlias = Callable[[Sample, OpContext], dict[str, Any]]
"""Makes features from a sample, or from the values that `select` took from it."""


class Preset(NamedTuple):
    """A known set of features.

    Attributes:
        make: makes the features.
        names: the features that it always makes; None if they are those of the sample.
        uses: the options that only some presets use.
        decodes: whether it decodes or encodes images, by libraries that release the GIL.
        light: whether making the features costs less than copying the sample.
    """

    make: Make
    names: tuple[str, ...] | None = None
    uses: tuple[str, ...] = ()
    decodes: bool = False
    light: bool = False

    def features(self, selected: Iterable[str] | None) -> Iterable[str] | None:
        """Return the names of its features if they are known, given those that `select` names, if it is given."""
        return self.names or (None if selected is None else [*selected, KEY])


_IMAGE_ENTRIES: Final = ("image", "jpg", "jpeg", "png", "bmp", "img")
"""Entries for the image of a preset; the first that is present is used."""

_LABEL_ENTRIES: Final = ("label", "cls", "class")
"""Entries for the label of a preset; the first that is present is used."""

INTEGER_ENTRIES: Final = ("cls", "cls2", "class", "count", "index", "inx", "id")
"""Entries that hold an integer as text, as in webdataset's basic decoder."""


def image_label(sample: Sample, context: OpContext) -> dict[str, Any]:
    """`height`, `width`, `depth`, `label` (int64) and `image_raw`, the encoded image; the size comes from its header.

    These are the features of the AIS tar2tf client's default record_to_example.
    """
    from tar2tf_cli.formats import image

    data = _encoded(sample, "image-label")
    header = image.header(data)
    return {
        "height": header.height,
        "width": header.width,
        "depth": header.channels,
        "label": _label(sample),
        "image_raw": data,
    }


def imagenet(sample: Sample, context: OpContext) -> dict[str, Any]:
    """The names of TF-slim's ImageNet records; the image is an RGB JPEG, converted if necessary.

    Source of the names: tensorflow/models, research/slim/datasets/build_imagenet_data.py.
    """
    from tar2tf_cli.formats import image

    data = _encoded(sample, "imagenet")
    header = image.header(data)
    if (header.format, header.channels) == ("jpeg", 3) or header.height * header.width > context.max_pixels:
        image.decode(data, max_pixels=context.max_pixels)  # raises if it is too large, damaged or truncated
    data = image.to_rgb_jpeg(data, max_pixels=context.max_pixels)
    return {**_imagenet(sample, header.height, header.width, "JPEG"), "image/encoded": data}


def imagenet_tensor(sample: Sample, context: OpContext) -> dict[str, Any]:
    """The same names with the pixels themselves: uint8, RGB, in C order (height, width, channels), format `tensor`.

    With an image size, the largest centred square is cut out and scaled to it.
    """
    import numpy as np

    from tar2tf_cli.formats import image

    value = _first(sample, _IMAGE_ENTRIES, "image")
    pixels = image.decode(value, 3, max_pixels=context.max_pixels) if isinstance(value, bytes) else value
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
    return {**_imagenet(sample, height, width, "tensor"), "image/encoded": raw(data, pixels.shape)}


def webdataset(sample: Sample, context: OpContext) -> dict[str, Any]:
    """Every entry, as webdataset's basic decoder reads it: numbers as int64, npy as arrays, text and JSON as text.

    What an entry is follows from the last part of its name, as there. Others, such as images, remain as they are.
    Source: webdataset, webdataset/autodecode.py, `basichandlers`.
    """
    return {name: _basic(name, value) for name, value in sample.items()}


def _basic(name: str, value: Any) -> Any:
    kind = name.rpartition(".")[2]
    if kind not in _BASIC or not isinstance(value, (bytes, StoredBytes)):
        return value
    value = whole(value)
    try:
        return _BASIC[kind](value)
    except (ValueError, RecursionError) as error:
        raise SampleError(f"entry {name!r} cannot be decoded as {kind}: {error}") from None


def _text_only(value: bytes) -> bytes:
    value.decode("utf-8")
    return value


def _json_only(value: bytes) -> bytes:
    json.loads(value)
    return value


_BASIC: Final[dict[str, Callable[[bytes], Any]]] = {
    **dict.fromkeys(INTEGER_ENTRIES, int),
    **dict.fromkeys(("txt", "text", "transcript"), _text_only),
    **dict.fromkeys(("json", "jsn"), _json_only),
    "npy": read_array,
}

_IMAGENET: Final = tuple(
    f"image/{name}"
    for name in (
        *("height", "width", "colorspace", "channels", "class/label", "class/synset", "class/text", "format"),
        *("filename", "encoded"),
    )
)

PRESETS: Final[dict[str, Preset]] = {
    "image-label": Preset(image_label, ("height", "width", "depth", "label", "image_raw"), light=True),
    "imagenet": Preset(imagenet, _IMAGENET, uses=("max_pixels",), decodes=True),
    "imagenet-tensor": Preset(imagenet_tensor, _IMAGENET, uses=("image_size", "max_pixels"), decodes=True),
    "webdataset": Preset(webdataset),
}
"""Every preset by name."""


def find_preset(name: str) -> Preset:
    """Return a preset by name.

    Raises:
        UsageError: when it does not exist.
    """
    if str(name) not in PRESETS:
        raise UsageError(f"there is no preset {name!r}{meant(name, PRESETS)}", hint=f"presets: {', '.join(PRESETS)}")
    return PRESETS[name]


def of_record_to_example(function: Callable[[Sample], Any]) -> Make:
    """Make features with your own function, which returns a tf.train.Example, its bytes, or a dict of values."""

    def features(sample: Sample, context: OpContext) -> dict[str, Any]:
        example = called(function, whole_sample(sample))
        if isinstance(example, dict):
            return example
        try:
            return parse_features(example if isinstance(example, bytes) else example.SerializeToString())
        except (AttributeError, ValueError):
            given = type(example).__name__
            raise SampleError(f"the function {name_of(function)} returned {given}, not a tf.train.Example") from None

    return features


def _imagenet(sample: Sample, height: int, width: int, image_format: str) -> dict[str, Any]:
    return {
        "image/height": height,
        "image/width": width,
        "image/colorspace": b"RGB",
        "image/channels": 3,
        "image/class/label": _label(sample),
        "image/class/synset": _text(sample, "synset"),
        "image/class/text": _text(sample, "text"),
        "image/format": image_format.encode(),
        "image/filename": _text(sample, "filename") or _filename(sample),
    }


def _first(sample: Sample, names: Sequence[str], what: str) -> Any:
    """Return the first of these entries that is present."""
    for name in names:
        if name in sample:
            return whole(sample[name])
    raise SampleError(
        f"has none of the entries {', '.join(names)} for the {what}",
        hint="name it: --select image=ENTRY,label=ENTRY",
    )


def _encoded(sample: Sample, preset: str) -> bytes:
    value = _first(sample, _IMAGE_ENTRIES, "image")
    if not isinstance(value, bytes):
        raise SampleError(
            f"the preset {preset} stores the encoded image, but this one is decoded",
            hint="add an encode op at the end, or remove decode",
        )
    return value


def _label(sample: Sample) -> int:
    label = _first(sample, _LABEL_ENTRIES, "label")
    try:
        if not isinstance(label, (str, bytes)) and label != int(label):
            raise ValueError
        return int(label)
    except (TypeError, ValueError, OverflowError):
        raise SampleError(f"the label {label!r} is not a whole number") from None


def _text(sample: Sample, name: str) -> bytes:
    value = whole(sample.get(name, b""))
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")


def _filename(sample: Sample) -> bytes:
    """Return the image's file name without folders, as in the member's name."""
    base = sample[KEY].rpartition("/")[2]
    extension = next((name for name in _IMAGE_ENTRIES if name in sample), "")
    return (f"{base}.{extension}" if extension not in ("", "image", "img") else base).encode("utf-8", "surrogateescape")
