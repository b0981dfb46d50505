"""Grouping against WebDataset's own, and every way a shard can hold half samples found out."""

from __future__ import annotations

import io
import itertools
import tracemalloc
from collections import deque
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import example as example_of
from hypothesis import given
from hypothesis import strategies as st
from webdataset.tariterators import group_by_keys

from hypothesis_profile import example_count
from make_bytes import tar_of
from tar2tf_cli.api.values import KEY
from tar2tf_cli.errors import DamagedShardError, SampleError
from tar2tf_cli.formats.tar import Member, TarReader
from tar2tf_cli.samples.grouping import Grouper
from tar2tf_cli.samples.keys import SeenKeys, split_name
from tar2tf_cli.samples.regrouping import Regrouper

folders = st.sampled_from(["", "d/", "d.e/f/", "./", "d._e/"])
bases = st.sampled_from(["a", "b", "ab", "B", "é", "a b", "a_"])
extensions = st.sampled_from([".jpg", ".cls", ".JPG", ".seg.png", ".json", ".a", ".", ""])
names = st.builds("{}{}{}".format, folders, bases, extensions)


def members_of(names: list[str]) -> list[Member]:
    """A member of each name, its data the number of its place, its offset likewise."""
    return [(name, b"%d" % place, len(str(place)), 1000 + place) for place, name in enumerate(names)]


def fail(error: SampleError) -> None:
    raise error


def grouped(grouper: Grouper, names: list[str], regroup: bool) -> Iterator[tuple[dict[str, object], int]]:
    """Samples and their offsets; to regroup them, members are read from a tar, where each takes up two blocks."""
    if not regroup:
        for sample in grouper.samples(members_of(names)):
            yield sample, grouper.offset
        return
    data = tar_of([(name, b"%d" % place) for place, name in enumerate(names)])
    runs = Regrouper(grouper)
    runs.scan(TarReader(io.BytesIO(data), "x.tar", headers_only=True))
    tar = TarReader(io.BytesIO(data), "x.tar")
    members = ((name, data, size, 1000 + offset // 1024) for name, data, size, offset in runs.members(tar))
    for sample in grouper.samples(members):
        yield sample, grouper.offset


def samples_of(names: list[str], *, regroup: bool = False, **options: object) -> list[dict[str, object]]:
    return [sample for sample, _ in grouped(Grouper("x.tar", fail, **options), names, regroup)]


def keys_of(names: list[str], **options: object) -> list[str]:
    return [sample[KEY] for sample in samples_of(names, **options)]


def faults(names: list[str], *, regroup: bool = False) -> tuple[list[SampleError], list[str]]:
    """Errors, each skipped, and the keys of the samples that are left."""
    errors: list[SampleError] = []
    return errors, [sample[KEY] for sample, _ in grouped(Grouper("x.tar", errors.append), names, regroup)]


# --- As WebDataset does it ---


def by_webdataset(names: list[str]) -> list[dict[str, object]]:
    """WebDataset's samples; raises ValueError for a member that appears twice."""
    data = [{"fname": name, "data": b"%d" % place, "__url__": "x.tar"} for place, name in enumerate(names)]
    samples = list(group_by_keys(data))
    return [{name: value for name, value in sample.items() if name != "__url__"} for sample in samples]


def _is_cut(last: set[str], others: list[set[str]]) -> bool:
    """Whether the last sample lacks what all others have, and has nothing in its place."""
    return last <= set.union({KEY}, *others) and not set.intersection(*others) <= last


def as_webdataset_or_an_error(names: list[str]) -> None:
    try:
        wanted = by_webdataset(names)
    except ValueError:
        fault = r"appears twice|appears again"
    else:
        entries = [set(sample) for sample in wanted]
        if len({sample[KEY] for sample in wanted}) < len(wanted):
            fault = "appears again"
        elif len(wanted) > 1 and _is_cut(entries[-1], entries[:-1]):
            fault = "lacks"
        else:
            assert samples_of(names) == wanted
            return
    with pytest.raises(SampleError, match=fault):
        samples_of(names)


@example_count(300)
@given(st.lists(names.filter(lambda name: not name.endswith(".")), max_size=8))
@example_of(["a.jpg", "a.cls", "b.jpg", "b.cls"])
@example_of(["a.jpg", "noextension", "a.cls"])
def test_samples_are_webdataset_s_or_an_error_says_what_is_wrong(names):
    as_webdataset_or_an_error(names)


@given(st.lists(st.tuples(folders, bases), unique=True, max_size=5), st.sets(extensions.filter(lambda e: len(e) > 1)))
def test_shards_of_like_samples_are_grouped_as_in_webdataset(stems, extensions):
    lowered = {extension.lower(): extension for extension in sorted(extensions)}
    names = [folder + base + extension for folder, base in stems for extension in lowered.values()]
    assert samples_of(names) == by_webdataset(names)
    assert len(samples_of(names)) == (len(stems) if extensions else 0)


# --- Names ---


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("a/b.jpg", ("a/b", "jpg"), ("a/b", "jpg")),
        ("a.b/c.jpg", ("a.b/c", "jpg"), ("a.b/c", "jpg")),
        ("a/b.seg.png", ("a/b", "seg.png"), ("a/b.seg", "png")),
        ("a/b.JPG", ("a/b", "jpg"), ("a/b", "JPG")),
        ("./b.jpg", ("./b", "jpg"), ("./b", "jpg")),
        ("v1.2/img.0001.Seg.PNG", ("v1.2/img", "0001.seg.png"), ("v1.2/img.0001.Seg", "PNG")),
        ("noextension", ("", ""), ("", "")),
        ("a.b/noextension", ("", ""), ("", "")),
        ("trailing.", ("", ""), ("", "")),
        (".hidden", ("", ""), ("", "")),
        (".a.jpg", ("", ""), (".a", "jpg")),
        ("a/.hidden", ("", ""), ("", "")),
        ("folder.jpg/", ("", ""), ("", "")),
        ("\udcff.jpg", ("\udcff", "jpg"), ("\udcff", "jpg")),
    ],
)
def test_names_are_split_at_the_first_or_the_last_dot_of_the_base_name(name, first, last):
    assert split_name(name, "first") == first
    assert split_name(name, "last") == last


