"""Tar shards to TFRecord, and the truth about both."""

from __future__ import annotations

__version__ = "0.1.0"
