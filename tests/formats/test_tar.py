"""Tars as the world writes them against tarfile and the tar program; every cut and every damaged header found out."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import tarfile
import tracemalloc
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypothesis_profile import example_count
from make_bytes import END, Dribble, gzipped, header, long_name, member, pax, tar_of
from tar2tf_cli.errors import DamagedShardError, EntryError, SampleError, SourceError
from tar2tf_cli.formats.streams import Cursor, open_stream
from tar2tf_cli.formats.tar import BLOCK, Member, MemberPolicy, TarReader
from tar_reading import FILES, WHOLE, SmallChunks, archive, damage, files, read

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}

each_format = pytest.mark.parametrize("format", FORMATS.values(), ids=FORMATS)

components = st.text(st.characters(exclude_characters="/\0\n", exclude_categories=["Cs"]), min_size=1, max_size=12)
member_names = st.one_of(
    st.lists(components.filter(lambda part: part not in (".", "..")), min_size=1, max_size=3).map("/".join),
    st.integers(90, 600).map(lambda length: "x/" * (length // 2) + "long.jpg"),
    st.integers(90, 300).map(lambda length: "n" * length + ".jpg"),
)
file_lists = st.lists(st.tuples(member_names, st.binary(max_size=40) | st.integers(500, 1600).map(bytes)), max_size=6)


def skipped(data: bytes) -> Counter[str]:
    reader = TarReader(io.BytesIO(data), "x.tar")
    list(reader)
    return reader.skipped


class Refused(MemberPolicy):
    """Wants each member, and keeps the errors of those that cannot be read."""

    def __init__(self) -> None:
        self.errors: list[EntryError] = []

    def wants(self, name: str) -> bool:
        return True

    def refuse(self, error: EntryError) -> None:
        self.errors.append(error)


def refused(data: bytes, **options: bool) -> tuple[list[str], list[EntryError]]:
    """The names of the members of a tar, and the errors of those that cannot be read."""
    entries = Refused()
    reader = TarReader(io.BytesIO(data), "x", entries=entries, **options)
    return [name for name, *_ in reader], entries.errors


def by_tarfile(data: bytes) -> list[Member]:
    """The regular files that tarfile reads, in the form of members, offsets those of their first headers."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return [
            (entry.name, archive.extractfile(entry).read(), entry.size, entry.offset)
            for entry in archive
            if entry.isreg()
        ]


def tar(folder: Path, *arguments: str) -> bytes:
    """What the tar program writes of a folder."""
    return subprocess.run(["tar", "-C", str(folder), "-cf", "-", *arguments], stdout=subprocess.PIPE, check=True).stdout


# --- Formats ---


@each_format
@given(files=file_lists)
def test_members_are_those_that_tarfile_reads(format, files):
    given, data = archive(files, format)
    assert read(data) == by_tarfile(data)
    assert [(name, content) for name, content, _, _ in read(data)] == given


@each_format
@given(files=file_lists, most=st.lists(st.integers(1, 2000), min_size=1, max_size=4))
@example_count(50)
def test_members_do_not_depend_on_how_many_bytes_a_read_returns(format, files, most):
    _, data = archive(files, format)
    assert list(SmallChunks(Dribble(data, most), "x.tar")) == read(data) == read(data, SmallChunks)


@each_format
@given(files=file_lists)
def test_headers_alone_give_the_same_members_and_offsets(format, files):
    _, data = archive(files, format)
    without_data = [(name, b"", size, offset) for name, _, size, offset in read(data)]
    assert read(data, headers_only=True) == without_data
    assert list(TarReader(open_stream(io.BytesIO(gzipped(data)), "x"), "x", headers_only=True)) == without_data


@each_format
def test_reading_can_begin_at_each_member_s_offset(format):
    names = ["a.jpg", "a.cls", "é" * 40 + ".jpg", "b.jpg", "folder/" * 12 + "c" * 90 + ".jpg", "d.jpg"]
    data = tar_of([(name, name.encode() * 30) for name in names], format)
    members = read(data)
    assert [name for name, _, _, _ in members] == names
    for number, (_, _, _, offset) in enumerate(members):
        for headers_only in (False, True):
            reader = TarReader(io.BytesIO(data), "x", headers_only=headers_only)
            reader.start_at(offset)
            wanted = [(name, b"" if headers_only else content, *place) for name, content, *place in members[number:]]
            assert list(reader) == wanted


PROGRAM = ["v7", "oldgnu", "gnu", "ustar", "posix"]


