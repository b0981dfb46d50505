"""Records to a file object that the caller opened."""

from __future__ import annotations

from collections.abc import Iterable
from io import RawIOBase
from typing import Any, Final

from tar2tf_cli.errors import ReaderGoneError, SinkError, write_failed
from tar2tf_cli.formats.record_file import write_all

__all__ = ["RecordStream"]


class RecordStream:
    """Buffers small pieces and writes them to an open binary file, which is flushed but not closed.

    Args:
        out: an object with `write(data)`, which may write less than all of it and then returns how much.
        name: its name in errors.

    Raises:
        SinkError: when the file cannot be written.
    """

    BUFFER: Final = 1 << 20

    def __init__(self, out: Any, name: str) -> None:
        self._out = out
        self._name = name
        self._parts: list[bytes] = []
        self._pending = 0

    def write(self, parts: Iterable[bytes], size: int) -> None:
        """Append parts of `size` bytes in total; those of a generator are written one by one."""
        if not isinstance(parts, list):
            for part in parts:
                self.write([part], len(part))
            return
        self._parts += parts
        self._pending += size
        if self._pending >= self.BUFFER:
            self._hand_over()

    def flush(self) -> None:
        """Write buffered data, and flush the file if it has `flush`."""
        self._hand_over()
        if callable(flush := getattr(self._out, "flush", None)):
            self._attempt(flush)

    def _hand_over(self) -> None:
        data = b"".join(self._parts)
        self._parts.clear()
        self._pending = 0
        self._attempt(write_all, self._write, data)

    def _write(self, data: bytes) -> int | None:
        """Return how much the file wrote; None if it wrote all and returned nothing, as many file-like objects do."""
        taken: int | None = self._out.write(data)
        return 0 if taken is None and isinstance(self._out, RawIOBase) else taken

    def _attempt(self, action: Any, *arguments: Any) -> None:
        try:
            action(*arguments)
        except BrokenPipeError:
            raise ReaderGoneError(f"{self._name} was closed before everything was written") from None
        except OSError as error:
            raise write_failed(self._name, error) from None
        except (ValueError, TypeError) as error:  # it is closed, or is a text file
            raise SinkError(f"cannot be written: {error}", shard=self._name) from None
