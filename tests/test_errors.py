"""The error tree: exit codes, places in messages, and the way between processes."""

from __future__ import annotations

import errno
import pickle

import pytest

from tar2tf_cli import errors
from tar2tf_cli.errors import DamagedShardError, Interrupted, SampleError, Tar2tfError, UsageError

EVERY = [item for item in map(vars(errors).get, errors.__all__) if isinstance(item, type)]


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.__name__)
def test_every_error_is_a_tar2tf_error_drawn_in_the_tree_with_its_place(kind):
    assert issubclass(kind, Tar2tfError)
    tree = errors.__doc__.splitlines()
    line = next(line for line in tree if line.strip("│├└─ ").startswith(kind.__name__ + " "))
    depth = len(kind.__mro__) - len(Tar2tfError.__mro__)
    assert (line.index(kind.__name__) + 3) // 4 == depth


def test_exit_codes_are_those_of_the_design():
    codes = {kind.__name__: kind.exit_code for kind in EVERY}
    usage = {"UsageError", "ProblemsError", "OutputExistsError", "RemoteError"}
    assert {name for name, code in codes.items() if code == 2} == usage
    assert {name for name, code in codes.items() if code == 130} == {"Interrupted"}
    assert set(codes.values()) == {2, 3, 130}


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.__name__)
def test_errors_keep_everything_on_their_way_between_processes(kind):
    error = kind("what", shard="a.tar", key="k", member="k.jpg", offset=512, hint="do this")
    error.__dict__["details"] = "more"
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert copy.__dict__ == error.__dict__
    assert str(copy) == str(error) == "a.tar, member k.jpg, offset 512: what; do this"


@pytest.mark.parametrize(
    ("places", "where"),
    [
        ({}, ""),
        ({"shard": "a.tar"}, "a.tar"),
        ({"shard": "a.tar", "offset": 0}, "a.tar, offset 0"),
        ({"shard": "a.tar", "key": "k"}, "a.tar, sample k"),
        ({"shard": "a.tar", "key": "k", "member": "k.jpg", "offset": 7}, "a.tar, member k.jpg, offset 7"),
    ],
)
def test_a_message_begins_with_where(places, where):
    error = Tar2tfError("what", **places)
    assert error.where == where
    assert str(error) == (f"{where}: what" if where else "what")


@pytest.mark.parametrize("text", ["x", "size: 3"])
@pytest.mark.parametrize("number", [int, float])
def test_the_reason_for_a_number_that_is_none_is_the_whole_text(number, text):
    with pytest.raises(ValueError, match=r"invalid literal|could not convert") as caught:
        number(text)
    assert errors.reason(caught.value) == repr(text)


def test_places_are_filled_in_only_where_they_are_unknown():
    error = SampleError("what", key="k", offset=0)
    assert error.at(shard="a.tar", key="other", offset=512) is error
    assert str(error) == "a.tar, sample k, offset 0: what"


def test_damage_has_a_word_for_its_kind():
    assert DamagedShardError("what", kind="data_crc").kind == "data_crc"
    assert DamagedShardError("what").kind == "damaged"


KINDS = {
    "DamagedShardError": "damaged",
    "ImageError": "undecodable",
    "Interrupted": "interrupted",
    "LackingError": "lacking",
    "MachineError": "machine",
    "NotAdjacentError": "not_adjacent",
    "NothingFoundError": "missing",
    "OutputExistsError": "output_exists",
    "RemoteError": "not_remote",
    "SampleError": "sample",
    "SinkError": "unwritable",
    "SourceError": "unreadable",
    "StageError": "stage",
    "Tar2tfError": "failed",
    "UsageError": "usage",
    "WorkerError": "worker",
}
CODED = {"DamagedShardError", "ImageError", "LackingError", "NotAdjacentError", "NothingFoundError"}
"""Errors whose kind `tar2tf explain` knows."""


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.__name__)
def test_the_document_of_an_error_has_every_part(kind):
    parts = {"shard": "a.tar", "key": "k", "offset": 512, "hint": "do this"}
    word, code = next((KINDS[one.__name__], one.__name__ in CODED) for one in kind.__mro__ if one.__name__ in KINDS)
    document = {"kind": word, "message": "what", **parts, "code": word if code else None, "exit_code": kind.exit_code}
    assert kind("what", member="record 7", **parts).to_json() == {**document, "member": None, "record": 7}
    assert kind("what", member="7", **parts).to_json() == {**document, "member": "7", "record": None}


def test_a_lack_of_the_machine_is_an_error_with_its_remedy_and_no_other_is():
    run, fewer = "then run the same command", "or use fewer workers (-j)"
    memory, processes = f"use fewer workers (-j) or free memory, {run}", f"raise the limit (ulimit -u) {fewer}, {run}"
    room, files = f"make room, {run}", f"raise the limit (ulimit -n 65536), {run}"
    panic = type("PanicException", (BaseException,), {})
    lacks = [
        (MemoryError("x"), "out of memory", memory),
        (OSError(errno.ENOMEM, "Cannot allocate"), "Cannot allocate", memory),
        (BlockingIOError(errno.EAGAIN, "x"), "no more threads or processes can be started", processes),
        (RuntimeError("can't start new thread"), "no more threads or processes can be started", processes),
        (panic("boom"), "a library ended: boom", processes),
        (OSError(errno.ENOSPC, "No space", "f"), "f: No space", room),
        (OSError(errno.EDQUOT, "Quota"), "Quota", room),
        (OSError(errno.EMFILE, "Too many"), "Too many", files),
        (OSError(errno.ENFILE, "Too many", "g"), "g: Too many", files),
        (ImportError("x"), "importing failed: x", f"free memory, or install the package again, {run}"),
        (
            ImportError("a page\nOriginal error was: libx\n"),
            "importing failed: libx",
            f"free memory, or install the package again, {run}",
        ),
    ]
    for error, message, hint in lacks:
        found = errors.machine_error(error)
        assert (type(found), found.message, found.hint) == (errors.MachineError, message, hint)
        ours = errors.to_tar2tf_error(error)
        assert (type(ours), ours.message, ours.hint) == (errors.MachineError, message, hint)
    for other in (RuntimeError("x"), OSError(errno.ENOENT, "x"), ModuleNotFoundError("x"), ValueError("x"), OSError()):
        assert errors.machine_error(other) is None
        remedies = [errors.remedy(other)] if isinstance(other, OSError) else [None]
        assert remedies == [None]


def test_what_the_user_asked_wrongly_is_told_from_what_went_wrong():
    assert not issubclass(UsageError, Interrupted)
    assert not issubclass(SampleError, errors.SourceError)
    assert issubclass(DamagedShardError, errors.SourceError)
