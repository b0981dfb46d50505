"""The tar format: each sample is stored as members that share a key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import MappingProxyType
from typing import ClassVar, Final

from tar2tf_cli.api.objects import Readable
from tar2tf_cli.api.shard_format import FormatTraits, KernelForm, ShardFormat
from tar2tf_cli.api.values import KEY, Feature, Features, KeySplit, MessagePart, Sample
from tar2tf_cli.errors import DamagedShardError, Lost, SampleError
from tar2tf_cli.formats.files import StoredBytes, pieces_of
from tar2tf_cli.formats.streams import foreign
from tar2tf_cli.formats.tar import BLOCK, END, header, header_size, is_header, padded, padding

_READ: Final = (".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tar.xz")
_WRITTEN: Final = {".tar": "none", ".tar.gz": "gzip", ".tgz": "gzip", ".tar.zst": "zstd"}
_MAGIC: Final = slice(257, 262)


class MemberEncoder:
    """Encodes samples as tar members with headers and padding; the key is an entry of bytes."""

    framing: int = 0
    kernel_form: KernelForm | None = "members"

    def encode(self, features: Features, /) -> tuple[list[MessagePart], int]:
        """Return the members of a sample in parts, without copying or reading large entries, and their length in bytes.

        Raises:
            SampleError: when the sample has no entries, or a large entry was not stored.
        """
        key = features[KEY]
        assert isinstance(key, bytes)
        parts: list[MessagePart] = []
        total, before = 0, b""
        for name, data in features.items():
            if name == KEY:
                continue
            assert not isinstance(data, Feature)
            if type(data) is StoredBytes:
                data.check_stored()
            size = len(data)
            head = header(b"%b.%b" % (key, name.encode("utf-8", "surrogateescape")), size)
            parts += (before + head, data)
            before = padding(size)
            total += len(head) + size + len(before)
        if not total:
            raise SampleError("has no entries, so a tar cannot hold it", hint="drop such samples with --op drop_empty")
        parts.append(before)
        return parts, total

    def measure(self, sizes: dict[str, int], key: bytes, /) -> int:
        """Return the length in bytes of the members of a sample, given the size of each entry."""
        total = 0
        for name, size in sizes.items():
            if name != KEY:
                head = header_size(b"%b.%b" % (key, name.encode("utf-8", "surrogateescape")))
                total += head + padded(size)
        return total

    def frame(self, parts: Sequence[MessagePart], size: int, /) -> Iterable[bytes]:
        """Return the bytes to write: a list, or a generator that reads stored parts piece by piece."""
        if any(type(part) is StoredBytes for part in parts):
            return (piece for part in parts for piece in pieces_of(part))
        return parts  # type: ignore[return-value]  # all of them are bytes


class TarFormat(ShardFormat):
    """The format of tars, plain or compressed by any usual method."""

    name = "tar"
    traits: ClassVar[FormatTraits] = FormatTraits(
        plural="tars",
        listed_as=f"*{', *'.join(_READ)}",
        holds="sample",
        suffixes=MappingProxyType(_WRITTEN),
        compressions=("none", "gzip", "zstd"),
        end=END,
        one_member=True,
    )

    def recognizes(self, head: bytes, *, damaged: bool = False) -> bool:
        """Whether the first block is a tar header or, if it may be damaged, a later block is."""
        if not damaged:
            return head[_MAGIC] == b"ustar" or is_header(head[:BLOCK])
        blocks = (head[start : start + BLOCK] for start in range(BLOCK, len(head) - BLOCK + 1, BLOCK))
        return any(block[_MAGIC] == b"ustar" and is_header(block) for block in blocks) and not foreign(head)

    def is_named(self, name: str) -> bool:
        """Whether a name ends with a suffix of tars, in lower case."""
        return name.endswith(_READ)

    def encoder(self) -> MemberEncoder:
        """Return an encoder of members."""
        return MemberEncoder()

    def index_lines(self, stream: Readable, name: str, key_split: KeySplit) -> Iterable[bytes]:
        """Yield the lines of the index that DALI's `wds2idx` writes."""
        from tar2tf_cli.inputs.tar_index import find_in_batches, index_lines

        return index_lines(find_in_batches(stream, name, key_split))

    def units(self, stream: Readable, name: str) -> TarUnits:
        """Return a reader of the members of each sample, which must be adjacent."""
        return TarUnits(stream, name)

    def sample(self, unit: bytes, name: str, key_split: KeySplit) -> Sample:
        """Return the sample made of adjacent members."""
        from tar2tf_cli.inputs.tar_index import sample_in

        return sample_in(unit, name, key_split)


class TarUnits:
    """Iterates over the bytes of each sample's members in a tar; it cannot resume after damage.

    Attributes:
        offset: bytes consumed so far.
    """

    def __init__(self, stream: Readable, name: str) -> None:
        self._stream = stream
        self._name = name
        self._read = bytearray()  # the bytes read from `offset` on
        self.offset = 0

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        from tar2tf_cli.inputs.tar_index import find_samples

        first = True
        for sample in find_samples(self, self._name, "first"):
            if not first:
                yield self._cut(sample.start - self.offset)
            first = False
        yield self._cut(len(self._read))

    def read(self, size: int, /) -> bytes:
        """Read from the tar, and keep the bytes until the end of their sample."""
        data = self._stream.read(size)
        self._read += data
        return data

    def _cut(self, size: int) -> tuple[int, bytes]:
        begin, data = self.offset, bytes(self._read[:size])
        del self._read[:size]
        self.offset += size
        return begin, data

    def resume(self, error: DamagedShardError) -> bool:
        """Return False, and record the rest as lost."""
        error.lost = Lost(self.offset, None, 0)
        return False


FORMAT: Final = TarFormat()
