"""What presets take from a sample: its image, its label, its texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tar2tf_cli.errors import SampleError
from tar2tf_cli.formats.stored import whole
from tar2tf_cli.samples.names import KEY, Sample

IMAGE_ENTRIES: Final = ("image", "jpg", "jpeg", "png", "bmp", "img")
"""Entries for the image of a preset; the first that is present is used."""

LABEL_ENTRIES: Final = ("label", "cls", "class")
"""Entries for the label of a preset; the first that is present is used."""


def first_of(sample: Sample, names: Sequence[str], what: str) -> Any:
    """Return the first of these entries that is present."""
    for name in names:
        if name in sample:
            return whole(sample[name])
    raise SampleError(
        f"has none of the entries {', '.join(names)} for the {what}",
        hint="name it: --select image=ENTRY,label=ENTRY",
    )


def encoded_image(sample: Sample, preset: str) -> bytes:
    """Return the image as it is stored, for a preset that does not decode it."""
    value = first_of(sample, IMAGE_ENTRIES, "image")
    if not isinstance(value, bytes):
        raise SampleError(
            f"the preset {preset} stores the encoded image, but this one is decoded",
            hint="add an encode op at the end, or remove decode",
        )
    return value


def label_of(sample: Sample) -> int:
    """Return the label as a number, which may be written as text."""
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
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")


def filename_of(sample: Sample) -> bytes:
    """Return the image's file name without folders, as in the member's name."""
    base = sample[KEY].rpartition("/")[2]
    extension = next((name for name in IMAGE_ENTRIES if name in sample), "")
    return (f"{base}.{extension}" if extension not in ("", "image", "img") else base).encode("utf-8", "surrogateescape")
