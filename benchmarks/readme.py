"""`python -m benchmarks readme`: the table in README.md, from one run of the scenarios and peers that it names."""

from __future__ import annotations

import datetime
import os
import platform
import re
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from benchmarks.bench import SCENARIOS, Bench, Times
from benchmarks.measure import ROOT

BEGIN, END = "<!-- python -m benchmarks readme -->\n", "<!-- end -->\n"
SYNC: Final = "cat, then sync FILE"
GO: Final = "go-tfdata, two goroutines"
TF_MAP: Final = "tf.data map, AUTOTUNE"
TF_EPOCH: Final = "TFRecordDataset, parse_example"


class Row(NamedTuple):
    """A row of the table.

    Attributes:
        job: its text.
        table: title of the table that it is from.
        peers: those that tar2tf is compared with, and their names in the row.
        ours: the peer that is tar2tf, if not the first.
        imports: whether imports count.
    """

    job: str
    table: str
    peers: dict[str, str]
    ours: str = ""
    imports: bool = True


ROWS: Final = (
    Row("1.7 GB of JPEG, tar to TFRecord", "jpeg", {SYNC: "`cat` and `sync`"}),
    Row("1.7 GB of JPEG, to other TFRecords", "records-jpeg", {"tfrecord writer": "`tf.data` and a `TFRecordWriter`"}),
    Row("1.7 GB of JPEG, to other tars", "tars-jpeg", {"webdataset shards": "`webdataset` and its `ShardWriter`"}),
    Row("80,000 small samples, tar to TFRecord", "small",
        {"webdataset script": "`webdataset` and a `TFRecordWriter`", GO: "go-tfdata"}),
    Row("80,000 small records, to other shards", "records-small",
        {"tfrecord writer": "`tf.data` and a `TFRecordWriter`", GO: "go-tfdata"}),
    Row("80,000 small samples, to other tars", "tars-small",
        {"webdataset shards": "`webdataset` and its `ShardWriter`"}),
    Row("80,000 small samples, each with a caption joined from a CSV file", "join",
        {"dict script": "a script with a dict, tarfile and `TFRecordWriter`"}),
    Row("check 80,000 records", "verify-small",
        {"TFRecordDataset, loop": "a loop over `TFRecordDataset`", "TFRecordDataset, batches": "counting its batches"}),
    Row("decode JPEG, short side to 224", "short", {TF_MAP: "`tf.data` with `AUTOTUNE`"}),
    Row("decode JPEG, padded to 224x224", "pad", {TF_MAP: "`tf.data` with `AUTOTUNE`"}),
    Row("decode PNG masks, resize by nearest", "nearest", {TF_MAP: "`tf.data` with `AUTOTUNE`"}),
    Row("an epoch of 80,000 small records in `tf.data`", "epoch", {TF_EPOCH: "`TFRecordDataset` and `parse_example`"},
        imports=False),
    Row("the same without TensorFlow, `open_records().batches()`", "epoch", {TF_EPOCH: "`TFRecordDataset`"},
        "open_records().batches()", imports=False),
    Row("an epoch of 4,000 JPEG, decoded, 224x224", "epoch-jpeg", {TF_EPOCH: "`TFRecordDataset` and `parse_example`"},
        imports=False),
)  # fmt: skip
RUN: Final = ("jpeg", "records-jpeg", "tars-jpeg", "small", "records-small", "tars-small", "join", "verify-small",
    "sizes", "masks", "epoch", "epoch-jpeg")  # fmt: skip


def readme(bench: Bench, *, write: bool) -> None:
    """Run what the table needs, and print the table; with `write`, if all ran, put it into README.md."""
    only: dict[str, set[str]] = {}
    for row in ROWS:
        only.setdefault(row.table, set()).update({*row.peers, row.ours})
    bench.only = only
    for name in RUN:
        SCENARIOS[name](bench)
    text = "\n".join([conditions(bench), "", "| job | tar2tf is | the limit |", "|---|---|---|", *lines_of(bench), ""])
    print(f"\n{text}")
    if write and not bench.failures:
        path = ROOT / "README.md"
        before, _, rest = path.read_text().partition(BEGIN)
        path.write_text(f"{before}{BEGIN}{text}{END}{rest.partition(END)[2]}")


def conditions(bench: Bench) -> str:
    """What the times were measured on."""
    found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    cpu = found[1] if found else platform.machine()
    cores, linux = len(os.sched_getaffinity(0)), ".".join(platform.release().split(".")[:2])
    return (
        f"{datetime.date.today():%B %Y}: {cores} cores of {cpu}, {memory:.0f} GiB, Linux {linux}, Python "
        f"{platform.python_version()}; medians of {bench.rounds} rounds, inputs in the page cache, at a scale of "
        f"{bench.store.scale:g}."
    )


def lines_of(bench: Bench) -> list[str]:
    return [f"| {row.job} | {compared(row, bench)} | {limits(row, bench)} |" for row in ROWS]


def compared(row: Row, bench: Bench) -> str:
    """How fast tar2tf is, compared with each of the peers that ran."""
    table = bench.results[row.table]
    ours = seconds(table[row.ours or next(iter(table))], row.imports)
    found = [(name, seconds(table[peer], row.imports)) for peer, name in row.peers.items() if peer in table]
    return ", ".join(ratio(ours, theirs, name) for name, theirs in found if ours and theirs)


def limits(row: Row, bench: Bench) -> str:
    """How far tar2tf is from the limits of the scenario."""
    table = bench.results[row.table]
    ours = seconds(table[row.ours or next(iter(table))], row.imports)
    bare = {name.removeprefix("limit: "): times for name, times in table.items() if name.startswith("limit: ")}
    found = ((name, seconds(times, row.imports)) for name, times in bare.items())
    return "; ".join(f"{ours / took:.1f}x {name}" for name, took in found if took)


def seconds(times: Times, imports: bool) -> float:
    found = times.whole if imports else times.imported or times.whole
    return median(found) if found else 0.0


def ratio(ours: float, theirs: float, name: str) -> str:
    times, what = (theirs / ours, "fast") if theirs > ours else (ours / theirs, "long")
    shown = f"{float(f'{times:.2g}'):g}"
    return f"as {what} as {name}" if shown == "1" else f"{shown} times as {what} as {name}"
