"""Presets: known feature sets of existing training code and readers.

Each module of this folder is a preset: its `PRESET` has the module's name, with hyphens for underscores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tar2tf_cli.api.op import OpContext
from tar2tf_cli.api.values import KEY, Sample
from tar2tf_cli.errors import LackingError, SampleError, UsageError, did_you_mean
from tar2tf_cli.formats.example import parse_features
from tar2tf_cli.formats.files import whole, whole_sample
from tar2tf_cli.ops.base import IMAGE_ENTRIES
from tar2tf_cli.ops.user_code import called
from tar2tf_cli.ops.user_code import label as name_of
from tar2tf_cli.plugins import load_plugin, plugin_names, preset_names
from tar2tf_cli.structs import NamedTuple

if TYPE_CHECKING:
    from tar2tf_cli.formats.image.headers import ImageHeader
    from tar2tf_cli.ops.annotations import Geometry

LABEL_ENTRIES: Final = ("label", "cls", "class")
"""Names of entries for the label of a preset; the first that is present is used."""


def first_of(sample: Sample, names: Sequence[str], what: str, naming: str = "--select image=ENTRY,label=ENTRY") -> Any:
    """Return the first entry present among some names; the error for none says how to name one."""
    for name in names:
        if name in sample:
            return whole(sample[name])
    raise LackingError(
        f"has none of the entries {', '.join(names)} for the {what}",
        hint=f"name it: {naming}",
    )


def image_entry(sample: Sample) -> str:
    """Return the name of a sample's image entry; empty if there is none."""
    return next((name for name in IMAGE_ENTRIES if name in sample), "")


def encoded_image(sample: Sample, preset: str) -> bytes:
    """Return the encoded image of a sample, for a preset that does not decode it."""
    value = first_of(sample, IMAGE_ENTRIES, "image")
    if not isinstance(value, bytes):
        raise SampleError(
            f"the preset {preset} stores the encoded image, but this one is decoded",
            hint="add an encode op at the end, or remove decode",
        )
    return value


IMAGE_FEATURES: Final = tuple(f"image/{name}" for name in ("encoded", "format", "height", "width", "filename"))
"""Names of the features that `image_for_reader` makes."""


def image_for_reader(sample: Sample, preset: str) -> tuple[dict[str, Any], ImageHeader]:
    """Return the features of an encoded image, and its header, for readers that support JPEG and PNG."""
    from tar2tf_cli.formats.image import headers

    data = encoded_image(sample, preset)
    header = headers.header(data)
    if header.format not in ("jpeg", "png"):
        message = f"the readers of the preset {preset} know JPEG and PNG, but the image is {header.format.upper()}"
        raise SampleError(message, hint="make it one with the ops decode and encode")
    values = data, header.format.encode(), header.height, header.width, filename_of(sample)
    return dict(zip(IMAGE_FEATURES, values, strict=True)), header


def label_of(sample: Sample) -> int:
    """Return the label of a sample as a number, parsing text."""
    label = first_of(sample, LABEL_ENTRIES, "label")
    try:
        if not isinstance(label, (str, bytes)) and label != int(label):
            raise ValueError
        return int(label)
    except (TypeError, ValueError, OverflowError):
        raise SampleError(f"the label {label!r} is not a whole number") from None


def text_of(sample: Sample, name: str) -> bytes:
    """Return an entry as text; empty if the sample lacks it."""
    value = whole(sample.get(name, b""))
    return value if isinstance(value, bytes) else encoded(str(value))


def filename_of(sample: Sample) -> bytes:
    """Return the image's file name: the selected value, or the member's name without folders."""
    if given := text_of(sample, "filename"):
        return given
    base = sample[KEY].rpartition("/")[2]
    extension = image_entry(sample)
    return encoded(f"{base}.{extension}" if extension not in ("", "image", "img") else base)


def encoded(text: str) -> bytes:
    """Encode text as UTF-8; bytes of a name that are not UTF-8 are restored.

    Raises:
        SampleError: when the text has half a surrogate pair, which JSON allows.
    """
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise SampleError(f"the text {text!r} cannot be written as UTF-8") from None


Make: TypeAlias = Callable[[Sample, OpContext], dict[str, Any]]
"""A function that makes features from a sample, or from the values that `select` took from the sample."""


class Preset(NamedTuple):
    """A known set of features.

    Attributes:
        make: makes the features.
        names: the features that the preset always makes; None if they depend on the sample.
        uses: the options that only some presets use.
        decodes: whether the preset decodes or encodes images, with libraries that release the GIL.
        light: whether making the features costs less than copying the sample.
        geometry: returns the boxes, points and masks of the image, given the selections in `select` by feature name;
            None if a preset has none.
        selects: the names in `select` that the preset uses; None if it keeps any feature.
        first_label: the number of the first class for labels `auto`.
    """

    make: Make
    names: tuple[str, ...] | None = None
    uses: tuple[str, ...] = ()
    decodes: bool = False
    light: bool = False
    geometry: Callable[[Mapping[str, str]], Geometry] | None = None
    first_label: int = 0
    selects: tuple[str, ...] | None = None

    def unused(self, selected: Iterable[str]) -> list[str]:
        """Return the selected features that the preset would leave out."""
        return [] if self.selects is None else [name for name in selected if name not in self.selects]

    def features(self, selected: Iterable[str] | None) -> Iterable[str] | None:
        """Return the names of the preset's features if known, given the names in `select`, if any."""
        return self.names or (None if selected is None else [*selected, KEY])


def find_preset(name: str) -> Preset:
    """Return a preset by name.

    Raises:
        UsageError: when the preset does not exist.
    """
    names = preset_names()
    if str(name) in names:
        found: object = import_module(f"{__name__}.{name.replace('-', '_')}").PRESET
    else:
        found = load_plugin("presets", str(name))
    if not isinstance(found, Preset):
        names += plugin_names("presets")
        raise UsageError(f"there is no preset {name!r}{did_you_mean(name, names)}", hint=f"presets: {', '.join(names)}")
    return found


def of_record_to_example(function: Callable[[Sample], object]) -> Make:
    """Turn a user's function, which returns a tf.train.Example, its bytes, or a dict of values, into a maker of
    features.
    """

    def features(sample: Sample, context: OpContext) -> Sample:
        example: Any = called(function, whole_sample(sample))
        if isinstance(example, dict):
            return example
        try:
            return parse_features(example if isinstance(example, bytes) else example.SerializeToString())
        except (AttributeError, ValueError):
            given = type(example).__name__
            raise SampleError(f"the function {name_of(function)} returned {given}, not a tf.train.Example") from None

    return features
