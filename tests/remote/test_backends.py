"""Where tasks run, and what is refused before anything is connected to."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from commands import tar2tf
from shards import tree
from tar2tf_cli import Conversion, Input, Output, convert
from tar2tf_cli.errors import UsageError, WorkerError
from tar2tf_cli.remote import backend_of
from tar2tf_cli.remote import ray as ray_module
from tar2tf_cli.remote.ray import Meters, last_line


@pytest.mark.parametrize(
    ("address", "variable"), [("ray://head:10001", None), (None, "ray://head:10001"), (None, "http://head:8265")]
)
def test_an_address_for_use_from_outside_is_refused_with_advice(
    address: str | None, variable: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable:
        monkeypatch.setenv("RAY_ADDRESS", variable)
    with pytest.raises(UsageError, match="from outside the cluster") as refused:
        backend_of("ray", address)
    assert "ray job submit" in str(refused.value.hint)


def test_a_missing_ray_is_answered_with_what_installs_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match="Ray is not installed") as refused:
        convert(Conversion(Input(str(tmp_path)), Output(str(tmp_path / "x.record"))), engine="ray")
    assert refused.value.hint == "pip install 'tar2tf-cli[ray]'"


def test_a_cluster_that_is_not_there_is_named_at_once(tmp_path: Path) -> None:
    pytest.importorskip("ray.exceptions", reason="no Ray: pip install 'tar2tf-cli[ray]'")
    with pytest.raises(WorkerError, match=r"no Ray cluster at .*: Connection refused"):
        _ = backend_of("ray", "127.0.0.1:9").cpus


def test_a_ray_that_does_not_start_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class SlowRay(ModuleType):
        def is_initialized(self) -> bool:
            return False

        def init(self, **options: Any) -> None:
            raise Exception("The current node timed out during startup.")  # as Ray does

    monkeypatch.setitem(sys.modules, "ray", SlowRay("ray"))
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with pytest.raises(WorkerError, match="Ray did not start on this machine: The current node timed out") as failed:
        _ = backend_of("ray").cpus
    assert "run the same command again" in str(failed.value.hint)


def test_a_cluster_that_has_ended_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    assert ray_module.local_cluster_address() is None
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text("127.0.0.1:9")
    assert ray_module.local_cluster_address() is None
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        (tmp_path / "ray" / "ray_current_cluster").write_text(address)
        assert ray_module.local_cluster_address() == address


def test_an_engine_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no engine 'spark'; engines: local, ray"):
        convert(Conversion(Input(str(tmp_path)), Output(str(tmp_path / "x.record"))), engine="spark")


def test_records_are_made_by_one_cluster_only(tmp_path: Path) -> None:
    done = tar2tf("convert", "ais://in", "-o", tmp_path / "x.record", "--engine", "ray", "--remote-exec")
    assert done.returncode == 2
    assert "--engine ray and --remote-exec cannot be combined: use one of them" in done.stderr


def test_an_address_needs_the_engine_that_it_is_for(tmp_path: Path) -> None:
    done = tar2tf("convert", tmp_path, "-o", tmp_path / "x.record", "--address", "head:6379")
    assert done.returncode == 2
    assert done.stderr == "error: --address is that of a Ray cluster\n  use it with --engine ray\n"
    assert tree(tmp_path) == {}


class FakeMethod:
    """A function of Ray, which is called as `remote`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.remote = function


class FakeActor:
    """An actor in this process."""

    def __init__(self, counts: Any) -> None:
        self.sizes = FakeMethod(counts.sizes)


class FakeClass(FakeMethod):
    """A class of actors, whatever their options are."""

    def options(self, **_: object) -> FakeClass:
        return self


class FakeRay(ModuleType):
    """As much of Ray as counts bytes: an actor in this process."""

    class exceptions:
        RayError = ValueError

    def __init__(self) -> None:
        super().__init__("ray")
        self.actors: list[Any] = []

    def remote(self, kind: Any) -> Any:
        def start() -> Any:
            counts = kind()
            self.actors.append(counts)
            return FakeActor(counts)

        return FakeClass(start)

    def wait(self, asked: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
        return asked, []

    def get(self, answer: Any) -> Any:
        return answer

    def kill(self, actor: Any) -> None:
        self.actors.clear()


def test_progress_counts_tasks_that_ended_and_later_those_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = FakeRay()
    meters = Meters(ray, "run")
    meters.finished = 100
    assert meters.total(["1", "2"]) == 100
    assert not ray.actors, "a short run starts no process more"
    monkeypatch.setattr(ray_module, "SHORT_RUN", 0)
    meters.total(["1", "2"])
    (counts,) = ray.actors
    counts.note("1", 7)
    counts.note("1", 20)
    counts.note("3", 1000)
    assert [meters.total(["1", "2"]), meters.total(["1", "2"])][-1] == 120
    meters.close()
    assert not ray.actors


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("x"), "x"),
        (ValueError(), "ValueError"),
        (RuntimeError("ray::task()\n  Traceback\n\n  KeyError: 'a' \n\n"), "KeyError: 'a'"),
    ],
)
def test_of_an_error_with_the_traceback_of_ray_the_last_line_is_told(error: Exception, line: str) -> None:
    assert last_line(error) == line
