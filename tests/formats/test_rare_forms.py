"""Rare forms of messages, files and sounds, and what happens when the system fails: whole values and messages."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from make_bytes import npy
from tar2tf_cli.errors import DamagedShardError, SampleError, SinkError, SourceError, Tar2tfError
from tar2tf_cli.formats import kernel
from tar2tf_cli.formats.decoding import decode
from tar2tf_cli.formats.example import MAX_RECORD, crc_field, frame, parse, parse_any, record_length, unframed, varint
from tar2tf_cli.formats.files import DirectFile, LargeEntries, StoredBytes, write_all
from tar2tf_cli.formats.npy import PickledError, read_array, read_header
from tar2tf_cli.formats.streams import Cursor, foreign, is_mp3_frame, riff_chunks, sniff


def refused(function: Callable[..., Any], *arguments: Any) -> tuple[str, str]:
    """The class and the message of an error."""
    with pytest.raises((ValueError, Tar2tfError)) as raised:
        function(*arguments)
    return type(raised.value).__name__, str(raised.value)


# --- Messages ---


def field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2]) + varint(len(data)) + data


def example(**features: bytes) -> bytes:
    """An example of features, given as the bytes of their Feature messages."""
    entries = b"".join(field(1, field(1, name.encode()) + field(2, data)) for name, data in features.items())
    return field(1, entries)


HALF = struct.pack("<f", 0.5)


def test_numbers_are_packed_or_not_or_both() -> None:
    features = parse(
        example(
            packed=field(3, field(1, b"\x05\xac\x02")),
            single=field(3, b"\x08\x05"),
            negative=field(3, b"\x08" + b"\xff" * 9 + b"\x01"),
            several=field(3, b"\x08\x05\x08\x06"),
            mixed=field(3, b"\x08\x05" + field(1, b"\x06\x07")),
            hollow=field(3, field(1, b"") + b"\x08\x09"),
            floats=field(2, field(1, HALF * 2)),
            float=field(2, b"\x0d" + HALF),
            hollow_float=field(2, field(1, b"") + field(1, HALF)),
            bytes=field(1, field(1, b"a") + field(1, b"")),
            byte=field(1, field(1, b"a")),
            none=field(3, b""),
            empty=b"",
        )
    )
    assert {name: (feature.kind, feature.values()) for name, feature in features.items()} == {
        "packed": ("int64", [5, 300]),
        "single": ("int64", [5]),
        "negative": ("int64", [-1]),
        "several": ("int64", [5, 6]),
        "mixed": ("int64", [5, 6, 7]),
        "hollow": ("int64", [9]),
        "floats": ("float", [0.5, 0.5]),
        "float": ("float", [0.5]),
        "hollow_float": ("float", [0.5]),
        "bytes": ("bytes", [b"a", b""]),
        "byte": ("bytes", [b"a"]),
        "none": ("int64", []),
        "empty": (None, []),
    }
    single = {name: feature.value() for name, feature in features.items() if feature.count == 1}
    assert single == {"single": 5, "negative": -1, "hollow": 9, "float": 0.5, "hollow_float": 0.5, "byte": b"a"}
    sizes = {name: feature.size for name, feature in features.items()}
    assert sizes == {
        "packed": 3,
        "single": 1,
        "negative": 10,
        "several": 2,
        "mixed": 3,
        "hollow": 1,
        "floats": 8,
        "float": 4,
        "hollow_float": 4,
        "bytes": 1,
        "byte": 1,
        "none": 0,
        "empty": 0,
    }
    packed = {name: feature.is_packed for name, feature in features.items() if feature.runs and feature.kind != "bytes"}
    assert packed == {
        "packed": True,
        "single": False,
        "negative": False,
        "several": False,
        "mixed": False,
        "hollow": True,
        "floats": True,
        "float": False,
        "hollow_float": True,
    }


def test_a_message_that_is_no_example_is_refused_with_the_place() -> None:
    faults = [
        refused(parse_any, message)
        for message in (
            example(x=field(2, field(1, HALF + b"\0"))),
            example(x=field(3, field(1, b"\x80"))),
            example(x=field(3, field(1, b"\x80" * 10 + b"\x01"))),
            b"\x0a\x05\x0a",
            b"\x0a",
            b"\x00\x00",
            field(1, field(1, field(1, b"\xff") + field(2, b""))),
        )
    ]
    assert faults == [
        ("ValueError", "the floats at byte 13 are not a multiple of 4 bytes"),
        ("ValueError", "a number in a packed list does not end"),
        ("ValueError", "a number in a packed list does not end"),
        ("ValueError", "a field at byte 2 runs past the end of its message"),
        ("ValueError", "a number at byte 1 does not end"),
        ("ValueError", "unexpected field tag 0x00 before byte 1"),
        ("ValueError", "the name of the feature at byte 6 is not UTF-8"),
    ]


def test_records_have_lengths_and_sums_that_match() -> None:
    framed = b"".join(frame([b"abc"], 3))
    assert unframed(framed) == b"abc"
    for length in (3, 0, 3, MAX_RECORD):
        head = length.to_bytes(8, "little")
        assert record_length(head + crc_field(head)) == length
    long = (MAX_RECORD + 1).to_bytes(8, "little")
    faults = [
        refused(record_length, bytes(12)),
        refused(record_length, long + crc_field(long)),
        refused(unframed, framed[:-1] + b"\0"),
        refused(unframed, framed[:12] + b"abd" + framed[15:]),
    ]
    assert faults == [
        ("DamagedShardError", "the CRC of the record's length does not match"),
        ("DamagedShardError", "the record claims 2,147,483,648 bytes; an example has at most 2 GiB"),
        ("DamagedShardError", "the CRC of the record's data does not match"),
        ("DamagedShardError", "the CRC of the record's data does not match"),
    ]


# --- Files ---


def test_values_in_files_that_cannot_be_read_or_are_not_stored_are_named(tmp_path: Path) -> None:
    stored = LargeEntries("x.tar", None).copied([b"abc"], 3, "a.jpg")
    assert (b"".join(stored.pieces()), stored.head(), stored.whole(), len(stored)) == (b"abc", b"abc", b"abc", 3)
    missing = StoredBytes(None, 0, 1234, "x.tar", "a.jpg", 10)
    message = "is 1,234 bytes long; such large entries are read only from uncompressed local tars"
    with pytest.raises(SampleError) as raised:
        missing.check_stored()
    assert (raised.value.message, raised.value.member) == (message, "a.jpg")
    assert raised.value.hint == "save the tar to a file, or leave the entry out"
    assert stored.file
    os.dup2(os.open(tmp_path, os.O_RDONLY), stored.file.descriptor)
    with pytest.raises(SourceError) as failed:
        [*stored.pieces()]
    assert str(failed.value) == "x.tar: reading failed: Is a directory"


def test_all_bytes_are_written_by_functions_that_take_some_of_them() -> None:
    for most, counts in ((2, True), (100, True), (100, False)):
        taken: list[bytes] = []

        def write(data: bytes, taken: list[bytes] = taken, most: int = most, counts: bool = counts) -> int | None:
            taken.append(data[:most])
            return len(data[:most]) if counts else None

        write_all(write, b"abcde")
        assert b"".join(taken) == b"abcde"
    with pytest.raises(BlockingIOError) as raised:
        write_all(lambda data: 0, b"a")
    assert (raised.value.errno, raised.value.strerror) == (errno.EAGAIN, "it accepts no more bytes")


@pytest.mark.skipif(not hasattr(os, "O_DIRECT"), reason="there is no O_DIRECT on this system")
@pytest.mark.on_disk
def test_errors_of_a_direct_file_are_those_of_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*arguments: Any) -> int:
        raise OSError(errno.EIO, "Input/output error")

    def refusing(*arguments: Any) -> int:
        raise OSError(errno.EINVAL, "Invalid argument")

    path, block = tmp_path / "f", bytes(DirectFile.BLOCK)

    def write() -> None:
        with DirectFile(str(path)) as file, monkeypatch.context() as patched:
            patched.setattr(os, "write", failing)
            for _ in range(3):
                file.write([block], len(block))
            file.close()

    with pytest.raises(SinkError) as raised:
        write()
    assert (raised.value.message, raised.value.shard) == ("cannot be written: Input/output error", str(path))
    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "fcntl", lambda fd, command, *flags: failing() if flags else 0)
        with pytest.raises(OSError, match="Input/output error"):
            DirectFile(str(path))
    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "fcntl", lambda fd, command, *flags: refusing() if flags else 0)
        with DirectFile(str(path)) as file:
            file.write([b"abc", block], len(block) + 3)
    assert path.read_bytes() == b"abc" + block


def test_a_kernel_that_is_not_built_or_of_another_version_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other:
        api = -1

    for module in (None, Other):
        monkeypatch.setitem(sys.modules, "tar2tf_cli.formats.kernel._native", module)
        assert kernel.built.__wrapped__() is None


# --- Streams ---


class Broken:
    """A stream that fails at its end."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, size: int, /) -> bytes:
        if not self.data:
            raise DamagedShardError("cut", kind="truncated")
        data, self.data = self.data[:size], self.data[size:]
        return data


