"""Large and small objects in every kind of store, compared with the fastest client of that store."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import requests

from benchmarks.bench import Bench, Peer, Target, limit, python, scenario, tar2tf
from benchmarks.data import PEERS, Dataset
from benchmarks.measure import Command
from servers import S3_KEYS, ais_cluster, end, free_ports, versitygw, wait_for

MEGABYTE = 1_000_000
MOST_MEMORY = 150 * MEGABYTE


@scenario
def store_s3(bench: Bench) -> None:
    """Convert 8 tars of 28 and 280 MB and 2,000 tars of one sample from S3 (versitygw), compared with obstore."""
    for data, target in ((bench.store.tars(8, 28), 1.5), (bench.store.tars(8, 280), 1.5), (bench.store.ones(), 2.0)):
        with _s3(bench, data) as environment:
            theirs = [*environment, *python(PEERS / "obstore_copy.py", "fetch", "bench", bench.out)]
            durable = limit("obstore, then sync", _then_sync(bench, shlex.join(map(str, theirs))))
            fetching = Peer("obstore, 8 threads, to disk", [theirs], Target(target), data.payload)
            _race(bench, "store-s3", data, environment, "s3://bench", [fetching, durable])


@scenario
def store_ais(bench: Bench) -> None:
    """Convert 8 tars of 60 and 280 MB and 2,000 tars of one sample from AIStore, compared with curl."""
    with tempfile.TemporaryDirectory(dir=_root(bench)) as folder, ExitStack() as stack:
        try:
            url = stack.enter_context(ais_cluster(Path(folder)))
        except (FileNotFoundError, PermissionError) as error:
            print(f"\nstore-ais: {error}")
            return
        from aistore.sdk import Client

        for name, data, processes, target in (
            ("large", bench.store.tars(8, 60), 2, 1.25),
            ("larger", bench.store.tars(8, 280), 2, 1.25),
            ("small", bench.store.ones(), 8, 2.0),
        ):
            bucket = Client(url).bucket(name).create()
            for file in data.files:
                bucket.object(file.name).get_writer().put_file(file)
            theirs = _curl(bench, f"{url}/v1/objects/{name}", data, processes)
            fetching = limit(f"{processes} x curl to disk, sync", theirs, target=Target(target), writes=data.payload)
            _race(bench, "store-ais", data, ["env", f"AIS_ENDPOINT={url}"], f"ais://{name}", [fetching])
            bucket.delete()


@scenario
def store_http(bench: Bench) -> None:
    """Convert 2,000 tars of one sample from nginx, or a server in Python if there is none, compared with curl -Z."""
    data = bench.store.ones()
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(dir=_root(bench)) as folder:
        server = subprocess.Popen(_http_server(Path(folder), data.directory, port))
        try:
            wait_for(lambda: requests.head(f"{url}/{data.files[0].name}", timeout=2).ok, server)
            fetch = ["curl", "-sSfLZ", "--create-dirs", "--output-dir", str(bench.out), "--remote-name-all"]
            theirs = [*fetch, f"{url}/{_pattern(data, '[{}-{}]')}"]
            fetching = limit("curl -Z to disk", theirs, target=Target(2), writes=data.payload)
            _race(bench, f"store-http ({Path(str(server.args[0])).name})", data, ["env"], url, [fetching])
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
                limit("obstore, 8 threads", [*environment, *theirs], target=Target(1.25)),
            ],
            data,
        )
        shutil.rmtree(finished)


@scenario
def store_listing(bench: Bench) -> None:
    """List 100,000 objects in AIStore and 20,000 in S3 (versitygw), to find one of them."""
    _list_ais(bench, round(100_000 * bench.store.scale))
    count = round(20_000 * bench.store.scale)
    files = bench.store.ones().files
    with _s3(bench, None) as environment, tempfile.TemporaryDirectory() as folder:
        bucket = bench.store.root / "versitygw" / "bench"
        for number in range(count):
            os.link(files[number % len(files)], bucket / f"s-{number:06}.tar")
        ours = [*environment, *tar2tf("inspect", "s3://bench", f"*-{count - 1:06}.tar")]
        theirs = [*environment, *python(PEERS / "obstore_copy.py", "list", "bench", folder)]
        peers = [
            Peer("tar2tf inspect, one of all", [ours]),
            limit("obstore, list", theirs, target=Target(2), records=count),
        ]
        bench.race(f"store-listing: {count:,} objects in S3", peers)
        bench.cpu("tar2tf", ours)


def _list_ais(bench: Bench, count: int) -> None:
    with tempfile.TemporaryDirectory(dir=_root(bench)) as folder, ExitStack() as stack:
        try:
            url = stack.enter_context(ais_cluster(Path(folder)))
        except (FileNotFoundError, PermissionError) as error:
            print(f"\nstore-listing: {error}")
            return
        from aistore.sdk import Client

        Client(url).bucket("many").create()
        last = f"s-{count - 1:06}.tar"
        objects = f"{url}/v1/objects/many/s-[000000-{count - 1:06}].tar"
        subprocess.run(
            ["curl", "-sSfLZ", "--no-progress-meter", "-T", bench.store.ones().files[0], objects], check=True
        )
        ours = ["env", f"AIS_ENDPOINT={url}", *tar2tf("inspect", "ais://many", f"*{last[2:]}")]
        sdk = "import sys; from aistore.sdk import Client; len(Client(sys.argv[1]).bucket('many').list_all_objects())"
        peers = [Peer("tar2tf inspect, one of all", [ours]), limit("AIStore's SDK, list", python("-c", sdk, url))]
        bench.race(f"store-listing: {count:,} objects in AIStore, wanted within 3 s", peers)
        bench.cpu("tar2tf", ours)


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


def _race(bench: Bench, title: str, data: Dataset, environment: Command, bucket: str, others: Sequence[Peer]) -> None:
    """Race with those that only fetch, and with conversions that read or write for free, or hardly do anything."""
    ours = [*environment, *_convert(bench.out, bucket, data)]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        free = [
            Peer("tar2tf, from disk", [_convert(bench.out, data.directory, data)]),
            Peer("tar2tf, to memory", [[*environment, *_convert(Path(memory), bucket, data)]]),
            Peer("tar2tf, one sample", [[*environment, *_convert(bench.out, bucket, data, "--limit", "1")]]),
        ]
        bench.race(title, [Peer("tar2tf convert -j 2", [ours], writes=data.payload), *others, *free], data)
    bench.cpu("tar2tf", ours)
    bench.cpu("the first other", others[0].commands[0])
    peak = bench.peak(ours)
    print(f"  memory of the largest process {peak / 1e6:,.0f} MB, wanted {MOST_MEMORY / 1e6:.0f} MB")


def _convert(out: Path, bucket: str | Path, data: Dataset, *options: str) -> Command:
    names = _pattern(data, "{{{}..{}}}")
    limits = ("--max-shard-size", "32MB", "-j", "2", "-q", "--overwrite")
    return tar2tf("convert", bucket, names, "-o", out / "train-<>.record", *limits, *options)


def _http_server(folder: Path, files: Path, port: int) -> Command:
    """The command of a server of files: nginx with one worker, as installed from a distribution, if it is there."""
    nginx = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
    if nginx is None:
        return python(PEERS / "http_server.py", files, str(port))
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = " ".join(f"{kind}_temp_path {folder / kind};" for kind in kinds)
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; error_log {folder}/log; events {{}} http {{ {paths} access_log off;"
        f" sendfile on; keepalive_requests 100000; server {{ listen 127.0.0.1:{port}; root {files}; }} }}"
    )
    return [nginx, "-c", folder / "nginx.conf", "-e", folder / "log"]


def _then_sync(bench: Bench, script: str) -> Command:
    return ["sh", "-c", f"{script} && sync {bench.out}/*"]


def _curl(bench: Bench, url: str, data: Dataset, processes: int) -> Command:
    """So many processes of curl, each of which fetches its part of the files; then sync."""
    each = -(-len(data.files) // processes)
    names = " ".join(f"{url}/{file.name}" for file in data.files)
    fetch = f"xargs -P{processes} -n{each} curl -sSfL --create-dirs --output-dir {bench.out} --remote-name-all"
    return _then_sync(bench, f"echo {names} | {fetch}")
