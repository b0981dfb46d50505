"""The errors that the library raises, in one tree; each has a message, a location and a hint.

Tar2tfError                 exit code 3: input or output failed; the same command continues
├── UsageError              exit code 2: the command, template or spec cannot be executed
│   ├── ProblemsError           invalid values, all reported at once
│   ├── RemoteError             a conversion cannot run in the cluster
│   └── OutputExistsError       a file of another origin exists at an output path
├── SourceError             an input cannot be listed, opened or read
│   ├── NothingFoundError       a bucket has none of the requested objects
│   │   └── NoShardsError               it has objects, none of which is a shard
│   └── DamagedShardError       a file exists, but is not an intact tar or TFRecord
├── SampleError             one sample cannot become an example (`--on-error skip` skips it)
│   ├── EntryError              an entry is a member that cannot be read, such as a dangling link
│   ├── LackingError            a sample lacks an entry or a feature
│   │   └── MissingNameError    an option names it
│   ├── NotAdjacentError        a key appears again after other keys
│   └── ImageError              an image cannot be decoded, resized or encoded
├── StageError              a stage of a Pipeline raised, or returned something invalid
├── SinkError               an output cannot be written, flushed or published
│   └── ReaderGoneError         exit code 141: the reader of a stream or pipe has closed it
├── WorkerError             a worker process died or raised an unexpected exception
├── MachineError            the machine lacks memory, disk space, threads or open files; no sample is at fault
└── Interrupted             exit code 130: Ctrl-C
"""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from tar2tf_cli.structs import NamedTuple, TypedDict

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

__all__ = [
    "DamagedShardError",
    "ImageError",
    "Interrupted",
    "LackingError",
    "MachineError",
    "MissingNameError",
    "NoShardsError",
    "NotAdjacentError",
    "NothingFoundError",
    "OutputExistsError",
    "ProblemsError",
    "RemoteError",
    "SampleError",
    "SinkError",
    "SourceError",
    "StageError",
    "Tar2tfError",
    "UsageError",
    "WorkerError",
]

Problem: TypeAlias = "tuple[tuple[str | int, ...], str]"
"""The path of an invalid value, as keys and indexes from the outside in, and a description of the fault."""


class Location(TypedDict, total=False):
    """Keyword arguments of `Tar2tfError`: the location of a fault, and a hint."""

    shard: str | None
    key: str | None
    member: str | None
    offset: int | None
    hint: str | None


