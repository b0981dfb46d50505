"""What bytes are by how they begin."""

from __future__ import annotations

from typing import Final

__all__ = ["GZIP_MAGIC", "sniff"]

GZIP_MAGIC: Final = b"\x1f\x8b"
_MAGIC: Final = (
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"BM", "image/bmp"),
    (b"GIF8", "image/gif"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"\x93NUMPY", "npy"),
    (b"PK\x03\x04", "zip"),
    (GZIP_MAGIC, "gzip"),
    (b"fLaC", "audio/flac"),
    (b"OggS", "audio/ogg"),
    (b"ID3", "audio/mpeg"),
    (b"\x1aE\xdf\xa3", "video/webm"),
    (b"\x80\x04\x95", "pickle"),
    (b"%PDF-", "application/pdf"),
)
_RIFF: Final = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}


def sniff(data: bytes) -> str | None:
    """The format of a file by its first bytes: `image/jpeg`, `npy`, `gzip`, …; None when it is unknown."""
    for magic, kind in _MAGIC:
        if data.startswith(magic):
            return kind
    if data.startswith(b"RIFF"):
        return _RIFF.get(data[8:12])
    return "video/mp4" if data[4:8] == b"ftyp" else None
