"""Features as described in a manifest by `Schema.describe`: checks them, and checks and counts examples against them.

`Census` counts examples by their combinations of features, together with the kernel: see `examples` in examples.h.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import prod
from struct import Struct
from types import ModuleType
from typing import Any, Final, TypeAlias

from tar2tf_cli.api.values import FeatureDescription, Kind
from tar2tf_cli.errors import SourceError, count, few
from tar2tf_cli.formats.example import TAGS, ParsedFeature
from tar2tf_cli.structs import dataclass, replace

Described: TypeAlias = Mapping[str, FeatureDescription]
"""Descriptions of features in a manifest, by name."""

SIZES: Final = {
    **dict.fromkeys(("bool", "int8", "uint8"), 1),
    **dict.fromkeys(("float16", "int16", "uint16"), 2),
    **dict.fromkeys(("float32", "int32", "uint32"), 4),
    **dict.fromkeys(("complex64", "float64", "int64", "uint64"), 8),
    "complex128": 16,
}
"""The dtypes of arrays, with the number of bytes of a value."""

DTYPES: Final[dict[str, tuple[str, ...]]] = {
    "bytes": ("bytes",),
    "int64": ("int64", "bool", "int8", "int16", "int32", "uint8", "uint16", "uint32", "uint64"),
    "float": ("float32", "float16", "float64"),
    "raw": tuple(dtype for dtype in SIZES if dtype != "uint32"),  # which TensorFlow cannot decode
}
"""The dtypes that each encoding can hold; for lists, beginning with the dtype of the list itself."""


@dataclass(frozen=True)
class Expected:
    """Requirements on one feature of an example; None allows anything.

    Attributes:
        kind: the kind of list that holds the values.
        count: number of values.
        size: total size of the values on the wire in bytes.
        values: the required values, each a number or None for any.
    """

    kind: Kind | None = None
    count: int | None = None
    size: int | None = None
    values: tuple[int | None, ...] | None = None

    def misfit(self, feature: ParsedFeature) -> str | None:
        """Return the fault of a feature; None if the feature meets the requirements."""
        if self.kind is not None and feature.kind != self.kind:
            return f"the feature {feature.name!r} is {feature.kind or 'unset'}, but {self.kind} in the manifest"
        if self.count is not None and feature.count != self.count:
            return f"the feature {feature.name!r} has {feature.count:,} values, but {self.count:,} in the manifest"
        if self.size is not None and feature.size != self.size:
            return f"the feature {feature.name!r} has {feature.size:,} bytes, but {self.size:,} in the manifest"
        if self.values is not None and not _alike(values := feature.values(), self.values):
            shape = ["?" if length is None else length for length in self.values]
            return f"the feature {feature.name!r} is {_shown(values)}, but {_shown(shape)} by its shape in the manifest"
        return None


def _alike(values: Sequence[int], wanted: Sequence[int | None]) -> bool:
    return len(values) == len(wanted) and all(b in (a, None) for a, b in zip(values, wanted, strict=True))


def _shown(numbers: Sequence[object]) -> str:
    return ", ".join(map(str, numbers))


def contradictions(features: Described) -> Iterator[str]:
    """Iterate over the contradictions in a manifest's features, each a sentence that begins with a feature's name."""
    for name, feature in features.items():
        encoding, dtype, shape = feature["encoding"], feature["dtype"], feature["shape"]
        if dtype not in DTYPES[encoding]:
            holder = "raw bytes" if encoding == "raw" else f"a list of {encoding}"
            yield f"the feature {name!r} is {holder}, which cannot hold {dtype}"
        stored = shape_features(name, features)
        length = 1 if len(stored) > 1 else len(shape)
        for part in stored:
            kind, own = features[part]["encoding"], features[part]["shape"]
            if (
                kind != "int64"
                or own not in ([length], [] if len(stored) > 1 else [length])
                or len(stored) not in (1, len(shape))
            ):
                yield f"the feature {name!r} has {len(shape)} dimensions in the manifest, but {part!r} is {kind} {own}"


def shape_features(name: str, features: Described) -> list[str]:
    """Return the names of the features with the shape of an array: NAME/shape, or an image's height, width and
    channels.
    """
    if not features[name]["shape"]:
        return []
    own = features.get(f"{name}/shape")
    if own and (own["shape"] == [len(features[name]["shape"])] or _is_array(features[name])):
        return [f"{name}/shape"]
    folder = name.rpartition("/")[0]
    axes = [f"{folder}/{axis}" for axis in ("height", "width", "channels")]
    return axes if features[name]["encoding"] == "raw" and all(axis in features for axis in axes) else []


def _is_array(feature: FeatureDescription) -> bool:
    """Whether a feature is an array, which needs a shape, and not a plain list."""
    return bool(feature["encoding"] == "raw" or len(feature["shape"]) > 1)


def is_optional(feature: FeatureDescription, records: int) -> bool:
    """Whether records may lack a feature; with --limit, the manifest may omit the feature's count."""
    return bool(feature.get("count", 0) < records)


