"""Several manifests as one dataset: what machines that converted a part each have written."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commands import convert
from read_back import assert_same
from servers import FaultyServer
from shards import samples, write_tar
from tar2tf_cli import inspect, load_dataset, open_records, verify
from tar2tf_cli.checking.page_samples import read_pages
from tar2tf_cli.errors import NothingFoundError, SourceError, UsageError
from verify_runs import Ran, edit, flipped, framed

TARS, PARTS = 6, 3


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six tars of 20 samples, converted by three machines and by one."""
    folder = tmp_path_factory.mktemp("parts")
    for number in range(TARS):
        write_tar(folder / "in" / f"in-{number}.tar", samples(20, first=20 * number))
    options = ("--records-per-shard", "15", "--type", "cls=int64", "-j", "1")
    for part in range(PARTS):
        template = f"in-{{{2 * part}..{2 * part + 1}}}.tar"
        convert(folder / "in", template, "-o", folder / "out" / f"part{part}-<000>.record", *options)
    convert(folder / "in", "-o", folder / "whole" / "<000>.record", *options)
    return folder / "out"


@pytest.fixture
def manifests(out: Path) -> list[Path]:
    return sorted(out.glob("_part*-manifest.json"))


@pytest.fixture
def own(out: Path, tmp_path: Path) -> list[Path]:
    """Manifests and shards that a test may change."""
    return sorted(Path(shutil.copytree(out, tmp_path / "own")).glob("_part*-manifest.json"))


@pytest.fixture(scope="module")
def whole(out: Path) -> list[Any]:
    return list(load_dataset(out.parent / "whole" / "_manifest.json").as_numpy_iterator())


def keys(dataset: Any) -> list[bytes]:
    return [item["__key__"] for item in dataset.as_numpy_iterator()]


def test_they_hold_what_one_conversion_does(out: Path, manifests: list[Path], whole: list[Any]) -> None:
    given: list[Any] = [
        (manifests,),
        (*manifests,),
        (str(out / "_part*-manifest.json"),),
        (manifests[:1], *manifests[1:]),
    ]
    for paths in given:
        dataset = load_dataset(*paths)
        assert int(dataset.cardinality()) == len(whole) == 120
        for one, other in zip(dataset.as_numpy_iterator(), whole, strict=True):
            assert_same(one, other)
        records = open_records(*paths)
        for one, other in zip(records, whole, strict=True):
            assert_same(one, other)


def test_they_are_shuffled_batched_and_divided_among_hosts_together(manifests: list[Path], whole: list[Any]) -> None:
    expected = Counter(item["__key__"] for item in whole)
    shuffled = keys(load_dataset(manifests, shuffle=100, seed=1))
    assert Counter(shuffled) == expected
    parts = {name: number // 40 for number, name in enumerate(item["__key__"] for item in whole)}
    assert {parts[key] for key in shuffled[:30]} == {0, 1, 2}, "the shards of all parts are read at once"
    hosts = [load_dataset(manifests, shard=(4, host)) for host in range(4)]
    assert sum((Counter(keys(host)) for host in hosts), Counter()) == expected
    assert sum(int(host.cardinality()) for host in hosts) == 120
    assert int(load_dataset(manifests, batch=32).cardinality()) == 4


def test_from_buckets_and_folders_alike(manifests: list[Path], whole: list[Any], web: FaultyServer, out: Path) -> None:
    for path in out.iterdir():
        web.objects[f"out/{path.name}"] = path.read_bytes()
    urls = [f"{web.url}/out/{path.name}" for path in manifests]
    for paths in (urls, [str(manifests[0]), *urls[1:]]):
        for one, other in zip(load_dataset(paths).as_numpy_iterator(), whole, strict=True):
            assert_same(one, other)
        for one, other in zip(open_records(paths), whole, strict=True):
            assert_same(one, other)
        assert verify(paths[0], paths[1:], workers=1).records == 120
        assert inspect(paths[0], paths[1:], workers=1).samples == 120


def test_a_split_may_lack_in_some(tmp_path: Path) -> None:
    write_tar(tmp_path / "a" / "a.tar", samples(30))
    write_tar(tmp_path / "b" / "b.tar", samples(1, first=100))
    for name in "ab":
        options = ("--split", "train=0.9,val=0.1", "-j", "1")
        convert(tmp_path / name, "-o", tmp_path / f"{name}-<split>-<>.record", *options)
    both = sorted(tmp_path.glob("*-manifest.json"))
    counts = {name: int(load_dataset(both, split=name).cardinality()) for name in ("train", "val")}
    assert counts == {name: len(open_records(both, split=name)) for name in counts}
    assert sum(counts.values()) == 31
    for read in (load_dataset, open_records):
        with pytest.raises(UsageError, match=r"no split 'test'; splits: train, val"):
            read(both, split="test")


def test_lengths_that_differ_and_features_that_lack_are_known_from_all(tmp_path: Path) -> None:
    for name, count, extra in (("a", 2, {}), ("b", 3, {"txt": b"words"})):
        entries = {"json": b'{"x": ' + str(list(range(count))).encode() + b"}", **extra}
        write_tar(tmp_path / name / f"{name}.tar", [(name, entries)])
        select = ",".join(["x=json:x", *extra])
        options = ("--select", select, "--type", "x=int64_list", "-j", "1")
        convert(tmp_path / name, "-o", tmp_path / f"{name}.record", *options)
    both = sorted(tmp_path.glob("*-manifest.json"))
    dataset, records = load_dataset(both), open_records(both)
    found = list(dataset.as_numpy_iterator())
    assert [list(item["x"]) for item in found] == [[0, 1], [0, 1, 2]]
    assert [item["txt"].tolist() for item in found] == [[], [b"words"]]
    for one, other in zip(records, found, strict=True):
        assert_same(one, other)


def test_another_kind_of_a_feature_is_refused(own: list[Path], tmp_path: Path) -> None:
    write_tar(tmp_path / "in" / "x.tar", samples(3))
    convert(tmp_path / "in", "-o", tmp_path / "x.record", "--type", "cls=float", "-j", "1")
    for read in (load_dataset, open_records):
        with pytest.raises(UsageError, match=r"x-manifest\.json: the feature 'cls' is float32 .* int64 .* elsewhere"):
            read([*own, tmp_path / "_x-manifest.json"])


def test_manifests_of_examples_and_of_other_records_are_not_one_dataset(own: list[Path], tmp_path: Path) -> None:
    (tmp_path / "x.record").write_bytes(framed(b"\xff", b"\xfe"))
    convert(tmp_path / "x.record", "-o", tmp_path / "out/y.record")
    other = tmp_path / "out/_y-manifest.json"
    for paths in ([*own, other], [other, *own]):
        with pytest.raises(UsageError) as caught:
            load_dataset(paths)
        named = other if paths[-1] == other else own[0]
        assert (caught.value.message, caught.value.shard) == ("describes no features, but others do", str(named))


def test_a_manifest_that_contradicts_itself_is_named(own: list[Path]) -> None:
    def change(document: dict[str, Any]) -> None:
        document["features"]["cls"]["shape"] = [None, None]

    edit(own[1], change)
    for read in (load_dataset, open_records):
        with pytest.raises(SourceError) as caught:
            read(own[1])
        assert (caught.value.message, caught.value.shard, caught.value.hint) == (
            "the feature 'cls' has the shape [None, None], but there is no feature 'cls/shape'",
            str(own[1]),
            "verify the manifest, restore it from a copy, or convert again",
        )


def test_no_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="name one or several"):
        load_dataset([])
    with pytest.raises(SourceError):
        load_dataset(tmp_path / "*-manifest.json")


