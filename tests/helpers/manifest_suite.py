"""Tests of verify and load_dataset that hold for a manifest in any store."""

from __future__ import annotations

import pickle
import random
import shutil
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from read_back import in_a_fork
from shards import PHOTOS
from tar2tf_cli import load_dataset, open_records
from tar2tf_cli.api.objects import ByteStream, ObjectInfo
from tar2tf_cli.errors import SourceError
from tar2tf_cli.stores import open_store
from tar2tf_cli.stores.source import ObjectSource
from verify_runs import SEVERAL, Ran, edit, faults_of, flipped, in_a_process, manifest_of


def flip(out: Path) -> None:
    path = out / "photos-3.record"
    path.write_bytes(flipped(path.read_bytes(), 100))


def cut(out: Path) -> None:
    path = out / "photos-4.record"
    path.write_bytes(path.read_bytes()[:-1000])


def swap(out: Path) -> None:
    (out / "photos-1.record").write_bytes((out / "photos-2.record").read_bytes())


def remove(out: Path) -> None:
    (out / "photos-2.record").unlink()
    (out / "photos-4.record").unlink()


def leave_out(out: Path) -> None:
    (out / "photos-2.record").unlink()
    edit(manifest_of(out), lambda whole: whole["shards"].pop(1))


def miscount(out: Path) -> None:
    edit(manifest_of(out), lambda whole: whole["features"]["jpg"].update(count=23))


def mistype(out: Path) -> None:
    edit(manifest_of(out), lambda whole: whole["features"]["cls"].update(encoding="float"))


def none(out: Path) -> None:
    pass


DAMAGES = [none, flip, cut, swap, remove, leave_out, miscount, mistype]


@lru_cache(maxsize=1)
def store_of(place: str) -> Any:
    """The store of a place, opened once for all that one test puts there."""
    return open_store(place)


