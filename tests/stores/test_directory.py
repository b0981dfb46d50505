"""Folders as a store."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shards import samples, write_tar
from tar2tf_cli import convert, inspect, verify
from tar2tf_cli.api.objects import ByteStream, ObjectInfo
from tar2tf_cli.api.source import Source
from tar2tf_cli.errors import SourceError, UsageError
from tar2tf_cli.spec.conversion import Conversion, Input, Output
from tar2tf_cli.stores import open_source
from tar2tf_cli.stores.directory import DirectorySource
from tar2tf_cli.testing.sources import SourceSuite

pytestmark = pytest.mark.on_disk


class TestDirectory(SourceSuite):
    @pytest.fixture
    def bucket(self, tmp_path: Path) -> str:
        return str(tmp_path / "bucket")

    def put(self, bucket: str, name: str, data: bytes) -> None:
        path = Path(bucket, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.stat().st_mtime_ns if path.exists() else 0
        path.write_bytes(data)
        if before:
            os.utime(path, ns=(before, before + 1))  # even a coarse clock shows it

    def delete(self, bucket: str, name: str) -> None:
        Path(bucket, name).unlink()


class TestFolders:
    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        for name in ("a.tar", "one/b.tar", "two/c.tar", "two/deep/d.tar"):
            write_tar(tmp_path / "in" / name, samples(1))
        return tmp_path / "in"

    def test_one_that_cannot_be_listed_is_no_empty_one(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def scandir(path: str) -> Any:
            if path.endswith("two"):
                raise PermissionError(13, "Permission denied", path)
            return listed(path)

        listed = os.scandir
        monkeypatch.setattr(os, "scandir", scandir)
        source = open_source(str(root))
        for template in ("**/*.tar", "*/*.tar", "t*/*.tar"):
            with pytest.raises(SourceError, match="two: cannot be read: Permission denied"):
                source.list([template])
        for templates in ([], ["*.tar"], ["one/*.tar"], ["two/c.tar"]):
            assert source.list(templates)

    def test_links_to_them_are_followed_as_in_bash(self, root: Path) -> None:
        (root / "link").symlink_to("two")
        (root / "loop").symlink_to(".")
        source = open_source(str(root))
        found = {
            template: [item.name for item in source.list([template])]
            for template in ("*/*.tar", "**/*.tar", "link/**/*.tar")
        }
        assert found == {
            "*/*.tar": ["link/c.tar", "loop/a.tar", "one/b.tar", "two/c.tar"],
            "**/*.tar": ["a.tar", "one/b.tar", "two/c.tar", "two/deep/d.tar"],
            "link/**/*.tar": ["link/c.tar", "link/deep/d.tar"],
        }

    def test_a_link_to_nowhere_says_where_it_leads(self, root: Path) -> None:
        (root / "b.tar").symlink_to("/nowhere/b.tar")
        with pytest.raises(SourceError, match=r"cannot be read: No such file.*: it is a link to /nowhere/b\.tar"):
            open_source(str(root)).list([])


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def rewrite(path: Path) -> None:
    """Other bytes of the same size, in the same file."""
    data = path.read_bytes()
    with path.open("r+b") as file:
        file.write(data[::-1])


def replace(path: Path) -> None:
    """Another file of the same size and age."""
    status = path.stat()
    new = path.with_suffix(".new")
    new.write_bytes(path.read_bytes())
    os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))
    new.replace(path)


changes = pytest.mark.parametrize("change", [append, rewrite, replace, Path.touch])


def ready(path: Path) -> Path:
    """The file, so old that a coarse clock sees any change."""
    os.utime(path, ns=(10**18, 10**18))
    return path


class TestChanges:
    """A shard that is written to while it is read is an error, whatever was read of it."""

    @changes
    @pytest.mark.parametrize("listed", [True, False])
    @pytest.mark.parametrize("size", [10, -1])
    def test_while_a_shard_is_open(
        self, change: Callable[[Path], None], listed: bool, size: int, tmp_path: Path
    ) -> None:
        path = ready(write_tar(tmp_path / "x.tar", samples(20)))
        source = open_source(str(tmp_path))
        (item,) = source.list(["x.tar"])
        stream = source.open(item if listed else ObjectInfo("x.tar", None, None))
        assert stream.read(size)
        change(path)
        with pytest.raises(SourceError, match="changed while it was being read") as caught:
            stream.close()
        assert caught.value.shard == str(path)
        stream.close()

    def test_a_shard_that_is_only_removed_was_read_whole(self, tmp_path: Path) -> None:
        path = write_tar(tmp_path / "x.tar", samples(20))
        source = open_source(str(tmp_path))
        stream = source.open(*source.list(["x.tar"]))
        path.unlink()
        assert len(stream.read(1 << 20)) > 10_000
        stream.close()

    @changes
    @pytest.mark.parametrize(
        ("size", "reading"), [(300, 1), (20_000, 1), (20_000, 2)], ids=["spooled", "measured", "by offset"]
    )
    def test_during_a_conversion(
        self,
        change: Callable[[Path], None],
        size: int,
        reading: int,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        path = ready(write_tar(tmp_path / "x.tar", samples(100, size)))
        meddle(monkeypatch, path, change, reading)
        with pytest.raises(SourceError, match="changed while it was being read"):
            convert(Conversion(str(path), str(tmp_path / "out" / "x.record")), workers=1)
        assert not list((tmp_path / "out").glob("[!.]*"))

    @changes
    def test_while_a_shard_is_verified_or_inspected(
        self,
        change: Callable[[Path], None],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        path = ready(write_tar(tmp_path / "x.tar", samples(100)))
        meddle(monkeypatch, path, change, 1)
        with pytest.raises(SourceError, match="changed while it was being read"):
            inspect(str(path))
        meddle(monkeypatch, path, change, 1)
        (found,) = verify(str(path)).files
        message = "changed while it was being read; run the same command again when its writer is done"
        assert ("unreadable", message) in {(f.kind, f.message) for f in found.faults}


def meddle(monkeypatch: pytest.MonkeyPatch, path: Path, change: Callable[[Path], None], reading: int) -> None:
    """Change a shard right after it was opened for the time that `reading` says."""
    count = itertools.count(1)

    opened = DirectorySource.open

    def opening(source: DirectorySource, item: ObjectInfo) -> ByteStream:
        stream = opened(source, item)
        if next(count) == reading:
            change(path)
        return stream

    monkeypatch.setattr(DirectorySource, "open", opening)


def test_a_pipe_does_not_keep_the_files_beside_it_from_being_read(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", samples(3))
    os.mkfifo(tmp_path / "b.tar")
    assert inspect(str(tmp_path)).samples == 3
    assert verify(str(tmp_path), ["*.tar"]).ok
    for arguments in ((str(tmp_path / "b.tar"),), (str(tmp_path), ["b.tar"])):
        with pytest.raises(SourceError, match="is not a regular file"):
            verify(*arguments)
    assert convert(Conversion(Input(str(tmp_path)), Output(str(tmp_path / "x.record")))).records == 3


def refusal(source: Source, *templates: str) -> tuple[str, str | None, str | None]:
    """Message, shard and hint of the error of a listing."""
    with pytest.raises((SourceError, UsageError)) as caught:
        source.list(templates)
    return caught.value.message, caught.value.shard, caught.value.hint


def test_what_cannot_be_listed_is_named_with_the_next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_tar(tmp_path / "x.tar", samples(1))
    (tmp_path / "folder.tar").mkdir()
    os.mkfifo(tmp_path / "pipe.tar")
    source = open_source(str(tmp_path))
    assert refusal(open_source(str(path)), "*.tar") == ("is a single file, so it takes no template", str(path), None)
    assert refusal(source, "folder.tar") == (
        "is a directory where a shard should be",
        str(tmp_path / "folder.tar"),
        None,
    )
    assert refusal(source, "pipe.tar") == (
        "is not a regular file",
        str(tmp_path / "pipe.tar"),
        "pipe it to standard input, with - as BUCKET",
    )
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    denied = "permission to read the directory was denied"
    assert refusal(source, "*.tar") == (denied, f"{tmp_path}/", None)
    for given, message, hint in (
        (("s3://b/x.tar",), "'s3://b/x.tar' is a URL, not the name of a shard in this bucket", "'{a,b}.tar'"),
        (
            ("https://me:pw@h/x.tar",),
            "'https://h/x.tar' is a URL, not the name of a shard in this bucket",
            "'{a,b}.tar'",
        ),
    ):
        found = refusal(source, *given)
        form = f"give one bucket, then names of shards in it, such as {hint}"
        assert found == (message, str(tmp_path), form)
    once = open_source(f"{tmp_path}/*.tar")
    assert refusal(once, "x.tar") == (
        "'*.tar' is a template already, so it cannot be followed by 'x.tar'",
        str(tmp_path),
        "give a bucket first, then its templates",
    )


@pytest.mark.parametrize(
    ("name", "endpoint", "hint"),
    [
        ("nowhere", "http://h:1", "for the bucket of the cluster at AIS_ENDPOINT, write ais://nowhere"),
        ("nowhere", "", None),
        ("./nowhere", "http://h:1", None),
    ],
)
def test_a_bucket_that_is_not_there_may_be_one_of_a_cluster(
    name: str, endpoint: str, hint: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIS_ENDPOINT", endpoint)
    with pytest.raises(SourceError) as caught:
        open_source(name)
    found = caught.value
    assert (found.message, found.shard, found.hint) == ("no such directory or file", name, hint)


def test_standard_input_is_one_shard_without_a_template(monkeypatch: pytest.MonkeyPatch) -> None:
    source = open_source("-")
    monkeypatch.setattr(os, "isatty", lambda number: number != 0)
    assert (source.list([]), source.locate("-"), source.bucket) == ([ObjectInfo("-", None, None)], "<stdin>", "-")
    assert refusal(source, "x") == ("standard input is a single tar, so it takes no template", None, None)
    monkeypatch.setattr(os, "isatty", lambda number: number == 0)
    hint = "pipe or redirect one to it: ... - < x.tar"
    assert refusal(source) == ("standard input is a terminal, not a shard", None, hint)


def test_ranges_of_a_file_that_cannot_be_read_name_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.tar").write_bytes(b"some bytes")
    source = open_source(str(tmp_path))
    (item,) = source.list(["x.tar"])
    ranges = source.ranges()
    assert ranges
    assert (ranges.read(item, 5, 5), ranges.read(item, 8, 5), ranges.read(item, 20, 5)) == (b"bytes", b"es", b"")

    def pread(*_: int) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "pread", pread)
    with pytest.raises(SourceError, match="cannot be read: Input/output error") as caught:
        ranges.read(item, 0, 1)
    assert caught.value.shard == str(tmp_path / "x.tar")


def test_a_range_may_come_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.tar").write_bytes(b"some bytes")
    source, pread = open_source(str(tmp_path)), os.pread
    (item,) = source.list(["x.tar"])
    monkeypatch.setattr(os, "pread", lambda number, size, start: pread(number, min(size, 3), start))
    ranges = source.ranges()
    assert ranges
    assert (ranges.read(item, 1, 8), ranges.read(item, 4, 99)) == (b"ome byte", b" bytes")


def test_no_more_files_than_a_share_are_open_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        (tmp_path / f"{name}.tar").write_bytes(name.encode())
    source = DirectorySource(str(tmp_path))
    items = source.list([])
    ranges = source.ranges()
    monkeypatch.setattr(type(ranges), "MOST_OPEN", 2)
    assert ranges.open_files(items) is None
    files = ranges.open_files(items[1:])
    assert files
    assert [os.pread(file.descriptor, 1, 0) for file in files] == [b"b", b"c"]
    before = len(os.listdir("/proc/self/fd"))
    del files
    for _ in range(3):
        assert [ranges.read(item, 0, 9) for item in items] == [b"a", b"b", b"c"]
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_is_located_in_its_folder_and_an_absolute_path_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(b"x")
    for source in (open_source(f"{tmp_path}/"), open_source(str(tmp_path)), open_source(str(tmp_path / "x.tar"))):
        assert source.locate("x.tar") == str(tmp_path / "x.tar")
        assert source.locate("/elsewhere/y.tar") == "/elsewhere/y.tar"
        assert [*source.find(["x.tar", str(tmp_path / "x.tar"), "y.tar"])] == ["x.tar", str(tmp_path / "x.tar")]
