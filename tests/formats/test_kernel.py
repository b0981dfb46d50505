"""The kernel by itself: checksums, what it leaves to Python, and that it is never required."""

from __future__ import annotations

import os
from array import array
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels import SOURCE, built
from makers import files_of, member, tar_of
from shards import records, tar2tf
from tar2tf_cli.formats import kernel
from tar2tf_cli.formats.kernel.build import build
from tar2tf_cli.formats.tfrecord import crc32c

needs_compiler = pytest.mark.skipif(built() is None, reason="no C compiler")


@needs_compiler
@given(data=st.binary(max_size=200))
def test_checksums_by_hardware_and_by_table_are_right(data: bytes) -> None:
    native = built()
    assert native
    assert native.crc32c(data, True) == native.crc32c(data, False) == crc32c(data)


def test_records_are_framed_one_by_one(with_kernel: ModuleType, tmp_path: Path) -> None:
    data = tar_of(files_of(20))
    made, sizes, _, first, last, ascending, signatures, kind, offset, end = with_kernel.records(data, 0, 0, 0, b"")
    path = tmp_path / "a.record"
    path.write_bytes(made)
    assert [len(record) + 16 for record in records(path)] == list(array("Q", sizes))
    assert (first, last, ascending, signatures, kind) == ("0000", "0018", True, [(b"cls\0jpg\0", 19)], 0)
    assert (offset, end) == (18 * 2048, 19 * 2048)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", True),
        (tar_of(files_of(2))[:511], True),
        (tar_of(files_of(2))[:2047], True),
        (member(b"a.b") + member(b"a.c"), True),
        (tar_of([("a.b", b"")]), False),
        (bytes(1024), False),
        (member(b"x.b") + member(b"y.b"), None),
    ],
)
def test_without_a_whole_sample_it_says_whether_more_bytes_are_needed(
    data: bytes, found: bool | None, with_kernel: ModuleType
) -> None:
    assert with_kernel.records(data, 0, 0, 0, b"x.a") is found


def test_the_environment_turns_it_off(with_kernel: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernel.native() is with_kernel
    assert kernel.described().startswith("kernel in C")
    for value, used in {"1": False, "yes": False, "0": True, "": True}.items():
        monkeypatch.setenv("TAR2TF_PURE", value)
        assert (kernel.native() is not None) == used
    assert "TAR2TF_PURE" in tar2tf("--version", env={"TAR2TF_PURE": "1"}).stdout


def test_one_that_was_built_from_other_sources_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAR2TF_PURE", raising=False)
    monkeypatch.setattr(kernel, "import_module", lambda name: SimpleNamespace(api=0))
    monkeypatch.setattr(kernel, "_loaded", kernel._loaded.__wrapped__)
    assert kernel.native() is None
    assert "not built" in kernel.described()


def test_without_a_compiler_the_reason_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", str(tmp_path / "none"))
    assert "none" in (build(SOURCE, tmp_path / "_native.abi3.so") or "")
    assert os.listdir(tmp_path) == []


@needs_compiler
def test_one_that_cannot_be_compiled_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int begin(;")
    assert "error" in (build(tmp_path / "a.c", tmp_path / "_native.abi3.so") or "")
    assert os.listdir(tmp_path) == ["a.c"]


def test_the_source_stays_short() -> None:
    assert len(SOURCE.read_text().splitlines()) <= 400
