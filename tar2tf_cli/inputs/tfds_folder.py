"""Folders of TensorFlow Datasets: TFRecord shards that `dataset_info.json` and `features.json` describe.

The fields of both files are defined by `dataset_info.proto` and `feature.proto` in tensorflow_datasets/core/proto.
Features are stored in examples as by example_serializer.py and example_parser.py in tensorflow_datasets/core: a nested
name is joined by `/`, every integer is an int64, every real number a float, and a sequence of sequences `X` is stored
as `X/ragged_flat_values` and one `X/ragged_row_lengths_N` for each of its inner levels.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Final, Protocol, TypeAlias

from tar2tf_cli.api.source import Source
from tar2tf_cli.api.values import Encoding, FeatureDescription
from tar2tf_cli.errors import DamagedShardError, NothingFoundError, SourceError, UsageError
from tar2tf_cli.features.described import DTYPES
from tar2tf_cli.spec.conversion import Output
from tar2tf_cli.structs import NamedTuple, dataclass

INFO: Final = "dataset_info.json"
FEATURES: Final = "features.json"

SHARD_NAMES: Final = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
"""The template by which TensorFlow Datasets names shards unless `dataset_info.json` has another one."""

_LABELS: Final = ".labels.txt"
_DEFAULT_FORMAT: Final = "tfrecord"

Json: TypeAlias = "dict[str, Any]"


class _WrittenShard(Protocol):
    """A shard that was written, as a manifest lists it."""

    @property
    def path(self) -> str: ...

    @property
    def records(self) -> int: ...

    @property
    def bytes(self) -> int: ...

    @property
    def split(self) -> str | None: ...


def side_files(names: Sequence[str]) -> list[str]:
    """Return the names of the files that describe a folder for TensorFlow Datasets; none if they are incomplete."""
    if not {INFO, FEATURES} <= {*names}:
        return []
    return [name for name in names if name in (INFO, FEATURES) or name.endswith(_LABELS)]


@dataclass(frozen=True)
class TfdsFolder:
    """The files that describe a folder of shards for TensorFlow Datasets.

    Attributes:
        info: content of `dataset_info.json`.
        files: `features.json` and files with the names of classes, by name.
    """

    info: Json
    files: Mapping[str, bytes]

    @classmethod
    def read(cls, folder: Source) -> TfdsFolder:
        """Read the TensorFlow Datasets files of a folder.

        Raises:
            DamagedShardError: when one of them is damaged.
            SourceError: when one of them is missing, cannot be read, or describes shards of another format.
        """
        info = _as_object(_content(folder, INFO), folder.locate(INFO))
        if (kind := info.get("fileFormat") or _DEFAULT_FORMAT) != _DEFAULT_FORMAT:
            hint = "tfds convert_format converts it to tfrecord"
            message = f"describes shards of the format {kind}, not TFRecord"
            raise SourceError(message, shard=folder.locate(INFO), hint=hint)
        labels = [item.name for item in _found(folder, f"*{_LABELS}")]
        return cls(info, {name: _content(folder, name) for name in (FEATURES, *labels)})

    @property
    def name(self) -> str:
        """The data set's name and version, such as `mnist 3.0.1`."""
        return " ".join(str(self.info[key]) for key in ("name", "version") if self.info.get(key))

    def splits(self) -> Iterator[tuple[str, list[tuple[str, int]]]]:
        """Yield each split with the paths and record counts of its shards."""
        for split in self.info.get("splits", ()):
            lengths = [int(length) for length in split.get("shardLengths", ())]
            yield split["name"], [*zip(self._paths(split, len(lengths)), lengths, strict=True)]

    def _paths(self, split: Json, total: int) -> Iterator[str]:
        template = split.get("filepathTemplate") or SHARD_NAMES
        fixed = {"DATASET": self.info.get("name", ""), "SPLIT": split["name"], "FILEFORMAT": _DEFAULT_FORMAT}
        fixed["NUM_SHARDS"] = f"{total:05d}"
        for number in range(total):
            place = f"{number:05d}"
            yield template.format(**fixed, SHARD_INDEX=place, SHARD_X_OF_Y=f"{place}-of-{total:05d}")

    def described(self, records: int) -> dict[str, FeatureDescription]:
        """Return encoding, dtype, shape and count of each feature, as in a manifest of this many records."""
        return {one.name: {**one.about, "count": records} if one.always else one.about for one in self._features()}

    def types(self) -> dict[str, str]:
        """Return the TensorFlow Datasets type of each feature, as text by its name in examples."""
        return {one.name: one.text for one in self._features()}

    def _features(self) -> Iterator[_Stored]:
        return _stored(_as_object(self.files[FEATURES], FEATURES), _Level("", ()))

    def for_shards(self, shards: Sequence[_WrittenShard]) -> dict[str, bytes]:
        """Return the files, by name, that describe other shards with the same records.

        Raises:
            UsageError: when TensorFlow Datasets does not find shards that are named so.
        """
        before = {split["name"]: split for split in self.info.get("splits", ())}
        now = splits_of_shards(shards, self.info.get("name", ""))
        splits = [_with_shards_of(before.get(split["name"], {}), split) for split in now]
        return {INFO: to_json({**self.info, "splits": splits}), **self.files}


