"""The values that pass through a conversion: samples, singly or in batches, features, and records."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from tar2tf_cli.structs import NamedTuple, Protocol, TypedDict, dataclass, replace

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import NotRequired

KEY: Final = "__key__"
"""The entry of a sample that holds its key."""

Array: TypeAlias = "NDArray[Any]"
"""A NumPy array of any dtype and shape."""

Sample: TypeAlias = dict[str, Any]
"""`__key__` (str: the member path without extension) and one entry per extension: bytes until an op decodes it."""

KeySplit: TypeAlias = 'Literal["first", "last"]'
"""The dot of a member's base name at which key and extension are split."""

Kind: TypeAlias = 'Literal["bytes", "float", "int64"]'
"""The list of a tf.train.Feature that holds the values."""

Encoding: TypeAlias = 'Literal["bytes", "float", "int64", "raw"]'
"""A kind of list, or `raw` for one bytes value that holds the bytes of an array."""

Form: TypeAlias = 'Literal["record", "members", "content"]'
"""The form in which the kernel encodes a sample: a framed record, members of a tar, or the content that is digested."""

SINGLE_BYTES_TAG: Final = 0x0A
"""The tag in `Batch.lists` of an entry that is one bytes value."""

WHOLE_LIST_FLAG: Final = 0x100
"""The bit added in `Batch.lists` to the tag of an entry that holds all values of its list."""

_FORMS: Final[tuple[Form, ...]] = ("record", "members", "content")
_RULES: Final[tuple[KeySplit, ...]] = ("first", "last")
_ROW: Final = 6  # integers in a row
_ROW_SIZE: Final = 8 * _ROW


class Feature(NamedTuple):
    """A serialised feature with the encoding, dtype and shape that a reader needs.

    Attributes:
        encoding: the list that contains the values, or "raw" for one bytes value with an array's bytes.
        dtype: type of the values: bytes, or a NumPy dtype.
        shape: () for one value, otherwise the list's length, or an array's shape.
        message: the serialised tf.train.Feature.
    """

    encoding: Encoding
    dtype: str
    shape: tuple[int, ...]
    message: bytes


class FeatureDescription(TypedDict):
    """A feature as a manifest describes it (`Schema.describe`): the encoding and dtype of its values, and its shape.

    The shape of one value is []; None is a length that varies. `count` is the number of examples with the feature.
    """

    encoding: Encoding
    dtype: str
    shape: list[int | None]
    count: NotRequired[int]


class StoredValue(Protocol):
    """A large value that stays in a file until its bytes are written."""

    def __len__(self) -> int:
        """Return the size in bytes."""

    def check_stored(self) -> None:
        """Raise an error for a value that was too large to be stored.

        Raises:
            SampleError: for such a value.
        """

    def pieces(self) -> Iterator[bytes]:
        """Yield the bytes, at most a mebibyte at a time.

        Raises:
            SourceError: when the file cannot be read, or has become shorter.
            SampleError: when the value was not stored.
        """


Features: TypeAlias = Mapping[str, "bytes | StoredValue | Feature"]
"""Features of one example by name; plain bytes are a list of one bytes value."""

MessagePart: TypeAlias = "bytes | StoredValue"
"""A chunk of a serialised example, or of the tar members of a sample."""


Record: TypeAlias = tuple[str, Iterable[bytes], int, "bytes | None"]
"""An encoded record: the key of its sample in the input, its bytes in parts, which must be used before the
next record is read, their size, and the key as written if keys must be unique within a shard (otherwise None)."""


@dataclass(eq=False, repr=False)
class RecordBatch:
    """Consecutive encoded records in one buffer.

    Attributes:
        data: the bytes of all records.
        sizes: the size of each record in bytes, as unsigned 64-bit integers.
        keys: the key of each sample in the input; empty if nothing in the conversion depends on keys, such as a split.
        hashes: the hash of each key by `key_hash`, as unsigned 64-bit integers; empty if the records are copied
            unchanged.
        digests: the digest of each sample, if duplicates are skipped later.
    """

    data: bytes
    sizes: bytes
    keys: Sequence[bytes] = ()
    hashes: bytes = b""
    digests: Sequence[tuple[int, int]] = ()

    def __len__(self) -> int:
        return len(self.sizes) // 8

    def first_records(self, count: int) -> bytes:
        """Return the bytes of the first `count` records, or of all records if the batch has fewer."""
        return self.data if count >= len(self) else self.data[: sum(array("Q", self.sizes)[:count])]


