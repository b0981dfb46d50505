"""Build hook that compiles the kernel for a wheel or an editable installation if there is a C compiler.

A hook of hatchling, which pyproject.toml names. One file serves CPython from 3.10 on, as it uses the limited API only.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_FOLDER = "tar2tf_cli/formats/kernel"
_NAME = "_native.abi3.so"
_OP = "tensorflow_op.so.1"
_CHECK = """
import sys
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("_native", sys.argv[1])
module = module_from_spec(spec)
spec.loader.exec_module(module)
assert module.extend(0, b"123456789") == module.extend(0, b"123456789", True) == 0xE3069283
"""

_CHECK_OP = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"


def compiled(source: Path, target: Path, *flags: str) -> list[str]:
    """Return the compiler command for the kernel.

    The environment variables CC, CFLAGS, LDFLAGS and ARCHFLAGS have their usual meanings.

    Args:
        source: the C file.
        target: the extension to make.
        flags: additional arguments for the compiler.
    """
    given = [word for name in ("CFLAGS", "ARCHFLAGS", "LDFLAGS") for word in shlex.split(os.environ.get(name, ""))]
    linker = shlex.split(sysconfig.get_config_var("LDSHARED") or "cc -shared")
    compiler = shlex.split(os.environ.get("CC", "")) or linker[:1]
    include = [f"-I{sysconfig.get_path(name)}" for name in ("include", "platinclude")]
    words = [*compiler, *linker[1:], "-std=c99", "-O3", "-fPIC", *include, *given, *flags]
    return [*words, str(source), "-o", str(target)]


def build_op(source: Path, target: Path, *flags: str) -> str | None:
    """Compile the op for TensorFlow and load it; return the reason if that fails, otherwise None."""
    if sys.platform != "linux":
        return "it is for Linux"
    return _built(compiled(source, target, *flags, "-ldl", "-lpthread"), _CHECK_OP, target)


def build(source: Path, target: Path, *flags: str) -> str | None:
    """Compile the kernel and import it; return the reason if that fails, otherwise None."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "this Python has no limited API"
    return _built(compiled(source, target, *flags), _CHECK, target)


def _built(command: list[str], check: str, target: Path) -> str | None:
    """Run a compiler and check its output; return the reason if that fails, otherwise None."""
    try:
        _run(command)
        _run([sys.executable, "-c", check, str(target)])
    except (OSError, subprocess.SubprocessError) as error:
        target.unlink(missing_ok=True)
        return str(getattr(error, "stderr", "") or error).strip()
    return None


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)


class KernelHook(BuildHookInterface[Any]):
    """Hatchling build hook that adds the kernel to a wheel, or to the sources of an editable installation."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the kernel, unless the environment variable TAR2TF_PURE is set."""
        if self.target_name != "wheel":
            return
        folder = Path(self.root, _FOLDER)
        self._temporary = tempfile.TemporaryDirectory(prefix="tar2tf-")
        target = (folder if version == "editable" else Path(self._temporary.name)) / _NAME
        reason: str | None = "TAR2TF_PURE is set"
        if os.environ.get("TAR2TF_PURE", "0") in ("", "0"):
            reason = build(folder / "kernel.c", target)
        if reason:
            self.app.display_warning(f"tar2tf is built without its kernel in C: {reason}")
            return
        self.app.display_info("tar2tf is built with its kernel in C")
        op = target.with_name(_OP)
        if reason := build_op(folder / "tensorflow_op.c", op):
            self.app.display_warning(f"tar2tf is built without its op for TensorFlow: {reason}")
        if version != "editable":
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["pure_python"] = False
            build_data["tag"] = f"cp310-abi3-{platform}"
            for made in (target, op) if op.exists() else (target,):
                build_data["force_include"][str(made)] = f"{_FOLDER}/{made.name}"
