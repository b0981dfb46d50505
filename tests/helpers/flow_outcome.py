"""Everything that the flow of one input gives, with a kernel and without."""

from __future__ import annotations

from array import array
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

from tar2tf_cli.api.values import RecordBatch
from tar2tf_cli.errors import Tar2tfError
from tar2tf_cli.flow.sample_flow import InputFlow, ReadOptions, ReadPlan
from tar2tf_cli.formats import kernel
from tar2tf_cli.formats.checksums import key_hash
from tar2tf_cli.formats.streams import Cursor
from tar2tf_cli.spec.conversion import Conversion, Input
from tar2tf_cli.stores import open_source


def outcome(
    path: Path,
    native: ModuleType | None,
    *,
    output: str = "out.record",
    chunk: int = 1 << 20,
    first: bool = False,
    **options: Any,
) -> tuple[Any, int]:
    """Return everything that reading an input gives, and how many of the records came in batches.

    Args:
        path: the input.
        native: the kernel; None for Python alone.
        output: the template of the output, which says what is made.
        chunk: bytes that are read at once.
        first: whether it is the first input of its conversion.
        options: those of `Conversion`, of `Input` and, with `described`, the manifest's features.
    """
    names = ("key_split", "regroup", "join", "key_feature", "kind", "ignore_missing_end")
    spec = Input(str(path), **{name: options.pop(name) for name in names if name in options})
    described = {path.name: options.pop("described", {})}
    conversion = Conversion(spec, output, **options)
    source = open_source(str(path))
    (item,) = source.list(())
    records, sizes, keys, batched = bytearray(), array("Q"), array("Q"), 0
    with patch.object(kernel, "native", lambda: native), patch.object(Cursor, "CHUNK", chunk):
        try:
            with InputFlow(
                ReadPlan.of(conversion, source, described=described), item, ReadOptions(first=first)
            ) as reading:
                for made in reading.records_and_batches():
                    if isinstance(made, RecordBatch):
                        records.extend(made.data)
                        sizes.frombytes(made.sizes)
                        keys.frombytes(made.hashes)
                        batched += len(made)
                    else:
                        records.extend(b"".join(made[1]))
                        sizes.append(made[2])
                        keys.append(key_hash(made[0] if made[3] is None else made[3]))
        except Tar2tfError as caught:
            return (type(caught), str(caught), caught.hint), batched
    return (bytes(records), list(sizes), list(keys), reading.report.to_json()), batched