@given(names)
def test_key_and_extension_make_up_the_name_again(name):
    for rule in ("first", "last"):
        key, extension = split_name(name, rule)
        assert not key or f"{key}.{extension}".lower() == name.lower()


def test_extensions_are_lower_cased_by_the_first_dot_rule_only():
    names = ["a.JPG", "a.cls", "b.jpg", "b.cls"]
    assert [list(sample) for sample in samples_of(names)] == [[KEY, "jpg", "cls"]] * 2
    assert [list(sample) for sample in samples_of(names[:2], key_split="last")] == [[KEY, "JPG", "cls"]]


def test_upper_and_lower_case_of_one_member_collide_by_the_first_dot_rule_only():
    with pytest.raises(SampleError, match="appears twice"):
        samples_of(["a.JPG", "a.jpg"])
    assert samples_of(["a.JPG", "a.jpg"], key_split="last") == [{KEY: "a", "JPG": b"0", "jpg": b"1"}]


def test_the_last_dot_rule_groups_what_the_first_tells_apart():
    names = ["a.0.jpg", "a.0.cls", "a.1.jpg", "a.1.cls"]
    assert keys_of(names, key_split="last") == ["a.0", "a.1"]
    assert samples_of(names) == [{KEY: "a", "0.jpg": b"0", "0.cls": b"1", "1.jpg": b"2", "1.cls": b"3"}]


def differs(names: list[str], *, regroup: bool, **options: object) -> str | None:
    grouper = Grouper("x.tar", fail, **options)
    list(grouped(grouper, names, regroup))
    return grouper.names.differs


@pytest.mark.parametrize("rule", ["first", "last"])
@pytest.mark.parametrize("regroup", [False, True])
def test_the_first_member_that_the_other_rule_would_name_differently_is_kept(rule, regroup):
    options = {"key_split": rule, "regroup": regroup}
    assert differs(["a/b.jpg", "a/c.jpg", "d.e/f.jpg"], **options) is None
    assert differs(["a.jpg", "b.seg.png", "b.jpg", "c.seg.png", "c.jpg"], **options) == "b.seg.png"


