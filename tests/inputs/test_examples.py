"""Rows of examples in one process: what each of them becomes, what is reported, and which are refused."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import recorder_classes
from recorder_classes import AllTypes, Fickle
from tar2tf_cli.errors import SampleError, SourceError, UsageError
from tar2tf_cli.inputs.kinds.examples import ExamplesSource, IgnoreExample, count_rows, find_class
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.recorder import Example, tfrecordable


class Odd(AllTypes):
    """Does what the second cell of its row says."""

    @classmethod
    def from_csv_row(cls, row: list[str]) -> object:
        if row[1] == "ignore":
            raise IgnoreExample
        return "none" if row[1] == "text" else cls([row[0], row[1], "1", "1"])

    def split(self) -> Any:
        if self.row[1] == "number":
            return [5]
        if self.row[1] == "later":
            return self._later()
        if self.row[1] == "one":
            return 1
        return [] if self.row[1] == "nothing" else None

    def _later(self) -> Any:
        yield Odd(["part", "yes", "1", "1"])
        raise IgnoreExample

    def release(self) -> None:
        if self.row[1] == "release":
            raise StopIteration

    def to_csv_row(self) -> list[object] | None:
        return ["described", self.row[1]] if self.row[0] == "described" else None


def read(path: Path, rows: str, example_class: Any = Odd) -> tuple[list[Any], list[Any], InputReport, int]:
    """The keys and words of samples, faults with their places, the report, and the bytes that were counted."""
    path.write_text(rows, newline="")
    source, report = ExamplesSource(str(path), example_class, {}), InputReport()
    faults: list[Any] = []
    counted: list[int] = []
    found = []

    def fault(error: SampleError) -> None:
        faults.append((error.key, error.member, error.message, error.hint))

    for item in source.list(()):
        for where, sample in source.samples(item, report, fault, counted.append):
            report.samples += 1
            found.append((where["member"], sample["__key__"], sample["word"]))
    return found, faults, report, sum(counted)


def test_each_row_is_an_example_several_none_or_a_fault(tmp_path: Path) -> None:
    rows = 'a,yes\nb,ignore\nc,text\nd,number\n\ne,later\nf,one\ndescribed,"x\ny"\ng,nothing\nh,release\n'
    found, faults, report, counted = read(tmp_path / "rows.csv", rows)
    assert found == [
        ("row 1", "1", "a"),
        ("row 5", "5", "part"),
        ("row 7", "7", "described"),
        ("row 9", "9", "h"),
    ]
    assert faults == [
        ("3", "row 3", "Odd.from_csv_row returned str, not an Example", None),
        ("4", "row 4", "Odd.split returned int, not an Example", None),
        ("6", "row 6", "int.__iter__ raised AttributeError: 'int' object has no attribute '__iter__'", None),
        ("9", "row 9", "Odd.release raised StopIteration", None),
    ]
    assert report.filtered == Counter(IgnoreExample=2)
    assert report.described == 'a,yes\ne,later\ndescribed,"x\ny"\nh,release\n'
    assert counted == len(rows) - 1


@pytest.mark.parametrize(
    ("row", "hint"),
    [
        ("a,text", "correct the row, or remove it if it is a header; --on-error skip skips such rows"),
        ("a;1", "separate the cells by commas; the row is a single cell now: 'a;1'"),
        ("a\t" + "1" * 50, "separate the cells by commas; the row is a single cell now: 'a\\t" + "1" * 38 + "'"),
        ("a", "correct the row, or remove it if it is a header; --on-error skip skips such rows"),
    ],
)
def test_a_faulty_first_row_has_a_hint_and_others_only_if_they_lack_commas(tmp_path: Path, row: str, hint: str) -> None:
    _, faults, _, _ = read(tmp_path / "rows.csv", f"{row}\n{row}\n")
    assert [fault[3] for fault in faults] == [hint, hint if "separate" in hint else None]


class Later(Example):
    """Its setter is called when it is released, but no getter without a setter."""

    released: list[object] = []  # noqa: RUF012

    @tfrecordable(dtype=Example.Field.TYPE_STRING)
    def word(self) -> str:
        return "a"

    @word.setter
    def word(self, value: object) -> None:
        self.released.append(value)

    @tfrecordable(dtype=Example.Field.TYPE_BOOL)
    def flag(self) -> bool:
        return True

    @classmethod
    def from_csv_row(cls, row: list[str]) -> Later:
        return cls()


def test_an_example_is_released_by_its_setters_once_it_is_stored(tmp_path: Path) -> None:
    Later.released.clear()
    found, faults, report, _ = read(tmp_path / "rows.csv", "a\nb\n", Later)
    assert (found, faults) == ([("row 1", "1", "a"), ("row 2", "2", "a")], [])
    assert Later.released == [None, None]
    assert report.described == "a\nb\n"


def test_a_class_of_a_script_is_pickled_by_value_with_its_attributes() -> None:
    class Mine(Example):
        @tfrecordable(dtype=Example.Field.TYPE_INT32)
        def number(self) -> int:
            return 5

        @number.setter
        def number(self, value: object) -> None:
            self.given = value

    attributes = {"number": pickle.loads(cloudpickle.dumps(vars(Mine)["number"]))}
    assert attributes["number"] is not vars(Mine)["number"]
    copy: Any = type("Mine", (Example,), attributes)
    assert copy.fields() == {"number": "int32"}
    assert copy().values() == {"number": 5}
    example = copy()
    example.number = 7
    assert example.given == 7


def test_an_example_class_without_a_method_for_rows_says_so(tmp_path: Path) -> None:
    class Bare(Example):
        @tfrecordable(dtype=Example.Field.TYPE_BOOL)
        def word(self) -> bool:
            return True

    _, faults, _, _ = read(tmp_path / "rows.csv", "a\n", Bare)
    what = "Bare.from_csv_row raised NotImplementedError: Bare has no method from_csv_row"
    assert faults == [
        ("1", "row 1", what, "correct the row, or remove it if it is a header; --on-error skip skips such rows")
    ]


def test_example_classes_that_cannot_be_used_are_refused() -> None:
    class Empty(Example):
        pass

    here, name = recorder_classes.__file__, "name a subclass of tar2tf_cli.recorder.Example as FILE.py:CLASS"
    lacking = "cannot be imported: FileNotFoundError: [Errno 2] No such file or directory: 'nowhere.py'"
    for where, fault, hint in (
        ("nowhere.py:X", f"nowhere.py {lacking}", name),
        (f"{here}:Nobody", f"{here} has no 'Nobody'", name),
        ("json:JSONDecoder", "'json:JSONDecoder' is not a subclass of tar2tf_cli.recorder.Example", None),
        ("json:dumps", "'json:dumps' is not a subclass of tar2tf_cli.recorder.Example", None),
        (3, "3 is not a subclass of tar2tf_cli.recorder.Example", None),
        (Empty, f"{Empty!r} has no attributes to store", "add @tfrecordable to the attributes to store"),
    ):
        with pytest.raises(UsageError) as raised:
            find_class(where)  # type: ignore[arg-type]  # on purpose
        assert (raised.value.message, raised.value.hint) == (f"example_class: {fault}", hint)
    assert find_class(f"{recorder_classes.__file__}:Fickle").fields() == Fickle.fields()


def test_rows_in_order_shuffled_within_limits_or_of_a_part(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("".join(f"{number},yes\n" for number in range(10)))

    def numbers(**options: Any) -> list[str]:
        source = ExamplesSource(str(path), Odd, {}, **options)
        found = (source.samples(item, InputReport(), pytest.fail) for item in source.list(()))
        return [sample["word"] for samples in found for _, sample in samples]

    assert numbers() == [*"0123456789"]
    assert numbers(rows=(2, 5)) == [*"234"]
    assert numbers(rows=(8, 50), limit=1) == ["8"]
    shuffled = numbers(seed=3)
    assert (sorted(shuffled), shuffled != numbers()) == ([*"0123456789"], True)
    assert numbers(seed=3, rows=(2, 5), limit=2) == shuffled[2:4]


def test_a_file_of_examples_takes_no_template_has_rows_and_must_not_change(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,yes\n\nb,yes\n")
    assert count_rows(str(path)) == 2
    source = ExamplesSource(str(path), Odd, {})
    with pytest.raises(UsageError) as refused:
        source.list(["*.csv"])
    assert str(refused.value) == f"{path}: is a single file of examples, so it takes no template"
    (item,) = source.list(())
    path.write_text("a,yes\n\nb,yes\nc,yes\n")
    with pytest.raises(SourceError) as changed:
        next(iter(source.samples(item, InputReport(), pytest.fail)))
    assert changed.value.message == "changed while it was being read"
    assert changed.value.shard == str(path)
    path.write_text("\n")
    for read_it in (lambda: count_rows(str(path)), lambda: source.list(())):
        with pytest.raises(SourceError) as empty:
            read_it()
        assert str(empty.value) == f"{path}: has no rows; list one example per line"


class Taking(Odd):
    """Takes some arguments in one method, and all in another."""

    taken: list[tuple[str, dict[str, object]]] = []  # noqa: RUF012

    def load(self, size: int = 0) -> None:  # type: ignore[override]  # only some
        self.taken.append(("load", {"size": size}))

    def split(self, **arguments: object) -> None:
        self.taken.append(("split", arguments))


class Strict(Odd):
    """Takes one argument."""

    def load(self, size: int = 0) -> None:  # type: ignore[override]  # only one
        pass


def test_methods_get_the_arguments_that_they_accept(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,yes\n")
    Taking.taken.clear()
    source = ExamplesSource(str(path), Taking, {"size": 3, "other": 4})
    assert len([*source.samples(source.list(())[0], InputReport(), pytest.fail)]) == 1
    assert Taking.taken == [("load", {"size": 3}), ("split", {"size": 3, "other": 4})]
    with pytest.raises(UsageError) as raised:
        ExamplesSource(str(path), Strict, {"size": 3, "other": 4})
    assert raised.value.message == "no method of Strict accepts the argument 'other'"
    assert raised.value.hint == "its methods are from_csv_row, load, split"


def test_a_list_of_examples_is_known_by_the_fields_and_source_of_its_class(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,yes\n")
    info = ExamplesSource(str(path), Odd, {}).listing_info()
    assert info.documents == {"examples.csv": None}
    assert info.identity["fields"] == Odd.fields()
    assert {*info.identity} == {"fields", "digest"}
    other = ExamplesSource(str(path), Taking, {}).listing_info()
    assert other.identity == info.identity
    assert ExamplesSource(str(path), AllTypes, {}).listing_info().identity["digest"] != info.identity["digest"]
