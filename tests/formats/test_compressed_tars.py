"""Tars compressed with zstd, bzip2 and xz, and files of other formats where a tar should be."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import subprocess
import sys
import zlib
from contextlib import closing
from pathlib import Path

import pytest
import tensorflow as tf
import zstandard
from google_crc32c import value

from commands import convert, tar2tf
from make_bytes import Dribble, files_of, tar_of
from shards import contents, samples, samples_of, write_tar
from tar2tf_cli.errors import DamagedShardError
from tar2tf_cli.formats.streams import CompressedStream, PlainStream, open_stream


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


METHODS = {"zst": zstd, "bz2": bz2.compress, "xz": lzma.compress}
BODY = bytes(range(256)) * 8
each_method = pytest.mark.parametrize("suffix", METHODS)


def drained(data: bytes, size: int = 1000, most: tuple[int, ...] = (1 << 20,)) -> bytes:
    stream = open_stream(Dribble(data, most), "x.tar")
    assert isinstance(stream, CompressedStream)
    chunks = []
    while chunk := stream.read(size):
        assert len(chunk) <= size
        chunks.append(chunk)
    stream.close()
    return b"".join(chunks)


@each_method
@pytest.mark.parametrize("most", [(1 << 20,), (3,)], ids=["at once", "dribbling"])
def test_streams_end_to_end_are_one_and_zeros_behind_them_padding(suffix, most):
    compress = METHODS[suffix]
    for parts in ([BODY], [BODY, b"", BODY[:99]], [b""], [os.urandom(70_000), bytes(3_000_000)]):
        data = b"".join(map(compress, parts))
        assert drained(data, most=most) == drained(data + bytes(512), 1 << 20, most) == b"".join(parts)


@each_method
def test_a_stream_cut_at_any_byte_is_truncated(suffix):
    data = METHODS[suffix](BODY)
    for cut in range(10, len(data)):
        with pytest.raises(DamagedShardError, match="cut short") as caught:
            drained(data[:cut])
        assert (caught.value.kind, caught.value.shard, caught.value.offset) == ("truncated", "x.tar", cut)


@each_method
def test_a_flipped_byte_is_found_or_changes_nothing(suffix):
    data = METHODS[suffix](BODY)
    found = 0
    for place in range(10, len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 0x81
        try:
            assert drained(bytes(damaged)) == BODY
        except DamagedShardError:
            found += 1
    assert found > 0.9 * (len(data) - 10)


def test_a_zstd_stream_with_a_window_that_is_too_long_is_not_called_damaged():
    parameters = zstandard.ZstdCompressionParameters(window_log=31)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()  # of an unknown size
    with pytest.raises(DamagedShardError, match="needs more than 128 MiB to be decompressed; compress it again with"):
        drained(compressor.compress(BODY) + compressor.flush())


@each_method
def test_garbage_behind_a_stream_is_damage(suffix):
    with pytest.raises(DamagedShardError, match=r"damaged|not another .* stream"):
        drained(METHODS[suffix](BODY) + b"garbage" * 9)


def test_a_record_whose_length_looks_like_zstd_is_a_record():
    length = b"\x28\xb5\x2f\xfd".ljust(8, b"\0")
    crc = value(length)
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    assert isinstance(open_stream(io.BytesIO(length + bytes(600)), "x"), CompressedStream)
    assert isinstance(open_stream(io.BytesIO(length + masked.to_bytes(4, "little") + bytes(600)), "x"), PlainStream)


@each_method
def test_compressed_tars_are_converted_verified_and_inspected(suffix, tmp_path: Path) -> None:
    plain = write_tar(tmp_path / "plain.tar", samples(30))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / f"a.tar.{suffix}").write_bytes(METHODS[suffix](plain.read_bytes()))
    convert(tmp_path / "in", "-o", tmp_path / "out" / "<input>.record")
    assert contents(tmp_path / "out" / "a.record") == samples_of(plain)
    assert tar2tf("verify", tmp_path / "in").returncode == 0
    assert json.loads(tar2tf("inspect", tmp_path / "in", "--json").stdout)["samples"] == 30
    with (tmp_path / "in" / f"a.tar.{suffix}").open("rb") as file:
        convert("-", "-o", tmp_path / "stdin.record", stdin=file)
    assert contents(tmp_path / "stdin.record") == samples_of(plain)
    cut = tmp_path / f"cut.tar.{suffix}"
    cut.write_bytes((tmp_path / "in" / f"a.tar.{suffix}").read_bytes()[:-30])
    done = tar2tf("convert", cut, "-o", tmp_path / "cut.record")
    assert (done.returncode, "cut short" in done.stderr) == (3, True)
    assert "cut short" in tar2tf("verify", cut).stdout


def test_nothing_is_imported_that_a_plain_tar_does_not_need(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(tar_of(files_of(3)))
    program = (
        "import sys\n"
        "from tar2tf_cli.formats.streams import open_stream\n"
        "open_stream(open(sys.argv[1], 'rb', buffering=0), 'x').read(9)\n"
        "assert not {'zstandard', 'bz2', 'lzma', 'isal'} & set(sys.modules), sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path / "x.tar"], check=True)


# --- Other formats ---

PNG = b"\x89PNG\r\n\x1a\n" + bytes(600)
OTHERS = {
    "zip": (b"PK\x03\x04" + bytes(600), "a zip archive", "unzip it"),
    "lz4": (b"\x04\x22\x4d\x18" + bytes(600), "compressed with lz4", "lz4 -d"),
    "lzip": (b"LZIP\1" + bytes(600), "compressed with lzip", "lzip -d"),
    "lzop": (b"\x89LZO\0\r\n\x1a\n" + bytes(600), "compressed with lzop", "lzop -d"),
    "zlib": (zlib.compress(os.urandom(700)), "compressed with ZLIB", "zlib.decompress"),
    "image": (PNG, "an image", "--from imagefolder"),
    "parquet": (b"PAR1" + bytes(600), "a Parquet file", "export"),
    "page": ("<!DOCTYPE html>\n<p>nicht gefunden: é".encode()[:-1], "text that begins with '<!DOCTYPE", "error page"),
    "lzma": (lzma.compress(bytes(600), lzma.FORMAT_ALONE), "compressed with lzma", "xz -d"),
    "twice": (gzip.compress(gzip.compress(bytes(600))), "compressed twice", "gzip -d"),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_another_format_is_named_with_what_to_do(kind, tmp_path: Path) -> None:
    data, what, hint = OTHERS[kind]
    (tmp_path / "x.tar").write_bytes(data)
    done = tar2tf("convert", tmp_path / "x.tar", "-o", tmp_path / "x.record")
    assert done.returncode == 3
    assert f"the file is {what}" in done.stderr
    assert hint in done.stderr
    done = tar2tf("inspect", tmp_path / "x.tar")
    assert (done.returncode, f"is {what}" in done.stderr, hint in done.stderr) == (3, True, True)
    done = tar2tf("verify", tmp_path / "x.tar")
    assert (done.returncode, f"is {what}" in done.stdout, hint in done.stdout) == (1, True, True)


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_tfrecord_is_read_whatever_its_name(tmp_path: Path, compression: str) -> None:
    with tf.io.TFRecordWriter(str(tmp_path / "x"), compression) as writer:
        writer.write(tf.train.Example().SerializeToString())
        writer.write(b"record" * 200)
    done = tar2tf("convert", tmp_path / "x", "-o", tmp_path / "z.record")
    assert (done.returncode, "2 records" in done.stderr) == (0, True)
    assert tar2tf("verify", tmp_path / "x").returncode == 0
    done = tar2tf("verify", tmp_path / "x", "--messages", "example")
    assert (done.returncode, "record 1, offset 16: the record is not a tf.train.Example" in done.stdout) == (1, True)
    assert "2 records" in tar2tf("inspect", tmp_path / "x").stdout


@pytest.mark.parametrize(("name", "hint"), [("cats/a.jpg", "--from imagefolder"), ("a.zip", "unzip")])
def test_a_folder_without_tars_says_what_it_holds(name, hint, tmp_path: Path) -> None:
    path = tmp_path / "in" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(b"x")
    done = tar2tf("convert", tmp_path / "in", "-o", tmp_path / "x.record")
    assert (done.returncode, "holds no tar" in done.stderr, hint in done.stderr) == (3, True, True)


def test_an_existing_folder_as_output_suggests_a_path_in_it(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    tar = write_tar(tmp_path / "in.tar", samples(3))
    for folder in (f"{tmp_path}/out", f"{tmp_path}/out/"):
        done = tar2tf("convert", tar, "-o", folder)
        assert done.returncode == 2
        assert f"such as '{tmp_path}/out/" in done.stderr
        assert "<>.record'" in done.stderr


def test_frames_of_zstd_may_begin_differently_but_streams_of_other_methods_may_not() -> None:
    skipped = b"\x50\x2a\x4d\x18\x03\0\0\0abc"
    frames = zstandard.compress(b"one") + skipped + zstandard.compress(b"two")
    with closing(open_stream(io.BytesIO(frames), "x.zst")) as stream:
        assert isinstance(stream, CompressedStream)
        assert (stream.method, stream.read(100) + stream.read(100), stream.unusual) == ("zstd", b"onetwo", "")
    for name, data in (("gzip", gzip.compress(b"one")), ("bzip2", bz2.compress(b"one")), ("xz", lzma.compress(b"one"))):
        with closing(open_stream(io.BytesIO(data + b"other"), "x")) as stream:
            assert (name, stream.read(3)) == (name, b"one")
            with pytest.raises(DamagedShardError) as raised:
                stream.read(3)
        assert raised.value.message == f"the bytes after the end of the {name} stream are not another {name} stream"
        assert raised.value.kind == "trailing_garbage"
