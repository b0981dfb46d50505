"""`tar2tf convert`: options to a conversion, its summary to text or JSON."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from tar2tf_cli.cli.options import MAX_PIXELS, SIZE, endpoint_option, input_options, output_options
from tar2tf_cli.cli.output import Terminal, count, message, print_json, size

if TYPE_CHECKING:
    from tar2tf_cli.conversion.run import Plan, Summary
    from tar2tf_cli.ops import Op, Selection
    from tar2tf_cli.spec.conversion import Conversion

__all__ = ["command"]


@click.command("convert", context_settings={"auto_envvar_prefix": "TAR2TF"})
@click.argument("bucket", required=False)
@click.argument("template", nargs=-1)
@click.option("-o", "--output", metavar="PATH", help="Path template of the shards; - is standard output.")
@click.option(
    "--max-shard-size", type=SIZE, metavar="SIZE", help="Most bytes a shard takes on disk, such as 100MB or 1GiB."
)
@click.option(
    "--num-shards", type=click.IntRange(1, 1_000_000), metavar="N", help="Make N shards of equal count (within one)."
)
@click.option("--records-per-shard", type=click.IntRange(1), metavar="N", help="Most records a shard holds.")
@click.option(
    "-j", "--num-workers", type=click.IntRange(1), metavar="N", help="Processes that work at once.  [default: CPUs]"
)
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
@click.option(
    "--image-size", type=click.IntRange(1), metavar="N", help="Crop and scale images of imagenet-tensor to N x N."
)
@click.option(
    "--max-pixels",
    type=click.IntRange(1),
    default=MAX_PIXELS,
    metavar="N",
    help="Refuse to decode larger images.  [default: 134217728]",
)
@click.option(
    "--spec",
    "spec_path",
    envvar="TAR2TF_SPEC",
    metavar="FILE",
    help="Read the conversion from a YAML file; - is standard input.",
)
@click.option(
    "--from",
    "from_",
    envvar="TAR2TF_FROM",
    type=click.Choice(["tar", "imagefolder", "examples"]),
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
    help="What its methods are called with; a VALUE that is JSON is read as JSON.",
)
@endpoint_option
@input_options
@click.option("--shuffle", is_flag=True, help="Shuffle the records of all shards with each other.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="What the order is drawn from.")
@click.option("--limit", type=click.IntRange(0, 2**63 - 1), metavar="N", help="Convert N samples at most.")
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
    from tar2tf_cli.conversion.run import convert, make_plan

    conversion = _conversion(ctx)
    if options["as_json"] and conversion.output.path == "-" and not options["dry_run"]:
        raise click.UsageError("--json would print among the records on standard output: use one of the two")
    if options["dry_run"]:
        return _show_plan(make_plan(conversion, endpoint=options["endpoint"]), as_json=options["as_json"])
    with Terminal(
        quiet=options["quiet"],
        verbose=options["verbose"],
        progress=options["progress"],
        errors_path=options["errors_path"],
    ) as terminal:
        _tell_lost_field(terminal, conversion.output.path)
        summary = convert(
            conversion,
            workers=options["num_workers"],
            overwrite=options["overwrite"],
            endpoint=options["endpoint"],
            events=terminal,
        )
    if options["as_json"]:
        print_json(_document(summary))
    _print_summary(summary, quiet=options["quiet"])
    return 1 if summary.errors else 0


def _tell_lost_field(terminal: Terminal, path: str) -> None:
    """Say it where a path ends as if a shell had taken its `<>` for a redirection."""
    if path.endswith(("-", "_")) and path != "-" and not {"<", "{"} & set(path):
        terminal.note(f"note: the output path ends with {path[-1]!r}: a <> needs quotes, such as -o '{path}<>.record'")


_SECTIONS: Final = {
    "bucket": "input",
    "template": "input",
    "key_split": "input",
    "regroup": "input",
    "ignore_missing_end": "input",
    "from_": "input",
    "labels": "input",
    "example_class": "input",
    "example_args": "input",
    "output": "output",
    "max_shard_size": "output",
    "num_shards": "output",
    "records_per_shard": "output",
    "compression": "output",
    "index": "output",
}
"""Options that stand in a section of the spec."""

_NAMES: Final = {"output": "path", "from_": "from"}
"""What options are called there, where it is not the same."""

_NOT_IN_SPEC: Final = frozenset(
    {
        "num_workers",
        "endpoint",
        "errors_path",
        "overwrite",
        "dry_run",
        "spec_path",
        "as_json",
        "quiet",
        "verbose",
        "progress",
    }
)


def _conversion(ctx: click.Context) -> Conversion:
    """The conversion that the command line means: flags over environment over spec file."""
    from tar2tf_cli.spec import yaml_file as specfile

    flags: dict[str, Any] = {}
    for name, value in ctx.params.items():
        default = ctx.get_parameter_source(name) in (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP)
        if default or name in _NOT_IN_SPEC or value in (None, ()):
            continue
        value = _PARSERS[name](value) if name in _PARSERS else value
        if name in _SECTIONS:
            flags.setdefault(_SECTIONS[name], {})[_NAMES.get(name, name)] = value
        else:
            flags[name] = value
    path = ctx.params["spec_path"]
    return specfile.read(path, flags) if path else specfile.build(flags)


def _parse_ops(texts: Sequence[str]) -> list[Op]:
    from tar2tf_cli.ops import from_cli

    return [from_cli(text) for text in texts]


def _parse_select(texts: Sequence[str]) -> dict[str, Selection]:
    from tar2tf_cli.ops.select import parse_select

    return parse_select(texts)


def _parse_types(texts: Sequence[str]) -> Mapping[str, str]:
    from tar2tf_cli.spec.conversion import parse_types

    return parse_types(texts)


def _parse_split(text: str) -> Mapping[str, float]:
    from tar2tf_cli.spec.conversion import parse_split

    return parse_split(text)


def _parse_arguments(texts: Sequence[str]) -> Mapping[str, Any]:
    from tar2tf_cli.spec.conversion import parse_arguments

    return parse_arguments(texts)


_PARSERS: Final[dict[str, Callable[[Any], Any]]] = {
    "bucket": os.path.expanduser,  # a path with <> has to be quoted, and then the shell leaves ~ alone
    "output": os.path.expanduser,
    "ops": _parse_ops,
    "select": _parse_select,
    "types": _parse_types,
    "split": _parse_split,
    "labels": os.path.expanduser,
    "example_args": _parse_arguments,
}


def _document(summary: Summary) -> dict[str, Any]:
    return {
        "manifest": summary.manifest,
        "up_to_date": summary.up_to_date,
        "inputs": summary.inputs,
        "records": summary.records,
        "bytes": summary.bytes,
        "shards": [shard.to_json() for shard in summary.shards],
        "skipped": {"samples": summary.skipped_samples, "members": dict(sorted(summary.skipped.items()))},
    }


def _print_summary(summary: Summary, *, quiet: bool) -> None:
    if not quiet:
        _print_totals(summary)
    for text, faults in _grouped(summary.errors).items():
        first = faults[0]
        message(f"{len(faults):,} x {text}, first: {first['shard']}: {first['member'] or first['key']}")
    if summary.skipped_samples and not (quiet and summary.up_to_date):
        message(f"{count(summary.skipped_samples, 'sample')} skipped")


def _print_totals(summary: Summary) -> None:
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


def _grouped(errors: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Faults by what they say, numbers and quoted names aside."""
    import re

    groups: dict[str, list[dict[str, Any]]] = {}
    for error in errors:
        groups.setdefault(re.sub(r"'[^']*'|\d+", "…", str(error["message"])), []).append(error)
    return {str(group[0]["message"]): group for group in groups.values()}


