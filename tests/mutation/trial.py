"""Trials of mutants: the tests that cover a mutant run on a mutated copy of the repository until one fails."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import suppress
from importlib.util import cache_from_source
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from tests.mutation.collected import COMPUTING, Trial, in_functions
from tests.mutation.coverage import PACKAGE, CoverageMap, Test, copy_repository, environment
from tests.mutation.mutants import Mutant
from tests.mutation.plugin import QUIET
from tests.mutation.warm import Request

FIRST = 10.0
"""Seconds of tests that are run first; most mutants need no more."""


TIME = "a time limit"
"""The name of what found a mutant with which tests do not end."""


class Stuck(Exception):
    """Tests do not end in a fork, for example because TensorFlow has begun to compute before it."""


class Outcome(NamedTuple):
    """The test that found a mutant, empty if none did; how many of the tests that cover it ran; how long it took."""

    mutant: Mutant
    found_by: str
    ran: int
    covering: int
    seconds: float

    def __str__(self) -> str:
        found = f"found by {self.found_by}" if self.found_by else f"SURVIVED {self.ran} of {self.covering} tests"
        return f"{self.mutant}\n    {found}, {self.seconds:.0f} s"


class Laboratory:
    """A copy of the repository that holds one mutant at a time."""

    def __init__(self, folder: Path, coverage: CoverageMap, seconds: float) -> None:
        self._folder = copy_repository(folder)
        self._coverage = coverage
        self._seconds = seconds
        self._fresh = self._server("warm")
        self._collected = self._server("collected", TAR2TF_PURE="1", MUTATION_COLLECT="1")
        self._answer(self._collected)  # that it has imported the package, which no mutant may have changed before

    def _server(self, module: str, **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", f"tests.mutation.{module}"],
            cwd=self._folder,
            env=environment(self._folder, MUTATION_FAILED=str(self._folder / "failed"), **variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def try_(self, mutant: Mutant) -> Outcome:
        """Run the tests that cover a mutant, those of its room first, until one fails that passes without it."""
        begin = time.monotonic()
        source = (self._folder / PACKAGE / mutant.file).read_text()
        tests = in_order(mutant, self._coverage.of(mutant.file, source, mutant.line))
        took = [*accumulate(test.seconds for test in tests)]
        first, last = (sum(so_far <= most for so_far in took) for most in (FIRST, self._seconds))
        room = f"tests/{mutant.room}"
        names = [test.name for test in tests[: max(last, 1)]] or [room] * (self._folder / room).exists()
        batches = [batch for batch in (names[: max(first, 1)], names[max(first, 1) :]) if batch]
        found_by = ""
        can_fork = tests and not any(name.startswith(COMPUTING) for name in names)
        if can_fork and in_functions(source, mutant.source):
            with suppress(Stuck):
                found_by = self._first(mutant, batches, quick=True)
                batches = batches[:1]  # once more, as some code has run before the change
        found_by = found_by or self._first(mutant, batches, quick=False)
        return Outcome(mutant, found_by, len(names), len(tests), time.monotonic() - begin)

    def _first(self, mutant: Mutant, batches: list[list[str]], quick: bool) -> str:
        return next(filter(None, (self._found_by(mutant, batch, quick) for batch in batches)), "")

    def _found_by(self, mutant: Mutant, names: list[str], quick: bool) -> str:
        """Name the first test or file that fails with a mutant, twice, and passes without it; empty if none does."""
        while names:
            failed = self._failing_with(mutant, names, quick)
            again = [name for name in names if name == failed or name.startswith(f"{failed}::")]
            if not again or (not self._failing(again) and self._failing_with(mutant, again, quick)):
                return failed
            names = [name for name in names if name not in again]
        return ""

    def _failing_with(self, mutant: Mutant, names: list[str], quick: bool) -> str:
        """Run tests with a mutant; quickly: in a process that has imported the package, and replaces functions."""
        path = self._folder / PACKAGE / mutant.file
        original = path.read_text()
        self._write(path, mutant.source)  # in both cases, since tests start processes
        try:
            if not quick:
                return self._failing(names)
            log = str(self._folder / "log")
            trial = Trial(names, str(path), original, mutant.source, log, self._seconds)
            if (failed := self._failed(self._collected, trial)) == TIME:
                raise Stuck
            return failed
        finally:
            self._write(path, original)

    @staticmethod
    def _write(path: Path, source: str) -> None:
        Path(cache_from_source(str(path))).unlink(missing_ok=True)  # of a source of the same second and size
        path.write_text(source)

    def _failing(self, names: list[str]) -> str:
        """Run tests until one fails; returns its name, or what else went wrong; empty if all pass.

        Whole folders are run with the kernel, one case of each test.
        """
        chosen = self._folder / "chosen"
        variables = {"MUTATION_SECONDS": str(self._seconds)}
        if "::" in names[0]:
            chosen.write_text("\n".join(names))
            variables |= {"MUTATION_CHOSEN": str(chosen), "TAR2TF_PURE": "1"}
        files = dict.fromkeys(name.partition("::")[0] for name in names)
        request = Request([*QUIET, *files], variables, str(self._folder / "log"), 3 * self._seconds + 120)
        return self._failed(self._fresh, request)

    @staticmethod
    def _answer(server: subprocess.Popen[str]) -> int:
        assert server.stdout is not None
        return int(server.stdout.readline())

    def _failed(self, server: subprocess.Popen[str], request: Request | Trial) -> str:
        failed = self._folder / "failed"
        failed.write_text("")
        assert server.stdin is not None
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        code = self._answer(server)
        if code in (0, 5):  # 5 is "no tests ran"
            return ""
        if code < 0:
            return TIME
        end = (self._folder / "log").read_text().splitlines()[-1:]
        return next(iter(failed.read_text().splitlines()), f"pytest, which ended with {code}: {''.join(end)}")


def in_order(mutant: Mutant, tests: list[Test]) -> list[Test]:
    """Sort tests: those of the mutant's room first, of these the ones that cover few blocks, and short ones."""
    mirrored = f"tests/{mutant.room}"
    return sorted(tests, key=lambda test: (not test.name.startswith(mirrored), len(test.blocks), test.seconds))