@pytest.mark.parametrize("format", PROGRAM)
def test_members_are_those_that_the_tar_program_wrote(format, tmp_path):
    contents = {"a.jpg": b"picture" * 500, "a.cls": b"1", "empty.txt": b"", ".hidden": b"x", "dir/b.jpg": b"b" * 512}
    if format != "v7":
        contents[("p" * 60 + "/") * 2 + "prefixed.jpg"] = b"prefix"
    if format in ("oldgnu", "gnu", "posix"):
        contents[("d" * 200 + "/") * 3 + "n" * 220 + ".jpg"] = b"long"
        contents["名前.jpg"] = b"name"
    for name, content in contents.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    for arguments, prefix in [([*os.listdir(tmp_path)], ""), (["."], "./")]:
        data = tar(tmp_path, f"--format={format}", *arguments)
        assert dict(files(data)) == {prefix + name: content for name, content in contents.items()}
        assert skipped(data)["directory"] >= 1


@pytest.mark.parametrize("format", PROGRAM)
def test_what_is_no_regular_file_is_skipped_and_counted_by_what_it_is(format, tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"picture")
    os.link(tmp_path / "a.jpg", tmp_path / "hard.jpg")
    os.symlink("a.jpg", tmp_path / "soft.jpg")
    os.symlink("x" * 150 if format in ("gnu", "posix") else "x", tmp_path / "far.jpg")
    (tmp_path / "folder.jpg").mkdir()
    if format != "v7":
        os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "z.jpg").write_bytes(b"last")
    names = ["a.jpg", *sorted({*os.listdir(tmp_path)} - {"a.jpg", "z.jpg"}), "z.jpg"]
    data = tar(tmp_path, f"--format={format}", *names)
    assert files(data) == [("a.jpg", b"picture"), ("z.jpg", b"last")]
    assert skipped(data) == {"link": 3, "directory": 1} | ({"fifo": 1} if format != "v7" else {})


@each_format
def test_devices_are_skipped_and_counted(format):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=format) as archive:
        for name, kind in [("null.jpg", tarfile.CHRTYPE), ("disk.jpg", tarfile.BLKTYPE), ("a.jpg", tarfile.REGTYPE)]:
            entry = tarfile.TarInfo(name)
            entry.type = kind
            archive.addfile(entry)
    assert files(buffer.getvalue()) == [("a.jpg", b"")]
    assert skipped(buffer.getvalue()) == {"device": 2}


def test_members_of_unknown_type_are_skipped_with_their_data_and_counted():
    data = member(b"label", kind=b"V") + member(b"x.jpg", b"data" * 300, b"Q") + member(b"a.jpg", b"a") + END
    assert files(data) == [("a.jpg", b"a")]
    assert [name for name, _ in files(data, headers_only=True)] == ["a.jpg"]
    assert skipped(data) == {"volume label": 1, "member of unknown type 'Q'": 1}


@pytest.mark.parametrize("version", ["0.0", "0.1", "1.0", "gnu", "oldgnu"])
def test_a_sparse_file_is_refused_by_its_name(version, tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"picture")
    with open(tmp_path / "holes.jpg", "wb") as file:
        file.truncate(1 << 20)
        file.seek(1 << 19)
        file.write(b"island")
    if os.stat(tmp_path / "holes.jpg").st_blocks >= 2048:
        pytest.skip("this file system makes no holes")
    how = [f"--format={version}"] if version.endswith("gnu") else ["--format=posix", f"--sparse-version={version}"]
    (tmp_path / "z.jpg").write_bytes(b"last")
    data = tar(tmp_path, "--sparse", *how, "a.jpg", "holes.jpg", "z.jpg")
    assert skipped(data) == {"sparse file": 1}
    names, (error,) = refused(data)
    assert names == ["a.jpg", "z.jpg"]
    assert (error.kind, error.member) == ("sparse", "holes.jpg")
    assert "without --sparse" in str(error)


@pytest.mark.parametrize("headers_only", [False, True])
def test_what_lies_in_a_member_that_is_refused_is_never_a_member(headers_only):
    inner = member(b"evil.jpg", b"x")
    mapped = header(b"holes.jpg", len(inner), b"S", prefix=bytes(137) + b"\1")  # which is at byte 482
    for first, blocks in ((header(b"holes.jpg", len(inner), b"S"), b""), (mapped, inner[:BLOCK])):
        data = first + blocks + inner + member(b"Z.jpg", inner, b"Z") + member(b"M.jpg", inner, b"M") + member(b"z.jpg")
        names, errors = refused(data + END, headers_only=headers_only)
        assert names == ["z.jpg"]
        assert [error.kind for error in errors] == ["sparse", "unknown_type", "volume"]


