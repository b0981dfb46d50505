"""Several paths on the command line, as a shell expands a glob."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import convert, tar2tf
from shards import contents, keys, samples, samples_of, shards_in, small_shards, tree, write_tar
from tar2tf_cli import Conversion, Input, Output
from tar2tf_cli import convert as python_convert


@pytest.fixture
def tars(tmp_path: Path) -> list[Path]:
    return sorted(small_shards(tmp_path / "in").iterdir())


def test_convert_takes_files_in_the_order_given(tars: list[Path], tmp_path: Path) -> None:
    given = [tars[2], tars[0], tars[3]]
    convert(*given, "-o", tmp_path / "x.record")
    assert contents(tmp_path / "x.record") == samples_of(*given)
    named = json.loads((tmp_path / "_x-manifest.json").read_text())["inputs"]
    assert [item["name"] for item in named] == list(map(str, given))


def test_convert_takes_files_and_folders_together(tars: list[Path], tmp_path: Path) -> None:
    other = write_tar(tmp_path / "other.tar", samples(3, first=9000))
    convert(other, tmp_path / "in", "-o", tmp_path / "out" / "<input>.record", "-j", "2")
    named = ["other.record", *(f"{path.stem}.record" for path in tars)]
    assert [path.name for path in shards_in(tmp_path / "out")] == named
    assert keys(tmp_path / "out" / "other.record") == [key for key, _ in samples(3, first=9000)]


def test_the_same_paths_again_are_up_to_date_and_other_ones_are_not(tars: list[Path], tmp_path: Path) -> None:
    command = [*tars, "-o", tmp_path / "out" / "x-<>.record", "--max-shard-size", "20kB"]
    convert(*command)
    before = tree(tmp_path / "out")
    assert "up to date" in convert(*command).stderr
    assert tree(tmp_path / "out") == before
    done = tar2tf("convert", *command[1:])
    assert done.returncode == 2
    assert "--overwrite" in done.stderr


def test_a_manifest_of_paths_serves_as_a_spec(tars: list[Path], tmp_path: Path) -> None:
    convert(*tars[:2], "-o", tmp_path / "x.record")
    spec = json.loads((tmp_path / "_x-manifest.json").read_text())["spec"]
    (tmp_path / "spec.yaml").write_text(json.dumps(spec))
    convert("--spec", tmp_path / "spec.yaml", "-o", tmp_path / "y.record")
    assert (tmp_path / "y.record").read_bytes() == (tmp_path / "x.record").read_bytes()


def test_a_dry_run_lists_the_paths(tars: list[Path], tmp_path: Path) -> None:
    done = convert(*tars, "-o", tmp_path / "x.record", "--dry-run")
    assert "4 inputs, " in done.stdout
    assert f"{tars[0]} and 3 more" in done.stdout


def test_a_template_within_the_bucket_stays_a_template(tars: list[Path], tmp_path: Path) -> None:
    write_tar(tmp_path / "small-1.tar", samples(2, first=9000))
    convert("in", "small-1.tar", "-o", "x.record", cwd=tmp_path)
    assert contents(tmp_path / "x.record") == samples_of(tars[1])


def test_a_path_that_is_not_there_is_named(tars: list[Path], tmp_path: Path) -> None:
    for command in ("convert", "verify", "inspect"):
        options = ["-o", tmp_path / "x.record"] if command == "convert" else []
        done = tar2tf(command, tars[0], tmp_path / "typo.tar", *options)
        assert done.returncode == 3
        assert "typo.tar: there is no such file or directory" in done.stderr


def test_a_file_given_twice_is_refused(tars: list[Path], tmp_path: Path) -> None:
    done = tar2tf("convert", tars[0], tmp_path / "in", "-o", tmp_path / "x.record")
    assert done.returncode == 2
    assert "small-0.tar: is given twice" in done.stderr


def test_inspect_counts_all_that_is_given(tars: list[Path], tmp_path: Path) -> None:
    done = tar2tf("inspect", tars[0], tars[2], "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [shard["path"] for shard in found["shards"]] == [str(tars[0]), str(tars[2])]
    assert found["samples"] == 60 + 62
    assert "2 tar shards, 122 samples" in tar2tf("inspect", tars[0], tars[2]).stdout
    assert tar2tf("inspect", tars[0], tars[2], "-n", "61").stdout.count(str(tars[2])) == 1
    (tmp_path / "text").write_text("no shard")
    done = tar2tf("inspect", tars[0], tmp_path / "text")
    assert (done.returncode, "neither a tar nor a TFRecord" in done.stderr) == (3, True)


@pytest.fixture
def outs(tars: list[Path], tmp_path: Path) -> list[Path]:
    for name in ("out-1", "out-3"):
        convert(tmp_path / "in", "-o", tmp_path / name / "x-<000>.record", "--max-shard-size", "20kB", "--index")
    return [tmp_path / "out-1", tmp_path / "out-3"]


def test_verify_takes_files_and_folders(outs: list[Path], tmp_path: Path) -> None:
    first = outs[0]
    files = sorted(first.glob("*.record"))
    for given, count in [(files, len(files)), (outs, 2 * len(files)), (sorted(first.glob("[!.]*")), len(files))]:
        done = tar2tf("verify", *given, "--json")
        assert done.returncode == 0, done.stdout
        assert len(json.loads(done.stdout)["files"]) == count
    manifests = [folder / "_x-manifest.json" for folder in outs]
    assert json.loads(tar2tf("verify", *manifests, "--json").stdout)["records"] == 2 * (60 + 61 + 62 + 63)


def test_verify_of_paths_finds_damage_and_gaps(outs: list[Path], tmp_path: Path) -> None:
    first, second = outs
    files = sorted(first.glob("*.record"))
    assert tar2tf("verify", files[0], files[2]).returncode == 0, "the one between them is there, and was not named"
    files[1].unlink()
    done = tar2tf("verify", files[0], *files[2:])
    assert (done.returncode, f"{files[1]}: this shard is missing from the numbering (gap)" in done.stdout) == (1, True)
    (second / files[0].name).write_bytes(b"damage" * 99)
    done = tar2tf("verify", first, second)
    assert done.returncode == 1
    assert f"{second / files[0].name}: " in done.stdout


@pytest.mark.parametrize("template", ["in/small-{1..2}.tar", "./in/small-[12].tar", "i?/small-{1,2}.tar"])
def test_a_bucket_may_end_with_its_template(tars: list[Path], tmp_path: Path, template: str) -> None:
    convert(template, "-o", "x.record", cwd=tmp_path)
    assert contents(tmp_path / "x.record") == samples_of(*tars[1:3])
    assert "up to date" in convert(template, "-o", "x.record", cwd=tmp_path).stderr
    assert tar2tf("verify", "_x-manifest.json", "--against", template, cwd=tmp_path).returncode == 0
    for command in ("inspect", "verify"):
        done = tar2tf(command, template, cwd=tmp_path)
        assert "123 samples" in done.stdout + done.stderr
    python_convert(Conversion(Input(str(tmp_path / template)), Output(str(tmp_path / "y.record"))))
    assert (tmp_path / "y.record").read_bytes() == (tmp_path / "x.record").read_bytes()


def test_several_templates_are_inputs_in_the_order_given(tars: list[Path], tmp_path: Path) -> None:
    other = small_shards(tmp_path / "more")
    convert("more/small-{0..1}.tar", "in/small-3.tar", "in/*-[12].tar", "-o", "x.record", cwd=tmp_path)
    wanted = [*sorted(other.iterdir())[:2], tars[3], tars[1], tars[2]]
    assert contents(tmp_path / "x.record") == samples_of(*wanted)


def test_a_template_without_a_match_names_folder_and_template(tars: list[Path], tmp_path: Path) -> None:
    for given, said in {
        "in/small-{3..5}.tar": "in: has no 'small-4.tar', 'small-5.tar'",
        "in/none-*.tar": "in: has no 'none-*.tar'",
        "out/small-{0..3}.tar": "out: no such directory or file",
    }.items():
        done = tar2tf("convert", given, "-o", "x.record", cwd=tmp_path)
        assert (done.returncode, said in done.stderr) == (3, True), done.stderr
        assert not (tmp_path / "x.record").exists()
    done = tar2tf("convert", "s3://bucket/a-{0..3}.tar", "b-*.tar", "-o", "x.record", cwd=tmp_path)
    assert (done.returncode, "'a-{0..3}.tar' is a template already" in done.stderr) == (2, True)


def test_verify_takes_manifests_by_a_template_in_quotes(outs: list[Path], tmp_path: Path) -> None:
    done = tar2tf("verify", "out-?/_x-manifest.json", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["records"] == 2 * (60 + 61 + 62 + 63)
