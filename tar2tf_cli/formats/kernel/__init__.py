"""The kernel, an optional C extension that reads plain tars and TFRecords, many samples at a time.

It stops at anything unusual, and Python code, which can read everything and is its reference in tests, continues.
Python does all the work, more slowly, if the kernel was not built, or if TAR2TF_PURE is neither empty nor 0.
"""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Final

OP: Final = "tensorflow_op.so.1"
"""The file with the op for TensorFlow; its name is none that Python would import."""

_API: Final = 21
"""Which functions, arguments and results are expected of it, as one built from older sources may lie here."""


def native() -> ModuleType | None:
    """Return the C extension; None if it is not built or not wanted, in which case Python does its work."""
    return None if _is_disabled() else built()


def described() -> str:
    """Describe for `--version` and `-v` whether the kernel is used."""
    kernel = native()
    if kernel:
        return "kernel in C" + (", CRC-32C in hardware" if kernel.hardware else "")
    return (
        f"kernel in C {'turned off by TAR2TF_PURE' if _is_disabled() else 'not built'}: Python instead, which is slower"
    )


def _is_disabled() -> bool:
    return os.environ.get("TAR2TF_PURE", "0") not in ("", "0")


@cache
def built() -> ModuleType | None:
    """Return the C extension that was built from these sources; None if there is none."""
    try:
        kernel = import_module("tar2tf_cli.formats.kernel._native")
    except ImportError:
        return None
    return kernel if kernel.api == _API else None


def tensorflow_op() -> str | None:
    """Return the path of the TensorFlow op that was built from these sources; None if there is none."""
    path = os.path.join(os.path.dirname(__file__), OP)
    return path if native() and os.path.exists(path) else None
