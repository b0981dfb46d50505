"""`tar2tf diff`: compares two datasets and prints their differences as lines of text or JSON."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import click

from tar2tf_cli.cli.options import (
    Command,
    argument,
    output_option,
    reach_of,
    report_options,
    sample_option,
    store_options,
    tar_options,
    work_options,
)
from tar2tf_cli.cli.output import Terminal, echo, message, print_json, print_skipped, size
from tar2tf_cli.errors import count

if TYPE_CHECKING:
    from tar2tf_cli.checking.diff import Dataset, Difference, Differences

_MOST_LINES: Final = 20
_WORDS: Final = {"only_in_a": "only in A", "only_in_b": "only in B", "changed": "changed"}


@click.command("diff", cls=Command)
@argument("a")
@argument("b")
@sample_option("--ignore-order", is_flag=True, help="Accept samples in a different order.")
@output_option("--json-lines", is_flag=True, help="Print one line of JSON per difference.")
@work_options
@tar_options
@store_options
@report_options
def command(a: str, b: str, **options: Any) -> int:
    """Compare two datasets sample by sample.

    A and B are each a directory, a template, a tar or TFRecord file, a manifest, the URL of any of these, or - for
    standard input. In a directory with a manifest, only the shards that the manifest lists are compared.

    \b
    tar2tf diff old/train-manifest.json new/train-manifest.json
    tar2tf diff shards resharded
    tar2tf diff shards out/train-manifest.json
    tar2tf diff 'out/train-*.record' s3://bucket/train --ignore-order
    tar2tf diff old new --json-lines | jq -r 'select(.kind == "changed").key'

    Samples are matched by key, and records without __key__ by content. How samples are divided among shards does not
    matter. diff prints a line for each sample that is only in A, only in B or changed, and names the entries that
    differ. Records are equal if their values are equal, however they are encoded. Between a tar and a TFRecord, entries
    are compared with the features of the same name, and text is parsed as numbers as convert --type would.

    Exit code: 0 equal, 1 there are differences, 2 wrong usage, 3 something could not be read.
    """
    from tar2tf_cli.checking.diff import diff
    from tar2tf_cli.inputs.tar_samples import TarRules

    if options["as_json"] and options["json_lines"]:
        raise click.UsageError("--json and --json-lines cannot be combined: use one of them")
    rules = TarRules(options["key_split"], options["regroup"], options["ignore_missing_end"])
    with Terminal(**options) as terminal:
        differences = diff(
            a,
            b,
            ignore_order=options["ignore_order"],
            rules=rules,
            workers=options["num_workers"],
            **reach_of(options),
            events=terminal,
        )
    _print(differences, options)
    if not options["quiet"]:
        _print_summary(differences)
    return 0 if differences.equal else 1


def _print(differences: Differences, options: dict[str, Any]) -> None:
    if options["as_json"]:
        print_json(differences.to_json())
    elif options["json_lines"]:
        import json

        for difference in differences:
            click.echo(json.dumps(difference.to_json()))
    else:
        _print_lines(differences, every=options["verbose"])


def _print_lines(differences: Differences, *, every: bool) -> None:
    """Print a line for each difference, or for the first ones of each kind if there are many."""
    for kind, number in differences.counts.items():
        shown = number if every or number <= _MOST_LINES else _MOST_LINES // 2
        for difference in islice(differences.of(kind), shown):
            echo(_line(difference))
        if shown < number:
            echo(f"{_WORDS[kind]}: {number - shown:,} more; use -v to see all")
    if differences.moved and not differences.ignore_order:
        before, after = ("a record" if key is None else repr(key) for key in differences.moved)
        places = f" (and {count(differences.out_of_order - 1, 'more place')})" if differences.out_of_order > 1 else ""
        echo(f"order: {after} comes after {before} in A, but before it in B{places}")


def _line(difference: Difference) -> str:
    """`changed: 000123: cls, json, only in A: txt (a.tar, b.tar)`."""
    places = [place for place in (difference.a, difference.b) if place]
    key = f"record {places[0].number}" if difference.key is None else difference.key
    paths = ", ".join(place.path for place in places)
    what = [name for name, kind in difference.entries.items() if kind == "changed"]
    what += [f"{name} {_WORDS[kind]}" for name, kind in difference.entries.items() if kind != "changed"]
    return f"{_WORDS[difference.kind]}: {key} ({paths}){': ' if what else ''}{', '.join(what)}"


def _print_summary(differences: Differences) -> None:
    for name, dataset in (("A", differences.a), ("B", differences.b)):
        print_skipped(dataset.skipped)
        message(f"{name}: {_described(dataset)}")
    if differences.by_content:
        message("note: samples are matched by content, because the records of A or B have no __key__")
    for name, counts in sorted(differences.entries.items()):
        each = ", ".join(f"{_WORDS[kind]} {number:,}" for kind, number in counts.items())
        message(f"in changed samples, {name}: {each}")
    if differences.equal:
        order = " in a different order" if differences.out_of_order else ""
        message(f"equal: {count(differences.same, 'sample')}{order}")
        return
    said = [f"{number:,} {_WORDS[kind]}" for kind, number in differences.counts.items() if number]
    if differences.out_of_order and not differences.ignore_order:
        said.append("a different order")
    message(f"not equal: {', '.join(said)}; {count(differences.same, 'sample')} the same")


def _described(dataset: Dataset) -> str:
    shards, samples = count(len(dataset.shards), "shard"), count(dataset.samples, "sample")
    return f"{dataset.path}: {shards}, {samples}, {size(dataset.bytes)}"
