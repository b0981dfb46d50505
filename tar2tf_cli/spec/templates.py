"""Templates of names: braces and globs for inputs, `<>` paths for output shards."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final

from tar2tf_cli.api.shard_format import ShardFormat
from tar2tf_cli.errors import NoShardsError, NothingFoundError, OutputExistsError, UsageError, did_you_mean, few
from tar2tf_cli.formats.files import is_stream
from tar2tf_cli.plugins import DEFAULT_FORMAT, find_format, formats, plugin_formats
from tar2tf_cli.spec.urls import is_remote, split_query
from tar2tf_cli.structs import NamedTuple

MAX_NAMES: Final = 1_000_000
"""The maximum number of names to which a brace template may expand."""

_HINTS_BY_SUFFIX: Final = (
    (
        (".jpg", ".jpeg", ".png", ".bmp"),
        "it holds images: if there is a folder for each class, add --from imagefolder",
    ),
    ((".zip",), "it holds zip files: unzip them, and make tars of their contents"),
)
"""Hints for a bucket that has no tars but files of other suffixes."""

_GLOB_TOKEN: Final = r"(?s)\*\*/|\[([!^]?)(\]?[^]/]*)\]|."
_PLAIN_PATH: Final = r"(?:[^*?\[{/]*/)*"
_PLAIN_URL: Final = r"\w[\w+]*://[^/]*/(?:[^*{/]*/)*"
_AT: Final = r"@(\d+)"
_FILE_SPEC: Final = r"((?:.*/)?[^/@{}*?\[<>]+)@(\d{1,6})(\.[^/@{}*?\[<>]*)?"
_NUMBER: Final = r"%(?:0(\d+))?d"
_RANGE: Final = r"(-?\d+|[A-Za-z])\.\.(-?\d+|[A-Za-z])(?:\.\.-?(\d+))?"
_BRACE: Final = r"(?s)\\.|[{},]"


class FileSpec(NamedTuple):
    """A name for all shards of a set, such as `train.tfrecord@64`: their number, and the text around their numbers."""

    head: str
    total: int
    tail: str

    @classmethod
    def parse(cls, name: str) -> FileSpec | None:
        """Parse a name or path such as `train.tfrecord@64`; None for any other name.

        A suffix that readers of a format need is kept at the end of names: `x.tar@2` is parsed as `x@2.tar`.
        """
        match = re.fullmatch(_FILE_SPEC, name) if "@" in name else None
        if not match or int(match[2]) < 1:
            return None
        head, tail = match[1], match[3] or ""
        for suffix in sorted(find_format("tar").traits.suffixes, key=len, reverse=True) if not tail else ():
            if head.lower().endswith(suffix):
                head, tail = head[: -len(suffix)], head[-len(suffix) :]
                break
        return cls(head, int(match[2]), tail)

    @property
    def width(self) -> int:
        """The number of digits of the shards' numbers."""
        return max(5, len(str(self.total)))

    def names(self) -> list[str]:
        """Return the names of all shards."""
        width = self.width
        return [f"{self.head}-{number:0{width}}-of-{self.total:0{width}}{self.tail}" for number in range(self.total)]

    @property
    def output(self) -> str:
        """The output path template of the shards."""
        return f"{self.head}-<{'0' * self.width}>-of-<total>{self.tail}"


def expand(template: str) -> list[str]:
    """Expand a template's braces to names or globs, in bash's order.

    Raises:
        UsageError: when the braces are not balanced, or expand to more than `MAX_NAMES` names.
    """
    if "{" not in template:
        return [template]
    from braceexpand import UnbalancedBracesError, braceexpand  # type: ignore[attr-defined]

    try:
        count = count_names(template)
        if count > MAX_NAMES:
            raise UsageError(
                f"the template {template!r} expands to {count:,} names, more than {MAX_NAMES:,}",
                hint="use a narrower range or a glob",
            )
        return list(braceexpand(template))
    except UnbalancedBracesError:
        raise UsageError(f"the braces of the template {template!r} are not balanced") from None
    except (ValueError, RecursionError):
        raise UsageError(f"the braces of the template {template[:80]!r} are too deep or too large to expand") from None


