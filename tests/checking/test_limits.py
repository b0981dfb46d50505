"""Lists that are printed whole up to a number of items, and shortened or summed up from the next one on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from make_bytes import tar_of
from verify_runs import Ran, an_example, flipped, framed, in_a_process, write


@pytest.mark.parametrize(("number", "listed", "more"), [(20, 20, []), (21, 10, ["and 11 more; use -v to see all"])])
def test_shards_are_listed_up_to_twenty(
    number: int, listed: int, more: list[str], tmp_path: Path, run_inspect: Callable[..., Ran]
) -> None:
    for one in range(number):
        write(tmp_path / f"s-{one:02d}.tar", tar_of([("a.txt", b"x")]))
    lines = run_inspect(tmp_path).lines
    assert [line.split()[0] for line in lines if line.startswith("s-")] == [f"s-{one:02d}.tar" for one in range(listed)]
    assert [line for line in lines if line.startswith("and ")] == more
    glob = f'files = sorted(tf.io.gfile.glob("{tmp_path}/r-*.record"))'
    for one in range(number):
        write(tmp_path / f"r-{one:02d}.record", framed(an_example(n=1)))
    code = run_inspect(tmp_path, "*.record", "--code").lines
    assert sum(line.startswith(f'    "{tmp_path}/r-') for line in code) == (0 if more else 20)
    assert (glob in code) == bool(more)


@pytest.mark.parametrize(("number", "more"), [(100, []), (101, ["and 1 more; use --json to see all"])])
def test_entries_are_listed_up_to_a_hundred(
    number: int, more: list[str], tmp_path: Path, run_inspect: Callable[..., Ran]
) -> None:
    path = write(tmp_path / "a.tar", tar_of([(f"a.e{one:03d}", b"x") for one in range(number)]))
    lines = run_inspect(path).lines
    assert sum(line.startswith("e") and line[1:4].isdecimal() for line in lines) == 100
    assert [line for line in lines if line.startswith("and ")] == more


@pytest.mark.parametrize(("number", "listed"), [(20, 20), (21, 10)])
def test_differences_are_listed_up_to_twenty_of_a_kind(number: int, listed: int, tmp_path: Path) -> None:
    a = write(tmp_path / "a.tar", tar_of([("same.txt", b"x"), *[(f"{one:02d}.txt", b"x") for one in range(number)]]))
    b = write(tmp_path / "b.tar", tar_of([("same.txt", b"x")]))
    more = [f"only in A: {number - listed} more; use -v to see all"] if listed < number else []
    assert in_a_process("diff", a, b).lines == [*[f"only in A: {one:02d} ({a})" for one in range(listed)], *more]
    more = [f"only in B: {number - listed} more; use -v to see all"] if listed < number else []
    assert in_a_process("diff", b, a).lines == [*[f"only in B: {one:02d} ({a})" for one in range(listed)], *more]


@pytest.mark.parametrize(("number", "words"), [(200, "200 samples."), (201, "The first 200 of 201.")])
def test_a_review_shows_up_to_two_hundred_of_a_kind(number: int, words: str, tmp_path: Path) -> None:
    samples = [(f"{one:03d}.txt", b"x") for one in range(number)]
    a = write(tmp_path / "a.tar", tar_of([("same.txt", b"x"), *samples]))
    b = write(tmp_path / "b.tar", tar_of([("same.txt", b"x")]))
    assert in_a_process("diff", a, b, "--markdown", tmp_path / "x.md", "-q").code == 1
    lines = (tmp_path / "x.md").read_text().splitlines()
    assert words in lines
    assert sum(line.endswith(("| a.tar |", f"| {a} |")) for line in lines) == 200


@pytest.mark.parametrize("number", [3, 4])
def test_faults_alike_are_listed_up_to_three(number: int, tmp_path: Path, run: Callable[..., Ran]) -> None:
    record = framed(an_example(n=1))
    path = write(tmp_path / "a.record", flipped(record, 14) * number)
    place = f"{path}: record {{}}, offset {{}}: the CRC of the record's data does not match; "
    cost = f"{len(record)} bytes lost, 0 good records before, 0 after (data_crc)"
    listed = [place.format(one, one * len(record)) + cost for one in range(number)]
    more = f"{path}: 3 more like it, up to record 3, offset {3 * len(record)} (data_crc)"
    assert run(path).lines == (listed if number == 3 else [listed[0], more])
    assert run(path, "-v").lines == listed


@pytest.mark.parametrize("number", [40, 41])
def test_faults_are_listed_up_to_forty_lines(number: int, tmp_path: Path, run: Callable[..., Ran]) -> None:
    record = flipped(framed(an_example(n=1)), 14)
    for one in range(number):
        write(tmp_path / f"s-{one:02d}.record", record)
    lines = run(tmp_path).lines
    place = f"{tmp_path}/s-00.record: record 0, offset 0: the CRC of the record's data does not match"
    if number == 40:
        assert [Path(line.partition(":")[0]).name for line in lines] == [f"s-{one:02d}.record" for one in range(40)]
    else:
        words = f"41 faults in 41 files (data_crc), first: {place}"
        assert lines == [words, "use -v to see every fault, --json for all details"]
    assert len(run(tmp_path, "-v").lines) == number
