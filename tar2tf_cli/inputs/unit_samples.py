"""The samples of an input in any shard format, read unit by unit through the format's interface."""

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
    """Reads the samples of a shard through its format's interface for units.

    Args:
        shard: the open shard.
        kind: its format.
        key_split: the dot at which the names of members are split into key and extension.
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
        """The offset of the current unit."""
        return self._begin

    def where(self) -> Location:
        """Return number and offset of the current unit."""
        return {"member": f"record {self._count - 1}", "offset": self._begin}

    def seek(self, offset: int) -> None:
        """Raise an error: units are read in order."""
        raise NotImplementedError

    def samples(self, native: ModuleType | None = None) -> Iterator[Sample | Batch]:
        """Iterate over the samples; one without a key gets the name of its shard and a number."""
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
        """Raise an error: units give no batches."""
        raise NotImplementedError

    def resume(self, error: DamagedShardError) -> bool:
        """Continue after damage; return whether there is more to read."""
        return self._units.resume(error)

    def check_end(self) -> None:
        """Refuse a shard without units, as it may have been truncated."""
        if not self._count:
            raise DamagedShardError("the shard holds no samples", kind="empty", hint="leave it out")

    def describe(self, report: InputReport) -> None:
        """Do nothing: there are no statistics to report."""

    def close(self) -> None:
        """Do nothing: the owner of the stream closes it."""
