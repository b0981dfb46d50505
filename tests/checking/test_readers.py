"""`tar2tf verify --for`: what a reader trips over is a fault, as that reader shows, and nothing else is."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from commands import tar2tf
from inspect_runs import a_png
from servers import FaultyServer
from tar2tf_cli import open_records, verify
from tar2tf_cli.checking.readers import READERS
from verify_runs import Ran, a_tar, an_example, framed, write

pytestmark = pytest.mark.xdist_group("ray data")

SAMPLES = [
    (f"{number:04d}.{name}", data)
    for number in range(8)
    for name, data in (("png", a_png(4, 4)), ("cls", b"%d" % number))
]
LONG = "d" * 120


def renamed(change: Callable[[str], str]) -> list[tuple[str, bytes]]:
    return [(change(name), data) for name, data in SAMPLES]


TRAPS: dict[str, tuple[str, bytes, set[str]]] = {
    "plain": ("a.tar", a_tar(SAMPLES), {"tfds"}),
    "capitals": (
        "a.tar",
        a_tar(renamed(lambda name: name.replace("png", "PNG"))),
        {"dali", "energon", "hf", "ray", "tfds", "wids"},
    ),
    "dots": (
        "a.tar",
        a_tar(renamed(lambda name: f"img.v1.{name}")),
        {"dali", "energon", "grain", "hf", "ray", "tfds", "webdataset", "wids"},
    ),
    "apart": (
        "a.tar",
        a_tar(SAMPLES[::2] + SAMPLES[1::2]),
        {"dali", "energon", "hf", "ray", "tfds", "webdataset", "wids"},
    ),
    "lacks early": ("a.tar", a_tar(SAMPLES[:3] + SAMPLES[4:]), {"hf", "grain", "tfds"}),
    "lacks late": ("a.tar", a_tar(SAMPLES[:-1]), {"grain", "tfds"}),
    "long in pax": (
        "a.tar",
        a_tar(renamed(lambda name: f"{LONG}/{name}"), format=tarfile.PAX_FORMAT),
        {"dali", "tfds", "wids"},
    ),
    "not ASCII in pax": ("a.tar", a_tar(renamed(lambda name: f"ü{name}"), format=tarfile.PAX_FORMAT), {"tfds"}),
    "not ASCII in GNU": ("a.tar", a_tar(renamed(lambda name: f"ü{name}"), format=tarfile.GNU_FORMAT), {"tfds"}),
    "long in GNU": (
        "a.tar",
        a_tar(renamed(lambda name: f"{LONG}/{name}"), format=tarfile.GNU_FORMAT),
        {"tfds", "wids"},
    ),
    "null early": (
        "a.tar",
        a_tar((f"{number}.json", b'{"a": null}' if number < 5 else b'{"a": 3}') for number in range(8)),
        {"hf", "tfds"},
    ),
    "records": ("a.record", framed(*[an_example(a=1)] * 8), {"energon", "hf", "tfds", "webdataset", "wids"}),
    "records lack": (
        "a.record",
        framed(*[an_example(a=1, b=1)] * 5, *[an_example(a=1)] * 3),
        {"energon", "grain", "hf", "tfds", "webdataset", "wids"},
    ),
    "lists": (
        "a.record",
        framed(*[an_example(a=[1] * (1 + number % 2)) for number in range(8)]),
        {"energon", "grain", "hf", "ray", "tfds", "webdataset", "wids"},
    ),
}


@pytest.fixture(params=TRAPS)
def trap(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Path, set[str]]:
    name, data, readers = TRAPS[request.param]
    return write(tmp_path / "in" / name, data), readers


def tripped(path: Path, readers: str) -> set[str]:
    return tripped_at(str(path), readers)


def tripped_at(path: str, readers: str) -> set[str]:
    report = verify(path, workers=1, readers=readers)
    faults = [fault for file in report.files for fault in file.faults]
    assert {fault.kind for fault in faults} <= {"reader"}
    return {fault.message.partition(":")[0] for fault in faults}


def test_a_trap_is_a_fault_of_the_readers_that_trip(trap: tuple[Path, set[str]]) -> None:
    path, readers = trap
    assert tripped(path, ",".join(READERS)) == readers


def said(path: Path, readers: str, **options: Any) -> set[str]:
    """The whole message of each fault."""
    report = verify(str(path), workers=1, readers=readers, **options)
    return {fault.message for file in report.files for fault in file.faults}


TARS = "it reads tars only; tar2tf convert writes either kind"
FORMS = "so batches fail; open_records(default=) gives all samples one form"
FIRST = "so it refuses the shard; keep entries that all samples have (--op keep), or put a complete sample first"
SAYS: dict[str, dict[str, list[str]]] = {
    "plain": {"dali,energon,grain,hf,ray,webdataset,wids": []},
    "capitals": {
        "dali": [
            "the extension of '0000.PNG' has capitals, which it keeps in the column's name; "
            "tar2tf convert writes extensions in lower case"
        ],
        "tfds": ["it reads TFRecords only; tar2tf convert writes either kind"],
    },
    "dots": {
        "grain": [
            "'img.v1.0000.png' has several dots: it belongs to the sample 'img', with others; "
            "convert with --key-split last and --key to names without dots"
        ]
    },
    "apart": {
        "ray": ["the members of sample '0000' are not adjacent: it reads several samples; tar2tf convert regroups them"]
    },
    "lacks early": {
        "grain": [f"1 sample lacks 'cls', {FORMS}"],
        "hf": [f"some of the first 5 samples lack cls, {FIRST}"],
    },
    "long in pax": {
        "dali": [
            f"the long name '{LONG}/0000.png' is in a pax header, which it refuses; "
            "convert it: tar2tf convert IN -o 'new-<>.tar'"
        ],
        "wids": [f"of the name '{LONG}/0000.png' it reads 100 bytes; give samples shorter keys with convert --key"],
    },
    "null early": {
        "hf": ["json:a is null in the first 5 samples and not in '5', where it fails; put a sample with a value first"]
    },
    "records": {
        "hf": [TARS],
        "tfds": ["no dataset_info.json and features.json describe the shards; tar2tf export tfds writes them"],
    },
    "records lack": {"grain": [f"3 samples lack 'b', {FORMS}"]},
    "lists": {
        "grain": ["the lists of 'a' differ in length, so batches fail; load_dataset(pad=True) pads"],
        "ray": ["'a' has one value in some records and several in others: it is a value there, a list here"],
    },
}


@pytest.mark.parametrize(("name", "reader"), [(name, reader) for name, of in SAYS.items() for reader in of])
def test_a_fault_of_a_reader_says_which_name_and_what_to_do(tmp_path: Path, name: str, reader: str) -> None:
    file, data, _ = TRAPS[name]
    path = write(tmp_path / file, data)
    assert said(path, reader) == {f"{reader}: {message}" for message in SAYS[name][reader]}


def of_each(number: int, *lacking: tuple[int, str]) -> bytes:
    return a_tar((f"{n}.{name}", b"1") for n in range(number) for name in "abc" if (n, name) not in lacking)


def of_json(*values: bytes) -> bytes:
    return a_tar((f"{number}.x.json", value) for number, value in enumerate(values))


NULL = "x.json:a is null in the first 5 samples and not in '{}', where it fails; put a sample with a value first"


@pytest.mark.parametrize(
    ("data", "reader", "messages"),
    [
        (of_each(6, (1, "b"), (2, "b"), (3, "c")), "hf", [f"some of the first 5 samples lack b, c, {FIRST}"]),
        (of_each(6, (4, "a")), "hf", [f"some of the first 5 samples lack a, {FIRST}"]),
        (of_each(6, (5, "a")), "hf", []),
        (
            of_each(6, (1, "b"), (2, "b"), (3, "c")),
            "grain",
            [f"2 samples lack 'b', {FORMS}", f"1 sample lacks 'c', {FORMS}"],
        ),
        (of_json(*[b'{"a": null}'] * 5, b"no JSON", b"[1]", b'{"a": 1}', b'{"a": 2}'), "hf", [NULL.format(7)]),
        (of_json(*[b'{"a": null}'] * 4, b'{"a": 1}', b'{"a": 1}'), "hf", []),
        (of_json(b'{"a": 1}', *[b'{"a": null}'] * 5, b'{"a": 1}'), "hf", []),
        (of_json(*[b'{"a": null, "b": 1}'] * 9, b'{"a": 0, "b": null}'), "hf", [NULL.format(9)]),
        (of_json(*[b'{"a": null}'] * 9), "hf", []),
        (of_json(*[b"[null]"] * 5, b"[1]"), "hf", []),
        (a_tar([("._a.PNG", b""), ("a.png", b""), (".HIDDEN", b""), ("b.png", b"")]), "hf,wids", []),
        (a_tar([("a.v1.png", b""), ("b.v1.png", b"")]), "hf", []),
        (a_tar([(f"{'a' * 97}.b", b"")]), "wids", []),
        (a_tar([(f"{'a' * 98}.b", b"")]), "wids", []),
        (
            a_tar([(f"{'a' * 99}.b", b"")]),
            "wids",
            [f"of the name '{'a' * 99}.b' it reads 100 bytes; give samples shorter keys with convert --key"],
        ),
        (a_tar([("0.txt", bytes(9000))])[:-9999], "hf,grain", None),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_reader_trips_over_is_counted_exactly(
    tmp_path: Path, data: bytes, reader: str, messages: list[str] | None
) -> None:
    found = said(write(tmp_path / "a.tar", data), reader)
    if messages is None:  # a damaged tar, which verify reports itself
        assert (
            found == said(tmp_path / "a.tar", "wids") == {fault.message for fault in verify(tmp_path).files[0].faults}
        )
    else:
        assert found == {f"{reader}: {message}" for message in messages}


def test_shards_of_each_host_and_files_next_to_them_are_named(tmp_path: Path) -> None:
    write(tmp_path / "a.tar", of_each(2))
    few = "so some get none, and it fails there; convert with --num-shards"
    assert said(tmp_path, "webdataset", hosts=2) == {f"webdataset: there are only 1 shard for 2 hosts, {few}"}
    assert said(tmp_path, "webdataset", hosts=1) == set()
    write(tmp_path / "b.JSON", b"{}")
    first, card = "and it reads the files of the most frequent extension", "write a dataset card: tar2tf export hf"
    assert said(tmp_path, "hf") == {f"hf: b.JSON is next to the shards, {first}; {card}"}
    write(tmp_path / "_x.json", b"{}")
    assert said(tmp_path, "hf") == {f"hf: _x.json, b.JSON are next to the shards, {first}; {card}"}
    folder, pattern = "and it reads a folder's files as shards", "name the shards by a pattern, or move these files"
    assert said(tmp_path, "ray") == {f"ray: b.JSON is next to the shards, {folder}; {pattern}"}
    write(tmp_path / "a.txt", b"")
    assert said(tmp_path, "ray") == {f"ray: a.txt, b.JSON are next to the shards, {folder}; {pattern}"}


def test_lengths_of_lists_are_compared_between_shards_and_named_once(tmp_path: Path) -> None:
    for number, lengths in enumerate(((1, 1), (2, 2), (1, 2), (3, 1))):
        write(tmp_path / f"{number}.record", framed(*(an_example(a=[1] * length, b=[1]) for length in lengths)))
    files = verify(str(tmp_path), workers=1, readers="grain,ray").files
    ragged = "grain: the lists of 'a' differ in length, so batches fail; load_dataset(pad=True) pads"
    nested = "ray: 'a' has one value in some records and several in others: it is a value there, a list here"
    told = [[fault.message for fault in file.faults] for file in files]
    assert told == [[], [ragged], [nested], [nested]]


def test_headers_of_tars_on_a_server_are_not_read_again(web: FaultyServer) -> None:
    long = [(f"{LONG}/{name}", data) for name, data in SAMPLES]
    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        web.objects["in/a.tar"] = a_tar(long, format=form)
        assert tripped_at(f"{web.url}/in/a.tar", "dali,wids") == {"wids"}


def test_names_that_convert_writes_are_read_by_all_but_wids(tmp_path: Path) -> None:
    for number, before in enumerate((LONG, "ü", f"{LONG}/{LONG}/ü")):
        tar = write(tmp_path / f"{number}.tar", a_tar(renamed(f"{before}{{}}".format), format=tarfile.PAX_FORMAT))
        out = tmp_path / "out" / tar.name
        assert tar2tf("convert", tar, "-o", out, "-q", "--for", "dali,hf").returncode == 0
        assert tripped(out, ",".join(READERS)) == ({"tfds"} if before == "ü" else {"tfds", "wids"})


@pytest.mark.parametrize(
    ("suffix", "readers"),
    [
        (".gz", {"dali", "energon", "tfds", "wids"}),
        (".zst", {"dali", "energon", "hf", "tfds", "webdataset", "wids"}),
    ],
)
def test_compressions_that_a_reader_does_not_read_are_faults(tmp_path: Path, suffix: str, readers: set[str]) -> None:
    tar = write(tmp_path / "a.tar", a_tar(SAMPLES))
    assert tar2tf("convert", tar, "-o", tmp_path / "out" / f"a.tar{suffix}", "-q").returncode == 0
    assert tripped(tmp_path / "out" / f"a.tar{suffix}", ",".join(READERS)) == readers


def test_files_next_to_shards_are_faults_of_those_who_read_folders(tmp_path: Path, run: Callable[..., Ran]) -> None:
    write(tmp_path / "a.tar", a_tar(SAMPLES))
    write(tmp_path / "_manifest.json", b"{}")
    assert tripped(tmp_path, "hf,ray,webdataset") == {"hf"}
    write(tmp_path / "b.tar", a_tar(SAMPLES))
    assert tripped(tmp_path, "hf,ray,webdataset") == set()
    write(tmp_path / "notes.json", b"{}")
    assert tripped(tmp_path, "hf,ray,webdataset") == {"hf", "ray"}
    write(tmp_path / "README.md", b"---\nconfigs:\n- data_files:\n  - {split: train, path: '*.tar'}\n---\n")
    assert tripped(tmp_path, "hf,ray,webdataset") == {"ray"}
    ran = run(tmp_path, "--for", "ray")
    assert (ran.code, "README.md, notes.json are next to the shards" in ran.out) == (1, True)
    assert "--for knows no reader 'dalli'; did you mean 'dali'?" in run(tmp_path, "--for", "dalli").err


def test_shards_that_are_described_are_none_of_tfds(tmp_path: Path) -> None:
    tar = write(tmp_path / "in" / "a.tar", a_tar([(f"{number}.cls", b"1") for number in range(3)]))
    name = "x-<split>.tfrecord-<00000>-of-<total>"
    convert = ("convert", tar, "-o", tmp_path / "out" / name, "--split", "train=1", "-q")
    assert tar2tf(*convert).returncode == 0
    assert tripped(tmp_path / "out", "tfds") == {"tfds"}
    assert tar2tf("export", "tfds", tmp_path / "out").returncode == 0
    assert tripped(tmp_path / "out", "tfds") == set()


# --- The readers themselves ---


def webdataset(path: Path) -> Iterator[dict[str, Any]]:
    wds = pytest.importorskip("webdataset")
    yield from ({**sample} for sample in wds.WebDataset([str(path)], shardshuffle=False))


def hf(path: Path) -> Iterator[dict[str, Any]]:
    datasets = pytest.importorskip("datasets")
    yield from datasets.load_dataset("webdataset", data_files=[str(path)], split="train", cache_dir=f"{path}.cache")


def ray(path: Path) -> Iterator[dict[str, Any]]:
    data = pytest.importorskip("ray.data")
    yield from data.read_webdataset([str(path)]).iter_rows()


def dali(path: Path) -> Iterator[dict[str, Any]]:
    fn = pytest.importorskip("nvidia.dali.fn")
    from nvidia.dali import pipeline_def

    @pipeline_def(batch_size=8, num_threads=1, device_id=None)
    def pipeline() -> Any:
        entries = ["json"] if b".json" in path.read_bytes() else ["png", "cls"]
        read = fn.readers.webdataset(paths=[str(path)], ext=entries, missing_component_behavior="empty")
        return tuple(read) if isinstance(read, list) else read  # one entry is no list

    built = pipeline()
    built.build()
    columns = built.run()
    for number in range(len(columns[0])):
        yield {str(place): column.at(number).tobytes() for place, column in enumerate(columns)}


def wids(path: Path) -> Iterator[dict[str, Any]]:
    found = pytest.importorskip("wids")
    listed = [{"url": str(path), "nsamples": 8}]
    dataset = found.ShardListDataset(listed, cache_dir=f"{path}.cache", keep=True, transformations=[])
    samples = (dataset[number] for number in range(8))
    yield from ({name.removeprefix("."): value for name, value in sample.items()} for sample in samples)


ENERGON = shutil.which("energon")
BY_ENERGON = """
import sys
from pathlib import Path
from megatron.energon import Cooker, DefaultTaskEncoder, Sample, WorkerConfig, basic_sample_keys
from megatron.energon import edataclass, get_loader, get_train_dataset, stateless
from megatron.energon.epathlib import EPath
from megatron.energon.flavors.webdataset.prepare import WebdatasetPreparator