def matters(names: list[str], *, regroup: bool) -> str | None:
    grouper = Grouper("x.tar", fail)
    list(grouped(grouper, names, regroup))
    return grouper.names.matters


@pytest.mark.parametrize("regroup", [False, True])
def test_the_split_matters_unless_the_sample_has_an_entry_on_which_both_rules_agree(regroup):
    assert matters(["a.jpg", "a.seg.png", "b.jpg", "b.seg.png"], regroup=regroup) is None
    assert matters(["a.seg.png", "a.txt"], regroup=regroup) is None
    assert matters(["a.1.jpg", "a.2.jpg", "b.jpg"], regroup=regroup) == "a.1.jpg"
    assert matters(["b.jpg", "a.seg.png"], regroup=regroup) == "a.seg.png"
    assert matters(["a.seg.png", "b.jpg", "b.seg.png", "a.jpg"], regroup=True) is None


# --- What is no part of a sample ---


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("._a.jpg", "AppleDouble (._*)"),
        ("d/._a.jpg", "AppleDouble (._*)"),
        ("__meta__", "__meta__"),
        ("__meta__.json", "__meta__"),
        ("__meta__/a.jpg", "__meta__"),
        ("d/__meta__/a.jpg", "__meta__"),
        ("README", "no extension"),
        (".DS_Store", "no extension"),
        ("d/.hidden", "no extension"),
        ("trailing.", "no extension"),
    ],
)
@pytest.mark.parametrize("regroup", [False, True])
def test_what_is_no_part_of_a_sample_is_counted_and_does_not_part_it(name, reason, regroup):
    grouper = Grouper("x.tar", fail)
    samples = [sample for sample, _ in grouped(grouper, ["a.jpg", name, "a.cls", name], regroup)]
    assert samples == [{KEY: "a", "jpg": b"0", "cls": b"2"}]
    assert grouper.names.skipped == {reason: 2}


@pytest.mark.parametrize("name", ["a._b.jpg", "d._e/a.jpg", "my__meta__.jpg", "a.__meta__"])
def test_names_that_only_hold_such_marks_are_samples(name):
    assert len(samples_of([name])) == 1


# --- Samples that are not whole ---


def test_a_key_that_comes_back_is_an_error_with_shard_key_and_remedy():
    with pytest.raises(SampleError) as caught:
        samples_of(["a.jpg", "b.jpg", "b.cls", "a.cls"])
    error = caught.value
    assert (error.shard, error.key, error.member, error.offset) == ("x.tar", "a", "a.cls", 1003)
    assert "the key 'a' appears again; its members are not adjacent" in str(error)
    assert "regroup" in str(error)


def test_a_key_that_comes_back_can_end_the_reading_of_a_shard():
    grouper = Grouper("x.tar", fail, strict=False)
    samples = grouper.samples(members_of(["a.jpg", "b.jpg", "c.jpg", "a.cls", "d.jpg"]))
    assert [sample[KEY] for sample in samples] == ["a", "b"]
    assert grouper.returned is not None
    assert (grouper.returned.key, grouper.returned.member, grouper.returned.offset) == ("a", "a.cls", 1003)
    assert "the key 'a' appears again" in str(grouper.returned)


def test_a_key_that_comes_back_is_passed_over_where_faults_are():
    errors, keys = faults(["a.jpg", "b.jpg", "a.cls", "a.txt", "c.jpg"])
    assert [error.member for error in errors] == ["a.cls"]
    assert keys == ["a", "b", "c"]


def test_regrouping_gathers_members_that_stand_apart_in_the_order_of_their_first():
    names = ["b.jpg", "a.jpg", "a.cls", "b.cls"]
    assert samples_of(names, regroup=True) == [
        {KEY: "b", "jpg": b"0", "cls": b"3"},
        {KEY: "a", "jpg": b"1", "cls": b"2"},
    ]


@given(st.permutations([f"{key}.{extension}" for key in "abc" for extension in ("jpg", "cls")]))
def test_regrouping_gives_the_same_samples_in_any_order_of_members(names):
    found = {sample[KEY]: set(sample) for sample in samples_of(names, regroup=True)}
    assert found == {key: {KEY, "jpg", "cls"} for key in "abc"}


