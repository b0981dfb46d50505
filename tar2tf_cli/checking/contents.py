"""The contents of shards: kinds of values, and statistics of each entry or feature, per shard and in total."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import inf, isfinite, prod
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar, cast

from tar2tf_cli.api.source import SampleFault
from tar2tf_cli.api.values import Array, Kind
from tar2tf_cli.checking.video import VideoHeader, matroska_header, mp4_header
from tar2tf_cli.errors import ImageError, SourceError, count
from tar2tf_cli.features.described import SIZES, notes_on_shapes
from tar2tf_cli.formats.example import ParsedFeature, fields, read_varint
from tar2tf_cli.formats.image import MOST_VALUES, describe_values
from tar2tf_cli.formats.npy import read_header
from tar2tf_cli.formats.streams import riff_chunks, sniff
from tar2tf_cli.plugins import formats, traits_of
from tar2tf_cli.structs import dataclass, field

_MOST_JSON: Final = 1 << 20
_WITHOUT_HEADER: Final = tuple(f"image/{name}" for name in ("avif", "heic", "jp2", "jxl", "exr", "psd"))
_TEXT_HEAD: Final = 4096
_MOST_CHARACTERS: Final = 200
MOST_LISTED: Final = 12


class ValueKind(NamedTuple):
    """The detected kind of a value.

    Attributes:
        kind: such as `image/jpeg`, `text`, `json`, `npy` or `int64`; `bytes` for anything else.
        shape: width, height and channels of an image; width and height of a video; the shape of an array.
        seconds: duration of audio or video.
        frames: number of frames of a video.
    """

    kind: str
    shape: tuple[int, ...] = ()
    seconds: float | None = None
    frames: int | None = None


def detect_kind(data: bytes, size: int | None = None) -> ValueKind:
    """Detect the kind of a value from its bytes; if they are only its beginning, `size` is the full size."""
    kind = sniff(data)
    if kind and not kind.startswith("image/"):
        return _by_header(kind, data, len(data) if size is None else size)
    if kind:
        from tar2tf_cli.formats.image.headers import header

        try:
            image = header(data)
            return ValueKind(kind, (image.width, image.height, image.channels))
        except ImageError:
            if kind in _WITHOUT_HEADER or (kind == "image/tiff" and (size or 0) > len(data)):
                return ValueKind(kind)
    return _tensor(data) or ValueKind(_text_kind(data))


def _text_kind(data: bytes) -> str:
    text = _text(data)
    if text is None:
        return "bytes" if data else "empty"
    if text.lstrip()[:1] in ("{", "[") and len(data) <= _MOST_JSON:
        import json

        try:
            json.loads(data)
            return "json"
        except (ValueError, RecursionError):
            pass
    return "text"


def is_text(data: bytes) -> bool:
    """Whether bytes are text, judging by their beginning; b"" is."""
    return not data or _text(data) is not None


def _text(data: bytes) -> str | None:
    """Decode the beginning of a text; None if the bytes are not text."""
    head = data[:_TEXT_HEAD]
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        if len(head) == len(data) or error.start < len(head) - 3:  # otherwise the last character is cut
            return None
        text = head[: error.start].decode("utf-8")
    good = text and all(part.isprintable() or part in "\t\r\n" for part in text)
    return text if good else None


def example_of(data: bytes) -> str:
    """Return the beginning of a value for display: text on one line, other bytes in hexadecimal."""
    text = " ".join((_text(data) or "").split())
    return shortened(text) or data[:16].hex(" ") + (" …" if len(data) > 16 else "")


def shortened(text: str, most: int = _MOST_CHARACTERS) -> str:
    """Cut text to at most `most` characters, with an ellipsis as the last one."""
    return text if len(text) <= most else text[: most - 1] + "…"


def numbers_shown(values: Sequence[float]) -> str:
    """Format one number, or the beginning of a list of numbers."""
    some = [*map(_number_shown, values[:MOST_LISTED])]
    return some[0] if len(values) == 1 else listed(some, len(values))


def _number_shown(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def listed(some: Iterable[str], size: int) -> str:
    """Format a list of `size` values, given the first few as text."""
    return f"[{', '.join(some)}{', …' if size > MOST_LISTED else ''}]"


def shown(value: object) -> str:
    """Format the beginning of a value: bytes, or a feature of numbers or several texts."""
    if not isinstance(value, ParsedFeature):
        return example_of(value) if isinstance(value, bytes) else shortened(_number_shown(value))
    if value.kind in ("int64", "float"):
        return numbers_shown(value.values())
    return shortened(listed(map(example_of, value.parts()[:MOST_LISTED]), value.count))


# --- Headers of audio, video and arrays ---


def _by_header(kind: str, data: bytes, size: int) -> ValueKind:
    """Read the header of a value; return only the kind if the header is damaged or of another kind."""
    try:
        described = _READERS[kind](data, size)
    except (ValueError, LookupError, struct.error, ZeroDivisionError):
        return ValueKind(kind)
    return described._replace(kind=f"{kind} {described.kind}".rstrip())


def _audio(rate: int, channels: int, samples: float) -> ValueKind:
    named = {1: "mono", 2: "stereo"}.get(channels, f"{channels} channels")
    return ValueKind(f"{rate} Hz {named}", (), samples / rate if samples else None)


def _wav(data: bytes, whole: int) -> ValueKind:
    """Read the RIFF chunks of a WAV (https://www.mmsp.ece.mcgill.ca/Documents/AudioFormats/WAVE/WAVE.html)."""
    form, samples = b"", 0.0
    for name, start, size in riff_chunks(data):
        if name == b"fmt ":
            form = data[start : start + 16]
        if name == b"fact":
            (samples,) = struct.unpack_from("<I", data, start)
        if name == b"data":
            code, channels, rate, _, align, _ = struct.unpack("<HHIIHH", form)
            if code in _UNCOMPRESSED:  # the size is unknown in files written to pipes
                samples = min(size, whole - start) / align
            return _audio(rate, channels, samples)
    return ValueKind("")


_UNCOMPRESSED: Final = (1, 3, 6, 7, 0xFFFE)  # PCM, floats, A-law, mu-law, extensible


def _flac(data: bytes, whole: int) -> ValueKind:
    """Read the STREAMINFO block of a FLAC (RFC 9639, section 8.2)."""
    packed = int.from_bytes(data[18:26], "big")
    rate, channels, samples = packed >> 44, (packed >> 41 & 7) + 1, packed & (1 << 36) - 1
    return _audio(rate, channels, samples)


def _npy(data: bytes, whole: int) -> ValueKind:
    (descr, _, shape), _ = read_header(data)
    return ValueKind(_numpy_name(descr), shape)


def _numpy_name(code: object) -> str:
    text = str(code).lstrip("<>|=")
    named = {"f": "float", "i": "int", "u": "uint", "c": "complex"}
    return f"{named[text[0]]}{8 * int(text[1:])}" if text[:1] in named else {"b1": "bool"}.get(text, text)


def _mp4(data: bytes, whole: int) -> ValueKind:
    return _video(mp4_header(data, whole))


def _webm(data: bytes, whole: int) -> ValueKind:
    return _video(matroska_header(data, whole))


def _video(header: VideoHeader) -> ValueKind:
    return ValueKind(_audio(*header.sound, 0).kind if header.sound else "", header.shape, header.seconds, header.frames)


_READERS: Final = {
    "audio/wav": _wav,
    "audio/flac": _flac,
    "audio/mp4": _mp4,
    "npy": _npy,
    "video/mp4": _mp4,
    "video/webm": _webm,
    "video/x-matroska": _webm,
}

# --- Serialized tensors ---

TENSOR_DTYPES: Final = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 7: "string", 9: "int64", 10: "bool",
    14: "bfloat16", 17: "uint16", 19: "float16", 22: "uint32", 23: "uint64",
}  # fmt: skip
"""DataType in tensorflow/core/framework/types.proto."""


