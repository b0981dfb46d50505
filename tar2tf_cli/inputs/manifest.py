"""The manifest: a JSON document next to the shards that lists a conversion's inputs and outputs."""

from __future__ import annotations

import gc
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    NoReturn,
    TypeAlias,
    TypeGuard,
    TypeVar,
    overload,
)  # fmt: skip

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.source import Source
from tar2tf_cli.api.values import FeatureDescription
from tar2tf_cli.errors import DamagedShardError, NothingFoundError, SourceError, UsageError, few, read_failed
from tar2tf_cli.features.described import DTYPES
from tar2tf_cli.formats.checksums import blake2b, crc32c
from tar2tf_cli.plugins import DEFAULT_FORMAT, find_format
from tar2tf_cli.spec.templates import PathTemplate
from tar2tf_cli.spec.urls import is_remote, without_secrets
from tar2tf_cli.stores import read_with_folder
from tar2tf_cli.stores.directory import DirectorySource
from tar2tf_cli.structs import Generic, NamedTuple, TypedDict, dataclass, field

if TYPE_CHECKING:
    from typing_extensions import NotRequired, Unpack

    from tar2tf_cli.inputs.tfds_folder import TfdsFolder
    from tar2tf_cli.spec.urls import ConnectionOptions


T = TypeVar("T")
D = TypeVar("D")

LookUp: TypeAlias = "Callable[[Sequence[str]], dict[str, ObjectInfo]]"
"""Returns the files that exist under these names."""


class _InputRow(TypedDict):
    """An input in a manifest's JSON."""

    name: str
    size: int | None
    version: str | None


class _ShardRow(TypedDict):
    """A shard in a manifest's JSON; `split` exists only in conversions with splits."""

    path: str
    records: int
    bytes: int
    digest: str
    split: NotRequired[str]


class LazyList(Sequence[T], Generic[D, T]):
    """A list that converts JSON objects to rows on access, as there may be a million.

    Args:
        make: converts an object to a row.
        objects: the objects.
    """

    def __init__(self, make: Callable[[D], T], objects: list[D]) -> None:
        self._make = make
        self._objects = objects

    def __len__(self) -> int:
        return len(self._objects)

    @overload
    def __getitem__(self, number: int) -> T: ...

    @overload
    def __getitem__(self, number: slice) -> list[T]: ...

    def __getitem__(self, number: int | slice) -> T | list[T]:
        if isinstance(number, slice):
            return [*map(self._make, self._objects[number])]
        return self._make(self._objects[number])

    def __iter__(self) -> Iterator[T]:
        return map(self._make, self._objects)


class ScalarRule(NamedTuple):
    """Rule for a JSON value that is neither a list nor an object.

    Attributes:
        what: a description of accepted values.
        fit: returns whether all of several values are accepted; called once for many, as there may be a million.
    """

    what: str
    fit: Callable[[list[Any]], bool]


JsonShape: TypeAlias = "ScalarRule | tuple[None, JsonShape] | list[JsonShape] | dict[str | type[str], JsonShape]"
"""Which JSON is accepted.

A value; `(None, rule)` for null or what the rule accepts; `[rule]` for a list of any length, and several rules for one
of as many items, which all fit the first; `{str: rule}` for an object with any keys, and otherwise an object with these
keys: a name with a question mark may be missing, and other keys are ignored.
"""


def check(value: object, rule: JsonShape, path: str = "") -> None:
    """Check that a JSON value has the shape that a rule describes.

    Raises:
        ValueError: when it has not; gives the path of the first wrong value, such as `shards[0].records`.
    """
    if isinstance(rule, ScalarRule):
        if not rule.fit([value]):
            _refuse(path, rule.what, value)
    elif isinstance(rule, tuple):
        if value is not None:
            check(value, rule[1], path)
    elif isinstance(rule, list):
        if not isinstance(value, list) or len(rule) not in (1, len(value)):
            _refuse(path, "a list" if len(rule) == 1 else f"a list of {len(rule)}", value)
        if not _all_fit(value, rule[0]):
            for number, item in enumerate(value):
                check(item, rule[0], f"{path}[{number}]")
    else:
        _check_object(value, rule, path)


