"""Path templates of output shards: `train-<>.record`, `<00000>-of-<total>`, `<split>`, `<input>`."""

from __future__ import annotations

import os
import re
from typing import Final, NamedTuple

from tar2tf_cli.errors import OutputExistsError, UsageError, meant
from tar2tf_cli.formats.files import is_stream

STDOUT: Final = "-"

DEFAULT_SHARD_SIZE: Final = 256 * 1024 * 1024
"""The default limit in bytes for a numbered template."""

_FIELD: Final = re.compile(r"<([^<>/]*)>|\{\}")
_NAMED: Final = ("total", "split", "input")
_COUNTED: Final = re.compile(r"%0?(\d*)d|\{(\d+)\.\.\d+\}")


class PathTemplate(NamedTuple):
    """A parsed template.

    Attributes:
        text: the template, with a number field added if a limit requires one.
        start: the first shard's number; None when there is no number field.
        width: number of digits that a number is padded to.
        fields: the names of its fields: "number", "total", "split" and "input".
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
                near = meant(f"<{name}>", [f"<{known}>" for known in _NAMED])
                raise UsageError(f"the output path {text!r} has a field <{name}> that does not exist{near}")
        if len(numbers) > 1:
            raise UsageError(f"the output path {text!r} has {len(numbers)} number fields, but may have only one")
        if not numbers and numbered and text != STDOUT:
            head, suffix = os.path.splitext(text)
            return cls.parse(f"{head}-<00000>{suffix}")
        start = None if not numbers else int(numbers[0]) if numbers[0] else 1
        fields = {name for name in names if name in _NAMED} | ({"number"} if numbers else set())
        return cls(text, start, len(numbers[0]) if numbers else 0, frozenset(fields))

    @staticmethod
    def check(text: str) -> None:
        """Check that a path does not count in the way of printf, as webdataset's ShardWriter does, or of a shell.

        Raises:
            UsageError: for `%05d` or `{0000..0146}`, which would be part of the name; it says what to write.
        """
        if match := _COUNTED.search(text):
            number = match[2] or "0".zfill(int(match[1] or 1))
            hint = f"write {text.replace(match[0], f'<{number}>')!r}"
            raise UsageError(f"the output path {text!r} has {match[0]} for the shard's number", hint=hint)

    def path(self, shard: int, *, total: int | None = None, split: str = "", stem: str = "") -> str:
        """Return a shard's path by its number, from 0; `total` is required if the template has that field."""
        number = str(shard + (self.start or 0)).zfill(self.width)
        shards = "<total>" if total is None else str(total).zfill(self.width)
        named = {"split": split, "input": stem, "total": shards}
        return _FIELD.sub(lambda field: named.get(field[1], number), self.text)

    def manifest(self) -> str:
        """The manifest's path: everything from the first field to the last becomes `manifest`, and the suffix `.json`.

        A `.gz` is part of the suffix. Folders with a field in their name are skipped, so that there is one manifest
        above all shards.
        """
        folder, slash, base = self.text.rpartition("/")
        while _FIELD.search(folder):
            folder, slash, _ = folder.rpartition("/")
        base = base.removesuffix(".gz") or base
        fields = list(_FIELD.finditer(base))
        if not fields:
            return f"{folder}{slash}{base.rpartition('.')[0] or base}-manifest.json"
        head, rest = base[: fields[0].start()], base[fields[-1].end() :]
        return f"{folder}{slash}{head}manifest{rest.rpartition('.')[0] if '.' in rest else rest}.json"

    def own_manifest(self) -> str:
        """The path of a manifest that no other template has, such as `train-N.record-manifest.json`."""
        folder, slash, _ = self.manifest().rpartition("/")
        base = self.text.removeprefix(folder + slash)
        base = _FIELD.sub(lambda field: field[1] if field[1] in _NAMED else "N", base).replace("/", "-")
        return f"{folder}{slash}{base}-manifest.json"

    def beside(self, name: str) -> str:
        """Return the path of another document beside the manifest: `labels.json` becomes `train-labels.json`."""
        stem, _, suffix = name.partition(".")
        head, _, tail = self.manifest().rpartition("manifest")
        return f"{head}{stem}{tail.removesuffix('.json')}.{suffix}"

    def regex(self) -> re.Pattern[str]:
        """A regular expression that matches every path of the template."""
        parts = _FIELD.split(self.text)  # literal text and names of fields in turn
        parts[::2] = map(re.escape, parts[::2])
        parts[1::2] = ["[^/]+" if name in ("split", "input") else r"\d+" for name in parts[1::2]]
        return re.compile("".join(parts) + r"\Z")


def check_replaceable(path: str) -> None:
    """Refuse what nothing may replace, not even with `--overwrite`.

    Raises:
        OutputExistsError: when there is a device or a pipe.
    """
    if is_stream(path):
        raise OutputExistsError("is a device or pipe, which is not replaced", shard=path, hint="choose another path")
