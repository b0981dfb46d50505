"""What functions of the user print in worker processes comes out, where the command prints, whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import tar2tf
from shards import write_tar

FORKED = "from tar2tf_cli.__main__ import main; import sys; sys.argv[1:] = {arguments!r}; main()"
SPAWNED = "import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start(); " + FORKED
"""A process that has another thread does not fork, but starts new interpreters."""


@pytest.mark.parametrize("code", [FORKED, SPAWNED])
@pytest.mark.parametrize("end", ["", "\n"])
def test_what_a_function_prints_in_a_worker_is_not_lost_and_not_among_documents(
    code: str, end: str, tmp_path: Path
) -> None:
    for name in "ab":
        write_tar(tmp_path / f"{name}.tar", [(f"{name}{key}", {"txt": b"x"}) for key in range(3)])
    own = tmp_path / "own.py"
    own.write_text(f"def chatty(sample):\n    print('hello', end={end!r})\n    return sample\n")
    arguments = ["convert", str(tmp_path), "-o", str(tmp_path / "x.record"), "-j", "2", "--op", f"func:{own}:chatty"]
    done = tar2tf(code=code.format(arguments=[*arguments, "--json"]))
    assert json.loads(done.stdout)["records"] == 6
    assert done.stderr.count("hello") == 6, done.stderr
