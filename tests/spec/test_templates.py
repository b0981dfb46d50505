"""Braces and globs against bash itself, and every template that cannot be expanded refused at once."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import example as example_of
from hypothesis import strategies as st

from hypothesis_profile import example_count
from tar2tf_cli.errors import NothingFoundError, UsageError
from tar2tf_cli.spec.templates import (
    MAX_NAMES,
    count_names,
    expand,
    glob_regex,
    is_glob,
    number_regex,
    resolve,
    split_template,
)

NAMES = [
    "train-0.tar",
    "train-1.tar",
    "train-10.tar",
    "train-1.tar.gz",
    "val-0.tgz",
    "val.tar",
    "Val.tar",
    "[1].tar",
    "a-b.tar",
    ".hidden.tar",
    "notes.txt",
    "deep/train-0.tar",
    "deep/er/train-0.tar",
    "deep/.hidden/train-0.tar",
    "deep/er/x.tar",
]


def bash(script: str, *arguments: str, folder: Path | None = None) -> list[str]:
    command = ["bash", "-O", "globstar", "-O", "nullglob", "-c", script, "bash", *arguments]
    done = subprocess.run(command, cwd=folder, env={"LC_ALL": "C"}, capture_output=True, check=True)
    return done.stdout.decode().splitlines()


def resolved(*templates: str, names: list[str] = NAMES, numbers: bool = False) -> list[str]:
    """What templates stand for in a bucket of these names; lists by prefix as object stores do."""

    def listing(prefix: str) -> Iterator[str]:
        return (name for name in reversed(names) if name.startswith(prefix))

    return resolve(templates, listing, names.__contains__, numbers=numbers)


# --- Braces ---

ends = st.sampled_from(["0", "1", "3", "12", "01", "007", "-3", "-02"])
ranges = st.builds("{{{}..{}{}}}".format, ends, ends, st.sampled_from(["", "..2", "..-3", "..0"]))
letters = st.builds("{{{}..{}{}}}".format, st.sampled_from("acf"), st.sampled_from("bde"), st.sampled_from(["", "..2"]))
words = st.text("ab-_.01", max_size=3) | st.sampled_from(["\\{", "\\}", "\\,", "x{a}", "x{}"])
braces = st.recursive(
    words | ranges | letters,
    lambda inner: (
        st.lists(inner, min_size=2, max_size=3).map(lambda items: "{" + ",".join(items) + "}")
        | st.lists(inner, min_size=2, max_size=2).map("".join)
    ),
    max_leaves=5,
)


@example_count(100)
@given(braces.filter(lambda pattern: "{" in pattern))
@example_of("train-{0000..0146}.tar.gz")
@example_of("{train,val}-{0..3}.tar")
@example_of("a{b,{c,d{e,f}}}g")
@example_of("{{0..2},x{1..2}}")
def test_braces_stand_for_the_names_that_bash_gives_in_its_order(pattern):
    script = f"printf '%s\\n' x{pattern}"
    assert expand("x" + pattern) == bash(script)
    assert count_names(pattern) == len(expand(pattern))


def test_a_name_without_braces_stands_for_itself():
    assert expand("train}.tar") == ["train}.tar"]
    assert expand(r"back\slash.tar") == [r"back\slash.tar"]


TOO_MANY = {
    "a long range": "{0..10000000000000000}",
    "a long range backwards": "{0..-10000000000000000}",
    "a range in steps": "{0..100000000000000..3}",
    "ranges side by side": "{0..999}{0..999}{0..9}",
    "many pairs": "{a,b}" * 60,
    "pairs in a list": "{{a,b}" + "{c,d}" * 40 + ",x}",
    "ranges in a list": "{{0..999999},{0..999999}}",
}


@pytest.mark.parametrize("template", TOO_MANY.values(), ids=TOO_MANY)
def test_names_are_counted_before_they_are_made(template):
    began = time.thread_time()
    with pytest.raises(UsageError, match=r"names, more than 1,000,000; use a narrower range or a glob"):
        expand(template)
    assert time.thread_time() - began < 1


def test_as_many_names_as_are_allowed_are_made():
    assert len(expand(f"{{1..{MAX_NAMES}}}")) == MAX_NAMES
    assert expand("{99999999999999999999..100000000000000000001}")[1] == "100000000000000000000"


@pytest.mark.parametrize("template", ["{a,b", "a{b,{c}", "{a,b}}", "{{a,b}-{0..3}.tar"])
def test_braces_that_do_not_balance_are_refused(template):
    with pytest.raises(UsageError, match="are not balanced"):
        expand(template)


@pytest.mark.parametrize("template", ["{" * 5000 + "}" * 5000, "{1" + "0" * 5000 + "..2}"], ids=["deep", "long"])
def test_braces_beyond_reason_are_refused(template):
    with pytest.raises(UsageError, match="are too deep or too large to expand"):
        expand(template)


# --- Globs ---

WILDCARDS = ["*", "?", "**/", "*/", "[a-z]", "[!v]", "[^v]", "[0-9]", "[]x]", "[!]x]", "[.]", "[-a]", "[a-]", "[", "]"]
LITERALS = ["train", "-", "0", "1", ".tar", ".", "t", "deep/", "er/", "x", "[1].tar", "v[a/]l", ".hidden", "/"]
tokens = st.sampled_from([*WILDCARDS, *LITERALS])
patterns = (
    st.lists(tokens, min_size=1, max_size=5)
    .map("".join)
    .filter(lambda pattern: not pattern.startswith("/") and not pattern.endswith("/") and "//" not in pattern)
    .filter(lambda pattern: all(part == "**" or "**" not in part for part in pattern.split("/")[:-1]))
    .filter(lambda pattern: "**" not in pattern.rpartition("/")[2])
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("bucket")
    for name in NAMES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


@example_count(250)
@given(pattern=patterns)
@example_of("*.tar")
@example_of("**/*.tar")
@example_of("deep/**/*.tar")
@example_of("[!t]*.tar")
@example_of("[^t]*")
@example_of("a[!x]b.tar")
@example_of("deep[!x]er/*")
@example_of("*/*")
@example_of("deep/er/[]x].tar")
@example_of("deep/er/[!]t].tar")
@example_of("[[]1].tar")
@example_of("[[.]*")
def test_globs_match_the_files_that_bash_matches_in_its_order(folder, pattern):
    script = 'IFS=; for path in $1; do [ -f "$path" ] && printf "%s\\n" "$path"; done; true'
    try:
        regex = glob_regex(pattern)
    except UsageError as error:
        assume("bad character range" not in error.message)  # is refused, as a test below says
        raise
    matches = sorted(name for name in NAMES if regex.match(name))
    wanted = bash(script, pattern, folder=folder) if is_glob(pattern) else [pattern] if pattern in NAMES else []
    assert matches == wanted


@pytest.mark.parametrize("pattern", ["a**/b.tar", "**b.tar", "a**.tar"])
def test_two_stars_inside_a_name_are_one_star(pattern):
    regex = glob_regex(pattern)
    star = glob_regex(pattern.replace("**", "*"))
    for name in ("a/b.tar", "ab.tar", "axx/b.tar", "a/x/b.tar", "b.tar", "xb.tar", "x/b.tar", "ax.tar", "a/x.tar"):
        assert bool(regex.match(name)) == bool(star.match(name))


def test_a_range_of_characters_that_runs_backwards_is_refused():
    with pytest.raises(UsageError, match=r"'\[z-a\]\*\.tar' is not a glob: bad character range"):
        glob_regex("[z-a]*.tar")


@pytest.mark.parametrize("pattern", ["[[-].tar", "[-||b].tar", "[-&&b].tar", "[+--].tar"])
def test_what_may_become_set_operations_of_python_is_characters(pattern):
    assert glob_regex(pattern).match("-.tar")


@given(st.text("ab*?[]!^-\\.{}()|+$/\n", max_size=10), st.text("ab*?[]!^-\\./\n", max_size=10))
def test_any_text_is_a_glob_or_a_clean_error(pattern, name):
    try:
        glob_regex(pattern).match(name)
    except UsageError:
        return
    if not is_glob(pattern):
        assert bool(glob_regex(pattern).match(name)) == (pattern == name)


# --- Names in a bucket ---


def test_without_a_template_every_tar_of_the_bucket_is_meant_in_sorted_order():
    assert resolved() == sorted(
        name for name in NAMES if "/" not in name and name[0] != "." and name.endswith((".tar", ".tar.gz", ".tgz"))
    )


def test_a_bucket_without_tars_is_an_error():
    with pytest.raises(
        NothingFoundError,
        match=r"holds no \*\.tar, \*\.tar\.gz, \*\.tgz, .*\*\.tar\.xz, and no TFRecords; name the shards with a",
    ):
        resolved(names=["notes.txt", "deep/x.tar"])


def test_without_tars_the_tfrecords_of_a_bucket_are_its_shards():
    names = ["b.tfrecord", "a.record", "c.records.gz", "train-00001-of-00002", "d.TFRecords-00000-of-00001"]
    others = ["a.record.idx", ".e.record", "deep/f.record", "a.json", "g-1-of-2", "record"]
    assert resolved(names=[*names, *others]) == sorted(names)
    assert resolved(names=[*names, "x.tar"]) == ["x.tar"]


def test_braces_keep_their_order_and_globs_are_sorted():
    assert resolved("train-{1,0}.tar") == ["train-1.tar", "train-0.tar"]
    assert resolved("train-*.tar") == ["train-0.tar", "train-1.tar", "train-10.tar"]
    assert resolved("{val,train}-*") == ["val-0.tgz", "train-0.tar", "train-1.tar", "train-1.tar.gz", "train-10.tar"]


def test_a_name_that_several_templates_stand_for_comes_once():
    assert resolved("train-1.tar", "train-*.tar", "train-{0..1}.tar") == ["train-1.tar", "train-0.tar", "train-10.tar"]


def test_a_name_with_the_characters_of_a_glob_is_found_literally():
    assert resolved("[1].tar") == ["[1].tar"]


SHARDS = ["s-1.tar", "s-10.tar", "s-2.tar", "s-02.tar", "s-123.tar", "s-1234.tar", "s-0123.tar", "s-1x.tar", "s-.tar"]


@pytest.mark.parametrize(
    ("template", "names"),
    [
        ("s-%d.tar", ["s-1.tar", "s-02.tar", "s-2.tar", "s-10.tar", "s-0123.tar", "s-123.tar", "s-1234.tar"]),
        ("s-%01d.tar", ["s-1.tar", "s-2.tar", "s-10.tar", "s-123.tar", "s-1234.tar"]),
        ("s-%02d.tar", ["s-02.tar", "s-10.tar", "s-123.tar", "s-1234.tar"]),
        ("s-%03d.tar", ["s-123.tar", "s-1234.tar"]),
        ("?-%02d.*", ["s-02.tar", "s-10.tar", "s-123.tar", "s-1234.tar"]),
    ],
)
def test_a_number_as_printf_writes_it_stands_for_names_in_its_order(template, names):
    assert resolved(template, names=SHARDS, numbers=True) == names
    with pytest.raises(NothingFoundError):
        resolved(template, names=SHARDS)


@given(st.integers(0, 10**9), st.integers(0, 12))
def test_what_printf_writes_is_matched(number, width):
    template = f"s-%0{width}d.tar" if width else "s-%d.tar"
    match = number_regex(template).match(template % number)
    assert match
    assert int(match[1]) == number


def test_a_number_is_text_where_it_has_no_meaning():
    names = ["s-%d.tar", "s-1.tar"]
    assert resolved("s-%d.tar", names=names) == ["s-%d.tar"]
    assert resolved("s-%d.tar", names=names, numbers=True) == ["s-%d.tar"]
    assert resolved("s-{1,%d}.tar", names=names, numbers=True) == ["s-1.tar", "s-%d.tar"]


def test_a_number_is_text_unless_asked_for():
    with pytest.raises(NothingFoundError) as caught:
        resolve(["s-%d.tar", "s-1.tar", "t-*"], lambda prefix: ["s-1.tar"], {"s-1.tar"}.__contains__)
    hint = "compare the template with the names of the files that are there"
    assert (caught.value.message, caught.value.hint) == ("has no 's-%d.tar', 't-*'", hint)


@pytest.mark.parametrize(
    ("templates", "message"),
    [
        (["train-{0..3}.tar"], "has no 'train-2.tar', 'train-3.tar'; compare the template"),
        (["x{0..9}.tar"], "has no 'x0.tar', 'x1.tar', 'x2.tar' and 7 more"),
        (["x{0..5000}.tar"], "and 4,998 more"),
        (["train-0.tar", "nothing-*.tar"], "has no 'nothing-*.tar'"),
    ],
)
def test_names_that_nothing_answers_to_are_named(templates, message):
    with pytest.raises(NothingFoundError) as caught:
        resolved(*templates)
    assert message in str(caught.value)


def test_a_bucket_is_listed_only_below_what_the_template_names():
    asked: list[str] = []

    def listing(prefix: str) -> list[str]:
        asked.append(prefix)
        return ["deep/er/x.tar"]

    assert resolve(["deep/e*/x.tar", "deep/er/[x].tar"], listing, lambda name: False) == ["deep/er/x.tar"]
    assert asked == ["deep/e", "deep/er/"]


@pytest.mark.parametrize(
    ("path", "bucket", "template"),
    [
        ("shards/train-{0..9}.tar", "shards", "train-{0..9}.tar"),
        ("/data/*/train.tar", "/data", "*/train.tar"),
        ("/*.tar", "/", "*.tar"),
        ("train-[0-9].tar", ".", "train-[0-9].tar"),
        ("shards/train.tar", "shards/train.tar", ""),
        ("s3://bucket/2024/train-{0..9}.tar", "s3://bucket/2024/", "train-{0..9}.tar"),
        ("ais+s3://bucket/*.tar", "ais+s3://bucket/", "*.tar"),
        ("s3://bucket/run[3]/a?", "s3://bucket/run[3]/a?", ""),
        ("s3://bucket", "s3://bucket", ""),
        ("https://[::1]:80/a/b-{0..9}.tar?sig={x}*", "https://[::1]:80/a/?sig={x}*", "b-{0..9}.tar"),
        ("https://host/a.tar?sig=*", "https://host/a.tar?sig=*", ""),
    ],
)
def test_a_path_is_split_before_its_first_component_with_a_template(path: str, bucket: str, template: str) -> None:
    assert split_template(path) == (bucket, template)


def test_a_file_whose_name_looks_like_a_template_is_that_file(tmp_path: Path) -> None:
    (tmp_path / "a[1].tar").touch()
    assert split_template(f"{tmp_path}/a[1].tar") == (f"{tmp_path}/a[1].tar", "")
    assert split_template(f"{tmp_path}/a[2].tar") == (str(tmp_path), "a[2].tar")


@given(st.lists(st.sampled_from([".", "a", "/", "\n", ".tar", ".tgz", ".gz", ".TAR"]), max_size=4).map("".join))
def test_without_a_template_the_names_are_those_that_the_default_ones_match(name: str) -> None:
    matches = any(
        glob_regex(f"*{suffix}").match(name)
        for suffix in (".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tar.xz")
    )
    found = resolve((), lambda prefix: [name, "zz.tar"], lambda name: False)
    assert found == ([name] if matches else []) + ["zz.tar"]
