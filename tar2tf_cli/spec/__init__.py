"""The spec of a conversion: parses and validates spec files, options, output paths, templates and URLs."""

from __future__ import annotations

__version__ = "0.1.0"
