"""The op resample, which changes the rate of sound."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from tar2tf_cli.api.op import OpContext
from tar2tf_cli.api.values import Sample
from tar2tf_cli.errors import SampleError, UsageError
from tar2tf_cli.ops.base import DeclaredOp, register
from tar2tf_cli.ops.rules import Rule, text, whole_number
from tar2tf_cli.structs import dataclass


@register
@dataclass(frozen=True)
class Resample(DeclaredOp):
    """Resample decoded sound to another rate.

    The sound is float32 (samples, channels), as `decode` makes it, and EXT/sample_rate becomes the new rate. It needs
    the extra `audio`, and the result equals that of `soxr.resample` with high quality.

    >>> parse_op("resample:wav,16000") == Resample("wav", 16000)
    True
    """

    name = "resample"
    usage = "resample:EXT,RATE"
    examples = ("resample:wav,16000",)
    releases_gil = True
    by_name = True
    checks: ClassVar[Mapping[str, Rule[object]]] = {"ext": text, "rate": whole_number(1, 10_000_000)}

    ext: str
    rate: int

    def apply(self, sample: Sample, context: OpContext) -> Sample:
        """Return the sample with the sound at the new rate.

        Raises:
            SampleError: when the entry is not decoded sound.
            UsageError: when the package soxr is not installed.
        """
        sound, known = self.entry(sample, self.ext), f"{self.ext}/sample_rate"
        if getattr(sound, "ndim", 0) not in (1, 2) or sound.dtype.kind != "f":
            hint = f"add --op decode:{self.ext} before it"
            raise SampleError(f"resample: entry {self.ext!r} is not decoded sound", hint=hint)
        before = int(self.entry(sample, known))
        if before != self.rate:
            try:
                import soxr
            except ImportError:
                hint = "pip install 'tar2tf-cli[audio]'"
                raise UsageError("resample needs the package soxr", hint=hint) from None
            sample[self.ext] = soxr.resample(sound, before, self.rate)
        sample[known] = self.rate
        return sample
