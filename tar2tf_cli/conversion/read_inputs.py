"""The task that reads inputs into an index of their records, and into a spool unless they are read again later."""

from __future__ import annotations

import os
from contextlib import ExitStack
from itertools import accumulate, islice
from typing import Final

from tar2tf_cli.api.values import RecordBatch
from tar2tf_cli.conversion.spool import Spool, SpoolIndex
from tar2tf_cli.conversion.worker import InputGroup, Worker, load_group, save_group
from tar2tf_cli.errors import Tar2tfError
from tar2tf_cli.flow.sample_flow import InputFlow, ReadOptions
from tar2tf_cli.formats.checksums import key_hash
from tar2tf_cli.formats.files import WholeFile, crc32c_of_file
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.structs import NamedTuple

_LARGE_RECORD: Final = 8192
_PROBE: Final = 16


class ReadInputs(NamedTuple):
    """Reads a group of inputs into an index of their records, and into a spool unless the inputs are read again later.

    Index and spool of an interrupted run are kept if they are intact. Several inputs of a remote bucket are
    fetched concurrently.

    Attributes:
        numbers: the inputs' numbers in the plan; the first one is also the number of the group.
    """

    numbers: tuple[int, ...]

    def needs_folder(self, worker: Worker) -> bool:
        """Whether the working folder has an index of these inputs, which an interrupted run saved."""
        return os.path.exists(worker.path(self.numbers[0], "index"))

    def run(self, worker: Worker) -> InputGroup:
        """Read the inputs up to the first error; the index is also saved for a later run."""
        group = self._made(worker)
        if worker.stores_indexes:
            group.index = SpoolIndex()
        return group

    def _made(self, worker: Worker) -> InputGroup:
        left = load_group(worker.path(self.numbers[0], "index"))
        if left and left.numbers == self.numbers and _has_spool(worker, left):
            return left
        group = measure_inputs(worker, self.numbers) or spool_inputs(worker, self.numbers)
        if group.reports:
            save_group(worker.new_path(group.number, "index"), group)
        return group


def _has_spool(worker: Worker, group: InputGroup) -> bool:
    """Whether a group's spool is intact, or removed because all its records are in finished shards."""
    path = worker.path(group.number, "spool")
    return group.spool_crc is None or not os.path.exists(path) or crc32c_of_file(path) == group.spool_crc


def _may_be_direct(worker: Worker, numbers: tuple[int, ...]) -> bool:
    """Whether records can be made twice at low cost, and each record's shard depends only on earlier records."""
    spec = worker.conversion
    light = spec.is_light and spec.output.compression == "none" and spec.on_error == "fail"
    if not (worker.inputs.source.capabilities.seekable and light) or spec.shuffle or spec.split or spec.input.regroup:
        return False
    if spec.drop_duplicates is not None:  # the digest of a sample needs its data
        return False
    return not any(map(worker.inputs.is_small, numbers))


def measure_inputs(worker: Worker, numbers: tuple[int, ...]) -> InputGroup | None:
    """Make the index of inputs without a spool; None if that is impossible, or would cost more than it saves."""
    group = InputGroup(numbers)
    try:
        if not _may_be_direct(worker, numbers) or not all(_measure(worker, number, group) for number in numbers):
            return None
    except Tar2tfError as error:
        if not group.reports:
            raise
        group.index.cut([sum(group.counts) if column else 0 for column in group.index.lengths])
        group.error = error
    return group


def _measure(worker: Worker, number: int, group: InputGroup) -> bool:
    """Add an input to a group without a spool, if it can be read by offset and its records are not small.

    If entries are stored unchanged, the headers alone give the sizes. Records of a TFRecord may be small if they are
    copied: they are checked here, and copied later.
    """
    limit = worker.conversion.limit
    options = ReadOptions(sizes_only=worker.conversion.keeps_entries, ahead=limit is not None)
    with worker.inputs.open(number, options) as reading:
        if not reading.seekable or reading.regroups:
            return False
        if group.reports and reading.copies != group.index.copied:
            return False
        group.index.copied = reading.copies
        if reading.copies:
            _add_copied(reading, group.index, limit)
        elif not _add_made(reading, group.index, limit):
            return False
    if reading.must_regroup:
        return False
    group.add(reading.report)
    return True


def _add_copied(reading: InputFlow, index: SpoolIndex, limit: int | None) -> None:
    """Add the records of an input that are copied unchanged and contiguously."""
    first = len(index.sizes)
    for batch in reading.batches():
        index.sizes.frombytes(batch.sizes)
        if limit is not None and len(index.sizes) - first >= limit:
            del index.sizes[first + limit :]
            break
    sizes = index.sizes[first:]
    index.offsets.extend(islice(accumulate(sizes, initial=0), len(sizes)))


def _add_made(reading: InputFlow, index: SpoolIndex, limit: int | None) -> bool:
    """Add the sizes of the records made from an input; return False if the records are small."""
    first = len(index.sizes)
    for size, key in islice(reading.sizes(), limit):
        index.sizes.append(size)
        index.offsets.append(reading.offset)
        index.keys.append(key_hash(key))
        if len(index.sizes) - first == _PROBE and sum(index.sizes[first:]) < _PROBE * _LARGE_RECORD:
            return False
    return True


def spool_inputs(worker: Worker, numbers: tuple[int, ...]) -> InputGroup:
    """Write the records of inputs to a spool, up to the first input with an error."""
    group = InputGroup(numbers)
    with ExitStack() as stack:
        if len(numbers) > 1:
            stack.enter_context(worker.inputs.prefetch(numbers))
        file = stack.enter_context(WholeFile(worker.new_path(group.number, "spool"), lasting=False))
        spool = Spool(worker.conversion, file, group.index, worker.inputs.strata)
        try:
            for number in numbers:
                group.add(_append(worker, number, spool))
        except Tar2tfError as error:
            if not group.reports:
                raise
            group.error = error
    group.spool_crc = file.crc
    return group


def _append(worker: Worker, number: int, spool: Spool) -> InputReport:
    """Append an input's records, or nothing after an error."""
    spec, item, mark = worker.conversion, worker.inputs.items[number], spool.mark()
    most = spec.limit_of_each
    options = ReadOptions(ahead=most is not None, small=worker.inputs.is_small(number), threads=worker.threads)
    try:
        for reading in worker.attempts(number, options):
            spool.begin(item.name)
            if most is None and spool.takes_batches:
                for made in reading.records_and_batches():
                    spool.add_batch(made) if isinstance(made, RecordBatch) else spool.add(*made)
            else:
                for record in islice(reading.records(), most):
                    spool.add(*record)
            if reading.must_regroup:
                spool.rewind(mark)
                continue
            if reading.is_unusable():
                spool.rewind(mark)
                spool.begin(item.name)
            spool.finish()
    except Tar2tfError:
        spool.rewind(mark)
        raise
    reading.report.sample_keys = spool.sample_keys
    return reading.report
