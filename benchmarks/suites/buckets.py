"""Tars in a bucket on the loopback to TFRecord on the local disk."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import requests

from benchmarks.bench import Bench, Peer, Target, limit, python, scenario, tar2tf
from benchmarks.data import PEERS, Dataset
from benchmarks.measure import Command
from servers import ais_cluster, end, free_ports, moto_server, wait_for

AS_FAST_AS_CURL = Target(1 / 0.85)
S3_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
}


@scenario
def bucket_ais(bench: Bench) -> None:
    """Convert the JPEG samples from AIStore (a proxy, two targets)."""
    data = bench.store.jpeg()
    with tempfile.TemporaryDirectory(dir=bench.store.root) as folder:
        try:
            cluster = ais_cluster(Path(folder))
            url = cluster.__enter__()
        except (FileNotFoundError, PermissionError) as error:
            print(f"\nbucket-ais: {error}")
            return
        try:
            fill_ais(url, data)
            convert = ["env", f"AIS_ENDPOINT={url}", *command(bench, "ais://bench", data)]
            race(bench, "bucket-ais", convert, data, f"{url}/v1/objects/bench")
        finally:
            cluster.__exit__(None, None, None)


@scenario
def bucket_http(bench: Bench) -> None:
    """Convert the JPEG samples from an HTTP server at the speed of the loopback."""
    from_http(bench, "bucket-http")


@scenario
def bucket_link(bench: Bench) -> None:
    """Convert the JPEG samples from an HTTP server behind a link of 2.5 Gbit/s."""
    from_http(bench, "bucket-link", "312.5e6")


def from_http(bench: Bench, title: str, *rate: str) -> None:
    data = bench.store.jpeg()
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    server = subprocess.Popen([sys.executable, PEERS / "http_server.py", data.directory, str(port), *rate])
    try:
        wait_for(lambda: requests.head(f"{url}/{data.files[0].name}", timeout=2).ok, server)
        race(bench, title, command(bench, url, data), data, url)
    finally:
        end(server)


@scenario
def dataset_far(bench: Bench) -> None:
    """`Dataset(...).load(...)` of 8 tars of 1 MB from an HTTP server that answers after half a second."""
    data = bench.store.tars(8, 1)
    (port, far) = free_ports(2)
    server = subprocess.Popen(python(PEERS / "http_server.py", data.directory, str(port)))
    link = subprocess.Popen(python(PEERS / "slow_link.py", str(far), str(port), "500"))
    try:
        for one, process in ((port, server), (far, link)):
            wait_for(lambda one=one: requests.head(f"http://127.0.0.1:{one}/{data.files[0].name}").ok, process)
        urls = [f"http://127.0.0.1:{far}/{file.name}" for file in data.files]
        peers = []
        for workers in (8, 4, 1):
            load = python(PEERS / "dataset_load.py", f"tar2tf-{workers}", "64", *urls)
            peers.append(Peer(f"num_workers={workers}", [load], records=data.samples))
        fetch = ["curl", "-sSfLZ", *(word for url in urls for word in ("-o", "/dev/null", url))]
        peers.append(limit("curl -Z to /dev/null", fetch))
        bench.race("dataset-far, with 8 wanted within 1.5 s", peers)
    finally:
        end(link)
        end(server)


@scenario
def bucket_s3(bench: Bench) -> None:
    """Convert the JPEG samples from S3 (moto), compared with fetching them first."""
    data = bench.store.jpeg()
    if not shutil.which("aws"):
        print("\nbucket-s3: aws is not installed (pip install awscli), so there is nothing to compare with")
        return
    with moto_server() as url:
        environment = [f"{name}={value}" for name, value in {**S3_ENVIRONMENT, "AWS_ENDPOINT_URL": url}.items()]
        fill_s3(url, data)
        ours = Peer(
            "tar2tf convert -j 2", [["env", *environment, *command(bench, "s3://bench", data)]], None, data.payload
        )
        fetched = bench.out / "fetched"
        obstore = python(PEERS / "obstore_copy.py", "fetch", "bench", bench.out)
        script = 'aws s3 cp --quiet --recursive s3://bench "$1" && shift && exec "$@"'
        local = command(bench, fetched, data)
        theirs = Peer(
            "aws s3 cp, then convert", [["env", *environment, "sh", "-c", script, "sh", fetched, *local]], Target(1)
        )
        get = limit("obstore to the disk, 8 threads", ["env", *environment, *obstore], writes=data.payload)
        bench.race("bucket-s3", [ours, theirs, get], data)


def race(bench: Bench, title: str, convert: Command, data: Dataset, url: str) -> None:
    """Compare with curl to /dev/null and to disk, and with a conversion from disk."""
    fetch = ["curl", "-sSfLZ"]
    for file in data.files:
        fetch += ["-o", "/dev/null", f"{url}/{file.name}"]
    keep = ["curl", "-sSfLZ", "--create-dirs", "--output-dir", str(bench.out)]
    for file in data.files:
        keep += ["-O", f"{url}/{file.name}"]
    bench.race(
        title,
        [
            Peer("tar2tf convert -j 2", [convert], writes=data.payload),
            Peer("curl -Z to /dev/null", [fetch], AS_FAST_AS_CURL),
            limit("curl -Z to the disk", keep, writes=data.payload),
            Peer("tar2tf convert, from disk", [command(bench, data.directory, data)], writes=data.payload),
        ],
        data,
    )


def command(bench: Bench, bucket: str | Path, data: Dataset) -> Command:
    names = f"train-{{0000..{len(data.files) - 1:04}}}.tar"
    limits = ("--max-shard-size", "100MB", "-j", "2", "-q", "--overwrite")
    return tar2tf("convert", bucket, names, "-o", bench.out / "train-<>.record", *limits)


def fill_ais(url: str, data: Dataset) -> None:
    from aistore.sdk import Client

    bucket = Client(url).bucket("bench").create()
    for file in data.files:
        bucket.object(file.name).get_writer().put_file(file)


def fill_s3(url: str, data: Dataset) -> None:
    import boto3

    client: Any = boto3.client(
        "s3",
        endpoint_url=url,
        aws_access_key_id=S3_ENVIRONMENT["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=S3_ENVIRONMENT["AWS_SECRET_ACCESS_KEY"],
        region_name=S3_ENVIRONMENT["AWS_DEFAULT_REGION"],
    )
    client.create_bucket(Bucket="bench")
    for file in data.files:
        client.put_object(Bucket="bench", Key=file.name, Body=file.read_bytes())