class Tar2tfError(Exception):
    """Base class of all errors: `message` is the fault, the keywords are its location, `hint` is the next step.

    Args:
        message: what happened, one line, no trailing full stop.
        shard: the shard's path or URL.
        key: the sample's key.
        member: the member of the shard, or the number of a record or row, such as `record 7` or `row 7`.
        offset: byte offset in the tar or TFRecord; for damage to the gzip stream, in the compressed bytes.
        hint: what to do next, one line.

    >>> try:
    ...     inspect("nowhere")
    ... except Tar2tfError as error:
    ...     print(error.exit_code, error)
    3 nowhere: no such directory or file
    """

    exit_code: ClassVar[int] = 3
    family: ClassVar[str] = "failed"
    """A word for errors of this class that have no more specific one."""

    def __init__(
        self,
        message: str,
        *,
        shard: str | None = None,
        key: str | None = None,
        member: str | None = None,
        offset: int | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.shard = shard
        self.key = key
        self.member = member
        self.offset = offset
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, dict(self.__dict__))

    def __str__(self) -> str:
        """Return location, message and hint, with options named as in Python: `overwrite=True`, not `--overwrite`."""
        return self._sentence(in_python(self.hint or ""))

    @property
    def sentence(self) -> str:
        """Return location, message and hint, with options named as on the command line: `--overwrite`."""
        return self._sentence(self.hint or "")

    def _sentence(self, hint: str) -> str:
        where = f"{self.where}: " if self.where else ""
        return f"{where}{self.message}; {hint}" if hint else f"{where}{self.message}"

    @property
    def where(self) -> str:
        """Return the location as text: shard, member or key, and offset, if known."""
        parts = [self.shard] if self.shard else []
        if self.member:
            parts.append(self.member if self.member.startswith(("record ", "row ")) else f"member {self.member}")
        elif self.key:
            parts.append(f"sample {self.key}")
        if self.offset is not None:
            parts.append(f"offset {self.offset}")
        return ", ".join(parts)

    @property
    def lines(self) -> Sequence[str]:
        """The lines that the command line prints: by default one, with newlines in names escaped."""
        return (self.message,)

    @property
    def code(self) -> str | None:
        """The code to pass to `tar2tf explain`; None for an error without further explanation."""
        kind: str | None = getattr(self, "kind", None)
        return None if kind == SourceError.kind else kind

    def to_json(self) -> dict[str, str | int | None]:
        """Return the error as `--json` and `--errors` print it, with the keys of faults in `verify --json` and a few
        more.
        """
        number = (self.member or "").removeprefix("record ")
        record = int(number) if number.isdecimal() and self.member != number else None
        return {
            "kind": getattr(self, "kind", None) or self.family,
            "code": self.code,
            "shard": self.shard,
            "member": self.member if record is None else None,
            "record": record,
            "key": self.key,
            "offset": self.offset,
            "message": self.message,
            "hint": self.hint,
            "exit_code": self.exit_code,
        }

    def at(self, **where: Unpack[Location]) -> Self:
        """Fill in the parts of the location that are still unknown, and return the error itself."""
        for name, value in where.items():
            if getattr(self, name) is None:
                setattr(self, name, value)
        return self


_FLAG: Final = r"(tar2tf [a-z]+ [^;,:]*)|(?<![\w-])--([a-z]+(?:-[a-z]+)*)(?: (skip|keep|first|last|any)\b)?"
_SWITCHES: Final = {"overwrite", "update", "remove_many", "ignore_missing_end", "ignore_gaps", "allow_func", "regroup"}
_RENAMED_ARGUMENTS: Final = {"op": "the op", "type": "types", "from": "kind", "num_workers": "workers"}
"""Arguments in Python whose names differ from those of their options."""
_OF_TAR: Final = {"sparse", "no-read-sparse", "multi-volume", "dereference", "hard-dereference", "sort", "format"}
"""Options of tar, which hints name too."""


def in_python(text: str) -> str:
    """Rename the command-line options in a hint to Python arguments; whole commands stay unchanged.

    >>> in_python("pass --overwrite, or --on-error skip")
    'pass overwrite=True, or on_error="skip"'
    """
    return re.sub(_FLAG, _argument, text)


def _argument(match: re.Match[str]) -> str:
    command, flag, value = match.groups()
    if command or flag in _OF_TAR:
        return match[0]
    name = flag.replace("-", "_")
    name = _RENAMED_ARGUMENTS.get(name, name)
    if value:
        return f'{name}="{value}"'
    return f"{name}=True" if name in _SWITCHES else name


def _rebuild(kind: type[Tar2tfError], message: str, state: dict[str, object]) -> Tar2tfError:
    error = kind.__new__(kind, message)
    error.__dict__.update(state)
    return error


class UsageError(Tar2tfError):
    """The command, template or spec cannot be executed."""

    exit_code = 2
    family = "usage"


class ProblemsError(UsageError):
    """One or more values are invalid; `problems` lists all of them, as does the message by default."""

    def __init__(self, message: str = "", *, problems: Sequence[Problem] = (), **where: Unpack[Location]) -> None:
        super().__init__(message or "; ".join(text for _, text in problems), **where)
        self.problems: tuple[Problem, ...] = tuple(problems)


class RemoteError(UsageError):
    """A conversion cannot run in the cluster of its bucket; it can run on the machine of the command."""

    family = "not_remote"


