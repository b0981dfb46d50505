"""Generated Python code that reads TFRecord shards or tars with tf.data, from the results of an inspection."""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from tar2tf_cli.api.values import FeatureDescription
from tar2tf_cli.checking.contents import STEPS, TENSOR_DTYPES, Contents, Stats
from tar2tf_cli.errors import SourceError, UsageError
from tar2tf_cli.features.described import DTYPES, Described
from tar2tf_cli.inputs.shard_set import MANIFEST_SUFFIX

if TYPE_CHECKING:
    from tar2tf_cli.inputs.manifest import Manifest

_DTYPES: Final = {"bytes": "tf.string", "int64": "tf.int64", "float": "tf.float32"}
_DEFAULTS: Final = {"bytes": '""', "int64": "0", "float": "0.0"}
_DECODABLE: Final = ("image/jpeg", "image/png", "image/bmp", "image/gif")
MOST_FILES: Final = 20

_Where: TypeAlias = Literal["example", "context", "steps"]


def parse_code(contents: Contents) -> str:
    """Return a program that makes a dataset; for TFRecords, with a feature description and a parse function.

    Features that some records lack get a default; lists of varying length become vectors. Images are decoded, arrays
    get their shape; other bytes are unchanged. Dtypes that records do not reveal are taken from the manifest, if one
    was inspected or is next to local shards. The program for tars uses `Dataset`, and does not read entries that some
    samples lack.

    Raises:
        UsageError: when the shards are of both formats, or TFRecords in a compression that TensorFlow does not read.
    """
    programs = {"tfrecord": _program, "tar": _program_for_tars}
    if contents.format not in programs:
        raise UsageError("--code is for TFRecord shards or for tars, not for both at once")
    return "\n".join([*programs[contents.format](contents), ""])


_LOAD_NPY: Final = (
    "",
    "one_at_a_time = threading.Lock()  # before Python 3.13, np.load in several threads can raise SystemError",
    "",
    "def load_npy(data):",
    "    with one_at_a_time:",
    "        return np.load(io.BytesIO(data))",
    "",
)


def _program(contents: Contents) -> Iterator[str]:
    foreign = sum(shard.foreign for shard in contents.shards)
    examples = contents.samples - foreign
    if examples or not foreign:
        body = list(_function(contents, _described(contents)))
    else:
        body = list(_payload_function(contents.payload))
    if any("load_npy" in line for line in body):
        yield from ("import io", "import threading", "", "import numpy as np")
    yield from ("import tensorflow as tf", "")
    if foreign and examples:
        yield f"# {foreign:,} of {contents.samples:,} records are not tf.train.Examples, so parsing them fails:"
        yield "# tar2tf verify lists them, and verify --salvage writes the others to a new file."
    if any("load_npy" in line for line in body):
        yield from _LOAD_NPY
    yield from body
    yield from ("", "", *_dataset(contents))


# --- The feature description ---


class _FeatureCode:
    """The code for one feature: its description, and its processing after parsing.

    Args:
        name: its name.
        stats: its statistics.
        lacking: number of examples that lack it.
        described: its description in a manifest.
        where: whether it is in examples; or in the context of SequenceExamples, where TensorFlow accepts lists only as
            sparse ones; or one of their feature lists.
        vector: whether it is a vector even if it always has one value, like the shape of an array.
    """

    def __init__(
        self, name: str, stats: Stats, lacking: int, described: Mapping[str, Any] | None, where: _Where, vector: bool
    ) -> None:
        self.name = name
        self.shape: Sequence[int | None] | None = described["shape"] if described else None
        self.dtype: str | None = described["dtype"] if described else stats.shaped or None
        self.is_raw = described["encoding"] == "raw" if described else stats.shaped == "uint8"
        self.vector = vector or bool(self.shape and not self.is_raw)
        self.where = where
        self.stats = stats
        self.kinds = sorted(kind for kind in stats.lists if kind)
        self.optional = lacking > 0 or None in stats.lists
        self.lacking = lacking
        low, high = stats.values or (0, 0)
        self.length = low if low == high and low else None

    @property
    def is_scalar(self) -> bool:
        """Whether the feature is a single value in every example that has it."""
        return self.length == 1 and not self.vector

    @property
    def trouble(self) -> str | None:
        """The reason why the feature cannot be parsed, or None."""
        if not self.kinds:
            return "has no values"
        if self.stats.divided:
            return "has lists in several pieces, but TensorFlow reads only the first piece"
        if len(self.kinds) > 1:
            return f"is a list of {' in some records, of '.join(self.kinds)} in others, which TensorFlow cannot parse"
        return None

    @property
    def described(self) -> str:
        """The expression for the feature in the feature description."""
        dtype, shape = _DTYPES[self.kinds[0]], f"[{'' if self.is_scalar else self.length}]"
        if self.length and self.where == "steps":
            return f"tf.io.FixedLenSequenceFeature({shape}, {dtype}{', allow_missing=True' if self.optional else ''})"
        if self.length and not self.optional:
            return f"tf.io.FixedLenFeature({shape}, {dtype})"
        if self.is_scalar:
            return f"tf.io.FixedLenFeature([], {dtype}, default_value={_DEFAULTS[self.kinds[0]]})"
        if self.where == "example":
            return f"tf.io.FixedLenSequenceFeature([], {dtype}, allow_missing=True)"
        return f"tf.io.VarLenFeature({dtype})"

    @property
    def is_sparse(self) -> bool:
        """Whether the feature is parsed to a sparse tensor, rather than a ragged one like a feature list."""
        return self.where == "context" and "VarLen" in self.described

    @property
    def comment(self) -> str:
        """A comment with the kind of the values, and the number of examples without the feature."""
        lacking = f"; missing in {self.lacking:,}" if self.lacking else ""
        return f"  # {self.stats.kind}{lacking}".replace("\n", " ")


