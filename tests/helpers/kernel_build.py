"""The kernel built from its source, once for all processes; an installed kernel may be older, or missing."""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import sys
import tempfile
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from tar2tf_cli.formats import kernel
from tar2tf_cli.formats.kernel.build import build

needs_compiler = pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")

SOURCE = Path(kernel.__file__).with_name("kernel.c")


COMPILED_QUICKLY = {"CFLAGS": "-O0"}
"""Variables for a test of packages, in which the kernel need not be fast: it takes half a second, not 2.4 s."""

_FOLDER = "KERNEL_OF_TESTS"
"""The variable that names the folder in which processes that share the kernel build it."""


def share() -> None:
    """Have this process, and all that begin with its environment, build the kernel once."""
    if _FOLDER not in os.environ:
        os.environ[_FOLDER] = tempfile.mkdtemp(prefix="kernel-")
        atexit.register(shutil.rmtree, os.environ[_FOLDER], ignore_errors=True)


@cache
def built() -> ModuleType | None:
    """The kernel; None where there is no compiler."""
    if not shutil.which("cc"):
        return None
    share()
    path = Path(os.environ[_FOLDER], "_native.abi3.so")
    with open(path.with_name("lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until the file is closed
        if not path.exists():
            strict = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"] if sys.platform == "linux" else []
            reason = build(SOURCE, path, *strict)
            assert reason is None, reason
    spec = spec_from_file_location("_native", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
