"""Shards of a Pipeline made again: finished runs, stages that changed, kills."""

from __future__ import annotations

import io
import os
import re
import signal
import textwrap
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from commands import convert, python, tar2tf
from pipeline_runs import build, load, shards_of, straight, tagged
from shards import keys, samples, shards_in, small_shards, tree, write_tar
from tar2tf_cli.errors import OutputExistsError
from tar2tf_cli.ops.user_code import is_identified
from tar2tf_cli.pipeline import (
    Pipeline,
    PipelineSummary,
    by_key_value,
    by_sample_f,
    select,
)

pytestmark = [pytest.mark.xdist_group("killed"), pytest.mark.on_disk]


@pytest.mark.parametrize("own", [False, True])
def test_a_finished_run_is_a_no_op_until_inputs_or_stages_change(tmp_path: Path, own: bool) -> None:
    small, out = small_shards(tmp_path / "in"), tmp_path / "out" / "train-<>.record"
    first = build(small, out, own=own).do()
    made = {path: path.stat().st_mtime_ns for path in out.parent.iterdir()}
    again = build(small, out, own=own, num_workers=2).do()
    assert again.up_to_date
    assert not first.up_to_date
    assert made == {path: path.stat().st_mtime_ns for path in out.parent.iterdir()}
    assert (again.records, again.bytes, again.shards) == (first.records, first.bytes, first.shards)
    assert again.features == first.features
    with pytest.raises(OutputExistsError, match=r"made with other options: .*overwrite=True$"):
        build(small, out, own=own, least=3).do()
    with pytest.raises(OutputExistsError, match="made with other options"):
        build(small, out, own=own, records_per_shard=50).do()
    with pytest.raises(OutputExistsError, match="made with other options"):
        build(small, out, own=not own).do()
    os.utime(small / "small-2.tar", (1, 1))
    with pytest.raises(OutputExistsError, match=r"made from other inputs: .*"):
        build(small, out, own=own).do()
    assert build(small, out, own=own, least=3, overwrite=True).do().records < first.records
    assert build(small, out, own=own, least=3).do().up_to_date


