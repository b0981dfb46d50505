"""`tar2tf inspect`: inspects shards and prints what they hold as tables or JSON."""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import click

from tar2tf_cli.cli.options import (
    Command,
    new_file,
    output_option,
    reach_of,
    report_options,
    shards_arguments,
    store_options,
    tar_options,
    whole_number,
    work_options,
)
from tar2tf_cli.cli.output import (
    Terminal,
    echo,
    message,
    print_error,
    print_json,
    print_members,
    print_skipped,
    print_table,
    size,
)
from tar2tf_cli.errors import SourceError, count

if TYPE_CHECKING:
    from collections.abc import Callable

    from tar2tf_cli.checking.contents import Contents, Stats
    from tar2tf_cli.checking.inspect import RawSample

    OnDamage: TypeAlias = Callable[[SourceError], None]


T = TypeVar("T")

_MOST_SHARDS: Final = 20
_MOST_ENTRIES: Final = 100
_MOST_EXAMPLE: Final = 60
_TOGETHER: Final = ({"--keys", "-n"}, {"-n", "--json"}, {"--html", "--json"}, {"--html", "--code"})
"""Options for what is shown that may be combined."""


@click.command("inspect", cls=Command)
@shards_arguments()
@output_option("-n N", "samples", type=whole_number, help="Print the first N samples, also with --json.")
@output_option("--code", is_flag=True, help="Print Python code that reads the shards.")
@output_option("--html FILE", type=new_file, help="Write a page that shows the dataset.")
@output_option("--keys", is_flag=True, help="Print the key of every sample, one per line.")
@output_option("--extract KEY", multiple=True, help="Write a sample's entries to files.", more="May be repeated.")
@output_option("--to DIR", default=".", show_default=True, help="Folder for --extract.")
@work_options
@tar_options
@store_options
@report_options
def command(bucket: str, template: tuple[str, ...], **options: Any) -> int:
    """Show what tar and TFRecord shards contain.

    BUCKET is a directory, a shard, a manifest, the URL of any of these, or - for standard input. TEMPLATE names shards
    in it, with bash braces or a glob; by default, every tar and TFRecord is inspected, whatever its name. If all
    arguments are existing paths, these files and folders are inspected, and the shards that manifests list.

    \b
    tar2tf inspect shards
    tar2tf inspect a.tar b.tar
    tar2tf inspect parts/part*-manifest.json
    tar2tf inspect out 'train-*.record' --json
    tar2tf inspect shards/train-0000.tar -n 3
    tar2tf inspect shards/train-0000.tar --extract n01440764/18 --to look
    tar2tf inspect out 'train-*.record' --code > parse.py
    tar2tf inspect shards --html shards.html

    Every sample is counted. About a hundred values of each entry or feature are examined to find out what they are:
    images with width x height x channels, text, JSON, arrays. For numbers, min, mean and max are those of the values;
    for everything else, those of the sizes in bytes.

    A damaged or unreadable shard does not stop the others: what can be read is counted, the first error is printed,
    and the exit code is 3.
    """
    from tar2tf_cli.inputs.tar_samples import TarRules

    rules = TarRules(options["key_split"], options["regroup"], options["ignore_missing_end"])
    where: dict[str, Any] = {"rules": rules, "paths": True, **reach_of(options)}
    _check_modes(options, bucket)
    errors: list[SourceError] = []

    def damaged(error: SourceError) -> None:
        print_error(error)
        errors.append(error)

    by_sample = options["keys"] or options["extract"] or (options["samples"] and not options["as_json"])
    show = _show_samples if by_sample else _show_contents
    show(bucket, template, where, options, damaged)
    return SourceError.exit_code if errors else 0


def _show_samples(
    bucket: str, template: tuple[str, ...], where: dict[str, Any], options: dict[str, Any], damaged: OnDamage
) -> None:
    from tar2tf_cli.checking.inspect import read_samples

    samples = read_samples(bucket, template, heads_only=not options["extract"], damaged=damaged, **where)
    if options["extract"]:
        from tar2tf_cli.checking.inspect import extract

        for path in extract(samples, options["extract"], options["to"]):
            echo(path)
        return
    for sample in islice(samples, options["samples"]):
        if options["keys"]:
            _print_key(sample.name)
        else:
            _print_sample(sample)


