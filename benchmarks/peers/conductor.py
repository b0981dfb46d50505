"""Conduct a conversion of many inputs whose tasks do nothing: `conductor.py INPUTS FOLDER`.

The listing is made up, a task returns at once what reading an input of one record would return, and no shard is
written. Plan, schedule, tally, journal, working folder and manifest are the real ones; each input becomes one shard.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from contextlib import closing
from typing import Any

from tar2tf_cli.__main__ import NEW_OBJECTS
from tar2tf_cli.api.backend import Outcome, Task
from tar2tf_cli.api.objects import ByteStream, ObjectInfo
from tar2tf_cli.api.source import Source
from tar2tf_cli.conversion.output_state import Destination
from tar2tf_cli.conversion.plan import Plan, make_plan
from tar2tf_cli.conversion.publish import Publisher, Tally
from tar2tf_cli.conversion.read_inputs import ReadInputs
from tar2tf_cli.conversion.schedule import ConversionSchedule
from tar2tf_cli.conversion.sharding import PlannedShard, ShardReport
from tar2tf_cli.conversion.spool import SpoolIndex
from tar2tf_cli.conversion.worker import InputGroup, TaskInputs, Worker
from tar2tf_cli.conversion.write_shard import WriteShard
from tar2tf_cli.engines.base import run_tasks
from tar2tf_cli.events import Events
from tar2tf_cli.inputs.manifest import Manifest
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.sinks.directory import DirectorySink
from tar2tf_cli.spec.conversion import Conversion, Output

NAMES = ("__key__", "cls", "jpg")
SIZE = 100_000_000


class Listing(Source):
    """A bucket of many tars that are not there."""

    bucket = "listing"
    remote = False

    def __init__(self, count: int) -> None:
        self.count_of_inputs = count

    def list(self, templates: object) -> list[ObjectInfo]:
        return [
            ObjectInfo(f"train/shard-{number:07}.tar", SIZE + number, f"{number:032x}")
            for number in range(self.count_of_inputs)
        ]

    def open(self, item: ObjectInfo) -> ByteStream:
        raise NotImplementedError

    def locate(self, name: str) -> str:
        return name


class NoStore(DirectorySink):
    """A folder that only keeps the manifest, and has each shard that is looked for."""

    def publish(self, part: str, path: str, *, replaces: bool = True) -> None:
        if path.endswith("manifest.json"):
            super().publish(part, path)

    def exists(self, path: str, *, now: bool = False) -> bool:
        return False

    def size(self, path: str) -> int | None:
        return SIZE + int(path[-len("0000000.record") :][:7]) if path.endswith(".record") else super().size(path)

    def part_size(self, part: str) -> int | None:
        return SIZE + int(part[-len("0000000-00000.part") :][:7])


class Unwritten(Publisher):
    """A publisher whose shards need not be flushed."""

    def unsynced(self, shard: PlannedShard) -> list[str]:
        return []


def publisher(plan: Plan) -> Unwritten:
    """What publishes a plan's shards."""
    return Unwritten(Destination(plan, NoStore()), Events())


class NoWork:
    """An engine whose tasks do nothing."""

    bytes_read = 0
    on_progress: Any = None

    def __init__(self) -> None:
        self._tasks: list[Task] = []

    @property
    def free(self) -> int:
        return 2 - len(self._tasks)

    @property
    def running(self) -> list[Task]:
        return self._tasks

    def start(self, context: object) -> None:
        """Nothing is started."""

    def submit(self, task: Task) -> None:
        self._tasks.append(task)

    def wait(self, timeout: float) -> list[Outcome]:
        tasks, self._tasks = self._tasks, []
        return [Outcome(task, result(task)) for task in tasks]

    def close(self) -> None:
        """Nothing was started."""


def result(task: Task) -> Any:
    """What a task would return."""
    if isinstance(task, WriteShard):
        return ShardReport(task.shard.size, task.shard.records, task.shard.number)
    assert isinstance(task, ReadInputs)
    group = InputGroup(task.numbers, SpoolIndex())
    for number in task.numbers:
        group.index.sizes.append(SIZE + number)
        group.index.offsets.append(0)
        report = InputReport(1)
        report.schema.signatures[NAMES] += 1
        group.add(report)
    return group


def memory() -> int:
    """Resident bytes of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def conduct(plan: Plan, *, finishes: bool) -> tuple[float, float]:
    """Run all tasks; seconds until the first, and until the last."""
    begun = time.process_time()
    with publisher(plan) as target:
        opened = time.process_time()
        tally = Tally(plan, Events())
        worker = Worker(TaskInputs(plan.work, plan.source, plan.inputs), target.folder)
        with closing(ConversionSchedule(plan, worker, 2, target, tally, Events())) as schedule:
            run_tasks(schedule, NoWork(), worker)  # type: ignore[arg-type]
        if finishes:
            manifest = plan.manifest()
            tally.fill_in(manifest)
            target.finish(manifest, lambda shards: {})
    return opened - begun, time.process_time() - begun


def main(count: int, folder: str) -> None:
    gc.set_threshold(NEW_OBJECTS)  # as the command does
    first, begun = memory(), time.process_time()
    plan = make_plan(Conversion("listing", Output(os.path.join(folder, "<input>.record"))), source=Listing(count))
    planned, planned_bytes = time.process_time() - begun, memory() - first
    opened, conducted = conduct(plan, finishes=False)
    conducted_bytes = memory() - first
    resumed, finished = conduct(plan, finishes=True)
    path = os.path.join(folder, "_manifest.json")
    begun = time.process_time()
    manifest = Manifest.load(path)
    loaded = time.process_time() - begun
    assert manifest is not None
    assert len(manifest.shards) == count
    print(
        json.dumps(
            {
                "inputs": count,
                "plan_seconds": planned + opened,
                "plan_bytes": planned_bytes,
                "run_seconds": conducted - opened,
                "run_bytes": conducted_bytes,
                "resume_seconds": resumed,
                "finish_seconds": finished,
                "manifest_bytes": os.path.getsize(path),
                "manifest_seconds": loaded,
            }
        )
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
