"""Samples for the page of `inspect --html`: sizes, labels and digests of all, and a random selection to show.

Images, sounds and videos are selected at random, and decoded if possible. Each is kept small: an image is scaled down,
a long WAV or MP3 is cut, and any other long sound or video is left out.
"""

from __future__ import annotations

import os
import random
import struct
from array import array
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import log2, prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import cv2
import numpy as np

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.values import KEY, Array, Sample
from tar2tf_cli.checking.contents import is_text, shortened
from tar2tf_cli.checking.decode import ValueChecker
from tar2tf_cli.checking.files import AHEAD, CheckOptions, FileContext, FileRun, FileTask, contents_of, values_of
from tar2tf_cli.checking.overlay import Overlay, overlay_of
from tar2tf_cli.checking.rows import EntryDigester, content_of
from tar2tf_cli.errors import ImageError, SampleError, SourceError
from tar2tf_cli.formats import image
from tar2tf_cli.formats.example import ParsedFeature
from tar2tf_cli.formats.files import StoredBytes
from tar2tf_cli.formats.image import codecs, headers
from tar2tf_cli.formats.image.geometry import Size
from tar2tf_cli.formats.streams import riff_chunks, sniff
from tar2tf_cli.inputs.open_shard import OpenShard
from tar2tf_cli.ops.annotations import Geometry
from tar2tf_cli.samples.keys import key_of
from tar2tf_cli.structs import dataclass, field

if TYPE_CHECKING:
    from typing_extensions import Unpack

MOST_PICTURES: Final = 48
"""Images on the page; as many shards as that give some."""

MOST_CLIPS: Final = 8
"""Sounds on the page, and half as many videos."""

MOST_SOUND: Final = 512 << 10
"""Bytes of a sound on the page."""

MOST_VIDEO: Final = 1 << 20
"""Bytes of a video on the page."""

STEPS_PER_DOUBLING: Final = 2
"""Bars of the histogram of sizes in each doubling of the size."""

PLAYED: Final = ("audio/wav", "audio/mpeg", "audio/flac", "audio/ogg", "video/mp4", "video/webm")
"""Kinds of sounds and videos that browsers play."""

_CUT: Final = ("audio/wav", "audio/mpeg")  # formats whose beginning can be played
_LABELS: Final = ("image/class/text", "label", "labels", "cls", "class", "image/class/label", "target", "y")
_CAPTIONS: Final = (
    *("caption", "captions", "image/caption", "image/captions", "txt", "text", "caption.txt"),
    *("transcript", "transcription", "sentence"),
)
_MOST_LABELS: Final = 10_000
_MOST_LABEL: Final = 48
_MOST_CAPTION: Final = 200
_SIDE: Final = 160
_LARGE_SIDE: Final = 320
_MOST_PIXELS: Final = 1 << 26
"""The largest image, in pixels, that gets a small picture: decoding one takes up to six bytes a pixel."""


class Caption(NamedTuple):
    """The text that identifies a shown sample.

    Attributes:
        key: its key.
        label: its label, if there is one.
        text: its caption, empty if there is none.
    """

    key: str
    label: str | None = None
    text: str = ""


class Picture(NamedTuple):
    """An image of the contact sheet.

    Attributes:
        caption: the texts of its sample.
        data: a thumbnail as JPEG, None if it cannot be decoded; before scaling, the image, encoded or as pixels.
        variety: number of distinct values among the examined pixels.
        overlay: its boxes, points and masks; None if it has none.
    """

    caption: Caption
    data: Any
    variety: int = 0
    overlay: Overlay | None = None


class Clip(NamedTuple):
    """A sound or video on the page.

    Attributes:
        caption: the texts of its sample.
        kind: such as `audio/wav`.
        size: its size in bytes.
        data: its bytes or, for some kinds, its first bytes; empty if it is too large for the page.
        decoded: whether decoding was tried; not for large ones, and kinds without a decoder.
        fault: the reason why it cannot be decoded; empty if it can.
    """

    caption: Caption
    kind: str
    size: int
    data: bytes = b""
    decoded: bool = False
    fault: str = ""