def check_features(features: Described) -> None:
    """Check that the shape of every array is known.

    Raises:
        SourceError: when the manifest contradicts itself about a feature.
    """
    for contradiction in (*contradictions(features), *_without_shape(features)):
        raise SourceError(contradiction, hint="verify the manifest, restore it from a copy, or convert again")


def _without_shape(features: Described) -> Iterator[str]:
    """Yield the arrays whose lengths are neither in the manifest nor in the examples."""
    for name, feature in features.items():
        array = feature["encoding"] == "raw" or len(feature["shape"]) > 1
        if array and feature["shape"].count(None) > 1 and not shape_features(name, features):
            yield f"the feature {name!r} has the shape {feature['shape']}, but there is no feature {name + '/shape'!r}"


def is_shape_of_array(name: str, features: Described) -> bool:
    """Whether a feature is only the shape of another feature."""
    base, slash, last = name.rpartition("/")
    return bool(slash) and last == "shape" and base in features and name in shape_features(base, features)


def row_width(name: str, features: Described) -> int | None:
    """Return the number of bytes that each example takes in a column of a feature: 0 for one bytes value of any size.

    The result is -1 for the shape of another feature, which has no column, and None for a variable number of values.
    """
    if is_shape_of_array(name, features):
        return -1
    feature = features[name]
    if feature["encoding"] == "bytes":
        return 0 if feature["shape"] == [] else None
    lengths = [length for length in feature["shape"] if length is not None]
    if len(lengths) < len(feature["shape"]):
        return None
    each = SIZES[feature["dtype"]] if feature["encoding"] == "raw" else 4 if feature["encoding"] == "float" else 8
    return prod(lengths) * each or None


def expected(features: Described) -> dict[str, Expected]:
    """Return the requirements of each feature in a manifest."""
    wanted = {name: _expected(described) for name, described in features.items()}
    for name, described in features.items():
        stored, shape = shape_features(name, features), described["shape"]
        if any(length is not None for length in shape):
            lengths = [tuple(shape)] if len(stored) == 1 else [(length,) for length in shape]
            wanted |= {
                shaped: replace(wanted[shaped], values=own) for shaped, own in zip(stored, lengths, strict=False)
            }
    return wanted


def _expected(described: FeatureDescription) -> Expected:
    encoding, shape = described["encoding"], described["shape"]
    lengths = [length for length in shape if length is not None]
    count = prod(lengths) if len(lengths) == len(shape) else None
    if encoding == "raw":
        width = SIZES.get(described["dtype"])
        return Expected("bytes", 1, count * width if count is not None and width else None)
    return Expected(encoding, count)


# --- Counts of examples by their features ---

MOST_REMEMBERED: Final = 10_000
"""Maximum number of feature names, and of combinations of names, that are counted together before a reset."""

MOST_KNOWN: Final = 64
"""Maximum number of names that the kernel accepts."""

_MOST_KINDS: Final = 512  # combinations of them
_KNOWN: Final = Struct("=5i")
_LARGEST: Final = 2**31 - 1
_NO_KIND: Final = 0  # for a feature that no list fits


class Census:
    """Counts examples by their combination of features.

    A census is an `Accept` of `RecordReader`: the kernel counts the examples of known combinations whose features meet
    the requirements, and leaves all others to Python.

    Args:
        expected: the requirements on each feature, by name; other features may have any values.
    """

    def __init__(self, expected: Mapping[str, Expected]) -> None:
        self._expected = expected
        self._counts: Counter[str] = Counter()
        self._begin()

    def _begin(self) -> None:
        self._bits: dict[str, int] = {}  # the bit of each name
        self._records: dict[int, int] = {}  # numbers of examples by the bits of their names
        self._kinds: list[int] = []  # the combinations that the kernel knows
        self._known = (0, 0), (b"", b"")

    def count(self, names: Iterable[str]) -> None:
        """Count one example."""
        if max(len(self._bits), len(self._records)) >= MOST_REMEMBERED:
            self.counts()
        bits = sum(self._bits.get(name) or self._bits.setdefault(name, 1 << len(self._bits)) for name in names)
        self._records[bits] = self._records.get(bits, 0) + 1

    def take(self, native: ModuleType, data: bytes | bytearray, start: int, end: int, /) -> tuple[int, int]:
        """Let the kernel check and count examples; return the end of the last one, and their number."""
        stop, counts = native.examples(data, start, end, *self.known())
        return stop, self.add(counts)

    def names(self) -> Iterator[str]:
        """Iterate over the names that the kernel knows, in order."""
        return islice(self._bits, MOST_KNOWN)

    def known(self) -> tuple[bytes, bytes]:
        """Return the names and combinations of features for the kernel, as many as it accepts."""
        sizes = min(len(self._bits), MOST_KNOWN), min(len(self._records), _MOST_KINDS)
        if self._known[0] != sizes:
            names = b"".join(for_kernel(name, self._expected.get(name)) for name in self.names())
            self._kinds = [kind for kind in islice(self._records, _MOST_KINDS) if kind < 1 << MOST_KNOWN]
            self._known = sizes, (names, array("Q", self._kinds).tobytes())
        return self._known[1]

    def expects_more(self) -> None:
        """Tell the census that the requirements on a feature have changed."""
        self._known = (0, 0), (b"", b"")

    def add(self, counts: bytes) -> int:
        """Add the kernel's counts of examples with known combinations; return their sum."""
        tallies = array("Q", counts)
        for names, records in zip(self._kinds, tallies, strict=True):
            self._records[names] += records
        return sum(tallies)

    def signatures(self) -> Iterator[tuple[tuple[str, ...], int]]:
        """Iterate over the combinations of names, each with its number of examples."""
        for bits, records in self._records.items():
            yield tuple(name for name, bit in self._bits.items() if bits & bit), records

    def counts(self) -> Counter[str]:
        """Return the number of examples with each feature, and reset the combinations."""
        for names, records in self.signatures():
            self._counts.update(dict.fromkeys(names, records))
        self._begin()
        return self._counts


