"""`tar2tf verify`: checks shards, and prints faults as text or JSON."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from tar2tf_cli.cli.options import (
    FOR_KEYS,
    Command,
    NameChoice,
    check_files,
    choose_json,
    common_options,
    input_option,
    new_file,
    output_option,
    propose_files,
    reading_arguments,
    sample_option,
    shards_arguments,
    whole_number,
)
from tar2tf_cli.cli.output import Terminal, message, print_count, print_result, print_skipped, prints_on_stderr, size
from tar2tf_cli.errors import UsageError, count
from tar2tf_cli.spec.key_lists import write_keys

if TYPE_CHECKING:
    from tar2tf_cli.checking.faults import Fault, FileReport, Report

_MOST_ALIKE: Final = 3
_MOST_FAULTS: Final = 40
_CONVERT: Final = "to recover intact samples from damaged tars, use tar2tf convert --on-error skip"
_ABOUT_ONE: Final = ("undecodable", "schema", "reader")
_SUBJECT: Final = re.compile(r"^\w+: |'[^']*'")
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
    "the inputs is converted again in memory, and must be in the output once, unchanged. TEMPLATE names shards in "
    "the BUCKET of --against, whose samples must be in the outputs of all manifests together. Without TEMPLATE, each "
    "output must contain the samples of its own inputs.",
)
@input_option(
    "--allow-func",
    is_flag=True,
    help="Allow --against to run your functions.",
    more="A manifest names the functions of --op func and the class of --example-class, which --against must run.",
)
@sample_option(
    "--messages",
    type=NameChoice(("example", "any")),
    help="Require examples, or accept any message.",
    more="By default, a file without any tf.train.Example may contain any messages, unless a manifest "
    "describes it: then only framing and CRCs are checked.",
)
@sample_option("--allow-empty", is_flag=True, help="Accept empty files as TFRecords without records.")
@sample_option(
    "--for READERS",
    "readers",
    help="Check that other readers will read them.",
    more="A list of dali, energon, grain, hf, ray, tfds, webdataset and wids. Everything that makes a reader "
    "fail or misread shards is a fault: capitals in extensions, dots in keys, compression, members that are not "
    "adjacent, files next to shards.",
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
    more="3/30 is the third of thirty parts. A percentage or a size selects a different part each day, by the date, "
    "so that all shards are read in time. Only existence and size of the other shards are checked.",
)
@output_option("--salvage PATH", type=new_file, help="Write the good records to a new file.")
@output_option("--bad-keys FILE", type=new_file, help="List the keys of faulty samples.", more=FOR_KEYS)
@output_option("--good FILE", type=new_file, help="List the keys of all other samples.", more=FOR_KEYS)
@output_option("--json-lines", is_flag=True, help="Print one line of JSON per file.")
@output_option(
    "--report FILE",
    "report_path",
    type=new_file,
    help="Write JUnit XML or SARIF, for a CI server.",
    more="The suffix decides: .xml for JUnit, .sarif for SARIF 2.1.0, anything else for the document of --json.",
)
@common_options
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

    choose_json(options)
    files = {"--salvage": "salvage", "--report": "report_path", "--bad-keys": "bad_keys", "--good": "good"}
    check_files(files, options)
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
        how |= {"workers": options["num_workers"], "events": terminal, **reading_arguments(options)}
        report = verify(bucket, template, paths=True, **how)
    if options["report_path"]:
        from tar2tf_cli.checking.faults import write_report

        write_report(report, options["report_path"])
    if options["bad_keys"]:
        write_keys(options["bad_keys"], report.keys("bad"))
    if options["good"]:
        write_keys(options["good"], report.keys("good"))
    print_result(report, report.files, _fault_lines(report, every=options["verbose"]), options)
    if not options["quiet"]:
        _print_report(report)
        if options["bad_keys"]:
            unnamed = sum(1 for file in report.files for fault in file.faults if _lacks_key(fault))
            print_count(unnamed, "damaged record", " without a readable key, so in neither list of keys", note=True)
    if report.salvaged and report.salvaged.tars == len(report.files):
        raise UsageError("--salvage works on TFRecords, but the inputs are tars", hint=_CONVERT)
    return 0 if report.ok else 1


def _lacks_key(fault: Fault) -> bool:
    """Whether a fault is a loss of records, whose keys are therefore unknown."""
    return fault.key is None and fault.kind in _LOSSES


def _fault_lines(report: Report, *, every: bool) -> Iterator[str]:
    """Yield a line for each fault, or only for each kind of fault if they are too many for a screen and `every` is
    false.
    """
    lines = [line for file in report.files for line in _lines(file, every=every)]
    yield from lines if every or len(lines) <= _MOST_FAULTS else _kind_lines(report)


def _lines(file: FileReport, *, every: bool) -> Iterator[str]:
    """Yield a line for each fault of a file; unless `every`, similar faults are summarized after the first ones."""
    counts = Counter(fault.kind for fault in file.faults)
    for alike in _similar_faults(file.faults):
        kind = alike[0].kind
        shown = alike if every or len(alike) <= _MOST_ALIKE else alike[:1]
        for fault in shown:
            yield f"{file.path}: {fault}{_cost(fault)} ({kind})"
        if len(alike) > len(shown):
            last = next((fault for fault in reversed(alike) if fault.offset is not None), alike[-1])
            place = f", up to {last.place}" if last.place else ""
            unlisted = max(file.counts[kind] - counts[kind], 0)
            yield f"{file.path}: {len(alike) - 1 + unlisted:,} more like it{place} ({kind})"


def _similar_faults(faults: Iterable[Fault]) -> Iterable[list[Fault]]:
    """Group faults by kind and, for kinds about one entry, feature or reader, by its name."""
    groups: dict[tuple[str, str], list[Fault]] = {}
    for fault in faults:
        subject = _SUBJECT.search(fault.message) if fault.kind in _ABOUT_ONE else None
        groups.setdefault((fault.kind, subject[0] if subject else ""), []).append(fault)
    return groups.values()


def _kind_lines(report: Report) -> Iterator[str]:
    """Yield a line for each kind of fault in all files, with its first fault."""
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
    print_count(others, "record", " without a tf.train.Example: framing and CRCs were checked, not contents", note=True)
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
