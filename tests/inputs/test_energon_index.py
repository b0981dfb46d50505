"""Indexes for Megatron Energon: the samples that it takes, tars that it cannot read, and who wrote an index."""

from __future__ import annotations

import io
import struct

import pytest

from make_bytes import tar_of
from tar2tf_cli.errors import DamagedShardError, UsageError
from tar2tf_cli.inputs.energon_index import (
    dali_path_for_energon,
    energon_offsets,
    energon_samples,
    index_writer,
    packed_offsets,
)


def samples_of(data: bytes) -> list[tuple[str, int, int, list[tuple[str, int, int]]]]:
    found = energon_samples(io.BytesIO(data), "x.tar")
    return [(one.key, one.start, one.end, [*one.parts]) for one in found]


def test_adjacent_members_of_one_name_up_to_the_first_dot_are_a_sample() -> None:
    names = ["d.e/a.cls", "d.e/a.x.jpg", "README", "b.", "d.e/a.cls", "c.jpg"]
    data = tar_of([(name, b"x" * 600 if name == "d.e/a.x.jpg" else b"xy") for name in names])
    assert samples_of(data) == [
        ("d.e/a", 0, 3584, [("cls", 512, 2), ("x.jpg", 1536, 600)]),
        ("b", 3584, 4608, [("", 4096, 2)]),
        ("d.e/a", 4608, 5632, [("cls", 5120, 2)]),
        ("c", 5632, 6656, [("jpg", 6144, 2)]),
    ]
    index = packed_offsets([*energon_samples(io.BytesIO(data), "x.tar")])
    assert index == struct.pack("<5Q", 0, 3584, 4608, 5632, 6656)
    assert energon_offsets(index) == [0, 3584, 4608, 5632, 6656]


def test_tars_that_energon_would_read_in_part_are_refused() -> None:
    files = [(f"{number}.json", b"{}") for number in range(25)]
    zeroed = bytearray(tar_of(files))
    zeroed += bytes(-len(zeroed) % 10240)
    zeroed[3072:4096] = bytes(1024)
    with pytest.raises(DamagedShardError) as damaged:
        samples_of(bytes(zeroed))
    assert (damaged.value.kind, damaged.value.offset) == ("zeroed", 3072)
    with pytest.raises(UsageError) as several:
        samples_of(tar_of(files) + tar_of(files))
    hint = "tar2tf convert IN -o 'new-<>.tar' writes single ones"
    fault = "x.tar: is several tars end to end, of which Energon reads the first"
    assert several.value.sentence == f"{fault}; {hint}"
    with pytest.raises(DamagedShardError) as empty:
        samples_of(tar_of([("README", b"x"), (".hidden", b"x")]))
    assert (empty.value.kind, empty.value.sentence) == (
        "empty",
        "x.tar: has no samples, and Energon reads no such tar",
    )


@pytest.mark.parametrize(
    ("data", "offsets", "writer"),
    [
        (struct.pack("<2Q", 0, 512), [0, 512], "Megatron Energon"),
        (struct.pack("<2Q", 1024, 2048), [1024, 2048], "Megatron Energon"),
        (struct.pack("<3Q", 0, 512, 512), None, None),
        (struct.pack("<2Q", 0, 513), None, None),
        (struct.pack("<2Q", 1, 512), None, None),
        (struct.pack("<2Q", 0, 512)[:-1], None, None),
        (b"", None, None),
        (b"v1.0 3\n", None, "an older wds2idx of DALI"),
        (b"v1.1 30\njpg 1 2", None, "an older wds2idx of DALI"),
        (b"v1.2 3\njpg 1 2", None, "DALI"),
        (b"v1.2 x\n", None, None),
        (b"v1.2 3", None, None),
    ],
)
def test_the_writer_of_an_index_is_told_by_its_content(
    data: bytes, offsets: list[int] | None, writer: str | None
) -> None:
    assert (energon_offsets(data), index_writer(data)) == (offsets, writer)


def test_the_index_of_dali_gets_a_name_of_its_own() -> None:
    assert dali_path_for_energon("shards/a.tar") == "shards/a.idx"
    assert dali_path_for_energon("shards/a.tgz") == "shards/a.tgz.dali.idx"
