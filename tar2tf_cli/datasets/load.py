"""Loads the output of a conversion as a parsed `tf.data.Dataset`, from a folder or a bucket."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final, TypeAlias

from tar2tf_cli.datasets.parse import record_parser
from tar2tf_cli.datasets.shards import Paths, listed, paths_in, read_manifests, together
from tar2tf_cli.errors import SourceError, UsageError
from tar2tf_cli.formats.record_reader import RecordReader
from tar2tf_cli.inputs.open_shard import OpenShard

if TYPE_CHECKING:
    import tensorflow as tf

    from tar2tf_cli.conversion.manifest import Document, ShardEntry


Reader: TypeAlias = "Callable[[tf.Tensor], tf.data.Dataset]"
"""Makes a dataset of the serialised examples in the shards with these names, one after the other."""

_AT_ONCE: Final = 16


def load_dataset(
    manifest: Paths,
    *more: str | os.PathLike[str],
    split: str | None = None,
    shuffle: int | None = None,
    seed: int | None = None,
    shard: tuple[int, int] | None = None,
    batch: int | None = None,
    endpoint: str | None = None,
    retry_for: float | None = None,
    no_sign_request: bool = False,
) -> tf.data.Dataset:
    """The parsed examples of a conversion, as dicts of tensors by feature name, in the order they were written.

    Dtypes and shapes are those in the manifest. Arrays of different sizes keep their shapes, and a feature that an
    example lacks is an empty tensor. From a bucket, examples are streamed again in each epoch, every CRC is checked,
    and no file is kept. The cardinality is known; if the shards hold a different number of records, TensorFlow raises
    an error. For local shards, `tf.train.Checkpoint(iterator=iter(dataset))` saves how far they are read.

    Args:
        manifest: the path or URL of a manifest, of the folder that holds it, or a template such as
            `"out/part*-manifest.json"`; or a list of these, which together are one dataset, as when several machines
            converted a part each.
        more: further ones.
        split: load only the shards of this split.
        shuffle: number of examples in the buffer from which the next one is drawn; shards are then read in random
            order, 16 at once. By default nothing is shuffled.
        seed: makes shuffling the same in each run; each epoch has an order of its own.
        shard: `(hosts, host)`: load one of several equal parts, counted from 0, such as that of one host. If there are
            at least as many shards as parts, each part consists of whole shards; otherwise each host reads all shards
            and keeps every so many examples.
        batch: number of examples in a batch, which are then fetched ahead; the last one may be smaller.
        endpoint: URL of the store that holds the bucket.
        retry_for: for how many seconds failed requests to the store are repeated without progress; by default
            TAR2TF_RETRY_FOR, else 60.
        no_sign_request: whether a cloud bucket is read without credentials, as public ones may be.

    Raises:
        SourceError: when there is nothing at a path.
        UsageError: when shards have no manifest, there is no such split, a number is impossible, or manifests differ in
            the kind of a feature.
    """
    hosts, host = _checked(shuffle, batch, shard)
    reach = {"endpoint": endpoint, "retry_for": retry_for, "no_sign_request": no_sign_request}
    read = read_manifests(paths_in(manifest, more), **reach)
    features, total = together(read)
    shards = listed(read, split)
    by_record = len(shards) < hosts
    if not by_record:
        shards = shards[host::hosts]
    count = sum(entry.records for _, entry in shards)
    names = [os.path.join(os.path.dirname(one.path), entry.path) for one, entry in shards]
    import tensorflow as tf

    methods = {"GZIP" if one.manifest.compressed else "" for one in read}
    if len(methods) > 1 or any(one.folder.abilities().remote for one in read):
        reader = _any_reader(dict(zip(names, shards, strict=True)))
    else:
        reader = partial(tf.data.TFRecordDataset, compression_type=methods.pop())
    records = _ordered(names, reader, shuffle, seed)
    if by_record:
        records, count = records.shard(hosts, host), len(range(host, count, hosts))
    if shuffle:
        records = records.shuffle(shuffle, seed)
    if features:
        try:
            parse = record_parser(features, total)
        except SourceError as error:
            raise error.at(shard=read[0].path) from None
        records = records.map(parse, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    records = records.apply(tf.data.experimental.assert_cardinality(count))
    return records.batch(batch).prefetch(tf.data.AUTOTUNE) if batch else records


def _checked(shuffle: int | None, batch: int | None, shard: tuple[int, int] | None) -> tuple[int, int]:
    """Check the numbers that the user gave; return those of the parts and of the part."""
    for name, value in (("shuffle", shuffle), ("batch", batch)):
        if value is not None and (isinstance(value, bool) or value < 1):
            raise UsageError(f"{name} is a number of examples, 1 or more, not {value!r}")
    hosts, host = shard or (1, 0)
    if not 0 <= host < hosts:
        raise UsageError(f"shard is (hosts, host), such as (4, 0) to (4, 3), not {shard!r}")
    return hosts, host


def _ordered(names: Sequence[str], read: Reader, shuffle: int | None, seed: int | None) -> tf.data.Dataset:
    """The records of shards one after the other or, to shuffle them, of several at once in random order."""
    import tensorflow as tf

    paths = tf.constant(names, tf.string, [len(names)])
    if not shuffle or len(names) < 2:
        return read(paths)
    shards = tf.data.Dataset.from_tensor_slices(paths).shuffle(len(names), seed)
    return shards.interleave(
        lambda name: read(name[tf.newaxis]), _AT_ONCE, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    )


def _any_reader(places: Mapping[str, tuple[Document, ShardEntry]]) -> Reader:
    """Return what reads shards in buckets, too; TensorFlow supports fewer stores, and its errors say less.

    Args:
        places: each shard, with its manifest.
    """
    import tensorflow as tf

    def records(paths: Sequence[bytes]) -> Iterator[bytes]:
        wanted = [places[path.decode("utf-8", "surrogateescape")] for path in paths]
        for one, alike in groupby(wanted, lambda place: place[0]):
            for item in one.find([entry for _, entry in alike]):
                with OpenShard(one.folder, item) as shard:
                    yield from (record for _, record in RecordReader(shard, shard.name))

    signature = tf.TensorSpec([], tf.string)
    return lambda names: tf.data.Dataset.from_generator(records, output_signature=signature, args=(names,))