def _with_shards_of(before: Json, now: Json) -> Json:
    """Return a split with new shards; its size and statistics are kept if its number of records is unchanged."""
    records = [sum(map(int, split.get("shardLengths", ()))) for split in (before, now)]
    return {**before, **now, "numBytes": before.get("numBytes", now["numBytes"])} if records[0] == records[1] else now


def splits_of_shards(shards: Sequence[_WrittenShard], name: str) -> list[Json]:
    """Describe shards for `dataset_info.json` by split; without splits, all belong to `train`.

    Args:
        shards: the shards.
        name: the data set's name.

    Raises:
        UsageError: when TensorFlow Datasets does not find shards that are named so.
    """
    splits: dict[str, list[_WrittenShard]] = {}
    for shard in shards:
        splits.setdefault(shard.split or "train", []).append(shard)
    return [
        {
            "name": split,
            "filepathTemplate": shard_template([shard.path for shard in some], f"{name}-{split}.{_DEFAULT_FORMAT}-"),
            "shardLengths": [str(shard.records) for shard in some],
            "numBytes": str(sum(shard.bytes for shard in some)),
        }
        for split, some in splits.items()
    ]


RIGHT_NAMES: Final = "convert to -o 'FOLDER/NAME-<split>.tfrecord-<00000>-of-<total>', or to another path with <00000>"


def shard_template(paths: Sequence[str], usual: str) -> str:
    """Return TFDS's template for the shards of a split, whose five-digit numbers start at 0.

    Args:
        paths: the paths.
        usual: the beginning of the names that TFDS itself gives to shards. For these, the result is TFDS's own
            template, which `tfds convert_format` requires.

    Raises:
        UsageError: when no template matches the names.
    """
    total = f"{len(paths):05d}"
    fields = {"{SHARD_X_OF_Y}": [f"{place:05d}-of-{total}" for place in range(len(paths))]}
    fields["{SHARD_INDEX}"] = [f"{place:05d}" for place in range(len(paths))]
    for field, numbers in fields.items():
        head, separator, tail = paths[0].rpartition(numbers[0])
        if separator and [f"{head}{number}{tail}" for number in numbers] == list(paths):
            if head == usual and not tail and "OF" in field:
                return SHARD_NAMES
            return f"{_literal(head)}{field}{_literal(tail)}"
    if len(paths) == 1:
        return _literal(paths[0])
    raise UsageError(f"TensorFlow Datasets does not find shards that are named like {paths[0]}", hint=RIGHT_NAMES)


def why_no_tfds(output: Output) -> str | None:
    """Return the reason why TensorFlow Datasets could not read an output; None if it can."""
    if output.is_stream:
        return "it reads shards in a folder"
    if not output.traits.carries_examples:
        return f"it reads TFRecord shards, and the output is {output.format.name}"
    if output.compression != "none":
        return "it cannot read compressed shards"
    if not output.template.is_found_by_tfds():
        return f"it does not find shards that are named {output.path}"
    return None


