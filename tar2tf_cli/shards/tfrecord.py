"""The TFRecord format: framed messages, each usually a tf.train.Example."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from types import MappingProxyType
from typing import ClassVar, Final

from tar2tf_cli.api.objects import Readable
from tar2tf_cli.api.shard_format import FormatTraits, KernelForm, ShardFormat
from tar2tf_cli.api.values import KEY, KeySplit, Sample
from tar2tf_cli.errors import DamagedShardError, SampleError
from tar2tf_cli.formats.example import FRAMING, Encoder, begins_record, crc_field, frame, read_varint, unframed

_NAMES: Final = (
    r"(?i)(?s:.+)(\.(records?|tfrecords?|tfrecs?|tfr)(-\d+-of-\d+)?|-\d{3,}-of-\d{3,})"
    r"(\.(gz|gzip|zlib|deflate|zst|bz2|xz))?\Z"
)
"""Pattern of TFRecord names, including `train.tfrecord-00000-of-00010` and `train-00000-of-01024` of TensorFlow's
tools.
"""

_WRITTEN: Final = {".tfrecord": "none", ".record": "none", ".tfrecords": "none", ".records": "none", ".gz": "gzip"}
_EXAMPLE: Final = rb"\x0a([\x80-\xff]{0,4}[\x00-\x7f])"


class RecordEncoder(Encoder):
    """Encodes features as framed tf.train.Examples."""

    framing: int = FRAMING
    kernel_form: KernelForm | None = "record"

    def measure(self, sizes: dict[str, int], key: bytes, /) -> int:
        """Return the length in bytes of a sample's record, given the sizes of its entries, including the key."""
        sizes[KEY] = len(key)
        return self.size(sizes) + FRAMING

    frame = staticmethod(frame)  # saves a call for each record


class TFRecordFormat(ShardFormat):
    """The format of TFRecords, plain or compressed."""

    name = "tfrecord"
    traits: ClassVar[FormatTraits] = FormatTraits(
        plural="TFRecords",
        listed_as="TFRecords",
        suffixes=MappingProxyType(_WRITTEN),
        compressions=("none", "gzip"),
        carries_examples=True,
        named_only=True,
    )

    def recognizes(self, head: bytes, *, damaged: bool = False) -> bool:
        """Whether a file begins with a record, even if the record's length or the CRC of the length is damaged."""
        return not damaged and (begins_record(head) or _begins_with_example(head))

    def is_named(self, name: str) -> bool:
        """Whether a name has a suffix of TFRecords or the form that TensorFlow's tools give."""
        return re.match(_NAMES, name) is not None

    def encoder(self) -> RecordEncoder:
        """Return an encoder of examples."""
        return RecordEncoder()

    def index_lines(self, stream: Readable, name: str, key_split: KeySplit) -> Iterable[bytes]:
        """Yield a line `OFFSET SIZE` for each record, as `tfrecord2idx` writes it."""
        from tar2tf_cli.formats.tfrecord import RecordReader

        seeks, size = hasattr(stream, "seek"), None
        return RecordReader(stream, name, want="lengths", seeks=seeks, size=size).index_lines()

    def units(self, stream: Readable, name: str) -> FramedRecords:
        """Return a reader of framed records."""
        return FramedRecords(stream, name)

    def sample(self, unit: bytes, name: str, key_split: KeySplit) -> Sample:
        """Return the features of a framed tf.train.Example."""
        data = unframed(unit)
        try:
            from tar2tf_cli.features.decoder import ExampleEntries  # imports NumPy, too

            return ExampleEntries({})(data)
        except ValueError as error:
            raise SampleError(f"the record is not a tf.train.Example: {error}") from None


class FramedRecords:
    """Iterates over the records of a TFRecord with their framing."""

    def __init__(self, stream: Readable, name: str) -> None:
        from tar2tf_cli.formats.tfrecord import RecordReader

        self._reader = RecordReader(stream, name)

    @property
    def offset(self) -> int:
        """Number of bytes consumed so far."""
        return self._reader.offset

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        for offset, data in self._reader:
            yield offset, b"".join(frame([data], len(data)))

    def resume(self, error: DamagedShardError) -> bool:
        """Skip to the next record after damage; return whether there may be one."""
        return self._reader.resume(error)


def _begins_with_example(head: bytes) -> bool:
    """Whether the first record's data begins with an example whose length matches the record's length or its CRC, so
    that only the other of the two is damaged.
    """
    match = re.match(_EXAMPLE, head[12:])
    if not match:
        return False
    features, _ = read_varint(match[1], 0, 5, 5)
    length = (len(match[0]) + features).to_bytes(8, "little")
    return head[:8] == length or head[8:12] == crc_field(length)


FORMAT: Final = TFRecordFormat()
