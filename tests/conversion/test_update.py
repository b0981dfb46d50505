"""`--update`: after any change of the inputs the bytes of a new conversion, and only what changed is read."""

from __future__ import annotations

import json
import os
import shutil
import struct
import sys
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands import tar2tf
from hypothesis_profile import example_count
from shards import every_file, samples, write_tar
from spooled_units import conversion, indexed
from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.conversion.output_state import EarlierConversion, SizesFile
from tar2tf_cli.conversion.plan import Plan, lanes_of
from tar2tf_cli.conversion.publish import Summary
from tar2tf_cli.conversion.run import convert
from tar2tf_cli.conversion.sharding import PlannedShard, ShardPlanner
from tar2tf_cli.conversion.spool import pack_columns, unpack_columns
from tar2tf_cli.conversion.working_folder import parse_entry
from tar2tf_cli.errors import OutputExistsError, SourceError, Tar2tfError, UsageError
from tar2tf_cli.events import Events
from tar2tf_cli.inputs.base import MergedSource
from tar2tf_cli.inputs.manifest import Manifest, ShardEntry, digest
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.inputs.shard_set import ShardSet
from tar2tf_cli.spec.conversion import Conversion, Input, Output
from tar2tf_cli.stores.directory import DirectorySource
from verify_runs import edit


@contextmanager
def opened() -> Iterator[list[str]]:
    """Names of the inputs that are opened in this process."""
    names: list[str] = []

    original = DirectorySource.open

    def noted(self: DirectorySource, item: Any) -> Any:
        names.append(item.name)
        return original(self, item)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(DirectorySource, "open", noted)
        yield names


class Notes(Events):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, message: str) -> None:
        self.notes.append(message)


class Backend:
    """A folder of tars and what is made of it."""

    def __init__(self, folder: Path, path: str = "train-<>.record", output: Any = None, **options: Any) -> None:
        self.bucket, self.out, self.fresh = folder / "in", folder / "out", folder / "fresh"
        self.path, self.output, self.options = path, output or {}, options
        self.notes: list[str] = []
        self.clock = 0

    def tar(self, name: str, first: int, count: int = 10, size: int = 300) -> None:
        """Write a tar, newer than all before it."""
        write_tar(self.bucket / name, samples(count, size, first=first))
        self.touch(name)

    def touch(self, name: str) -> None:
        self.clock += 1
        os.utime(self.bucket / name, ns=(self.clock * 10**9,) * 2)

    def convert(self, folder: Path | None = None, **options: Any) -> Summary:
        output = Output(str((folder or self.out) / self.path), **self.output)
        events = Notes()
        made = convert(Conversion(Input(str(self.bucket)), output, **self.options), workers=1, events=events, **options)
        self.notes = events.notes
        return made

    def update(self) -> list[str]:
        """Bring the output up to date, and compare it with that of a new conversion; the inputs that were read."""
        before = {path.name: path.stat().st_ino for path in self.out.rglob("*.record*")}
        with opened() as names:
            self.made = self.convert(update=True)
        self.same = {path.name for path in self.out.rglob("*.record*") if before.get(path.name) == path.stat().st_ino}
        shutil.rmtree(self.fresh, ignore_errors=True)
        self.convert(self.fresh)
        assert every_file(self.out) == every_file(self.fresh)
        return sorted(set(names))


def test_three_tars_more_are_the_work_of_three_tars(tmp_path: Path) -> None:
    place = Backend(tmp_path, output={"records_per_shard": 10})
    for number in range(6):
        place.tar(f"a{number}.tar", number * 100)
    place.convert()
    for number in range(3):
        place.tar(f"b{number}.tar", number * 100 + 1000)
    assert place.update() == ["b0.tar", "b1.tar", "b2.tar"]
    assert place.made.kept == 6
    assert len(place.same) == 6
    assert place.update() == []
    assert place.made.up_to_date


