"""The test suite that every object store passes."""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.store import Body, BulkStore, NoSuchObject, ObjectExists, Store, Transient
from tar2tf_cli.errors import SourceError
from tar2tf_cli.sinks import open_sink
from tar2tf_cli.stores import open_store
from tar2tf_cli.stores.schemes import is_writable

Put: TypeAlias = Callable[[str, bytes], None]

MISSING = ObjectInfo("missing.tar", None, None)


def bytes_of(store: Store, item: ObjectInfo, start: int = 0, size: int | None = None) -> bytes:
    """Fetch an object's bytes from an offset on with one request."""
    body = store.fetch(item, start, size)
    return read_body(body)[start - body.start :]


def read_body(body: Body) -> bytes:
    """Read a body to its end."""
    with contextlib.closing(body):
        return b"".join(iter(lambda: body.read(1 << 16), b""))


class StoreSuite:
    """Tests of a store, given the URL of a bucket.

    Override the fixture `url`, which returns the URL of a new empty bucket. If the store is read-only, override
    `upload`, too.

    Attributes:
        endpoint: the server's address, if it is not in the URL.
    """

    endpoint: str | None = None

    @pytest.fixture
    def url(self) -> str:
        """Return the URL of a new, empty bucket."""
        raise NotImplementedError

    @pytest.fixture
    def store(self, url: str) -> Store:
        """Return the store of the bucket."""
        return open_store(url, endpoint=self.endpoint)

    def upload(self, url: str, name: str, path: str) -> None:
        """Put a file into the bucket under a name, replacing any existing object."""
        open_store(url, endpoint=self.endpoint).put(name, path)

    @pytest.fixture
    def add(self, url: str, tmp_path: Path) -> Put:
        """Return a function that puts bytes into the bucket under a name."""

        def add(name: str, data: bytes) -> None:
            (tmp_path / "object").write_bytes(data)
            self.upload(url, name, str(tmp_path / "object"))

        return add

    @pytest.fixture
    def writable(self, store: Store) -> None:
        """Skip a test if the store is read-only."""
        if not is_writable(type(store)):
            pytest.skip("the store cannot be written to")

    def test_an_object_is_described_by_name_size_and_version(self, store: Store, add: Put) -> None:
        add("a/x.tar", b"four")
        item = store.head("a/x.tar")
        assert item is not None
        assert (item.name, item.size) == ("a/x.tar", 4)
        assert item.version

    def test_an_object_that_is_not_there_is_none(self, store: Store) -> None:
        assert store.head("missing.tar") is None

    def test_a_version_changes_with_the_bytes(self, store: Store, add: Put) -> None:
        versions = set()
        for data in (b"before", b"after!"):
            add("x", data)
            item = store.head("x")
            versions.add(item and item.version)
        assert len(versions) == 2

    def test_all_bytes_are_fetched_and_the_body_says_of_what(self, store: Store, add: Put) -> None:
        data = os.urandom(300_000)
        add("x", data)
        item = store.head("x")
        assert item is not None
        assert bytes_of(store, item) == data
        with contextlib.closing(store.fetch(item, 0)) as body:
            assert body.is_of(item.size, item.version)
            assert body.version, "without one, a replacement is not noticed"

    @pytest.mark.parametrize(("start", "size"), [(0, 10), (100, 1), (299_000, 1000), (299_990, 10), (150_000, None)])
    def test_a_part_is_fetched(self, store: Store, add: Put, start: int, size: int | None) -> None:
        data = os.urandom(300_000)
        add("x", data)
        item = store.head("x")
        assert item is not None
        part = data[start:] if size is None else data[start : start + size]
        assert bytes_of(store, item, start, size)[: len(part)] == part

    def test_an_object_without_bytes_is_fetched(self, store: Store, add: Put) -> None:
        add("empty", b"")
        item = store.head("empty")
        assert item is not None
        assert (item.size, bytes_of(store, item)) == (0, b"")

    def test_fetching_what_is_not_there_is_an_error_that_names_it(self, store: Store) -> None:
        with pytest.raises(NoSuchObject) as caught:
            bytes_of(store, MISSING)
        assert MISSING.name in (caught.value.shard or "")

    def test_requests_in_bulk_are_answered_like_single_ones(self, store: Store, add: Put) -> None:
        if not isinstance(store, BulkStore):
            pytest.skip("the store has no requests in bulk")
        added = {"x": b"bytes", "folder/y": b"more bytes"}
        for name, data in added.items():
            add(name, data)
        single = {name: store.head(name) for name in [*added, MISSING.name]}
        assert store.head_each([*single]).items() <= single.items()
        bodies = store.fetch_each([item for item in single.values() if item])
        for body, data in zip(bodies, added.values(), strict=True):
            assert body is None or read_body(body) == data

    def test_another_version_than_the_listed_one_is_not_taken_for_it(self, store: Store, add: Put) -> None:
        add("x", b"before")
        item = store.head("x")
        assert item is not None
        add("x", b"after!")
        with contextlib.suppress(SourceError, Transient), contextlib.closing(store.fetch(item, 0)) as body:
            assert not body.is_of(item.size, item.version)

    def test_a_listing_has_every_object_with_the_prefix_once(self, store: Store, add: Put) -> None:
        if not store.can_list:
            pytest.skip("the store cannot list")
        names = ["a", "a.tar", "ab/c.tar", "ab/d/e.tar", "b.tar"]
        for name in names:
            add(name, name.encode())
        for prefix in ("", "a", "ab/", "b", "nothing"):
            wanted = {name: len(name) for name in names if name.startswith(prefix)}
            listed = [*store.list(prefix)]
            assert {item.name: item.size for item in listed} == wanted
            assert len(listed) == len(wanted)

    def test_a_listing_has_the_versions_of_its_objects_if_it_says_so(self, store: Store, add: Put) -> None:
        if not (store.can_list and store.lists_versions):
            pytest.skip("the store does not list versions")
        add("x.tar", b"bytes")
        assert [(item.size, item.version) for item in store.list("")] == [
            (item.size, item.version) for item in [store.head("x.tar")] if item
        ]

    def test_names_are_relative_to_the_folder_of_the_url(self, store: Store, url: str, add: Put) -> None:
        add("folder/x", b"inside")
        below = open_store(f"{url}/folder", endpoint=self.endpoint)
        item = below.head("x")
        assert item is not None
        assert bytes_of(below, item) == b"inside"
        assert below.locate("x") == store.locate("folder/x")
        above = below.parent()
        assert above is not None
        assert (above[0].locate(above[1]), above[0].root) == (store.locate("folder"), store.root)
        inner = open_store(f"{url}/folder/inner", endpoint=self.endpoint).parent()
        assert inner is not None
        assert (inner[0].locate(inner[1]), inner[0].root) == (store.locate("folder/inner"), below.root)

    def test_a_pickled_store_works(self, store: Store, add: Put) -> None:
        add("x", b"bytes")
        assert store.head("x") is not None
        again: Store = pickle.loads(pickle.dumps(store))
        assert again.head("x") == store.head("x")

    @pytest.mark.usefixtures("writable")
    def test_an_upload_replaces_unless_the_object_must_be_absent(self, store: Store, add: Put, tmp_path: Path) -> None:
        add("x", b"before")
        add("x", b"after!")
        assert bytes_of(store, ObjectInfo("x", None, None)) == b"after!"
        (tmp_path / "other").write_bytes(b"other")
        with pytest.raises(ObjectExists):
            store.put("x", str(tmp_path / "other"), absent=True)
        assert bytes_of(store, ObjectInfo("x", None, None)) == b"after!"
        store.put("y", str(tmp_path / "other"), absent=True)
        assert bytes_of(store, ObjectInfo("y", None, None)) == b"other"

    @pytest.mark.usefixtures("writable")
    def test_an_object_is_copied(self, store: Store, add: Put) -> None:
        add("x", b"bytes")
        store.copy("x", "folder/y")
        assert bytes_of(store, ObjectInfo("folder/y", None, None)) == b"bytes"
        assert bytes_of(store, ObjectInfo("x", None, None)) == b"bytes"

    @pytest.mark.usefixtures("writable")
    def test_removing_twice_is_no_error(self, store: Store, add: Put) -> None:
        add("x", b"bytes")
        for _ in range(2):
            store.remove("x")
            assert store.head("x") is None

    @pytest.mark.usefixtures("writable")
    def test_a_finished_file_is_published_whole(self, store: Store, url: str, tmp_path: Path) -> None:
        sink = open_sink(f"{url}/out/t-<>.record", endpoint=self.endpoint)
        path = sink.inside(f"{url}/out/t-1.record")
        (tmp_path / "part").write_bytes(b"whole")
        sink.publish(str(tmp_path / "part"), path)
        sink.flush([os.path.dirname(path)])
        assert (sink.size(path), sink.read(path)) == (5, b"whole")
        assert sink.exists(path, now=True)
        assert not (tmp_path / "part").exists()
        sink.remove(path)
        assert not sink.exists(path, now=True)
        sink.close()
