"""Batches that the kernel makes are what single members give, byte for byte, in reports and errors too."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diff_rows import rows_in
from flow_outcome import outcome
from hypothesis_profile import example_count
from kernel_build import built, needs_compiler
from make_bytes import END, File, files_of, long_name, member, padded, pax, tar_of
from tar2tf_cli.api.values import KeySplit
from tar2tf_cli.checking import inspect as inspect_module
from tar2tf_cli.checking.faults import Expectations, FileReport
from tar2tf_cli.checking.verify import verify
from tar2tf_cli.checking.verify_tar import check_tar
from tar2tf_cli.errors import Tar2tfError, UsageError
from tar2tf_cli.features.described import Expected
from tar2tf_cli.formats import kernel
from tar2tf_cli.formats.streams import Cursor
from tar2tf_cli.inputs.open_shard import OpenShard
from tar2tf_cli.inputs.tar_index import find_in_batches, find_samples, index_lines
from tar2tf_cli.inputs.tar_samples import TarRules
from tar2tf_cli.ops import parse_op
from tar2tf_cli.stores import open_source

pytestmark = [needs_compiler, pytest.mark.xdist_group("kernel")]


def same(path: Path, **options: Any) -> int:
    """Read a tar with and without the kernel, which must agree; returns how many records the kernel made."""
    many = 0
    for output in ("out.tar", "out.record"):
        expected, none = outcome(path, None, output=output, **options)
        made, many = outcome(path, built(), output=output, **options)
        assert none == 0
        assert made == expected
    return many


# --- Tars that are plain ---


def test_all_samples_of_a_plain_tar_come_in_batches(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(tar_of(files_of(500, 700), tarfile.USTAR_FORMAT))
    assert same(path) == 500
    assert same(path, key_split="last") == 500
    assert same(path, chunk=4096) > 400


_ANOTHER = member(b"1.a") + member(b"1.b")


@pytest.mark.parametrize("last", [b"1.b", b"2.a"])
@pytest.mark.parametrize(
    "end",
    [
        *(b"", b"x", bytes(100), bytes(512), bytes(1023), bytes(1024), bytes(1025), bytes(1536), bytes(10240)),
        *(bytes(20480), bytes(20992), bytes(1 << 20), bytes(1025 << 10)),
        *(bytes(1024) + b"garbage", bytes(2048) + b"\1", bytes(512) + _ANOTHER, bytes(1024) + _ANOTHER + END),
        *(bytes(1024) + member(b"1.d") + END, bytes(1024) + member(b"2.b"), bytes(2048) + member(b"3.a") + END),
    ],
)
def test_a_last_sample_is_whole_only_where_an_archive_ends(end: bytes, last: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    for before in (b"", _ANOTHER.replace(b"1.", b"0.") + member(b"1.a")):
        path.write_bytes(before + member(last) + end)
        same(path)
        same(path, on_error="skip", ignore_missing_end=True)


def test_compressed_tars_and_further_archives_come_in_batches(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    files = files_of(300)
    data = tar_of(files[:200], tarfile.GNU_FORMAT) + tar_of(files[200:], tarfile.GNU_FORMAT)
    path.write_bytes(gzip.compress(data, 1))
    assert same(path) > 290


def test_keys_that_are_not_sorted_come_in_batches_as_well(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(tar_of([(f"{number}.{name}", b"x") for number in range(1000) for name in ("b", "a")]))
    assert same(path) == 1000


def test_the_kernel_is_used_again_behind_members_that_are_not_plain(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    files = files_of(1000)
    for number in range(len(files), -1, -200):
        files.insert(number, ("x" * 120 + f"{number}.cls", b"long name"))
    path.write_bytes(tar_of(files))
    assert same(path) > 900


def test_headers_that_add_only_times_are_plain_as_webdataset_writes_them(tmp_path: Path) -> None:
    webdataset = pytest.importorskip("webdataset")
    path = tmp_path / "a.tar"
    with webdataset.TarWriter(str(path)) as writer:
        for number in range(300):
            writer.write({"__key__": f"{number:06}", "jpg": bytes(500), "cls": number % 10})
    assert b"mtime=" in path.read_bytes()[:1024]
    assert same(path) == 300
    assert same(path, chunk=1536) == 299


# --- Tars that are not ---

KEYS = ["a", "b", "c", "d/e", "d/f", "a.b", "ü", "._x", "__meta__", "", "k" * 94, "k" * 200]
EXTENSIONS = ["jpg", "cls", "JPG", "jpg.x", "__key__", "ä", "", "e" * 10, "a/b", "png"]


def odd_members(name: bytes, data: bytes) -> list[bytes]:
    """Members of a name, and few that are plain."""
    return [
        member(name[:100], data),
        member(name[:100], data, magic=b"ustar  \0"),
        member(name[:100], data, prefix=b"p"),
        member(name[:100], data, checksum="{:07o}\0"),
        member(name[:100], data, checksum=" {:o}\0"),
        member(name[:100], data, signed=True),
        member(name[:100], data, size=b"%11o " % len(data)),
        member(name[:100], data, size=b"\x80" + len(data).to_bytes(11, "big")),
        member(name[:100], b"", b"5"),
        member(name[:100], b"", b"2"),
        member(name[:100], b"", b"1"),
        member(name[:100], data, b"\0"),
        member(name[:100], data, b"7"),
        member(name[:100], data, b"Z"),
        member(b"\xff" + name[:90], data),
        pax({"path": name.decode()}) + member(b"short", data),
        pax({"comment": "global"}, b"g"),
        pax({"mtime": "1.5", "size": "3"}) + member(b"000.b", data),
        pax({"mtime": "1.5"}) + pax({"path": "000.d"}) + member(b"000.c", data),
        pax({"ntime": "1.5"}) + member(b"000.c", data),
        pax({}) + member(name[:100], data),
        member(b"x", b"28 mtime=1795323705.8820155\n" + data[:3], b"x") + member(b"0.c"),
        long_name(name) + member(name[:100], data),
        member(b"a.b.c", data) + member(b"d/._b.jpg", data),
        padded(END),
        b"",
    ]


@st.composite
def some_members(draw: st.DrawFn) -> list[bytes]:
    """Members of a tar, most of them plain and in order, as bytes with their headers."""
    members = []
    plain = draw(st.integers(0, 30))
    for number in range(plain):
        for extension in draw(st.sampled_from([("cls", "jpg"), ("jpg",), ("jpg", "cls"), ("b", "a", "c")])):
            data = bytes([number]) * draw(st.sampled_from([0, 1, 511, 512, 513, 40_000]))
            times = pax({"mtime": f"{number}.5", "atime": "1"}) if draw(st.booleans()) else b""
            members.append(times + member(b"%03d.%s" % (number, extension.encode()), data))
    for _ in range(draw(st.integers(0, 6))):
        key, extension = (
            draw(st.sampled_from([*KEYS, *(f"{n:03}" for n in range(plain))])),
            draw(st.sampled_from(EXTENSIONS)),
        )
        name = f"{key}.{extension}".encode()
        data = draw(st.binary(max_size=600))
        odd = draw(st.sampled_from(odd_members(name, data)))
        members.insert(draw(st.integers(0, len(members))), odd)
    return members


@st.composite
def some_tar(draw: st.DrawFn) -> bytes:
    """A tar, in which some bytes may have been changed, and which may be cut."""
    members = draw(some_members())
    data = bytearray(b"".join(members) + draw(st.sampled_from([END, END, END, END[:512], b"", bytes(10240)])))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 3]))):
        if data:
            place = draw(st.integers(0, len(data) - 1))
            data[place // 512 * 512 + place % 160 if draw(st.booleans()) else place] = draw(st.integers(0, 255))
    if data and draw(st.sampled_from([False, False, False, True])):
        del data[draw(st.integers(0, len(data) - 1)) :]
    return bytes(data)


@example_count(150)
@given(
    data=some_tar(),
    key_split=st.sampled_from(["first", "last"]),
    on_error=st.sampled_from(["skip", "skip", "fail"]),
    regroup=st.sampled_from([None, False]),
    chunk=st.sampled_from([512, 1536, 4096, 70_000, 1 << 20]),
    compressed=st.sampled_from([False, False, True]),
)
def test_the_kernel_makes_of_any_tar_what_python_makes_of_it(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, compressed: bool, **options: Any
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.tar"
    if compressed:
        data = gzip.compress(data, 1)
        data = data[: -(data[10] % 40)] if data[10] % 5 == 0 else data
    path.write_bytes(data)
    same(path, **options)


@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_a_last_sample_that_is_short_is_found_in_a_batch(on_error: str, tmp_path: Path) -> None:
    files: list[File] = [*files_of(50), ("0050.cls", b"1"), ("0051.cls", b"1"), ("0051.jpg", b"1"), ("0051.jpg", b"1")]
    path = tmp_path / "a.tar"
    for end in (len(files), len(files) - 1, len(files) - 3):
        path.write_bytes(tar_of(files[:end], tarfile.USTAR_FORMAT))
        assert same(path, on_error=on_error) > 0 or on_error == "fail"


@pytest.mark.parametrize("cut", [100, 512, 600, 1024])
def test_a_sample_before_a_member_that_is_cut_short_is_treated_alike(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(tar_of([(f"{number}.jpg", b"x") for number in range(5)], tarfile.USTAR_FORMAT, end=b"")[:-cut])
    assert same(path, on_error="skip") > 0


@pytest.mark.parametrize("name", [b"__meta__.jpg", b"1.\xff", b"\xff.jpg", b"._0.jpg", b".jpg"])
def test_a_member_that_is_skipped_within_a_sample_does_not_end_it(name: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    plain = [member(b"%d.%s" % (number, extension), b"x") for number in range(9) for extension in (b"cls", b"jpg")]
    for place in (1, 2, 7):
        path.write_bytes(b"".join([*plain[:place], member(name, b"x"), *plain[place:]]) + END)
        same(path, on_error="skip")


ODD_NAMES = [
    b"003.PNG",
    b"003.b.c",
    b"d/._003.jpg",
    b"._003.b",
    b"003.__key__",
    b"003.cls",
    b"003.",
    b"e.f/3.jpg",
    b"003",
]


@pytest.mark.parametrize("key_split", ["first", "last"])
def test_an_odd_member_is_treated_alike_between_plain_ones(key_split: str, tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    plain = [member(b"%03d.%s" % (number, extension), b"x") for number in range(6) for extension in (b"cls", b"jpg")]
    for odd in [*odd_members(b"003.b", b"12345"), *(member(name, b"12345") for name in ODD_NAMES)]:
        for place in (7, 8):
            path.write_bytes(b"".join([*plain[:place], odd, *plain[place:]]) + END)
            same(path, on_error="skip", key_split=key_split)


def test_errors_behind_a_batch_name_the_same_offset(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    data = bytearray(tar_of(files_of(50), tarfile.USTAR_FORMAT, end=b"") + bytes(512) + member(b"x" * 90))
    path.write_bytes(data + END)
    assert same(path, on_error="skip") > 40


# --- Features that are not the entries as they are ---

ENTRIES = ("jpg", "cls", "txt")
CHANGES: dict[str, dict[str, Any]] = {
    "an integer": {"types": {"cls": "int64"}},
    "a float": {"types": {"txt": "float"}},
    "both, and bytes": {"types": {"cls": "int64", "txt": "float", "jpg": "bytes"}},
    "a selection": {"select": {"label": "cls", "image": "jpg"}, "types": {"label": "int64"}},
    "a selection with the key": {"select": {"a": "jpg", "__key__": "__key__", "key": "__key__", "again": "jpg"}},
    "a selection of another key": {"select": {"__key__": "txt", "a": "cls"}, "split": {"a": 0.5, "b": 0.5}},
    "a rename": {"ops": ["rename:image=png,jpg", "rename:z=cls"], "types": {"z": "int64"}},
    "a rename over an entry": {"ops": ["rename:jpg=cls"], "types": {"jpg": "int64"}},
    "a rename that copies the key": {"ops": ["rename:name=__key__"]},
    "some kept": {"ops": ["keep:cls,prefix:j"], "types": {"cls": "int64"}},
    "some kept by value": {"ops": ["keep:jpg,cls=7"]},
    "nothing kept": {"ops": ["keep:nothing", "drop_empty"]},
    "a filter, then a rename": {"ops": ["filter:cls>=5", "rename:label=cls"], "types": {"label": "int64"}},
    "a rename, then a filter": {"ops": ["rename:label=cls", "filter:label>=5"]},
    "a type that is missing": {"types": {"nothing": "int64"}},
    "a part": {"types": {"cls": "int64"}, "sample": 0.5},
    "duplicates": {"types": {"cls": "int64"}, "drop_duplicates": "*"},
}
NUMBERS = [
    *(b"0", b"-0", b"7", b"-7", b"007", b"+7", b"7\n", b" 7", b"7 \r\n", b"7\x0b", b"", b"-", b"1 2", b"1,", b"[3]"),
    *(
        b"9" * 18,
        b"-" + b"9" * 18,
        b"9" * 19,
        b"9" * 30,
        b"1_0",
        "\u0667".encode(),
        b"7.0",
        b"1e3",
        b"x",
        b"\xff",
        b"7\0",
    ),
    *(
        b"1.5",
        b".5",
        b"5.",
        b".",
        b"-1e-5",
        b"1e39",
        b"-1e39",
        b"1e400",
        b"3.4028235e38",
        b"3.4028236e38",
        b"nan",
        b"inf",
    ),
    *(b"1e", b"e1", b"1e+", b"0x10", b"16777217", b"1e-50", b"0.1" + b"0" * 50, b"1" * 39, b"--1", b"null", b"true"),
]


def changed(change: str, **options: Any) -> dict[str, Any]:
    """The options of a conversion with a change of features."""
    given = {**CHANGES[change], **options}
    return {**given, "ops": [parse_op(op) for op in given.get("ops", ())]}


def agree(path: Path, **options: Any) -> int:
    """Convert a tar with and without the kernel, which must agree; returns how many samples the kernel converted."""
    suffix = options.pop("suffix", "record")
    options["output"] = f"out-<split>-<>.{suffix}" if options.get("split") else f"out.{suffix}"
    made, many = outcome(path, built(), **options)
    assert made == outcome(path, None, **options)[0]
    return many


@pytest.mark.parametrize("suffix", ["record", "tar"])
@pytest.mark.parametrize("change", CHANGES)
def test_features_that_names_determine_come_in_batches(change: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    values = [(b"image", b"%d" % (number - 9), b"%d.25" % number) for number in range(300)]
    files = [
        (f"{n:04}.{name}", value) for n, each in enumerate(values) for name, value in zip(ENTRIES, each, strict=True)
    ]
    path.write_bytes(tar_of(files, tarfile.USTAR_FORMAT))
    for on_error in ("fail", "skip"):
        many = agree(path, suffix=suffix, **changed(change, on_error=on_error))
    rest = (
        "a selection of another key",
        "some kept by value",
        "nothing kept",
        "a rename, then a filter",
        "a type that is missing",
    )
    assert (many == 0) == (change in rest), many


@pytest.mark.parametrize("change", ["an integer", "a float", "both, and bytes", "a filter, then a rename"])
@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize("suffix", ["record", "tar"])
def test_text_becomes_the_number_that_python_reads_or_the_same_error(
    change: str, on_error: str, suffix: str, tmp_path: Path
) -> None:
    for text in NUMBERS:
        path = tmp_path / "a.tar"
        files = [
            (f"{number:03}.{name}", text if number == 5 else b"%d" % number) for number in range(9) for name in ENTRIES
        ]
        path.write_bytes(tar_of(files, tarfile.USTAR_FORMAT))
        agree(path, suffix=suffix, **changed(change, on_error=on_error))


@pytest.mark.parametrize("key_split", ["first", "last"])
@pytest.mark.parametrize("name", ["a.b", "A", "_x", "x/shape", "\u00e4", "n" * 95, "__meta__", " ", "label", "a\0b"])
def test_renamed_members_of_any_name_and_key_are_written_alike(name: str, key_split: str, tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    keys = ["0", "a/b", " a", "a ", "\u00e4", "d.e/f", "d/", "k" * 70, "a\x7f", "."]
    keys += ["1.2", "a."] if key_split == "last" else []
    for key in keys:
        files = [(f"{each}.{entry}", b"7") for each in ("00", "01", key, "zz") for entry in ENTRIES]
        path.write_bytes(tar_of(files, tarfile.USTAR_FORMAT))
        for change in ({"select": {name: "cls", "t": "txt"}}, {"select": {"x": "jpg", name: "__key__"}}):
            agree(path, suffix="tar", on_error="skip", key_split=key_split, **change)


@example_count(150)
@given(
    data=st.data(),
    suffix=st.sampled_from(["record", "tar"]),
    change=st.sampled_from(sorted(CHANGES)),
    on_error=st.sampled_from(["skip", "skip", "fail"]),
    chunk=st.sampled_from([1536, 70_000]),
    first=st.booleans(),
)
def test_the_kernel_makes_the_features_of_any_tar_that_python_makes(
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
    suffix: str,
    change: str,
    on_error: str,
    chunk: int,
    first: bool,
) -> None:
    files: list[File] = []
    numbers = st.integers(-(2**63), 2**63 - 1).map(str) | st.floats(width=32).map(str)
    values = st.sampled_from(NUMBERS) | numbers.map(str.encode) | st.binary(max_size=9)
    for number in range(data.draw(st.integers(0, 12))):
        names = data.draw(st.sampled_from([ENTRIES, ENTRIES, ("jpg", "cls"), ("cls", "txt", "png"), ("Txt",)]))
        files += [(f"{number:03}.{name}", data.draw(values)) for name in names]
    path = tmp_path_factory.getbasetemp() / "any.tar"
    path.write_bytes(tar_of(files, tarfile.USTAR_FORMAT))
    agree(path, suffix=suffix, **changed(change, on_error=on_error, chunk=chunk, first=first))


# --- What verify, inspect, index and diff find ---


def found(path: Path, native: ModuleType | None, rules: TarRules, chunk: int) -> list[Any]:
    """Everything that verify, inspect, index and diff find in a tar."""
    with (
        patch.object(kernel, "built", lambda: native),
        patch.object(Cursor, "CHUNK", chunk),
        patch.object(inspect_module, "LOOKS", 2),
    ):
        contents = inspect_module.inspect(path, rules=rules, workers=1, damaged=True)
        checked = verify(path, rules=rules, workers=1).to_json()
        rows = rows_in(path, rules), rows_in(path, rules, {"cls": "int64", "txt": "float", "json": None})
        return [checked, contents.to_json(), index_of(path, rules.key_split), *rows]


def index_of(path: Path, key_split: KeySplit) -> Any:
    """The samples that are found from the headers of a tar and the lines about them, or why there is no index of it."""
    with path.open("rb", buffering=0) as tar:
        try:
            samples = list(find_samples(tar, "x", key_split))
            tar.seek(0)
            return samples, b"".join(index_lines(find_in_batches(tar, "x", key_split))).splitlines()
        except Tar2tfError as error:
            return type(error), str(error), error.hint


@example_count(100)
@given(
    data=some_tar(),
    key_split=st.sampled_from(["first", "last"]),
    regroup=st.sampled_from([None, False]),
    chunk=st.sampled_from([512, 4096, 70_000, 1 << 20]),
    compressed=st.sampled_from([False, False, True]),
)
def test_what_reads_tars_finds_the_same_in_any_tar_with_the_kernel_and_without(
    tmp_path_factory: pytest.TempPathFactory,
    data: bytes,
    key_split: KeySplit,
    regroup: bool | None,
    chunk: int,
    compressed: bool,
) -> None:
    path, rules = tmp_path_factory.getbasetemp() / "checked.tar", TarRules(key_split, regroup)
    path.write_bytes(gzip.compress(data, 1) if compressed else data)
    assert found(path, built(), rules, chunk) == found(path, None, rules, chunk)


@pytest.mark.parametrize(
    ("names", "blank"),
    [
        (["000.jpg", "000.cls", "001.JPG", "002.a.b"], False),
        (["folder/000.jpg", "é/1.jpg", "x" * 95 + ".jpg"], False),
        (["000.jpg", "0 1.jpg", "002.jpg"], True),
        (["000.jpg", "001.a\tb", "002.jpg"], True),
        (["000.jpg", "a\u00a0b.jpg", "002.jpg"], True),
    ],
)
def test_lines_of_an_index_have_the_same_names_with_the_kernel(tmp_path: Path, names: list[str], blank: bool) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(tar_of([(name, b"12345") for name in [*names, "z.jpg"]], tarfile.GNU_FORMAT))
    found = []
    for native in (built(), None):
        with patch.object(kernel, "built", lambda native=native: native):
            found.append(index_of(path, "first"))
    assert found[0] == found[1]
    assert (found[0][0] is UsageError) == blank


def test_a_schema_is_held_against_the_names_in_batches(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    samples = [(f"{number:03}", ("jpg", "cls") if number % 50 else ("jpg", "cls", "new")) for number in range(200)]
    path.write_bytes(tar_of((f"{key}.{name}", b"1") for key, names in samples for name in names))
    expectations = Expectations(dict.fromkeys(["__key__", "jpg", "cls"], Expected()))
    reports = []
    for native in (built(), None):
        report = FileReport(str(path), "tar")
        with (
            patch.object(kernel, "built", lambda native=native: native),
            OpenShard(open_source(str(path)), open_source(str(path)).list(())[0]) as shard,
        ):
            check_tar(shard, TarRules(), report, expectations)
        report.close()
        reports.append(report)
    assert reports[0] == reports[1]
    assert reports[0].counts["schema"] == 4
