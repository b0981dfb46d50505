"""`tar2tf inspect`: shows what shards contain, as tables, JSON, code or a page."""

from __future__ import annotations

import io
import sys
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import click
from click.core import ParameterSource

from tar2tf_cli.cli.options import (
    Command,
    NameChoice,
    common_options,
    new_file,
    output_option,
    propose_presets,
    reading_arguments,
    shards_arguments,
    whole_number,
)
from tar2tf_cli.cli.output import (
    Terminal,
    echo,
    message,
    print_count,
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

Shards: TypeAlias = "tuple[str, tuple[str, ...]]"
"""The arguments BUCKET and TEMPLATE."""

_MOST_SHARDS: Final = 20
_MOST_ENTRIES: Final = 100
_MOST_EXAMPLE: Final = 60
_TOGETHER: Final = ({"--keys", "-n"}, {"-n", "--json"}, {"--html", "--json"}, {"--html", "--code"})
"""Pairs of output options that may be combined."""

_DRAWN: Final = ("boxes", "points", "mask", "preset")
"""Options that select the drawings on the HTML page."""


@click.command("inspect", cls=Command)
@shards_arguments()
@output_option("-n N", "samples", type=whole_number, help="Print the first N samples, also with --json.")
@output_option(
    "--format FORMAT",
    "form",
    type=NameChoice(("table", "csv", "markdown", "json")),
    help="Print entries in another format.",
    more="csv: one row per entry, with plain numbers. markdown: both tables, with all rows. json: as --json.",
)
@output_option("--code", is_flag=True, help="Print Python code that reads the shards.")
@output_option("--html FILE", type=new_file, help="Write a page that shows the dataset.")
@output_option(
    "--boxes SEL",
    multiple=True,
    help="Boxes to draw on the --html page.",
    more="As for convert: json:objects.*.bbox,format=xywh. Declarations in the manifest, and the lists of the Object "
    "Detection API, are drawn without it. May be repeated.",
)
@output_option(
    "--points SEL", multiple=True, help="Points to draw on the --html page.", more="As for convert. May be repeated."
)
@output_option(
    "--mask ENTRY",
    multiple=True,
    help="Masks to overlay on the --html page.",
    more="As for convert. Entries that are named like masks are found without it. May be repeated.",
)
@output_option(
    "--preset NAME",
    shell_complete=propose_presets,
    help="Draw the annotations of this preset.",
    more="detection: the boxes of annotations in JSON, as in COCO. segmentation: the mask.",
)
@output_option("--keys", is_flag=True, help="Print the key of every sample, one per line.")
@output_option("--extract KEY", multiple=True, help="Write a sample's entries to files.", more="May be repeated.")
@output_option("--to DIR", default=".", show_default=True, help="Folder for --extract.")
@common_options
def inspect(bucket: str, template: tuple[str, ...], **options: object) -> int:
    """Show what tar and TFRecord shards contain.

    BUCKET is a directory, a shard, a manifest, the URL of any of these, or - for standard input. TEMPLATE names shards
    in it, with bash braces or a glob; by default, every tar and TFRecord is inspected, whatever its name. If all
    arguments are existing paths, these files and folders are inspected, and the shards that manifests list.

    \b
    tar2tf inspect shards
    tar2tf inspect a.tar b.tar
    tar2tf inspect parts/_part*-manifest.json
    tar2tf inspect out 'train-*.record' --json
    tar2tf inspect shards/train-0000.tar -n 3
    tar2tf inspect shards/train-0000.tar --extract n01440764/18 --to look
    tar2tf inspect out 'train-*.record' --code > parse.py
    tar2tf inspect shards --html shards.html
    tar2tf inspect coco --html coco.html --preset detection

    Every sample is counted. About a hundred values of each entry or feature are examined to find out what they are:
    images with width x height x channels, text, JSON, arrays. For numbers, min, mean and max describe the values; for
    everything else, the sizes in bytes.

    A damaged or unreadable shard does not stop inspection: its readable part is counted, the first error is printed,
    and the exit code is 3.
    """
    options["as_json"] = options["as_json"] or options["form"] == "json"
    _check_modes(options, bucket)
    errors: list[SourceError] = []

    def damaged(error: SourceError) -> None:
        print_error(error)
        errors.append(error)

    by_sample = options["keys"] or options["extract"] or (options["samples"] and not options["as_json"])
    show = _show_samples if by_sample else _show_contents
    show((bucket, template), options, damaged)
    return SourceError.exit_code if errors else 0


def _show_samples(shards: Shards, options: dict[str, Any], damaged: OnDamage) -> None:
    from tar2tf_cli.checking.inspect import extract, read_samples

    how = reading_arguments(options)
    samples = read_samples(*shards, paths=True, heads_only=not options["extract"], damaged=damaged, **how)
    if options["extract"]:
        for path in extract(samples, options["extract"], options["to"]):
            echo(path)
        return
    for sample in islice(samples, options["samples"]):
        if options["keys"]:
            _print_key(sample.name)
        else:
            _print_sample(sample)


def _print_key(key: str) -> None:
    """Print a key for `convert --keys`; on a terminal, control characters are escaped."""
    if sys.stdout.isatty():
        echo(key)
    else:
        from tar2tf_cli.spec.key_lists import key_line

        click.echo(key_line(key), nl=False)


def _show_contents(shards: Shards, options: dict[str, Any], damaged: OnDamage) -> None:
    from tar2tf_cli.checking.inspect import inspect, read_samples

    most, as_json, how = options["samples"], options["as_json"], {"paths": True, **reading_arguments(options)}
    with Terminal(**options) as terminal:
        contents = inspect(*shards, workers=options["num_workers"], events=terminal, damaged=True, **how)
    faulty = _write_page(contents, shards, options) if options["html"] else ""
    some = any(shard.samples or shard.error is None for shard in contents.shards)
    if as_json:
        samples = read_samples(*shards, heads_only=True, damaged=lambda error: None, **how)
        first = {"first": [sample.to_json() for sample in islice(samples, most)]} if most else {}
        print_json({**contents.to_json(), **first})
    elif some and options["code"]:
        from tar2tf_cli.checking.parse_code import parse_code

        click.echo(parse_code(contents), nl=False)
    elif some and options["form"] == "csv":
        _print_csv(contents)
    elif some and options["form"] == "markdown":
        _print_markdown(contents)
    elif some and not (options["quiet"] and options["form"] is None):
        _print_contents(contents, every_shard=options["verbose"])
    if some and not options["quiet"]:
        _print_notes(contents)
    errors = _first_items(contents.errors, options["verbose"])
    for error in errors:
        damaged(error)
    if len(errors) < len(contents.errors):
        message(f"and {count(len(contents.errors) - len(errors), 'more error')}; use -v to see all")
    if faulty and not errors:
        damaged(SourceError(f"{faulty}; {options['html']} shows the faults", shard=contents.bucket))


def _write_page(contents: Contents, shards: Shards, options: dict[str, Any]) -> str:
    """Write the HTML page; return a text about the faults on it, those of `verify` and of decoded values."""
    from tar2tf_cli.checking.overlay import check_names, declared_geometry
    from tar2tf_cli.checking.page import faults_described, shown_faults, write_page
    from tar2tf_cli.checking.page_samples import read_pages
    from tar2tf_cli.checking.verify import verify

    given = {name: options[name] for name in _DRAWN if options[name]}
    specs = [given] if given else [manifest.spec for manifest in contents.manifests[:1]]
    geometry = declared_geometry(specs[0] if specs else {})
    if given:
        check_names(geometry, contents.entries)
    with Terminal(**options) as terminal:
        how = {"paths": True, "workers": options["num_workers"], "events": terminal, **reading_arguments(options)}
        pages = read_pages(*shards, shards={shard.name for shard in contents.shards}, geometry=geometry, **how)
        report = verify(*shards, **how)
    write_page(options["html"], contents, pages, report)
    return faults_described(report, shown_faults(pages))


def _check_modes(options: dict[str, object], bucket: str) -> None:
    modes = {"--code": "code", "--keys": "keys", "--extract": "extract", "-n": "samples", "--html": "html"}
    given = [name for name, option in {**modes, "--json": "as_json"}.items() if options[option]]
    if options["form"] in ("table", "csv", "markdown"):
        given.append(f"--format {options['form']}")
    if len(given) > 1 and set(given) not in _TOGETHER:
        raise click.UsageError(f"{' and '.join(given)} cannot be combined: use one of them")
    source = click.get_current_context().get_parameter_source
    drawn = [name for name in _DRAWN if source(name) is ParameterSource.COMMANDLINE]
    if drawn and not options["html"]:
        raise click.UsageError(f"--{drawn[0]} is for the page of --html: add --html FILE")
    if bucket == "-" and options["html"]:
        raise click.UsageError("standard input can be read only once, but --html reads its input twice")
    if bucket == "-" and {"-n", "--json"} <= set(given):
        raise click.UsageError("standard input can be read only once: use either -n or --json")


def _print_contents(contents: Contents, *, every_shard: bool) -> None:
    shards, samples = count(len(contents.shards), contents.shard_noun), count(contents.samples, _noun(contents))
    echo(f"{contents.bucket}: {shards}, {samples}, {size(contents.bytes)}")
    if contents.not_adjacent:
        echo(f"{count(contents.not_adjacent, 'sample')} with members that are not adjacent; convert regroups them")
    if len(contents.shards) > 1:
        _print_shards(contents, every_shard=every_shard)
    if contents.entries:
        _print_entries(contents)


def _print_csv(contents: Contents) -> None:
    """Print a row for each entry or feature, with plain numbers."""
    import csv

    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(("name", "count", "missing", "kind", "unit", "min", "mean", "max", "example"))
    for name, stats in contents.entries.items():
        about = stats.to_json()
        low, high = about.get("range", (about["min"], about["max"]))
        mean = stats.numbers.total / stats.numbers.count if "range" in about else about["mean"]
        unit = "value" if "range" in about else about["unit"]
        counts = stats.count, contents.lacking(stats)
        table.writerow((name, *counts, stats.kind, unit, low, mean, high, stats.example or ""))
    click.echo(text.getvalue().encode("utf-8", "backslashreplace"), nl=False)


def _print_markdown(contents: Contents) -> None:
    """Print all shards, and all entries or features, as tables of Markdown."""
    noun = _noun(contents)
    shards: list[tuple[str, ...]] = [(one.name, f"{one.samples:,}", _bytes(one.bytes)) for one in contents.shards]
    types = contents.types
    entries = [_row(name, stats, contents.lacking(stats), types.get(name)) for name, stats in contents.entries.items()]
    heading = ("name", "count", "missing", "kind", "min", "mean", "max", "example")
    for titles, rows in ((("shard", f"{noun}s", "size"), shards), (heading, entries)):
        if rows is entries:
            echo("")
        for cells in (titles, ["---"] * len(titles), *rows):
            echo("| " + " | ".join(cell.replace("\\", "\\\\").replace("|", "\\|") for cell in cells) + " |")


def _first_items(items: list[T], every: bool) -> list[T]:
    """Return the first items if there are too many for a screen, unless all are to be shown."""
    return items if every or len(items) <= _MOST_SHARDS else items[: _MOST_SHARDS // 2]


def _noun(contents: Contents) -> str:
    return "record" if contents.of_examples else "sample"


def _print_shards(contents: Contents, *, every_shard: bool) -> None:
    shards = contents.shards
    shown = _first_items(shards, every_shard)
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
        _row(name, stats, lacking if optional else None, contents.types.get(name))
        for (name, stats), lacking in islice(zip(entries.items(), missing, strict=True), _MOST_ENTRIES)
    ]
    name = "feature" if contents.of_examples else "entry"
    heading = (name, "count", *["missing"][:optional], "kind", "min", "mean", "max", "example")
    kind = 2 + optional
    shrink = {kind + 4: 10, kind: 22, 0: 24}  # example, kind, name
    drop = (kind + 4, kind + 1, kind + 3, kind + 2)  # where they do not fit: example, min, max, mean
    right = {1, kind - 1, kind + 1, kind + 2, kind + 3}
    echo("")
    print_table([heading, *rows], right=right, shrink=shrink, drop=drop)
    if len(entries) > _MOST_ENTRIES:
        echo(f"and {len(entries) - _MOST_ENTRIES:,} more; use --json to see all")


def _row(name: str, stats: Stats, missing: int | None, declared: str | None) -> tuple[str, ...]:
    """Return the cells for an entry; its declared type, if any, follows the kind of its values."""
    from tar2tf_cli.checking.contents import shortened

    lacking = [] if missing is None else [f"{missing:,}" if missing else "-"]
    example = shortened(stats.example or "", _MOST_EXAMPLE)
    kind, *sizes = stats.summary(_bytes)
    kinds = f"{kind}: {declared}" if declared else kind
    return (name, f"{stats.count:,}", *lacking, kinds, *sizes, example)


def _length(stats: Stats) -> str:
    """Return the size of a value in bytes or, for a list of numbers, its length."""
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
    """Report on standard error which files and members were not counted."""
    print_skipped(contents.skipped)
    print_members(contents.skipped_members)
    for note in (*contents.shapes, *contents.of_images()):
        message(note)
    faulty = sum(shard.faulty for shard in contents.shards)
    print_count(faulty, "faulty sample", " not counted: use tar2tf verify to list them")
    sequences = sum(shard.sequences for shard in contents.shards)
    print_count(sequences, "record", ": tf.train.SequenceExample; names that end with [] are feature lists")
    foreign = sum(shard.foreign for shard in contents.shards)
    print_count(foreign, "record", f": not a tf.train.Example ({contents.payload.kind})")
    if faults := len(contents.errors):
        shards = count(len(contents.shards), "shard")
        message(f"{faults:,} of {shards} could not be read completely; the counts are partial")
