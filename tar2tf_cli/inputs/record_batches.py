"""Batches of plain samples that the kernel finds in the records of a TFRecord."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import ModuleType
from typing import Final, Protocol

from tar2tf_cli.api.values import KEY, Batch, Kind
from tar2tf_cli.features.described import DTYPES, MOST_KNOWN, Described, Expected, for_kernel
from tar2tf_cli.structs import NamedTuple

_MOST: Final = 1024  # samples or entries of a batch, as a member of a tar takes a kibibyte at least


class SeenFeatures(Protocol):
    """The features of all records read so far."""

    def known(self) -> tuple[bytes, bytes]:
        """Return feature names and combinations for the kernel; a new object whenever something new was seen."""

    def kinds(self) -> Mapping[str, Kind]:
        """Return the kind of each feature that always had the same kind."""


class _PlainFeatures(NamedTuple):
    """The features of plain samples, in the form that `parsed` in record_samples.h expects.

    Attributes:
        names: their names and kinds.
        forms: a letter for the form of each feature.
        key: the number of the feature with the key; -1 if keys are made.
    """

    names: bytes
    forms: bytes
    key: int


class RecordBatcher:
    """Makes batches of the plain samples in records that the kernel has checked.

    A sample is plain if `ExampleEntries` converts its features to entries that become the same features again: one
    value or a list, with the dtype of its kind, without its own shape. That class handles all others.

    Args:
        native: the kernel.
        seen: the kinds of features in the records so far.
        described: the features that a manifest describes.
        lists: names of features without a description that are lists even if an example has a single value.
        key_feature: the feature that contains the key, which remains an entry; None for `__key__`.
        stem: the beginning of the keys of records without a key, before their numbers.
    """

    def __init__(
        self,
        native: ModuleType,
        seen: SeenFeatures,
        described: Described,
        lists: Collection[str],
        key_feature: str | None,
        stem: str,
    ) -> None:
        self._parsed = native.parsed
        self._seen = seen
        self._described = described
        self._lists = lists
        self._key_feature = key_feature
        self._stem = stem.encode("utf-8", "surrogateescape")
        self._known: tuple[bytes, _PlainFeatures | None] = b"", None

    def batch(self, records: bytes, position: int, number: int) -> Batch | None:
        """Return the plain samples in framed records from a position; None if the first one is not plain.

        Args:
            records: the records.
            position: the position of the first record in them.
            number: the number of the first record in its shard.
        """
        names, _ = self._seen.known()
        if names is not self._known[0]:
            self._known = names, self._decide()
        if (plain := self._known[1]) is None:
            return None
        found = self._parsed(records, position, *plain, self._stem, number, _MOST)
        return found and Batch(*found)

    def _decide(self) -> _PlainFeatures | None:
        """Decide which features plain samples may have, given all records so far; None if no sample is plain."""
        known: dict[str, tuple[str, Expected]] = {}
        for name, kind in self._seen.kinds().items():
            if form := self._form(name, kind):
                known[name] = form
        named = self._key_feature or KEY
        if len(known) > MOST_KNOWN or (self._key_feature and named not in known):
            return None
        key = [*known].index(named) if named in known else -1
        names = b"".join(for_kernel(name, wanted) for name, (_, wanted) in known.items())
        return _PlainFeatures(names, "".join(letter for letter, _ in known.values()).encode(), key)

    def _form(self, name: str, kind: Kind) -> tuple[str, Expected] | None:
        """Return a feature's letter and its expected form; None if no plain sample can have it."""
        if name.endswith("/shape") or "\0" in name or f"{name}/shape" in self._described:
            return None
        is_list, count = (True, None) if name in self._lists else (False, 1)
        if described := self._described.get(name):
            shape = described["shape"]
            if (described["encoding"], described["dtype"]) != (kind, DTYPES[kind][0]) or len(shape) > 1:
                return None
            is_list, count = bool(shape), shape[0] if shape else 1
        if name == (self._key_feature or KEY) and (is_list or kind == "float"):
            return None
        return "-" if name == KEY else "l" if is_list else "v", Expected(kind, count)
