"""Reads and writes boxes and points in samples: in JSON, arrays, YOLO text, and lists of the Object Detection API."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tar2tf_cli.api.values import Array, Sample
from tar2tf_cli.errors import SampleError, UsageError
from tar2tf_cli.formats.files import whole
from tar2tf_cli.formats.npy import MAGIC, read_array, to_npy
from tar2tf_cli.ops.annotations import NO_LISTS
from tar2tf_cli.ops.base import ANY, missing_entry
from tar2tf_cli.ops.select import SelectJSON, to_selection

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

SIDES: Final = ("xmin", "ymin", "xmax", "ymax")
"""Names of the four lists of the Object Detection API."""


class BoxList(ABC):
    """The boxes of a sample, which can be replaced; one subclass for each form of storage.

    Attributes:
        form: the format of the numbers if the form of storage determines it; None if the declaration does.
    """

    form: str | None = None

    @abstractmethod
    def numbers(self) -> Numbers:
        """Return the boxes, (n, 4), in the sample's own format.

        Raises:
            SampleError: when a box does not have four numbers.
        """

    @abstractmethod
    def replace(self, numbers: Numbers, scales: Numbers, kept: NDArray[np.bool_]) -> None:
        """Write the boxes into the sample.

        Args:
            numbers: the new numbers.
            scales: the factor by which the area of each box changed.
            kept: whether to keep each box; the other boxes are removed with all their values.

        Raises:
            UsageError: when a box is removed, and `beside` does not declare its other values.
        """

    @abstractmethod
    def classes(self) -> Sequence[str]:
        """Return the name or number of each box's class, if the sample has them; empty otherwise."""

    def names_in_objects(self, names: Sequence[str], declared: Sequence[str]) -> Iterator[str]:
        """Yield each given name once for each box whose JSON object has a value of that name.

        Args:
            names: the names to search.
            declared: selections of values to exclude.
        """
        yield from ()


def find_boxes(sample: Sample, at: Sequence[str], beside: Sequence[str]) -> BoxList | None:
    """Return the boxes at the first selection that is present; None if none of several is.

    Raises:
        SampleError: when the only selection is missing.
    """
    for selection in at:
        if found := _boxes_at(sample, selection, beside):
            return found
    if len(at) == 1:
        entry = entry_of(at[0])
        raise missing_entry(sample, f"has no entry {entry!r} for boxes", entry, "--boxes")
    return None


def _boxes_at(sample: Sample, selection: str, beside: Sequence[str]) -> BoxList | None:
    if f"{selection}/{SIDES[0]}" in sample:
        return _BoxColumns(sample, selection)
    entry, path = _parsed(selection)
    if entry not in sample:
        return None
    value = whole(sample[entry])
    if hasattr(value, "dtype") or (isinstance(value, bytes) and value.startswith(MAGIC)):
        return _BoxArray(sample, entry, beside)
    if isinstance(value, bytes) and not path and entry.rpartition(".")[2] == "txt":
        return _BoxLines(sample, entry, value)
    document = JsonEntry(sample, entry)
    return _JsonBoxes(document, path, beside) if document.fits(path) else None


def _parsed(selection: str) -> tuple[str, list[str | int]]:
    """Return the entry of a selection, and the path into it."""
    parsed = to_selection(selection)
    if isinstance(parsed, SelectJSON):
        return parsed.ext_name, parsed.path
    return selection, []


def entry_of(selection: str) -> str:
    """Return the entry of a selection."""
    return _parsed(selection)[0]


