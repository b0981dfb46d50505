"""Tar and tar.gz in a directory to TFRecord, without ops; verify; memory; start-up."""

from __future__ import annotations

import shutil
from pathlib import Path

from benchmarks.bench import Bench, Peer, Target, limit, python, scenario, tar2tf
from benchmarks.data import PEERS, Dataset
from benchmarks.measure import Command, Failed
from benchmarks.peers import go_peer
from tar2tf_cli.formats import kernel

MEMORY_LIMIT = 120e6  # bytes of anonymous memory in any one process
MEMORY_GROWTH = 1.15  # for a shard 100 times as large; its index takes about 40 bytes per sample


@scenario
def jpeg(bench: Bench) -> None:
    """Convert 1.7 GB of 50 kB JPEG samples."""
    data = bench.store.jpeg()
    bench.race(
        "jpeg",
        [
            convert(bench, data),
            Peer("cat", [cat(bench, data)], Target(1.5), data.bytes),
            Peer("cat, then sync FILE", [cat(bench, data, sync=True)], None, data.bytes),
            c_loop(bench, data),
            Peer("dd, past the page cache", disk(bench, data), None, data.bytes),
            Peer("cp, two processes", copy(bench, data), None, data.bytes),
            script(bench, data, "tarfile_script"),
            script(bench, data, "webdataset_script"),
        ],
        data,
    )


@scenario
def small(bench: Bench) -> None:
    """Convert 80,000 samples of 400-byte PNG."""
    data = bench.store.small()
    bench.race(
        "small",
        [
            convert(bench, data),
            Peer("without the kernel", [["env", "TAR2TF_PURE=1", *convert_command(bench, data.directory)]]),
            *go_tfdata(bench, data, 3 if kernel.native() else None),
            Peer("cat", [cat(bench, data)], None, data.bytes),
            c_loop(bench, data),
            script(bench, data, "tarfile_script", Target(30 if kernel.native() else 6, as_fast=True)),
            script(bench, data, "webdataset_script"),
        ],
        data,
    )


@scenario
def large(bench: Bench) -> None:
    """Convert a quarter of the JPEG samples, 420 MB."""
    data = bench.store.jpeg().first(4)
    bench.race(
        "large",
        [
            Peer("tar2tf convert -j 2", [convert_command(bench, data.directory, data.template)], writes=data.payload),
            *go_tfdata(bench, data, 1.6),
            Peer("cat", [cat(bench, data)], None, data.bytes),
            Peer("cat, then sync FILE", [cat(bench, data, sync=True)], None, data.bytes),
            c_loop(bench, data),
        ],
        data,
    )


@scenario
def gz(bench: Bench) -> None:
    """Convert the JPEG samples from .tar.gz."""
    data, tars = bench.store.jpeg_gz(), bench.store.jpeg()
    if not shutil.which("igzip"):
        print("\ngz: igzip is not installed (apt install isal), so there is nothing to compare with")
        return
    bench.race(
        "gz",
        [
            convert(bench, data),
            Peer("igzip -d, two processes", igzip(bench, data), Target(1.2), tars.bytes),
            limit("igzip -d, then sync FILE", *igzip(bench, data, sync=True), writes=tars.bytes),
        ],
        data,
    )


@scenario
def verify_small(bench: Bench) -> None:
    """Verify the small samples as TFRecord."""
    verify(bench, "verify-small", bench.store.records(bench.store.small()), Target(10, True, imports=False))


@scenario
def verify_jpeg(bench: Bench) -> None:
    """Verify the JPEG samples as TFRecord."""
    verify(bench, "verify-jpeg", bench.store.records(bench.store.jpeg()), Target(4, True, imports=False))


@scenario
def memory(bench: Bench) -> None:
    """Peak anonymous memory of converting one shard of 30 MB and one of 3 GB."""
    sizes = (30, max(60, 3000 * bench.store.scale))
    try:
        few, many = (memory_of(bench, megabytes) for megabytes in sizes)
        least = bench.peak(python("-c", "import click"))
    except Failed as fault:
        print(f"\nmemory failed: {fault}")
        return
    print("\nmemory: anonymous memory of the largest process of tar2tf convert -j 2, at its peak")
    for megabytes, peak in zip(sizes, (few, many), strict=True):
        print(f"  one shard of {megabytes:>5,.0f} MB {peak / 1e6:>8.1f} MB")
    print(f"  limit: import click {least / 1e6:>11.1f} MB")
    met = max(few, many) < MEMORY_LIMIT and many < MEMORY_GROWTH * few
    print(f"  wanted: under {MEMORY_LIMIT / 1e6:.0f} MB, and the same for both: {'met' if met else 'NOT MET'}")


