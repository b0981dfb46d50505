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


CHANGES: dict[str, tuple[float, bool, list[str]]] = {
    "type": (1.5, False, ["--type", "cls=int64"]),
    "select": (1.5, False, ["--select", "a=txt,b=cls"]),
    "rename": (1.5, False, ["--op", "rename:label=cls"]),
    "keep": (1.5, False, ["--op", "keep:cls"]),
    "records, type": (3, True, ["--type", "cls=int64"]),
    "records, select": (3, True, ["--select", "a=txt,b=cls"]),
}
"""Changes that the kernel knows: the limit, whether TFRecords are converted, and the options."""


@scenario
def cliffs(bench: Bench) -> None:
    """Check and convert 200,000 samples of a class and a short text, each time against a plain conversion of them."""
    tars = bench.store.texts()
    records = bench.store.converted(tars)
    plain = tar2tf("convert", tars.directory, "-o", bench.out / "train-<>.record", "-j", "2", "-q")
    checks = {name: (most, command(tars, records)) for name, (most, command) in CHECKS.items()}
    for name, (most, command) in {**checks, **conversions(bench, tars, records)}.items():
        peers = [Peer(name, [command]), Peer("convert", [plain], Target(most), writes=tars.payload)]
        peers.append(limit("cat FILES > /dev/null", ["sh", "-c", 'cat "$@" > /dev/null', "cat", *tars.files]))
        bench.race(f"cliffs, {name}", peers, tars)


def conversions(bench: Bench, tars: Dataset, records: Dataset) -> dict[str, tuple[float, Command]]:
    """Return the conversions that change something, and how many times the time of a plain one each may take."""

    def convert(data: Dataset, *options: str, to: str = "record") -> Command:
        return tar2tf("convert", data.directory, "-o", bench.out / f"train-<>.{to}", "-j", "2", "-q", *options)

    captions = bench.store.captions(200_000, 9)
    tables = {path.name: str(path) for path in bench.store.caption_tables(captions).files}
    joined = {"join": str(captions), **{f"join {name}": path for name, path in tables.items()}}
    return {
        **{name: (most, convert(records if of else tars, *given)) for name, (most, of, given) in CHANGES.items()},
        **{name: (3, convert(tars, "--join", path)) for name, path in joined.items()},
        **{f"{name}, to tars": (3, convert(tars, "--join", path, to="tar")) for name, path in joined.items()},
        "rename, to tars": (3, convert(tars, "--op", "rename:label=cls", to="tar")),
        "records to tars": (3, convert(records, to="tar")),
        "gzip": (12, convert(tars, to="record.gz")),
    }


def index(data: Dataset) -> Command:
    """Write an index next to each shard, and remove them, as others would not be written again."""
    code = 'folder=$1; shift; "$@" > /dev/null && rm "$folder"/*.idx'
    return ["sh", "-c", code, "sh", data.directory, *tar2tf("index", data.directory)]
