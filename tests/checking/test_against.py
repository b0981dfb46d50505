"""`tar2tf verify --against`: sample for sample, nothing is missing, doubled or changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from commands import python
from tar2tf_cli.formats.example import frame
from tar2tf_cli.formats.tfrecord import RecordReader
from verify_runs import SEVERAL, Ran, a_tar, convert, flipped, in_a_process, write


def shards(folder: Path, change: Callable[[str, bytes], bytes | None] = lambda name, data: data) -> Path:
    """Three tars of four samples each, whose members may be changed or left out."""
    for number in range(3):
        keys = [f"{sample:03d}" for sample in range(4 * number, 4 * number + 4)]
        members = [(f"{key}.{name}", f"{name} {key}".encode()) for key in keys for name in ("a", "b")]
        kept = [(name, changed) for name, data in members if (changed := change(name, data)) is not None]
        write(folder / f"s-{number}.tar", a_tar(kept))
    return folder


def found(ran: Ran) -> list[tuple[str, str]]:
    """Kind of each fault, and the sample's key."""
    faults = [fault for file in ran.json["files"] for fault in file["faults"]]
    return sorted(
        (fault["kind"], fault["message"].split("'")[1] if "'" in fault["message"] else "") for fault in faults
    )


CONVERSIONS = {
    "plain": ("--records-per-shard", "5"),
    "shuffled": ("--shuffle", "--seed", "3", "--num-shards", "2"),
    "gzip": ("--compression", "gzip", "--records-per-shard", "5"),
    "selected": ("--select", "x=b,__key__=__key__"),
    "limited": ("--limit", "9", "--num-shards", "2"),
}


@pytest.mark.parametrize("name", CONVERSIONS)
def test_the_source_of_a_conversion_is_what_it_was_made_from(tmp_path: Path, name: str) -> None:
    source = shards(tmp_path / "in")
    assert convert(source, "-o", tmp_path / "out" / "x-<>.record", *CONVERSIONS[name]).code == 0
    manifest = tmp_path / "out" / "_x-manifest.json"
    for arguments in ((source,), (source, "s-*.tar"), (source, *SEVERAL)):
        ran = in_a_process("verify", manifest, "--against", *arguments, "--json")
        assert (ran.code, found(ran)) == (0, [])


def test_what_lies_behind_the_limit_is_not_needed(tmp_path: Path, run: Callable[..., Ran]) -> None:
    source = shards(tmp_path / "in", lambda name, data: None if name == "002.b" else data)
    made = convert(source / "s-0.tar", "-o", tmp_path / "x.record", "--limit", "2", "--select", "a,b")
    assert made.code == 0, made.err
    ran = run(tmp_path / "_x-manifest.json", "--against", source / "s-0.tar")
    assert ran.code == 0, ran.err


def test_a_manifest_need_not_say_what_it_was_made_from(tmp_path: Path, run: Callable[..., Ran]) -> None:
    source = shards(tmp_path / "in")
    assert convert(source, "-o", tmp_path / "x.record").code == 0
    manifest = tmp_path / "_x-manifest.json"
    document = json.loads(manifest.read_text())
    del document["spec"]["input"], document["checksum"]  # which an edit makes wrong
    manifest.write_text(json.dumps(document))
    assert run(manifest).code == 0
    assert run(manifest, "--against", source).code == 0
    (source / "s-2.tar").unlink()
    assert run(manifest, "--against", source).code == 1


def test_inputs_given_as_paths_are_found_in_their_folder_wherever_it_is(
    tmp_path: Path, run: Callable[..., Ran]
) -> None:
    source = shards(tmp_path / "in")
    write(source / "other.tar", a_tar([("other.a", b"1")]))
    paths = sorted(source.glob("s-*.tar"))
    assert convert(*paths, "-o", tmp_path / "out" / "x.record").code == 0
    moved = source.rename(tmp_path / "moved")
    there = sorted(moved.glob("s-*.tar"))
    for arguments in ((moved,), (moved, "s-*.tar"), (f"{moved}/s-*.tar",), there):
        ran = run(tmp_path / "out" / "_x-manifest.json", "--against", *arguments, "--json")
        assert (ran.code, found(ran)) == (0, []), arguments
    ran = run(tmp_path / "out" / "_x-manifest.json", "--against", there[0], "--json")
    assert (ran.code, {kind for kind, _ in found(ran)}) == (1, {"unexpected"})