@dataclass
class ShardPage:
    """The page's data about one shard.

    Attributes:
        name: the shard's name.
        sizes: number of samples in each bar of the histogram of their sizes.
        labels: number of samples with each label; if there are too many labels, the remaining samples have an empty
            one.
        keys: the key of each sample, or its number in the shard.
        digests: 64 bits of a digest of each sample without its key.
        pictures: some images of each entry or feature, selected at random.
        clips: some sounds and videos of each entry or feature, selected at random.
    """

    name: str
    sizes: Counter[int] = field(default_factory=Counter)
    labels: Counter[str] = field(default_factory=Counter)
    digests: array[int] = field(default_factory=lambda: array("Q"))
    pictures: dict[str, list[Picture]] = field(default_factory=dict)
    clips: dict[str, list[Clip]] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)


def read_pages(
    bucket: str,
    templates: Sequence[str] = (),
    *,
    shards: Collection[str],
    geometry: Geometry = Geometry(),  # noqa: B008
    paths: bool = False,
    **options: Unpack[CheckOptions],
) -> list[ShardPage]:
    """Read all samples of a bucket's named shards for the page.

    Args:
        bucket: as for `inspect`.
        templates: as for `inspect`.
        shards: the names of the shards.
        geometry: the declared boxes, points and masks; others are found by their names.
        paths: as for `inspect`.
        options: as for `inspect`.

    Raises:
        SourceError: when there is nothing to read.
    """
    run = FileRun(**options)
    named = run.shards(bucket, templates, paths=paths)
    items = [item for item in named.items if item.name in shards]
    every = max(len(items) // MOST_PICTURES, 1)
    each = -(-MOST_PICTURES // max(len(items), 1))
    tasks = [
        FileTask(item, partial(_read_page, 0 if place % every else each, geometry)) for place, item in enumerate(items)
    ]
    pages: list[ShardPage] = run.read(tasks, FileContext(named.source, run.rules))
    return pages


def _read_page(most: int, geometry: Geometry, item: ObjectInfo, context: FileContext) -> ShardPage:
    """Read a shard's readable samples and select at most `most` images; damage is added to the faults."""
    page, sheet = ShardPage(item.name), _Sheet(most, geometry, random.Random(os.fsencode(item.name)))
    digester = EntryDigester({})
    with suppress(SourceError), OpenShard(context.source, item, context.on_bytes) as shard:
        for number, content in contents_of(shard, context.rules._replace(ahead=AHEAD), lambda error, more: None):
            values = values_of(content)
            page.digests.append(content_of(digester.digests("", values)[1]))
            key = key_of(values)
            page.keys.append(f"#{number}" if key is None else key)
            _add(page, values, sheet)
    page.pictures = {name: [_picture(image) for image in images] for name, images in sheet.pictures.items()}
    page.clips = sheet.clips
    return page


class _Sheet:
    """Selects images, sounds and videos of each entry or feature at random, each with equal probability.

    Args:
        most: the maximum number of images of each.
        geometry: the declared boxes, points and masks.
        chance: the random number generator.
    """

    def __init__(self, most: int, geometry: Geometry, chance: random.Random) -> None:
        self.pictures: dict[str, list[Picture]] = {}
        self.clips: dict[str, list[Clip]] = {}
        self._seen: Counter[str] = Counter()
        self._most = most
        self._geometry = geometry
        self._chance = chance

    def add_picture(self, name: str, values: Sample, caption: Caption) -> None:
        """Add an image to the selection, perhaps."""
        place = self._place(name, self._most)
        if place < self._most:
            value, size = values[name], _size_of(name, values)
            data = value if type(value) is bytes and _is_image(value) else _pixels(name, values)
            overlay = overlay_of(name, size, values, self._geometry) if size else None
            if not isinstance(data, bytes) and not overlay:
                data = _small(data)
            self.pictures.setdefault(name, [])[place : place + 1] = [Picture(caption, data, 0, overlay or None)]

    def add_clip(self, name: str, kind: str, value: bytes | StoredBytes, caption: Caption) -> None:
        """Add a sound or video to the selection, perhaps."""
        most = min(self._most, MOST_CLIPS)
        place = self._place(name, most)
        if place < most:
            self.clips.setdefault(name, [])[place : place + 1] = [_clip(name, kind, value, caption)]

    def _place(self, name: str, most: int) -> int:
        """Return the index for the next value of an entry in the selection; at least `most` if it is not selected."""
        seen = self._seen[name]
        self._seen[name] += 1
        return seen if seen < most else self._chance.randrange(seen + 1)


def _add(page: ShardPage, values: Sample, sheet: _Sheet) -> None:
    """Add a sample, whose key is the last one of the page."""
    size = sum(_value_size(value) for name, value in values.items() if name != KEY)
    page.sizes[int(log2(max(size, 1)) * STEPS_PER_DOUBLING)] += 1
    label = _label(values)
    if label is not None:
        page.labels[label if label in page.labels or len(page.labels) < _MOST_LABELS else ""] += 1
    caption = None
    for name, value in values.items():
        kind = _kind(value)
        is_picture = (type(value) is bytes and _is_image(value)) or _shape_of(name, values)
        if is_picture or kind in PLAYED:
            caption = caption or Caption(page.keys[-1], label, _caption(values, label))
            if is_picture:
                sheet.add_picture(name, values, caption)
            else:
                sheet.add_clip(name, kind, value, caption)


def _kind(value: object) -> str:
    """Return the kind of a sound, video or other bytes; empty for numbers."""
    if type(value) is bytes:
        return sniff(value[:64]) or ""
    with suppress(SampleError):  # a large value of a stream was not stored
        return sniff(value.head()[:64]) or "" if isinstance(value, StoredBytes) else ""
    return ""


def _value_size(value: bytes | StoredBytes | ParsedFeature) -> int:
    return value.size if isinstance(value, ParsedFeature) else len(value)


# --- Texts ---


def _label(values: dict[str, object]) -> str | None:
    """Return the value of the entry or feature named like a label, if it is short."""
    for name in _LABELS:
        value = values.get(name)
        if isinstance(value, ParsedFeature) and value.count == 1 and value.kind == "int64":
            return str(value.values()[0])
        if isinstance(value, bytes) and 0 < len(value) <= _MOST_LABEL:
            text = value.decode("utf-8", "replace").strip()
            if text.isprintable():
                return shortened(text, _MOST_LABEL)
    return None


def _caption(values: Mapping[str, object], label: str | None) -> str:
    """Return the text of the entry or feature named like a caption, unless it is the label."""
    for name in _CAPTIONS:
        value = values.get(name)
        several = value.values() if isinstance(value, ParsedFeature) and value.kind == "bytes" else [value]
        texts = [text for text in several if isinstance(text, bytes) and text and is_text(text)]
        if texts:
            text = " · ".join(" ".join(text[: 4 * _MOST_CAPTION].decode("utf-8", "replace").split()) for text in texts)
            return "" if text == label else shortened(text, _MOST_CAPTION)
    return ""


# --- Images ---


def _is_image(data: bytes) -> bool:
    kind = sniff(data[:16]) or ""
    return kind.startswith("image/") and len(data) > 26


def _shape_of(name: str, values: Mapping[str, object]) -> list[int] | None:
    """Return height, width and channels of an image stored as a decoded array; None for other values."""
    value, folder = values[name], name.rpartition("/")[0]
    parts = [f"{name}/shape"]
    if values.get(f"{folder}/format") == b"tensor":  # the format of the preset imagenet-tensor
        parts = [f"{folder}/{axis}" for axis in ("height", "width", "channels")]
    shape = [length for part in parts for length in _integers(values.get(part))]
    if len(shape) != 3 or shape[2] not in (1, 3, 4):
        return None
    numbers = value.count if isinstance(value, ParsedFeature) and value.kind == "float" else 0
    return shape if 0 < prod(shape) == (len(value) if isinstance(value, bytes) else numbers) else None


def _size_of(name: str, values: Mapping[str, object]) -> Size | None:
    """Return height and width of an image; None if its header is damaged."""
    if shape := _shape_of(name, values):
        return shape[0], shape[1]
    value = values[name]
    try:
        header = headers.header(value) if isinstance(value, bytes) else None
    except ImageError:
        return None
    return (header.height, header.width) if header else None


def _integers(value: object) -> list[int]:
    return value.values() if isinstance(value, ParsedFeature) and value.kind == "int64" else []


def _pixels(name: str, values: Sample) -> Array:
    """Return an image stored as a decoded array in uint8 RGB; floats up to 1 are scaled."""
    value, shape = values[name], _shape_of(name, values)
    if isinstance(value, ParsedFeature):
        floats = np.frombuffer(b"".join(value.parts()), "<f4")
        pixels = np.clip(floats * (255 if floats.max() <= 1 else 1), 0, 255).astype(np.uint8)
    else:
        pixels = np.frombuffer(value, np.uint8)
    pixels = pixels.reshape(shape)
    return np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels[:, :, :3]


def _picture(drawn: Picture) -> Picture:
    """Return a selected image with its thumbnail as JPEG, and the number of its distinct pixels."""
    try:
        pixels = drawn.data
        if isinstance(pixels, bytes):
            pixels = codecs.decode(pixels, 3, max_pixels=_MOST_PIXELS)
        small = _whole(pixels) if drawn.overlay else _small(pixels)
        packed = small.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32)
        return drawn._replace(
            data=codecs.encode(small, "jpeg", 78), variety=len(np.unique(packed)), overlay=_with_small_mask(drawn)
        )
    except (ImageError, cv2.error):
        return drawn._replace(data=None)


def _with_small_mask(drawn: Picture) -> Overlay | None:
    overlay = drawn.overlay
    if overlay is None or overlay.levels is None:
        return overlay
    return overlay._replace(levels=_whole(overlay.levels, cv2.INTER_NEAREST_EXACT))


def _small(pixels: Array) -> Array:
    """Return a thumbnail of an image's centre."""
    pixels = image.center_crop(pixels)
    side = min(len(pixels), _SIDE)
    return cv2.resize(np.ascontiguousarray(pixels), (side, side), interpolation=cv2.INTER_AREA)


def _whole(pixels: Array, interpolation: int = cv2.INTER_AREA) -> Array:
    """Scale down an image without cropping, so that its boxes, points and masks can be drawn on it."""
    height, width = pixels.shape[:2]
    scale = min(_LARGE_SIDE / max(height, width), 1)
    size = max(round(width * scale), 1), max(round(height * scale), 1)
    return cv2.resize(np.ascontiguousarray(pixels), size, interpolation=interpolation)


# --- Sounds and videos ---


def _clip(name: str, kind: str, value: bytes | StoredBytes, caption: Caption) -> Clip:
    """Return a sound or video, decoded if it is in memory, or only its beginning if it is too large for the page."""
    size, most = len(value), MOST_VIDEO if kind.startswith("video/") else MOST_SOUND
    whole = value if isinstance(value, bytes) else None
    unknown = Counter[str]()
    faults = ValueChecker(unknown).undecodable([(name, whole)]) if whole else []
    fault, decoded = faults[0][1] if faults else "", bool(whole and not unknown)
    if whole is not None and size <= most:
        return Clip(caption, kind, size, whole, decoded, fault)
    head = value[:most] if isinstance(value, bytes) else value.head()[:most]
    return Clip(caption, kind, size, _beginning(kind, head) if kind in _CUT else b"", decoded, fault)


def _beginning(kind: str, head: bytes) -> bytes:
    """Return the beginning of a sound as a valid file; a WAV gets a header with the new length."""
    if kind != "audio/wav":
        return head
    form = b""
    for name, start, size in riff_chunks(head):
        if name == b"fmt ":
            form = head[start : start + size]
        if name == b"data" and len(form) >= 16:
            align = int.from_bytes(form[12:14], "little") or 1
            sound = head[start : start + (len(head) - start) // align * align]
            chunks = b"".join(
                tag + struct.pack("<I", len(part)) + part + b"\0" * (len(part) % 2)
                for tag, part in ((b"fmt ", form), (b"data", sound))
            )
            return b"RIFF" + struct.pack("<I", len(chunks) + 4) + b"WAVE" + chunks
    return b""
