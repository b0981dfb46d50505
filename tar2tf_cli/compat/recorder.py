"""Stores examples described by a CSV file and your own class as TFRecord, in train, eval and test directories."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from numbers import Real
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from tar2tf_cli.api.values import KEY
from tar2tf_cli.conversion.run import convert
from tar2tf_cli.errors import SourceError, UsageError, check_tensorflow, count
from tar2tf_cli.events import Events
from tar2tf_cli.features.described import check_features
from tar2tf_cli.features.feature_map import FeatureMap
from tar2tf_cli.features.tf_example import TFExample
from tar2tf_cli.formats.files import write_whole
from tar2tf_cli.inputs.kinds import examples
from tar2tf_cli.inputs.kinds.examples import count_rows, find_class
from tar2tf_cli.inputs.manifest import Manifest
from tar2tf_cli.spec.conversion import Conversion, Input, Output

if TYPE_CHECKING:
    import tensorflow as tf


CONFIG_FILENAME: Final = "tfrecord_files_config.txt"
"""A file in the parent directory with the arguments of the call and the number of records in each directory."""

_DIRECTORIES: Final = ("train", "eval", "test")
_NAMES: Final = "<0>.tfr"
_NAME: Final = re.compile(r"(\d+)\.tfr")

Ratio: TypeAlias = "float | Sequence[float]"
Lists: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Mapping[str, str | os.PathLike[str]]"


_Part: TypeAlias = "tuple[str, tuple[int, int] | None]"
"""The content of one directory: a CSV file, and the first row and exclusive end of its range of rows; None for all."""


def generate_and_save_train_eval_test_tfrecords_files(
    save_directory_path: str | os.PathLike[str],
    example_class: type[Example] | str,
    examples_list_filepath: Lists,
    examples_train_eval_test_ratio: Ratio = 0.8,
    examples_tfrecord_file_max_size_in_bytes: float | str = 1e6,
    examples_log_in_csv_file: bool = True,
    *,
    examples_shuffle: bool = True,
    examples_seed: int = 0,
    examples_num_workers: int | None = None,
    examples_on_error: Literal["fail", "skip"] = "fail",
    examples_overwrite: bool = False,
    examples_events: Events | None = None,
    **kwargs: Any,
) -> dict[str, int]:
    """Store the examples of a CSV file in directories for training, evaluation and test.

    Each directory gets `0.tfr`, `1.tfr`, ..., a `_manifest.json`, and an `examples.csv` that lists the stored examples;
    their parent directory gets `CONFIG_FILENAME`. Directories without rows are not created.

    Args:
        save_directory_path: the parent directory of the directories.
        example_class: the subclass of `Example`, or its location: `FILE.py:CLASS` or `MODULE:CLASS`.
        examples_list_filepath: a CSV file to be divided by ratio; or one each for train and eval, or for train, eval
            and test, in this order; or a dict from directory names to CSV files.
        examples_train_eval_test_ratio: the share of train, with the rest for eval; or the shares of train and eval, or
            of train, eval and test, which sum to 1. Shares are rounded down to rows; the last gets the remainder.
        examples_tfrecord_file_max_size_in_bytes: maximum size of a file in bytes, framing included.
        examples_log_in_csv_file: accepted as by TFRecorder; `examples.csv` is always written.
        examples_shuffle: shuffle the rows before they are divided.
        examples_seed: random seed for shuffling.
        examples_num_workers: number of worker processes; defaults to the number of CPUs.
        examples_on_error: whether an example that cannot be made ends the run, or is skipped; then a warning says how
            many were skipped.
        examples_overwrite: replace files that these conversions did not write.
        examples_events: notified of progress.
        kwargs: passed to `from_csv_row`, `load` and `split`, as far as they accept them.

    Returns:
        The number of records in each directory.

    Raises:
        UsageError: for ratios that do not sum to 1, or the wrong number of lists.
        Tar2tfError: as raised by `convert`; the same call then continues where this one stopped.

    >>> generate_and_save_train_eval_test_tfrecords_files("words", Word, "words.csv", examples_num_workers=1)
    {'train': 8, 'eval': 2}
    """
    root = os.fspath(save_directory_path)
    parts = _parts(examples_list_filepath, examples_train_eval_test_ratio)
    size = Output(_NAMES, examples_tfrecord_file_max_size_in_bytes).max_shard_size
    counts, skipped, ignored = {}, 0, 0
    for directory, (path, rows) in parts.items():
        conversion = Conversion(
            Input(path, kind="examples", example_class=example_class, example_args=kwargs, rows=rows),
            Output(os.path.join(root, directory, _NAMES), size),
            shuffle=examples_shuffle,
            seed=examples_seed,
            on_error=examples_on_error,
        )
        os.makedirs(os.path.join(root, directory), exist_ok=True)
        summary = convert(
            conversion, workers=examples_num_workers, overwrite=examples_overwrite, events=examples_events
        )
        counts[directory] = summary.records
        skipped += summary.skipped_samples
        ignored += summary.filtered["IgnoreExample"]
    if skipped:
        warnings.warn(f"{root} lacks {count(skipped, 'example')} that could not be made", stacklevel=2)
    if ignored:
        (examples_events or Events()).note(f"note: {root} lacks {count(ignored, 'example')} that raised IgnoreExample")
    lists = dict.fromkeys(os.path.abspath(path) for path, _ in parts.values())
    config = {
        **{name: os.path.abspath(value) if "path" in name else value for name, value in kwargs.items()},
        "class_name": find_class(example_class).__name__,
        "list_filepath": ", ".join(lists),
        "tfrecord_file_max_size_in_mb": f"{(size or 0) / 1e6:.2e}",
        "log_in_csv_file": examples_log_in_csv_file,
        "train_eval_test_ratio": examples_train_eval_test_ratio,
        "shuffle": examples_shuffle,
        "seed": examples_seed,
        **{f"{directory}_count": number for directory, number in counts.items()},
    }
    _write_config(os.path.join(root, CONFIG_FILENAME), config)
    return counts


def _parts(lists: Lists, ratio: Ratio) -> dict[str, _Part]:
    """Return the content of each directory, by name."""
    if isinstance(lists, Mapping):
        for name in lists:
            if not name or name in (".", "..") or os.path.basename(name) != name:
                raise UsageError(f"{name!r} cannot be the name of a directory")
        return {name: (os.fspath(path), None) for name, path in lists.items()}
    if isinstance(lists, (str, os.PathLike)):
        return _divided(os.fspath(lists), ratio)
    if not 1 <= len(lists) <= len(_DIRECTORIES):
        raise UsageError(f"got {len(lists)} lists of examples for {', '.join(_DIRECTORIES)}", hint="give one to three")
    return {name: (os.fspath(path), None) for name, path in zip(_DIRECTORIES, lists, strict=False)}


def _divided(path: str, ratio: Ratio) -> dict[str, _Part]:
    """Divide the rows of one list by ratio."""
    shares: list[float] = list(ratio) if isinstance(ratio, Iterable) else [ratio]
    if not all(isinstance(share, Real) and 0 <= share <= 1 for share in shares):
        shares = []
    if len(shares) == 1:
        shares.append(1 - shares[0])
    if len(shares) > len(_DIRECTORIES) or abs(sum(shares) - 1) > 1e-6:
        raise UsageError(
            f"the ratio {ratio!r} does not divide examples into {', '.join(_DIRECTORIES)}",
            hint="give one number between 0 and 1, or two or three that sum to 1",
        )
    total = count_rows(path)
    bounds = [0, *accumulate(int(total * share + 1e-6) for share in shares[:-1]), total]
    spans = zip(_DIRECTORIES, pairwise(bounds), strict=False)
    return {name: (path, (start, end)) for name, (start, end) in spans if start < end}


def _write_config(path: str, config: Mapping[str, object]) -> None:
    """Write an INI file with TFRecorder's keys atomically."""
    from configparser import ConfigParser

    parser = ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    texts = {name: json.dumps(value) if isinstance(value, list) else str(value) for name, value in config.items()}
    parser["examples"] = {name: text.replace("\n", " ") for name, text in texts.items()}
    text = io.StringIO()
    parser.write(text)
    write_whole(path, [text.getvalue().encode("utf-8", "surrogateescape")])


