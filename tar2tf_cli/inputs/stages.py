"""What a `Pipeline` reads as a source: several tars, each an input, or what its stages make of all of them as one."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tar2tf_cli.formats.bytestream import ByteStream
from tar2tf_cli.inputs.base import ListSource
from tar2tf_cli.spec.urls import without_secrets
from tar2tf_cli.stores.base import ObjectInfo, Placed, Source

if TYPE_CHECKING:
    from tar2tf_cli.errors import SampleError
    from tar2tf_cli.inputs.report import InputReport

__all__ = ["StagesSource", "Tar", "TarsSource"]

Tar: TypeAlias = tuple[Source, ObjectInfo]
"""A tar, and where it is."""

Open: TypeAlias = "Callable[[InputReport, Callable[[SampleError], None]], Generator[Placed, None, None]]"
"""Sets stages to work: they give samples or examples, the report gets what was skipped, the function what failed."""


class TarsSource(Source):
    """Tars of any buckets, as the inputs of one.

    Args:
        tars: the tars in order.
        repeatable: whether what is made of them can be known to be the same as in an earlier run.
    """

    def __init__(self, tars: Sequence[Tar], *, repeatable: bool) -> None:
        self._tars = {_place(*tar): tar for tar in tars}
        self._inputs = [replace(item, name=_place(source, item)) for source, item in tars]
        self.bucket = _together(tars)
        self.seekable = all(source.seekable for source, _ in tars)
        self.repeatable = repeatable and all(source.repeatable for source, _ in tars)

    def list(self, templates: Sequence[str]) -> list[ObjectInfo]:
        """The tars, named by where they are."""
        return self._inputs

    def open(self, item: ObjectInfo) -> ByteStream:
        """Open a tar at its first byte."""
        source, named = self._tars[item.name]
        return source.open(named)

    def locate(self, name: str) -> str:
        """The path or URL, which the name is."""
        return name


class StagesSource(ListSource):
    """What stages make of tars, all of it one input, since a stage may look at the whole stream.

    Args:
        tars: what the first stage reads; none where it is the user's own.
        open_stages: sets the stages to work.
        stages: the stages as the manifest has them.
        repeatable: whether they can be known to be the same as in an earlier run.
        gives: whether they give samples of tars as they are, or examples.
        threads: how many threads make examples of what they give.
    """

    def __init__(
        self,
        tars: Sequence[Tar],
        open_stages: Open,
        stages: Sequence[Mapping[str, Any]] = (),
        *,
        repeatable: bool = False,
        gives: Literal["bytes", "examples"] = "examples",
        threads: int = 1,
    ) -> None:
        super().__init__(_together(tars) if tars else "the TarStage")
        self._tars = tars
        self._open = open_stages
        self._stages = stages
        self.repeatable = repeatable and bool(tars) and all(source.repeatable for source, _ in tars)
        self.gives = gives
        self.threads = threads

    @property
    def identity(self) -> dict[str, Any]:
        """The tars, and the stages by their names and sources."""
        tars = [
            {"name": _place(source, item), "size": item.size, "version": item.version} for source, item in self._tars
        ]
        return {"tars": tars, "stages": list(self._stages)}

    def paths(self, items: Sequence[ObjectInfo]) -> Sequence[str]:
        """Where the tars are."""
        return [source.locate(item.name) for source, item in self._tars]

    def list(self, templates: Sequence[str]) -> list[ObjectInfo]:
        """One input, its size and version made of those of the tars."""
        sizes = [item.size for _, item in self._tars]
        if not sizes or None in sizes:
            return [ObjectInfo(self.bucket, None, None)]
        text = repr(self.identity["tars"]).encode("utf-8", "surrogateescape")
        return [ObjectInfo(self.bucket, sum(size or 0 for size in sizes), blake2b(text, digest_size=16).hexdigest())]

    def samples(
        self,
        item: ObjectInfo,
        report: InputReport,
        fault: Callable[[SampleError], None],
        on_bytes: Callable[[int], None] | None = None,
    ) -> Generator[Placed, None, None]:
        """What the stages give."""
        return self._open(report, fault)


def _place(source: Source, item: ObjectInfo) -> str:
    return without_secrets(source.locate(item.name))


def _together(tars: Sequence[Tar]) -> str:
    """What to call tars: the first one, and how many more there are."""
    first = _place(*tars[0])
    return first if len(tars) == 1 else f"{first} and {len(tars) - 1} more"
