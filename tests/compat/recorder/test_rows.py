"""Rows, faults and workers of a recorder."""

from __future__ import annotations

import json
import shutil

import pytest

import recorder_classes
from commands import convert, python, tar2tf
from interruptions import kill_once_published
from recorder_classes import AllTypes
from recorder_runs import ROWS, TOY, make_toys, rows_of, run, write_rows
from shards import examples, tree
from tar2tf_cli.errors import UsageError
from tar2tf_cli.recorder import generate_and_save_train_eval_test_tfrecords_files

pytestmark = pytest.mark.spread

FICKLE = f"{recorder_classes.__file__}:Fickle"


# --- Rows and faults ---


def test_quotes_blank_lines_and_a_byte_order_mark_are_read_as_csv_has_them(tmp_path):
    path = tmp_path / "examples.csv"
    path.write_bytes(b'\xef\xbb\xbf"a, ""b""\nc",yes,1,0.5\r\n\r\n\xc3\xa4,no,2,1\r\n')
    done = run(path, tmp_path / "t.record", where=FICKLE)
    assert done.returncode == 0, done.stderr
    found = examples(tmp_path / "t.record")
    assert [example["word"][0].decode() for example in found] == ['a, "b"\nc', "ä"]
    assert [example["__key__"][0] for example in found] == [b"1", b"2"]
    assert rows_of(tmp_path / "t-examples.csv") == [['a, "b"\nc', "yes", "1", "0.5"], ["ä", "no", "2", "1"]]


def test_ignored_examples_are_counted_and_no_error(tmp_path):
    path = write_rows(tmp_path / "examples.csv", [ROWS[0], "ignore,no,1,1", ROWS[2]])
    done = run(path, tmp_path / "t.record", "--json", where=FICKLE)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["skipped"] == {"samples": 0, "members": {}, "asked": {"IgnoreExample": 1}}
    assert [row[0] for row in rows_of(tmp_path / "t-examples.csv")] == ["a", "ccc"]
    assert "1 sample skipped: IgnoreExample\n" in done.stderr


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ("raise,no,1,1", "Fickle.load raised RuntimeError: the file is gone"),
        ("d,no,one,1", "ValueError"),
        ("d,no", "IndexError"),
        ("half,no,1,1", "there is no more"),
        ("d,no,1,1e300", "'about' is not of type float32"),
    ],
)
def test_an_example_that_cannot_be_made_is_named_by_its_row(tmp_path, row, fault):
    path = write_rows(tmp_path / "examples.csv", [ROWS[0], row, ROWS[2]])
    done = run(path, tmp_path / "t.record", where=FICKLE)
    assert done.returncode == 3
    assert "row 2" in done.stderr
    assert fault in done.stderr
    assert not (tmp_path / "t.record").exists()
    errors = tmp_path / "errors.jsonl"
    done = run(path, tmp_path / "t.record", "--on-error", "skip", "--errors", errors, where=FICKLE)
    assert done.returncode == 1
    assert [json.loads(line)["member"] for line in errors.read_text().splitlines()] == ["row 2"]
    words = [example["word"][0] for example in examples(tmp_path / "t.record")]
    assert words == [b"a", *([b"part"] if row.startswith("half") else []), b"ccc"]


def test_a_header_is_an_error_that_says_what_to_do(tmp_path):
    path = write_rows(tmp_path / "examples.csv", ["word,good,count,parts", "a,yes,1,1"])
    done = run(path, tmp_path / "t.record", where=FICKLE)
    assert done.returncode == 3
    first, hint = done.stderr.splitlines()
    assert first.startswith(f"error: {path}, row 1: ")
    assert "remove it if it is a header" in hint


def test_each_part_is_let_go_when_it_is_stored_and_the_whole_behind_them(tmp_path):
    path = write_rows(tmp_path / "examples.csv", ["a,yes,1,1", "twice,yes,1,1", "b,yes,1,1"])
    log = tmp_path / "log"
    done = run(path, tmp_path / "t.record", "--example-arg", f"log={log}", "-j", "1", where=FICKLE)
    assert done.returncode == 0, done.stderr
    assert log.read_text().split() == ["a", "twice", "b"]
    assert [example["word"][0] for example in examples(tmp_path / "t.record")] == [b"a", b"part0", b"part1", b"b"]
    assert [row[0] for row in rows_of(tmp_path / "t-examples.csv")] == ["a", "twice", "b"]


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", "has no rows"),
        (b'a,"b\nc', "line 2"),
        (b"a\n\xff\n", "line 2: it is not UTF-8"),
        (b"a\rb\r", "lines that end with LF"),
        (None, "cannot be read"),
    ],
)
def test_a_file_that_is_no_csv_is_named(tmp_path, data, fault):
    path = tmp_path / "examples.csv"
    if data is not None:
        path.write_bytes(data)
    done = run(path, tmp_path / "t.record", where=FICKLE)
    assert done.returncode == 3
    assert fault in done.stderr
    assert "examples.csv" in done.stderr