class JsonEntry:
    """A JSON entry that can be changed and written back.

    Attributes:
        root: its value.

    Raises:
        SampleError: when the entry is not JSON.
    """

    def __init__(self, sample: Sample, entry: str) -> None:
        self._sample = sample
        self.entry = entry
        value = whole(sample[entry])
        self._is_text = isinstance(value, (bytes, str))
        try:
            self.root: Any = json.loads(value) if self._is_text else value
        except (ValueError, RecursionError) as error:
            raise SampleError(f"entry {entry!r} is not JSON: {error}") from None

    def fits(self, path: Sequence[str | int]) -> bool:
        """Whether the first step of a path fits the value: an index for a list, a key for an object."""
        in_list = bool(path) and (path[0] == ANY or str(path[0]).isdecimal())
        return not path or in_list == isinstance(self.root, list) or (path[0] == ANY and isinstance(self.root, dict))

    def write(self) -> None:
        """Write the changed value into the sample."""
        if self._is_text:
            self._sample[self.entry] = json.dumps(self.root, ensure_ascii=False, separators=(", ", ": ")).encode()

    def at(self, path: Sequence[str | int]) -> Any:
        """Return the value at a path without `*`.

        Raises:
            SampleError: when the path does not exist.
        """
        value = self.root
        for part in path:
            value = self.step(value, part, path)
        return value

    def step(self, value: Any, part: str | int, path: Sequence[str | int]) -> Any:
        """Return the value at a key or index."""
        try:
            return value[int(part)] if isinstance(value, list) else value[str(part)]
        except (KeyError, IndexError, TypeError, ValueError):
            shown = ".".join(map(str, path))
            raise SampleError(f"entry {self.entry!r} has nothing at {shown!r}") from None


class Slot(NamedTuple):
    """A position in JSON that holds a value.

    Attributes:
        holder: the list or object that holds the value.
        key: the value's index or key in the holder.
        owner: the innermost list with the value inside one of its items; None if there is none.
        number: the index of that item.
    """

    holder: Any
    key: Any
    owner: list[Any] | None
    number: int

    @property
    def value(self) -> Any:
        """The current value at the position."""
        return self.holder[self.key]


def slots(document: JsonEntry, path: Sequence[str | int]) -> Iterator[Slot]:
    """Iterate over the positions that a path selects.

    Raises:
        SampleError: when the path does not exist.
    """
    yield from _slots(document, path, path, Slot([document.root], 0, None, 0))


def _slots(document: JsonEntry, path: Sequence[str | int], rest: Sequence[str | int], slot: Slot) -> Iterator[Slot]:
    for position, part in enumerate(rest):
        value = slot.value
        if part == ANY and isinstance(value, (list, dict)):
            for key in [*value] if isinstance(value, dict) else range(len(value)):
                inner = (
                    Slot(value, key, value, key) if isinstance(value, list) else slot._replace(holder=value, key=key)
                )
                yield from _slots(document, path, rest[position + 1 :], inner)
            return
        document.step(value, part, path)
        slot = slot._replace(holder=value, key=int(part) if isinstance(value, list) else str(part))
    yield slot


def _lists_of(found: Iterable[Slot]) -> Iterator[Slot]:
    """Yield the positions themselves or, for lists of lists, the positions of their items."""
    for slot in found:
        value = slot.value
        if isinstance(value, list) and (not value or isinstance(value[0], list)):
            yield from (Slot(value, index, value, index) for index in range(len(value)))
        else:
            yield slot


_CLASS_NAMES: Final = ("category_name", "category", "class_name", "class", "label", "name", "text")
_CLASS_NUMBERS: Final = ("category_id", "class_id", "class", "label")
"""Keys of the class number in a JSON object with a box."""


