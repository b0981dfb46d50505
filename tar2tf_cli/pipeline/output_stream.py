"""Records to a file object that someone else has opened."""

from __future__ import annotations

from collections.abc import Sequence
from io import RawIOBase
from typing import Any, Final

from tar2tf_cli.errors import SinkError, write_failed

__all__ = ["RecordStream"]


class RecordStream:
    """Collects small pieces and writes them to an open binary file, which is flushed but not closed.

    Args:
        out: has `write(data)`, which may take less than all of it and then says how much.
        name: what to call it in errors.

    Attributes:
        size: bytes taken so far.

    Raises:
        SinkError: when the file cannot be written.
    """

    BUFFER: Final = 1 << 20

    def __init__(self, out: Any, name: str) -> None:
        self._out = out
        self._name = name
        self._parts: list[bytes] = []
        self._pending = 0
        self.size = 0

    def write(self, parts: Sequence[bytes], size: int) -> None:
        """Append parts of together `size` bytes."""
        self._parts += parts
        self._pending += size
        self.size += size
        if self._pending >= self.BUFFER:
            self._hand_over()

    def flush(self) -> None:
        """Write what was collected, and flush the file if it can be."""
        self._hand_over()
        if callable(flush := getattr(self._out, "flush", None)):
            self._attempt(flush)

    def _hand_over(self) -> None:
        rest = b"".join(self._parts)
        self._parts.clear()
        self._pending = 0
        while rest:
            written = self._attempt(self._out.write, rest)
            if written is None and not isinstance(self._out, RawIOBase):
                return  # many file-like objects take all, and say nothing
            if not written:
                raise SinkError("takes no more bytes", shard=self._name, hint="give a file that blocks")
            rest = rest[written:]

    def _attempt(self, action: Any, *arguments: Any) -> Any:
        try:
            return action(*arguments)
        except OSError as error:
            raise write_failed(self._name, error) from None
        except (ValueError, TypeError) as error:  # it is closed, or takes text
            raise SinkError(f"cannot be written: {error}", shard=self._name) from None
