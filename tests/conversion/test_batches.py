"""Shards that are written directly from tars, many records at a time."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from make_bytes import END, member
from shards import keys, samples, tree, write_members, write_tar
from tar2tf_cli.api.values import RecordBatch
from tar2tf_cli.cli import main
from tar2tf_cli.conversion.spool import Spool


@pytest.mark.parametrize("pure", ["0", "1"])
def test_a_last_sample_with_another_entry_in_place_of_one_that_all_others_have_is_whole(
    pure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TAR2TF_PURE", pure)
    names = [f"{number:03d}.{extension}" for number in range(20) for extension in ("cls", "jpg")]
    for last, lacks in (("999.png", False), ("999.cls", True)):
        write_members(tmp_path / "x.tar", ((name, b"1") for name in [*names, last]))
        with pytest.raises(SystemExit, match="0"):
            main(["convert", str(tmp_path / "x.tar"), "-o", str(tmp_path / f"{last}.record")])
        assert ("the last sample, 999, lacks jpg" in capsys.readouterr().err) == lacks


@pytest.mark.parametrize(
    "limit", [(), ("--max-shard-size", "150kB"), ("--records-per-shard", "7"), ("--num-shards", "4"), ("--limit", "41")]
)
@pytest.mark.usefixtures("with_kernel")
def test_large_samples_come_in_batches_that_end_where_their_shards_end(
    limit: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        write_tar(tmp_path / "in" / f"{number}.tar", samples(40, 12_000, first=40 * number))
    taken: list[int] = []

    def first_records(batch: RecordBatch, count: int) -> bytes:
        taken.append(min(count, len(batch)))
        return whole(batch, count)

    whole = RecordBatch.first_records
    monkeypatch.setattr(RecordBatch, "first_records", first_records)
    for pure in ("1", "0"):
        monkeypatch.setenv("TAR2TF_PURE", pure)
        output = str(tmp_path / pure / "x-<>.record")
        with pytest.raises(SystemExit, match="0"):
            main(["convert", str(tmp_path / "in"), "-o", output, *limit, "-j", "1", "-q"])
        assert sum(taken) == 0 if pure == "1" else sum(taken) > 30
    assert tree(tmp_path / "0") == tree(tmp_path / "1")


@pytest.mark.parametrize("options", [(), ("--split", "a=0.6,b=0.4"), ("--op", "rename:words=txt")])
@pytest.mark.parametrize("name", ["<split>-<>.record.gz", "<split>-<>.tar.zst", "<split>-<>.tar.gz"])
@pytest.mark.usefixtures("with_kernel")
def test_compressed_blocks_are_those_of_records_one_by_one(
    name: str, options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = [10, 300, 1, 7000, 2, 640, 30, 65_000, 5, 90_000, 4] * 30  # some larger than a block of a sixteenth
    for number in range(2):
        write_members(
            tmp_path / "in" / f"{number}.tar",
            ((f"{number}{row:04d}.txt", bytes(size)) for row, size in enumerate(sizes)),
        )
    for pure in ("1", "0"):
        monkeypatch.setenv("TAR2TF_PURE", pure)
        output = str(tmp_path / pure / name.replace("<split>-" if "--split" not in options else "", ""))
        with pytest.raises(SystemExit, match="0"):
            main(["convert", str(tmp_path / "in"), "-o", output, *options, "--max-shard-size", "4kB", "-j", "1", "-q"])
    assert tree(tmp_path / "0") == tree(tmp_path / "1")
    assert len(tree(tmp_path / "0")) > 3


@pytest.mark.parametrize("options", [(), ("--op", "keep:txt"), ("--on-error", "skip")])
@pytest.mark.usefixtures("with_kernel")
def test_a_member_without_a_name_ends_nothing(
    options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [b"a.txt", b"b.txt", b"README", b"", b"c.txt", b"d.txt"]
    (tmp_path / "x.tar").write_bytes(b"".join(member(name, b"1") for name in names) + END)
    for pure in ("0", "1"):
        monkeypatch.setenv("TAR2TF_PURE", pure)
        with pytest.raises(SystemExit, match="0"):
            main(["convert", str(tmp_path / "x.tar"), "-o", str(tmp_path / f"{pure}.record"), *options])
        assert keys(tmp_path / f"{pure}.record") == ["a", "b", "c", "d"]


SELECTIONS = [
    ["--keys", "{}/keys"],
    ["--sample", "0.5"],
    ["--split", "train=0.5,val=0.5"],
    ["--shuffle", "--sample", "0.5"],
    ["--op", "filter:txt"],
    ["--op", "filter:!txt", "--op", "filter:cls!=3"],
    ["--op", "filter:cls=0,1,2"],
    ["--op", "filter:cls>=2"],
    ["--drop-duplicates", "*"],
    ["--drop-duplicates", "cls"],
    ["--join", "{}/captions.csv", "--join-missing", "skip"],
    ["--join", "{}/captions.csv", "--join-missing", "keep", "--op", "filter:caption"],
    ["--join", "{}/captions.csv", "--join-missing", "keep", "--drop-duplicates", "*"],
    ["--join", "{}/texts.jsonl", "--join-missing", "keep"],
    ["--join", "{}/quoted.csv", "--join-missing", "skip", "--select", "a=caption,b=cls,k=__key__"],
    ["--join", "{}/quoted.csv", "--join-missing", "keep", "--op", "filter:caption", "--op", "rename:label=cls"],
    ["--join", "{}/scores.jsonl", "--join-missing", "skip", "--type", "score=float"],
    ["--join", "{}/scores.jsonl", "--join-missing", "keep"],
    [
        "--join",
        "{}/quoted.csv",
        "--join",
        "{}/scores.jsonl",
        "--join-missing",
        "keep",
        "--op",
        "keep:caption,score,cls",
    ],
    ["--join", "{}/rows.parquet", "--join-missing", "skip", "--op", "keep:text,number", "--keys", "{}/keys"],
    ["--join", "{}/rows.parquet", "--join-missing", "keep"],
    ["--join", "{}/more.tar", "--join-missing", "keep"],
    ["--join", "{}/escaped.jsonl", "--join", "{}/more.tar", "--join", "{}/rows.parquet", "--join-missing", "skip"],
]

FAULTS_IN_EACH_BATCH = [
    ["--join", "{}/lists.parquet", "--join-missing", "keep", "--op", "keep:text,cls"],
    ["--drop-duplicates", "txt"],
    ["--join", "{}/captions.csv"],
    ["--join", "{}/captions.csv", "--join-missing", "keep", "--drop-duplicates", "caption"],
    ["--join", "{}/captions.csv", "--join", "{}/scores.jsonl", "--join-missing", "skip", "--keys", "{}/keys"],
]


def odd_bucket(folder: Path) -> None:
    """Tars of many plain samples and a few others, with equal ones among them, and what the selections name."""
    for shard in range(2):
        members = [
            (f"{shard}-{number:03d}.{name}", f"{number % 7}{name * (name != 'cls')}".encode())
            for number in range(300)
            for name in ("cls", "Jpg", "txt")
            if name != "txt" or number % 3
        ]
        members[60] = (members[60][0], b"not a number")
        members.insert(90, (f"{shard}-ü.cls", b"1"))
        members.insert(150, (f"{shard}-{'long' * 40}.cls", b"1"))
        write_members(folder / f"in/{shard}.tar", members)
    numbers = [(shard, number) for number in reversed(range(0, 300, 2)) for shard in (0, 1)]
    keys = [f"{shard}-{number:03d}" for shard, number in numbers]
    (folder / "keys").write_text("\n".join(keys))
    (folder / "captions.csv").write_text("key,caption\n" + "".join(f"{key},of {key}\n" for key in keys))
    lines = (f'{key},"of ""{key}"",\n{number}"\n' for number, key in enumerate(keys))
    (folder / "quoted.csv").write_text("key,caption\n" + "".join(lines))
    texts = [f"of {key}" * (number % 9 > 0) or None for number, key in enumerate(keys)]
    pq.write_table(pa.table({"key": keys, "text": texts, "number": [*range(len(keys))]}), folder / "rows.parquet")
    pq.write_table(pa.table({"key": keys, "text": texts, "n": [[1]] * len(keys)}), folder / "lists.parquet")
    write_members(folder / "more.tar", ((f"{key}.more.txt", key.encode()) for key in ("0-ü", *keys, "unused")))
    (folder / "escaped.jsonl").write_text(
        "".join(json.dumps({"key": key, "t": f"ü\n{key}"}) + "\n" for key in ("0-ü", *keys))
    )
    (folder / "scores.jsonl").write_text(
        "".join(f'{{"key": "{key}", "score": {number}.5}}\n' for key, number in zip(keys, range(300), strict=True))
    )
    (folder / "texts.jsonl").write_text(
        "".join(f'{{"key": "{key}", "txt{number // 200}": "x"}}\n' for number, key in enumerate(keys))
    )


@pytest.mark.parametrize("suffix", ["record", "tar"])
@pytest.mark.parametrize("options", SELECTIONS + FAULTS_IN_EACH_BATCH, ids=" ".join)
@pytest.mark.usefixtures("with_kernel")
def test_samples_are_chosen_and_joined_alike_in_batches_and_one_by_one(
    options: list[str], suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd_bucket(tmp_path)
    added: list[int] = []
    whole = Spool.add_batch
    monkeypatch.setattr(Spool, "add_batch", lambda spool, batch: (added.append(len(batch)), whole(spool, batch)))
    field = "<split>-" * ("--split" in options)
    given = [option.format(tmp_path) for option in options]
    exits, batched = [], []
    for pure in ("1", "0"):
        monkeypatch.setenv("TAR2TF_PURE", pure)
        added.clear()
        output = str(tmp_path / pure / f"x-{field}<>.{suffix}")
        with pytest.raises(SystemExit) as ended:
            main(["convert", str(tmp_path / "in"), "-o", output, *given, "--on-error", "skip", "-j", "1", "-q"])
        exits.append(ended.value.code)
        batched.append(sum(added))
    assert exits[0] == exits[1]
    assert batched[0] == 0
    assert options in FAULTS_IN_EACH_BATCH or batched[1] > 60
    assert tree(tmp_path / "0") == tree(tmp_path / "1")