class _JsonBoxes(BoxList):
    def __init__(self, document: JsonEntry, path: Sequence[str | int], beside: Sequence[str]) -> None:
        self._document = document
        self._path = path
        self._slots = [*_lists_of(slots(document, path))]
        self._beside = beside

    def numbers(self) -> Numbers:
        return _rows((slot.value for slot in self._slots), 4, "box")

    def classes(self) -> Sequence[str]:
        items = [slot.owner[slot.number] if slot.owner else None for slot in self._slots]
        objects = [item for item in items if isinstance(item, dict)]
        if objects and len(objects) == len(items):
            return [self._class_of(item) for item in objects]
        for selection in self._beside:
            if selection != NO_LISTS and _parsed(selection)[0] == self._document.entry:
                values = self._document.at([part for part in _parsed(selection)[1] if part != ANY])
                return [str(value) for value in values] if isinstance(values, list) else ()
        return ()

    def names_in_objects(self, names: Sequence[str], declared: Sequence[str]) -> Iterator[str]:
        paths = [path for entry, path in map(_parsed, declared) if entry == self._document.entry]
        of_object = self._path[:-1]
        nearby = [name for name in names if not any([*of_object, name] == path[: len(self._path)] for path in paths)]
        for slot in self._slots:
            if isinstance(slot.holder, dict):
                yield from (name for name in nearby if _has_values(slot.holder.get(name)))

    def _class_of(self, item: dict[str, object]) -> str:
        for key in _CLASS_NAMES:
            if isinstance(item.get(key), str):
                return str(item[key])
        number = next((item[key] for key in _CLASS_NUMBERS if isinstance(item.get(key), int)), None)
        listed = self._document.root.get("categories") if isinstance(self._document.root, dict) else None
        for category in listed if isinstance(listed, list) else ():
            if isinstance(category, dict) and number is not None and category.get("id") == number:
                return str(category.get("name", number))
        return "" if number is None else str(number)

    def replace(self, numbers: Numbers, scales: Numbers, kept: NDArray[np.bool_]) -> None:
        for slot, row, scale in zip(self._slots, numbers.tolist(), scales.tolist(), strict=True):
            slot.holder[slot.key] = row
            if isinstance(slot.holder, dict) and isinstance(slot.holder.get("area"), (int, float)):
                slot.holder["area"] *= scale
        gone = [slot for slot, keep in zip(self._slots, kept.tolist(), strict=True) if not keep]
        if gone:
            self._remove(gone)
        self._document.write()

    def _remove(self, gone: Sequence[Slot]) -> None:
        lists: list[tuple[list[Any], Slot]] = []
        for slot in gone:
            if slot.owner is None:
                raise SampleError("its only box is no longer visible")
            if slot.owner is slot.holder and not self._beside:
                raise _nothing_beside(self._document.entry, f"{self._document.entry}:PATH")
            lists.append((slot.owner, slot))
        for selection in self._beside:
            if selection != NO_LISTS:
                entry, path = _parsed(selection)
                if entry != self._document.entry:
                    hint = "put them into one entry, or make a function of it: --op func:FILE.py:NAME"
                    raise UsageError(f"{selection!r} is in another entry than its boxes", hint=hint)
                values = self._document.at([part for part in path if part != ANY])
                _check_length(selection, len(values), len(self._slots))
                lists += ((values, slot) for slot in gone)
        for values, slot in sorted(lists, key=lambda item: -item[1].number):
            del values[slot.number]


def _has_values(value: object) -> bool:
    """Whether a JSON value has more than empty lists and zeros, which COCO writes for objects without keypoints."""
    return any(map(_has_values, value)) if isinstance(value, list) else bool(value)


def _nothing_beside(entry: str, example: str) -> UsageError:
    return UsageError(
        f"a box of {entry!r} is no longer visible, and nothing says which values go with it",
        hint=f"name the lists with an item for each box: beside={example}+{example}, or beside={NO_LISTS}",
    )


def _check_length(name: str, count: int, boxes: int) -> None:
    if count != boxes:
        raise SampleError(f"has {boxes} boxes, but {count} values of {name!r}")


class _BoxArray(BoxList):
    def __init__(self, sample: Sample, entry: str, beside: Sequence[str]) -> None:
        self._sample = sample
        self._array = ArrayEntry(sample, entry)
        self._beside = beside

    def numbers(self) -> Numbers:
        return self._array.rows(4, "boxes")

    def classes(self) -> Sequence[str]:
        listed = next((self._sample[entry] for entry in self._beside if entry in self._sample), ())
        return _texts(listed)

    def replace(self, numbers: Numbers, scales: Numbers, kept: NDArray[np.bool_]) -> None:
        if not kept.all():
            if not self._beside:
                raise _nothing_beside(self._array.entry, "ENTRY")
            for entry in self._beside:
                if entry != NO_LISTS:
                    if entry not in self._sample:
                        complaint = f"has no entry {entry!r}, which belongs to its boxes"
                        raise missing_entry(self._sample, complaint, entry, "--boxes")
                    array = ArrayEntry(self._sample, entry)
                    _check_length(entry, len(array.value), len(kept))
                    array.write(array.value[kept])
        self._array.write(numbers[kept])


