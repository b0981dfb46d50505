"""New keys for samples (`--key`), and keys that are found inside samples (`--join-on`, `--split-by`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from tar2tf_cli.api.values import KEY, Sample
from tar2tf_cli.errors import SampleError
from tar2tf_cli.formats.files import whole
from tar2tf_cli.ops.base import missing_entry
from tar2tf_cli.ops.select import Select, to_selection
from tar2tf_cli.structs import dataclass

_FIELD: Final = r"<(?P<field>input|key|n)(?::(?P<form>[^<>]*))?>|\{(?P<selection>[^{}]+)\}|(?P<text>[^<>{}]+)"
_DIGITS: Final = r"0?\d{1,2}"
_FORM: Final = "write text with <input>, <key>, <key:BEFORE*AFTER>, <n>, <n:09> and {SELECTION}, such as {json:id}"


def text_in(sample: Sample, selection: Select, flag: str) -> str:
    """Return the text or whole number that a selection finds in a sample, without surrounding white space.

    Raises:
        SampleError: when the value is missing, or is neither.
    """
    if selection.ext_name not in sample and getattr(selection, "default", None) is None:
        raise missing_entry(sample, f"{flag}: has no entry {selection.ext_name!r}", selection.ext_name, flag)
    value: Any = whole(selection.select(sample))
    if hasattr(value, "item") and getattr(value, "size", 0) == 1:
        value = value.item()
    if isinstance(value, bytes):
        value = value.decode("utf-8", "surrogateescape")
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        kind = "nothing" if value is None else f"a {type(value).__name__}"
        raise SampleError(f"{flag}: {selection.canonical()} is {kind}, not a text or a whole number")
    if not (text := str(value).strip()):
        raise SampleError(f"{flag}: {selection.canonical()} is empty")
    return text


def selection_of(text: str, flag: str) -> Select:
    """Parse a selection of a single value.

    Raises:
        ValueError: when the text is not a selection of a single value.
    """
    selection = to_selection(text)
    if not isinstance(selection, Select) or "*" in text:
        raise ValueError(f"{flag} {text!r} selects several values; it takes one, such as json:id")
    return selection


@dataclass(frozen=True)
class JoinOn:
    """The fields that must be equal for a joined dataset and a sample (`--join-on`).

    Attributes:
        column: the column or entry of the joined dataset; None for its keys.
        selection: the value in a sample that must equal it.

    >>> JoinOn.parse("id=json:image_id").column
    'id'
    """

    column: str | None
    selection: Select

    @classmethod
    def parse(cls, text: str, flag: str = "--join-on") -> JoinOn:
        """Parse `COLUMN=SELECTION`, or a selection alone.

        Raises:
            ValueError: when the text is neither.
        """
        column, equals, rest = text.partition("=")
        if not equals:
            return cls(None, selection_of(text, flag))
        if not column or not rest:
            raise ValueError(f"{flag} {text!r} is not COLUMN=SELECTION, such as id=json:image_id")
        return cls(column, selection_of(rest, flag))


class KeyTemplate:
    """A template for the keys of samples: text with fields.

    Args:
        text: `<input>` is the input's stem, `<key>` the sample's own key, `<key:BEFORE*AFTER>` the part of it between
            two texts, `<n>` the number of the sample in its input, from 0, `<n:09>` with nine digits, `{SELECTION}` a
            value in the sample.

    Attributes:
        fields: the names of the template's fields: "input", "key", "n" and "selection".

    Raises:
        ValueError: when the text is not a valid template, or has no field that differs from sample to sample.

    >>> KeyTemplate("<input>/{json:id}").key({"__key__": "a", "json": b'{"id": 7}'}, "train-0", 0)
    'train-0/7'
    """

    def __init__(self, text: str) -> None:
        self._parts: list[Callable[[Sample, str, int], str]] = []
        self.fields: set[str] = set()
        for match in _matches(text):
            self._parts.append(self._part(match))
        if self.fields <= {"input"}:
            raise ValueError(f"--key {text!r} would give all samples of an input one key; {_FORM}")

    def key(self, sample: Sample, stem: str, number: int) -> str:
        """Return the new key of a sample, given its input's stem and its number in the input.

        Raises:
            SampleError: when the sample has no value for a field.
        """
        return "".join(part(sample, stem, number) for part in self._parts)

    def _part(self, match: re.Match[str]) -> Callable[[Sample, str, int], str]:
        """Return the function that makes one part of a key."""
        if (text := match["text"]) is not None:
            return lambda sample, stem, number: text
        self.fields.add(match["field"] or "selection")
        if match["selection"]:
            selection = selection_of(match["selection"], "--key")
            return lambda sample, stem, number: text_in(sample, selection, "--key")
        field, form = match["field"], match["form"]
        if field == "n" and (form is None or re.fullmatch(_DIGITS, form)):
            return lambda sample, stem, number: format(number, form or "")
        if field == "key" and form is not None and form.count("*") == 1:
            before, after = form.split("*")
            return lambda sample, stem, number: _between(sample[KEY], before, after)
        if form is not None:
            raise ValueError(f"--key: {match[0]!r} is not a field; {_FORM}")
        return (lambda sample, stem, number: stem) if field == "input" else (lambda sample, stem, number: sample[KEY])


def _matches(text: str) -> Iterator[re.Match[str]]:
    """Yield the fields and literal texts of a template."""
    position = 0
    while position < len(text):
        match = re.compile(_FIELD).match(text, position)
        if match is None:
            raise ValueError(f"--key {text!r} cannot be understood at {text[position:]!r}; {_FORM}")
        yield match
        position = match.end()


def _between(key: str, before: str, after: str) -> str:
    """Return the part of a key between two texts."""
    if len(key) <= len(before) + len(after) or not (key.startswith(before) and key.endswith(after)):
        raise SampleError(f"--key: the key {key!r} is not of the form {before}*{after}")
    return key[len(before) : len(key) - len(after)]