@pytest.mark.parametrize("mark", [";", "\t"])
def test_rows_with_other_characters_for_commas_are_named_with_what_to_do(tmp_path, mark):
    path = write_rows(tmp_path / "examples.csv", [mark.join(["a", "yes", "1", "1"])])
    done = run(path, tmp_path / "t.record", where=FICKLE)
    assert done.returncode == 3
    assert (
        f"separate the cells by commas; the row is a single cell now: {mark.join(['a', 'yes', '1', '1'])!r}"
        in done.stderr
    )


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (["--from", "examples"], "--example-class"),
        (["--from", "examples", "--example-class", "nowhere.py:X"], "nowhere.py cannot be imported"),
        (["--from", "examples", "--example-class", "json:JSONDecoder"], "not a subclass"),
        (["--from", "examples", "--example-class", TOY, "--example-arg", "x"], "NAME=VALUE"),
        (["--example-class", TOY], "add --from examples"),
    ],
)
def test_classes_and_arguments_that_cannot_be_are_refused(toys, tmp_path, options, fault):
    done = tar2tf("convert", toys[0], "-o", tmp_path / "t.record", *options)
    assert done.returncode == 2
    assert fault in done.stderr


DIRECTORIES = "train, eval, test"
SUM = "give one number between 0 and 1, or two or three that sum to 1"


@pytest.mark.parametrize(
    ("lists", "ratio", "fault"),
    [
        *(({name: "x"}, 0.8, f"{name!r} cannot be the name of a directory") for name in ("", ".", "..", "a/b", "/a")),
        ([], 0.8, f"got 0 lists of examples for {DIRECTORIES}; give one to three"),
        (["x"] * 4, 0.8, f"got 4 lists of examples for {DIRECTORIES}; give one to three"),
        *(
            ("examples.csv", ratio, f"the ratio {ratio!r} does not divide examples into {DIRECTORIES}; {SUM}")
            for ratio in (
                2, -0.1, 1.01, "x", None, (0.5, 0.6), (0.5, 0.4), (0.7, 0.7, -0.4), (0.25,) * 4, (0.1, 0.2, 0.3), [],
            )
        ),
    ],
)  # fmt: skip
def test_lists_and_ratios_that_give_no_directories_are_refused(tmp_path, monkeypatch, lists, ratio, fault):
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "examples.csv", ROWS)
    with pytest.raises(UsageError) as caught:
        generate_and_save_train_eval_test_tfrecords_files(
            "out", recorder_classes.Fickle, lists, examples_train_eval_test_ratio=ratio
        )
    assert str(caught.value) == fault
    assert [path.name for path in tmp_path.iterdir()] == ["examples.csv"]


def test_an_argument_that_no_method_takes_is_refused(tmp_path):
    path = write_rows(tmp_path / "examples.csv", ROWS)
    with pytest.raises(UsageError, match="no method of Plain accepts the argument 'nomalize'") as caught:
        generate_and_save_train_eval_test_tfrecords_files(tmp_path / "out", Plain, path, nomalize=True)
    assert caught.value.hint == "its methods are from_csv_row, load, split"


class Plain(AllTypes):
    def load(self, normalize=False):
        pass

    def split(self):
        return None


# --- Workers ---


@pytest.mark.parametrize("options", [[], ["--shuffle", "--seed", "4"], ["--split", "a=0.5,b=0.5"]])
def test_bytes_are_the_same_for_any_number_of_workers(tmp_path, options):
    path, data = make_toys(tmp_path, 300)
    name = "<split>-<>.record" if "--split" in options else "t-<>.record"
    trees = []
    for workers in ("1", "2"):
        out = tmp_path / f"out-{workers}"
        arguments = [*options, "--example-arg", f"src_data_dirpath={data}", "--max-shard-size", "20kB", "-j", workers]
        done = run(path, out / name, *arguments)
        assert done.returncode == 0, done.stderr
        trees.append(tree(out))
    assert trees[0] == trees[1]
    assert len(trees[0]) > 4
    assert sorted(rows_of(next((tmp_path / "out-1").glob("*examples.csv")))) == sorted(rows_of(path))


