"""`tar2tf export` and `tar2tf index`: write the files by which other programs read unchanged shards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click

from tar2tf_cli.cli.options import (
    Command,
    key_split_option,
    output_option,
    propose_files,
    quiet_option,
    retry_option,
    shards_arguments,
    store_options,
)
from tar2tf_cli.cli.output import echo, message
from tar2tf_cli.errors import UsageError, count


@click.command("export", cls=Command)
@click.argument("format", type=click.Choice(["hf", "schema", "tfds", "wids"]), metavar="FORMAT")
@click.argument("manifest", metavar="DIR", shell_complete=propose_files)
@output_option(
    "--name NAME[:VERSION]",
    help="Name and version.  [default: FOLDER:1.0.0]",
    more="Name and version of the dataset. This and the following options, except the last, are for tfds.",
)
@output_option(
    "--class-names FEATURE=FILE",
    multiple=True,
    help="Label map with the class names.",
    more="FILE has one class per line, or is JSON. The default is the label map that convert wrote. May be repeated.",
)
@output_option(
    "--supervised INPUT,TARGET",
    help="Features that as_supervised=True returns.",
    more="The default is the image and its class, if there is one of each.",
)
@output_option("--description TEXT", help="Description of the dataset.")
@output_option("--citation TEXT", help="BibTeX entry of the dataset.")
@output_option("--overwrite", is_flag=True, help="Overwrite existing files.")
def export(
    format: str, manifest: str, name: str | None, class_names: Sequence[str], supervised: str | None, **options: Any
) -> int:
    """Describe shards for other readers.

    This lets other readers read the shards unchanged. DIR is a manifest, or a folder with one manifest, next to which
    the command writes files. FORMAT is one of these:

    tfds: dataset_info.json, features.json, and a file of class names for each feature with a label map. In Python,
    tensorflow_datasets.builder_from_directory("out") then has the splits, images and class names. It requires
    TFRecords numbered with <00000> or <00000>-of-<total>, or a single one.

    hf: README.md, a dataset card by which datasets.load_dataset("out") finds the tars of each split. The text of an
    existing card is kept.

    schema: _train-schema.pbtxt, the features of TFRecords as TensorFlow Metadata describes them, for TFX and for
    ray.data.read_tfrecords(tf_schema=).

    wids: _train-wids.json, the index of wids.ShardListDataset; one for each split.

    \b
    tar2tf convert --from imagefolder photos -o 'out/train-<00000>.record'
    tar2tf export tfds out --name my_photos:1.0.0
    """
    if format != "tfds":
        own = {"class_names": class_names, "supervised": supervised, "name": name, **options}
        return _export_side_file(format, manifest, own)
    from tar2tf_cli.datasets.tfds import export_tfds

    pairs = [text.partition("=") for text in class_names]
    for feature, equals, path in pairs:
        if not (feature and equals and path):
            given = feature + equals + path
            raise UsageError(f"--class-names takes FEATURE=FILE, not {given!r}", hint="for example: cls=names.txt")
    maps = {feature: path for feature, _, path in pairs}
    pair = supervised.split(",") if supervised else ()
    for path in export_tfds(manifest, name, labels=maps, supervised=pair, **options):
        echo(path)
    return 0


def _export_side_file(format: str, manifest: str, options: dict[str, Any]) -> int:
    """Write the file of a format that needs no options but `--overwrite`."""
    from tar2tf_cli.datasets.side_files import export_card, export_schema, export_wids

    overwrite = options.pop("overwrite")
    if given := next((name for name, value in options.items() if value), None):
        raise UsageError(f"--{given.replace('_', '-')} is only for export tfds", hint="leave it out")
    if format == "hf":
        paths = export_card(manifest)
    else:
        paths = {"schema": export_schema, "wids": export_wids}[format](manifest, overwrite=overwrite)
    for path in paths:
        echo(path)
    return 0


@click.command("index", cls=Command)
@shards_arguments()
@key_split_option
@output_option(
    "--for READERS",
    "readers",
    default="dali",
    show_default=True,
    help="Readers that need an index.",
    more="dali, energon, or both as dali,energon. For energon, the command also writes the folder .nv-meta.",
)
@output_option("--overwrite", is_flag=True, help="Replace indexes that differ.")
@store_options
@retry_option
@quiet_option
def index(
    bucket: str,
    template: tuple[str, ...],
    key_split: str,
    readers: str,
    overwrite: bool,
    quiet: bool,
    **connection: object,
) -> int:
    """Write an index next to each shard.

    BUCKET is a folder or a shard, on this machine or in a bucket that can be written to. TEMPLATE names shards in it,
    with bash braces or a glob. If all arguments are existing paths, these files and folders are indexed.

    \b
    tar2tf index shards
    tar2tf index shards/train-*.tar

    The index of a.tar is a.tar.idx, in the format of NVIDIA DALI's wds2idx (version 1.2), for its webdataset reader.
    The index of a.record is a.record.idx, with the offset and size of each record, as convert --index writes it.
    open_records uses both to jump to any sample. Indexing reads only headers and lengths. An index that is already
    correct is kept.

    With --for energon, the index of a.tar is Megatron Energon's, and .nv-meta gets the files that `energon prepare`
    writes: numbers of samples, the splits of the manifest or of the shards' names, and the position of each sample.
    DALI's index is then a.idx.
    """
    given = {name.strip() for name in readers.split(",")}
    if unknown := given - {"dali", "energon"}:
        raise UsageError(f"--for knows no reader {min(unknown)!r}", hint="readers: dali, energon")
    for path, number in _written(bucket, template, key_split, given, overwrite=overwrite, **connection):
        if not quiet:
            message(f"{path}: {count(number, 'sample')}")
    return 0


def _written(
    bucket: str, template: Sequence[str], key_split: str, readers: set[str], **options: object
) -> Iterator[tuple[str, int]]:
    """Write the indexes for the given readers; yield the path and number of samples of each."""
    if "energon" in readers:
        from tar2tf_cli.datasets.energon import prepare_energon

        if key_split != "first":
            raise UsageError("Energon splits names at the first dot", hint="leave out --key-split")
        return prepare_energon(bucket, template, dali="dali" in readers, **options)  # type: ignore[arg-type]
    from tar2tf_cli.datasets.indexes import write_indexes

    return write_indexes(bucket, template, key_split=key_split, **options)  # type: ignore[arg-type]
