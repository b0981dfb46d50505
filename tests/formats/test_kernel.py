"""The kernel by itself: checksums, what it leaves to Python, and that it is never required."""

from __future__ import annotations

import os
import re
import struct
from array import array
from pathlib import Path
from types import ModuleType
from typing import Any

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands import tar2tf
from kernel_build import SOURCE, built, needs_compiler
from make_bytes import files_of, member, tar_of
from shards import records, samples, write_tar
from tar2tf_cli.formats import kernel
from tar2tf_cli.formats.example import frame
from tar2tf_cli.formats.kernel.build import build
from verify_runs import an_example, framed

pytestmark = pytest.mark.xdist_group("kernel")


@needs_compiler
@given(
    data=st.binary(max_size=200) | st.integers(1500, 5000).map(lambda size: bytes(range(251)) * (size // 251)),
    before=st.integers(0, 2**32 - 1),
)
def test_checksums_by_hardware_and_by_table_are_right(data: bytes, before: int) -> None:
    native = built()
    assert native
    assert native.extend(before, data) == native.extend(before, data, True) == google_crc32c.extend(before, data)


def test_samples_are_found_and_framed(with_kernel: ModuleType, tmp_path: Path) -> None:
    data = tar_of(files_of(20))
    buffer, rows, places, _, first, last, ascending, signatures, end = with_kernel.samples(data, 0, 0, 0, b"")
    assert buffer is data
    assert (first, last, ascending, signatures, end) == ("0000", "0018", True, [b"cls\0jpg\0"], 19 * 2048)
    assert [*array("q", rows)[::6]] == [2048 * number for number in range(19)]
    made, sizes = with_kernel.records(data, rows, places, signatures, 0)
    path = tmp_path / "a.record"
    path.write_bytes(made)
    assert [len(record) + 16 for record in records(path)] == list(array("Q", sizes))


def test_the_sizes_of_records_are_those_of_whole_ones(with_kernel: ModuleType) -> None:
    made = [b"".join(frame([data], len(data))) for data in (b"", b"a", bytes(300))]
    assert [*array("Q", with_kernel.sizes(b"".join(made)))] == [16, 17, 316]
    for wrong in (made[1][:-1], made[1] + b"\0", b"\xff" * 20):
        with pytest.raises(ValueError, match="end with a record"):
            with_kernel.sizes(wrong)


def found(native: ModuleType, *files: tuple[str, bytes]) -> tuple[bytes, bytes, bytes, list[bytes]]:
    """The data, rows, places and signatures of some samples."""
    data, rows, places, *_, signatures, _ = native.samples(tar_of([*files, ("z.z", b"")]), 0, 0, 0, b"")
    return data, rows, places, signatures


@pytest.mark.parametrize(
    "added",
    [
        *({"cls": b"1"}, {"__key__": b"1"}, {"a": "text"}, {1: b"a"}, {"\udc80": b""}, {"": b""}, {"a\0b": b""}),
        *(
            {"a": True},
            {"a": 1 << 63},
            {"a": 1e39},
            {"a": float("nan")},
            {"a": [1]},
            {"a": None},
            {"a": bytes(1 << 24)},
        ),
        *({"a" * 600: b""}, {str(number): b"" for number in range(65)}),
    ],
)
def test_entries_that_are_not_plainly_added_are_left_to_python(added: Any, with_kernel: ModuleType) -> None:
    assert with_kernel.widened(*found(with_kernel, ("a.cls", b"1")), [], [added]) is None


def test_entries_are_added_to_those_of_each_sample(with_kernel: ModuleType) -> None:
    batch = found(with_kernel, ("a.cls", b"1"), ("b.cls", b"2"), ("b.txt", b"3"))
    added: list[dict[str, Any] | None] = [{"é": b"x", "n": -1}, None]
    data, rows, places, signatures, lists = with_kernel.widened(*batch, [], added)
    assert signatures == [b"cls\0\xc3\xa9\0n\0", b"cls\0txt\0"]
    assert [[*array("q", each)] for each in lists] == [[0x0A, 1, 0x0A, 1, 0x1A, 1], [0x0A, 1, 0x0A, 1]]
    spans = array("q", places)
    values = [data[start : start + size] for start, size in zip(spans[::2], spans[1::2], strict=True)]
    assert values == [b"1", b"x", b"\xff" * 9 + b"\1", b"2", b"3"]
    assert with_kernel.records(data, rows, places, signatures, 0, None, lists)
    assert with_kernel.records(data, rows, places, signatures, 1, None, lists, 0) is None
    *_, again = with_kernel.widened(data, rows, places, signatures, lists, [{"b": 0.5}, {"b": 0.5}])
    assert [[*array("q", each)][-2:] for each in again] == [[0x12, 1]] * 2
    with pytest.raises(IndexError):
        with_kernel.widened(*batch, [], added[:1])


@pytest.mark.parametrize("name", ["é", "e" * 98])
def test_members_of_unusual_names_are_left_to_python(name: str, with_kernel: ModuleType) -> None:
    data, rows, places, signatures, _ = with_kernel.widened(*found(with_kernel, ("a.cls", b"1")), [], [{name: b"1"}])
    assert with_kernel.records(data, rows, places, signatures, 0)
    assert with_kernel.records(data, rows, places, signatures, 1) is None


@pytest.mark.parametrize("column", range(6))
def test_rows_that_are_not_those_of_the_data_are_refused(column: int, with_kernel: ModuleType) -> None:
    data, rows, places, signatures = found(with_kernel, ("a.cls", b"1"), ("a.jpg", b"2"), ("b.cls", b"3"))
    for wrong in (-1, 2**40, -(2**63), 2**63 - 1):
        numbers = array("q", rows)
        numbers[column] = wrong
        if column in (0, 5):  # which are not used for records
            assert with_kernel.records(data, numbers.tobytes(), places, signatures, 0)
        else:
            with pytest.raises(ValueError, match="rows"):
                with_kernel.records(data, numbers.tobytes(), places, signatures, 0)
            if column in (3, 4):
                with pytest.raises(ValueError, match="rows"):
                    with_kernel.widened(data, numbers.tobytes(), places, signatures, [], [None, None])
        numbers = array("q", places)
        numbers[column] = wrong
        with pytest.raises(ValueError, match="rows"):
            with_kernel.records(data, rows, numbers.tobytes(), signatures, 1)


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
    assert with_kernel.samples(data, 0, 0, 0, b"x.a") is found


def test_the_last_sample_is_whole_before_the_end_of_the_archive_and_of_the_data(with_kernel: ModuleType) -> None:
    data = member(b"1.a")
    for zeros in range(45):
        known = 2 <= zeros <= 40
        answer = with_kernel.samples(data + bytes(512 * zeros), 0, 0, 0, b"", True)
        assert (answer[-1] == len(data)) if known else (answer is (zeros == 0))
    for end in (bytes(1025), bytes(1536) + b"x" * 512, bytes(512) + b"x" + bytes(511)):
        assert with_kernel.samples(data + end, 0, 0, 0, b"", True) is False


def described(kind: int, count: int, size: int, name: bytes, values: list[int] | None = None) -> bytes:
    """What the kernel takes about a feature."""
    numbers = array("q", values or ()).tobytes()
    return struct.pack("=5i", kind, count, size, len(name), values is not None) + name + numbers


NAMES = [(0x1A, 1, -1, b"label"), (0x0A, 1, -1, b"jpg"), (-1, -1, 8, b"any"), (0x1A, 2, -1, b"shape", [300, -1])]
KNOWN = b"".join(described(*feature) for feature in NAMES)
KINDS = array("Q", [0b0011, 0b0111, 0b0100, 0b1000]).tobytes()


@pytest.mark.parametrize(
    ("features", "counts"),
    [
        ({"jpg": b"x", "label": 300}, [1, 0, 0, 0]),
        ({"label": 0, "jpg": b"", "any": [bytes(3), bytes(5)]}, [0, 1, 0, 0]),
        ({"any": bytes(8)}, [0, 0, 1, 0]),
        ({"shape": [300, 7]}, [0, 0, 0, 1]),
        ({"shape": [300, -1]}, [0, 0, 0, 1]),
        ({"shape": [301, 7]}, None),
        ({"shape": [300]}, None),
        ({"shape": [300, 7, 7]}, None),
        ({"any": bytes(9)}, None),
        ({"label": 1}, None),
        ({"label": 1, "jpg": [b"x", b"y"]}, None),
        ({"label": [1, 2], "jpg": b"x"}, None),
        ({"label": 0.5, "jpg": b"x"}, None),
        ({"label": 1, "jpg": b"x", "other": b""}, None),
    ],
)
def test_examples_of_known_features_are_counted_by_their_kinds(
    features: dict[str, Any], counts: list[int] | None, with_kernel: ModuleType
) -> None:
    usual, data = framed(an_example(jpg=b"x", label=1)), framed(an_example(**features))
    place, found = with_kernel.examples(bytearray(b"." + usual + data + usual), 1, 1 + len(usual + data), KNOWN, KINDS)
    assert place == 1 + len(usual) + (len(data) if counts else 0)
    assert list(array("Q", found)) == [a + b for a, b in zip([1, 0, 0, 0], counts or [0] * 4, strict=True)]


def test_examples_end_at_damage_and_at_the_end(with_kernel: ModuleType) -> None:
    data = framed(an_example(jpg=bytes(5000), label=1))
    for place in range(0, len(data), 7):
        whole = bytearray(data + data)
        whole[len(data) + place] ^= 1
        assert with_kernel.examples(whole, 0, len(whole), KNOWN, KINDS)[0] == len(data)
        assert with_kernel.examples(bytearray(data), 0, place, KNOWN, KINDS)[0] == 0
    for arguments in ((0, 9, b"", b""), (9, 8, b"", b""), (-1, 8, b"", b""), (0, 8, b"", bytes(513 * 8))):
        with pytest.raises(ValueError, match=r"the bytes from|more than"):
            with_kernel.examples(bytearray(8), *arguments)
    shape = described(*NAMES[3])
    for names in (shape[:-1], shape[:-9], KNOWN[:30], KNOWN * 30, struct.pack("=5i", -1, -1, -1, -5, 0)):
        with pytest.raises(ValueError, match="names"):
            with_kernel.examples(bytearray(data), 0, 8, names, KINDS)


def test_the_environment_turns_it_off(with_kernel: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernel.native() is with_kernel
    assert kernel.described().startswith("kernel in C")
    for value, used in {"1": False, "yes": False, "0": True, "": True}.items():
        monkeypatch.setenv("TAR2TF_PURE", value)
        assert (kernel.native() is not None) == used


def test_version_and_verbose_runs_say_that_it_is_missing_and_what_that_costs(tmp_path: Path) -> None:
    shard = write_tar(tmp_path / "a.tar", samples(3))
    env = {"TAR2TF_PURE": "1"}
    said = "kernel in C turned off by TAR2TF_PURE: Python instead, which is slower"
    assert said in tar2tf("--version", env=env).stdout
    assert said in tar2tf("convert", shard, "-o", tmp_path / "x.record", "-v", env=env).stderr
    assert "kernel" not in tar2tf("convert", shard, "-o", tmp_path / "y.record", env=env).stderr


def test_one_that_was_built_from_other_sources_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAR2TF_PURE", raising=False)
    other = ModuleType("_native")
    other.__dict__["api"] = 0
    monkeypatch.setattr(kernel, "import_module", lambda name: other)
    monkeypatch.setattr(kernel, "built", kernel.built.__wrapped__)
    assert kernel.native() is None
    assert "not built" in kernel.described()


def test_without_a_compiler_the_reason_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "/nowhere/none")
    assert "none" in (build(SOURCE, tmp_path / "_native.abi3.so") or "")
    assert os.listdir(tmp_path) == []


@needs_compiler
def test_one_that_cannot_be_compiled_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int begin(;")
    reason = build(tmp_path / "a.c", tmp_path / "_native.abi3.so") or ""
    assert reason.splitlines()[0].startswith(f"{tmp_path / 'a.c'}:1:")
    assert os.listdir(tmp_path) == ["a.c"]


@pytest.mark.parametrize("source", [*SOURCE.parent.glob("*.[ch]")], ids=lambda source: source.name)
def test_each_file_of_the_sources_stays_short(source: Path) -> None:
    code = re.sub(r"/\*.*?\*/", "", source.read_text(), flags=re.DOTALL)
    assert sum(bool(re.search(r"\w", line)) for line in code.splitlines()) <= 450  # of code, without lone brackets


@pytest.mark.parametrize("wrong", [b"x" * 13, b"\xff" * 12, b"\0" * 8 + b"\x09\0\0\0abc", 7, b"\x09\0\0\0" * 3])
def test_maps_of_features_that_do_not_fit_the_entries_are_refused(with_kernel: ModuleType, wrong: Any) -> None:
    data = tar_of(files_of(5))
    _, rows, places, _, _, _, _, signatures, _ = with_kernel.samples(data, 0, 0, 0, b"")
    with pytest.raises((ValueError, IndexError)):
        with_kernel.records(data, rows, places, signatures, 0, [wrong])
    with pytest.raises((ValueError, IndexError)):
        with_kernel.records(data, rows, places, signatures, 0, [])
    with pytest.raises(TypeError):
        with_kernel.records(data, rows, places, signatures, 0, wrong)
    assert with_kernel.records(data, rows, places, signatures, 0, [None]) is None
