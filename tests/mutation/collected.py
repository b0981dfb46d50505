"""Run chosen tests in forks of a pytest that has collected all tests, with the code of a file's functions replaced.

Importing the package and collecting a few files of tests takes longer than most tests. Each line of standard input is a
trial in JSON, each line of standard output its exit code, negative after a signal; the first says that all are
collected.
"""

from __future__ import annotations

import gc
import json
import os
import time
from collections.abc import Generator
from inspect import CO_OPTIMIZED
from types import CodeType, FunctionType
from typing import NamedTuple

import pytest

from tests.mutation.plugin import DEADLINE, QUIET, choose
from tests.mutation.warm import fork, run_pytest

COMPUTING = (
    *(f"tests/checking/test_{name}.py" for name in ("decode", "look", "media", "parse_code", "readers")),
    "tests/docs/test_comparison.py",
)
"""Files of tests that compute with TensorFlow while they are imported; it would not end in a fork after that."""


class Trial(NamedTuple):
    """Names of test functions, a file of the package, its source with a mutant, a file for output, and seconds."""

    names: list[str]
    file: str
    original: str
    mutated: str
    log: str
    seconds: float


class Server:
    """A plugin of pytest that runs tests only in forks."""

    def __init__(self) -> None:
        self._requests, self._answers = os.fdopen(os.dup(0)), os.dup(1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        gc.freeze()
        os.write(self._answers, b"0\n")
        for line in self._requests:
            trial = Trial(*json.loads(line))
            if fork(self._answers, trial.log, trial.seconds + 60):
                replace_functions(trial.file, trial.original, trial.mutated)
                DEADLINE[0] = time.monotonic() + trial.seconds
                session.items = choose(session.items, trial.names)
                return (yield)
        session.items = []
        return (yield)


def in_functions(original: str, mutated: str) -> bool:
    """Whether two sources of a module differ only within functions, and so that the code of each can be replaced."""

    def outside(code: CodeType) -> list[object]:
        values = [value for value in code.co_consts if not isinstance(value, CodeType)]
        nested = [value for value in code.co_consts if isinstance(value, CodeType)]
        return [
            code.co_code,
            code.co_names,
            values,
            *(outside(each) for each in nested if not each.co_flags & CO_OPTIMIZED),
        ]

    before, after = (compile(source, "", "exec") for source in (original, mutated))
    shapes = [[(code.co_name, code.co_freevars) for code in _codes(module)] for module in (before, after)]
    return outside(before) == outside(after) and shapes[0] == shapes[1]


def replace_functions(file: str, original: str, mutated: str) -> None:
    """Give every function that was compiled from a file the code that the mutated source has in the same place."""
    codes = zip(*(_codes(compile(source, file, "exec")) for source in (original, mutated)), strict=True)
    changed = {old: new for old, new in codes if old != new}
    gc.unfreeze()  # what is frozen is not listed
    for function in gc.get_objects():
        if type(function) is FunctionType and function.__code__.co_filename == file and function.__code__ in changed:
            function.__code__ = changed[function.__code__]
    gc.freeze()


def _codes(code: CodeType) -> list[CodeType]:
    """List a code object and those nested in it."""
    nested = [inner for value in code.co_consts if isinstance(value, CodeType) for inner in _codes(value)]
    return [code, *nested]


if __name__ == "__main__":
    run_pytest([*QUIET, *(f"--ignore={file}" for file in COMPUTING)], Server())
