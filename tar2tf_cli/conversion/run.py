"""A whole conversion: plans it, runs its tasks on an engine, and publishes the shards in order."""

from __future__ import annotations

import os
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing, suppress
from functools import partial, reduce
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tar2tf_cli.api.backend import Backend, Engine, RecordMaker, StoredShard, Task
from tar2tf_cli.api.source import Source
from tar2tf_cli.conversion.output_state import NO_MANIFEST, destination
from tar2tf_cli.conversion.plan import Plan, joined_to, make_plan
from tar2tf_cli.conversion.publish import Publisher, Summary, Tally
from tar2tf_cli.conversion.read_inputs import FindForms, FindStrata, FindTexts, Hashes, Texts
from tar2tf_cli.conversion.schedule import ConversionSchedule
from tar2tf_cli.conversion.sharding import PlannedShard, ShardReport
from tar2tf_cli.conversion.spool import InputUnits, SpoolIndex, Strata
from tar2tf_cli.conversion.worker import TaskInputs, Worker
from tar2tf_cli.conversion.working_folder import entry_of, line_of
from tar2tf_cli.engines.base import InOrder, run_tasks
from tar2tf_cli.errors import UsageError
from tar2tf_cli.events import Events
from tar2tf_cli.features.described import notes_on_shapes
from tar2tf_cli.features.labels import AUTO, LabelMap
from tar2tf_cli.formats.files import write_whole
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


_LABELS_FILE: Final = "labels"
"""The file in the working folder that has the texts of labels, which a run that continues need not find again."""

_STRATA_FILE: Final = "strata"
"""The file in the working folder that has what `--stratify` found, for the same reason."""


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
        conversion: what to convert, and how.
        workers: number of worker processes, or of tasks at once; defaults to the number of CPUs.
        overwrite: overwrite existing output.
        update: convert only what changed since the last run, and keep shards whose inputs have not changed.
        remove_many: whether an update may remove more than half of the inputs.
        apart: choose another name for the manifest if its usual one is taken by a manifest of other files, such as
            that of `train.record` for `train-<>.record`; by default, the output is then refused.
        endpoint: URL of the store that holds the bucket; also used for the output if it is in the same kind of store.
        events: notified of progress.
        source: an object that lists and opens the inputs, a `tar2tf_cli.stores.Source`; by default, that of the
            conversion's bucket.
        paths: whether bucket and templates of the input are files and folders of their own, if all of them exist.
        target: an object that receives the finished shards, a `tar2tf_cli.conversion.targets.Target`; by default, they
            go to the output path, with a manifest beside them.
        engine: where to convert: `local`, or `ray` for a Ray cluster.
        address: address of the Ray cluster; defaults to RAY_ADDRESS, then to the cluster of this machine.

    Returns:
        What was written, as recorded in the manifest beside the shards.

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
    place = backend_of(engine, address)
    plan = make_plan(conversion, endpoint=endpoint, source=source, paths=paths)
    if place.shared and not plan.source.capabilities().repeatable:
        raise UsageError("cannot be read on other machines", shard=plan.source.bucket, hint="write it to a file first")
    target = target or _target(
        plan, events, endpoint=endpoint, overwrite=overwrite, update=update, remove_many=remove_many, apart=apart
    )
    with closing(place), plan.joined():
        if not place.shared:
            place = cluster_backend(plan.work, plan.source, plan.inputs, events) or place
        return _run(plan, target, place, workers, events, endpoint)


def _run(
    plan: Plan, target: Target, place: Backend, workers: int | None, events: Events, endpoint: str | None
) -> Summary:
    manifest = plan.manifest()
    with target:
        for note in plan.notes():
            events.note(note)
        if target.up_to_date:
            return _finished_before(target.up_to_date, target.manifest)
        for joined in plan.joins:
            joined.prepare()
        cpus = workers or place.cpus
        readers = plan.readers(cpus)
        writers = int(readers > 1 and plan.source.capabilities().remote)  # so that no reader has to wait for a shard
        inputs = [path for path in plan.source.paths([*plan.inputs[:1], *plan.inputs[-1:]]) if not is_remote(path)]
        engine = partial(place.engine, carries=target.reads_shards, inputs=inputs)
        find = partial(_first_pass, engine=partial(engine, readers), events=events)
        plan = _with_forms(plan, partial(find, _worker(plan, target, place, None, cpus)))
        first_pass = partial(find, _worker(plan, target, place, None, cpus))
        plan = _with_labels(plan, target.folder, first_pass)
        strata = _strata(plan, target.folder, first_pass)
        manifest.labels.update(plan.label_maps)
        made = target.manifest or ""
        again = not is_remote(made) and os.path.exists(made)
        tally = Tally(plan, events, again=again)
        with place.maker() as maker:
            store = target.store
            if maker and _one_shard_each(plan.conversion) and store and maker.makes_shards_in(store):
                _make_shards(plan, maker, store, engine(readers + writers), target, tally, events)
            else:
                worker = _worker(plan, target, place, maker, cpus)
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


FirstPass: TypeAlias = Callable[[Callable[[int], Task], Callable[[int, Any], None]], None]
"""Runs a task for each input, given its number, and gives number and result to a function, in input order."""


def _first_pass(
    worker: Worker,
    task_of: Callable[[int], Task],
    take: Callable[[int, object], None],
    *,
    engine: Callable[[], Engine],
    events: Events,
) -> None:
    """Read all inputs before the conversion does."""
    inputs = worker.inputs
    tasks, where = map(task_of, range(len(inputs.items))), [*map(inputs.name, range(len(inputs.items)))]
    sizes = [item.size for item in inputs.items]
    events.planned(len(where), None if None in sizes else sum(size or 0 for size in sizes))
    run_tasks(InOrder([*tasks], where, take, events.progress), engine(), worker)