def test_the_parts_of_an_example_stay_on_one_side_of_a_split(tmp_path):
    path, data = make_toys(tmp_path, 60)
    done = run(
        path, tmp_path / "out" / "<split>.record", "--split", "a=0.5,b=0.5", "--example-arg", f"src_data_dirpath={data}"
    )
    assert done.returncode == 0, done.stderr
    sides = [{example["__key__"][0] for example in examples(tmp_path / "out" / f"{name}.record")} for name in "ab"]
    assert not sides[0] & sides[1]
    assert len(sides[0]) + len(sides[1]) == 60


def test_a_killed_run_continues_with_the_same_command(tmp_path):
    path, data = make_toys(tmp_path, 300)
    options = ["--example-arg", f"src_data_dirpath={data}", "--max-shard-size", "20kB", "-j", "2"]
    assert run(path, tmp_path / "whole" / "t-<>.record", *options).returncode == 0
    out = tmp_path / "killed"
    command = ["convert", "--from", "examples", "--example-class", TOY, path, "-o", out / "t-<>.record", *options]
    kill_once_published("t-1.record", *command)
    assert tar2tf(*command).returncode == 0
    assert tree(out) == tree(tmp_path / "whole")
    assert "up to date" in tar2tf(*command).stderr
    with path.open("a") as file:
        file.write("toy0,1\n")
    assert tar2tf(*command).returncode == 2


def test_a_class_that_changed_makes_another_conversion(toys, tmp_path):
    path, data = toys
    source = tmp_path / "mine.py"
    shutil.copy(recorder_classes.__file__, source)
    options = ["--example-arg", f"src_data_dirpath={data}"]
    assert run(path, tmp_path / "t.record", *options, where=f"{source}:ToyExample").returncode == 0
    assert "up to date" in run(path, tmp_path / "t.record", *options, where=f"{source}:ToyExample").stderr
    source.write_text(source.read_text().replace("=5", "=3"))
    assert run(path, tmp_path / "t.record", *options, where=f"{source}:ToyExample").returncode == 2


def test_ops_select_and_types_work_as_for_tars(toys, tmp_path):
    path, data = toys
    options = ["--select", "y=label,data", "--type", "y=float", "--op", "keep:data,label"]
    done = run(path, tmp_path / "t.record", *options, "--example-arg", f"src_data_dirpath={data}")
    assert done.returncode == 0, done.stderr
    first = examples(tmp_path / "t.record")[0]
    assert set(first) == {"data", "data/shape", "y"}
    assert first["y"] == [0.0]


def test_a_spec_file_says_the_same_as_the_flags(toys, tmp_path):
    path, data = toys
    assert run(path, tmp_path / "one" / "t.record", "--example-arg", f"src_data_dirpath={data}").returncode == 0
    spec = tmp_path / "spec.yaml"
    inputs = f"{{bucket: {path}, from: examples, example_class: '{TOY}', example_args: {{src_data_dirpath: {data}}}"
    spec.write_text(f"input: {inputs}}}\noutput: {{path: {tmp_path}/two/t.record}}\n")
    convert("--spec", spec)
    assert tree(tmp_path / "one") == tree(tmp_path / "two")
    again = json.loads((tmp_path / "one" / "_t-manifest.json").read_text())["spec"]
    again["output"]["path"] = str(tmp_path / "three" / "t.record")
    spec.write_text(json.dumps(again))
    convert("--spec", spec)
    assert tree(tmp_path / "one") == tree(tmp_path / "three")
    spec.write_text(f"input: {inputs}, rows: [10, 20]}}\noutput: {{path: {tmp_path}/four/t.record}}\n")
    convert("--spec", spec)
    assert rows_of(tmp_path / "four" / "t-examples.csv") == rows_of(path)[10:20]
    spec.write_text(f"input: {inputs}, rows: [20, 10]}}\noutput: {{path: {tmp_path}/five/t.record}}\n")
    assert tar2tf("convert", "--spec", spec).returncode == 2


def test_a_dry_run_shows_the_first_example(toys, tmp_path):
    done = run(toys[0], tmp_path / "t.record", "--example-arg", f"src_data_dirpath={toys[1]}", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "float32 [5, 4]" in done.stdout
    assert not (tmp_path / "t.record").exists()


def test_a_class_in_a_file_is_found_by_workers_that_cannot_be_forked(toys, tmp_path):
    code = (
        "import sys, threading, tensorflow\n"
        "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "from tar2tf_cli.recorder import generate_and_save_train_eval_test_tfrecords_files as generate\n"
        "generate(sys.argv[1], sys.argv[2], sys.argv[3], examples_num_workers=2, src_data_dirpath=sys.argv[4])\n"
    )
    done = python("-c", code, tmp_path / "out", TOY, *toys, tensorflow=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert len(rows_of(tmp_path / "out" / "train" / "examples.csv")) == 32
