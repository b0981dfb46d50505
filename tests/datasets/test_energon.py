"""`tar2tf index --for energon`: the files are those of `energon prepare`, and Energon reads every sample by them."""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
import struct
import subprocess
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from commands import tar2tf
from tar2tf_cli import open_records
from tar2tf_cli.errors import DamagedShardError
from tar2tf_cli.inputs.tar_index import from_index_lines
from verify_runs import Ran, a_tar, check, framed, in_a_process, kinds, write

ENERGON = shutil.which("energon")
needs_energon = pytest.mark.skipif(ENERGON is None, reason="needs megatron-energon, with `energon` on PATH")

READ = """
import sys
from megatron.energon import Cooker, DefaultTaskEncoder, Sample, WorkerConfig, basic_sample_keys
from megatron.energon import edataclass, get_loader, get_train_dataset, stateless

@edataclass
class Parts(Sample):
    parts: dict

@stateless
def cook(sample: dict) -> Parts:
    entries = {name: value for name, value in sample.items() if not name.startswith("_")}
    return Parts(**basic_sample_keys(sample), parts=entries)

class Task(DefaultTaskEncoder):
    decoder = None
    cookers = [Cooker(cook)]

dataset = get_train_dataset(
    sys.argv[1], split_part=sys.argv[2], batch_size=None, shuffle_buffer_size=None, max_samples_per_sequence=None,
    worker_config=WorkerConfig(rank=0, world_size=1, num_workers=0), repeat=False, task_encoder=Task())
print([(sample.__key__, sample.parts) for sample in get_loader(dataset)])
"""


def members(first: int, number: int) -> list[tuple[str, bytes]]:
    return [
        (f"{n:04d}.{name}", data)
        for n in range(first, first + number)
        for name, data in (("txt", b"a" * (n * 300)), ("seg.png", b"b"), ("JSON", b'{"n": %d}' % n))
    ]


ODD = {
    "k0.jpg": b"1", "no extension": b"2", "d/k1.jpg": b"3", "d/__meta__/a.json": b"4", "k2.jpg": b"5", "._k2.jpg": b"6",
    "d/._k2.jpg": b"7", "k3.": b"8", "k4..jpg": b"9", "./k5.b.A": b"", "ü" * 120 + ".cls": b"10", "x.y/z.cls": b"11",
}  # fmt: skip


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """A folder with two splits."""
    folder = tmp_path / "shards"
    folder.mkdir()
    for number in range(3):
        write(folder / f"train-{number:03d}.tar", a_tar(members(number * 5, 5)))
    write(folder / "val-000.tar", a_tar(members(15, 4)))
    return folder


def indexed(folder: Path, *more: str) -> Ran:
    return in_a_process("index", folder, "--for", "energon", *more)


def info(folder: Path) -> Any:
    return json.loads((folder / ".nv-meta" / ".info.json").read_text())


