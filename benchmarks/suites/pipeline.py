"""The Python `Pipeline` compared with the command, both with one worker."""

from __future__ import annotations

from benchmarks.bench import Bench, Peer, Target, python, scenario, tar2tf
from benchmarks.data import DISTINCT, PEERS, SHARDS
from benchmarks.suites.core import c_loop


@scenario
def pipeline(bench: Bench) -> None:
    """Pipeline and `convert -j 1`: a quarter of the JPEG samples, then the small ones, to one file and to shards."""
    whole = bench.store.jpeg()
    jpeg = whole.first(SHARDS // DISTINCT)
    for title, data in (("pipeline, jpeg", jpeg), ("pipeline, small", bench.store.small())):
        tars = [path.name for path in data.files]
        out = bench.out / "train-<>.record"
        one, shards = (
            python(PEERS / "pipeline_script.py", path, *data.files) for path in (bench.out / "one.record", out)
        )
        command = tar2tf("convert", data.directory, *tars, "-o", out, "-j", "1", "-q", "--overwrite")
        peers = [
            Peer("Pipeline", [one], None, data.payload, data.samples),
            Peer("tar2tf convert -j 1", [command], Target(1.3), data.payload),
            Peer("Pipeline to shards", [shards], None, data.payload, data.samples),
            c_loop(bench, data, processes=1),
        ]
        bench.race(title, peers, data)
