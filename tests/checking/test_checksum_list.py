"""`verify --against SHA256SUMS`: the bytes of the listed files, with sha256sum as the oracle."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from servers import FaultyServer
from shards import write_tar
from tar2tf_cli import verify
from tar2tf_cli.checking.checksum_list import parse_sums
from tar2tf_cli.checking.faults import Report

SUM = "0" * 64


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.tar", "b c.tar"):
        write_tar(tmp_path / name, [(name[0], {"txt": b"words"})])
    (tmp_path / "README.md").write_text("about the shards")
    return tmp_path


def write_sums(folder: Path, *names: str, options: tuple[str, ...] = ()) -> Path:
    done = subprocess.run(["sha256sum", *options, *names], cwd=folder, capture_output=True, text=True, check=True)
    (folder / "SHA256SUMS").write_text(done.stdout)
    return folder / "SHA256SUMS"


def faults(report: Report) -> dict[str, list[str]]:
    return {Path(file.path).name: [fault.kind for fault in file.faults] for file in report.files}


@pytest.mark.parametrize("options", [(), ("--binary",), ("--tag",)])
def test_files_that_are_as_listed_are_ok(folder: Path, options: tuple[str, ...]) -> None:
    sums = write_sums(folder, "a.tar", "./b c.tar", "README.md", options=options)
    report = verify(folder, against=sums)
    assert report.ok
    assert faults(report) == {"a.tar": [], "b c.tar": [], "README.md": []}


def test_a_changed_byte_that_the_format_does_not_notice_is_a_fault(folder: Path) -> None:
    sums = write_sums(folder, "a.tar", "b c.tar", "README.md")
    data = bytearray((folder / "a.tar").read_bytes())
    data[data.index(b"words")] ^= 1
    (folder / "a.tar").write_bytes(data)
    assert verify(folder).ok
    report = verify(folder, against=sums)
    assert faults(report) == {"a.tar": ["digest"], "b c.tar": [], "README.md": []}


def test_a_listed_file_that_is_not_there_is_a_fault(folder: Path) -> None:
    sums = write_sums(folder, "a.tar", "b c.tar")
    (folder / "b c.tar").unlink()
    report = verify(folder, against=sums)
    assert faults(report) == {"a.tar": [], "b c.tar": ["missing"]}
    assert [file.missing for file in report.files] == [False, True]


def test_the_list_and_the_shards_may_be_on_a_server(folder: Path, web: FaultyServer) -> None:
    write_sums(folder, "a.tar")
    for name in ("a.tar", "SHA256SUMS"):
        web.objects[f"in/{name}"] = (folder / name).read_bytes()
    url = f"{web.url}/in"
    assert verify(url, "a.tar", against=f"{url}/SHA256SUMS").ok
    web.objects["in/SHA256SUMS"] = f"{SUM}  a.tar\n".encode()
    assert faults(verify(url, "a.tar", against=f"{url}/SHA256SUMS")) == {"a.tar": ["digest"]}


@pytest.mark.parametrize("text", ["", "words\n", f"{SUM} a\n{SUM[1:]}  b\n", f"{SUM}\n"])
def test_any_other_file_is_no_list(text: str) -> None:
    assert parse_sums(text) is None


def test_names_are_as_sha256sum_escapes_them() -> None:
    text = f"# of 2026\n\\{SUM}  a\\nb\\\\c\n{SUM} *d\\n\r\n"
    assert parse_sums(text) == {"a\nb\\c": SUM, "d\\n": SUM}