def _print_key(key: str) -> None:
    """Print a key as it is, for `convert --keys`; escaped on a terminal, and where it would be several lines."""
    if sys.stdout.isatty() or "\n" in key:
        echo(key)
    else:
        click.echo(key.encode("utf-8", "surrogateescape"))


def _show_contents(
    bucket: str, template: tuple[str, ...], where: dict[str, Any], options: dict[str, Any], damaged: OnDamage
) -> None:
    from tar2tf_cli.checking.inspect import inspect, read_samples

    most, as_json = options["samples"], options["as_json"]
    with Terminal(**options) as terminal:
        contents = inspect(bucket, template, workers=options["num_workers"], events=terminal, damaged=True, **where)
    not_whole = _write_page(contents, bucket, template, where, options) if options["html"] else ""
    some = any(shard.samples or shard.error is None for shard in contents.shards)
    if as_json:
        samples = read_samples(bucket, template, heads_only=True, damaged=lambda error: None, **where)
        first = {"first": [sample.to_json() for sample in islice(samples, most)]} if most else {}
        print_json({**contents.to_json(), **first})
    elif some and options["code"]:
        from tar2tf_cli.checking.parse_code import parse_code

        click.echo(parse_code(contents), nl=False)
    elif some:
        _print_contents(contents, every_shard=options["verbose"])
    if some and not options["quiet"]:
        _print_notes(contents)
    errors = _few(contents.errors, options["verbose"])
    for error in errors:
        damaged(error)
    if len(errors) < len(contents.errors):
        message(f"and {count(len(contents.errors) - len(errors), 'more error')}; use -v to see all")
    if not_whole and not errors:
        damaged(SourceError(f"{not_whole}; {options['html']} shows the faults", shard=contents.bucket))


def _write_page(
    contents: Contents, bucket: str, template: tuple[str, ...], where: dict[str, Any], options: dict[str, Any]
) -> str:
    """Write the page; returns how many files are not whole, in words: some faults only `verify` finds."""
    from tar2tf_cli.checking.page import not_whole, read_pages, write_page
    from tar2tf_cli.checking.verify import verify

    with Terminal(**options) as terminal:
        common = {**where, "workers": options["num_workers"], "events": terminal}
        pages = read_pages(bucket, template, shards={shard.name for shard in contents.shards}, **common)
        report = verify(bucket, template, **common)
    write_page(options["html"], contents, pages, report)
    return not_whole(report)


def _check_modes(options: dict[str, Any], bucket: str) -> None:
    modes = {"--code": "code", "--keys": "keys", "--extract": "extract", "-n": "samples", "--html": "html"}
    given = [name for name, option in {**modes, "--json": "as_json"}.items() if options[option]]
    if len(given) > 1 and set(given) not in _TOGETHER:
        raise click.UsageError(f"{' and '.join(given)} cannot be combined: use one of them")
    if bucket == "-" and options["html"]:
        raise click.UsageError("standard input can be read only once, but --html reads its input twice")
    if bucket == "-" and {"-n", "--json"} <= set(given):
        raise click.UsageError("standard input can be read only once: use either -n or --json")


def _print_contents(contents: Contents, *, every_shard: bool) -> None:
    what = {"tar": "tar", "tfrecord": "TFRecord"}.get(contents.format, "tar and TFRecord")
    shards, samples = count(len(contents.shards), f"{what} shard"), count(contents.samples, _noun(contents))
    echo(f"{contents.bucket}: {shards}, {samples}, {size(contents.bytes)}")
    if contents.not_adjacent:
        echo(f"{count(contents.not_adjacent, 'sample')} with members that are not adjacent; convert regroups them")
    if len(contents.shards) > 1:
        _print_shards(contents, every_shard=every_shard)
    if contents.entries:
        _print_entries(contents)


