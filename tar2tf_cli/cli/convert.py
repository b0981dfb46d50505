"""`tar2tf convert`: builds a conversion from the options, runs it, and prints its summary as text or JSON."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from tar2tf_cli.cli import label
from tar2tf_cli.cli.options import (
    Command,
    completing,
    feature_option,
    input_option,
    new_file_in_output,
    option,
    output_option,
    report_options,
    sample_option,
    shards_arguments,
    store_options,
    tar_options,
    words,
    work_options,
)
from tar2tf_cli.cli.output import Terminal, message, print_json, print_members, printable, prints_on_stderr, size
from tar2tf_cli.errors import alternatives, count
from tar2tf_cli.registry import input_kinds, preset_names
from tar2tf_cli.spec.output_path import STDOUT

if TYPE_CHECKING:
    from tar2tf_cli.conversion.plan import Plan
    from tar2tf_cli.conversion.preview import Estimate, Outcome, Step
    from tar2tf_cli.conversion.tally import Summary
    from tar2tf_cli.spec.conversion import Conversion
    from tar2tf_cli.stores import Source


def _document(summary: Summary) -> dict[str, Any]:
    return {
        "manifest": summary.manifest,
        "up_to_date": summary.up_to_date,
        **({"kept": summary.kept} if summary.kept else {}),
        "inputs": summary.inputs,
        "records": summary.records,
        "bytes": summary.bytes,
        "shards": [shard.to_json() for shard in summary.shards],
        "skipped": summary.left_out(),
    }


def print_summary(summary: Summary, path: str, *, quiet: bool, as_json: bool) -> None:
    """Print the summary: JSON on standard output, text on standard error; skipped samples are always counted.

    Args:
        path: the output path, shown if there is no manifest.
    """
    if as_json:
        print_json(_document(summary))
    if not quiet:
        _print_totals(summary, path)
    for text, faults in _grouped(summary.errors).items():
        first = faults[0]
        named = [first["shard"], first["member"] or first["key"] or f"offset {first['offset']}"]
        message(f"{len(faults):,} x {text}, first: {printable(': '.join(filter(None, named)))}")
    if summary.skipped_samples and not (quiet and summary.up_to_date):
        message(f"{count(summary.skipped_samples, 'sample')} skipped{_lost(summary)}")


def _lost(summary: Summary) -> str:
    """What is known of the parts of inputs that could not be read."""
    if not summary.lost:
        return ""
    inputs = len({part["input"] for part in summary.lost})
    total = sum(part["bytes"] for part in summary.lost)
    cut = " and whatever was cut off" if any(part["to"] is None for part in summary.lost) else ""
    parts = f"{count(len(summary.lost), 'part')} of {count(inputs, 'input')}"
    return f", or more: {parts} could not be read ({size(total)}{cut}), and each held at least 1 sample"


def _print_totals(summary: Summary, path: str) -> None:
    done = f"{count(summary.records, 'record')}, {size(summary.bytes)}"
    if summary.manifest is None:
        message(f"{done} on {'standard output' if path == STDOUT else path}")
    elif summary.up_to_date:
        message(f"up to date: {done} in {count(len(summary.shards), 'shard')}, manifest {summary.manifest}")
    else:
        kept = f" ({summary.kept:,} kept)" if summary.kept else ""
        message(f"{done} in {count(len(summary.shards), 'shard')}{kept}, manifest {summary.manifest}")
    if summary.shuffled:
        message(f"shuffled {count(summary.records, 'record')} across all shards, seed {summary.seed}")
    if summary.classes:
        message(_classes(summary.classes))
    if summary.oversized:
        message(f"{count(summary.oversized, 'record')} larger than --max-shard-size, each in its own shard")
    print_members(summary.skipped)


def _classes(names: Sequence[str]) -> str:
    """How many classes there are, and the first few."""
    few = ", ".join(names[:3])
    return f"{len(names):,} {'class' if len(names) == 1 else 'classes'}: {few}{', …' if len(names) > 3 else ''}"


def _grouped(errors: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Errors grouped by message, ignoring numbers, bytes and quoted names."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for error in errors:
        groups.setdefault(re.sub(r"'[^']*'|\b[0-9a-f]{2}\b|\d+", "…", str(error["message"])), []).append(error)
    return {str(group[0]["message"]): group for group in groups.values()}


def print_plan(plan: Plan, outcome: Outcome, *, as_json: bool) -> None:
    """Print what a conversion would do, how much it would write, and its first sample after each op."""
    from tar2tf_cli.conversion.preview import estimate, trace
    from tar2tf_cli.conversion.tally import growth

    with prints_on_stderr():
        steps, expected = trace(plan), estimate(plan)
    warning = growth(plan, expected.bytes, plan.size) if expected else None
    if as_json:
        print_json(_plan_document(plan, outcome, steps, expected, warning))
        return
    if outcome.message:
        click.echo(outcome.message)
    _print_inputs(plan)
    limit = plan.conversion.output.limit
    click.echo(f"to {plan.conversion.output.template.text}" + (f", at most {size(limit)} each" if limit else ""))
    if expected:
        shards = f" in {count(expected.shards, 'shard')}" if not plan.conversion.output.is_stream else ""
        click.echo(f"about {count(expected.records, 'record')}, {size(expected.bytes)}{shards}")
    if warning:
        message(warning)
    for step in steps:
        click.echo(step.step)
        for name, look in step.entries.items():
            click.echo(f"  {name:{max(map(len, step.entries))}}  {look}")


def _print_inputs(plan: Plan) -> None:
    from tar2tf_cli.spec.urls import without_secrets

    total = "of unknown size" if plan.size is None else size(plan.size)
    click.echo(f"{count(len(plan.inputs), 'input')}, {total}, from {without_secrets(plan.source.bucket)}")
    for item in islice(plan.inputs, 3):
        click.echo(f"  {item.name}" + (f"  {size(item.size)}" if item.size is not None else ""))
    if len(plan.inputs) > 3:
        click.echo(f"  and {len(plan.inputs) - 3:,} more")
    if classes := plan.source.known().classes:
        click.echo(_classes(classes))


def _plan_document(
    plan: Plan, outcome: Outcome, steps: Sequence[Step], expected: Estimate | None, warning: str | None
) -> dict[str, Any]:

    output = plan.conversion.output
    manifest = None if output.is_stream else output.template.manifest()
    return {
        **plan.manifest().identity(),
        "inputs": [{"name": item.name, "size": item.size, "version": item.version} for item in plan.inputs],
        "output": {"path": output.template.text, "manifest": manifest, "max_shard_size": output.limit},
        "outcome": outcome._asdict(),
        "estimate": expected._asdict() if expected else None,
        "warnings": [warning] if warning else [],
        **({"classes": [*classes]} if (classes := plan.source.known().classes) else {}),
        "steps": [step._asdict() for step in steps],
    }


def _ops() -> dict[str, list[tuple[str, str]]]:
    """The ops, as lines of the help below --op."""
    from tar2tf_cli.ops import OPS

    return {"--op": [(op.examples[0], op.help()) for op in OPS.values()]}


_SHORT: Final = "Convert tars, image folders or CSV rows to TFRecord shards."


@click.command("convert", cls=Command, terms=_ops, short_help=_SHORT)
@shards_arguments(required=False)
@input_option(
    "--spec FILE",
    "spec_path",
    help="Read the conversion from YAML; - for stdin.",
    more="Flags override it. tar2tf schema prints what it may contain.",
)
@input_option(
    "--from KIND",
    "kind",
    **words(*input_kinds()),
    help=f"{alternatives(input_kinds())}.",
    more="What BUCKET is: tars, a folder of images per class, or rows of a CSV file.",
)
@store_options
@tar_options
@input_option(
    "--labels FILE|imagenet",
    shell_complete=completing("labels"),
    help="Labels of an image folder's classes.",
    more="Their numbers and texts: JSON, lines of CLASS or CLASS<TAB>TEXT, or imagenet for those of ImageNet-1k.",
)
@input_option(
    "--example-class WHERE",
    shell_complete=completing("files"),
    help="Class that turns rows into examples.",
    more="WHERE is FILE.py:CLASS or MODULE:CLASS.",
)
@input_option(
    "--example-arg NAME=VALUE",
    "example_args",
    multiple=True,
    help="Argument passed to its methods.",
    more="May be repeated. A VALUE that is valid JSON is parsed.",
)
@sample_option(
    "--op OP",
    "ops",
    shell_complete=completing("ops"),
    multiple=True,
    help="Op to apply; repeat it for more, in order:",
    more="tar2tf ops shows all of them with examples.",
)
@sample_option("--limit N", help="Convert at most N samples.")
@sample_option("--shuffle", is_flag=True, help="Shuffle the records across all shards.")
@sample_option("--seed N", help="Random seed.  [default: 0]")
@sample_option(
    "--max-pixels N",
    help="Largest image in pixels.  [default: 134217728]",
    more="An image with more (height x width) is a faulty sample when it is decoded.",
)
@sample_option(
    "--max-entry-size SIZE",
    help="Maximum entry in memory.  [default: 512MiB]",
    more="A sample with a larger entry is faulty if an op, a preset or a type needs that entry as a whole. Entries "
    "that do not change are copied in pieces, up to 2 GiB.",
)
@sample_option("--on-error", **words("fail", "skip"), help="How to treat a faulty sample.")
@sample_option(
    "--max-errors N",
    help="Fail after more than N faulty samples.",
    more="With --on-error skip; by default, any number of them is skipped.",
)
@sample_option(
    "--max-lost SIZE",
    help="Fail after more than SIZE of lost input.",
    more="With --on-error skip: the bytes of inputs that could not be read, as they are damaged. An input that breaks "
    "off lacks an unknown number of bytes, which is more than any SIZE.",
)
@sample_option(
    "--errors FILE",
    "errors_path",
    type=new_file_in_output,
    help="Write the errors of faulty samples to FILE.",
    more="One JSON document per line.",
)
@feature_option(
    "--select SEL",
    multiple=True,
    help="Entries that become features: jpg,cls.",
    more="NAME=ENTRY renames, and label=json:annotations.0.label takes a value in a JSON entry. May be repeated.",
)
@feature_option(
    "--type NAME=TYPE",
    "types",
    shell_complete=completing("types"),
    multiple=True,
    help="int64, float or bytes, or with _list.",
    more="The type of a feature, such as cls=int64; text is parsed. May be repeated.",
)
@feature_option(
    "--preset NAME",
    shell_complete=completing("presets"),
    help="A known set of features.",
    more=f"It is {alternatives(preset_names())}.",
)
@feature_option("--image-size N", help="Crop and scale imagenet-tensor to N x N pixels.")
@output_option(
    "-o",
    "--output PATH",
    "path",
    help="Path template of the shards; - for stdout.",
    more="<> counts from 1 and <00000> from 00000; <total> is the number of shards, <split> the split and <input> the "
    "input's name. A device or a pipe is written to like standard output.",
)
@output_option(
    "--max-shard-size SIZE",
    help="Maximum size, such as 100MB.  [default: 256MiB]",
    more="The default is for a path with a number, and without another limit.",
)
@output_option("--num-shards N", help="Write N shards with equal numbers of records.")
@output_option("--records-per-shard N", help="Maximum number of records in a shard.")
@output_option(
    "--split NAME=FRACTION,…",
    help="Split by key, such as train=0.9,val=0.1.",
    more="A hash of the key assigns each sample, so that it stays in its split when data is added.",
)
@output_option("--compression", **words("none", "gzip"), help="Compress the shards.")
@output_option(
    "--index",
    is_flag=True,
    help="Write SHARD.idx beside each shard.",
    more="It has the offset and size of each record.",
)
@output_option(
    "--tfds NAME[:VERSION]",
    help="Also describe the shards for TFDS.",
    more="As tar2tf export tfds does: tfds.builder_from_directory then reads the folder of the manifest. Shards have "
    "to be numbered with <00000> or <00000>-of-<total>.",
)
@output_option(
    "--update",
    is_flag=True,
    help="Convert only what changed since the last run.",
    more="Shards none of whose inputs were added, removed or changed since the last run are kept. The result is the "
    "same as that of a new run.",
)
@output_option(
    "--remove-many",
    is_flag=True,
    help="Let --update remove more than half of the inputs.",
    more="Otherwise it stops there, as a listing may have been incomplete.",
)
@output_option("--overwrite", is_flag=True, help="Replace what this conversion did not write.")
@work_options
@option(
    "--remote-exec/--no-remote-exec",
    default=None,
    help="Convert in the AIStore cluster, or here.",
    more="The cluster that holds the inputs makes the records, and only they cross the network. By default, it does if "
    "it has a running transformer of this very spec. --remote-exec makes one where there is none, and deletes it at "
    "the end; see tar2tf etl.",
)
@option("--etl NAME", help="Transformer in the cluster to use.", more="As made by tar2tf etl init --name NAME.")
@option(
    "--engine",
    **words("local", "ray"),
    help="Where the work is done.",
    more="ray: on a Ray cluster. Submit the command to it: ray job submit -- tar2tf convert ... --engine ray. Inputs "
    "and output have to be in a folder that all nodes share, or in a bucket. -j is then the number of tasks at once.",
)
@option("--address HOST:PORT", help="Ray cluster.  [default: RAY_ADDRESS, or here]")
@option("--dry-run", is_flag=True, help="Show plan and first sample; write nothing.")
@report_options
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> int:
    """\b
    Convert tars, image folders or CSV rows to TFRecord shards.
    tar2tf convert shards 'train-{0000..0146}.tar' -o 'out/train-<>.record'
    BUCKET is a directory, a tar, - or a URL; TEMPLATE names shards in it.
    \f

    BUCKET is a directory, a tar file, - for one tar on standard input, or a URL that begins with ais://, ais+s3://,
    ais+gs://, s3://, gs://, az://, http:// or https://; with --from, a folder with one folder of
    images per class, or a CSV file whose rows describe examples. TEMPLATE names shards in it, with bash
    braces or a glob; by default every *.tar, *.tar.gz, *.tgz, *.tar.zst, *.tar.bz2 and *.tar.xz is
    converted in sorted order. If all arguments are existing paths, these files and folders are the inputs, in the
    order given.

    \b
    tar2tf convert shards 'train-{0000..0146}.tar' -o 'out/train-<>.record'
    tar2tf convert shards/*.tar -o train.record
    tar2tf convert shards -o '<split>-<>.record' --split train=0.9,val=0.1
    tar2tf convert shards -o train.record --op decode:jpg \\
        --op resize:jpg,224x224 --select jpg,cls --type cls=int64
    cat one.tar | tar2tf convert - -o one.record
    tar2tf convert --from imagefolder photos --preset imagenet-tensor \\
        --image-size 300 -o 'out/train-<00000>-of-<total>'
    tar2tf convert --from examples --example-class toy.py:ToyExample \\
        examples.csv -o 'out/train-<>.record'

    The manifest is written beside the shards. To continue an interrupted run, repeat the command.
    """
    from tar2tf_cli.conversion.plan import make_plan
    from tar2tf_cli.conversion.run import convert
    from tar2tf_cli.elsewhere import beside

    with prints_on_stderr():
        conversion, as_json = _conversion(ctx), options["as_json"]
    if as_json and conversion.output.path == "-" and not options["dry_run"]:
        raise click.UsageError("--json and the records would both go to standard output: use one or the other")
    if options["tfds"]:
        from tar2tf_cli.datasets.tfds import check_output

        check_output(conversion.output, options["tfds"])
    if options["errors_path"]:
        _check_errors_path(options["errors_path"], conversion, options["spec_path"])
    where: dict[str, Any] = {"endpoint": options["endpoint"], "source": _paths(conversion)}
    if options["dry_run"]:
        from tar2tf_cli.conversion.preview import outcome

        plan = make_plan(conversion, **where)
        beside(plan.work, plan.source, plan.inputs, Terminal())  # refuses what a cluster cannot do
        how = {name: options[name] for name in ("endpoint", "overwrite", "update", "remove_many")}
        print_plan(plan, outcome(plan, **how), as_json=as_json)
        return 0
    with Terminal(**options) as terminal:
        _note_lost_field(terminal, conversion.output.path)
        with prints_on_stderr():
            summary = convert(
                conversion,
                workers=options["num_workers"],
                overwrite=options["overwrite"],
                update=options["update"],
                remove_many=options["remove_many"],
                events=terminal,
                engine=options["engine"],
                address=options["address"],
                **where,
            )
    if options["tfds"] and summary.manifest:
        from tar2tf_cli.datasets.tfds import export_tfds

        export_tfds(summary.manifest, options["tfds"], overwrite=options["overwrite"])
    print_summary(summary, conversion.output.path, quiet=options["quiet"], as_json=as_json)
    return 1 if summary.skipped_samples else 0


def _paths(conversion: Conversion) -> Source | None:
    """The source of the inputs if all arguments are existing paths; otherwise None."""
    spec = conversion.input
    if spec.kind != "tar" or not spec.template:
        return None
    from tar2tf_cli.inputs.named import paths_source

    return paths_source(spec.bucket, spec.template)


def _check_errors_path(path: str, conversion: Conversion, spec_path: str | None) -> None:
    """Refuse a list of errors in the place of what the conversion itself reads or writes."""
    own, template = os.path.realpath(path), conversion.output.template
    others = (template.manifest(), conversion.input.bucket, conversion.input.labels, spec_path)
    shards = template._replace(text=os.path.realpath(template.text)).regex()
    if shards.match(own) or own in (os.path.realpath(other) for other in others if other):
        raise click.UsageError(f"--errors: {path!r} is a file of the conversion itself; name another file")


def _note_lost_field(terminal: Terminal, path: str) -> None:
    """Warn about a path that ends as if the shell had treated its `<>` as a redirection."""
    if path.endswith(("-", "_")) and path != "-" and not {"<", "{"} & set(path):
        terminal.note(f"note: the output path ends with {path[-1]!r}; quote a <>, as in -o '{path}<>.record'")


def _conversion(context: click.Context) -> Conversion:
    """The conversion that the options describe: flags override the environment, which overrides the spec file."""
    from tar2tf_cli.spec.conversion import Conversion
    from tar2tf_cli.spec.yaml_file import SECTIONS, build, read, spec_fields

    flags: dict[str, Any] = {section: {} for section in SECTIONS}
    labels = {param.name: label(param, context) for param in context.command.params}
    for section, kind in {**SECTIONS, "": Conversion}.items():
        for key, field in spec_fields(kind).items():
            value = context.params.get(field.name)
            default = context.get_parameter_source(field.name) in (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP)
            if value not in (None, ()) and not default:
                flags.get(section, flags)[key] = field.check(value, labels[field.name])
    path = context.params["spec_path"]
    return read(path, flags) if path else build(flags)
