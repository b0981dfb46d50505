"""What reads our shards besides TensorFlow, each really run: grain, torch, Keras, the tfrecord package, DALI.

They come with the extra `readers`; each test is skipped where its package is not installed.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shards import PHOTOS
from tar2tf_cli import Conversion, Input, Output, Records, convert, open_records

pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.xdist_group("readers"),
]  # other people's code warns of what it likes


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> str:
    """24 photographs of one size in four shards, with indexes."""
    output = Output(str(tmp_path_factory.mktemp("readers") / "photos-<>.record"), records_per_shard=7, index=True)
    ops = ["decode:jpg,3", "resize:jpg,16x16", "cast:jpg,uint8", "keep:jpg,cls"]
    done = convert(Conversion(Input(str(PHOTOS)), output, ops=ops, types={"cls": "int64"}), workers=1)
    assert done.manifest
    assert len(done.shards) == 4
    return done.manifest


@pytest.fixture
def records(manifest: str) -> Records:
    return open_records(manifest)


def keys_of(items: Any) -> list[bytes]:
    return [bytes(item["__key__"]) for item in items]


# --- grain ---


def test_grain_shuffles_globally_and_reads_with_threads(records: Records) -> None:
    grain = pytest.importorskip("grain")
    dataset = grain.MapDataset.source(records).shuffle(seed=3)
    first = list(dataset.to_iter_dataset(grain.ReadOptions(num_threads=8)))
    again = list(dataset.to_iter_dataset(grain.ReadOptions(num_threads=8)))
    assert keys_of(first) == keys_of(again) != keys_of(records)
    assert Counter(keys_of(first)) == Counter(keys_of(records))
    assert first[0]["jpg"].shape == (16, 16, 3)


def test_grain_reads_with_several_processes(records: Records) -> None:
    grain = pytest.importorskip("grain")
    dataset = grain.MapDataset.source(records).shuffle(seed=1).map(lambda item: {**item, "jpg": item["jpg"] / 255})
    batches = dataset.to_iter_dataset().mp_prefetch(grain.MultiprocessingOptions(num_workers=2)).batch(6)
    found = list(batches)
    assert {batch["jpg"].shape for batch in found} == {(6, 16, 16, 3)}
    assert Counter(key for batch in found for key in batch["__key__"]) == Counter(keys_of(records))


def test_a_grain_iterator_continues_where_it_was_saved(records: Records) -> None:
    grain = pytest.importorskip("grain")
    dataset = grain.MapDataset.source(records).shuffle(seed=9).to_iter_dataset()
    iterator = iter(dataset)
    for _ in range(5):
        next(iterator)
    state = iterator.get_state()
    rest = keys_of(iterator)
    restored = iter(dataset)
    restored.set_state(state)
    assert keys_of(restored) == rest
    assert len(rest) == 19


# --- torch ---


@pytest.mark.parametrize(("workers", "method"), [(0, None), (2, "fork"), (2, "spawn")])
def test_torch_loads_shuffled_batches(records: Records, workers: int, method: str | None) -> None:
    torch = pytest.importorskip("torch")
    records[0]  # files that are open when the workers are forked
    loader = torch.utils.data.DataLoader(
        records,
        batch_size=5,
        shuffle=True,
        num_workers=workers,
        persistent_workers=workers > 0,
        multiprocessing_context=method,
        generator=torch.Generator().manual_seed(2),
    )
    labels = {item["__key__"]: int(item["cls"]) for item in records}
    epochs = [[key for batch in loader for key in batch["__key__"]] for _ in range(2)]
    assert epochs[0] != epochs[1]
    assert {*map(frozenset, epochs)} == {frozenset(labels)}
    batch = next(iter(loader))
    assert (batch["jpg"].shape, batch["jpg"].dtype) == ((5, 16, 16, 3), torch.uint8)
    assert batch["cls"].tolist() == [labels[key] for key in batch["__key__"]]


def test_torch_gives_each_host_its_part(records: Records) -> None:
    torch = pytest.importorskip("torch")
    parts = [keys_of(torch.utils.data.Subset(records, [*range(host, 24, 2)])) for host in range(2)]
    assert parts == [keys_of(records[host::2]) for host in range(2)]
    samplers = [torch.utils.data.DistributedSampler(records, 2, host, seed=1) for host in range(2)]
    found = [key for sampler in samplers for key in keys_of(records.__getitems__([*sampler]))]
    assert Counter(found) == Counter(keys_of(records))


# --- Keras ---


def test_keras_trains_from_it(records: Records) -> None:
    keras = pytest.importorskip("keras")

    class Batches(keras.utils.PyDataset):  # type: ignore[misc, name-defined]
        def __len__(self) -> int:
            return -(-len(records) // 8)

        def __getitem__(self, index: int) -> Any:
            items = [*records[8 * index : 8 * index + 8]]
            return np.stack([item["jpg"] for item in items]) / 255, np.array([item["cls"] for item in items])

    model = keras.Sequential([keras.Input((16, 16, 3)), keras.layers.Flatten(), keras.layers.Dense(10)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    history = model.fit(Batches(workers=2), epochs=2, verbose=0)
    assert np.isfinite(history.history["loss"]).all()


# --- Readers of files and their indexes ---


TFRECORD = """
import hashlib, sys
import tfrecord  # in a process of its own, as its protobuf messages have the names of TensorFlow's

description = {"__key__": "byte", "jpg": "byte", "cls": "int"}
for path in sys.argv[1:]:
    for part in range(2):
        for item in tfrecord.tfrecord_loader(path, f"{path}.idx", description, shard=(part, 2)):
            print(bytes(item["__key__"]).decode(), int(item["cls"][0]), hashlib.md5(item["jpg"]).hexdigest())
"""


def test_the_tfrecord_package_reads_shards_by_their_indexes(records: Records, manifest: str) -> None:
    if not (find_spec("tfrecord") and find_spec("torch")):
        pytest.skip("could not import 'tfrecord' and 'torch', which it imports")
    paths = sorted(map(str, Path(manifest).parent.glob("*.record")))
    done = subprocess.run([sys.executable, "-c", TFRECORD, *paths], capture_output=True, text=True, check=True)
    assert [line.split() for line in done.stdout.splitlines()] == [
        [item["__key__"].decode(), str(item["cls"]), hashlib.md5(item["jpg"]).hexdigest()] for item in records
    ]


def test_dali_reads_shards_by_their_indexes(records: Records, manifest: str) -> None:
    pytest.importorskip("nvidia.dali")
    from nvidia.dali import fn, pipeline_def, tfrecord

    paths = [str(path) for path in sorted(Path(manifest).parent.glob("*.record"))]

    @pipeline_def(batch_size=6, num_threads=2, device_id=None)
    def pipeline() -> Any:
        features = {
            "cls": tfrecord.FixedLenFeature([1], tfrecord.int64, -1),
            "jpg": tfrecord.FixedLenFeature((), tfrecord.string, ""),
        }
        read = fn.readers.tfrecord(path=paths, index_path=[f"{path}.idx" for path in paths], features=features)
        return read["cls"], read["jpg"]

    built = pipeline()
    built.build()
    labels, images = [], []
    for _ in range(4):
        cls, jpg = built.run()
        labels += [int(cls.at(place)[0]) for place in range(6)]
        images += [jpg.at(place).tobytes() for place in range(6)]
    assert labels == [int(item["cls"]) for item in records]
    assert images == [item["jpg"].tobytes() for item in records]
