r"""Key list files: one key per line, read by `--keys` and written by `inspect --keys`, `verify` and `diff`.

A line that begins with a backslash is escaped, as in the lists of sha256sum: \n is a newline, \r a carriage return, and
two backslashes are one. Keys are escaped only if a plain line could not hold them: a newline anywhere, a carriage
return at the end, a backslash or a byte order mark at the beginning, and the empty key.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from typing import Final

from tar2tf_cli.errors import write_errors

_ESCAPE: Final = b"\\"
_ESCAPED: Final = {b"n": b"\n", b"r": b"\r", b"\\": b"\\"}


def key_line(key: str) -> bytes:
    """Return a key's line in a key list, with its newline."""
    data = key.encode("utf-8", "surrogateescape")
    if not data or b"\n" in data or data.endswith(b"\r") or data.startswith((_ESCAPE, codecs.BOM_UTF8)):
        data = _ESCAPE + data.replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b"\r", b"\\r")
    return data + b"\n"


def has_escapes(block: bytes) -> bool:
    """Whether a block of lines may have escaped ones."""
    return block.startswith(_ESCAPE) or b"\n\\" in block


def keys_in(block: bytes) -> Iterator[bytes]:
    """Iterate over the keys in a block of lines; empty lines are skipped."""
    for line in block.split(b"\n"):
        key = line.rstrip(b"\r")
        if key.startswith(_ESCAPE):
            yield re.sub(rb"\\(.)", lambda match: _ESCAPED.get(match[1], match[0]), key[1:])
        elif key:
            yield key


def write_keys(path: str, keys: Iterable[str]) -> int:
    """Write keys to a key list file, and return their number.

    Raises:
        SinkError: when the file cannot be written.
    """
    number = 0
    with write_errors(path), open(path, "wb") as file:
        for key in keys:
            file.write(key_line(key))
            number += 1
    return number
