"""`verify --against SHA256SUMS`: the bytes of the listed files, with sha256sum as the oracle."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from servers import FaultyServer
from shards import write_tar
from tar2tf_cli import Events, verify
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
    missing, stays = report.files[1], report.files[0]
    assert (missing.path, missing.bytes, stays.bytes) == (str(folder / "b c.tar"), 0, 10240)
    assert missing.faults[0].message == "the file is in the list of checksums, but does not exist"


def test_both_checksums_of_a_changed_file_are_named(folder: Path) -> None:
    write_sums(folder, "README.md").write_text(f"{SUM}  README.md\n")
    (tar, other, readme) = verify(folder, against=folder / "SHA256SUMS").files
    made = hashlib.sha256(b"about the shards").hexdigest()
    assert (tar.faults, other.faults) == ([], [])
    assert (readme.path, readme.bytes) == (str(folder / "README.md"), 16)
    words = f"the file's SHA-256 is {made}, but {SUM} in the list of checksums"
    assert [(fault.kind, fault.message) for fault in readme.faults] == [("digest", words)]


@pytest.mark.parametrize(
    ("listed", "notes"),
    [
        (["a.tar", "b c.tar"], []),
        (["a.tar"], ["note: the list of checksums lacks b c.tar"]),
        (["README.md"], ["note: the list of checksums lacks a.tar, b c.tar"]),
    ],
)
def test_shards_that_are_not_listed_are_named_in_a_note(folder: Path, listed: list[str], notes: list[str]) -> None:
    said = []

    class Notes(Events):
        def note(self, text: str) -> None:
            said.append(text)

    assert verify(folder, against=write_sums(folder, *listed), events=Notes()).ok
    assert said == notes


def test_a_listed_file_that_cannot_be_read_is_a_fault(folder: Path, web: FaultyServer) -> None:
    sums = write_sums(folder, "a.tar", "README.md").read_bytes()
    web.objects |= {"in/SHA256SUMS": sums, "in/a.tar": (folder / "a.tar").read_bytes(), "in/README.md": b"about"}
    web.fail("GET in/README.md", "status", times=-1, status=403)
    report = verify(f"{web.url}/in", "a.tar", against=f"{web.url}/in/SHA256SUMS")
    assert faults(report) == {"a.tar": [], "README.md": ["unreadable"]}


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
