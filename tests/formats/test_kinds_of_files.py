"""What the first bytes of a file tell: its kind, and for one that is not a shard, a name and what to do with it."""

from __future__ import annotations

import pytest

from tar2tf_cli.formats.streams import foreign, riff_chunks, sniff

KINDS: list[tuple[str | None, list[bytes]]] = [
    ("image/jpeg", [b"\xff\xd8\xff"]),
    ("image/png", [b"\x89PNG\r\n\x1a\n"]),
    ("image/bmp", [b"BM"]),
    ("image/gif", [b"GIF87a", b"GIF89a"]),
    ("image/tiff", [b"II*\0", b"MM\0*"]),
    ("image/jp2", [b"\0\0\0\x0cjP  \r\n\x87\n"]),
    ("image/jxl", [b"\0\0\0\x0cJXL \r\n\x87\n"]),
    ("image/exr", [b"\x76\x2f\x31\x01"]),
    ("image/psd", [b"8BPS\0"]),
    ("image/webp", [b"RIFF\0\0\0\0WEBP"]),
    ("image/avif", [b"\0\0\0\x18ftypavif", b"\0\0\0\x18ftypavis"]),
    ("image/heic", [b"\0\0\0\x18ftypheic", b"\0\0\0\x18ftypheix", b"\0\0\0\x18ftypmif1"]),
    ("npy", [b"\x93NUMPY"]),
    ("npz", [b"PK\x03\x04" + bytes(22) + b"\5\0\0\0a.npyxx"]),
    ("zip", [b"PK\x03\x04" + bytes(22) + b"\5\0\0\0a.txtxx", b"PK\x03\x04" + bytes(22) + b"\4\0\0\0a.npy"]),
    ("gzip", [b"\x1f\x8b"]),
    ("audio/flac", [b"fLaC"]),
    ("audio/ogg", [b"OggS"]),
    ("audio/wav", [b"RIFF\0\0\0\0WAVE", b"RF64\0\0\0\0WAVE"]),
    ("audio/aiff", [b"FORM\0\0\0\0AIFF", b"FORM\0\0\0\0AIFC"]),
    ("audio/mp4", [b"\0\0\0\x18ftypM4A "]),
    ("audio/basic", [b".snd"]),
    # a tag, and frames of MPEG 1, 2 and 2.5 with the lowest and highest bit rate, any rate and channels
    ("audio/mpeg", [b"ID3", b"\xff\xfb\x90\xc0", b"\xff\xfb\x10\0", b"\xff\xfa\xe8\xff", b"\xff\xf3\x14\0"]),
    ("audio/mpeg", [b"\xff\xe3\x90\0"]),
    # no frames: no bit rate, an impossible one, no sampling rate, an unknown version, another layer, too short
    (None, [b"\xff\xfb\0\xc0", b"\xff\xfb\xf0\xc0", b"\xff\xfb\x9c\xc0", b"\xff\xeb\x90\xc0"]),
    (None, [b"\xff\xfd\x90\xc0", b"\xff\xdb\x90\xc0", b"\xff\xfb\x90", b"\xff"]),
    ("video/x-msvideo", [b"RIFF\0\0\0\0AVI "]),
    ("video/mp4", [b"\0\0\0\x18ftypisom"]),
    ("video/webm", [b"\x1aE\xdf\xa3" + bytes(9) + b"webm", b"\x1aE\xdf\xa3" + bytes(60) + b"matroska"]),
    ("video/x-matroska", [b"\x1aE\xdf\xa3" + bytes(9) + b"matroska"]),
    ("pickle", [b"\x80\x04\x95"]),
    ("application/pdf", [b"%PDF-"]),
    ("lz4", [b"\x04\x22\x4d\x18"]),
    ("lzip", [b"LZIP\1"]),
    ("lzop", [b"\x89LZO\0\r\n\x1a\n"]),
    ("7z", [b"7z\xbc\xaf\x27\x1c"]),
    ("rar", [b"Rar!\x1a\x07"]),
    ("compress", [b"\x1f\x9d"]),
    ("parquet", [b"PAR1"]),
    ("arrow", [b"ARROW1"]),
    ("hdf5", [b"\x89HDF\r\n\x1a\n"]),
    (None, [b"RIFF\0\0\0\0ABCD", b"FORM\0\0\0\0ABCD", b"", b"text", bytes(64)]),
]

IMAGES = "for images, name their folder with convert --from imagefolder"
FETCH = "if it is an error page, fetch the shard itself"
ARRAYS = "put the arrays into a tar, one entry per sample"
ROWS = "export its rows as samples of a tar"
TABLE = "for a CSV or JSON Lines file, add --from table --columns image=path:jpg,label=label:int64"

