"""What the machine lacks stops the run, and is never a sample's fault."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

from commands import tar2tf
from shards import write_tar


@pytest.mark.parametrize(
    ("raised", "what", "remedy"),
    [
        ("MemoryError()", "out of memory", "use fewer workers (-j) or free memory"),
        ("OSError(errno.ENOMEM, 'Cannot allocate memory')", "Cannot allocate memory", "use fewer workers (-j)"),
        ("OSError(errno.ENOSPC, 'No space left on device', 'a.tmp')", "a.tmp: No space left on device", "make room"),
        ("OSError(errno.EMFILE, 'Too many open files')", "Too many open files", "raise the limit (ulimit -n 65536)"),
        ('RuntimeError("can\'t start new thread")', "no more threads or processes can be started", "(ulimit -u)"),
        ("ImportError('libx.so: failed to map segment')", "importing failed: libx.so: failed to map", "free memory"),
        ("ImportError('READ\\nOriginal error was: libx.so: x\\n')", "importing failed: libx.so: x", "free memory"),
    ],
)
@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("several", [False, True])
def test_an_error_of_the_machine_stops_a_run_that_skips_faulty_samples(
    raised: str, what: str, remedy: str, workers: str, several: bool, tmp_path: Path
) -> None:
    for name in "ab":
        write_tar(tmp_path / f"{name}.tar", [(f"{name}{key}", {"txt": b"x"}) for key in range(3)])
    own = tmp_path / "own.py"
    fails = f"    if sample['__key__'] == 'a1':\n        raise {raised}\n"
    own.write_text(f"import errno\n\ndef op(sample):\n{fails}    {'yield' if several else 'return'} sample\n")
    arguments = ("-o", tmp_path / "x.record", "--on-error", "skip", "-j", workers, "--op", f"func:{own}:op")
    done = tar2tf("convert", tmp_path, *arguments)
    first, second = done.stderr.splitlines()[-2:]
    assert done.returncode == 3
    assert first.startswith("error: ")
    assert re.search(rf"(?<!None): {re.escape(what)}", first)
    assert remedy in second
    assert second.endswith("then run the same command")
    assert "skip" not in second
    assert not (tmp_path / "x.record").exists()


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
def test_an_image_for_which_there_is_no_memory_is_no_faulty_sample(suffix: str, tmp_path: Path) -> None:
    done, data = cv2.imencode(suffix, np.zeros((6000, 6000, 3), np.uint8))
    assert done
    write_tar(tmp_path / "a.tar", [("a", {"img": data.tobytes()})])
    arguments = ["convert", str(tmp_path), "-o", str(tmp_path / "x.record"), "--on-error", "skip", "--op", "decode:img"]
    code = f"""
import resource, sys
import cv2, numpy, simplejpeg
from tar2tf_cli.__main__ import main
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (60 << 20),) * 2)
sys.argv[1:] = {[*arguments, "-j", "1"]!r}
main()
"""
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # as the command sets it: a thread may take all that is free
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 3, done.stderr
    assert "out of memory\n  use fewer workers" in done.stderr
    assert not (tmp_path / "x.record").exists()