def _tensor(data: bytes) -> ValueKind | None:
    """Read dtype and shape of a tf.io.serialize_tensor value; None if the bytes are something else.

    The message is TensorProto in tensorflow/core/framework/tensor.proto: 1 is the dtype, 2 the shape, 4 the content.
    """
    if data[:1] != b"\x08" or data[1:2] == b"" or data[1] not in TENSOR_DTYPES or data[2:3] != b"\x12":
        return None
    try:
        ranges = {tag: (start, end) for tag, start, end in fields(data, 0, len(data), 0)}
        shape = tuple(_dimension(data, *place) for _, *place in fields(data, *ranges.get(0x12, (0, 0)), 1))
    except (ValueError, IndexError):
        return None
    dtype = TENSOR_DTYPES[data[1]]
    start, end = ranges.get(0x22, (0, 0))
    size = prod(shape) * SIZES.get(dtype, 0)
    if any(tag >> 3 > 17 for tag in ranges) or (start < end and size and size != end - start):
        return None
    return ValueKind(f"tensor {dtype}", shape)


def _dimension(data: bytes, start: int, end: int) -> int:
    """Return the size in a TensorShapeProto.Dim (field 1)."""
    number = 0
    for tag, first, last in fields(data, start, end, 2):
        if tag == 0x08:
            number = read_varint(data, first, last, 10)[0]
    return number