def rows(folder: Path) -> list[list[tuple[Any, ...]]]:
    """The samples and entries, in the order of the tars; Energon writes them in the order in which workers end."""
    with closing(sqlite3.connect(folder / ".nv-meta" / "index.sqlite")) as database:
        return [
            database.execute(f"SELECT * FROM {table} ORDER BY 1, {column}").fetchall()
            for table, column in (("samples", 3), ("sample_parts", 4))
        ]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def energon(*arguments: str | Path) -> str:
    assert ENERGON
    python = Path(ENERGON).parent / "python" if arguments[0] == "-c" else ENERGON
    ran = subprocess.run([python, *arguments], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def read_by_energon(folder: Path, split: str) -> dict[str, dict[str, bytes]]:
    return dict(eval(energon("-c", READ, folder, split).splitlines()[-1]))


def test_the_index_has_the_offsets_of_samples_and_the_folder_describes_the_tars(shards: Path) -> None:
    assert indexed(shards).code == 0
    tar = shards / "train-001.tar"
    with tarfile.open(tar) as archive:
        starts = [member.offset for member in archive]
        expected = [*starts[::3], archive.offset]
    assert (shards / "train-001.tar.idx").read_bytes() == struct.pack("<6Q", *expected)
    assert info(shards) == {
        "shard_counts": {"train-000.tar": 5, "train-001.tar": 5, "train-002.tar": 5, "val-000.tar": 4}
    }
    samples, parts = rows(shards)
    assert len(samples) == 19
    assert len(parts) == 57
    data = tar.read_bytes()
    for shard, number, name, offset, size in parts:
        if shard == 1:
            wanted = dict(members(5, 5))[f"{number + 5:04d}.{name}"]
            assert data[offset : offset + size] == wanted


def test_splits_are_those_of_names_and_without_any_all_is_of_train(shards: Path) -> None:
    assert indexed(shards).code == 0
    split = (shards / ".nv-meta" / "split.yaml").read_text()
    assert split.replace('"', "").splitlines() == [
        "split_parts:", "  train:", "  - train-000.tar", "  - train-001.tar", "  - train-002.tar", "  val:",
        "  - val-000.tar", "exclude: []",
    ]  # fmt: skip
    (shards / "val-000.tar").unlink()
    assert indexed(shards, "--overwrite").code == 0
    assert (shards / ".nv-meta" / "split.yaml").read_text().endswith('"val": []\n  "test": []\nexclude: []\n')


def test_splits_are_those_of_the_manifest(tmp_path: Path) -> None:
    write(tmp_path / "in.tar", a_tar(members(0, 12)))
    out = tmp_path / "o" / "<split>x<>.tar"
    assert tar2tf("convert", tmp_path / "in.tar", "-o", out, "--split", "good=0.5,bad=0.5", "-q").returncode == 0
    assert indexed(tmp_path / "o").code == 0
    split = (tmp_path / "o" / ".nv-meta" / "split.yaml").read_text()
    assert "good" in split
    assert "bad" in split
    assert "train" not in split


def test_a_second_run_changes_nothing_and_keeps_what_the_user_wrote(shards: Path) -> None:
    assert indexed(shards).code == 0
    before = contents(shards)
    assert indexed(shards).code == 0
    assert contents(shards) == before
    mine = write(shards / ".nv-meta" / "dataset.yaml", b"sample_type: mine\n")
    assert indexed(shards, "--overwrite").code == 0
    assert mine.read_bytes() == b"sample_type: mine\n"
    write(shards / "train-001.tar", a_tar(members(50, 5)))
    refused = indexed(shards)
    assert (refused.code, "--overwrite" in refused.err) == (2, True)
    assert indexed(shards, "--overwrite").code == 0
    assert rows(shards)[0][5][1] == "0050"


NEW = "  tar2tf convert IN -o 'new-<>.tar'"
REFUSED = [
    (
        "x.tar",
        a_tar([*members(60, 2), *members(3, 1), *members(70, 1)]),
        "x.tar: the key '0003' is also that of a sample in train-000.tar; Energon needs other keys\n"
        f"{NEW} --key '<input>/<key>' makes keys that differ",
    ),
    (
        "x.tar",
        a_tar([*members(50, 3), *members(51, 1), *members(70, 1)]),
        f"x.tar: the members of the sample '0051' are not adjacent\n{NEW} writes tars in which they are",
    ),
    ("x.tar", a_tar([("nothing", b"")]), "./x.tar: has no samples, and Energon reads no such tar (empty)"),
    (
        "x.tar",
        a_tar(members(50, 1)) * 2,
        f"./x.tar: is several tars end to end, of which Energon reads the first\n{NEW} writes single ones",
    ),
    ("x{1.tar", a_tar(members(50, 1)), "./x{1.tar: has a name that Energon takes for a template\n  rename the shard"),
    ("x\n.tar", a_tar(members(50, 1)), "./x\\n.tar: has a name that Energon takes for a template\n  rename the shard"),
    (
        "x.tar.gz",
        gzip.compress(a_tar(members(50, 1))),
        "./x.tar.gz: is compressed with gzip, so nothing in it can be read by offset\n  decompress it first",
    ),
    ("x.record", framed(bytes(30)), f"./x.record: is a tfrecord, and Energon reads tars\n{NEW} writes tars"),
    *(
        (
            "x.tar",
            a_tar([(name, b"1")], errors="surrogateescape"),
            "x.tar: the name '\\udcff' is not UTF-8, so Energon cannot read it\n"
            f"{NEW} --key '<input>/<key>' makes keys that differ",
        )
        for name in ("\udcff.x", "a.\udcff")
    ),
]


def test_what_energon_cannot_read_is_refused_and_leaves_no_description(shards: Path) -> None:
    for name, data, error in REFUSED:
        write(shards / name, data)
        ran = tar2tf("index", "./train-000.tar", f"./{name}", "--for", "energon", cwd=shards)
        assert ran.returncode == (3 if error.endswith("(empty)") else 2)
        assert ran.stderr.removeprefix("./train-000.tar.idx: 5 samples\n") == f"error: {error}\n"
        assert not (shards / ".nv-meta" / ".info.json").exists()
        assert not list(shards.glob(".nv-meta/*")), name
        (shards / name).unlink()


def test_a_shard_of_no_split_is_named_in_a_note(tmp_path: Path) -> None:
    write(tmp_path / "in.tar", a_tar(members(0, 12)))
    out = tmp_path / "o" / "x-<split>-<>.tar"
    options = ("--split", "train=0.5,val=0.5", "--num-shards", "train=2,val=1", "-q")
    assert tar2tf("convert", tmp_path / "in.tar", "-o", out, *options).returncode == 0
    write(tmp_path / "o" / "y.tar", a_tar(members(50, 2)))
    ran = indexed(tmp_path / "o")
    assert (ran.code, ran.err.splitlines()[-1]) == (
        0,
        "note: y.tar belongs to no split, so Energon does not read it",
    )
    text = (tmp_path / "o" / ".nv-meta" / "split.yaml").read_text()
    train = '  "train":\n  - "x-train-1.tar"\n  - "x-train-2.tar"\n'
    assert text == f'split_parts:\n{train}  "val":\n  - "x-val-1.tar"\nexclude: []\n'


def test_a_database_that_is_none_or_has_other_samples_is_replaced_only_when_asked(shards: Path) -> None:
    assert indexed(shards).code == 0
    path = shards / ".nv-meta" / "index.sqlite"
    right = rows(shards)
    write(path, b"no database")
    ran = indexed(shards)
    error = f"error: {path}: has other samples\n  add --overwrite to replace it\n"
    assert (ran.code, ran.err.endswith(error), path.read_bytes()) == (2, True, b"no database")
    assert [one.name for one in path.parent.glob("*sqlite*")] == ["index.sqlite"]
    assert indexed(shards, "--overwrite").code == 0
    assert rows(shards) == right


def test_an_unknown_reader_and_another_rule_for_keys_are_refused(shards: Path) -> None:
    for readers in ("torch", "dali, torch", ""):
        ran = in_a_process("index", shards, "--for", readers)
        error = f"--for knows no reader {readers.rpartition(' ')[2]!r}\n  readers: dali, energon"
        assert (ran.code, ran.err) == (2, f"error: {error}\n")
    assert "--key-split" in indexed(shards, "--key-split", "last").err


def test_the_index_of_dali_has_another_name_next_to_that_of_energon(tmp_path: Path) -> None:
    tar = write(tmp_path / "a.tar", a_tar(members(0, 5)))
    assert in_a_process("index", tmp_path).code == 0
    dali = (tmp_path / "a.tar.idx").read_bytes()
    refused = indexed(tmp_path)
    assert (refused.code, "--for dali,energon" in refused.err) == (2, True)
    assert in_a_process("index", tmp_path, "--for", "dali,energon").code == 0
    assert (tmp_path / "a.idx").read_bytes() == dali
    assert struct.unpack_from("<Q", (tmp_path / "a.tar.idx").read_bytes()) == (0,)
    (tmp_path / "a.idx").unlink()
    assert in_a_process("index", tmp_path).code == 0  # for DALI, which now writes a.idx
    assert (tmp_path / "a.idx").read_bytes() == dali
    assert from_index_lines(dali)
    assert len(open_records(tar, index_folder="")) == 5
    assert kinds(check(tar)) == []


def test_the_index_of_dali_is_used_next_to_that_of_energon(tmp_path: Path) -> None:
    tar = write(tmp_path / "a.tar", a_tar((f"{n}.txt", b"a") for n in range(20)))
    assert in_a_process("index", tmp_path, "--for", "dali,energon").code == 0
    index = (tmp_path / "a.idx").read_bytes()
    (tmp_path / "a.idx").write_bytes(index.replace(b" 1.txt", b" x.txt"))
    with pytest.raises(DamagedShardError, match="at the offset of another one in the index"):
        open_records(tar, index_folder="")[1]


@needs_energon
def test_the_files_are_those_of_energon_prepare(shards: Path, tmp_path: Path) -> None:
    write(shards / "train-odd.tar", a_tar(ODD.items(), format=tarfile.PAX_FORMAT))
    theirs = shutil.copytree(shards, tmp_path / "theirs")
    parts = [text for split in ("train", "val") for text in ("--split-parts", f"{split}:{split}-.*")]
    energon("prepare", "--non-interactive", "--no-progress", *parts, "--sample-type", "CrudeWebdataset", theirs)
    assert indexed(shards).code == 0
    for index in theirs.glob("*.idx"):
        assert (shards / index.name).read_bytes() == index.read_bytes()
    assert rows(shards) == rows(theirs)
    assert info(shards)["shard_counts"] == info(theirs)["shard_counts"]
    yaml = "import sys, yaml, braceexpand; parts = yaml.safe_load(open(sys.argv[1]))['split_parts']; print(repr({"
    yaml += "split: [one for name in parts[split] for one in braceexpand.braceexpand(name)] for split in parts}))"
    mine, other = (energon("-c", yaml, folder / ".nv-meta" / "split.yaml") for folder in (shards, theirs))
    assert eval(mine) == eval(other)
    assert (shards / ".nv-meta" / "dataset.yaml").read_bytes() == (theirs / ".nv-meta" / "dataset.yaml").read_bytes()


@needs_energon
def test_a_task_reads_every_sample(shards: Path) -> None:
    assert indexed(shards).code == 0
    for split, (first, number) in {"train": (0, 15), "val": (15, 4)}.items():
        expected: dict[str, dict[str, bytes]] = {}
        for name, data in members(first, number):
            key, _, extension = name.partition(".")
            expected.setdefault(key, {})[extension] = data
        assert read_by_energon(shards, split) == expected


@needs_energon
def test_energon_finds_no_fault(tmp_path: Path) -> None:
    some = [(f"{n}.{name}", b"%d" % n) for n in range(8) for name in ("txt", "cls")]
    write(tmp_path / "a.tar", a_tar(some))
    assert indexed(tmp_path).code == 0
    written = tmp_path / ".nv-meta" / "dataset.yaml"
    written.write_text(
        "sample_type:\n  __module__: megatron.energon\n  __class__: TextSample\nfield_map:\n  text: txt\n"
    )
    energon("lint", "--split-parts", "train", tmp_path)


# --- In a bucket ---


@pytest.mark.xdist_group("s3")
def test_the_files_in_a_bucket_are_those_of_a_folder(tmp_path: Path, s3: str, s3_client: Any) -> None:
    bucket = s3_client.create_bucket(Bucket="energon")["Location"].strip("/")
    for number in range(2):
        data = a_tar(members(10 * number, 10))
        write(tmp_path / "in" / f"train-{number}.tar", data)
        s3_client.put_object(Bucket=bucket, Key=f"a/train-{number}.tar", Body=data)

    def there() -> dict[str, bytes]:
        keys = [item["Key"] for item in s3_client.list_objects_v2(Bucket=bucket)["Contents"]]
        objects = {key: s3_client.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys}
        return {key.removeprefix("a/"): data for key, data in objects.items()}

    for _ in range(2):
        assert tar2tf("index", tmp_path / "in", "--for", "dali,energon").returncode == 0
        done = tar2tf("index", "s3://energon/a", "--for", "dali,energon")
        assert done.returncode == 0, done.stderr
        assert "s3://energon/a/train-0.tar.idx: 10 samples" in done.stderr
        files = [path for path in (tmp_path / "in").rglob("*") if path.is_file()]
        assert there() == {str(path.relative_to(tmp_path / "in")): path.read_bytes() for path in files}
    s3_client.put_object(Bucket=bucket, Key="a/train-1.tar", Body=a_tar(members(30, 4)))
    for _ in range(2):
        done = tar2tf("index", "s3://energon/a/*.tar", "--for", "energon")
        assert done.returncode == 2, done.stderr
        assert "s3://energon/a/train-1.tar.idx" in done.stderr
    assert tar2tf("index", "s3://energon/a/*.tar", "--for", "energon", "--overwrite").returncode == 0
    assert json.loads(there()[".nv-meta/.info.json"]) == {"shard_counts": {"train-0.tar": 10, "train-1.tar": 4}}


@pytest.mark.xdist_group("s3")
def test_indexes_of_dali_are_written_to_a_bucket(tmp_path: Path, s3: str, s3_client: Any) -> None:
    s3_client.create_bucket(Bucket="dali")
    data = a_tar(members(0, 5))
    s3_client.put_object(Bucket="dali", Key="x.tar", Body=data)
    assert tar2tf("index", "s3://dali").returncode == 0
    assert tar2tf("index", write(tmp_path / "x.tar", data)).returncode == 0
    written = s3_client.get_object(Bucket="dali", Key="x.tar.idx")["Body"].read()
    assert written == (tmp_path / "x.tar.idx").read_bytes()


@pytest.mark.parametrize("readers", ["dali", "energon"])
def test_a_store_that_cannot_be_written_to_is_a_usage_error(readers: str) -> None:
    done = tar2tf("index", "http://127.0.0.1:1/x/a.tar", "--for", readers)
    assert done.returncode == 2
    assert "http:// buckets cannot be written to" in done.stderr
