"""The preset webdataset: every entry, decoded as by webdataset's basic decoder."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from tar2tf_cli.api.op import OpContext
from tar2tf_cli.api.values import Sample
from tar2tf_cli.errors import SampleError, reason
from tar2tf_cli.features.presets import Preset
from tar2tf_cli.formats.files import StoredBytes, whole
from tar2tf_cli.formats.npy import read_array

INTEGER_ENTRIES: Final = ("cls", "cls2", "class", "count", "index", "inx", "id")
"""Names of entries that hold an integer as text, as in webdataset's basic decoder."""


def webdataset(sample: Sample, context: OpContext) -> dict[str, object]:
    """Decode every entry as webdataset's basic decoder does: numbers to int64, npy to arrays, text and JSON to text.

    The last part of an entry's name determines its type, as in webdataset. Others, such as images, are unchanged.
    Source: webdataset, webdataset/autodecode.py, `basichandlers`.
    """
    return {name: _basic(name, value) for name, value in sample.items()}


def _basic(name: str, value: Any) -> Any:
    kind = name.rpartition(".")[2]
    if kind not in _BASIC or not isinstance(value, (bytes, StoredBytes)):
        return value
    value = whole(value)
    try:
        return _BASIC[kind](value)
    except (ValueError, RecursionError) as error:
        raise SampleError(f"entry {name!r} cannot be decoded as {kind}: {reason(error)}") from None


def _text_only(value: bytes) -> bytes:
    value.decode("utf-8")
    return value


def _json_only(value: bytes) -> bytes:
    json.loads(value)
    return value


_BASIC: Final[dict[str, Callable[[bytes], Any]]] = {
    **dict.fromkeys(INTEGER_ENTRIES, int),
    **dict.fromkeys(("txt", "text", "transcript"), _text_only),
    **dict.fromkeys(("json", "jsn"), _json_only),
    "npy": read_array,
}

PRESET: Final = Preset(webdataset)
