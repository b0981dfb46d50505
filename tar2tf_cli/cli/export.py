"""`tar2tf export`: describes shards for another program, which then reads them as they are."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tar2tf_cli.cli.options import Command, completing, output_option
from tar2tf_cli.cli.output import echo
from tar2tf_cli.errors import UsageError


@click.command("export", cls=Command)
@click.argument("format", type=click.Choice(["tfds"]), metavar="tfds")
@click.argument("manifest", metavar="DIR", shell_complete=completing("files"))
@output_option(
    "--name NAME[:VERSION]",
    help="Name and version.  [default: FOLDER:1.0.0]",
    more="Those of the dataset; by default, the name of the folder and 1.0.0.",
)
@output_option(
    "--class-names FEATURE=FILE",
    multiple=True,
    help="Label map with the names of its classes.",
    more="May be repeated. The default is the label map that convert wrote. FILE has one class per line, or is JSON.",
)
@output_option("--overwrite", is_flag=True, help="Replace other files of these names.")
def command(format: str, manifest: str, name: str | None, class_names: Sequence[str], overwrite: bool) -> int:
    """Describe shards for TensorFlow Datasets.

    TensorFlow Datasets then reads them as they are. DIR is a folder with one manifest, or a manifest. Next to it,
    dataset_info.json and features.json are written, and a file of names for each feature that has a label map.

    \b
    tar2tf convert --from imagefolder photos -o 'out/train-<00000>.record'
    tar2tf export tfds out --name my_photos:1.0.0

    In Python, tensorflow_datasets.builder_from_directory("out") then has the splits, images and names of classes.

    TensorFlow Datasets finds shards that are numbered with <00000> or <00000>-of-<total>, and a single shard.
    """
    from tar2tf_cli.datasets.tfds import export_tfds

    pairs = [text.partition("=") for text in class_names]
    for feature, equals, path in pairs:
        if not (feature and equals and path):
            given = feature + equals + path
            raise UsageError(f"--class-names takes FEATURE=FILE, not {given!r}", hint="write it as in cls=names.txt")
    maps = {feature: path for feature, _, path in pairs}
    for path in export_tfds(manifest, name, labels=maps, overwrite=overwrite):
        echo(path)
    return 0
