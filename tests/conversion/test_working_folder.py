"""The working folder of a run: what may be in it, what it reads again, and what it removes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tar2tf_cli.conversion.working_folder import WorkingFolder, format_entry, parse_entry
from tar2tf_cli.errors import OutputExistsError

HINT = "move it away: tar2tf keeps unfinished work under this name, and removes it when it is done"
OURS = [
    *("lock", "journal", "labels", "input-0.index", "input-17.spool", "input-3.table", "shard-.part"),
    *("shard-train-0.part", "shard-0.part.idx", "shard-a\nb.part", "made-0.end", "sizes.part", "document.part"),
    *("previous.sizes", ".x.part", ".attempt-9", "tmpab_1"),
]


@pytest.mark.parametrize("name", OURS)
def test_files_of_a_run_may_be_there_and_are_removed(name: str, tmp_path: Path) -> None:
    folder = WorkingFolder(str(tmp_path / "w"), "out")
    folder.check()
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / name).write_bytes(b"x")
    folder.check()
    folder.lock()
    folder.remove()
    folder.release()
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    "name",
    [
        *("Lock", "lock2", "input-.index", "input-1.spools", "input-x.index", "input-1.index.part", "shard-0"),
        *(
            "shard-0.part.gz",
            "made-0",
            "sizes",
            "document",
            "previous.size",
            "previous_sizes",
            ".x",
            ".attempt",
            "tmp",
            "tmp-1",
            "xtmp1",
        ),
    ],
)
def test_a_file_that_no_run_makes_is_named_and_stays(name: str, tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / name).write_bytes(b"x")
    folder = WorkingFolder(str(tmp_path / "w"), "out")
    for use in (folder.check, folder.lock):
        with pytest.raises(OutputExistsError) as caught:
            use()
        assert (
            caught.value.sentence == f"{tmp_path / 'w'}: has {name!r}, which is not a file of unfinished work; {HINT}"
        )
    assert [path.name for path in (tmp_path / "w").iterdir()] == [name]


def test_a_file_or_a_link_in_its_place_is_no_folder_of_unfinished_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "broken").symlink_to("nowhere")
    for name in ("file", "link", "broken"):
        with pytest.raises(OutputExistsError) as caught:
            WorkingFolder(str(tmp_path / name), "out").check()
        assert caught.value.sentence == f"{tmp_path / name}: is not a folder of unfinished work; {HINT}"


def test_a_journal_is_read_up_to_a_damaged_line(tmp_path: Path) -> None:
    folder = WorkingFolder(str(tmp_path), "out")
    assert folder.read_journal() == (None, [])
    head, entries = {"identity": "x"}, [["a", 0, 1], {"paths": ["b"]}, ["c"]]
    lines = [format_entry(item) for item in (head, *entries)]
    for data, found in [
        (b"".join(lines), (head, entries)),
        (lines[0], (head, [])),
        (b"".join(lines)[:-1], (head, entries[:2])),
        (lines[0] + lines[1] + b"x" + lines[2] + lines[3], (head, entries[:1])),
        (b"".join(lines[1:]), (None, [])),
        (format_entry({"other": 1}) + lines[1], (None, [])),
        (lines[0][:-3] + b"\n", (None, [])),
        (b"", (None, [])),
    ]:
        (tmp_path / "journal").write_bytes(data)
        assert folder.read_journal() == found
    assert parse_entry(lines[1]) == entries[0]
    with pytest.raises(ValueError, match=r"."):
        parse_entry(lines[1][:-2])


def test_a_journal_that_goes_on_keeps_the_entries_that_were_read(tmp_path: Path) -> None:
    for keep, left in ((True, [["a"], ["b"], ["c"]]), (False, [["c"]])):
        (tmp_path / "journal").write_bytes(format_entry({"identity": 1}) + format_entry(["a"]) + format_entry(["b"]))
        folder = WorkingFolder(str(tmp_path), "out")
        folder.lock()
        folder.read_journal()
        folder.begin_journal({"identity": 2}, keep=keep)
        folder.note(["c"])
        folder.release()
        assert WorkingFolder(str(tmp_path), "out").read_journal() == ({"identity": 2}, left)


def test_strays_are_removed_alone_and_everything_but_the_lock_and_the_journal(tmp_path: Path) -> None:
    def left(**options: bool) -> set[str]:
        for name in ("lock", "journal", "labels", "input-0.spool", ".x.part"):
            (tmp_path / name).write_bytes(b"x")
        (tmp_path / ".attempt-1").mkdir(exist_ok=True)
        (tmp_path / ".attempt-1" / "inner").write_bytes(b"x")
        WorkingFolder(str(tmp_path), "out").clear(**options)
        return {path.name for path in tmp_path.iterdir()}

    assert left(strays=True) == {"lock", "journal", "labels", "input-0.spool"}
    assert left() == {"lock", "journal"}
    assert left(journal=True) == {"lock"}


def test_a_file_of_an_interrupted_run_is_opened_if_it_is_there(tmp_path: Path) -> None:
    folder = WorkingFolder(str(tmp_path), "out")
    assert folder.open("previous.sizes") is None
    (tmp_path / "previous.sizes").write_bytes(b"sizes")
    file = folder.open("previous.sizes")
    assert file
    with file:
        assert file.read() == b"sizes"