@edataclass
class Parts(Sample):
    names: list

@stateless
def cook(sample: dict) -> Parts:
    return Parts(**basic_sample_keys(sample), names=[name for name in sample if not name.startswith("_")])

class Task(DefaultTaskEncoder):
    decoder = None
    cookers = [Cooker(cook)]

path = Path(sys.argv[1])
WebdatasetPreparator.prepare_dataset(EPath(path.parent), [path.name], split_parts_ratio=[("train", 1.0)], workers=1)
(path.parent / ".nv-meta" / "dataset.yaml").write_text(
    "__module__: megatron.energon\\n__class__: CrudeWebdataset\\nsubflavors: {}\\n")
dataset = get_train_dataset(
    path.parent, batch_size=None, shuffle_buffer_size=None, max_samples_per_sequence=None,
    worker_config=WorkerConfig(rank=0, world_size=1, num_workers=0), repeat=False, task_encoder=Task())
print([(sample.__key__, sample.names) for sample in get_loader(dataset)])
"""


def energon(path: Path) -> Iterator[dict[str, Any]]:
    if ENERGON is None:
        pytest.skip("needs megatron-energon, with `energon` on PATH")
    python = Path(ENERGON).parent / "python"
    ran = subprocess.run([python, "-c", BY_ENERGON, path], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr[-2000:]
    for _, names in eval(ran.stdout.splitlines()[-1]):
        yield dict.fromkeys(names)


def tfds(path: Path) -> Iterator[dict[str, Any]]:
    found = pytest.importorskip("tensorflow_datasets")
    builder = found.builder_from_directory(str(path.parent))
    yield from found.as_numpy(builder.as_dataset(split="train"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("read", [webdataset, hf, ray, dali, wids, energon, tfds], ids=lambda read: read.__name__)
def test_a_reader_trips_over_its_traps_and_over_no_others(
    trap: tuple[Path, set[str]], read: Callable[[Path], Iterator[dict[str, Any]]], request: pytest.FixtureRequest
) -> None:
    path, readers = trap
    if path.suffix != ".tar":
        pytest.skip("a reader of tars")
    name = request.node.callspec.params["trap"]
    columns = {"json"} if "null" in name else {"png", "cls"}
    try:
        samples = list(read(path))
        found = {column for sample in samples for column in sample if not column.startswith("__")}
        empty = sum(value == b"" for sample in samples for value in sample.values())  # of DALI, which lacks nothing
        right = found == columns if read is not dali else empty == name.startswith("lacks")
        as_meant = len(samples) == 8 and right
    except pytest.skip.Exception:
        raise
    except Exception:
        as_meant = False
    assert as_meant == (read.__name__ not in readers)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", ["records", "lists", "_x-manifest.json", "README.md", "a.record.idx"])
def test_ray_trips_over_lists_and_side_files_of_records(name: str, tmp_path: Path) -> None:
    data = pytest.importorskip("ray.data")
    path = write(tmp_path / "a.record", TRAPS["lists" if name == "lists" else "records"][1])
    if name == "a.record.idx":
        assert tar2tf("index", tmp_path).returncode == 0
    elif "." in name:
        write(tmp_path / name, b"{}")
    try:
        rows = data.read_tfrecords(str(tmp_path)).take_all()
        as_meant = len(rows) == 8 and {type(row["a"]) for row in rows} == {int}
    except Exception:
        as_meant = False
    assert as_meant == (tripped(path.parent, "ray") == set())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("hosts", [2, 3])
def test_webdataset_trips_where_a_host_gets_no_shard(
    hosts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., Ran]
) -> None:
    paths = [str(write(tmp_path / f"{number}.tar", a_tar(SAMPLES))) for number in range(2)]
    ran = run(tmp_path, "--for", "webdataset", "--hosts", str(hosts))
    assert (ran.code, "there are only 2 shards for 3 hosts" in ran.out) == ((1, True) if hosts == 3 else (0, False))
    wds = pytest.importorskip("webdataset")
    monkeypatch.setenv("WORLD_SIZE", str(hosts))
    monkeypatch.setenv("RANK", str(hosts - 1))
    dataset = wds.WebDataset(paths, shardshuffle=False, nodesplitter=wds.split_by_node)
    if hosts == 2:
        assert len([*dataset]) == 8
    else:
        with pytest.raises(ValueError, match="No samples found"):
            next(iter(dataset))


@pytest.mark.filterwarnings("ignore")
def test_tfds_trips_where_a_host_gets_no_shard(tmp_path: Path) -> None:
    found = pytest.importorskip("tensorflow_datasets")
    import tensorflow as tf

    tar = write(tmp_path / "in" / "a.tar", a_tar(SAMPLES))
    convert = ("convert", tar, "-o", tmp_path / "out/x-<00000>.record", "--num-shards", "2", "--for", "tfds", "-q")
    assert tar2tf(*convert).returncode == 0
    for hosts in (2, 3):
        context = tf.distribute.InputContext(num_input_pipelines=hosts, input_pipeline_id=hosts - 1)
        config = found.ReadConfig(input_context=context)
        builder = found.builder_from_directory(str(tmp_path / "out"))
        trips = not verify(str(tmp_path / "out"), workers=1, readers="tfds", hosts=hosts).ok
        if trips:
            with pytest.raises(ValueError, match="num_input_pipelines"):
                builder.as_dataset(split="train", read_config=config)
        else:
            assert len([*builder.as_dataset(split="train", read_config=config)]) == 4
        assert trips == (hosts == 3)


def test_hosts_share_the_shards_of_each_split(tmp_path: Path, run: Callable[..., Ran]) -> None:
    write(tmp_path / "in.tar", a_tar(SAMPLES))
    out = tmp_path / "out" / "<split>-<>.tar"
    convert = ("convert", tmp_path / "in.tar", "-o", out, "--split", "train=0.5,val=0.5")
    assert tar2tf(*convert, "--num-shards", "train=3,val=1", "-q").returncode == 0
    ran = run(tmp_path / "out", "--for", "webdataset", "--hosts", "2")
    assert "there are only 1 shard of val for 2 hosts" in ran.out
    assert "of train" not in ran.out
    assert "--hosts is for --for" in run(tmp_path / "out", "--hosts", "2").err


@pytest.mark.filterwarnings("ignore")
def test_grain_batches_what_has_one_form(trap: tuple[Path, set[str]]) -> None:
    grain = pytest.importorskip("grain")
    path, readers = trap
    try:
        batches = [*grain.MapDataset.source(open_records(str(path))).batch(8)]
        as_meant = len(batches) == 1 and len(batches[0]["__key__" if path.suffix == ".tar" else "a"]) == 8
    except (KeyError, ValueError):
        as_meant = False
    assert as_meant == ("grain" not in readers)
