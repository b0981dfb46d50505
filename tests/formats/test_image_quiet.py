"""What libpng prints does not reach standard error; what others print there does."""

from __future__ import annotations

import os
import struct
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shards import tar2tf, write_tar
from tar2tf_cli.errors import ImageError
from tar2tf_cli.formats import image
from tar2tf_cli.formats.image.quiet import quiet

ROWS = (b"\0" + bytes(range(24))) * 8
WHOLE = zlib.compress(ROWS)


def png(data: bytes, *chunks: tuple[bytes, bytes]) -> bytes:
    """8 x 8 pixels of RGB, from compressed rows."""
    head = struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in ((b"IHDR", head), *chunks, (b"IDAT", data), (b"IEND", b""))
    )


DAMAGED = {
    "check": png(WHOLE[:-4] + b"abcd"),
    "short": png(zlib.compress(ROWS[:50])),
    "header": png(b"garbage!"),
    "filter": png(zlib.compress(b"\7" + ROWS[1:])),
}
WARNED_OF = {
    "long": png(zlib.compress(ROWS + bytes(50))),
    "extra": png(WHOLE + b"more"),
    "palette": png(WHOLE, (b"PLTE", b"12")),
}


@pytest.mark.parametrize("name", [*DAMAGED, *WARNED_OF])
def test_libpng_does_not_print(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    if name in DAMAGED:
        with pytest.raises(ImageError, match="damaged PNG"):
            image.decode(DAMAGED[name])
    else:
        assert image.decode(WARNED_OF[name]).tobytes() == bytes(range(24)) * 8
    assert capfd.readouterr().err == ""


def test_what_others_print_meanwhile_is_not_lost(capfd: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        with quiet:
            os.write(2, b"a line\nlibpng warning: noise\n[ WARN:0@0.1] global noise\n")
            with quiet:
                os.write(2, b"another\n")
        os.write(2, b"and another\n")
    assert capfd.readouterr().err == "a line\nanother\nand another\n" * 2


def test_many_threads_share_it(capfd: pytest.CaptureFixture[str]) -> None:
    stop = threading.Event()

    def talk() -> int:
        count = 0
        while not stop.is_set():
            count += os.write(2, b"said\n") // 5
            stop.wait(0.001)
        return count

    with ThreadPoolExecutor(5) as pool:
        said = pool.submit(talk)
        list(pool.map(image.decode, [WARNED_OF["extra"]] * 2000))
        stop.set()
    assert capfd.readouterr().err == "said\n" * said.result()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_conversion_prints_its_own_words_alone(workers: str, tmp_path: Path) -> None:
    write_tar(tmp_path / "in.tar", [(f"{number:04d}", {"png": data}) for number, data in enumerate(DAMAGED.values())])
    command = ["convert", tmp_path / "in.tar", "-o", tmp_path / "x.record", "--op", "decode:png", "-j", workers]
    done = tar2tf(*command, "--on-error", "skip")
    assert done.returncode == 1
    assert "libpng" not in done.stderr
    assert "4 samples skipped" in done.stderr
