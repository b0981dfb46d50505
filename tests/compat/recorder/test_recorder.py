"""Examples described by a CSV file: the toy example end to end, every type, division, faults, workers, resuming."""

from __future__ import annotations

import os
from configparser import ConfigParser
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from commands import convert, python, tar2tf
from recorder_classes import ToyExample
from recorder_runs import TOY, rows_of, run, write_rows
from shards import examples, records, shards_in
from tar2tf_cli.errors import SourceError, UsageError
from tar2tf_cli.recorder import (
    CONFIG_FILENAME,
    generate_and_save_train_eval_test_tfrecords_files,
    generate_dataset,
    get_tfrecord_filepaths,
)

pytestmark = pytest.mark.spread


def chunks_of(row: list[str], data: Path) -> list[tuple[int, np.ndarray]]:
    """What the toy example of a row comes to, as plain numpy has it."""
    array = np.load(data / f"{row[0]}.npy")
    array /= array.max()
    return [(int(row[1]), array[start : start + 5]) for start in range(0, len(array), 5)]


# --- The toy example, end to end ---


@pytest.mark.parametrize("given", [None, ToyExample, TOY], ids=["in the header", "class", "path of a file"])
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


def test_skipped_examples_get_a_warning_in_every_run(toys, tmp_path):
    path, data = toys
    next(data.iterdir()).unlink()
    for _ in range(2):
        with pytest.warns(UserWarning, match="out lacks 1 example that could not be made"):
            generate(tmp_path / "out", ToyExample, path, src_data_dirpath=str(data), examples_on_error="skip")


@pytest.mark.parametrize("size", [300, 300.0, "300"])
def test_the_size_of_files_follows_the_ratio_as_in_tfrecorder(toys, tmp_path, size):
    path, data = toys
    generate_and_save_train_eval_test_tfrecords_files(tmp_path, ToyExample, path, 1, size, src_data_dirpath=str(data))
    files = [Path(name) for name in get_tfrecord_filepaths(tmp_path / "train")]
    assert len(files) > 1
    assert max(file.stat().st_size for file in files) <= 300
    with pytest.raises(UsageError, match="True is not a size"):
        generate_and_save_train_eval_test_tfrecords_files(tmp_path / "x", ToyExample, path, 1, True)


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
    assert tar2tf("verify", tmp_path / "out" / "_t-manifest.json").returncode == 0


