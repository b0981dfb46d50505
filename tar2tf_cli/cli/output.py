"""Functions that print messages and progress on standard error, and data, such as tables, on standard output."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, redirect_stdout, suppress
from typing import IO, Any, Final

import click

from tar2tf_cli.errors import Tar2tfError, count, write_errors
from tar2tf_cli.events import Events, set_waiting

_PLAIN_SECONDS: Final = 30
_UNITS: Final = ("KB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB")


def size(number: int) -> str:
    """Format a size in bytes for people, such as 1.5 GB, as humanfriendly does, whose import takes 9 ms."""
    power = min((len(str(number)) - 1) // 3, len(_UNITS))
    if power < 1:
        return count(number, "byte")
    digits = f"{number / 1000**power:.2f}".rstrip("0").rstrip(".")
    return f"{digits} {_UNITS[power - 1]}"


def print_skipped(names: Sequence[str]) -> None:
    """Report how many files of a directory were skipped, naming the first three."""
    if names:
        shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
        message(f"{count(len(names), 'file')} skipped (neither tar nor TFRecord): {shown}")


def print_members(skipped: Mapping[str, int]) -> None:
    """Report how many members of tars were skipped, by reason."""
    for reason, number in sorted(skipped.items()):
        message(f"{count(number, 'member')} skipped: {reason}")


def print_count(number: int, noun: str, text: str, *, note: bool = False) -> None:
    """Report a number of things, with a text about them, unless it is 0."""
    if number:
        message(f"{'note: ' if note else ''}{count(number, noun)}{text}")


def print_json(document: object) -> None:
    """Print one JSON document on standard output."""
    import json

    click.echo(json.dumps(document, indent=1))
    _printed.add("json")


def print_result(whole: Any, parts: Iterable[Any], lines: Iterable[str], options: dict[str, Any]) -> None:
    """Print a result as one JSON document, as a JSON line for each of its parts, or as lines of text."""
    if options["as_json"]:
        print_json(whole.to_json())
    elif options["json_lines"]:
        import json

        for part in parts:
            click.echo(json.dumps(part.to_json()))
    else:
        for line in lines:
            echo(line)


def print_failure(error: Tar2tfError) -> None:
    """Print an error as one line of JSON on standard output, unless a document with the results was printed already."""
    import json

    if not _printed:
        with suppress(OSError):  # the message on standard error has reported the failure
            click.echo(json.dumps({"error": error.to_json()}))


_printed: Final[set[str]] = set()
"""Non-empty once this process has printed a JSON document."""


def prints_on_stderr() -> AbstractContextManager[object]:
    """Redirect prints of user functions and Ray to standard error, as standard output is for records and documents."""
    return redirect_stdout(sys.stderr)


def print_error(error: Tar2tfError) -> None:
    """Print an error: location, message and code on the first line, then the hint."""
    where = f"{printable(error.where)}: " if error.where else ""
    code = f" ({error.code})" if error.code else ""
    first, *more = error.lines
    message(f"{where}{first}{'' if more else code}", mark=click.style("error:", fg="red", bold=True) + " ")
    message(*more)
    if error.hint:
        message(f"  {error.hint}")
    if details := error.__dict__.get("details"):
        message(*details.rstrip().split("\n"))


def echo(text: str) -> None:
    """Print a line of data; control characters, and characters that the encoding lacks, are escaped."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    click.echo(printable(text).encode(encoding, "backslashreplace").decode(encoding))


def printable(text: str) -> str:
    """Escape the control characters of a text, so that it cannot affect a terminal."""
    if text.isprintable():
        return text
    return "".join(part if part.isprintable() else part.encode("unicode_escape").decode() for part in text)