if TYPE_CHECKING:
    from tar2tf_cli.inputs.manifest import Manifest

N = TypeVar("N", int, float)

_WAITING: Final = 1 << 16
_FEW: Final = 1 << 12  # bytes

STEPS: Final = "[]"
"""Ends the name of a feature list of a tf.train.SequenceExample; its sizes are numbers of steps."""


@dataclass
class NumberStats:
    """Statistics of a feature's numbers: minimum, maximum, sum and count, without NaN.

    Numbers are decoded many at a time; call `decode` to decode the remaining ones before reading the statistics.
    """

    least: float = inf
    most: float = -inf
    total: float = 0
    count: int = 0
    waiting: dict[str, bytearray] = field(default_factory=dict)

    def add(self, kind: str, parts: Iterable[bytes]) -> None:
        """Add the numbers of an int64 or float list, given as runs of bytes."""
        waiting = self.waiting.get(kind)
        if waiting is None:
            waiting = self.waiting[kind] = bytearray()
        for part in parts:
            waiting += part
        while len(waiting) >= _WAITING:
            size = _WAITING if kind == "float" else len(waiting)  # as float sums depend on their grouping
            self._decode(kind, waiting[:size])
            del waiting[:size]

    def decode(self) -> NumberStats:
        """Decode numbers that were added, and return the statistics itself."""
        waiting, self.waiting = self.waiting, {}
        for kind, data in waiting.items():
            self._decode(kind, data)
        return self

    def _decode(self, kind: str, data: bytearray) -> None:
        if len(data) <= _FEW:  # small data does not justify importing NumPy
            whole = ParsedFeature(bytes(data), "", cast("Kind", kind), len(data) // 4, [(0, len(data))])
            if numbers := [number for number in whole.values() if number == number]:
                self._extend(min(numbers), max(numbers), sum(numbers), len(numbers))
            return
        from tar2tf_cli.features.decoder import numbers_in

        array = numbers_in(kind, data)
        array = array[array == array]
        if len(array):
            self._extend(array.min().item(), array.max().item(), _sum(array), len(array))

    def update(self, other: NumberStats) -> None:
        """Add the statistics of another shard."""
        self._extend(other.decode().least, other.most, other.total, other.count)

    def _extend(self, least: float, most: float, total: float, count: int) -> None:
        self.least = least if least < self.least else self.least
        self.most = most if most > self.most else self.most
        self.total += total
        self.count += count


def _sum(array: Array) -> float:
    """Return the sum of numbers, which is exact for integers and may exceed 64 bits."""
    if array.dtype.kind == "f":
        return float(array.sum(dtype=float))
    return int((array >> 32).sum()) * (1 << 32) + int((array & 0xFFFFFFFF).sum())


@dataclass
class Stats:
    """Statistics of one entry's or feature's values.

    Attributes:
        unit: the unit of `least`, `most` and `total`: bytes or, for lists of numbers, values.
        count: number of samples that have the entry or feature.
        example: one of the values, shortened.
        kinds: number of the examined values of each kind.
        shapes: the smallest and largest dimensions of each kind of image, video or array; empty if their number varies.
        seconds: the shortest and longest duration of each kind of audio or video.
        frames: the smallest and largest number of frames of each kind of video.
        values: the smallest and largest number of values of a feature in a record.
        numbers: statistics of a numeric feature, as far as its values were read.
        lists: number of records whose values are in a list of each kind; None for a feature without a list.
        is_steps: whether it is a feature list of a tf.train.SequenceExample, whose name then ends with `[]`.
        divided: whether the numbers of a list are in several pieces, as protobuf allows.
        turned: number of the examined images that are stored rotated, according to EXIF.
        distinct: the distinct pixel values of examined masks, at most `MOST_VALUES` + 1; None if it is neither named
            like a mask nor a PNG with a palette.
        shaped: the values whose shape is in a feature NAME/shape: `values`, or `uint8` for bytes; empty for neither,
            and None if there is no such feature.
    """

    unit: Literal["bytes", "values"] = "bytes"
    count: int = 0
    total: int = 0
    least: int = 0
    most: int = 0
    example: str | None = None
    kinds: Counter[str] = field(default_factory=Counter)
    shapes: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)
    seconds: dict[str, tuple[float, float]] = field(default_factory=dict)
    frames: dict[str, tuple[int, int]] = field(default_factory=dict)
    values: tuple[int, int] | None = None
    numbers: NumberStats = field(default_factory=NumberStats)
    lists: Counter[str | None] = field(default_factory=Counter)
    turned: int = 0
    distinct: set[Any] | None = None
    shaped: str | None = None
    divided: bool = False
    is_steps: bool = False

    @property
    def mean(self) -> float:
        """The mean size of a value."""
        return self.total / self.count if self.count else 0.0

    @property
    def kind(self) -> str:
        """The kinds of the values, most frequent first, such as `image/jpeg 500x375x3` or `image/png (90), text (10)`.

        Several kinds have the number of examined values, or of all records where their lists differ.
        """
        if len(self.list_kinds) > 1:
            return ", ".join(f"{self._of_list(kind)} ({number:,})" for kind, number in self.list_kinds.most_common())
        return self._of_kinds(self.kinds)

    @property
    def list_kinds(self) -> Counter[str]:
        """The number of records in which the feature is a list of each kind: bytes, int64 or float."""
        return Counter({kind: number for kind, number in self.lists.items() if kind})

    def _of_list(self, kind: str) -> str:
        if kind != "bytes":
            return kind
        return self._of_kinds(Counter({name: n for name, n in self.kinds.items() if name not in ("int64", "float")}))

    def _of_kinds(self, kinds: Counter[str]) -> str:
        """Describe kinds, grouping those of one format that differ in a property, such as `audio/wav 3 rates`."""
        groups: dict[str, list[str]] = {}
        for kind, _ in kinds.most_common():
            groups.setdefault(_format_of(kind), []).append(kind)
        if len(groups) == 1 and len(kinds) > 1:
            return _grouped(*groups.popitem())
        named = [
            f"{self._described(alike[0]) if len(alike) == 1 else _grouped(format, alike)}"
            + (f" ({sum(kinds[kind] for kind in alike):,})" if len(groups) > 1 else "")
            for format, alike in groups.items()
        ]
        return ", ".join(named) or "bytes"

    def summary(self, size: Callable[[int], str]) -> tuple[str, str, str, str]:
        """Return kind, and minimum, mean and maximum of the numbers or, for other values, of the sizes, as text."""
        if self.unit == "bytes":
            return self.kind, size(self.least), size(round(self.mean)), size(self.most)
        numbers = self.numbers.decode()
        if not numbers.count:
            return self.kind, f"{self.least:,}", _number(round(self.mean, 1)), f"{self.most:,}"
        few, many = self.values or (1, 1)
        kind = self.kind if few == many == 1 else f"{self.kind}, {_range(f'{few:,}', f'{many:,}')} values"
        return kind, _number(numbers.least), _number(numbers.total / numbers.count), _number(numbers.most)

    def add(self, size: int) -> None:
        """Add the size of a value."""
        self.least = size if not self.count or size < self.least else self.least
        self.most = size if size > self.most else self.most
        self.count += 1
        self.total += size

    def add_all(self, sizes: Sequence[int]) -> None:
        """Add the sizes of several values."""
        self.least = min(sizes) if not self.count else min(self.least, min(sizes))
        self.most = max(self.most, max(sizes))
        self.count += len(sizes)
        self.total += sum(sizes)

    def add_examples(
        self, kind: Kind, count: int, total: int, least: int, most: int, fewest: int, most_values: int
    ) -> None:
        """Add a feature of several examples: sum and range of sizes, and range of numbers of values."""
        self.least = least if not self.count else min(self.least, least)
        self.most = max(self.most, most)
        self.count += count
        self.total += total
        self.lists[kind] += count
        self.values = _wider(self.values, (fewest, most_values))

    def add_list(self, kind: str | None, number: int) -> None:
        """Add a list's kind and number of values; the kind is None for a feature without a list."""
        self.lists[kind] += 1
        if kind is None:
            return
        if self.values is None:
            self.values = number, number
        elif not self.values[0] <= number <= self.values[1]:
            self.values = _wider(self.values, (number, number))

    def look(self, look: ValueKind, example: Callable[[], str]) -> None:
        """Add a value's kind; `example` is called only for the first value."""
        self.kinds[look.kind] += 1
        if self.example is None:
            self.example = example()
        if look.shape:
            self._widen(look.kind, look.shape, look.shape)
        if look.seconds is not None:
            self.seconds[look.kind] = _wider(self.seconds.get(look.kind), (look.seconds, look.seconds))
        if look.frames is not None:
            self.frames[look.kind] = _wider(self.frames.get(look.kind), (look.frames, look.frames))

    def add_distinct(self, values: set[object]) -> None:
        """Add the distinct values of a mask."""
        self.distinct = values | (self.distinct or set())
        if len(self.distinct) > MOST_VALUES:
            self.distinct = set(islice(self.distinct, MOST_VALUES + 1))

    def update(self, other: Stats) -> None:
        """Add the statistics of another shard."""
        self.turned += other.turned
        if other.distinct is not None:
            self.add_distinct(other.distinct)
        if self.example is None:
            self.example = other.example
        if not self.count:
            self.unit = other.unit
        if other.values:
            self.values = _wider(self.values, other.values)
        self.lists.update(other.lists)
        self.divided = self.divided or other.divided
        self.is_steps = self.is_steps or other.is_steps
        if other.shaped is not None:
            self.shaped = other.shaped if self.shaped in (None, other.shaped) else ""
        self.numbers.update(other.numbers)
        self.least = min(self.least, other.least) if self.count and other.count else self.least or other.least
        self.most = max(self.most, other.most)
        self.count += other.count
        self.total += other.total
        self.kinds.update(other.kinds)
        for kind, (low, high) in other.shapes.items():
            self._widen(kind, low, high)
        for kind, seconds in other.seconds.items():
            self.seconds[kind] = _wider(self.seconds.get(kind), seconds)
        for kind, frames in other.frames.items():
            self.frames[kind] = _wider(self.frames.get(kind), frames)

    def to_json(self) -> dict[str, Any]:
        """Return the statistics as plain JSON."""
        numbers = self.numbers.decode()
        return {
            "count": self.count,
            "kind": self.kind,
            "unit": self.unit,
            "min": self.least,
            "mean": round(self.mean, 2),
            "max": self.most,
            "example": self.example,
            **({"range": [numbers.least, numbers.most]} if numbers.count and isfinite(numbers.total) else {}),
            **({"kinds": dict(self.list_kinds)} if len(self.list_kinds) > 1 else {}),
            **({"turned": self.turned} if self.turned else {}),
            **({} if self.distinct is None else {"distinct": len(self.distinct)}),
        }

    def _widen(self, kind: str, low: tuple[int, ...], high: tuple[int, ...]) -> None:
        known_low, known_high = self.shapes.get(kind, (low, high))
        same = len(known_low) == len(low) == len(known_high)
        widened = tuple(map(min, known_low, low)), tuple(map(max, known_high, high))
        self.shapes[kind] = widened if same else ((), ())

    def _described(self, kind: str) -> str:
        parts = [kind]
        if sizes := [_range(low, high) for low, high in zip(*self.shapes.get(kind, ((), ())), strict=True)]:
            parts.append("x".join(sizes))
        if kind in self.seconds:
            parts.append(_range(*(f"{seconds:.3g}" for seconds in self.seconds[kind])) + " s")
        if kind in self.frames:
            parts.append(_range(*self.frames[kind]) + " frames")
        return " ".join(parts)


