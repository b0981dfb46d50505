"""Check of a tar to its end: headers, samples, entry names, end of the archive; and of shards of further formats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from types import ModuleType

from tar2tf_cli.api.shard_format import ShardFormat
from tar2tf_cli.api.source import SampleFault
from tar2tf_cli.api.values import KEY, Batch, KeySplit, Sample
from tar2tf_cli.checking.checks import custom_checks
from tar2tf_cli.checking.faults import Amount, Expectations, Fault, FileReport
from tar2tf_cli.checking.files import unbatched_samples
from tar2tf_cli.checking.values import CheckedUnit, Faults, NamedValue, decoded, value_checker
from tar2tf_cli.errors import DamagedShardError, SampleError
from tar2tf_cli.formats.example import delimited_name
from tar2tf_cli.formats.files import whole_sample
from tar2tf_cli.formats.streams import iter_resuming
from tar2tf_cli.inputs.open_shard import OpenShard
from tar2tf_cli.inputs.tar_samples import TarRules, TarSamples
from tar2tf_cli.samples.keys import key_of


def check_tar(
    shard: OpenShard, rules: TarRules, report: FileReport, expectations: Expectations, *, decoders: int = 0
) -> None:
    """Read every byte of a tar, as any may be unreadable, and add faults and counts to the report.

    Args:
        shard: the tar.
        rules: the rules for reading it.
        report: the report of the file.
        expectations: the entries that samples may and must have.
        decoders: number of threads that decode images and arrays; 0 if they are not to be decoded.

    Raises:
        SourceError: when the file cannot be read for reasons other than damage.
    """

    def note(error: SampleFault) -> None:
        kind, what = ("duplicate_key", error.member) if error.member else ("half_sample", f"sample {error.key}")
        report.add(Fault(error.kind or kind, f"{what}: {error.message}", None, error.offset, key=error.key))

    own = custom_checks("check_sample")
    names = EntryNames(report, expectations)
    every = decoders or own or report.keys  # then samples are processed one by one
    rules = rules._replace(sizes_only=not (decoders or own), every_byte=True)
    with closing(TarSamples(shard, rules, note)) as tar:

        def fits(batch: Batch, native: ModuleType) -> bool:
            fitting = names.count_fitting(batch)
            report.records += len(batch) if fitting else 0
            return fitting

        def samples() -> Iterator[CheckedUnit]:
            for stored in unbatched_samples(tar, report.add_damage, None if every else fits):
                report.records += 1
                names.check(stored, tar.offset)
                if report.keys and not (decoders or own):
                    yield CheckedUnit({}, (), stored[KEY], 0, tar.offset)
                elif decoders or own:
                    sample, faults = _in_memory(stored)
                    faults = faults or [fault for check in own for fault in check(sample)]
                    yield CheckedUnit(sample, faults, stored[KEY], 0, tar.offset)

        for checked in decoded(samples(), _entries, value_checker(report, decoders), decoders):
            for kind, message in checked.faults:
                report.add(Fault(kind, f"sample {checked.key}: {message}", None, checked.offset, key=checked.key))
            if report.keys:
                report.keys.good.append(checked.key)
        if tar.must_regroup:
            report.must_regroup = True
            return
        report.features.update(names.counts())
        report.examined = not report.faults
        _check_end(tar, report)
    report.good = Amount(report.records, report.bytes)


def _check_end(tar: TarSamples, report: FileReport) -> None:
    report.not_adjacent = tar.not_adjacent
    try:
        tar.check_end()
    except DamagedShardError as error:
        report.add_damage(error, more=True)
    if tar.archives > 1:
        report.notes.append(f"holds {tar.archives} archives end to end; all were read")
    if tar.lacking:
        report.notes.append(tar.lacking)


def _in_memory(stored: Sample) -> tuple[Sample, Faults]:
    """Return a sample with all values in memory, or its faults."""
    try:
        return whole_sample(stored), []
    except SampleError as error:
        return {}, [("undecodable", f"{error.member} {error.message}")]


def _entries(sample: Sample) -> list[NamedValue]:
    return [(name, data) for name, data in sample.items() if name != KEY]


class EntryNames:
    """Checks and counts the names of the entries of samples.

    Args:
        report: receives the faults.
        expectations: the names that samples may and must have.
    """

    def __init__(self, report: FileReport, expectations: Expectations) -> None:
        self._report = report
        self._expectations = expectations
        self._samples: Counter[tuple[str, ...]] = Counter()
        self._misfits: dict[tuple[str, ...], Faults] = {}

    def check(self, sample: Sample, offset: int) -> None:
        """Report faults in a sample's entry names."""
        names = tuple(sample)
        if names not in self._misfits:
            self._misfits[names] = [*self._find(names)]
        self._samples[names] += 1
        for kind, what in self._misfits[names]:
            self._report.add(Fault(kind, f"sample {sample[KEY]}{what}", None, offset, key=sample[KEY]))

    def count_fitting(self, batch: Batch) -> bool:
        """Count the entry names of a batch; return False, without counting, if any has a fault."""
        counts = batch.count_names()
        for names in counts.keys() - self._misfits.keys():
            self._misfits[names] = [*self._find(names)]
        if any(self._misfits[names] for names in counts):
            return False
        self._samples += counts
        return True

    def counts(self) -> Mapping[str, int]:
        """Return the number of samples with each entry."""
        counts: Counter[str] = Counter()
        for names, samples in self._samples.items():
            counts.update(dict.fromkeys(names, samples))
        return counts

    def _find(self, names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        schema, required = self._expectations.schema, self._expectations.required
        for name in names:
            if schema is not None and name not in schema:
                yield "schema", f" has an entry {name!r}, which is not in the manifest"
        if missing := sorted(required.difference(names)):
            yield "schema", f" lacks {', '.join(map(repr, missing))}, which all others have"
        for name in names:
            try:
                delimited_name(name)  # raises an error for a name that no feature can have
            except SampleError as error:
                yield "name", f": {error.message}"


# --- Shards of any other format, unit by unit through its interface ---


def check_units(
    shard: OpenShard, kind: ShardFormat, key_split: KeySplit, report: FileReport, expectations: Expectations
) -> None:
    """Read every unit of a shard, and add faults and counts to the report.

    Args:
        shard: the shard.
        kind: its format.
        key_split: the dot at which the names of members are split into key and extension.
        report: the report of the file.
        expectations: the entries that samples may and must have.

    Raises:
        SourceError: when the file cannot be read for reasons other than damage.
    """
    reader, names = kind.units(shard.content, shard.name), EntryNames(report, expectations)
    own = custom_checks("check_sample")

    def samples() -> Iterator[tuple[int, Sample]]:
        for offset, unit in reader:
            number, report.records = report.records, report.records + 1
            try:
                sample = kind.sample(unit, shard.name, key_split)
            except SampleError as error:
                report.add(Fault(error.kind or "not_an_example", error.message, number, offset))
            else:
                yield offset, sample | {KEY: key_of(sample) or f"record {number}"}

    for offset, sample in iter_resuming(samples, reader.resume, report.add_damage):
        names.check(sample, offset)
        for kind_of_fault, message in (fault for check in own for fault in check(sample)):
            report.add(
                Fault(kind_of_fault, f"sample {sample[KEY]}: {message}", report.records - 1, offset, key=sample[KEY])
            )
    report.features.update(names.counts())
    report.examined = not report.faults
    report.good = Amount(report.records, report.bytes)
