"""Large and small objects in every kind of store, compared with the fastest client of that store."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import requests

from benchmarks.bench import Bench, Peer, Target, note, python, scenario, tar2tf
from benchmarks.data import PEERS, Dataset
from benchmarks.measure import Command
from servers import S3_KEYS, ais_cluster, end, free_ports, versitygw, wait_for

MEGABYTE = 1_000_000
MOST_MEMORY = 150 * MEGABYTE


@scenario
def store_s3(bench: Bench) -> None:
    """Convert 8 tars of 28 MB and 2,000 tars of one sample from S3 (versitygw), compared with obstore."""
    for data, target in ((bench.store.tars(8, 28), 1.5), (bench.store.ones(), 2.0)):
        with _s3(bench, data) as environment:
            ours = [*environment, *_convert(bench, "s3://bench", data)]
            theirs = [*environment, *python(PEERS / "obstore_copy.py", "fetch", "bench", bench.out)]
            bench.race(
                "store-s3",
                [
                    Peer("tar2tf convert -j 2", [ours], writes=data.payload),
                    Peer("obstore, 8 threads, to disk", [theirs], Target(target), data.payload),
                    Peer("tar2tf convert, from disk", [_convert(bench, data.directory, data)]),
                ],
                data,
            )
            peak = bench.peak(ours)
            note("")
            print(f"  memory of the largest process {peak / 1e6:,.0f} MB, wanted {MOST_MEMORY / 1e6:.0f} MB")


@scenario
def store_ais(bench: Bench) -> None:
    """Convert 8 tars of 60 MB and 2,000 tars of one sample from AIStore, compared with curl."""
    with tempfile.TemporaryDirectory(dir=_root(bench)) as folder, ExitStack() as stack:
        try:
            url = stack.enter_context(ais_cluster(Path(folder)))
        except (FileNotFoundError, PermissionError) as error:
            print(f"\nstore-ais: {error}")
            return
        from aistore.sdk import Client

        for name, data, processes, target in (
            ("large", bench.store.tars(8, 60), 2, 1.25),
            ("small", bench.store.ones(), 8, 2.0),
        ):
            bucket = Client(url).bucket(name).create()
            for file in data.files:
                bucket.object(file.name).get_writer().put_file(file)
            theirs = _curl(bench, f"{url}/v1/objects/{name}", data, processes)
            bench.race(
                "store-ais",
                [
                    Peer(
                        "tar2tf convert -j 2",
                        [["env", f"AIS_ENDPOINT={url}", *_convert(bench, f"ais://{name}", data)]],
                        writes=data.payload,
                    ),
                    Peer(f"{processes} x curl to disk, sync", [theirs], Target(target), data.payload),
                    Peer("tar2tf convert, from disk", [_convert(bench, data.directory, data)]),
                ],
                data,
            )


@scenario
def store_http(bench: Bench) -> None:
    """Convert 2,000 tars of one sample from an HTTP server, compared with curl -Z."""
    data = bench.store.ones()
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    server = subprocess.Popen([sys.executable, PEERS / "http_server.py", data.directory, str(port)])
    try:
        wait_for(lambda: requests.head(f"{url}/{data.files[0].name}", timeout=2).ok, server)
        fetch = ["curl", "-sSfLZ", "--create-dirs", "--output-dir", str(bench.out), "--remote-name-all"]
        bench.race(
            "store-http",
            [
                Peer("tar2tf convert -j 2", [_convert(bench, url, data)], writes=data.payload),
                Peer("curl -Z to disk", [[*fetch, f"{url}/{_pattern(data, '[{}-{}]')}"]], Target(2), data.payload),
            ],
            data,
        )
    finally:
        end(server)


@scenario
def store_upload(bench: Bench) -> None:
    """Convert the JPEG samples to shards in S3 (versitygw), compared with obstore uploading the finished shards."""
    data = bench.store.jpeg()
    with _s3(bench, None) as environment:
        finished = bench.store.root / "finished"
        shutil.rmtree(finished, ignore_errors=True)
        subprocess.run(
            tar2tf("convert", data.directory, "-o", finished / "train-<>.record", "--max-shard-size", "100MB", "-q"),
            check=True,
        )
        ours = tar2tf("convert", data.directory, "-o", "s3://bench/a/train-<>.record", "--max-shard-size", "100MB",
            "-j", "2", "-q", "--overwrite")  # fmt: skip
        theirs = python(PEERS / "obstore_copy.py", "upload", "bench", finished)
        bench.race(
            "store-upload",
            [
                Peer("tar2tf convert -j 2", [[*environment, *ours]]),
                Peer("obstore, 8 threads", [[*environment, *theirs]], Target(1.25)),
            ],
            data,
        )
        shutil.rmtree(finished)


@scenario
def store_listing(bench: Bench) -> None:
    """List 20,000 objects in S3 (versitygw) to find one of them."""
    count = round(20_000 * bench.store.scale)
    files = bench.store.ones().files
    with _s3(bench, None) as environment, tempfile.TemporaryDirectory() as folder:
        bucket = bench.store.root / "versitygw" / "bench"
        for number in range(count):
            os.link(files[number % len(files)], bucket / f"s-{number:06}.tar")
        ours = tar2tf("inspect", "s3://bench", f"s-{count - 1:06}*.tar")
        theirs = python(PEERS / "obstore_copy.py", "list", "bench", folder)
        bench.race(
            "store-listing",
            [
                Peer("tar2tf inspect, one of all", [[*environment, *ours]]),
                Peer("obstore, list", [[*environment, *theirs]], Target(2), records=count),
            ],
        )


def _root(bench: Bench) -> Path:
    bench.store.root.mkdir(parents=True, exist_ok=True)
    return bench.store.root


@contextmanager
def _s3(bench: Bench, data: Dataset | None) -> Iterator[Command]:
    """The `env` command for a versitygw with the files of a dataset in its bucket."""
    folder = _root(bench) / "versitygw"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "bench").mkdir(parents=True)
    for file in data.files if data else ():
        os.link(file, folder / "bench" / file.name)
    try:
        with versitygw(folder) as url:
            variables = {**S3_KEYS, "AWS_ENDPOINT_URL": url, "XDG_CACHE_HOME": str(bench.store.root / "cache")}
            yield ["env", *(f"{name}={value}" for name, value in variables.items())]
    finally:
        shutil.rmtree(folder)


def _pattern(data: Dataset, braces: str) -> str:
    first, last = data.files[0].stem, data.files[-1].stem
    stem = first.rstrip("0123456789")
    return f"{stem}{braces.format(first.removeprefix(stem), last.removeprefix(stem))}.tar"


def _convert(bench: Bench, bucket: str | Path, data: Dataset) -> Command:
    names = _pattern(data, "{{{}..{}}}")
    limits = ("--max-shard-size", "32MB", "-j", "2", "-q", "--overwrite")
    return tar2tf("convert", bucket, names, "-o", bench.out / "train-<>.record", *limits)


def _curl(bench: Bench, url: str, data: Dataset, processes: int) -> Command:
    """So many processes of curl, each of which fetches its part of the files; then sync."""
    each = -(-len(data.files) // processes)
    names = " ".join(f"{url}/{file.name}" for file in data.files)
    fetch = f"xargs -P{processes} -n{each} curl -sSfL --create-dirs --output-dir {bench.out} --remote-name-all"
    return ["sh", "-c", f"echo {names} | {fetch} && sync {bench.out}/*"]
