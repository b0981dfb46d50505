"""Values of single samples, read again as text for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tar2tf_cli.api.source import Source
from tar2tf_cli.api.values import Sample
from tar2tf_cli.checking.contents import MOST_LISTED, detect_kind, listed, shown
from tar2tf_cli.checking.files import contents_of, values_of
from tar2tf_cli.errors import Tar2tfError, count
from tar2tf_cli.features.decoder import Decoder
from tar2tf_cli.features.described import Described
from tar2tf_cli.formats.files import StoredBytes
from tar2tf_cli.inputs.open_shard import OpenShard
from tar2tf_cli.inputs.tar_samples import TarRules


class SampleLocation(NamedTuple):
    """The location of a sample in a dataset.

    Attributes:
        path: path or URL of its shard.
        number: its number in the shard, from 0.
    """

    path: str
    number: int


def values_at(
    source: Source, locations: Iterable[SampleLocation], rules: TarRules, described: Mapping[str, Described]
) -> dict[SampleLocation, dict[str, str]]:
    """Read the shortened values of samples, reading each shard once up to the last of its samples.

    Args:
        source: lists the shards.
        locations: the samples.
        rules: the rules for reading tars.
        described: the described features of records, by the names of their shards; values have the dtypes and shapes of
            the description.

    Raises:
        SourceError: when a shard cannot be read.
    """
    rules = rules._replace(regroup=True, heads_only=True)
    wanted: dict[str, set[int]] = {}
    for location in locations:
        wanted.setdefault(location.path, set()).add(location.number)
    items = {source.locate(item.name): item for item in source.list(())}
    found: dict[SampleLocation, dict[str, str]] = {}
    for path, numbers in wanted.items():
        features = described.get(items[path].name)
        how, decode = (rules._replace(heads_only=False), Decoder(features)) if features else (rules, None)
        with OpenShard(source, items[path]) as shard:
            for number, content in islice(contents_of(shard, how, _raise), max(numbers) + 1):
                if number in numbers:
                    values = values_of(content)
                    if decode and isinstance(content, bytes):
                        values |= _typed(decode, content, values)
                    found[SampleLocation(path, number)] = {name: _text(value) for name, value in values.items()}
    return found


def _typed(decode: Decoder, record: bytes, stored: Sample) -> Sample:
    """Return a record's features decoded by their description; empty if they do not match it."""
    try:
        return {name: value for name, value in decode(record).items() if name in stored}
    except ValueError:
        return {}


def _raise(error: Tar2tfError, more: bool = False) -> None:
    raise error


def _text(value: object) -> str:
    """Format a value as text; images and other bytes as kind and size."""
    if isinstance(value, np.ndarray):
        return _array_text(value)
    if not isinstance(value, (bytes, StoredBytes)):
        return shown(value)
    head = value if isinstance(value, bytes) else value.head()
    look = detect_kind(head, len(value))
    if look.kind in ("text", "json"):
        return shown(head)
    shape = "x".join(map(str, look.shape))
    return f"{' '.join(filter(None, (look.kind, shape)))}, {count(len(value), 'byte')}"


def _array_text(array: NDArray[np.generic]) -> str:
    """Format dtype, shape and first values of an array; single texts and images like other values."""
    values = array.ravel()[:MOST_LISTED].tolist()
    if array.dtype == object:
        return listed([_text(value) for value in values], array.size)
    lengths = "x".join(map(str, array.shape))
    return f"{array.dtype} {lengths} {listed(map(shown, values), array.size)}"