FOREIGN: list[tuple[bytes, tuple[str, str] | None]] = [
    (b"\xff\xd8\xff", ("an image (image/jpeg)", IMAGES)),
    (b"\x93NUMPY", ("an npy array", ARRAYS)),
    (b"PK\x03\x04" + bytes(22) + b"\5\0\0\0a.npy", ("an npz file", ARRAYS)),
    (
        b"PK\x03\x04",
        ("a zip archive", "unzip it and make a tar of its contents, such as tar cf x.tar --sort=name -C FOLDER ."),
    ),
    (b"\x1f\x8b", ("compressed twice", "decompress it once, for example with gzip -d FILE")),
    (b"\x80\x04\x95", ("a pickle", "export its contents as samples of a tar")),
    (b"\x04\x22\x4d\x18", ("compressed with lz4", "decompress it first: lz4 -d FILE x.tar")),
    (b"LZIP\1", ("compressed with lzip", "decompress it first: lzip -d FILE")),
    (b"\x89LZO\0\r\n\x1a\n", ("compressed with lzop", "decompress it first: lzop -d FILE")),
    (
        b"\x5d\0\0\x80\0" + b"\xff" * 8,
        ("compressed with lzma", "decompress it first: xz -d -c --format=lzma FILE > x.tar"),
    ),
    (b"\x1f\x9d", ("compressed with compress (.Z)", "decompress it first: gzip -d FILE")),
    *(
        (
            head,
            (
                "compressed with ZLIB, as TFRecord may be",
                "decompress it first, with Python's zlib.decompress, or write it with GZIP or no compression",
            ),
        )
        for head in (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
    ),
    (b"7z\xbc\xaf\x27\x1c", ("a 7z archive", "unpack it and make a tar of its contents")),
    (b"Rar!\x1a\x07", ("a RAR archive", "unpack it and make a tar of its contents")),
    (b"PAR1", ("a Parquet file", ROWS)),
    (b"ARROW1", ("an Arrow file", ROWS)),
    (b"\x89HDF\r\n\x1a\n", ("an HDF5 file", ROWS)),
    (
        b"version https://git-lfs.github.com/spec/v1\noid",
        ("a Git LFS pointer", "fetch what it points to: git lfs pull"),
    ),
    (
        b"<html>\n<p>404 not found, and so on and so forth",
        ("text that begins with '<html> <p>404 not found, and so on and s'", FETCH),
    ),
    (b"word", ("text that begins with 'word'", FETCH)),
    ("café caf".encode() + b"\xc3", ("text that begins with 'café caf'", FETCH)),
    (b"a,b\n1,2\n", ("text that begins with 'a,b 1,2'", f"{TABLE} (columns: a, b)")),
    (b"a,b\n1,2\n3", ("text that begins with 'a,b 1,2 3'", f"{TABLE} (columns: a, b)")),
    (b"a;b;c\n1;2;3\n", ("text that begins with 'a;b;c 1;2;3'", f"{TABLE} (columns: a, b, c)")),
    (b"a\tb\n\n1\t2\n", ("text that begins with 'a b 1 2'", f"{TABLE} (columns: a, b)")),
    (b"a,b\n1,2", ("text that begins with 'a,b 1,2'", FETCH)),  # the second row may go on
    (b"a,b\n1,2,3\n", ("text that begins with 'a,b 1,2,3'", FETCH)),
    (b"a\n1\n2\n", ("text that begins with 'a 1 2'", FETCH)),
    (b"<a>,b\n1,2\n", ("text that begins with '<a>,b 1,2'", FETCH)),
    (b'{"a": 1, "b": 2}\n{"a', ('text that begins with \'{"a": 1, "b": 2} {"a\'', f"{TABLE} (columns: a, b)")),
    (b'{"a":\n1', ("text that begins with '{\"a\": 1'", TABLE)),
    *((head, None) for head in (b"", b" \n", b"\0\1text", b"ab\xff\xfe\xfd\xfc", bytes(512))),
]


@pytest.mark.parametrize(("kind", "heads"), KINDS)
def test_a_kind_is_told_by_the_first_bytes(kind: str | None, heads: list[bytes]) -> None:
    assert [sniff(head) for head in heads] == [kind] * len(heads)


@pytest.mark.parametrize(("head", "told"), FOREIGN, ids=lambda value: repr(value)[:30])
def test_a_file_that_is_no_shard_is_named_with_what_to_do(head: bytes, told: tuple[str, str] | None) -> None:
    assert foreign(head) == told


def test_chunks_of_a_riff_file_begin_at_even_offsets() -> None:
    data = b"RIFF\0\0\0\0WAVEfmt \3\0\0\0abc\0data\2\0\0\0xyLIST\0\0"
    assert [*riff_chunks(data)] == [(b"fmt ", 20, 3), (b"data", 32, 2)]
