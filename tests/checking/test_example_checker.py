"""Records are Examples, and those that a schema expects."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from example_messages import tensorflow_parses
from hypothesis_profile import example_count
from tar2tf_cli.checking.faults import Expectations
from tar2tf_cli.checking.verify_records import Checker
from tar2tf_cli.features import described
from tar2tf_cli.features.described import Expected, expected
from tar2tf_cli.formats import example
from tar2tf_cli.formats.example import parse
from verify_runs import Ran, an_example, check, framed, in_a_process, kinds, some_examples, values, write

# --- Examples ---


def test_a_record_that_is_no_example_is_found_and_the_check_goes_on(tmp_path: Path, run: Callable[..., Ran]) -> None:
    good = some_examples(2)
    path = write(tmp_path / "x", framed(good[0], b"hello", good[1]))
    ran = run(path, "--json")
    (fault,) = ran.json["files"][0]["faults"]
    assert (ran.code, fault["kind"], fault["record"]) == (1, "not_an_example", 1)
    assert fault["offset"] == len(framed(good[0]))


def test_whether_other_messages_are_accepted_is_said_or_decided_by_the_first(tmp_path: Path) -> None:
    sequence = tf.train.SequenceExample()
    sequence.context.feature["a"].int64_list.value.append(1)
    sequence.feature_lists.feature_list["b"].feature.add()
    steps, example, other = sequence.SerializeToString(), an_example(a=1), b"hello"
    first = "the record is not a tf.train.Example: "
    mixed = "{} of the records are not tf.train.Examples, but others are; --messages any accepts them"
    for records, messages, faults, others, sequences, features in (
        ([steps, steps, example], "any", [], 2, 2, {"a": 1}),
        ([steps, steps, example], None, [], 0, 2, {"a": 3}),
        ([steps, example], "example", [], 0, 1, {"a": 2}),
        ([other, other], None, [], 2, 0, {}),
        ([other, other], "any", [], 2, 0, {}),
        ([other, example], "any", [], 1, 0, {"a": 1}),
        ([other, steps], "any", [], 2, 1, {}),
        ([other, example], None, [(0, first)], 0, 0, {"a": 1}),
        ([other, other, example], None, [(0, first), (1, first)], 0, 0, {"a": 1}),
        ([example, other], None, [(1, first)], 0, 0, {"a": 1}),
        ([other, example], "example", [(0, first)], 0, 0, {"a": 1}),
        ([b"", other], None, [], 1, 0, {}),
        ([b"", example, other], None, [(2, first)], 0, 0, {"a": 1}),
    ):
        found = check(write(tmp_path / "x", framed(*records)), messages=messages)
        told = [(fault.record, fault.message[: len(first)]) for fault in found.faults]
        assert (told, found.others, found.sequences, dict(found.features)) == (faults, others, sequences, features)
    streamed = in_a_process("verify", "-", "--json", stdin=framed(other, other, example)).json["files"][0]
    assert [(fault["kind"], fault["message"]) for fault in streamed["faults"]] == [("not_an_example", mixed.format(2))]


def test_a_sequence_example_is_counted_as_what_it_is(tmp_path: Path) -> None:
    sequence = tf.train.SequenceExample()
    sequence.context.feature["a"].int64_list.value.append(1)
    sequence.feature_lists.feature_list["b"].feature.add()
    found = check(write(tmp_path / "x", framed(sequence.SerializeToString())))
    assert (kinds(found), found.sequences) == ([], 1)


def delimited(tag: int, *parts: bytes) -> bytes:
    data = b"".join(parts)
    return bytes([tag]) + example.varint(len(data)) + data


def entry(name: bytes, *feature: bytes) -> bytes:
    return delimited(0x0A, delimited(0x0A, name), delimited(0x12, *feature))


ODD_BUT_GOOD = {
    "no features": b"",
    "an empty Features": delimited(0x0A),
    "an unset feature": delimited(0x0A, entry(b"x")),
    "an empty list": delimited(0x0A, entry(b"x", delimited(0x0A))),
    "an empty packed list": delimited(0x0A, entry(b"x", delimited(0x1A, delimited(0x0A)))),
    "the feature before its name": delimited(0x0A, delimited(0x0A, delimited(0x12), delimited(0x0A, b"x"))),
    "integers that are not packed": delimited(0x0A, entry(b"x", delimited(0x1A, b"\x08\x05\x08\x96\x01"))),
    "one integer that is not packed": delimited(0x0A, entry(b"x", delimited(0x1A, b"\x08\x05"))),
    "floats that are not packed": delimited(0x0A, entry(b"x", delimited(0x12, b"\x0dabcd\x0dabcd"))),
    "a negative integer": delimited(0x0A, entry(b"x", delimited(0x1A, delimited(0x0A, b"\xff" * 9 + b"\x01")))),
    "Features in two parts": delimited(0x0A, entry(b"x")) + delimited(0x0A, entry(b"y")),
    "a length in more bytes than it takes": b"\x0a\x80\x00",
    "a name twice": delimited(0x0A, entry(b"x"), entry(b"x")),
    "two lists in a feature": delimited(0x0A, entry(b"x", delimited(0x0A), delimited(0x0A))),
    "a kind that is unknown": delimited(0x0A, entry(b"x", delimited(0x22))),
    "a number where a message belongs": b"\x08\x05",
}

NO_EXAMPLES = {
    "an unknown field in an entry": delimited(0x0A, delimited(0x0A, delimited(0x1A, b"x"))),
    "an unknown field in a list": delimited(0x0A, entry(b"x", delimited(0x1A, b"\x08\x05\x10\x06"))),
    "both forms in one list": delimited(0x0A, entry(b"x", delimited(0x1A, b"\x08\x05", delimited(0x0A, b"\x07\x08")))),
    "an entry without a name": delimited(0x0A, delimited(0x0A, delimited(0x12))),
    "a name that is not UTF-8": delimited(0x0A, entry(b"\xff", delimited(0x0A))),
    "a field past the end": b"\x0a\x7f",
    "floats of three bytes": delimited(0x0A, entry(b"x", delimited(0x12, delimited(0x0A, b"abc")))),
    "half a float": delimited(0x0A, entry(b"x", delimited(0x12, b"\x0dab"))),
    "an integer without end": delimited(0x0A, entry(b"x", delimited(0x1A, delimited(0x0A, b"\x05\x80")))),
    "an integer of eleven bytes": delimited(0x0A, entry(b"x", delimited(0x1A, delimited(0x0A, b"\x80" * 10 + b"\0")))),
    "a value and half a tag": delimited(0x0A, entry(b"x", delimited(0x1A, b"\x08\x05\x86"))),
    "a group that does not end": b"\x1b",
    "a field without a number": b"\x02\x00",
    "a tag and nothing behind it": b"\x0a",
}


@pytest.mark.parametrize("message", ODD_BUT_GOOD.values(), ids=ODD_BUT_GOOD)
def test_an_example_may_look_odd(message: bytes) -> None:
    assert tensorflow_parses(message)
    checker = Checker()
    assert not any(checker.check(message) for _ in range(3))
    assert checker.counts().keys() == parse(message).keys()


@pytest.mark.parametrize("message", NO_EXAMPLES.values(), ids=NO_EXAMPLES)
def test_what_is_no_example_is_refused(message: bytes) -> None:
    checker = Checker()
    for known in ODD_BUT_GOOD.values():
        checker.check(known)
    for _ in range(2):
        ((kind, _message),) = checker.check(message)
        assert kind == "not_an_example"


feature_sets = st.dictionaries(st.sampled_from(["a", "b", "name", "ä", "image/encoded"]), values, max_size=4)


@given(st.lists(feature_sets, max_size=12))
def test_the_features_of_an_example_are_what_tensorflow_put_in(many: list[dict[str, list[Any]]]) -> None:
    checker = Checker()
    for features in many:
        message = an_example(**features)
        found = parse(message)
        assert {name: feature.count for name, feature in found.items()} == {n: len(v) for n, v in features.items()}
        for name, items in features.items():
            if len(items) == 1 and isinstance(items[0], bytes):
                assert found[name].parts() == items
        assert not checker.check(message)
    assert checker.counts() == {
        name: sum(name in features for features in many) for name in {name for features in many for name in features}
    }


@example_count(150)
@given(st.lists(feature_sets, min_size=1, max_size=5), st.data())
def test_a_checker_refuses_what_tensorflow_refuses(many: list[dict[str, list[Any]]], data: st.DataObject) -> None:
    checker = Checker()
    messages = [an_example(**features) for features in many]
    for message in messages:
        checker.check(message)
    changed = bytearray(data.draw(st.sampled_from(messages)))
    if changed:
        for position, byte in data.draw(
            st.lists(st.tuples(st.integers(0, len(changed) - 1), st.integers(0, 255)), min_size=1, max_size=3)
        ):
            changed[position] = byte
    message = bytes(changed)
    assert bool(checker.check(message)) != tensorflow_parses(message)


@example_count(150)
@given(
    st.lists(st.binary(min_size=1, max_size=3), min_size=2, max_size=4),
    st.sampled_from([b"\x08", b"\x0a\x03", b""]),
)
def test_integers_that_are_not_packed_are_checked_one_by_one(many: list[bytes], before: bytes) -> None:
    checker = Checker()
    for numbers in many:
        message = delimited(0x0A, entry(b"x", delimited(0x1A, before, numbers)))
        assert bool(checker.check(message)) != tensorflow_parses(message)


def test_a_checker_forgets_in_time_and_loses_no_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(described, "MOST_REMEMBERED", 10)
    checker = Checker()
    for number in range(100):
        assert not checker.check(an_example(**{f"name-{number % 17}": b"x" * number, "label": number}))
    counts = checker.counts()
    assert counts["label"] == 100
    assert counts["name-0"] == 6


# --- Schema ---


@pytest.mark.parametrize(
    ("described", "expectation"),
    [
        ({"dtype": "bytes", "shape": [], "encoding": "bytes", "count": 4}, Expected("bytes", 1)),
        ({"dtype": "float32", "shape": [2, 3], "encoding": "float"}, Expected("float", 6)),
        ({"dtype": "int64", "shape": [None], "encoding": "int64"}, Expected("int64", None)),
        ({"dtype": "uint8", "shape": [4, 2, 3], "encoding": "raw"}, Expected("bytes", 1, 24)),
        ({"dtype": "uint8", "shape": [None, 2, 3], "encoding": "raw"}, Expected("bytes", 1)),
    ],
)
def test_a_manifest_says_what_is_expected(described: dict[str, Any], expectation: Expected) -> None:
    assert expected({"x": described}) == {"x": expectation}


SCHEMA = {"a": Expected("int64", 1), "b": Expected("float", 3), "c": Expected("bytes", 1, 4), "d": Expected("bytes")}
FITTING = {"a": 300, "b": [1.0, 2.0, 3.0], "c": b"1234", "d": [b"x", b""]}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"a": b"300"}, "'a' is bytes, but int64"),
        ({"a": [1, 2]}, "'a' has 2 values, but 1"),
        ({"a": [5]}, ""),
        ({"b": [1.0, 2.0]}, "'b' has 2 values, but 3"),
        ({"c": b"12345"}, "'c' has 5 bytes, but 4"),
        ({"d": [b""]}, ""),
        ({"e": b""}, "'e' is not in the manifest"),
        ({"b": None}, "lacks 'b'"),
        ({"d": None}, ""),
    ],
)
def test_an_example_that_does_not_fit_the_schema_is_found(change: dict[str, Any], words: str) -> None:
    features = {name: value for name, value in {**FITTING, **change}.items() if value is not None}
    checker = Checker(Expectations(SCHEMA, frozenset("abc")))
    for _ in range(3):
        assert not checker.check(an_example(**FITTING))
        findings = checker.check(an_example(**features))
        assert [words in message for _, message in findings] == ([True] if words else [])
