"""The manifest: what a conversion wrote and from which inputs, as one JSON document beside the shards."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

from tar2tf_cli.conversion.lineage import lineage_lines, origins_of, reports_of
from tar2tf_cli.conversion.manifest_model import MANIFEST, lineage_agrees
from tar2tf_cli.errors import DamagedShardError, UsageError, read_failed
from tar2tf_cli.spec.output_path import PathTemplate
from tar2tf_cli.stores import ObjectInfo

if TYPE_CHECKING:
    from tar2tf_cli.conversion.sharding import Origin
    from tar2tf_cli.inputs.report import InputReport

__all__ = ["VERSION", "Manifest", "ShardEntry", "digest", "input_entry"]

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """A shard: path relative to the manifest's folder, records, bytes on disk, and digest `crc32c:XXXXXXXX`.

    Attributes:
        origins: what it holds of each input; empty if that is not known.
    """

    path: str
    records: int
    bytes: int
    digest: str
    split: str | None = None
    origins: Sequence[Origin] = ()

    def to_json(self) -> dict[str, Any]:
        """As plain JSON; without `split` if there is none, and without the origins."""
        whole = {"path": self.path, "records": self.records, "bytes": self.bytes, "digest": self.digest}
        return whole if self.split is None else {**whole, "split": self.split}


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest's content.

    Attributes:
        spec: the canonical spec (`Conversion.canonical`).
        inputs: name, size in bytes and version of each input, in order.
        shards: the shards, by split and then by number.
        features: dtype, shape, encoding and count of each feature (`Schema.describe`).
        skipped: how many members were skipped, by reason, and how many samples.
        documents: paths of other files that were written, such as a label map, relative to the manifest's folder.
        reports: what each input gave; empty if that is not known.
        claimed: the totals that the document itself gives; for a manifest to be written, `to_bytes` computes them.
    """

    spec: dict[str, Any]
    inputs: list[dict[str, Any]]
    shards: list[ShardEntry] = field(default_factory=list)
    features: dict[str, dict[str, Any]] = field(default_factory=dict)
    skipped: dict[str, Any] = field(default_factory=dict)
    documents: list[str] = field(default_factory=list)
    reports: list[InputReport] = field(default_factory=list)
    claimed: dict[str, int] = field(default_factory=dict)

    def identity(self) -> dict[str, Any]:
        """Version, spec and inputs; two conversions are the same if these are equal."""
        return {"version": VERSION, "spec": self.spec, "inputs": self.inputs}

    @property
    def records(self) -> int:
        """The number of records in all shards."""
        return sum(shard.records for shard in self.shards)

    @property
    def totals(self) -> dict[str, int]:
        """Sums over the inputs and shards."""
        size = sum(shard.bytes for shard in self.shards)
        return {"inputs": len(self.inputs), "shards": len(self.shards), "records": self.records, "bytes": size}

    @property
    def compressed(self) -> bool:
        """Whether the shards are gzip files."""
        return bool(self.spec["output"].get("compression") == "gzip")

    @property
    def template(self) -> PathTemplate | None:
        """The path template of the shards; None if the spec has an invalid one."""
        output = self.spec["output"]
        limited = not output.keys().isdisjoint(("max_shard_size", "num_shards", "records_per_shard"))
        try:
            return PathTemplate.parse(output["path"], numbered=limited)
        except UsageError:
            return None

    @property
    def files(self) -> list[str]:
        """Paths of all files written beside the manifest, relative to its folder."""
        return [*(shard.path for shard in self.shards), *self.documents]

    def to_bytes(self) -> bytes:
        """The document; equal content gives equal bytes."""
        whole = {
            **self.identity(),
            "shards": [shard.to_json() for shard in self.shards],
            "features": self.features,
            "totals": self.totals,
            "skipped": self.skipped,
            **({"documents": self.documents} if self.documents else {}),
        }
        text = json.dumps(whole, indent=1, ensure_ascii=True)
        if self.reports:
            lineage = lineage_lines(self.reports, [shard.origins for shard in self.shards])
            text = text.removesuffix("\n}") + f',\n "lineage": {lineage}\n}}'
        return text.encode("ascii") + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes, path: str) -> Manifest:
        """Parse a document.

        Raises:
            DamagedShardError: when it is not a manifest, has a version that this release does not know, or is damaged;
                names the key that is wrong.
        """
        try:
            whole = json.loads(data)
        except (ValueError, RecursionError):
            whole = None
        if not isinstance(whole, dict) or "version" not in whole:
            raise DamagedShardError("is not a tar2tf manifest", kind="manifest", shard=path)
        if whole["version"] != VERSION or isinstance(whole["version"], (bool, float)):
            message = f"is a manifest of version {str(whole['version'])[:40]}, but this tar2tf reads version {VERSION}"
            raise DamagedShardError(message, kind="manifest", shard=path, hint="upgrade tar2tf, or convert again")
        try:
            MANIFEST(whole, "")
        except ValueError as error:
            message, hint = f"is a damaged manifest: {error}", "restore it from a copy, or convert again"
            raise DamagedShardError(message, kind="manifest", shard=path, hint=hint) from None
        lineage = whole["lineage"] if lineage_agrees(whole) else None
        origins: Iterable[Sequence[Origin]] = origins_of(lineage) if lineage else repeat(())
        shards = [
            ShardEntry(
                shard["path"], shard["records"], shard["bytes"], shard["digest"], shard.get("split"), tuple(pieces)
            )
            for shard, pieces in zip(whole["shards"], origins, strict=False)
        ]
        described = whole["features"], whole["skipped"], whole.get("documents", [])
        reports = [*reports_of(lineage)] if lineage else []
        return cls(whole["spec"], whole["inputs"], shards, *described, reports, whole.get("totals", {}))

    @classmethod
    def load(cls, path: str) -> Manifest | None:
        """Read the manifest in a file; None if there is no such file."""
        try:
            with open(path, "rb") as file:
                return cls.from_bytes(file.read(), path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise read_failed(path, error) from None


def input_entry(item: ObjectInfo) -> dict[str, Any]:
    """An input as the manifest describes it."""
    return {"name": item.name, "size": item.size, "version": item.version}


def digest(crc: int) -> str:
    """A CRC-32C as the manifest writes it."""
    return f"crc32c:{crc:08x}"