@pytest.mark.parametrize("format", ["gnu", "posix"])
def test_a_volume_of_several_is_named(format, tmp_path):
    (tmp_path / "big.jpg").write_bytes(bytes(30_000))
    (tmp_path / "big.cls").write_bytes(b"1")
    command = ["tar", "-cM", "-L", "16", f"--format={format}", "-f", "1.tar", "big.jpg", "big.cls"]
    subprocess.run(command, cwd=tmp_path, input=b"n 2.tar\n", capture_output=True, check=True)
    names, (error,) = refused((tmp_path / "2.tar").read_bytes())
    assert names == ["big.cls"]
    assert (error.kind, error.member) == ("volume", "big.jpg")
    assert damage((tmp_path / "1.tar").read_bytes()).kind == "truncated"


@pytest.mark.parametrize("kind", [b"\0", b"5", b"2"])
def test_what_has_no_data_may_claim_a_size_and_even_have_some(kind):
    for data in (b"", b"x" * 700):
        tar = member(b"a.jpg") + header(b"d/", 700, kind) + data + bytes(-len(data) % BLOCK) + member(b"z.jpg")
        assert [name for name, _ in files(tar + END)] == ["a.jpg", "z.jpg"]


def test_a_pax_header_goes_before_gnu_tar_s_whatever_their_order():
    both = [pax({"path": "pax.jpg"}), long_name(b"gnu.jpg")]
    for extended in (both, both[::-1]):
        assert [name for name, _ in files(b"".join(extended) + member(b"x.jpg") + END)] == ["pax.jpg"]


def test_a_name_ends_at_a_nul():
    assert [name for name, _ in files(pax({"path": "a.jpg\0.x"}) + member(b"x.jpg") + END)] == ["a.jpg"]


@pytest.mark.parametrize("field", [b"0000000003_0", b"000000003_0\0", b"+0000000012\0"], ids=repr)
def test_digits_are_digits_in_headers(field):
    assert damage(member(b"a.jpg") + member(b"b.jpg", bytes(24), size=field) + END).kind == "bad_header"


def test_digits_are_digits_in_pax_headers():
    for size in ("3_0", "３０", "+30", ""):
        error = damage(pax({"size": size, "path": "b.jpg"}) + member(b"b.jpg", bytes(30)) + END)
        assert (error.kind, error.member) == ("bad_header", "b.jpg")


def test_many_pax_headers_take_no_more_memory_than_one():
    many = b"".join(pax({f"comment{number}": "x" * 60_000}) for number in range(200))
    reader = TarReader(io.BytesIO(many + member(b"a.jpg") + END), "x")
    tracemalloc.start()
    assert [name for name, *_ in reader] == ["a.jpg"]
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


def test_old_headers_without_a_magic_word_are_read():
    old = partial(member, magic=bytes(8))
    data = old(b"a.jpg", b"picture", b"\0") + old(b"folder/", b"", b"\0") + old(b"b.jpg", b"", b"0") + END
    assert files(data) == [("a.jpg", b"picture"), ("b.jpg", b"")]
    assert skipped(data) == {"directory": 1}


def test_a_prefix_belongs_to_the_name_only_in_ustar():
    data = member(b"a.jpg", prefix=b"folder/of") + member(b"b.jpg", prefix=b"12345", magic=b"ustar  \0") + END
    assert [name for name, _ in files(data)] == ["folder/of/a.jpg", "b.jpg"]


def test_a_name_may_fill_its_field_to_the_last_byte():
    data = member(b"n" * 96 + b".jpg", b"x") + member(b"m" * 96 + b".jpg", prefix=b"p" * 155) + END
    assert [name for name, _ in files(data)] == ["n" * 96 + ".jpg", "p" * 155 + "/" + "m" * 96 + ".jpg"]


def test_contiguous_files_are_regular_files():
    assert files(member(b"a.jpg", b"x", b"7") + END) == [("a.jpg", b"x")]


@pytest.mark.parametrize(
    "field",
    [
        b"00000000012\0",
        b"000000000012",
        b"        12 \0",
        b"          12",
        b"12\0",
        b"0000012\0junk",
        b"\0" + b"000000012\0",
    ],
    ids=repr,
)
def test_sizes_are_read_however_they_are_padded(field):
    assert files(member(b"a.jpg", b"0123456789", size=field) + END) == [("a.jpg", b"0123456789")]


def test_a_blank_size_is_zero():
    assert files(member(b"a.jpg", size=b" " * 12) + END) == [("a.jpg", b"")]


