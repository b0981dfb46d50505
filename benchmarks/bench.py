"""The framework of scenarios: peers that are timed against each other, targets, and tables of results."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.data import PEERS, Dataset, Store
from benchmarks.measure import ROOT, Command, Document, Failed, cpu_seconds, peak_anonymous, run

SCENARIOS: Final[dict[str, Callable[[Bench], None]]] = {}


def scenario(function: Callable[[Bench], None]) -> Callable[[Bench], None]:
    """Register a function as a scenario, under its name on the command line."""
    SCENARIOS[function.__name__.replace("_", "-")] = function
    return function


def python(*arguments: str | Path) -> Command:
    return [sys.executable, *arguments]


def tar2tf(*arguments: str | Path) -> Command:
    return python("-m", "tar2tf_cli", *arguments)


@dataclass(frozen=True)
class Target:
    """The target for tar2tf against a peer: at most `limit` times its time, or at least `limit` times as fast.

    For a peer that is a script, `imports` says whether its time includes imports. Those of tar2tf always count.
    """

    limit: float
    as_fast: bool = False
    imports: bool = True

    def met(self, ours: float, peer: float) -> bool:
        return peer >= self.limit * ours if self.as_fast else ours <= self.limit * peer

    def __str__(self) -> str:
        return f"{self.limit:g}x as fast" if self.as_fast else f"within {self.limit:g}x"


@dataclass(frozen=True)
class Peer:
    """One way of doing the job: commands that run in parallel, timed until the last one ends.

    A command may print a JSON object: `seconds` is the time that a script took after its imports; `records` is
    compared with `records` here. `writes` is the minimum number of bytes that the job must write.
    """

    name: str
    commands: Sequence[Command]
    target: Target | None = None
    writes: int = 0
    records: int | None = None
    is_limit: bool = False


def limit(
    name: str, *commands: Command, target: Target | None = None, writes: int = 0, records: int | None = None
) -> Peer:
    """The bare loop that bounds a scenario: its input and output are those of the job, and it does little else.

    Every table has one, so that it shows how far tar2tf is from what the machine can do.
    """
    return Peer(f"limit: {name}", commands, target, writes, records, is_limit=True)


@dataclass
class Times:
    """Seconds of every round: of whole processes, and after imports, and of CPU then, if a script reports that."""

    whole: list[float] = field(default_factory=list)
    imported: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    failure: str = ""


@dataclass
class Bench:
    store: Store
    rounds: int
    failures: int = 0
    only: Mapping[str, Collection[str]] | None = None
    """Names of the peers that run, by the title of their table; by default all of all tables."""
    results: dict[str, dict[str, Times]] = field(default_factory=dict)

    @property
    def out(self) -> Path:
        """The directory that every peer writes to: on the file system of the inputs, and empty before each run."""
        return self.store.root / "out"

    def race(self, title: str, peers: Sequence[Peer], data: Dataset | None = None, rounds: int = 0) -> dict[str, Times]:
        """Run the peers in turn for several rounds; print, and return, their times compared with the first, tar2tf.

        Raises:
            ValueError: when no peer is a `limit`.
        """
        if not any(peer.is_limit for peer in peers):
            raise ValueError(f"{title}: no peer is the limit of the scenario")
        table = title.partition(":")[0]
        if self.only is not None:
            peers = [
                p for p in peers if table in self.only and (p is peers[0] or p.is_limit or p.name in self.only[table])
            ]
        if data and peers:
            self._warm(data)
        times = {peer.name: Times() for peer in peers}
        for number in range(rounds or self.rounds):
            for peer in peers:
                note(f"{title}: round {number + 1}, {peer.name}")
                self._time(peer, times[peer.name])
        note("")
        self.results[table] = times
        heading = f"{title}: {data}" if data else title
        if peers:
            print_table(heading, (line for peer in peers for line in lines(peer, times, peers[0], data)))
        return times

    def peak(self, command: Command) -> int:
        """Peak anonymous memory, in bytes, of the largest process of a command."""
        note("memory: watching " + " ".join(map(str, command)))
        self.empty()
        try:
            return peak_anonymous(command)
        except Failed:
            self.failures += 1
            raise
        finally:
            note("")
            shutil.rmtree(self.out)

    def cpu(self, name: str, command: Command) -> None:
        """Print the CPU seconds of a command and of the server that it asks."""
        note(f"CPU time: {name}")
        self.empty()
        try:
            client, server = cpu_seconds(command)
        finally:
            note("")
            shutil.rmtree(self.out)
        print(f"  CPU time of {name}: client {client:.2f} s, server {server:.2f} s")

    def c_loop(self, name: str) -> Command:
        """Return the command of the program `peers/NAME.c`, compiled with the functions of the kernel.

        Raises:
            FileNotFoundError: when there is no C compiler.
        """
        self.store.root.mkdir(parents=True, exist_ok=True)
        return [compiled(PEERS / f"{name}.c", self.store.root / name)]

    def _time(self, peer: Peer, times: Times) -> None:
        if times.failure:
            return
        self.empty()
        try:
            seconds, documents = run(peer.commands)
            self._check(peer, documents)
        except Failed as fault:
            times.failure = str(fault)
            self.failures += 1
        else:
            times.whole.append(seconds)
            times.imported += [document["seconds"] for document in documents if "seconds" in document]
            times.cpu += [document["cpu"] for document in documents if "cpu" in document]
        finally:
            shutil.rmtree(self.out)

    def _check(self, peer: Peer, documents: Iterable[Document]) -> None:
        written = sum(path.stat().st_size for path in self.out.rglob("*") if path.is_file())
        if written < peer.writes:
            raise Failed(f"wrote {written:,} bytes, not {peer.writes:,}")
        seen = sum(document.get("records", 0) for document in documents)
        if peer.records not in (None, seen):
            raise Failed(f"saw {seen:,} records, not {peer.records:,}")

    def empty(self) -> None:
        """Empty the output directory, and flush the writes of earlier runs to disk."""
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir(parents=True)
        os.sync()

    def _warm(self, data: Dataset) -> None:
        """Read the inputs and write as many bytes, so that the first peer has no disadvantage.

        On a virtual machine the first use of a page of memory costs several times the second.
        """
        self.empty()
        with (self.out / "warm").open("wb") as sink:
            for path in data.files:
                with path.open("rb") as source:
                    shutil.copyfileobj(source, sink, 1 << 24)
        shutil.rmtree(self.out)


@cache
def compiled(source: Path, program: Path) -> Path:
    """Compile a program in C once; return its path.

    Raises:
        FileNotFoundError: when there is no C compiler.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        raise FileNotFoundError("the limits of some scenarios are written in C: install a C compiler (cc)")
    headers = ROOT / "tar2tf_cli" / "formats" / "kernel"
    subprocess.run([compiler, "-O2", "-w", "-I", headers, source, "-o", program], check=True)
    return program


