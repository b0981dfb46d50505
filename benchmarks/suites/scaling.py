"""How each kind of work scales with the number of processes: seconds, and CPU seconds of all processes together."""

from __future__ import annotations

import resource
from collections.abc import Callable
from statistics import median
from typing import Final

from benchmarks.bench import Bench, note, scenario, tar2tf
from benchmarks.data import Dataset
from benchmarks.measure import Command, run

WORKERS: Final = (1, 2, 4, 8)
RESIZE: Final = ("--op", "decode:jpg", "--op", "resize:jpg,224x224", "--op", "cast:jpg,uint8", "--select", "image=jpg")


@scenario
def scaling(bench: Bench) -> None:
    """Every kind of work with -j 1, 2, 4 and 8: seconds and CPU seconds."""
    large, store = bench.store.jpeg().first(4), bench.store
    kinds: dict[str, tuple[Dataset, Callable[[Dataset, int], Command]]] = {
        "small samples": (store.small(), lambda data, workers: convert(bench, data, workers)),
        "large samples": (large, lambda data, workers: convert(bench, data, workers)),
        "tar.gz": (store.jpeg_gz().first(4), lambda data, workers: convert(bench, data, workers)),
        "decode, resize": (large, lambda data, workers: convert(bench, data, workers, *RESIZE, "--limit", "4000")),
        "verify": (store.records(store.jpeg()).first(4), verify),
    }
    print(f"\nscaling: seconds (CPU seconds), medians of {bench.rounds} rounds; more processes than cores only cost")
    print(f"  {'':<16}" + "".join(f"{f'-j {workers}':>16}" for workers in WORKERS) + f"{'limit: cat':>16}")
    for kind, (data, command) in kinds.items():
        bare = timed(bench, ["sh", "-c", 'cat "$@" > /dev/null', "cat", *data.files], f"scaling: {kind}, cat")
        cells = (timed(bench, command(data, workers), f"scaling: {kind}, -j {workers}") for workers in WORKERS)
        row = "".join(f"{wall:>8.2f} ({cpu:5.2f})" for wall, cpu in (*cells, bare))
        print(f"  {kind:<16}{row}", flush=True)


def timed(bench: Bench, command: Command, title: str) -> tuple[float, float]:
    """Median wall and CPU time in seconds."""
    walls, cpus = [], []
    for _ in range(bench.rounds):
        note(title)
        bench.empty()
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        walls.append(run([command])[0])
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpus.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    note("")
    return median(walls), median(cpus)


def convert(bench: Bench, data: Dataset, workers: int, *options: str) -> Command:
    output = ("-o", bench.out / "train-<>.record", "--max-shard-size", "100MB", "-j", str(workers), "-q")
    return tar2tf("convert", data.directory, data.template, *output, *options)


def verify(data: Dataset, workers: int) -> Command:
    return tar2tf("verify", data.directory, data.template, "-j", str(workers), "--json")
