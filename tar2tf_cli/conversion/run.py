"""`convert`: plans a conversion, runs its tasks on an engine, and publishes the shards in order."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

from tar2tf_cli.api.backend import Backend, Engine, RecordMaker, StoredShard
from tar2tf_cli.api.source import Source
from tar2tf_cli.conversion.output_state import NO_MANIFEST, destination
from tar2tf_cli.conversion.plan import Plan, joined_to, make_plan
from tar2tf_cli.conversion.publish import Publisher, Summary, Tally
from tar2tf_cli.conversion.schedule import ConversionSchedule
from tar2tf_cli.conversion.sharding import PlannedShard, ShardReport
from tar2tf_cli.conversion.spool import InputUnits, SpoolIndex, Strata
from tar2tf_cli.conversion.worker import TaskInputs, Worker
from tar2tf_cli.engines.base import OrderedTasks, run_tasks
from tar2tf_cli.errors import UsageError
from tar2tf_cli.events import Events
from tar2tf_cli.features.described import notes_on_shapes
from tar2tf_cli.inputs.manifest import Manifest
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.ops.rules import workers as number_of
from tar2tf_cli.remote import backend_of, cluster_backend
from tar2tf_cli.spec.conversion import Conversion
from tar2tf_cli.spec.templates import STDOUT
from tar2tf_cli.spec.urls import is_remote

if TYPE_CHECKING:
    from tar2tf_cli.api.store import Store
    from tar2tf_cli.conversion.targets import Target


def convert(
    conversion: Conversion,
    *,
    workers: int | None = None,
    overwrite: bool = False,
    update: bool = False,
    remove_many: bool = False,
    apart: bool = False,
    endpoint: str | None = None,
    events: Events | None = None,
    source: Source | None = None,
    paths: bool = False,
    target: Target | None = None,
    engine: str = "local",
    address: str | None = None,
) -> Summary:
    """Convert shards to TFRecord; the output does not depend on the engine or the number of workers.

    Args:
        conversion: the conversion.
        workers: number of worker processes, or of concurrent tasks; defaults to the number of CPUs.
        overwrite: overwrite existing output.
        update: convert only what changed since the last run, and keep shards whose inputs have not changed.
        remove_many: whether an update may remove more than half of the inputs.
        apart: choose another name for the manifest if a manifest of other files has its usual name, as `train.record`
            and `train-<>.record` have the same one; by default, the output is then refused.
        endpoint: URL of the store that holds the bucket; also used for the output if it is in the same kind of store.
        events: notified of progress.
        source: a `tar2tf_cli.stores.Source`, which lists and opens the inputs; by default, the source of the
            conversion's bucket.
        paths: whether bucket and templates of the input are files and folders of their own, if all of them exist.
        target: a `tar2tf_cli.conversion.targets.Target`, which receives the finished shards; by default, they are
            written to the output path, with a manifest next to them.
        engine: `local` to convert on this machine, or `ray` for a Ray cluster.
        address: address of the Ray cluster; defaults to RAY_ADDRESS, then to the cluster of this machine.

    Returns:
        A summary of the written shards, as recorded in the manifest next to them.

    Raises:
        Tar2tfError: when anything fails; the same call then continues where this one stopped.

    >>> convert(Conversion("shards", "all/x-<>.record", types="cls=int64"), workers=1).records
    24
    """
    workers = number_of(workers)
    if update and (target or conversion.output.is_stream):
        raise UsageError(NO_MANIFEST)
    events = events or Events()
    if engine != "local" and (conversion.remote_exec or conversion.etl):
        raise UsageError(f"--engine {engine} and --remote-exec cannot be combined: use one of them")
    backend = backend_of(engine, address)
    plan = make_plan(conversion, endpoint=endpoint, source=source, paths=paths)
    if backend.shared and not plan.source.capabilities.repeatable:
        raise UsageError("cannot be read on other machines", shard=plan.source.bucket, hint="write it to a file first")
    target = target or _target(
        plan, events, endpoint=endpoint, overwrite=overwrite, update=update, remove_many=remove_many, apart=apart
    )
    with closing(backend), plan.joined():
        if not backend.shared:
            backend = cluster_backend(plan.work, plan.source, plan.inputs, events) or backend
        return _run(plan, target, backend, workers, events, endpoint)


def _run(
    plan: Plan, target: Target, backend: Backend, workers: int | None, events: Events, endpoint: str | None
) -> Summary:
    manifest = plan.manifest()
    with target:
        for note in plan.notes():
            events.note(note)
        if target.up_to_date:
            return _finished_before(target.up_to_date, target.manifest)
        for joined in plan.joins:
            joined.prepare()
        cpus = workers or backend.cpus
        readers = plan.readers(cpus)
        writers = int(readers > 1 and plan.source.capabilities.remote)  # so that no reader must wait for a shard
        inputs = [path for path in plan.paths([*plan.inputs[:1], *plan.inputs[-1:]]) if not is_remote(path)]
        engine = partial(backend.engine, carries=target.reads_shards, inputs=inputs)
        strata: Strata = {}
        if plan.needs_first_pass:
            plan, strata = _first_pass(plan, target, backend, cpus, partial(engine, readers), events)
        manifest.labels.update(plan.label_maps)
        made = target.manifest or ""
        again = not is_remote(made) and os.path.exists(made)
        tally = Tally(plan, events, again=again)
        with backend.maker() as maker:
            store = target.store
            if maker and _one_shard_each(plan.conversion) and store and maker.makes_shards_in(store):
                _make_shards(plan, maker, store, engine(readers + writers), target, tally, events)
            else:
                worker = _worker(plan, target, backend, maker, cpus)
                worker.inputs.strata = strata
                with closing(ConversionSchedule(plan, worker, readers, target, tally, events)) as schedule:
                    run_tasks(schedule, engine(readers + writers), worker)
        if plan.conversion.limit is not None and (size := plan.size) is not None:  # inputs may be left unread
            events.progress(size)
        for joined, now in zip(plan.joins, joined_to(plan.conversion, endpoint), strict=True):
            joined.check(now)
        tally.fill_in(manifest)
        tally.summary.shards = target.finish(manifest, partial(plan.documents, tally.described))
        tally.summary.manifest, tally.summary.labels = target.manifest, plan.labels
    return tally.summary


def _first_pass(
    plan: Plan, target: Target, backend: Backend, cpus: int, engine: Callable[[], Engine], events: Events
) -> tuple[Plan, Strata]:
    """Read the inputs for what decides about all samples: forms of features, label maps, and the shares of splits."""
    from tar2tf_cli.conversion.first_pass import find_strata, run_first_pass, with_forms, with_labels

    find = partial(run_first_pass, engine=engine, events=events)
    plan = with_forms(plan, partial(find, partial(_worker, plan, target, backend, None, cpus)))
    first_pass = partial(find, partial(_worker, plan, target, backend, None, cpus))
    plan = with_labels(plan, target.folder, first_pass)
    return plan, find_strata(plan, target.folder, first_pass)


def _worker(plan: Plan, target: Target, backend: Backend, maker: RecordMaker | None, cpus: int) -> Worker:
    """Make the context of the tasks that read inputs and write shards."""
    output = plan.conversion.output
    direct = not (target.reads_shards or output.index)
    fills = direct and not (backend.shared or output.compresses_shards)
    threads = backend.threads(plan.threads(cpus))
    shards = plan.shards
    inputs = TaskInputs(plan.work, shards.source, shards.items, plan.joins, shards.described, maker, shards.stems)
    inputs.forms, inputs.group_lanes = plan.forms, plan.group_lanes
    return Worker(inputs, target.folder, threads, direct, fills)


def _one_shard_each(spec: Conversion) -> bool:
    """Whether each shard has exactly the records of one input."""
    output = spec.output
    limited = spec.limit is not None or output.is_limited or output.limit is not None
    changed = spec.shuffle or output.index or output.compression != "none"
    return output.template.fields == {"input"} and not (limited or changed)


def _make_shards(
    plan: Plan, maker: RecordMaker, store: Store, engine: Engine, target: Target, tally: Tally, events: Events
) -> None:
    """Let the record maker store the shards under their final names, one for each input."""
    names, replaceable = target.final_names(plan.stems)
    shards = dict(zip(names, plan.inputs, strict=True))
    tasks, context = maker.shard_tasks(shards, store, replaceable, target.folder)

    def take(number: int, made: StoredShard[InputReport]) -> None:
        records = made.report.samples
        sizes = SpoolIndex([made.size] if made.size else [], [records] if made.size else [])
        tally.add_input(number, made.report)
        target.add_input(made.report, InputUnits(number, sizes, 0, len(sizes.sizes)))
        if not made.size:
            return
        shard = PlannedShard(plan.stems[number], 0, size=made.size, records=records)
        tally.add_shard(shard)
        tally.warn_of_growth(())
        tally.summary.bytes += made.size
        target.seal(shard, ShardReport(made.size, records, made.crc))

    events.planned(len(tasks), plan.size)
    where = [plan.source.locate(item.name) for item in plan.inputs]
    run_tasks(OrderedTasks(tasks, where, take, events.progress), engine, context)


def _target(plan: Plan, events: Events, **options: Any) -> Target:
    """Return the target for a conversion's shards, chosen by the output path."""
    conversion = plan.conversion
    if conversion.output.is_stream:
        from tar2tf_cli.conversion.targets import DeviceTarget, StreamTarget

        path, end = conversion.output.path, conversion.output.traits.end
        return StreamTarget(end=end) if path == STDOUT else DeviceTarget(path, end)
    return Publisher(destination(plan, **options), events)


def _finished_before(manifest: Manifest, path: str | None) -> Summary:
    """Make the summary of a conversion that an earlier run finished."""
    return Summary(
        path,
        len(manifest.inputs),
        [*manifest.shards],
        manifest.records,
        manifest.totals["bytes"],
        skipped=Counter(manifest.skipped["members"]),
        skipped_samples=manifest.skipped["samples"],
        filtered=Counter(manifest.skipped.get("asked", {})),
        boxes=Counter(manifest.skipped.get("boxes", {})),
        keys_missing=manifest.skipped.get("keys_missing", []),
        gaps=manifest.skipped.get("gaps", []),
        joined=manifest.joined,
        lost=manifest.skipped.get("lost", []),
        features=manifest.features,
        up_to_date=True,
        shapes=notes_on_shapes(manifest.features, manifest.spec),
    )
