"""Classes of examples that the tests of the recorder store; a module of its own, as worker processes import it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from tar2tf_cli.recorder import Example, IgnoreExample, tfrecordable


class ToyExample(Example):
    """The example of TFRecorder's documentation: an integer label, and a float array from a file, in chunks of five."""

    def __init__(self, name, label):
        super().__init__()
        self.name = name
        self._label = label
        self._data = None

    @tfrecordable(dtype=Example.Field.TYPE_INT32)
    def label(self):
        return self._label

    @label.setter
    def label(self, value):
        self._label = value

    @tfrecordable(dtype=Example.Field.TYPE_ARRAY_FLOAT32)
    def data(self):
        return self._data

    @data.setter
    def data(self, value):
        self._data = value

    def load(self, src_data_dirpath=None, normalize=False, **kwargs):
        data = np.load(os.path.join(src_data_dirpath, f"{self.name}.npy"))
        if normalize:
            data /= np.max(data)
        self.data = data

    def split(self, chunk_size_in_bins=5, **kwargs):
        chunks = []
        for start in range(0, self.data.shape[0], chunk_size_in_bins):
            chunk = ToyExample(self.name, self.label)
            chunk.data = self.data[start : start + chunk_size_in_bins]
            chunks.append(chunk)
        return chunks

    @staticmethod
    def from_csv_row(row, **kwargs):
        return ToyExample(name=row[0], label=int(row[1]))

    def to_csv_row(self):
        return [self.name, self._label]


class AllTypes(Example):
    """One attribute of each type, in an order that is not that of their names; nothing but a row to be made of."""

    def __init__(self, row):
        super().__init__()
        self.row = row

    @tfrecordable(dtype=Example.Field.TYPE_STRING)
    def word(self):
        return self.row[0]

    @tfrecordable(dtype=Example.Field.TYPE_BOOL)
    def flag(self):
        return self.row[1] == "yes"

    @tfrecordable(dtype=Example.Field.TYPE_INT64)
    def wide(self):
        return int(self.row[2])

    @tfrecordable(dtype=Example.Field.TYPE_DOUBLE)
    def exact(self):
        return float(self.row[3])

    @tfrecordable(dtype=Example.Field.TYPE_FLOAT)
    def about(self):
        return float(self.row[3])

    @tfrecordable(dtype=Example.Field.TYPE_INT32)
    def narrow(self):
        return np.int16(7)

    @tfrecordable(dtype=Example.Field.TYPE_ARRAY_INT32)
    def counts(self):
        return np.arange(6).reshape(2, 3) - 3

    @tfrecordable(dtype=Example.Field.TYPE_ARRAY_FLOAT32)
    def curve(self):
        return [0.5] * len(self.row[0])

    @classmethod
    def from_csv_row(cls, row):
        return cls(row)


class Fickle(AllTypes):
    """Goes wrong as its row says, and writes down when it is let go."""

    def load(self, log=None, **kwargs):
        self.log = log
        if self.row[0] == "ignore":
            raise IgnoreExample("not wanted")
        if self.row[0] == "raise":
            raise RuntimeError("the file is gone")

    def split(self, **kwargs):
        if self.row[0] == "twice":
            return (Fickle([f"part{number}", *self.row[1:]]) for number in range(2))
        if self.row[0] == "half":
            return self._half()
        return None

    def _half(self):
        yield Fickle(["part", *self.row[1:]])
        raise RuntimeError("there is no more")

    def release(self):
        if getattr(self, "log", None):
            with Path(self.log).open("a") as file:
                file.write(f"{self.row[0]}\n")