def _format_of(kind: str) -> str:
    """Return the format of a kind with properties, such as `audio/wav` of `audio/wav 8000 Hz mono`; else the kind."""
    first = kind.partition(" ")[0]
    return first if "/" in first or first in ("npy", "tensor") else kind


def _grouped(format: str, kinds: Sequence[str]) -> str:
    """Describe kinds of one format that differ in properties: `audio/wav 3 rates`, `npy 2 dtypes`."""
    properties = [kind.partition(" ")[2] for kind in kinds if " " in kind]
    if not format.startswith(("audio/", "video/")):
        return f"{format} {count(len(properties), 'dtype')}"
    rates = {text.partition(" Hz")[0] for text in properties}
    channels = {text.partition(" Hz ")[2] for text in properties}
    words = [f"{len(rates)} rates"] if len(rates) > 1 else [f"{rate} Hz" for rate in rates]
    return " ".join([format, *words, *([f"{len(channels)} channel layouts"] if len(channels) > 1 else channels)])


def _number(value: float) -> str:
    """Format a number: integers with separators, others with up to six digits."""
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def _wider(known: tuple[N, N] | None, value: tuple[N, N]) -> tuple[N, N]:
    """Return the minimum and maximum of a range and a further range."""
    return (min(known[0], value[0]), max(known[1], value[1])) if known else value