def _with_forms(plan: Plan, first_pass: FirstPass) -> Plan:
    """Return a plan with the forms of features that several TFRecords decide about; they are read for it."""
    if not plan.undescribed:
        return plan
    from tar2tf_cli.inputs.record_samples import Forms  # only here, as most inputs are tars

    found: list[Forms] = []
    first_pass(FindForms, lambda number, forms: found.append(forms))
    return plan._replace(forms=reduce(Forms.joined, found))


def _with_labels(plan: Plan, folder: str, first_pass: FirstPass) -> Plan:
    """Return a plan in which every feature with labels has a label map; for `auto`, all inputs are read.

    Args:
        plan: the plan.
        folder: the working folder, where texts that were found stay for a run that continues.
        first_pass: reads all inputs.
    """
    names = [name for name, labels in plan.conversion.labels.items() if labels == AUTO]
    if not names:
        return plan
    path = os.path.join(folder, _LABELS_FILE)
    texts: Mapping[str, list[str]] | None = _left(path)
    if texts is None:
        texts_of: Texts = {name: set() for name in names}

        def take(number: int, some: Texts) -> None:
            for name in names:
                texts_of[name] |= some[name]

        first_pass(FindTexts, take)
        texts = {name: sorted(some) for name, some in texts_of.items()}
        write_whole(path, [line_of(texts)], lasting=False)
    first = plan.conversion.first_label
    return plan._replace(labels={name: LabelMap.of(some, first) for name, some in texts.items()})


def _strata(plan: Plan, folder: str, first_pass: FirstPass) -> Strata:
    """Return the hashes at which splits end for each value of `--stratify`; for it, all inputs are read.

    Args:
        plan: the plan.
        folder: the working folder, where these hashes stay for a run that continues.
        first_pass: reads all inputs.
    """
    if not plan.conversion.stratify:
        return {}
    path = os.path.join(folder, _STRATA_FILE)
    strata: Strata | None = _left(path)
    if strata is None:
        hashes: Hashes = {}

        def take(number: int, some: Hashes) -> None:
            for value, more in some.items():
                hashes.setdefault(value, array("Q")).extend(more)

        first_pass(FindStrata, take)
        strata = {value: cuts(some, plan.conversion.split.values()) for value, some in sorted(hashes.items())}
        write_whole(path, [line_of(strata)], lasting=False)
    return strata


def cuts(hashes: Collection[int], fractions: Iterable[float]) -> list[int]:
    """Return the hashes that divide others into fractions of them: each but the first fraction begins with one.

    >>> cuts([40, 10, 30, 20], [0.5, 0.25, 0.25])
    [30, 40]
    """
    ordered = [*sorted(hashes), 1 << 64]
    return [ordered[round(end * len(hashes))] for end in [*accumulate(fractions)][:-1]]


def _left(path: str) -> Any:
    """Return the results of a first pass that an interrupted run saved; None if there are none, or damaged ones."""
    with suppress(FileNotFoundError, ValueError), open(path, "rb") as file:
        return entry_of(file.read())
    return None


def _worker(plan: Plan, target: Target, place: Backend, maker: RecordMaker | None, cpus: int) -> Worker:
    """The context of the tasks that read inputs and write shards."""
    output = plan.conversion.output
    direct = not (target.reads_shards or output.index)
    fills = direct and not (place.shared or output.compresses_shards)
    threads = place.threads(plan.threads(cpus))
    shards = plan.shards
    inputs = TaskInputs(plan.work, shards.source, shards.items, plan.joins, shards.described, maker, shards.stems)
    inputs.forms = plan.forms
    return Worker(inputs, target.folder, threads, direct, fills)


def _one_shard_each(spec: Conversion) -> bool:
    """Whether each shard has the records of one input, all of them and nothing else."""
    output = spec.output
    limited = spec.limit is not None or output.is_limited or output.limit is not None
    changed = spec.shuffle or output.index or output.compression != "none"
    return output.template.fields == {"input"} and not (limited or changed)


def _make_shards(
    plan: Plan, maker: RecordMaker, store: Store, engine: Engine, target: Target, tally: Tally, events: Events
) -> None:
    """Have the maker of records store the shards under their final names, one for each input."""
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

        path, end = conversion.output.path, conversion.output.traits.end
        return StreamTarget(end=end) if path == STDOUT else DeviceTarget(path, end)
    return Publisher(destination(plan, **options), events)


def _finished_before(manifest: Manifest, path: str | None) -> Summary:
    """The summary of a conversion that an earlier run finished."""
    return Summary(
        path,
        len(manifest.inputs),
        [*manifest.shards],
        manifest.records,
        manifest.totals["bytes"],
        skipped=Counter(manifest.skipped["members"]),
        skipped_samples=manifest.skipped["samples"],
        asked=Counter(manifest.skipped.get("asked", {})),
        boxes=Counter(manifest.skipped.get("boxes", {})),
        keys_missing=manifest.skipped.get("keys_missing", []),
        gaps=manifest.skipped.get("gaps", []),
        joined=manifest.joined,
        lost=manifest.skipped.get("lost", []),
        features=manifest.features,
        up_to_date=True,
        shapes=notes_on_shapes(manifest.features, manifest.spec),
    )
