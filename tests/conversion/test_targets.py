"""Targets without a manifest: which files are replaced, and what a stream leaves behind."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from tar2tf_cli.conversion.sharding import PlannedShard, ShardReport
from tar2tf_cli.conversion.targets import FilesTarget, StreamTarget
from tar2tf_cli.errors import OutputExistsError, SinkError, UsageError
from tar2tf_cli.formats.checksums import crc32c
from tar2tf_cli.inputs.manifest import Manifest
from verify_runs import framed


def test_shards_are_streamed_in_order_and_take_no_space_afterwards() -> None:
    out = io.BytesIO()
    with StreamTarget(out) as target:
        for number in (1, 0, 2):
            shard = PlannedShard("", number)
            Path(shard.part(target.folder)).write_bytes(b"%d" % number)
            target.seal(shard, ShardReport(1, 1, 0))
            assert out.getvalue() == {1: b"", 0: b"01", 2: b"012"}[number]
            assert len(os.listdir(target.folder)) == (number == 1)


NEW = [framed(b"one"), framed(b"two")]


@pytest.mark.parametrize(
    ("there", "overwrite", "kept"),
    [
        ([None, None], False, []),
        (NEW, False, [0, 1]),
        ([NEW[0], None], False, [0]),
        ([framed(b"other"), NEW[1]], True, [1]),
    ],
)
def test_files_are_written_but_for_those_that_have_their_bytes(
    there: list[bytes | None], overwrite: bool, kept: list[int], tmp_path: Path
) -> None:
    before = write(there, tmp_path)
    put(tmp_path, overwrite=overwrite)
    assert [(tmp_path / name).read_bytes() for name in "ab"] == NEW
    assert [place for place, name in enumerate("ab") if os.stat(tmp_path / name).st_ino == before[place]] == kept
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


@pytest.mark.parametrize(
    "there",
    [
        [framed(b"six"), None],
        [None, framed(b"six")],
        [b"precious", None],
        [None, NEW[1] + b"!"],
    ],
)
def test_files_with_other_bytes_stay(there: list[bytes | None], tmp_path: Path) -> None:
    write(there, tmp_path)
    with pytest.raises(OutputExistsError):
        put(tmp_path, overwrite=False)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        name: data for name, data in zip("ab", there, strict=True) if data is not None
    }


def write(there: list[bytes | None], folder: Path) -> list[int | None]:
    """Make files, and return what their inodes are."""
    for name, data in zip("ab", there, strict=True):
        if data is not None:
            (folder / name).write_bytes(data)
    return [None if data is None else os.stat(folder / name).st_ino for name, data in zip("ab", there, strict=True)]


def put(folder: Path, *, overwrite: bool) -> None:
    """Write two shards to files."""
    with FilesTarget(iter([f"{folder}/a", f"{folder}/b"]), overwrite=overwrite) as target:
        for number, data in enumerate(NEW):
            shard = PlannedShard("", number)
            Path(shard.part(target.folder)).write_bytes(data)
            target.seal(shard, ShardReport(len(data), 1, crc32c(data)))
        target.finish(Manifest({}, []), lambda shards: {})


def test_paths_that_cannot_be_written_are_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"no record")
    (tmp_path / "record").write_bytes(NEW[0])
    os.mkfifo(tmp_path / "pipe")
    for name, kind, says in [
        ("folder", UsageError, "the output path '{}' is a directory; name a file, such as 'out/train.record'"),
        ("pipe", UsageError, "'{}' is not a regular file; open it, and pass the open file"),
        ("file", OutputExistsError, "{}: already exists; choose another path or overwrite=True"),
        (
            "file/x",
            SinkError,
            "{}: cannot be written: File exists; write to another location, then run the same command",
        ),
    ]:
        path = f"{tmp_path}/{name}"
        for target in (FilesTarget(iter([path])), FilesTarget(iter([path]), overwrite=True)):
            if name == "file" and target._overwrite:
                continue
            with pytest.raises(kind) as caught:
                target.__enter__()
            assert caught.value.sentence == says.format(path)
    assert sorted(os.listdir(tmp_path)) == ["file", "folder", "pipe", "record"]


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ([], "no paths were given for the shards; give one for each"),
        (["a"], "1 paths were given for 2 shards; give one for each"),
    ],
)
def test_there_has_to_be_a_path_for_each_shard(names: list[str], says: str, tmp_path: Path) -> None:
    def written() -> None:
        with FilesTarget(iter([str(tmp_path / name) for name in names])) as target:
            for number, data in enumerate(NEW):
                shard = PlannedShard("", number)
                Path(shard.part(target.folder)).write_bytes(data)
                target.seal(shard, ShardReport(len(data), 1, crc32c(data)))
            target.finish(Manifest({}, []), lambda shards: {})

    with pytest.raises(UsageError) as caught:
        written()
    assert caught.value.sentence == says
    assert os.listdir(tmp_path) == []


def test_a_stream_needs_an_open_standard_output_that_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "isatty", lambda descriptor: descriptor == 1)
    with pytest.raises(UsageError) as caught:
        StreamTarget().__enter__()
    assert caught.value.sentence == (
        "records are bytes, which a terminal cannot show; "
        "pipe or redirect them, or name files, such as -o 'train-<>.record'"
    )
    monkeypatch.setattr(sys, "__stdout__", None)
    with pytest.raises(SinkError, match=r"^standard output is closed$"):
        StreamTarget().__enter__()


def test_the_end_of_a_stream_is_written_after_its_last_shard(tmp_path: Path) -> None:
    for end in (b"", b"end"):
        out = io.BytesIO()
        with StreamTarget(out, end=end) as target:
            shard = PlannedShard("", 0)
            Path(shard.part(target.folder)).write_bytes(b"one")
            target.seal(shard, ShardReport(3, 1, 0))
            assert target.finish(Manifest({}, []), lambda shards: {}) == []
            folder = target.folder
        assert (out.getvalue(), os.path.exists(folder)) == (b"one" + end, False)
