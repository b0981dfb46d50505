"""Examples described by a CSV file: the toy example end to end, every type, division, faults, workers, resuming."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import numpy as np
import pytest

from recorded import AllTypes, ToyExample
from shards import COMMAND, convert, end, examples, shards_in, start, tar2tf, tree, wait_until
from tar2tf_cli import load_dataset
from tar2tf_cli.errors import SampleError, SourceError, UsageError
from tar2tf_cli.recorder import (
    CONFIG_FILENAME,
    Example,
    generate_and_save_train_eval_test_tfrecords_files,
    generate_dataset,
    get_tfrecord_filepaths,
    tfrecordable,
)

TOY = f"{Path(__file__).parent / 'recorded.py'}:ToyExample"
FICKLE = f"{Path(__file__).parent / 'recorded.py'}:Fickle"
ROWS = ["a,yes,9223372036854775807,0.1", "bb,no,-1,1e300", 'ccc,yes,0,"-2.5"']


def make_toys(folder: Path, count: int = 40) -> tuple[Path, Path]:
    """A CSV file of names and labels, and the folder of arrays they name."""
    random = np.random.default_rng(3)
    data = folder / "data"
    data.mkdir()
    with (folder / "examples.csv").open("w", newline="") as file:
        for number in range(count):
            np.save(data / f"toy{number}.npy", random.random((7 + number % 6, 4), dtype=np.float32))
            csv.writer(file).writerow([f"toy{number}", number % 5])
    return folder / "examples.csv", data


def chunks_of(row: list[str], data: Path) -> list[tuple[int, np.ndarray]]:
    """What the toy example of a row comes to, as plain numpy has it."""
    array = np.load(data / f"{row[0]}.npy")
    array /= array.max()
    return [(int(row[1]), array[start : start + 5]) for start in range(0, len(array), 5)]


def rows_of(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


def write_rows(path: Path, rows: list[str]) -> Path:
    path.write_text("".join(f"{row}\n" for row in rows))
    return path


def run(path: Path, output: Path, *args: str | Path, where: str = TOY):
    return tar2tf("convert", "--from", "examples", "--example-class", where, path, "-o", output, *args)


@pytest.fixture
def toys(tmp_path: Path) -> tuple[Path, Path]:
    return make_toys(tmp_path)


# --- The toy example, end to end ---


@pytest.mark.parametrize("given", [None, ToyExample, TOY])
def test_the_toy_example_comes_back_from_train_eval_and_test_in_chunks_of_five(toys, tmp_path, given):
    path, data = toys
    out = tmp_path / "out"
    counts = generate_and_save_train_eval_test_tfrecords_files(
        out, ToyExample, path, [0.5, 0.3, 0.2], src_data_dirpath=str(data), normalize=True, chunk_size_in_bins=5
    )
    seen = []
    for name, share in (("train", 20), ("eval", 12), ("test", 8)):
        rows = rows_of(out / name / "examples.csv")
        assert len(rows) == share
        seen += rows
        expected = [chunk for row in rows for chunk in chunks_of(row, data)]
        dataset = generate_dataset(get_tfrecord_filepaths(out / name), given)
        assert [spec.dtype.name for spec in dataset.element_spec] == ["int32", "float32"]
        assert dataset.element_spec[1].shape.as_list() == [None, 4]
        found = list(dataset.as_numpy_iterator())
        assert len(found) == counts[name] == len(expected)
        for (label, array), (wanted, values) in zip(found, expected, strict=True):
            assert label == wanted
            np.testing.assert_array_equal(array, values)
    assert sorted(seen) == sorted(rows_of(path))
    assert seen != rows_of(path)


def test_a_row_is_loaded_only_where_it_is_stored(toys, tmp_path):
    path, data = toys
    arguments = [f"--example-arg={name}" for name in (f"src_data_dirpath={data}", "normalize=true")]
    done = run(path, tmp_path / "out" / "t-<>.record", *arguments, "--limit", "3", "--json")
    assert done.returncode == 0, done.stderr
    assert rows_of(tmp_path / "out" / "t-examples.csv") == rows_of(path)[:3]
    expected = [chunk for row in rows_of(path)[:3] for chunk in chunks_of(row, data)]
    found = examples(*shards_in(tmp_path / "out"))
    assert [example["label"] for example in found] == [[label] for label, _ in expected]
    for example, (_, values) in zip(found, expected, strict=True):
        np.testing.assert_array_equal(np.float32(example["data"]), values.ravel())
        assert example["data/shape"] == list(values.shape)
    assert tar2tf("verify", tmp_path / "out" / "t-manifest.json").returncode == 0


def test_the_readmes_example_runs_as_a_script(toys, tmp_path):
    from test_docs import block

    (tmp_path / "toy.py").write_text(block("recorder"))
    done = subprocess.run([sys.executable, "toy.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(
        examples(*map(Path, get_tfrecord_filepaths(tmp_path / "out" / "train")))
    )
    words = ["--from", "examples", "--example-class", "toy.py:ToyExample", "--example-arg", "src_data_dirpath=data"]
    convert(*words, "examples.csv", "-o", "cli/train-<>.record", cwd=tmp_path)


# --- Division, size, config ---


@pytest.mark.parametrize(
    ("ratio", "sizes"),
    [
        (0.8, {"train": 32, "eval": 8}),
        (1, {"train": 40}),
        ([0.7, 0.3], {"train": 28, "eval": 12}),
        ((0.5, 0.3, 0.2), {"train": 20, "eval": 12, "test": 8}),
        ([0.9, 0.1, 0.0], {"train": 36, "eval": 4}),
    ],
)
def test_ratios_divide_the_rows_between_directories(toys, tmp_path, ratio, sizes):
    path, data = toys
    generate_and_save_train_eval_test_tfrecords_files(tmp_path / "out", ToyExample, path, ratio, src_data_dirpath=data)
    assert {folder.name: len(rows_of(folder / "examples.csv")) for folder in (tmp_path / "out").glob("*/")} == sizes


@pytest.mark.parametrize("ratio", [1.2, -0.1, [0.5, 0.6], [0.5, 0.3, 0.1], [0.25] * 4])
def test_ratios_that_do_not_sum_to_one_are_refused(toys, tmp_path, ratio):
    with pytest.raises(UsageError, match="sum to 1"):
        generate_and_save_train_eval_test_tfrecords_files(tmp_path / "out", ToyExample, toys[0], ratio)


def test_rows_stay_in_order_when_they_are_not_shuffled(toys, tmp_path):
    path, data = toys
    generate_and_save_train_eval_test_tfrecords_files(
        tmp_path / "out", ToyExample, path, 0.5, examples_shuffle=False, src_data_dirpath=data
    )
    parts = [rows_of(tmp_path / "out" / name / "examples.csv") for name in ("train", "eval")]
    assert parts == [rows_of(path)[:20], rows_of(path)[20:]]


@pytest.mark.parametrize("form", ["sequence", "dict"])
def test_separate_files_or_a_dict_of_them_go_to_directories_of_their_own(toys, tmp_path, form):
    path, data = toys
    lines = path.read_text().splitlines()
    paths = [write_rows(tmp_path / f"{name}.csv", lines[place::3]) for place, name in enumerate("abc")]
    names = ["train", "eval", "test"] if form == "sequence" else ["fold_0", "fold_1", "fold_2"]
    lists = paths if form == "sequence" else dict(zip(names, paths, strict=True))
    generate_and_save_train_eval_test_tfrecords_files(
        tmp_path / "out", ToyExample, lists, examples_shuffle=False, src_data_dirpath=data
    )
    for name, part in zip(names, paths, strict=True):
        assert rows_of(tmp_path / "out" / name / "examples.csv") == rows_of(part)
    config = ConfigParser(interpolation=None)
    config.read(tmp_path / "out" / CONFIG_FILENAME)
    assert config["examples"][f"{names[0]}_count"] == str(len(examples(tmp_path / "out" / names[0] / "0.tfr")))


def test_what_is_stored_can_be_stored_again_from_its_own_examples_csv(toys, tmp_path):
    path, data = toys
    generate_and_save_train_eval_test_tfrecords_files(tmp_path / "one", ToyExample, path, src_data_dirpath=data)
    lists = {name: tmp_path / "one" / name / "examples.csv" for name in ("train", "eval")}
    options = {"examples_shuffle": False, "src_data_dirpath": data}
    generate_and_save_train_eval_test_tfrecords_files(tmp_path / "two", ToyExample, lists, **options)
    for name in lists:
        first, second = (
            [example["data"] for example in examples(tmp_path / run / name / "0.tfr")] for run in ("one", "two")
        )
        assert first == second
    with pytest.raises(UsageError, match="is an input"):
        generate_and_save_train_eval_test_tfrecords_files(
            tmp_path / "one", ToyExample, lists, examples_overwrite=True, **options
        )


def test_files_are_numbered_from_0_and_keep_to_the_size(toys, tmp_path):
    path, data = toys
    generate_and_save_train_eval_test_tfrecords_files(
        tmp_path / "out", ToyExample, path, 1, True, 1500, src_data_dirpath=data
    )
    paths = get_tfrecord_filepaths(tmp_path / "out" / "train")
    assert [os.path.basename(path) for path in paths] == [f"{number}.tfr" for number in range(len(paths))]
    assert len(paths) > 10
    assert max(map(os.path.getsize, paths)) <= 1500
    (tmp_path / "out" / "train" / "manifest.json").unlink()
    assert get_tfrecord_filepaths(tmp_path / "out" / "train") == paths


def test_the_config_file_says_how_it_was_made(toys, tmp_path):
    path, data = toys
    generate_and_save_train_eval_test_tfrecords_files(
        tmp_path / "out", ToyExample, path, [0.9, 0.1], src_data_dirpath=data, normalize=True
    )
    config = ConfigParser(interpolation=None)
    config.read(tmp_path / "out" / CONFIG_FILENAME)
    found = dict(config["examples"])
    assert found["class_name"] == "ToyExample"
    assert found["train_eval_test_ratio"] == "0.9, 0.1"
    assert found["normalize"] == "True"
    assert found["src_data_dirpath"] == str(data)
    assert str(path) in found["list_filepath"]
    assert int(found["train_count"]) == len(examples(tmp_path / "out" / "train" / "0.tfr"))


def test_a_second_call_does_nothing_and_a_third_with_other_arguments_is_refused(toys, tmp_path):
    path, data = toys
    call = [tmp_path / "out", ToyExample, path]
    generate_and_save_train_eval_test_tfrecords_files(*call, src_data_dirpath=data)
    before = {name: (tmp_path / "out" / name).stat().st_mtime_ns for name in ("train/0.tfr", "eval/0.tfr")}
    generate_and_save_train_eval_test_tfrecords_files(*call, src_data_dirpath=data)
    assert before == {name: (tmp_path / "out" / name).stat().st_mtime_ns for name in before}
    with pytest.raises(UsageError, match="another spec"):
        generate_and_save_train_eval_test_tfrecords_files(*call, src_data_dirpath=data, normalize=True)


# --- Types and datasets ---


@pytest.mark.parametrize("given", [None, AllTypes])
def test_every_type_comes_back_with_its_dtype_in_declared_order(tmp_path, given):
    path = write_rows(tmp_path / "examples.csv", ROWS[:1] + ROWS[2:])
    generate_and_save_train_eval_test_tfrecords_files(tmp_path / "out", AllTypes, path, 1, examples_shuffle=False)
    dataset = generate_dataset(get_tfrecord_filepaths(tmp_path / "out" / "train"), given)
    dtypes = [spec.dtype.name for spec in dataset.element_spec]
    assert dtypes == ["string", "bool", "int64", "float64", "float32", "int32", "int32", "float32"]
    first, second = dataset.as_numpy_iterator()
    assert first[:6] == (b"a", True, 2**63 - 1, 0.1, np.float32(0.1), 7)
    assert second[:6] == (b"ccc", True, 0, -2.5, -2.5, 7)
    np.testing.assert_array_equal(first[6], [[-3, -2, -1], [0, 1, 2]])
    np.testing.assert_array_equal(second[7], [0.5, 0.5, 0.5])
    assert tar2tf("verify", tmp_path / "out" / "train" / "manifest.json").returncode == 0
    loaded = next(load_dataset(tmp_path / "out" / "train" / "manifest.json").as_numpy_iterator())
    assert loaded["exact"] == 0.1
    assert loaded["flag"]


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("BOOL", 2),
        ("BOOL", "no"),
        ("INT32", 2**31),
        ("INT32", 1.5),
        ("INT64", 2**63),
        ("INT64", "7"),
        ("FLOAT", 1e300),
        ("FLOAT", "1"),
        ("DOUBLE", None),
        ("STRING", 5),
        ("ARRAY_INT32", [1.5]),
        ("ARRAY_INT32", [2**40]),
        ("ARRAY_FLOAT32", np.array([1e300])),
        ("ARRAY_FLOAT32", ["a"]),
    ],
)
def test_a_value_that_is_not_of_its_type_is_refused(dtype, value):
    class Wrong(Example):
        @tfrecordable(dtype=getattr(Example.Field, f"TYPE_{dtype}"))
        def thing(self):
            return value

    with pytest.raises(SampleError, match="'thing'"):
        Wrong().values()


def test_attributes_behave_as_properties_and_subclasses_inherit_them():
    class More(ToyExample):
        @tfrecordable(dtype=Example.Field.TYPE_STRING)
        def name_again(self):
            """The name."""
            return self.name

    example = More("x", 3)
    assert list(More.fields()) == ["label", "data", "name_again"]
    assert (example.label, example.name_again, More.name_again.__doc__) == (3, "x", "The name.")
    example.label = 4
    assert example.label == 4
    with pytest.raises(AttributeError):
        example.name_again = "y"
    example.release()
    assert example.data is None
    with pytest.raises(UsageError, match="no dtype"):
        tfrecordable(dtype="int8")


def test_datasets_are_divided_between_trainers(toys, tmp_path):
    path, data = toys
    generate_and_save_train_eval_test_tfrecords_files(tmp_path / "out", ToyExample, path, 1, src_data_dirpath=data)
    paths = get_tfrecord_filepaths(tmp_path / "out" / "train")
    whole = [int(label) for label, _ in generate_dataset(paths)]
    halves = [[int(label) for label, _ in generate_dataset(paths, num_workers=2, worker_index=i)] for i in (0, 1)]
    assert halves == [whole[0::2], whole[1::2]]
    shuffled = generate_dataset(paths, dataset_num_shuffled_tfrecord_files=1000, dataset_fetching_num_threads=2)
    assert sorted(int(label) for label, _ in shuffled) == sorted(whole)
    with pytest.raises(UsageError, match="go together"):
        generate_dataset(paths, num_workers=2)


def test_a_dataset_needs_a_manifest_or_a_class(toys, tmp_path):
    path, data = toys
    generate_and_save_train_eval_test_tfrecords_files(tmp_path / "out", ToyExample, path, 1, src_data_dirpath=data)
    (tmp_path / "out" / "train" / "manifest.json").unlink()
    paths = get_tfrecord_filepaths(tmp_path / "out" / "train")
    with pytest.raises(UsageError, match="example_class"):
        generate_dataset(paths)
    assert next(generate_dataset(paths, ToyExample).as_numpy_iterator())[1].shape == (5, 4)
    with pytest.raises(SourceError):
        get_tfrecord_filepaths(tmp_path / "nowhere")


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
    assert json.loads(done.stdout)["skipped"] == {"samples": 0, "members": {"ignored by its class": 1}}
    assert [row[0] for row in rows_of(tmp_path / "t-examples.csv")] == ["a", "ccc"]


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ("raise,no,1,1", "Fickle.load raised RuntimeError: the file is gone"),
        ("d,no,one,1", "ValueError"),
        ("d,no", "IndexError"),
        ("half,no,1,1", "there is no more"),
        ("d,no,1,1e300", "'about' is no float32"),
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
        (b"", "holds no rows"),
        (b'a,"b\nc', "line 2"),
        (b"a\n\xff\n", "line 2: it is not UTF-8"),
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


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (["--from", "examples"], "--example-class"),
        (["--from", "examples", "--example-class", "nowhere.py:X"], "nowhere.py cannot be imported"),
        (["--from", "examples", "--example-class", "json:JSONDecoder"], "no subclass"),
        (["--from", "examples", "--example-class", TOY, "--example-arg", "x"], "NAME=VALUE"),
        (["--example-class", TOY], "add --from examples"),
    ],
)
def test_classes_and_arguments_that_cannot_be_are_refused(toys, tmp_path, options, fault):
    done = tar2tf("convert", toys[0], "-o", tmp_path / "t.record", *options)
    assert done.returncode == 2
    assert fault in done.stderr


def test_an_argument_that_no_method_takes_is_refused(tmp_path):
    path = write_rows(tmp_path / "examples.csv", ROWS)
    with pytest.raises(UsageError, match="no method of Plain takes the argument 'nomalize'"):
        generate_and_save_train_eval_test_tfrecords_files(tmp_path / "out", Plain, path, nomalize=True)


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
    path, data = make_toys(tmp_path, 1500)
    options = ["--example-arg", f"src_data_dirpath={data}", "--max-shard-size", "20kB", "-j", "2"]
    assert run(path, tmp_path / "whole" / "t-<>.record", *options).returncode == 0
    out = tmp_path / "killed"
    command = ["convert", "--from", "examples", "--example-class", TOY, path, "-o", out / "t-<>.record", *options]
    process = start(*command)
    wait_until(lambda: (out / "t-1.record").exists() or process.poll() is not None, "a first shard")
    os.killpg(process.pid, signal.SIGKILL)
    end(process)
    assert tar2tf(*command).returncode == 0
    assert tree(out) == tree(tmp_path / "whole")
    assert "up to date" in tar2tf(*command).stderr
    with path.open("a") as file:
        file.write("toy0,1\n")
    assert tar2tf(*command).returncode == 2


def test_a_class_that_changed_makes_another_conversion(toys, tmp_path):
    path, data = toys
    source = tmp_path / "mine.py"
    shutil.copy(Path(__file__).parent / "recorded.py", source)
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
    again = json.loads((tmp_path / "one" / "t-manifest.json").read_text())["spec"]
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
        "from tar2tf_cli.recorder import generate_and_save_train_eval_test_tfrecords_files as generate\n"
        "generate(sys.argv[1], sys.argv[2], sys.argv[3], examples_num_workers=2, src_data_dirpath=sys.argv[4])\n"
    )
    done = subprocess.run(
        [COMMAND[0], "-c", code, str(tmp_path / "out"), TOY, *map(str, toys)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert len(rows_of(tmp_path / "out" / "train" / "examples.csv")) == 32
