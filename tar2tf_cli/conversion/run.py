"""A whole conversion: plans it, runs its tasks on an engine, and has the shards published in order."""

from __future__ import annotations

import contextlib
from collections import Counter

from tar2tf_cli.conversion.manifest import Manifest
from tar2tf_cli.conversion.plan import Plan, make_plan
from tar2tf_cli.conversion.publish import Publisher
from tar2tf_cli.conversion.schedule import ConversionSchedule
from tar2tf_cli.conversion.takeover import Claim
from tar2tf_cli.conversion.tally import Summary, Tally
from tar2tf_cli.conversion.targets import DeviceTarget, StreamTarget, Target
from tar2tf_cli.conversion.tasks import Worker
from tar2tf_cli.engines import cpu_count, make_engine
from tar2tf_cli.engines.loop import run_tasks
from tar2tf_cli.events import Events
from tar2tf_cli.sinks import open_sink
from tar2tf_cli.spec.conversion import Conversion
from tar2tf_cli.spec.output_path import STDOUT, PathTemplate
from tar2tf_cli.stores import Source, endpoint_for

__all__ = ["Summary", "convert"]


def convert(
    conversion: Conversion,
    *,
    workers: int | None = None,
    overwrite: bool = False,
    endpoint: str | None = None,
    events: Events | None = None,
    source: Source | None = None,
    target: Target | None = None,
) -> Summary:
    """Convert shards to TFRecord; the output does not depend on the number of workers.

    Args:
        conversion: what to convert, and how.
        workers: how many processes work at once; as many as there are CPUs when None.
        overwrite: replace files that this conversion did not write.
        endpoint: where the store of the bucket answers; of the output, too, when both are of one kind.
        events: hears of progress.
        source: where the inputs are; goes by the conversion's bucket when None.
        target: where shards go, without a manifest; goes by the output path when None.

    Returns:
        What was written; the manifest beside the shards says the same.

    Raises:
        Tar2tfError: whatever went wrong; the same call continues where this one stopped.
    """
    events = events or Events()
    plan = make_plan(conversion, endpoint=endpoint, source=source)
    readers = min(workers or cpu_count(), max(len(plan.inputs), 2))
    beside = int(readers > 1 and plan.source.remote)  # writes shards, so that no reader has to stop for it
    engine = make_engine(readers + beside)
    manifest = plan.manifest()
    with target or _target(plan, manifest, overwrite, endpoint, events) as target:
        if target.up_to_date:
            return _finished_before(target.up_to_date, target.manifest)
        worker = Worker(plan.work, plan.source, plan.inputs, target.folder, plan.threads(workers or cpu_count()))
        worker.direct = not (target.reads_shards or conversion.output.index)
        tally = Tally(plan, events)
        with contextlib.closing(ConversionSchedule(plan, worker, readers, target, tally, events)) as schedule:
            run_tasks(schedule, engine, worker)
        tally.fill_in(manifest)
        tally.summary.shards = target.finish(manifest, plan.documents(tally.described))
        tally.summary.manifest = target.manifest
    return tally.summary


def _target(plan: Plan, manifest: Manifest, overwrite: bool, endpoint: str | None, events: Events) -> Target:
    """Where a conversion's shards go, by its output path."""
    conversion = plan.conversion
    path = conversion.output.path
    if path == STDOUT:
        return StreamTarget()
    if conversion.output.is_stream:
        return DeviceTarget(path)
    sink = open_sink(path, endpoint=endpoint_for(path, conversion.input.bucket, endpoint))
    claim = Claim(
        PathTemplate.parse(sink.inside(conversion.output.template.text)),
        sink,
        manifest.identity(),
        inputs=plan.source.paths(plan.inputs),
        documents=[sink.inside(name) for name in plan.documents()],
        overwrite=overwrite,
        resumable=plan.source.repeatable,
    )
    return Publisher(claim, events, lanes=list(conversion.split) or [item.stem for item in plan.inputs])


def _finished_before(manifest: Manifest, path: str | None) -> Summary:
    """What a conversion came to that was finished before."""
    return Summary(
        path,
        len(manifest.inputs),
        manifest.shards,
        manifest.records,
        sum(shard.bytes for shard in manifest.shards),
        skipped=Counter(manifest.skipped["members"]),
        skipped_samples=manifest.skipped["samples"],
        features=manifest.features,
        up_to_date=True,
    )
