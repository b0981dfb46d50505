"""Templates of object names: bash braces and globs in, names out, by the same rules for every kind of bucket."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Final

from tar2tf_cli.errors import NoShardsError, NothingFoundError, UsageError, few
from tar2tf_cli.spec.urls import is_remote

TAR_SUFFIXES: Final = (".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tar.xz")
SHARD_TEMPLATES: Final = tuple(f"*{suffix}" for suffix in TAR_SUFFIXES)
"""The default templates."""

MAX_NAMES: Final = 1_000_000
"""The most names that a brace template may expand to."""

_ELSE: Final = (
    (
        (".jpg", ".jpeg", ".png", ".bmp"),
        "it holds images: add --from imagefolder where it has a folder for each class",
    ),
    ((".zip",), "it holds zip files: unzip them, and make tars of what they hold"),
    (
        (".record", ".tfrecord", ".tfrecords"),
        "it holds TFRecord, which convert makes; inspect and verify read it",
    ),
)
"""What a bucket without tars may hold, by suffixes of names, and what to do then."""

_GLOB_TOKEN: Final = re.compile(r"\*\*/|\[([!^]?)(\]?[^]/]*)\]|.", re.DOTALL)
_PLAIN_PATH: Final = re.compile(r"(?:[^*?\[{/]*/)*")
_PLAIN_URL: Final = re.compile(r"\w[\w+]*://[^/]*/(?:[^*{/]*/)*")
_AT: Final = re.compile(r"@(\d+)")
_NUMBER: Final = re.compile(r"%(?:0(\d+))?d")
_RANGE: Final = re.compile(r"(-?\d+|[A-Za-z])\.\.(-?\d+|[A-Za-z])(?:\.\.-?(\d+))?")
_BRACE: Final = re.compile(r"\\.|[{},]", re.DOTALL)


def expand(template: str) -> list[str]:
    """Expand a template's braces to names or globs, in bash's order.

    Raises:
        UsageError: when the braces are not balanced, or expand to more than `MAX_NAMES` names.
    """
    if "{" not in template:
        return [template]
    from braceexpand import UnbalancedBracesError, braceexpand  # type: ignore[attr-defined]

    try:
        count = _count(template)
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


def _count(pattern: str) -> int:
    """Count the names a pattern expands to; braces without a range or comma are literal, but not those inside."""
    count, depth, start = 1, 0, 0
    commas: list[int] = []
    for match in _BRACE.finditer(pattern):
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
                count *= sum(map(_count, items)) if commas else _count_range(items[0])
    return count


def _count_range(text: str) -> int:
    from braceexpand import alphabet  # type: ignore[attr-defined]

    match = _RANGE.fullmatch(text)
    if match is None or match[1].isalpha() != match[2].isalpha():
        return _count(text)
    first, last = (alphabet.index(end) if end.isalpha() else int(end) for end in match.group(1, 2))
    return int(abs(last - first) // (int(match[3] or 1) or 1)) + 1


def from_aistore(template: str) -> str:
    """Convert AIStore's template syntax to braces: `p-@00100-s` counts from 0 to 100, with that padding.

    `p-%06d-s` is left for `resolve` to expand with `numbers`. Text with braces is not changed either, as the cluster
    reads braces first (AIStore, cmn/cos/template.go).
    """
    if "{" in template:
        return template
    return _AT.sub(lambda match: f"{{{'0' * len(match[1])}..{match[1]}}}", template)


def is_glob(name: str) -> bool:
    """Whether a name contains glob characters."""
    return any(character in name for character in "*?[")


def is_numbered(name: str) -> bool:
    """Whether a name contains a number field of C's printf, `%d` or `%06d`; in a name with braces that is literal."""
    return "{" not in name and _NUMBER.search(name) is not None


