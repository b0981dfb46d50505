"""Writes Python code that parses the records of TFRecord shards with tf.data, from what inspect found in them."""

from __future__ import annotations

import glob
import json
import re
from collections.abc import Iterator, Sequence
from typing import Final

from tar2tf_cli.checking.contents import STEPS, Contents, Stats
from tar2tf_cli.errors import UsageError

_DTYPES: Final = {"bytes": "tf.string", "int64": "tf.int64", "float": "tf.float32"}
_DEFAULTS: Final = {"bytes": '""', "int64": "0", "float": "0.0"}
_DECODABLE: Final = ("image/jpeg", "image/png", "image/bmp", "image/gif")
_MOST_FILES: Final = 20


def parse_code(contents: Contents) -> str:
    """Return a program with a feature description, a parse function and a dataset.

    Features that some records lack get a default; lists whose length varies become vectors. Images are decoded, arrays
    reshaped; other bytes stay as they are.

    Raises:
        UsageError: when the shards are not TFRecord, or are compressed in a way that TensorFlow does not read.
    """
    if contents.format != "tfrecord":
        raise UsageError("--code is for TFRecord shards", hint="convert tars first")
    return "\n".join([*_program(contents), ""])


def _program(contents: Contents) -> Iterator[str]:
    foreign = sum(shard.foreign for shard in contents.shards)
    examples = contents.samples - foreign
    body = list(_function(contents) if examples or not foreign else _payload_function(contents.payload))
    if any("load_npy" in line for line in body):
        yield from ("import io", "", "import numpy as np")
    yield from ("import tensorflow as tf", "")
    if foreign and examples:
        yield f"# {foreign:,} of {contents.samples:,} records are not tf.train.Examples, so parsing them fails:"
        yield "# tar2tf verify lists them, and verify --salvage writes the others to a new file."
    if any("load_npy" in line for line in body):
        yield from ("", "def load_npy(data):", "    return np.load(io.BytesIO(data))", "")
    yield from body
    yield from ("", "", *_dataset(contents))


# --- The feature description ---


class _Feature:
    """One feature: how it is described, and what is done to it after parsing.

    Args:
        name: its name.
        stats: what is known of it.
        lacking: how many examples lack it.
        vector: whether it is a vector even if it always has one value, as the shape of an array is.
        in_context: whether it is in the context of SequenceExamples, where TensorFlow takes lists only as sparse ones.
    """

    def __init__(
        self, name: str, stats: Stats, lacking: int, *, vector: bool = False, in_context: bool = False
    ) -> None:
        self.name = name
        self.vector = vector
        self.in_context = in_context
        self.stats = stats
        self.kinds = sorted(kind for kind in stats.lists if kind)
        self.optional = lacking > 0 or None in stats.lists
        self.lacking = lacking
        low, high = stats.values or (0, 0)
        self.length = low if low == high and low else None

    @property
    def is_scalar(self) -> bool:
        """Whether it is one value in every example that has it."""
        return self.length == 1 and not self.vector

    @property
    def trouble(self) -> str | None:
        """Why it cannot be parsed, if so."""
        if not self.kinds:
            return "has no values"
        if self.stats.divided:
            return "has lists in several pieces, of which TensorFlow reads only the first"
        if len(self.kinds) > 1:
            return f"is a list of {' in some records, of '.join(self.kinds)} in others, which TensorFlow cannot parse"
        return None

    @property
    def described(self) -> str:
        """The right side of its line in the feature description."""
        dtype = _DTYPES[self.kinds[0]]
        if self.length and not self.optional:
            return f"tf.io.FixedLenFeature([{'' if self.is_scalar else self.length}], {dtype})"
        if self.is_scalar:
            return f"tf.io.FixedLenFeature([], {dtype}, default_value={_DEFAULTS[self.kinds[0]]})"
        if self.in_context:
            return f"tf.io.VarLenFeature({dtype})"
        return f"tf.io.FixedLenSequenceFeature([], {dtype}, allow_missing=True)"

    @property
    def is_sparse(self) -> bool:
        """Whether parsing it gives a sparse tensor."""
        return self.in_context and "VarLen" in self.described

    @property
    def listed(self) -> str:
        """The same for a feature list of a SequenceExample."""
        dtype = _DTYPES[self.kinds[0]]
        if not self.length:
            return f"tf.io.VarLenFeature({dtype})"
        missing = ", allow_missing=True" if self.optional else ""
        return f"tf.io.FixedLenSequenceFeature([{'' if self.is_scalar else self.length}], {dtype}{missing})"

    @property
    def comment(self) -> str:
        """What its values are, and how many examples lack it."""
        lacking = f"; missing in {self.lacking:,}" if self.lacking else ""
        return f"  # {self.stats.kind}{lacking}".replace("\n", " ")


