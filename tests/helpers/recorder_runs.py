"""CSV files of examples, and conversions of them with an example class."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from commands import tar2tf

TOY = f"{Path(__file__).parent / 'recorder_classes.py'}:ToyExample"
ROWS = ["a,yes,9223372036854775807,0.1", "bb,no,-1,1e300", 'ccc,yes,0,"-2.5"']


def make_toys(folder: Path, count: int = 40) -> tuple[Path, Path]:
    """A CSV file of names and labels, and the folder of arrays they name."""
    random = np.random.default_rng(3)
    data = folder / "data"
    data.mkdir()
    with (folder / "examples.csv").open("w", newline="") as file:
        for number in range(count):
            np.save(data / f"toy{number}.npy", random.random((7 + number % 6, 4), dtype=np.float32))
            csv.writer(file).writerow([f"toy{number}", number % 5])
    return folder / "examples.csv", data


def rows_of(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


def write_rows(path: Path, rows: list[str]) -> Path:
    path.write_text("".join(f"{row}\n" for row in rows))
    return path


def run(path: Path, output: Path, *args: str | Path, where: str = TOY):
    return tar2tf("convert", "--from", "examples", "--example-class", where, path, "-o", output, *args)
