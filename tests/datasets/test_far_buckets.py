"""Datasets in far buckets: what does not depend on an answer is requested together with it, and nothing twice."""

from __future__ import annotations

import io
import itertools
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest

from commands import tar2tf
from servers import FaultyServer, Forwarder, serving, wait_for
from shards import write_tar
from tar2tf_cli import open_records
from tar2tf_cli.errors import DamagedShardError, SourceError
from tar2tf_cli.stores.ranges import ObjectRanges
from verify_runs import a_tar, framed

SHARDS = 3
SECONDS = 0.1
"""How long an answer takes, which is far."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of its own for each test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Shards of 20 records each, with indexes next to them."""
    members = [(f"{number:02}", {"bin": bytes(20_000)}) for number in range(20 * SHARDS)]
    write_tar(tmp_path / "in.tar", members)
    ran = tar2tf("convert", tmp_path / "in.tar", "-o", tmp_path / "out/x-<>", "--num-shards", str(SHARDS), "--index")
    assert ran.returncode == 0
    return tmp_path / "out"


@pytest.fixture
def far(web: FaultyServer, out: Path) -> FaultyServer:
    """A server with these shards whose answers take their time."""
    web.objects.update({f"in/{path.name}": path.read_bytes() for path in out.iterdir()})
    answer_late(web)
    return web


def answer_late(web: FaultyServer, pattern: str = "", together: int = 0) -> list[str]:
    """Answer no request before its time, and those of a pattern not before some are there; return those that gave up.

    Args:
        web: the server.
        pattern: of the requests that wait for each other.
        together: how many have to be there.
    """
    take, arrived, enough, alone = type(web).take, itertools.count(1), threading.Event(), list[str]()

    def late(request: str) -> Any:
        time.sleep(SECONDS)
        if together and re.search(pattern, request):
            if next(arrived) >= together:
                enough.set()
            if not enough.wait(timeout=20):
                alone.append(request)
        return take(web, request)

    web.take = late  # type: ignore[method-assign]
    return alone


def keys(found: Any) -> list[bytes]:
    return sorted(sample["__key__"] for sample in found)


def test_shards_of_a_manifest_are_looked_up_with_their_beginnings_and_indexes_at_once(far: FaultyServer) -> None:
    alone = answer_late(far, r"GET in/x-\d", together=2 * SHARDS)
    records = open_records(f"{far.url}/in/_x-manifest.json")
    assert not alone
    wanted = [0, 25, 45]
    assert keys(records.__getitems__(wanted)) == [b"%02d" % number for number in wanted]
    names = Counter((method, name) for method, name, _ in far.log)
    once = [f"in/x-{number}.idx" for number in range(1, SHARDS + 1)]
    assert {names["GET", name] for name in [*once, "in/_x-manifest.json"]} == {1}
    assert not [name for method, name in names if method == "HEAD"]


def test_a_shard_that_is_missing_or_of_another_size_is_an_error_at_once(far: FaultyServer) -> None:
    manifest, shard = f"{far.url}/in/_x-manifest.json", far.objects.pop("in/x-2")
    with pytest.raises(SourceError, match="missing"):
        open_records(manifest)
    far.objects["in/x-2"] = shard + framed(b"more")
    with pytest.raises(DamagedShardError, match="in the manifest"):
        open_records(manifest)


def test_empty_shards_and_servers_that_ignore_ranges_are_read(far: FaultyServer) -> None:
    manifest = far.objects["in/_x-manifest.json"].replace(b'"records": 20', b'"records": 0', 1)
    size = len(far.objects["in/x-1"])
    far.objects["in/_x-manifest.json"] = manifest.replace(b'"bytes": %d' % size, b'"bytes": 0', 1)
    far.objects["in/x-1"] = far.objects["in/x-1.idx"] = b""
    records = open_records(f"{far.url}/in/_x-manifest.json")
    assert len(records) == 40
    assert records[0]["__key__"] == b"20"
    far.fail(r"GET in/x-\d$", "no-range", times=2)
    assert open_records(f"{far.url}/in/_x-manifest.json")[0]["__key__"] == b"20"


def requested(web: FaultyServer, name: str) -> list[tuple[int, int]]:
    """Start and end of each range of an object that was requested, sorted; those without a range are the whole."""
    size = len(web.objects[name])
    spans = [span.removeprefix("bytes=").split("-") if span else ["0", ""] for _, asked, span in gets(web, name)]
    return sorted((int(first), int(last or size - 1) + 1) for first, last in spans)


def gets(web: FaultyServer, name: str) -> list[Any]:
    return [request for request in web.log if request[:2] == ("GET", name)]


def adjacent(spans: list[tuple[int, int]], size: int) -> bool:
    """Whether ranges are those of a whole object, each byte once."""
    return [start for start, _ in spans] == [0, *(end for _, end in spans[:-1])] and spans[-1][1] == size


def test_records_without_an_index_are_requested_once_for_it_and_for_their_data(far: FaultyServer) -> None:
    for number in range(1, SHARDS + 1):
        del far.objects[f"in/x-{number}.idx"]
    manifest = f"{far.url}/in/_x-manifest.json"
    assert keys(open_records(manifest)) == [b"%02d" % number for number in range(20 * SHARDS)]
    assert adjacent(requested(far, "in/x-1"), len(far.objects["in/x-1"]))


