"""`python -m benchmarks [NAME...]`: runs scenarios and prints a table for each."""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import platform
import sys
import tempfile
from pathlib import Path

from benchmarks import suites
from benchmarks.bench import SCENARIOS, Bench
from benchmarks.data import Store
from benchmarks.house import house
from benchmarks.readme import readme
from tar2tf_cli.formats import kernel


def main() -> int:
    for module in pkgutil.iter_modules(suites.__path__):
        importlib.import_module(f"{suites.__name__}.{module.name}")
    options = arguments()
    if options.list:
        for name, function in SCENARIOS.items():
            print(f"{name:<14}{(function.__doc__ or '').partition(chr(10))[0]}")
        return 0
    if options.names == ["house"]:
        house()
        return 0
    cores = use_cores(options.cores)
    print(
        f"Python {platform.python_version()}, {kernel.described()}, {cores} cores, medians of {options.rounds} rounds"
    )
    bench = Bench(Store(options.data, options.scale), options.rounds)
    if options.names == ["readme"]:
        readme(bench, write=options.write)
        return 1 if bench.failures else 0
    for name in options.names or SCENARIOS:
        SCENARIOS[name](bench)
    print()
    return 1 if bench.failures else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks", description=__doc__)
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help=f"any of {', '.join(SCENARIOS)} (default: all)")
    add("--data", type=Path, default=Path(tempfile.gettempdir(), "tar2tf-benchmarks"), metavar="DIR",
        help="folder for inputs, which are kept, and temporary outputs (default: %(default)s)")  # fmt: skip
    add("--scale", type=float, default=1.0, help="size of the inputs, such as 0.05 for a trial (default: %(default)s)")
    add("--rounds", type=int, default=3, help="runs of each peer (default: %(default)s)")
    add("--cores", type=int, default=2, help="limit every process to N cores (default: %(default)s)")
    add("--list", action="store_true", help="list the scenarios and exit")
    add("--write", action="store_true", help="with readme: write its table into README.md")
    options = parser.parse_args()
    if unknown := sorted(set(options.names) - {*SCENARIOS, "house", "readme"}):
        parser.error(f"no scenario {', '.join(unknown)}; there are {', '.join(SCENARIOS)}")
    return options


def use_cores(wanted: int) -> int:
    """Limit this process and its children to the first `wanted` cores; returns the number of cores."""
    cores = sorted(os.sched_getaffinity(0))[:wanted]
    os.sched_setaffinity(0, cores)
    return len(cores)


if __name__ == "__main__":
    sys.exit(main())