def test_one_tar_is_compared_by_itself_and_standard_input_too(tmp_path: Path, run: Callable[..., Ran]) -> None:
    tar = shards(tmp_path / "in") / "s-1.tar"
    assert convert(tar, "-o", tmp_path / "out" / "x.record").code == 0
    manifest = tmp_path / "out" / "_x-manifest.json"
    for place in (tar, tar.parent):
        ran = run(manifest, "--against", place, "--json")
        assert (ran.code, found(ran)) == (0, []), place
    ran = in_a_process("verify", manifest, "--against", "-", "--json", stdin=tar.read_bytes())
    assert (ran.code, found(ran)) == (0, [])
    data = tar.read_bytes()
    assert in_a_process("convert", "-", "-o", tmp_path / "out" / "y.record", stdin=data).code == 0
    for place in ("-", tar):
        ran = in_a_process("verify", tmp_path / "out" / "_y-manifest.json", "--against", place, "--json", stdin=data)
        assert (ran.code, found(ran)) == (0, [])
    ran = run(tmp_path / "out" / "_y-manifest.json", "--against", tar.parent, "--json")
    assert {kind for kind, _ in found(ran)} == {"missing"}, "as of all tars of the folder"


def test_folders_given_as_paths_are_compared_as_paths(tmp_path: Path, run: Callable[..., Ran]) -> None:
    folders = [shards(tmp_path / name) for name in ("in", "more")]
    assert convert(*folders, "-o", tmp_path / "out" / "x.record").code == 0
    for arguments in (folders, (tmp_path,)):
        ran = run(tmp_path / "out" / "_x-manifest.json", "--against", *arguments, "--json")
        assert (ran.code, found(ran)) == (0, []), arguments


def test_changed_missing_and_unexpected_samples_are_found(tmp_path: Path, run: Callable[..., Ran]) -> None:
    assert (
        convert(shards(tmp_path / "in"), "-o", tmp_path / "out" / "x-<>.record", "--records-per-shard", "5").code == 0
    )
    changes = {"002.b": b"changed", "007.a": None, "007.b": None}

    source = shards(tmp_path / "other", changes.get)
    keys = ("008", "009", "011", "x")
    tar = write(
        source / "s-2.tar", a_tar([(f"{key}.{name}", f"{name} {key}".encode()) for key in keys for name in "ab"])
    )
    ran = run(tmp_path / "out" / "_x-manifest.json", "--against", source, "--json")
    assert (ran.code, found(ran)) == (
        1,
        [("changed", "002"), ("missing", "x"), ("unexpected", "007"), ("unexpected", "010")],
    )
    faults = {fault["message"]: fault for file in ran.json["files"] for fault in file["faults"]}
    (changed,) = (fault for fault in faults.values() if fault["kind"] == "changed")
    assert changed["record"] == 2
    assert "differs in 'b' from what" in changed["message"]
    assert str(tar) in {file["path"] for file in ran.json["files"] if file["status"] == "damaged"}


