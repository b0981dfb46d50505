"""Conversions on a Ray cluster whose nodes are all this process: the bytes of a local run, and every refusal."""

from __future__ import annotations

import os
import pickle
import signal
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from ray_in_process import NodeDiedError, Ray, RayTaskError, RuntimeEnvSetupError, ray_in_process
from servers import nobody_listens
from shards import samples, tree, write_tar
from tar2tf_cli import Conversion, Input, Output, convert
from tar2tf_cli.errors import SinkError, SourceError, Tar2tfError, UsageError, WorkerError
from tar2tf_cli.remote import backend_of
from tar2tf_cli.remote import ray as ray_module
from tar2tf_cli.remote.ray import (
    AttemptResult,
    Meter,
    NodeProbe,
    RayBackend,
    RayEngine,
    Setup,
    probe,
    run_attempt,
    token_file,
)


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ray:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.chdir(os.getcwd())  # to which it returns, as nodes change to the driver's folder
    return ray_in_process(monkeypatch, "one", "two")


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    for number in range(3):
        write_tar(tmp_path / "in" / f"{number}.tar", samples(10, first=10 * number))
    return tmp_path / "in"


def converted(bucket: Path, out: Path, engine: str = "ray", **limits: Any) -> None:
    convert(Conversion(Input(str(bucket)), Output(str(out / "x-<>.record"), **limits)), engine=engine, workers=2)


@pytest.mark.parametrize("connected", [False, True])
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("limits", [{}, {"records_per_shard": 7}, {"num_shards": 2}])
def test_the_bytes_are_those_of_a_local_run(
    connected: bool, apart: bool, limits: dict[str, int], bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    ray = ray_in_process(monkeypatch, "one", "two", connected=connected)
    ray.apart = {"two"} if apart else set()

    def carrying(cluster: RayBackend, workers: int, *, carries: bool, inputs: Sequence[str]) -> RayEngine:
        assert not carries  # as the output is a folder
        return RayEngine(cluster, workers, carries=apart, inputs=inputs)

    monkeypatch.setattr(RayBackend, "engine", carrying)
    converted(bucket, tmp_path / "here", "local", **limits)
    converted(bucket, tmp_path / "ray", **limits)
    assert tree(tmp_path / "ray") == tree(tmp_path / "here")
    assert ray.calls == ([] if connected else ["init local", "shutdown"])
    probes = [("probe", "one", 0, 1), ("probe", "two", 0, 1)]
    assert ray.submitted[:2] == probes
    here = {("run_attempt", "one", 0, 3)} if apart else set()  # tasks that need files of others
    assert set(ray.submitted[2:]) <= {("run_attempt", "two", 1, 3), *here}
    assert sum(name == "run_attempt" for name, *_ in ray.submitted) >= 3
    assert not list(tmp_path.rglob(".attempt-*"))


def test_an_error_of_a_sample_is_that_of_a_local_run_and_leaves_nothing(ray: Ray, tmp_path: Path) -> None:
    write_tar(tmp_path / "in" / "x.tar", [("a", {"cls": b"1"}), ("b", {"cls": b"two"})])
    found = []
    for engine in ("local", "ray"):
        conversion = Conversion(str(tmp_path / "in"), str(tmp_path / "out" / "x.record"), types={"cls": "int64"})
        with pytest.raises(Tar2tfError) as caught:
            convert(conversion, engine=engine, workers=1)
        found.append((type(caught.value), str(caught.value)))
    assert found[0] == found[1]
    assert not list(tmp_path.rglob(".attempt-*"))


GAVE_UP = "see ray logs; tasks need less memory if fewer of them run at once (-j)"


def test_a_task_that_ray_gave_up_is_an_error(ray: Ray, bucket: Path, tmp_path: Path) -> None:
    ray.failing["run_attempt"] = [NodeDiedError("a traceback\n  the node is gone\n")]
    with pytest.raises(WorkerError) as caught:
        converted(bucket, tmp_path / "out")
    assert caught.value.message == "Ray gave up on a task: NodeDiedError: the node is gone"
    assert caught.value.hint == "see ray logs; tasks need less memory if fewer of them run at once (-j)"
    assert ray.calls == ["init local", "shutdown"]


class Job:
    """A task that needs no files of others."""

    def needs_folder(self, context: object) -> bool:
        return False


class Context:
    """The values that an engine needs of a context."""

    threads = 1

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)