def message(*lines: str, mark: str = "") -> None:
    """Print lines on standard error; if it cannot be written, they are lost, but the exit code stays correct.

    Args:
        lines: the lines; control characters in them, and newlines in the names that they print, are escaped.
        mark: a prefix of the first line that may have colour codes, which are removed if colours are off.
    """
    if not lines:
        return
    shown = "\n".join(map(printable, lines))
    try:
        click.echo(mark + shown, err=True, color=_colors())
    except BrokenPipeError:
        raise
    except OSError:  # a log on a full disk, or a terminal that is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _colors() -> bool:
    """Whether to use colours: set by NO_COLOR or FORCE_COLOR, otherwise true on a capable terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return is_capable()


def is_capable() -> bool:
    """Whether standard error is a terminal that can move its cursor."""
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


class _Progress:
    """Shows how many bytes were read: as a bar, as a plain line every 30 seconds, or not at all.

    Args:
        bar: whether to show a bar.
        lines: whether to print lines.
    """

    def __init__(self, *, bar: bool, lines: bool) -> None:
        self._bar_wanted = bar
        self._lines_wanted = lines
        self._bar: Any = None
        self._total: int | None = None
        self._done = 0  # by an interrupted run
        self._began = self._printed = time.monotonic()

    def start(self, total: int | None, done: int) -> None:
        """Begin to read so many bytes, of which an interrupted run has read some."""
        self._total, self._done = total, done
        self.close()
        if self._bar_wanted:
            from tqdm import tqdm

            self._bar = tqdm(
                total=total,
                initial=done,
                unit="B",
                unit_scale=True,
                unit_divisor=1000,
                dynamic_ncols=True,
                leave=False,
                delay=0.5,
            )

    def update(self, done: int) -> None:
        """Show that so many bytes have been read in all."""
        if self._bar is not None:
            self._bar.update(done - self._bar.n)
            if done == self._total and self._bar.last_print_n > self._done:  # too soon after the last update to draw
                self._bar.refresh()
        elif self._lines_wanted and time.monotonic() - self._printed > _PLAIN_SECONDS:
            self._printed = time.monotonic()
            message(self._line(done))

    def clear(self) -> None:
        """Remove the bar from the line on which something else is printed next."""
        if self._bar is not None:
            self._bar.clear()

    def close(self) -> None:
        """Remove the bar for good."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _line(self, done: int) -> str:
        elapsed = time.monotonic() - self._began
        if not self._total or done <= self._done:
            return f"{size(done)} read in {elapsed:.0f} s"
        left = elapsed / (done - self._done) * (self._total - done)
        return f"{done / self._total:.0%} of {size(self._total)} read, about {left:.0f} s left"


class _ListFile:
    """A file to which a command writes a list, one line for each item.

    Args:
        path: the file; None if the list is not wanted.
    """

    def __init__(self, path: str | None) -> None:
        self._path = path or ""
        self._file: IO[bytes] | None = None

    @property
    def is_open(self) -> bool:
        """Whether the list is wanted, and the command has begun."""
        return self._file is not None

    def open(self) -> None:
        """Replace an older list, if a list is wanted."""
        if self._path:
            with write_errors(self._path):
                self._file = open(self._path, "wb")  # noqa: SIM115 - closed in close

    def write(self, lines: Iterable[bytes]) -> None:
        """Append lines, each with its newline."""
        if self._file:
            with write_errors(self._path):
                self._file.writelines(lines)

    def close(self) -> None:
        """Close the file."""
        if self._file:
            with write_errors(self._path):
                self._file.close()


