"""A tf.train.Example in memory: features by name with typed access, and conversion to and from serialised bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from tar2tf_cli.api.op import Op, OpContext
from tar2tf_cli.api.values import Feature, Kind
from tar2tf_cli.errors import ImageError, SampleError
from tar2tf_cli.features.feature_map import describe
from tar2tf_cli.formats.example import (
    Encoder,
    bytes_list,
    float_list,
    int64_list,
    packed_floats,
    parse_features,
    values_of,
)
from tar2tf_cli.formats.files import whole
from tar2tf_cli.ops.base import apply_ops

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_encoder: Final = Encoder()


class TFExample(dict[str, "bytes | Feature"]):
    """A tf.train.Example in memory, as a dict of features by name; plain bytes are a feature of one bytes value.

    As for any dict, `name in example`, `del example[name]` and `len(example)` work. Numbers, lists and images are
    set by `add_…`, which replaces an older feature of that name, and read by `get_…`.
    """

    __slots__ = ()

    @classmethod
    def from_bytes(cls, data: bytes) -> TFExample:
        """Parse a serialised tf.train.Example.

        Raises:
            ValueError: when the bytes are not a tf.train.Example.
        """
        return cls(parse_features(data))

    def to_bytes(self) -> bytes:
        """Serialise to a tf.train.Example, with features sorted by name.

        Raises:
            SampleError: when the message would exceed protobuf's limit of 2 GiB.
        """
        return b"".join(map(whole, _encoder.encode(self)[0]))

    def __setitem__(self, name: str, value: bytes | Feature) -> None:
        """Set a feature.

        Raises:
            TypeError: for anything that is not bytes or a Feature.
        """
        if not isinstance(value, (bytes, Feature)):
            kind = type(value).__name__
            raise TypeError(f"{kind} is not a feature; set {name!r} with add_int64, add_float, add_bytes or add_image")
        super().__setitem__(name, value)

    def __eq__(self, other: object) -> bool:
        """Whether another mapping has the same features for TensorFlow."""
        return isinstance(other, TFExample) and self.to_bytes() == other.to_bytes()

    def __ne__(self, other: object) -> bool:
        """Whether another object is not equal; a dict has its own answer."""
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"TFExample({', '.join(f'{name}: {describe(value)}' for name, value in sorted(self.items()))})"

    # --- Presence ---

    def has(self, name: str) -> bool:
        """Whether the example has a feature of a name, of any kind."""
        return name in self

    def has_int64(self, name: str) -> bool:
        """Whether the example has a feature of a name that holds int64 values, one or many."""
        return self._kind(name) == "int64"

    def has_float(self, name: str) -> bool:
        """Whether the example has a feature of a name that holds float32 values, one or many."""
        return self._kind(name) == "float"

    def has_bytes(self, name: str) -> bool:
        """Whether the example has a feature of a name that holds byte strings, one or many."""
        return self._kind(name) == "bytes"

    def has_image(self, name: str) -> bool:
        """Whether the example has a feature of a name that holds one JPEG, PNG or BMP, judging by its header."""
        if not self.has_bytes(name) or len(values := self.get_bytes_list(name)) != 1:
            return False
        from tar2tf_cli.formats.image import headers

        try:
            return headers.header(values[0]).format in ("jpeg", "png", "bmp")
        except ImageError:
            return False

    # --- One value ---

    def get_int64(self, name: str) -> int:
        """Return the int64 value of a feature.

        Raises:
            SampleError: when the feature is missing or of another kind, or has several values; so does every `get_…`.
        """
        return int(self._only(name, "int64"))

    def get_float(self, name: str) -> float:
        """Return the float32 value of a feature."""
        return float(self._only(name, "float"))

    def get_bytes(self, name: str) -> bytes:
        """Return the byte string of a feature."""
        return bytes(self._only(name, "bytes"))

    def get_image(self, name: str) -> NDArray[np.uint8]:
        """Decode a feature that holds a JPEG, PNG or BMP: uint8 (height, width, channels).

        Raises:
            ImageError: when the feature does not hold an image that can be decoded.
        """
        from tar2tf_cli.formats.image import codecs

        return codecs.decode(self.get_bytes(name))

    def add_int64(self, name: str, value: int) -> None:
        """Add an int64 value.

        Raises:
            OverflowError: when the value does not fit in 64 bits.
            TypeError: when the value is not a whole number.
        """
        self[name] = int64_list([value], ())

    def add_float(self, name: str, value: float) -> None:
        """Add a value as float32.

        Raises:
            OverflowError: when the value does not fit.
        """
        self[name] = float_list([value], ())

    def add_bytes(self, name: str, value: bytes) -> None:
        """Add a byte string."""
        self[name] = _as_bytes(value)

    def add_image(
        self, name: str, pixels: NDArray[np.uint8], format: Literal["png", "jpeg"] = "png", quality: int = 95
    ) -> None:
        """Add an image, uint8 (height, width, channels), as a lossless PNG or as a JPEG.

        Raises:
            ImageError: for another dtype or shape.
        """
        from tar2tf_cli.formats.image import codecs

        self[name] = codecs.encode(pixels, format, quality)

    # --- Any number of values ---

    def get_int64_list(self, name: str) -> list[int]:
        """Return the int64 values of a feature."""
        return self._values(name, "int64")

    def get_float_list(self, name: str) -> list[float]:
        """Return the float32 values of a feature."""
        return self._values(name, "float")

    def get_bytes_list(self, name: str) -> list[bytes]:
        """Return the byte strings of a feature."""
        return self._values(name, "bytes")

    def add_int64_list(self, name: str, values: Iterable[int]) -> None:
        """Add any number of int64 values."""
        self[name] = int64_list(values)

    def add_float_list(self, name: str, values: Iterable[float] | NDArray[np.generic]) -> None:
        """Add any number of values as float32; an array is taken in C order."""
        if hasattr(values, "dtype"):
            import numpy as np

            self[name] = packed_floats(np.ascontiguousarray(values, dtype="<f4").tobytes())
        else:
            self[name] = float_list(values)

    def add_bytes_list(self, name: str, values: Iterable[bytes]) -> None:
        """Add any number of byte strings."""
        self[name] = bytes_list([_as_bytes(value) for value in values])

    def _kind(self, name: str) -> Kind | None:
        return values_of(self[name])[0] if name in self else None

    def _values(self, name: str, kind: Kind) -> list[Any]:
        if name not in self:
            raise SampleError(f"has no feature {name!r}" + (f", only {', '.join(sorted(self))}" if self else ""))
        stored, values = values_of(self[name])
        if stored != kind:
            raise SampleError(f"the feature {name!r} holds {stored} values, not {kind}")
        return values

    def _only(self, name: str, kind: Kind) -> Any:
        values = self._values(name, kind)
        if len(values) != 1:
            raise SampleError(f"the feature {name!r} holds {len(values)} values, not one", hint="use the list's getter")
        return values[0]


def invalid_value(example: TFExample) -> str | None:
    """Describe a value that is not a feature, if any; `update` and `TFExample(...)` accept anything."""
    for name, value in example.items():
        if type(value) is not bytes and not isinstance(value, Feature):
            return f"{type(value).__name__} as {name!r}, which requires add_int64, add_float, add_bytes or the like"
    return None


def _as_bytes(value: bytes) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError(f"{type(value).__name__} is not a byte string")
    return bytes(value)


def transform(example: TFExample, ops: Sequence[Op], context: OpContext) -> Iterator[TFExample]:
    """Apply transformations to an example in order; yield the resulting examples, if any.

    Raises:
        SampleError: when a transformation fails, or does not return examples.
    """
    for result in apply_ops(example, ops, context):
        if type(result) is not TFExample:
            raise SampleError(f"a transformation returned {type(result).__name__} instead of a TFExample")
        yield result
