"""Tars to TFRecord on Ray, by tar2tf or as a user of Ray Data writes it; the start of Ray is not timed.

python ray_script.py tar2tf|ray OUT TAR...
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import ray
import ray.data


def by_tar2tf(out: str, sources: list[str]) -> int:
    from tar2tf_cli import Conversion, Input, Output, convert

    template = "{" + ",".join(Path(path).name for path in sources) + "}"
    found = Input(str(Path(sources[0]).parent), (template,))
    return convert(Conversion(found, Output(f"{out}/train-<>.record")), engine="ray").records


def as_bytes(sample: dict[str, Any]) -> dict[str, bytes]:
    """What `write_tfrecords` takes: it refuses strings."""
    return {name: value if isinstance(value, bytes) else str(value).encode() for name, value in sample.items()}


def by_ray(out: str, sources: list[str]) -> int:
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    dataset = ray.data.read_webdataset(sources, decoder=False).map(as_bytes)
    dataset.write_tfrecords(out)
    return -1  # counted from the files


def records_in(out: str) -> int:
    from tar2tf_cli import open_records

    return sum(len(open_records(str(path), index_folder="")) for path in Path(out).rglob("*") if path.is_file())


def main(who: str, out: str, *sources: str) -> None:
    cpus = len(os.sched_getaffinity(0))
    ray.init("local", num_cpus=cpus, logging_level="ERROR", log_to_driver=False, include_dashboard=False)
    started = ray.remote(lambda: time.sleep(0.5))
    ray.get([started.remote() for _ in range(cpus)])
    begin = time.perf_counter()
    records = by_tar2tf(out, [*sources]) if who == "tar2tf" else by_ray(out, [*sources])
    seconds = time.perf_counter() - begin
    print(json.dumps({"records": records_in(out) if records < 0 else records, "seconds": seconds}))


main(*sys.argv[1:])
