"""Where records go: files on a local disk, written in large pieces, with their CRC known when they are whole."""

from __future__ import annotations

from tar2tf_cli.sinks.file import RecordFile
from tar2tf_cli.sinks.flusher import Flusher

__all__ = ["Flusher", "RecordFile"]
