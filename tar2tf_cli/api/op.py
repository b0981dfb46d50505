"""Op: a function from sample to sample, with the grammar by which users write it.

`tar2tf_cli.ops.Op` implements every method except `apply` for an op that is a frozen dataclass. Derive from it unless
the op has its own grammar.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import ClassVar, Final, Literal, TypeAlias

from tar2tf_cli.api.values import Sample
from tar2tf_cli.structs import NamedTuple

Samples: TypeAlias = "Sample | Iterable[Sample] | None"
"""Result of an op: the changed sample, several samples, or None for a sample that is skipped."""

JsonValue: TypeAlias = "bool | int | float | str | Sequence[JsonValue] | Mapping[str, JsonValue] | None"
"""A value of JSON or of a spec file."""

JsonSchema: TypeAlias = "Mapping[str, JsonValue]"
"""A JSON Schema of draft 7."""

Subject: TypeAlias = 'Literal["sample", "example"]'
"""Kind of mapping that an op accepts: samples of entries, or examples of features."""

DEFAULT_MAX_PIXELS: Final = 2**27
"""Height x width above which an image is not decoded, unless the conversion says otherwise: 402 MB of RGB bytes."""


class BoxCounts:
    """Thread-safe counts of the boxes that ops changed or dropped."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def add(self, what: str, number: int) -> None:
        """Count boxes that were `clipped` at the edge of their image, `dropped` as they left it, or `invalid`.

        Boxes whose object has undeclared outlines or points, which do not move, are counted as `unmoved NAME`.
        """
        if number:
            with self._lock:
                self._counts[what] += number

    def take(self) -> Counter[str]:
        """Return the counts and reset them to 0."""
        with self._lock:
            counts, self._counts = self._counts, Counter()
        return counts


class OpContext(NamedTuple):
    """Settings of a conversion that an op may depend on, in addition to its own fields.

    Attributes:
        seed: random seed; random choices depend on it and on the sample's key.
        max_pixels: images of more pixels (height x width) are not decoded.
        image_size: height and width in pixels for the preset imagenet-tensor; None keeps each image's size.
        invalid_boxes: how to treat a box that breaks training: `error`, `drop` or `keep`.
        palettes: receives the names of entries that `decode` finds to be PNGs with a palette; does not affect results.
        boxes: counts boxes that are clipped or dropped; does not affect results.

    >>> OpContext(seed=7).seed
    7
    """

    seed: int = 0
    max_pixels: int = DEFAULT_MAX_PIXELS
    image_size: int | None = None
    invalid_boxes: str = "error"
    palettes: set[str] | None = None
    boxes: BoxCounts | None = None


class Op(ABC):
    """An op: an immutable value that turns one sample into one, none or several.

    Callers may rely on this: the result depends only on the op, the sample and the context; two ops with the same
    `canonical` form give the same results; an op may be pickled, and may be applied in several threads at once unless
    it is bound to objects of the user. An op may change the sample that it is given and return it.

    Attributes:
        name: the name in `--op`, spec files and manifests.
        usage: the form of `--op`, such as `resize:EXT,HEIGHTxWIDTH`.
        examples: complete values of `--op`, shown in help and documentation.
        releases_gil: whether libraries that release the GIL do the work.
        only: the kind of mapping that it accepts; None for both.
        by_name: whether it uses only entries that it names, so that other large ones may remain in files.
        on_pixels: whether it only decodes, changes or encodes images, and records how it moves their pixels.
        gives_names: whether the sample may have another key or other names of entries afterwards.
    """

    name: ClassVar[str]
    usage: ClassVar[str]
    examples: ClassVar[tuple[str, ...]] = ()
    releases_gil: ClassVar[bool] = False
    only: ClassVar[Subject | None] = "sample"
    by_name: ClassVar[bool] = False
    on_pixels: ClassVar[bool] = False
    gives_names: ClassVar[bool] = False

    @abstractmethod
    def apply(self, sample: Sample, context: OpContext) -> Samples:
        """Return the changed sample, None to skip it, or several samples.

        Raises:
            SampleError: when the op cannot be applied to the sample.
        """

    @classmethod
    @abstractmethod
    def from_value(cls, value: JsonValue) -> Op:
        """Parse VALUE in `NAME: VALUE` of a spec file, or the text after `NAME:` of `--op`.

        Raises:
            ValueError: when the value is invalid; gives the reason.
        """

    @classmethod
    @abstractmethod
    def schema(cls) -> JsonSchema:
        """Return the JSON Schema of the values that `from_value` parses, for editors."""

    @abstractmethod
    def canonical(self) -> dict[str, JsonValue]:
        """Return the op as in manifests and spec files, `{NAME: VALUE}`; `from_value` parses VALUE to an equal op."""

    @property
    def filter_entry(self) -> str | None:
        """Name of the one entry by which the op skips a sample or keeps it unchanged; None if it does anything else."""
        return None

    @property
    def moves_names(self) -> bool:
        """Whether the op only renames or removes entries, so that their names alone determine the result."""
        return False

    @property
    def bound(self) -> Sequence[object]:
        """Return the user's objects that the op depends on; their code may not be thread-safe."""
        return ()

    def notes(self, palettes: Collection[str] = ()) -> list[str]:
        """Return warnings about the op: before a conversion, or once some entries prove to be PNGs with a palette."""
        return []
