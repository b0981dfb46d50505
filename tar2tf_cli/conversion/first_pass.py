"""Passes over all inputs before the conversion's own pass: for forms of features, texts of labels, and strata.

Each input is one task of a pass. The results, except for the forms, are kept in the working folder for a continued run.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial, reduce
from itertools import accumulate, dropwhile
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from tar2tf_cli.api.backend import Engine, Task
from tar2tf_cli.api.op import Op
from tar2tf_cli.conversion.plan import Plan
from tar2tf_cli.conversion.spool import Strata
from tar2tf_cli.conversion.worker import Worker
from tar2tf_cli.conversion.working_folder import format_entry, parse_entry
from tar2tf_cli.engines.base import OrderedTasks, run_tasks
from tar2tf_cli.events import Events
from tar2tf_cli.features.feature_map import AUTO
from tar2tf_cli.flow.sample_flow import InputFlow, ReadOptions, context_of, feature_map_of
from tar2tf_cli.flow.select import group_in, stratum_in
from tar2tf_cli.flow.transform import Transform
from tar2tf_cli.formats.checksums import hash64
from tar2tf_cli.formats.files import write_whole
from tar2tf_cli.spec.conversion import Conversion
from tar2tf_cli.structs import NamedTuple, replace

if TYPE_CHECKING:
    from tar2tf_cli.inputs.record_samples import Forms

T = TypeVar("T")


_LABELS_FILE: Final = "labels"
"""Name of the file in the working folder with the texts of labels, for a run that continues."""

_STRATA_FILE: Final = "strata"
"""Name of the file in the working folder with the strata of `--stratify`, for a run that continues.
"""

FirstPass: TypeAlias = Callable[[Callable[[int], Task], Callable[[int, Any], None]], None]
"""A function that runs a task for each input, given its number, and passes number and result on, in input order."""


def run_first_pass(
    make_worker: Callable[[], Worker],
    task_of: Callable[[int], Task],
    take: Callable[[int, object], None],
    *,
    engine: Callable[[], Engine],
    events: Events,
) -> None:
    """Run a pass over all inputs before the conversion's own.

    Args:
        make_worker: makes the context of the tasks.
        task_of: makes the task of an input, given its number.
        take: called with the number of each input and its result, in input order.
        engine: makes the engine that runs the tasks.
        events: notified of progress.
    """
    worker = make_worker()
    inputs = worker.inputs
    tasks, where = map(task_of, range(len(inputs.items))), [*map(inputs.name, range(len(inputs.items)))]
    sizes = [item.size for item in inputs.items]
    events.planned(len(where), None if None in sizes else sum(size or 0 for size in sizes))
    run_tasks(OrderedTasks([*tasks], where, take, events.progress), engine(), worker)


def with_forms(plan: Plan, first_pass: FirstPass) -> Plan:
    """Return a plan with the forms of features, for which several TFRecords are read if no manifest describes them."""
    if not plan.undescribed:
        return plan
    from tar2tf_cli.inputs.record_samples import Forms  # imported here, as most inputs are tars

    found: list[Forms] = []
    first_pass(partial(FindInInput, find_forms), lambda number, forms: found.append(forms))
    return plan._replace(forms=reduce(Forms.joined, found))


def with_labels(plan: Plan, folder: str, first_pass: FirstPass) -> Plan:
    """Return a plan in which every feature with labels has a label map; for `auto`, all inputs are read.

    Args:
        plan: the plan.
        folder: the working folder, in which the texts are kept for a continued run.
        first_pass: reads all inputs.
    """
    names = [name for name, labels in plan.conversion.labels.items() if labels == AUTO]
    if not names:
        return plan
    path = os.path.join(folder, _LABELS_FILE)
    texts: Mapping[str, list[str]] | None = _saved(path)
    if texts is None:
        texts_of: TextsByFeature = {name: set() for name in names}

        def take(number: int, some: TextsByFeature) -> None:
            for name in names:
                texts_of[name] |= some[name]

        first_pass(partial(FindInInput, find_texts), take)
        texts = {name: sorted(some) for name, some in texts_of.items()}
        write_whole(path, [format_entry(texts)], lasting=False)
    from tar2tf_cli.features.labels import LabelMap

    first = plan.conversion.first_label
    return plan._replace(labels={name: LabelMap.of(some, first) for name, some in texts.items()})


def find_strata(plan: Plan, folder: str, first_pass: FirstPass) -> Strata:
    """Return the hashes at which splits end for each value of `--stratify`, for which all inputs are read.

    Args:
        plan: the plan.
        folder: the working folder, in which these hashes are kept for a continued run.
        first_pass: reads all inputs.
    """
    if not plan.conversion.stratify:
        return {}
    path = os.path.join(folder, _STRATA_FILE)
    strata: Strata | None = _saved(path)
    if strata is None:
        hashes: Hashes = {}

        def take(number: int, some: Hashes) -> None:
            for value, more in some.items():
                hashes.setdefault(value, array("Q")).extend(more)

        first_pass(partial(FindInInput, find_hashes), take)
        strata = {value: split_points(some, plan.conversion.split.values()) for value, some in sorted(hashes.items())}
        write_whole(path, [format_entry(strata)], lasting=False)
    return strata


def split_points(hashes: Collection[int], fractions: Iterable[float]) -> list[int]:
    """Return the hashes at which each fraction but the first begins, so that hashes are divided into such fractions.

    >>> split_points([40, 10, 30, 20], [0.5, 0.25, 0.25])
    [30, 40]
    """
    ordered = [*sorted(hashes), 1 << 64]
    return [ordered[round(end * len(hashes))] for end in [*accumulate(fractions)][:-1]]


def _saved(path: str) -> Any:
    """Load the results of a pass that an interrupted run saved; None if they are missing or damaged."""
    with suppress(FileNotFoundError, ValueError), open(path, "rb") as file:
        return parse_entry(file.read())
    return None


# --- The tasks ---


class FindInInput(NamedTuple):
    """Finds something in one input, before the conversion's own pass.

    Attributes:
        find: returns it, given the worker and the input's number.
        number: the input's number in the plan.
    """

    find: Callable[[Worker, int], object]
    number: int

    def needs_folder(self, worker: Worker) -> bool:
        """Whether the task needs files of other tasks: never."""
        return False

    def run(self, worker: Worker) -> object:
        """Return what was found.

        Raises:
            UsageError: when no sample of the first input has a feature.
            SampleError: when a sample is faulty, and such samples are not skipped.
            SourceError: when the input cannot be read.
        """
        return self.find(worker, self.number)


def find_forms(worker: Worker, number: int) -> Forms:
    """Return the forms of the features in an input that no manifest describes; none if the input is no TFRecord."""
    from tar2tf_cli.inputs.record_samples import Forms, forms_in  # imported here, as most inputs are tars

    item = worker.inputs.items[number]
    return Forms() if item.name in worker.inputs.described else forms_in(worker.inputs.source, item)


TextsByFeature: TypeAlias = dict[str, set[str]]
"""Texts by feature."""


def find_texts(worker: Worker, number: int) -> TextsByFeature:
    """Return the label texts of the samples of an input that are not faulty, by feature."""
    spec = worker.conversion
    maps = {name: AUTO for name, labels in spec.labels.items() if labels == AUTO}
    transform = Transform(context_of(spec), _needed(spec), feature_map_of(replace(spec, labels=maps)).texts)

    def texts_in(reading: InputFlow) -> TextsByFeature:
        found: TextsByFeature = {name: set() for name in maps}
        for texts in reading.results(transform):
            for name, some in texts.items():
                found[name] |= some
        return found

    return _found(worker, number, texts_in) or {name: set() for name in maps}


Hashes: TypeAlias = dict[str, "array[int]"]
"""The hash of the key of each sample, by the value of `--stratify`."""


def find_hashes(worker: Worker, number: int) -> Hashes:
    """Return the key hashes of the samples of an input that are not faulty, by the value of `--stratify`."""
    transform = Transform(context_of(worker.conversion), _needed(worker.conversion))

    def hashes_in(reading: InputFlow) -> Hashes:
        found: Hashes = {}
        for key in reading.keys(transform):
            group, stratum = group_in(key), stratum_in(key)
            assert group is not None
            assert stratum is not None
            found.setdefault(stratum, array("Q")).append(hash64(group))
        return found

    return _found(worker, number, hashes_in) or {}


def _found(worker: Worker, number: int, find: Callable[[InputFlow], T]) -> T | None:
    """Apply a function to an input, again if it must be regrouped; None if the conversion skips the whole input."""
    found: T | None = None
    options = ReadOptions(threads=worker.threads, small=worker.inputs.is_small(number))
    for reading in worker.attempts(number, options):
        found = find(reading)
        if reading.is_unusable():
            found = None
    return found


def _needed(spec: Conversion) -> tuple[Op, ...]:
    """Return the ops up to the last one that changes more than images."""
    from tar2tf_cli.ops.select import flatten

    chosen = flatten(spec.select or {}).items()
    labelled = [name for name, labels in spec.labels.items() if labels == AUTO]
    sources = {item.ext_name for name, item in chosen if any(f"{label}/".startswith(f"{name}/") for label in labelled)}

    def only_pixels(op: Op) -> bool:
        own = f"{getattr(op, 'ext', '')}/"  # an npz file expands to entries of other names
        return op.releases_gil and not any(f"{source}/".startswith(own) for source in sources or labelled)

    kept: Iterator[Op] = dropwhile(only_pixels, reversed(spec.ops))
    return tuple(reversed([*kept]))