@pytest.mark.parametrize("regroup", [False, True])
def test_a_member_that_comes_twice_is_an_error_with_its_name(regroup):
    with pytest.raises(SampleError) as caught:
        samples_of(["a.jpg", "a.jpg"], regroup=regroup)
    error = caught.value
    assert (error.shard, error.key, error.member, error.offset) == ("x.tar", "a", "a.jpg", 1001)
    assert "appears twice" in str(error)
    errors, keys = faults(["a.jpg", "b.jpg", "b.cls", "b.jpg", "c.jpg"], regroup=regroup)
    assert [error.member for error in errors] == ["b.jpg"]
    assert keys == ["a", "c"]


@pytest.mark.parametrize("regroup", [False, True])
@pytest.mark.parametrize("names", [["b.__key__", "b.jpg"], ["b.jpg", "b.__key__"], ["b.jpg", "b.__KEY__"]], ids=str)
def test_an_entry_cannot_take_the_key_s_own_name(names, regroup):
    errors, keys = faults(["a.jpg", *names, "c.jpg"], regroup=regroup)
    assert [error.message for error in errors] == ["an entry cannot be named '__key__': the key has this name"]
    assert keys == ["a", "c"]


def test_a_last_sample_that_lacks_what_all_others_have_is_an_error():
    with pytest.raises(SampleError) as caught:
        samples_of(["a.jpg", "a.cls", "a.txt", "b.cls", "b.jpg", "c.jpg"])
    error = caught.value
    assert (error.shard, error.key, error.offset) == ("x.tar", "c", 1005)
    assert "lacks cls, which all others have: the shard was cut short" in str(error)


def test_a_last_sample_may_lack_what_some_others_lack_too():
    assert keys_of(["a.jpg", "a.cls", "b.jpg", "c.jpg"]) == ["a", "b", "c"]
    assert keys_of(["a.jpg", "b.jpg", "b.cls"]) == ["a", "b"]


def test_a_last_sample_with_another_entry_in_place_of_one_that_all_others_have_is_whole():
    """Images are JPEGs, but for the last one, a PNG: nothing was cut."""
    assert keys_of(["a.jpg", "a.cls", "b.jpg", "b.cls", "c.png", "c.cls"]) == ["a", "b", "c"]
    errors, keys = faults(["a.jpg", "a.cls", "a.png", "b.jpg", "b.cls", "c.png", "c.cls"])
    assert [error.key for error in errors] == ["c"], "which may have been cut, as a PNG comes with a JPEG elsewhere"
    assert keys == ["a", "b"]


def test_the_only_sample_of_a_shard_is_whole():
    assert keys_of(["a.jpg"]) == ["a"]
    assert keys_of([]) == []


def test_a_shard_of_faulty_samples_is_not_empty():
    for names, empty in ([], True), (["README"], True), (["a.__key__"], False), (["a.jpg"], False):
        grouper = Grouper("x.tar", lambda error: None)
        deque(grouper.samples(members_of(names)), maxlen=0)
        assert grouper.empty == empty


def test_a_half_last_sample_is_passed_over_where_faults_are():
    errors, keys = faults(["a.jpg", "a.cls", "b.jpg"])
    assert [error.key for error in errors] == ["b"]
    assert keys == ["a"]


@pytest.mark.parametrize("whole", range(4))
def test_samples_that_others_follow_are_given_before_the_damage_that_comes_after(whole):
    def members():
        yield from members_of([f"{number}.{extension}" for number in range(whole + 1) for extension in ("cls", "jpg")])
        raise DamagedShardError("cut short")

    samples = Grouper("x.tar", fail).samples(members())
    assert [sample[KEY] for sample in itertools.islice(samples, whole)] == [str(number) for number in range(whole)]
    with pytest.raises(DamagedShardError):
        next(samples)


def until_damage(grouper: Grouper, members: Iterable[Member]) -> tuple[list[str], str | None]:
    """The keys of the samples before damage, and the key that the damage names."""
    keys = []
    try:
        for sample in grouper.samples(members):
            keys.append(sample[KEY])
    except DamagedShardError as error:
        return keys, error.key
    raise AssertionError("there was no damage")