def _all_fit(values: list[object], rule: JsonShape) -> bool:
    """Whether all items of a long list are certain to be valid; objects are checked key by key."""
    if isinstance(rule, ScalarRule):
        return rule.fit(values)
    if isinstance(rule, tuple):
        return _all_fit([value for value in values if value is not None], rule[1])
    if isinstance(rule, list) or str in rule:
        return False
    return _are(values, dict) and all(_key_fits(values, str(key), inner) for key, inner in rule.items())


def _key_fits(objects: list[dict[str, object]], key: str, rule: JsonShape) -> bool:
    """Whether all values of a key are certain to be valid, and no required one is missing."""
    name = key.removesuffix("?")
    found = [value[name] for value in objects if name in value]
    return (name != key or len(found) == len(objects)) and _all_fit(found, rule)


def _check_object(value: object, rule: dict[str | type[str], JsonShape], path: str) -> None:
    if not isinstance(value, dict):
        _refuse(path, "an object", value)
    dot = f"{path}." if path else ""
    for key, inner in rule.items():
        if key is str:
            for name, item in value.items():
                check(item, inner, f"{dot}{name}")
        elif (name := str(key).removesuffix("?")) in value:
            check(value[name], inner, f"{dot}{name}")
        elif name == key:
            raise ValueError(f"{dot}{name} is missing")


def _refuse(path: str, what: str, value: object) -> NoReturn:
    shown = repr(value)
    shown = shown if len(shown) <= 40 else f"{shown[:40]}…"
    raise ValueError(f"{path or 'the document'} must be {what}, not {shown}")


def _are(values: list[object], kind: type[D]) -> TypeGuard[list[D]]:
    return {*map(type, values)} <= {kind}


def _are_names(values: list[object]) -> TypeGuard[list[str]]:
    """Whether all values are strings that can be file names."""
    try:
        return (
            _are(values, str)
            and "\0" not in (joined := "".join(values))
            and joined.encode("utf-8", "surrogateescape") is not None
        )
    except UnicodeEncodeError:
        return False


def _are_below(values: list[object]) -> bool:
    """Whether all values are paths of files in or below the manifest's folder."""
    return _are_names(values) and all(values) and _stay_below(values)


def _stay_below(paths: list[str]) -> bool:
    joined = "\0".join(["", *paths])
    return "\0/" not in joined and not (".." in joined and any(".." in path.split("/") for path in paths))


def _are_counts(values: list[object]) -> bool:
    return _are(values, int) and (not values or (min(values) >= 0 and max(values) < 2**63))


def _all_match(pattern: str, texts: list[str]) -> bool:
    lines = "\n".join([*texts, ""])
    return lines.count("\n") == len(texts) and bool(re.fullmatch(f"(?:(?:{pattern})\n)*", lines))


def _matching(pattern: str, what: str) -> ScalarRule:
    """Make a rule for text that matches a regular expression completely."""

    def fit(values: list[object]) -> bool:
        return _are(values, str) and _all_match(pattern, values)

    return ScalarRule(what, fit)


def _one_of(*words: str) -> ScalarRule:
    return _matching("|".join(words), f"one of {', '.join(words)}")