@dataclass(eq=False, repr=False)
class Batch:
    """Consecutive complete samples of a tar or TFRecord, located by the kernel in one buffer.

    Attributes:
        data: a part of the shard, followed by the keys made for records without keys.
        rows: six 64-bit integers for each sample: the positions in the data of its first header and of its key, the
            size of the key, the number of its signature, the number of its first entry, and the hash of the key by
            `key_hash`, which is unsigned.
        spans: two 64-bit integers for each entry: its position in the data, and its size.
        py_hashes: Python's hash of each key, as signed 64-bit integers.
        first: the key of the first sample.
        last: the key of the last sample.
        ascending: whether each key is greater than the one before.
        signatures: the names of a sample's entries in their order, each followed by a NUL.
        end: offset in the shard at which the next sample begins.
        start: offset in the shard of the data.
        lists: for each signature, two 64-bit integers for each entry: the tag of the list with its values, plus
            `WHOLE_LIST_FLAG` if the entry is the complete list, and the number of values in each sample, -1 if it
            varies. Empty for samples of a tar, whose entries are one bytes value each.
    """

    data: bytes
    rows: bytes
    spans: bytes
    py_hashes: bytes
    first: str
    last: str
    ascending: bool
    signatures: list[bytes]
    end: int
    start: int = 0
    lists: Sequence[bytes] = ()

    def __len__(self) -> int:
        return len(self.rows) // _ROW_SIZE

    def values_of(self, signature: int) -> list[tuple[int, int]]:
        """Return the list tag and number of values of each entry of a signature's samples, as in `lists`."""
        if not self.lists:
            return [(SINGLE_BYTES_TAG, 1)] * self.signatures[signature].count(b"\0")
        numbers = iter(array("q", self.lists[signature]))
        return [*zip(numbers, numbers, strict=True)]

    @property
    def has_single_bytes(self) -> bool:
        """Whether every entry is a single bytes value."""
        return all(
            tag == SINGLE_BYTES_TAG for number in range(len(self.signatures)) for tag, _ in self.values_of(number)
        )

    @property
    def is_uniform(self) -> bool:
        """Whether samples with the same signature have equally many values in each entry."""
        return all(count >= 0 for number in range(len(self.signatures)) for _, count in self.values_of(number))

    def _column(self, number: int, typecode: str = "q") -> array[int]:
        return array(typecode, self.rows)[number::_ROW]

    @property
    def offset(self) -> int:
        """Offset in the tar of the last sample's first header."""
        return self.start + array("q", self.rows[-_ROW_SIZE:])[0]

    @property
    def offsets(self) -> list[int]:
        """Offset in the tar of each sample's first header."""
        return [self.start + position for position in self._column(0)]

    @property
    def hashes(self) -> array[int]:
        """The hash of each key by `key_hash`."""
        return self._column(5, "Q")

    def keys(self) -> list[bytes]:
        """Return the key of each sample."""
        spans = zip(self._column(1), self._column(2), strict=True)
        return [self.data[start : start + size] for start, size in spans]

    def count_names(self) -> Counter[tuple[str, ...]]:
        """Count the samples with each combination of entry names, including `__key__`."""
        return Counter({(KEY, *self.names_of(kind)): count for kind, count in self.count_signatures().items()})

    def count_signatures(self) -> Mapping[int, int]:
        """Count the samples with each signature, by the signature's number."""
        return Counter(self._column(3)) if len(self.signatures) > 1 else {0: len(self)} if self.rows else {}

    def records(self, native: ModuleType, form: Form) -> RecordBatch:
        """Return the samples as records, or as members of a tar."""
        encoded = self.encode(native, form)
        assert encoded  # as nothing is added
        return RecordBatch(*encoded, hashes=self.hashes.tobytes())

    def encode(
        self,
        native: ModuleType,
        form: Form,
        maps: Sequence[bytes | None] | None = None,
        key_split: KeySplit | None = None,
    ) -> tuple[bytes, bytes] | None:
        """Encode the samples with the kernel, and return their bytes and the size of each as unsigned 64-bit integers.

        Args:
            native: the kernel.
            form: the form in which samples are encoded.
            maps: for each signature, the features of its samples, in the form that `records` in samples.h accepts; None
                to make all entries features.
            key_split: the rule by which members are named; None if the samples come from a tar whose names are kept.

        Returns:
            None if a value is not plain, or a member cannot have its name.
        """
        encoded: tuple[bytes, bytes] | None
        rule = -1 if key_split is None else _RULES.index(key_split)
        found = self.data, self.rows, self.spans, self.signatures
        encoded = native.records(*found, _FORMS.index(form), maps, self.lists or None, rule)
        return encoded

    def widened(self, native: ModuleType, added: Sequence[Sample | None]) -> Batch | None:
        """Return the samples with more entries, in a dict for each.

        Args:
            native: the kernel.
            added: the entries of each sample; None for none.

        Returns:
            None if an entry is not bytes, an integer or a float, or has the name of another one.
        """
        made = native.widened(self.data, self.rows, self.spans, self.signatures, [*self.lists], added)
        return made and self.replaced(*made)

    def joined(
        self,
        native: ModuleType,
        rows: bytes,
        found: bytes,
        names: list[str],
        key: int,
        mark: bytes,
        files: Mapping[int, int],
        groups: list[tuple[int, int, int, list[ArrowColumn]]],
    ) -> RowsJoined | None:
        """Join rows of a table, or samples of tars; None if one of them is not plain, or has the name of an entry.

        Args:
            native: the kernel.
            rows: four integers for each row, in the order of `HashTable`: the hash of its key, and its place.
            found: the number of the first row with the hash of each key, as signed 64-bit integers; negative for none.
            names: the names of the columns; of JSON and tars, only that of the key.
            key: the number of the column with the key.
            mark: the byte between cells of CSV, a brace for JSON, empty for columns, or a dot for tars; two dots if the
                names of their members are split at the last dot.
            files: the descriptors of the files of rows by their numbers; empty for columns.
            groups: columns of the rows at places: the first two integers of a place, the number of rows, and columns.
        """
        samples = self.data, self.rows, self.spans, self.signatures, [*self.lists]
        made = native.joined(*samples, rows, found, names, key, mark, files, groups)
        return made and (made[0], self.replaced(*made[1]))

    def replaced(self, data: bytes, rows: bytes, spans: bytes, signatures: list[bytes], lists: list[bytes]) -> Batch:
        """Return the batch with other entries, as the kernel makes them."""
        return replace(self, data=data, rows=rows, spans=spans, signatures=signatures, lists=lists)

    def column(self, name: str) -> list[bytes | None]:
        """Return the entry with a given name from each sample; None for a sample without it."""
        positions = [of_one.index(name) if name in of_one else None for of_one in self.names()]
        spans, data, values = array("q", self.spans), self.data, list[bytes | None]()
        for kind, first in zip(self._column(3), self._column(4), strict=True):
            position = positions[kind]
            if position is None:
                values.append(None)
            else:
                start, size = spans[2 * (first + position) : 2 * (first + position) + 2]
                values.append(data[start : start + size])
        return values

    def entry_sizes(self) -> dict[str, list[int]]:
        """Return, for each entry name, the sizes of its entries in the order of samples."""
        sizes, found = array("q", self.spans)[1::2], dict[str, list[int]]()
        for kind, firsts in self._first_entries().items():
            for position, name in enumerate(self.names_of(kind)):
                found.setdefault(name, []).extend([sizes[first + position] for first in firsts])
        return found

    def _first_entries(self) -> dict[int, list[int]]:
        """Return, for each signature, the number of the first entry of each of its samples."""
        found = dict[int, list[int]]()
        for kind, first in zip(self._column(3), self._column(4), strict=True):
            found.setdefault(kind, []).append(first)
        return found

    def names(self) -> list[tuple[str, ...]]:
        """Return the entry names of each signature."""
        return [self.names_of(kind) for kind in range(len(self.signatures))]

    def names_of(self, kind: int) -> tuple[str, ...]:
        """Return the entry names of one signature."""
        return tuple(self.signatures[kind].decode().split("\0")[:-1])

    def last_names(self) -> set[str]:
        """Return the entry names of the last sample."""
        return set(self.names_of(array("q", self.rows[-_ROW_SIZE:])[3]))

    def without_last(self) -> Batch:
        """Return a batch without the last sample."""
        return replace(self, rows=self.rows[:-_ROW_SIZE], end=self.offset)

    def compress(self, wanted: Sequence[object]) -> Batch:
        """Return a batch of the samples that a sequence selects by true values, as `itertools.compress` does."""
        if all(wanted):
            return self
        rows = [self.rows[start : start + _ROW_SIZE] for start in range(0, len(self.rows), _ROW_SIZE)]
        return replace(self, rows=b"".join(compress(rows, wanted)))

    def samples(self) -> Iterator[tuple[int, Sample]]:
        """Iterate over the samples, each with the offset in the tar of its first header."""
        data, names = self.data, self.names()
        for start, kind, key, spans in self.layout():
            sample: Sample = {KEY: key}
            for name, position, size in zip(names[kind], spans[::2], spans[1::2], strict=True):
                sample[name] = data[position : position + size]
            yield self.start + start, sample

    def layout(self) -> Iterator[tuple[int, int, str, list[int]]]:
        """Iterate over the layout of samples: offset of the first header, signature, key, and position and size of each
        entry.
        """
        rows, spans, data = array("q", self.rows).tolist(), array("q", self.spans).tolist(), self.data
        widths = [2 * signature.count(b"\0") for signature in self.signatures]
        for row in range(0, len(rows), _ROW):
            start, key, key_size, kind, first = rows[row : row + 5]
            yield start, kind, data[key : key + key_size].decode(), spans[2 * first : 2 * first + widths[kind]]


RowsJoined: TypeAlias = "tuple[list[int | None], Batch]"
"""The number of the row that matches each sample of a batch, or None; and the samples with the entries of the rows."""

ArrowColumn: TypeAlias = "tuple[str, Any, Any, Any]"
"""A letter as the kernel's `joined` has it, and three buffers of Apache Arrow: which values are valid, where they end,
and the values."""


class SourceReport(Protocol):
    """The part of an input's report that a source fills in while it yields samples.

    Attributes:
        samples: number of the samples yielded so far that became examples.
        skipped: number of skipped items, by reason.
        filtered: number of samples that options and ops filtered out, by option or op.
        described: CSV rows that describe the stored examples.
    """

    samples: int
    skipped: Counter[str]
    filtered: Counter[str]
    described: str
