"""The samples of one input of any shard format, read unit by unit; TarSamples and RecordSamples know more of theirs."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

from tar2tf_cli.api.shard_format import ShardFormat
from tar2tf_cli.api.source import OnFault
from tar2tf_cli.api.values import KEY, Batch, KeySplit, Sample
from tar2tf_cli.errors import DamagedShardError, Location, SampleError
from tar2tf_cli.inputs.open_shard import OpenShard
from tar2tf_cli.inputs.record_samples import numbered
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.samples.keys import key_of


class UnitSamples:
    """Reads the samples of a shard by what its format says of units.

    Args:
        shard: the open shard.
        kind: its format.
        key_split: where the names of members are split into key and extension.
        fault: called with the error of each faulty sample; when it returns, the sample is skipped.
    """

    seekable = regroups = may_regroup = must_regroup = False
    count = None

    def __init__(self, shard: OpenShard, kind: ShardFormat, key_split: KeySplit, fault: OnFault) -> None:
        self._item = shard.item.name
        self._name = shard.name
        self._kind = kind
        self._key_split: KeySplit = key_split
        self._fault = fault
        self._units = kind.units(shard.content, shard.name)
        self._begin, self._count = 0, 0

    @property
    def offset(self) -> int:
        """The offset at which the current unit begins."""
        return self._begin

    def where(self) -> Location:
        """The number and the offset of the current unit."""
        return {"member": f"record {self._count - 1}", "offset": self._begin}

    def seek(self, offset: int) -> None:
        """Not supported: units are read from front to back."""
        raise NotImplementedError

    def samples(self, native: ModuleType | None = None) -> Iterator[Sample | Batch]:
        """Iterate over the samples, each under its key or, if it has none, the name of the shard and a number."""
        for begin, unit in self._units:
            self._begin = begin
            self._count += 1
            try:
                sample = self._kind.sample(unit, self._name, self._key_split)
            except SampleError as error:
                self._fault(error.at(**self.where()))
                continue
            key = key_of(sample)
            sample.pop(KEY, None)
            yield {KEY: numbered(self._item, self._count - 1) if key is None else key, **sample}

    def one_by_one(self, batch: Batch) -> Iterator[Sample]:
        """Not supported: units give no batches."""
        raise NotImplementedError

    def resume(self, error: DamagedShardError) -> bool:
        """Go on after damage; return whether there is more to read."""
        return self._units.resume(error)

    def check_end(self) -> None:
        """Refuse a shard without any unit, as it may have been cut short."""
        if not self._count:
            raise DamagedShardError("the shard holds no samples", kind="empty", hint="leave it out")

    def describe(self, report: InputReport) -> None:
        """Add nothing to the report."""

    def close(self) -> None:
        """Nothing but the stream is open, which its owner closes."""
