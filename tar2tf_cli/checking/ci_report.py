"""Writes a report for a CI server: JUnit XML, SARIF 2.1.0 or JSON, by the suffix of the file."""

from __future__ import annotations

import json
import time
from typing import Any
from urllib.parse import quote
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from tar2tf_cli.checking.faults import Fault, FileReport, Report
from tar2tf_cli.formats.files import write_whole
from tar2tf_cli.spec import __version__


def write_report(report: Report, path: str) -> None:
    """Write a report; the suffix `.xml` means JUnit, `.sarif` SARIF, and any other the JSON of `verify --json`.

    Raises:
        SinkError: when the file cannot be written.
    """
    if path.lower().endswith(".xml"):
        data = _junit(report)
    else:
        document = _sarif(report) if path.lower().endswith((".sarif", ".sarif.json")) else report.to_json()
        data = json.dumps(document, indent=1).encode("utf-8", "backslashreplace")
    write_whole(path, [data, b"\n"])


# --- JUnit XML, valid by the schemas of Ant (https://github.com/windyroad/JUnit-Schema) and Jenkins ---


def _junit(report: Report) -> bytes:
    root = Element("testsuites")
    faulty = sum(1 for file in report.files if file.faults)
    now = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    about = {"package": "tar2tf", "id": "0", "name": "tar2tf verify", "timestamp": now, "hostname": "localhost"}
    numbers = {"tests": f"{len(report.files)}", "failures": f"{faulty}", "errors": "0", "time": "0"}
    suite = SubElement(root, "testsuite", about | numbers)
    SubElement(SubElement(suite, "properties"), "property", name="version", value=__version__)
    for file in report.files:
        case = SubElement(suite, "testcase", classname="tar2tf.verify", name=_valid(file.path), time="0")
        if file.faults:
            lines = [_valid(f"{fault} ({fault.kind})") for fault in file.faults]
            failure = SubElement(case, "failure", type=_valid(file.faults[0].kind), message=lines[0])
            failure.text = "\n".join(lines)
    SubElement(suite, "system-out")
    SubElement(suite, "system-err")
    indent(root)
    data: bytes = tostring(root, encoding="UTF-8", xml_declaration=True)
    return data


def _valid(text: str) -> str:
    """Text without the characters that XML cannot hold."""
    return (
        "".join(part if part >= " " or part in "\t\n" else repr(part)[1:-1] for part in text)
        .encode("utf-8", "backslashreplace")
        .decode()
    )


# --- SARIF: https://docs.oasis-open.org/sarif/sarif/v2.1.0/ ---


def _sarif(report: Report) -> dict[str, Any]:
    kinds = sorted({fault.kind for file in report.files for fault in file.faults})
    rules = [{"id": kind, "shortDescription": {"text": kind.replace("_", " ")}} for kind in kinds]
    results = [_result(file, fault, kinds) for file in report.files for fault in file.faults]
    driver = {"name": "tar2tf verify", "version": __version__, "rules": rules}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }


def _result(file: FileReport, fault: Fault, kinds: list[str]) -> dict[str, Any]:
    location: dict[str, Any] = {
        "artifactLocation": {"uri": quote(file.path, safe="/:@!$&'()*+,;=~-._", errors="surrogateescape")}
    }
    if fault.offset is not None:
        location["region"] = {"byteOffset": fault.offset, "byteLength": fault.lost or 0}
    return {
        "ruleId": fault.kind,
        "ruleIndex": kinds.index(fault.kind),
        "level": "error",
        "message": {"text": _valid(str(fault))},
        "locations": [{"physicalLocation": location}],
        "properties": {name: value for name, value in fault.to_json().items() if name not in ("kind", "message")},
    }
