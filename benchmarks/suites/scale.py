"""The work of the first process for each shard of a conversion, from a thousand shards to a million."""

from __future__ import annotations

import json
import shutil
import subprocess
import time

from benchmarks.bench import Bench, Peer, limit, python, scenario, tar2tf
from benchmarks.data import PEERS
from benchmarks.suites.core import cat

MEGABYTE = 1_000_000


@scenario
def ones(bench: Bench) -> None:
    """Convert 10,000 tars of one sample of 4 kB, from the disk."""
    data = bench.store.ones(10_000, 4_000)
    convert = tar2tf("convert", data.directory, "-o", bench.out / "train-<>.record", "-q")
    bench.race(
        "ones",
        [
            Peer("tar2tf convert -j 2", [[*convert, "-j", "2"]], writes=data.payload),
            Peer("tar2tf convert -j 1", [[*convert, "-j", "1"]], writes=data.payload),
            limit("cat, then sync FILE", cat(bench, data, sync=True), writes=data.payload),
        ],
        data,
    )


@scenario
def shards(bench: Bench) -> None:
    """Conduct 1,000 to 1,000,000 inputs, each a shard: a made-up listing, tasks that do nothing, no shard written."""
    print("\nshards: listing made up, tasks return at once, no shard written; CPU time of the conductor")
    print(f"  {'':<10}{'plan':>18}{'run, per shard':>26}{'continue':>10}{'manifest':>19}".rstrip())
    for count in (1_000, 10_000, 100_000, 1_000_000):
        count = round(count * bench.store.scale)
        shutil.rmtree(bench.out, ignore_errors=True)
        bench.out.mkdir(parents=True)
        done = subprocess.run(
            python(PEERS / "conductor.py", str(count), bench.out), stdout=subprocess.PIPE, check=True, text=True
        )
        found = json.loads(done.stdout)
        plan = f"{found['plan_seconds']:.2f} s {found['plan_bytes'] / MEGABYTE:,.0f} MB"
        each = f"{found['run_seconds'] / count * 1e6:,.0f} us {found['run_bytes'] / count:,.0f} bytes"
        load = f"{found['manifest_seconds']:.2f} s of {found['manifest_bytes'] / MEGABYTE:,.0f} MB"
        print(f"  {count:<10,}{plan:>18}{each:>26}{found['resume_seconds']:>8.2f} s{load:>19}")
        print(f"  {'':<10}limit: a list of as many dicts to JSON and back: {_json_seconds(count):.2f} s", flush=True)
    shutil.rmtree(bench.out)


def _json_seconds(count: int) -> float:
    """CPU seconds of writing and reading the least that a manifest says of each shard."""
    begin = time.process_time()
    shards = [{"path": f"train-{number:07}.record", "records": 1, "bytes": 100} for number in range(count)]
    json.loads(json.dumps(shards))
    return time.process_time() - begin
