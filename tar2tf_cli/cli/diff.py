"""`tar2tf diff`: compares two datasets, and prints differences as text or JSON."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import click

from tar2tf_cli.cli.options import (
    FOR_KEYS,
    Command,
    argument,
    check_files,
    choose_json,
    common_options,
    new_file,
    output_option,
    reading_arguments,
    sample_option,
)
from tar2tf_cli.cli.output import Terminal, message, print_result, print_skipped, size
from tar2tf_cli.errors import count
from tar2tf_cli.spec.key_lists import write_keys

if TYPE_CHECKING:
    from tar2tf_cli.checking.diff import ComparedDataset, Difference, Differences

_MOST_DIFFERENCES: Final = 20
_AT_ONCE: Final = 10_000
_WORDS: Final = {"only_in_a": "only in A", "only_in_b": "only in B", "changed": "changed"}


@click.command("diff", cls=Command)
@argument("a")
@argument("b")
@sample_option("--ignore-order", is_flag=True, help="Accept samples in a different order.")
@output_option("--only-a FILE", type=new_file, help="List the keys of samples only in A.", more=FOR_KEYS)
@output_option("--only-b FILE", type=new_file, help="List the keys of samples only in B.", more=FOR_KEYS)
@output_option("--changed FILE", type=new_file, help="List the keys of changed samples.", more=FOR_KEYS)
@output_option("--html FILE", type=new_file, help="Write a page with the differences.")
@output_option("--markdown FILE", type=new_file, help="Write the differences as Markdown, for a review.")
@output_option("--json-lines", is_flag=True, help="Print one line of JSON per difference.")
@common_options
def diff(a: str, b: str, **options: Any) -> int:
    """Compare two datasets sample by sample.

    A and B are each a directory, a template, a tar or TFRecord file, a manifest, the URL of any of these, or - for
    standard input. In a directory with a manifest, only the shards that the manifest lists are compared.

    \b
    tar2tf diff old/_train-manifest.json new/_train-manifest.json
    tar2tf diff shards resharded
    tar2tf diff shards out/_train-manifest.json
    tar2tf diff 'out/train-*.record' s3://bucket/train --ignore-order
    tar2tf diff old new --json-lines | jq -r 'select(.kind == "changed").key'

    Samples are matched by key, and records without __key__ by content. How samples are divided among shards does not
    matter. diff prints a line for each sample that is only in A, only in B or changed, and names the entries that
    differ. Records are equal if their values are equal, however they are encoded. Between a tar and a TFRecord, entries
    are compared with the features of the same name, and text is parsed as numbers as convert --type would.

    Exit code: 0 equal, 1 there are differences, 2 wrong usage, 3 something could not be read.
    """
    from tar2tf_cli.checking.diff import diff

    choose_json(options)
    lists = {"only_in_a": "only_a", "only_in_b": "only_b", "changed": "changed"}
    check_files({f"--{name.replace('_', '-')}": name for name in (*lists.values(), "html", "markdown")}, options)
    with Terminal(**options) as terminal:
        how = {"workers": options["num_workers"], "events": terminal, **reading_arguments(options)}
        differences = diff(a, b, ignore_order=options["ignore_order"], **how)
    for kind in differences.counts:
        if path := options[lists[kind]]:
            write_keys(path, differences.keys(kind))
    if options["html"] or options["markdown"]:
        from tar2tf_cli.checking.diff_report import write_markdown, write_page

        for path, write in ((options["html"], write_page), (options["markdown"], write_markdown)):
            if path:
                write(path, differences)
    print_result(differences, differences, _difference_lines(differences, every=options["verbose"]), options)
    if not options["quiet"]:
        _print_differences(differences)
    return 0 if differences.equal else 1


def _difference_lines(differences: Differences, *, every: bool) -> Iterator[str]:
    """Yield a line for each difference, or only for the first of each kind if there are many."""
    for kind, number in differences.counts.items():
        shown = number if every or number <= _MOST_DIFFERENCES else _MOST_DIFFERENCES // 2
        some = islice(differences.of(kind), shown)
        yield from _changes(differences, some) if every and kind == "changed" else map(_line, some)
        if shown < number:
            yield f"{_WORDS[kind]}: {number - shown:,} more; use -v to see all"
    for name, (ours, theirs) in differences.types.items():
        yield f"type: {name} is {ours} in A, and {theirs} in B"
    if differences.moved and not differences.ignore_order:
        before, after = ("a record" if key is None else repr(key) for key in differences.moved)
        places = f" (and {count(differences.out_of_order - 1, 'more place')})" if differences.out_of_order > 1 else ""
        yield f"order: {after} comes after {before} in A, but before it in B{places}"


def _changes(differences: Differences, changed: Iterator[Difference]) -> Iterator[str]:
    """Yield a line for each changed sample, then one with both values for each entry that differs."""
    from tar2tf_cli.checking.diff_report import value_changes

    while some := list(islice(changed, _AT_ONCE)):  # as each shard is read once for all of them
        for difference, changes in value_changes(differences, some):
            yield _line(difference)
            yield from (f"  {name}: {a} -> {b}" for name, a, b in changes)


def _line(difference: Difference) -> str:
    """Format a difference: `changed: 000123: cls, json, only in A: txt (a.tar, b.tar)`."""
    places = [place for place in (difference.a, difference.b) if place]
    key = f"record {places[0].number}" if difference.key is None else difference.key
    paths = ", ".join(place.path for place in places)
    what = [name for name, kind in difference.entries.items() if kind == "changed"]
    what += [f"{name} {_WORDS[kind]}" for name, kind in difference.entries.items() if kind != "changed"]
    return f"{_WORDS[difference.kind]}: {key} ({paths}){': ' if what else ''}{', '.join(what)}"


def _print_differences(differences: Differences) -> None:
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
    if differences.types:
        said.append(f"{count(len(differences.types), 'type')} of features")
    if differences.out_of_order and not differences.ignore_order:
        said.append("a different order")
    message(f"not equal: {', '.join(said)}; {count(differences.same, 'sample')} the same")


def _described(dataset: ComparedDataset) -> str:
    shards, samples = count(len(dataset.shards), "shard"), count(dataset.samples, "sample")
    return f"{dataset.path}: {shards}, {samples}, {size(dataset.bytes)}"