_NAME: Final = ScalarRule("text", _are_names)
_BELOW: Final = ScalarRule("a path below the manifest's folder", _are_below)
_COUNT: Final = ScalarRule("a whole number, 0 or more", _are_counts)
_LABEL: Final = ScalarRule("a whole number", partial(_are, kind=int))
_DTYPE: Final = _one_of(*dict.fromkeys(dtype for dtypes in DTYPES.values() for dtype in dtypes))
_DIGEST: Final = _matching("crc32c:[0-9a-f]{8}", "crc32c: and eight hexadecimal digits")
_LOOK: Final[dict[str | type[str], JsonShape]] = {
    "dtype": _DTYPE,
    "shape": [(None, _COUNT)],
    "encoding": _one_of(*DTYPES),
}
_INPUT: Final[JsonShape] = {"name": _NAME, "size": (None, _COUNT), "version": (None, _NAME)}
_SHARD: Final[JsonShape] = {"path": _BELOW, "records": _COUNT, "bytes": _COUNT, "digest": _DIGEST, "split?": _NAME}
_LOST: Final[JsonShape] = {"input": _NAME, "from": _COUNT, "to": (None, _COUNT), "bytes": _COUNT}
MANIFEST: Final[dict[str | type[str], JsonShape]] = {
    "spec": {
        "output": {"path": _BELOW, "compression?": _one_of("none", "gzip", "zstd"), "to?": _NAME},
        "input?": {"fields?": {}, "joined?": [[_INPUT]]},
    },
    "inputs": [_INPUT],
    "shards": [_SHARD],
    "features": {str: {**_LOOK, "count?": _COUNT}},
    "skipped": {
        "samples": _COUNT,
        "members": {str: _COUNT},
        "asked?": {str: _COUNT},
        "keys_missing?": [_NAME],
        "gaps?": [_NAME],
        "lost?": [_LOST],
    },
    "undescribed?": {"features?": [_NAME], "records?": (None, _COUNT)},
    "totals?": {"inputs?": _COUNT, "shards?": _COUNT, "records?": _COUNT, "bytes?": _COUNT},
    "documents?": [_BELOW],
    "joined?": [{"bucket": _NAME, "matched": _COUNT, "unmatched": _COUNT, "unused": _COUNT}],
    "labels?": {str: {str: _LABEL}},
    "sizes?": _DIGEST,
    "checksum?": _DIGEST,
}


@contextmanager
def without_collection() -> Iterator[None]:
    """Disable garbage collection while millions of entries are created, which it would scan repeatedly."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


VERSION: Final = 1
_DESCRIBING: Final = ("features", "undescribed", "totals", "skipped", "joined", "labels", "documents", "sizes")
"""The keys of a manifest that follow its inputs and shards, in their order.

