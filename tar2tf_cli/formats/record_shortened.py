"""Large records with values cut to the first mebibyte, so that they are checked and described in little memory."""

from __future__ import annotations

from typing import Final

from tar2tf_cli.formats.bytestream import Readable
from tar2tf_cli.formats.checksums import crc32c, masked
from tar2tf_cli.formats.example import varint
from tar2tf_cli.formats.tfrecord import FRAMING, RecordReader

_LARGE: Final = 32 << 20
_HEAD: Final = 1 << 20
_PATH: Final = (0x0A, 0x0A, 0x12, 0x0A)  # Example.features, an entry, its Feature, a BytesList
_VALUE: Final = 0x0A


class Shortened(bytes):
    """A tf.train.Example whose large bytes values are cut.

    Attributes:
        length: length of the whole record in bytes.
        lengths: the lengths of the values that are cut, by their positions here.
        fault: why the record is not a message; None if it may be one.
    """

    length: int
    lengths: dict[int, int]
    fault: str | None


class ShorteningReader(RecordReader):
    """Reads records; the values of those above 32 MiB are cut. The CRC is that of the whole record."""

    def size_of(self, data: bytes) -> int:
        """The length of the whole record."""
        return data.length if isinstance(data, Shortened) else len(data)

    def _read_large(self, length: int) -> tuple[bytes, bytes]:
        if length < _LARGE:
            return super()._read_large(length)
        header = self._buffer[self._position : self._position + 12]
        record = _Pieces(self._stream, self._buffer[self._position + 12 :], length)
        data = _shortened(record, length)
        record.skip(record.left)
        tail = b"" if record.left else self._exactly(FRAMING)
        self._buffer, self._position, self._passed = tail[4:], 0, 12 + length - record.left + len(tail[:4])
        if len(tail) < 4:
            error = self._cut(4 - len(tail) + record.left)
        elif masked(record.crc).to_bytes(4, "little") != tail[:4] and self._check_data:
            error = self._damage("data_crc", "the CRC of the record's data does not match")
        else:
            self._passed = 0
            return data, masked(crc32c(data)).to_bytes(4, "little")
        self.header = header
        raise error

    def resume(self) -> bool:
        """After an error, go to the next record; return whether there may be one."""
        if not self._passed:
            return super().resume()
        self.offset += self._passed
        self.count += 1
        self._passed, self._damaged = 0, None
        return bool(self._peek()) and self._scan(0)

    _passed = 0
    """How much of a damaged record has been read."""


class _Pieces:
    """The data of one record, a piece at a time.

    Attributes:
        left: how many bytes have not been read.
        crc: CRC-32C of those that have.
    """

    def __init__(self, stream: Readable, head: bytes, size: int) -> None:
        self._stream = stream
        self._buffer = head
        self._position = 0
        self._unread = size - len(head)  # of the stream
        self.left = size
        self.crc = 0

    def take(self, size: int) -> bytes:
        """That many bytes.

        Raises:
            ValueError: when the record has fewer.
            EOFError: when the stream ends before.
        """
        pieces = []
        if size > self.left:
            raise ValueError("a number runs past the end of the record")
        while size:
            piece = self._piece(size)
            if not piece:
                raise EOFError
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)

    def skip(self, size: int) -> None:
        """Read that many bytes, or to the end of the stream."""
        while size and (piece := self._piece(size)):
            size -= len(piece)

    def _piece(self, most: int) -> bytes:
        if self._position == len(self._buffer):
            self._buffer, self._position = self._stream.read(min(self._unread, _HEAD)), 0
            self._unread -= len(self._buffer)
        piece = self._buffer[self._position : self._position + most]
        self._position += len(piece)
        self.left -= len(piece)
        self.crc = crc32c(piece, self.crc)
        return piece

    def varint(self) -> tuple[int, bytes]:
        """A number, and its bytes.

        Raises:
            ValueError: when it does not end.
        """
        number, read = 0, b""
        while len(read) < 10:
            byte = self.take(1)
            read += byte
            number |= (byte[0] & 0x7F) << 7 * (len(read) - 1)
            if byte[0] < 0x80:
                return number, read
        raise ValueError("a number does not end")


def _shortened(record: _Pieces, length: int) -> Shortened:
    cuts: list[tuple[int, int]] = []
    try:
        data, fault = Shortened(_message(record, length, 0, cuts)), None
    except ValueError as error:
        data, fault = Shortened(b"\xff"), str(error)
    except EOFError:
        data, fault = Shortened(), None
    data.length, data.lengths, data.fault = length, dict(cuts), fault
    return data


def _message(record: _Pieces, size: int, depth: int, cuts: list[tuple[int, int]]) -> bytes:
    """A message of so many bytes, with its large values cut; `cuts` gets their positions in it, and their lengths.

    Raises:
        ValueError: when a field does not fit in it.
        EOFError: when the record is cut short.
    """
    parts: list[bytes] = []
    written, end = 0, record.left - size
    while record.left > end:
        tag, head = record.varint()
        body, within = b"", len(cuts)
        if tag & 7 == 2:
            length, _ = record.varint()
            if length > record.left - end:
                raise ValueError("a field runs past the end of its message")
            if length > _HEAD and depth < len(_PATH) and tag == _PATH[depth]:
                body = _message(record, length, depth + 1, cuts)
            elif length > _HEAD and depth == len(_PATH) and tag == _VALUE:
                body = record.take(_HEAD)
                record.skip(length - _HEAD)
                cuts.append((0, length))
            else:
                body = record.take(length)
            head += varint(len(body))
        elif tag & 7 == 0:
            body = record.varint()[1]
        else:  # numbers of fixed size, and groups, which are rare
            body = record.take(record.left - end)
        for place in range(within, len(cuts)):
            cuts[place] = (cuts[place][0] + written + len(head), cuts[place][1])
        parts += (head, body)
        written += len(head) + len(body)
    return b"".join(parts)