def for_kernel(name: str, wanted: Expected | None) -> bytes:
    """Encode the requirements on one feature for the kernel."""
    text, kind, count, size, values = name.encode(), -1, None, None, None
    if wanted:
        kind = TAGS[wanted.kind][0] if wanted.kind else -1
        count, size, values = wanted.count, wanted.size, wanted.values
    if values is not None and count != len(values):
        count, kind = len(values), kind if count is None else _NO_KIND
    numbers = [-1 if number is None else min(number, _LARGEST) for number in (count, size)]
    content = array("q", [-1 if value is None else value for value in values or ()]).tobytes()
    return _KNOWN.pack(kind, *numbers, len(text), values is not None) + text + content


# --- Features of several shapes ---

_BATCHED: Final = "batch them with load_dataset(..., batch=N, ragged=True) or pad=True"


def notes_on_shapes(features: Described, spec: Mapping[str, object]) -> list[str]:
    """Return notes on features whose values differ in shape, with the options that make shapes equal.

    Args:
        features: the features in the manifest.
        spec: the manifest's spec, whose ops, preset and selections made the features.
    """
    varying = {name: feature["shape"] for name, feature in features.items() if None in (feature["shape"] or ())}
    images = {name: image for name, shape in varying.items() if (image := _image_of(name, shape, spec))}
    lists = [name for name, shape in varying.items() if len(shape) == 1]
    arrays = [name for name in varying if name not in images and name not in lists]
    notes = [f"{_note_on_image(name, image, varying[name])}, or {_BATCHED}" for name, image in images.items()]
    for what, names in (("arrays of several shapes", arrays), ("lists of several lengths", lists)):
        notes += [f"{what}: {few(names)}; {_BATCHED}"] * bool(names)
    shapeless = [name for name in arrays if _missing_shapes(name, features)]
    missing = sum(_missing_shapes(name, features) for name in shapeless)
    if missing:
        what = f"{few(shapeless)}: {count(missing, 'empty list')} without a shape"
        notes.append(f"{what}; load_dataset, open_records and the code of inspect --code give them one")
    return notes


def _missing_shapes(name: str, features: Described) -> int:
    """Return the number of examples with an array but no feature NAME/shape: empty lists of unknown rank."""
    stored = features.get(f"{name}/shape")
    return features[name].get("count", 0) - stored.get("count", 0) if stored else 0


def _image_of(name: str, shape: Sequence[int | None], spec: Mapping[str, Any]) -> str | None:
    """Return the entry that an op decoded to an image feature, or the preset's option; None for other features."""
    if len(shape) != 3 or shape[2] not in (None, 1, 3, 4):
        return None
    if spec.get("preset") == "imagenet-tensor":
        return "--image-size"
    ops = [op["decode"] for op in spec.get("ops", ()) if "decode" in op]
    entries = [op if isinstance(op, str) else op["ext"] for op in ops]
    images = [entry for entry in entries if not entry.endswith(("npy", "npz"))]
    entry = (spec.get("select") or {}).get(name, name)
    return entry if entry in images else next(iter(images), None)


def _note_on_image(name: str, image: str, shape: Sequence[int | None]) -> str:
    sizes, channels = None in shape[:2], shape[2] is None
    several = " and ".join(["sizes"] * sizes + ["numbers of channels"] * channels)
    from tar2tf_cli.formats.image import is_named_like_mask  # imported here, as few conversions need it

    size = "224x224,method=nearest" if is_named_like_mask(image) else "224x224"
    ops = [f"--op decode:{image},3"] * channels + [f"--op resize:{image},{size} or pad:{image},{size}"] * sizes
    fix = "--image-size 224" if image == "--image-size" else " and ".join(ops)
    return f"images of several {several}: {name}; make them equal with {fix}"