def split_template(path: str) -> tuple[str, str]:
    """Split a path or URL at its first component with braces or wildcards: bucket, and template or "".

    `shards/train-{0..9}.tar` is `train-{0..9}.tar` in `shards`, unless there is a file of that very name. In a URL
    only braces and `*` count: the others may be part of an address.
    """
    address, mark, query = path.partition("?") if path.startswith(("http://", "https://")) else (path, "", "")
    plain, wild = (_PLAIN_URL, "{*") if is_remote(path) else (_PLAIN_PATH, "{*?[")
    match = plain.match(address)
    bucket = match[0] if match else address
    template = address[len(bucket) :]
    if not any(character in template for character in wild) or os.path.lexists(path):
        return path, ""
    return (bucket + mark + query if is_remote(path) else bucket.rstrip("/") or bucket or "."), template


def number_regex(template: str) -> re.Pattern[str]:
    """Compile a template with one `%d` or `%06d`, the regular expression's only group; the rest is a glob.

    `%06d` is what printf writes for a number: six digits, or more if it does not begin with 0. `%d` is any digits, so
    that padded names match as well.

    Raises:
        UsageError: for a character range in reverse order.
    """
    head, width, tail = _NUMBER.split(template, maxsplit=1)
    digits = rf"\d{{{width}}}|[1-9]\d{{{width},}}" if width else r"\d+"
    before, behind = (glob_regex(part).pattern.removesuffix(r"\Z") for part in (head, f"0{tail}"))
    return re.compile(rf"{before}({digits}){behind[1:]}\Z", re.ASCII)


def glob_regex(pattern: str) -> re.Pattern[str]:
    """Compile a glob to a regular expression, as in bash: `**/` is any number of folders, all else stops at a slash.

    A wildcard does not match a leading dot.

    Raises:
        UsageError: for a character range in reverse order, and for a class of POSIX.
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
            warnings.simplefilter("ignore", FutureWarning)  # of set operations that Python may have one day
            return re.compile(_GLOB_TOKEN.sub(translate, pattern) + r"\Z")
    except re.error as error:
        raise UsageError(f"the template {pattern!r} is not a glob: {error.msg}") from None


def resolve(
    templates: Iterable[str],
    listing: Callable[[str], Iterable[str]],
    exists: Callable[[str], bool],
    *,
    numbers: bool = False,
) -> list[str]:
    """List the objects that match templates: braces in bash's order, each glob's matches sorted.

    Args:
        templates: as the user gave them; `SHARD_TEMPLATES` if empty.
        listing: returns the names of the bucket's objects that begin with a prefix.
        exists: returns whether an object exists in the bucket.
        numbers: whether `%d` and `%06d` match numbers; such names are sorted by number.

    Raises:
        NothingFoundError: for names and globs without a match; names the first few.
        NoShardsError: when there are no templates, and no tars.
    """
    chosen = list(templates)
    if not chosen:
        return _tars(listing(""))
    found: dict[str, None] = {}
    missing: list[str] = []
    for name in (name for template in chosen for name in expand(template)):
        matches = [name] if exists(name) else _matches(name, listing, numbers=numbers)
        if not matches:
            missing.append(name)
        found.update(dict.fromkeys(matches))
    if missing:
        hint = "compare the template with the names of the files that are there"
        raise NothingFoundError(f"has no {few(missing)}", hint=hint)
    return list(found)


def _tars(names: Iterable[str]) -> list[str]:
    """Return the names that the default templates match, sorted."""
    tars = []
    hint = "name the shards with a template"
    for name in names:
        if name.endswith(TAR_SUFFIXES) and not name.startswith(".") and "/" not in name:
            tars.append(name)
        else:
            hint = next((text for suffixes, text in _ELSE if name.lower().endswith(suffixes)), hint)
    if not tars:
        raise NoShardsError(f"holds no {', '.join(SHARD_TEMPLATES)}", hint=hint)
    return sorted(tars)


def _matches(name: str, listing: Callable[[str], Iterable[str]], *, numbers: bool) -> list[str]:
    """Return the objects that match a name with `%d` or a glob, in order; none for any other name."""
    if numbers and is_numbered(name):
        numbered = filter(None, map(number_regex(name).match, listing(re.split(r"[*?\[%]", name)[0])))
        return [match.string for match in sorted(numbered, key=lambda match: (int(match[1]), match.string))]
    if is_glob(name):
        return sorted(filter(glob_regex(name).match, listing(re.split(r"[*?\[]", name)[0])))
    return []