class _BoxLines(BoxList):
    """Boxes in YOLO's label text, one line each: class, centre, width and height as fractions of the sides.

    A line may have one more number, such as the confidence of a detector.
    """

    form = "cxcywh"

    def __init__(self, sample: Sample, entry: str, text: bytes) -> None:
        self._sample = sample
        self._entry = entry
        self._lines = [line.split() for line in text.decode("utf-8-sig", "replace").splitlines() if line.strip()]

    def numbers(self) -> Numbers:
        import numpy as np

        rows: list[list[float]] = []
        for number, parts in enumerate(self._lines, 1):
            try:
                row = [*map(float, parts[1:])]
            except ValueError:
                row = []
            if len(row) not in (4, 5):
                shown = " ".join(parts)
                hint = "name boxes in JSON by their path, as in json:objects.*.bbox"
                message = f"line {number} of {self._entry!r} is {shown!r}, not class, x, y, width and height as in YOLO"
                raise SampleError(message, hint=hint)
            rows.append(row[:4])
        return np.array(rows, "f8").reshape(-1, 4)

    def classes(self) -> Sequence[str]:
        return [parts[0] for parts in self._lines]

    def replace(self, numbers: Numbers, scales: Numbers, kept: NDArray[np.bool_]) -> None:
        text = ""
        for parts, row, keep in zip(self._lines, numbers.tolist(), kept.tolist(), strict=True):
            if keep:
                text += " ".join([parts[0], *(f"{value:.6g}" for value in row), *parts[5:]]) + "\n"
        self._sample[self._entry] = text.encode()


class ArrayEntry:
    """An entry that is an array, or the bytes of an npy file.

    Attributes:
        entry: its name.
        value: the array.
    """

    def __init__(self, sample: Sample, entry: str) -> None:
        self._sample = sample
        self.entry = entry
        value = whole(sample[entry])
        self._is_npy = isinstance(value, bytes)
        self.value: Array = read_array(value) if isinstance(value, bytes) else value

    def rows(self, length: int, what: str) -> Numbers:
        """Return the array's numbers as rows of a given length.

        Raises:
            SampleError: when the numbers cannot be divided into such rows.
        """
        if self.value.size % length or self.value.dtype.kind not in "iuf":
            shape = f"{self.value.dtype} of shape {list(self.value.shape)}"
            raise SampleError(f"entry {self.entry!r} is {shape}, not {what} of {length} numbers")
        return self.value.reshape(-1, length).astype("f8")

    def write(self, values: NDArray[np.generic]) -> None:
        """Write values with the dtype and form of the array; whole numbers are rounded."""
        import numpy as np

        dtype, kind = self.value.dtype, type(self.value)
        rounded = np.rint(values) if dtype.kind in "iu" and values.dtype.kind == "f" else values
        made = rounded.astype(dtype)
        made = made.reshape(-1) if self.value.ndim == 1 else made
        if self.value.ndim > 2 and made.size == self.value.size:
            made = made.reshape(self.value.shape)
        self._sample[self.entry] = to_npy(made) if self._is_npy else made.view(kind)


class _BoxColumns(BoxList):
    """Boxes in the four lists of the Object Detection API, next to other lists with one item for each box."""

    form = "xyxy"

    def __init__(self, sample: Sample, prefix: str) -> None:
        self._sample = sample
        self._prefix = prefix
        self._names = [f"{prefix}/{side}" for side in SIDES]

    def numbers(self) -> Numbers:
        import numpy as np

        columns = [np.atleast_1d(self._sample[name]) for name in self._names]
        for name, column in zip(self._names, columns, strict=True):
            _check_length(name, len(column), len(columns[0]))
        return np.stack(columns, axis=1).astype("f8")

    def classes(self) -> Sequence[str]:
        folder = f"{self._prefix.rpartition('/')[0]}/class"
        named = _texts(self._sample.get(f"{folder}/text", ()))
        return named or _texts(self._sample.get(f"{folder}/label", ()))

    def replace(self, numbers: Numbers, scales: Numbers, kept: NDArray[np.bool_]) -> None:
        import numpy as np

        for name, column in zip(self._names, numbers[kept].T, strict=True):
            self._write(name, column.astype(np.float32))
        folder = f"{self._prefix.rpartition('/')[0]}/"
        for name in [*self._sample]:
            if name.startswith(folder) and name not in self._names:
                values = np.atleast_1d(self._sample[name])
                if values.ndim == 1 and len(values) == len(kept):
                    scaled = values * scales if name.endswith("/area") and values.dtype.kind == "f" else values
                    self._write(name, scaled[kept].astype(values.dtype))

    def _write(self, name: str, values: NDArray[np.generic]) -> None:
        from tar2tf_cli.formats.listed import Listed

        self._sample[name] = values.view(Listed)


