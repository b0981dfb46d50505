"""Report of differences for a review: values of both datasets, as an HTML page or a Markdown document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import islice
from typing import Final

from tar2tf_cli.checking.diff import KINDS, Difference, DifferenceKind, Differences
from tar2tf_cli.checking.html import cut, facts, page, section, table
from tar2tf_cli.errors import count
from tar2tf_cli.formats.files import write_whole

WORDS: Final[Mapping[DifferenceKind, str]] = {"only_in_a": "only in A", "only_in_b": "only in B", "changed": "changed"}
"""The name of each kind of difference."""

MOST_SHOWN: Final = 200
"""How many differences of each kind a page or a document shows."""

_ABSENT: Final = "(absent)"


class ValueChange(tuple[str, str, str]):
    """Name of an entry or feature, and its value in both datasets as text."""


def value_changes(
    differences: Differences, some: Sequence[Difference]
) -> Iterator[tuple[Difference, list[ValueChange]]]:
    """Yield some differences, each with both values of every entry that differs.

    Raises:
        SourceError: when a shard cannot be read again.
    """
    changed = [difference for difference in some if difference.kind == "changed"]
    a = differences.values("a", [one.a for one in changed if one.a])
    b = differences.values("b", [one.b for one in changed if one.b])
    for difference in some:
        ours = a.get(difference.a, {}) if difference.a else {}
        theirs = b.get(difference.b, {}) if difference.b else {}
        names = difference.entries
        yield difference, [ValueChange((n, ours.get(n, _ABSENT), theirs.get(n, _ABSENT))) for n in names]


def _name_of(difference: Difference) -> str:
    location = difference.a or difference.b
    return f"record {location.number}" if difference.key is None and location else difference.key or ""


def _summary(differences: Differences) -> list[tuple[str, str]]:
    counted = [(f"{number:,}", WORDS[kind]) for kind, number in differences.counts.items()]
    return [(f"{differences.same:,}", "equal"), *counted, (f"{differences.out_of_order:,}", "out of order")]


def _rows(differences: Differences, kind: DifferenceKind) -> Iterator[tuple[str, ...]]:
    some = list(islice(differences.of(kind), MOST_SHOWN))
    for difference, values in value_changes(differences, some):
        name, location = _name_of(difference), difference.a or difference.b
        if kind != "changed":
            yield name, location.path if location else ""
        for place, (entry, a, b) in enumerate(values):
            yield "" if place else name, entry, a, b


def _more(differences: Differences, kind: DifferenceKind) -> str:
    number = differences.counts[kind]
    return f"The first {MOST_SHOWN} of {number:,}." if number > MOST_SHOWN else count(number, "sample") + "."


def _title(kind: DifferenceKind) -> str:
    return f"{WORDS[kind][0].upper()}{WORDS[kind][1:]}"


def _heading(kind: DifferenceKind) -> tuple[str, ...]:
    return ("key", "entry", "A", "B") if kind == "changed" else ("key", "shard")


def write_page(path: str, differences: Differences) -> None:
    """Write an HTML page that shows the differences.

    Raises:
        SinkError: when the file cannot be written.
    """
    body = [f'<p class="soft">A: {escape(differences.a.path)}<br>B: {escape(differences.b.path)}</p>']
    body.append(facts(_summary(differences)))
    for kind in KINDS:
        if differences.counts[kind]:
            rows = [[cut(cell) for cell in row] for row in _rows(differences, kind)]
            title = _title(kind)
            body.append(section(title, table(title, _heading(kind), rows), note=_more(differences, kind)))
    if differences.equal:
        body.append(section("Equal", '<p class="good">No sample differs.</p>'))
    parts = page("Differences", body, "Made by tar2tf diff --html.")
    write_whole(path, ["".join(parts).encode("utf-8", "replace")])


def write_markdown(path: str, differences: Differences) -> None:
    """Write the differences as Markdown, for a review.

    Raises:
        SinkError: when the file cannot be written.
    """
    lines = ["# Differences", "", f"- A: `{differences.a.path}`", f"- B: `{differences.b.path}`", ""]
    lines += [*_markdown_table(("samples", ""), [(name, number) for number, name in _summary(differences)]), ""]
    for kind in KINDS:
        if differences.counts[kind]:
            lines += [f"## {_title(kind)}", "", _more(differences, kind), ""]
            lines += [*_markdown_table(_heading(kind), _rows(differences, kind)), ""]
    write_whole(path, ["\n".join(lines).encode("utf-8", "replace")])


def _markdown_table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    for cells in (heading, ["---"] * len(heading), *rows):
        escaped = (cut(cell).replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ") for cell in cells)
        yield f"| {' | '.join(escaped)} |"
