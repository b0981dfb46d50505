"""Ops on what is not an image."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from commands import tar2tf
from images import chunk
from op_cases import IMAGES, D, encoded, run
from shards import write_tar
from tar2tf_cli.conversion.run import convert
from tar2tf_cli.errors import ImageError, SampleError, Tar2tfError, UsageError
from tar2tf_cli.ops import (
    Cast,
    CenterCrop,
    Convert,
    Decode,
    Encode,
    Resize,
    Rotate,
)
from tar2tf_cli.spec.conversion import Conversion, Input, Output

# --- What cannot be decoded ---


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (encoded((8, 8), "GIF", "P")[:90], "truncated GIF"),
        (encoded((8, 8), "WEBP")[:90], "truncated WebP"),
        (b"\0\0\0\x20ftypavif" + bytes(90), "it is AVIF"),
        (b"%PDF-1.7", "it is application/pdf"),
        (encoded((8, 8), "TIFF"), "TIFF"),
        (b"plain text", "plain"),
        (b"", "empty"),
        (encoded((8, 8))[:200], "JPEG"),
        (encoded((8, 8), "PNG")[:-30], "PNG"),
    ],
    ids=["cut gif", "cut webp", "avif", "pdf", "tiff", "text", "empty", "cut jpeg", "cut png"],
)
def test_what_cannot_be_decoded_fails_with_the_members_name(data: bytes, word: str, tmp_path: Path) -> None:
    write_tar(tmp_path / "in" / "a.tar", [("good", {"jpg": IMAGES["0000"]}), ("bad", {"jpg": data})])
    with pytest.raises(SampleError, match=word) as caught:
        run(tmp_path / "in", tmp_path / "out", Decode("jpg"))
    assert caught.value.key == "bad"
    assert caught.value.member == "bad.jpg"
    assert "a.tar, member bad.jpg" in str(caught.value)


def test_an_op_on_frames_is_an_error_that_gives_their_shape(tmp_path: Path) -> None:
    write_tar(tmp_path / "in" / "a.tar", [("moving", {"gif": encoded((8, 9), "GIF", "P")})])
    with pytest.raises(
        ImageError, match=r"resize: entry 'gif' is an array of shape \[1, 8, 9, 3\], not an image"
    ) as caught:
        run(tmp_path / "in", tmp_path / "out", Decode("gif"), Resize("gif", (4, 4)))
    assert "decode:gif" not in str(caught.value.hint)


def bomb(height: int, width: int) -> bytes:
    """The header of a PNG of any size and a few bytes that are no pixels."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"0")) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    "options",
    [{"ops": (D,)}, {"preset": "imagenet"}, {"preset": "imagenet-tensor"}],
    ids=["decode", "imagenet", "imagenet-tensor"],
)
def test_images_of_too_many_pixels_are_refused_before_they_are_decoded(options: dict[str, Any], tmp_path: Path) -> None:
    def go(data: bytes, folder: str, **more: Any) -> Any:
        write_tar(tmp_path / folder / "in" / "a.tar", [("x", {"jpg": data, "cls": b"1"})])
        output = Output(str(tmp_path / folder / "all.record"))
        return convert(Conversion(Input(str(tmp_path / folder / "in")), output, **options, **more), workers=1)

    with pytest.raises(ImageError, match="30000x30000 pixels are more than the limit of 134217728"):
        go(bomb(30000, 30000), "huge")
    with pytest.raises(ImageError, match="24x32 pixels are more than the limit of 767"):
        go(encoded((24, 32), "PNG"), "small", max_pixels=24 * 32 - 1)
    assert go(encoded((24, 32), "PNG"), "fits", max_pixels=24 * 32).records == 1


def test_an_op_on_bytes_says_that_decode_is_missing(bucket: Path, tmp_path: Path) -> None:
    for op in (Resize("jpg", 4), Convert("jpg", "float32"), Cast("jpg", "uint8"), Rotate("jpg", 90), CenterCrop("jpg")):
        with pytest.raises(SampleError, match=rf"sample 0000.*{op.name}: entry 'jpg'.*decode:jpg"):
            run(bucket, tmp_path / op.name, op)


def test_an_op_on_an_entry_that_is_not_there_names_those_that_are(bucket: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"decode names the entry 'png', which no sample.*'jpg'.*cls, jpg"):
        run(bucket, tmp_path, Decode("png"))
    with pytest.raises(SampleError, match="decode"):
        run(bucket, tmp_path, Decode("jpg"), Decode("jpg"))


def test_encode_refuses_floats(bucket: Path, tmp_path: Path) -> None:
    with pytest.raises(Tar2tfError, match=r"sample 0000.*encode.*float32"):
        run(bucket, tmp_path, Decode("jpg"), Resize("jpg", 8), Encode("jpg"))


@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_faulty_sample_has_the_key_that_it_has_in_the_shard(threads: str, tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", [("0001", {"jpg": b"no image"})])
    own = tmp_path / "own.py"
    own.write_text("def rekey(sample):\n    return {**sample, '__key__': 'other'}\n")
    for ops, what in (
        (["rename:image=jpg", "decode:image"], "sample 0001, offset 0: entry 'image': cannot be decoded"),
        ([f"func:{own}:rekey", "decode:jpg"], "sample 0001, offset 0: entry 'jpg': cannot be decoded"),
        (["decode:jpg"], "member 0001.jpg, offset 0: cannot be decoded"),
    ):
        words = [word for op in ops for word in ("--op", op)]
        done = tar2tf("convert", tmp_path / "a.tar", "-o", tmp_path / "x.record", "-j", threads, *words)
        assert done.returncode == 3
        assert what in done.stderr


def test_an_image_is_not_made_larger_than_one_may_be(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", [("0001", {"png": encoded((4, 4), "PNG")})])
    arguments = ("convert", tmp_path / "a.tar", "-o", tmp_path / "x.record", "--on-error", "skip", "--op", "decode:png")
    done = tar2tf(*arguments, "--op", "resize:png,30000x30000")
    assert done.returncode == 2
    assert "resize: 30000x30000 pixels are more than the limit of 134217728\n  choose a smaller size" in done.stderr
    assert tar2tf(*arguments, "--op", "resize:png,9x9", "--max-pixels", "80").returncode == 2
    assert tar2tf(*arguments, "--op", "resize:png,9x9", "--max-pixels", "81").returncode == 0
