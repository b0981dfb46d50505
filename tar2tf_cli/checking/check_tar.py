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
    from tar2tf_cli.flow.sample_flow import Placed


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
    from tar2tf_cli.checking.undecodable import Values
    from tar2tf_cli.flow.sample_flow import work_in_threads

    seen = Values()

    def samples() -> Iterator[Placed]:
        for stored in tar.samples():
            key, sample = stored.pop(KEY), {}
            try:
                sample = whole_sample(stored)
                faults = seen.odd(sample.items())
            except SampleError as error:
                faults = [("undecodable", f"{error.member} {error.message}")]
            yield {} if faults else sample, key, {"offset": tar.grouper.offset, "faults": faults}

    for faults, key, place in work_in_threads(samples(), lambda sample: [seen.undecodable(sample.items())], threads):
        report.records += 1
        for kind, message in place["faults"] or faults:
            report.add(Fault(kind, f"sample {key}: {message}", None, place["offset"]))
    report.not_decoded.update(seen.unknown)
