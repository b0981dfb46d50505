"""Record the blocks that each test executes: `coverage.py` puts a copy of this file into a copy of the package.

The test is known by a variable that pytest sets, which all processes of a test inherit. Each note is written at once,
as tests kill processes, and by functions that no test can have replaced.
"""

from __future__ import annotations

import hashlib
import os

_FOLDER = "FOLDER"
_open, _write, _close = os.open, os.write, os.close
_test, _seen = "", set[int]()


def executed(block: int) -> None:
    """Note that the test that runs now has executed the block of this number."""
    global _test, _seen
    test = os.environ.get("PYTEST_CURRENT_TEST", "")
    if test != _test:
        _test, _seen = test, set()
    if test and block not in _seen:
        _seen.add(block)
        name = hashlib.md5(test.rpartition(" (")[0].encode(errors="replace")).hexdigest()
        try:
            file = _open(f"{_FOLDER}/{name}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            _write(file, b"%d\n" % block)
            _close(file)
        except OSError:  # such as a full disk, which a test has made
            pass