@pytest.mark.parametrize("connected", [False, True])
def test_tasks_that_run_at_the_end_are_cancelled_unless_the_connection_ends_too(
    connected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    ray = ray_in_process(monkeypatch, connected=connected)
    engine: Any = backend_of("ray", None).engine(2, carries=False, inputs=[])
    engine.start(Context(tmp_path))
    engine.submit(Job())
    engine.submit(Job())
    engine.close()
    assert ray.calls == (["cancel", "cancel"] if connected else ["init local"])
    assert not engine.running


@pytest.mark.parametrize(
    ("error", "kind", "hint"),
    [
        (
            RayTaskError("Traceback\nModuleNotFoundError: No module named 'tar2tf_cli'"),
            UsageError,
            "install the same tar2tf there, or submit the command with a --runtime-env-json that does",
        ),
        (
            RuntimeEnvSetupError("ModuleNotFoundError: No module named 'tar2tf_cli'"),
            UsageError,
            "install the same tar2tf there, or submit the command with a --runtime-env-json that does",
        ),
        (
            NodeDiedError("ModuleNotFoundError: No module named 'tar2tf_cli'"),
            WorkerError,
            "run the same command again; see ray status",
        ),
    ],
)
def test_a_node_that_cannot_run_tasks_is_named(
    error: Exception, kind: type[Tar2tfError], hint: str, ray: Ray, bucket: Path, tmp_path: Path
) -> None:
    ray.failing["probe"] = [error]
    with pytest.raises(Tar2tfError) as caught:
        converted(bucket, tmp_path / "out")
    message = "the node host-one (one) cannot run tar2tf: ModuleNotFoundError: No module named 'tar2tf_cli'"
    assert (type(caught.value), caught.value.message, caught.value.hint) == (kind, message, hint)


def test_a_node_that_died_meanwhile_is_left_out(ray: Ray, tmp_path: Path) -> None:
    cluster: Any = backend_of("ray", None)
    ray.failing["probe"] = [NodeDiedError("gone")]
    get = ray.get

    def dying(ref: Any) -> Any:
        ray.gone = {"one"}
        return get(ref)

    ray.get = dying  # type: ignore[method-assign]
    assert cluster.shares(str(tmp_path), []) is None
    assert [name for name in os.listdir(tmp_path) if name.startswith(".")] == []


def test_a_node_without_the_folder_is_named_and_no_file_is_left(ray: Ray, tmp_path: Path) -> None:
    cluster: Any = backend_of("ray", None)
    assert cluster.shares(str(tmp_path), []) is None
    ray.apart = {"two"}
    assert cluster.shares(str(tmp_path), []) == "host-two (two)"
    ray.apart = {"one", "two"}
    assert cluster.shares(str(tmp_path), []) == "host-one (one)"
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("answer", "message", "shard", "hint"),
    [
        (
            NodeProbe("0.0.1", True, []),
            f"the node host-one (one) has tar2tf 0.0.1, but this is {ray_module.__version__}",
            None,
            "install the same version on all nodes",
        ),
        (
            NodeProbe(ray_module.__version__, True, ["/in/a.tar", "/in/b.tar"]),
            "the node host-one (one) does not see this input",
            "/in/a.tar",
            "put the inputs in a folder that all nodes share, or in a bucket",
        ),
    ],
)
def test_a_node_of_another_version_or_without_the_inputs_is_refused(
    answer: NodeProbe, message: str, shard: str | None, hint: str, ray: Ray, tmp_path: Path
) -> None:
    cluster: Any = backend_of("ray", None)
    ray.run = lambda *_: answer  # type: ignore[method-assign]
    with pytest.raises(UsageError) as caught:
        cluster.shares(str(tmp_path), ["/in/a.tar"])
    assert (caught.value.message, caught.value.shard, caught.value.hint) == (message, shard, hint)


