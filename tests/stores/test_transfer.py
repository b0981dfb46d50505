"""What is made of bodies that servers send: never fewer bytes than the object has, nor those of another one."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable

import pytest

from tar2tf_cli.errors import SourceError
from tar2tf_cli.stores import ObjectInfo
from tar2tf_cli.stores.transfer import Body, ResumingStream

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
    assert received.whole(ObjectInfo("x", 256, "1")) == (DATA if whole else None)


@pytest.mark.parametrize(("listed", "whole"), [(MD5, True), ("0" * 32, False)])
def test_a_body_must_match_the_checksum_that_a_listing_has(listed: str, whole: bool) -> None:
    assert body(DATA).whole(ObjectInfo("x", 256, "1", ("md5", listed))) == (DATA if whole else None)


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
@pytest.mark.usefixtures("hurry")
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
@pytest.mark.usefixtures("hurry")
def test_a_transfer_is_not_resumed_with_what_may_be_another_object(second: Body, words: str) -> None:
    with pytest.raises(SourceError, match=words):
        read(stream([body(DATA[:100]), second], ObjectInfo("x", 256, "1")))
