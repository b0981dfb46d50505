"""The values of fields: what each accepts at its limits and in other spellings, and the words with which it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from tar2tf_cli.errors import UsageError
from tar2tf_cli.spec import fields

ACCEPTED: list[tuple[Any, object, object]] = [
    (
        fields.arguments,
        ["url=http://x?a=b", "n=1", "yes=true", "l=[1,2]", "t=[1"],
        {"url": "http://x?a=b", "n": 1, "yes": True, "l": [1, 2], "t": "[1"},
    ),
    (fields.arguments, "a=1", {"a": 1}),
    (fields.arguments, {"a": "5", 2: 3}, {"a": "5", "2": 3}),
    (fields.texts, "a", ("a",)),
    (fields.texts, ["a", "b"], ("a", "b")),
    (fields.paths_or_urls, ["a", "s3://b"], ("a", "s3://b")),
    *((fields.size, written, 1) for written in (1, "1", "1 byte", 1.5)),
    (fields.size, "1kB", 1000),
    (fields.size, "1KiB", 1024),
    (fields.size, "1.5k", 1500),
    (fields.size, "3 gigabytes", 3 * 10**9),
    (fields.size, "12b", 12),
    (fields.num_shards, "1", 1),
    (fields.num_shards, 1_000_000, 1_000_000),
    (fields.num_shards, "train=10,val=1", {"train": 10, "val": 1}),
    (fields.num_shards, {"a": "7"}, {"a": 7}),
    (fields.split, "train=0.9,val=0.1", {"train": 0.9, "val": 0.1}),
    (fields.split, {"a": 1}, {"a": 1.0}),
    (fields.split, {"a": 0.5, "b": 0.5000009}, {"a": 0.5, "b": 0.5000009}),
    (fields.types, ["a=int64,c=float", "b=bytes"], {"a": "int64", "b": "bytes", "c": "float"}),
    (fields.labels, {"a": {"x": 1}}, {"a": {"x": 1}}),
    (fields.labels, ["a=auto", "b=auto"], {"a": "auto", "b": "auto"}),
    (fields.columns, "image=path:jpg,label=2:int64", {"image": "path:jpg", "label": "2:int64"}),
    (fields.columns, {"a": "b:c:int64", "b": "b:"}, {"a": "b:c:int64", "b": "b:"}),
    (fields.limit, -1, None),
    (fields.limit, 0, 0),
    (fields.limit, 2**63 - 1, 2**63 - 1),
    (fields.entry_or_all, True, "*"),
    (fields.entry_or_all, False, None),
    (fields.entry_or_all, "jpg", "jpg"),
    (fields.fraction, 1, 1.0),
    (fields.fraction, "0.1", 0.1),
    (fields.rows, [2, 2], (2, 2)),
    (fields.rows, ("0", "3"), (0, 3)),
    (fields.loadable, int, int),
    (fields.loadable, "a:B", "a:B"),
    (fields.function, len, len),
    (fields.one_selection, "json:a.0", "json:a.0"),
    (fields.key_template, "<input>-<n>", "<input>-<n>"),
    (fields.join_on, "id=json:id", "id=json:id"),
    (fields.preset, "imagenet", "imagenet"),
]

TYPES = "'int64', 'int64_list', 'float', 'float_list', 'bytes' or 'bytes_list'"

REFUSED: list[tuple[Any, list[object], str]] = [
    (fields.arguments, ["x", "1a=2", "=3"], "n {!r} is not NAME=VALUE, such as normalize=true"),
    (fields.arguments, [5], "n must be text or a list of texts, not {!r}"),
    (fields.texts, [5, ["a", 5]], "n must be text or a list of texts, not {!r}"),
    (fields.paths_or_urls, [["a", ""]], "n must be text or a path, not ''"),
    (
        fields.size,
        [0, -1, "0", "1zz", "-5", "1e3", "1e400", True, None, ""],
        "n: {!r} is not a size; write 100MB, 1GiB or a number of bytes above 0",
    ),
    (fields.num_shards, [0], "n must be 1 or more, not 0"),
    (fields.num_shards, [1_000_001], "n must be 1,000,000 or less, not 1000001"),
    (fields.num_shards, ["train=0,val=2"], "n train must be 1 or more, not 0"),
    (fields.num_shards, ["train=x"], "n train must be a whole number, not 'x'"),
    (fields.num_shards, ["=3"], "n '=3' is not NAME=N, such as train=100,val=4"),
    (fields.split, ["a=0.5,b=x", "a", ""], "n {!r} is not NAME=FRACTION, such as train=0.9,val=0.1"),
    (fields.split, [{"a": 0.5, "b": 0.50001}], "the fractions of n 'a=0.5,b=0.50001' sum to 1.00001, not to 1"),
    (fields.split, [{"a/b": 1}], "n 'a/b=1' needs plain names, and fractions greater than 0 and at most 1"),
    (fields.split, [{"": 1}], "n '=1' needs plain names, and fractions greater than 0 and at most 1"),
    (fields.split, [{"a": 0, "b": 1}], "n 'a=0,b=1' needs plain names, and fractions greater than 0 and at most 1"),
    (fields.types, [{"a": "int"}], f"the type of 'a' must be {TYPES}, not 'int'; did you mean 'int64'?"),
    (
        fields.types,
        ["a", 5],
        "n {!r} is not NAME=TYPE, where TYPE is one of int64, int64_list, float, float_list, bytes, bytes_list",
    ),
    (fields.labels, ["a=", "=x", "a"], "n {!r} is not NAME=FILE, NAME=auto or NAME=imagenet"),
    (fields.labels, [{"a": 5}], "n of 'a' must be text or a path, not 5"),
    (fields.labels, [{"a": {}}], "n of 'a' must be text or a path, not {{}}"),
    (fields.columns, ["a=:int64"], "n a=:int64 names no column"),
    (fields.columns, [{"a": 5}], "the column of 'a' must be text or a path, not 5"),
    (
        fields.columns,
        ["a", "=a"],
        "n {!r} is not ENTRY=COLUMN, ENTRY=COLUMN:TYPE or ENTRY=COLUMN:SUFFIX, such as image=path:jpg",
    ),
    (fields.limit, [-2], "n must be -1 or more, not -2"),
    (fields.limit, [2**63], f"n must be {2**63 - 1:,} or less, not {2**63}"),
    (fields.entry_or_all, ["", 5], "n must be text or a path, not {!r}"),
    (
        fields.fraction,
        [0, 1.0001, True, None, "x"],
        "n must be a fraction greater than 0 and at most 1, such as 0.1, not {!r}",
    ),
    (fields.rows, [(3, 1), [1], [1, 2, 3], 5], "n must be a first row and an exclusive end, not {!r}"),
    (fields.rows, [[-1, 2]], "n must be 0 or more, not -1"),
    (fields.function, [5], "n must be a function, not 5"),
    (fields.loadable, [5], "n must be text or a path, not 5"),
    (fields.one_selection, [""], "n must be text or a path, not ''"),
    (fields.join_on, [""], "n must be text or a path, not ''"),
    (
        fields.key_template,
        ["<x>"],
        "--key '<x>' cannot be understood at '<x>'; write text with <input>, <key>, <key:BEFORE*AFTER>, <n>, <n:09>"
        " and {{SELECTION}}, such as {{json:id}}",
    ),
    (
        fields.preset,
        ["imagent"],
        "there is no preset 'imagent'; did you mean 'imagenet'?; presets: detection, image-label, imagenet,"
        " imagenet-tensor, segmentation, webdataset",
    ),
]


@pytest.mark.parametrize(("rule", "value", "kept"), ACCEPTED, ids=lambda value: repr(value)[:30])
def test_a_value_is_kept_in_one_form(rule: Any, value: object, kept: object) -> None:
    assert rule(value, "n") == kept


@pytest.mark.parametrize(("rule", "values", "says"), REFUSED, ids=lambda value: repr(value)[:30])
def test_a_value_is_refused_with_the_form_that_it_should_have(rule: Any, values: list[Any], says: str) -> None:
    for value in values:
        with pytest.raises((UsageError, ValueError)) as caught:
            rule(value, "n")
        assert getattr(caught.value, "sentence", str(caught.value)) == says.format(value)
