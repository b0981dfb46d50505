"""The manners of the command line: what goes where, exit codes, options, terminals, and no traceback for any input."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from commands import COMMAND, SECONDS, convert, tar2tf
from shards import PHOTOS, records, samples, samples_of, shards_in, sizes, tree, write_tar
from tar2tf_cli.cli import cli
from tar2tf_cli.formats import kernel

# --- Data on stdout, all else on stderr; exit codes ---


def test_success_says_one_line_on_stderr_and_nothing_on_stdout(bucket: Path, tmp_path: Path) -> None:
    done = convert(bucket, "-o", tmp_path / "x.record")
    assert done.stdout == ""
    manifest = re.escape(str(tmp_path / "_x-manifest.json"))
    assert re.fullmatch(rf"246 records, [\d.]+ KB in 1 shard, manifest {manifest}\n", done.stderr)


def test_quiet_says_nothing_but_errors(bucket: Path, tmp_path: Path) -> None:
    done = convert(bucket, "-o", tmp_path / "x.record", "-q")
    assert done.stdout + done.stderr == ""
    done = tar2tf("convert", bucket, "nothing-*.tar", "-o", tmp_path / "y.record", "-q")
    assert done.returncode == 3
    assert done.stderr.startswith("error: ")


def test_quiet_still_tells_of_skipped_samples(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "in.tar", [*samples(3), ("bad", {"cls": b"x", "jpg": b""})])
    done = tar2tf(
        *["convert", tar, "-o", tmp_path / "x.record", "--type", "cls=int64", "--on-error", "skip", "--quiet"]
    )
    assert done.returncode == 1
    assert "'cls'" in done.stderr


def test_files_of_one_wrong_format_are_one_line_whatever_bytes_they_begin_with(tmp_path: Path) -> None:
    tiff, unknown = [b"II*\0\x9a\x01", b"MM\0*\x22\x0b"], [b"\x01\xfe\xa9", b"\x02\xfb\x99"]
    images = [*tiff, *unknown, samples_of(PHOTOS / "photos-0.tar")[0][1]["jpg"]]
    tar = write_tar(tmp_path / "in.tar", [(str(n), {"jpg": data}) for n, data in enumerate(images)])
    done = tar2tf("convert", tar, "-o", tmp_path / "x.record", "--op", "decode:jpg", "--on-error", "skip")
    assert "2 x cannot be decoded: it is TIFF, first: " in done.stderr
    assert "2 x cannot be decoded: starts with 01 fe a9, first: " in done.stderr


def test_verbose_names_each_shard(bucket: Path, tmp_path: Path) -> None:
    done = convert(bucket, "-o", tmp_path / "train-<>.record", "--records-per-shard", "100", "-v")
    shards = shards_in(tmp_path)
    assert len(shards) == 3
    for shard in shards:
        assert f"{shard}: {len(records(shard))} records, {shard.stat().st_size:,} bytes" in done.stderr


def test_json_is_one_document_on_stdout(bucket: Path, tmp_path: Path) -> None:
    command = [bucket, "-o", tmp_path / "train-<>.record", "--records-per-shard", "100", "--json"]
    first, second = json.loads(convert(*command).stdout), json.loads(convert(*command, "-q").stdout)
    assert first == {
        "manifest": str(tmp_path / "_train-manifest.json"),
        "up_to_date": False,
        "inputs": 4,
        "records": 246,
        "bytes": sum(sizes(shards_in(tmp_path))),
        "shards": json.loads((tmp_path / "_train-manifest.json").read_text())["shards"],
        "skipped": {"samples": 0, "members": {}},
    }
    assert second == {**first, "up_to_date": True}


def test_json_and_records_do_not_share_stdout(bucket: Path) -> None:
    done = tar2tf("convert", bucket, "-o", "-", "--json")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "--json" in done.stderr


def test_a_reader_that_goes_away_gets_no_traceback(bucket: Path, tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "in.tar", samples(300, 10_000))
    for shards in (bucket, tar):
        convert_it = shlex.join([*COMMAND, "convert", str(shards), "-o", "-"])
        script = f"{convert_it} | head -c 100 | wc -c; exit ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=SECONDS, check=False)
        assert done.stdout.strip() == "100"
        assert "Traceback" not in done.stderr
        assert done.returncode in (0, 141), "0 where all fitted into the pipe"
    assert (done.returncode, done.stderr) == (141, "")


def test_a_field_that_the_shell_took_away_is_told(bucket: Path, tmp_path: Path) -> None:
    for path, told in (("out/train-<>.record", True), ("'out/train-<>.record'", False), ("out/train", False)):
        script = f"{shlex.join([*COMMAND, 'convert', str(bucket)])} -o {path} --overwrite"
        done = subprocess.run(
            ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        assert done.returncode == 0, done.stderr
        assert ("quote it: -o 'out/train-<>.record'" in done.stderr) == told


def test_stdout_that_cannot_be_written_is_an_error(bucket: Path, tmp_path: Path) -> None:
    for options in (["-o", tmp_path / "x.record", "--json"], ["-o", tmp_path / "y.record", "--dry-run"], ["-o", "-"]):
        with open("/dev/full", "w") as full:
            done = tar2tf("convert", bucket, *options, capture_output=False, stdout=full, stderr=subprocess.PIPE)
        assert done.returncode == 3
        assert "No space left" in done.stderr


@pytest.mark.parametrize(("words", "code"), [("{} -o x.record", 0), ("nowhere -o x.record", 3), ("{} -o x -j 0", 2)])
def test_a_full_log_does_not_change_the_exit_code(words: str, code: int, bucket: Path, tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        arguments = [word.format(bucket) for word in words.split()]
        done = tar2tf("convert", *arguments, cwd=tmp_path, capture_output=False, stderr=full)
    assert done.returncode == code


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_do_no_harm(closed: str, bucket: Path, tmp_path: Path) -> None:
    expected = tmp_path / "expected"
    convert(bucket, "-o", expected / "train-<>.record", "--records-per-shard", "50")
    command = [
        *COMMAND,
        "convert",
        bucket,
        "-o",
        tmp_path / "out" / "train-<>.record",
        "--records-per-shard",
        "50",
        "-v",
    ]
    script = f"{shlex.join(map(str, command))} {closed}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    assert tree(tmp_path / "out") == tree(expected)


@pytest.mark.parametrize("command", ["convert {} -o -", "inspect {}", "verify {} --json", "ops"])
def test_output_does_not_vanish_into_a_closed_stdout(command: str, bucket: Path) -> None:
    script = f"{shlex.join([*COMMAND, *(word.format(bucket) for word in command.split())])} >&-"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1] == "error: standard output is closed"


# --- What is imported ---

POISON = "import pathlib; pathlib.Path({marker!r}).touch(); raise ImportError('this module is not to be imported')"


@pytest.mark.parametrize(
    "arguments",
    [
        ["convert", str(PHOTOS), "-o", "{out}/a-<>.record", "--type", "cls=int64", "-j", "2"],
        ["convert", str(PHOTOS), "-o", "{out}/b-<>.record", "--max-shard-size", "50kB", "-j", "1", "--json"],
        ["convert", str(PHOTOS), "-o", "{out}/c-<>.record", "--shuffle", "--compression", "gzip", "-j", "2"],
        ["convert", str(PHOTOS), "-o", "{out}/d-<>.record", "--dry-run"],
        ["inspect", str(PHOTOS)],
        ["inspect", "{made}"],
        ["verify", "{made}"],
        ["verify", str(PHOTOS)],
        ["convert", "--help"],
        ["inspect", "--help"],
        ["verify", "--help"],
        ["--help"],
        ["--version"],
    ],
    ids=lambda arguments: " ".join(Path(argument).name for argument in arguments),
)
def test_tensorflow_is_never_imported(arguments: list[str], tmp_path: Path) -> None:
    made = tmp_path / "made.record"
    if "{made}" in arguments:
        convert(PHOTOS, "-o", made)
    marker = tmp_path / "imported"
    for name in ("tensorflow", "keras"):
        (tmp_path / "poison" / name).mkdir(parents=True)
        (tmp_path / "poison" / name / "__init__.py").write_text(POISON.format(marker=str(marker)))
    filled = [argument.format(out=tmp_path / "out", made=made) for argument in arguments]
    done = tar2tf(*filled, env={"PYTHONPATH": str(tmp_path / "poison")})
    assert done.returncode == 0, done.stderr
    assert not marker.exists()


def imported_by(*arguments: str) -> set[str]:
    """Names of the modules in a process that has run the command."""
    script = (
        "import sys\nfrom tar2tf_cli.__main__ import main\n"
        "try:\n    main()\nfinally:\n    print('\\n'.join(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=SECONDS, check=True
    )
    return set(done.stderr.splitlines())


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    loaded = imported_by(*arguments)
    heavy = {"numpy", "tensorflow", "requests", "cv2", "simplejpeg", "ruamel", "tqdm", "isal", "aistore"}
    assert "tar2tf_cli.cli" in loaded
    assert not loaded & heavy
    assert "tar2tf_cli.ops.base" not in loaded


LIBRARIES = {"numpy", "tensorflow", "cv2", "simplejpeg", "pydantic", "ruamel", "humanfriendly", "tqdm", "isal"}
STORES = {f"tar2tf_cli.stores.{name}" for name in ("client", "cloud", "curl", "objects", "source", "transfer")}
NETWORK = {"requests", "urllib3", "urllib.parse", "aistore", "obstore", *STORES}
PROCESSES = {"tar2tf_cli.engines.local", "multiprocessing", "pickle", "selectors", "socket", "subprocess"}
STANDARD = {"hashlib", "shutil", "pathlib", "tempfile", "difflib", "locale", "logging", "inspect", "dis"}
STANDARD |= {"datetime", "gettext", "platform", "uuid"}
OURS = {f"tar2tf_cli.{name}" for name in ("ops.image", "ops.fields", "ops.func", "ops.geometry", "conversion.preview")}
OURS |= {f"tar2tf_cli.{name}" for name in ("conversion.targets", "compat.transformations", "datasets.records")}
LATE = LIBRARIES | NETWORK | PROCESSES | STANDARD | OURS
"""Modules that take a millisecond or more to import, or that few conversions need."""

UNNEEDED = ("features.labels", "features.presets", "features.tf_example", "flow.columns", "ops.select", "ops.user_code")
UNNEEDED += ("conversion.first_pass", "samples.regrouping", "spec.key_lists", "spec.sample_keys")
PLAIN = {f"tar2tf_cli.{name}" for name in UNNEEDED}
"""Modules of options that a plain conversion does not use."""

COMMANDS: dict[str, tuple[set[str], int]] = {
    "convert": (PLAIN | {"mmap"}, 81),
    "verify": ({"json", "tempfile", "tar2tf_cli.inputs.manifest", "tar2tf_cli.checking.subset"}, 69),
    "inspect": ({"json", "tar2tf_cli.inputs.manifest", "tar2tf_cli.spec.conversion"}, 68),
}
"""More modules that a command imports only for some inputs and options, and the most of ours that it imports."""


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_on_local_files_imports_nothing_that_it_does_not_need(command: str, tmp_path: Path) -> None:
    tar, made = write_tar(tmp_path / "in.tar", samples(3)), str(tmp_path / "made.record")
    convert(tar, "-o", made)
    more = {"convert": [str(tar), "-o", str(tmp_path / "x.record")]}.get(command, [made])
    loaded = imported_by(command, *more, "-q")
    unneeded, most = COMMANDS[command]
    assert "tar2tf_cli.cli" in loaded
    assert loaded & (LATE | unneeded) == set()
    assert sum(name.startswith("tar2tf_cli") for name in loaded) <= most


def test_modules_that_are_not_to_be_imported_exist() -> None:
    named = {*LATE, *(name for unneeded, _ in COMMANDS.values() for name in unneeded)}
    assert all(find_spec(name) for name in named if name.startswith("tar2tf_cli"))


OTHER_COMMAND = """
import sys
from tar2tf_cli.__main__ import _import_click

