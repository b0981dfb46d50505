"""The manifest: what a conversion wrote and from which inputs, as one JSON document beside the shards."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from tar2tf_cli.conversion.lineage import Lineage, listed
from tar2tf_cli.conversion.sharding import Origin
from tar2tf_cli.errors import DamagedShardError, UsageError, read_failed
from tar2tf_cli.formats.blake2 import blake2b
from tar2tf_cli.spec.output_path import PathTemplate
from tar2tf_cli.stores import ObjectInfo

if TYPE_CHECKING:
    from tar2tf_cli.conversion.manifest_model import Rule

__all__ = ["VERSION", "Manifest", "ShardEntry", "digest", "input_entry"]

T = TypeVar("T")

VERSION: Final = 1
_AT_ONCE: Final = 1000


class ShardEntry(NamedTuple):
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

    @classmethod
    def from_json(cls, whole: dict[str, Any], origins: Iterable[Sequence[int]] = ()) -> ShardEntry:
        """A shard and its origins, as the manifest has them."""
        pieces = tuple(Origin(*piece) for piece in origins)
        return cls(whole["path"], whole["records"], whole["bytes"], whole["digest"], whole.get("split"), pieces)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON; without `split` if there is none, and without the origins."""
        whole = {"path": self.path, "records": self.records, "bytes": self.bytes, "digest": self.digest}
        return whole if self.split is None else {**whole, "split": self.split}


@dataclass(slots=True, eq=False, repr=False)
class Manifest:
    """A manifest's content.

    Attributes:
        spec: the canonical spec (`Conversion.canonical`).
        inputs: the inputs, in order.
        shards: the shards, by split and then by number.
        features: dtype, shape, encoding and count of each feature (`Schema.describe`).
        skipped: how many members were skipped, by reason, and how many samples.
        documents: paths of other files that were written, such as a label map, relative to the manifest's folder.
        lineage: what each input gave; None if that is not known.
        claimed: the totals that the document itself gives; for a manifest to be written, `to_bytes` computes them.
    """

    spec: dict[str, Any]
    inputs: Sequence[ObjectInfo]
    shards: Sequence[ShardEntry] = ()
    features: dict[str, dict[str, Any]] = field(default_factory=dict)
    skipped: dict[str, Any] = field(default_factory=dict)
    documents: list[str] = field(default_factory=list)
    lineage: Lineage | None = None
    claimed: dict[str, int] = field(default_factory=dict)

    def identity(self) -> dict[str, Any]:
        """Version, spec and a digest of the inputs; two conversions are the same if these are equal."""
        found = blake2b(digest_size=16)
        items = iter(self.inputs)
        while some := [f"{name}\0{size}\0{version}\0" for name, size, version, _ in islice(items, _AT_ONCE)]:
            found.update("".join(some).encode("utf-8", "surrogateescape"))
        return {"version": VERSION, "spec": self.spec, "inputs": found.hexdigest()}

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
        return b"".join(self.parts())

    def parts(self) -> Iterator[bytes]:
        """The document in small parts."""
        return map(str.encode, self._pieces())

    def _pieces(self) -> Iterator[str]:
        """The document as `json.dumps` with an indent of 1 writes it, but for the lines of the lineage."""
        head: dict[str, Any] = {"version": VERSION, "spec": self.spec}
        rest = {"features": self.features, "totals": self.totals, "skipped": self.skipped}
        if self.documents:
            rest["documents"] = self.documents
        yield f'{_indented(head)},\n "inputs": '
        yield from listed((_object(input_entry(item)) for item in self.inputs), "  ")
        yield ',\n "shards": '
        yield from listed((_object(shard.to_json()) for shard in self.shards), "  ")
        yield f",{_indented(rest)[1:]}"
        if self.lineage and self.lineage.inputs:
            yield ',\n "lineage": '
            yield from self.lineage.lines(shard.origins for shard in self.shards)
        yield "\n}\n"

    @classmethod
    def from_bytes(cls, data: bytes, path: str, *, late: bool = False) -> Manifest:
        """Parse a document.

        Args:
            data: the document.
            path: its path or URL.
            late: whether the inputs and shards of a large document may be parsed, and checked, as they are used, and
                its lineage left out.

        Raises:
            DamagedShardError: when it is not a manifest, has a version that this release does not know, or is damaged;
                names the key that is wrong.
        """
        from tar2tf_cli.conversion.late_entries import LateEntries, divided
        from tar2tf_cli.conversion.manifest_model import INPUT, SHARD, lineage_agrees

        large = divided(data) if late else None
        whole = _parsed(large.rest if large else data, path)
        described = whole["features"], whole["skipped"], whole.get("documents", [])
        inputs: Sequence[ObjectInfo]
        if large:
            inputs = LateEntries(large.inputs, partial(_late, "inputs", INPUT, path, _input))
            shards = LateEntries(large.shards, partial(_late, "shards", SHARD, path, ShardEntry.from_json))
            return cls(whole["spec"], inputs, shards, *described, None, whole.get("totals", {}))
        lineage: dict[str, Any] = whole["lineage"] if lineage_agrees(whole) else {"inputs": [], "shards": repeat(())}
        every = [ShardEntry.from_json(*given) for given in zip(whole["shards"], lineage["shards"], strict=False)]
        given = Lineage(lineage["schemas"], lineage["inputs"]) if lineage["inputs"] else None
        inputs = [*map(_input, whole["inputs"])]
        return cls(whole["spec"], inputs, every, *described, given, whole.get("totals", {}))

    @classmethod
    def load(cls, path: str) -> Manifest | None:
        """Read the manifest in a file, a large one late; None if there is no such file."""
        try:
            with open(path, "rb") as file:
                return cls.from_bytes(file.read(), path, late=True)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise read_failed(path, error) from None


