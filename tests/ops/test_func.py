"""Ops that are functions of the user."""

from __future__ import annotations

import json
import pickle
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from commands import tar2tf
from op_cases import IMAGES, run
from shards import examples
from tar2tf_cli import open_records
from tar2tf_cli.errors import SampleError, UsageError
from tar2tf_cli.ops import (
    Func,
    OpContext,
    parse_op,
)
from tar2tf_cli.ops.base import apply_ops
from verify_runs import a_tar, write

# --- Your function ---

FUNCTIONS = """
import numpy as np

def upper(sample):
    return {"text": sample["cls"].decode() + "!", "key": sample["__key__"]}

def twice(sample):
    for number in range(2):
        yield {"number": number, "cls": sample["cls"]}

def even(sample):
    return sample if int(sample["cls"]) % 2 == 0 else None

def listed(sample):
    return [{"__key__": sample["__key__"] + "-a", "x": 1}, {"__key__": sample["__key__"] + "-b", "x": 2}]

def fails(sample):
    if sample["cls"] == b"4":
        raise LookupError("no such thing")
    return sample

def fails_late(sample):
    yield sample
    if sample["__key__"] == "0001":
        raise LookupError("no such thing")

def exits(sample):
    raise SystemExit(0)

def exits_late(sample):
    yield sample
    raise SystemExit(0)

def chatty(sample):
    print("hello")
    return sample

def number(sample):
    return 5

def numbers(sample):
    return [1, 2]

def text(sample):
    return "abc"

def odd_names(sample):
    return {5: 6}

def odd_key(sample):
    return {"__key__": 7, "cls": b"1"}

def half_a_pair_in_the_key(sample):
    return {"__key__": "\\ud800", "cls": b"1"}

def half_a_pair_in_a_name(sample):
    return {"\\ud800": b"1"}

def alien(sample):
    return {**sample, "thing": object()}

class Namespace:
    @staticmethod
    def inner(sample):
        return {"inner": 1}
"""


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of functions, which is a module of the same name, too."""
    path = tmp_path / "fns" / f"own_functions_{tmp_path.name}.py"
    path.parent.mkdir()
    path.write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(str(path.parent))
    return path


def test_a_function_is_found_in_a_module_in_a_file_and_as_it_is(functions: Path, bucket: Path, tmp_path: Path) -> None:
    ways = {
        "file": Func(f"{functions}:upper"),
        "module": Func(f"{functions.stem}:upper"),
        "itself": Func(lambda sample: {"text": sample["cls"].decode() + "!", "key": sample["__key__"]}),
        "flag": parse_op(f"func:{functions}:upper"),
    }
    for name, op in ways.items():
        run(bucket, tmp_path / name, op)
        assert examples(tmp_path / name / "all.record")[1] == {"__key__": [b"0001"], "key": [b"0001"], "text": [b"1!"]}
    run(bucket, tmp_path / "inner", Func(f"{functions}:Namespace.inner"))
    assert examples(tmp_path / "inner" / "all.record")[0]["inner"] == [1]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_function_in_a_file_runs_in_workers(workers: int, functions: Path, bucket: Path, tmp_path: Path) -> None:
    run(bucket, tmp_path / "out", Func(f"{functions}:twice"), workers=workers)
    found = examples(tmp_path / "out" / "all.record")
    assert [(item["__key__"][0], item["number"][0]) for item in found] == [
        (key.encode(), number) for key in IMAGES for number in range(2)
    ]


def test_a_lambda_runs_in_workers(bucket: Path, tmp_path: Path) -> None:
    offset = 40
    run(bucket, tmp_path, Func(lambda sample: {"n": int(sample["cls"]) + offset}), workers=2)
    assert [item["n"] for item in examples(tmp_path / "all.record")] == [[40 + number] for number in range(6)]


def test_none_drops_a_sample_and_a_list_makes_several(functions: Path, bucket: Path, tmp_path: Path) -> None:
    run(bucket, tmp_path / "out", Func(f"{functions}:even"), Func(f"{functions}:listed"))
    keys = [item["__key__"][0].decode() for item in examples(tmp_path / "out" / "all.record")]
    assert keys == ["0000-a", "0000-b", "0002-a", "0002-b", "0004-a", "0004-b"]


@pytest.mark.parametrize(
    ("name", "key", "words", "workers"),
    [
        ("fails", "0004", ["raised LookupError: no such thing"], 1),
        ("fails", "0004", ["raised LookupError: no such thing"], 2),
        ("fails_late", "0001", ["raised LookupError: no such thing"], 1),
        ("exits", "0000", ["raised SystemExit: 0"], 1),
        ("exits", "0000", ["raised SystemExit: 0"], 2),
        ("exits_late", "0000", ["raised SystemExit: 0"], 1),
        ("number", "0000", ["returned int"], 1),
        ("numbers", "0000", ["int", "sample"], 1),
        ("text", "0000", ["returned str"], 1),
        ("odd_names", "0000", ["dict", "text keys"], 1),
        ("odd_key", "0000", ["__key__", "7"], 2),
        ("half_a_pair_in_the_key", "0000", ["not UTF-8"], 1),
        ("half_a_pair_in_a_name", "0000", ["not UTF-8"], 1),
    ],
)
def test_a_function_that_misbehaves_is_named_with_sample_and_shard(
    name: str, key: str, words: list[str], workers: int, functions: Path, bucket: Path, tmp_path: Path
) -> None:
    with pytest.raises(SampleError) as caught:
        run(bucket, tmp_path / "out", Func(f"{functions}:{name}"), workers=workers)
    message = str(caught.value)
    assert f"{functions}:{name}" in message
    assert caught.value.key == key
    assert caught.value.shard == str(bucket / ("a.tar" if key < "0003" else "b.tar"))
    for word in [key, caught.value.shard, *words]:
        assert word in message
    assert not (tmp_path / "out" / "all.record").exists()


@pytest.mark.parametrize(
    ("returned", "fault"),
    [
        (5, "returned int; return a sample, None or an iterable of samples"),
        ("text", "returned str; return a sample, None or an iterable of samples"),
        (None, None),
        ([], None),
        ([{}, 5], "returned int instead of a sample (a dict with text keys)"),
        ({5: 6}, "returned dict instead of a sample (a dict with text keys)"),
        ({"__key__": 7}, "returned a sample whose __key__ is 7, not text"),
        ({"__key__": "\ud800"}, "returned a sample whose key, or the name of an entry, is not UTF-8"),
        ({"__key__": "n", "\ud800": 1}, "returned a sample whose key, or the name of an entry, is not UTF-8"),
    ],
)
def test_what_a_function_returns_has_to_be_samples(returned: Any, fault: str | None) -> None:
    op = Func(partial(returning, returned))
    if fault is None:
        assert [*apply_ops({"__key__": "k"}, [op], OpContext())] == []
        return
    with pytest.raises(SampleError) as caught:
        [*apply_ops({"__key__": "k"}, [op], OpContext())]
    assert (caught.value.message, caught.value.key) == (f"the function {op.label} {fault}", "k")


def returning(value: Any, sample: dict[str, Any]) -> Any:
    return value


def test_what_cannot_become_a_feature_is_named_with_the_sample(functions: Path, bucket: Path, tmp_path: Path) -> None:
    with pytest.raises(SampleError, match=r"a\.tar, sample 0000.*'thing'.*object"):
        run(bucket, tmp_path / "out", Func(f"{functions}:alien"))


def test_faulty_samples_of_a_function_are_passed_over_if_wanted(functions: Path, bucket: Path, tmp_path: Path) -> None:
    summary = run(bucket, tmp_path / "out", Func(f"{functions}:fails"), on_error="skip")
    assert (summary.records, summary.skipped_samples) == (5, 1)
    assert summary.errors[0]["key"] == "0004"


def test_a_function_that_cannot_be_pickled_is_named_and_works_in_this_process(bucket: Path, tmp_path: Path) -> None:
    import threading

    lock = threading.Lock()

    def locked(sample: dict[str, Any]) -> dict[str, Any]:
        with lock:
            return sample

    with pytest.raises(UsageError, match=r"test_func:.*locked.*pickled") as caught:
        run(bucket, tmp_path / "two", Func(locked), workers=2)
    assert "one worker" in (caught.value.hint or "")
    assert run(bucket, tmp_path / "one", Func(locked), workers=1).records == 6


def scaled(sample: dict[str, Any], factor: int) -> dict[str, Any]:
    return {"n": int(sample["cls"]) * factor}


def test_a_function_that_changed_is_another_conversion(functions: Path, bucket: Path, tmp_path: Path) -> None:
    def made(number: int) -> Func:
        return Func(lambda sample: {"n": number})

    assert made(1).canonical() == made(1).canonical()
    assert made(1).canonical() != made(2).canonical()
    assert Func(partial(scaled, factor=2)).canonical() != Func(partial(scaled, factor=3)).canonical()
    assert Func(partial(scaled, factor=2)).canonical() == Func(partial(scaled, factor=2)).canonical()
    one = Func(lambda sample: {"n": 1})
    other = Func(lambda sample: {"n": 2})
    assert one.canonical() != other.canonical()
    before = Func(f"{functions}:upper").canonical()
    functions.write_text(FUNCTIONS + "\n# changed\n")
    assert Func(f"{functions}:upper").canonical() != before
    run(bucket, tmp_path / "out", one)
    assert run(bucket, tmp_path / "out", one).up_to_date
    with pytest.raises(UsageError):
        run(bucket, tmp_path / "out", other)


def test_functions_without_a_file_are_told_apart_by_their_code() -> None:
    def made(source: str) -> dict[str, Any]:
        space: dict[str, Any] = {"__name__": "__notebook__"}
        exec(source, space)
        return Func(space["f"]).canonical()

    assert made("f = lambda s: {'n': 1}") == made("f = lambda s: {'n': 1}")
    assert made("f = lambda s: {'n': 1}") != made("f = lambda s: {'n': 2}")
    assert made("def f(s):\n  def g(): return 1\n  return {'n': g()}") != made(
        "def f(s):\n  def g(): return 2\n  return {'n': g()}"
    )
    pattern = "import re\nP = re.compile({})\nf = lambda s: {{'n': P.pattern}}"
    assert made(pattern.format("'a'")) == made(pattern.format("'a'"))
    assert made(pattern.format("'a'")) != made(pattern.format("'b'"))
    assert made(pattern.format("'a'")) != made(pattern.format("'a', re.I"))


def test_the_source_of_a_file_travels_to_where_the_file_is_not(tmp_path: Path) -> None:
    path = tmp_path / "ops.py"
    path.write_text("WORDS = ['seen']\n\n\ndef mark(sample):\n    return {**sample, 'txt': WORDS[0].encode()}\n")
    op = Func(f"{path}:mark")
    data, where = pickle.dumps(op), tmp_path / "pickled"
    where.write_bytes(data)
    path.unlink()
    code = f"""
