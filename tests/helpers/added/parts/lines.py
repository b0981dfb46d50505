"""A kind of input: a text file, each line of which is a sample."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.source import OnBytes, OnFault, Samples
from tar2tf_cli.api.values import KEY, SourceReport
from tar2tf_cli.inputs.base import ListSource, divided
from tar2tf_cli.spec.conversion import Conversion


def open_input(conversion: Conversion, endpoint: str | None) -> LinesSource:
    """Return the source of the conversion's lines."""
    return LinesSource(conversion.input.bucket)


class LinesSource(ListSource):
    """The lines of a text file."""

    def list(self, templates: Sequence[str]) -> list[ObjectInfo]:
        """List chunks of the lines."""
        lines = Path(self.bucket).read_bytes().splitlines()
        chunks = [*divided("lines", [*enumerate(lines)], lambda line: (len(line[1]), line[1]))]
        self._chunks = {item.name: chunk for item, chunk in chunks}
        return [item for item, _ in chunks]

    def samples(self, item: ObjectInfo, report: SourceReport, fault: OnFault, on_bytes: OnBytes = None) -> Samples:
        """Yield a sample for each line."""
        for number, line in self._chunks[item.name]:
            yield {"member": f"line {number + 1}"}, {KEY: str(number + 1), "txt": line}
