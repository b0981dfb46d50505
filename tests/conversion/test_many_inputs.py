"""Many small inputs: what is done for each must not grow with their number."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commands import tar2tf
from servers import FaultyServer
from shards import contents, records, samples, samples_of, shards_in, tree, write_members, write_tar
from tar2tf_cli import convert
from tar2tf_cli.api.objects import ByteStream, ObjectInfo
from tar2tf_cli.conversion.plan import Plan
from tar2tf_cli.conversion.publish import Summary
from tar2tf_cli.conversion.worker import load_group
from tar2tf_cli.errors import DamagedShardError, SampleError
from tar2tf_cli.events import Events
from tar2tf_cli.formats.files import crc32c_of_file
from tar2tf_cli.ops import Func
from tar2tf_cli.spec.conversion import Conversion, Output
from tar2tf_cli.stores.directory import DirectorySource


def test_the_sizes_of_all_inputs_are_not_added_up_for_each_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        write_tar(tmp_path / "in" / f"{number:02}.tar", samples(1, first=number))
    monkeypatch.setattr("tar2tf_cli.engines.base.PROGRESS_SECONDS", -1)  # after every block
    asked: Counter[str] = Counter()
    size = Plan.size.fget

    def counted(plan: Plan) -> int | None:
        asked["size"] += 1
        return size(plan)

    monkeypatch.setattr(Plan, "size", property(counted))
    seen: list[int] = []

    class Progress(Events):
        def progress(self, size: int) -> None:
            seen.append(size)

    summary = convert(Conversion(str(tmp_path / "in"), str(tmp_path / "out.record")), workers=1, events=Progress())
    assert summary.records == 30
    assert len(seen) >= 30
    assert asked["size"] < 5


def test_progress_is_told_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tars(tmp_path / "in", 30)
    monkeypatch.setattr("tar2tf_cli.engines.base.PROGRESS_SECONDS", 1000)
    seen: list[int] = []

    class Progress(Events):
        def progress(self, size: int) -> None:
            seen.append(size)

    convert(Conversion(str(tmp_path / "in"), str(tmp_path / "out.record")), workers=1, events=Progress())
    assert 1 <= len(seen) < 10


def test_workers_share_the_cpus_so_that_numpy_and_opencv_start_no_threads_in_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("OPENBLAS_NUM_THREADS", "OPENCV_FOR_THREADS_NUM")
    functions = tmp_path / "functions.py"
    functions.write_text(
        "import os\n"
        "def count(sample):\n"
        f"    sample['cls'] = ' '.join(os.environ.get(name, 'all') for name in {names})\n"
        "    return sample\n"
    )
    for number in range(2):
        write_tar(tmp_path / "in" / f"{number}.tar", samples(1, first=number))
    monkeypatch.delenv(names[0], raising=False)
    monkeypatch.setenv(names[1], "3")
    tar2tf("convert", tmp_path / "in", "-o", tmp_path / "a.record", "--op", f"func:{functions}:count", "-j", "2")
    assert {entries["cls"] for _, entries in contents(tmp_path / "a.record")} == {b"1 3"}


# --- Groups: small inputs that are read together ---


def tars(folder: Path, count: int, *, odd: int | None = None) -> list[Path]:
    """Tars of two small samples; members of the odd one are not adjacent."""
    made = []
    for number in range(count):
        contents = samples(2, first=2 * number)
        members = [(f"{key}.{name}", data) for key, entries in contents for name, data in entries.items()]
        made.append(
            write_members(folder / f"{number:03}.tar", members[::2] + members[1::2] if number == odd else members)
        )
    return made


def run(folder: Path, out: Path, **options: Any) -> Summary:
    return convert(Conversion(str(folder), Output(str(out / "<>.record"), records_per_shard=95), **options), workers=1)


def test_groups_write_the_same_bytes_with_any_number_of_workers(tmp_path: Path) -> None:
    tars(tmp_path / "in", 150, odd=70)
    written = []
    for workers in (1, 2, 5):
        out = tmp_path / str(workers) / "<>.record"
        done = tar2tf("convert", tmp_path / "in", "-o", out, "--records-per-shard", "95", "-j", str(workers))
        assert done.returncode == 0, done.stderr
        written.append(tree(tmp_path / str(workers)))
    assert written[0] == written[1] == written[2]
    assert contents(*shards_in(tmp_path / "1")) == [
        each for tar in tars(tmp_path / "again", 150) for each in samples_of(tar)
    ]


def test_a_small_input_is_opened_once_and_has_no_file_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {str(path) for path in tars(tmp_path / "in", 100)}
    opened: Counter[str] = Counter()
    original, open_input = os.open, DirectorySource.open

    def counted(path: Any, *rest: Any, **options: Any) -> int:
        opened[str(path)] += 1
        return original(path, *rest, **options)

    def counted_input(source: DirectorySource, item: ObjectInfo) -> ByteStream:
        opened[source.locate(item.name)] += 1
        return open_input(source, item)

    monkeypatch.setattr(os, "open", counted)
    monkeypatch.setattr(DirectorySource, "open", counted_input)
    run(tmp_path / "in", tmp_path / "out")
    assert {opened[name] for name in names} == {1}
    assert len(opened.keys() - names) < 40


class Stop:
    """An op that fails at a sample, unless it is allowed to pass."""

    passes = False

    def __call__(self, sample: Any) -> Any:
        if sample["__key__"] == "0200" and not Stop.passes:
            raise ValueError("stop")
        return sample


def stop(sample: Any) -> Any:
    return Stop()(sample)


@pytest.fixture
def interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], dict[str, bytes]]:
    """A conversion of 120 tars to `out` that failed at the middle of the second group; the function continues it."""
    tars(tmp_path / "in", 120, odd=97)
    monkeypatch.setattr(Stop, "passes", False)

    def go_on() -> dict[str, bytes]:
        monkeypatch.setattr(Stop, "passes", True)
        run(tmp_path / "in", tmp_path / "out", ops=[Func(stop)])
        return tree(tmp_path / "out")

    with pytest.raises(SampleError, match="stop"):
        run(tmp_path / "in", tmp_path / "out", ops=[Func(stop)])
    return go_on


@pytest.fixture
def expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupted: Any) -> dict[str, bytes]:
    """What is written without any interruption."""
    with monkeypatch.context() as patched:
        patched.setattr(Stop, "passes", True)
        run(tmp_path / "in", tmp_path / "expected", ops=[Func(stop)])
    return tree(tmp_path / "expected")


def spools(folder: Path) -> list[Path]:
    return sorted(folder.glob(".*/input-*.spool"))


def test_small_inputs_on_a_server_are_asked_for_several_at_once(web: FaultyServer, tmp_path: Path) -> None:
    for tar in tars(tmp_path / "in", 12):
        web.objects[f"b/{tar.name}"] = tar.read_bytes()
    take, lock, several = web.take, threading.Lock(), threading.Event()
    waiting = 0

    def held(request: str) -> Any:
        nonlocal waiting
        if request.startswith("GET"):
            with lock:
                waiting += 1
                if waiting == 3:
                    several.set()
            several.wait(1)
            with lock:
                waiting -= 1
        return take(request)

    names = ",".join(sorted(path.name for path in (tmp_path / "in").iterdir()))
    conversion = Conversion(f"{web.url}/b/{{{names}}}", str(tmp_path / "x.record"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(web, "take", held)
        convert(conversion, workers=1)
    assert several.is_set()


@pytest.mark.parametrize("shards", [{}, {"max_shard_size": 600_000}], ids=str)
def test_inputs_on_a_server_that_are_read_together_and_copied_later_are_each_their_own(
    shards: dict[str, int], web: FaultyServer, tmp_path: Path
) -> None:
    for number in range(5):
        tar = write_tar(tmp_path / "in" / f"{number}.tar", samples(5, 50_000, first=5 * number))
        web.objects[f"b/{tar.name}"] = tar.read_bytes()
    for folder, bucket in (("far", f"{web.url}/b/{{0..4}}.tar"), ("near", str(tmp_path / "in"))):
        convert(Conversion(bucket, Output(str(tmp_path / folder / "x-<>.record"), **shards)), workers=1)
    assert records(*shards_in(tmp_path / "far")) == records(*shards_in(tmp_path / "near"))


def stop_behind_three(sample: Any) -> Any:
    if sample["__key__"] > "0002":
        raise ValueError("stop")
    return sample


@pytest.mark.parametrize("options", [{}, {"types": ["cls=int64"]}, {"on_error": "skip"}], ids=str)
@pytest.mark.parametrize("size", [300, 60_000])
def test_what_is_behind_a_limit_cannot_fail(options: dict[str, Any], size: int, tmp_path: Path) -> None:
    for number in range(2):
        write_tar(tmp_path / "in" / f"{number}.tar", samples(6, size, first=6 * number))
    done = run(tmp_path / "in", tmp_path / "out", ops=[Func(stop_behind_three)], limit=3, **options)
    assert (done.records, done.skipped_samples) == (3, 0)


def test_what_a_group_read_before_an_error_is_not_read_again(
    tmp_path: Path, interrupted: Any, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [load_group(str(path)) for path in sorted((tmp_path / "out").glob(".*/input-*.index"))]
    numbers = [number for group in left if group for number in group.numbers]
    assert numbers == list(range(100))
    assert left[-1]
    assert left[-1].spool_crc == crc32c_of_file(str(spools(tmp_path / "out")[-1]))
    read = []
    original = DirectorySource.open
    monkeypatch.setattr(DirectorySource, "open", lambda self, item: read.append(item.name) or original(self, item))
    assert interrupted() == expected
    assert read == [f"{number:03}.tar" for number in range(100, 120)]


@pytest.mark.parametrize("damage", ["spool", "cut spool", "no spool", "index", "no index", "swapped"])
def test_a_damaged_group_is_read_again(tmp_path: Path, interrupted: Any, expected: Any, damage: str) -> None:
    spool, *others = spools(tmp_path / "out")[-2:]
    index = spool.with_suffix(".index")
    if damage == "swapped":
        spool.write_bytes(others[0].read_bytes())
    elif damage.startswith("no"):
        (spool if damage == "no spool" else index).unlink()
    else:
        path = index if damage == "index" else spool
        data = bytearray(path.read_bytes())
        data[-9] ^= 1
        path.write_bytes(data[:-1] if damage == "cut spool" else data)
    assert interrupted() == expected


def test_after_an_input_of_a_group_changed_all_is_as_if_it_were_new(tmp_path: Path, interrupted: Any) -> None:
    write_tar(tmp_path / "in" / "090.tar", samples(3, first=2000))
    found = interrupted()
    run(tmp_path / "in", tmp_path / "fresh", ops=[Func(stop)])
    assert found == tree(tmp_path / "fresh")


def test_a_faulty_sample_in_a_group_is_skipped_alone(tmp_path: Path) -> None:
    made = tars(tmp_path / "in", 80)
    data = made[40].read_bytes()
    made[40].write_bytes(data[:1500])
    with pytest.raises(DamagedShardError) as caught:
        run(tmp_path / "in", tmp_path / "out")
    assert caught.value.shard == str(made[40])
    found = run(tmp_path / "in", tmp_path / "skipped", on_error="skip")
    made[40].unlink()
    run(tmp_path / "in", tmp_path / "without")
    assert found.skipped_samples == 1
    skipped, without = (b"".join(records(*shards_in(tmp_path / name))) for name in ("skipped", "without"))
    assert skipped == without
