"""Expectations of checks: a manifest's schema, and whether records must be examples."""

from __future__ import annotations

from collections.abc import Mapping, Set
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from tar2tf_cli.structs import NamedTuple

if TYPE_CHECKING:
    from tar2tf_cli.features.described import Expected

Messages: TypeAlias = Literal["example", "any"]
"""Whether each record must be a tf.train.Example, or may be any message."""


class Expectations(NamedTuple):
    """A manifest's or the user's expectations of all shards; none by default.

    Attributes:
        schema: the expectation of each feature, by name, or the names that samples of a tar may have; None for any.
        required: the names of features that every example, or of entries that every sample must have.
        messages: the kind of messages that records may be; None to require examples in each file whose first record is
            one.
        format: the format of the files.
        numbers: the numbers of the classes in a label map, by feature.
    """

    schema: Mapping[str, Expected] | None = None
    required: frozenset[str] = frozenset()
    messages: Messages | None = None
    format: str | None = None
    numbers: Mapping[str, Set[int]] = MappingProxyType({})


NO_EXPECTATIONS: Final = Expectations()
EXAMPLES: Final = Expectations(messages="example")
