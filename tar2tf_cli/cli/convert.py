"""`tar2tf convert`: builds a conversion from the options, runs it, and prints its summary as text or JSON."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from tar2tf_cli.cli import label
from tar2tf_cli.cli.options import (
    Command,
    NameChoice,
    choice_settings,
    feature_option,
    input_option,
    new_file_in_output,
    option,
    output_option,
    propose_files,
    propose_labels,
    propose_ops,
    propose_presets,
    propose_types,
    report_options,
    sample_option,
    shards_arguments,
    store_options,
    tar_options,
    work_options,
)
from tar2tf_cli.cli.output import (
    Terminal,
    echo,
    message,
    print_count,
    print_json,
    print_members,
    printable,
    prints_on_stderr,
    size,
)
from tar2tf_cli.errors import SampleError, alternatives, count, few
from tar2tf_cli.plugins import format_names, input_kinds, preset_names
from tar2tf_cli.structs import replace

if TYPE_CHECKING:
    from tar2tf_cli.conversion.plan import Plan
    from tar2tf_cli.conversion.preview import Estimate, PlanOutcome, TracedStep
    from tar2tf_cli.conversion.publish import Summary
    from tar2tf_cli.spec.conversion import Conversion, Output


def _document(summary: Summary) -> dict[str, object]:
    return {
        "manifest": summary.manifest,
        "up_to_date": summary.up_to_date,
        **({"kept": summary.kept} if summary.kept else {}),
        "inputs": summary.inputs,
        "records": summary.records,
        "bytes": summary.bytes,
        "shards": [shard.to_json() for shard in summary.shards],
        "skipped": summary.left_out(),
        **({"shapes": summary.shapes} if summary.shapes else {}),
    }


def print_summary(summary: Summary, output: Output, *, quiet: bool, as_json: bool) -> None:
    """Print the summary: JSON on standard output, text on standard error; skipped samples are always counted."""
    if as_json:
        print_json(_document(summary))
    if not quiet:
        _print_totals(summary, output)
    for text, faults in _grouped(summary.errors).items():
        first = faults[0]
        named = [first["shard"], first["member"] or first["key"] or f"offset {first['offset']}"]
        message(f"{len(faults):,} x {text}, first: {printable(': '.join(str(name) for name in named if name))}")
    if summary.skipped_samples and not (quiet and summary.up_to_date):
        message(f"{count(summary.skipped_samples, 'sample')} skipped{_describe_losses(summary)}")


def _describe_losses(summary: Summary) -> str:
    """Describe the parts of inputs that could not be read."""
    if not summary.lost:
        return ""
    inputs = len({part["input"] for part in summary.lost})
    total = sum(part["bytes"] for part in summary.lost)
    cut = " and whatever was cut off" if any(part["to"] is None for part in summary.lost) else ""
    parts = f"{count(len(summary.lost), 'part')} of {count(inputs, 'input')}"
    return f", or more: {parts} could not be read ({size(total)}{cut}), and each held at least 1 sample"


def _print_totals(summary: Summary, output: Output) -> None:
    done = f"{count(summary.records, output.traits.holds)}, {size(summary.bytes)}"
    if summary.manifest is None:
        message(f"{done} on {output.shown}")
    elif summary.up_to_date:
        message(f"up to date: {done} in {count(len(summary.shards), 'shard')}, manifest {summary.manifest}")
    else:
        kept = f" ({summary.kept:,} kept)" if summary.kept else ""
        message(f"{done} in {count(len(summary.shards), 'shard')}{kept}, manifest {summary.manifest}")
    if summary.shuffled:
        message(f"shuffled {count(summary.records, output.traits.holds)} across all shards, seed {summary.seed}")
    if summary.classes:
        message(_classes(summary.classes))
    for name, labels in summary.labels.items():
        message(f"{name}: {_classes([*labels])}")
    print_count(summary.oversized, output.traits.holds, " larger than --max-shard-size, each in its own shard")
    print_members(summary.skipped)
    for note in summary.shapes:
        message(note)
    for name, number in sorted(summary.filtered.items()):
        print_count(number, "sample", f" skipped: {name}")
    if summary.boxes:
        message(f"boxes: {', '.join(f'{number:,} {what}' for what, number in sorted(summary.boxes.items()))}")
    for one in summary.joined:
        counts = f"{one['matched']:,} matched, {one['unmatched']:,} without a match, {one['unused']:,} unused there"
        message(f"joined {one['bucket']}: {counts}")
    if summary.gaps:
        message(f"the inputs lack {few(summary.gaps, 20)} (--ignore-gaps)")
    if summary.keys_missing:
        missing = few(summary.keys_missing, 20)
        message(f"{count(len(summary.keys_missing), 'key')} of --keys not in any input: {missing}")


def _classes(names: Sequence[str]) -> str:
    """Return the number of classes and the first few names."""
    few = ", ".join(names[:3])
    return f"{count(len(names), 'class', 'classes')}: {few}{', …' if len(names) > 3 else ''}"


def _grouped(errors: Sequence[Mapping[str, object]]) -> dict[str, list[Mapping[str, object]]]:
    """Group errors by message, ignoring numbers, bytes and quoted names."""
    groups: dict[str, list[Mapping[str, object]]] = {}
    for error in errors:
        groups.setdefault(re.sub(r"'[^']*'|\b[0-9a-f]{2}\b|\d+", "…", str(error["message"])), []).append(error)
    return {str(group[0]["message"]): group for group in groups.values()}


def print_plan(plan: Plan, outcome: PlanOutcome, *, workers: int, as_json: bool) -> None:
    """Print the plan of a conversion, its estimated output, and its first sample after each op."""
    from tar2tf_cli.conversion.preview import trace
    from tar2tf_cli.conversion.publish import growth_warning

    with prints_on_stderr():
        steps, (expected, fault) = trace(plan), _estimated(plan)
    warning = growth_warning(plan, expected.bytes, plan.size) if expected else None
    if as_json:
        print_json(_plan_document(plan, outcome, steps, expected, [warning, fault]))
        return
    if outcome.message:
        echo(outcome.message)
    _print_inputs(plan)
    limit = plan.conversion.output.limit
    echo(f"to {plan.conversion.output.template.text}" + (f", at most {size(limit)} each" if limit else ""))
    if expected:
        shards = f" in {count(expected.shards, 'shard')}" if not plan.conversion.output.is_stream else ""
        echo(f"about {count(expected.records, plan.conversion.output.traits.holds)}, {size(expected.bytes)}{shards}")
        echo(f"local disk: at most about {size(expected.local)}")
        if (seconds := expected.seconds / workers) >= 1:
            echo(f"time: about {seconds:,.0f} s with {count(workers, 'worker')}, estimated by converting a few samples")
        for note in expected.shapes:
            echo(f"among the first samples: {note}")
    palettes = expected.palettes if expected else ()
    for note in (*(note for op in plan.conversion.ops for note in op.notes(palettes)), *filter(None, [warning, fault])):
        message(note)
    for step in steps:
        echo(step.step)
        for name, look in step.entries.items():
            echo(f"  {name:{max(map(len, step.entries))}}  {look}")


def _estimated(plan: Plan) -> tuple[Estimate | None, str | None]:
    """Return the estimated output, or a warning instead if a sample cannot be converted."""
    from tar2tf_cli.conversion.preview import estimate

    try:
        return estimate(plan), None
    except SampleError as error:
        what = f"{error.where}: {error.message}"
        return None, f"warning: no estimate, because a sample cannot be converted: {what}"


def _print_inputs(plan: Plan) -> None:
    from tar2tf_cli.spec.urls import without_secrets

    total = "of unknown size" if plan.size is None else size(plan.size)
    echo(f"{count(len(plan.inputs), 'input')}, {total}, from {without_secrets(plan.source.bucket)}")
    for item in islice(plan.inputs, 3):
        echo(f"  {item.name}" + (f"  {size(item.size)}" if item.size is not None else ""))
    if len(plan.inputs) > 3:
        echo(f"  and {len(plan.inputs) - 3:,} more")
    if classes := plan.source.listing_info().classes:
        echo(_classes(classes))


def _plan_document(
    plan: Plan,
    outcome: PlanOutcome,
    steps: Sequence[TracedStep],
    expected: Estimate | None,
    warnings: Sequence[str | None],
) -> dict[str, object]:

    output = plan.conversion.output
    manifest = None if output.is_stream else output.template.manifest()
    return {
        **plan.manifest().identity(),
        "inputs": [{"name": item.name, "size": item.size, "version": item.version} for item in plan.inputs],
        "output": {"path": output.template.text, "manifest": manifest, "max_shard_size": output.limit},
        "outcome": outcome._asdict(),
        "estimate": expected._asdict() if expected else None,
        "warnings": [*filter(None, warnings)],
        **({"classes": [*classes]} if (classes := plan.source.listing_info().classes) else {}),
        "steps": [step._asdict() for step in steps],
    }


def _ops() -> dict[str, list[tuple[str, str]]]:
    """Return the ops as lines of the help below --op."""
    from tar2tf_cli.ops import OPS
    from tar2tf_cli.ops.base import summary

    return {"--op": [(op.examples[0], summary(op)) for op in OPS.values()]}


_SHORT: Final = "Convert shards, image folders or tables to TFRecords or tars."


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
    **{**choice_settings(*input_kinds(), plugins="inputs"), "show_default": False},
    help=f"{alternatives(input_kinds())}.",
    more="The kind of input in BUCKET. By default, the content of each input decides between tar and TFRecord. "
    "imagefolder is a folder with one folder of images per class, table a CSV, JSON Lines or Parquet file, examples a "
    "CSV file whose rows --example-class turns into examples. tfrecord also accepts empty inputs and inputs whose "
    "first record is damaged.",
)
@store_options
@tar_options
@input_option(
    "--ignore-gaps",
    is_flag=True,
    help="Convert although shards are missing.",
    more="Names such as train-00002-of-00004 state the number of shards; without this option, it is an error if one "
    "is missing, or if the conversion that writes them is not finished. The manifest lists the missing shards.",
)
@input_option(
    "--columns ENTRY=COLUMN,…",
    "columns",
    multiple=True,
    help="Table columns to convert.",
    more="With --from table. image=path:jpg reads the files named in column path as entry image; label=label:int64 "
    "reads column label as numbers. Without a type or suffix, a CSV column is text, and a JSON value keeps its type. "
    "Columns of a table without a header are numbered from 1. May be repeated. By default, every column becomes an "
    "entry of the same name.",
)
@input_option(
    "--example-class WHERE",
    shell_complete=propose_files,
    help="Class that turns rows into examples.",
    more="WHERE is FILE.py:CLASS or MODULE:CLASS.",
)
@input_option(
    "--example-arg NAME=VALUE",
    "example_args",
    multiple=True,
    help="Argument for the methods of that class.",
    more="May be repeated. A VALUE that is valid JSON is parsed.",
)
@sample_option(
    "--op OP",
    "ops",
    shell_complete=propose_ops,
    multiple=True,
    help="Operation to apply; repeat for more, in order:",
    more="tar2tf ops lists them with examples.",
)
@sample_option(
    "--key-feature NAME",
    help="Feature of records that contains the key.",
    more="For TFRecords whose key is not in __key__, such as key in TFRecords of img2dataset.",
)
@sample_option(
    "--key TEMPLATE",
    help="Give samples new keys.",
    more="Text with <input>, <key>, <key:BEFORE*AFTER>, <n>, <n:09> and {SELECTION}, such as '<input>/<key>' or "
    "'{json:id}'.",
)
@sample_option(
    "--keys FILE",
    help="Convert only samples with these keys.",
    more="FILE has one key per line, as printed by tar2tf inspect --keys.",
)
@sample_option(
    "--keys-missing",
    **choice_settings("error", "skip"),
    help="How to treat missing keys.",
    more="error stops the conversion; skip lists the missing keys in the summary and the manifest.",
)
@sample_option(
    "--join BUCKET",
    multiple=True,
    shell_complete=propose_files,
    help="Add entries from BUCKET, matched by key.",
    more="BUCKET holds tars or TFRecords, or is a CSV, JSON Lines or Parquet file. May be repeated.",
)
@sample_option(
    "--join-key COLUMN",
    help="Key column of a joined table.",
    more="By default, the column __key__ or key.",
)
@sample_option(
    "--join-on [COLUMN=]SEL",
    help="Join by another key than the sample's.",
    more="id=json:image_id matches the column or entry id of BUCKET with the value json:image_id of a sample.",
)
@sample_option(
    "--join-many",
    **choice_settings("error", "list", "repeat"),
    help="If several rows match.",
    more="error: a key may occur once. list: each entry becomes a list of values. repeat: a sample for each row.",
)
@sample_option(
    "--join-missing",
    **choice_settings("error", "skip", "keep"),
    help="If nothing matches.",
    more="error: the sample is faulty. skip: it is skipped and counted. keep: it is kept unchanged.",
)
@sample_option(
    "--sample P",
    help="Convert a random fraction, such as 0.1.",
    more="A hash of the key and --seed decides, so the choice does not change when data is added.",
)
@sample_option(
    "--drop-duplicates [ENTRY]",
    is_flag=False,
    flag_value="*",
    help="Skip samples equal to an earlier one.",
    more="Compares ENTRY or, by default, all entries, never the keys. The first sample in input order is kept.",
)
@sample_option(
    "--duplicates FILE",
    "duplicates_path",
    type=new_file_in_output,
    help="List the keys of the skipped duplicates.",
    more="With --drop-duplicates: one per line, in input order, as --keys reads them.",
)
@sample_option("--limit N", help="Convert at most N samples.")
@sample_option("--shuffle", is_flag=True, help="Shuffle the records across all shards.")
@sample_option("--seed N", help="Random seed.  [default: 0]")
@sample_option(
    "--max-pixels N",
    help="Largest image to decode.  [default: 134217728]",
    more="A sample with a larger image (height x width) is faulty.",
)
@sample_option(
    "--max-entry-size SIZE",
    help="Largest entry to load.  [default: 512MiB]",
    more="A sample is faulty if an op, a preset or a type must load a larger entry. Unchanged entries are "
    "copied in pieces, up to 2 GiB.",
)
@sample_option("--on-error", **choice_settings("fail", "skip"), help="How to treat a faulty sample.")
@sample_option(
    "--max-errors N",
    help="Fail after more than N faulty samples.",
    more="With --on-error skip. By default, there is no limit.",
)
@sample_option(
    "--max-lost SIZE",
    help="Fail after losing more than SIZE of input.",
    more="With --on-error skip: counts the bytes of damaged inputs that could not be read. A truncated input has lost "
    "an unknown number of bytes, which exceeds any SIZE.",
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
    more="NAME=ENTRY renames an entry. label=json:annotations.0.label takes one value from a JSON entry; "
    "boxes=json:annotations.*.box takes a value from every item of a list; score=json:score=0 sets a default. "
    "frames=*.jpg collects all matching entries in a list. May be repeated.",
)
@sample_option(
    "--boxes SEL",
    multiple=True,
    help="Boxes that move with their image.",
    more="SEL is json:objects.*.bbox, an array, or image/object/bbox for the four lists of the Object Detection API. "
    "It may be followed by format=xywh, xyxy, cxcywh or yxyx; relative; of=ENTRY, the image; min_visible=FRACTION; "
    "and beside=SEL+SEL, lists with an item for each box. Ops that move the pixels of the image change the numbers; "
    "boxes that leave it are dropped. May be repeated.",
)
@sample_option(
    "--points SEL",
    multiple=True,
    help="Points that move with their image.",
    more="SEL is as for --boxes, and may be followed by format=xy, yx or xyv; relative; and of=ENTRY. May be repeated.",
)
@sample_option(
    "--mask ENTRY",
    multiple=True,
    help="A mask that moves with its image.",
    more="ENTRY may be followed by of=ENTRY, the image, and fill=VALUE for pixels that it gains. It needs no ops of "
    "its own: the ops of its image apply to it, by the nearest pixel. May be repeated.",
)
@sample_option(
    "--invalid-boxes WHAT",
    **choice_settings("error", "drop", "keep"),
    help="Bad boxes: error, drop or keep.",
    more="A box is bad if it has no area, is outside its image or has a number that is not finite; under the preset "
    "detection also if its class is 0 or not among the categories. error: its sample is faulty. drop: it is dropped "
    "and counted. keep: it is kept unchanged.",
)
@feature_option(
    "--type NAME=TYPE",
    "types",
    shell_complete=propose_types,
    multiple=True,
    help="Type of a feature, such as cls=int64.",
    more="TYPE is int64, float, bytes, int64_list, float_list or bytes_list. Text is parsed as a number. May be "
    "repeated.",
)
@feature_option(
    "--labels NAME=FILE",
    multiple=True,
    shell_complete=propose_labels,
    help="Turn the text of a feature into numbers.",
    more="FILE is a label map: lines of CLASS, CLASS<TAB>TEXT or CLASS<TAB>N, or JSON. imagenet is the map of "
    "ImageNet-1k. auto numbers all texts of the inputs from 0, in sorted order, and reads the inputs twice. Without "
    "NAME=, the map is for the classes of an image folder. May be repeated.",
)
@feature_option(
    "--preset NAME",
    shell_complete=propose_presets,
    help="Write a standard set of features.",
    more=f"NAME is {alternatives(preset_names())}.",
)
@feature_option("--image-size N", help="Crop and scale imagenet-tensor images to N x N.")
@output_option(
    "-o",
    "--output PATH",
    "path",
    help="Path template of the shards; - for stdout.",
    more="<> numbers shards from 1, <00000> from 00000. <total> is the number of shards, <split> the name of the "
    "split, <input> the name of the input. A device or a pipe is written like standard output.",
)
@output_option(
    "--max-shard-size SIZE",
    help="Maximum size, such as 100MB.  [default: 256MiB]",
    more="The default applies to numbered paths without another limit.",
)
@output_option(
    "--num-shards N",
    help="Write N shards with equal numbers of records.",
    more="With splits, also a number for each: train=100,val=4.",
)
@output_option("--records-per-shard N", help="Maximum number of records in a shard.")
@output_option(
    "--split NAME=FRACTION,…",
    help="Split by key, such as train=0.9,val=0.1.",
    more="A hash of the key decides, so a sample stays in its split when data is added.",
)
@output_option(
    "--group-by PREFIX",
    help="Merge the samples GROUP/NAME into one.",
    more="Adjacent samples whose keys are equal up to the last / become one, after the ops: an entry NAME is then "
    "PREFIX/NAME, with a value for each merged sample. With the prefix steps, this undoes --op explode:steps.",
)
@output_option(
    "--group-once ENTRY",
    multiple=True,
    help="Entry stored once per group.",
    more="A name or glob of entries that are equal in all samples of a group. May be repeated.",
)
@output_option(
    "--split-by SEL",
    help="Split by a value, not by the key.",
    more="Samples with equal values, such as json:patient, are in one split.",
)
@output_option(
    "--stratify SEL",
    help="Give each split the same share of each value.",
    more="Of the samples with each value, such as cls, --split gets its fractions to within one sample. The inputs are "
    "read twice.",
)
@output_option(
    "--to",
    type=NameChoice(tuple(format_names()), "formats"),
    help="Format of the shards.",
    more="The default is tar if PATH ends in .tar, .tar.gz, .tgz or .tar.zst, which also sets the compression, and "
    "tfrecord otherwise.",
)
@output_option(
    "--compression",
    **choice_settings("none", "gzip", "zstd"),
    help="Compression of the shards.",
    more="The default is gzip if PATH ends in .gz, and none otherwise. zstd is for tars only.",
)
@output_option(
    "--index",
    is_flag=True,
    help="Write SHARD.idx next to each shard.",
    more="It lists the offset and size of each record. For tars, it is in the format of DALI's wds2idx.",
)
@output_option(
    "--tfds NAME[:VERSION]",
    help="Also describe the shards for TFDS.",
    more="Does what tar2tf export tfds does: tfds.builder_from_directory can then read the output folder. Number the "
    "shards with <00000> or <00000>-of-<total>.",
)
@output_option(
    "--for READERS",
    "readers",
    help="Write what other readers need, such as hf.",
    more="A list of dali, energon, grain, hf, ray, tfds, webdataset and wids. Formats and compressions that one of "
    "them does not read are refused. dali: adds --index. hf: writes README.md, by which datasets.load_dataset(FOLDER) "
    "finds the splits. ray: for TFRecords, writes _train-schema.pbtxt for tf_schema=. tfds: does what --tfds does. "
    "wids: writes _train-wids.json, the index of ShardListDataset. tar2tf verify --for finds their other problems.",
)
@output_option(
    "--update",
    is_flag=True,
    help="Convert only what changed since the last run.",
    more="Shards whose inputs have not changed are kept. The result is the same as from a fresh run.",
)
@output_option(
    "--remove-many",
    is_flag=True,
    help="Allow --update if over half the inputs are gone.",
    more="Without it, --update then stops with an error, as the listing may have been incomplete.",
)
@output_option("--overwrite", is_flag=True, help="Overwrite existing output.")
@work_options
@option(
    "--remote-exec/--no-remote-exec",
    default=None,
    help="Convert in the AIStore cluster, or locally.",
    more="The cluster that stores the inputs converts them and sends only the records. By default, it is used if it "
    "runs a transformer for exactly this spec. --remote-exec creates one if needed, and deletes it at the end; see "
    "tar2tf etl.",
)
@option("--etl NAME", help="Name of the transformer to use.", more="The name that was given to tar2tf etl init --name.")
@option(
    "--engine",
    **choice_settings("local", "ray"),
    help="Where to convert.",
    more="ray converts on a Ray cluster. Submit the command to the cluster: ray job submit -- tar2tf convert ... "
    "--engine ray. Inputs and output must be in a bucket or a folder that all nodes share. -j is then the number of "
    "tasks that run at once.",
)
@option("--address HOST:PORT", help="Ray cluster.  [default: RAY_ADDRESS, or local]")
@option("--dry-run", is_flag=True, help="Show the plan and a sample; write nothing.")
@option(
    "--preview FILE",
    help="With --dry-run: draw the sample.",
    more="Write a PNG of the first sample's image before and after the ops, with boxes, points and masks.",
)
@report_options
@click.pass_context
def convert(ctx: click.Context, /, **options: Any) -> int:
    """\b
    Convert shards, image folders or tables to TFRecords or tars.
    tar2tf convert shards 'train-{0000..0146}.tar' -o 'out/train-<>.record'
    BUCKET is a directory, a shard, - or a URL; TEMPLATE names shards in it.
    \f

    BUCKET is a directory, a tar, a TFRecord, a manifest, - for a tar or TFRecord on standard input, or a URL that
    begins with ais://, ais+s3://, ais+gs://, s3://, gs://, az://, hf://, http:// or https://. With --from, it can also
    be a folder with one folder of images per class, a table, or a CSV file whose rows describe examples.

    TEMPLATE names shards in BUCKET, with bash braces or a glob. By default, every *.tar, *.tar.gz, *.tgz, *.tar.zst,
    *.tar.bz2 and *.tar.xz is converted in sorted order; if there are none, every TFRecord. If all arguments are
    existing paths, these files and folders are the inputs, in the order given.

    The records of a TFRecord are copied unchanged, whatever they hold, if there are no ops, selections or types.
    Otherwise each example is a sample, and its features are the entries.

    \b
    tar2tf convert shards 'train-{0000..0146}.tar' -o 'out/train-<>.record'
    tar2tf convert shards/*.tar -o train.record
    tar2tf convert shards -o '<split>-<>.record' --split train=0.9,val=0.1
    tar2tf convert shards -o train.record --op decode:jpg \\
        --op resize:jpg,224x224 --select jpg,cls --type cls=int64
    cat one.tar | tar2tf convert - -o one.record
    tar2tf convert out -o 'new-<>.record' --num-shards 64
    tar2tf convert --from imagefolder photos --preset imagenet-tensor \\
        --image-size 300 -o 'out/train-<00000>-of-<total>'
    tar2tf convert --from examples --example-class toy.py:ToyExample \\
        examples.csv -o 'out/train-<>.record'

    The manifest is written next to the shards. To continue an interrupted run, repeat the command.
    """
    from tar2tf_cli.conversion.plan import make_plan
    from tar2tf_cli.conversion.run import convert
    from tar2tf_cli.remote import cluster_backend

    with prints_on_stderr():
        conversion, as_json = conversion_of(ctx), options["as_json"]
    if as_json and conversion.output.path == "-" and not options["dry_run"]:
        raise click.UsageError("--json and -o - both write to standard output: use one of them")
    if options["preview"] and not options["dry_run"]:
        raise click.UsageError("--preview draws the sample of a dry run: add --dry-run")
    describe = _descriptions(options, conversion.output)
    _check_duplicates(options, conversion)
    for name in ("errors", "duplicates"):
        if options[f"{name}_path"]:
            _check_list(f"--{name}", options[f"{name}_path"], conversion, options["spec_path"])
    where: dict[str, Any] = {"endpoint": options["endpoint"], "paths": True}
    earlier = {name: options[name] for name in ("overwrite", "update", "remove_many")}
    if options["dry_run"]:
        from tar2tf_cli.conversion.preview import outcome

        plan = make_plan(conversion, **where)
        cluster_backend(plan.work, plan.source, plan.inputs, Terminal())  # refuses what a cluster cannot do
        for note in plan.notes():
            message(note)
        with plan.joined():
            workers = options["num_workers"] or os.cpu_count() or 1
            result = outcome(plan, endpoint=options["endpoint"], **earlier)
            print_plan(plan, result, workers=workers, as_json=as_json)
            if options["preview"]:
                _write_picture(plan, options["preview"])
        return 0
    engine = {name: options[name] for name in ("engine", "address")}
    with Terminal(**options) as terminal:
        _note_lost_field(terminal, conversion.output.path)
        with prints_on_stderr():
            summary = convert(conversion, workers=options["num_workers"], events=terminal, **earlier, **engine, **where)
    if summary.manifest:
        for write in describe:
            write(summary.manifest)
    print_summary(summary, conversion.output, quiet=options["quiet"], as_json=as_json)
    return 1 if summary.skipped_samples else 0


def _descriptions(options: Mapping[str, Any], output: Output) -> list[Callable[[str], object]]:
    """Return the functions that describe the output for other readers, given its manifest.

    Raises:
        UsageError: when one of the readers cannot read the output.
    """
    readers: Sequence[str] = ()
    describe: list[Callable[[str], object]] = []
    if options["readers"]:
        from tar2tf_cli.checking.readers import check_output as check_for
        from tar2tf_cli.checking.readers import parse_readers

        readers = parse_readers(options["readers"])
        check_for(readers, output)
        describe += _side_files(readers, output, overwrite=options["overwrite"])
    if options["tfds"] or "tfds" in readers:
        from tar2tf_cli.datasets.tfds import check_output, export_tfds

        check_output(output, options["tfds"])
        describe.append(partial(export_tfds, name=options["tfds"], overwrite=options["overwrite"]))
    return describe


def _side_files(readers: Sequence[str], output: Output, *, overwrite: bool) -> Iterator[Callable[[str], object]]:
    """Yield functions that write the files that Hugging Face datasets, Ray and wids need next to shards."""
    from tar2tf_cli.datasets import side_files

    writers = {
        "hf": side_files.export_card,
        "ray": partial(side_files.export_schema, overwrite=overwrite) if output.traits.carries_examples else None,
        "wids": partial(side_files.export_wids, overwrite=overwrite),
    }
    for reader, write in writers.items():
        if reader in readers and write:
            side_files.check_output(output, reader)
            yield write


def _write_picture(plan: Plan, path: str) -> None:
    """Write the picture of the first sample."""
    from tar2tf_cli.conversion.preview import picture
    from tar2tf_cli.formats.files import write_whole

    with prints_on_stderr():
        write_whole(path, [picture(plan)], lasting=False)


def _value(params: Mapping[str, Any], name: str, section: str) -> Any:
    """Return the value of a spec field from its option; --labels gives the maps of features and of an image folder."""
    value = params.get(name)
    if name != "labels" or not value:
        return value
    if section != "input":
        return tuple(item for item in value if "=" in item)
    maps = [item for item in value if "=" not in item]
    if len(maps) > 1:
        raise click.UsageError(f"--labels: an image folder takes one label map, not {' and '.join(maps)}")
    return maps[0] if maps else None


def _check_duplicates(options: Mapping[str, object], conversion: Conversion) -> None:
    """Raise an error for --duplicates without --drop-duplicates, or in an update, which does not read all inputs."""
    if not options["duplicates_path"]:
        return
    if conversion.drop_duplicates is None:
        raise click.UsageError("--duplicates lists the samples that --drop-duplicates skips: add --drop-duplicates")
    if options["update"]:
        raise click.UsageError("--duplicates needs all inputs, and --update reads only changed ones: use --overwrite")


def _check_list(option: str, path: str, conversion: Conversion, spec_path: str | None) -> None:
    """Raise an error if the file for a list of errors or keys is one that the conversion itself reads or writes."""
    own, template = os.path.realpath(path), conversion.output.template
    maps = [getattr(labels, "path", None) for labels in conversion.labels.values()]
    others = (
        template.manifest(),
        conversion.input.bucket,
        conversion.input.labels,
        conversion.input.keys,
        spec_path,
        *maps,
    )
    shards = template._replace(text=os.path.realpath(template.text)).regex()
    if shards.match(own) or own in (os.path.realpath(other) for other in others if other):
        raise click.UsageError(f"{option}: the conversion itself reads or writes {path!r}; name another file")


def _note_lost_field(terminal: Terminal, path: str) -> None:
    """Warn about an output path whose `<>` the shell seems to have removed, or a file named like a folder."""
    if path == "-" or {"<", "{"} & set(path):
        return
    if path.endswith(("-", "_")):
        terminal.note(f"note: the output path ends with {path[-1]!r}; if you wrote <>, quote it: -o '{path}<>.record'")
    elif "." not in os.path.basename(path) and (os.path.isfile(path) or not os.path.lexists(path)):
        terminal.note(f"note: the output {path!r} is a file; for a folder of shards, write -o '{path}/train-<>.record'")


def conversion_of(context: click.Context) -> Conversion:
    """Build a conversion from the options: flags override the environment, which overrides the spec file."""
    from tar2tf_cli.spec.conversion import Conversion
    from tar2tf_cli.spec.yaml_file import SECTIONS, build, read, spec_fields

    flags: dict[str, Any] = {section: {} for section in SECTIONS}
    params = {param.name: param for param in context.command.params}
    for section, kind in {**SECTIONS, "": Conversion}.items():
        for key, field in spec_fields(kind).items():
            value = _value(context.params, field.name, section)
            default = context.get_parameter_source(field.name) in (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP)
            if value not in (None, ()) and not default:
                flags.get(section, flags)[key] = field.check(value, label(params[field.name], context))
    path = context.params["spec_path"]
    conversion = read(path, flags) if path else build(flags)
    if "dali" in (context.params.get("readers") or "").split(",") and conversion.output.compression == "none":
        return replace(conversion, output=replace(conversion.output, index=True))
    return conversion
