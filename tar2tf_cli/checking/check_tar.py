"""Checks a tar: its members are whole and form samples, and it ends as a tar does."""

from __future__ import annotations

from contextlib import closing

from tar2tf_cli.checking.faults import Amount, Fault, FileReport
from tar2tf_cli.errors import DamagedShardError, SampleError
from tar2tf_cli.inputs.open_shard import OpenShard
from tar2tf_cli.inputs.tar_samples import TarRules

__all__ = ["check_tar"]


def check_tar(shard: OpenShard, rules: TarRules, report: FileReport) -> None:
    """Read every byte of a tar, as any of them may be unreadable; fill in the report's faults and numbers.

    Raises:
        SourceError: when the file cannot be read for reasons other than damage.
        NotAdjacentError: when the check must begin again with `regroup`.
    """

    def note(error: SampleError) -> None:
        kind, place = ("duplicate_key", error.member) if error.member else ("half_sample", f"sample {error.key}")
        report.add(Fault(error.kind or kind, f"{place}: {error.message}", None, error.offset))

    with closing(shard.samples(rules, note, sizes_only=True, every_byte=True)) as tar:
        try:
            for _ in tar.samples():
                report.records += 1
            report.examined = True
        except DamagedShardError as error:
            report.add(damage(error))
        report.not_adjacent = tar.not_adjacent
        try:
            tar.check_end()
        except DamagedShardError as error:
            report.add(damage(error, last=False))
    report.good = Amount(report.records, report.bytes)


def damage(error: DamagedShardError, *, last: bool = True) -> Fault:
    """An error as a fault; with `last`, nothing after it can be read."""
    member = f"{error.member}: " if error.member else ""
    rest = "; the rest of the file cannot be read" if last and error.kind != "truncated" else ""
    return Fault(error.kind, f"{member}{error.message}{rest}", None, error.offset)
