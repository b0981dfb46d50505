"""Rows of digests that `diff` makes of a file, to be compared with those made in another way."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tar2tf_cli.api.values import Kind
from tar2tf_cli.checking.files import FileRun
from tar2tf_cli.checking.rows import RowsContext, rows_of
from tar2tf_cli.errors import Tar2tfError
from tar2tf_cli.inputs.tar_samples import TarRules


def rows_in(path: Path, rules: TarRules | None = None, numbers: Mapping[str, Kind | None] | None = None) -> Any:
    """Everything that is found in a file, with the bytes of its rows and their details; or why there are none."""
    try:
        shards = FileRun(rules=rules, workers=1).shards(path)
        with tempfile.TemporaryDirectory() as folder:
            context = RowsContext(shards.source, rules or TarRules(), sources=[shards.source])
            context.folder, context.numbers = folder, numbers or {}
            made = rows_of(0, shards.items[0], context)
            rows, details = (Path(name).read_bytes() if name else b"" for name in (made.rows, made.details))
            return made._replace(rows="", details=""), list(made.numbers), rows, details
    except Tar2tfError as error:
        return type(error), str(error), error.hint
