"""Checks a tar: its members are whole and form samples, and it ends as a tar does."""

from __future__ import annotations

from tar2tf_cli.checking.faults import Amount, Fault, FileReport
from tar2tf_cli.errors import DamagedShardError, SampleError
from tar2tf_cli.formats.tar import TarReader
from tar2tf_cli.inputs.open_shard import OpenShard, TarRules
from tar2tf_cli.samples.grouping import Grouper, no_samples

__all__ = ["check_tar"]


def check_tar(shard: OpenShard, rules: TarRules, report: FileReport) -> None:
    """Read every byte of a tar, as any of them may be unreadable; fill in the report's faults and numbers.

    Raises:
        SourceError: when the file cannot be read for reasons other than damage.
    """

    def note(error: SampleError) -> None:
        kind, place = ("duplicate_key", error.member) if error.member else ("half_sample", f"sample {error.key}")
        report.add(Fault(error.kind or kind, f"{place}: {error.message}", None, error.offset))

    tar = TarReader(shard, shard.name, headers_only=True, need_end=not rules.ignore_missing_end)
    grouper = Grouper(shard.name, note, key_split=rules.key_split, regroup=rules.regroup, sizes_only=True)
    tar.links = links = shard.links(grouper, sizes_only=True)
    try:
        for _ in grouper.samples(tar):
            report.records += 1
        report.examined = True
    except DamagedShardError as error:
        report.add(damage(error))
    finally:
        links.close()
    if grouper.empty:
        report.add(damage(no_samples(tar.skipped + grouper.skipped), last=False))
    report.good = Amount(report.records, report.bytes)


def damage(error: DamagedShardError, *, last: bool = True) -> Fault:
    """An error as a fault; with `last`, nothing after it can be read."""
    member = f"{error.member}: " if error.member else ""
    rest = "; the rest of the file cannot be read" if last and error.kind != "truncated" else ""
    return Fault(error.kind, f"{member}{error.message}{rest}", None, error.offset)
