"""The test suite that every bucket passes as a source of shards."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.source import DistantSource, Source
from tar2tf_cli.conversion.run import convert
from tar2tf_cli.errors import NoShardsError, NothingFoundError, SourceError
from tar2tf_cli.inputs.shard_set import resolve
from tar2tf_cli.spec.conversion import Conversion, Input, Output
from tar2tf_cli.stores import open_source, open_store, read_with_folder
from tar2tf_cli.testing.shards import read_all, tar_of

BIG = os.urandom(1 << 20) * 5 + b"the end"
"""More than a stream reads at once."""


class SourceSuite:
    """Tests of a bucket as a source of shards, given its URL or path.

    Override the fixture `bucket`, which returns a new empty bucket, and `put`; also `delete` if the store cannot remove
    objects.

    Attributes:
        can_list: whether the bucket can be listed.
        endpoint: the server's address, if it is not in the URL.
    """

    can_list = True
    endpoint: str | None = None

    def put(self, bucket: str, name: str, data: bytes) -> None:
        """Put an object into the bucket."""
        raise NotImplementedError

    def delete(self, bucket: str, name: str) -> None:
        """Delete an object from the bucket."""
        open_store(bucket, endpoint=self.endpoint).remove(name)

    @pytest.fixture
    def bucket(self) -> str:
        """Return the URL or path of a new, empty bucket."""
        raise NotImplementedError

    def fill(self, bucket: str, **objects: bytes) -> Source:
        """Put tars into the bucket and open it; `__` in a name means `/`."""
        for name, data in objects.items():
            self.put(bucket, name.replace("__", "/") + ".tar", data)
        return open_source(bucket, endpoint=self.endpoint)

    def test_braces_name_objects_in_their_order(self, bucket: str) -> None:
        source = self.fill(bucket, x_0=b"zero", x_1=b"one")
        items = source.list(["x_{1..0}.tar"])
        assert [(item.name, item.size) for item in items] == [("x_1.tar", 3), ("x_0.tar", 4)]
        assert all(item.version for item in items)

    def test_many_names_are_found_by_few_requests(self, bucket: str) -> None:
        source = self.fill(bucket, **{f"n_{number:02d}": b"%d" % number for number in range(30)}, n_x=b"other")
        items = source.list(["n_{00..29}.tar"])
        assert [item.size for item in items] == [1] * 10 + [2] * 20

    def test_a_glob_names_objects_sorted(self, bucket: str) -> None:
        if not self.can_list:
            pytest.skip("no listing")
        source = self.fill(bucket, b_2=b"2", b_10=b"10", other=b"x", b_sub__b_3=b"deep")
        assert [item.name for item in source.list(["b_*.tar"])] == ["b_10.tar", "b_2.tar"]
        assert [item.name for item in source.list(["**/b_*.tar"])] == ["b_10.tar", "b_2.tar", "b_sub/b_3.tar"]

    def test_what_a_listing_has_found_is_fetched_before_it_ends(self, bucket: str) -> None:
        source = self.fill(bucket, one=b"1", two=b"2")
        if not (self.can_list and isinstance(source, DistantSource)):
            pytest.skip("no listing, or none that takes long")
        found: list[ObjectInfo] = []

        def note(item: ObjectInfo) -> None:
            source.begin(item)
            found.append(item)

        with source.while_listing(note):
            items = source.list(["*"])
            assert {item.name for item in found} == {item.name for item in items} == {"one.tar", "two.tar"}
            assert read_all(source, items[1]) == b"2"
        assert read_all(source, items[0]) == b"1"

    def test_without_a_template_every_tar_is_meant(self, bucket: str) -> None:
        if not self.can_list:
            pytest.skip("no listing")
        source = self.fill(bucket, one=b"1", two=b"2")
        self.put(bucket, "readme.txt", b"no shard")
        assert [item.name for item in source.list([])] == ["one.tar", "two.tar"]

    def test_a_bucket_that_names_an_object_is_that_one_shard(self, bucket: str) -> None:
        self.fill(bucket, folder__one=b"just one")
        source = open_source(f"{bucket}/folder/one.tar", endpoint=self.endpoint)
        (item,) = source.list([])
        assert (item.name, item.size, item.stem) == ("one.tar", 8, "one")
        assert read_all(source, item) == b"just one"
        assert source.locate(item.name).endswith("folder/one.tar")
        self.put(bucket, "folder/two.tar", b"another")
        assert source.list([]) == [item]

    def test_a_document_is_read_by_its_url(self, bucket: str) -> None:
        if "://" not in bucket:
            pytest.skip("no URL")
        self.put(bucket, "folder/_t-manifest.json", b"{}")
        found = read_with_folder(f"{bucket}/folder/_t-manifest.json", endpoint=self.endpoint)
        assert found is not None
        assert (found[0], found[1].bucket) == (b"{}", f"{bucket}/folder")
        assert read_with_folder(f"{bucket}/folder/_u-manifest.json", endpoint=self.endpoint) is None

    def test_names_are_relative_to_a_folder_of_the_bucket(self, bucket: str) -> None:
        self.fill(bucket, folder__one=b"1", one=b"outside")
        source = open_source(f"{bucket}/folder", endpoint=self.endpoint)
        (item,) = source.list(["one.tar"])
        assert read_all(source, item) == b"1"

    def test_shards_only_further_down_are_not_found_by_themselves(self, bucket: str) -> None:
        if not self.can_list:
            pytest.skip("no listing")
        self.put(bucket, "folder/below/x.record", b"x")
        with pytest.raises(NoShardsError, match="folder: holds no tar or TFRecord"):
            resolve(f"{bucket}/folder", endpoint=self.endpoint)

    def test_a_missing_object_is_named(self, bucket: str) -> None:
        source = self.fill(bucket, x_0=b"zero")
        with pytest.raises(SourceError, match=r"has no 'x_1\.tar', 'x_2\.tar', 'x_3\.tar' and 16 more"):
            source.list(["x_{0..19}.tar"])

    @pytest.mark.parametrize("name", ["a b.tar", "ä+1%.tar", "q?r#s.tar"])
    def test_odd_names_are_read(self, bucket: str, name: str) -> None:
        self.put(bucket, name, b"odd")
        source = open_source(bucket, endpoint=self.endpoint)
        (item,) = source.list([name])
        assert read_all(source, item) == b"odd"

    def test_all_bytes_come_whatever_is_asked_for_at_once(self, bucket: str) -> None:
        source = self.fill(bucket, big=BIG)
        (item,) = source.list(["big.tar"])
        for size in (1000, 1 << 16, 1 << 24):
            assert read_all(source, item, size) == BIG

    def test_an_object_without_bytes_is_read(self, bucket: str) -> None:
        source = self.fill(bucket, empty=b"")
        (item,) = source.list(["empty.tar"])
        assert (item.size, read_all(source, item)) == (0, b"")

    def test_an_object_is_read_by_its_name_alone(self, bucket: str) -> None:
        source = self.fill(bucket, x=b"known by name")
        assert read_all(source, ObjectInfo("x.tar", None, None)) == b"known by name"

    def test_the_url_of_an_object_is_that_object(self, bucket: str) -> None:
        self.fill(bucket, x=tar_of(3))
        shards = resolve(f"{bucket}/x.tar", endpoint=self.endpoint)
        source, (item,) = shards.source, shards.items
        assert source.locate(item.name) == f"{bucket}/x.tar"
        assert read_all(source, item) == tar_of(3)

    def test_an_object_deleted_after_the_listing_is_told(self, bucket: str) -> None:
        source = self.fill(bucket, x=b"x")
        (item,) = source.list(["x.tar"])
        alone = open_source(f"{bucket}/x.tar", endpoint=self.endpoint)
        assert alone.list([]) == [item]
        self.delete(bucket, "x.tar")
        for read in (lambda: read_all(source, item), lambda: alone.list([])):
            with pytest.raises(SourceError, match=r"was deleted after it had been listed|No such file") as caught:
                read()
            assert (caught.value.shard or "").endswith("x.tar")

    def test_the_url_of_what_is_not_there_is_told(self, bucket: str) -> None:
        source = open_source(f"{bucket}/nothing/x.tar", endpoint=self.endpoint) if "://" in bucket else None
        if source is None or not self.can_list:
            pytest.skip("no URL, or no listing")
        with pytest.raises(SourceError, match="there is no such object or folder") as caught:
            source.list([])
        assert (type(caught.value), caught.value.shard) == (NothingFoundError, f"{bucket}/nothing/x.tar")

    def test_a_missing_object_cannot_be_opened(self, bucket: str) -> None:
        source = self.fill(bucket, x=b"x")
        with pytest.raises(SourceError) as caught:
            read_all(source, ObjectInfo("y.tar", None, None))
        assert "y.tar" in (caught.value.shard or "")

    def test_a_replaced_object_is_an_error(self, bucket: str) -> None:
        source = self.fill(bucket, x=b"before")
        (item,) = source.list(["x.tar"])
        self.put(bucket, "x.tar", b"after!")
        with pytest.raises(SourceError, match="changed while it was being"):
            read_all(source, item)

    def test_a_stream_may_be_closed_early(self, bucket: str) -> None:
        source = self.fill(bucket, big=BIG)
        (item,) = source.list(["big.tar"])
        for _ in range(3):
            stream = source.open(item)
            assert stream.read(10)
            stream.close()

    def test_a_pickled_source_reads(self, bucket: str) -> None:
        source = self.fill(bucket, x=b"pickled")
        (item,) = source.list(["x.tar"])
        again: Source = pickle.loads(pickle.dumps(source))
        assert read_all(again, item) == b"pickled"

    @pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
    def test_a_forked_process_reads(self, bucket: str) -> None:
        source = self.fill(bucket, big=BIG)
        (item,) = source.list(["big.tar"])
        assert read_all(source, item) == BIG
        pid = os.fork()
        if not pid:
            os._exit(0 if read_all(source, item) == BIG else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

    def test_converting_gives_the_bytes_of_the_same_shards_in_a_directory(self, bucket: str, tmp_path: Path) -> None:
        (tmp_path / "shards").mkdir()
        for number in range(4):
            data = tar_of(50, first=50 * number)
            (tmp_path / "shards" / f"s-{number}.tar").write_bytes(data)
            self.put(bucket, f"s-{number}.tar", data)
        outputs: list[dict[str, bytes]] = []
        for shards in (str(tmp_path / "shards"), bucket):
            out = tmp_path / f"out{len(outputs)}"
            output = Output(str(out / "t-<>.record"), records_per_shard=70)
            convert(
                Conversion(Input(shards, "s-{0..3}.tar"), output), endpoint=self.endpoint if shards is bucket else None
            )
            outputs.append({path.name: path.read_bytes() for path in out.glob("*.record")})
        assert len(outputs[0]) == 3
        assert outputs[0] == outputs[1]