def around_damage(before: list[str], member: str | None, after: list[str]) -> tuple[list[str], list[str | None]]:
    """The samples around damage to a member, or to something else, and those that are reported as lost."""

    def damaged():
        yield from members_of(before)
        raise DamagedShardError("damaged", member=member)

    errors: list[SampleError] = []
    grouper = Grouper("x.tar", errors.append)
    keys, lost = until_damage(grouper, damaged())
    grouper.resume(member)
    keys += [sample[KEY] for sample in grouper.samples(members_of(after))]
    return keys, [lost, *(error.key for error in errors)]


@pytest.mark.parametrize(
    ("before", "member", "after", "kept", "lost"),
    [
        ("a.jpg b.jpg", "b.cls", "c.jpg", "ac", "b"),
        ("a.jpg b.jpg", "c.cls", "c.jpg d.jpg", "abd", "c"),
        ("a.jpg b.jpg", None, "b.cls c.jpg", "ac", "b"),
        ("a.jpg b.jpg", None, "c.jpg d.jpg", "ad", "bc"),
        ("a.jpg b.jpg", "._c.cls", "c.jpg d.jpg", "ad", "bc"),
        ("a.jpg b.jpg", "README", "c.jpg d.jpg", "ad", "bc"),
        ("", None, "a.jpg b.jpg", "b", " a"),
        ("a.jpg", "b.jpg", "b.cls", "a", "b"),
        ("a.jpg", None, "", "", "a"),
    ],
)
def test_each_sample_that_may_lack_members_is_lost_and_named_and_no_other(before, member, after, kept, lost):
    keys, reported = around_damage(before.split(), member, after.split())
    assert keys == list(kept)
    assert "".join(key or " " for key in reported) == lost


@pytest.mark.parametrize(("broken", "kept"), [("a", "cd"), ("c", "d"), ("d", "c")])
def test_damage_costs_no_sample_but_those_whose_links_lead_nowhere(broken, kept):
    def damaged():
        yield from members_of(["c.jpg", "d.jpg"])
        raise DamagedShardError("damaged", member="e.cls")

    grouper = Grouper("x.tar", fail)
    grouper.skip(broken)
    assert until_damage(grouper, damaged()) == (list(kept), "e")


@pytest.mark.parametrize("headers_only", [False, True])
def test_a_tar_cut_at_any_byte_loses_the_sample_at_the_cut_and_none_before_it(headers_only):
    members = [(f"{key}.{extension}", b"x" * 700) for key in "abcd" for extension in ("cls", "jpg")]
    data = tar_of(members)
    begins = [number * 2 * 3 * 512 for number in range(4)]  # each member takes up a header and two blocks
    for cut in range(512, begins[-1] + 4 * 512, 128):
        tar = TarReader(io.BytesIO(data[:cut]), "x.tar", headers_only=headers_only)
        whole = sum(begin + 512 <= cut for begin in begins[1:])
        assert until_damage(Grouper("x.tar", fail), tar) == (list("abcd"[:whole]), "abcd"[whole])


def test_a_trusted_shard_is_not_compared_again():
    assert keys_of(["a.jpg", "a.cls", "b.jpg", "a.txt"], trusted=True) == ["a", "b", "a"]


# --- Offsets and sizes ---


@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize("regroup", [False, True])
def test_the_offset_is_that_of_the_current_sample_s_first_member(regroup, trusted):
    grouper = Grouper("x.tar", fail, trusted=trusted)
    names = ["._x.jpg", "a.jpg", "a.cls", "README", "b.jpg", "b.cls", "c.jpg", "c.cls"]
    found = [(sample[KEY], offset) for sample, offset in grouped(grouper, names, regroup)]
    assert found == [("a", 1001), ("b", 1004), ("c", 1006)]


def test_the_offset_is_right_before_damage_too():
    def damaged():
        yield from members_of(["a.jpg", "a.cls", "b.jpg"])
        raise DamagedShardError("damaged", member="c.cls")

    grouper, found = Grouper("x.tar", fail), []
    with pytest.raises(DamagedShardError):
        found.extend((sample[KEY], grouper.offset) for sample in grouper.samples(damaged()))
    assert found == [("a", 1000), ("b", 1002)]