def _described(contents: Contents) -> dict[str, FeatureDescription]:
    """Return the descriptions of the features on which all manifests agree."""
    manifests = contents.manifests or _beside([os.path.abspath(shard.path) for shard in contents.shards])
    said: dict[str, list[FeatureDescription]] = {}
    for manifest in manifests:
        for name, feature in manifest.features.items():
            said.setdefault(name, []).append(feature)
    return {name: lists[0] for name, lists in said.items() if all(_alike(lists[0], other) for other in lists)}


def _alike(one: Mapping[str, object], other: Mapping[str, object]) -> bool:
    return all(one[key] == other[key] for key in ("encoding", "dtype", "shape"))


def _beside(paths: Sequence[str]) -> list[Manifest]:
    """Return the manifests in the folders of local shards that list these shards."""
    from tar2tf_cli.inputs.manifest import read_document

    manifests, folders = [], dict.fromkeys(map(os.path.dirname, paths))
    for folder in folders:
        for path in sorted(glob.glob(os.path.join(glob.escape(folder), f"*{MANIFEST_SUFFIX}"))):
            with suppress(SourceError):
                manifest = read_document(path).manifest
                if any(os.path.join(folder, shard.path) in paths for shard in manifest.shards):
                    manifests.append(manifest)
    return manifests


def _features(contents: Contents, described: Described, where: _Where) -> list[_FeatureCode]:
    steps = where == "steps"
    entries = {name: stats for name, stats in contents.entries.items() if stats.is_steps == steps}
    shapes = {f"{name}/shape" for name, stats in entries.items() if stats.shaped}
    return [
        _FeatureCode(
            name.removesuffix(STEPS) if steps else name,
            stats,
            contents.lacking(stats),
            described.get(name),
            where,
            name in shapes,
        )
        for name, stats in entries.items()
    ]


def _description(title: str, features: Sequence[_FeatureCode]) -> Iterator[str]:
    yield f"{title} = {{"
    for feature in features:
        if feature.trouble:
            yield f"    # {_quoted(feature.name)} {feature.trouble}"
        else:
            yield f"    {_quoted(feature.name)}: {feature.described},{feature.comment}"
    yield "}"


# --- The parse function ---

_NO_AUTOGRAPH: Final = "@tf.autograph.experimental.do_not_convert"  # AutoGraph warns about code without a file


def _function(contents: Contents, described: Described) -> Iterator[str]:
    sequences = sum(shard.sequences for shard in contents.shards)
    steps = _features(contents, described, "steps") if sequences else []
    features = _features(contents, described, "context" if steps else "example")
    call: tuple[str, ...]
    if steps:
        yield from _description("context_features", features)
        yield ""
        yield from _description("sequence_features", steps)
        call = (
            "    context, steps = tf.io.parse_single_sequence_example(record, context_features, sequence_features)",
            "    features = {**context, **steps}",
        )
    else:
        yield from _description("feature_description", features)
        call = ("    features = tf.io.parse_single_example(record, feature_description)",)
    yield from ("", "", _NO_AUTOGRAPH, "def parse(record):")
    if all(feature.trouble for feature in (*features, *steps)):
        yield "    return record"
        return
    yield from call
    by_name = {feature.name: feature for feature in features if not feature.trouble}
    for name in (_quoted(feature.name) for feature in by_name.values() if feature.is_sparse):
        yield f"    features[{name}] = tf.sparse.to_dense(features[{name}])"
    for feature in by_name.values():
        yield from _decoded(feature, by_name)
    yield "    return features"