class OutputExistsError(UsageError):
    """A file that no manifest of this conversion lists exists at an output path.

    Args:
        replaceable: whether `--overwrite` replaces it; if so, that is the default hint.
    """

    family = "output_exists"

    def __init__(self, message: str, *, replaceable: bool = False, **where: Unpack[Location]) -> None:
        super().__init__(message, **where)
        self.replaceable = replaceable
        if replaceable and not self.hint:
            self.hint = "pass --overwrite to replace the output, or choose another output path"


class SourceError(Tar2tfError):
    """An input cannot be listed, opened or read.

    Attributes:
        kind: a word for the fault, as `verify --json` prints it.
    """

    kind: str = "unreadable"


class NothingFoundError(SourceError):
    """A bucket has no objects of the requested names."""

    kind = "missing"


class NoShardsError(NothingFoundError):
    """A bucket has objects, but none that is listed by default."""


RECREATE_HINT: Final = "download or recreate the shard"
"""The hint for a tar that is not intact."""


class Lost(NamedTuple):
    """An unreadable part of an input; at least one sample is lost with it.

    Attributes:
        start: offset of its first byte in the tar or TFRecord, after decompression.
        end: offset after its last byte; None if the input is truncated, so that the amount missing is unknown.
        bytes: number of existing bytes of the input that were not used; for a compressed input that is not used at all,
            its stored size.
    """

    start: int
    end: int | None
    bytes: int

    def to_json(self) -> dict[str, int | None]:
        """Return the range as a JSON object."""
        return {"from": self.start, "to": self.end, "bytes": self.bytes}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Lost:
        """Parse the JSON object that `to_json` returned."""
        return cls(document["from"], document["to"], document["bytes"])


class DamagedShardError(SourceError):
    """A shard is damaged: truncated, overwritten, or of the wrong kind.

    Args:
        kind: a word for the fault, such as `truncated`, `too_large`, `length_crc` or `data_crc`; checking/codes.py
            explains each.

    Attributes:
        lost: the part that was not read, if reading continues after it.
    """

    lost: Lost | None = None

    def __init__(self, message: str, *, kind: str = "damaged", **where: Unpack[Location]) -> None:
        super().__init__(message, **where)
        self.kind = kind

    def add_lost(self, next_one: str, *, resumed: bool) -> None:
        """Add to the message the range of unread bytes, up to the next member or record or to the end."""
        if self.lost and self.lost.bytes:
            what = f"the part up to the next {next_one}" if resumed else "the rest of the shard"
            self.message += f"; {what} was not read ({self.lost.bytes:,} bytes)"


class SampleError(Tar2tfError):
    """One sample cannot become an example.

    Attributes:
        kind: a word for the fault, as `verify --json` prints it; None if the raising code gave none.
    """

    family = "sample"

    kind: str | None = None


class EntryError(SampleError):
    """A tar member cannot be read as an entry: a dangling link, or a type of member without plain data.

    Args:
        kind: a word for the fault.
    """

    def __init__(self, message: str, *, kind: str = "link", **where: Unpack[Location]) -> None:
        super().__init__(message, **where)
        self.kind = kind


class LackingError(SampleError):
    """A sample lacks an entry or a feature, perhaps because its members are not adjacent."""

    kind = "lacking"


class MissingNameError(LackingError):
    """A sample lacks an entry or feature that an option names; a usage error if every sample lacks it.

    Args:
        message: the fault of the sample.
        name: the name, or a pattern of names.
        names: the entries or features that the sample has.
        option: the option.
        noun: `entry` or `feature`.
    """

    def __init__(
        self,
        message: str,
        *,
        name: str = "",
        names: Iterable[str] = (),
        option: str = "",
        noun: str = "entry",
        **where: Unpack[Location],
    ) -> None:
        super().__init__(message, **where)
        self.name = name
        self.names = tuple(names)
        self.option = option
        self.noun = noun

    def usage_error(self, names: Iterable[str], shard: str | None) -> UsageError:
        """Make the error for an option that names an entry or feature that no sample of an input has.

        Args:
            names: the entries or features that its samples have.
            shard: path or URL of the input.
        """
        known = sorted(names)
        message = f"{self.option} names the {self.noun} {self.name!r}, which no sample of this input has"
        plural = "entries" if self.noun == "entry" else f"{self.noun}s"
        return UsageError(
            f"{message}{did_you_mean(self.name, known)}", shard=shard, hint=f"{plural}: {', '.join(known)}"
        )