def lines(peer: Peer, times: dict[str, Times], ours: Peer, data: Dataset | None) -> Iterable[tuple[str, ...]]:
    """The rows of one peer: its whole time and, for a script, its time after imports."""
    mine = times[peer.name]
    if mine.failure:
        yield peer.name, "failed:", mine.failure
        return
    whole = times[ours.name].whole or [0.0]
    clocks: list[tuple[str, Sequence[float], bool | None]] = [
        (peer.name, mine.whole, True),
        ("  imports not counted", mine.imported, False),
    ]
    if mine.cpu:
        clocks.append(("  CPU time of that", mine.cpu, None))
    for name, seconds, imports in clocks:
        if seconds:
            target = peer.target if peer.target and peer.target.imports is imports else None
            same = whole if imports else times[ours.name].imported or whole  # compare scripts with scripts
            if imports is None:
                same = times[ours.name].cpu or [0.0]
            base = median(same) if peer is not ours else 0.0
            rate = f"{data.bytes / median(seconds) / 1e6:,.0f} MB/s" if data and imports is not None else ""
            yield name, *spread(seconds), rate, *against(base, median(seconds), target)


def spread(seconds: Sequence[float]) -> tuple[str, str]:
    digits = 2 if median(seconds) >= 1 else 3
    return f"{median(seconds):.{digits}f} s", f"{min(seconds):.{digits}f}-{max(seconds):.{digits}f}"


def against(ours: float, peer: float, target: Target | None) -> tuple[str, str, str]:
    """The ratio of tar2tf to a peer, the target, and whether it is met."""
    wanted = str(target or "")
    if not ours:
        return "", wanted, ""
    as_fast = target.as_fast if target else peer > ours
    ratio = f"{peer / ours:.2f}x as fast" if as_fast else f"{ours / peer:.2f}x its time"
    return ratio, wanted, ("met" if target.met(ours, peer) else "NOT MET") if target else ""


def print_table(heading: str, rows: Iterable[tuple[str, ...]]) -> None:
    print(f"\n{heading}")
    print(f"  {'':<38}{'median':>9}  {'range':<13}{'':>11}  {'tar2tf is':<16}{'wanted':<14}".rstrip())
    for row in rows:
        if row[1] == "failed:":
            print(f"  {row[0]:<38}{row[1]:>9}  {row[2]}")
        else:
            name, middle, extent, rate, ratio, wanted, verdict = row
            print(f"  {name:<38}{middle:>9}  {extent:<13}{rate:>11}  {ratio:<16}{wanted:<14}{verdict}".rstrip())
    sys.stdout.flush()


def note(message: str) -> None:
    """Show what is running, on a terminal."""
    if sys.stderr.isatty():
        print(f"\r\033[K{message[:100]}", end="", file=sys.stderr, flush=True)
