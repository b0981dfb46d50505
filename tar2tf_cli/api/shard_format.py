"""The interface of a shard format: a kind of file that contains samples or records, such as a tar or a TFRecord.

A format is one file in `shards/` whose `FORMAT` is a `ShardFormat`, or such an object that another package declares.
Other modules use its methods and traits and never test its name. The content of an input selects its format, as does
the suffix of an output.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, Final, Literal, TypeAlias

from tar2tf_cli.api.objects import Readable
from tar2tf_cli.api.values import Features, KeySplit, MessagePart, Sample
from tar2tf_cli.errors import DamagedShardError
from tar2tf_cli.structs import NamedTuple, Protocol

KernelForm: TypeAlias = 'Literal["record", "members"]'
"""The encoding in which the kernel returns plain samples: framed tf.train.Examples, or members of a tar."""


class FormatTraits(NamedTuple):
    """The properties of a format on which planning, encoding, sharding and naming depend.

    Attributes:
        plural: the plural of the name of a shard, such as `tars`, which is the singular with an `s`.
        listed_as: patterns of the files for which a folder is searched, such as `*.tar, *.tar.gz`.
        holds: the kind of unit: a `record`, which has features, or a `sample`, which has entries of bytes, and a key
            that is unique in the shard. Samples are read as members of a tar: a format of any other layout holds
            records, even if their features are only bytes.
        suffixes: the suffixes of output names, in lower case, and the compression that each implies. The longest suffix
            of any format wins; `.gz` alone is TFRecord's.
        compressions: the possible compressions of shards.
        end: bytes after the last unit of a shard.
        one_member: whether a gzip-compressed shard must be a single member, because readers stop after the first.
        carries_examples: whether a record is a tf.train.Example framed as in a TFRecord, with its CRCs, so that records
            of other inputs can be copied; False for examples in any other frame.
        named_only: whether the name alone identifies a file whose first bytes have no known format, as they may be
            damaged.
    """

    plural: str
    listed_as: str
    holds: Literal["record", "sample"] = "record"
    suffixes: Mapping[str, str] = MappingProxyType({})
    compressions: Sequence[str] = ("none",)
    end: bytes = b""
    one_member: bool = False
    carries_examples: bool = False
    named_only: bool = False

    @property
    def singular(self) -> str:
        """The name of one shard, such as `tar`."""
        return self.plural.removesuffix("s")


NO_TRAITS: Final = FormatTraits("files", "")
"""The traits of a file that no format recognizes."""


class ShardEncoder(Protocol):
    """Encodes the units of shards, each one record or sample; used by one thread.

    Attributes:
        framing: number of bytes that `frame` adds to a unit.
        kernel_form: the form in which the kernel encodes plain samples to the same bytes; None if it cannot.
    """

    framing: int
    kernel_form: KernelForm | None

    def encode(self, features: Features, /) -> tuple[list[MessagePart], int]:
        """Return features in parts, and the length of all parts in bytes; large values are neither copied nor read.

        If units are samples, the features are entries of bytes, and the key is `__key__`. A selection may have dropped
        the key of a record. A format that has to transform values, for example to base 64, may read them here.

        Raises:
            SampleError: when the format cannot hold them.
        """

    def frame(self, parts: Sequence[MessagePart], size: int, /) -> Iterable[bytes]:
        """Return a unit as stored in a shard: a list, or a generator that reads stored parts piece by piece."""

    def measure(self, sizes: dict[str, int], key: bytes, /) -> int:
        """Return the length in bytes of a unit made of entries of these sizes; `sizes` may be changed.

        Callers rely on `encode` and `frame` returning exactly this number of bytes.
        """


class UnitReader(Protocol):
    """Iterates over the units of a shard, each with its offset; after damage, it may find the next one.

    Raises:
        DamagedShardError: at damage, with an offset.
    """

    @property
    def offset(self) -> int:
        """Offset at which the last unit ends, known once another unit or the end of the shard followed."""

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """Iterate over the units from the current offset on."""

    def resume(self, error: DamagedShardError) -> bool:
        """Skip to the next unit after damage, record the skipped bytes in `error.lost`, and return whether a unit was
        found.

        A format need not support this: it may always return False. The end of `error.lost` is None if the shard ends
        inside a unit.
        """


class ShardFormat(ABC):
    """A kind of shard.

    Attributes:
        name: the format's name in `--to` and manifests; the name of its file.
        traits: its properties.
    """

    name: ClassVar[str]
    traits: ClassVar[FormatTraits]

    @abstractmethod
    def recognizes(self, head: bytes, *, damaged: bool = False) -> bool:
        """Whether a decompressed file begins with the bytes of a shard of this format.

        Callers rely on at most one format recognizing an intact file. The format decides how many bytes it examines.

        Args:
            head: the first bytes, at most 4,096.
            damaged: whether no format recognized them, so that they may be damaged, and later bytes should be examined.
        """

    @abstractmethod
    def is_named(self, name: str) -> bool:
        """Whether a file's name is usual for the format, compressed or not; only its content decides what it is."""

    @abstractmethod
    def encoder(self) -> ShardEncoder:
        """Return a new encoder, which one thread uses; it may keep state between units."""

    @abstractmethod
    def index_lines(self, stream: Readable, name: str, key_split: KeySplit) -> Iterable[bytes]:
        """Yield the lines of an index file for a shard that is not compressed, one or several at a time.

        Callers write them next to the shard as SHARD.idx. Where another tool reads indexes of the format, that tool
        defines the lines; otherwise they are `OFFSET SIZE`, as for TFRecords.

        Args:
            stream: the shard at its first byte; if it has `seek`, most of it need not be read.
            name: the shard's name in errors.
            key_split: the dot at which the names of members are split into key and extension.

        Raises:
            DamagedShardError: when the shard is damaged.
            SampleError: when a sample is faulty.
            UsageError: when its samples cannot be listed.
        """

    @abstractmethod
    def units(self, stream: Readable, name: str) -> UnitReader:
        """Return a reader of a decompressed shard, from its first byte on.

        Callers rely on contiguous units: each consists of the bytes from its offset to that of the next, or to the end
        of the shard. The format decides how much it reads at once.

        Args:
            stream: the shard.
            name: its name in errors.
        """

    @abstractmethod
    def sample(self, unit: bytes, name: str, key_split: KeySplit) -> Sample:
        """Return the sample in the bytes of one unit, with its key as `__key__` if it has one.

        Args:
            unit: the bytes that `units` yielded, or that were read from the offset of a unit to that of the next.
            name: the shard's name in errors.
            key_split: the dot at which the names of members are split into key and extension.

        Raises:
            DamagedShardError: when the bytes are not exactly one unit.
            SampleError: when the unit is intact but contains no sample.
        """