def _parsed(data: bytes, path: str) -> dict[str, Any]:
    """A document as JSON, which is checked."""
    from tar2tf_cli.conversion.manifest_model import MANIFEST, check

    try:
        whole = json.loads(data)
    except (ValueError, RecursionError):
        whole = None
    if not isinstance(whole, dict) or "version" not in whole:
        hint = "convert writes it beside the shards, such as out/train-manifest.json"
        raise DamagedShardError("is not a tar2tf manifest", kind="manifest", shard=path, hint=hint)
    if whole["version"] != VERSION or isinstance(whole["version"], (bool, float)):
        message = f"is a manifest of version {str(whole['version'])[:40]}, but this tar2tf reads version {VERSION}"
        raise DamagedShardError(message, kind="manifest", shard=path, hint="upgrade tar2tf, or convert again")
    with _names_damage(path):
        check(whole, MANIFEST)
    return whole


@contextmanager
def _names_damage(path: str) -> Iterator[None]:
    """Turn what the model refuses into the error of a damaged manifest."""
    try:
        yield
    except ValueError as error:
        message, hint = f"is a damaged manifest: {error}", "restore it from a copy, or convert again"
        raise DamagedShardError(message, kind="manifest", shard=path, hint=hint) from None


def _late(name: str, rule: Rule, path: str, make: Callable[[dict[str, Any]], T], entry: Any, number: int) -> T:
    """An entry of a long list, checked."""
    from tar2tf_cli.conversion.manifest_model import check

    with _names_damage(path):
        check(entry, rule, f"{name}[{number}]")
    return make(entry)


def _indented(whole: dict[str, Any]) -> str:
    """An object without its end."""
    return json.dumps(whole, indent=1, ensure_ascii=True).removesuffix("\n}")


_encode: Final = json.JSONEncoder(ensure_ascii=True).encode


def _object(item: dict[str, Any]) -> str:
    """An object without lists or objects inside, one line for each value."""
    values = [f'   "{name}": {value if type(value) is int else _encode(value)}' for name, value in item.items()]
    return "{\n" + ",\n".join(values) + "\n  }"


def input_entry(item: ObjectInfo) -> dict[str, Any]:
    """An input as the manifest describes it."""
    return {"name": item.name, "size": item.size, "version": item.version}


def _input(entry: dict[str, Any]) -> ObjectInfo:
    """An input that a manifest describes."""
    return ObjectInfo(entry["name"], entry["size"], entry["version"])


def digest(crc: int) -> str:
    """A CRC-32C as the manifest writes it."""
    return f"crc32c:{crc:08x}"