import pickle
from pathlib import Path
op = pickle.loads(Path({str(where)!r}).read_bytes())
print(op.func({{"__key__": "a"}}), op.canonical() == {op.canonical()!r}, pickle.dumps(op) is not None)
raise SystemExit(0)
"""
    done = tar2tf(code=code)
    assert done.stdout == "{'__key__': 'a', 'txt': b'seen'} True True\n", done.stderr


def test_a_file_in_a_folder_whose_name_is_not_unicode_is_imported(tmp_path: Path) -> None:
    path = tmp_path / "caf\udce9" / "own.py"
    path.parent.mkdir()
    path.write_text("def same(sample):\n    return sample\n")
    assert Func(f"{path}:same").func({"__key__": "k"}) == {"__key__": "k"}


@pytest.mark.parametrize(
    ("source", "why", "hint"),
    [
        ("import beside", "ModuleNotFoundError: No module named 'beside'", "folder that has beside.py to PYTHONPATH"),
        ("raise SystemExit(0)", "SystemExit: 0", "below if __name__ == '__main__':"),
        ("def f(:", "SyntaxError: ", "shows where it fails"),
    ],
)
def test_a_file_that_cannot_be_imported_says_what_to_do(source: str, why: str, hint: str, tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(source)
    done = tar2tf("convert", "-o", tmp_path / "x.record", tmp_path, "--op", f"func:{path}:f")
    assert done.returncode == 2
    first, second = done.stderr.splitlines()
    assert first.startswith(f"error: {path} cannot be imported: {why}")
    assert hint in second


@pytest.mark.parametrize(
    ("source", "says", "hint"),
    [
        (
            "import besides_it.deeper",
            "No module named 'besides_it'",
            "install it, or add the folder that has besides_it.py to PYTHONPATH",
        ),
        ("raise SystemExit(3)", "SystemExit: 3", "move its main program below if __name__ == '__main__':"),
        ("1 / 0", "ZeroDivisionError: division by zero", "correct it; python {} shows where it fails"),
        (
            "from os import nothing",
            "cannot import name 'nothing' from 'os'",
            "correct it; python {} shows where it fails",
        ),
    ],
)
def test_a_file_that_fails_when_it_is_imported_has_its_own_hint(
    source: str, says: str, hint: str, tmp_path: Path
) -> None:
    path = tmp_path / "failing.py"
    path.write_text(source)
    with pytest.raises(UsageError, match=re.escape(says)) as caught:
        Func(f"{path}:f")
    assert caught.value.hint == hint.format(path)


def test_a_module_that_does_not_exist_is_a_value_error_and_one_that_lacks_another_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "lacking_another.py").write_text("import another_one\n")
    (tmp_path / "failing_module.py").write_text("1 / 0\n")
    with pytest.raises(
        ValueError, match=r"^nowhere_at_all.x cannot be imported: ModuleNotFoundError: No module named "
    ):
        Func("nowhere_at_all.x:f")
    with pytest.raises(ValueError, match=r"^nowhere.py cannot be imported: FileNotFoundError: "):
        Func("nowhere.py:f")
    with pytest.raises(UsageError) as caught:
        Func("lacking_another:f")
    assert caught.value.sentence == (
        "lacking_another cannot be imported: ModuleNotFoundError: No module named 'another_one'; "
        "install it, or add the folder that has another_one.py to PYTHONPATH"
    )
    with pytest.raises(UsageError) as caught:
        Func("failing_module:f")
    assert caught.value.hint == "correct it; python -m failing_module shows where it fails"


@pytest.mark.parametrize("workers", ["1", "2"])
def test_what_a_function_prints_is_not_among_records_and_documents(
    workers: str, functions: Path, bucket: Path, tmp_path: Path
) -> None:
    functions.write_text(FUNCTIONS + "\nprint('loaded')\n")
    common = ("convert", bucket, "-j", workers, "--op", f"func:{functions}:chatty")
    done = tar2tf(*common, "-o", tmp_path / "a.record", "--json")
    assert json.loads(done.stdout)["records"] == len(IMAGES)
    assert done.stderr.count("hello") == len(IMAGES)
    assert json.loads(tar2tf(*common, "-o", tmp_path / "b.record", "--dry-run", "--json").stdout)["steps"]
    records = tar2tf(*common, "-o", "-").stdout
    assert "__key__" in records
    assert not {"hello", "loaded"} & set(records.splitlines())
    manifest = tmp_path / "_a-manifest.json"
    assert json.loads(tar2tf("verify", manifest, "--against", bucket, "--json", "--allow-func").stdout)["ok"]


def test_a_function_takes_arguments_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "crop.py").write_text(
        "def crop(sample, size, name='x', flags=()):\n    return {**sample, 'made': [size, name, list(flags)]}\n"
    )
    by_flag = parse_op("func:crop.py:crop,size=3,name=cat,flags=[1,2]")
    by_yaml = parse_op({"func": "crop.py:crop", "args": {"size": 3, "name": "cat", "flags": [1, 2]}})
    for op in (by_flag, by_yaml, parse_op(by_flag.canonical()), pickle.loads(pickle.dumps(by_flag))):
        assert op.canonical() == by_flag.canonical()
        assert op.apply({"__key__": "a"}, OpContext()) == {"__key__": "a", "made": [3, "cat", [1, 2]]}
    assert by_flag.canonical()["args"] == {"size": 3, "name": "cat", "flags": [1, 2]}


def test_a_function_gets_its_arguments_in_each_process(tmp_path: Path) -> None:
    code = "import os\n\ndef mark(sample, text):\n    return {**sample, 'text': text, 'pid': os.getpid()}\n"
    (tmp_path / "mark.py").write_text(code)
    for number in range(4):
        members = [(f"{number}-{n}.cls", b"1") for n in range(200)]
        write(tmp_path / f"in-{number}.tar", a_tar(members))
    op = f"func:{tmp_path / 'mark.py'}:mark,text=dog"
    for workers in ("1", "3"):
        out = tmp_path / workers / "o-<>.record"
        options = ("--op", op, "--op", "keep:text", "--records-per-shard", "300", "-j", workers, "-q")
        assert tar2tf("convert", tmp_path, "in-*.tar", "-o", out, *options).returncode == 0
    one, three = ({path.name: path.read_bytes() for path in (tmp_path / f).glob("*.record")} for f in "13")
    assert one == three
    assert {record["text"] for record in open_records(tmp_path / "3")} == {b"dog"}


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ("func:posixpath:basename,size", "takes arguments as NAME=VALUE, not 'size'"),
        ("func:posixpath:basename,a b=1", "takes arguments by name, and 'a b' is none"),
        ({"func": "posixpath:basename", "args": [1]}, "args by name"),
        ({"decode": "jpg", "args": {}}, "has no field 'decode'"),
    ],
)
def test_arguments_that_have_no_name_are_refused(item: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_op(item)


def test_what_a_function_writes_to_a_file_that_it_never_closes_is_there(bucket: Path, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "file = open('keys', 'w')\n\ndef note(sample):\n    file.write(sample['__key__'] + ' ')\n    return sample\n"
    )
    words = ("convert", bucket, "-o", "x.record", "-j", "1", "--op", "func:own.py:note")
    done = tar2tf(*words, cwd=tmp_path, env={"PYTHONUNBUFFERED": ""})  # by a real start, which has a real end
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "keys").read_text().split()) == len(IMAGES)