def test_sizes_in_base_256_are_read():
    size = b"\x80" + (700).to_bytes(11, "big")
    assert files(member(b"a.jpg", b"x" * 700, size=size) + member(b"b.jpg") + END) == [
        ("a.jpg", b"x" * 700),
        ("b.jpg", b""),
    ]


@pytest.mark.parametrize("checksum", ["{:06o}\0 ", "{:06o} \0", "{:6o}\0 ", "{:07o}\0", "{:o}\0", " {:o} "])
def test_checksums_are_read_however_they_are_padded(checksum):
    assert files(member(b"a.jpg", b"x", checksum=checksum) + END) == [("a.jpg", b"x")]


def test_checksums_added_up_with_signed_bytes_are_accepted():
    name = "naïve-é.jpg"
    signed = member(name.encode(), b"x", signed=True)
    assert signed != member(name.encode(), b"x")
    assert files(signed + END) == [(name, b"x")]


@given(st.binary(min_size=1, max_size=90).filter(lambda name: b"\0" not in name and name[-1:] != b"/"))
def test_a_name_that_is_not_utf_8_keeps_its_bytes(name):
    assert [os.fsencode(found) for found, _ in files(member(name, b"x") + END)] == [name]
    assert [os.fsencode(found) for found, _ in files(long_name(name) + member(name, b"x") + END)] == [name]


# --- Extended headers ---


@each_format
def test_sizes_beyond_eight_gibibytes_are_read_from_headers(format):
    size = 9 << 30

    class Endless(io.RawIOBase):
        """A sparse stand-in for a file of nine gibibytes: a header, a hole, an end."""

        def __init__(self):
            entry = tarfile.TarInfo("big.jpg")
            entry.size = size
            self.head = entry.tobuf(format)
            self.position = 0

        def seek(self, offset, whence=0):
            self.position = offset
            return offset

        def read(self, length=-1):
            end = len(self.head) + size + len(END)
            start, self.position = self.position, min(self.position + length, end)
            return self.head[start : self.position].ljust(self.position - start, b"\0")

    if format == tarfile.USTAR_FORMAT:
        with pytest.raises(ValueError, match="overflow"):
            Endless()
        return
    reader = TarReader(Endless(), "x", headers_only=True)
    assert list(reader) == [("big.jpg", b"", size, 0)]
    ((_, data, *_),) = TarReader(Endless(), "x", every_byte=True)
    assert len(data) == size
    with pytest.raises(SampleError, match="is 9,663,676,416 bytes long"):
        data.whole()


def test_a_pax_header_gives_path_and_size_and_its_offset():
    data = member(b"z.jpg") + pax({"path": "é/a.jpg", "size": "3", "mtime": "1.5"}) + member(b"short", b"abc", size=0)
    assert read(data + END) == [("z.jpg", b"", 0, 0), ("é/a.jpg", b"abc", 3, BLOCK)]
    assert read(data + END, headers_only=True)[1] == ("é/a.jpg", b"", 3, BLOCK)


def test_an_extended_header_speaks_of_the_next_member_only():
    data = pax({"path": "long.jpg"}) + member(b"short") + long_name(b"l" * 200) + member(b"l") + member(b"b.jpg") + END
    assert [name for name, _ in files(data)] == ["long.jpg", "l" * 200, "b.jpg"]


def test_an_extended_header_of_a_link_does_not_pass_to_the_next_member():
    data = long_name(b"l" * 200) + member(b"link", kind=b"2") + pax({"path": "p"}) + member(b"d", kind=b"5")
    assert files(data + member(b"a.jpg", b"x") + END) == [("a.jpg", b"x")]


def test_an_empty_pax_path_leaves_the_header_s_own():
    assert files(pax({"path": ""}) + member(b"a.jpg") + END) == [("a.jpg", b"")]


def test_a_pax_header_may_be_padded_with_zeros():
    body = b"15 path=a.jpg\n"
    body = b"%d path=a.jpg\n" % len(body) + bytes(20)
    assert files(member(b"P", body, b"x") + member(b"b") + END) == [("a.jpg", b"")]


def test_the_extended_headers_of_solaris_are_those_of_pax():
    assert files(pax({"path": "a.jpg"}, b"X") + member(b"b") + END) == [("a.jpg", b"")]


def test_a_global_header_s_comment_is_passed_over():
    data = tar_of(FILES, tarfile.PAX_FORMAT, pax_headers={"comment": "0123abcd"})
    assert files(data) == FILES
    assert read(data)[0] == (*FILES[0], len(FILES[0][1]), 2 * BLOCK)


