"""A preset: the text of a sample and its length."""

from __future__ import annotations

from typing import Any

from tar2tf_cli.api.op import OpContext
from tar2tf_cli.api.values import Sample
from tar2tf_cli.features.presets import Preset
from tar2tf_cli.formats.files import whole


def text_length(sample: Sample, context: OpContext) -> dict[str, Any]:
    """`text` and its `length` (int64)."""
    text = whole(sample["txt"])
    return {"text": text, "length": len(text)}


PRESET = Preset(text_length, ("text", "length"))