class ManifestSuite:
    """What holds for every store; `place` is an empty folder in it."""

    can_list = True

    @pytest.fixture
    def place(self) -> str:
        raise NotImplementedError

    @pytest.fixture
    def out(self, converted: Path, tmp_path: Path) -> Path:
        """A conversion of the photographs, to be damaged."""
        return Path(shutil.copytree(converted, tmp_path / "out"))

    def put(self, place: str, path: Path) -> None:
        store_of(place).put(path.name, str(path))

    def upload(self, place: str, out: Path) -> str:
        """Have a folder's files in the store; the manifest's URL."""
        for path in out.iterdir():
            self.put(place, path)
        return f"{place}/{manifest_of(out).name}"

    @pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
    def test_the_findings_are_those_of_a_local_manifest(
        self,
        place: str,
        out: Path,
        run: Callable[..., Ran],
        damage: Callable[[Path], None],
    ) -> None:
        damage(out)
        local = run(manifest_of(out), "--json")
        remote = run(self.upload(place, out), "--json")
        assert remote.code == local.code == (0 if damage is none else 1)
        assert remote.out.replace(place, str(out)) == local.out

    def test_its_dataset_is_the_one_of_a_local_manifest(self, place: str, out: Path) -> None:
        local = list(load_dataset(manifest_of(out)).as_numpy_iterator())
        remote = load_dataset(self.upload(place, out))
        assert remote.element_spec == load_dataset(manifest_of(out)).element_spec
        for _ in range(2):  # epochs
            assert list(remote.as_numpy_iterator()) == local
        assert len(local) == 24

    @pytest.mark.parametrize(("damage", "words"), [(flip, "CRC"), (cut, "short"), (remove, "is missing")])
    def test_its_dataset_does_not_hide_faults(
        self, place: str, out: Path, damage: Callable[[Path], None], words: str
    ) -> None:
        damage(out)
        with pytest.raises(tf.errors.OpError, match=words):
            list(load_dataset(self.upload(place, out)))

    def test_its_records_are_those_of_a_local_manifest_in_any_order(self, place: str, out: Path) -> None:
        local = list(load_dataset(manifest_of(out)).as_numpy_iterator())
        records = open_records(self.upload(place, out), index_folder="")
        order = random.Random(4).sample(range(24), 24)
        assert [records[number] for number in order] == [local[number] for number in order]
        assert records.__getitems__(order) == [local[number] for number in order]
        assert list(pickle.loads(pickle.dumps(records))) == local
        assert in_a_fork(lambda: list(records) == local)
        assert list(open_records(f"{place}/photos-{{1..2}}.record", raw=True)) == list(
            open_records([out / "photos-1.record", out / "photos-2.record"], raw=True)
        )
        if self.can_list:
            assert len(open_records(f"{place}/*.record", index_folder=out)) == 24
            assert list(open_records(place, index_folder="")) == local

    @pytest.mark.parametrize(("damage", "words"), [(flip, "CRC"), (cut, "bytes, but"), (remove, "is missing")])
    def test_its_records_do_not_hide_faults(
        self, place: str, out: Path, damage: Callable[[Path], None], words: str
    ) -> None:
        damage(out)
        with pytest.raises(SourceError, match=words):
            list(open_records(self.upload(place, out), index_folder=""))

    def test_a_shard_that_the_manifest_does_not_list_is_a_stray(
        self,
        place: str,
        out: Path,
        run: Callable[..., Ran],
    ) -> None:
        shutil.copy(out / "photos-1.record", out / "photos-5.record")
        shutil.copy(out / "photos-1.record", out / "unrelated.record")
        ran = run(self.upload(place, out), "--json")
        assert faults_of(ran) == ([("photos-5.record", "damaged", "stray")] if self.can_list else [])

    def test_several_processes_find_the_same(self, place: str, out: Path) -> None:
        flip(out)
        ran = in_a_process("verify", self.upload(place, out), "--json", *SEVERAL)
        assert (ran.code, ran.err.count("not OK: 1 of 4 files faulty")) == (1, 1)
        assert faults_of(ran) == [("photos-3.record", "damaged", kind) for kind in ("data_crc", "digest")]

    def test_a_shard_replaced_while_it_is_verified_is_a_fault(
        self,
        place: str,
        out: Path,
        run: Callable[..., Ran],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        url = self.upload(place, out)
        opened = ObjectSource.open

        def replaced(source: ObjectSource, item: ObjectInfo) -> ByteStream:
            if item.name == "photos-2.record":
                swapped = out / item.name
                swapped.write_bytes(swapped.read_bytes()[::-1])
                self.put(place, swapped)
            return opened(source, item)

        monkeypatch.setattr(ObjectSource, "open", replaced)
        ran = run(url, "--json")
        assert (ran.code, faults_of(ran)) == (1, [("photos-2.record", "damaged", "unreadable")])
        assert "changed while it was being read" in ran.out

    def test_a_manifest_that_is_not_there_or_is_none_is_an_error(
        self,
        place: str,
        out: Path,
        run: Callable[..., Ran],
    ) -> None:
        ran = run(f"{place}/_photos-manifest.json", "--json")
        assert (ran.code, ran.out) == (3, "")
        assert f"error: {place}/_photos-manifest.json: the manifest does not exist" in ran.err
        manifest_of(out).write_bytes(b'{"version": 1')
        ran = run(self.upload(place, out), "--json")
        assert (ran.code, ran.out) == (3, "")
        assert f"error: {place}/_photos-manifest.json: is not a tar2tf manifest" in ran.err

    def test_a_manifest_takes_no_template(self, place: str, out: Path, run: Callable[..., Ran]) -> None:
        ran = run(self.upload(place, out), "*")
        assert (ran.code, "takes no template" in ran.err) == (2, True)


class WritableManifestSuite(ManifestSuite):
    """What holds for stores that can be converted to."""

    def test_what_was_converted_into_the_bucket_is_whole(self, place: str, out: Path, tmp_path: Path) -> None:
        command = ("convert", PHOTOS, "-o", f"{place}/<split>/x-<00>.record", "--split", "train=0.7,val=0.3")
        ran = in_a_process(*command, "--records-per-shard", "5", XDG_CACHE_HOME=str(tmp_path))
        assert ran.code == 0, ran.err
        ran = in_a_process("verify", f"{place}/_x-manifest.json", "--json")
        assert (ran.code, ran.json["records"]) == (0, 24), ran

    def test_without_a_listing_all_but_strays_is_still_found(
        self,
        place: str,
        out: Path,
        run: Callable[..., Ran],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def refused(source: ObjectSource, prefix: str) -> Any:
            raise SourceError("permission denied", shard=source.bucket)

        remove(out)
        url = self.upload(place, out)
        monkeypatch.setattr(ObjectSource, "listing", refused)
        ran = run(url, "--json")
        assert faults_of(ran) == [(f"photos-{number}.record", "missing", "missing") for number in (2, 4)]
        assert f"check for shards that the manifest does not list: {place}: permission denied" in ran.err
