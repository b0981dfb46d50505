"""The kernel under sanitizers, on random tars and TFRecords for some seconds: `python tests/fuzz/kernel.py 60`.

It exits with 0 if nothing was found. Every input is an object of its own, so that a byte read too far is noticed.
"""

from __future__ import annotations

import contextlib
import os
import random
import struct
import subprocess
import sys
import tempfile
import time
from array import array
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1] / "helpers")]

from make_bytes import header, member, pax  # noqa: E402
from tar2tf_cli.formats.example import (  # noqa: E402
    ParsedFeature,
    crc_field,
    strict_parse_any,
)

NAMES = [
    b"a.jpg",
    b"a.cls",
    b"b.jpg",
    b"b.JPG",
    b"c.x.y",
    b".jpg",
    b"no",
    b"d/e.f",
    b"k" * 97 + b".a",
    b"\xff.jpg",
    b"\xc3\xbc.a",
]


def a_tar(random: random.Random) -> bytes:
    """Members of which most are plain, with a few bytes changed and the end cut off."""
    members = []
    for number in range(random.randrange(40)):
        names = [b"%03d.%s" % (number, name) for name in (b"jpg", b"cls", b"txt", b"json")[: random.randrange(1, 5)]]
        if random.random() < 0.1:
            names = [random.choice(NAMES)]
        if random.random() < 0.02:
            names = [b"%03d.%d" % (number, entry) for entry in range(40)]
        if random.random() < 0.3:
            members.append(pax({random.choice(["mtime", "atime", "path", "x"]): str(random.random())}))
        members += [member(name, random.randbytes(random.choice([0, 1, 300, 512, 2000, 33_000]))) for name in names]
    if random.random() < 0.3:
        members.insert(0, header(random.randbytes(100), random.randbytes(12), checksum="{:06o}\0 "))
    data = bytearray(b"".join(members) + bytes(1024))
    for _ in range(random.choice([0, 0, 1, 2, 8])):
        place = random.randrange(len(data))
        data[place // 512 * 512 + place % 257 if random.random() < 0.7 else place] = random.randrange(256)
    return bytes(data[: random.randrange(len(data)) if random.random() < 0.5 else len(data)])


FEATURES = [b"a", b"jpg", b"label", b"x" * 40]


def a_tfrecord(random: random.Random) -> bytes:
    """Examples of which most are usual, a few bytes of them changed before and after they are framed."""
    records = []
    for _ in range(random.randrange(12)):
        entries = []
        for name in random.sample(FEATURES, random.randrange(5)):
            pieces = [random.randbytes(random.choice([0, 1, 300])) for _ in range(random.randrange(3))]
            values = {
                b"\x0a": b"".join(map(delimited, pieces)),
                b"\x12": delimited(random.randbytes(4 * random.randrange(9))),
                b"\x1a": delimited(random.choice([b"\x01\xff\x02", b"\xff" * 9 + b"\1", random.randbytes(9), b""])),
            }
            kind = random.choice([*values])
            feature = kind + delimited(values[kind])[1:]
            entries.append(delimited(delimited(name) + b"\x12" + delimited(feature)[1:]))
        message = bytearray(delimited(b"".join(entries)))
        for _ in range(random.choice([0, 0, 0, 1, 3])):
            message[random.randrange(len(message))] = random.randrange(256)
        records.append(framed(bytes(message)))
    data = bytearray(b"".join(records))
    for _ in range(random.choice([0, 0, 0, 1]) if data else 0):
        data[random.randrange(len(data))] = random.randrange(256)
    return bytes(data[: random.randrange(len(data) + 1)] if random.random() < 0.5 else data)


def delimited(data: bytes) -> bytes:
    size, length = len(data), b""
    while size > 0x7F:
        length, size = length + bytes([size & 0x7F | 0x80]), size >> 7
    return b"\x0a" + length + bytes([size]) + data


def framed(message: bytes) -> bytes:
    length = len(message).to_bytes(8, "little")
    return length + crc_field(length) + message + crc_field(message)


def described(generator: random.Random, name: bytes) -> bytes:
    """What the kernel takes about a feature."""
    values = array("q", generator.choices([-1, 1, 255, 2**62], k=generator.randrange(4)))
    kind, count, valued = generator.choice([-1, 10, 26]), generator.choice([-1, -1, 1]), generator.random() < 0.3
    numbers = (kind, len(values) if valued else count, -1, len(name), valued)
    return struct.pack("=5i", *numbers) + name + (values.tobytes() if valued else b"")


def compare(native: ModuleType, message: bytes) -> None:
    """Compare the features of a message with those that the general parser finds."""
    if (found := native.features(message, ParsedFeature)) is not None:
        assert [repr(vars_of(feature)) for feature in found.values()] == [
            repr(vars_of(feature)) for feature in strict_parse_any(message).values()
        ]


def vars_of(feature: ParsedFeature) -> tuple[object, ...]:
    return feature.name, feature.kind, feature.count, feature.runs


def check(native: ModuleType, generator: random.Random) -> int:
    """Check a TFRecord in whole and from odd places; returns how many records were found in order."""
    data = a_tfrecord(generator)
    known = b"".join(described(generator, name) for name in FEATURES[: generator.randrange(5)])
    kinds = array("Q", range(generator.choice([0, 16, 64]))).tobytes()
    place = made = 0
    while place <= len(data):
        end, counts = native.examples(bytearray(data), place, len(data), known, kinds)
        made += sum(array("Q", counts))
        assert native.sums(bytearray(data), place, len(data), known, kinds)[:2] == (end, counts)
        stop, rows, *_ = native.record_rows(data, place, len(data), generator.randrange(1 << 40))
        digests, last = native.record_digests(data, place, len(data))
        assert stop <= last
        assert len(rows) // 4 <= len(digests)
        size = int.from_bytes(data[end : end + 8], "little")
        compare(native, data[end + 12 : end + 12 + size % 2000])
        messages = [data[end + 12 : end + 12 + size % 2000]] * 3
        forms = "".join(generator.choices("ntaAlL-", k=len(known) and generator.randrange(1, 5))).encode()
        with contextlib.suppress(ValueError):  # for forms that do not suit the kinds of the features
            columns, count = native.columns(messages, generator.randrange(4), known, forms)
            assert all(len(column) in (0, count, 4 * count, 8 * count) for column in columns)
        unframed = (0, end, end + size % 2000 + 16), (0, *generator.choices(range(-2, len(data) + 20), k=2))
        for found in native.unframed([data], array("q", unframed[generator.random() < 0.3]).tobytes()):
            assert framed(found) in data
        place = end + (size + 16 if size < 2000 else generator.randrange(1, 20))
    return made


def records_of(
    native: ModuleType, generator: random.Random, data: bytes, rows: bytes, places: bytes, *others: Any
) -> int:
    """Have records made of samples that were found, and of rows that are wrong; returns how many were made."""
    signatures, count = others[-2], len(rows) // 48
    joined = [{"jpg": b"x"}, {"b": bytes(generator.randrange(3000)), "ä": b""}, {"a" * generator.randrange(99): b"1"}]
    added = generator.choices([None, {}, {"z": b"1"}, {"n": generator.randrange(1 << 64), "f": 0.5}, *joined], k=count)
    form, lists = generator.randrange(3), None
    if generator.random() < 0.5 and (wider := native.widened(data, rows, places, signatures, [], added)):
        data, rows, places, signatures, lists = wider
        form = generator.randrange(2) if lists else form
    made = native.records(data, rows, places, signatures, form, None, lists or None, generator.randrange(-1, 2))
    native.index_lines(data, rows, places, signatures, generator.randrange(1 << 40))
    native.sample_rows(data, rows, places, signatures, generator.randrange(1 << 40), None)
    columns = [array("q", rows), array("q", places)]
    for column in columns:
        column[generator.randrange(len(column))] = generator.choice([-1, 1, 2**40, generator.randrange(2 * len(data))])
    wrong = [column.tobytes() for column in columns]
    with contextlib.suppress(ValueError):
        native.index_lines(data, *wrong, signatures, 0)
    with contextlib.suppress(ValueError):
        native.sample_rows(data, *wrong, signatures, 0, None)
    with contextlib.suppress(ValueError):
        native.records(data, *wrong, signatures, generator.randrange(3))
    with contextlib.suppress(ValueError):
        native.widened(data, *wrong, signatures, [], added)
    joined_to(native, generator, data, rows, places, signatures)
    return len(made[1]) // 8 if made else 0


def joined_to(
    native: ModuleType, generator: random.Random, data: bytes, samples: bytes, places: bytes, signatures: list[bytes]
) -> None:
    """Join rows of CSV or JSON to samples, of which some are odd, and some are changed after they were indexed."""
    parts = [
        b"001",
        b"002",
        b'"003"',
        b"x",
        b'""',
        b'"a, ""b"""',
        b'"',
        b",",
        b"\n",
        b"\r\n",
        bytes(generator.randrange(9)),
    ]
    lines = b"".join(
        generator.choice([b"%03d,text\n" % generator.randrange(9), generator.choice(parts)]) for _ in range(30)
    )
    mark, names = b",", ["key", generator.choice(["text", "jpg"])]
    if generator.random() < 0.5:
        mark, names, lines = b"{", ["key"], objects(generator)
    lines = lines.replace(b"\0", generator.choice([b"\0", b"", b"x"]))
    if (made := native.table(lines, mark, names, 0, 0, 0)) is None:
        return
    table, size = native.ordered(made[0], 4), made[1]
    assert size <= len(lines)
    changed = bytearray(lines)
    changed[generator.randrange(len(lines))] = generator.choice(b'",\nx')
    found = native.find(table, 4, array("Q", samples)[5::6].tobytes())
    before = data, samples, places, signatures, []
    with tempfile.TemporaryFile() as file:
        file.write(generator.choice([lines, changed, lines[: generator.randrange(len(lines))]]))
        file.flush()
        native.joined(*before, table, found, names, 0, mark, {0: file.fileno()}, [])
    columns_joined(native, generator, before, table, found)
    tar_joined(native, generator, before)


def tar_joined(native: ModuleType, generator: random.Random, before: Any) -> None:
    """Join the samples of the same tar to samples, from byte ranges of which some are wrong, or of a changed tar."""
    data, samples, *_ = before
    hashes, starts = array("Q", samples)[5::6], array("Q", samples)[::6]
    rows = array("Q", native.positions(samples, 3, 0, len(data)))
    spans = zip(hashes, starts, [*starts[1:], len(data)], strict=True)
    assert [*rows] == [number for hashed, start, end in spans for number in (hashed, 3, start, end - start)]
    for row in range(0, len(rows), 4):
        rows[row + 1] = generator.choice([3, 3, 3, 4])
        rows[row + 3] = max(rows[row + 3] + generator.choice([0, 0, 0, 1, 512, -512]), 0)
    table, changed = native.ordered(rows.tobytes(), 4), bytearray(data.replace(b".jpg", b".png"))
    changed[generator.randrange(len(changed))] = generator.randrange(256)
    found = native.find(table, 4, hashes.tobytes())
    with tempfile.TemporaryFile() as file:
        file.write(generator.choice([changed, changed[: generator.randrange(len(changed))]]))
        file.flush()
        files = {3: file.fileno(), 4: generator.choice([file.fileno(), -1])}
        native.joined(*before, table, found, ["__key__"], 0, generator.choice([b".", b".."]), files, [])


def objects(generator: random.Random) -> bytes:
    """Rows of JSON, nearly all of them plain."""
    values = [
        b'"x"',
        b'"\\u00e9\\ud83d\\ude00\\n"',
        b"null",
        b"1",
        b"-2.5e3",
        b'"\\',
        b'"\\u1',
        b"1e",
        b"tru",
        b"[",
        b"1" * 30,
    ]
    weights = [9, 9, 9, 9, 9, *[0.1] * 6]
    rows = []
    for _ in range(30):
        pairs = b"".join(
            b', "%d": %b' % (name, generator.choices(values, weights)[0]) for name in range(generator.randrange(4))
        )
        rows.append(b'{"key": "%03d"%b}\n' % (generator.randrange(9), pairs))
    return b"".join(rows)


def columns_joined(native: ModuleType, generator: random.Random, before: Any, table: bytes, found: bytes) -> None:
    """Join rows of columns whose buffers are right, cut off, or hold anything."""

    def cut(data: bytes) -> bytes:
        return generator.choice([data, data, data, data[: generator.randrange(len(data) + 1)]])

    rows, width = 1 << 11, generator.choice([4, 8])
    ends = array("i" if width == 4 else "q", range(0, 3 * rows + 3, 3))
    if generator.random() < 0.5:
        ends[generator.randrange(len(ends))] = generator.choice([-1, 1, 1 << 30])
    text = b"".join(b"%03d" % (number % 9) for number in range(rows))
    key = "s" if width == 4 else "S", cut(bytes([255]) * (rows // 8)), cut(ends.tobytes()), cut(text)
    number = (
        generator.choice("id"),
        generator.choice([None, cut(generator.randbytes(rows // 8))]),
        None,
        cut(generator.randbytes(8 * rows)),
    )
    places = array("Q", table)
    places[1::4], places[2::4] = array("Q", [0]) * (len(table) // 32), array("Q", [5]) * (len(table) // 32)
    groups = [(0, 5, generator.choice([rows, 9, 1 << 40]), [key, number])]
    native.joined(*before, places.tobytes(), found, ["key", "n"], 0, b"", {}, groups)


def fuzz(native: ModuleType, seconds: float) -> None:
    seed, made, end = time.time_ns(), 0, time.monotonic() + seconds
    print(f"seed {seed}", flush=True)
    generator = random.Random(seed)
    rounds = checked = 0
    while time.monotonic() < end:
        data = a_tar(generator)
        place = generator.randrange(512)
        while place <= len(data):
            found = native.samples(data, place, *generator.choices([0, 1], k=2), b"001.jpg")
            if type(found) is tuple:
                place = found[-1]
                made += records_of(native, generator, *found)
            else:
                place = place // 512 * 512 + 512
        before, part = generator.randrange(1 << 32), data[: generator.randrange(40)]
        assert native.extend(before, part) == native.extend(before, part, True)
        checked += sum(check(native, generator) for _ in range(5))
        rounds += 1
    print(f"{rounds:,} tars, {made:,} records made, {checked:,} records checked, nothing found")


def main() -> int:
    path = os.environ.get("FUZZED_KERNEL")
    if path:
        spec = spec_from_file_location("_native", path)
        assert spec is not None
        assert spec.loader is not None
        native = module_from_spec(spec)
        spec.loader.exec_module(native)
        fuzz(native, float(sys.argv[1]))
        return 0
    from tar2tf_cli.formats.kernel.build import compiled

    source = Path(__file__).parents[2] / "tar2tf_cli" / "formats" / "kernel" / "kernel.c"
    library = subprocess.run(["cc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "_native.abi3.so")
        flags = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
        subprocess.run(compiled(source, target, *flags), check=True)
        environment = {
            "FUZZED_KERNEL": str(target),
            "LD_PRELOAD": library.strip(),
            "ASAN_OPTIONS": "detect_leaks=0",
            "PYTHONMALLOC": "malloc",
        }
        return subprocess.run([sys.executable, *sys.argv], env={**os.environ, **environment}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