class Counter:
    """A function whose object may hold anything."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, sample: Any) -> Any:
        self.count += 1
        return sample

    def names(self, sample: Any) -> list[str]:
        return ["cls"]

    def stage(self, items: Iterator[Any]) -> Iterator[Any]:
        for item in items:
            self.count += 1
            yield item


UNKNOWN: dict[str, Callable[[Pipeline], Any]] = {
    "object": lambda pipeline: pipeline.transform_samples(Counter()),
    "method": lambda pipeline: pipeline.with_samples_stage(Counter().stage),
    "closure": lambda pipeline: (lambda counter: pipeline.transform_samples(lambda sample: counter(sample)))(Counter()),
    "partial": lambda pipeline: pipeline.transform_tf_examples(partial(lambda counter, example: example, Counter())),
    "selection": lambda pipeline: pipeline.transform_samples(select(by_sample_f(Counter().names))),
    "value": lambda pipeline: pipeline.transform_samples(select(by_key_value("cls", Counter()))),
}


@pytest.mark.parametrize("kind", UNKNOWN)
def test_what_cannot_be_told_from_an_earlier_run_is_no_no_op(kind: str, small: Path, tmp_path: Path) -> None:
    def run(**arguments: Any) -> PipelineSummary:
        pipeline = Pipeline().from_tar(small).sample_to_tf_example()
        UNKNOWN[kind](pipeline)
        return pipeline.to_tf_record(tmp_path / "train-<>.record", **arguments).do()

    run()
    before = tree(tmp_path)
    with pytest.raises(
        OutputExistsError,
        match=r"choose another path or overwrite=True \(tar2tf cannot tell whether .* is the same as in an earlier",
    ):
        run()
    assert tree(tmp_path) == before
    assert not run(overwrite=True).up_to_date
    assert tree(tmp_path) == before


def test_streams_and_a_first_stage_of_ones_own_are_no_no_op(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "in.tar", samples(30))

    def opened() -> Pipeline:
        return Pipeline().from_tar(io.BytesIO(tar.read_bytes())).sample_to_tf_example()

    def own() -> Pipeline:
        return (
            Pipeline()
            .with_tar_stage(lambda: ({"__key__": key, **entries} for key, entries in samples(30)))
            .sample_to_tf_example()
        )

    for make in (opened, own):
        out = tmp_path / make.__name__ / "t-<>.record"
        make().to_tf_record(out, records_per_shard=8, num_workers=2).do()
        assert keys(*shards_in(out.parent)) == [key for key, _ in samples(30)]
        assert load(out.parent, "_t-manifest.json")["inputs"][0]["version"] is None
        with pytest.raises(OutputExistsError, match="cannot tell"):
            make().to_tf_record(out, records_per_shard=8).do()
        before = tree(out.parent)
        make().to_tf_record(out, records_per_shard=8, overwrite=True).do()
        assert tree(out.parent) == before


FACTOR = 2
NOTHING = Counter()


def test_what_tells_a_function() -> None:
    def bound(value: Any) -> Callable[[], Any]:
        return lambda: value

    def factor() -> int:
        return FACTOR

    def nothing() -> Any:
        return NOTHING

    def recursive(number: int) -> int:
        return recursive(number - 1) if number else 0

    known = [straight, bound(3), bound(b"x"), bound({"a": [1, (2.5, None)]}), bound({1, 2}), bound(Path("x"))]
    known += [
        bound(factor),
        factor,
        recursive,
        bound(os),
        bound(re.compile("a")),
        bound(Counter),
        partial(tagged, tag=b""),
        list,
    ]
    assert [value for value in known if not is_identified(value)] == []
    unknown = [bound(NOTHING), nothing, bound(nothing), bound([NOTHING]), partial(tagged, tag=NOTHING), NOTHING]
    unknown += [
        partial(Counter, NOTHING),
        partial(bound(NOTHING)),
        NOTHING.stage,
        eval("lambda: 3", {}),
    ]  # which stands in no file
    assert [value for value in unknown if is_identified(value)] == []


PROGRAM = """
    import os, signal, sys
    from pathlib import Path
    from tar2tf_cli.pipeline import Pipeline, by_sample_f, select

    where, out, own, workers, at, end = sys.argv[1:]
    run, replace = os.getpid(), os.replace

    def straight(items):
        yield from items

    class Stage:
        def names(self, sample):
            return ["cls", "jpg"]

    def same(sample):
        return sample

    def end_once_there(old, new):
        replace(old, new)
        if end and new.endswith(at):
            os.killpg(0, signal.SIGKILL) if end == "killed" else os.kill(run, signal.SIGINT)

    os.replace = end_once_there
    pipeline = Pipeline().from_tar(sorted(Path(where).glob("*.tar"))).transform_samples(same)
    if own == "own":
        pipeline.with_samples_stage(straight)
    if own == "unknown":
        pipeline.transform_samples(select(by_sample_f(Stage().names)))
    done = pipeline.sample_to_tf_example({"cls": "int64"}).to_tf_record(
        out, records_per_shard=25, num_workers=int(workers)
    ).do()
    print(done.up_to_date)
"""


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("own", ["own", "ops", "unknown"])
def test_the_same_program_continues_after_a_kill(tmp_path: Path, own: str, workers: str) -> None:
    tars, out = small_shards(tmp_path / "in"), tmp_path / "out"
    convert(tars, "-o", tmp_path / "theirs" / "train-<>.record", "--records-per-shard", "25", "--type", "cls=int64")
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM))
    command = [tmp_path / "program.py", tars, out / "train-<>.record", own, workers]

    def again() -> str:
        done = python(*command, "", "")
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    killed = python(*command, ".spool" if own == "own" else "train-2.record", "killed")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    left = {path: path.stat().st_ino for path in shards_in(out)}
    assert len(left) == (0 if own == "own" else 2)
    assert not list(out.glob("*manifest.json"))
    assert again() == "False"
    assert shards_of(out) == shards_of(tmp_path / "theirs")
    if own == "ops":
        assert left == {path: path.stat().st_ino for path in left}
    assert not [path for path in out.iterdir() if path.name.startswith(".") and path.suffix != ".sizes"]
    if own != "unknown":
        assert again() == "True"
    assert tar2tf("verify", out / "_train-manifest.json").returncode == 0


def test_an_interruption_ends_the_run_and_the_next_one_continues(tmp_path: Path) -> None:
    tars, out = small_shards(tmp_path / "in"), tmp_path / "out"
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM))
    command = [tmp_path / "program.py", tars, out / "train-<>.record", "ops", "2"]
    assert python(*command, "train-2.record", "interrupted").returncode != 0
    assert len(shards_in(out)) == 2
    assert not list(out.glob("*manifest.json"))
    assert python(*command, "", "").returncode == 0
    assert (out / "_train-manifest.json").exists()
