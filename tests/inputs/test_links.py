"""Links that are entries of samples."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from commands import convert, tar2tf
from make_bytes import END, member, tar_of
from shards import contents, keys, records, samples
from tar2tf_cli.inputs.open_shard import OpenShard
from tar2tf_cli.inputs.tar_samples import TarRules, TarSamples
from tar2tf_cli.stores import open_source

SAMPLES = samples(40, 400)
LARGE = samples(12, 30_000)


def linked(contents, *, kind: bytes = tarfile.LNKTYPE, chained: bool = False) -> bytes:
    """A tar in which every second sample's jpg is a link to the one before it, or to the link before it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for number, (key, entries) in enumerate(contents):
            for name, data in entries.items():
                info = tarfile.TarInfo(f"{key}.{name}")
                if name == "jpg" and number % (100 if chained else 2):
                    info.type, info.linkname = kind, f"{contents[number - 1][0]}.jpg"
                    archive.addfile(info)
                else:
                    info.size = len(data)
                    archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def resolved(contents, *, chained: bool = False):
    """The same samples without links."""
    return [
        (key, {**entries, "jpg": contents[0 if chained else number - number % 2][1]["jpg"]})
        for number, (key, entries) in enumerate(contents)
    ]


@pytest.mark.parametrize("options", [[], ["--regroup"], ["--max-shard-size", "40kB"], ["--on-error", "skip"]])
@pytest.mark.parametrize("made_of", [SAMPLES, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("name", ["in.tar", "in.tar.gz"])
def test_a_hard_link_takes_the_bytes_of_the_member_before_it(name, made_of, options, tmp_path: Path) -> None:
    data = linked(made_of)
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    convert(tmp_path / name, "-o", tmp_path / "out" / "x-<>.record", *options)
    found = [sample for path in sorted((tmp_path / "out").glob("*.record")) for sample in contents(path)]
    assert sorted(found) == resolved(made_of)


@pytest.mark.parametrize("command", [["verify"], ["inspect", "--json"], ["inspect", "-n", "12"]])
@pytest.mark.parametrize("name", ["in.tar", "in.tar.gz"])
def test_verify_and_inspect_follow_hard_links(name, command, tmp_path: Path) -> None:
    data = linked(LARGE)
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    done = tar2tf(command[0], tmp_path / name, *command[1:])
    assert done.returncode == 0, done.stderr
    if "--json" in command:
        found = json.loads(done.stdout)["entries"]["jpg"]
        assert (found["count"], found["mean"]) == (12, sum(len(entries["jpg"]) for _, entries in resolved(LARGE)) / 12)
    if "-n" in command:
        assert done.stdout.count("jpg") == 12


def test_a_hard_link_to_a_hard_link_and_to_a_member_without_extension_is_followed(tmp_path: Path) -> None:
    (tmp_path / "chained.tar").write_bytes(linked(SAMPLES, chained=True))
    convert(tmp_path / "chained.tar", "-o", tmp_path / "chained.record")
    assert contents(tmp_path / "chained.record") == resolved(SAMPLES, chained=True)
    buffer = io.BytesIO(tar_of([("blob", b"b" * 700)]))
    with tarfile.open(fileobj=buffer, mode="a") as archive:
        info = tarfile.TarInfo("l" * 150 + "/a.jpg")
        info.type, info.linkname = tarfile.LNKTYPE, "blob"
        archive.addfile(info)
    (tmp_path / "blob.tar").write_bytes(buffer.getvalue())
    convert(tmp_path / "blob.tar", "-o", tmp_path / "blob.record")
    assert contents(tmp_path / "blob.record") == [("l" * 150 + "/a", {"jpg": b"b" * 700})]


@pytest.mark.parametrize("options", [[], ["--regroup"]])
@pytest.mark.parametrize(
    ("kind", "says"), [(tarfile.SYMTYPE, "symbolic link"), (tarfile.LNKTYPE, "does not come before it")]
)
def test_any_other_link_that_is_an_entry_makes_a_faulty_sample(kind, says, options, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in ("a.cls", "a.jpg", "a.png", "b.cls", "b.jpg", "c.cls", "c.jpg"):
            info = tarfile.TarInfo(name)
            if name in ("b.jpg", "a.jpg", "a.png"):
                info.type, info.linkname = kind, "c.jpg"
            archive.addfile(info)
    (tmp_path / "in.tar").write_bytes(buffer.getvalue())
    done = tar2tf("convert", tmp_path / "in.tar", "-o", tmp_path / "x.record", *options)
    assert done.returncode == 3
    assert "member a.jpg" in done.stderr
    assert says in done.stderr
    assert "--dereference" in done.stderr
    done = tar2tf("convert", tmp_path / "in.tar", "-o", tmp_path / "x.record", "--on-error", "skip", *options)
    assert done.returncode == 1
    assert keys(tmp_path / "x.record") == ["c"]
    assert "2 samples skipped" in done.stderr
    done = tar2tf("verify", tmp_path / "in.tar", *options)
    assert done.returncode == 1
    assert done.stdout.count("(link)") == 2


def test_on_standard_input_a_hard_link_makes_a_faulty_sample(tmp_path: Path) -> None:
    done = tar2tf("convert", "-", "-o", tmp_path / "x.record", input=linked(SAMPLES))
    assert done.returncode == 3
    assert "can be read only once (link)\n  save the input to a file" in done.stderr


def test_links_that_would_not_be_entries_are_skipped_and_counted(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in ("a.cls", "latest", "._a.jpg", "__meta__/x.json"):
            info = tarfile.TarInfo(name)
            if name != "a.cls":
                info.type, info.linkname = tarfile.SYMTYPE, "a.cls"
            archive.addfile(info)
    (tmp_path / "in.tar").write_bytes(buffer.getvalue())
    convert(tmp_path / "in.tar", "-o", tmp_path / "x.record")
    assert json.loads((tmp_path / "_x-manifest.json").read_text())["skipped"]["members"] == {"link": 3}


def test_each_link_is_found_without_reading_the_shard_again(tmp_path: Path, monkeypatch) -> None:
    """Ten times the links take about ten times the headers, not a hundred times."""
    from tar2tf_cli.formats import tar

    counted = [0]
    size_in = tar.size_in

    def counting(header: bytes) -> int:
        counted[0] += 1
        return size_in(header)

    monkeypatch.setattr(tar, "size_in", counting)
    steps = []
    for count in (50, 500):
        (tmp_path / "in.tar").write_bytes(linked(samples(count, 100), chained=True))
        source = open_source(str(tmp_path / "in.tar"))
        (item,) = source.list(())
        with OpenShard(source, item) as shard, closing(TarSamples(shard, TarRules(), pytest.fail)) as tar:
            counted[0] = 0
            assert sum(1 for _ in tar.samples()) == count
        steps.append(counted[0])
    assert steps[1] < 15 * steps[0]


def test_a_limit_looks_ahead_for_members_of_a_sample_behind_a_hard_link(tmp_path: Path) -> None:
    data = member(b"a.jpg", b"1") + member(b"b.jpg", b"", b"1", link=b"a.jpg") + member(b"a.cls") + member(b"b.cls")
    for options in ([], ["--regroup"]):
        (tmp_path / "x.tar").write_bytes(data + END)
        done = tar2tf(
            "convert", tmp_path / "x.tar", "-o", tmp_path / "x.record", "--overwrite", "--limit", "1", *options
        )
        assert done.returncode == 0, done.stderr
        (record,) = records(tmp_path / "x.record")
        assert b"cls" in record
