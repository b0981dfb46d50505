"""What the kernel does with plain members of a tar, in Python: many samples to records in one loop.

It works where the extension was not built, and stops where a member is not plain, so that every rule has its full form
only once: headers in formats/tar.py, keys in samples/grouping.py.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from tar2tf_cli.formats.example import Encoder
from tar2tf_cli.formats.tar_header import BLOCK, pax_records, size_in
from tar2tf_cli.formats.tfrecord import FRAMING, frame
from tar2tf_cli.samples.names import KEY, KeySplit, split_name

__all__ = ["PlainSamples"]

_MOST_BYTES: Final = 1 << 15  # of a sample; with larger ones, there is little to gain
_REGULAR: Final = ord("0")
_EXTENDED: Final = ord("x")
_TIMES: Final = {"atime", "ctime", "mtime"}


class _Stop(Exception):
    """The next member is not plain, as far as it is buffered.

    Attributes:
        short: whether more bytes may show that it is.
    """

    def __init__(self, *, short: bool) -> None:
        self.short = short


class PlainSamples:
    """Makes records of plain samples; keeps what repeats in them."""

    def __init__(self) -> None:
        self._encode = Encoder().encode

    def records(self, data: bytes, position: int, last_dot: bool, differs: bool, previous: bytes) -> Any:
        """Make the framed records of the whole samples from a tar header on, as long as they are plain.

        Args:
            data: what is buffered of a tar.
            position: where the header is.
            last_dot: the key rule: whether a name is split at the last dot instead of the first.
            differs: whether names may be split in which the two rules differ.
            previous: the name of the member before.

        Returns:
            The arguments of a `Batch`; None if the header may belong to the same sample as `previous`; or else, without
            any record, whether more bytes are needed to tell.
        """
        encode, made, ascending = self._encode, list[bytes](), True
        sizes, hashes, signatures = array("Q"), array("q"), Counter[tuple[str, ...]]()
        sample: dict[str, bytes] = {}
        last: dict[str, bytes] = {}
        first = before = current = ""
        begin = offset = end = total = 0
        try:
            for key, name, at, start, stop in _members(data, position, "last" if last_dot else "first", differs):
                if key != current:
                    if sample:
                        parts, size = encode(sample)
                        made += frame(parts, size)
                        sizes.append(size + FRAMING)
                        hashes.append(hash(current))
                        signatures[tuple(sample)] += 1
                        ascending = ascending and before < current
                        first, before, last = first or current, current, sample
                        offset, end = begin, at
                    elif previous.startswith(f"{key}.".encode()):
                        return None
                    current, begin, total, sample = key, at, 0, {KEY: key.encode()}
                total += stop - start
                if name in sample or total > _MOST_BYTES:
                    raise _Stop(short=False)
                sample[name] = data[start:stop]
        except _Stop as found:
            if not made:
                return found.short
        names = [("\0".join([*names, ""])[len(KEY) + 1 :].encode(), count) for names, count in signatures.items()]
        kind = list(signatures).index(tuple(last))
        arrays = (b"".join(made), sizes.tobytes(), hashes.tobytes())
        return (*arrays, first, before, ascending, names, kind, offset, end)


def _members(data: bytes, at: int, rule: KeySplit, differs: bool) -> Iterator[tuple[str, str, int, int, int]]:
    """Key and extension of each member, the offset of its first header, and where its data begin and end.

    Raises:
        _Stop: at the first one that is not plain, or not buffered.
    """
    key, prefix, known = "", "\0", dict[str, str]()
    while True:
        begin, header = at, data[at : at + BLOCK]
        if len(header) < BLOCK:
            raise _Stop(short=True)
        if not header[0]:  # the end of the archive, whose checksum would be added up
            raise _Stop(short=False)
        try:
            size = size_in(header)
            if header[156] == _EXTENDED:
                at = _behind_times(data, at + BLOCK, size)
                header = data[at : at + BLOCK]
                size = size_in(header)
            length = header.find(0)
            if header[156] != _REGULAR or header[345] or not 0 < length < 100 or size > _MOST_BYTES:
                raise _Stop(short=False)
            name = header[:length].decode()
        except ValueError:  # no header, or a name that is not UTF-8
            raise _Stop(short=False) from None
        start = at + BLOCK
        at = start + size + (-size & 511)
        if at > len(data):
            raise _Stop(short=True)
        if not (name.startswith(prefix) and (extension := known.get(name[len(prefix) :], ""))):
            if "._" in name or "__meta__" in name:
                raise _Stop(short=False)
            key, extension = split_name(name, rule)
            prefix = f"{key}."
            if extension not in known or rule == "last":
                dots = "." in extension or "." in key[key.rfind("/") + 1 :]
                if not key or (dots and not differs):
                    raise _Stop(short=False)
                if name.endswith(extension) and not dots:
                    known[extension] = extension
        yield key, extension, begin, start, start + size


def _behind_times(data: bytes, at: int, size: int) -> int:
    """The end of an extended header that adds only times, and is followed by a whole header."""
    if size > BLOCK:
        raise _Stop(short=False)
    if len(data) < at + 2 * BLOCK:
        raise _Stop(short=True)
    if not pax_records(data[at : at + size]).keys() <= _TIMES:
        raise _Stop(short=False)
    return at + (size and BLOCK)