def _range(low: object, high: object) -> str:
    return str(low) if low == high else f"{low}-{high}"


@dataclass
class ShardContents:
    """The contents of one shard.

    Attributes:
        path: path or URL of the shard.
        name: the shard's name in the bucket.
        format: detected from the content; None if it is neither a tar nor a TFRecord.
        samples: number of samples or records.
        bytes: size of the shard in bytes as stored.
        entries: statistics of each entry or feature.
        faulty: number of faulty samples, such as samples with a repeated key, which are not in `samples`.
        foreign: number of records that are not a tf.train.Example.
        payload: statistics of these records.
        sequences: number of records that are a tf.train.SequenceExample.
        compression: the compression of the shard, as TensorFlow names it; empty if there is none.
        not_adjacent: number of samples of a tar whose members are not adjacent.
        skipped: number of members of a tar that are not part of any sample, by reason.
        instead: the format of a file that is not a shard, and what to do with it; None if it is unknown.
        error: the first reason why the shard, or a part of it, cannot be read; the readable parts are counted.
    """

    path: str
    name: str
    format: str | None = None
    samples: int = 0
    bytes: int = 0
    entries: dict[str, Stats] = field(default_factory=dict)
    faulty: int = 0
    foreign: int = 0
    payload: Stats = field(default_factory=Stats)
    sequences: int = 0
    compression: str = ""
    not_adjacent: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    instead: tuple[str, str] | None = None
    error: SourceError | None = None

    @property
    def status(self) -> str:
        """`damaged` or `missing` if the shard cannot be read completely; else `ok`, even if some data is damaged."""
        return "ok" if self.error is None else "missing" if self.error.kind == "missing" else "damaged"

    def stats(self, name: str) -> Stats:
        """Return the statistics of an entry, after creating them if necessary."""
        stats = self.entries.get(name)
        if stats is None:
            stats = self.entries[name] = Stats()
        return stats

    def count_fault(self, error: SampleFault) -> None:
        """Count a faulty sample."""
        self.faulty += 1

    def to_json(self) -> dict[str, object]:
        """Return the contents as plain JSON."""
        return {
            "path": self.path,
            "format": self.format,
            "samples": self.samples,
            "bytes": self.bytes,
            **({"not_adjacent": self.not_adjacent} if self.not_adjacent else {}),
            **(_of_unreadable(self.error, self.status) if self.error else {}),
        }