One that may be absent (`KEY?` in `MANIFEST`) is left out where its value is None, an empty text, list or dict.
"""


class ShardEntry(NamedTuple):
    """A shard: path relative to the manifest's folder, records, bytes on disk, and digest `crc32c:XXXXXXXX`.

    The digest is empty if TensorFlow Datasets describes the shard, as it has no digests.
    """

    path: str
    records: int
    bytes: int
    digest: str
    split: str | None = None

    def to_json(self) -> dict[str, str | int]:
        """Return the shard as plain JSON, without `split` if there is none."""
        whole: dict[str, str | int] = {
            "path": self.path,
            "records": self.records,
            "bytes": self.bytes,
            "digest": self.digest,
        }
        return whole if self.split is None else {**whole, "split": self.split}


@dataclass(eq=False, repr=False)
class Manifest:
    """The content of a manifest.

    Attributes:
        spec: the canonical spec (`Conversion.canonical`).
        inputs: the inputs, in order.
        shards: the shards, by split and then by number.
        features: dtype, shape, encoding and count of each feature (`Schema.describe`).
        undescribed: parts of copied records that are not in `features`: the `features` whose kind varies, and the
            number of `records` that are not a tf.train.Example, None if unknown.
        skipped: the number of skipped members, by reason, of skipped faulty samples and of samples filtered out; the
            keys that no input has; and the parts of inputs that were lost.
        joined: for each joined dataset, its `bucket`, the numbers of `matched` and `unmatched` samples, and of `unused`
            rows.
        labels: the number of each text, by feature, if there is a label map.
        documents: paths of other files that were written, such as a label map, relative to the manifest's folder.
        sizes: digest of the sizes of all records, which are published for `--update`; None if there are none.
        checksum: the document's own checksum; for a manifest to be written, `lines` computes it.
        claimed: the totals stated in the document; for a manifest to be written, `to_bytes` computes them.
    """

    spec: dict[str, Any]
    inputs: Sequence[ObjectInfo]
    shards: Sequence[ShardEntry] = ()
    features: dict[str, FeatureDescription] = field(default_factory=dict)
    undescribed: dict[str, Any] = field(default_factory=dict)
    skipped: dict[str, Any] = field(default_factory=dict)
    joined: list[dict[str, Any]] = field(default_factory=list)
    labels: dict[str, Any] = field(default_factory=dict)
    documents: list[str] = field(default_factory=list)
    sizes: str | None = None
    checksum: str | None = None
    claimed: dict[str, int] = field(default_factory=dict)

    def identity(self) -> dict[str, object]:
        """Return version, spec and a digest of the inputs, which are equal for equal conversions."""
        hashed = blake2b(digest_size=16)
        for name, size, version, _ in self.inputs:
            hashed.update(f"{name}\0{size}\0{version}\0".encode("utf-8", "surrogateescape"))
        return {"version": VERSION, "spec": self.spec, "inputs": hashed.hexdigest()}

    @property
    def conversion(self) -> str:
        """The digest of the conversion's identity, equal for the same command on other machines."""
        return blake2b(json.dumps(self.identity(), sort_keys=True).encode()).hexdigest()

    @property
    def is_complete(self) -> bool:
        """Whether the manifest lists shards, or explains their absence: all samples skipped, or a limit of 0.

        A description by another tool may do neither.
        """
        return bool(
            self.shards or self.skipped.get("samples") or self.skipped.get("asked") or self.spec.get("limit") == 0
        )

    @property
    def records(self) -> int:
        """The number of records in all shards."""
        return sum(shard.records for shard in self.shards)

    @property
    def totals(self) -> dict[str, int]:
        """Sums over all inputs and shards."""
        size = sum(shard.bytes for shard in self.shards)
        return {"inputs": len(self.inputs), "shards": len(self.shards), "records": self.records, "bytes": size}

    @property
    def compressed(self) -> bool:
        """Whether the shards are compressed."""
        return bool(self.spec["output"].get("compression", "none") != "none")

    @property
    def format(self) -> str:
        """Name of the shards' format."""
        return str(self.spec["output"].get("to") or DEFAULT_FORMAT)

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
        """Paths of all files written next to the manifest, relative to its folder."""
        return [*(shard.path for shard in self.shards), *self.documents]

    def to_bytes(self) -> bytes:
        """Return the document as bytes; equal content gives equal bytes."""
        return b"".join(self.lines())

    def lines(self) -> Iterator[bytes]:
        """Yield the lines of the document: one for each key, and for each input and shard."""
        mark, crc = "{", 0
        for key, value in self._items():
            yield f"{mark}\n{json.dumps(key)}: ".encode()
            for part in map(str.encode, _listed(value) if isinstance(value, Iterator) else [json.dumps(value)]):
                crc = crc32c(part, crc)
                yield part
            mark = ","
        yield f',\n"checksum": "{digest(crc)}"\n}}\n'.encode()

    @property
    def is_as_written(self) -> bool:
        """Whether the document's own checksum shows that it was not changed after it was written."""
        *_, last = self.lines()
        return self.checksum is not None and self.checksum in last.decode()

    def _items(self) -> Iterator[tuple[str, object]]:
        yield "version", VERSION
        yield "spec", self.spec
        yield "inputs", ({"name": item.name, "size": item.size, "version": item.version} for item in self.inputs)
        yield "shards", (shard.to_json() for shard in self.shards)
        for key in _DESCRIBING:
            if (value := getattr(self, key)) or value == 0 or key in MANIFEST:
                yield key, value

    @classmethod
    def from_bytes(cls, data: bytes, path: str) -> Manifest:
        """Parse a manifest document.

        Args:
            data: the document.
            path: its path or URL.

        Raises:
            DamagedShardError: when the document is not a manifest, has a version unknown to this release, or is
                damaged; names the wrong key.
        """
        whole = _parsed(data, path)
        inputs = LazyList(_input, whole["inputs"])
        shards = LazyList(_shard, whole["shards"])
        described = {key: whole[key] for key in _DESCRIBING if key in whole}
        claimed = described.pop("totals", {})
        return cls(whole["spec"], inputs, shards, **described, checksum=whole.get("checksum"), claimed=claimed)

    @classmethod
    def load(cls, path: str) -> Manifest | None:
        """Read the manifest from a file; None if there is no such file."""
        try:
            with open(path, "rb") as file:
                return cls.from_bytes(file.read(), path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise read_failed(path, error) from None


def _parsed(data: bytes, path: str) -> dict[str, Any]:
    """Parse and check a manifest document as JSON."""

    try:
        with without_collection():
            whole = json.loads(data)
    except (ValueError, RecursionError):
        whole = None
    if not isinstance(whole, dict) or "version" not in whole:
        hint = "convert writes it next to the shards, such as out/_train-manifest.json"
        raise DamagedShardError("is not a tar2tf manifest", kind="manifest", shard=path, hint=hint)
    if whole["version"] != VERSION or isinstance(whole["version"], (bool, float)):
        message = f"is a manifest of version {str(whole['version'])[:40]}, but this tar2tf reads version {VERSION}"
        raise DamagedShardError(message, kind="manifest", shard=path, hint="upgrade tar2tf, or convert again")
    try:
        check(whole, MANIFEST)
    except ValueError as error:
        message, hint = f"is a damaged manifest: {error}", "restore it from a copy, or convert again"
        raise DamagedShardError(message, kind="manifest", shard=path, hint=hint) from None
    return whole


_LINES: Final = 256  # of a list that are written at once


def _listed(items: Iterable[object]) -> Iterator[str]:
    """Yield the lines of a JSON list with one item per line, many at once."""
    mark, encode, items = "[", json.JSONEncoder().encode, iter(items)
    while lines := [f"\n {encode(item)}" for item in islice(items, _LINES)]:
        yield mark + ",".join(lines)
        mark = ","
    yield "[]" if mark == "[" else "\n]"


def _input(item: _InputRow) -> ObjectInfo:
    """Return the input that a manifest's row describes."""
    return ObjectInfo(item["name"], item["size"], item["version"])


def _shard(item: _ShardRow) -> ShardEntry:
    """Return the shard that a manifest's row describes."""
    return ShardEntry(item["path"], item["records"], item["bytes"], item["digest"], item.get("split"))


def digest(crc: int) -> str:
    """Format a CRC-32C as the manifest stores it."""
    return f"crc32c:{crc:08x}"


@dataclass(eq=False, repr=False)
class Document:
    """A manifest, or a TFDS description in its form, with its path or URL and the folder of the shards.

    Attributes:
        path: the path or URL of the manifest.
        manifest: its content.
        folder: the folder.
        named: the shards of the manifest that the user named; None for all of them.
        listed: the files of the folder by their names, if it was listed, so that they need not be looked up again.
        tfds: the files of TensorFlow Datasets from which the manifest was made; None for one that a conversion wrote.
    """

    path: str
    manifest: Manifest
    folder: Source
    named: Sequence[ShardEntry] | None = None
    listed: Mapping[str, ObjectInfo] = field(default_factory=dict)
    tfds: TfdsFolder | None = None

    @property
    def shards(self) -> Sequence[ShardEntry]:
        """The selected shards of the manifest."""
        return self.manifest.shards if self.named is None else self.named

    def there(self) -> list[ObjectInfo]:
        """Return the manifest's shards that exist in the folder."""
        names = [shard.path for shard in self.manifest.shards]
        objects = self._look_up(names, self.folder.find)
        return [objects[name] for name in names if name in objects]

    def check_records(self) -> None:
        """Raise an error unless the shards are TFRecords.

        Raises:
            UsageError: when the shards are tars.
        """
        traits = find_format(self.manifest.format).traits
        if not traits.carries_examples:
            hint = "read them with open_records or webdataset, or convert them to TFRecord: tar2tf convert"
            raise UsageError(f"its shards are {traits.plural}, not TFRecord", shard=self.path, hint=hint)

    def find(self, shards: Sequence[ShardEntry], look_up: LookUp | None = None) -> list[ObjectInfo]:
        """Return the objects of shards in the folder.

        Args:
            shards: the shards.
            look_up: looks up files by their names; `find` of the folder by default.

        Raises:
            SourceError: when one of them does not exist.
        """
        objects = self._look_up([shard.path for shard in shards], look_up or self.folder.find)
        for shard in shards:
            if shard.path not in objects:
                raise self.missing(shard)
        return [objects[shard.path] for shard in shards]

    def _look_up(self, names: Sequence[str], look_up: LookUp) -> dict[str, ObjectInfo]:
        """Return the files that exist under given names."""
        objects = {name: self.listed[name] for name in names if name in self.listed}
        unknown = [name for name in names if name not in objects]
        return objects | look_up(unknown) if unknown else objects

    def find_checked(self, shards: Sequence[ShardEntry], look_up: LookUp | None = None) -> list[ObjectInfo]:
        """Return the objects of shards after checking that they have the sizes in the manifest.

        Args:
            shards: the shards.
            look_up: as in `find`.

        Raises:
            SourceError: when one of them does not exist.
            DamagedShardError: when one has another size.
        """
        items = self.find(shards, look_up)
        for shard, item in zip(shards, items, strict=True):
            if item.size not in (None, shard.bytes):
                message = f"the file has {item.size:,} bytes, but {shard.bytes:,} in the manifest"
                hint = "see tar2tf verify; restore it from a copy, or convert again"
                raise DamagedShardError(message, kind="size", shard=self.folder.locate(shard.path), hint=hint)
        return items

    def missing(self, shard: ShardEntry) -> SourceError:
        """Return the error for a shard that is not in the folder."""
        hint = "restore it from a copy, or convert again"
        return NothingFoundError("is missing", shard=self.folder.locate(shard.path), hint=hint)


def read_document(path: str, **connection: Unpack[ConnectionOptions]) -> Document:
    """Read a manifest, or `dataset_info.json` of TensorFlow Datasets in the form of a manifest.

    Args:
        path: its path or URL.
        connection: `ConnectionOptions` of the bucket's server.

    Raises:
        SourceError: when it does not exist, or cannot be read.
        DamagedShardError: when it is not a manifest, or a damaged one.
    """
    name = without_secrets(path)
    is_tfds = os.path.basename(name) == "dataset_info.json"
    if not is_remote(path):
        if os.path.isdir(path):
            raise SourceError("is a folder, not a manifest", shard=path, hint="name the manifest in it")
        if is_tfds:
            return _tfds_document(path, DirectorySource(os.path.dirname(path) or "."))
        if manifest := Manifest.load(path):
            return Document(path, manifest, DirectorySource(os.path.dirname(path) or "."))
    elif inside := read_with_folder(path, **connection):
        if is_tfds:
            return _tfds_document(name, inside[1])
        return Document(name, Manifest.from_bytes(inside[0], name), inside[1])
    raise NothingFoundError("the manifest does not exist", shard=name)


def _tfds_document(path: str, folder: Source) -> Document:
    """Convert `dataset_info.json` and `features.json` in a folder of shards to the form of a manifest.

    Raises:
        DamagedShardError: when one of the files is damaged.
        SourceError: when one of them is missing or cannot be read.
    """
    from tar2tf_cli.inputs.tfds_folder import TfdsFolder

    described = TfdsFolder.read(folder)
    try:
        listed = [(split, *shard) for split, shards in described.splits() for shard in shards]
        sizes = {name: item.size or 0 for name, item in folder.find([name for _, name, _ in listed]).items()}
        shards = [ShardEntry(name, records, sizes.get(name, 0), "", split) for split, name, records in listed]
        features = described.described(sum(records for *_, records in listed))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        message = f"does not describe shards as TensorFlow Datasets does: {error!r}"
        raise DamagedShardError(message, kind="manifest", shard=path, hint="restore it from a copy") from None
    spec = {"output": {"path": os.path.basename(shards[0].path if shards else path)}}
    return Document(path, Manifest(spec, (), shards, features), folder, tfds=described)


def changes_between(before: Sequence[ObjectInfo], now: Sequence[ObjectInfo]) -> str:
    """Describe how the inputs of two conversions differ, such as `2 added (c.tar, d.tar), 1 removed (a.tar)`.

    At most three names of each kind are listed. One file can be given twice.
    """
    old, new = Counter(item[:3] for item in before), Counter(item[:3] for item in now)
    gone, come = (Counter(name for name, *_ in only.elements()) for only in (old - new, new - old))
    kinds = {"added": come - gone, "removed": gone - come, "changed": come & gone}
    listed = [f"{names.total():,} {kind} ({few([*names.elements()])})" for kind, names in kinds.items() if names]
    return ", ".join(listed) or "their order changed"


def differing(before: object, now: object, name: str = "") -> list[str]:
    """Return the names of the keys that differ between two documents; nested keys are joined by dots."""
    if not (isinstance(before, dict) and isinstance(now, dict)):
        return [] if before == now else [name]
    dot = f"{name}." if name else ""
    return [
        inner
        for key in sorted(before.keys() | now.keys())
        for inner in differing(before.get(key), now.get(key), f"{dot}{key}")
    ]