def test_a_cursor_gives_the_bytes_before_an_error_and_then_the_error() -> None:
    cursor = Cursor(Broken(b"abcdef"))
    window = memoryview(bytearray(4))
    assert (cursor.read_into(window), bytes(window), cursor.offset) == (4, b"abcd", 4)
    read = 0
    while size := cursor.read_into(window[read:2]):
        read += size
    assert (bytes(window[:2]), cursor.offset) == (b"ef", 6)
    assert (cursor.read_into(window), cursor.offset) == (0, 6)
    with pytest.raises(DamagedShardError):
        cursor.fill(1)


def test_files_that_are_no_tars_are_named() -> None:
    data = {
        "record": b"".join(frame([b"x" * 20], 20)),
        "png": b"\x89PNG\r\n\x1a\n" + bytes(20),
        "zip": b"PK\x03\x04" + bytes(30),
        "text": b"hello\nworld",
        "zlib": b"\x78\x9c" + bytes(20),
        "bytes": bytes(range(128, 160)),
    }
    assert {name: foreign(head) for name, head in data.items()} == {
        "bytes": None,
        "png": ("an image (image/png)", "for images, name their folder with convert --from imagefolder"),
        "record": ("a TFRecord", "convert, inspect and verify read TFRecord"),
        "text": ("text that begins with 'hello world'", "if it is an error page, fetch the shard itself"),
        "zip": (
            "a zip archive",
            "unzip it and make a tar of its contents, such as tar cf x.tar --sort=name -C FOLDER .",
        ),
        "zlib": (
            "compressed with ZLIB, as TFRecord may be",
            "decompress it first, with Python's zlib.decompress, or write it with GZIP or no compression",
        ),
    }