def _texts(values: Any) -> Sequence[str]:
    """Return the values of a list or an array as text."""
    listed = values.reshape(-1).tolist() if hasattr(values, "dtype") else values
    items = listed if isinstance(listed, (list, tuple)) else [listed]
    return [item.decode("utf-8", "replace") if isinstance(item, bytes) else str(item) for item in items]


class PointList(ABC):
    """The points of a sample, which can be replaced; one subclass for each form of storage."""

    @abstractmethod
    def numbers(self) -> Numbers:
        """Return the points, (n, 2) or (n, 3).

        Raises:
            SampleError: when a point does not have that many numbers.
        """

    @abstractmethod
    def replace(self, numbers: Numbers) -> None:
        """Write the points into the sample."""


def find_points(sample: Sample, at: Sequence[str], stride: int) -> PointList | None:
    """Return the points, of `stride` numbers each, at the first selection present; None if none of several is.

    Raises:
        SampleError: when the only selection is missing.
    """
    for selection in at:
        entry, path = _parsed(selection)
        if entry in sample:
            value = whole(sample[entry])
            if hasattr(value, "dtype") or (isinstance(value, bytes) and value.startswith(MAGIC)):
                return _PointArray(ArrayEntry(sample, entry), stride)
            if (document := JsonEntry(sample, entry)).fits(path):
                return _JsonPoints(document, path, stride)
    if len(at) == 1:
        entry = entry_of(at[0])
        raise missing_entry(sample, f"has no entry {entry!r} for points", entry, "--points")
    return None


class _PointArray(PointList):
    def __init__(self, array: ArrayEntry, stride: int) -> None:
        self._array = array
        self._stride = stride

    def numbers(self) -> Numbers:
        return self._array.rows(self._stride, "points")

    def replace(self, numbers: Numbers) -> None:
        self._array.write(numbers)


class _JsonPoints(PointList):
    def __init__(self, document: JsonEntry, path: Sequence[str | int], stride: int) -> None:
        self._document = document
        self._stride = stride
        self._slots = [slot for slot in _lists_of(slots(document, path)) if slot.value is not None]

    def numbers(self) -> Numbers:
        rows = []
        for slot in self._slots:
            value = slot.value
            if not isinstance(value, list) or len(value) % self._stride:
                raise SampleError(f"{value!r} is not a point of {self._stride} numbers, or a list of points")
            rows += [value[start : start + self._stride] for start in range(0, len(value), self._stride)]
        return _rows(rows, self._stride, "point")

    def replace(self, numbers: Numbers) -> None:
        start = 0
        for slot in self._slots:
            end = start + len(slot.value) // self._stride
            slot.holder[slot.key] = numbers[start:end].reshape(-1).tolist()
            start = end
        self._document.write()


def _rows(values: Iterable[object], length: int, what: str) -> Numbers:
    """Convert lists of numbers to an array of rows.

    Raises:
        SampleError: for a list that does not have that many numbers.
    """
    import numpy as np

    rows: list[list[float]] = []
    for number, value in enumerate(values):
        shown = "null" if value is None else repr(value)
        if not isinstance(value, (list, tuple)) or len(value) != length:
            raise SampleError(f"{what} {number} is {shown}, not a list of {length} numbers")
        for item in value:
            if isinstance(item, bool) or not isinstance(item, (int, float)):
                raise SampleError(f"{what} {number} is {shown}, which is not a list of {length} numbers")
        rows.append([*value])
    return np.array(rows, "f8").reshape(-1, length)
