"""An opened shard of any format, which is detected from its content."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from tar2tf_cli.api.objects import ByteStream, ObjectInfo
from tar2tf_cli.api.shard_format import NO_TRAITS, FormatTraits, ShardFormat
from tar2tf_cli.api.source import OnBytes, Ranges, Source
from tar2tf_cli.errors import DamagedShardError, SourceError
from tar2tf_cli.formats.streams import HEAD, PlainStream, StreamLog, foreign, open_stream
from tar2tf_cli.plugins import find_format, format_of, formats, plugin_formats


class OpenShard:
    """An opened input, decompressed if necessary, with its format detected from its first bytes.

    Args:
        source: opens the input.
        item: the input.
        on_bytes: called with the number of stored bytes after each read.
        wrap: wraps the stream of stored bytes before decompression.
        streams: records the offsets of the streams of a compressed input.
        ranges: opens the input in place of the source, so that it can be read by offset if it is not compressed.
        small: whether the input is small enough to be read at once.

    Attributes:
        source: the source that opened the input.
        item: the input.
        on_bytes: called with the number of stored bytes after each read.
        name: path or URL.
        head: the first bytes, decompressed.
        format: name of the detected format, or "manifest"; None when it is unknown. If only its name is that of a
            TFRecord, as its first bytes may be damaged, the file is one if it contains a record.
        by_name: whether only the name identifies the format.
        damage: the error if the first bytes could not be read completely.
        plain: the stream, when the input is not compressed.
        seekable: the stream, when it can be read by offset, and is neither read at once nor wrapped.
        content: the decompressed bytes, from the first on.
    """

    def __init__(
        self,
        source: Source,
        item: ObjectInfo,
        on_bytes: OnBytes = None,
        wrap: Callable[[ByteStream], ByteStream] = lambda raw: raw,
        streams: StreamLog | None = None,
        ranges: Ranges | None = None,
        small: bool = False,
    ) -> None:
        self.name = source.locate(item.name)
        self.source = source
        self.item = item
        self.on_bytes = on_bytes
        raw = ranges.open(item) if ranges else wrap(source.open(item))
        first = item.size or 1 if small else HEAD
        try:
            self.content = open_stream(raw, self.name, on_bytes, first=first, streams=streams)
        except BaseException:
            raw.close()
            raise
        self.plain = self.content if isinstance(self.content, PlainStream) else None
        self.seekable = self.plain if ranges or (self._is_in_file and not small) else None
        self.head = self.plain.head if self.plain else self.content.peek(HEAD)
        self.damage = self.content.damage
        self.read = self.content.read
        self.format = shard_format(self.head)
        named = None if self.format or self.damage else format_by_name(self.head, item.name)
        self.by_name = named is not None  # its bytes do not identify a format
        if named:
            self.format = named.name

    @property
    def kind(self) -> ShardFormat | None:
        """The format of the shard; None for a manifest and for any unknown file."""
        return None if self.format in (None, "manifest") else find_format(self.format)

    @property
    def traits(self) -> FormatTraits:
        """The traits of the shard's format; neutral ones for a manifest and for any unknown file."""
        return self.kind.traits if self.kind else NO_TRAITS

    @property
    def _is_in_file(self) -> bool:
        """Whether the input is a local file, neither compressed nor wrapped."""
        return self.source.capabilities.seekable and self.plain is not None and self.plain.has_descriptor

    @property
    def length(self) -> int | None:
        """The size in bytes of a local file that opening compared; None where only reading finds the end."""
        return self.item.size if self._is_in_file and self.item.version is not None else None

    @property
    def size(self) -> int:
        """The stored size in bytes; if it is unknown, the number of bytes read so far."""
        return self.content.consumed if self.item.size is None else self.item.size

    @property
    def compression(self) -> str:
        """The compression of the input: `GZIP` or `ZLIB`, as TensorFlow names them, another method, or ""."""
        return self.content.method.upper()

    def close(self) -> None:
        """Close the input."""
        self.content.close()

    def __enter__(self) -> OpenShard:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def shard_format(head: bytes) -> str | None:
    """Detect the format of a shard, or a manifest, from the first decompressed bytes, even of most damaged files."""
    found = format_of(head)
    return found.name if found else "manifest" if re.match(_MANIFEST, head) else None


def format_by_name(head: bytes, name: str) -> ShardFormat | None:
    """Return the format that a file's name identifies; None if the first bytes identify one, or something else."""
    if shard_format(head) or foreign(head):
        return None
    return next((one for one in (*formats(), *plugin_formats()) if one.traits.named_only and one.is_named(name)), None)


_MANIFEST: Final = rb'\s*\{\s*"version":\s*\d+,\s*"spec":'


def not_a_shard(path: str, size: int | None, instead: tuple[str, str] | None) -> DamagedShardError:
    """Return the error for a file that is not a shard, with its actual format if that is known."""
    what, hint = instead or (None, None)
    message = f"is {what}, neither a tar nor a TFRecord" if what else "is neither a tar nor a TFRecord"
    message, kind = ("is empty", "empty") if size == 0 else (message, "unknown_format")
    return DamagedShardError(message, kind=kind, shard=path, hint=hint)


_MOST_NAMED: Final = 10


def unreadable(errors: Sequence[SourceError], what: str) -> SourceError:
    """Return the error of the only unreadable file, or one error that names several files."""
    if len(errors) == 1:
        return errors[0]
    named = "; ".join(f"{error.shard}: {error.message}" for error in errors[:_MOST_NAMED])
    more = f"; and {len(errors) - _MOST_NAMED:,} more" if len(errors) > _MOST_NAMED else ""
    return SourceError(f"{len(errors):,} files {what}: {named}{more}", hint=errors[0].hint)
