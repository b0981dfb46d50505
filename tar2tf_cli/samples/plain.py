"""Plain members of a tar to batches of records: many samples in one loop, in C or, without the kernel, in Python.

Either loop stops where a member is not plain, so that every rule has its full form only once: headers in
formats/tar.py, keys in samples/grouping.py.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any, Final, TypeAlias

from tar2tf_cli.formats import kernel
from tar2tf_cli.formats.example import Encoder
from tar2tf_cli.formats.tar import BLOCK, TarReader, pax_records, size_in
from tar2tf_cli.formats.tfrecord import FRAMING, frame, header_of, stored_crc
from tar2tf_cli.samples.grouping import Batch, Grouper
from tar2tf_cli.samples.names import KEY, split_name

_MOST_PAUSE: Final = 256

_MOST_BYTES: Final = 1 << 15  # of a sample; with larger ones, there is little to gain
_MOST_SHAPES: Final = 1024
_NAME: Final = 100
_REGULAR: Final = ord("0")
_EXTENDED: Final = ord("x")
_TIMES: Final = {"atime", "ctime", "mtime"}
_usual_name: Final = re.compile(rb"((?:\./)?[^.\0]*[^./\0])\.([^._/\0][^./\0]*)\0").match

Shape: TypeAlias = "tuple[Any, ...]"
"""The length of a key in bytes, then the name and size of each entry."""


def with_batches(tar: TarReader, grouper: Grouper) -> Iterator[tuple[str, Any, int, int]]:
    """Iterate over the members of a tar, or over batches of them, each as the data of a member without a name.

    While members are not plain, batches are tried again, but less and less often.
    """
    records = (kernel.native() or PlainSamples()).records
    members, name, pause, last_dot = iter(tar), "", 1, grouper.key_split == "last"
    made: Any = False
    while True:
        while grouper.takes_batches():
            data, position = tar.buffered
            previous = name.encode("utf-8", "surrogateescape")
            made = records(data, position, last_dot, grouper.split_differs is not None, previous)
            if made is True and tar.read_ahead():
                continue
            if type(made) is not tuple:
                break
            batch = Batch(*made)
            start = tar.offset - position
            batch.offset += start
            yield "", batch, 0, start + batch.end
            if not batch.taken:
                break
            tar.go_on(batch.end)
            name, pause = "", 1
        name = ""
        for member in islice(members, 1 if made is None else pause):
            yield member
            name = member[0]
        if not name:
            return
        pause = pause if made is None else min(2 * pause, _MOST_PAUSE)


class _Stop(Exception):
    """The next member is not plain, as far as it is buffered.

    Attributes:
        answer: what `records` returns if it has made none.
    """

    def __init__(self, answer: bool | None) -> None:
        self.answer = answer


class PlainSamples:
    """Makes records of plain samples; keeps what repeats in them."""

    def __init__(self) -> None:
        self._forms: dict[Shape, _Form] = {}
        self._any: dict[tuple[str, ...], _AnyForm] = {}
        self._met: set[Shape] = set()
        self._encoder = Encoder()

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
        known, rule = self._forms, "last" if last_dot else "first"
        made, keys, forms = list[bytes](), list[str](), list[_Form | _AnyForm]()
        sizes, begin, end = array("Q"), 0, 0
        try:
            for shape, values, start, stop in _samples(data, position, rule, differs, previous):
                form = known.get(shape) or self._form(shape)
                keys.append(values[0].decode())
                made += form.framed(values)
                sizes.append(form.size)
                forms.append(form)
                begin, end = start, stop
        except _Stop as found:
            if not made:
                return found.answer
        ascending = sorted(keys) == keys  # none twice, as neighbours are of different samples
        counts = Counter(form.names for form in forms)
        signatures = [("".join(f"{name}\0" for name in names[1:]).encode(), count) for names, count in counts.items()]
        kind = [*counts].index(forms[-1].names)
        arrays = (b"".join(made), sizes.tobytes(), array("q", map(hash, keys)).tobytes())
        return (*arrays, keys[0], keys[-1], ascending, signatures, kind, begin, end)

    def _form(self, shape: Shape) -> _Form | _AnyForm:
        """Return a form for a shape that has none of its own; it gets one the second time that it comes.

        Raises:
            _Stop: when two entries have the same name.
        """
        names = shape[1::2]
        form = self._any.get(names) or self._any_form(names)
        if len(self._met) >= _MOST_SHAPES:
            self._met.clear()
            self._forms.clear()
        if shape in self._met:
            self._forms[shape] = _Form(form.names, (shape[0], *shape[2::2]), self._encoder)
        self._met.add(shape)
        return form

    def _any_form(self, names: tuple[str, ...]) -> _AnyForm:
        if len({*names}) < len(names):
            raise _Stop(False)
        if len(self._any) >= _MOST_SHAPES:
            self._any.clear()
        form = self._any[names] = _AnyForm((KEY, *names), self._encoder)
        return form


class _Form:
    """How records are made of a key and entries with these names and lengths.

    Attributes:
        names: of the key and the entries, in the order in which they come.
        size: of a framed record in bytes.
    """

    __slots__ = ("_header", "_order", "_parts", "names", "size")

    def __init__(self, names: tuple[str, ...], lengths: Iterable[int], encoder: Encoder) -> None:
        blanks: dict[str, Any] = {name: range(length) for name, length in zip(names, lengths, strict=True)}
        parts, size = encoder.encode(blanks)  # from the third on, every second one is a value
        self._parts: list[Any] = parts
        self._order = itemgetter(*sorted(range(len(names)), key=names.__getitem__))
        self._header = header_of(size)
        self.names = names
        self.size = size + FRAMING

    def framed(self, values: Sequence[bytes]) -> Iterable[bytes]:
        """The parts of the record of a key and the data of its entries."""
        parts = self._parts.copy()
        parts[2::2] = self._order(values)
        message = b"".join(parts)
        return self._header, message, stored_crc(message)


class _AnyForm:
    """The same for entries of any length.

    Attributes:
        names: of the key and the entries.
        size: of the last record.
    """

    __slots__ = ("_encoder", "names", "size")

    def __init__(self, names: tuple[str, ...], encoder: Encoder) -> None:
        self._encoder = encoder
        self.names = names
        self.size = 0

    def framed(self, values: Sequence[bytes]) -> Iterable[bytes]:
        """The parts of the record."""
        parts, size = self._encoder.encode(dict(zip(self.names, values, strict=True)))
        self.size = size + FRAMING
        return frame(parts, size)


def _samples(
    data: bytes, at: int, rule: str, differs: bool, previous: bytes
) -> Iterator[tuple[Shape, list[bytes], int, int]]:
    """The shape of each whole sample, its key and entries, and where its first header and that of the next one begin.

    Raises:
        _Stop: at the first member that is not plain, or not buffered.
    """
    shape, values, key, prefix, skip, start = list[Any](), list[bytes](), b"", b"\0", 1, at
    known: dict[bytes, str] = {}
    while True:
        begin, header = at, data[at : at + BLOCK]
        if len(header) < BLOCK:
            raise _Stop(True)
        if not header[0]:  # the end of the archive, whose checksum would be added up
            raise _Stop(False)
        try:
            size = size_in(header)
            if header[156] == _EXTENDED:
                at = _behind_times(data, at + BLOCK, size)
                header = data[at : at + BLOCK]
                size = size_in(header)
            if header[156] != _REGULAR or header[345] or size > _MOST_BYTES:
                raise _Stop(False)
            at += BLOCK
            entry, at = data[at : at + size], at + size + (-size & 511)
            if at > len(data):  # nothing of a member that may be cut short, not even that its key is another
                raise _Stop(True)
            if not (header.startswith(prefix) and (name := known.get(header[skip:_NAME], ""))):
                match = _usual_name(header, 0, _NAME)
                found, extension = match.groups() if match else _unusual_name(header[:_NAME], rule, differs)
                name = extension.decode().lower() if rule == "first" else extension.decode()
                if b"__meta__" in found or not found.decode():
                    raise _Stop(False)
                if found != key:
                    if values:
                        yield tuple(shape), values, start, begin
                    elif previous.startswith(found + b"."):
                        raise _Stop(None)
                    key, prefix, skip, start = found, found + b".", len(found) + 1, begin
                    shape, values = [len(key)], [key]
                known[header[skip:_NAME]] = name
        except ValueError:  # no header, or a name that is not UTF-8
            raise _Stop(False) from None
        shape += (name, size)
        values.append(entry)
        if at - start > _MOST_BYTES:
            raise _Stop(False)


def _unusual_name(field: bytes, rule: str, differs: bool) -> tuple[bytes, bytes]:
    """Key and extension of a member; unless `differs`, only if the other key rule gives the same.

    Raises:
        _Stop: when it is not an entry, or would be named differently.
        UnicodeDecodeError: when it is not UTF-8.
    """
    end = field.find(0)
    key, extension = split_name(field[: max(end, 0)].decode(), "last" if rule == "last" else "first")
    dots = "." in extension or "." in key[key.rfind("/") + 1 :]
    if not key or (dots and not differs) or b"._" in field or b"__meta__" in field:
        raise _Stop(False)
    return key.encode(), extension.encode()


def _behind_times(data: bytes, at: int, size: int) -> int:
    """The end of an extended header that adds only times, and is followed by a whole header."""
    if size > BLOCK:
        raise _Stop(False)
    if len(data) < at + 2 * BLOCK:
        raise _Stop(True)
    if not pax_records(data[at : at + size]).keys() <= _TIMES:
        raise _Stop(False)
    return at + (size and BLOCK)
