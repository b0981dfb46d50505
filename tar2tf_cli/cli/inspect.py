"""`tar2tf inspect`: arguments to an inspection, its findings to tables or JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from tar2tf_cli.cli.options import input_options, output_options, workers_option
from tar2tf_cli.cli.output import Terminal, count, echo, message, print_json, size
from tar2tf_cli.cli.table import table, terminal_width

if TYPE_CHECKING:
    from tar2tf_cli.inspect import Contents, Shown
    from tar2tf_cli.values import Stats

__all__ = ["command"]

_MOST_SHARDS: Final = 20
_MOST_ENTRIES: Final = 100
_MOST_EXAMPLE: Final = 60


@click.command("inspect", context_settings={"auto_envvar_prefix": "TAR2TF"})
@click.argument("bucket")
@click.argument("template", nargs=-1)
@click.option(
    "-n", "samples", type=click.IntRange(1), metavar="N", help="Print the first N samples instead; with --json, too."
)
@workers_option
@input_options
@output_options
def command(bucket: str, template: tuple[str, ...], **options: Any) -> int:
    """Show what tar and TFRecord shards hold.

    BUCKET is a directory, a single shard, or - for standard input. TEMPLATE names shards in a directory, with bash
    braces or as a glob; without one, every file that is a tar or a TFRecord by its content is looked into.

    \b
    tar2tf inspect shards
    tar2tf inspect out 'train-*.record' --json
    tar2tf inspect shards/train-0000.tar -n 3

    Every sample is counted. Of each entry, or feature, about a hundred values are looked at to tell what they are:
    images with width x height x channels, text, JSON, arrays; sizes are in bytes, of lists of numbers in values.
    """
    from tar2tf_cli.inspect import first_samples, inspect
    from tar2tf_cli.shards import TarRules

    rules = TarRules(options["key_split"], options["regroup"], options["ignore_missing_end"])
    if options["samples"] and not options["as_json"]:
        for shown in first_samples(bucket, template, most=options["samples"], rules=rules):
            _print_sample(shown)
        return 0
    with Terminal(quiet=options["quiet"], verbose=False, progress=options["progress"]) as terminal:
        contents = inspect(bucket, template, rules=rules, workers=options["num_workers"], events=terminal)
    if options["as_json"]:
        document = contents.to_json()
        if options["samples"]:
            found = first_samples(bucket, template, most=options["samples"], rules=rules)
            document["first"] = [shown.to_json() for shown in found]
        print_json(document)
    else:
        _print_contents(bucket, contents, every_shard=options["verbose"])
    if not options["quiet"]:
        _print_notes(contents)
    return 0


def _print_contents(bucket: str, contents: Contents, *, every_shard: bool) -> None:
    noun = {"tar": "sample", "tfrecord": "record"}.get(contents.format, "sample")
    kind = {"tar": "tar ", "tfrecord": "TFRecord "}.get(contents.format, "tar and TFRecord ")
    shards = contents.shards
    total = f"{count(len(shards), f'{kind}shard')}, {count(contents.samples, noun)}, {size(contents.bytes)}"
    echo(f"{bucket}: {total}")
    width = terminal_width()
    if len(shards) > 1:
        echo("")
        shown = shards if every_shard or len(shards) <= _MOST_SHARDS else shards[: _MOST_SHARDS // 2]
        rows = [(shard.name, f"{shard.samples:,}", _bytes(shard.bytes)) for shard in shown]
        for line in table([("shard", f"{noun}s", "size"), *rows], right={1, 2}, shrink={0: 12}, width=width):
            echo(line)
        if len(shown) < len(shards):
            echo(f"and {len(shards) - len(shown):,} more, which -v lists")
    entries = contents.entries
    if entries:
        echo("")
        heading = (
            "feature" if contents.format == "tfrecord" else "entry",
            "count",
            "kind",
            "min",
            "mean",
            "max",
            "example",
        )
        rows_ = [_row(name, stats) for name, stats in list(entries.items())[:_MOST_ENTRIES]]
        for line in table([heading, *rows_], right={1, 3, 4, 5}, shrink={6: 6, 2: 16, 0: 8}, width=width):
            echo(line)
    if len(entries) > _MOST_ENTRIES:
        echo(f"and {len(entries) - _MOST_ENTRIES:,} more, which --json lists")


def _row(name: str, stats: Stats) -> tuple[str, ...]:
    from tar2tf_cli.values import shortened

    sizes = (_amount(number, stats.unit) for number in (stats.least, stats.mean, stats.most))
    return (name, f"{stats.count:,}", stats.kind, *sizes, shortened(stats.example or "", _MOST_EXAMPLE))


def _amount(number: float, unit: str) -> str:
    """Bytes with their unit, a number of values without."""
    if unit == "bytes":
        return _bytes(round(number))
    return f"{number:,.1f}".removesuffix(".0")


def _bytes(number: int) -> str:
    return size(number).replace(" bytes", " B").replace(" byte", " B")


def _print_sample(shown: Shown) -> None:
    place = f"record {shown.number}" if shown.key is None else f"sample {shown.number}, {shown.key}"
    echo(f"{shown.path}: {place}")
    rows = [(name, stats.kind, _amount(stats.most, stats.unit), stats.example or "") for name, stats in _sorted(shown)]
    for line in (
        table(rows, right={2}, shrink={3: 6, 1: 16, 0: 8}, width=terminal_width(), indent="  ") if rows else ()
    ):
        echo(line)


def _sorted(shown: Shown) -> Iterator[tuple[str, Stats]]:
    yield from sorted(shown.entries.items())


def _print_notes(contents: Contents) -> None:
    """What was not counted, on standard error."""
    if contents.left_out:
        names = ", ".join(contents.left_out[:3]) + (", …" if len(contents.left_out) > 3 else "")
        message(f"{count(len(contents.left_out), 'file')} left out, as neither tar nor TFRecord: {names}")
    if faulty := sum(shard.faulty for shard in contents.shards):
        message(f"{count(faulty, 'sample')} at fault and not counted: tar2tf verify names them")
    if foreign := sum(shard.foreign for shard in contents.shards):
        message(f"{count(foreign, 'record')} that are no tf.train.Example: tar2tf verify names them")
