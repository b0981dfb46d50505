"""Spooled units of given sizes, for tests that divide records among shards."""

from __future__ import annotations

import random

from tar2tf_cli.conversion.spool import InputUnits, Spool, SpoolIndex
from tar2tf_cli.spec.conversion import Conversion, Input, Output


def conversion(path: str = "x-<>.record", **options: object) -> Conversion:
    of_output = {
        name: options.pop(name)
        for name in ("max_shard_size", "num_shards", "records_per_shard", "compression")
        if name in options
    }
    return Conversion(Input("x"), Output(path, **of_output), **options)  # type: ignore[arg-type]


class Written:
    """Stands in for the spool's file: keeps what is written."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, parts: list[bytes], size: int) -> None:
        assert sum(map(len, parts)) == size
        self.data += b"".join(parts)


def indexed(conversion: Conversion, number: int, sizes: list[int], name: str = "") -> tuple[InputUnits, bytes]:
    """The units of an input whose records have these sizes, in a group of its own, and its spool."""
    index, file, name = SpoolIndex(), Written(), name or str(number)
    spool = Spool(conversion, file, index)  # type: ignore[arg-type]
    spool.begin(name)
    for unit, size in enumerate(sizes):
        noise = random.Random(unit).randbytes(size)
        spool.add(f"{name}/{unit}", [noise[:10], noise[10:]], size)
    spool.finish()
    return InputUnits(number, index, 0, len(index.sizes)), file.data