def test_at_the_end_of_one_sequence_only_the_last_shard_is_made_again(tmp_path: Path) -> None:
    place = Backend(tmp_path, output={"max_shard_size": 10_000})
    for number in range(8):
        place.tar(f"a{number}.tar", number * 100, 17)
    place.convert()
    place.tar("b.tar", 1000)
    assert place.update() == ["a7.tar", "b.tar"]
    assert place.made.kept == len(list(place.out.glob("*.record"))) - 1


def test_in_front_of_one_sequence_everything_is_made_again(tmp_path: Path) -> None:
    place = Backend(tmp_path, output={"max_shard_size": 10_000})
    for number in range(4):
        place.tar(f"b{number}.tar", number * 100, 17)
    place.convert()
    place.tar("a.tar", 1000)
    assert len(place.update()) == 5
    assert place.made.kept == 0


@pytest.mark.parametrize(
    ("path", "output"),
    [
        ("<input>.record", {}),
        ("<input>-<>.record", {"records_per_shard": 4}),
        ("x-<>.record", {"max_shard_size": 4100}),
    ],
)
def test_a_tar_with_shards_of_its_own_is_redone_alone(path: str, output: dict[str, Any], tmp_path: Path) -> None:
    place = Backend(tmp_path, path, output)
    for number in range(5):
        write_tar(place.bucket / f"{number}.tar", [(f"{number}{n}", {"txt": bytes(320)}) for n in range(10)])
    place.convert()
    assert len(list(place.out.glob("*.record"))) % 5 == 0
    write_tar(place.bucket / "2.tar", [(f"new{n}", {"txt": bytes(318)}) for n in range(10)])
    assert place.update() == ["2.tar"]
    assert place.made.kept == len(list(place.out.glob("*.record"))) * 4 // 5
    place.touch("3.tar")
    assert place.update() == ["3.tar"]


@pytest.mark.parametrize(
    ("size", "output"),
    [
        (300, {"max_shard_size": 8000, "index": True}),
        (300, {"max_shard_size": 8000, "compression": "gzip"}),
        (12_000, {"max_shard_size": 90_000}),
    ],
)
def test_a_tar_that_was_only_touched_is_read_and_no_shard_is_replaced(
    size: int, output: dict[str, Any], tmp_path: Path
) -> None:
    place = Backend(tmp_path, output=output)
    for number in range(6):
        place.tar(f"{number}.tar", number * 100, 9, size)
    place.convert()
    place.touch("2.tar")
    assert "2.tar" in place.update()
    assert place.same == {path.name for path in place.out.glob("*.record*")}
    for number in range(6):
        place.touch(f"{number}.tar")
    assert len(place.update()) == 6
    assert place.same == {path.name for path in place.out.glob("*.record*")}
    data = bytearray((place.bucket / "3.tar").read_bytes())
    position = data.index(dict(samples(1, size, first=304))["0304"]["jpg"][:50])
    data[position] ^= 1
    (place.bucket / "3.tar").write_bytes(data)
    place.touch("3.tar")
    place.touch("5.tar")
    assert {"3.tar", "5.tar"} <= set(place.update())
    assert 0 < len(place.same) < len(list(place.out.glob("*.record*")))


@pytest.mark.parametrize("change", ["added", "removed", "changed", "touched"])
@pytest.mark.parametrize(
    ("path", "output", "options"),
    [
        ("x-<>.record", {"index": True, "records_per_shard": 7}, {}),
        ("x-<>.record.gz", {"compression": "gzip", "max_shard_size": 2000}, {}),
        ("x-<>.record.gz", {"compression": "gzip", "records_per_shard": 7}, {}),
        ("x.record.gz", {"compression": "gzip"}, {}),
        ("<input>.record.gz", {"compression": "gzip"}, {}),
        ("<split>/x-<0>.record", {"max_shard_size": 3000}, {"split": {"a": 0.7, "b": 0.3}}),
        ("x-<>.record", {"max_shard_size": 3000}, {"types": {"cls": "int64"}, "on_error": "skip"}),
    ],
)
def test_every_change_gives_the_bytes_of_a_new_conversion(
    change: str, path: str, output: dict[str, Any], options: dict[str, Any], tmp_path: Path
) -> None:
    place = Backend(tmp_path, path, output, **options)
    for number in range(5):
        place.tar(f"{number}.tar", number * 100)
    write_tar(place.bucket / "3.tar", [*samples(4), ("x", {"cls": b"x", "jpg": b""}), *samples(4, first=50)])
    place.convert()
    if change == "added":
        place.tar("33.tar", 700)
    elif change == "removed":
        (place.bucket / "2.tar").unlink()
    elif change == "changed":
        place.tar("2.tar", 800, 12)
    else:
        place.touch("2.tar")
    place.update()