def _of_unreadable(error: SourceError, status: str) -> dict[str, object]:
    from tar2tf_cli.checking.faults import fault_of  # only here, as few shards cannot be read

    return {"status": status, "faults": [fault_of(error).to_json()]}


@dataclass
class Contents:
    """The contents of all shards of a bucket.

    Attributes:
        shards: the shards, in order.
        skipped: names of files in a directory that are neither tar nor TFRecord.
        bucket: the inspected bucket.
        manifests: the inspected manifests.
        types: the types of the features in TensorFlow Datasets, by name, if its files describe the shards.

    >>> inspect("shards", workers=1).entries["cls"].count
    24
    """

    shards: list[ShardContents] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    bucket: str = ""
    manifests: Sequence[Manifest] = ()
    types: Mapping[str, str] = field(default_factory=dict)

    @property
    def format(self) -> str:
        """The format of the shards: `tar`, `tfrecord`, `mixed` if both, or `unknown` if none can be opened."""
        formats: set[str] = {shard.format for shard in self.shards if shard.format}
        return "mixed" if len(formats) > 1 else next(iter(formats), "unknown")

    @property
    def shard_noun(self) -> str:
        """The name of one of the shards, such as `tar shard`, or `tar and TFRecord shard` if there may be both."""
        names = sorted({shard.format for shard in self.shards if shard.format}) or [one.name for one in formats()]
        return f"{' and '.join(traits_of(name).singular for name in names)} shard"

    @property
    def of_examples(self) -> bool:
        """Whether all shards hold examples, whose values are called features rather than entries."""
        return traits_of(self.format).carries_examples

    @property
    def shapes(self) -> list[str]:
        """Return notes on features with several shapes, as manifests describe them."""
        return [*{note: None for one in self.manifests for note in notes_on_shapes(one.features, one.spec)}]

    @property
    def errors(self) -> list[SourceError]:
        """Errors of shards that cannot be read completely."""
        return [shard.error for shard in self.shards if shard.error]

    @property
    def samples(self) -> int:
        """The number of samples or records in all shards."""
        return sum(shard.samples for shard in self.shards)

    @property
    def bytes(self) -> int:
        """The total size of the shards in bytes as stored."""
        return sum(shard.bytes for shard in self.shards)

    @property
    def not_adjacent(self) -> int:
        """The number of scattered samples in tars, whose members are not adjacent."""
        return sum(shard.not_adjacent for shard in self.shards)

    @property
    def skipped_members(self) -> Counter[str]:
        """The number of skipped members of tars, by reason."""
        return sum((shard.skipped for shard in self.shards), Counter())

    @property
    def entries(self) -> dict[str, Stats]:
        """Statistics of each entry or feature in all shards, sorted by name."""
        merged: dict[str, Stats] = {}
        for shard in self.shards:
            for name, stats in shard.entries.items():
                merged.setdefault(name, Stats()).update(stats)
        return dict(sorted(merged.items()))

    def of_images(self) -> Iterator[str]:
        """Yield notes on images: the number with an EXIF rotation, and the distinct values of masks."""
        for name, stats in self.entries.items():
            examined = f"{stats.kinds.total():,} examined"
            if stats.turned:
                turns = f"--op orient:{name} applies it, decode does not"
                yield f"{stats.turned:,} of {examined} images in {name!r} have an EXIF rotation; {turns}"
            if stats.distinct is not None:
                yield f"{name!r} looks like a mask; the {examined} have {describe_values(stats.distinct)}"

    def lacking(self, stats: Stats) -> int:
        """Return the number of samples or examples without an entry or feature, given its statistics."""
        return self.samples - sum(shard.foreign for shard in self.shards) - stats.count

    @property
    def payload(self) -> Stats:
        """Statistics of records that are not examples."""
        merged = Stats()
        for shard in self.shards:
            merged.update(shard.payload)
        return merged

    def _type(self, name: str) -> dict[str, str]:
        return {"type": self.types[name]} if name in self.types else {}

    def to_json(self) -> dict[str, object]:
        """Return the document that `inspect --json` prints."""
        return {
            "format": self.format,
            "shards": [shard.to_json() for shard in self.shards],
            "samples": self.samples,
            "bytes": self.bytes,
            **({"not_adjacent": self.not_adjacent} if self.not_adjacent else {}),
            **({"skipped": dict(sorted(self.skipped_members.items()))} if self.skipped_members else {}),
            **({"shapes": self.shapes} if self.shapes else {}),
            "entries": {
                name: {**stats.to_json(), "missing": self.lacking(stats), **self._type(name)}
                for name, stats in self.entries.items()
            },
        }