def _decoded(feature: _FeatureCode, features: dict[str, _FeatureCode]) -> Iterator[str]:
    """Yield the lines that convert the bytes or values of a feature to an image or array."""
    value = f"features[{_quoted(feature.name)}]"
    if array := _array(feature, features, value):
        yield f"    {value} = {array}"
    elif not feature.is_scalar or feature.kinds != ["bytes"]:
        return
    elif decoding := _decoding(feature.stats, value):
        yield from _optionally(feature, value, *decoding)
        if "decode_image" in decoding[0]:
            yield f"    {value}.set_shape([None, None, {_channels(feature.stats)}])"
    elif _is_raw_image(feature, features):
        sizes = ", ".join(f'features["image/{side}"]' for side in ("height", "width", "channels"))
        yield f"    {value} = tf.reshape(tf.io.decode_raw({value}, tf.uint8), [{sizes}])"


def _array(feature: _FeatureCode, features: dict[str, _FeatureCode], value: str) -> str | None:
    """Return code that restores an array's values, dtype and shape; None if the feature is no array, or unchanged."""
    array = value
    if feature.is_raw:
        stored = "int64" if feature.dtype == "uint64" else feature.dtype  # which decode_raw does not know
        array = f"tf.io.decode_raw({array}, tf.{stored})"
        array = f"tf.bitcast({array}, tf.uint64)" if stored != feature.dtype else array
    elif feature.dtype in (*DTYPES["int64"][1:], *DTYPES["float"][1:]):
        array = f"tf.cast({array}, tf.{feature.dtype})"
    shape = _shape(feature, features, array)
    if shape is None:
        known = not feature.is_raw or feature.shape == []
        return array if known and array != value else None
    return f"tf.reshape({array}, {shape})"


def _shape(feature: _FeatureCode, features: dict[str, _FeatureCode], array: str) -> str | None:
    """Return code for the shape of an array; None if it is unknown, or the values have it already."""
    beside = features.get(f"{feature.name}/shape")
    if not beside or not (feature.is_raw or feature.stats.shaped or feature.shape):
        return "[]" if feature.is_raw and feature.shape == [] and not feature.optional else None
    shape = f"features[{_quoted(beside.name)}]"
    if not (feature.optional or beside.optional):
        return shape
    if not feature.shape:
        return None
    if feature.optional:  # a missing array has no shape; nor do single values and empty lists
        return f"tf.pad({shape}, [[0, {len(feature.shape)} - tf.size({shape})]])"
    lengths = [f"tf.minimum(tf.size({array}), 1)" if size is None else str(size) for size in feature.shape]
    return f"tf.concat([{shape}, tf.cast([{', '.join(lengths)}], tf.int64)[tf.size({shape}):]], 0)"


def _decoding(stats: Stats, value: str) -> tuple[str, str] | None:
    """Return code that decodes a value, and the result for a missing one; None if it stays as it is."""
    kinds = [kind for kind in stats.kinds if kind != "empty"]
    if kinds and all(kind in _DECODABLE for kind in kinds):
        channels = _channels(stats)
        decode = f"tf.io.decode_image({value}, channels={channels}, expand_animations=False)"
        return decode, f"tf.zeros([0, 0, {channels}], tf.uint8)"
    if dtype := _same(kinds, "npy "):
        return f"tf.numpy_function(load_npy, [{value}], tf.{dtype})", f"tf.zeros([0], tf.{dtype})"
    if dtype := _same(kinds, "tensor "):
        return f"tf.io.parse_tensor({value}, tf.{dtype})", f"tf.zeros([0], tf.{dtype})"
    return None


def _optionally(feature: _FeatureCode, value: str, decode: str, empty: str) -> Iterator[str]:
    """Yield lines that decode a value or, if the feature is optional and missing, make an empty array."""
    if not feature.optional and "empty" not in feature.stats.kinds:
        yield f"    {value} = {decode}"
        return
    yield f"    {value} = tf.cond("
    yield f"        tf.strings.length({value}) > 0,"
    yield f"        lambda: {decode},"
    yield f"        lambda: {empty},"
    yield "    )"


def _channels(stats: Stats) -> int:
    highest = max((high[2] for _, high in stats.shapes.values() if len(high) == 3), default=3)
    return {1: 1, 4: 4}.get(highest, 3) if set(stats.kinds) <= {"image/png", "empty"} or highest == 1 else 3


