"""Functions without source, as in a REPL, work in every face for TensorFlow without a word from AutoGraph."""

from __future__ import annotations

from pathlib import Path

from commands import convert, python, tar2tf
from inspect_runs import a_png
from shards import write_members

PROGRAM = """
import contextlib, functools, io
import tensorflow as tf
from tar2tf_cli import AisDataset, Dataset, default_record_parser, load_dataset
from tar2tf_cli.ops import Func
from tar2tf_cli.recorder import Example, generate_and_save_train_eval_test_tfrecords_files, generate_dataset
from tar2tf_cli.recorder import get_tfrecord_filepaths, tfrecordable

def pair(sample): return sample["txt"], int(sample["cls"])
def third(first, second, sample): return pair(sample)
def upper(sample): return {**sample, "txt": sample["txt"].upper()}
def example(sample):
    values = tf.train.Feature(bytes_list=tf.train.BytesList(value=[sample["txt"]]))
    return tf.train.Example(features=tf.train.Features(feature={"txt": values}))

class Pairs:
    def __call__(self, sample): return pair(sample)
    def method(self, sample): return pair(sample)
    @classmethod
    def of_class(cls, sample): return pair(sample)

made = {}
exec("def executed(sample): return pair(sample)", globals(), made)
one, other = lambda sample: pair(sample), lambda sample: pair(sample)
functions = [pair, functools.partial(third, 1, 2), Pairs(), Pairs().method, Pairs.of_class, one, other]
kinds = {"output_types": (tf.string, tf.int64), "output_shapes": ((), ())}
for function in [*functions, made["executed"], eval("lambda sample: pair(sample)")]:
    loaded = AisDataset(".", "").load_from_tar("a.tar", record_to_pair=function, **kinds)
    assert [int(label) for _, label in loaded] == [1, 2], function

for function in (upper, functools.partial(upper), lambda sample: upper(sample)):
    loaded = Dataset(".", "", [Func(function)], ["txt", "cls"]).load("a.tar")
    assert [text for text, _ in loaded.as_numpy_iterator()] == [b"X", b"Y"], function
written = AisDataset(".", "").load_from_tar("a.tar", path="f.record", record_to_example=lambda sample: example(sample))
assert len(list(written)) == 2

for manifest in ("_t-manifest.json", "_z-manifest.json"):
    for options in ({}, {"batch": 2}, {"batch": 2, "pad": True}, {"batch": 2, "ragged": True}):
        assert len(list(load_dataset(manifest, **options))) == (1 if options else 2)
photos = tf.data.TFRecordDataset("p.record").map(default_record_parser)
assert len(list(photos)) == 2

class Word(Example):
    def __init__(self, text): super().__init__(); self._text = text
    @tfrecordable(dtype=Example.Field.TYPE_STRING)
    def text(self): return self._text
    @classmethod
    def from_csv_row(cls, row): return cls(row[0])

open("words.csv", "w").write("a\\nb\\n")
with contextlib.redirect_stdout(io.StringIO()):
    generate_and_save_train_eval_test_tfrecords_files("words", Word, "words.csv", train_eval_test_ratio=1.0)
assert list(generate_dataset(get_tfrecord_filepaths("words/train"), Word))

exec(open("printed").read())
assert len(list(dataset)) == 2
print("all ran")
"""


def test_functions_without_source_give_no_warning_in_any_face(tmp_path: Path) -> None:
    """`python - < FILE` keeps no source, which is what AutoGraph looks for; nor do functions made by exec and eval."""
    texts = [("a.txt", b"x"), ("a.cls", b"1"), ("b.txt", b"y"), ("b.cls", b"2")]
    photos = [("a.png", a_png()), ("a.cls", b"1"), ("b.png", a_png()), ("b.cls", b"2")]
    for name, members in (("a.tar", texts), ("p.tar", photos)):
        write_members(tmp_path / name, members)
    convert("a.tar", "--type", "cls=int64", "-o", "t.record", cwd=tmp_path)
    convert("a.tar", "--type", "cls=int64", "-o", "z.record", "--compression", "gzip", cwd=tmp_path)
    convert("p.tar", "--preset", "image-label", "-o", "p.record", cwd=tmp_path)
    (tmp_path / "printed").write_text(tar2tf("inspect", "--code", "t.record", cwd=tmp_path).stdout)
    ran = python("-", input=PROGRAM.encode(), tensorflow=True, cwd=tmp_path, timeout=300)
    assert (ran.returncode, ran.stdout) == (0, "all ran\n"), ran.stderr
    assert "AutoGraph" not in ran.stderr
