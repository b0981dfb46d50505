"""Records to a file object: what is kept back, and when it is handed over."""

from __future__ import annotations

import io

import pytest

from tar2tf_cli.errors import SinkError
from tar2tf_cli.formats.files import RecordStream


class CountingOutput(io.BytesIO):
    """An output that counts how often it was written to and flushed."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = self.flushes = 0

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self.writes += 1
        return super().write(data)

    def flush(self) -> None:
        self.flushes += 1


def test_small_pieces_are_handed_over_together_and_the_file_is_flushed_at_the_end() -> None:
    out = CountingOutput()
    stream, piece = RecordStream(out, "x"), bytes(RecordStream.BUFFER // 4)
    for _ in range(9):
        stream.write([piece], len(piece))
    assert (out.writes, out.flushes) == (2, 0)
    stream.write(iter([b"in ", b"parts"]), 8)
    stream.flush()
    assert (out.writes, out.flushes) == (3, 1)
    assert out.getvalue() == 9 * piece + b"in parts"


def test_a_file_that_fails_to_flush_is_an_error() -> None:
    class Failing(CountingOutput):
        def flush(self) -> None:
            raise OSError(28, "No space left on device")

    with pytest.raises(SinkError, match="x: cannot be written: No space left"):
        RecordStream(Failing(), "x").flush()