def count_names(pattern: str) -> int:
    """Count the names to which a pattern expands; braces without a range or comma are literal, but nested ones may not
    be.
    """
    count, depth, start = 1, 0, 0
    commas: list[int] = []
    for match in re.finditer(_BRACE, pattern):
        token, position = match.group(), match.start()
        if token == "{":
            depth += 1
            if depth == 1:
                start, commas = position + 1, []
        elif token == "," and depth == 1:
            commas.append(position)
        elif token == "}":
            depth -= 1
            if depth == 0:
                edges = [start - 1, *commas, position]
                items = [pattern[left + 1 : right] for left, right in pairwise(edges)]
                count *= sum(map(count_names, items)) if commas else _count_range(items[0])
    return count


def _count_range(text: str) -> int:
    from braceexpand import alphabet  # type: ignore[attr-defined]

    match = re.fullmatch(_RANGE, text)
    if match is None or match[1].isalpha() != match[2].isalpha():
        return count_names(text)
    first, last = (alphabet.index(end) if end.isalpha() else int(end) for end in match.group(1, 2))
    return int(abs(last - first) // (int(match[3] or 1) or 1)) + 1


def from_aistore(template: str) -> str:
    """Convert AIStore's template syntax to braces: `p-@00100-s` counts from 0 to 100, with that padding.

    `p-%06d-s` is left for `resolve` to expand with `numbers`. Text with braces is not changed either, because AIStore
    parses braces first (cmn/cos/template.go).
    """
    if "{" in template:
        return template
    return re.sub(_AT, lambda match: f"{{{'0' * len(match[1])}..{match[1]}}}", template)


def is_glob(name: str) -> bool:
    """Whether a name contains glob characters."""
    return any(character in name for character in "*?[")


def is_numbered(name: str) -> bool:
    """Whether a name contains a printf number field, `%d` or `%06d`, which is literal in a name with braces."""
    return "{" not in name and re.search(_NUMBER, name) is not None


def split_template(path: str) -> tuple[str, str]:
    """Split a path or URL at its first component with braces or wildcards: bucket, and template or "".

    `shards/train-{0..9}.tar` becomes `shards` and `train-{0..9}.tar`, unless a file of exactly that name exists. In a
    URL only braces and `*` are wildcards: `?` and `[` may be part of an address.
    """
    address, mark, query = split_query(path)
    plain, wild = (_PLAIN_URL, "{*") if is_remote(path) else (_PLAIN_PATH, "{*?[")
    if not any(character in address for character in f"{wild}@"):
        return path, ""
    match = re.match(plain, address)
    bucket = match[0] if match else address
    template = address[len(bucket) :]
    is_wild = any(character in template for character in wild)
    if not (is_wild or _names_a_set(template, path)) or os.path.lexists(path):
        return path, ""
    return (bucket + mark + query if is_remote(path) else bucket.rstrip("/") or bucket or "."), template


def _names_a_set(template: str, path: str) -> bool:
    """Whether the last component of a path names all shards of a set, as `x@64` does; AIStore uses `@` differently."""
    return not path.startswith("ais") and "@" in template and FileSpec.parse(template) is not None


def number_regex(template: str) -> re.Pattern[str]:
    """Compile a template with one `%d` or `%06d`, the regular expression's only group; the rest is a glob.

    `%06d` matches a number as printf writes it: six digits, or more if it does not begin with 0. `%d` matches any
    digits, so that padded names match, too.

    Raises:
        UsageError: for a character range in reverse order.
    """
    head, width, tail = re.split(_NUMBER, template, maxsplit=1)
    digits = rf"\d{{{width}}}|[1-9]\d{{{width},}}" if width else r"\d+"
    before, behind = (glob_regex(part).pattern.removesuffix(r"\Z") for part in (head, f"0{tail}"))
    return re.compile(rf"{before}({digits}){behind[1:]}\Z", re.ASCII)


def glob_regex(pattern: str) -> re.Pattern[str]:
    """Compile a glob to a regular expression, as in bash: only `**/` matches slashes, in any number of folders.

    A wildcard does not match a leading dot.

    Raises:
        UsageError: for a character range in reverse order, and for a POSIX character class.
    """

    def translate(match: re.Match[str]) -> str:
        token, negated, characters = match.group(0, 1, 2)
        undotted = r"(?!\.)" if match.start() == 0 or pattern[match.start() - 1] == "/" else ""
        if characters:
            if re.search(r"\[[.:=]", characters):
                raise re.error("bad character range: classes such as [:digit:] are not supported")
            characters = re.escape(characters).replace(chr(92) + "-", "-")
            return f"{undotted}[{'^/' if negated else ''}{characters}]"
        folders = r"(?:(?!\.)[^/]+/)*" if undotted else "[^/]*/"
        wildcard = {"**/": folders, "*": f"{undotted}[^/]*", "?": f"{undotted}[^/]"}
        return wildcard.get(token) or re.escape(token)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of set operations in a later Python's expressions
            return re.compile(re.sub(_GLOB_TOKEN, translate, pattern) + r"\Z")
    except re.error as error:
        raise UsageError(f"the template {pattern!r} is not a glob: {error.msg}") from None


def resolve(
    templates: Iterable[str],
    listing: Callable[[str], Iterable[str]],
    exists: Callable[[str], bool],
    *,
    numbers: bool = False,
) -> list[str]:
    """List the objects that match templates: braces expand in bash's order, and the matches of each glob are sorted.

    Args:
        templates: the templates given by the user; if empty, all files named like tars or, without any, like TFRecords.
        listing: returns the names of the bucket's objects that begin with a prefix.
        exists: returns whether an object exists in the bucket.
        numbers: whether `%d` and `%06d` match numbers; such names are sorted by number.

    Raises:
        NothingFoundError: for names and globs without a match; names the first few.
        NoShardsError: when there are no templates, and neither tars nor TFRecords.
    """
    chosen = list(templates)
    if not chosen:
        return _shards(listing(""))
    names: dict[str, None] = {}
    missing: list[str] = []
    for name in (name for template in chosen for name in _names_of(template, exists)):
        matches = [name] if exists(name) else _matches(name, listing, numbers=numbers)
        if not matches:
            missing.append(name)
        names.update(dict.fromkeys(matches))
    if missing:
        hint = "compare the template with the names of the files that are there"
        raise NothingFoundError(f"has no {few([*map(repr, missing)])}", hint=hint)
    return list(names)


def _names_of(template: str, exists: Callable[[str], bool]) -> list[str]:
    """Return the names or globs to which a template expands."""
    spec = FileSpec.parse(template) if "@" in template and not exists(template) else None
    return spec.names() if spec else expand(template)


def _shards(names: Iterable[str]) -> list[str]:
    """Return the sorted names of tars or, without any, of TFRecords."""
    shards: dict[str, list[str]] = {}
    hint = "name the shards with a template"
    for name in names:
        visible = not name.startswith(".") and "/" not in name
        if visible and (named := format_named(name)):
            shards.setdefault(named.name, []).append(name)
        else:
            hint = next((text for suffixes, text in _HINTS_BY_SUFFIX if name.lower().endswith(suffixes)), hint)
    if not shards:
        raise NoShardsError(f"holds no {', and no '.join(one.traits.listed_as for one in formats())}", hint=hint)
    return sorted(next(shards[name] for name in (*(one.name for one in formats()), *shards) if name in shards))


def format_named(name: str) -> ShardFormat | None:
    """Return the shard format for which a name is usual, although only a file's content is decisive."""
    for known in (formats, plugin_formats):
        for one in known():
            if one.is_named(name):
                return one
    return None


def _matches(name: str, listing: Callable[[str], Iterable[str]], *, numbers: bool) -> list[str]:
    """Return the objects that match a name with `%d` or a glob, in order; none for any other name."""
    if numbers and is_numbered(name):
        numbered = filter(None, map(number_regex(name).match, listing(re.split(r"[*?\[%]", name)[0])))
        return [match.string for match in sorted(numbered, key=lambda match: (int(match[1]), match.string))]
    if name == "*":
        return sorted(path for path in listing("") if not path.startswith(".") and "/" not in path)
    if is_glob(name):
        return sorted(filter(glob_regex(name).match, listing(re.split(r"[*?\[]", name)[0])))
    return []


STDOUT: Final = "-"

DEFAULT_SHARD_SIZE: Final = 256 * 1024 * 1024
"""The default limit in bytes for a numbered template."""

_UNSUPPORTED_COMPRESSION: Final = r"(\.tar)?\.(t?bz2|tbz|t?xz|t?lz4|t?zst|t?lzma|z|zip)\Z"

_FIELD: Final = re.compile(r"<([^<>/]*)>|\{\}")
_NAMED: Final = ("total", "split", "input")
_COUNTED: Final = r"%0?(\d*)d|\{(\d+)\.\.\d+\}|\{\w*:0?(\d*)d?\}"


@lru_cache(maxsize=8)
def _divided(text: str) -> Sequence[str]:
    """Split a template into texts and field names, alternating and beginning with a text."""
    return [part or "" for part in _FIELD.split(text)]


class PathTemplate(NamedTuple):
    """A parsed template of output paths.

    Attributes:
        text: the template, with a number field added if a limit requires one.
        start: the first shard's number; None when there is no number field.
        width: the number of digits to which numbers are padded.
        fields: the names of the template's fields: "number", "total", "split" and "input".
    """

    text: str
    start: int | None
    width: int
    fields: frozenset[str]

    @classmethod
    def parse(cls, text: str, *, numbered: bool = False) -> PathTemplate:
        """Parse a template; with `numbered`, a plain `train.record` means `train-<00000>.record`.

        Raises:
            UsageError: for an unknown field, two number fields, or a path without a file name.
        """
        if os.path.basename(text) in ("", ".", "..") or "\0" in text:
            hint = f"add one, such as {os.path.join(text or 'out', 'train-<>.record')!r}"
            raise UsageError(f"the output path {text!r} has no file name", hint=hint)
        names = [match.group(1) or "" for match in _FIELD.finditer(text)]
        numbers = [name for name in names if name not in _NAMED]
        for name in numbers:
            if name and not name.isdecimal():
                near = did_you_mean(f"<{name}>", [f"<{known}>" for known in _NAMED])
                raise UsageError(f"the output path {text!r} has a field <{name}> that does not exist{near}")
        if len(numbers) > 1:
            raise UsageError(f"the output path {text!r} has {len(numbers)} number fields, but may have only one")
        if not numbers and numbered and text != STDOUT:
            head, _ = os.path.splitext(_without_compression(text))
            return cls.parse(f"{head}-<00000>{text[len(head) :]}")
        start = None if not numbers else int(numbers[0]) if numbers[0] else 1
        fields = {name for name in names if name in _NAMED} | ({"number"} if numbers else set())
        return cls(text, start, len(numbers[0]) if numbers else 0, frozenset(fields))

    @staticmethod
    def check(text: str) -> None:
        """Check that a path has no number field in the syntax of printf, Python or a shell.

        Raises:
            UsageError: for `%05d`, `{:05d}` or `{0000..0146}`, which would be part of the name; suggests the right
                syntax.
        """
        if ("%" in text or "{" in text) and (match := re.search(_COUNTED, text)):
            number = match[2] or "0".zfill(int(match[1] or match[3] or 1))
            hint = f"write {text.replace(match[0], f'<{number}>')!r}"
            raise UsageError(f"the output path {text!r} has {match[0]} for the shard's number", hint=hint)

    def path(self, shard: int, *, total: int | None = None, split: str = "", stem: str = "") -> str:
        """Return a shard's path by its number, from 0; `total` is required if the template has that field."""
        number = str(shard + (self.start or 0)).zfill(self.width)
        shards = "<total>" if total is None else str(total).zfill(self.width)
        named = {"split": split, "input": stem, "total": shards}
        parts = [*_divided(self.text)]
        parts[1::2] = [named.get(name, number) for name in parts[1::2]]
        return "".join(parts)

    def manifest(self) -> str:
        """The manifest's path, such as `out/_train-manifest.json`.

        Spark, Ray and Hadoop skip files whose names begin with `_` or `.`, so that they can read a folder of shards as
        a dataset.
        """
        folder, slash, base = self.earlier_manifest().rpartition("/")
        return f"{folder}{slash}_{base}"

    def earlier_manifest(self) -> str:
        """The manifest's path in outputs of earlier versions, such as `out/train-manifest.json`.

        The text from the first field to the last is replaced by `manifest`, and the suffix, including `.gz` or `.zst`,
        by `.json`. Folders with a field in their name are left out, so that the folder of the manifest contains all
        shards.
        """
        folder, slash, base = self.text.rpartition("/")
        while _FIELD.search(folder):
            folder, slash, _ = folder.rpartition("/")
        base = _without_compression(base)
        fields = list(_FIELD.finditer(base))
        if not fields:
            return f"{folder}{slash}{base.rpartition('.')[0] or base}-manifest.json"
        head, rest = base[: fields[0].start()], base[fields[-1].end() :]
        return f"{folder}{slash}{head}manifest{rest.rpartition('.')[0] if '.' in rest else rest}.json"

    def own_manifest(self) -> str:
        """The path of a manifest unique to the template, such as `_train-N.record-manifest.json`."""
        folder, slash, _ = self.manifest().rpartition("/")
        base = self.text.removeprefix(folder + slash)
        base = _FIELD.sub(lambda field: field[1] if field[1] in _NAMED else "N", base).replace("/", "-")
        return f"{folder}{slash}_{base}-manifest.json"

    def is_found_by_tfds(self) -> bool:
        """Whether the template gives shards names by which TensorFlow Datasets finds them."""
        return "input" not in self.fields and (self.start is None or (self.start, self.width) == (0, 5))

    def document_path(self, name: str) -> str:
        """Return the path of another document next to the manifest: `labels.json` becomes `_train-labels.json`.

        A table of examples has no underscore, as TFRecorder's programs look for `examples.csv`.
        """
        stem, _, suffix = name.partition(".")
        head, _, tail = (self.manifest() if suffix == "json" else self.earlier_manifest()).rpartition("manifest")
        return f"{head}{stem}{tail.removesuffix('.json')}.{suffix}"

    def regex(self) -> re.Pattern[str]:
        """A regular expression that matches every path of the template."""
        parts = _FIELD.split(self.text)  # literal text and names of fields in turn
        parts[::2] = map(re.escape, parts[::2])
        parts[1::2] = ["[^/]+" if name in ("split", "input") else r"\d+" for name in parts[1::2]]
        return re.compile("".join(parts) + r"\Z")


def hidden_name(manifest: str, suffix: str) -> str:
    """Return the name of a hidden file or folder that belongs to the manifest with a given base name."""
    return f".{manifest.removesuffix('.json').removeprefix('_')}{suffix}"


def output_format(path: str) -> str:
    """Return the name of the format of an output path, by its longest known suffix."""
    suffix = _output_suffix(path)
    return suffix.format if suffix else DEFAULT_FORMAT


class _Suffix(NamedTuple):
    text: str
    format: str
    compression: str


def _output_suffix(path: str) -> _Suffix | None:
    """Return the longest known suffix of an output path."""
    for known in (formats, plugin_formats):
        suffixes = [_Suffix(text, one.name, how) for one in known() for text, how in one.traits.suffixes.items()]
        if fitting := [suffix for suffix in suffixes if path.lower().endswith(suffix.text)]:
            return max(fitting, key=lambda suffix: len(suffix.text))
    return None


def named_compression(path: str) -> str | None:
    """Return the compression that an output path's suffix implies; None if the suffix implies none.

    Raises:
        UsageError: for a suffix of a compression that tar2tf does not write.
    """
    name = path.lower()
    named = _output_suffix(path)
    if not named and (unwritten := re.search(_UNSUPPORTED_COMPRESSION, name)):
        tar = unwritten[1] or unwritten[2].startswith("t")
        hint = "use .tar, .tar.gz or .tar.zst" if tar else "use .record, or .record.gz for gzip"
        raise UsageError(f"cannot write {unwritten[0]}", hint=hint)
    return named.compression if named else None


def _without_compression(name: str) -> str:
    """Return a name without its compression suffix."""
    for suffix in (".gz", ".zst"):
        name = name.removesuffix(suffix) or name
    return name


def check_replaceable(path: str) -> None:
    """Raise an error if the path is a device or a pipe, which not even `--overwrite` replaces.

    Raises:
        OutputExistsError: when the path is one.
    """
    if is_stream(path):
        raise OutputExistsError("is a device or pipe, which cannot be replaced", shard=path, hint="choose another path")