def get_tfrecord_filepaths(dirpath: str | os.PathLike[str]) -> list[str]:
    """Return the TFRecord files of a directory, in the order in which they were written.

    Raises:
        SourceError: when the directory does not exist.

    >>> get_tfrecord_filepaths("words/eval")
    ['words/eval/0.tfr']
    """
    folder = os.fspath(dirpath)
    if not os.path.isdir(folder):
        raise SourceError("no such directory", shard=folder)
    manifest = _manifest_in(folder)
    if manifest:
        return [os.path.join(folder, shard.path) for shard in manifest.shards]
    numbers = {int(match[1]): match[0] for match in map(_NAME.fullmatch, os.listdir(folder)) if match}
    return [os.path.join(folder, numbers[number]) for number in sorted(numbers)]


def _manifest_in(folder: str) -> Manifest | None:
    """Return the manifest of a directory, perhaps written by an earlier version."""
    found = (Manifest.load(os.path.join(folder, name)) for name in ("_manifest.json", "manifest.json"))
    return next(filter(None, found), None)


def generate_dataset(
    tfrecords_filepaths: Sequence[str | os.PathLike[str]],
    example_class: type[Example] | str | None = None,
    dataset_num_shuffled_tfrecord_files: int | None = None,
    dataset_fetching_num_threads: int | None = None,
    num_workers: int | None = None,
    worker_index: int | None = None,
) -> tf.data.Dataset[tuple[tf.Tensor, ...]]:
    """Return a dataset of tuples: the attributes of each example, in the order in which its class declares them.

    Args:
        tfrecords_filepaths: the files, usually of one directory.
        example_class: the class that made the examples; by default, the manifest beside the files is used.
        dataset_num_shuffled_tfrecord_files: size of the shuffle buffer in records; None for no shuffling.
        dataset_fetching_num_threads: how many records are parsed at once; None lets TensorFlow choose.
        num_workers: the number of parts that the dataset is divided into, one for each trainer.
        worker_index: the index of the part to read, from 0.

    Raises:
        UsageError: with neither a class nor a manifest, or with only one of `num_workers` and `worker_index`.

    >>> dataset = generate_dataset(get_tfrecord_filepaths("words/train"), Word)
    >>> next(iter(dataset))[0].dtype
    tf.string
    """
    check_tensorflow("generate_dataset")
    import tensorflow as tf

    from tar2tf_cli.datasets.parsing import record_parser

    paths = [os.fspath(path) for path in tfrecords_filepaths]
    manifest = _manifest_in(os.path.dirname(paths[0])) if paths else None
    if (num_workers is None) != (worker_index is None):
        raise UsageError("num_workers and worker_index must be given together")
    if example_class is not None:
        parse = _class_parser(find_class(example_class), manifest.features if manifest else {})
    elif manifest is not None:
        check_features(manifest.features)
        declared = manifest.spec.get("input", {}).get("fields", {})
        parse = _in_order([*declared, *manifest.features], record_parser(manifest.features, manifest.records))
    else:
        raise UsageError("no manifest describes the examples", hint="give their class as example_class")
    dataset: tf.data.Dataset[Any] = tf.data.TFRecordDataset(paths)
    if num_workers is not None and worker_index is not None:
        dataset = dataset.shard(num_workers, worker_index)
    if dataset_num_shuffled_tfrecord_files:
        dataset = dataset.shuffle(dataset_num_shuffled_tfrecord_files)
    return dataset.map(parse, num_parallel_calls=dataset_fetching_num_threads or tf.data.AUTOTUNE, deterministic=True)


