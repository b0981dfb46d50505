"""Files are flushed in a thread of its own, whatever happens while it is started."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tar2tf_cli.sinks import Flusher


def test_what_was_submitted_comes_back_once_it_is_flushed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    flusher = Flusher[str]()
    flusher.submit([str(tmp_path / "file")], "a")
    flusher.submit([], "b")
    found: list[str] = []
    while flusher.pending:
        found += flusher.done(timeout=10)
    flusher.close()
    assert sorted(found) == ["a", "b"]


def test_ctrl_c_before_the_thread_begins_leaves_nothing_to_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(thread: threading.Thread) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    flusher = Flusher[str]()
    with pytest.raises(KeyboardInterrupt):
        flusher.submit(["/nowhere"], "a")
    flusher.close()
