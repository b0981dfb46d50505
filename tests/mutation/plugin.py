"""A plugin of pytest that runs only chosen tests, and writes down which pass and which fail.

MUTATION_CHOSEN is a file with the names of test functions, of each of which a few cases run; without it, one case of
each runs, and those that need servers run last. MUTATION_PASSED and MUTATION_FAILED are files to write.
"""

from __future__ import annotations

import math
import os
import time
from pathlib import Path

import pytest

FAILED, PASSED = map(os.environ.get, ("MUTATION_FAILED", "MUTATION_PASSED"))  # tests change the environment

DEADLINE = [math.inf]
"""Time of the monotonic clock after which tests are skipped."""

MOST_CASES = 40
"""The most cases run of each test function that covers a mutant."""


QUIET = (
    *("-x", "-q", "--tb=line", "-p", "tests.mutation.plugin", "-p", "no:cacheprovider", "--timeout", "120"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # of modules that are imported already
)
"""Arguments of pytest that stop at the first failure."""


def function_of(name: str) -> str:
    """The name of a test without its parameters."""
    return name.partition("[")[0]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests that were not chosen, and most cases of those that have many."""
    DEADLINE[0] = time.monotonic() + float(os.environ.get("MUTATION_SECONDS", "inf"))
    if "MUTATION_COLLECT" in os.environ:  # each trial chooses its own
        return
    chosen = None
    if "MUTATION_CHOSEN" in os.environ:
        chosen = Path(os.environ["MUTATION_CHOSEN"]).read_text().split("\n")
    kept = choose(items, chosen)
    config.hook.pytest_deselected(items=[*{*items} - {*kept}])
    items[:] = kept


def choose(items: list[pytest.Item], chosen: list[str] | None) -> list[pytest.Item]:
    """Return some cases of the chosen test functions, the first one's file first; by default one case of each."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        cases.setdefault(function_of(item.nodeid), []).append(item)
    if chosen is None:
        return [of[-1] for of in cases.values()][::-1]
    files: dict[str, list[pytest.Item]] = {}
    for name in chosen:
        of = cases.get(name, [])
        files.setdefault(name.partition("::")[0], []).extend(of[:: -(-len(of) // MOST_CASES)] if of else ())
    return [item for of in files.values() for item in of]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Skip tests once the time is over."""
    if time.monotonic() > DEADLINE[0]:
        pytest.skip("the time is over")


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Write the name of a file that cannot be imported."""
    if report.failed:
        _append(FAILED, report.nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write the test's name into the file for its outcome."""
    if report.failed:
        _append(FAILED, function_of(report.nodeid))
    elif report.when == "call" and report.passed:
        _append(PASSED, f"{report.duration:.3f} {report.nodeid}")


def _append(path: str | None, line: str) -> None:
    if path and "PYTEST_XDIST_WORKER" not in os.environ:  # the process that started it is told, too
        with open(path, "a") as file:
            file.write(line + "\n")
