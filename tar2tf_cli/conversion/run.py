"""A whole conversion: plans it, runs its tasks on an engine, and publishes the shards in order."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any

from tar2tf_cli.conversion.existing import NO_MANIFEST, destination
from tar2tf_cli.conversion.manifest import Manifest
from tar2tf_cli.conversion.plan import Plan, make_plan
from tar2tf_cli.conversion.publish import Publisher
from tar2tf_cli.conversion.schedule import ConversionSchedule
from tar2tf_cli.conversion.sharding import Shard, ShardReport
from tar2tf_cli.conversion.spool import Part, SpoolIndex
from tar2tf_cli.conversion.tally import Summary, Tally
from tar2tf_cli.conversion.tasks import Worker
from tar2tf_cli.elsewhere import beside, place_of
from tar2tf_cli.engines import Place
from tar2tf_cli.engines.base import Engine, InOrder, MadeShard, RecordMaker, run_tasks
from tar2tf_cli.errors import UsageError
from tar2tf_cli.events import Events
from tar2tf_cli.ops.rules import workers as number_of
from tar2tf_cli.spec.conversion import Conversion
from tar2tf_cli.spec.output_path import STDOUT
from tar2tf_cli.spec.urls import is_remote
from tar2tf_cli.stores import Source

if TYPE_CHECKING:
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
    target: Target | None = None,
    engine: str = "local",
    address: str | None = None,
) -> Summary:
    """Convert shards to TFRecord; the output does not depend on the engine or the number of workers.

    Args:
        conversion: what to convert, and how.
        workers: number of worker processes, or of tasks at once; defaults to the number of CPUs.
        overwrite: replace files that this conversion did not write.
        update: bring the output of an earlier run up to date, of which inputs were added, removed or changed since:
            shards none of whose inputs changed are kept.
        remove_many: whether an update may remove more than half of the inputs.
        apart: leave a manifest of that name alone if it lists only other files, and write one with a name of its own.
        endpoint: URL of the store that holds the bucket; also used for the output if it is in the same kind of store.
        events: notified of progress.
        source: where the inputs are; defaults to the conversion's bucket.
        target: where shards go, without a manifest; defaults to the output path, with a manifest.
        engine: where the work is done: `local`, or `ray` for a Ray cluster.
        address: address of the Ray cluster; defaults to RAY_ADDRESS, then to the one that this machine is a node of.

    Returns:
        What was written, as recorded in the manifest beside the shards.

    Raises:
        Tar2tfError: when anything fails; the same call then continues where this one stopped.
    """
    workers = number_of(workers)
    if update and (target or conversion.output.is_stream):
        raise UsageError(NO_MANIFEST)
    events = events or Events()
    if engine != "local" and (conversion.remote_exec or conversion.etl):
        raise UsageError(
            f"--engine {engine} and --remote-exec each have other machines make the records: use one of them"
        )
    place = place_of(engine, address)
    plan = make_plan(conversion, endpoint=endpoint, source=source)
    for note in (note for op in conversion.ops for note in op.notes):
        events.note(note)
    if place.shared and not plan.source.abilities().repeatable:
        raise UsageError("cannot be read on other machines", shard=plan.source.bucket, hint="write it to a file first")
    target = target or _target(
        plan, events, endpoint=endpoint, overwrite=overwrite, update=update, remove_many=remove_many, apart=apart
    )
    with closing(place):
        if not place.shared:
            place = beside(plan.work, plan.source, plan.inputs, events) or place
        return _run(plan, target, place, workers, events)


def _run(plan: Plan, target: Target, place: Place, workers: int | None, events: Events) -> Summary:
    manifest = plan.manifest()
    with target:
        if target.up_to_date:
            return _finished_before(target.up_to_date, target.manifest)
        cpus = workers or place.cpus
        readers = plan.readers(cpus)
        writers = int(readers > 1 and plan.source.abilities().remote)  # so that no reader has to wait for a shard
        inputs = [path for path in plan.source.paths([plan.inputs[0], plan.inputs[-1]]) if not is_remote(path)]
        engine = place.engine(readers + writers, carries=target.reads_shards, inputs=inputs)
        tally = Tally(plan, events)
        with place.maker() as maker:
            if maker and _one_shard_each(plan.conversion) and target.store and maker.makes_shards_in(target.store):
                _make_shards(plan, maker, engine, target, tally, events)
            else:
                worker = _worker(plan, target, place, maker, cpus)
                with closing(ConversionSchedule(plan, worker, readers, target, tally, events)) as schedule:
                    run_tasks(schedule, engine, worker)
        tally.fill_in(manifest)
        tally.summary.shards = target.finish(manifest, plan.documents(tally.described))
        tally.summary.manifest = target.manifest
    return tally.summary


def _worker(plan: Plan, target: Target, place: Place, maker: RecordMaker | None, cpus: int) -> Worker:
    """The context of the tasks that read inputs and write shards."""
    output = plan.conversion.output
    direct = not (target.reads_shards or output.index)
    fills = direct and not (place.shared or output.compresses_shards)
    threads = place.threads(plan.threads(cpus))
    return Worker(plan.work, plan.source, plan.inputs, target.folder, threads, direct, fills, maker=maker)


def _one_shard_each(spec: Conversion) -> bool:
    """Whether each shard has the records of one input, all of them and nothing else."""
    output = spec.output
    limited = spec.limit is not None or output.is_limited or output.limit is not None
    changed = spec.shuffle or output.index or output.compression != "none"
    return output.template.fields == {"input"} and not (limited or changed)


def _make_shards(plan: Plan, maker: RecordMaker, engine: Engine, target: Target, tally: Tally, events: Events) -> None:
    """Have what makes the records store the shards under their final names, one for each input."""
    names, replaceable = target.final_names(plan.stems)
    shards = dict(zip(names, plan.inputs, strict=True))
    tasks, context = maker.shard_tasks(shards, target.store, replaceable, target.folder)

    def take(number: int, made: MadeShard) -> None:
        records = made.report.samples
        sizes = SpoolIndex([made.size] if made.size else [], [records] if made.size else [])
        tally.add_input(number, made.report)
        target.add_input(made.report, Part(number, sizes, 0, len(sizes.sizes)))
        if not made.size:
            return
        shard = Shard(plan.stems[number], 0, size=made.size, records=records)
        tally.add_shard(shard)
        tally.foresee(())
        tally.summary.bytes += made.size
        target.seal(shard, ShardReport(made.size, records, made.crc))

    events.planned(len(tasks), plan.size)
    where = [plan.source.locate(item.name) for item in plan.inputs]
    run_tasks(InOrder(tasks, where, take, events.progress), engine, context)


def _target(plan: Plan, events: Events, **options: Any) -> Target:
    """The target of a conversion's shards, chosen by its output path."""
    conversion = plan.conversion
    if conversion.output.is_stream:
        from tar2tf_cli.conversion.targets import DeviceTarget, StreamTarget

        path = conversion.output.path
        return StreamTarget() if path == STDOUT else DeviceTarget(path)
    return Publisher(destination(plan, **options), events)


def _finished_before(manifest: Manifest, path: str | None) -> Summary:
    """The summary of a conversion that an earlier run finished."""
    shards = [*manifest.shards]
    return Summary(
        path,
        len(manifest.inputs),
        shards,
        sum(shard.records for shard in shards),
        sum(shard.bytes for shard in shards),
        skipped=Counter(manifest.skipped["members"]),
        skipped_samples=manifest.skipped["samples"],
        lost=manifest.skipped.get("lost", []),
        features=manifest.features,
        up_to_date=True,
    )
