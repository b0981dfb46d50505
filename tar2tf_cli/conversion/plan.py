"""A conversion with its inputs found: what is known before anything is read."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, replace
from typing import Final

from tar2tf_cli.conversion.manifest import Manifest, input_entry
from tar2tf_cli.errors import UsageError
from tar2tf_cli.spec.conversion import Conversion
from tar2tf_cli.stores import ObjectInfo, Source, endpoint_for, open_source

__all__ = ["Plan", "make_plan"]

_MOST_THREADS: Final = 8  # of one process; what they do with the interpreter locked is a tenth or so


@dataclass(frozen=True, slots=True)
class Plan:
    """A conversion with its inputs found.

    Attributes:
        size: stored bytes of all inputs together; None when one is not known.
    """

    conversion: Conversion
    source: Source
    inputs: list[ObjectInfo]

    @property
    def size(self) -> int | None:
        sizes = [item.size for item in self.inputs]
        return None if None in sizes else sum(size or 0 for size in sizes)

    @property
    def work(self) -> Conversion:
        """The conversion as it is left when the inputs are listed: a list was shuffled and cut short by its source."""
        return replace(self.conversion, shuffle=False, limit=None) if self.source.ordered else self.conversion

    @property
    def records(self) -> int | None:
        """How many records there will be, where that is certain before anything is read."""
        spec = self.conversion
        return None if spec.ops or spec.split or spec.on_error == "skip" else self.source.count

    def threads(self, cpus: int) -> int:
        """How many threads are to work on each input, so that a few large ones keep all CPUs busy."""
        if self.source.threads or not self.work.gains_by_threads:
            return self.source.threads or 1
        return max(1, min(cpus // max(len(self.inputs), 1), _MOST_THREADS))

    def manifest(self) -> Manifest:
        """The manifest as far as it is known before anything is read."""
        spec = self.conversion.canonical()
        spec["input"].update(self.source.identity)
        return Manifest(spec, [input_entry(item) for item in self.inputs])

    def documents(self, described: str = "") -> dict[str, bytes]:
        """Paths and content of what stands beside the manifest.

        Args:
            described: what the reports of all inputs together describe.
        """
        template, text = self.conversion.output.template, described.encode("utf-8", "surrogateescape")
        return {template.beside(name): text if data is None else data for name, data in self.source.documents.items()}


def make_plan(conversion: Conversion, *, endpoint: str | None = None, source: Source | None = None) -> Plan:
    """Find a conversion's inputs.

    Args:
        conversion: what to convert.
        endpoint: where the store of the bucket answers.
        source: where they are; goes by the conversion's bucket when None.

    Raises:
        SourceError: when the bucket or an input is not there.
        UsageError: when the output path names no file, or would give two inputs one name.
    """
    if os.path.basename(conversion.output.path) in ("", ".", ".."):
        raise UsageError(
            f"the output path {conversion.output.path!r} names a directory", hint="such as 'out/train-<>.record'"
        )
    source = source or _source(conversion, endpoint)
    inputs = source.list(conversion.input.template)
    if "input" in conversion.output.template.fields:
        stems = Counter(item.stem for item in inputs)
        stem, count = stems.most_common(1)[0]
        if count > 1:
            raise UsageError(f"{count} inputs would give {stem!r} for <input> in the output path")
    return Plan(conversion, source, inputs)


def _source(conversion: Conversion, endpoint: str | None) -> Source:
    """Where a conversion's inputs are, by their kind."""
    spec, seed = conversion.input, conversion.seed if conversion.shuffle else None
    if spec.kind == "imagefolder":
        from tar2tf_cli.inputs.image_folder import ImageFolderSource

        return ImageFolderSource(
            spec.bucket, labels=spec.labels, seed=seed, limit=conversion.limit, shards=conversion.output.num_shards
        )
    if spec.kind == "examples":
        from tar2tf_cli.inputs.csv_examples import ExamplesSource

        return ExamplesSource(
            spec.bucket,
            spec.example_class or "",
            spec.example_args,
            seed=seed,
            rows=spec.rows,
            limit=conversion.limit,
        )
    return open_source(spec.bucket, endpoint=endpoint_for(spec.bucket, conversion.output.path, endpoint))
