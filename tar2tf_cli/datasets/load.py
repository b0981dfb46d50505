"""Loads the output of a conversion as a parsed `tf.data.Dataset`, from a folder or a bucket."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tar2tf_cli.conversion.manifest import Manifest
from tar2tf_cli.datasets.parse import record_parser
from tar2tf_cli.datasets.shards import read_manifest, shards_of_split
from tar2tf_cli.errors import SourceError
from tar2tf_cli.formats.tfrecord import RecordReader
from tar2tf_cli.inputs.open_shard import OpenShard
from tar2tf_cli.spec.urls import without_secrets
from tar2tf_cli.stores import Folder

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = ["load_dataset"]


def load_dataset(
    manifest: str | os.PathLike[str],
    *,
    split: str | None = None,
    endpoint: str | None = None,
    retry_for: float | None = None,
    no_sign_request: bool = False,
) -> tf.data.Dataset:
    """The parsed examples of a conversion, as dicts of tensors by feature name, in the order they were written.

    Dtypes and shapes are those in the manifest. Arrays of different sizes keep their shapes, and a feature that an
    example lacks is an empty tensor. From a bucket, examples are streamed again in each epoch, every CRC is checked,
    and no file is kept. The cardinality is known; if the shards hold a different number of records, TensorFlow raises
    an error.

    Args:
        manifest: the manifest's path or URL.
        split: load only the shards of this split.
        endpoint: URL of the store that holds the bucket.
        retry_for: for how many seconds failed requests to the store are repeated without progress; by default
            TAR2TF_RETRY_FOR, else 60.
        no_sign_request: whether a cloud bucket is read without credentials, as public ones may be.

    Raises:
        SourceError: when the manifest does not exist.
        UsageError: when it has no such split.
    """
    path = os.fspath(manifest)
    document, folder = read_manifest(path, endpoint=endpoint, retry_for=retry_for, no_sign_request=no_sign_request)
    shards = shards_of_split(document, split)
    names = [shard.path for shard in shards]
    if folder:
        records = _from_bucket(folder, names)
    else:
        records = _from_files([os.path.join(os.path.dirname(path), name) for name in names], document)
    import tensorflow as tf

    if document.features:
        try:
            parse = record_parser(document.features, document.records)
        except SourceError as error:
            raise error.at(shard=without_secrets(path)) from None
        records = records.map(parse, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    return records.apply(tf.data.experimental.assert_cardinality(sum(shard.records for shard in shards)))


def _from_files(paths: Sequence[str], document: Manifest) -> tf.data.Dataset:
    """The serialised examples of local shards."""
    import tensorflow as tf

    compression = "GZIP" if document.compressed else ""
    return tf.data.TFRecordDataset(tf.constant(paths, tf.string, [len(paths)]), compression_type=compression)


def _from_bucket(folder: Folder, names: Sequence[str]) -> tf.data.Dataset:
    """The serialised examples of shards in a bucket; TensorFlow supports fewer stores, and its errors say less."""
    import tensorflow as tf

    def records() -> Iterator[bytes]:
        items = folder.find(names)
        for name in names:
            if name not in items:
                raise SourceError("is missing", shard=folder.locate(name))
            with OpenShard(folder, items[name]) as shard:
                for _, record in RecordReader(shard, shard.name):
                    yield record

    return tf.data.Dataset.from_generator(records, output_signature=tf.TensorSpec([], tf.string))
