"""Reads the values of single samples again, as text for people."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from tar2tf_cli.api.source import Source
from tar2tf_cli.checking.contents import look_at, shown
from tar2tf_cli.checking.files import contents_of, values_of
from tar2tf_cli.errors import Tar2tfError, count
from tar2tf_cli.formats.files import StoredBytes
from tar2tf_cli.inputs.open_shard import OpenShard
from tar2tf_cli.inputs.tar_samples import TarRules


class SampleLocation(NamedTuple):
    """The location of a sample.

    Attributes:
        path: path or URL of its shard.
        number: its number there, from 0.
    """

    path: str
    number: int


def values_at(
    source: Source, locations: Iterable[SampleLocation], rules: TarRules
) -> dict[SampleLocation, dict[str, str]]:
    """Read the values of samples, shortened; each shard is read once, up to the last of its samples.

    Args:
        source: lists the shards.
        locations: the samples.
        rules: how tars are read.

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
        with OpenShard(source, items[path]) as shard:
            for number, content in islice(contents_of(shard, rules, _raise), max(numbers) + 1):
                if number in numbers:
                    values = values_of(content)
                    found[SampleLocation(path, number)] = {name: _text(value) for name, value in values.items()}
    return found


def _raise(error: Tar2tfError, more: bool = False) -> None:
    raise error


def _text(value: object) -> str:
    """A value as text; of an image or other bytes, its kind and size."""
    if not isinstance(value, (bytes, StoredBytes)):
        return shown(value)
    head = value if isinstance(value, bytes) else value.head()
    look = look_at(head, len(value))
    if look.kind in ("text", "json"):
        return shown(head)
    shape = "x".join(map(str, look.shape))
    return f"{' '.join(filter(None, (look.kind, shape)))}, {count(len(value), 'byte')}"