# --- Everything again ---


@pytest.mark.parametrize(
    ("path", "output", "options", "words"),
    [
        ("x-<>.record", {}, {"shuffle": True}, "with --shuffle, each shard depends on all inputs"),
        ("x-<>.record", {"num_shards": 2}, {}, "with --num-shards, each shard depends on all inputs"),
        ("x-<>.record", {}, {"limit": 15}, "with --limit, each shard depends on all inputs"),
        ("<0>-of-<total>", {"records_per_shard": 6}, {}, "with <total>, each shard depends on all inputs"),
    ],
)
def test_where_nothing_can_be_kept_everything_is_made_again_and_one_line_says_so(
    path: str, output: dict[str, Any], options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    place = Backend(tmp_path, path, output, **options)
    for name in "abc":
        place.tar(f"{name}.tar", ord(name))
    place.convert()
    (place.bucket / "c.tar").unlink()
    place.update()
    made = place.made
    assert (made.kept, made.up_to_date) == (0, False)
    (place.bucket / "b.tar").unlink()
    place.convert(update=True)
    assert place.notes[0] == f"note: everything is converted again: {words}"


def test_changed_options_make_everything_again(tmp_path: Path) -> None:
    place = Backend(tmp_path, output={"records_per_shard": 4})
    place.tar("a.tar", 0)
    place.convert()
    place.output = {"records_per_shard": 5}
    assert place.update() == ["a.tar"]
    place.output = {"records_per_shard": 6}
    place.convert(update=True)
    assert place.notes == ["note: everything is converted again: the options have changed (output.records_per_shard)"]


SIZES = ".train-manifest.sizes"


@pytest.mark.parametrize("change", ["missing", "one bit", "cut", "of other tars", "empty"])
def test_where_the_sizes_are_missing_or_wrong_everything_is_made_again(change: str, tmp_path: Path) -> None:
    place = Backend(tmp_path)
    place.tar("a.tar", 0)
    place.convert()
    sizes = place.out / SIZES
    data = sizes.read_bytes()
    if change == "missing":
        sizes.unlink()
    elif change == "of other tars":
        place.tar("a.tar", 0, 11)
        place.convert(place.fresh)
        shutil.copy(place.fresh / SIZES, sizes)
    else:
        sizes.write_bytes({"one bit": data[:-1] + bytes([data[-1] ^ 1]), "cut": data[:-1], "empty": b""}[change])
    place.tar("b.tar", 10)
    place.convert(update=True)
    assert place.notes[0].startswith("note: everything is converted again: ")
    assert SIZES in place.notes[0]
    shutil.rmtree(place.fresh, ignore_errors=True)
    place.convert(place.fresh)
    assert every_file(place.out) == every_file(place.fresh)


@pytest.mark.parametrize(
    "change",
    [
        lambda whole: whole["shards"][0].update(digest="crc32c:00000000"),
        lambda whole: whole["features"]["cls"].update(count=31),
        lambda whole: whole["skipped"].update(samples=1),
        lambda whole: whole["inputs"][1].update(version="1"),
        lambda whole: whole.pop("checksum"),
    ],
)
def test_a_manifest_that_was_changed_is_not_believed(
    change: Callable[[dict[str, Any]], object], tmp_path: Path
) -> None:
    place = Backend(tmp_path, output={"records_per_shard": 10})
    for name in "abc":
        place.tar(f"{name}.tar", ord(name))
    place.convert()
    path = place.out / "_train-manifest.json"
    whole = json.loads(path.read_bytes())
    path.write_text(json.dumps(whole, indent=4))
    assert tar2tf("verify", path).returncode == 0, "it may be laid out in another way"
    change(whole)
    path.write_text(json.dumps(whole))
    if "checksum" in whole:
        assert "changed after it was written" in tar2tf("verify", path).stdout
    place.tar("d.tar", 500)
    place.convert(update=True)
    assert place.notes[0] == "note: everything is converted again: the manifest was changed after it was written"
    place.convert(place.fresh)
    assert every_file(place.out) == every_file(place.fresh)


@pytest.mark.parametrize("column", ["records", "bytes"])
def test_sizes_that_do_not_add_up_to_the_shards_are_not_believed(column: str, tmp_path: Path) -> None:
    place = Backend(tmp_path, output={"records_per_shard": 10})
    for name in "abc":
        place.tar(f"{name}.tar", ord(name))
    place.convert()
    edit(place.out / "_train-manifest.json", lambda whole: whole["shards"][1].update({column: 9}))
    place.tar("d.tar", 500)
    place.convert(update=True)
    assert f"{SIZES} does not list the sizes of the records" in place.notes[0]
    place.convert(place.fresh)
    assert every_file(place.out) == every_file(place.fresh)


def test_an_update_finds_each_of_more_inputs_than_a_block_of_sizes_has(tmp_path: Path) -> None:
    place = Backend(tmp_path, output={"records_per_shard": 10})
    for number in range(140):
        place.tar(f"a{number:03d}.tar", number, 1 + number % 2)
    place.convert()
    (place.bucket / "a001.tar").unlink()
    place.tar("a100.tar", 1000, 1)
    assert "a100.tar" in place.update()
    assert place.update() == []
    place.tar("b.tar", 2000)
    assert "a000.tar" not in place.update()
    assert place.made.kept == 20


def test_sizes_take_a_few_bytes_a_record_and_go_with_the_manifest_they_belong_to(tmp_path: Path) -> None:
    place = Backend(tmp_path)
    place.tar("a.tar", 0, 1000)
    place.convert()
    assert 1000 < (place.out / SIZES).stat().st_size < 4500
    place.options = {"shuffle": True}
    place.convert(overwrite=True)
    assert not (place.out / SIZES).exists()


# --- What else is there ---


def test_sizes_are_the_same_bytes_on_machines_of_either_byte_order(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = array("Q", [1, 300, 2**40])
    line, data = pack_columns({"of": "x"}, [sizes])
    assert data == struct.pack("<3Q", *sizes)
    swapped = array("Q", sizes)
    swapped.byteswap()  # as the other kind of machine has them in memory
    monkeypatch.setattr(sys, "byteorder", "big" if sys.byteorder == "little" else "little")
    assert pack_columns({"of": "x"}, [swapped]) == [line, data]
    assert unpack_columns(BytesIO(line + data)) == ({**parse_entry(line)}, [swapped])


def test_without_update_the_changes_are_listed(tmp_path: Path) -> None:
    place = Backend(tmp_path)
    for name in "abcdef":
        place.tar(f"{name}.tar", ord(name))
    place.convert()
    (place.bucket / "a.tar").unlink()
    place.touch("b.tar")
    for name in "ghijk":
        place.tar(f"{name}.tar", ord(name))
    with pytest.raises(OutputExistsError) as caught:
        place.convert()
    assert caught.value.message == (
        "was made from other inputs: 5 added (g.tar, h.tar, i.tar and 2 more), 1 removed (a.tar), 1 changed (b.tar)"
    )
    assert caught.value.hint
    assert "--update" in caught.value.hint
    assert "--overwrite" in caught.value.hint
    place.update()


@pytest.mark.parametrize("options", [[], ["--update"]])
def test_more_tars_on_the_command_line_are_more_inputs_and_not_other_options(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a template whose range grows, and by what a shell makes of `in/*.tar`."""
    monkeypatch.chdir(tmp_path)
    for number in range(5):
        write_tar(Path(f"in/{number}.tar"), samples(10, first=number * 100))
    shell = [[f"in/{number}.tar" for number in range(first, last)] for first, last in ((1, 4), (1, 5), (0, 5))]
    for name, calls in {"braces": [["in", "{1..3}.tar"], ["in", "{1..4}.tar"]], "shell": shell}.items():
        for number, call in enumerate(calls):
            rest = ["--records-per-shard", "10", *(options if number else [])]
            done = tar2tf("convert", *call, "-o", f"{name}/x-<>.record", *rest)
            added = f"1 added ({'in/' if name == 'shell' else ''}{'4.tar' if number == 1 else '0.tar'})"
            if number and not options:
                assert done.returncode == 2
                assert f"was made from other inputs: {added}" in done.stderr
                break
            assert done.returncode == 0, done.stderr
            if number == 1:
                assert f"updating: {added}" in done.stderr
                assert "in 4 shards (3 kept)" in done.stderr
            tar2tf("convert", *call, "-o", f"{name}-{number}/x-<>.record", "--records-per-shard", "10")
            assert every_file(Path(name)) == every_file(Path(f"{name}-{number}"))


def test_a_shard_that_is_gone_or_cut_is_made_again_and_the_others_are_kept(tmp_path: Path) -> None:
    place = Backend(tmp_path, output={"records_per_shard": 10, "index": True})
    for name in "abcd":
        place.tar(f"{name}.tar", ord(name))
    place.convert()
    (place.out / "train-2.record").unlink()
    (place.out / "train-3.record.idx").unlink()
    os.truncate(place.out / "train-4.record", 20)
    assert place.update() == ["b.tar", "c.tar", "d.tar"]
    assert place.same == {"train-1.record", "train-1.record.idx"}


def test_records_that_an_unchanged_input_did_not_have_before_are_never_left_out_in_silence(tmp_path: Path) -> None:
    """As after a change of the input that kept its size and time."""
    place = Backend(tmp_path, output={"max_shard_size": 10_000})
    place.tar("a.tar", 0, 10)
    place.tar("b.tar", 100, 10)
    place.convert()
    write_tar(place.bucket / "b.tar", [(f"{number:04}", {"cls": b""}) for number in range(100, 120)])
    os.utime(place.bucket / "b.tar", ns=(place.clock * 10**9,) * 2)
    edit(
        place.out / "_train-manifest.json",
        lambda whole: whole["inputs"][1].update(size=os.path.getsize(place.bucket / "b.tar")),
    )
    place.tar("c.tar", 200, 1)
    before = every_file(place.out)
    with pytest.raises(SourceError, match=r"b\.tar: has different records than before"):
        place.convert(update=True)
    assert before.items() <= every_file(place.out).items()


def test_files_that_the_manifest_does_not_list_are_not_replaced(tmp_path: Path) -> None:
    place = Backend(tmp_path, output={"records_per_shard": 5})
    place.tar("a.tar", 0)
    place.convert()
    (place.out / "train-3.record").write_text("precious")
    before = every_file(place.out)
    place.tar("b.tar", 20)
    with pytest.raises(OutputExistsError, match=r"train-3.record: already exists, and no manifest"):
        place.convert(update=True)
    assert every_file(place.out) == before


def test_without_anything_there_an_update_is_a_first_run(tmp_path: Path) -> None:
    place = Backend(tmp_path)
    place.tar("a.tar", 0)
    assert place.update() == ["a.tar"]


def test_update_and_overwrite_exclude_each_other(tmp_path: Path) -> None:
    place = Backend(tmp_path)
    place.tar("a.tar", 0)
    with pytest.raises(UsageError, match="--overwrite replaces all"):
        place.convert(update=True, overwrite=True)
    for options in ([], ["--dry-run"]):
        done = tar2tf("convert", place.bucket, "-o", "-", "--update", *options)
        assert done.returncode == 2
        assert "--update needs the manifest of the last run, and a stream" in done.stderr


@pytest.mark.parametrize("workers", ["1", "3"])
def test_a_damaged_tar_fails_an_update_and_the_same_command_continues(workers: str, tmp_path: Path) -> None:
    place = Backend(tmp_path, output={"max_shard_size": 3000})
    for number in range(30):
        place.tar(f"{number:02d}.tar", number * 100)
    place.convert()
    before = every_file(place.out)
    whole = (place.bucket / "20.tar").read_bytes()
    place.tar("05.tar", 5000, 11)
    (place.bucket / "20.tar").write_bytes(whole[:3000])
    command = ["convert", place.bucket, "-o", place.out / place.path, "--max-shard-size", "3000", "-j", workers]
    done = tar2tf(*command, "--update")
    assert done.returncode == 3
    assert "20.tar" in done.stderr
    assert before.items() <= every_file(place.out).items(), "what was there stays"
    place.tar("20.tar", 2000)
    done = tar2tf(*command, "--update", "--json")
    assert done.returncode == 0, done.stderr
    assert "updating: 2 changed (05.tar, 20.tar)" in done.stderr
    document = json.loads(done.stdout)
    assert document["kept"] > 3
    assert f"in {len(document['shards'])} shards ({document['kept']} kept)" in done.stderr
    place.convert(place.fresh)
    assert every_file(place.out) == every_file(place.fresh)


def test_faulty_samples_of_unread_inputs_still_count(tmp_path: Path) -> None:
    place = Backend(tmp_path, output={"records_per_shard": 3}, types={"cls": "int64"}, on_error="skip", max_errors=1)
    write_tar(place.bucket / "a.tar", [*samples(3), ("x", {"cls": b"x", "jpg": b""})])
    place.convert()
    write_tar(place.bucket / "b.tar", [*samples(3, first=7)])
    assert place.update() == ["b.tar"]
    assert place.made.skipped_samples == 1
    write_tar(place.bucket / "c.tar", [*samples(3), ("x", {"cls": b"x", "jpg": b""})])
    with pytest.raises(Tar2tfError, match="2 samples failed, more than --max-errors 1 allows"):
        place.convert(update=True)


def test_lost_bytes_of_unread_inputs_still_count(tmp_path: Path) -> None:
    place = Backend(tmp_path, output={"records_per_shard": 3}, on_error="skip")
    tar = write_tar(place.bucket / "a.tar", samples(9))
    tar.write_bytes(tar.read_bytes()[:7000])
    lost = place.convert().lost
    assert [(part["input"], part["to"], part["from"] + part["bytes"]) for part in lost] == [("a.tar", None, 7000)]
    write_tar(place.bucket / "b.tar", samples(3, first=20))
    assert place.update() == ["b.tar"]
    assert place.made.lost == place.convert().lost == lost


# --- Any inputs and edits, without files ---


sizes = st.lists(st.integers(16, 300) | st.integers(16, 1300), max_size=12)


LIMITS: list[dict[str, Any]] = [
    {"max_shard_size": 1000},
    {"records_per_shard": 4},
    {"max_shard_size": 1500, "records_per_shard": 5},
    {"max_shard_size": 1000, "compression": "gzip"},
    {"max_shard_size": 1000, "path": "<input>-<>"},
    {"path": "x"},
    {"max_shard_size": 1000, "split": {"a": 0.5, "b": 0.5}, "path": "<split>-<>"},
]

Tars = list[tuple[str, list[int]]]
"""Inputs: the name, which is new for a changed input, and the sizes of the records."""


@st.composite
def edited(draw: st.DrawFn) -> tuple[Tars, Tars]:
    """Inputs, and the same after some edits."""
    before = [(f"{number:02d}", found) for number, found in enumerate(draw(st.lists(sizes, max_size=7)))]
    now = list(before)
    for number in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(now)))
        added = [(f"new{number}", draw(sizes))] if draw(st.booleans()) else []
        now[place : place + draw(st.integers(0, 1))] = added
    if draw(st.integers(0, 9)) == 0:
        now = draw(st.permutations(now))
    return before, now


def planned(spec: Conversion, tars: Tars) -> list[PlannedShard]:
    planner = ShardPlanner(spec, [name for name, _ in tars], tracked=True)
    indexes = [indexed(spec, number, found, name)[0] for number, (name, found) in enumerate(tars)]
    shards = [shard for number, index in enumerate(indexes) for shard in planner.add(number, index)]
    return [*shards, *planner.finish()]


def content(shards: list[PlannedShard], tars: Tars) -> dict[tuple[str, int], list[tuple[str, int, int]]]:
    """The records in each shard: name of the input, the first, and how many."""
    return {s.lane_and_number: [(tars[origin.source][0], *origin[1:]) for origin in s.origins] for s in shards}


@example_count(150)
@given(st.sampled_from(LIMITS), edited())
def test_all_shards_that_would_be_the_same_are_kept_and_no_input_is_read_for_them(
    limits: dict[str, Any], tars: tuple[Tars, Tars]
) -> None:
    spec, (before, now) = conversion(**{"path": "x-<>", **limits}), tars
    names = {name for name, _ in before}
    with TemporaryDirectory() as folder:
        earlier = an_earlier(spec, before, now, folder)
        assert earlier.changed == [number for number, (name, _) in enumerate(now) if name not in names]
        planner = ShardPlanner(spec, [name for name, _ in now], tracked=True)
        fresh = [indexed(spec, number, found, name)[0] for number, (name, found) in enumerate(now)]
        shards: list[PlannedShard] = []
        for number, part in enumerate(fresh):
            if known := earlier.known(number):
                assert earlier.is_as_before(number, part)
                report, part = known
                assert report.samples == len(now[number][1])
            shards += planner.add(number, part)
        shards += planner.finish()
        expected = planned(spec, now)
        assert [(s.lane_and_number, s.size, s.records, s.origins) for s in shards] == [
            (s.lane_and_number, s.size, s.records, s.origins) for s in expected
        ]
        old, new = content(planned(spec, before), before), content(expected, now)
        kept = {shard.lane_and_number for shard in shards if earlier.kept(shard)}
    same = {place for place in new if new[place] == old.get(place) and all(name in names for name, *_ in new[place])}
    assert kept == same
    for shard, other in zip(shards, expected, strict=True):
        shard.fill(dict(enumerate(fresh)))
        assert shard == other, "what is written of an input that is read again"


@pytest.mark.parametrize("change", ["none", "one more", "one less", "records", "bytes"])
def test_sizes_have_to_be_those_of_the_shards_that_the_manifest_lists(change: str, tmp_path: Path) -> None:
    tars: Tars = [("00", [100] * 9), ("01", [50] * 3)]

    def changed(entries: list[ShardEntry]) -> list[ShardEntry]:
        last = entries[-1]
        return {
            "none": entries,
            "one more": [*entries, ShardEntry("-99", 1, 9, "crc32c:00000000")],
            "one less": entries[:-1],
            "records": [*entries[:-1], last._replace(records=last.records + 1)],
            "bytes": [*entries[:-1], last._replace(bytes=last.bytes + 1)],
        }[change]

    spec = conversion(path="x-<>", records_per_shard=4)
    if change == "none":
        assert an_earlier(spec, tars, tars, str(tmp_path), changed).changed == []
        return
    with pytest.raises(ValueError, match=r"^the sizes do not add up to the shards$"):
        an_earlier(spec, tars, tars, str(tmp_path), changed)


def an_earlier(
    spec: Conversion,
    before: Tars,
    now: Tars,
    folder: str,
    changed: Callable[[list[ShardEntry]], list[ShardEntry]] = list,
) -> EarlierConversion:
    """What a conversion of other inputs published."""
    sizes = SizesFile(os.path.join(folder, "sizes"), spec)
    for number, (name, found) in enumerate(before):
        sizes.add(InputReport(len(found)), indexed(spec, number, found, name)[0])
    sizes.close()
    shards = planned(spec, before)
    entries = [ShardEntry(f"{s.lane}-{s.number}", s.records, s.size, "crc32c:00000000") for s in shards]
    then, present = ([ObjectInfo(name, 1, "1") for name, _ in each] for each in (before, now))
    manifest = Manifest({}, then, changed(entries), sizes=digest(sizes.crc))
    plan = Plan(spec, ShardSet("x", MergedSource([]), present), lanes_of(spec, present, {}))
    file = BytesIO(Path(folder, "sizes").read_bytes())
    return EarlierConversion(manifest, file, plan, lambda shard: f"{shard.lane}-{shard.number}", lambda entry: True)
