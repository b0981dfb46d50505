"""Every reader of records or samples, in order and at random, from the disk and from S3 with latency."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from benchmarks.bench import Bench, Peer, Target, Times, limit, python, scenario, tar2tf
from benchmarks.data import DISTINCT, PEERS, SHARDS, Dataset
from benchmarks.measure import ROOT, Command

sys.path.append(str(ROOT / "tests" / "helpers"))
from servers import S3_KEYS, end, free_ports, versitygw

SCRIPT = PEERS / "record_reading.py"
WAYS = ("in-order", "one-by-one", "batches-32", "batches-1024", "shuffled")
LATENCY, FAR = 20, 500  # milliseconds
AT_RANDOM = {"small": 40_000, "jpeg": 4_000}
FROM_S3 = {"one-by-one": 64, "batches-32": 1024, "batches-1024": 4096}

RECORDS = ("tar2tf", "tf.data", "dali", "array_record", "limit")
TARS = ("tar2tf-tars", "webdataset", "dali-tars", "wids", "tarfile")
MODULES = {"array_record": "array_record", "dali": "nvidia.dali", "dali-tars": "nvidia.dali", "wids": "wids"}
ALWAYS_IN_ORDER = ("webdataset", "dali", "dali-tars")
NOT_FROM_S3 = ("tf.data", "array_record", "tarfile", "dali", "dali-tars")
TARGETS = {
    ("tf.data", "in-order"): Target(1.0, imports=False),
    ("array_record", "one-by-one"): Target(1.0, imports=False),
    ("array_record", "batches-32"): Target(1.0, imports=False),
    ("array_record", "batches-1024"): Target(1.0, imports=False),
}


@scenario
def random_small(bench: Bench) -> None:
    """Read the small samples as TFRecord, tar and ArrayRecord: in order, at random, from the disk and from S3."""
    _all(bench, "small", bench.store.small(), bench.store.records(bench.store.small()))


@scenario
def random_jpeg(bench: Bench) -> None:
    """Read 400 MB of the JPEG samples as TFRecord, tar and ArrayRecord: in order, at random, from the disk and S3."""
    share = SHARDS // DISTINCT
    records = bench.store.records(bench.store.jpeg())
    _all(bench, "jpeg", bench.store.jpeg().first(share), records.first(share))


@scenario
def random_far(bench: Bench) -> None:
    """Open 8 shards of 1 MB in S3 that answers after half a second, and read all records in another order."""
    tars = bench.store.tars(8, 1)
    records = bench.store.converted(tars, "--num-shards", "8", "--index")
    folder = bench.store.root / "readers"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(records.directory, folder / "local")
    for file in tars.files:
        os.link(file, folder / "local" / file.name)
    shards = [f"s3://bench/{path.name}" for path in records.files if path.suffix == ".record"]
    try:
        with _s3_far_away(folder / "local", folder / "s3", FAR) as (_, variables):
            read = ["env", f"TMPDIR={folder}", *variables, *python(SCRIPT)]
            peers = [
                Peer(
                    "records with a manifest",
                    [[*read, "tar2tf", "opened", "0", "0", "s3://bench/_train-manifest.json"]],
                ),
                Peer("tars without indexes", [[*read, "tar2tf-tars", "opened", "0", "0", "s3://bench/train-*.tar"]]),
                limit("copying from ranges that are known", [*read, "limit", "opened", "0", "0", *shards]),
            ]
            bench.race("random-far, both wanted within 1.5 s", peers)
    finally:
        shutil.rmtree(folder)


def _all(bench: Bench, name: str, tars: Dataset, records: Dataset) -> None:
    packages = [package for package in (*RECORDS, *TARS) if _is_there(package)]
    files = {package: (records if package in RECORDS else tars).files for package in packages}
    folder = bench.store.root / "readers"
    shutil.rmtree(folder, ignore_errors=True)
    local = folder / "local"
    local.mkdir(parents=True)
    for file in (*tars.files, *records.files):
        os.link(file, local / file.name)
    subprocess.run(tar2tf("index", local), check=True, capture_output=True)
    try:
        indexed = {package: [local / path.name for path in paths] for package, paths in files.items()}
        if "array_record" in packages:
            indexed["array_record"] = bench.store.array_records(records).files
        environment = ["env", f"TMPDIR={folder}", f"XDG_CACHE_HOME={folder / 'cache'}"]
        number = int(AT_RANDOM[name] * bench.store.scale)
        _race(bench, f"random-{name}", indexed, tars, environment, dict.fromkeys(WAYS, number))
        near = [package for package in packages if package not in NOT_FROM_S3]
        with _s3_far_away(local, folder / "s3", LATENCY) as (url, variables):
            there = {package: _urls(package, url, files[package]) for package in near}
            ways = {"in-order": 0, **{way: int(count * bench.store.scale) for way, count in FROM_S3.items()}}
            _race(bench, f"random-{name}, S3 at {LATENCY} ms", there, tars, [*environment, *variables], ways)
    finally:
        shutil.rmtree(folder)


def _is_there(package: str) -> bool:
    """Whether a package is installed; a line says so if not."""
    try:
        there = find_spec(MODULES.get(package, "tar2tf_cli")) is not None
    except ModuleNotFoundError:  # not even what it is part of
        there = False
    if not there:
        print(f"\nwithout {package}: benchmarks/README.md says how to install it")
    return there


def _race(
    bench: Bench,
    title: str,
    files: dict[str, list[Path]] | dict[str, list[str]],
    data: Dataset,
    environment: Command,
    ways: dict[str, int],
) -> None:
    """A race for each way to read; then all of them in one table, as in docs/reference/open-records.md."""
    each = data.samples // len(data.files)
    kinds = ("microseconds of a record", "microseconds of CPU of a record")
    tables: list[dict[str, list[str]]] = [{package: [] for package in files} for _ in kinds]
    for way, number in ways.items():
        able = [package for package in files if _reads(package, way)]
        count = data.samples if way in ("in-order", "shuffled") else number
        peers = []
        for package in able:
            buffer = data.samples // 10 if way == "shuffled" else number
            command = [*environment, *python(SCRIPT, package, way, str(buffer), str(each), *files[package])]
            if package == "limit":
                peers.append(
                    limit(
                        f"copying from {'a map' if os.path.exists(files[package][0]) else 'ranges'}",
                        command,
                        records=count,
                    )
                )
            else:
                peers.append(Peer(package, [command], TARGETS.get((package, way)), records=count))
        raced = zip(able, bench.race(f"{title}, {way}", peers).values(), strict=True)
        times = {**dict.fromkeys(files, Times()), **dict(raced)}
        for package, ran in times.items():
            for table, seconds in zip(tables, (ran.imported, ran.cpu), strict=True):
                table[package].append(f"{median(seconds) / count * 1e6:,.1f}" if seconds else "")
    for kind, table in zip(kinds, tables, strict=True):
        print(f"\n{title}: {kind}\n\n| | {' | '.join(ways)} |\n|---{'|---' * len(ways)}|")
        for package, row in table.items():
            print(f"| {package} | {' | '.join(row)} |")


def _reads(package: str, way: str) -> bool:
    if package in ALWAYS_IN_ORDER:
        return way == "in-order"
    if package == "tf.data":
        return way in ("in-order", "shuffled")
    return way in ("in-order", "one-by-one") if package == "tarfile" else True


@contextmanager
def _s3_far_away(files: Path, folder: Path, latency: int) -> Iterator[tuple[str, Command]]:
    """The URL of a versitygw with these files, behind a link with latency in ms, and variables for its clients."""
    (folder / "bench").mkdir(parents=True)
    with versitygw(folder) as url:
        for file in files.iterdir():
            _bucket(url).put(file.name, file)
        (port,) = free_ports(1)
        link = subprocess.Popen(python(PEERS / "slow_link.py", str(port), str(urlsplit(url).port), str(latency)))
        try:
            far = f"http://127.0.0.1:{port}"
            yield far, [f"{name}={value}" for name, value in {**S3_KEYS, "AWS_ENDPOINT_URL": far}.items()]
        finally:
            end(link)


def _urls(package: str, endpoint: str, files: Sequence[Path]) -> list[str]:
    """The shards in S3; for packages that fetch with curl, URLs that need no keys."""
    if package.startswith("tar2tf") or package == "limit":
        return [f"s3://bench/{file.name}" for file in files]
    from obstore import sign

    return [sign(_bucket(endpoint), "GET", file.name, timedelta(hours=6)) for file in files]


def _bucket(endpoint: str) -> Any:
    from obstore.store import S3Store

    keys = {name.lower(): value for name, value in S3_KEYS.items()}
    return S3Store("bench", endpoint=endpoint, client_options={"allow_http": True}, **keys)
