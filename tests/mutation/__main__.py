"""`python -m tests.mutation`: changes the package in one place at a time, and sees whether a test fails."""

from __future__ import annotations

import argparse
import queue
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from tests.mutation.coverage import HOME, CoverageMap, make_map


def main() -> int:
    options = arguments()
    if options.map:
        make_map(options.processes, *options.tests)
        return 0
    from tests.mutation.mutants import Mutant, draw
    from tests.mutation.trial import Laboratory, Outcome

    begin, coverage = time.monotonic(), CoverageMap.load()
    mutants = draw(options.seed, options.count, options.rooms)
    free: queue.SimpleQueue[Laboratory] = queue.SimpleQueue()

    def begun(number: int) -> Laboratory:
        return Laboratory(HOME / f"copy-{number}", coverage, options.seconds)

    def tried(mutant: Mutant) -> Outcome:
        laboratory = free.get()
        try:
            outcome = laboratory.try_(mutant)
        finally:
            free.put(laboratory)
        print(outcome, flush=True)
        return outcome

    with ThreadPoolExecutor(options.processes) as pool:
        for laboratory in pool.map(begun, range(options.processes)):
            free.put(laboratory)
        outcomes = [*pool.map(tried, mutants)]
    of, found = (Counter(one.mutant.room for one in outcomes if one.found_by or every) for every in (True, False))
    print("\n" + "\n".join(f"{room:<12}{found[room]:>3} of {of[room]}" for room in sorted(of)))
    survivors = [outcome for outcome in outcomes if not outcome.found_by]
    minutes = (time.monotonic() - begin) / 60
    print(f"\nseed {options.seed}: {found.total()} of {of.total()} found in {minutes:.0f} minutes; survivors:")
    print("\n".join(map(str, survivors)))
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.mutation", description=__doc__)
    add = parser.add_argument
    add("--map", action="store_true", help="first run all tests, to record the lines that each of them executes")
    add("--seed", type=int, default=1, help="which mutants to draw (default: %(default)s)")
    add("--count", type=int, default=60, help="how many mutants to draw (default: %(default)s)")
    add("--rooms", nargs="*", default=[], metavar="ROOM", help="folders of the package to draw from (default: all)")
    add("--processes", type=int, default=2, help="how many mutants are tried at once (default: %(default)s)")
    add("--seconds", type=float, default=120, help="of tests for each mutant, at most (default: %(default)s)")
    add("tests", nargs="*", metavar="TEST", help="tests to make the map of (default: all)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
