"""What a conversion is refused for before anything is read, and what a dry run says of an existing output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shards import write_tar
from tar2tf_cli import Conversion, Events, Input, Output, convert
from tar2tf_cli.conversion.output_state import Decision
from tar2tf_cli.conversion.plan import make_plan
from tar2tf_cli.conversion.sharding import InputRange, PlannedShard
from tar2tf_cli.errors import OutputExistsError, UsageError


@pytest.mark.parametrize(
    ("names", "options", "says"),
    [
        (
            ["x.tar"],
            {},
            "the output path has <split>, but no --split is given; add one, such as --split train=0.9,val=0.1",
        ),
        (
            ["train-0.tar", "val-0.tar", "x.tar"],
            {},
            "the output path has <split>, but x.tar belongs to no split; add one, such as --split train=0.9,val=0.1",
        ),
        (
            ["train-0.tar", "val-0.tar"],
            {"num_shards": {"train": 1, "test": 1}},
            "--num-shards has train, test, but the inputs have train, val; give a number for each split",
        ),
        (["train-0.tar", "val-0.tar"], {"num_shards": {"train": 1, "val": 2}}, None),
        (["train-0.tar", "val-0.tar"], {}, None),
    ],
)
def test_inputs_have_to_have_the_splits_of_the_output(
    names: list[str], options: dict[str, Any], says: str | None, tmp_path: Path
) -> None:
    for name in names:
        write_tar(tmp_path / "in" / name, [(name, {"cls": b"1"})])
    conversion = Conversion(Input(str(tmp_path / "in")), Output(str(tmp_path / "<split>-<>.record"), **options))
    if says is None:
        assert sorted({*make_plan(conversion).stems}) == ["train", "val"]
        return
    with pytest.raises(UsageError) as caught:
        make_plan(conversion)
    assert caught.value.sentence == says


def test_names_that_would_be_one_are_refused(tmp_path: Path) -> None:
    for folder in "ab":
        write_tar(tmp_path / "in" / folder / "x.tar", [("0", {"cls": b"1"})])
    inputs = Input(str(tmp_path / "in"), template="*/x.tar")
    with pytest.raises(UsageError) as caught:
        make_plan(Conversion(inputs, Output(str(tmp_path / "out/<input>.record"))))
    assert caught.value.sentence == "2 inputs have the same name for <input> in the output path, 'x'"
    with pytest.raises(UsageError) as caught:
        make_plan(
            Conversion(
                Input(str(tmp_path / "in"), template="*/x.tar", key="<n:09>"), Output(str(tmp_path / "out/x.record"))
            )
        )
    assert caught.value.sentence == (
        "--key <n:09> counts the samples of each input, and there are 2; add <input>, such as '<input>/<n:09>'"
    )
    with pytest.raises(UsageError) as caught:
        make_plan(Conversion(inputs, Output(str(tmp_path / "in"))))
    assert caught.value.sentence == (
        f"the output path '{tmp_path}/in' is a directory; name the shards in it, such as '{tmp_path}/in/<>.record'"
    )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"labels": "cls=auto"},
            "can be read only once, but --labels auto reads twice; write it to a file first, or give --labels a file",
        ),
        (
            {"stratify": "cls", "split": {"a": 0.5, "b": 0.5}},
            "can be read only once, but --stratify reads twice; write it to a file first",
        ),
    ],
)
def test_standard_input_is_not_read_twice(options: dict[str, Any], says: str) -> None:
    path = "<split>.record" if "split" in options else "x.record"
    with pytest.raises(UsageError) as caught:
        make_plan(Conversion(Input("-"), Output(path), **options))
    assert caught.value.sentence == f"-: {says}"


ENTRY = ("x", 0, 1)


@pytest.mark.parametrize(
    ("decision", "outcome"),
    [
        ({}, ("new", "")),
        ({"replaceable": {"b", "a"}}, ("overwrite", "would replace 2 existing files (a, b)")),
        ({"replaceable": {"a"}, "stale": {"a"}}, ("overwrite", "would replace 1 existing file (a)")),
        ({"stale": {"c"}, "everything": "x"}, ("update", "would convert everything again: x")),
        ({"changes": "1 added", "everything": "x"}, ("update", "would update: 1 added")),
        (
            {"published": {"a"}, "changes": "1 added"},
            ("continue", "would continue a killed run, and compare 1 file that it left"),
        ),
        (
            {"published": {"a", "b"}},
            ("continue", "would continue a killed run, and compare 2 files that it left"),
        ),
        (
            {"sealed": {("", 0): ENTRY}, "published": {"a"}},
            ("continue", "would continue an interrupted run that finished 1 shard"),
        ),
        (
            {"sealed": {("", number): ENTRY for number in range(1200)}},
            ("continue", "would continue an interrupted run that finished 1,200 shards"),
        ),
        ({"finished": object(), "sealed": {("", 0): ENTRY}}, ("up to date", "up to date: nothing to do")),
        (
            {"error": OutputExistsError("already exists", shard="a"), "finished": object()},
            ("refuse", "would refuse: a: already exists"),
        ),
    ],
)
def test_a_dry_run_says_what_happens_to_what_is_there(decision: dict[str, Any], outcome: tuple[str, str]) -> None:
    assert Decision(**decision).outcome == outcome


class Notes(Events):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.mark.parametrize(
    ("keys", "note"),
    [
        (["a", "b"], "note: no sample matches {}: the inputs have keys such as 'x0', it has keys such as 'a'"),
        (["a", "x1"], None),
    ],
)
def test_a_note_says_that_nothing_was_joined(keys: list[str], note: str | None, tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "in.tar", [("x0", {"cls": b"1"}), ("x1", {"cls": b"2"})])
    table = tmp_path / "t.csv"
    table.write_text("key,word\n" + "".join(f"{key},w\n" for key in keys))
    events = Notes()
    joined = Input(str(tar), join=[str(table)], join_missing="keep")
    convert(Conversion(joined, Output(str(tmp_path / "x.record"))), workers=1, events=events)
    assert [text for text in events.notes if "matches" in text] == ([note.format(table)] if note else [])


def test_ranges_of_an_input_that_follow_each_other_are_one() -> None:
    shard = PlannedShard("", 0)
    for source, first, records in [(0, 0, 2), (0, 2, 3), (0, 6, 1), (1, 7, 1), (1, 8, 2)]:
        shard.add_origin(InputRange(source, first, records))
    assert shard.origins == [InputRange(0, 0, 5), InputRange(0, 6, 1), InputRange(1, 7, 3)]
