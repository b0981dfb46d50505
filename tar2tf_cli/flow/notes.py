"""Notes on how inputs were read, where that is not what a user may expect: each kind is given once."""

from __future__ import annotations

from collections.abc import Callable

from tar2tf_cli.errors import count
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.samples.names import split_name
from tar2tf_cli.spec.conversion import Input

__all__ = ["Notes"]


class Notes:
    """Gives the notes on the inputs of a conversion or dataset.

    Args:
        spec: how the inputs are read, which may say that something is expected.
        note: called with each note.

    Attributes:
        given: the kinds of notes that were given, of which only the first one is of use.
    """

    def __init__(self, spec: Input, note: Callable[[str], None]) -> None:
        self._spec = spec
        self._note = note
        self.given: set[str] = set()

    def add(self, name: str, report: InputReport) -> None:
        """Give the notes on an input that has been read.

        Args:
            name: its path or URL.
            report: the result of reading it.
        """
        if report.archives > 1:
            self._note(f"note: {name} holds {report.archives} archives end to end; all were read")
        if report.split_differs and self._spec.key_split == "first":
            self.once("split", _split_note(report.split_differs))
        if report.not_adjacent and not self._spec.regroup:
            self.once("regroup", _regroup_note(name, report.not_adjacent))
        if report.lacking:
            self.once("lacking", f"note: {name}: {report.lacking}; such samples are converted without it")

    def once(self, kind: str, message: str | None) -> None:
        """Give a note unless there is none, or one of its kind was given."""
        if message and kind not in self.given:
            self.given.add(kind)
            self._note(message)


def _split_note(name: str) -> str:
    key, entry = split_name(name, "first")
    other_key, other_entry = split_name(name, "last")
    return (
        f"note: {name} is taken as key {key!r}, entry {entry!r}; with --key-split last it would be key {other_key!r}, "
        f"entry {other_entry!r}"
    )


def _regroup_note(name: str, scattered: int) -> str:
    return (
        f"note: members of {count(scattered, 'sample')} are not adjacent in {name}; shards like it are read again, "
        "to put their samples together in the order in which the keys first appear"
    )