_import_click()
import click

@click.command()
@click.option("--day", type=click.DateTime())
@click.option("--id", type=click.UUID)
def show(day, id):
    import datetime

    print(repr(click.DateTime().convert(day, None, None)), isinstance(day, datetime.datetime), repr(id))

print(sorted({"datetime", "gettext", "inspect", "uuid"} & sys.modules.keys()))
show(["--day", "2026-01-31", "--id", "12345678123456781234567812345678"], standalone_mode=False)
show(["--help"])
"""


def test_click_imports_what_it_seldom_needs_when_it_needs_it() -> None:
    done = subprocess.run([sys.executable, "-c", OTHER_COMMAND], capture_output=True, text=True, timeout=SECONDS)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    day = "datetime.datetime(2026, 1, 31, 0, 0) True"
    assert lines[:2] == ["[]", f"{day} UUID('12345678-1234-5678-1234-567812345678')"]
    assert lines[-1].endswith("Show this message and exit.")


def test_an_op_is_imported_without_the_others(tmp_path: Path) -> None:
    loaded = imported_by("convert", str(PHOTOS), "-o", str(tmp_path / "x.record"), "--op", "keep:jpg", "-q")
    ops = {name for name in loaded if name.startswith("tar2tf_cli.ops.")}
    assert ops == {f"tar2tf_cli.ops.{name}" for name in ("base", "fields", "rules", "select")}
    assert not loaded & (LIBRARIES | {"dataclasses", "inspect"})


def test_ops_on_images_import_no_library_of_images_before_the_workers_are_forked(tmp_path: Path) -> None:
    ops = ["--op", "decode:jpg", "--op", "resize:jpg,32x32", "--op", "flip:jpg,0.5"]
    loaded = imported_by("convert", str(PHOTOS), "-o", str(tmp_path / "x.record"), *ops, "-q", "-j", "2")
    assert not loaded & {"numpy", "cv2", "simplejpeg"}


def test_records_that_are_copied_need_no_library(tmp_path: Path) -> None:
    convert(write_tar(tmp_path / "in.tar", samples(3)), "-o", tmp_path / "in.record")
    loaded = imported_by("convert", str(tmp_path / "in.record"), "-o", str(tmp_path / "x.record"), "-q")
    assert loaded & (LATE | PLAIN) == set()


def test_inspect_of_a_few_numbers_imports_no_numpy(tmp_path: Path) -> None:
    convert(write_tar(tmp_path / "in.tar", samples(3)), "-o", tmp_path / "x.record", "--type", "cls=int64")
    assert not imported_by("inspect", str(tmp_path / "x.record"), "-q") & LIBRARIES


@pytest.mark.skipif(not getattr(kernel.native(), "hardware", False), reason="no kernel with CRCs in hardware")
def test_where_the_kernel_computes_crcs_nothing_else_for_that_is_imported(tmp_path: Path) -> None:
    assert "google_crc32c" not in imported_by("convert", str(PHOTOS), "-o", str(tmp_path / "x.record"), "-q")


def test_the_collector_does_not_run_in_a_short_command(tmp_path: Path) -> None:
    script = (
        "import gc, sys\nfrom tar2tf_cli.__main__ import main\n"
        "gc.callbacks.append(lambda phase, about: print('collected', about, file=sys.stderr))\nmain()"
    )
    command = [sys.executable, "-c", script, "convert", str(PHOTOS), "-o", str(tmp_path / "x.record"), "-q"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    assert "collected" not in done.stderr


OWN_CODE = """
import atexit, sys
log = open(sys.path[0] + "/log", "w")
atexit.register(lambda: print("the end", file=sys.stderr))

