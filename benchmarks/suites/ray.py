"""`convert --engine ray` compared with Ray Data, both on a Ray of this machine whose start is not counted."""

from __future__ import annotations

from importlib.util import find_spec

from benchmarks.bench import Bench, Peer, Target, python, scenario
from benchmarks.data import PEERS, Dataset
from benchmarks.suites.core import c_loop

WANTED = Target(20, as_fast=True, imports=False)


@scenario
def ray_jpeg(bench: Bench) -> None:
    """Convert 8,000 of the JPEG samples on Ray."""
    race(bench, "ray-jpeg", bench.store.jpeg().first(4))


@scenario
def ray_small(bench: Bench) -> None:
    """Convert the small samples on Ray."""
    race(bench, "ray-small", bench.store.small())


def race(bench: Bench, name: str, data: Dataset) -> None:
    if find_spec("ray") is None or find_spec("pyarrow") is None:
        print(f"\n{name}: needs pip install 'ray[data]'")
        return

    def peer(title: str, who: str, target: Target | None = None) -> Peer:
        command = python(PEERS / "ray_script.py", who, bench.out, *data.files)
        return Peer(title, [command], target, records=data.samples)

    peers = [peer("tar2tf, engine ray", "tar2tf"), peer("Ray Data", "ray", WANTED), c_loop(bench, data)]
    bench.race(name, peers, data)
