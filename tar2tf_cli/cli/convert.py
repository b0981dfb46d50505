"""`tar2tf convert`: options to a conversion, its summary to text or JSON."""

from __future__ import annotations

from typing import Any

import click

from tar2tf_cli.cli.options import (
    Choice,
    conversion_of,
    endpoint_option,
    input_options,
    output_options,
    workers_option,
)
from tar2tf_cli.cli.output import Terminal

__all__ = ["command"]


@click.command("convert", context_settings={"auto_envvar_prefix": "TAR2TF"})
@click.argument("bucket", required=False)
@click.argument("template", nargs=-1)
@click.option(
    "-o",
    "--output",
    "path",
    envvar="TAR2TF_OUTPUT",
    metavar="PATH",
    help="Path template of the shards; - is standard output.",
)
@click.option("--max-shard-size", metavar="SIZE", help="Most bytes a shard takes on disk, such as 100MB or 1GiB.")
@click.option("--num-shards", metavar="N", help="Make N shards of equal count (within one).")
@click.option("--records-per-shard", metavar="N", help="Most records a shard holds.")
@workers_option
@click.option(
    "--type",
    "types",
    envvar="TAR2TF_TYPE",
    multiple=True,
    metavar="NAME=TYPE",
    help="Type of a feature: int64, float, bytes, or one of these with _list.",
)
@click.option(
    "--op",
    "ops",
    envvar="TAR2TF_OP",
    multiple=True,
    metavar="OP",
    help="An op on each sample, such as resize:jpg,224x224; repeatable, in order.",
)
@click.option(
    "--select",
    multiple=True,
    metavar="SEL",
    help="Entries that become features: jpg,cls or label=json:annotations.0.label.",
)
@click.option("--preset", metavar="NAME", help="A known set of features: image-label, imagenet, imagenet-tensor.")
@click.option("--image-size", metavar="N", help="Crop and scale images of imagenet-tensor to N x N.")
@click.option("--max-pixels", metavar="N", help="Refuse to decode larger images.  [default: 134217728]")
@click.option(
    "--spec",
    "spec_path",
    envvar="TAR2TF_SPEC",
    metavar="FILE",
    help="Read the conversion from a YAML file; - is standard input.",
)
@click.option(
    "--from",
    "kind",
    envvar="TAR2TF_FROM",
    type=Choice(["tar", "imagefolder", "examples"]),
    default="tar",
    show_default=True,
    help="What BUCKET holds: tars, a folder of images per class, or rows of a CSV file.",
)
@click.option(
    "--labels",
    metavar="FILE",
    help="Numbers and texts of an image folder's classes: JSON, or lines of CLASS or CLASS<TAB>TEXT.",
)
@click.option(
    "--example-class", metavar="WHERE", help="The class that makes examples of rows: FILE.py:CLASS or MODULE:CLASS."
)
@click.option(
    "--example-arg",
    "example_args",
    envvar="TAR2TF_EXAMPLE_ARG",
    multiple=True,
    metavar="NAME=VALUE",
    help="An argument of its methods; a VALUE that is JSON is read as JSON.",
)
@endpoint_option
@input_options
@click.option("--shuffle", is_flag=True, help="Shuffle the records of all shards with each other.")
@click.option("--seed", metavar="N", help="Random seed of --shuffle and of ops that draw numbers.  [default: 0]")
@click.option("--limit", metavar="N", help="Convert N samples at most.")
@click.option("--split", metavar="NAME=FRACTION,…", help="Split by a hash of the key, such as train=0.9,val=0.1.")
@click.option(
    "--compression", type=Choice(["none", "gzip"]), default="none", show_default=True, help="Compress the shards."
)
@click.option("--index", is_flag=True, help="Write SHARD.idx beside each shard: offset and size of each record.")
@click.option(
    "--on-error",
    type=Choice(["fail", "skip"]),
    default="fail",
    show_default=True,
    help="What to do with a faulty sample.",
)
@click.option("--max-errors", metavar="N", help="Give up after more than N faulty samples.")
@click.option(
    "--errors",
    "errors_path",
    envvar="TAR2TF_ERRORS",
    metavar="FILE",
    help="Write faulty samples here, one JSON document per line.",
)
@click.option("--overwrite", is_flag=True, help="Replace files that this conversion did not write.")
@click.option("--dry-run", is_flag=True, help="Show the plan and the first sample; write nothing.")
@output_options
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> int:
    """Convert tar shards to TFRecord shards.

    BUCKET is a directory, a tar file, - for one tar on standard input, or a URL that begins with ais://, ais+s3://,
    ais+gs://, s3://, gs://, http:// or https://; with --from, a folder that has a folder of
    images for each class, or a CSV file whose rows describe examples. TEMPLATE names shards in it, with bash
    braces or as a glob; without one, every *.tar, *.tar.gz and *.tgz is converted in sorted order.

    \b
    tar2tf convert shards 'train-{0000..0146}.tar' -o 'out/train-<>.record' --max-shard-size 100MB
    tar2tf convert shards -o 'out/<split>-<00000>-of-<total>.record' --split train=0.9,val=0.1
    tar2tf convert shards -o train.record --op decode:jpg --op resize:jpg,224x224 --select jpg,cls --type cls=int64
    cat one.tar | tar2tf convert - -o one.record
    tar2tf convert --from imagefolder photos -o 'out/train-<00000>-of-<total>' --preset imagenet-tensor --image-size 300
    tar2tf convert --from examples --example-class toy.py:ToyExample examples.csv -o 'out/train-<>.record'

    In PATH, <> counts from 1 and <00000> from 00000; <total> is the number of shards, <split> the split, <input>
    the input's name. The manifest stands beside the shards. The same command continues an interrupted run.
    """
    from tar2tf_cli.cli.summary import print_plan, print_summary
    from tar2tf_cli.conversion.run import convert, make_plan

    conversion, as_json = conversion_of(ctx), options["as_json"]
    if as_json and conversion.output.path == "-" and not options["dry_run"]:
        raise click.UsageError("--json would print among the records on standard output: use one of the two")
    if options["dry_run"]:
        print_plan(make_plan(conversion, endpoint=options["endpoint"]), as_json=as_json)
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
            endpoint=options["endpoint"],
            events=terminal,
        )
    print_summary(summary, quiet=options["quiet"], as_json=as_json)
    return 1 if summary.errors else 0


def _note_lost_field(terminal: Terminal, path: str) -> None:
    """Warn of a path that ends as if the shell had taken its `<>` for a redirection."""
    if path.endswith(("-", "_")) and path != "-" and not {"<", "{"} & set(path):
        terminal.note(f"note: the output path ends with {path[-1]!r}: a <> needs quotes, such as -o '{path}<>.record'")
