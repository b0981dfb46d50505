"""`tar2tf convert`: options to a conversion, its summary to text or JSON."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from tar2tf_cli.cli.options import SIZE, input_options, output_options
from tar2tf_cli.cli.output import Terminal, count, message, print_json, size

if TYPE_CHECKING:
    from tar2tf_cli.convert import Plan, Summary

__all__ = ["command"]


@click.command("convert", context_settings={"auto_envvar_prefix": "TAR2TF"})
@click.argument("bucket")
@click.argument("template", nargs=-1)
@click.option(
    "-o", "--output", required=True, metavar="PATH", help="Path template of the shards; - is standard output."
)
@click.option(
    "--max-shard-size", type=SIZE, metavar="SIZE", help="Most bytes a shard takes on disk, such as 100MB or 1GiB."
)
@click.option("--num-shards", type=click.IntRange(1), metavar="N", help="Make N shards of equal count (within one).")
@click.option("--records-per-shard", type=click.IntRange(1), metavar="N", help="Most records a shard holds.")
@click.option(
    "-j", "--num-workers", type=click.IntRange(1), metavar="N", help="Processes that work at once.  [default: CPUs]"
)
@click.option(
    "--type",
    "types",
    multiple=True,
    metavar="NAME=TYPE",
    help="Type of a feature: int64, float, bytes, or one of these with _list.",
)
@input_options
@click.option("--shuffle", is_flag=True, help="Shuffle the records of all shards with each other.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="What the order is drawn from.")
@click.option("--limit", type=click.IntRange(0), metavar="N", help="Convert N samples at most.")
@click.option("--split", metavar="NAME=FRACTION,…", help="Split by a hash of the key, such as train=0.9,val=0.1.")
@click.option(
    "--compression", type=click.Choice(["none", "gzip"]), default="none", show_default=True, help="Compress the shards."
)
@click.option("--index", is_flag=True, help="Write SHARD.idx beside each shard: offset and size of each record.")
@click.option(
    "--on-error",
    type=click.Choice(["fail", "skip"]),
    default="fail",
    show_default=True,
    help="What to do with a faulty sample.",
)
@click.option("--max-errors", type=click.IntRange(0), metavar="N", help="Give up after more than N faulty samples.")
@click.option("--errors", "errors_path", metavar="FILE", help="Write faulty samples here, one JSON document per line.")
@click.option("--overwrite", is_flag=True, help="Replace files that this conversion did not write.")
@click.option("--dry-run", is_flag=True, help="Show the plan and the first sample; write nothing.")
@output_options
def command(bucket: str, template: tuple[str, ...], **options: Any) -> int:
    """Convert tar shards to TFRecord shards.

    BUCKET is a directory, a tar file, or - for one tar on standard input. TEMPLATE names shards in it, with bash
    braces or as a glob; without one, every *.tar, *.tar.gz and *.tgz is converted in sorted order.

    \b
    tar2tf convert shards 'train-{0000..0146}.tar' -o 'out/train-<>.record' --max-shard-size 100MB
    tar2tf convert shards -o 'out/<split>-<00000>-of-<total>.record' --split train=0.9,val=0.1
    cat one.tar | tar2tf convert - -o one.record

    In PATH, <> counts from 1 and <00000> from 00000; <total> is the number of shards, <split> the split, <input>
    the input's name. The manifest stands beside the shards. The same command continues an interrupted run.
    """
    from tar2tf_cli.convert import convert, make_plan
    from tar2tf_cli.spec import Conversion, Input, Output, parse_split, parse_types

    conversion = Conversion(
        Input(bucket, template, options["key_split"], options["regroup"], options["ignore_missing_end"]),
        Output(
            options["output"],
            options["max_shard_size"],
            options["num_shards"],
            options["records_per_shard"],
            options["compression"],
            options["index"],
        ),
        types=parse_types(options["types"]),
        shuffle=options["shuffle"],
        seed=options["seed"],
        limit=options["limit"],
        split=parse_split(options["split"]) if options["split"] else {},
        on_error=options["on_error"],
        max_errors=options["max_errors"],
    )
    if options["dry_run"]:
        return _show_plan(make_plan(conversion), as_json=options["as_json"])
    with Terminal(
        quiet=options["quiet"],
        verbose=options["verbose"],
        progress=options["progress"],
        errors_path=options["errors_path"],
    ) as terminal:
        summary = convert(conversion, workers=options["num_workers"], overwrite=options["overwrite"], events=terminal)
    if options["as_json"]:
        print_json(_document(summary))
    if not options["quiet"]:
        _print_summary(summary)
    return 1 if summary.errors else 0


def _document(summary: Summary) -> dict[str, Any]:
    return {
        "manifest": summary.manifest,
        "up_to_date": summary.up_to_date,
        "inputs": summary.inputs,
        "records": summary.records,
        "bytes": summary.bytes,
        "shards": [shard.to_json() for shard in summary.shards],
        "skipped": {"samples": len(summary.errors), "members": dict(sorted(summary.skipped.items()))},
    }


def _print_summary(summary: Summary) -> None:
    done = f"{count(summary.records, 'record')}, {size(summary.bytes)}"
    if summary.manifest is None:
        message(f"{done} on standard output")
    elif summary.up_to_date:
        message(f"up to date: {done} in {count(len(summary.shards), 'shard')}, manifest {summary.manifest}")
    else:
        message(f"{done} in {count(len(summary.shards), 'shard')}, manifest {summary.manifest}")
    if summary.shuffled:
        message(f"shuffled: all {count(summary.records, 'record')} with each other, seed {summary.seed}")
    if summary.oversized:
        message(f"{count(summary.oversized, 'record')} larger than --max-shard-size, in a shard of its own each")
    for reason, number in sorted(summary.skipped.items()):
        message(f"{count(number, 'member')} passed over: {reason}")
    for text, faults in _grouped(summary.errors).items():
        first = faults[0]
        message(f"{len(faults):,} x {text}, first: {first['shard']}: {first['member'] or first['key']}")
    if summary.errors:
        message(f"{count(len(summary.errors), 'sample')} skipped")


def _grouped(errors: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Faults by what they say, numbers and quoted names aside."""
    import re

    groups: dict[str, list[dict[str, Any]]] = {}
    for error in errors:
        groups.setdefault(re.sub(r"'[^']*'|\d+", "…", str(error["message"])), []).append(error)
    return {str(group[0]["message"]): group for group in groups.values()}


def _show_plan(plan: Plan, *, as_json: bool) -> int:
    """Print what would be done, and the first sample's features; nothing is written."""
    from tar2tf_cli.convert import first_example

    conversion = plan.conversion
    features = first_example(plan)
    template = conversion.output.template
    if as_json:
        print_json(
            {
                **plan.manifest().identity(),
                "output": {"path": template.text, "manifest": template.manifest()},
                "features": features,
            }
        )
        return 0
    total = "of unknown size" if plan.size is None else size(plan.size)
    click.echo(f"{count(len(plan.inputs), 'input')}, {total}, from {conversion.input.bucket}")
    for item in islice(plan.inputs, 3):
        click.echo(f"  {item.name}" + (f"  {size(item.size)}" if item.size is not None else ""))
    if len(plan.inputs) > 3:
        click.echo(f"  and {len(plan.inputs) - 3:,} more")
    limit = conversion.output.limit
    click.echo(f"to {template.text}" + (f", at most {size(limit)} each" if limit else ""))
    click.echo("the first sample's features:")
    for name, feature in features.items():
        click.echo(f"  {name}  {feature}")
    return 0
