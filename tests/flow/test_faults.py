"""The error policy: which faults end a run, which are noted, and which wait for a sample that has the missing name."""

from __future__ import annotations

from typing import Any

import pytest

from tar2tf_cli.errors import LackingError, MissingNameError, SampleError, Tar2tfError, UsageError
from tar2tf_cli.flow.faults import FaultPolicy, check_most


def fault(number: int) -> SampleError:
    return SampleError(f"fault {number}", key=f"{number}", offset=512 * number)


def missing(name: str, *names: str, key: str = "0", noun: str = "entry") -> MissingNameError:
    return MissingNameError(f"has no {name}", name=name, names=names, option="--select", noun=noun, key=key)


def messages(noted: list[dict[str, object]]) -> list[object]:
    return [note["message"] for note in noted]


@pytest.mark.parametrize(
    ("option", "hint"),
    [("--on-error skip", "correct the sample, or skip such samples with --on-error skip"), (None, None)],
)
def test_the_first_fault_is_raised_with_its_input_and_a_way_to_skip_it(option: str | None, hint: str | None) -> None:
    noted: list[dict[str, object]] = []
    policy = FaultPolicy(option=option, shard="a.tar", noted=noted)
    with pytest.raises(SampleError) as caught:
        policy(fault(1))
    error = caught.value
    assert (error.shard, error.key, error.offset, error.message, error.hint) == ("a.tar", "1", 512, "fault 1", hint)
    assert (noted, policy.undecided) == ([], False)


def test_skipped_faults_are_noted_up_to_the_limit() -> None:
    noted: list[dict[str, object]] = []
    policy = FaultPolicy(skip=True, most=2, noted=noted, option="--on-error skip", shard="a.tar")
    policy(fault(1))
    policy(fault(2))
    with pytest.raises(Tar2tfError) as caught:
        policy(fault(3))
    assert caught.value.sentence == "3 samples failed, more than --max-errors 2 allows; the first: fault 1"
    assert noted == [
        {"shard": "a.tar", "key": f"{number}", "member": None, "offset": 512 * number, "message": f"fault {number}"}
        for number in (1, 2, 3)
    ]


@pytest.mark.parametrize(
    ("failed", "most", "noted", "says"),
    [
        (1, 0, [{"message": "a"}, {"message": "b"}], "1 sample failed, more than --max-errors 0 allows; the first: a"),
        (1200, 1199, [], "1,200 samples failed, more than --max-errors 1199 allows"),
    ],
)
def test_too_many_faults_are_counted(failed: int, most: int, noted: list[dict[str, object]], says: str) -> None:
    check_most(most, most, noted)
    with pytest.raises(Tar2tfError) as caught:
        check_most(failed, most, noted)
    assert caught.value.sentence == says


@pytest.mark.parametrize("skip", [False, True])
def test_half_a_sample_lacks_nothing(skip: bool) -> None:
    noted: list[dict[str, object]] = []
    policy = FaultPolicy(skip=skip, noted=noted)
    policy(LackingError("lacks"), lambda: True)
    policy(missing("cls"), lambda: True)
    assert noted == []
    if skip:
        policy(LackingError("lacks"), lambda: False)
        policy(fault(1), lambda: True)
        assert messages(noted) == ["lacks", "fault 1"]
        return
    for error in (LackingError("lacks"), missing("cls")):
        with pytest.raises(LackingError):
            policy(error, lambda: False)
    with pytest.raises(SampleError, match=r"^sample 1, offset 512: fault 1$"):
        policy(fault(1), lambda: True)


@pytest.mark.parametrize(
    ("noun", "says"),
    [
        ("entry", "a.tar: --select names the entry 'cls', which no sample of this input has; entries: jpg, json, txt"),
        (
            "feature",
            "a.tar: --select names the feature 'cls', which no sample of this input has; features: jpg, json, txt",
        ),
    ],
)
@pytest.mark.parametrize("skip", [False, True])
def test_a_name_that_no_sample_of_the_first_input_has_is_wrong_usage(skip: bool, noun: str, says: str) -> None:
    noted: list[dict[str, object]] = []
    policy = FaultPolicy(skip=skip, noted=noted, shard="a.tar", first=True)
    policy(missing("cls", "jpg", "txt", noun=noun))
    policy(missing("cls", "json", noun=noun))
    assert policy.undecided
    with pytest.raises(UsageError) as caught:
        policy.finish()
    assert (caught.value.sentence, noted) == (says, [])


def test_a_name_that_a_later_sample_has_makes_earlier_samples_faulty() -> None:
    noted: list[dict[str, object]] = []
    policy = FaultPolicy(skip=True, noted=noted, first=True)
    policy(missing("cls", "jpg", key="0"))
    policy(fault(1))  # of another kind, which needs no decision
    policy(missing("cls", "jpg", key="2"))
    assert (messages(noted), policy.undecided) == (["fault 1"], True)
    policy(missing("txt", "cls", key="3"))
    assert policy.undecided
    policy(missing("jpg", "cls", "txt", key="4"))
    assert (messages(noted), policy.undecided) == (
        ["fault 1", "has no cls", "has no cls", "has no txt", "has no jpg"],
        False,
    )
    policy.finish()
    assert len(noted) == 5


@pytest.mark.parametrize("end", ["release", "finish"])
def test_the_first_of_the_held_faults_is_raised(end: str) -> None:
    policy: Any = FaultPolicy(option="--on-error skip", first=True)
    policy(missing("cls", "jpg", "png", key="0"))
    policy(missing("cls", "txt", key="1"))
    if end == "finish":
        with pytest.raises(SampleError, match=r"^sample 0: has no cls"):
            policy(missing("png", "cls", key="2"))
        return
    with pytest.raises(SampleError, match=r"^sample 0: has no cls; correct the sample, or skip such samples with"):
        policy.release()
    assert not policy.undecided
    policy.finish()
