"""What is fuzzed: functions of bytes that return for any bytes, or raise AssertionError where a reader tells a lie.

Each gives its bytes to a reader in memory. An error that is not named in `tar2tf_cli.errors` ends the fuzzing. As
random bytes seldom have right checksums, inputs whose first byte is odd get them before they are read.
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from google.protobuf.message import DecodeError

from tar2tf_cli.checking.faults import FileReport
from tar2tf_cli.checking.verify import verify
from tar2tf_cli.checking.verify_records import Checker, check_tfrecord
from tar2tf_cli.conversion.worker import load_group
from tar2tf_cli.errors import DamagedShardError, SampleError, Tar2tfError
from tar2tf_cli.features.decoder import Decoder
from tar2tf_cli.features.described import contradictions, expected
from tar2tf_cli.formats.example import frame, is_sequence, parse, parse_any, strict_parse
from tar2tf_cli.formats.streams import open_stream
from tar2tf_cli.formats.tar import TarReader
from tar2tf_cli.formats.tfrecord import (
    RecordReader,
    ShardIndex,
    Want,
    find_records,
    index_of_lines,
    packed_index,
    read_index,
)
from tar2tf_cli.inputs.manifest import Manifest
from tar2tf_cli.samples.grouping import Grouper

__all__ = ["TARGETS", "Target"]

Target = Callable[[bytes], None]

_MEMORY: Final = "/dev/shm" if os.path.isdir("/dev/shm") else None


def tfrecord(data: bytes) -> None:
    """TFRecords, compressed or not: what is found is right, every byte is accounted for, and all readers agree."""
    data = repaired(data, with_crcs)
    reports = [checked(data, "records"), checked(data, "heads"), checked(data, "heads", kernel=True)]
    assert reports[0] == reports[1] == reports[2], reports
    try:
        stored = open_stream(io.BytesIO(data), "x").read(1)
    except DamagedShardError:
        return
    if not stored or stored != data[:1]:
        return
    found = reports[0]
    fast = FileReport("x", "tfrecord")
    check_tfrecord(RecordReader(io.BytesIO(data), "x", want="lengths"), lambda data: (), fast)
    if not found.faults:
        assert not fast.faults
        assert found.good.bytes == len(data)
        offsets = [offset for offset, _ in RecordReader(io.BytesIO(data), "x", check_data=False)]
        index = find_records(lambda start, size: data[start : start + size], len(data), "x")
        assert index.tolist() == [*offsets, len(data)]
        kept = read_index(
            b"".join(packed_index(ShardIndex("tfrecord", index, None, None), "x", "1")), "x", "1", len(data)
        )
        assert kept is not None
        assert kept.offsets.tolist() == index.tolist()


def repaired(data: bytes, repair: Callable[[bytes], bytes]) -> bytes:
    """The input after its first byte, with right checksums if that is odd."""
    return repair(data[1:]) if data and data[0] & 1 else data[1:]


def checked(data: bytes, want: Want, *, kernel: bool = False) -> FileReport:
    """What verify reports of a TFRecord; the kernel may check most records, if there is one."""
    report, checker = FileReport("x", "tfrecord", bytes=len(data)), Checker()
    try:
        stream = open_stream(io.BytesIO(data), "x")
        check_tfrecord(RecordReader(stream, "x", want=want, accept=checker if kernel else None), checker.check, report)
    except DamagedShardError as error:
        assert error.kind in ("gzip", "truncated", "trailing_garbage"), error
    report.features, report.sequences = checker.counts(), checker.sequences
    report.close()
    assert report.good.records + report.bad.records >= report.records
    for fault in report.faults:
        assert fault.kind
        assert fault.message
    return report


def with_crcs(data: bytes) -> bytes:
    """Records of these bytes, each of which begins with the number of its bytes."""
    records = []
    while data:
        size = data[0]
        records += frame([data[1 : 1 + size]], len(data[1 : 1 + size]))
        data = data[1 + size :]
    return b"".join(records)


def tar(data: bytes) -> None:
    """Tars, compressed or not: members as they lie there, damage with its place, and the same by headers alone."""
    data = repaired(data, with_checksums)
    found, error = members(data)
    by_headers, other = members(data, headers_only=True, every_byte=True)
    assert found == by_headers
    assert (error is None) == (other is None), (error, other)
    assert error is None or (error.shard == "x" and error.kind), error
    assert all(size >= 0 for *_, size, _ in found)
    for split in ("first", "last"):
        grouper = Grouper("x", fault, key_split=split, strict=True)
        try:
            stream = open_stream(io.BytesIO(data), "x")
            for sample in grouper.samples(TarReader(stream, "x", need_end=False)):
                assert sample["__key__"]
        except Tar2tfError as error:
            assert str(error)


def fault(error: SampleError) -> None:
    assert error.message


def members(data: bytes, **options: bool) -> tuple[list[tuple[str, int, int]], DamagedShardError | None]:
    """Name, size and offset of each member, after damage too, and the first error."""
    first = None
    found: list[tuple[str, int, int]] = []
    try:
        reader = TarReader(open_stream(io.BytesIO(data), "x"), "x", **options)
    except DamagedShardError as error:
        return found, error
    more = True
    while more:
        try:
            found += [(name, size, offset) for name, _, size, offset in reader]
            more = False
        except DamagedShardError as error:
            first = first or error
            more = reader.resume(error)
            assert error.lost
    return found, first


def with_checksums(data: bytes) -> bytes:
    """A tar whose blocks have right checksums if they say that they are headers."""
    blocks = [data[at : at + 512] for at in range(0, len(data), 512)]
    return b"".join(_summed(block) if block[257:262] == b"ustar" else block for block in blocks)


def _summed(block: bytes) -> bytes:
    block = block.ljust(512, b"\0")
    return block[:148] + b"%06o\0 " % (sum(block[:148]) + 8 * 32 + sum(block[156:])) + block[156:]


def example(data: bytes) -> None:
    """Examples: accepted and rejected as by protobuf, and by the checker as by the parser, whatever it saw before."""
    strict, usual, any_form = (outcome(read, data) for read in (strict_parse, parse, parse_any))
    assert usual == any_form
    features = outcome(partial(parse_any, sequence=True), data)
    assert strict is None or strict == features
    is_sequence(data)
    if (message := protobuf(data)) is None:
        assert features is None
    else:
        assert features.keys() == message.features.feature.keys()
        for name, feature in message.features.feature.items():
            kind = feature.WhichOneof("kind")
            wanted = list(getattr(feature, kind).value) if kind else None
            assert repr(features[name].values() if features[name].kind else None) == repr(wanted), name
    assert bool(Checker().check(data)) == (strict is None)
    if usual is not None:
        Decoder()(data)


def outcome(read: Callable[[bytes], object], data: bytes) -> object:
    """What a parser returns; None if it rejects the bytes."""
    try:
        return read(data)
    except ValueError as error:
        assert str(error)
        return None


def protobuf(data: bytes) -> object:
    """What protobuf reads; None if it rejects the bytes."""
    from tensorflow.core.example.example_pb2 import Example

    try:
        message = Example.FromString(data)
        list(message.features.feature)
    except (DecodeError, UnicodeDecodeError):
        return None
    return message


def manifest(data: bytes) -> None:
    """Manifests: refused with the key that is wrong, or used by everything that reads them."""
    try:
        found = Manifest.from_bytes(data, "_x-manifest.json")
    except DamagedShardError as error:
        assert error.kind == "manifest"
        return
    again = Manifest.from_bytes(found.to_bytes(), "_x-manifest.json")
    assert again.identity() == found.identity()
    assert [*again.shards] == [*found.shards]
    contradictions(found.features)
    expected(found.features)
    for use in (found.template, found.compressed, found.totals, found.files):
        assert use is None or str(use)
    with tempfile.TemporaryDirectory(dir=_MEMORY) as folder:
        path = Path(folder, "_x-manifest.json")
        path.write_bytes(data)
        try:
            Decoder(found.features, found.records)
            assert verify(str(path), workers=1).files
        except Tar2tfError as error:
            assert str(error)


def index(data: bytes) -> None:
    """Indexes of every kind: offsets that fill their shard, or none."""
    size, body = int.from_bytes(data[1:4], "little"), data[4:]
    if (found := index_of_lines(body, size)) is not None:
        assert found[0] == 0
        assert found[-1] == size
        assert (found[1:] > found[:-1]).all()
    if kept := read_index(body, "x", "1", size):
        assert (kept.streams.stored if kept.streams else kept.offsets)[-1] == size
    with tempfile.NamedTemporaryFile(dir=_MEMORY) as file:
        file.write(body)
        file.flush()
        loaded = load_group(file.name)
        assert loaded is None or loaded.index.count() >= 0


TARGETS: Final[dict[str, Target]] = {target.__name__: target for target in (tfrecord, tar, example, manifest, index)}
