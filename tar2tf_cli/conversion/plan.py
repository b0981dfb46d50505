"""A conversion and its inputs: everything that is known before an input is read."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from importlib import import_module
from typing import Final, NamedTuple

from tar2tf_cli.conversion.manifest import Manifest
from tar2tf_cli.errors import UsageError
from tar2tf_cli.spec.conversion import Conversion
from tar2tf_cli.spec.urls import is_remote
from tar2tf_cli.stores import ObjectInfo, Source

_QUICK_INPUTS: Final = 8
_QUICK_BYTES: Final = 1 << 20  # converted in 10 ms, which starting two processes takes
_MOST_THREADS: Final = 8  # per process; each holds the interpreter lock for about a tenth of its time


class Plan(NamedTuple):
    """A conversion and the list of its inputs.

    Attributes:
        stems: the stem of each input if the output path has `<input>`, or else as many empty texts.
        size: total size of the inputs in bytes as stored; None if the size of any is unknown.
    """

    conversion: Conversion
    source: Source
    inputs: list[ObjectInfo]
    stems: list[str]

    @property
    def size(self) -> int | None:
        sizes = [item.size for item in self.inputs]
        return None if None in sizes else sum(size or 0 for size in sizes)

    @property
    def lanes(self) -> Iterable[str]:
        """The names of the lanes of shards, in order; one can be there more than once."""
        return self.conversion.split or self.stems

    @property
    def work(self) -> Conversion:
        """The conversion that remains after the inputs are listed: a list source already applied shuffle and limit."""
        if not self.source.abilities().ordered:
            return self.conversion
        return replace(self.conversion, shuffle=False, limit=None)

    @property
    def records(self) -> int | None:
        """The number of records, if it is certain before anything is read; otherwise None."""
        spec = self.conversion
        return None if spec.ops or spec.split or spec.on_error == "skip" else self.source.known().samples

    @property
    def why_everything(self) -> str | None:
        """What makes each shard depend on all inputs, so that `--update` has to convert everything again; or None."""
        spec, source = self.conversion, self.source
        reasons = {
            "--shuffle": spec.shuffle,
            "--num-shards": spec.output.num_shards,
            "--limit": spec.limit is not None,
            "<total>": "total" in spec.output.template.fields,
            "an input that can be read only once": not source.abilities().resumable,
            f"--from {spec.input.kind}": None in source.known().documents.values(),
        }
        return next((reason for reason, applies in reasons.items() if applies), None)

    @property
    def tracked(self) -> bool:
        """Whether the manifest says which records came from which input."""
        return not self.conversion.output.is_stream and self.why_everything is None

    @property
    def is_quick(self) -> bool:
        """Whether one process does all the work before another could help."""
        if self.source.abilities().remote or not self.conversion.is_light or len(self.inputs) > _QUICK_INPUTS:
            return False
        return self.size is not None and self.size <= _QUICK_BYTES

    def readers(self, cpus: int) -> int:
        """How many inputs should be read at once."""
        return 1 if self.is_quick else min(cpus, max(len(self.inputs), 2))

    def threads(self, cpus: int) -> int:
        """How many threads should work on each input, so that a few large inputs keep all CPUs busy."""
        wanted = self.source.abilities().threads
        if wanted or not self.work.gains_by_threads:
            return wanted or 1
        return max(1, min(cpus // max(len(self.inputs), 1), _MOST_THREADS))

    def manifest(self) -> Manifest:
        """The part of the manifest that is known before anything is read."""
        spec = self.conversion.canonical()
        spec["input"].update(self.source.known().identity)
        return Manifest(spec, self.inputs)

    def documents(self, described: str = "") -> dict[str, bytes]:
        """Paths and content of the files to be written beside the manifest.

        Args:
            described: the descriptions in the reports of all inputs, joined.
        """
        template, text = self.conversion.output.template, described.encode("utf-8", "surrogateescape")
        documents = self.source.known().documents
        return {template.beside(name): text if data is None else data for name, data in documents.items()}


def make_plan(conversion: Conversion, *, endpoint: str | None = None, source: Source | None = None) -> Plan:
    """Find a conversion's inputs.

    Args:
        conversion: what to convert.
        endpoint: URL of the store that holds the bucket.
        source: where the inputs are; defaults to the conversion's bucket.

    Raises:
        SourceError: when the bucket or an input does not exist.
        UsageError: when the output path is a directory, or two inputs would have the same `<input>`.
    """
    folder = conversion.output.template.text
    if not is_remote(folder) and os.path.isdir(folder):
        hint = f"name the shards in it, such as {os.path.join(folder, '<>.record')!r}"
        raise UsageError(f"the output path {folder!r} is a directory", hint=hint)
    source = source or _source(conversion, endpoint)
    inputs = source.list(conversion.input.template)
    if "input" not in conversion.output.template.fields:
        return Plan(conversion, source, inputs, [""] * len(inputs))
    stems = [item.stem for item in inputs]
    if len(set(stems)) < len(stems):
        stem, count = Counter(stems).most_common(1)[0]
        raise UsageError(f"{count} inputs would have the same <input> in the output path, {stem!r}")
    return Plan(conversion, source, inputs, stems)


def _source(conversion: Conversion, endpoint: str | None) -> Source:
    """The source of a conversion's inputs, chosen by their kind."""
    kind = import_module(f"tar2tf_cli.inputs.kinds.{conversion.input.kind}")
    return kind.open_input(conversion, endpoint)  # type: ignore[no-any-return]
