"""Objects of a bucket: how a listing describes one, and a stream of its bytes."""

from __future__ import annotations

from typing import Final

from tar2tf_cli.structs import NamedTuple, Protocol

_SUFFIXES: Final = ("tar", "record", "records", "tfrecord", "tfrecords")
_COMPRESSIONS: Final = ("gz", "zst", "bz2", "xz", "zlib")


class ObjectInfo(NamedTuple):
    """One input as a listing describes it.

    Attributes:
        name: the object's name in its bucket.
        size: size in bytes as stored; None when it is known only after reading to the end.
        version: an ETag, modification time or the like, which changes when the bytes do; None when there is none.
        checksum: kind and value of a checksum of the bytes, if a listing contains one.
    """

    name: str
    size: int | None
    version: str | None
    checksum: tuple[str, str] | None = None

    @property
    def stem(self) -> str:
        """Name without folders and without `.tar`, `.tar.gz`, `.record`, `.tfrecord` and the like."""
        base = self.name.rpartition("/")[2]
        stem, _, suffix = base.rpartition(".")
        if suffix.lower() in _COMPRESSIONS:
            stem, _, suffix = stem.rpartition(".")
            return stem if stem and suffix.lower() in _SUFFIXES else base
        return stem if stem and suffix.lower() in (*_SUFFIXES, "tgz") else base


class Readable(Protocol):
    """A readable binary stream, such as that of a tar or TFRecord."""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes; b"" only at the end."""


class ByteStream(Readable, Protocol):
    """An open input: raw bytes as stored, front to back."""

    def close(self) -> None:
        """Close the file or connection."""


class SeekableStream(ByteStream, Protocol):
    """An open input that can be read from any offset on."""

    def seek(self, offset: int, /) -> object:
        """Go to an offset."""
