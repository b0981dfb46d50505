"""An op: text in capitals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tar2tf_cli.api.op import OpContext
from tar2tf_cli.api.values import Sample
from tar2tf_cli.ops.base import DeclaredOp, register
from tar2tf_cli.ops.rules import Rule, text


@register
@dataclass(frozen=True)
class Upper(DeclaredOp):
    """Make the text of an entry upper case."""

    name = "upper"
    usage = "upper:EXT"
    examples = ("upper:txt",)
    checks: ClassVar[Mapping[str, Rule[Any]]] = {"ext": text}
    by_name = True

    ext: str

    def apply(self, sample: Sample, context: OpContext) -> Sample:
        return {**sample, self.ext: self.entry(sample, self.ext).upper()}
