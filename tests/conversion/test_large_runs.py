"""Runs of very many shards: what is done for each does not grow with their number, and long lists open at once."""

from __future__ import annotations

import json
import os
import sys
import time
from array import array
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers.conductor import Listing, conduct, publisher, result
from shards import samples, write_tar
from tar2tf_cli import convert
from tar2tf_cli.api.backend import Outcome
from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.conversion.output_state import destination
from tar2tf_cli.conversion.plan import make_plan
from tar2tf_cli.conversion.publish import Publisher, Tally
from tar2tf_cli.conversion.schedule import ConversionSchedule
from tar2tf_cli.conversion.sharding import PlannedShard
from tar2tf_cli.conversion.spool import SpoolIndex
from tar2tf_cli.conversion.worker import InputGroup, TaskInputs, Worker, load_group, save_group
from tar2tf_cli.conversion.working_folder import WorkingFolder
from tar2tf_cli.events import Events
from tar2tf_cli.inputs.manifest import Manifest, ShardEntry
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.spec.conversion import Conversion, Output


def calls(work: Callable[[], Any]) -> int:
    """How many calls of functions, and steps of generators, a piece of work takes."""
    count = 0

    def counted(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_the_work_for_each_shard_does_not_grow_with_their_number(tmp_path: Path) -> None:
    def conducted(count: int) -> None:
        out = Output(str(tmp_path / f"{count}-<input>.record"))
        conduct(make_plan(Conversion("listing", out), source=Listing(count)), finishes=True)

    conducted(10)
    few, many = calls(lambda: conducted(100)), calls(lambda: conducted(400))
    assert many < 4.2 * few


def test_an_unfinished_run_is_opened_with_one_call_for_each_input(tmp_path: Path) -> None:
    """That of the listing, which locates the input: a million inputs then open in less than two seconds."""

    def opening(count: int) -> int:
        plan = make_plan(Conversion("listing", Output(f"{tmp_path}/{count}/<input>.record")), source=Listing(count))
        conduct(plan, finishes=False)

        def opened() -> None:
            with publisher(plan) as target:
                assert target.completed(PlannedShard("shard-0000007", 0, records=1))

        return calls(opened)

    opening(10)
    assert opening(400) - opening(100) < 310


def test_each_shard_that_is_there_is_looked_at_in_few_steps(tmp_path: Path) -> None:
    """When a run continues, and its output has been published in part."""

    def opening(count: int) -> int:
        folder = tmp_path / str(count)
        folder.mkdir()
        for number in range(count):
            (folder / f"shard-{number:07}.record").touch()
        out = Output(f"{folder}/<input>.record")
        there = destination(make_plan(Conversion("listing", out), source=Listing(1)), endpoint=None, overwrite=True)

        def opened() -> None:
            with Publisher(there, Events()):
                pass

        return calls(opened)

    opening(10)
    assert opening(400) - opening(100) < 300 * 20


def test_choosing_the_next_input_takes_as_long_however_many_are_waiting(tmp_path: Path) -> None:
    """Also when the first input takes long, and no more may be read ahead of it."""

    def choosing(count: int) -> float:
        plan = make_plan(Conversion("listing", Output(f"{tmp_path}/{count}/<input>.record")), source=Listing(count))
        with publisher(plan) as target:
            worker = Worker(TaskInputs(plan.work, plan.source, plan.inputs), target.folder)
            with closing(ConversionSchedule(plan, worker, 8, target, Tally(plan, Events()), Events())) as schedule:
                schedule.begin()
                first = schedule.next()
                assert first
                while task := schedule.next():
                    schedule.take(Outcome(task, result(task)))
                begun = time.process_time()
                for _ in range(100):
                    assert schedule.next() is None
                return time.process_time() - begun

    choosing(100)
    assert choosing(50_000) < 10 * choosing(1000) + 0.01


# --- Manifests ---


def test_a_million_shards_are_listed_in_a_few_steps() -> None:
    """Not one for each: their manifest then opens in a second."""

    def opening(count: int) -> int:
        shards = [ShardEntry(f"{number}.record", 1, 30, f"crc32c:{number:08x}") for number in range(count)]
        inputs = [ObjectInfo(f"{number}.tar", number, None) for number in range(count)]
        spec = {"output": {"path": "<>.record"}}
        data = Manifest(spec, inputs, shards, skipped={"samples": 0, "members": {}}).to_bytes()
        return calls(lambda: Manifest.from_bytes(data, "x"))

    opening(10)
    assert opening(1000) < opening(10) + 50


def test_a_manifest_has_a_line_for_each_key_input_and_shard(tmp_path: Path) -> None:
    for number, name in enumerate(("a", 'quo"te', "new\nline", "Ünï,{}")):
        write_tar(tmp_path / "in" / f"{name}.tar", samples(3, first=10 * number))
    out = Output(str(tmp_path / "<split>-<>.record"), records_per_shard=2)
    convert(Conversion(str(tmp_path / "in"), out, split={"train": 0.7, "val": 0.3}), workers=1)
    data = (tmp_path / "_manifest.json").read_bytes()
    whole = json.loads(data)
    lines = [json.loads(line.strip().rstrip(b",")) for line in data.splitlines() if line.startswith(b" ")]
    assert lines == [*whole["inputs"], *whole["shards"]]
    for laid_out in (data, json.dumps(whole).encode(), json.dumps(whole, indent=4).encode()):
        manifest = Manifest.from_bytes(laid_out, "x")
        assert manifest.to_bytes() == data
        assert [shard.path for shard in manifest.shards[1:3]] == [shard["path"] for shard in whole["shards"][1:3]]
        with pytest.raises(IndexError):
            manifest.shards[len(manifest.shards)]


def test_a_manifest_is_never_whole_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Manifest, "to_bytes")
    plan = make_plan(Conversion("listing", Output(f"{tmp_path}/<input>.record")), source=Listing(20))
    conduct(plan, finishes=True)
    found = Manifest.load(f"{tmp_path}/_manifest.json")
    assert found
    assert len(found.shards) == 20


