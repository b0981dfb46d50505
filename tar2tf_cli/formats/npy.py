"""NumPy's file formats: npy for one array, and npz, a zip of npy files that are named after their arrays.

https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
"""

from __future__ import annotations

import ast
import io
import math
import re
import threading
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tar2tf_cli.api.values import Array


MAGIC: Final = b"\x93NUMPY"
_MOST_HEADER: Final = 10_000  # NumPy's own limit: parsing a longer literal is not safe
_LENGTH_BYTES: Final = {1: 2, 2: 4, 3: 4}
_KEYS: Final = {"descr", "fortran_order", "shape"}
_PYTHON_2: Final = re.compile(r"(?<=\d)L\b")  # Python 2 wrote shapes such as (3L, 4L)
_ONE_AT_A_TIME: Final = threading.Lock()  # before Python 3.13, the parser can raise SystemError in several threads


def to_npy(array: Array) -> bytes:
    """Return an array of numbers as an npy file of version 1: C order, little-endian, equal bytes for equal arrays."""
    import numpy as np

    array = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(array.shape)
    described = f"{{'descr': {array.dtype.str!r}, 'fortran_order': False, 'shape': {array.shape!r}, }}".encode()
    described = described.ljust(-(-(len(described) + 11) // 64) * 64 - 11) + b"\n"  # align the data
    return b"".join((MAGIC, b"\1\0", len(described).to_bytes(2, "little"), described, array.tobytes()))


class PickledError(ValueError):
    """Raised for an array of Python objects, which are pickled."""


def read_array(data: bytes) -> Array:
    """Return the array in the bytes of an npy file, as a copy in C order and native byte order.

    Pickles are never loaded, and memory is allocated only after the length was checked against the header.

    Raises:
        PickledError: when it holds Python objects.
        ValueError: when the bytes are not one complete array; gives the reason.
    """
    import numpy as np

    (descr, fortran, shape), start = read_header(data)
    try:
        dtype = np.lib.format.descr_to_dtype(descr)
    except MemoryError:
        raise
    except Exception:
        raise ValueError(f"the npy header has the dtype {descr!r}, which NumPy does not know") from None
    if dtype.hasobject:
        raise PickledError("the npy array holds Python objects, which are pickled and could run code: save numbers")
    size, left = math.prod(shape) * dtype.itemsize, len(data) - start
    if not dtype.itemsize:
        raise ValueError(f"the npy array has the dtype {descr!r}, which has no bytes")
    if size != left:
        raise ValueError(f"the npy header describes {size:,} bytes of data, but there are {left:,}")
    array = np.frombuffer(data, np.uint8, size, start).view(dtype)
    return np.array(array.reshape(shape, order="F" if fortran else "C"), dtype.newbyteorder("="), order="C")


def read_header(data: bytes) -> tuple[tuple[Any, bool, tuple[int, ...]], int]:
    """Return dtype description, whether the array is in Fortran order, and shape; and the offset of the data.

    Raises:
        ValueError: when the bytes do not begin with the header of an npy file.
    """
    width = _LENGTH_BYTES.get(data[6] if len(data) > 8 else 0)
    if width is None or not data.startswith(MAGIC):
        raise ValueError("not an npy file of version 1, 2 or 3")
    start = 8 + width
    end = start + int.from_bytes(data[8:start], "little")
    if end - start > _MOST_HEADER or end > len(data):
        raise ValueError("the npy header is cut short or too long")
    text = data[start:end].decode("utf-8" if data[6] == 3 else "latin1", "replace")
    try:
        with _ONE_AT_A_TIME:
            header = ast.literal_eval(_PYTHON_2.sub("", text).strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError):  # the parser raises MemoryError for deep nesting
        header = None
    if not isinstance(header, dict) or set(header) != _KEYS:
        raise ValueError("the npy header is damaged")
    shape, fortran = header["shape"], header["fortran_order"]
    if not isinstance(shape, tuple) or not all(type(length) is int and length >= 0 for length in shape):
        raise ValueError(f"the npy header has the shape {shape!r}")
    return (header["descr"], bool(fortran), shape), end


_MOST_BYTES: Final = 2 << 30  # the maximum size of a tf.train.Example


def read_arrays(data: bytes) -> dict[str, Array]:
    """Return the arrays of an npz file by name, each as `read_array` does.

    Raises:
        PickledError: when one holds Python objects.
        ValueError: when the bytes are not a complete npz file of arrays below 2 GiB; gives the reason.
    """
    from zipfile import BadZipFile, ZipFile
    from zlib import error as ZlibError

    try:
        with ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if sum(member.file_size for member in members) > _MOST_BYTES:
                raise ValueError("the arrays of the npz file have more than 2 GiB")
            if not members or not all(member.filename.endswith(".npy") for member in members):
                raise ValueError("a zip archive, but not of npy files")
            return {member.filename[:-4]: read_array(archive.read(member)) for member in members}
    except (BadZipFile, ZlibError, NotImplementedError, RuntimeError, EOFError, OSError, UnicodeDecodeError) as error:
        raise ValueError(f"the npz file is damaged: {error}") from None