def _literal(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def to_json(document: Mapping[str, object]) -> bytes:
    """Return a document in the format of TensorFlow Datasets: indented, with sorted keys."""
    return json.dumps(document, indent=4, sort_keys=True).encode() + b"\n"


def _found(folder: Source, template: str) -> Sequence[Any]:
    try:
        return folder.list((template,))
    except NothingFoundError:
        return ()


def _content(folder: Source, name: str) -> bytes:
    items = folder.find([name])
    if name not in items:
        hint = "TensorFlow Datasets describes a folder by dataset_info.json and features.json; restore it from a copy"
        raise NothingFoundError("does not exist", shard=folder.locate(name), hint=hint)
    parts: list[bytes] = []
    with closing(folder.open(items[name])) as stream:
        while part := stream.read(1 << 20):
            parts.append(bytes(part))
    return b"".join(parts)


def _as_object(data: bytes, path: str) -> Json:
    try:
        document = json.loads(data)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise DamagedShardError("is not a JSON object", kind="manifest", shard=path, hint="restore it from a copy")
    return document


# --- Features as they are stored ---


class _Stored(NamedTuple):
    """A stored feature of examples: name, description, whether it is always present, and its TFDS class."""

    name: str
    about: FeatureDescription
    always: bool
    kind: str

    @property
    def text(self) -> str:
        """Return class, dtype and shape, such as `Tensor float32 [?, 2]`."""
        dtype, shape = self.about["dtype"], self.about["shape"]
        lengths = ", ".join("?" if length is None else str(length) for length in shape)
        return " ".join(filter(None, (self.kind, dtype if dtype != "bytes" else "", f"[{lengths}]" if shape else "")))


class _Level(NamedTuple):
    """A feature's position among nested ones: its name, the lengths of enclosing sequences, and its class."""

    name: str
    lengths: tuple[int | None, ...]
    kind: str = ""

    def inner(self, name: str) -> _Level:
        return self._replace(name=f"{self.name}/{name}" if self.name else name)


def _stored(feature: Json, level: _Level) -> Iterator[_Stored]:
    """Yield the stored features of one feature in `features.json`."""
    level = level._replace(kind=str(feature.get("pythonClassName", "")).rpartition(".")[2])
    if (inner := feature.get("featuresDict")) is not None:
        for name, one in inner.get("features", {}).items():
            yield from _stored(one, level.inner(name))
    elif (languages := feature.get("translation")) is not None:
        yield from _translation(languages, level)
    elif (sequence := feature.get("sequence")) is not None:
        length = int(sequence.get("length") or -1)
        lengths = (*level.lengths, None if length < 0 else length)
        yield from _stored(sequence["feature"], level._replace(lengths=lengths))
    elif (video := feature.get("video")) is not None:
        first = _shape(video)[0] if _shape(video) else None
        yield from _in_sequences(level._replace(lengths=(*level.lengths, first)), "bytes", "bytes", ())
    else:
        yield from _leaf(feature, level)


def _translation(about: Json, level: _Level) -> Iterator[_Stored]:
    """Yield a text for each language or, if their number varies, lists of languages and texts."""
    varies = about.get("variableLanguagesPerExample")
    for name in ("language", "translation") if varies else about.get("languages", ()):
        inner = level.inner(name)
        yield from _in_sequences(
            inner._replace(lengths=(*inner.lengths, None)) if varies else inner, "bytes", "bytes", ()
        )


def _leaf(feature: Json, level: _Level) -> Iterator[_Stored]:
    """Yield the stored form of a feature without nested features."""
    if (tensor := feature.get("tensor") or feature.get("audio")) is not None:
        yield from _tensor(tensor, level, may_be_missing=bool(tensor.get("optional")))
    elif "classLabel" in feature:
        yield from _in_sequences(level, "int64", "int64", ())
    elif (box := feature.get("boundingBox")) is not None:
        yield from _in_sequences(level, "float", box.get("dtype") or "float32", _shape(box) or (4,))
    elif "image" in feature or "text" in feature:
        yield from _in_sequences(level, "bytes", "bytes", ())
    else:
        raise ValueError(f"the feature {level.name!r} is of the type {feature.get('pythonClassName')}")


def _tensor(tensor: Json, level: _Level, *, may_be_missing: bool) -> Iterator[_Stored]:
    dtype, shape = tensor.get("dtype") or "float32", _shape(tensor)
    encoding = str(tensor.get("encoding") or "none").lower()
    if encoding == "none" and not tensor.get("lazyDecode"):
        kind: Encoding = "int64" if dtype in DTYPES["int64"] else "float" if dtype in DTYPES["float"] else "bytes"
        yield from _in_sequences(level, kind, dtype if kind != "bytes" else "bytes", shape, always=not may_be_missing)
        return
    if shape.count(None) > 1:  # the bytes do not determine several unknown lengths
        yield from _in_sequences(level.inner("shape"), "int64", "int32", (len(shape),), always=not may_be_missing)
        level = level.inner("value")
    elif encoding == "bytes" and not level.lengths and dtype in DTYPES["raw"]:
        about: FeatureDescription = {"dtype": dtype, "shape": [*shape], "encoding": "raw"}
        yield _Stored(level.name, about, not may_be_missing, level.kind)
        return
    yield from _in_sequences(level, "bytes", "bytes", (), always=not may_be_missing)


def _in_sequences(
    level: _Level, encoding: Encoding, dtype: str, shape: Sequence[int | None], *, always: bool = True
) -> Iterator[_Stored]:
    """Yield a feature in the form in which its enclosing sequences store it."""
    name, whole = level.name, [*level.lengths, *shape]
    if len(level.lengths) > 1:
        for depth in range(len(level.lengths) - 1):
            about: FeatureDescription = {"dtype": "int64", "shape": [None], "encoding": "int64"}
            yield _Stored(f"{name}/ragged_row_lengths_{depth}", about, always, "row lengths")
        name, whole = f"{name}/ragged_flat_values", [None, *shape]
    whole = whole if whole.count(None) < 2 else [None]
    yield _Stored(name, {"dtype": dtype, "shape": whole, "encoding": encoding}, always, level.kind)


def _shape(about: Json) -> tuple[int | None, ...]:
    lengths = (int(length) for length in about.get("shape", {}).get("dimensions", ()))
    return tuple(None if length < 0 else length for length in lengths)
