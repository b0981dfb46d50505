"""Samples of tars in any order, and the index files that find them."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commands import tar2tf
from servers import FaultyServer
from shards import PHOTOS
from tar2tf_cli import open_records
from tar2tf_cli.errors import DamagedShardError, SourceError, Tar2tfError, UsageError
from verify_runs import a_tar, an_example, flipped, framed, in_a_process, write


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own for each test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tar2tf"


def members(first: int, count: int) -> list[tuple[str, bytes]]:
    return [
        (f"{number:04d}.{name}", data)
        for number in range(first, first + count)
        for name, data in (("cls", b"%d" % number), ("txt", b"text " * (number % 200)))
    ]


@pytest.fixture
def tars(tmp_path: Path) -> Path:
    """Three tars of 5, 1 and 7 samples."""
    first = 0
    for number, count in enumerate((5, 1, 7)):
        write(tmp_path / "tars" / f"s-{number}.tar", a_tar(members(first, count)))
        first += count
    return tmp_path / "tars"


def sample(number: int) -> dict[str, bytes]:
    return {"__key__": b"%04d" % number, "cls": b"%d" % number, "txt": b"text " * (number % 200)}


def test_samples_are_read_by_their_numbers(tars: Path) -> None:
    with open_records(tars) as records:
        assert len(records) == 13
        assert [records[number] for number in (12, 0, 5, -1)] == [sample(12), sample(0), sample(5), sample(12)]
        assert list(records) == [sample(number) for number in range(13)]
        assert records.__getitems__([7, 3, 12, 7]) == [sample(number) for number in (7, 3, 12, 7)]
        assert records[1::4][1] == sample(5)
        copied = pickle.loads(pickle.dumps(records))
    assert copied[4] == sample(4)
    assert records[4] == sample(4), "it can be read again"


def test_samples_are_read_by_their_keys(tars: Path, tmp_path: Path) -> None:
    records = open_records(tars)
    assert records.key("0007") == sample(7)
    assert records.key(records[7]["__key__"]) == sample(7), "as a sample gives it"
    for key in ("7", "0013", "", b"\xff", 2**70, 0.5):
        with pytest.raises(KeyError) as caught:
            records.key(key)  # type: ignore[arg-type]
        assert caught.value.args == (key,)
    assert records[8:].key("0009") == sample(9)
    with pytest.raises(KeyError):
        records[8:].key("0007")
    assert tar2tf("convert", tars, "-o", tmp_path / "x-<>.record", "--num-shards", "3").returncode == 0
    for named in (tmp_path / "_x-manifest.json", f"{tmp_path}/x-*.record"):
        assert open_records(named).key("0007") == sample(7)
    assert tar2tf("convert", tars, "-o", tmp_path / "n.record", "--select", "cls=cls").returncode == 0
    with pytest.raises(KeyError):
        open_records(tmp_path / "n.record").key("0007")
    write(tmp_path / "numbers.record", framed(an_example(__key__=7), an_example(__key__=8)))
    numbered = open_records(tmp_path / "numbers.record")
    assert [numbered.key(key)["__key__"] for key in ("8", b"8", 8, numbered[1]["__key__"])] == [8] * 4


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # webdataset leaves files open
def test_samples_are_those_of_webdataset(tmp_path: Path) -> None:
    webdataset = pytest.importorskip("webdataset")
    for tar in sorted(PHOTOS.glob("*.tar")):
        theirs = [
            {name: data for name, data in each.items() if name not in ("__url__", "__local_path__")}
            for each in webdataset.WebDataset(str(tar), shardshuffle=False)
        ]
        ours = [{**each, "__key__": each["__key__"].decode()} for each in open_records(tar)]
        assert ours == theirs


def test_entries_are_decoded_as_the_preset_does(tmp_path: Path) -> None:
    file = io.BytesIO()
    np.save(file, np.arange(6).reshape(2, 3))
    tar = write(tmp_path / "a.tar", a_tar([("a.cls", b"7\n"), ("a.npy", file.getvalue()), ("a.jpg", b"\xff\xd8")]))
    assert tar2tf("convert", tar, "-o", tmp_path / "a.record", "--preset", "webdataset").returncode == 0
    (ours,), (theirs,) = open_records(tar, preset="webdataset"), open_records(tmp_path / "_a-manifest.json")
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert type(value) is type(theirs[name])
        assert np.array_equal(value, theirs[name])
    bad = write(tmp_path / "b.tar", a_tar([("a.cls", b"seven")]))
    with pytest.raises(Tar2tfError, match=r"b\.tar.*sample a.*'cls' cannot be decoded"):
        open_records(bad, preset="webdataset")[0]
    for records in ("a.record", "_a-manifest.json"):
        with pytest.raises(UsageError, match="preset"):
            open_records(tmp_path / records, preset="webdataset")
    with pytest.raises(UsageError, match="preset must be 'webdataset', not 'imagenet'"):
        open_records(tar, preset="imagenet")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="is a tar"):
        open_records(tar, raw=True)


def test_names_that_need_extended_headers_keep_them(tmp_path: Path) -> None:
    names = ["long/" + "n" * 150, "ünïcode/1", "a"]
    listed = [(f"{name}.{entry}", entry.encode()) for name in names for entry in ("b", "c")]
    for format in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        tar = write(tmp_path / f"{format}.tar", a_tar(listed, format=format))
        for _ in range(2):
            assert [each["__key__"].decode() for each in open_records(tar)] == names
            tar2tf("index", tar)


def test_keys_may_end_at_the_last_dot(tmp_path: Path) -> None:
    tar = write(tmp_path / "a.tar", a_tar([("a.b.c", b"1"), ("a.b.d", b"2"), ("a.x.c", b"3")]))
    with open_records(tar) as records:
        assert [*records] == [{"__key__": b"a", "b.c": b"1", "b.d": b"2", "x.c": b"3"}]
    with open_records(tar, key_split="last") as records:
        assert [*records] == [{"__key__": b"a.b", "c": b"1", "d": b"2"}, {"__key__": b"a.x", "c": b"3"}]


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ([("a.b", b"1"), ("a.b", b"2")], "appears twice"),
        ([("nothing", b"1")], "holds no samples"),
    ],
)
def test_tars_whose_samples_have_no_place_of_their_own_are_refused(
    tmp_path: Path, members: list[tuple[str, bytes]], words: str
) -> None:
    with pytest.raises(Tar2tfError, match=words):
        open_records(write(tmp_path / "a.tar", a_tar(members)))
    assert tar2tf("index", tmp_path / "a.tar").returncode in (2, 3)


def test_links_are_refused_with_what_to_do(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "links.tar", "w") as tar:
        for name, type, target in (("a.b", tarfile.REGTYPE, ""), ("b.b", tarfile.LNKTYPE, "a.b")):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = type, target
            tar.addfile(member)
    with pytest.raises(Tar2tfError, match=r"b\.b.*is a link.*tar2tf convert"):
        open_records(tmp_path / "links.tar")
    assert "compressed with gzip" in tar2tf("index", PHOTOS / "photos-3.tar.gz").stderr


# --- Indexes ---


def opened_in_full(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the tars whose headers are read."""
    from tar2tf_cli.datasets import indexes

    names: list[str] = []
    find = indexes.find_in_batches
    monkeypatch.setattr(
        indexes, "find_in_batches", lambda stream, name, rule: names.append(name) or find(stream, name, rule)
    )
    return names


