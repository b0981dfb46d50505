"""Templates of object names: bash braces and globs in, names out; one rule for every kind of bucket."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from tar2tf_cli.errors import SourceError, UsageError

__all__ = ["MAX_NAMES", "SHARD_TEMPLATES", "expand", "glob_regex", "is_glob", "resolve"]

SHARD_TEMPLATES: Final = ("*.tar", "*.tar.gz", "*.tgz")
"""What a bucket is searched for when no template is given."""

MAX_NAMES: Final = 1_000_000
"""Most names a brace template may stand for."""

_GLOB_TOKEN: Final = re.compile(r"\*\*/|\[(!?)([^]]+)\]|.", re.DOTALL)
_RANGE: Final = re.compile(r"\{(-?\d+)\.\.(-?\d+)(?:\.\.-?(\d+))?\}")


def expand(template: str) -> list[str]:
    """The names or globs that a template's braces stand for, in bash's order.

    Raises:
        UsageError: when the braces do not balance, or stand for more than `MAX_NAMES` names.
    """
    if "{" not in template:
        return [template]
    from braceexpand import UnbalancedBracesError, braceexpand  # type: ignore[attr-defined]

    too_many = UsageError(
        f"the template {template!r} stands for more than {MAX_NAMES:,} names", hint="use a narrower range or a glob"
    )
    for first, last, step in _RANGE.findall(template):
        if abs(int(last) - int(first)) // (int(step or 1) or 1) >= MAX_NAMES:
            raise too_many
    try:
        names = list(islice(braceexpand(template), MAX_NAMES + 1))
    except UnbalancedBracesError:
        raise UsageError(f"the braces of the template {template!r} do not balance") from None
    if len(names) > MAX_NAMES:
        raise too_many
    return names


def is_glob(name: str) -> bool:
    """Whether a name holds glob characters."""
    return any(character in name for character in "*?[")


def glob_regex(pattern: str) -> re.Pattern[str]:
    """The regular expression of a glob in which `*` and `?` stop at a slash and `**/` is any number of folders."""

    def translate(match: re.Match[str]) -> str:
        token, negated, characters = match.group(0, 1, 2)
        if characters:
            return f"[{'^' if negated else ''}{re.escape(characters).replace(chr(92) + '-', '-')}]"
        return {"**/": "(?:[^/]+/)*", "*": "[^/]*", "?": "[^/]"}.get(token) or re.escape(token)

    return re.compile(_GLOB_TOKEN.sub(translate, pattern) + r"\Z")


def resolve(
    templates: Iterable[str], listing: Callable[[str], Iterable[str]], exists: Callable[[str], bool]
) -> list[str]:
    """Names of the objects that templates stand for: braces in bash's order, each glob's matches sorted.

    Args:
        templates: as the user gave them; none stands for `SHARD_TEMPLATES`.
        listing: names of the bucket's objects that begin with a prefix.
        exists: whether the bucket has an object of a name.

    Raises:
        SourceError: for names and globs that nothing answers to, the first few named.
    """
    chosen = list(templates)
    if not chosen:
        regexes = [glob_regex(template) for template in SHARD_TEMPLATES]
        names = sorted(name for name in listing("") if any(regex.match(name) for regex in regexes))
        if not names:
            raise SourceError(f"holds no {', '.join(SHARD_TEMPLATES)}", hint="name the shards with a template")
        return names
    found: dict[str, None] = {}
    missing: list[str] = []
    for name in (name for template in chosen for name in expand(template)):
        if not is_glob(name) or exists(name):
            matches = [name] if exists(name) else []
        else:
            regex = glob_regex(name)
            matches = sorted(filter(regex.match, listing(re.split(r"[*?\[]", name)[0])))
        if not matches:
            missing.append(name)
        found.update(dict.fromkeys(matches))
    if missing:
        more = f" and {len(missing) - 3:,} more" if len(missing) > 3 else ""
        raise SourceError(
            f"has no {', '.join(missing[:3])}{more}", hint="check the template against the bucket's listing"
        )
    return list(found)
