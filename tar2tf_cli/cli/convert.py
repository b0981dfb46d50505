"""`tar2tf convert`: builds a conversion from the options, runs it, and prints its summary as text or JSON."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from tar2tf_cli.cli.options import endpoint_option, input_options, option, output_options, words, workers_option
from tar2tf_cli.cli.output import Terminal

if TYPE_CHECKING:
    from tar2tf_cli.spec.conversion import Conversion
    from tar2tf_cli.stores import Source

__all__ = ["command"]


@click.command("convert")
@click.argument("bucket", required=False)
@click.argument("template", nargs=-1)
@option("-o", "--output", "path", metavar="PATH", help="Path template of the shards, a device or a pipe; - for stdout.")
@option("--max-shard-size", metavar="SIZE", help="Maximum size of a shard on disk, such as 100MB or 1GiB.")
@option("--num-shards", metavar="N", help="Write N shards whose record counts differ by at most one.")
@option("--records-per-shard", metavar="N", help="Maximum number of records in a shard.")
@workers_option
@option(
    "--type",
    "types",
    multiple=True,
    metavar="NAME=TYPE",
    help="Type of a feature: int64, float, bytes, or one of these with _list.",
)
@option(
    "--op",
    "ops",
    multiple=True,
    metavar="OP",
    help="An op to apply to each sample, such as resize:jpg,224x224; repeatable, applied in order.",
)
@option(
    "--select",
    multiple=True,
    metavar="SEL",
    help="Entries that become features: jpg,cls or label=json:annotations.0.label.",
)
@option("--preset", metavar="NAME", help="A known set of features: image-label, imagenet, imagenet-tensor.")
@option("--image-size", metavar="N", help="Crop and scale the images of imagenet-tensor to N x N.")
@option("--max-pixels", metavar="N", help="Refuse to decode images with more pixels.  [default: 134217728]")
@option("--spec", "spec_path", metavar="FILE", help="Read the conversion from a YAML file; - for standard input.")
@option(
    "--from",
    "kind",
    **words("tar", "imagefolder", "examples"),
    help="What BUCKET is: tars, a folder of images per class, or rows of a CSV file.",
)
@option(
    "--labels",
    metavar="FILE|imagenet",
    help="Label numbers and texts of an image folder's classes: JSON, lines of CLASS or CLASS<TAB>TEXT, or imagenet.",
)
@option(
    "--example-class", metavar="WHERE", help="The class that turns rows into examples: FILE.py:CLASS or MODULE:CLASS."
)
@option(
    "--example-arg",
    "example_args",
    multiple=True,
    metavar="NAME=VALUE",
    help="An argument passed to its methods; a VALUE that is valid JSON is parsed.",
)
@endpoint_option
@input_options
@option("--shuffle", is_flag=True, help="Shuffle the records across all shards.")
@option("--seed", metavar="N", help="Random seed for --shuffle and for random ops.  [default: 0]")
@option("--limit", metavar="N", help="Convert at most N samples.")
@option("--split", metavar="NAME=FRACTION,…", help="Split by a hash of the key, such as train=0.9,val=0.1.")
@option("--compression", **words("none", "gzip"), help="Compress the shards.")
@option("--index", is_flag=True, help="Write SHARD.idx beside each shard: the offset and size of each record.")
@option("--on-error", **words("fail", "skip"), help="What to do with a faulty sample.")
@option("--max-errors", metavar="N", help="Give up after more than N faulty samples.")
@option(
    "--errors",
    "errors_path",
    metavar="FILE",
    help="Write the errors of faulty samples to FILE, one JSON document per line.",
)
@option("--overwrite", is_flag=True, help="Replace files that this conversion did not write.")
@option("--dry-run", is_flag=True, help="Show the plan and the first sample; write nothing.")
@output_options
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> int:
    """Convert tar shards to TFRecord shards.

    BUCKET is a directory, a tar file, - for one tar on standard input, or a URL that begins with ais://, ais+s3://,
    ais+gs://, s3://, gs://, az://, http:// or https://; with --from, a folder with one folder of
    images per class, or a CSV file whose rows describe examples. TEMPLATE names shards in it, with bash
    braces or a glob; by default every *.tar, *.tar.gz, *.tgz, *.tar.zst, *.tar.bz2 and *.tar.xz is
    converted in sorted order. If all arguments are existing paths, these files and folders are the inputs, in the
    order given.

    \b
    tar2tf convert shards 'train-{0000..0146}.tar' -o 'out/train-<>.record' --max-shard-size 100MB
    tar2tf convert shards/*.tar -o train.record
    tar2tf convert shards -o 'out/<split>-<00000>-of-<total>.record' --split train=0.9,val=0.1
    tar2tf convert shards -o train.record --op decode:jpg --op resize:jpg,224x224 --select jpg,cls --type cls=int64
    cat one.tar | tar2tf convert - -o one.record
    tar2tf convert --from imagefolder photos -o 'out/train-<00000>-of-<total>' --preset imagenet-tensor --image-size 300
    tar2tf convert --from examples --example-class toy.py:ToyExample examples.csv -o 'out/train-<>.record'

    In PATH, <> counts from 1 and <00000> from 00000; <total> is the number of shards, <split> the split, <input>
    the input's name. The manifest is written beside the shards. To continue an interrupted run, repeat the command.
    """
    from tar2tf_cli.cli.summary import print_plan, print_summary
    from tar2tf_cli.conversion.plan import make_plan
    from tar2tf_cli.conversion.run import convert

    conversion, as_json = _conversion(ctx), options["as_json"]
    if as_json and conversion.output.path == "-" and not options["dry_run"]:
        raise click.UsageError("--json and the records would both go to standard output: use one or the other")
    where: dict[str, Any] = {"endpoint": options["endpoint"], "source": _paths(conversion)}
    if options["dry_run"]:
        print_plan(make_plan(conversion, **where), as_json=as_json)
        return 0
    with Terminal(
        quiet=options["quiet"],
        verbose=options["verbose"],
        progress=options["progress"],
        errors_path=options["errors_path"],
    ) as terminal:
        _note_lost_field(terminal, conversion.output.path)
        summary = convert(
            conversion,
            workers=options["num_workers"],
            overwrite=options["overwrite"],
            events=terminal,
            **where,
        )
    print_summary(summary, conversion.output.path, quiet=options["quiet"], as_json=as_json)
    return 1 if summary.skipped_samples else 0


def _paths(conversion: Conversion) -> Source | None:
    """The source of the inputs if all arguments are existing paths; otherwise None."""
    from tar2tf_cli.inputs.paths import PathsSource, are_paths

    spec = conversion.input
    if spec.kind == "tar" and are_paths(spec.bucket, spec.template):
        return PathsSource((spec.bucket, *spec.template), every=False)
    return None


def _note_lost_field(terminal: Terminal, path: str) -> None:
    """Warn about a path that ends as if the shell had treated its `<>` as a redirection."""
    if path.endswith(("-", "_")) and path != "-" and not {"<", "{"} & set(path):
        terminal.note(f"note: the output path ends with {path[-1]!r}; quote a <>, as in -o '{path}<>.record'")


_PATHS: Final = ("bucket", "path", "labels")
"""Options whose ~ is expanded here: a path with <> must be quoted, and then the shell does not expand it."""


def _conversion(context: click.Context) -> Conversion:
    """The conversion that the options describe: flags override the environment, which overrides the spec file."""
    from tar2tf_cli.spec.conversion import Conversion
    from tar2tf_cli.spec.yaml_file import SECTIONS, build, read, spec_fields

    flags: dict[str, Any] = {section: {} for section in SECTIONS}
    labels = {param.name: param.opts[-1] for param in context.command.params}
    for section, kind in {**SECTIONS, "": Conversion}.items():
        for key, field in spec_fields(kind).items():
            value = context.params.get(field.name)
            default = context.get_parameter_source(field.name) in (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP)
            if value not in (None, ()) and not default:
                value = os.path.expanduser(value) if field.name in _PATHS else value
                flags.get(section, flags)[key] = field.check(value, labels[field.name])
    path = context.params["spec_path"]
    return read(path, flags) if path else build(flags)