class NotAdjacentError(SampleError):
    """A key appears again after other keys: the shard must be read again to regroup its samples."""

    kind = "not_adjacent"


class ImageError(SampleError):
    """An image cannot be decoded, resized or encoded."""

    kind = "undecodable"


class StageError(Tar2tfError):
    """A stage of a `Pipeline` raised, or returned something invalid; the message names the stage."""

    family = "stage"


class SinkError(Tar2tfError):
    """An output cannot be written, flushed or published."""

    family = "unwritable"


class ReaderGoneError(SinkError):
    """The reader of a stream or pipe has closed it."""

    exit_code = 141  # what a shell shows of a tool that SIGPIPE ended
    family = "reader_gone"


class WorkerError(Tar2tfError):
    """A worker process died, or raised an exception that is not a Tar2tfError."""

    family = "worker"


class MachineError(Tar2tfError):
    """The machine lacks memory, disk space, threads or open files; no sample is at fault."""

    family = "machine"


class Interrupted(Tar2tfError):
    """The user pressed Ctrl-C: work stopped cleanly; the same command continues."""

    exit_code = 130
    family = "interrupted"


_FREE_MEMORY: Final = "use fewer workers (-j) or free memory"
_RAISE_PROCESSES: Final = "raise the limit (ulimit -u) or use fewer workers (-j)"
_MAKE_ROOM: Final = "make room"
_RAISE_FILES: Final = "raise the limit (ulimit -n 65536)"
_REMEDIES: Final = {
    errno.ENOMEM: _FREE_MEMORY,
    errno.ENOSPC: _MAKE_ROOM,
    errno.EDQUOT: _MAKE_ROOM,
    errno.EMFILE: _RAISE_FILES,
    errno.ENFILE: _RAISE_FILES,
}
"""Hints for errors that mean a lack of resources, by errno."""


def remedy(error: OSError) -> str | None:
    """Return the remedy for an error that means a lack of memory, disk space or the like; None for other errors."""
    advice = _REMEDIES.get(error.errno or 0)
    return advice and f"{advice}, then run the same command"


def machine_error(error: BaseException) -> MachineError | None:
    """Make the error for an exception caused by a lack of memory, disk space or the like; None for any other."""
    if isinstance(error, MemoryError):
        return _lacking("out of memory", _FREE_MEMORY)
    if isinstance(error, BlockingIOError) or (isinstance(error, RuntimeError) and "start new thread" in str(error)):
        return _lacking("no more threads or processes can be started", _RAISE_PROCESSES)
    if type(error).__name__ == "PanicException":  # raised by a library in Rust, from which it cannot be imported
        return _lacking(f"a library ended: {error}", _RAISE_PROCESSES)
    if isinstance(error, OSError) and error.errno in _REMEDIES:
        named = f"{error.filename}: " if error.filename else ""
        return _lacking(f"{named}{error.strerror}", _REMEDIES[error.errno])
    if isinstance(error, ImportError) and not isinstance(error, ModuleNotFoundError):
        *_, why = str(error).split("Original error was: ")  # NumPy's own text is a page
        return _lacking(f"importing failed: {why.strip()}", "free memory, or install the package again")
    return None


def _lacking(what: str, remedy: str) -> MachineError:
    return MachineError(what, hint=f"{remedy}, then run the same command")


def to_tar2tf_error(error: BaseException) -> Tar2tfError | None:
    """Convert an exception that is not a sample's fault to a Tar2tfError; return None for any other.

    Such an exception is a Tar2tfError itself, a missing package, or a lack of memory or another resource.
    """
    if isinstance(error, Tar2tfError):
        return error
    return not_installed(error) if isinstance(error, ModuleNotFoundError) else machine_error(error)