def test_outputs_that_must_be_shared_are_not_written_to_a_folder_of_one_node(
    ray: Ray, bucket: Path, tmp_path: Path
) -> None:
    ray.apart = {"two"}
    with pytest.raises(UsageError) as caught:
        converted(bucket, tmp_path / "out")
    found = caught.value
    assert (found.message, found.shard, found.hint) == (
        "the node host-two (two) does not share this folder",
        str(tmp_path / "out"),
        "write to a folder that all nodes share, or to a bucket",
    )


def test_a_probe_answers_with_what_its_node_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in.tar").touch()
    monkeypatch.chdir(tmp_path)
    version, folder = ray_module.__version__, str(tmp_path)
    assert probe(folder, "t", "n", ["in.tar", "no.tar"], folder) == NodeProbe(version, False, ["no.tar"])
    assert os.path.exists(token_file(folder, "t", "n"))
    Path(token_file(folder, "u", "driver")).touch()
    assert probe(folder, "u", "n", [], "/nowhere") == NodeProbe(version, True, [])
    assert token_file("/f", "t", "n") == "/f/.t-n"
    assert probe("/nowhere", "t", "n", [str(tmp_path / "in.tar")], folder) == NodeProbe(version, False, [])


def test_a_file_that_a_node_wrote_must_be_visible_here(ray: Ray, tmp_path: Path) -> None:
    cluster: Any = backend_of("ray", None)
    ray.run = lambda *_: NodeProbe(ray_module.__version__, True, [])  # type: ignore[method-assign]
    assert cluster.shares(str(tmp_path), []) == "host-one (one)"


def test_an_address_at_which_nobody_listens_is_an_error_before_ray_waits_for_it(ray: Ray) -> None:
    with nobody_listens() as port, pytest.raises(WorkerError) as caught:
        _ = backend_of("ray", f"127.0.0.1:{port}").cpus
    assert caught.value.message == f"there is no Ray cluster at 127.0.0.1:{port}: Connection refused"
    assert caught.value.hint == "see ray status, or leave out --address to start one on this machine"
    assert ray.calls == []


def test_connecting_leaves_the_handler_of_sigterm_alone(ray: Ray) -> None:
    before = signal.getsignal(signal.SIGTERM)
    _ = backend_of("ray", "head:x").cpus
    assert signal.getsignal(signal.SIGTERM) == before
    assert ray.calls == ["init head:x"]


class Writing(NamedTuple):
    """A task that writes files to the folder of its attempt."""

    files: dict[str, bytes]
    fails: bool = False

    def run(self, context: Any) -> str:
        context.on_bytes(7)
        for name, data in self.files.items():
            Path(context.scratch, name).write_bytes(data)
        if self.fails:
            raise SourceError("wrong")
        return "result"

    def needs_folder(self, context: object) -> bool:
        return False


@pytest.mark.parametrize("carried", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_files_of_an_attempt_arrive_in_the_working_folder(
    carried: bool, fails: bool, ray: Ray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "far").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "far"))
    ray.apart = {"two"} if carried else set()
    engine: Any = backend_of("ray", None).engine(1, carries=True, inputs=[])
    engine.start(Context(tmp_path / "work"))
    moved, replace = list[str](), os.replace
    monkeypatch.setattr(os, "replace", lambda old, new: (moved.append(os.path.basename(new)), replace(old, new)))
    engine.submit(Writing({"a": b"bytes", "b": b"", "c": b"x"}, fails))
    (outcome,) = engine.wait(0)
    assert (outcome.result, str(outcome.error), engine.bytes_read) == (
        (None, "wrong", 7) if fails else ("result", "None", 7)
    )
    files = {path.name: path.read_bytes() for path in (tmp_path / "work").iterdir()}
    assert files == ({} if fails else {"a": b"bytes", "b": b"", "c": b"x"})
    assert moved == ([] if fails else ["c", "b", "a"])  # an index after the spool that it describes
    assert os.listdir(tmp_path / "far") == []