def _same(kinds: Sequence[str], prefix: str) -> str | None:
    """Return the dtype that all kinds have in common, if they begin with a prefix."""
    dtypes = {kind.removeprefix(prefix) if kind.startswith(prefix) else "" for kind in kinds}
    return dtypes.pop() if len(dtypes) == 1 and dtypes <= {*TENSOR_DTYPES.values()} else None


def _is_raw_image(feature: _FeatureCode, features: dict[str, _FeatureCode]) -> bool:
    """Whether the feature is a decoded image, as the preset imagenet-tensor stores it."""
    form = features.get("image/format")
    sides = all(f"image/{side}" in features for side in ("height", "width", "channels"))
    return feature.name == "image/encoded" and sides and bool(form and form.stats.example == "tensor")


def _payload_function(payload: Stats) -> Iterator[str]:
    """Yield the parse function for records that are not examples."""
    decoding = _decoding(payload, "record")
    yield f"# The records are not examples: {payload.kind}."
    yield from (_NO_AUTOGRAPH, "def parse(record):")
    yield f"    return {decoding[0] if decoding else 'record'}"


# --- The dataset ---


def _dataset(contents: Contents) -> Iterator[str]:
    methods = sorted({shard.compression for shard in contents.shards})
    if unread := [method for method in methods if method not in ("", "GZIP", "ZLIB")]:
        raise UsageError(f"TensorFlow does not read TFRecord compressed with {unread[0].lower()}")
    sets = []
    for method in methods:
        paths = [shard.path for shard in contents.shards if shard.compression == method]
        files = "files" if len(methods) == 1 else f"{method.lower() or 'plain'}_files"
        yield from _files(files, paths)
        sets.append(f"tf.data.TFRecordDataset({files}{f', compression_type={_quoted(method)}' if method else ''})")
    joined = sets[0] + "".join(f".concatenate({other})" for other in sets[1:])
    yield f"dataset = {joined}"
    yield "dataset = dataset.map(parse, num_parallel_calls=tf.data.AUTOTUNE)"


def _files(name: str, paths: Sequence[str]) -> Iterator[str]:
    folder, slash, base = _pattern(paths)
    if base:
        yield f"{name} = sorted(tf.io.gfile.glob({_quoted(folder + slash + base)}))"
        return
    yield from (f"{name} = [", *(f"    {_quoted(path)}," for path in paths), "]")


def _pattern(paths: Sequence[str]) -> tuple[str, str, str]:
    """Return folder, slash and glob for many local files if it matches no others; else three empty strings."""
    folder, slash, base = glob.escape(paths[0]).rpartition("/")
    base = re.sub(r"\d+", "*", base)
    alike = len(paths) > MOST_FILES and sorted(glob.glob(folder + slash + base)) == sorted(paths)
    return folder, slash, base if alike else ""


# --- Tars ---


def _program_for_tars(contents: Contents) -> Iterator[str]:
    complete = {name: stats for name, stats in contents.entries.items() if not contents.lacking(stats)}
    decoded = [f"    {op}," for name, stats in complete.items() if (op := _decode_op(name, stats))]
    yield from ("from tar2tf_cli import Dataset", "from tar2tf_cli.ops import Decode, Select", "")
    yield from ("conversions = [", *decoded, "]", "selections = {", '    "__key__": Select("__key__"),')
    for name, stats in contents.entries.items():
        if name in complete:
            yield f"    {_quoted(name)}: Select({_quoted(name)}),  # {stats.kind}".replace("\n", " ")
        else:
            yield f"    # {_quoted(name)} is missing in {contents.lacking(stats):,}"
    yield from ("}", "")
    paths: dict[str, list[str]] = {}
    for shard in contents.shards:
        paths.setdefault(os.path.dirname(shard.path), []).append(shard.path)
    joined = "dataset = "
    for folder, inside in paths.items():
        names = [_pattern(inside)[2]] if _pattern(inside)[2] else [os.path.basename(path) for path in inside]
        yield f"{joined}Dataset({_quoted(folder or '.')}, conversions=conversions, selections=selections).load("
        yield from ("    [", *(f"        {_quoted(name)}," for name in names), "    ]", ")" * (1 + (joined[-1] == "(")))
        joined = "dataset = dataset.concatenate("


def _decode_op(name: str, stats: Stats) -> str | None:
    """Return the op that converts an entry to an array; None if it stays as it is."""
    kinds = set(stats.kinds)
    if kinds and kinds <= {"image/jpeg", "image/png", "image/bmp"}:
        channels = {size[2] for sizes in stats.shapes.values() for size in sizes}
        return f"Decode({_quoted(name)}{', channels=3' if len(channels) > 1 else ''})"
    return f"Decode({_quoted(name)})" if _same([*stats.kinds], "npy ") or kinds == {"audio/wav"} else None


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
