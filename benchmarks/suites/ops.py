"""Ops on images, presets, and datasets in memory."""

from __future__ import annotations

from pathlib import Path

from benchmarks.bench import Bench, Peer, Target, limit, python, scenario, tar2tf
from benchmarks.data import PEERS, Dataset
from benchmarks.measure import Command
from benchmarks.suites.core import c_loop

SIDE = "224"


@scenario
def resize(bench: Bench) -> None:
    """Decode 500x375 JPEGs, resize them to 224x224 and cast them to uint8."""
    data = bench.store.jpeg().first(8)
    _against_map(bench, "resize", data, "jpg", f"resize:jpg,{SIDE}x{SIDE}", target=2)


@scenario
def sizes(bench: Bench) -> None:
    """Resize the JPEG samples in other ways: the short side, padded, by the methods area and bicubic."""
    data = bench.store.jpeg().first(8)
    for work, op in {
        "short": f"resize:jpg,short={SIDE}",
        "pad": f"pad:jpg,{SIDE}x{SIDE}",
        "area": f"resize:jpg,{SIDE}x{SIDE},area",
        "bicubic": f"resize:jpg,{SIDE}x{SIDE},bicubic",
    }.items():
        _against_map(bench, work, data, "jpg", op)


@scenario
def reduced(bench: Bench) -> None:
    """Prepare photographs of 12 megapixels for 224x224, decoded at a part of their size and in full."""
    data = bench.store.large_photos()
    for kind, resizing, faster in (("plain", "", None), ("antialias", ",antialias=true", 4)):
        select = ("--op=cast:jpg,uint8", "--select=image=jpg,label=cls", "--type=label=int64")
        ours = [
            Peer(f"tar2tf convert -j 2, {way}", [convert(bench, data.directory, data.files, *ops, *select)], target)
            for way, decoding, target in (
                ("at_least=256x256", ",at_least=256x256", None),
                ("in full", "", Target(faster, True) if faster else None),
            )
            for ops in [(f"--op=decode:jpg{decoding}", f"--op=resize:jpg,{SIDE}x{SIDE}{resizing}")]
        ]
        tf_map = PEERS / "tfdata_map.py"
        scripts = {
            "tf.data map, AUTOTUNE, ratio=8": python(tf_map, bench.out, f"reduced-{kind}", *data.files),
            "tf.data map, AUTOTUNE, in full": python(tf_map, bench.out, f"full-{kind}", *data.files),
        }
        peers = [Peer(name, [command], records=data.samples) for name, command in scripts.items()]
        peers.append(limit("simplejpeg, cv2.resize", value_loop(bench, "reduced", data), records=data.samples))
        bench.race(f"reduced, {kind}: {data.samples:,} JPEGs of 4000x3000", [*ours, *peers])


@scenario
def masks(bench: Bench) -> None:
    """Decode PNG masks of 500x375 and resize them to 224x224 by nearest."""
    _against_map(bench, "nearest", bench.store.masks(), "png", f"resize:png,{SIDE}x{SIDE},nearest", cast=False)


@scenario
def webp(bench: Bench) -> None:
    """Decode WebP of 500x375."""
    _against_map(bench, "webp", bench.store.webp(), "webp", cast=False)


@scenario
def wav(bench: Bench) -> None:
    """Decode WAV of a second at 16 kHz."""
    _against_map(bench, "wav", bench.store.wav(), "wav", cast=False)


def _against_map(
    bench: Bench, work: str, data: Dataset, entry: str, *ops: str, cast: bool = True, target: float = 1.25
) -> None:
    """Race ops on an entry against a tf.data map that does the same."""
    chain = [f"decode:{entry}", *ops, *([f"cast:{entry},uint8"] if cast else [])]
    select = ("--select", f"image={entry},label=cls", "--type", "label=int64")
    ours = convert(bench, data.directory, data.files, *(word for op in chain for word in ("--op", op)), *select)
    theirs = python(PEERS / "tfdata_map.py", bench.out, work, *data.files)
    bench.race(
        f"{work}: {data.samples:,} of {entry}",
        [
            Peer("tar2tf convert -j 2", [ours]),
            Peer("tf.data map, AUTOTUNE", [theirs], Target(target, True, imports=False), records=data.samples),
            limit("the libraries in a loop", value_loop(bench, work, data), records=data.samples),
        ],
    )


@scenario
def image_label(bench: Bench) -> None:
    """Convert JPEG samples with the preset image-label."""
    data, files, samples = some(bench, 8)
    ours = convert(bench, data, files, "--preset", "image-label")
    half = bench.store.jpeg().first(2)
    theirs = python(PEERS / "image_label.py", bench.out, *files)
    bench.race(
        f"image-label: {samples:,} JPEGs of 500x375",
        [
            Peer("tar2tf convert -j 2", [ours]),
            Peer("decode_jpeg, Example", [theirs], Target(10, True, imports=False), records=samples),
            c_loop(bench, half),
        ],
    )


@scenario
def dataset(bench: Bench) -> None:
    """An epoch of `Dataset(...).load(...)`: decoded, 224x224, batches of 32."""
    _, files, samples = some(bench, 2)
    peers = []
    for way, target in (("tar2tf", None), ("webdataset", Target(2, True, imports=False))):
        command = python(PEERS / "dataset_load.py", way, SIDE, *files)
        peers.append(Peer(f"{way}, batches of 32", [command], target, records=samples))
    loop = value_loop(bench, "resize", bench.store.jpeg().first(8))
    peers.append(limit("simplejpeg, cv2.resize", loop, records=samples))
    bench.race(f"dataset: {samples:,} JPEGs of 500x375", peers)


def value_loop(bench: Bench, work: str, data: Dataset) -> Command:
    return python(PEERS / "value_loop.py", work, bench.out, *data.files)


def some(bench: Bench, shards: int) -> tuple[Path, list[Path], int]:
    """The first shards of the JPEG set: their directory, the files, and the number of samples in them."""
    data = bench.store.jpeg()
    return data.directory, data.files[:shards], data.samples * shards // len(data.files)


def convert(bench: Bench, data: Path, files: list[Path], *options: str) -> Command:
    output = ("-o", bench.out / "train-<>.record", "--max-shard-size", "100MB")
    return tar2tf("convert", data, names(files), *output, *options, "-j", "2", "-q")


def names(files: list[Path]) -> str:
    return "{" + ",".join(path.name for path in files) + "}"
