"""Path templates of output shards: the design's examples, and names that the templates themselves recognise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tar2tf_cli.errors import UsageError
from tar2tf_cli.spec.conversion import Output
from tar2tf_cli.spec.templates import DEFAULT_SHARD_SIZE, PathTemplate

literals = st.text("ab.-_0/ {<", max_size=5)
numbers = st.sampled_from(["<>", "{}", "<0>", "<00000>", "<1>", "<007>"])


@pytest.mark.parametrize(
    ("template", "paths"),
    [
        ("train-<>.record", ["train-1.record", "train-2.record", "train-13.record"]),
        ("train-{}.record", ["train-1.record", "train-2.record", "train-13.record"]),
        ("<00000>", ["00000", "00001", "00012"]),
        ("<1>.record", ["1.record", "2.record", "13.record"]),
        ("x<007>", ["x007", "x008", "x019"]),
        ("train-<00000>-of-<total>.record", [f"train-{n:05d}-of-00013.record" for n in (0, 1, 12)]),
        ("<>of<total>", ["1of13", "2of13", "13of13"]),
        ("out/<split>/<000>.record", ["out/val/000.record", "out/val/001.record", "out/val/012.record"]),
        ("<input>-<>.record", ["shard-7-1.record", "shard-7-2.record", "shard-7-13.record"]),
        ("train.record", ["train.record"] * 3),
        ("a<b", ["a<b"] * 3),
    ],
)
def test_paths_are_those_of_the_design(template, paths):
    parsed = PathTemplate.parse(template)
    assert [parsed.path(n, total=13, split="val", stem="shard-7") for n in (0, 1, 12)] == paths


@pytest.mark.parametrize(
    ("template", "numbered"),
    [
        ("train.record", "train-<00000>.record"),
        ("train", "train-<00000>"),
        ("out/train.tfrecord", "out/train-<00000>.tfrecord"),
        ("out/train.record.gz", "out/train-<00000>.record.gz"),
        ("v1.2/train", "v1.2/train-<00000>"),
        (".record", ".record-<00000>"),
        ("out/.record", "out/.record-<00000>"),
        ("<split>.record", "<split>-<00000>.record"),
        ("train-<>.record", "train-<>.record"),
        ("-", "-"),
    ],
)
def test_a_plain_path_is_numbered_where_a_limit_needs_it(template, numbered):
    assert PathTemplate.parse(template, numbered=True).text == numbered
    assert PathTemplate.parse(template).text == template


@pytest.mark.parametrize(
    ("template", "manifest"),
    [
        ("train-<>.record", "_train-manifest.json"),
        ("train-{}.record", "_train-manifest.json"),
        ("<00000>", "_manifest.json"),
        ("<00000>-of-<total>.record", "_manifest.json"),
        ("out/train-<00000>-of-<total>.tfrecord", "out/_train-manifest.json"),
        ("out/<split>-<>.record", "out/_manifest.json"),
        ("<split>/train-<>.record", "_train-manifest.json"),
        ("/data/<split>/<input>/x-<>.record", "/data/_x-manifest.json"),
        ("/<split>/x-<>", "/_x-manifest.json"),
        ("train.record", "_train-manifest.json"),
        ("out/train", "out/_train-manifest.json"),
        ("v1.2/train", "v1.2/_train-manifest.json"),
        ("train-<>.record.gz", "_train-manifest.json"),
        ("train.record.gz", "_train-manifest.json"),
        ("x-<>-v1.2.record", "_x-manifest-v1.2.json"),
        ("v1.2-<>", "_v1.2-manifest.json"),
        ("v1.2-<>.record", "_v1.2-manifest.json"),
        (".record", "_.record-manifest.json"),
        ("train-<>", "_train-manifest.json"),
        ("a<>b", "_amanifestb.json"),
    ],
)
def test_the_manifest_s_path_is_that_of_the_design(template, manifest):
    assert PathTemplate.parse(template).manifest() == manifest


@pytest.mark.parametrize(
    ("template", "manifest"),
    [
        ("train-<>.record", "_train-N.record-manifest.json"),
        ("out/train-<000>.record", "out/_train-N.record-manifest.json"),
        ("a/<split>/<>.record", "a/_split-N.record-manifest.json"),
        ("a/b/<split>-<input>.gz", "a/b/_split-input.gz-manifest.json"),
        ("/<split>/x-<>", "/_split-x-N-manifest.json"),
    ],
)
def test_the_manifest_that_no_other_template_has_names_all_of_its_own(template, manifest):
    assert PathTemplate.parse(template).own_manifest() == manifest


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("<totl>-<>", "a field <totl> that does not exist; did you mean '<total>'?"),
        ("<splits>/<>", "a field <splits> that does not exist; did you mean '<split>'?"),
        ("<inputs>.record", "a field <inputs> that does not exist; did you mean '<input>'?"),
        ("<x>", "a field <x> that does not exist"),
        ("<-1>", "a field <-1> that does not exist"),
        ("<>-<>", "2 number fields, but may have only one"),
        ("{}-<00000>", "2 number fields, but may have only one"),
        ("out/", "has no file name; add one, such as 'out/train-<>.record'"),
        ("", "has no file name; add one, such as 'out/train-<>.record'"),
    ],
)
@pytest.mark.parametrize("numbered", [False, True])
def test_a_template_that_cannot_be_carried_out_is_refused_with_what_to_write(template, message, numbered):
    with pytest.raises(UsageError) as caught:
        PathTemplate.parse(template, numbered=numbered)
    assert message in str(caught.value)
    assert repr(template) in str(caught.value)


@pytest.mark.parametrize(
    ("path", "right"),
    [
        ("out/train-%05d.record", "out/train-<00000>.record"),
        ("out/train-{:05d}.record", "out/train-<00000>.record"),
        ("out/train-{n:03}.record", "out/train-<000>.record"),
        ("out/train-%d.record", "out/train-<0>.record"),
        ("out/train-{0001..0146}.record", "out/train-<0001>.record"),
    ],
)
def test_numbers_written_as_elsewhere_are_refused_with_what_to_write(path, right):
    with pytest.raises(UsageError, match=f"for the shard's number; write '{right}'"):
        Output(path)


def test_fields_are_told_by_name():
    assert PathTemplate.parse("<split>/<input>-<00>-of-<total>").fields == {"split", "input", "number", "total"}
    assert PathTemplate.parse("x.record").fields == frozenset()
    assert PathTemplate.parse("x.record", numbered=True).fields == {"number"}


@given(literals, numbers, literals, st.integers(0, 10**7), st.integers(0, 10**7))
def test_a_template_recognises_its_own_paths_and_gives_each_number_its_own(before, number, after, one, other):
    try:
        template = PathTemplate.parse(before + number + after)
    except UsageError:
        return
    paths = [template.path(n) for n in (one, other)]
    assert (paths[0] == paths[1]) == (one == other)
    assert all(template.regex().match(path) for path in paths)
    assert not template.regex().match(template.manifest())


@pytest.mark.parametrize(
    "other", ["train-1.record.idx", "train-.record", "xtrain-1.record", "train-1xrecord", "train-a.record"]
)
def test_a_template_does_not_claim_other_files(other):
    assert not PathTemplate.parse("train-<>.record").regex().match(other)


def test_names_with_the_characters_of_patterns_are_taken_literally():
    template = PathTemplate.parse("a+(b)[c]-<>.record")
    assert template.regex().match(template.path(3))
    assert not template.regex().match("aab c-4.record")


def test_the_default_limit_is_256_mib():
    assert DEFAULT_SHARD_SIZE == 256 * 1024**2