@scenario
def startup(bench: Bench) -> None:
    """Start-up: `tar2tf --help`, and the conversion of a tar of one sample."""
    data = bench.store.ones(1, 4_000)
    click = Peer("python -c 'import click'", [python("-c", "import click")], Target(3))
    commands = {
        "--help": tar2tf("--help"),
        "convert": tar2tf("convert", data.directory, "-o", bench.out / "a.record", "-q"),
    }
    for name, command in commands.items():
        peers = [Peer(f"tar2tf {name}", [command]), click, limit("python -c pass", python("-c", "pass"))]
        bench.race(f"startup, {name}", peers, rounds=5 * bench.rounds)


def verify(bench: Bench, title: str, data: Dataset, target: Target) -> None:
    """Compare with three ways of counting in TensorFlow; the first two are what people usually write."""
    ours = tar2tf("verify", data.directory, "*.record", "--json")
    peers = [
        Peer("tar2tf verify", [ours], records=data.samples),
        Peer("without the kernel", [["env", "TAR2TF_PURE=1", *ours]], records=data.samples),
        Peer("cat FILES > /dev/null", [["sh", "-c", 'cat "$@" > /dev/null', "cat", *data.files]]),
    ]
    loop = bench.c_loop("record_crcs")
    peers.append(limit("C, CRCs", *([*loop, *half] for half in halves(data)), records=data.samples))
    for way, wanted in (("reduce", target), ("loop", target), ("batches", None)):
        count = python(PEERS / "tfrecord_count.py", way, *data.files)
        peers.append(Peer(f"TFRecordDataset, {way}", [count], wanted, records=data.samples))
    bench.race(title, peers, data)


def memory_of(bench: Bench, megabytes: float) -> int:
    with bench.store.one_tar(megabytes) as tar:
        return bench.peak(convert_command(bench, tar))


def convert(bench: Bench, data: Dataset) -> Peer:
    return Peer("tar2tf convert -j 2", [convert_command(bench, data.directory)], writes=data.payload)


def convert_command(bench: Bench, bucket: Path, *templates: str) -> Command:
    limits = ("-j", "2", "-q", "--overwrite")
    return tar2tf("convert", bucket, *templates, "-o", bench.out / "train-<>.record", *limits)


def go_tfdata(bench: Bench, data: Dataset, as_fast: float | None) -> list[Peer]:
    """The program with two goroutines; none if it cannot be built, which is said aloud."""
    try:
        program = go_peer.build(bench.store.root / "go-tfdata")
    except go_peer.NotBuilt as reason:
        print(f"\nWITHOUT go-tfdata {go_peer.VERSION}, which cannot be built: {reason}")
        return []
    command: Command = [program, bench.out, *data.files]
    target = Target(as_fast, as_fast=True) if as_fast else None
    flushed = shell('"$@" && sync "$out"/*.record', bench.out, [program, bench.out, *data.files])
    return [
        Peer("go-tfdata, two goroutines", [command], target, data.payload),
        Peer("go-tfdata, then sync FILES", [flushed], None, data.payload),
    ]


def c_loop(bench: Bench, data: Dataset, processes: int = 2) -> Peer:
    """The limit of a conversion from tars: their headers, framed examples with CRCs, and `fsync` in C."""
    loop = bench.c_loop("tar_to_records")
    parts = [data.files[number::processes] for number in range(processes)]
    commands = [[*loop, bench.out, *part] for part in parts if part]
    return limit("C, tar to records, fsync", *commands, writes=data.payload, records=data.samples)


def script(bench: Bench, data: Dataset, name: str, target: Target | None = None) -> Peer:
    command = python(PEERS / f"{name}.py", bench.out, *data.files)
    return Peer(name.replace("_", " "), [command], target, data.payload, data.samples)


def cat(bench: Bench, data: Dataset, *, sync: bool = False) -> Command:
    return shell('cat "$@" > "$out"' + ' && sync "$out"' * sync, bench.out / "all", data.files)


def disk(bench: Bench, data: Dataset) -> list[Command]:
    """Write to the disk directly: a lower bound for everything that flushes its output."""
    each = 'dd if="$tar" of="$out/$(basename "$tar")" bs=4M oflag=direct status=none'
    return [shell(f"for tar; do {each} || exit; done", bench.out, half) for half in halves(data)]


def halves(data: Dataset) -> tuple[list[Path], list[Path]]:
    return data.files[0::2], data.files[1::2]


def copy(bench: Bench, data: Dataset) -> list[Command]:
    return [["cp", *half, bench.out] for half in halves(data)]


def igzip(bench: Bench, data: Dataset, *, sync: bool = False) -> list[Command]:
    each = 'igzip -d -c "$gz" > "$out/$(basename "$gz" .gz)"'
    flush = ' && sync "$out/$(basename "$gz" .gz)"' * sync
    return [shell(f"for gz; do {each}{flush} || exit; done", bench.out, half) for half in halves(data)]


def shell(code: str, out: Path, arguments: list[Path]) -> Command:
    return ["sh", "-c", f"out=$1; shift; {code}", "sh", out, *arguments]
