"""Lists of keys: which keys they hold, which of them no input has, and files that change or cannot be read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tar2tf_cli.errors import SourceError
from tar2tf_cli.flow.select import KeyList, keys_of


def listed(path: Path, data: bytes) -> KeyList:
    path.write_bytes(data)
    return KeyList(str(path))


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\n\nb", [b"a", b"b"]),
        (b"b\na\nb\n", [b"b", b"a"]),
        (b"\xef\xbb\xbfa\r\nb c\r\n", [b"a", b"b c"]),
        (b"\xff\n", [b"\xff"]),
        (b"a\n\xef\xbb\xbfb\n", [b"a", b"\xef\xbb\xbfb"]),
    ],
)
def test_each_key_has_its_own_number_however_often_it_is_listed(data: bytes, keys: list[bytes], tmp_path: Path) -> None:
    found = listed(tmp_path / "keys", data)
    assert len(found) == len(keys)
    assert sorted(map(found.find, keys)) == [*range(len(keys))]
    assert [found.find(key) for key in (b"x", b"", b"a\n", b"ab")] == [-1] * 4
    for key in keys:
        present = bytearray([1]) * len(keys)
        assert found.missing(present) == []
        present[found.find(key)] = 0
        assert found.missing(present) == [key.decode("utf-8", "surrogateescape")]
    assert found.missing(bytearray(len(keys))) == [key.decode("utf-8", "surrogateescape") for key in keys]


def test_a_list_is_read_once_until_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    first = listed(path, b"a\nb\n")
    known = keys_of(str(path))
    assert keys_of(str(path)) is known
    assert (known.digest, known.digest) == (first.digest, listed(tmp_path / "same", b"a\nb\n").digest)
    path.write_bytes(b"a\nb\nc\n")
    assert (len(keys_of(str(path))), keys_of(str(path)).digest != known.digest) == (3, True)
    with pytest.raises(SourceError) as caught:
        known.missing(bytearray(2))
    assert caught.value.sentence == (
        f"{path}: changed while it was being read; run the same command again when its writer is done"
    )
    assert known.missing(bytearray([1, 1])) == []  # of which nothing has to be read
    os.unlink(path)
    for read in (lambda: known.missing(bytearray(2)), lambda: keys_of(str(path)), lambda: KeyList(str(path))):
        with pytest.raises(SourceError) as caught:
            read()
        assert caught.value.sentence.startswith(f"{path}: cannot be read: No such file or directory")


@pytest.mark.parametrize(
    ("missing", "says"),
    [
        (["a"], "no input has these 1 of 30 keys: a"),
        ([f"{number}" for number in range(20)], f"no input has these 20 of 30 keys: {', '.join(map(str, range(20)))}"),
    ],
)
def test_keys_that_no_input_has_are_named_with_a_way_to_go_on(missing: list[str], says: str, tmp_path: Path) -> None:
    keys = listed(tmp_path / "keys", b"".join(b"%d\n" % number for number in range(30)))
    assert keys.error(missing).sentence == (
        f"{tmp_path / 'keys'}: {says}; "
        "pass --keys-missing skip to convert the others; the manifest then lists the missing keys"
    )
    many = keys.error([f"{number}" for number in range(21)]).sentence
    assert "these 21 of 30 keys: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19" in many
