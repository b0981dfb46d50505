"""Every public function and class shows how it is used, and what it shows is true."""

from __future__ import annotations

import doctest
import shutil
from collections.abc import Callable, Iterator
from inspect import getdoc, isclass, isfunction
from pathlib import Path
from typing import Any

import pytest

import tar2tf_cli
from commands import convert
from shards import PHOTOS
from tar2tf_cli import ops, pipeline, recorder

pytestmark = [pytest.mark.xdist_group("docstrings"), pytest.mark.on_disk]

WITHOUT = {"TFExample", "Sample", "Op", "register", "Selection"}
"""Those whose methods show it, or that stand for others."""


def public() -> Iterator[tuple[str, Callable[..., Any]]]:
    for module in (tar2tf_cli, ops, pipeline, recorder):
        for name in module.__all__:
            value = getattr(module, name)
            if (isclass(value) or isfunction(value)) and value.__module__.startswith("tar2tf_cli"):
                yield name, value


class Word(recorder.Example):
    """That of the docstring of `Example`."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    @recorder.tfrecordable(dtype=recorder.Example.Field.TYPE_STRING)
    def text(self) -> str:
        return self._text

    @classmethod
    def from_csv_row(cls, row: list[str]) -> Word:
        return cls(row[0])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with shards, what the command makes of them, and a damaged file."""
    place = tmp_path_factory.mktemp("docstrings")
    (place / "shards").mkdir()
    for tar in PHOTOS.glob("photos-*.tar*"):
        shutil.copy(tar, place / "shards")
    convert(place / "shards", "-o", place / "out" / "train-<>.record", "--type", "cls=int64")
    (place / "words.csv").write_text("".join(f"word{number}\n" for number in range(10)))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        recorder.generate_and_save_train_eval_test_tfrecords_files("words", Word, "words.csv", examples_num_workers=1)
    (place / "cut.record").write_bytes((place / "out" / "train-1.record").read_bytes()[:-10])
    return place


@pytest.mark.parametrize(("name", "value"), sorted(dict(public()).items()))
def test_its_example_runs(name: str, value: Callable[..., Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tensorflow as tf

    monkeypatch.chdir(folder)
    known: dict[str, Any] = {"tf": tf, "Word": Word}
    for module in (recorder, pipeline, ops, tar2tf_cli):
        known |= {each: getattr(module, each) for each in module.__all__}
    test = doctest.DocTestParser().get_doctest(getdoc(value) or "", known, name, None, None)
    assert test.examples or name in WITHOUT, "it has no example"
    said: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=said.append)
    assert said == [], "".join(said)
