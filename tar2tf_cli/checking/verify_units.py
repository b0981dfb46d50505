"""Check of a shard in any format to its end, unit by unit through the format's interface."""

from __future__ import annotations

from collections.abc import Iterator

from tar2tf_cli.api.shard_format import ShardFormat
from tar2tf_cli.api.values import KEY, KeySplit, Sample
from tar2tf_cli.checking.checks import custom_checks
from tar2tf_cli.checking.expectations import Expectations
from tar2tf_cli.checking.faults import Amount, Fault, FileReport, damage
from tar2tf_cli.checking.verify_tar import EntryNames
from tar2tf_cli.errors import DamagedShardError, SampleError
from tar2tf_cli.formats.streams import iter_resuming
from tar2tf_cli.inputs.open_shard import OpenShard
from tar2tf_cli.samples.keys import key_of


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
    reader, names, own = (
        kind.units(shard.content, shard.name),
        EntryNames(report, expectations),
        custom_checks("check_sample"),
    )

    def damaged(error: DamagedShardError, more: bool) -> None:
        report.add(damage(error, last=not more))
        report.cut = report.cut or not more

    def samples() -> Iterator[tuple[int, Sample]]:
        for offset, unit in reader:
            number, report.records = report.records, report.records + 1
            try:
                sample = kind.sample(unit, shard.name, key_split)
            except SampleError as error:
                report.add(Fault(error.kind or "not_an_example", error.message, number, offset))
            else:
                yield offset, sample | {KEY: key_of(sample) or f"record {number}"}

    for offset, sample in iter_resuming(samples, reader.resume, damaged):
        names.check(sample, offset)
        for kind_of_fault, message in (fault for check in own for fault in check(sample)):
            report.add(
                Fault(kind_of_fault, f"sample {sample[KEY]}: {message}", report.records - 1, offset, key=sample[KEY])
            )
    report.features.update(names.counts())
    report.examined = not report.faults
    report.good = Amount(report.records, report.bytes)
