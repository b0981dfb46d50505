"""The examples that both peers of `examples` store: an integer label and a float array from a .npy file, in chunks.

As a script, it stores them with TensorFlow and flushes after each record: described.py OUT LIST
"""

from __future__ import annotations

import csv
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from tar2tf_cli.recorder import Example, tfrecordable


class Described(Example):
    """One row: a name and a label; the array is a file beside the list."""

    def __init__(self, path: str, label: int) -> None:
        super().__init__()
        self.path = path
        self._label = label
        self._data = None

    @tfrecordable(dtype=Example.Field.TYPE_INT32)
    def label(self) -> int:
        return self._label

    @tfrecordable(dtype=Example.Field.TYPE_ARRAY_FLOAT32)
    def data(self) -> np.ndarray:
        return self._data

    @data.setter
    def data(self, value: np.ndarray) -> None:
        self._data = value

    @staticmethod
    def from_csv_row(row: list[str], **kwargs: Any) -> Described:
        return Described(row[0], int(row[1]))

    def load(self, **kwargs: Any) -> None:
        self._data = np.load(self.path)

    def split(self, **kwargs: Any) -> list[Described]:
        chunks = []
        for start in range(0, len(self._data), 5):
            chunk = Described(self.path, self._label)
            chunk.data = self._data[start : start + 5]
            chunks.append(chunk)
        return chunks


def main(out: Path, path: Path) -> None:
    import tensorflow as tf

    begin, records, size = time.perf_counter(), 0, 0
    number = 0
    writer = tf.io.TFRecordWriter(str(out / "0.tfr"))
    with path.open(newline="") as file:
        for row in csv.reader(file):
            example = Described.from_csv_row(row)
            example.load()
            for chunk in example.split():
                features = {
                    "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[chunk.label])),
                    "data": tf.train.Feature(float_list=tf.train.FloatList(value=chunk.data.ravel())),
                    "data/shape": tf.train.Feature(int64_list=tf.train.Int64List(value=chunk.data.shape)),
                }
                data = tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
                if size + len(data) > 100_000_000:
                    writer.close()
                    number, size = number + 1, 0
                    writer = tf.io.TFRecordWriter(str(out / f"{number}.tfr"))
                writer.write(data)
                writer.flush()
                size += len(data)
                records += 1
    writer.close()
    print(json.dumps({"records": records, "seconds": time.perf_counter() - begin}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
