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


def test_items_come_back_in_the_order_in_which_they_were_put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = threading.Event()
    flushed: list[str] = []

    def sync(path: str) -> None:
        if path == "first":
            assert slow.wait(10)
        flushed.append(path)

    monkeypatch.setattr("tar2tf_cli.sinks.directory.sync", sync)
    flusher = Flusher[str]()
    for name in ("first", "second", "third"):
        flusher.submit([name], name)
    assert flusher.done(timeout=0.2) == []  # as the first is not yet on the disk
    slow.set()
    found: list[str] = []
    while flusher.pending:
        found += flusher.done(timeout=10)
    flusher.close()
    assert found == ["first", "second", "third"]
    assert flushed[-1] == "first"
