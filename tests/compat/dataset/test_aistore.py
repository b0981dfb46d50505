"""`Dataset` on live AIStore clusters: its `proxy_url` is the cluster that is read, whatever else is of that name."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from servers import ais_cluster, private_network
from shards import keys, samples, write_tar
from tar2tf_cli import AisDataset, Dataset

BUCKET = "tar2tf-datasets"


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Two clusters with a bucket of one name, whose shard has 10 samples in the first and 20 in the second."""
    sdk = pytest.importorskip("aistore.sdk", reason="no AIStore SDK: pip install aistore")
    folder = tmp_path_factory.mktemp("clusters")
    try:
        with ExitStack() as stack, ThreadPoolExecutor() as pool:
            stack.enter_context(private_network())
            started = pool.map(lambda name: stack.enter_context(ais_cluster(folder / name, targets=1)), "ab")
            for url, count in zip(urls := list(started), (10, 20), strict=True):
                tar = write_tar(folder / f"{count}.tar", samples(count))
                bucket = sdk.Client(url).bucket(BUCKET).create()
                bucket.object("a.tar").get_writer().put_content(tar.read_bytes())
            yield urls
    except (FileNotFoundError, PermissionError) as error:
        pytest.skip(str(error))


@pytest.fixture
def other_places(clusters: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The clusters, the first of which the environment names, beside a folder of the bucket's name."""
    monkeypatch.setenv("AIS_ENDPOINT", clusters[0])
    monkeypatch.chdir(tmp_path)
    write_tar(tmp_path / BUCKET / "a.tar", samples(3))
    return clusters


def labels(data: Dataset) -> int:
    return len(list(data.load("a.tar")))


def test_the_proxy_url_wins_over_a_folder_and_over_the_environment(other_places: list[str]) -> None:
    for url, count in zip(other_places, (10, 20), strict=True):
        for name in (BUCKET, f"ais://{BUCKET}"):
            assert labels(Dataset(name, url, conversions=[], selections=["cls"])) == count
            assert labels(AisDataset(name, url, conversions=[], selections=["cls"])) == count
    assert labels(Dataset(f"ais://{BUCKET}", conversions=[], selections=["cls"])) == 10
    assert labels(Dataset(BUCKET, conversions=[], selections=["cls"])) == 3


def test_files_are_made_from_the_cluster_of_the_proxy_url(other_places: list[str], tmp_path: Path) -> None:
    data = Dataset(BUCKET, other_places[1], conversions=[], selections=["cls", "jpg"])
    for name, path in (("one", str(tmp_path / "one.record")), ("named", [str(tmp_path / "named.record")])):
        made = data.load("a.tar", path, max_shard_size=None)
        assert made == [str(tmp_path / f"{name}.record")]
    select: Any = {"__key__": "__key__", "cls": "cls"}
    made = Dataset(BUCKET, other_places[1], [], select).load("a.tar", str(tmp_path / "keys.record"))
    assert keys(Path(made[0])) == [key for key, _ in samples(20)]


def test_records_and_pairs_of_the_first_client_come_from_there_too(other_places: list[str], tmp_path: Path) -> None:
    data = AisDataset(BUCKET, other_places[1])
    pairs = data.load_from_tar("a.tar", record_to_pair=lambda sample: (sample["jpg"], int(sample["cls"])))
    assert len(list(pairs)) == 20
    records = AisDataset(BUCKET, other_places[1], [], ["cls"]).load_from_tar("a.tar", str(tmp_path / "x.record"))
    assert len(list(records)) == 20
