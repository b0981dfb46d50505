"""What is made of bodies that servers send: never fewer bytes than the object has, nor those of another one."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Iterable

import pytest

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.store import Body
from tar2tf_cli.errors import SourceError
from tar2tf_cli.stores import transfer
from tar2tf_cli.stores.transfer import BlockQueue, ResumingStream, whole_body

DATA = bytes(range(256))
MD5 = "e2c865db4162bed963bfaa9ef6ac18f0"


def body(data: bytes, *, start: int = 0, size: int | None = 256, version: str | None = "1", md5: str = "") -> Body:
    return Body(io.BytesIO(data).read, lambda: None, start, size, version, ("md5", md5) if md5 else None)


@pytest.mark.parametrize(
    ("received", "whole"),
    [
        (body(DATA), True),
        (body(DATA, md5=MD5), True),
        (body(DATA, md5=MD5.upper()), True),
        (body(DATA, version=None), True),
        (body(DATA[:-1]), False),
        (body(DATA[:-1], size=255), False),
        (body(DATA, size=None), False),
        (body(DATA, version="2"), False),
        (body(b"x" * 256, md5=MD5), False),
    ],
)
def test_a_body_is_whole_if_all_bytes_of_the_object_came(received: Body, whole: bool) -> None:
    assert whole_body(received, ObjectInfo("x", 256, "1")) == (DATA if whole else None)


@pytest.mark.parametrize(("listed", "whole"), [(MD5, True), ("0" * 32, False)])
def test_a_body_must_match_the_checksum_that_a_listing_has(listed: str, whole: bool) -> None:
    assert whole_body(body(DATA), ObjectInfo("x", 256, "1", ("md5", listed))) == (DATA if whole else None)


def stream(bodies: Iterable[Body], item: ObjectInfo) -> ResumingStream:
    left = iter(bodies)
    return ResumingStream(lambda offset, size: next(left), item, "x", 5)


def read(reader: ResumingStream, most: int = 1 << 20) -> bytes:
    data = b""
    while block := reader.read(most):
        data += block
    reader.close()
    return data


@pytest.mark.parametrize(
    "bodies",
    [
        lambda: [body(DATA[:100]), body(DATA[100:], start=100)],
        lambda: [body(DATA[:100]), body(DATA)],
        lambda: [body(DATA[:100]), body(DATA[:40]), body(DATA)],
        lambda: [body(DATA[:100], size=None), body(DATA[100:], start=100, size=None)],
        lambda: [body(DATA[:100], version=None), body(DATA, version=None)],
    ],
    ids=["from there", "from the start", "shorter than before", "no size", "no version"],
)
@pytest.mark.usefixtures("quick_retries")
def test_a_transfer_that_breaks_off_is_resumed(bodies: Callable[[], list[Body]]) -> None:
    assert read(stream(bodies(), ObjectInfo("x", 256, None))) == DATA


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (body(DATA[100:], start=100, version="2"), "changed while it was being read"),
        (body(DATA[100:], start=100, size=257), "changed while it was being read"),
        (body(DATA[101:], start=101), "asked from byte 100, got byte 101"),
        (body(DATA[100:], start=100, size=None, version=None), "neither size nor version"),
        (body(DATA[100:] + b"x", start=100), "is longer than its 256 bytes"),
    ],
    ids=["another version", "another size", "another range", "neither", "longer"],
)
@pytest.mark.usefixtures("quick_retries")
def test_a_transfer_is_not_resumed_with_what_may_be_another_object(second: Body, words: str) -> None:
    with pytest.raises(SourceError, match=words):
        read(stream([body(DATA[:100]), second], ObjectInfo("x", 256, "1")))


@pytest.mark.usefixtures("quick_retries")
@pytest.mark.parametrize("size", [256, None])
@pytest.mark.parametrize("other", [bytes(256), DATA[:99] + b"x" + DATA[100:]])
def test_an_object_without_version_that_was_replaced_is_no_mixture(size: int | None, other: bytes) -> None:
    bodies = [body(DATA[:100], size=256, version=None), body(other, size=size, version=None)]
    with pytest.raises(SourceError, match="changed while it was being read"):
        read(stream(bodies, ObjectInfo("x", size, None)))


def test_a_body_that_comes_byte_by_byte_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """As obstore's `read` returns when it has a whole block, and waits as long as anything comes."""
    monkeypatch.setattr(transfer, "CONNECT_SECONDS", 0)
    monkeypatch.setattr(transfer, "READ_SECONDS", 0.1)
    monkeypatch.setenv("TAR2TF_MIN_RATE", "1e9")
    ended = threading.Event()

    def drip(_: int) -> bytes:
        ended.wait(30)
        return b""

    slow = Body(drip, lambda: None, 0, 256, "1")
    reader = ResumingStream(lambda *_: slow, ObjectInfo("x", 256, "1"), "s3://b/x", 0, watched=True)
    with pytest.raises(SourceError, match=r"s3://b/x: fewer than 262,144 bytes arrived in 0 s; gave up") as caught:
        reader.read(10)
    ended.set()
    assert "TAR2TF_MIN_RATE" in (caught.value.hint or "")


@pytest.mark.usefixtures("quick_retries")
def test_a_little_in_each_attempt_is_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAR2TF_MIN_RATE", "1e6")
    pieces = (body(DATA[place : place + 1], start=place) for place in range(256))
    with pytest.raises(SourceError, match="gave up after"):
        read(stream(pieces, ObjectInfo("x", 256, "1")))


def test_a_slow_reader_is_a_bounded_number_of_blocks_behind() -> None:
    block, count, given = bytes(ResumingStream.BLOCK), 200, 0

    def read(size: int) -> bytes:
        nonlocal given
        given += given < count
        return block if given < count else b""

    whole = Body(read, lambda: None, 0, None, "1")
    stream = ResumingStream(lambda start, size: whole, ObjectInfo("x", None, "1"), "x", 0)
    ahead = 0
    for taken in range(1, 121):
        assert stream.read(ResumingStream.BLOCK)
        settled = -1
        while settled != given:  # nothing more is fetched
            settled = given
            time.sleep(0.002)
        ahead = max(ahead, given - taken)
    stream.close()
    assert BlockQueue.MOST / 2 < ahead <= BlockQueue.MOST + 1
