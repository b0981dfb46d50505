"""Conversions whose records are made inside an AIStore cluster, compared with those that fetch its shards."""

from __future__ import annotations

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from benchmarks.bench import Bench, Peer, limit, python, scenario, tar2tf
from benchmarks.data import PEERS, Dataset
from benchmarks.measure import ROOT, Command, run

sys.path.append(str(ROOT / "tests" / "helpers"))
from etl_cluster import EtlCluster, etl_cluster_in

SPECS = {
    "decode, resize to 224": "ops: [{decode: jpg}, {resize: {ext: jpg, size: [224, 224]}}, "
    "{cast: {ext: jpg, dtype: uint8}}, {encode: {ext: jpg, format: jpeg}}]\n",
    "stored as they are": "",
}


@scenario
def remote(bench: Bench) -> None:
    """Convert 8 tars of 30 MB from AIStore, with records made in the cluster (hpush) and here; bytes received."""
    data = bench.store.tars(8, 30)
    with tempfile.TemporaryDirectory(dir=bench.store.root) as folder, ExitStack() as stack:
        try:
            cluster = stack.enter_context(etl_cluster_in(Path(folder, "cluster")))
            stack.enter_context(cluster.network())
        except (FileNotFoundError, PermissionError) as error:
            print(f"\nremote: {error}")
            return
        bucket = cluster.bucket("bench")
        for file in data.files:
            bucket.object(file.name).get_writer().put_file(file)
        for title, ops in SPECS.items():
            spec = Path(folder, "spec.yaml")
            spec.write_text(f"{ops}input: {{bucket: 'ais://bench'}}\noutput: {{path: '{bench.out}/x-<>.record'}}\n")
            _race(bench, cluster, title, spec, data)


def _race(bench: Bench, cluster: EtlCluster, title: str, spec: Path, data: Dataset) -> None:
    environment = ["env", f"AIS_ENDPOINT={cluster.endpoint}"]
    ((made,),) = [run([[*environment, *tar2tf("etl", "init", "--spec", spec, "--json")]])[1]]

    def convert(*how: str) -> Command:
        return ["convert", "--spec", str(spec), "-q", "--overwrite", *how]

    there, here = convert("--remote-exec"), convert("--no-remote-exec")
    peers = [
        Peer("in the cluster", [[*environment, *tar2tf(*there, "-j", "2")]]),
        Peer("here", [[*environment, *tar2tf(*here, "-j", "2")]]),
    ]
    urls = [f"{cluster.endpoint}/v1/objects/bench/{file.name}" for file in data.files]
    keep = ["curl", "-sSfLZ", "--create-dirs", "--output-dir", str(bench.out), "--remote-name-all", *urls]
    peers.append(limit("curl -Z to the disk", keep, writes=data.payload))
    bench.race(f"remote, {title}", peers, data)
    for name, command in (("in the cluster", there), ("here", here)):
        counted = python(PEERS / "counted.py", *command, "-j", "1")
        ((found,),) = [run([[*environment, *counted]])[1]]
        print(f"  {name}: {found['received'] / 1e6:,.1f} MB received")
    run([[*environment, *tar2tf("etl", "delete", made["name"])]])