def _in_order(
    names: Iterable[str], parse: Callable[[object], Mapping[str, tf.Tensor]]
) -> Callable[[object], tuple[tf.Tensor, ...]]:
    """Return a function from a record to its tensors with given names, in their order."""
    wanted = [name for name in dict.fromkeys(names) if name != KEY]

    def parse_in_order(record: object) -> tuple[tf.Tensor, ...]:
        tensors = parse(record)
        return tuple(tensors[name] for name in wanted if name in tensors)

    return parse_in_order


def _class_parser(
    example_class: type[examples.RowExample], known: Mapping[str, Mapping[str, object]]
) -> Callable[[object], tuple[tf.Tensor, ...]]:
    """Return a function from a record to its tensors, as declared by a class, with ranks from a manifest."""
    from tar2tf_cli.datasets.parsing import record_parser

    features: dict[str, Any] = {}
    for name, dtype in example_class.fields().items():
        kind = dtype.removeprefix("array_")
        encoding = {"string": "bytes", "float64": "raw", "float32": "float"}.get(kind, "int64")
        shape = [] if kind == dtype else known[name]["shape"] if name in known else None
        features[name] = {"dtype": "bytes" if kind == "string" else kind, "encoding": encoding, "shape": shape}
        if kind != dtype:
            features[f"{name}/shape"] = {"dtype": "int64", "encoding": "int64", "shape": [None]}
    return _in_order(example_class.fields(), record_parser(features))


class Example(examples.RowExample):
    """Base class of examples: subclasses declare stored attributes with `tfrecordable`, and define how to make an
    example.

    >>> class Word(Example):
    ...     def __init__(self, text):
    ...         super().__init__()
    ...         self._text = text
    ...
    ...     @tfrecordable(dtype=Example.Field.TYPE_STRING)
    ...     def text(self):
    ...         return self._text
    ...
    ...     @classmethod
    ...     def from_csv_row(cls, row):
    ...         return cls(row[0])
    """

    @classmethod
    def from_csv_file(cls, filepath: str | os.PathLike[str], **kwargs: object) -> list[object]:
        """Make an example of each row of a CSV file."""
        with open(filepath, newline="", encoding="utf-8") as file:
            return [cls.from_csv_row(row, **kwargs) for row in csv.reader(file) if row]

    @staticmethod
    def to_csv_file(filepath: str | os.PathLike[str], examples: Iterable[Any]) -> None:
        """Append the row of each example to a CSV file."""
        with open(filepath, "a", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(example.to_csv_row() for example in examples)

    def serialize_to_string(self) -> bytes:
        """Return the tf.train.Example of the stored attributes."""
        features = dict[str, Any](FeatureMap({}).features({KEY: "", **self.values()}))
        del features[KEY]
        return TFExample(features).to_bytes()

    def get_byte_size(self) -> int:
        """Return the size of `serialize_to_string` in bytes."""
        return len(self.serialize_to_string())

    @classmethod
    def parse_from_string(cls, serialized_examples: object) -> tuple[tf.Tensor, ...]:
        """Parse a record into the stored attributes, in the order in which they are declared."""
        return _class_parser(cls, {})(serialized_examples)