def _show_plan(plan: Plan, *, as_json: bool) -> int:
    """Print what would be done, and the first sample on its way through the ops; nothing is written."""
    from tar2tf_cli.conversion.dry_run import trace
    from tar2tf_cli.spec.urls import without_secrets

    conversion, steps = plan.conversion, trace(plan)
    template = conversion.output.template
    if as_json:
        output = {"path": template.text, "manifest": template.manifest(), "max_shard_size": conversion.output.limit}
        print_json({**plan.manifest().identity(), "output": output, "steps": [step.to_json() for step in steps]})
        return 0
    total = "of unknown size" if plan.size is None else size(plan.size)
    click.echo(f"{count(len(plan.inputs), 'input')}, {total}, from {without_secrets(conversion.input.bucket)}")
    for item in islice(plan.inputs, 3):
        click.echo(f"  {item.name}" + (f"  {size(item.size)}" if item.size is not None else ""))
    if len(plan.inputs) > 3:
        click.echo(f"  and {len(plan.inputs) - 3:,} more")
    limit = conversion.output.limit
    click.echo(f"to {template.text}" + (f", at most {size(limit)} each" if limit else ""))
    for step in steps:
        click.echo(step.title)
        for name, look in step.entries.items():
            click.echo(f"  {name:{max(map(len, step.entries))}}  {look}")
    return 0
