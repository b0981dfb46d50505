"""An op, a preset, a kind of input, a store and a check of another package are used by their names."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from added_package import declare, install, put_on_path
from commands import SECONDS
from shards import write_tar
from tar2tf_cli import open_records
from tar2tf_cli.api.op import Op
from tar2tf_cli.api.values import Sample
from tar2tf_cli.ops import parse_op
from tar2tf_cli.testing import OpSuite
from tar2tf_cli.testing.sources import SourceSuite

SAMPLES = [("a", {"txt": b"one", "cls": b"1"}), ("b", {"txt": b"three", "cls": b"2"})]


@pytest.fixture
def tar(tmp_path: Path) -> Path:
    return write_tar(tmp_path / "in.tar", SAMPLES)


@pytest.fixture(autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = install(tmp_path_factory.mktemp("packages"))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    put_on_path(folder, monkeypatch)
    return folder


def run(*arguments: object, code: int = 0) -> str:
    """The command's standard output, with the package installed."""
    command = [sys.executable, "-m", "tar2tf_cli", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout


def values(record: Path, name: str) -> list[Any]:
    """The values of a feature in all records."""
    return [one[name] for one in open_records(record)]


def test_an_op_is_a_flag_and_a_key_of_specs(tar: Path, tmp_path: Path) -> None:
    for workers in (1, 2):
        flag = tmp_path / f"flag-{workers}.record"
        run("convert", tar, "-o", flag, "--op", "upper:txt", "-j", workers)
        assert values(flag, "txt") == [b"ONE", b"THREE"]
    spec = tmp_path / "spec.yaml"
    spec.write_text(f"input: {{bucket: {tar}}}\nops: [upper: txt]\noutput: {{path: {tmp_path / 'spec.record'}}}\n")
    run("convert", "--spec", spec)
    assert (tmp_path / "spec.record").read_bytes() == flag.read_bytes()
    assert "upper:EXT" in run("ops")
    assert '"upper"' in run("schema")


def test_a_preset_is_a_flag_with_its_name(tar: Path, tmp_path: Path) -> None:
    run("convert", tar, "-o", tmp_path / "x.record", "--preset", "text-length")
    assert values(tmp_path / "x.record", "length") == [3, 5]
    assert "text-length" in run("schema")


def test_a_kind_of_input_is_a_flag_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes(b"first\nsecond\n")
    run("convert", "--from", "lines", tmp_path / "in.txt", "-o", tmp_path / "x.record")
    assert values(tmp_path / "x.record", "txt") == [b"first", b"second"]


def test_a_store_is_read_and_written_by_its_urls(tar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELF", str(tmp_path))
    run("convert", "shelf://any", "in.tar", "-o", "shelf://any/out/x.record")
    assert values(tmp_path / "out" / "x.record", "cls") == [b"1", b"2"]
    assert json.loads(run("verify", "shelf://any/out", "--json"))["ok"]
    assert json.loads(run("inspect", "shelf://any/in.tar", "--json"))["samples"] == 2


def test_a_format_is_written_verified_inspected_and_read_in_any_order(tar: Path, tmp_path: Path) -> None:
    for workers in (1, 2):
        run("convert", tar, "-o", tmp_path / f"{workers}.ljson", "--type", "cls=int64", "-j", workers)
    shard = tmp_path / "2.ljson"
    assert shard.read_bytes() == (tmp_path / "1.ljson").read_bytes()
    assert b'"cls": 2' in shard.read_bytes()
    for named in (shard, tmp_path / "_2-manifest.json"):
        assert json.loads(run("verify", named, "--json"))["ok"]
    assert json.loads(run("inspect", shard, "--json"))["samples"] == 2
    assert run("inspect", "--keys", shard).split() == ["a", "b"]
    records = open_records(shard, index_folder="")
    assert (records[1]["cls"], records[0]["txt"], records.key("b")["txt"]) == (2, b"one", b"three")
    run("convert", shard, "-o", tmp_path / "back.record")
    assert values(tmp_path / "back.record", "cls") == [1, 2]
    run("convert", shard, "-o", tmp_path / "named.out", "--to", "ljson", "--op", "upper:txt")
    assert [one["txt"] for one in open_records(tmp_path / "named.out")] == [b"ONE", b"THREE"]


def test_shards_of_another_format_are_joined(tar: Path, tmp_path: Path) -> None:
    run("convert", tar, "-o", tmp_path / "x.ljson", "--op", "rename:text=txt,kind=cls", "--type", "kind=int64")
    run("convert", tar, "-o", tmp_path / "both.record", "--join", tmp_path / "x.ljson")
    assert values(tmp_path / "both.record", "text") == [b"one", b"three"]
    assert values(tmp_path / "both.record", "kind") == [1, 2]


def test_a_reader_of_one_format_reads_no_shards_of_another(tar: Path, tmp_path: Path) -> None:
    run("convert", tar, "-o", tmp_path / "x.ljson")
    assert "it reads tars only" in run("verify", tmp_path / "x.ljson", "--for", "webdataset", "--json", code=1)


def test_damage_in_another_format_is_found(tar: Path, tmp_path: Path) -> None:
    run("convert", tar, "-o", tmp_path / "x.ljson")
    data = (tmp_path / "x.ljson").read_bytes()
    for damaged in (data[:-3], data.replace(b'"b64', b"x"), data[:1]):
        (tmp_path / "x.ljson").write_bytes(damaged)
        assert not json.loads(run("verify", tmp_path / "x.ljson", "--json", code=1))["ok"]


def test_a_check_sees_every_record_and_sample_also_those_that_the_kernel_accepts(tmp_path: Path) -> None:
    words = [b"dog", b"cat", b"cow"] * 200
    tar = write_tar(tmp_path / "in.tar", [(f"{number:04d}", {"txt": word}) for number, word in enumerate(words)])
    run("convert", tar, "-o", tmp_path / "x.record")
    for path, message in ((tmp_path / "x.record", "the record"), (tar, "sample 0001: it")):
        (file,) = json.loads(run("verify", path, "--json", code=1))["files"]
        assert {fault["kind"] for fault in file["faults"]} == {"cat"}
        assert (len(file["faults"]), file["records"]) == (200, 600)
        assert file["faults"][0]["message"] == f"{message} is about a cat"
    assert json.loads(run("verify", tmp_path / "x.record", "--fast", "--json"))["ok"], "which reads no data"
    shutil.rmtree(tmp_path)
    tar = write_tar(tmp_path / "in.tar", [("a", {"jpg": b"no picture"})])
    (file,) = json.loads(run("verify", tar, "--json", code=1))["files"]
    assert [fault["message"] for fault in file["faults"]] == ["sample a: no_cats failed: KeyError: 'txt'"]


@pytest.mark.parametrize("pure", ["", "1"])
def test_a_check_sees_every_record_and_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pure: str) -> None:
    monkeypatch.setenv("TAR2TF_PURE", pure)
    entries = [(f"{number:03}", {"txt": b"secret" if number in (70, 90) else b"plain"}) for number in range(100)]
    tar, record = write_tar(tmp_path / "in.tar", entries), tmp_path / "x.record"
    run("convert", tar, "-o", record)
    for path in (record, tar):
        (found,) = json.loads(run("verify", path, "--json", code=1))["files"]
        assert [fault["kind"] for fault in found["faults"]] == ["secret", "secret"]


def test_a_check_sees_every_record_of_another_format(tmp_path: Path) -> None:
    entries = [(f"{number}", {"txt": b"cat" if number in (1, 3) else b"dog"}) for number in range(5)]
    run("convert", write_tar(tmp_path / "in.tar", entries), "-o", tmp_path / "x.ljson")
    (file,) = json.loads(run("verify", tmp_path / "x.ljson", "--json", code=1))["files"]
    size = (tmp_path / "x.ljson").stat().st_size // 5
    found = [(fault["kind"], fault["message"], fault["record"], fault["offset"]) for fault in file["faults"]]
    assert found == [("cat", f"sample {number}: it is about a cat", number, size * number) for number in (1, 3)]
    assert [fault["key"] for fault in file["faults"]] == ["1", "3"]
    assert file["records"] == 5


def test_a_plugin_that_cannot_be_used_is_named_with_its_package(tar: Path, tmp_path: Path, installed: Path) -> None:
    (installed / "broken.py").write_text("import nowhere_to_be_found\n")
    (installed / "empty.py").write_text("")
    points = "[tar2tf.{0}]\nbroken = broken:X\nempty = empty:X\n"
    declare(installed, "others", points.format("ops") + points.format("stores") + points.format("presets"))
    remedy = "  install another version of others, or uninstall it\n"
    lacking = "ModuleNotFoundError: No module named 'nowhere_to_be_found'"
    for arguments, error in (
        (("--op", "broken:txt"), f"'broken' of the package others cannot be used: {lacking}"),
        (("--op", "empty:txt"), "'empty' of the package others cannot be used: AttributeError: module 'empty' has no "),
        (("--preset", "broken"), f"'broken' of the package others cannot be used: {lacking}"),
    ):
        command = [sys.executable, "-m", "tar2tf_cli", "convert", tar, "-o", tmp_path / "x.record", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert (done.returncode, done.stderr.startswith(f"error: {error}")) == (2, True), done.stderr
        assert done.stderr.endswith(remedy)
    assert not (tmp_path / "x.record").exists()


class TestAddedStore(SourceSuite):
    """The suite of sources holds a store that is added, too."""

    @pytest.fixture(autouse=True)
    def added(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SHELF", str(tmp_path))

    @pytest.fixture
    def bucket(self) -> str:
        return "shelf://any"

    def put(self, bucket: str, name: str, data: bytes) -> None:
        path = Path(os.environ["SHELF"], bucket.partition("shelf://any")[2].strip("/"), name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


class TestAddedOp(OpSuite):
    """The suite of ops holds an op that is added, too."""

    @pytest.fixture
    def op(self, installed: None) -> Op:
        return parse_op("upper:txt")

    @pytest.fixture
    def sample(self) -> Sample:
        return {"__key__": "a", "txt": b"words", "cls": b"1"}


def test_a_shard_that_only_its_name_identifies_is_read_by_every_command(
    tar: Path, tmp_path: Path, installed: Path
) -> None:
    module = installed / "parts" / "ljson.py"
    text = module.read_text().replace('listed_as="*.ljson",', 'listed_as="*.ljson", named_only=True,')
    module.write_text(text.replace("return not damaged and", "return False and"))
    shard = tmp_path / "x.ljson"
    run("convert", tar, "-o", shard)
    run("verify", shard)
    assert "two" not in run("inspect", shard, "--json")
    script = "import sys, tar2tf_cli; print([sample['txt'] for sample in tar2tf_cli.open_records(sys.argv[1])])"
    done = subprocess.run([sys.executable, "-c", script, shard], capture_output=True, text=True, timeout=SECONDS)
    assert (done.stdout, done.stderr) == ("[b'one', b'three']\n", "")