# --- inspect and verify ---


def test_inspect_counts_all(manifests: list[Path], out: Path, run_inspect: Callable[..., Ran]) -> None:
    one = inspect(str(out.parent / "whole" / "_manifest.json"), workers=1)
    all_of_them = inspect(str(manifests[0]), [*map(str, manifests[1:])], workers=1)
    assert (all_of_them.samples, len(all_of_them.shards)) == (one.samples, 9) == (120, 9)
    assert {name: stats.count for name, stats in all_of_them.entries.items()} == dict.fromkeys(one.entries, 120)
    ran = run_inspect(*manifests)
    assert ran.code == 0
    assert ran.lines[0].startswith(f"{manifests[0]} and 2 more: 9 TFRecord shards, 120 records")
    assert run_inspect(*manifests, "-n", "1").out.count(": sample 0, 0000") == 1
    assert len(run_inspect(*manifests, "--keys").lines) == 120
    assert run_inspect(out, "_part*-manifest.json").lines[0].endswith(ran.lines[0].partition(": ")[2])


def test_the_balance_of_classes_is_that_of_all(manifests: list[Path]) -> None:
    given, others = str(manifests[0]), [*map(str, manifests[1:])]
    shards = {shard.name for shard in inspect(given, others, workers=1).shards}
    pages = read_pages(given, others, shards=shards, workers=1)
    assert sum((page.labels for page in pages), Counter()) == {str(label): 12 for label in range(10)}


def test_verify_gives_one_report(own: list[Path], run: Callable[..., Ran]) -> None:
    ran = run(*own, "--json")
    assert ran.code == 0
    assert (ran.json["ok"], ran.json["records"], len(ran.json["files"])) == (True, 120, 9)
    shard = own[0].with_name("part2-001.record")
    shard.write_bytes(flipped(shard.read_bytes(), 100))
    for given in (own, [own[0].parent, "_part*-manifest.json"]):
        ran = run(*given, "--json")
        assert ran.code == 1
        damaged = [file["path"] for file in ran.json["files"] if file["status"] != "ok"]
        assert damaged == [str(shard)]


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda path: path.unlink(), "missing"),
        (lambda path: path.write_bytes(b"{}"), "manifest"),
        (lambda path: path.write_bytes(path.read_bytes()[:-30]), "manifest"),
    ],
)
def test_a_manifest_that_cannot_be_used_does_not_keep_the_others_from_being_verified(
    change: Callable[[Path], object], kind: str, own: list[Path], run: Callable[..., Ran]
) -> None:
    change(own[1])
    ran = run(*own, "--json")
    assert ran.code == 1
    assert ran.json["records"] == 80
    (faulty,) = (file for file in ran.json["files"] if file["status"] != "ok")
    assert (faulty["path"], faulty["faults"][0]["kind"]) == (str(own[1]), kind)
    with pytest.raises((NothingFoundError, SourceError)):
        inspect(str(own[0]), [str(own[1])], workers=1)


def test_inputs_that_two_machines_converted_are_mentioned(own: list[Path], run: Callable[..., Ran], out: Path) -> None:
    assert "note" not in run(*own).err
    options = ("--records-per-shard", "15", "--type", "cls=int64", "-j", "1")
    convert(out.parent / "in", "in-{3..4}.tar", "-o", own[0].with_name("part3-<000>.record"), *options)
    ran = run(*own, own[0].with_name("_part3-manifest.json"))
    assert ran.code == 0
    assert "note: 2 of the inputs are in more than one manifest, first: in-3.tar" in ran.err


def test_templates_of_shards_are_not_those_of_manifests(own: list[Path], run: Callable[..., Ran]) -> None:
    ran = run(own[0], "part1-*.record")
    assert ran.code == 2
    assert "a manifest takes no template" in ran.err
