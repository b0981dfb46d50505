"""Checks a tar: its members are whole and form samples, and it ends as a tar does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from tar2tf_cli.checking.faults import Amount, Fault, FileReport, damage
from tar2tf_cli.errors import DamagedShardError, SampleError
from tar2tf_cli.formats.stored import whole_sample
from tar2tf_cli.inputs.open_shard import OpenShard
from tar2tf_cli.inputs.tar_samples import TarRules, TarSamples
from tar2tf_cli.samples.names import KEY

if TYPE_CHECKING:
    from tar2tf_cli.checking.decode import Faults, Value

__all__ = ["check_tar"]


def check_tar(shard: OpenShard, rules: TarRules, report: FileReport, *, decoders: int = 0) -> None:
    """Read every byte of a tar, as any of them may be unreadable; fill in the report's faults and numbers.

    Args:
        shard: the tar.
        rules: how it is read.
        report: the report of the file.
        decoders: number of threads that decode images and arrays; 0 if they are not to be decoded.

    Raises:
        SourceError: when the file cannot be read for reasons other than damage.
        NotAdjacentError: when the check must begin again with `regroup`.
    """

    def note(error: SampleError) -> None:
        kind, place = ("duplicate_key", error.member) if error.member else ("half_sample", f"sample {error.key}")
        report.add(Fault(error.kind or kind, f"{place}: {error.message}", None, error.offset))

    with closing(shard.samples(rules, note, sizes_only=not decoders, every_byte=True)) as tar:
        try:
            if decoders:
                _decode_samples(tar, report, decoders)
            else:
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


def _decode_samples(tar: TarSamples, report: FileReport, threads: int) -> None:
    from tar2tf_cli.checking.decode import Values, in_threads

    seen = Values()

    def placed() -> Iterator[tuple[int, str, list[Value], Faults]]:
        for sample in tar.samples():
            key = sample.pop(KEY)
            try:
                values = list(whole_sample(sample).items())
                yield tar.grouper.offset, key, values, seen.odd(values)
            except SampleError as error:
                yield tar.grouper.offset, key, [], [("undecodable", f"{error.member} {error.message}")]

    for (offset, key, *_), faults in in_threads(placed(), lambda item: item[3] or seen.undecodable(item[2]), threads):
        report.records += 1
        for kind, message in faults:
            report.add(Fault(kind, f"sample {key}: {message}", None, offset))
    report.not_decoded.update(seen.unknown)