def test_headers_are_read_once(tars: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = opened_in_full(monkeypatch)
    for _ in range(3):
        assert open_records(tars).key("0011") == sample(11)
    assert sorted(read) == [str(tars / f"s-{number}.tar") for number in range(3)]
    os.utime(write(tars / "s-1.tar", a_tar(members(70, 1))), ns=(1, 1))
    assert open_records(tars)[5] == sample(70)


def test_the_index_beside_a_tar_is_that_of_wds2idx(tars: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tars / "README", b"text")
    ran = in_a_process("index", tars)
    assert (ran.code, ran.err.splitlines()) == (
        0,
        [f"{tars}/s-0.tar.idx: 5 samples", f"{tars}/s-1.tar.idx: 1 sample", f"{tars}/s-2.tar.idx: 7 samples"],
    )
    for tar in sorted(tars.glob("*.tar")):
        data, lines = tar.read_bytes(), Path(f"{tar}.idx").read_text().splitlines()
        with tarfile.open(tar) as oracle:
            files = [(each.name, each.offset_data, each.size) for each in oracle]
        assert lines[0] == f"v1.2 {len(lines) - 1}"
        words = [line.split() for line in lines[1:]]
        listed = [each for line in words for each in zip(*[iter(line)] * 4, strict=True)]
        assert listed == [(name.partition(".")[2], str(start), str(size), name) for name, start, size in files]
        assert data[files[0][1]] == data[int(listed[0][1])]
    (tars / "README").unlink()
    read = opened_in_full(monkeypatch)
    assert list(open_records(tars, index_folder="")) == [sample(number) for number in range(13)]
    assert open_records(tars, index_folder="").key("0011") == sample(11)
    assert read == []
    before = [path.stat().st_mtime_ns for path in sorted(tars.glob("*.idx"))]
    assert in_a_process("index", tars, "-q").code == 0
    assert before == [path.stat().st_mtime_ns for path in sorted(tars.glob("*.idx"))]


def test_what_is_in_the_place_of_an_index_is_replaced_only_when_asked(tmp_path: Path) -> None:
    tar = write(tmp_path / "x.tar", a_tar([("a.b", b"1")]))
    beside = tmp_path / "x.tar.idx"
    beside.mkdir()
    assert "x.tar.idx: cannot be read: Is a directory" in in_a_process("index", tar).err
    beside.rmdir()
    write(beside, b"mine")
    refused = in_a_process("index", tar)
    assert (refused.code, beside.read_bytes()) == (2, b"mine")
    assert "is not the index of this shard\n  add --overwrite to replace it" in refused.err
    assert in_a_process("index", tar, "--overwrite").code == 0
    right = beside.read_bytes()
    beside.unlink()
    beside.symlink_to(tmp_path / "gone")
    assert in_a_process("index", tar).code == 0
    assert beside.read_bytes() == right


def test_an_index_has_extensions_as_the_names_have_them_which_dali_tells_apart(tmp_path: Path) -> None:
    tar = write(tmp_path / "x.tar", a_tar([("a.JPG", b"1"), ("a.Seg.PNG", b"2")]))
    assert in_a_process("index", tar, "-q").code == 0
    assert Path(f"{tar}.idx").read_text() == "v1.2 1\nJPG 512 1 a.JPG Seg.PNG 1536 1 a.Seg.PNG\n"
    assert open_records(tar, index_folder="")[0] == {"__key__": b"a", "jpg": b"1", "seg.png": b"2"}


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_an_index_is_byte_for_byte_that_of_dalis_own_tool(tmp_path: Path, format: int) -> None:
    wds2idx = pytest.importorskip("wds2idx")
    entries = [(f"f/{number:02}.{name}", bytes(300 * number)) for number in range(9) for name in ("CLS", "seg.Png")]
    tar = write(tmp_path / "x.tar", a_tar([("f/._0.cls", b"0"), *entries], format=format))
    assert in_a_process("index", tar, "-q").code == 0
    with wds2idx.IndexCreator(str(tar), str(tmp_path / "theirs"), verbose=False) as theirs:
        theirs.create_index()
    assert Path(f"{tar}.idx").read_bytes() == (tmp_path / "theirs").read_bytes()


@pytest.mark.parametrize("change", ["other tar", "line missing", "last line missing", "shifted", "cut", "longer tar"])
def test_an_index_of_other_bytes_is_not_used(tars: Path, change: str) -> None:
    tar = tars / "s-2.tar"
    assert tar2tf("index", tar).returncode == 0
    index = Path(f"{tar}.idx")
    lines = index.read_text().splitlines(keepends=True)
    if change == "other tar":
        write(tar, a_tar([(name, data + b"x" * 600) for name, data in members(6, 7)]))
        expected = [{**sample(number), "cls": b"%d" % number + b"x" * 600} for number in range(6, 13)]
        assert [{**each, "txt": each["txt"][:-600]} for each in open_records(tar, index_folder="")] == expected
        assert (ran := in_a_process("index", tar)).code == 2
        assert "--overwrite" in ran.err
        assert in_a_process("index", tar, "--overwrite", "-q").code == 0
        return
    if change == "longer tar":
        write(tar, a_tar(members(6, 9)))
    elif change == "line missing":
        index.write_text("".join(["v1.2 6\n", *lines[1:3], *lines[4:]]))
    elif change == "last line missing":
        index.write_text("".join(["v1.2 6\n", *lines[1:-1]]))
    elif change == "shifted":
        index.write_text(index.read_text().replace(" 512 ", " 1024 ", 1))
    else:
        index.write_text(index.read_text()[:-40])
    count = 9 if change == "longer tar" else 7
    assert list(open_records(tar, index_folder="")) == [sample(number) for number in range(6, 6 + count)]


def test_an_index_of_members_with_other_names_is_not_used(tmp_path: Path) -> None:
    tar = write(tmp_path / "x.tar", a_tar([(f"old{number}.cls", b"1") for number in range(9)]))
    assert in_a_process("index", tar, "-q").code == 0
    assert open_records(tar, index_folder="").key("old7") == {"__key__": b"old7", "cls": b"1"}
    write(tar, a_tar([(f"new{number}.cls", b"1") for number in range(9)]))
    assert open_records(tar, index_folder="").key("new7") == {"__key__": b"new7", "cls": b"1"}


def test_records_are_indexed_as_convert_does(tars: Path, tmp_path: Path) -> None:
    assert tar2tf("convert", tars, "-o", tmp_path / "x.record", "--index").returncode == 0
    index = tmp_path / "x.record.idx"
    before = index.read_bytes()
    index.unlink()
    assert in_a_process("index", tmp_path / "x.record", "-q").code == 0
    assert index.read_bytes() == before


def test_what_cannot_be_indexed_is_named(tmp_path: Path) -> None:
    blank = write(tmp_path / "blank.tar", a_tar([("a b.c", b"1")]))
    assert "contains a space" in (ran := in_a_process("index", blank)).err
    assert ran.code == 2
    for path, code in ((write(tmp_path / "x.txt", b"text"), 3), (tmp_path / "gone.tar", 3), ("-", 2)):
        assert in_a_process("index", path).code == code
    (tmp_path / "none").mkdir()
    for reader in ("dali", "energon"):
        ran = in_a_process("index", tmp_path / "none", "--for", reader)
        hint = "name the shards with a template"
        assert (ran.code, ran.err) == (3, f"error: {tmp_path / 'none'}: holds no tar or TFRecord (missing)\n  {hint}\n")
    write(tmp_path / "in" / "a.tar", a_tar(members(0, 4)))
    assert tar2tf("convert", tmp_path / "in", "-o", tmp_path / "x.record").returncode == 0
    manifest = tmp_path / "_x-manifest.json"
    ran = in_a_process("index", manifest)
    assert (ran.code, ran.err) == (2, f"error: {manifest}: is a manifest: name the shards, or their folder\n")
    cut = write(tmp_path / "cut.tar", a_tar(members(0, 4))[:3000])
    assert (in_a_process("index", cut).code, Path(f"{cut}.idx").exists()) == (3, False)


def test_shards_that_cannot_be_read_are_named_and_the_others_indexed(tars: Path) -> None:
    write(tars / "s-3.tar", b"<!DOCTYPE html>")
    write(tars / "s-4.tar", b"")
    ran = in_a_process("index", tars)
    assert ran.code == 3
    assert len(list(tars.glob("*.idx"))) == 3
    assert "2 files have no index: " in ran.err
    assert "s-3.tar: is text that begins with" in ran.err
    assert "s-4.tar: is empty" in ran.err


def test_tars_on_a_server_are_read_by_their_indexes(
    tars: Path, web: FaultyServer, caplog: pytest.LogCaptureFixture
) -> None:
    tar = tars / "s-2.tar"
    assert tar2tf("index", tar).returncode == 0
    web.objects["in/s-2.tar"] = tar.read_bytes()
    for _ in range(2):
        assert open_records(f"{web.url}/in/s-2.tar", index_folder="")[3] == sample(9)
        web.objects["in/s-2.tar.idx"] = Path(f"{tar}.idx").read_bytes()
    assert [record.message.partition(" has ")[0] for record in caplog.records] == [f"note: {web.url}/in/s-2.tar"]


# --- Damage ---


def test_damage_is_an_error_that_names_the_sample_and_the_others_can_be_read(tars: Path) -> None:
    tar = tars / "s-2.tar"
    records = open_records(tar)
    start, changed_at = tar.stat(), tar.read_bytes().index(b"0009.cls")
    write(tar, flipped(tar.read_bytes(), changed_at + 130))
    os.utime(tar, ns=(start.st_atime_ns, start.st_mtime_ns))
    records = open_records(tar)
    assert records[2] == sample(8)
    with pytest.raises(DamagedShardError, match=r"s-2\.tar, record 3, offset") as caught:
        records[3]
    assert "tar2tf verify" in (caught.value.hint or "")
    with pytest.raises(SourceError):
        open_records(tar, index_folder="")


@pytest.fixture(scope="module")
def one_tar(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return a_tar(members(0, 4))


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_damaged_tar_gives_its_samples_or_an_error(
    data: st.DataObject, one_tar: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    position = data.draw(
        st.sampled_from([block * 512 + place for block in range(16) for place in (0, 3, 125, 150, 156)])
    )
    path = write(
        tmp_path_factory.getbasetemp() / "damaged.tar", flipped(one_tar, position, data.draw(st.integers(0, 7)))
    )
    try:
        read = list(open_records(path, index_folder=""))
    except Tar2tfError:
        return
    assert [each["__key__"] for each in read] == [sample(number)["__key__"] for number in range(4)]


# --- Other readers ---


def test_torch_shuffles_tars(tars: Path) -> None:
    torch = pytest.importorskip("torch")
    loader = torch.utils.data.DataLoader(open_records(tars), batch_size=4, shuffle=True, num_workers=2)
    assert sorted(key for batch in loader for key in batch["__key__"]) == [b"%04d" % number for number in range(13)]


DALI = """
import json, sys
from nvidia.dali import fn, pipeline_def
paths = sys.argv[1:]

@pipeline_def(batch_size=13, num_threads=2, device_id=None)
def pipeline():
    read = fn.readers.webdataset(paths=paths, index_paths=[path + ".idx" for path in paths], ext=["cls", "txt"])
    return tuple(read)

built = pipeline()
built.build()
cls, txt = built.run()
print(json.dumps([[bytes(each.at(n)).decode() for each in (cls, txt)] for n in range(13)]))
"""


def test_dali_reads_tars_by_these_indexes(tars: Path) -> None:
    pytest.importorskip("nvidia.dali")
    assert tar2tf("index", tars).returncode == 0
    paths = sorted(map(str, tars.glob("*.tar")))
    done = subprocess.run([sys.executable, "-c", DALI, *paths], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    read = json.loads(done.stdout.splitlines()[-1])
    assert read == [[each["cls"].decode(), each["txt"].decode()] for each in map(sample, range(13))]


def test_a_global_shuffle_of_tars_is_that_of_records(tars: Path, tmp_path: Path) -> None:
    assert tar2tf("convert", tars, "-o", tmp_path / "x.record").returncode == 0
    order = random.Random(3).sample(range(13), 13)
    assert open_records(tars).__getitems__(order) == open_records(tmp_path / "_x-manifest.json").__getitems__(order)