def own(sample):
    log.write(sample["__key__"] + "\\n")
    return sample
"""


def test_what_a_function_of_the_user_leaves_open_is_written_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN_CODE.replace("sys.path[0]", repr(str(tmp_path))))
    function = f"func:{tmp_path / 'own.py'}:own"
    tar = write_tar(tmp_path / "in.tar", samples(3))
    command = [*COMMAND, "convert", tar, "-o", tmp_path / "x.record", "-j", "1", "--op", function]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    assert (tmp_path / "log").read_text().count("\n") == 3
    assert done.stderr.endswith("the end\n")


def test_the_command_runs_within_a_python_program_too() -> None:
    result: Any = CliRunner().invoke(cli, ["--help"])
    assert result.exit_code == 0
    assert "convert" in result.output


# --- Failures as data ---


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("convert", "cut.tar", "-o", "x.record"), ("truncated", "cut.tar", None, 3)),
        (("inspect", "nowhere"), ("unreadable", "nowhere", None, 3)),
        (("verify", "nowhere"), ("unreadable", "nowhere", None, 3)),
        (("convert", "cut.tar", "-o", "x.record", "--limit", "x"), ("usage", None, None, 2)),
        (("convert", "cut.tar", "--no-such-option"), ("usage", None, None, 2)),
    ],
)
def test_a_failure_with_json_is_one_line_of_json_on_stdout(
    arguments: tuple[str, ...], expected: tuple[object, ...], tmp_path: Path
) -> None:
    whole = write_tar(tmp_path / "whole.tar", samples(10)).read_bytes()
    (tmp_path / "cut.tar").write_bytes(whole[: len(whole) // 2])
    done, plain = (tar2tf(*arguments, *more, cwd=tmp_path) for more in (["--json"], []))
    assert (plain.stdout, plain.stderr, plain.returncode) == ("", done.stderr, done.returncode)
    (line,) = done.stdout.splitlines()
    error = json.loads(line)["error"]
    assert (error["kind"], error["shard"], error["member"], error["exit_code"]) == expected
    assert error["exit_code"] == done.returncode
    assert f"{error['message']}" in done.stderr
    assert (error["hint"] or "") in done.stderr


def test_a_failure_names_the_record_the_offset_and_its_code(tmp_path: Path) -> None:
    convert(PHOTOS, "-o", tmp_path / "x.record")
    data = bytearray((tmp_path / "x.record").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "x.record").write_bytes(data)
    done = tar2tf("convert", tmp_path / "x.record", "-o", tmp_path / "y.record", "--json")
    error = json.loads(done.stdout)["error"]
    assert (error["kind"], error["code"], error["member"]) == ("data_crc", "data_crc", None)
    assert error["record"] > 0
    assert error["offset"] > 0


def test_the_variable_for_json_makes_failures_json_too(tmp_path: Path) -> None:
    done = tar2tf("inspect", "nowhere", env={"TAR2TF_JSON": "1"}, cwd=tmp_path)
    assert json.loads(done.stdout)["error"]["kind"] == "unreadable"
    assert tar2tf("index", "nowhere", env={"TAR2TF_JSON": "1"}, cwd=tmp_path).stdout == ""


def test_the_list_of_errors_has_the_one_that_ended_a_conversion(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "in.tar", [*samples(3), ("bad", {"cls": b"x", "jpg": b""})])
    out, errors = tmp_path / "x.record", tmp_path / "errors.jsonl"
    done = tar2tf("convert", tar, "-o", out, "--type", "cls=int64", "--errors", errors)
    assert done.returncode == 3
    (line,) = errors.read_text().splitlines()
    error = json.loads(line)
    assert (error["kind"], error["key"], error["exit_code"]) == ("sample", "bad", 3)
    assert error["message"] in done.stderr