def test_kinds_of_files_are_known_by_their_first_bytes() -> None:
    heads = {
        b"PK\x03\x04" + bytes(22) + b"\x05\0\0\0" + b"a.npy": "npz",
        b"PK\x03\x04" + bytes(22) + b"\x05\0\0\0" + b"a.txt": "zip",
        b"RIFF\0\0\0\0WAVE": "audio/wav",
        b"RF64\0\0\0\0WAVE": "audio/wav",
        b"RIFF\0\0\0\0WEBP": "image/webp",
        b"RIFF\0\0\0\0AVI ": "video/x-msvideo",
        b"RIFF\0\0\0\0XXXX": None,
        b"FORM\0\0\0\0AIFF": "audio/aiff",
        b"FORM\0\0\0\0AIFC": "audio/aiff",
        b"FORM\0\0\0\0XXXX": None,
        b"\0\0\0\x20ftypheic": "image/heic",
        b"\0\0\0\x20ftypXXXX": "video/mp4",
        b"\x1aE\xdf\xa3" + b"webm": "video/webm",
        b"\x1aE\xdf\xa3" + b"matroska": "video/x-matroska",
        b"\xff\xfb\x90\0": "audio/mpeg",
        b"\xff\xfb\x90": None,
        b"": None,
    }
    assert {head: sniff(head) for head in heads} == heads
    others = (b"\xeb\x90", b"\xf9\x90", b"\xfb\x00", b"\xfb\xf0", b"\xfb\x9c")  # no layer III, bitrate or rate
    assert [is_mp3_frame(b"\xff" + head + b"\0") for head in others] == [False] * 5
    assert [*riff_chunks(b"RIFF\0\0\0\0WAVE" + b"abcd\x03\0\0\0xyz\0" + b"efgh\0\0\0\0" + b"ijkl")] == [
        (b"abcd", 20, 3),
        (b"efgh", 32, 0),
    ]


# --- Arrays ---