# --- The journal, and indexes ---


@pytest.mark.parametrize(
    ("torn", "kept"),
    [(b"", 3), (b'["a", 3, 1', 3), (b'["a", 3, 1\n["a", 4, 1, 1, 1, "x"]\n', 3), (b"\0\0\0\0\n", 3)],
)
def test_the_entries_of_a_journal_are_kept_up_to_one_that_is_damaged(tmp_path: Path, torn: bytes, kept: int) -> None:
    folder = WorkingFolder(str(tmp_path / "work"), "out")
    assert folder.read_journal() == (None, [])
    folder.lock()
    folder.begin_journal({"identity": 1}, keep=False)
    entries = [["a", number, 10, 1, 7, f"{number}.record"] for number in range(3)]
    for entry in entries:
        folder.note(entry)
    with open(tmp_path / "work" / "journal", "ab") as file:
        file.write(torn)
    assert folder.read_journal() == ({"identity": 1}, entries[:kept])
    folder.begin_journal({"identity": 2}, keep=True)
    folder.note(["a", 9, 10, 1, 7, None])
    assert folder.read_journal() == ({"identity": 2}, [*entries[:kept], ["a", 9, 10, 1, 7, None]])
    folder.begin_journal({"identity": 3}, keep=False)
    assert folder.read_journal() == ({"identity": 3}, [])
    folder.remove()
    assert not os.path.exists(folder.path)


def test_no_byte_of_a_journal_can_change_unseen(tmp_path: Path) -> None:
    folder = WorkingFolder(str(tmp_path / "work"), "out")
    folder.lock()
    head, entries = (
        {"identity": {"version": 1}, "replaces": []},
        [["", 0, 52814, 20, 2735526483, "0.record"], {"paths": ["x"]}],
    )
    folder.begin_journal(head, keep=False)
    for entry in entries:
        folder.note(entry)
    folder.release()
    path = tmp_path / "work" / "journal"
    whole = path.read_bytes()
    ends = [place + 1 for place, byte in enumerate(whole) if byte == ord("\n")]
    for place in range(len(whole)):
        line = sum(end <= place for end in ends)
        expected = (head, entries[: line - 1]) if line else (None, [])
        for changed in (bytes([whole[place] ^ 1]) + whole[place + 1 :], b"", whole[place + 1 :]):
            path.write_bytes(whole[:place] + changed)
            assert folder.read_journal() == expected


def test_no_byte_of_an_index_can_change_unseen(tmp_path: Path) -> None:
    path = tmp_path / "input-00000.index"
    group = InputGroup((0, 1), SpoolIndex(array("Q", [30, 40, 50])), spool_crc=7)
    for _ in range(2):
        group.add(InputReport(samples=2))
    save_group(str(path), group)
    assert load_group(str(path))
    whole = path.read_bytes()
    for place in range(len(whole)):
        for changed in (bytes([whole[place] ^ 1]) + whole[place + 1 :], b"", whole[place + 1 :]):
            path.write_bytes(whole[:place] + changed)
            assert load_group(str(path)) is None
