"""Help, near misses, sizes and the environment."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

import click
import pytest

import tar2tf_cli
from commands import convert, tar2tf
from shards import samples, shards_in, write_tar
from tar2tf_cli.cli import VARIABLES, all_commands, cli
from tar2tf_cli.ops import OPS
from tar2tf_cli.ops.base import summary
from verify_runs import framed

# --- Help and near misses ---


def test_help_leads_with_examples_and_names_every_option() -> None:
    done = tar2tf("convert", "--help")
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.index("tar2tf convert shards") < done.stdout.index("--max-shard-size")
    for option in cli.get_command(None, "convert").params:  # type: ignore[arg-type, union-attr]
        for name in option.opts:
            assert not name.startswith("-") or name in done.stdout


def test_the_help_has_a_line_for_each_command() -> None:
    lines = tar2tf("--help").stdout.partition("Commands:\n")[2].splitlines()
    short = {name: text for name, _, text in (line.strip().partition(" ") for line in lines)}
    assert list(short) == list(cli.list_commands(None))  # type: ignore[arg-type]
    assert short["convert"].strip() == "Convert shards, image folders or tables to TFRecords or tars."
    assert all(text.endswith(".") and len(text) < 79 for text in short.values())


def test_every_option_and_command_has_a_help_text() -> None:
    for name, command in all_commands().items():
        assert command.help
        for option in command.params:
            assert isinstance(option, click.Argument) or getattr(option, "help", None), f"{name} {option.opts}"


@pytest.mark.parametrize(("wrong", "meant"), [("convrt", "convert"), ("verfy", "verify"), ("inspekt", "inspect")])
def test_a_mistyped_command_is_answered_with_the_near_one(wrong: str, meant: str) -> None:
    done = tar2tf(wrong, "x")
    assert done.returncode == 2
    assert f"did you mean '{meant}'?" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("given", ["-o={}", "-o{}", "--output={}"])
def test_a_value_may_be_part_of_the_word_of_its_option(given: str, bucket: Path, tmp_path: Path) -> None:
    done = tar2tf("convert", bucket, given.format(tmp_path / "x.record"), "-j2", "-q")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "x.record").exists()


def test_mistyped_options_are_answered_with_the_near_one(bucket: Path) -> None:
    done = tar2tf("convert", bucket, "-o", "x", "--max-shard-sze", "1MB")
    assert done.returncode == 2
    assert "--max-shard-size" in done.stderr
    done = tar2tf("convert", bucket, "-o", "x-<inpt>")
    assert done.returncode == 2
    assert "<input>" in done.stderr


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ([], "-o"),
        (["-o", ""], "path"),
        (["-o", "out/"], "'out/'"),
        (["-o", "."], "'.'"),
        (["-o", ".."], "'..'"),
        (["-o", "x", "--max-shard-size", "0"], "size"),
        (["-o", "x", "--max-shard-size", "-1"], "size"),
        (["-o", "x", "--max-shard-size", "ten"], "size"),
        (["-o", "x", "--max-shard-size", ""], "size"),
        (["-o", "x", "--max-shard-size", "10XB"], "size"),
        (["-o", "x", "--max-shard-size", "1e999"], "size"),
        (["-o", "x", "-j", "0"], "-j"),
        (["-o", "x", "-j", "two"], "-j"),
        (["-o", "x", "--num-shards", "0"], "--num-shards"),
        (["-o", "x", "--num-shards", "99999999999999"], "--num-shards"),
        (["-o", "x", "--num-shards", "2", "--max-shard-size", "1MB"], "--num-shards"),
        (["-o", "x", "--records-per-shard", "-5"], "--records-per-shard"),
        (["-o", "x", "--limit", "-2"], "--limit"),
        (["-o", "x", "--limit", "99999999999999999999999"], "--limit"),
        (["-o", "x", "--seed", "x"], "--seed"),
        (["-o", "x", "--key-split", "middle"], "--key-split"),
        (["-o", "x", "--compression", "zip"], "--compression"),
        (["-o", "x", "--type", "cls"], "cls"),
        (["-o", "x", "--type", "cls=int"], "int64"),
        (["-o", "x", "--on-error", "ignore"], "--on-error"),
        (["-o", "x", "--split", "a=0.5,b=0.5"], "<split>"),
        (["-o", "<split>", "--split", "a=0.5,b=0.6"], "1.1"),
        (["-o", "<split>", "--split", "a=0.5,a=0.5"], "split"),
        (["-o", "<split>", "--split", "a=nan,b=1"], "split"),
        (["-o", "<split>", "--split", "a/b=1"], "split"),
        (["-o", "<split>", "--split", "../a=0.5,b=0.5"], "split"),
        (["-o", "<split>", "--split", "x"], "split"),
        (["-o", "<split>-x"], "--split"),
        (["-o", "x-<total>"], "<total>"),
        (["-o", "x-<>-<>"], "number"),
        (["-o", "x-<>", "--index", "--compression", "gzip"], "--index"),
        (["-o", "-", "--index"], "standard output"),
        (["-o", "-", "--max-shard-size", "1MB"], "standard output"),
        (["-o", "<input>", "--shuffle"], "<input>"),
        (["-o", "<input>-<split>", "--split", "a=1"], "<input>"),
    ],
)
def test_what_cannot_be_carried_out_is_a_usage_error(
    options: list[str], named: str, bucket: Path, tmp_path: Path
) -> None:
    done = tar2tf("convert", bucket, *options, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert named in done.stderr
    assert done.stdout == ""
    assert not list(tmp_path.iterdir())


def test_version_names_python_and_what_it_stands_on() -> None:
    done = tar2tf("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("tar2tf ")
    assert f"Python {sys.version.split()[0]}" in done.stdout
    assert ("tensorflow 2." if find_spec("tensorflow") else "tensorflow not installed") in done.stdout
    assert len(done.stdout.splitlines()) == 3


def test_version_says_which_packages_are_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import metadata

    def version(name: str) -> str:
        if name == "isal":
            return "1.2.3"
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    from click.testing import CliRunner

    lines = CliRunner().invoke(cli, ["--version"]).stdout.splitlines()
    assert lines[:2] == [
        f"tar2tf {tar2tf_cli.__version__}, Python {sys.version.split()[0]}",
        "tensorflow not installed, google-crc32c not installed, isal 1.2.3",
    ]


def test_without_arguments_the_help_is_shown_as_an_error() -> None:
    done = tar2tf()
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.rstrip("\n") == tar2tf("--help").stdout.rstrip("\n")


# --- Sizes and environment ---


@pytest.mark.parametrize(
    ("text", "size"),
    [("100MB", 10**8), ("100MiB", 100 * 2**20), ("1GiB", 2**30), ("1.5 kB", 1500), ("12345", 12345), ("1k", 1000)],
)
def test_sizes_are_decimal_or_binary_as_written(text: str, size: int, bucket: Path, tmp_path: Path) -> None:
    done = convert(bucket, "-o", tmp_path / "x", "--max-shard-size", text, "--dry-run", "--json")
    assert json.loads(done.stdout)["output"]["max_shard_size"] == size


def test_options_can_be_given_in_the_environment_and_flags_win(bucket: Path, tmp_path: Path) -> None:
    environment = {
        "TAR2TF_OUTPUT": str(tmp_path / "train-<>.record"),
        "TAR2TF_MAX_SHARD_SIZE": "20kB",
        "TAR2TF_TYPE": "cls=int64 jpg=bytes",
        "TAR2TF_NUM_WORKERS": "2",
        "TAR2TF_JSON": "1",
        "TAR2TF_INDEX": "1",
    }
    document = json.loads(convert(bucket, env=environment).stdout)
    assert len(document["shards"]) > 3
    features = json.loads((tmp_path / "_train-manifest.json").read_text())["features"]
    assert features["cls"]["dtype"] == "int64"
    assert len(list(tmp_path.glob("*.idx"))) == len(document["shards"])
    convert(bucket, "-o", tmp_path / "flag.record", "--max-shard-size", "10MB", env=environment)
    assert (tmp_path / "flag-00000.record").exists()
    bad = tar2tf("convert", bucket, "-o", tmp_path / "y", env={"TAR2TF_NUM_WORKERS": "many"})
    assert bad.returncode == 2
    assert "--num-workers" in bad.stderr


def test_every_environment_variable_is_named_like_its_flag() -> None:
    for option in all_commands()["convert"].params:
        flag = next((name for name in option.opts if name.startswith("--")), None)
        if flag:
            expected = "TAR2TF_" + flag.removeprefix("--").replace("-", "_").upper()
            automatic = f"TAR2TF_{(option.name or '').upper()}"
            explicit = [option.envvar] if isinstance(option.envvar, str) else list(option.envvar or [])
            assert expected in [*explicit, automatic], flag


# --- Dry run ---


def test_a_dry_run_shows_plan_and_first_sample_and_writes_nothing(bucket: Path, tmp_path: Path) -> None:
    errors = tmp_path / "errors.jsonl"
    errors.write_text("from before\n")
    done = convert(
        *[bucket, "-o", tmp_path / "out" / "train-<>.record", "--max-shard-size", "20kB", "--type", "cls=int64"],
        *["--errors", errors, "--dry-run"],
    )
    assert "4 inputs" in done.stdout
    assert "small-0.tar" in done.stdout
    assert "train-<>.record" in done.stdout
    for name in ("__key__", "cls", "jpg"):
        assert name in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["errors.jsonl"]
    assert errors.read_text() == "from before\n"


def test_a_dry_run_does_not_wait_for_stdin(tmp_path: Path) -> None:
    read, write = os.pipe()
    try:
        done = convert("-", "-o", tmp_path / "x", "--dry-run", stdin=read)
    finally:
        os.close(read), os.close(write)
    assert "1 input" in done.stdout
    assert not list(tmp_path.iterdir())


# --- Errors look alike ---


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["convrt"], "there is no command 'convrt'; did you mean 'convert'?", "see tar2tf -h"),
        (["--versoin"], "there is no option '--versoin'; did you mean '--version'?", "see tar2tf -h"),
        (
            ["convert", "x", "--max-shard-sze"],
            "there is no option '--max-shard-sze'; did you mean '--max-shard-size'?",
            "",
        ),
        (["convert", "x", "--key-spl", "last"], "there is no option '--key-spl'; did you mean '--key-split'?", ""),
        (["inspect", "-x"], "there is no option '-x'", "see tar2tf inspect -h"),
        (["convert", "x", "-o"], "option '-o' requires an argument", "see tar2tf convert -h"),
        (["convert", "x", "--shuffle=3"], "option '--shuffle' does not take a value", "see tar2tf convert -h"),
        (["convert", "x", "-o", "y", "-j", "0"], "-j/--num-workers must be 1 or more, not 0", None),
        (["inspect", "x", "-n", "9" * 30], "-n must be 9,223,372,036,854,775,807 or less", None),
        (["inspect", "x", "-n", "two"], "-n must be a whole number, not 'two'", None),
        (["convert", "x", "-o", "y", "--on-error", "x"], "--on-error must be 'fail' or 'skip', not 'x'", None),
        (["verify"], "no bucket is given", "see tar2tf verify -h"),
        (["ops", "resise"], "there is no op 'resise'; did you mean 'resize'?", None),
        (["convert", "x", "-o", "y", "--op", "resise"], "there is no op 'resise'; did you mean 'resize'?", None),
        (["verify", "x", "--report", "-"], "--report: name a file: -", "see tar2tf verify -h"),
        (["inspect", "x", "--html", "no/x.html"], "--html: there is no folder 'no'", "see tar2tf inspect -h"),
        (["convert", "x", "-o", "y", "--errors", "-"], "--errors: name a file: -", None),
        (["verify", "x", "--json", "--json-lines"], "--json and --json-lines cannot", "see tar2tf verify -h"),
        (["inspect", "-", "-n", "1", "--json"], "standard input can be read only once", "see tar2tf inspect -h"),
        (
            ["convert", "x", "-o", "y", "--duplicates", "z"],
            "--duplicates lists the samples that --drop-duplicates skips: add --drop-duplicates",
            "see tar2tf convert -h",
        ),
        (
            ["convert", "x", "-o", "y", "--duplicates", "z", "--drop-duplicates", "--update"],
            "--duplicates needs all inputs, and --update reads only changed ones: use --overwrite",
            "see tar2tf convert -h",
        ),
        (
            ["export", "tfds", "x", "--class-names", "=n.txt"],
            "--class-names takes FEATURE=FILE, not '=n.txt'",
            "for example: cls=names.txt",
        ),
        (["export", "tfds", "x", "--class-names", "a="], "--class-names takes FEATURE=FILE, not 'a='", "cls=names.txt"),
        (["export", "hf", "x", "--class-names", "a=b"], "--class-names is only for export tfds", "leave it out"),
        (["export", "schema", "x", "--citation", "b"], "--citation is only for export tfds", "leave it out"),
        (["schema", "x"], "got unexpected extra argument", "see tar2tf schema -h"),
    ],
)
def test_wrong_usage_looks_like_every_other_error(
    arguments: list[str], message: str, hint: str | None, tmp_path: Path
) -> None:
    done = tar2tf(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert (done.stdout != "") == ("--json" in arguments)
    first, *rest = done.stderr.splitlines()
    assert first.startswith(f"error: {message}")
    assert not first.endswith(".")
    assert len(rest) <= 1
    assert all(line.startswith("  ") for line in rest)
    if hint is not None:
        assert hint in rest[0]


def test_standard_input_is_not_read_for_a_page_that_needs_it_twice(tmp_path: Path) -> None:
    reader, writer = os.pipe()  # which nothing is written to
    try:
        done = tar2tf("inspect", "-", "--html", tmp_path / "x.html", stdin=reader, timeout=20)
    finally:
        os.close(reader)
        os.close(writer)
    assert (done.returncode, "standard input can be read only once" in done.stderr) == (2, True)


def test_a_list_of_errors_does_not_take_the_place_of_a_file_of_the_conversion(tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    write_tar(folder / "a.tar", [("a", {"cls": b"x"}), ("b", {"cls": b"1"})])
    rows, spec = folder / "rows.csv", folder / "spec.yaml"
    rows.write_bytes(b"a\n")
    spec.write_bytes(b"seed: 1\n")
    command = ["convert", folder, "-o", out / "x.record", "--on-error", "skip", "--type", "cls=int64"]
    several = ["--records-per-shard", "1"]
    cases: list[tuple[Path, list[str | Path]]] = [
        (out / "x.record", []),
        (out / "." / "_x-manifest.json", []),
        (out / "x-00000.record", several),
        (out / "_x-manifest.json", several),
        (spec, ["--spec", spec]),
    ]
    for path, options in cases:
        done = tar2tf(*command, *options, "--errors", path)
        assert (done.returncode, "the conversion itself reads or writes" in done.stderr) == (2, True), (
            path,
            done.stderr,
        )
        assert not out.exists()
    made = ["convert", "--from", "examples", "--example-class", "m:C", rows, "-o", out / "x.record", "--errors", rows]
    assert tar2tf(*made).returncode == 2
    assert (rows.read_bytes(), spec.read_bytes()) == (b"a\n", b"seed: 1\n")
    assert tar2tf(*command, "--errors", out / "x.record.jsonl").returncode == 1


def test_records_and_a_report_have_a_file_each(tmp_path: Path) -> None:
    tar, path = write_tar(tmp_path / "x.tar", samples(1)), tmp_path / "both.xml"
    done = tar2tf("verify", tar, "--salvage", path, "--report", path)
    assert (done.returncode, path.exists()) == (2, False)


@pytest.mark.parametrize("option", ["--errors", "--report", "--html"])
def test_shards_are_never_replaced_by_a_report(option: str, tmp_path: Path) -> None:
    """Such as those of `tar2tf inspect --html a.tar b.tar`."""
    tar = write_tar(tmp_path / "a.tar", samples(3))
    record = tmp_path / "b.record"
    record.write_bytes(framed(bytes(ord("{"))))
    command = {
        "--errors": ["convert", tar, "-o", tmp_path / "x.record", "--overwrite"],
        "--report": ["verify", tar],
        "--html": ["inspect", tar],
    }[option]
    for shard in (tar, record):
        before = shard.read_bytes()
        done = tar2tf(*command, option, shard)
        assert done.returncode == 2
        assert f"{option}: '{shard}' exists and is not text" in done.stderr
        assert shard.read_bytes() == before
    for _ in range(2):
        assert tar2tf(*command, option, tmp_path / "report").returncode == 0


def test_an_environment_variable_that_is_wrong_is_named_with_its_option() -> None:
    done = tar2tf("convert", "x", "-o", "y", env={"TAR2TF_JSON": "perhaps"})
    assert done.returncode == 2
    assert done.stderr.startswith("error: --json (TAR2TF_JSON): 'perhaps' is not a valid boolean")


# --- Ops ---


def test_ops_prints_every_op_with_usage_meaning_and_examples() -> None:
    printed = tar2tf("ops").stdout
    listed = json.loads(tar2tf("ops", "--json").stdout)
    assert [item["name"] for item in listed] == list(OPS)
    for item, op in zip(listed, OPS.values(), strict=True):
        assert f"{op.usage}\n  {summary(op)}\n" in printed
        assert item["examples"] == list(op.examples)
        for example in op.examples:
            assert f"    --op {shlex.quote(example)}\n" in printed or f"    --op {example}\n" in printed
    assert max(map(len, printed.splitlines())) <= 80


def test_ops_prints_those_that_are_named() -> None:
    printed = tar2tf("ops", "rotate", "cast").stdout
    assert [line.partition(":")[0] for line in printed.splitlines() if line[:1] not in ("", " ")] == ["rotate", "cast"]


def test_a_selection_that_is_nested_too_deep_is_an_error(bucket: Path, tmp_path: Path) -> None:
    done = tar2tf("convert", bucket, "-o", tmp_path / "x", "--select", "a=json:" + "[" * 100_000)
    assert done.returncode == 2
    assert "is not a path" in done.stderr


@pytest.mark.parametrize("option", ["--limit", "-j/--num-workers"])
def test_a_number_that_comes_from_a_variable_is_named_with_it(option: str) -> None:
    variable = "TAR2TF_" + option.rpartition("--")[2].replace("-", "_").upper()
    done = tar2tf("convert", "x", "-o", "y", env={variable: "x"})
    assert (done.returncode, done.stderr) == (2, f"error: {option} ({variable}) must be a whole number, not 'x'\n")


def test_a_variable_with_nearly_the_name_of_one_of_ours_is_refused() -> None:
    done = tar2tf("convert", "x", "-o", "y", env={"TAR2TF_LIMT": "1"})
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        2,
        "error: there is no variable TAR2TF_LIMT; did you mean TAR2TF_LIMIT?",
    )
    done = tar2tf("ops", "cast", env={"TAR2TF_OWN_IMAGES": "1"})
    assert (done.returncode, done.stderr) == (0, "")


def test_every_variable_of_the_package_is_known() -> None:
    text = "".join(path.read_text() for path in Path(tar2tf_cli.__file__).parent.rglob("*.py"))
    options = {str(getattr(param, "envvar", "")) for command in all_commands().values() for param in command.params}
    used = set(re.findall(r'"(TAR2TF_[A-Z_]*[A-Z])"', text))
    assert used <= options | set(VARIABLES)


def test_options_with_underscores_and_a_limit_of_all_mean_what_older_scripts_mean(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "in.tar", samples(9))
    done = tar2tf(
        "convert", tar, "-o", tmp_path / "x-<>.record", "--num_shards", "3", "--num_workers=1", "--limit", "-1"
    )
    assert done.returncode == 0, done.stderr
    assert len(shards_in(tmp_path)) == 3
    refused = tar2tf("convert", tar, "-o", tmp_path / "y.record", "--limit", "-2")
    assert (refused.returncode, "-1 or more" in refused.stderr) == (2, True)


@pytest.mark.parametrize(
    ("given", "meant"),
    [("--num-shrads", "--num-shards"), ("--limt", "--limit"), ("--report", ""), ("--foobar", ""), ("-z", "")],
)
def test_only_a_near_option_is_suggested(given: str, meant: str, tmp_path: Path) -> None:
    done = tar2tf("convert", "x", given, "1", cwd=tmp_path)
    suggested = f"; did you mean {meant!r}?" if meant else ""
    assert done.stderr.splitlines()[0] == f"error: there is no option {given!r}{suggested}"


def test_choices_of_an_option_stand_in_the_help() -> None:
    shown = tar2tf("convert", "-h").stdout
    for term in ("--keys-missing error|skip", "--join-missing error|skip|keep", "--compression none|gzip|zstd"):
        assert term in shown


@pytest.mark.parametrize(
    ("given", "now"),
    [("--img_size", "--image-size N"), ("--input_dir", "--from imagefolder DIR"), ("--num-images", "--limit N")],
)
def test_an_option_of_the_scripts_for_imagenet_is_answered_with_what_to_write(given: str, now: str) -> None:
    done = tar2tf("convert", given, "300")
    assert done.returncode == 2
    assert now in done.stderr.splitlines()[0]


def test_a_bucket_of_the_cluster_in_the_environment_is_answered_with_its_url(tmp_path: Path) -> None:
    done = tar2tf("convert", "photos", "-o", "x.record", env={"AIS_ENDPOINT": "http://127.0.0.1:1"}, cwd=tmp_path)
    assert done.returncode == 3
    assert "write ais://photos" in done.stderr


def test_a_path_without_a_suffix_gets_a_note_with_the_template_for_a_folder(bucket: Path, tmp_path: Path) -> None:
    done = convert(bucket, "-o", tmp_path / "out")
    assert f"write -o '{tmp_path}/out/train-<>.record'" in done.stderr
    assert "for a folder" not in convert(bucket, "-o", tmp_path / "new" / "out.record").stderr
    (tmp_path / "there").mkdir()
    for limit in ([], ["--num-shards", "2"]):
        done = tar2tf("convert", bucket, "-o", tmp_path / "there", *limit)
        assert (done.returncode, f"'{tmp_path}/there/<>.record'" in done.stderr) == (2, True)
