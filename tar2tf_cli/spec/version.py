"""The version of tar2tf, in one place that every room may read."""

from __future__ import annotations

__version__ = "0.1.0"
