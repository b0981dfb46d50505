"""`tar2tf verify`, `inspect` and `diff`: verify, show and compare shards, and print what is found as text or JSON."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import click
from click.core import ParameterSource

from tar2tf_cli.cli.options import (
    Command,
    Words,
    argument,
    input_option,
    new_file,
    output_option,
    propose_files,
    propose_presets,
    report_options,
    sample_option,
    shards_arguments,
    store_options,
    tar_options,
    together,
    whole_number,
    work_options,
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
    prints_on_stderr,
    size,
)
from tar2tf_cli.errors import SourceError, UsageError, count

if TYPE_CHECKING:
    from collections.abc import Callable

    from tar2tf_cli.checking.contents import Contents, Stats
    from tar2tf_cli.checking.diff import ComparedDataset, Difference, Differences
    from tar2tf_cli.checking.faults import Fault, FileReport, Report
    from tar2tf_cli.checking.inspect import RawSample

    OnDamage: TypeAlias = Callable[[SourceError], None]

T = TypeVar("T")

Shards: TypeAlias = "tuple[str, tuple[str, ...]]"
"""The arguments BUCKET and TEMPLATE."""

_common_options = together(work_options, tar_options, store_options, report_options)


def _how_to_read(options: dict[str, Any]) -> dict[str, Any]:
    """How shards are read, as arguments of the library."""
    from tar2tf_cli.inputs.tar_samples import TarRules

    rules = TarRules(options["key_split"], options["regroup"], options["ignore_missing_end"])
    return {"rules": rules, **{name: options[name] for name in ("endpoint", "retry_for", "no_sign_request")}}


def _choose_json(options: dict[str, object]) -> None:
    """See that only one of --json and --json-lines is set; a flag overrides the variable of the other."""
    if options["as_json"] and options["json_lines"]:
        source = click.get_current_context().get_parameter_source
        if source("as_json") is source("json_lines"):
            raise click.UsageError("--json and --json-lines cannot be combined: use one of them")
        options["as_json"] = source("as_json") is ParameterSource.COMMANDLINE


def _print_found(whole: Any, parts: Iterable[Any], lines: Iterable[str], options: dict[str, Any]) -> None:
    """Print what was found: as one JSON document, as one for each part of it, or as lines of text."""
    if options["as_json"]:
        print_json(whole.to_json())
    elif options["json_lines"]:
        import json

        for part in parts:
            click.echo(json.dumps(part.to_json()))
    else:
        for line in lines:
            echo(line)


# --- verify ---

_MOST_ALIKE: Final = 3
_MOST_FAULTS: Final = 40
_CONVERT: Final = "to recover intact samples from damaged tars, use tar2tf convert --on-error skip"
_ABOUT_ONE: Final = ("undecodable", "schema", "reader")
_SUBJECT: Final = re.compile(r"^\w+: |'[^']*'")
_FOR_KEYS: Final = "One per line, as convert --keys reads them."
_LOSSES: Final = ("data_crc", "length_crc", "too_large", "truncated")


@click.command("verify", cls=Command)
@shards_arguments()
@sample_option("--fast", is_flag=True, help="Check only lengths, without reading the data.")
@sample_option("--decode", is_flag=True, help="Also decode every image, sound and array.")
@input_option(
    "--against BUCKET",
    shell_complete=propose_files,
    help="Compare the output with its inputs in BUCKET.",
    more="BUCKET may also be a file such as SHA256SUMS, as sha256sum writes it: then the stored bytes of every file "
    "that it names are compared with its SHA-256. Otherwise, the arguments are one or more manifests. Every sample of "
    "the inputs is converted again in memory, and must be in the output once, unchanged. TEMPLATE chooses shards in "
    "the BUCKET of --against, whose samples must be in the outputs of all manifests together. Without TEMPLATE, each "
    "output must hold the samples of its own inputs.",
)
@input_option(
    "--allow-func",
    is_flag=True,
    help="Allow --against to run your functions.",
    more="A manifest names the functions of --op func and the class of --example-class, which --against has to run.",
)
@sample_option(
    "--messages",
    type=Words(("example", "any")),
    help="Require examples, or accept any message.",
    more="By default, a file of which no record is a tf.train.Example may hold any messages, unless a manifest "
    "describes it: framing and CRCs are checked then.",
)
@sample_option("--allow-empty", is_flag=True, help="Accept empty files as TFRecords without records.")
@sample_option(
    "--for READERS",
    "readers",
    help="Check that other readers will read them.",
    more="A list of dali, energon, grain, hf, ray, tfds, webdataset and wids. Whatever such a reader trips over is a "
    "fault: capitals in extensions, dots in keys, compression, members that are not adjacent, files next to shards.",
)
@sample_option(
    "--hosts N",
    type=whole_number,
    default=1,
    show_default=False,
    help="With --for: hosts that share the shards.",
    more="Some readers fail on a host that gets no shard. The default is 1.",
)
@sample_option(
    "--subset PART",
    help="Read a part: 3/30, or 5% or 10GB a day.",
    more="3/30 is the third of thirty parts. A percentage or a size selects another part each day, by the date, so "
    "that all shards are read in time. Of the other shards, existence and size are checked.",
)
@output_option("--salvage PATH", type=new_file, help="Write the good records to a new file.")
@output_option("--bad-keys FILE", type=new_file, help="List the keys of faulty samples.", more=_FOR_KEYS)
@output_option("--good FILE", type=new_file, help="List the keys of all other samples.", more=_FOR_KEYS)
@output_option("--json-lines", is_flag=True, help="Print one line of JSON per file.")
@output_option(
    "--report FILE",
    "report_path",
    type=new_file,
    help="Write JUnit XML or SARIF, for a CI server.",
    more="The suffix decides: .xml for JUnit, .sarif for SARIF 2.1.0, anything else for the document of --json.",
)
@_common_options
def verify(bucket: str, template: tuple[str, ...], **options: Any) -> int:
    """Verify that TFRecord and tar shards are intact.

    BUCKET is a manifest, a directory, a shard, the URL of any of these, or - for standard input. TEMPLATE names shards
    in it, with bash braces or a glob; by default, every tar and TFRecord is checked, whatever its name. If all
    arguments are existing paths, these files and folders are checked. Several manifests count as one dataset.

    \b
    tar2tf verify out/_train-manifest.json
    tar2tf verify parts/_part*-manifest.json
    tar2tf verify s3://bucket '_part*-manifest.json'
    tar2tf verify out
    tar2tf verify out/*.record --decode
    tar2tf verify damaged.tfrecord --salvage good.tfrecord
    tar2tf verify parts/_part*-manifest.json --against shards 'train-*.tar'
    tar2tf verify shards 'train-{0000..0146}.tar' --json

    TFRecords: every length, CRC and example is checked, and checking resumes after damage. Tars: every header, every
    sample and the end of the archive. gzip: the trailer. With a manifest, verify also checks counts, digests and the
    schema of the features, and reports missing and stray shards. It prints one line per fault: the file, the record
    (from 0), the offset, and how much was lost.

    Exit code: 0 everything is intact, 1 there are faults, 2 wrong usage, 3 nothing could be checked.
    """
    from tar2tf_cli.checking.verify import verify

    _choose_json(options)
    files = {"--salvage": "salvage", "--report": "report_path", "--bad-keys": "bad_keys", "--good": "good"}
    _check_files(files, options)
    chosen = (
        "fast",
        "decode",
        "salvage",
        "against",
        "allow_func",
        "messages",
        "allow_empty",
        "subset",
        "readers",
        "hosts",
    )
    how = {name: options[name] for name in chosen}
    how["keys"] = bool(options["bad_keys"] or options["good"])
    with Terminal(**options) as terminal, prints_on_stderr():
        how |= {"workers": options["num_workers"], "events": terminal, **_how_to_read(options)}
        report = verify(bucket, template, paths=True, **how)
    if options["report_path"]:
        from tar2tf_cli.checking.faults import write_report

        write_report(report, options["report_path"])
    if options["bad_keys"]:
        _write_keys(options["bad_keys"], report.keys("bad"))
    if options["good"]:
        _write_keys(options["good"], report.keys("good"))
    _print_found(report, report.files, _fault_lines(report, every=options["verbose"]), options)
    if not options["quiet"]:
        _print_report(report)
        if options["bad_keys"]:
            unnamed = sum(1 for file in report.files for fault in file.faults if _lacks_key(fault))
            print_count(unnamed, "damaged record", " without a readable key, so in neither list of keys", note=True)
    if report.salvaged and report.salvaged.tars == len(report.files):
        raise UsageError("--salvage works on TFRecords, but the inputs are tars", hint=_CONVERT)
    return 0 if report.ok else 1


def _lacks_key(fault: Fault) -> bool:
    """Whether a fault is the loss of records, so that their keys are unknown."""
    return fault.key is None and fault.kind in _LOSSES


def _check_files(flags: dict[str, str], options: dict[str, Any]) -> None:
    """See that the files to be written, each of a flag, are several files."""
    paths: dict[str, str] = {}
    for flag, name in flags.items():
        if options[name]:
            first = paths.setdefault(os.path.abspath(options[name]), flag)
            if first != flag:
                raise click.UsageError(f"{first} and {flag} name the same file; name two files")


def _write_keys(path: str, keys: Iterable[str]) -> None:
    from tar2tf_cli.spec.key_lists import write_keys

    write_keys(path, keys)


def _fault_lines(report: Report, *, every: bool) -> Iterator[str]:
    """A line for each fault; if they are too many for a screen and not all are to be shown, one for each kind."""
    lines = [line for file in report.files for line in _lines(file, every=every)]
    yield from lines if every or len(lines) <= _MOST_FAULTS else _kinds(report)


def _lines(file: FileReport, *, every: bool) -> Iterator[str]:
    """One line per fault; unless all are wanted, one for the first of many that are alike, and one for the others."""
    counts = Counter(fault.kind for fault in file.faults)
    for alike in _alike(file.faults):
        kind = alike[0].kind
        shown = alike if every or len(alike) <= _MOST_ALIKE else alike[:1]
        for fault in shown:
            yield f"{file.path}: {fault}{_cost(fault)} ({kind})"
        if len(alike) > len(shown):
            last = next((fault for fault in reversed(alike) if fault.offset is not None), alike[-1])
            place = f", up to {last.place}" if last.place else ""
            unlisted = max(file.counts[kind] - counts[kind], 0)
            yield f"{file.path}: {len(alike) - 1 + unlisted:,} more like it{place} ({kind})"


def _alike(faults: Iterable[Fault]) -> Iterable[list[Fault]]:
    """Faults divided by their kind and, where it is about one entry or feature, or about one reader, by that."""
    groups: dict[tuple[str, str], list[Fault]] = {}
    for fault in faults:
        subject = _SUBJECT.search(fault.message) if fault.kind in _ABOUT_ONE else None
        groups.setdefault((fault.kind, subject[0] if subject else ""), []).append(fault)
    return groups.values()


def _kinds(report: Report) -> Iterator[str]:
    """A line for each kind of fault in all files, with the first of its kind, so that they fit on a screen."""
    kinds: dict[str, list[tuple[FileReport, list[Fault]]]] = {}
    for file in report.files:
        for kind, alike in _by_kind(file.faults).items():
            kinds.setdefault(kind, []).append((file, alike))
    for kind, files in kinds.items():
        number = sum(file.counts[kind] or len(alike) for file, alike in files)
        first = f"{files[0][0].path}: {files[0][1][0]}"
        yield f"{count(number, 'fault')} in {count(len(files), 'file')} ({kind}), first: {first}"
    yield "use -v to see every fault, --json for all details"


def _by_kind(faults: Iterable[Fault]) -> dict[str, list[Fault]]:
    kinds: dict[str, list[Fault]] = {}
    for fault in faults:
        kinds.setdefault(fault.kind, []).append(fault)
    return kinds


def _cost(fault: Fault) -> str:
    if fault.kind not in _LOSSES or fault.before is None or fault.after is None:
        return ""
    lost = "" if fault.lost is None else f"{size(fault.lost)} lost, "
    return f"; {lost}{count(fault.before.records, 'good record')} before, {fault.after.records:,} after"


def _print_report(report: Report) -> None:
    tars = {file.format for file in report.files} == {"tar"}
    checked = [file for file in report.files if not (file.missing or file.unread)]
    print_count(sum(file.unread for file in report.files), "file", " not read: not in the subset", note=True)
    records = count(report.records, "sample" if tars else "record")
    total = f"{count(len(checked), 'file')}, {records}, {size(sum(file.bytes for file in checked))}"
    print_skipped(report.skipped)
    if report.manifest:
        message(f"{report.manifest} was skipped: verify the manifest to also check counts, digests and features")
    print_count(sum(file.sequences for file in report.files), "record", ": tf.train.SequenceExample", note=True)
    others = sum(file.others for file in report.files)
    print_count(others, "record", " not tf.train.Examples: framing and CRCs were checked, not contents", note=True)
    scattered = sum(file.not_adjacent for file in report.files)
    print_count(scattered, "sample", " with members that are not adjacent; convert regroups them", note=True)
    if noted := [(file.path, note) for file in report.files for note in file.notes]:
        path, note = noted[0]
        message(f"note: {path}: {note}" + (f"; {count(len(noted) - 1, 'note')} more in --json" if noted[1:] else ""))
    if unknown := sum((file.not_decoded for file in report.files), Counter[str]()):
        kinds = ", ".join(f"{number:,} {kind}" for kind, number in unknown.most_common())
        message(f"note: {count(unknown.total(), 'value')} not decoded, because tar2tf cannot decode this kind: {kinds}")
    if saved := report.salvaged:
        lost = f"lost {count(saved.lost_records, 'record')}, {size(saved.lost_bytes)}"
        lost += f", and the rest of {count(saved.cut, 'file')} that cannot be read" if saved.cut else ""
        if saved.tars < len(report.files):
            all_of = f", with all of {count(saved.intact, 'undamaged file')}" if saved.intact else ""
            message(f"salvaged {count(saved.records, 'record')}, {size(saved.bytes)}, to {saved.path}{all_of}; {lost}")
        if 0 < saved.tars < len(report.files):
            message(f"{count(saved.tars, 'tar')} not salvaged: {_CONVERT}")
    if report.ok:
        message(total, mark=click.style("OK:", fg="green", bold=True) + " ")
        return
    faulty = sum(1 for file in report.files if file.faults and not file.missing)
    missing = sum(1 for file in report.files if file.missing)
    said = [f"{faulty:,} of {count(len(report.files) - missing, 'file')} faulty"] if faulty else []
    said += [f"{missing:,} missing"] if missing else []
    message(f"{', '.join(said)}; {total} in all", mark=click.style("not OK:", fg="red", bold=True) + " ")


# --- inspect ---

_MOST_SHARDS: Final = 20
_MOST_ENTRIES: Final = 100
_MOST_EXAMPLE: Final = 60
_TOGETHER: Final = ({"--keys", "-n"}, {"-n", "--json"}, {"--html", "--json"}, {"--html", "--code"})
"""Options for what is shown that may be combined."""

_DRAWN: Final = ("boxes", "points", "mask", "preset")
"""Options for what is drawn on the page."""


@click.command("inspect", cls=Command)
@shards_arguments()
@output_option("-n N", "samples", type=whole_number, help="Print the first N samples, also with --json.")
@output_option(
    "--format FORMAT",
    "form",
    type=Words(("table", "csv", "markdown", "json")),
    help="Print entries in another format.",
    more="csv: one row per entry, with plain numbers. markdown: both tables, with all rows. json: as --json.",
)
@output_option("--code", is_flag=True, help="Print Python code that reads the shards.")
@output_option("--html FILE", type=new_file, help="Write a page that shows the dataset.")
@output_option(
    "--boxes SEL",
    multiple=True,
    help="Boxes to draw on the --html page.",
    more="As for convert: json:objects.*.bbox,format=xywh. What the manifest declares, and the lists of the Object "
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
    more="detection: the boxes of annotations in JSON, as COCO has them. segmentation: the mask.",
)
@output_option("--keys", is_flag=True, help="Print the key of every sample, one per line.")
@output_option("--extract KEY", multiple=True, help="Write a sample's entries to files.", more="May be repeated.")
@output_option("--to DIR", default=".", show_default=True, help="Folder for --extract.")
@_common_options
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
    images with width x height x channels, text, JSON, arrays. For numbers, min, mean and max are those of the values;
    for everything else, those of the sizes in bytes.

    A damaged or unreadable shard does not stop the others: what can be read is counted, the first error is printed,
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

    how = _how_to_read(options)
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

    most, as_json, how = options["samples"], options["as_json"], {"paths": True, **_how_to_read(options)}
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
    errors = _few(contents.errors, options["verbose"])
    for error in errors:
        damaged(error)
    if len(errors) < len(contents.errors):
        message(f"and {count(len(contents.errors) - len(errors), 'more error')}; use -v to see all")
    if faulty and not errors:
        damaged(SourceError(f"{faulty}; {options['html']} shows the faults", shard=contents.bucket))


def _write_page(contents: Contents, shards: Shards, options: dict[str, Any]) -> str:
    """Write the page; return the faults that it shows, in words: those of `verify`, and of decoded values."""
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
        how = {"paths": True, "workers": options["num_workers"], "events": terminal, **_how_to_read(options)}
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
    what = {"tar": "tar", "tfrecord": "TFRecord"}.get(contents.format, "tar and TFRecord")
    shards, samples = count(len(contents.shards), f"{what} shard"), count(contents.samples, _noun(contents))
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
    import io

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


def _few(items: list[T], every: bool) -> list[T]:
    """The first items if there are too many for a screen, and not every one is to be shown."""
    return items if every or len(items) <= _MOST_SHARDS else items[: _MOST_SHARDS // 2]


def _noun(contents: Contents) -> str:
    return "record" if contents.of_examples else "sample"


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
    faulty = sum(shard.faulty for shard in contents.shards)
    print_count(faulty, "faulty sample", " not counted: use tar2tf verify to list them")
    sequences = sum(shard.sequences for shard in contents.shards)
    print_count(sequences, "record", ": tf.train.SequenceExample; names that end with [] are feature lists")
    foreign = sum(shard.foreign for shard in contents.shards)
    print_count(foreign, "record", f": not a tf.train.Example ({contents.payload.kind})")
    if faults := len(contents.errors):
        shards = count(len(contents.shards), "shard")
        message(f"{faults:,} of {shards} could not be read completely; the counts are partial")


# --- diff ---

_MOST_DIFFERENCES: Final = 20
_AT_ONCE: Final = 10_000
_WORDS: Final = {"only_in_a": "only in A", "only_in_b": "only in B", "changed": "changed"}


@click.command("diff", cls=Command)
@argument("a")
@argument("b")
@sample_option("--ignore-order", is_flag=True, help="Accept samples in a different order.")
@output_option("--only-a FILE", type=new_file, help="List the keys of samples only in A.", more=_FOR_KEYS)
@output_option("--only-b FILE", type=new_file, help="List the keys of samples only in B.", more=_FOR_KEYS)
@output_option("--changed FILE", type=new_file, help="List the keys of changed samples.", more=_FOR_KEYS)
@output_option("--html FILE", type=new_file, help="Write a page with the differences.")
@output_option("--markdown FILE", type=new_file, help="Write the differences as Markdown, for a review.")
@output_option("--json-lines", is_flag=True, help="Print one line of JSON per difference.")
@_common_options
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

    _choose_json(options)
    lists = {"only_in_a": "only_a", "only_in_b": "only_b", "changed": "changed"}
    _check_files({f"--{name.replace('_', '-')}": name for name in (*lists.values(), "html", "markdown")}, options)
    with Terminal(**options) as terminal:
        how = {"workers": options["num_workers"], "events": terminal, **_how_to_read(options)}
        differences = diff(a, b, ignore_order=options["ignore_order"], **how)
    for kind in differences.counts:
        if path := options[lists[kind]]:
            _write_keys(path, differences.keys(kind))
    if options["html"] or options["markdown"]:
        from tar2tf_cli.checking.diff_report import write_markdown, write_page

        for path, write in ((options["html"], write_page), (options["markdown"], write_markdown)):
            if path:
                write(path, differences)
    _print_found(differences, differences, _difference_lines(differences, every=options["verbose"]), options)
    if not options["quiet"]:
        _print_differences(differences)
    return 0 if differences.equal else 1


def _difference_lines(differences: Differences, *, every: bool) -> Iterator[str]:
    """A line for each difference, or for the first ones of each kind if there are many."""
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
    """A line for each changed sample, and one with both values for each entry that differs."""
    from tar2tf_cli.checking.diff_report import value_changes

    while some := list(islice(changed, _AT_ONCE)):  # as each shard is read once for all of them
        for difference, changes in value_changes(differences, some):
            yield _line(difference)
            yield from (f"  {name}: {a} -> {b}" for name, a, b in changes)


def _line(difference: Difference) -> str:
    """`changed: 000123: cls, json, only in A: txt (a.tar, b.tar)`."""
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