def rewrite(path: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    with path.open("rb") as file:
        records = [data for _, data in RecordReader(file, "x")]
    path.write_bytes(b"".join(part for record in change(records) for part in frame([record], len(record))))


def test_doubled_and_lost_records_are_found(tmp_path: Path, run: Callable[..., Ran]) -> None:
    source = shards(tmp_path / "in")
    assert convert(source, "-o", tmp_path / "out" / "x.record").code == 0
    path, manifest = tmp_path / "out" / "x.record", tmp_path / "out" / "_x-manifest.json"
    rewrite(path, lambda records: [*records[:3], records[1], *records[4:]])
    kinds = [pair for pair in found(run(manifest, "--against", source, "--json")) if pair[0] != "digest"]
    assert kinds == [("doubled", "001"), ("missing", "003")]
    path.write_bytes(flipped(path.read_bytes(), 30))
    kinds = [pair for pair in found(run(manifest, "--against", source, "--json")) if pair[1]]
    assert ("missing", "000") in kinds


def parts(
    folder: Path, source: Path, *options: str, ranges: tuple[str, ...] = ("s-0.tar", "s-{1..2}.tar")
) -> list[Path]:
    """The manifests of a dataset that was converted in parts."""
    for number, names in enumerate(ranges):
        assert convert(source, names, "-o", folder / f"part{number}-<>.record", *options).code == 0
    return [folder / f"_part{number}-manifest.json" for number in range(len(ranges))]


def test_a_thousand_differences_of_each_kind_are_named_and_the_others_counted(
    tmp_path: Path, run: Callable[..., Ran]
) -> None:
    def tar(name: str, prefix: str, number: int) -> Path:
        return write(tmp_path / name, a_tar((f"{prefix}{each:04}.x", b"%d" % each) for each in range(number)))

    assert convert(tar("in.tar", "a", 1003), "-o", tmp_path / "x.record").code == 0
    for number, more in ((1000, None), (1001, "1"), (1002, "2")):
        ran = run(tmp_path / "_x-manifest.json", "--against", tar("other.tar", "b", number), "--json")
        faults = [(fault["kind"], fault["message"]) for file in ran.json["files"] for fault in file["faults"]]
        rest = [(kind, text) for kind, text in faults if "sample" not in text]
        expected = [("missing", f"and {more} more of this kind in all shards")] if more else []
        assert rest == [*expected, ("unexpected", "and 3 more of this kind in all shards")]
        listed = [kind for kind, text in faults if "sample" in text]
        assert (listed.count("missing"), listed.count("unexpected"), len(listed)) == (1000, 1000, 2000)
    lines = run(tmp_path / "_x-manifest.json", "--against", tmp_path / "other.tar").lines
    assert [line.partition(": ")[2].partition(",")[0] for line in lines[:3]] == [
        "record 0",
        "1",
        "and 2 more of this kind in all shards (missing)",
    ]
    assert lines[1].startswith(f"{tmp_path / 'x.record'}: 1,002 more like it, up to record 999, offset ")
    bad = tmp_path / "bad.txt"
    assert run(tmp_path / "_x-manifest.json", "--against", tmp_path / "other.tar", "--bad-keys", bad).code == 1
    assert len(bad.read_text().splitlines()) == 1003 + 1002


def test_the_parts_of_a_dataset_are_compared_with_their_inputs(tmp_path: Path, run: Callable[..., Ran]) -> None:
    """Each with its own, or all together with the inputs that are named."""
    source = shards(tmp_path / "in")
    manifests = parts(tmp_path, source)
    for names in ((), ("s-*.tar",), ("s-0.tar", "s-{1..2}.tar")):
        ran = run(*manifests, "--against", source, *names, "--json")
        assert (ran.code, found(ran)) == (0, [])
    assert run(tmp_path, "_part*-manifest.json", "--against", source, "s-*.tar").code == 0
    ran = run(*manifests[1:], "--against", source, "s-*.tar", "--json")
    assert found(ran) == [("missing", f"00{number}") for number in range(4)]
    ran = run(*manifests, "--against", source, "s-{0..1}.tar", "--json")
    assert found(ran) == [("unexpected", f"0{number:02}") for number in range(8, 12)]


def test_a_sample_in_two_parts_is_doubled(tmp_path: Path, run: Callable[..., Ran]) -> None:
    source = shards(tmp_path / "in")
    ran = run(*parts(tmp_path, source, ranges=("s-{0..1}.tar", "s-{1..2}.tar")), "--against", source, "*.tar", "--json")
    assert found(ran) == [("doubled", f"00{number}") for number in range(4, 8)]
    assert "1 of the inputs are in more than one manifest" in ran.err


def test_parts_whose_records_are_made_in_other_ways_are_not_compared_as_one(
    tmp_path: Path, run: Callable[..., Ran]
) -> None:
    source = shards(tmp_path / "in")
    same = parts(tmp_path / "same", source)
    other, limited = (
        parts(tmp_path / name, source, *options)
        for name, options in {"other": ("--select", "a"), "limited": ("--limit", "2")}.items()
    )
    for manifests, reason in (((same[0], other[1]), "differ in select"), (limited, "each have a limit")):
        assert run(*manifests, "--against", source).code == 0
        ran = run(*manifests, "--against", source, "*.tar")
        assert (ran.code, reason in ran.err) == (2, True), ran.err


def test_a_part_without_its_manifest_is_a_fault_among_others(tmp_path: Path, run: Callable[..., Ran]) -> None:
    source = shards(tmp_path / "in")
    first, second = parts(tmp_path, source)
    second.write_text("{}")
    ran = run(first, second, "--against", source, "--json")
    assert (ran.code, found(ran)) == (1, [("manifest", "")])
    first.unlink()
    ran = run(second, first, "--against", source, "*.tar", "--json")
    assert (ran.code, found(ran)) == (1, [("manifest", ""), ("missing", "")])


def test_against_needs_a_manifest_and_data(tmp_path: Path, run: Callable[..., Ran]) -> None:
    source = shards(tmp_path / "in")
    ran = run(source, "--against", source)
    assert (ran.code, "needs a manifest" in ran.err) == (2, True)
    assert run(source, "--against", source, "--fast").code == 2
    ran = run(tmp_path / "_gone-manifest.json", "--against", source)
    assert (ran.code, "_gone-manifest.json: the manifest does not exist" in ran.err) == (3, True)


def test_code_that_a_manifest_names_is_run_only_when_that_is_allowed(
    tmp_path: Path, run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source, mark = shards(tmp_path / "in"), tmp_path / "ran"
    code = write(tmp_path / "mine.py", b"def f(sample):\n    return sample\n")
    assert convert(source, "-o", tmp_path / "out" / "x.record", "--op", "func:mine.py:f").code == 0
    write(code, f"open({str(mark)!r}, 'w').close()\n".encode() + code.read_bytes())
    manifest = tmp_path / "out" / "_x-manifest.json"
    ran = run(manifest, "--against", source)
    assert (ran.code, mark.exists()) == (2, False)
    assert "_x-manifest.json names mine.py:f, a function that --against would run" in ran.err
    assert "--allow-func" in ran.err
    ran = in_a_process("verify", manifest, "--against", source, "--allow-func")
    assert (ran.code, mark.exists()) == (0, True)
    assert f"note: mine.py:f runs, because {manifest} names it" in ran.err
    document = json.loads(manifest.read_bytes())
    document["spec"].update(ops=[], input={"bucket": str(source), "from": "examples", "example_class": "mine.py:C"})
    mark.unlink()
    manifest.write_text(json.dumps(document))
    ran = run(manifest, "--against", source)
    assert (ran.code, mark.exists(), "names mine.py:C" in ran.err) == (2, False, True)


def test_many_inputs_need_few_open_files_and_a_kill_leaves_none(tmp_path: Path) -> None:
    for number in range(80):
        write(tmp_path / "in" / f"{number}.tar", a_tar([(f"{number}.txt", b"x")]))
    assert convert(tmp_path / "in", "-o", tmp_path / "out" / "<input>.record", "-j", "1").code == 0
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    script = (
        "import os, resource, signal, sys; from tar2tf_cli.checking import against\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))\n"
        "compare = against.compare\n"
        "def killed(*sides):\n"
        "    compare(*sides)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "if sys.argv[1:]: against.compare = killed\n"
        "from tar2tf_cli import verify\n"
        f"assert verify({str(tmp_path / 'out' / '_manifest.json')!r}, against={str(tmp_path / 'in')!r}).ok\n"
    )
    for arguments, code in (((), 0), (("kill",), -9)):
        done = python("-c", script, *arguments, env={"TMPDIR": str(temporary)})
        assert (done.returncode, [*temporary.iterdir()]) == (code, []), done.stderr


# --- Duplicates ---


def with_duplicates(folder: Path) -> Path:
    """Two tars of 40 samples, every second of which is equal to an earlier one in all but its key."""
    for number in range(2):
        keys = range(40 * number, 40 * number + 40)
        values = [(f"{key:03d}.{name}", b"%d" % (key // 2 % 15)) for key in keys for name in ("a", "b")]
        write(folder / f"s-{number}.tar", a_tar(values))
    return folder


@pytest.mark.parametrize("option", ["--drop-duplicates", "--drop-duplicates=b"])
@pytest.mark.parametrize("more", [(), ("--shuffle", "--seed", "1"), ("--limit", "10")])
def test_what_remains_of_duplicates_is_what_the_source_makes(
    tmp_path: Path, option: str, more: tuple[str, ...]
) -> None:
    source = with_duplicates(tmp_path / "in")
    assert convert(source, "-o", tmp_path / "x.record", option, *more).code == 0
    ran = in_a_process("verify", tmp_path / "_x-manifest.json", "--against", source, "--json", *SEVERAL)
    assert (ran.code, found(ran)) == (0, [])
    assert ran.json["records"] == (10 if "--limit" in more else 15)


def test_a_later_duplicate_in_place_of_the_first_is_found(tmp_path: Path, run: Callable[..., Ran]) -> None:
    source = with_duplicates(tmp_path / "in")
    assert convert(source, "-o", tmp_path / "x.record", "--drop-duplicates").code == 0
    reversed_order = [source / "s-1.tar", source / "s-0.tar"]
    assert convert(*reversed_order, "-o", tmp_path / "y.record", "--drop-duplicates").code == 0
    (tmp_path / "x.record").write_bytes((tmp_path / "y.record").read_bytes())
    ran = run(tmp_path / "_x-manifest.json", "--against", source, "--json")
    kinds = [kind for kind, _ in found(ran)]
    assert (ran.code, kinds.count("missing"), kinds.count("unexpected")) == (1, 15, 15)


def test_a_duplicate_that_was_not_dropped_is_found(tmp_path: Path, run: Callable[..., Ran]) -> None:
    source = with_duplicates(tmp_path / "in")
    assert convert(source, "-o", tmp_path / "x.record", "--drop-duplicates").code == 0
    assert convert(source, "-o", tmp_path / "all.record").code == 0
    (tmp_path / "x.record").write_bytes((tmp_path / "all.record").read_bytes())
    ran = run(tmp_path / "_x-manifest.json", "--against", source, "--json")
    assert (ran.code, [kind for kind, _ in found(ran)].count("unexpected")) == (1, 65)


def test_a_record_that_is_missing_among_those_without_duplicates_is_named(
    tmp_path: Path, run: Callable[..., Ran]
) -> None:
    source = with_duplicates(tmp_path / "in")
    assert convert(source, "-o", tmp_path / "x.record", "--drop-duplicates").code == 0
    with (tmp_path / "x.record").open("rb") as file:
        messages = [message for _, message in RecordReader(file, "x")]
    (tmp_path / "x.record").write_bytes(
        b"".join(part for data in messages if b"008" not in data for part in frame([data], len(data)))
    )
    ran = run(tmp_path / "_x-manifest.json", "--against", source, "--json")
    assert (ran.code, [fault for fault in found(ran) if fault[0] == "missing"]) == (1, [("missing", "008")])


def test_all_records_of_one_sample_stay_where_its_duplicates_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "mine.py", b"def twice(sample):\n    return [sample, {**sample, 'a': b'again'}]\n")
    source = with_duplicates(tmp_path / "in")
    options = ("--drop-duplicates", "--op", "func:mine.py:twice")
    assert convert(source, "-o", tmp_path / "x.record", *options).code == 0
    ran = in_a_process("verify", tmp_path / "_x-manifest.json", "--against", source, "--allow-func", "--json")
    assert (ran.code, found(ran), ran.json["records"]) == (0, [], 30)