def test_arrays_that_are_not_whole_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = npy(np.arange(6, dtype="i2").reshape(2, 3))

    def header(text: str) -> bytes:
        return b"\x93NUMPY\x01\0" + struct.pack("<H", len(text)) + text.encode()

    faults = [
        refused(read_array, data)
        for data in (
            b"",
            whole[:8],
            whole[:20],
            whole[:-1],
            whole + b"\0",
            b"\x93NUMPY\x04" + whole[7:],
            header("{"),
            header("[]"),
            header("{'descr': '<i2', 'shape': (1,)}"),
            header("{'descr': '<i2', 'fortran_order': False, 'shape': [1]}"),
            header("{'descr': '<i2', 'fortran_order': False, 'shape': (-1,)}"),
            header("{'descr': '<i2', 'fortran_order': False, 'shape': (True,)}"),
            header("{'descr': 'zz', 'fortran_order': False, 'shape': ()}"),
            header("{'descr': '<V0', 'fortran_order': False, 'shape': ()}"),
            header("{'descr': '|O', 'fortran_order': False, 'shape': ()}"),
        )
    ]
    assert faults == [
        ("ValueError", "not an npy file of version 1, 2 or 3"),
        ("ValueError", "not an npy file of version 1, 2 or 3"),
        ("ValueError", "the npy header is cut short or too long"),
        ("ValueError", "the npy header describes 12 bytes of data, but there are 11"),
        ("ValueError", "the npy header describes 12 bytes of data, but there are 13"),
        ("ValueError", "not an npy file of version 1, 2 or 3"),
        ("ValueError", "the npy header is damaged"),
        ("ValueError", "the npy header is damaged"),
        ("ValueError", "the npy header is damaged"),
        ("ValueError", "the npy header has the shape [1]"),
        ("ValueError", "the npy header has the shape (-1,)"),
        ("ValueError", "the npy header has the shape (True,)"),
        ("ValueError", "the npy header has the dtype 'zz', which NumPy does not know"),
        ("ValueError", "the npy array has the dtype '<V0', which has no bytes"),
        ("PickledError", "the npy array holds Python objects, which are pickled and could run code: save numbers"),
    ]
    fortran = npy(np.asfortranarray(np.arange(6, dtype=">i4").reshape(2, 3)))
    made = read_array(fortran)
    assert (made.tolist(), made.dtype, made.flags.c_contiguous) == ([[0, 1, 2], [3, 4, 5]], np.dtype("i4"), True)
    assert read_header(whole)[0] == ("<i2", False, (2, 3))
    assert read_array(header("{'descr': '<i2', 'fortran_order': False, 'shape': (), }") + b"\x07\0") == 7
    with monkeypatch.context() as patched:
        patched.setattr(np.lib.format, "descr_to_dtype", lambda descr: (_ for _ in ()).throw(MemoryError))
        with pytest.raises(MemoryError):
            read_array(whole)
    assert issubclass(PickledError, ValueError)


# --- Sounds ---


def test_sounds_that_are_cut_short_or_damaged_are_refused() -> None:
    soundfile = pytest.importorskip("soundfile")

    def written(kind: str, **options: Any) -> bytes:
        file = io.BytesIO()
        soundfile.write(file, np.sin(np.arange(20_000) / 10).astype("f4") / 2, 16000, format=kind, **options)
        return file.getvalue()

    ogg, mp3, aiff = written("OGG", subtype="VORBIS"), written("MP3"), written("AIFF", subtype="PCM_16")
    last = ogg.rindex(b"OggS")
    cut = f"truncated or damaged Ogg: its page at byte {last} is incomplete"
    sounds = {
        ogg[:-1]: cut,
        ogg[:last]: "truncated Ogg: its last page is missing",
        ogg[: last + 20]: cut,
        ogg[: last + 30] + bytes([ogg[last + 30] ^ 1]) + ogg[last + 31 :]: (
            f"damaged Ogg: the CRC of its page at byte {last} does not match"
        ),
        ogg + b"more": f"truncated or damaged Ogg: its page at byte {len(ogg)} is incomplete",
        aiff[:-1]: f"truncated AIFF: {len(aiff):,} bytes by its header, but {len(aiff) - 1:,}",
        mp3[:-1]: f"truncated MP3: its frame at byte {len(mp3) - 144} is incomplete",
        mp3[:1000] + b"\0" + mp3[1000:]: "damaged MP3: no frame begins at byte 1008",
        b"ID3\x04\0\0\0\0\0\x00": "damaged MP3: it has no frame",
        b"ID3\x04\0\0\0\0": "damaged MP3: it has no frame",
        b"ID3\x04\0\0\0\0\0\x01\0\0\0": "damaged MP3: it has no frame",
    }
    assert [refused(decode, data) for data in sounds] == [("SampleError", message) for message in sounds.values()]
    samples = decode(mp3)[""]
    np.testing.assert_array_equal(decode(b"ID3\x04\0\0\0\0\x01\x02" + bytes(130) + mp3)[""], samples)
    padded = b"ID3\x04\0\0\0\0\0\x0a" + bytes(13) + mp3  # which some versions of libsndfile do not take
    with suppress(SampleError):
        np.testing.assert_array_equal(decode(padded)[""], samples)
    with pytest.raises(SampleError) as raised:
        decode(padded[:-1])
    assert raised.value.message == f"truncated MP3: its frame at byte {len(padded) - 144} is incomplete"
    np.testing.assert_array_equal(decode(mp3 + b"APETAGEX" + bytes(30))[""], samples)
