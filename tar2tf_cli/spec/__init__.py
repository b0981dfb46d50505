"""User input in, one validated `Conversion` out: YAML files, output paths, templates, URLs."""

from __future__ import annotations

__version__ = "0.1.0"