def test_cpus_are_those_of_the_cluster_and_threads_those_of_its_largest_node(ray: Ray) -> None:
    cluster = backend_of("ray", None)
    assert (cluster.cpus, cluster.threads(8), cluster.threads(1)) == (4, 2, 1)
    ray.cpus = 0
    assert (cluster.cpus, cluster.threads(8)) == (1, 1)
    ray.cpus, ray.gone = 3, {"one"}
    assert cluster.threads(8) == 3
    cluster.close()
    cluster.close()
    assert ray.calls == ["init local", "shutdown"]


def test_files_of_an_attempt_that_are_not_there_were_written_elsewhere(ray: Ray, tmp_path: Path) -> None:
    backend: Any = backend_of("ray", None)
    engine: Any = RayEngine(backend, 1, carries=False, inputs=[])
    engine.start(Context(tmp_path))
    ray.run = lambda *_: AttemptResult("result", None, 5, str(tmp_path / "nowhere"))  # type: ignore[method-assign]
    engine.submit(Job())
    with pytest.raises(SinkError) as caught:
        engine.wait(0)
    hint = "all nodes must share it, also those that join later; run the same command again"
    assert (caught.value.message, caught.value.shard, caught.value.hint) == (
        "a node has another folder of this name",
        str(tmp_path),
        hint,
    )
    ray.run = lambda *_: AttemptResult(None, SourceError("wrong"), 7, "")  # type: ignore[method-assign]
    engine.submit(Job())
    (outcome,) = engine.wait(0)
    assert (outcome.result, str(outcome.error), engine.bytes_read) == (None, "wrong", 12)


def test_variables_of_stores_travel_to_the_nodes_and_no_others(
    ray: Ray, bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[dict[str, str]] = []
    put = ray.put

    def putting(value: Any) -> Any:
        given.append(value[0])
        return put(value)

    ray.put = putting  # type: ignore[method-assign]
    travel = [
        "AWS_PROFILE",
        "TAR2TF_SEED",
        "AIS_ENDPOINT",
        "GOOGLE_X",
        "AZURE_X",
        "SSL_CERT_FILE",
        "no_proxy",
        "HTTP_PROXY",
    ]
    for name in (*travel, "SECRET", "MY_AWS_KEY"):
        monkeypatch.setenv(name, "")
    converted(bucket, tmp_path / "out")
    (names,) = given
    assert {*travel} <= {*names}
    assert not {"SECRET", "MY_AWS_KEY", "PATH", "HOME"} & {*names}


def test_a_long_attempt_reports_the_bytes_it_has_read(ray: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    now, noted = [0.0], list[tuple[str, int]]()
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    meter = Meter("run")
    meter(5)
    now[0] = 10.0
    meter(6)  # nobody asks for progress yet
    actor = SimpleNamespace(note=SimpleNamespace(remote=lambda task, size: noted.append((task, size))))
    ray.get_actor = lambda name: {"run": actor}[name]  # type: ignore[method-assign]
    for seconds, size in ((20.0, 7), (20.1, 8), (30.0, 9)):
        now[0] = seconds
        meter(size)
    assert (meter.size, noted) == (35, [("0", 18), ("0", 35)])


def test_an_attempt_that_cannot_write_its_files_says_where(ray: Ray, tmp_path: Path) -> None:
    context = pickle.dumps(SimpleNamespace())
    setup = Setup("a run", [ray.put(({}, context))], str(tmp_path / "nowhere"), str(tmp_path))
    done = run_attempt(setup, Job(), False)  # type: ignore[arg-type]
    assert done[:1] + done[2:] == (None, 0, "", None)
    assert str(done.error).startswith(f"{tmp_path}/nowhere: cannot be written")