RAISED: Final = (Exception, SystemExit)
"""Exceptions of a user's function to catch; an uncaught `sys.exit(0)` would end a command as if it were complete."""


def failure(what: str, error: BaseException) -> Tar2tfError:
    """Make the error for an exception of an op or a user's function: a SampleError unless the machine is at fault.

    Args:
        what: such as `the function own:crop raised`.
        error: the exception.
    """
    text = f": {error}" if str(error) else ""
    return to_tar2tf_error(error) or SampleError(f"{what} {type(error).__name__}{text}")


def read_failed(path: str, error: OSError) -> SourceError:
    """Make the error for a file or folder that cannot be read."""
    return SourceError(f"cannot be read: {error.strerror or error}", shard=path, hint=remedy(error))


def changed(where: str, offset: int | None = None) -> SourceError:
    """Make the error for an input that changed after it was listed."""
    hint = "run the same command again when its writer is done"
    return SourceError("changed while it was being read", shard=where, offset=offset, hint=hint)


def write_failed(path: str, error: OSError, hint_text: str = "write to another location") -> SinkError:
    """Make the error for a file or folder that cannot be written; `hint_text` says how to write to another location."""
    lacking = f"{_REMEDIES[error.errno]} or " if error.errno in _REMEDIES else ""
    hint = f"{lacking}{hint_text}, then run the same command"
    return SinkError(f"cannot be written: {error.strerror or error}", shard=path, hint=hint)


def not_installed(error: ModuleNotFoundError) -> UsageError:
    """Make the error for a missing package, as after an installation without dependencies."""
    package = (error.name or str(error)).partition(".")[0]
    hint = "install it; pip install tar2tf-cli installs everything that tar2tf itself needs"
    return UsageError(f"the Python package {package!r} is not installed", hint=hint)


def check_tensorflow(what: str) -> None:
    """Check that TensorFlow is installed.

    Raises:
        UsageError: when it is not installed.
    """
    from importlib.util import find_spec

    # AutoGraph follows what a mapped function calls, and warns that find_spec has no source
    if sys.modules.get("tensorflow") is None and find_spec("tensorflow") is None:
        hint = "pip install 'tar2tf-cli[tensorflow]'; open_records reads shards without it"
        raise UsageError(f"{what} needs TensorFlow, which is not installed", hint=hint)


@contextmanager
def write_errors(path: str, hint_text: str = "write to another location") -> Iterator[None]:
    """Convert an OSError in the `with` block to an error that names a path, as `write_failed` does."""
    try:
        yield
    except OSError as error:
        raise write_failed(path, error, hint_text) from None


def reason(error: Exception) -> str:
    """Describe why a value is invalid, without the wording of Python's own exceptions."""
    if isinstance(error, UnicodeDecodeError):
        return f"the bytes are not UTF-8 text (position {error.start})"
    if isinstance(error, OverflowError) and "int too" in str(error):
        return "a value does not fit in 64 bits"
    if type(error).__name__ == "JSONDecodeError":
        return f"the text is not JSON: {error}"
    text = str(error)
    return text.partition(": ")[2] if text.startswith(("invalid literal for int", "could not convert")) else text


def did_you_mean(name: object, known: Iterable[object], least: float = 0.6) -> str:
    """Return `; did you mean 'NEAREST'?`, or "" if no known name has a similarity of at least `least`, from 0 to 1."""
    from difflib import get_close_matches

    near = get_close_matches(str(name), [str(item) for item in known], 1, least)
    return f"; did you mean {near[0]!r}?" if near else ""


def alternatives(names: Sequence[str]) -> str:
    """Join names as in a sentence: `a, b or c`."""
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def few(names: Sequence[str], most: int = 3) -> str:
    """Join the first of many names: `a.tar, b.tar, c.tar and 12 more`."""
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def count(number: int, noun: str, several: str = "") -> str:
    """Return a number with its noun: `1 shard`, `2 shards`; `several` is the plural if it is irregular."""
    return f"{number:,} {noun if number == 1 else several or noun + 's'}"
