"""Trials of mutants: the tests that cover a mutant run on a mutated copy of the repository until one fails."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import cache_from_source
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from tests.mutation.coverage import PACKAGE, CoverageMap, Test, copy_repository, environment
from tests.mutation.mutants import Mutant
from tests.mutation.warm import Request

FIRST = 10.0
"""Seconds of tests that are run first; most mutants need no more."""


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
        self._warm = subprocess.Popen(
            [sys.executable, self._folder / "tests/mutation/warm.py"],
            cwd=self._folder,
            env=environment(self._folder),
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
        found_by = next(filter(None, (self._found_by(mutant, batch) for batch in batches)), "")
        return Outcome(mutant, found_by, len(names), len(tests), time.monotonic() - begin)

    def _found_by(self, mutant: Mutant, names: list[str]) -> str:
        """Name the first test or file that fails with a mutant, twice, and passes without it; empty if none does."""
        while names:
            with self._holding(mutant):
                failed = self._failing(names)
            again = [name for name in names if name == failed or name.startswith(f"{failed}::")]
            if not again or (not self._failing(again) and self._fails_again(mutant, again)):
                return failed
            names = [name for name in names if name not in again]
        return ""

    def _fails_again(self, mutant: Mutant, names: list[str]) -> bool:
        """Whether tests fail with a mutant once more, as a busy machine makes a test fail now and then."""
        with self._holding(mutant):
            return bool(self._failing(names))

    @contextmanager
    def _holding(self, mutant: Mutant) -> Iterator[None]:
        path = self._folder / PACKAGE / mutant.file
        original = path.read_text()
        self._write(path, mutant.source)
        try:
            yield
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
        chosen, failed = self._folder / "chosen", self._folder / "failed"
        variables = {"MUTATION_FAILED": str(failed)}
        if "::" in names[0]:
            chosen.write_text("\n".join(names))
            variables |= {"MUTATION_CHOSEN": str(chosen), "TAR2TF_PURE": "1"}
        failed.write_text("")
        files = dict.fromkeys(name.partition("::")[0] for name in names)
        quiet = ["-x", "-q", "--tb=line", "-p", "tests.mutation.plugin", "-p", "no:cacheprovider", "--timeout", "120"]
        quiet += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of what is warm
        code = self._run(Request([*quiet, *files], variables, str(self._folder / "log"), 3 * self._seconds + 60))
        if code in (0, 5):  # 5 is "no tests ran"
            return ""
        if code < 0:
            return "a time limit"
        end = (self._folder / "log").read_text().splitlines()[-1:]
        return next(iter(failed.read_text().splitlines()), f"pytest, which ended with {code}: {''.join(end)}")

    def _run(self, request: Request) -> int:
        assert self._warm.stdin is not None
        assert self._warm.stdout is not None
        self._warm.stdin.write(json.dumps(request) + "\n")
        self._warm.stdin.flush()
        return int(self._warm.stdout.readline())


def in_order(mutant: Mutant, tests: list[Test]) -> list[Test]:
    """Sort tests: those of the mutant's room first, of these the ones that cover few blocks, and short ones."""
    mirrored = f"tests/{mutant.room}"
    return sorted(tests, key=lambda test: (not test.name.startswith(mirrored), len(test.blocks), test.seconds))
