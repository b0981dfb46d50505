"""What a sink of buckets checks of each object, against a bucket in memory that errs in one way."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.store import Body, NoSuchObject, ObjectExists, Store
from tar2tf_cli.errors import OutputExistsError, SinkError
from tar2tf_cli.formats.checksums import crc32c
from tar2tf_cli.sinks import objects as objects_module
from tar2tf_cli.sinks.objects import ObjectSink

URL = "mem://b"
MANIFEST = "f/_t-manifest.json"
STAGING = "f/.t-manifest.tar2tf/"


class Memory(Store):
    """A bucket in memory.

    Attributes:
        objects: the bytes of each object.
        calls: the calls that changed something.
        lost: how many bytes of each upload or copy do not arrive; all of them for None.
        checksum: kind and value of the checksum that objects are said to have.
    """

    retry_for = 0.0

    def __init__(self) -> None:
        super().__init__(URL, "")
        self.objects: dict[str, bytes] = {}
        self.calls: list[str] = []
        self.lost: int | None = 0
        self.checksum: tuple[str, str] | None = None

    def list(self, prefix: str) -> Iterable[ObjectInfo]:
        return [self._info(name) for name in sorted(self.objects) if name.startswith(prefix)]

    def _info(self, name: str) -> ObjectInfo:
        data = self.objects[name]
        return ObjectInfo(name, len(data), hashlib.md5(data, usedforsecurity=False).hexdigest()[:8], self.checksum)

    def head(self, name: str) -> ObjectInfo | None:
        return self._info(name) if name in self.objects else None

    def fetch(self, item: ObjectInfo, start: int, size: int | None = None) -> Body:
        if item.name not in self.objects:
            raise NoSuchObject("no such object", shard=self.locate(item.name))
        data, info = self.objects[item.name], self._info(item.name)
        return Body(BytesIO(data[start:]).read, lambda: None, start, len(data), info.version)

    def locate(self, name: str) -> str:
        return f"{URL}/{name}"

    def _arrive(self, name: str, data: bytes) -> None:
        if self.lost is not None:
            self.objects[name] = data[: len(data) - self.lost]

    def put(self, name: str, path: str, *, absent: bool = False) -> None:
        if absent and name in self.objects:
            raise ObjectExists("already exists", shard=self.locate(name))
        self.calls.append(f"put {name}")
        self._arrive(name, Path(path).read_bytes())

    def copy(self, name: str, target: str) -> None:
        self.calls.append(f"copy {name} {target}")
        self._arrive(target, self.objects[name])

    def remove(self, name: str) -> None:
        self.calls.append(f"remove {name}")
        self.objects.pop(name, None)


@pytest.fixture
def bucket() -> Memory:
    return Memory()


@pytest.fixture
def sink(bucket: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectSink]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(objects_module, "_SETTLING", 0.0)
    sink = ObjectSink(bucket, URL)
    os.makedirs(sink.prepare(MANIFEST, "f/t-"))
    yield sink
    sink.close()


def part(folder: Path, data: bytes, name: str = "part") -> str:
    path = folder / name
    path.write_bytes(data)
    return str(path)


def refused(sink: ObjectSink) -> tuple[type[BaseException], str, str | None]:
    """Kind, message and URL of the error that waiting for uploads raises."""
    with pytest.raises((SinkError, OutputExistsError)) as caught:
        sink.flush([])
    return type(caught.value), caught.value.message, caught.value.shard


@pytest.mark.parametrize(
    ("lost", "there"), [(2, "3 bytes"), (5, "0 bytes"), (None, "nothing")], ids=["some", "all", "the object"]
)
@pytest.mark.parametrize("staged", [False, True])
def test_an_object_with_fewer_bytes_than_were_sent_is_removed(
    lost: int | None, there: str, staged: bool, bucket: Memory, sink: ObjectSink, tmp_path: Path
) -> None:
    path = part(tmp_path, b"bytes")
    if staged:
        sink.stage(path)
        sink.flush([])
    bucket.lost = lost
    sink.publish(path, "f/t-1.record")
    how = "copied" if staged else "uploaded"
    message = f"5 bytes were {how}, but {there} arrived"
    assert refused(sink) == (SinkError, message, f"{URL}/f/t-1.record")
    assert "f/t-1.record" not in bucket.objects
    assert os.path.exists(path) is not staged


@pytest.mark.parametrize(
    ("checksum", "good"),
    [
        (("md5", hashlib.md5(b"bytes", usedforsecurity=False).hexdigest().upper()), True),
        (("md5", "0" * 32), False),
        (("crc32c", f"{crc32c(b'bytes'):08x}"), True),
        (("crc32c", "00000000"), False),
        (("unknown", "0"), True),
        (None, True),
    ],
)
def test_an_object_with_another_checksum_than_was_sent_is_removed(
    checksum: tuple[str, str] | None, good: bool, bucket: Memory, sink: ObjectSink, tmp_path: Path
) -> None:
    bucket.checksum = checksum
    sink.publish(part(tmp_path, b"bytes"), "f/t-1.record")
    if good:
        sink.flush([])
        assert bucket.objects == {"f/t-1.record": b"bytes"}
    else:
        assert checksum
        message = f"the {checksum[0]} of the object differs from that of the bytes sent"
        assert refused(sink) == (SinkError, message, f"{URL}/f/t-1.record")
        assert bucket.objects == {}


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize(("there", "equal"), [(b"bytes", True), (b"other", False), (b"more bytes", False)])
def test_an_object_that_must_not_be_replaced_may_have_the_same_bytes(
    there: bytes, equal: bool, staged: bool, bucket: Memory, sink: ObjectSink, tmp_path: Path
) -> None:
    path = part(tmp_path, b"bytes")
    if staged:
        sink.stage(path)
        sink.flush([])
    bucket.objects["f/t-1.record"] = there
    bucket.calls.clear()
    sink.publish(path, "f/t-1.record", replaces=False)
    if equal:
        sink.flush([])
        assert not os.path.exists(path)
        assert bucket.calls == ([f"remove {STAGING}/part"] if staged else [])
    else:
        message = "does not hold the bytes of this conversion: another program wrote it"
        assert refused(sink) == (OutputExistsError, message, f"{URL}/f/t-1.record")
        assert bucket.calls == []
    assert bucket.objects["f/t-1.record"] == there


def test_a_part_that_cannot_be_read_is_named(bucket: Memory, sink: ObjectSink, tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    sink.publish(str(tmp_path / "part"), "f/t-1.record")
    assert refused(sink) == (SinkError, "cannot be read: Is a directory", str(tmp_path / "part"))
    assert bucket.objects == {}


def test_what_another_program_changed_is_named(bucket: Memory, sink: ObjectSink, tmp_path: Path) -> None:
    published = {}
    for name, data in (("a", b"bytes"), ("b", b"more"), ("c", b"some"), ("d", b"same")):
        sink.publish(part(tmp_path, data, name), f"f/t-{name}.record")
        published[f"f/t-{name}.record"] = (len(data), crc32c(data))
    sink.flush([])
    assert list(sink.changed(published)) == []
    bucket.objects["f/t-a.record"] = b"other"
    bucket.objects["f/t-b.record"] = b"longer bytes"
    del bucket.objects["f/t-c.record"]
    assert list(sink.changed(published)) == [
        ("f/t-a.record", "does not hold the bytes that were written"),
        ("f/t-b.record", "has 12 bytes, not the 4 that were written"),
        ("f/t-c.record", "is gone"),
    ]
    again = ObjectSink(bucket, URL)  # which published none of them, and knows no versions
    assert [path for path, _ in again.changed(published)] == ["f/t-b.record", "f/t-c.record"]


def claim(bucket: Memory) -> Any:
    return json.loads(bucket.objects[f"{STAGING}claim"])


TAKEN = f"another conversion is writing this output (process {os.getpid()} on {os.uname().nodename})"
TAKE_OVER = "wait until it is done; if it was killed, pass --overwrite to take over its output"


def reserve(sink: ObjectSink, run: str, conversion: str, *, replaces: bool = False) -> None:
    sink.reserve(run, conversion, "t-*.record", replaces=replaces)


def test_a_claim_names_run_conversion_and_process_until_it_is_released(bucket: Memory, sink: ObjectSink) -> None:
    assert sink.reserved_by() == ""
    reserve(sink, "run", "conversion")
    made = {"run": "run", "conversion": "conversion", "shards": "t-*.record"}
    assert claim(bucket) == {**made, "host": os.uname().nodename, "process": os.getpid()}
    assert sink.reserved_by() == "conversion"
    sink.check_reserved()
    sink.release()
    assert bucket.objects == {}
    sink.check_reserved()
    sink.release()


@pytest.mark.parametrize(
    ("run", "conversion", "replaces", "taken"),
    [
        ("run", "conversion", False, False),
        ("another", "conversion", False, False),
        ("another", "another", False, True),
        ("another", "another", True, False),
    ],
)
def test_an_output_is_reserved_by_one_conversion_at_a_time(
    run: str,
    conversion: str,
    replaces: bool,
    taken: bool,
    bucket: Memory,
    sink: ObjectSink,
    tmp_path: Path,
) -> None:
    reserve(sink, "run", "conversion")
    other = ObjectSink(bucket, URL)
    os.makedirs(other.prepare(MANIFEST), exist_ok=True)
    if taken:
        with pytest.raises(OutputExistsError) as caught:
            reserve(other, run, conversion, replaces=replaces)
        assert (caught.value.message, caught.value.shard, caught.value.hint) == (TAKEN, f"{URL}/{MANIFEST}", TAKE_OVER)
        assert claim(bucket)["run"] == "run"
    else:
        reserve(other, run, conversion, replaces=replaces)
        assert (claim(bucket)["run"], claim(bucket)["conversion"]) == (run, conversion)
    if conversion == "conversion" or taken:
        sink.check_reserved()
    else:
        with pytest.raises(OutputExistsError) as caught:
            sink.check_reserved()
        assert (caught.value.message, caught.value.hint) == (TAKEN, TAKE_OVER)
    if not taken and run == "another":
        sink.release()
        assert claim(bucket)["run"] == "another"  # which is no longer this run's to remove
    other.close()


def test_staged_parts_are_dropped_with_those_of_earlier_runs_and_the_claim_stays(
    bucket: Memory, sink: ObjectSink, tmp_path: Path
) -> None:
    bucket.objects = {f"{STAGING}earlier/part": b"x", "f/t-1.record": b"y"}
    reserve(sink, "run", "conversion")
    sink.stage(part(tmp_path, b"bytes"))
    sink.flush([])
    assert bucket.objects[f"{STAGING}run/part"] == b"bytes"
    assert sink.part_size(str(tmp_path / "part")) == 5
    sink.drop_staged()
    assert sorted(bucket.objects) == [f"{STAGING}claim", "f/t-1.record"]


def test_a_run_that_took_over_an_equal_one_leaves_its_staged_parts(
    bucket: Memory, sink: ObjectSink, tmp_path: Path
) -> None:
    reserve(sink, "other", "conversion")
    bucket.objects[f"{STAGING}other/part"] = b"x"
    mine = ObjectSink(bucket, URL)
    os.makedirs(mine.prepare(MANIFEST, "f/t-"), exist_ok=True)
    reserve(mine, "run", "conversion")
    mine.stage(part(tmp_path, b"bytes"))
    mine.flush([])
    mine.drop_staged()
    assert sorted(bucket.objects) == [f"{STAGING}claim", f"{STAGING}other/part"]
    mine.close()


def test_paths_are_names_in_the_bucket_and_the_working_folder_is_named_after_the_manifest(
    bucket: Memory, sink: ObjectSink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sink.inside(f"{URL}/f/t-1.record") == sink.inside("f/t-1.record") == "f/t-1.record"
    assert sink.locate("f/t-1.record") == f"{URL}/f/t-1.record"
    folder = sink.prepare(MANIFEST)
    assert folder == sink.prepare(MANIFEST) != sink.prepare("f/_u-manifest.json")
    digest = hashlib.blake2b(f"{URL}/{MANIFEST}".encode(), digest_size=6).hexdigest()
    assert folder == f"{tmp_path}/cache/tar2tf/mem-b-f-_t-manifest-{digest}"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert sink.prepare(MANIFEST) == f"/home/me/.cache/tar2tf/mem-b-f-_t-manifest-{digest}"


def test_walking_gives_the_objects_of_an_output_below_a_folder(bucket: Memory, tmp_path: Path) -> None:
    names = ["f/t-1.record", "f/t-2/x.record", "f/u.record", "g/t-3.record", f"{STAGING}run/part", "t-0.record"]
    bucket.objects = dict.fromkeys(names, b"x")

    def walked(root: str, begins: str, *, nested: bool) -> list[tuple[str, bool]]:
        sink = ObjectSink(bucket, URL)
        sink.prepare(MANIFEST, begins)
        return list(sink.walk(root, nested=nested))

    assert walked("f", "f/t-", nested=False) == [("t-1.record", False)]
    assert walked("f/", "f/t-", nested=True) == [("t-1.record", False), ("t-2/x.record", False)]
    assert walked("f", "", nested=False) == [("t-1.record", False), ("u.record", False)]
    assert walked(".", "", nested=False) == [("t-0.record", False)]
    assert [name for name, _ in walked(".", "", nested=True)] == sorted({*names} - {f"{STAGING}run/part"})


def test_an_object_is_known_from_one_listing_or_as_it_is_now(bucket: Memory, sink: ObjectSink, tmp_path: Path) -> None:
    bucket.objects["f/t-1.record"] = b"bytes"
    assert (sink.exists("f/t-1.record"), sink.exists("f/t-2.record"), sink.size("f/t-1.record")) == (True, False, 5)
    bucket.objects["f/t-2.record"] = bucket.objects.pop("f/t-1.record")
    assert (sink.exists("f/t-1.record"), sink.exists("f/t-2.record")) == (True, False)
    assert (sink.exists("f/t-1.record", now=True), sink.exists("f/t-2.record", now=True)) == (False, True)
    assert (sink.read("f/t-1.record"), sink.read("f/t-2.record")) == (None, b"bytes")
    sink.remove("f/t-1.record")
    assert not sink.exists("f/t-1.record")
    sink.publish(part(tmp_path, b"more"), "f/t-3.record")
    sink.flush([])
    assert (sink.exists("f/t-3.record"), sink.size("f/t-3.record")) == (True, 4)


@pytest.mark.parametrize(("value", "reads"), [("MD5", 0), ("0" * 32, 1), ("MD5-2", 1), ("", 1)])
def test_bytes_are_compared_by_the_checksum_of_the_bucket_if_it_proves_that_they_are_equal(
    value: str, reads: int, bucket: Memory, sink: ObjectSink, tmp_path: Path
) -> None:
    bucket.objects["f/t-1.record"] = b"bytes"
    md5 = hashlib.md5(b"bytes", usedforsecurity=False).hexdigest()
    read, fetch = list[str](), bucket.fetch
    bucket.head = lambda name: ObjectInfo(name, 5, value.replace("MD5", md5.upper()))  # type: ignore[method-assign]
    bucket.version_is = "md5"

    def fetching(item: ObjectInfo, start: int, size: int | None = None) -> Body:
        read.append(item.name)
        body = fetch(item, start, size)
        body.version = item.version
        return body

    bucket.fetch = fetching  # type: ignore[method-assign]
    sink.publish(part(tmp_path, b"bytes"), "f/t-1.record", replaces=False)
    sink.flush([])
    assert len(read) == reads