@pytest.mark.xdist_group("s3")
def test_the_documented_example_runs_as_a_script(toys, tmp_path):
    from readme import block

    (tmp_path / "toy.py").write_text(block("toy.py", "docs/reference/examples.md"))
    done = python("toy.py", tensorflow=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(
        examples(*map(Path, get_tfrecord_filepaths(tmp_path / "out" / "train")))
    )
    words = ["--from", "examples", "--example-class", "toy.py:ToyExample", "--example-arg", "src_data_dirpath=data"]
    convert(*words, "examples.csv", "-o", "cli/train-<>.record", cwd=tmp_path)


# --- Division, size, config ---

generate = partial(generate_and_save_train_eval_test_tfrecords_files, examples_num_workers=1)
"""In this process: beside TensorFlow each worker would be an interpreter that starts."""


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
    generate(tmp_path / "out", ToyExample, path, ratio, src_data_dirpath=data)
    assert {folder.name: len(rows_of(folder / "examples.csv")) for folder in (tmp_path / "out").glob("*/")} == sizes


@pytest.mark.parametrize("ratio", [1.2, -0.1, None, "0.8", [], [0.5, 0.6], [0.5, 0.3, 0.1], [0.25] * 4])
def test_ratios_that_do_not_sum_to_one_are_refused(toys, tmp_path, ratio):
    with pytest.raises(UsageError, match="sum to 1"):
        generate(tmp_path / "out", ToyExample, toys[0], ratio)


def test_rows_stay_in_order_when_they_are_not_shuffled(toys, tmp_path):
    path, data = toys
    generate(tmp_path / "out", ToyExample, path, 0.5, examples_shuffle=False, src_data_dirpath=data)
    parts = [rows_of(tmp_path / "out" / name / "examples.csv") for name in ("train", "eval")]
    assert parts == [rows_of(path)[:20], rows_of(path)[20:]]


@pytest.mark.parametrize("form", ["sequence", "dict"])
def test_separate_files_or_a_dict_of_them_go_to_directories_of_their_own(toys, tmp_path, form):
    path, data = toys
    lines = path.read_text().splitlines()
    paths = [write_rows(tmp_path / f"{name}.csv", lines[place::3]) for place, name in enumerate("abc")]
    names = ["train", "eval", "test"] if form == "sequence" else ["fold_0", "fold_1", "fold_2"]
    lists = paths if form == "sequence" else dict(zip(names, paths, strict=True))
    generate(tmp_path / "out", ToyExample, lists, examples_shuffle=False, src_data_dirpath=data)
    for name, part in zip(names, paths, strict=True):
        assert rows_of(tmp_path / "out" / name / "examples.csv") == rows_of(part)
    config = ConfigParser(interpolation=None)
    config.read(tmp_path / "out" / CONFIG_FILENAME)
    written = records(*map(Path, get_tfrecord_filepaths(tmp_path / "out" / names[0])))
    assert config["examples"][f"{names[0]}_count"] == str(len(written))


def test_what_is_stored_can_be_stored_again_from_its_own_examples_csv(toys, tmp_path):
    path, data = toys
    generate(tmp_path / "one", ToyExample, path, src_data_dirpath=data)
    lists = {name: tmp_path / "one" / name / "examples.csv" for name in ("train", "eval")}
    options = {"examples_shuffle": False, "src_data_dirpath": data}
    generate(tmp_path / "two", ToyExample, lists, **options)
    for name in lists:
        first, second = (
            [example["data"] for example in examples(tmp_path / run / name / "0.tfr")] for run in ("one", "two")
        )
        assert first == second
    with pytest.raises(UsageError, match="is an input"):
        generate(tmp_path / "one", ToyExample, lists, examples_overwrite=True, **options)


def test_files_are_numbered_from_0_and_keep_to_the_size(toys, tmp_path):
    path, data = toys
    generate(tmp_path / "out", ToyExample, path, 1, 1500, src_data_dirpath=data)
    paths = get_tfrecord_filepaths(tmp_path / "out" / "train")
    assert [os.path.basename(path) for path in paths] == [f"{number}.tfr" for number in range(len(paths))]
    assert len(paths) > 10
    assert max(map(os.path.getsize, paths)) <= 1500
    (tmp_path / "out" / "train" / "_manifest.json").unlink()
    assert get_tfrecord_filepaths(tmp_path / "out" / "train") == paths


def test_the_config_file_says_how_it_was_made(toys, tmp_path):
    path, data = toys
    generate(tmp_path / "out", ToyExample, path, [0.9, 0.1], src_data_dirpath=data, normalize=True)
    config = ConfigParser(interpolation=None)
    config.read(tmp_path / "out" / CONFIG_FILENAME)
    found = dict(config["examples"])
    assert found["class_name"] == "ToyExample"
    assert found["train_eval_test_ratio"] == "[0.9, 0.1]"
    assert found["normalize"] == "True"
    assert found["src_data_dirpath"] == str(data)
    assert found["list_filepath"] == str(path)
    assert found["tfrecord_file_max_size_in_mb"] == "1.00e+00"
    assert found["log_in_csv_file"] == "True"
    written = {
        part: len(records(*map(Path, get_tfrecord_filepaths(tmp_path / "out" / part)))) for part in ("train", "eval")
    }
    assert {part: int(found[f"{part}_count"]) for part in ("train", "eval")} == written
    assert sum(written.values()) > len(rows_of(path))  # as each row becomes several examples


def test_arguments_of_the_original_are_taken_by_position(toys, tmp_path):
    path, data = toys
    generate(tmp_path / "out", ToyExample, path, 0.5, 1e6, True, src_data_dirpath=data)
    files = get_tfrecord_filepaths(tmp_path / "out" / "train")
    assert len(list(generate_dataset(files, ToyExample, 100))) == len(examples(Path(files[0])))


def test_the_helpers_of_examples_read_write_and_parse(toys, tmp_path):
    path, data = toys
    found = ToyExample.from_csv_file(path)
    assert len(found) == len(rows_of(path))
    ToyExample.to_csv_file(tmp_path / "again.csv", found[:3])
    ToyExample.to_csv_file(tmp_path / "again.csv", found[3:])
    assert rows_of(tmp_path / "again.csv") == rows_of(path)
    found[4].load(src_data_dirpath=data)
    written = found[4].serialize_to_string()
    assert found[4].get_byte_size() == len(written)
    assert set(tf.train.Example.FromString(written).features.feature) == {"data", "data/shape", "label"}
    parsed = dict(zip(ToyExample.fields(), ToyExample.parse_from_string(written), strict=True))
    assert parsed["label"].numpy() == found[4].label
    np.testing.assert_array_equal(parsed["data"], found[4].data)


def test_a_second_call_does_nothing_and_a_third_with_other_arguments_is_refused(toys, tmp_path):
    path, data = toys
    call = [tmp_path / "out", ToyExample, path]
    generate(*call, src_data_dirpath=data)
    before = {name: (tmp_path / "out" / name).stat().st_mtime_ns for name in ("train/0.tfr", "eval/0.tfr")}
    generate(*call, src_data_dirpath=data)
    assert before == {name: (tmp_path / "out" / name).stat().st_mtime_ns for name in before}
    with pytest.raises(UsageError, match="other options"):
        generate(*call, src_data_dirpath=data, normalize=True)


def test_a_list_without_rows_is_named(tmp_path: Path) -> None:
    path = tmp_path / "empty.csv"
    path.write_text("\n")
    with pytest.raises(SourceError, match=r"empty\.csv: has no rows"):
        generate_and_save_train_eval_test_tfrecords_files(tmp_path / "out", TOY, path)
    assert not (tmp_path / "out").exists()
