"""What bytes are by how they begin."""

from __future__ import annotations

import re
from typing import Final

GZIP_MAGIC: Final = b"\x1f\x8b"
ZLIB_MAGIC: Final = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
_MAGIC: Final = (
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"BM", "image/bmp"),
    (b"GIF8", "image/gif"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"\0\0\0\x0cjP  \r\n\x87\n", "image/jp2"),
    (b"\0\0\0\x0cJXL \r\n\x87\n", "image/jxl"),
    (b"\x76\x2f\x31\x01", "image/exr"),
    (b"8BPS\0", "image/psd"),
    (b"\x93NUMPY", "npy"),
    (b"PK\x03\x04", "zip"),
    (GZIP_MAGIC, "gzip"),
    (b"fLaC", "audio/flac"),
    (b"OggS", "audio/ogg"),
    (b"ID3", "audio/mpeg"),
    (b"\x1aE\xdf\xa3", "video/webm"),
    (b".snd", "audio/basic"),
    (b"\x80\x04\x95", "pickle"),
    (b"%PDF-", "application/pdf"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"7z\xbc\xaf\x27\x1c", "7z"),
    (b"Rar!\x1a\x07", "rar"),
    (b"\x1f\x9d", "compress"),
    (b"PAR1", "parquet"),
    (b"ARROW1", "arrow"),
    (b"\x89HDF\r\n\x1a\n", "hdf5"),
)
_FETCH: Final = "if it is an error page, fetch the shard itself"
_ROWS: Final = "for rows of a CSV file, name the class that makes examples of them: convert --from examples"
_IMAGES: Final = "for images, name their folder with convert --from imagefolder"
_ADVICE: Final = {
    "zip": ("a zip archive", "unzip it and make a tar of what it holds, such as tar cf x.tar --sort=name -C FOLDER ."),
    "7z": ("a 7z archive", "unpack it and make a tar of what it holds"),
    "rar": ("a RAR archive", "unpack it and make a tar of what it holds"),
    "lz4": ("compressed with lz4", "decompress it first: lz4 -d FILE x.tar"),
    "lzma": ("compressed with lzma", "decompress it first: xz -d -c --format=lzma FILE > x.tar"),
    "compress": ("compressed with compress (.Z)", "decompress it first: gzip -d FILE"),
    "zlib": (
        "compressed with ZLIB, as TFRecord may be",
        "decompress it first, with Python's zlib.decompress, or write it with GZIP or no compression",
    ),
    "tfrecord": ("a TFRecord", "TFRecord is what convert makes; inspect and verify read it"),
    "parquet": ("a Parquet file", "export its rows as samples of a tar"),
    "arrow": ("an Arrow file", "export its rows as samples of a tar"),
    "hdf5": ("an HDF5 file", "export its rows as samples of a tar"),
    "gzip": ("compressed twice", "decompress it once, for example with gzip -d FILE"),
    "npy": ("an npy array", "put the arrays into a tar, one entry per sample"),
    "pickle": ("a pickle", "export what it holds as samples of a tar"),
}
"""What a file is that is not a tar, and what to do with it."""

_LZMA: Final = re.compile(rb"\x5d\0\0.{2}\xff{8}", re.DOTALL)  # of the usual settings, with an unknown size
_RIFF: Final = {b"WEBP": "image/webp", b"WAVE": "audio/wav", b"AVI ": "video/x-msvideo"}
_BRANDS: Final = {
    b"M4A ": "audio/mp4",
    b"avif": "image/avif",
    b"avis": "image/avif",
    b"heic": "image/heic",
    b"heix": "image/heic",
    b"mif1": "image/heic",
}


def sniff(data: bytes) -> str | None:
    """The format of a file by its first bytes: `image/jpeg`, `npy`, `gzip`, …; None when it is unknown."""
    for magic, kind in _MAGIC:
        if data.startswith(magic):
            return "video/x-matroska" if kind == "video/webm" and b"matroska" in data[:64] else kind
    if data.startswith((b"RIFF", b"RF64")):
        return _RIFF.get(data[8:12])
    if data.startswith(b"FORM") and data[8:12] in (b"AIFF", b"AIFC"):
        return "audio/aiff"
    return _BRANDS.get(data[8:12], "video/mp4") if data[4:8] == b"ftyp" else None


def foreign(head: bytes) -> tuple[str, str] | None:
    """What a file is instead of a tar, by its first bytes, and what to do with it; None when it is unknown."""
    from tar2tf_cli.formats.tfrecord import begins_record

    kind = sniff(head) or ("zlib" if head.startswith(ZLIB_MAGIC) else "lzma" if _LZMA.match(head) else "")
    if begins_record(head):
        kind = "tfrecord"
    if kind.startswith("image/"):
        return f"an image ({kind})", _IMAGES
    return _ADVICE.get(kind) or _text(head)


def _text(head: bytes) -> tuple[str, str] | None:
    """How a text begins, and why it may be there; None when the bytes are not text."""
    text = head.decode(errors="ignore")  # the last character may be cut
    words = text.split()
    if not words or len(text.encode()) < len(head) - 3 or not "".join(words).isprintable():
        return None
    if text.startswith("version https://git-lfs"):
        return "a Git LFS pointer", "fetch what it points to: git lfs pull"
    return f"text that begins with {' '.join(words)[:40]!r}", _ROWS if _are_rows(text) else _FETCH


def _are_rows(text: str) -> bool:
    """Whether text looks like CSV: its first lines have the same number of separators."""
    lines = text.splitlines()[:5]
    if len(lines) < 3 or lines[0].startswith("<"):
        return False
    counts = [{line.count(mark) for line in lines[:-1]} for mark in ",;\t"]
    return any(len(count) == 1 and 0 not in count for count in counts)