def _few(items: list[T], every: bool) -> list[T]:
    """The first items if there are too many for a screen, and not every one is to be shown."""
    return items if every or len(items) <= _MOST_SHARDS else items[: _MOST_SHARDS // 2]


def _noun(contents: Contents) -> str:
    return "record" if contents.format == "tfrecord" else "sample"


def _print_shards(contents: Contents, *, every_shard: bool) -> None:
    shards = contents.shards
    shown = _few(shards, every_shard)
    faults = len(contents.errors)
    rows = [
        (shard.name, f"{shard.samples:,}", _bytes(shard.bytes), *[shard.error.kind if shard.error else ""][:faults])
        for shard in shown
    ]
    heading = ("shard", f"{_noun(contents)}s", "size", *["fault"][:faults])
    echo("")
    print_table([heading, *rows], right={1, 2}, shrink={0: 12})
    if len(shown) < len(shards):
        echo(f"and {len(shards) - len(shown):,} more; use -v to see all")


def _print_entries(contents: Contents) -> None:
    """Print a row for each entry; if some are optional, a column says how many samples lack them."""
    entries = contents.entries
    missing = [contents.lacking(stats) for stats in entries.values()]
    optional = int(any(missing))
    rows = [
        _row(name, stats, lacking if optional else None)
        for (name, stats), lacking in islice(zip(entries.items(), missing, strict=True), _MOST_ENTRIES)
    ]
    name = "feature" if contents.format == "tfrecord" else "entry"
    heading = (name, "count", *["missing"][:optional], "kind", "min", "mean", "max", "example")
    kind = 2 + optional
    shrink = {kind + 4: 10, kind: 22, 0: 24}  # example, kind, name
    drop = (kind + 4, kind + 1, kind + 3, kind + 2)  # where they do not fit: example, min, max, mean
    right = {1, kind - 1, kind + 1, kind + 2, kind + 3}
    echo("")
    print_table([heading, *rows], right=right, shrink=shrink, drop=drop)
    if len(entries) > _MOST_ENTRIES:
        echo(f"and {len(entries) - _MOST_ENTRIES:,} more; use --json to see all")


def _row(name: str, stats: Stats, missing: int | None) -> tuple[str, ...]:
    from tar2tf_cli.checking.contents import shortened

    lacking = [] if missing is None else [f"{missing:,}" if missing else "-"]
    example = shortened(stats.example or "", _MOST_EXAMPLE)
    return (name, f"{stats.count:,}", *lacking, *stats.summary(_bytes), example)


def _length(stats: Stats) -> str:
    """The size of one value in bytes or, of a list of numbers, their number."""
    return _bytes(stats.most) if stats.unit == "bytes" else f"{stats.most:,}"


def _bytes(number: int) -> str:
    return size(number).replace(" bytes", " B").replace(" byte", " B")


def _print_sample(shown: RawSample) -> None:
    place = f"record {shown.number}" if shown.key is None else f"sample {shown.number}, {shown.key}"
    echo(f"{shown.path}: {place}")
    entries = sorted(shown.entries.items())
    rows = [(name, stats.kind, _length(stats), stats.example or "") for name, stats in entries]
    print_table(rows, right={2}, shrink={3: 16, 1: 22, 0: 24}, drop=(2, 3), indent="  ")


def _print_notes(contents: Contents) -> None:
    """Report what was not counted, on standard error."""
    print_skipped(contents.skipped)
    print_members(contents.skipped_members)
    for note in (*contents.shapes, *contents.of_images()):
        message(note)
    if faulty := sum(shard.faulty for shard in contents.shards):
        message(f"{count(faulty, 'faulty sample')} not counted: use tar2tf verify to list them")
    if sequences := sum(shard.sequences for shard in contents.shards):
        message(f"{count(sequences, 'record')}: tf.train.SequenceExample; names that end with [] are feature lists")
    if foreign := sum(shard.foreign for shard in contents.shards):
        kind = contents.payload.kind
        message(f"{count(foreign, 'record')}: not a tf.train.Example ({kind})")
    if faults := len(contents.errors):
        shards = count(len(contents.shards), "shard")
        message(f"{faults:,} of {shards} cannot be read as a whole; what can be read is counted")