def test_the_offset_is_right_before_samples_that_lack_what_is_required():
    errors: list[SampleError] = []
    grouper = Grouper("x.tar", errors.append)
    grouper.expect(frozenset(["jpg"]), ends_last=True)
    found = [(sample[KEY], grouper.offset) for sample in grouper.samples(members_of(["a.jpg", "b.cls"]))]
    assert found == [("a", 1000)]
    assert [(error.key, error.offset) for error in errors] == [("b", 1001)]


def test_the_begin_is_that_of_the_sample_that_is_being_put_together():
    def members():
        for member in members_of(["a.jpg", "a.cls", "b.jpg", "b.cls", "c.jpg", "c.cls"]):
            yield member
            begins.append(grouper.begin)

    grouper, begins = Grouper("x.tar", fail), []
    deque(grouper.samples(members()), maxlen=0)
    assert begins == [1000, 1000, 1002, 1002, 1004, 1004]


def test_entries_may_be_sizes():
    grouper = Grouper("x.tar", fail, sizes_only=True)
    assert list(grouper.samples([("a.jpg", b"", 700, 0), ("a.cls", b"", 1, 1536)])) == [
        {KEY: "a", "jpg": 700, "cls": 1}
    ]


def test_samples_of_a_tar_are_its_members_by_key():
    data = tar_of([("a.jpg", b"1"), ("a.seg.png", b"2"), ("b/a.jpg", b"3"), ("b/a.seg.png", b"4")])
    samples = Grouper("x.tar", fail).samples(TarReader(io.BytesIO(data), "x.tar"))
    assert list(samples) == [{KEY: "a", "jpg": b"1", "seg.png": b"2"}, {KEY: "b/a", "jpg": b"3", "seg.png": b"4"}]


# --- Memory of keys ---


@example_count(200)
@given(st.lists(st.text(min_size=1, max_size=3) | st.sampled_from("abcdef"), max_size=40))
@example_of(["a", "b", "c", "b"])
@example_of(["c", "b", "a", "c"])
def test_seen_keys_answer_as_a_set_would(keys):
    seen, plain = SeenKeys(), set()
    for key in keys:
        assert seen.add(key) == (key not in plain)
        plain.add(key)
    assert all(key in seen for key in plain)
    assert "another" not in seen


def test_sorted_keys_take_eight_bytes_each():
    keys = [f"{number:08d}" for number in range(10_000)]
    tracemalloc.start()
    try:
        seen = SeenKeys()
        assert all(map(seen.add, keys))
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 80_000 <= size < 100_000  # an array has some room to grow
    assert not seen.add("00000007")
    assert seen.add("00000007x")


# --- Members that were overwritten with zeros ---


@pytest.mark.parametrize("regroup", [False, True])
@pytest.mark.parametrize("place", range(7))
def test_a_sample_on_either_side_of_zeros_is_faulty_if_it_lacks_what_others_have(place: int, regroup: bool) -> None:
    names = [f"{key}.{extension}" for key in "abcd" for extension in ("cls", "jpg")]
    data = bytearray(tar_of([(name, b"x") for name in names]))
    data[1024 * place : 1024 * (place + 1)] = bytes(1024)
    errors: list[SampleError] = []
    grouper = Grouper("x.tar", errors.append)
    if regroup:
        runs = Regrouper(grouper)
        headers = TarReader(io.BytesIO(data), "x.tar", headers_only=True, on_zeros=runs.zeros)
        found = [*runs.samples(headers, lambda: TarReader(io.BytesIO(data), "x.tar"))]
    else:
        found = [*grouper.samples(TarReader(io.BytesIO(data), "x.tar", on_zeros=grouper.zeros))]
    key, lost = names[place].split(".")
    assert [(error.key, error.message) for error in errors] == [
        (key, f"lacks {lost}, which all others have, and is next to zeros")
    ]
    assert [(error.offset, error.hint) for error in errors] == [
        (2048 * "abcd".index(key) + 1024 * (lost == "cls"), "download or recreate the shard")
    ]
    assert [sample[KEY] for sample in found] == [other for other in "abcd" if other != key]