@pytest.mark.parametrize("key", ["path", "size"])
def test_a_global_header_that_gives_all_members_one_name_or_size_is_refused(key):
    error = damage(pax({key: "7"}, b"g") + member(b"a.jpg") + END)
    assert (error.kind, error.offset) == ("bad_header", 0)
    assert f"one {key} for all members" in str(error)


@pytest.mark.parametrize(
    "body",
    [
        b"path=a.jpg\n",
        b"99 path=a.jpg\n",
        b"14 path=a.jpg ",
        b"7 path\n",
        b"-5 a=b\n",
        b"+7 a=b\n",
        b"\xff",
        b"0 a=b\n",
        b"x" * 600,
    ],
    ids=repr,
)
def test_a_malformed_pax_header_is_damage(body):
    error = damage(member(b"a.jpg") + member(b"P", body, b"x") + member(b"b.jpg") + END)
    assert (error.kind, error.offset) == ("bad_header", BLOCK)


def test_a_pax_size_may_begin_with_zeros():
    data = pax({"size": "0" * 30 + "5"}) + member(b"a.txt", b"words")
    assert files(data + END) == [("a.txt", b"words")]


@pytest.mark.parametrize("size", ["-1", "1.5", "", "x", "9" * 5000], ids=lambda size: size[:9])
def test_a_pax_size_that_is_none_is_damage(size):
    assert damage(pax({"size": size}) + member(b"a.jpg") + END).kind == "bad_header"


@example_count(300)
@given(st.binary(max_size=80))
def test_any_bytes_in_a_pax_header_give_members_or_a_clean_error(body):
    data = member(b"P", body, b"x") + member(b"a.jpg", b"x") + END
    for headers_only in (False, True):
        with contextlib.suppress(DamagedShardError):
            assert len(read(data, headers_only=headers_only)) <= 1


def test_an_extended_header_without_its_member_is_a_cut():
    for extension in (pax({"path": "a.jpg"}), long_name(b"a" * 200), pax({})):
        whole = member(b"z.jpg", b"z") + extension
        for end, options in [(b"", {}), (END, {}), (b"", {"need_end": False})]:
            error = damage(whole + end, **options)
            assert (error.kind, error.offset) == ("truncated", len(whole))


def test_an_extended_header_of_a_gibibyte_is_refused():
    error = damage(header(b"././@LongLink", 1 << 30, b"L"))
    assert "claims 1,073,741,824 bytes" in str(error)


# --- Sizes ---


def test_a_member_of_several_chunks_is_whole_and_so_is_the_next():
    content = os.urandom(3 * Cursor.CHUNK + 17)
    data = tar_of([("a.cls", b"1"), ("a.jpg", content), ("b.cls", b"2")])
    assert files(data) == [("a.cls", b"1"), ("a.jpg", content), ("b.cls", b"2")]
    assert [size for _, _, size, _ in read(data, headers_only=True)] == [1, len(content), 1]


def test_an_error_of_reading_ahead_is_raised_once_the_bytes_behind_it_are_needed():
    class Breaking:
        def __init__(self, data):
            self.parts = iter([data[: 2 * BLOCK], data[2 * BLOCK : 4 * BLOCK], None, data[4 * BLOCK :]])

        def read(self, size=-1, /):
            if (part := next(self.parts, b"")) is None:
                raise SourceError("broken off", shard="x")
            return part

    names = ["a.jpg", "b.jpg", "c.jpg"]
    reader = TarReader(Breaking(tar_of([(name, b"data") for name in names])), "x")
    members = iter(reader)
    found = [next(members)[0]]
    assert reader.cursor.read_ahead()
    found.append(next(members)[0])
    with pytest.raises(SourceError, match="broken off"):
        next(members)
    found += [name for name, *_ in reader]
    assert found == names


def test_skipping_through_a_file_reads_little_of_it(tmp_path):
    data = tar_of([(f"{number}.jpg", bytes(200_000)) for number in range(20)])
    (tmp_path / "x.tar").write_bytes(data)
    taken = 0

    class Counting(io.FileIO):
        def read(self, size=-1, /):
            nonlocal taken
            found = super().read(size)
            taken += len(found)
            return found

    with Counting(tmp_path / "x.tar") as file:
        assert len(list(TarReader(file, "x", headers_only=True))) == 20
    assert taken < len(data) / 20


def test_the_offset_is_what_was_consumed():
    reader = TarReader(io.BytesIO(WHOLE), "x")
    seen = [(offset, reader.offset) for _, _, _, offset in reader]
    assert len(seen) == len(FILES)
    assert all(start < consumed for start, consumed in seen)
    assert [consumed for _, consumed in seen][:-1] == [start for start, _ in seen][1:]
    assert reader.offset == len(WHOLE)
