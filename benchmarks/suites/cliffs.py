"""No cliff beside the plain path: other jobs on many tiny samples, each against a plain conversion of the same tars."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.bench import Bench, Peer, Target, limit, scenario, tar2tf
from benchmarks.data import Dataset
from benchmarks.measure import Command

CHECKS: dict[str, tuple[float, Callable[[Dataset, Dataset], Command]]] = {
    "index of tars": (2, lambda tars, records: index(tars)),
    "index of records": (2, lambda tars, records: index(records)),
    "inspect tars": (2, lambda tars, records: tar2tf("inspect", tars.directory, "-j", "2")),
    "inspect records": (2, lambda tars, records: tar2tf("inspect", records.directory, "-j", "2")),
    "verify tars": (2, lambda tars, records: tar2tf("verify", tars.directory, "-j", "2")),
    "verify --against": (
        4,
        lambda tars, records: tar2tf("verify", records.directory, "--against", tars.directory, "-j", "2"),
    ),
    "diff": (4, lambda tars, records: tar2tf("diff", tars.directory, records.directory, "-j", "2")),
}
"""What is run, and how many times the time of a plain conversion it may take."""


@scenario
def cliffs(bench: Bench) -> None:
    """Check 200,000 samples of a class and a short text, each time against a plain conversion of them."""
    tars = bench.store.texts()
    records = bench.store.converted(tars)
    plain = tar2tf("convert", tars.directory, "-o", bench.out / "train-<>.record", "-j", "2", "-q")
    for name, (most, command) in CHECKS.items():
        peers = [Peer(name, [command(tars, records)]), Peer("convert", [plain], Target(most), writes=tars.payload)]
        peers.append(limit("cat FILES > /dev/null", ["sh", "-c", 'cat "$@" > /dev/null', "cat", *tars.files]))
        bench.race(f"cliffs, {name}", peers, tars)


def index(data: Dataset) -> Command:
    """Write an index next to each shard, and remove them, as others would not be written again."""
    code = 'folder=$1; shift; "$@" > /dev/null && rm "$folder"/*.idx'
    return ["sh", "-c", code, "sh", data.directory, *tar2tf("index", data.directory)]