def scattered(count: int, size: int) -> bytes:
    """A tar whose data is all before its labels."""
    names = [f"{number:03d}" for number in range(count)]
    data = [(f"{name}.bin", name.encode() * (size // 3)) for name in names]
    return a_tar(data + [(f"{name}.cls", name.encode()) for name in names])


@pytest.mark.parametrize("size", [300, 30_000])
def test_a_tar_with_scattered_samples_is_requested_once(web: FaultyServer, size: int) -> None:
    tar = web.objects["in/x.tar"] = scattered(100, size)
    records = open_records(f"{web.url}/in/x.tar", index_folder="")
    assert [(sample["bin"][:3], sample["cls"]) for sample in records] == [
        (b"%03d" % n, b"%03d" % n) for n in range(100)
    ]
    assert records.schema().keys() == {"bin", "cls", "__key__"}
    assert adjacent(requested(web, "in/x.tar"), len(tar))


def test_of_large_entries_only_headers_are_requested_to_find_samples(
    web: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ObjectRanges, "leap", 1 << 20)  # however long answers take on this machine
    monkeypatch.setattr(ObjectRanges, "MOST_AROUND", 1)
    tar = web.objects["in/x.tar"] = scattered(4, 5 << 20)
    records = open_records(f"{web.url}/in/x.tar", index_folder="")
    assert len(records) == 4
    assert sum(end - start for start, end in requested(web, "in/x.tar")) < len(tar) / 10
    sample = records.key("002")
    assert (sample["bin"], sample["cls"]) == (b"002" * ((5 << 20) // 3), b"002")


def test_members_of_a_sample_that_are_not_adjacent_are_requested_together(web: FaultyServer, tmp_path: Path) -> None:
    parts = [(f"{key}.{part}", bytes([key + part]) * 3_000_000) for part in range(3) for key in (1, 2)]
    web.objects["in/x.tar"] = a_tar([("1.a", b"a"), ("2.a", b"b"), *parts])
    answer_late(web)
    open_records(f"{web.url}/in/x.tar")
    records = open_records(f"{web.url}/in/x.tar")  # with its index
    alone = answer_late(web, "GET", together=9)
    sample = records.key("1")
    assert not alone
    assert {name: sample[name] for name in "012"} == {str(part): bytes([1 + part]) * 3_000_000 for part in range(3)}


# --- Several URLs ---


def urls(web: FaultyServer, *names: str) -> list[str]:
    return [f"{web.url}/in/{name}" for name in names]


def test_shards_with_urls_in_one_folder_are_looked_up_at_once_and_nothing_else(web: FaultyServer) -> None:
    for number in range(4):
        web.objects[f"in/{number}.tar"] = a_tar([(f"{number}.cls", b"%d" % number)])
    alone = answer_late(web, "HEAD", together=4)
    records = open_records(urls(web, "2.tar", "0.tar", "3.tar", "1.tar"))
    assert not alone
    assert [sample["cls"] for sample in records] == [b"2", b"0", b"3", b"1"]
    asked = Counter((method, name) for method, name, _ in web.log)
    shards = [f"in/{number}.tar" for number in range(4)]
    expected = [(method, name) for name in shards for method, name in (("HEAD", name), ("GET", name))]
    assert asked == Counter([*expected, *(("GET", f"{name}.idx") for name in shards)])


def test_where_nothing_can_be_listed_no_manifest_is_looked_for(web: FaultyServer, out: Path) -> None:
    web.objects |= {f"in/{number}.record": (out / f"x-{number}").read_bytes() for number in (1, 2)}
    records = open_records(urls(web, "1.record", "2.record"), index_folder="")
    assert keys(records) == [b"%02d" % number for number in range(40)]
    shards = ["in/1.record", "in/2.record"]
    assert {name for _, name, _ in web.log} == {*shards, *(f"{name}.idx" for name in shards)}


def test_of_several_urls_the_one_that_does_not_exist_is_named(web: FaultyServer) -> None:
    web.objects["in/0.tar"] = web.objects["in/2.tar"] = a_tar([("0.cls", b"0")])
    with pytest.raises(SourceError, match=r"there is no such file.*|.*1\.tar") as caught:
        open_records(urls(web, "0.tar", "1.tar", "2.tar"))
    assert caught.value.shard == f"{web.url}/in/1.tar"


def test_a_shard_whose_url_is_given_twice_is_read_twice_and_folders_may_be_named_as_shards(web: FaultyServer) -> None:
    web.objects["in/0.tar"] = a_tar([("0.cls", b"0")])
    web.objects["in/x.tar/1.tar"] = a_tar([("1.cls", b"1")])
    several = open_records([*urls(web, "0.tar", "0.tar"), f"{web.url}/in/x.tar/{{1..1}}.tar", *urls(web, "0.tar")])
    assert [sample["cls"] for sample in several] == [b"0", b"0", b"1", b"0"]


# --- A folder, which is listed ---


@pytest.fixture
def requests(moto: str, s3: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The requests to a far S3, each as method and path, and "listing" for one.

    What shows that a listing was whole is not answered before the manifest and the indexes are requested.
    """
    asked: list[str] = []
    meanwhile = re.compile(r"GET .*\.(idx|json)")

    class Late(Forwarder):
        url = moto

        def do_GET(self) -> None:
            path = self.path.partition("?")[0].rpartition("/")[2]
            asked.append(f"{self.command} {path}" if "list-type" not in self.path else "listing")
            time.sleep(SECONDS)
            if "start-after" in self.path:
                wait_for(lambda: len([*filter(meanwhile.match, asked)]) == SHARDS + 1, seconds=20)
            super().do_GET()

        do_HEAD = do_GET

    with serving(Late) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        yield asked


@contextmanager
def noting(server: str, read: list[str]) -> Iterator[str]:
    """The URL of a server that passes requests on, and notes the name of each object."""

    class Noting(Forwarder):
        url = server

        def do_GET(self) -> None:
            read.append(self.path.partition("?")[0].rpartition("/")[2])
            super().do_GET()

    with serving(Noting) as url:
        yield url


def upload(folder: Path, moto: str, bucket: str) -> None:
    """Upload the files of a folder to a new bucket."""
    client = boto3.client("s3", endpoint_url=moto, region_name="us-east-1")
    client.create_bucket(Bucket=bucket)
    for path in folder.iterdir():
        client.upload_fileobj(io.BytesIO(path.read_bytes()), bucket, f"in/{path.name}")


@pytest.mark.xdist_group("s3")
def test_of_shards_that_a_template_names_only_those_are_read_that_have_a_wanted_record(
    out: Path, moto: str, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, read = out.parent / "named", list[str]()
    ran = tar2tf("convert", out.parent / "in.tar", "-o", folder / "y-<>.record", "--num-shards", "3", "--index")
    assert ran.returncode == 0
    upload(folder, moto, "far-template")

    with noting(moto, read) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        records = open_records("s3://far-template/in/y-{1..3}.record")
        assert len(records) == 20 * SHARDS, "the manifest next to them says how many records they have"
        assert keys(records.__getitems__([0, 45])) == [b"00", b"45"]
    assert read.count("y-2.record") + read.count("y-2.record.idx") == 1, "it was only looked up"


@pytest.mark.xdist_group("s3")
def test_a_folder_is_listed_and_nothing_in_it_is_looked_up_or_read_twice(
    out: Path, moto: str, requests: list[str]
) -> None:
    upload(out, moto, "far")
    records = open_records("s3://far/in")
    assert keys(records.__getitems__([0, 25, 45])) == [b"00", b"25", b"45"]
    asked = Counter(requests)
    assert asked["listing"] == 2, "the second one shows that the first was whole"
    assert not [request for request in requests if request.startswith("HEAD")]
    once = ["_x-manifest.json", *(f"x-{number}.idx" for number in range(1, SHARDS + 1))]
    assert {asked[f"GET {name}"] for name in once} == {1}


@pytest.mark.xdist_group("s3")
def test_an_index_that_a_listing_lacks_is_not_requested(
    out: Path, moto: str, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, read = out.parent / "tars", list[str]()
    folder.mkdir()
    for number in range(SHARDS):
        write_tar(folder / f"x-{number}.tar", [(f"{number}", {"cls": b"%d" % number})])
    assert tar2tf("index", folder / "x-1.tar").returncode == 0
    upload(folder, moto, "far-tars")
    with noting(moto, read) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        records = open_records("s3://far-tars/in", index_folder="")
        assert [sample["cls"] for sample in records] == [b"0", b"1", b"2"]
    files = [path for path in read if path.startswith("x-")]
    assert sorted(files) == ["x-0.tar", "x-1.tar", "x-1.tar.idx", "x-2.tar"]


@pytest.mark.xdist_group("s3")
def test_an_index_that_the_folder_of_a_manifest_lacks_is_not_requested(
    out: Path, moto: str, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (out / "x-2.idx").unlink()
    upload(out, moto, "far-records")
    asked = list[str]()
    with noting(moto, asked) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        monkeypatch.setattr(ObjectRanges, "gap", 1 << 20)  # far, however soon moto answers
        records = open_records("s3://far-records/in", index_folder="")
        assert keys(records) == [b"%02d" % number for number in range(20 * SHARDS)]
    assert sorted(name for name in asked if name.endswith(".idx")) == ["x-1.idx", "x-3.idx"]


@pytest.mark.xdist_group("s3")
def test_the_index_of_the_last_shard_that_a_template_names_is_read(
    out: Path, moto: str, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload(out, moto, "far-last")
    asked = list[str]()
    with noting(moto, asked) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        for template in ("x-{1..2}", "*-{1..2}", "x-*"):
            asked.clear()
            assert keys(open_records(f"s3://far-last/in/{template}", index_folder="").__getitems__([0, 25])) == [
                b"00",
                b"25",
            ]
            assert {"x-1.idx", "x-2.idx"} <= {*asked}