def _features(contents: Contents, *, steps: bool = False, in_context: bool = False) -> list[_Feature]:
    entries = {name: stats for name, stats in contents.entries.items() if name.endswith(STEPS) == steps}
    cut = len(STEPS) if steps else 0
    shapes = {f"{name}/shape" for name, stats in entries.items() if stats.shaped}
    return [
        _Feature(name[: len(name) - cut], stats, contents.lacking(stats), vector=name in shapes, in_context=in_context)
        for name, stats in entries.items()
    ]


def _description(title: str, features: Sequence[_Feature], *, listed: bool = False) -> Iterator[str]:
    yield f"{title} = {{"
    for feature in features:
        if feature.trouble:
            yield f"    # {_quoted(feature.name)} {feature.trouble}"
        else:
            described = feature.listed if listed else feature.described
            yield f"    {_quoted(feature.name)}: {described},{feature.comment}"
    yield "}"


# --- The parse function ---


def _function(contents: Contents) -> Iterator[str]:
    sequences = sum(shard.sequences for shard in contents.shards)
    steps = _features(contents, steps=True) if sequences else []
    features = _features(contents, in_context=bool(steps))
    call: tuple[str, ...]
    if steps:
        yield from _description("context_features", features)
        yield ""
        yield from _description("sequence_features", steps, listed=True)
        call = (
            "    context, steps = tf.io.parse_single_sequence_example(record, context_features, sequence_features)",
            "    features = {**context, **steps}",
        )
    else:
        yield from _description("feature_description", features)
        call = ("    features = tf.io.parse_single_example(record, feature_description)",)
    yield from ("", "", "def parse(record):")
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


def _decoded(feature: _Feature, features: dict[str, _Feature]) -> Iterator[str]:
    """The lines that turn the bytes or values of a feature into an image or array."""
    value = f"features[{_quoted(feature.name)}]"
    shape = features.get(f"{feature.name}/shape")
    if feature.stats.shaped and shape and not (feature.optional or shape.optional):
        source = f"tf.io.decode_raw({value}, tf.uint8)" if feature.stats.shaped == "uint8" else value
        yield f"    {value} = tf.reshape({source}, features[{_quoted(shape.name)}])"
    elif not feature.is_scalar or feature.kinds != ["bytes"]:
        return
    elif found := _decoding(feature.stats, value):
        yield from _optionally(feature, value, *found)
        if "decode_image" in found[0]:
            yield f"    {value}.set_shape([None, None, {_channels(feature.stats)}])"
    elif _is_raw_image(feature, features):
        sizes = ", ".join(f'features["image/{side}"]' for side in ("height", "width", "channels"))
        yield f"    {value} = tf.reshape(tf.io.decode_raw({value}, tf.uint8), [{sizes}])"


def _decoding(stats: Stats, value: str) -> tuple[str, str] | None:
    """What decodes a value, and what an empty one becomes; None if it stays as it is."""
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


def _optionally(feature: _Feature, value: str, decode: str, empty: str) -> Iterator[str]:
    """Decode a value or, where the feature may be missing, make an empty array instead."""
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
    """The dtype that all kinds have in common, if they begin with a prefix."""
    dtypes = {kind.removeprefix(prefix) if kind.startswith(prefix) else "" for kind in kinds}
    return dtypes.pop() if len(dtypes) == 1 and dtypes & _TENSOR_DTYPES else None


_TENSOR_DTYPES: Final = {
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *("float16", "float32", "float64", "bfloat16", "bool", "string"),
}


def _is_raw_image(feature: _Feature, features: dict[str, _Feature]) -> bool:
    """Whether it is a decoded image, as the preset imagenet-tensor stores it."""
    form = features.get("image/format")
    sides = all(f"image/{side}" in features for side in ("height", "width", "channels"))
    return feature.name == "image/encoded" and sides and bool(form and form.stats.example == "tensor")


def _payload_function(payload: Stats) -> Iterator[str]:
    """The function for records that are not examples."""
    found = _decoding(payload, "record")
    yield f"# The records are not examples: {payload.kind}."
    yield "def parse(record):"
    yield f"    return {found[0] if found else 'record'}"


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
    folder, slash, base = glob.escape(paths[0]).rpartition("/")
    pattern = folder + slash + re.sub(r"\d+", "*", base)
    if len(paths) > _MOST_FILES and sorted(glob.glob(pattern)) == sorted(paths):
        yield f"{name} = sorted(tf.io.gfile.glob({_quoted(pattern)}))"
        return
    yield from (f"{name} = [", *(f"    {_quoted(path)}," for path in paths), "]")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
