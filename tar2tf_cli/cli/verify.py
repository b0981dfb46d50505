"""`tar2tf verify`: verifies shards and prints the report as lines of text or JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from tar2tf_cli.cli.options import (
    Command,
    input_option,
    new_file,
    output_option,
    propose_files,
    reach_of,
    report_options,
    sample_option,
    shards_arguments,
    store_options,
    tar_options,
    work_options,
)
from tar2tf_cli.cli.output import Terminal, echo, message, print_json, print_skipped, prints_on_stderr, size
from tar2tf_cli.errors import UsageError, count

if TYPE_CHECKING:
    from tar2tf_cli.checking.faults import Fault, FileReport, Report


_MOST_ALIKE: Final = 3
_MOST_LINES: Final = 40
_CONVERT: Final = "to recover whole samples from damaged tars, use tar2tf convert --on-error skip"
_LOSSES: Final = ("data_crc", "length_crc", "too_large", "truncated")


@click.command("verify", cls=Command)
@shards_arguments()
@sample_option("--fast", is_flag=True, help="Check only lengths, without reading the data.")
@sample_option("--decode", is_flag=True, help="Also decode every image, sound and array.")
@input_option(
    "--against BUCKET",
    shell_complete=propose_files,
    help="Compare the output with its inputs in BUCKET.",
    more="The arguments are then one or more manifests. Every sample of the inputs is converted again in memory, and "
    "must be in the output once, unchanged. TEMPLATE chooses shards in the BUCKET of --against, whose samples must be "
    "in the outputs of all manifests together. Without TEMPLATE, each output must hold the samples of its own inputs.",
)
@input_option(
    "--allow-func",
    is_flag=True,
    help="Allow --against to run your functions.",
    more="A manifest names the functions of --op func and the class of --example-class, which --against has to run.",
)
@output_option("--salvage PATH", type=new_file, help="Write the good records to a new file.")
@output_option("--json-lines", is_flag=True, help="Print one line of JSON per file.")
@output_option(
    "--report FILE",
    "report_path",
    type=new_file,
    help="Write JUnit XML or SARIF, for a CI server.",
    more="The suffix decides: .xml for JUnit, .sarif for SARIF 2.1.0, anything else for the document of --json.",
)
@work_options
@tar_options
@store_options
@report_options
def command(bucket: str, template: tuple[str, ...], **options: Any) -> int:
    """Prove that TFRecord and tar shards are whole.

    BUCKET is a manifest, a directory, a shard, the URL of any of these, or - for standard input. TEMPLATE names shards
    in it, with bash braces or a glob; by default, every tar and TFRecord is checked, whatever its name. If all
    arguments are existing paths, these files and folders are checked. Several manifests count as one dataset.

    \b
    tar2tf verify out/train-manifest.json
    tar2tf verify parts/part*-manifest.json
    tar2tf verify s3://bucket 'part*-manifest.json'
    tar2tf verify out
    tar2tf verify out/*.record --decode
    tar2tf verify damaged.tfrecord --salvage good.tfrecord
    tar2tf verify parts/part*-manifest.json --against shards 'train-*.tar'
    tar2tf verify shards 'train-{0000..0146}.tar' --json

    TFRecords: every length, CRC and example is checked, and checking resumes after damage. Tars: every header, every
    sample and the end of the archive. gzip: the trailer. With a manifest, verify also checks counts, digests and the
    schema of the features, and reports missing and stray shards. It prints one line per fault: the file, the record
    (from 0), the offset, and how much was lost.

    Exit code: 0 everything is whole, 1 there are faults, 2 wrong usage, 3 nothing could be checked.
    """
    from tar2tf_cli.checking.verify import verify
    from tar2tf_cli.inputs.tar_samples import TarRules

    rules = TarRules(options["key_split"], options["regroup"], options["ignore_missing_end"])
    if options["as_json"] and options["json_lines"]:
        source = click.get_current_context().get_parameter_source
        if source("as_json") is source("json_lines"):
            raise click.UsageError("--json and --json-lines cannot be combined: use one of them")
        options["as_json"] = source("as_json") is ParameterSource.COMMANDLINE  # a flag overrides a variable
    if options["salvage"] and options["salvage"] == options["report_path"]:
        raise click.UsageError("--salvage and --report name the same file; name two files")
    with Terminal(**options) as terminal, prints_on_stderr():
        report = verify(
            bucket,
            template,
            paths=True,
            rules=rules,
            workers=options["num_workers"],
            **reach_of(options),
            events=terminal,
            fast=options["fast"],
            decode=options["decode"],
            salvage=options["salvage"],
            against=options["against"],
            allow_func=options["allow_func"],
        )
    if options["report_path"]:
        from tar2tf_cli.checking.ci_report import write_report

        write_report(report, options["report_path"])
    _print_report(report, options)
    if not options["quiet"]:
        _print_summary(report)
    if report.salvaged and report.salvaged.tars == len(report.files):
        raise UsageError("--salvage works on TFRecords, but the inputs are tars", hint=_CONVERT)
    return 0 if report.ok else 1


def _print_report(report: Report, options: dict[str, Any]) -> None:
    if options["as_json"]:
        print_json(report.to_json())
    elif options["json_lines"]:
        import json

        for file in report.files:
            click.echo(json.dumps(file.to_json()))
    else:
        lines = [line for file in report.files for line in _lines(file)]
        for line in lines if len(lines) <= _MOST_LINES or options["verbose"] else _kinds(report):
            echo(line)


def _lines(file: FileReport) -> Iterator[str]:
    """One line per fault; if there are many of a kind, one line for the first and one that counts the others."""
    for kind, alike in _by_kind(file.faults).items():
        shown = alike if len(alike) <= _MOST_ALIKE else alike[:1]
        for fault in shown:
            yield f"{file.path}: {fault}{_cost(fault)} ({kind})"
        if len(alike) > len(shown):
            last = next((fault for fault in reversed(alike) if fault.offset is not None), alike[-1])
            place = f", up to {last.place}" if last.place else ""
            yield f"{file.path}: {file.counts[kind] - 1:,} more like it{place} ({kind})"


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


def _print_summary(report: Report) -> None:
    tars = {file.format for file in report.files} == {"tar"}
    checked = [file for file in report.files if not file.missing]
    total = (
        f"{count(len(checked), 'file')}, {count(report.records, 'sample' if tars else 'record')}, {size(report.bytes)}"
    )
    print_skipped(report.skipped)
    if report.manifest:
        message(f"{report.manifest} was skipped: verify the manifest to also check counts, digests and features")
    if sequences := sum(file.sequences for file in report.files):
        message(f"{count(sequences, 'record')} are tf.train.SequenceExamples")
    if others := sum(file.others for file in report.files):
        message(f"note: {count(others, 'record')} not tf.train.Examples, as the manifest says")
    if scattered := sum(file.not_adjacent for file in report.files):
        message(f"note: {count(scattered, 'sample')} with members that are not adjacent; convert regroups them")
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
            message(f"salvaged {count(saved.records, 'record')}, {size(saved.bytes)}, to {saved.path}; {lost}")
        if 0 < saved.tars < len(report.files):
            message(f"{count(saved.tars, 'tar')} not salvaged: {_CONVERT}")
    if report.ok:
        message(f"whole: {total}")
        return
    faulty = sum(1 for file in checked if file.faults)
    missing = len(report.files) - len(checked)
    said = [f"{faulty:,} of {count(len(checked), 'file')} faulty"] if faulty else []
    said += [f"{missing:,} missing"] if missing else []
    message(f"not whole: {', '.join(said)}; {total} in all")