class Terminal(Events):
    """Shows progress: a bar on a terminal, otherwise a plain line every 30 seconds.

    Args:
        quiet: print errors only.
        verbose: also print each shard, and a note if the kernel is missing.
        progress: whether to show a bar; None for a bar on a terminal and lines elsewhere.
        errors_path: the file to which the errors of faulty samples are written, one JSON document per line.
        duplicates_path: the file to which the keys of skipped duplicates are written.
        others: other options of the command, which are ignored.
    """

    def __init__(
        self,
        *,
        quiet: bool = False,
        verbose: bool = False,
        progress: bool | None = None,
        errors_path: str | None = None,
        duplicates_path: str | None = None,
        **others: object,
    ) -> None:
        capable = is_capable()
        self._quiet = quiet
        self._shards_wanted = verbose and not quiet
        self._progress = _Progress(
            bar=(capable if progress is None else progress) and not quiet,
            lines=progress is None and not capable and not quiet,
        )
        self._process = os.getpid()
        self._waited = float("-inf")
        self._noted: set[str] = set()
        set_waiting(self._waiting)
        self._planned = False
        self._errors = _ListFile(errors_path)
        self._duplicates = _ListFile(duplicates_path)

    def planned(self, inputs: int, size: int | None, done: int = 0) -> None:
        """Start the bar and open the lists; a run with nothing to do leaves older lists unchanged.

        A run that reads its inputs twice calls this twice, and gets a bar for each pass.
        """
        first, self._planned = not self._planned, True
        if self._shards_wanted and first:
            from tar2tf_cli.formats import kernel

            if not kernel.native():
                self.note(f"note: {kernel.described()}")
        if first:
            self._errors.open()
            self._duplicates.open()
        self._progress.start(size, done)

    def progress(self, size: int) -> None:
        self._progress.update(size)

    def shard(self, path: str, records: int, size: int) -> None:
        if self._shards_wanted:
            self._say(f"{path}: {count(records, 'record')}, {size:,} bytes")

    def not_remote(self, error: Exception) -> None:
        raise error

    def note(self, message: str) -> None:
        if not self._quiet:
            self._say(message)

    def _waiting(self, text: str) -> None:
        """Print a note about waiting from the command's process only, not from each worker.

        A note about the machine is printed once, in any process; a note about waiting, once for many requests that fail
        together.
        """
        if os.getpid() != self._process:
            return
        now, lacking = time.monotonic(), text.rpartition(": ")[2] if text.startswith("note: ") else ""
        if lacking:
            if lacking not in self._noted:
                self._noted.add(lacking)
                self.note(text)
        elif now - self._waited > _PLAIN_SECONDS:
            self._waited = now
            self.note(text)

    def fault(self, fault: Mapping[str, object]) -> None:
        if self._errors.is_open:
            import json

            self._errors.write([json.dumps(fault).encode() + b"\n"])

    def duplicates(self, keys: Sequence[str]) -> None:
        if self._duplicates.is_open:
            from tar2tf_cli.spec.key_lists import key_line

            self._duplicates.write(map(key_line, keys))

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Remove the bar, and write the error that ended the conversion to the list of errors before closing it."""
        self._progress.close()
        if isinstance(error, Tar2tfError):
            self.fault(error.to_json())
        self._errors.close()
        self._duplicates.close()

    def _say(self, text: str) -> None:
        self._progress.clear()
        message(text)


_GAP: Final = "  "
_LEAST: Final = 4


def print_table(rows: Sequence[Sequence[str]], **layout: Any) -> None:
    """Print a table that fits the terminal; `layout` has the keyword arguments of `table`."""
    for line in table(rows, width=terminal_width(), **layout):
        echo(line)


def table(
    rows: Sequence[Sequence[str]],
    *,
    right: Collection[int] = (),
    shrink: Mapping[int, int] | None = None,
    drop: Sequence[int] = (),
    width: int | None = None,
    indent: str = "",
) -> Iterator[str]:
    """Yield the lines of a table.

    Args:
        rows: cells; the first row may be a heading. Control characters become escapes.
        right: indexes of the columns that are right-aligned.
        shrink: minimum widths to which columns may be cut with an ellipsis, in the order in which they are cut; if
            nothing else helps, they are cut further.
        drop: indexes of the columns to omit, in this order, until the others fit.
        width: maximum width of a line in terminal columns; None for no limit.
        indent: text before each line.
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(_width, column)) for column in zip(*cells, strict=True)]
    kept, shrink = list(range(len(widths))), shrink or {}
    if width is not None:
        for column in drop:
            if _excess_width([min(widths[c], shrink.get(c, widths[c])) for c in kept], indent, width) > 0:
                kept.remove(column)
        _cut(widths, kept, shrink, indent, width)
    for row in cells:
        parts = [_fitted(row[column], widths[column], column in right) for column in kept]
        yield (indent + _GAP.join(parts)).rstrip()


def _excess_width(widths: Sequence[int], indent: str, width: int) -> int:
    """Return by how many columns a line exceeds a width."""
    return len(indent) + sum(widths) + len(_GAP) * (len(widths) - 1) - width


def _cut(widths: list[int], kept: Sequence[int], shrink: Mapping[int, int], indent: str, width: int) -> None:
    """Reduce the widths of shrinkable columns until a line fits, as far as possible."""
    surplus = max(_excess_width([widths[column] for column in kept], indent, width), 0)
    for limits in (shrink, dict.fromkeys(shrink, _LEAST)):
        for column, least in limits.items():
            if column in kept:
                cut = min(surplus, max(widths[column] - least, 0))
                widths[column] -= cut
                surplus -= cut


def terminal_width() -> int | None:
    """Return the width in columns of the terminal on standard output; None if it is not a terminal."""
    if sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        import shutil

        return shutil.get_terminal_size().columns
    return None


def _fitted(text: str, width: int, right: bool) -> str:
    """Cut or pad a cell to a width."""
    if _width(text) > width:
        while text and _width(text) >= width:
            text = text[:-1]
        text += "…" if width else ""
    blanks = " " * (width - _width(text))
    return blanks + text if right else text + blanks


def _width(text: str) -> int:
    """Return the width of a text in terminal columns."""
    if text.isascii():
        return len(text)
    return sum(map(_columns, text))


def _columns(character: str) -> int:
    import unicodedata  # imported here, as few tables need it

    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
