"""What all tests share: no deadlines on a busy machine, a quiet TensorFlow, and Ctrl-C that a shell has not put off."""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from compileall import compile_dir
from contextlib import suppress
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import assertion_rewriting  # noqa: F401 - how helpers are imported
import clean_environment
import fork_server
import hypothesis_profile  # noqa: F401 - how many examples there are
from etl_cluster import EtlCluster, etl_cluster_in
from kernel_build import built
from kernel_build import share as share_kernel
from optional_servers import started
from quick_retries import skip_pauses
from servers import (
    AZURE_ACCOUNT,
    AZURE_KEY,
    FaultyServer,
    azurite,
    faulty_server,
    gcs_server,
    moto_server,
    read_aws_models_once,
)
from shards import PHOTOS
from tar2tf_cli.cli import main
from tar2tf_cli.formats import kernel
from tar2tf_cli.testing.shards import tar_of
from verify_runs import Ran, convert

clean_environment.forget()
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each of many processes would compile the package again
sys.dont_write_bytecode = False

gc.disable()  # until all tests are collected: next to nothing of it becomes garbage

signal.signal(signal.SIGINT, signal.default_int_handler)  # which a job in the background starts without


LONGEST = ("s3", "pages", "aistore", "transformers", "killed", "gcs", "memory", "kernel", "azure", "ray", "readers")
"""Groups of tests (`pytest.mark.xdist_group`) that begin first, as they take longest."""

GROUPS = pytest.StashKey[str]()
"""The path of the file in which the processes of pytest-xdist say which group each test is of."""

SERVERS = {"moto": "s3", "gcs": "gcs", "azure": "azure", "clusters": "two clusters", "etl_cluster": "transformers"}
"""Fixtures that start a server, and the group of the tests that use it: one process starts it."""


MEMORY, MOST_BYTES = "/dev/shm", 4 << 30
"""Where folders of tests lie if there is room: a disk would take an eighth of all time."""


def pytest_configure(config: pytest.Config) -> None:
    with suppress(OSError):
        if shutil.disk_usage(MEMORY).free >= MOST_BYTES and os.access(MEMORY, os.W_OK):
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)
    config.stash[GROUPS] = os.path.join(tempfile.gettempdir(), f"tests-{os.getpid()}.json")
    worker = getattr(config, "workerinput", None)
    if worker and config.args == config.getini("testpaths"):  # each process begins to compile tests at another place
        places = sorted(map(str, Path(__file__).parent.glob("[!_]*/")))
        first = int(worker["workerid"].removeprefix("gw")) * len(places) // worker["workercount"]
        config.args = [*places[first:], *places[:first], *map(str, Path(__file__).parent.glob("test_*.py"))]


def group_of(item: pytest.Item) -> str:
    """The tests that run one after another in one process: those of a server, or of a file; empty for a test alone."""
    if mark := item.get_closest_marker("xdist_group"):
        return str(mark.args[0])
    used = SERVERS.keys() & set(getattr(item, "fixturenames", ()))
    alone = "" if item.get_closest_marker("spread") else item.nodeid.partition("::")[0]
    return next((SERVERS[fixture] for fixture in SERVERS if fixture in used), alone)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """More than two processes for each core, since tests wait for servers and killed runs half of the time."""
    return min(5 * (os.cpu_count() or 1) // 2, 8)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(specs: list[Any]) -> None:
    """Fork all processes from one that has imported TensorFlow, which would take each 2.4 s; they share a kernel."""
    share_kernel()
    compile_dir(Path(fork_server.__file__).parent, quiet=2)  # or each of them would do it
    python = fork_server.share()
    for spec in specs:
        if spec.popen:
            spec.python = python


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give whichever process is free the next group of tests, in the order of the tests."""
    from xdist.scheduler import LoadScopeScheduling

    class Grouped(LoadScopeScheduling):
        @cached_property
        def groups(self) -> dict[str, str]:
            return json.loads(Path(config.stash[GROUPS]).read_text())

        def _split_scope(self, nodeid: str) -> str:
            return self.groups[nodeid] or nodeid

        def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
            nodeid = self.registered_collections[node][item_index]
            scope = self._split_scope(nodeid)
            unit = self.assigned_work[node][scope]
            unit[nodeid] = True
            if all(unit.values()):  # or it would be counted again after each test
                del self.assigned_work[node][scope]
            self._reschedule(node)

    config.add_cleanup(lambda: Path(config.stash[GROUPS]).unlink(missing_ok=True))
    config.option.loadscopereorder = False
    return Grouped(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Have the processes say here which group each test is of: only they collect the tests."""
    node.workerinput["groups"] = node.config.stash[GROUPS]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with groups that take long, then files, then single tests, so that all processes end at the same time."""
    groups = {item: group_of(item) for item in items}
    places = {group: place for place, group in enumerate(LONGEST)}
    last = len(places)

    def place_in_line(item: pytest.Item) -> tuple[int, str]:
        return places.get(groups[item], last if groups[item] else last + 1), item.nodeid.partition("::")[0]

    items.sort(key=place_in_line)
    worker = getattr(config, "workerinput", None)
    if worker and worker["workerid"] == "gw0":
        Path(worker["groups"]).write_text(json.dumps({item.nodeid: group for item, group in groups.items()}))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """From now on, the collector of garbage leaves alone what is there now: thousands of tests, and TensorFlow."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """Skip files of tests that need TensorFlow where pip finds none, as for a Python that is new."""
    report = yield
    if report.failed and "No module named 'tensorflow'" in str(report.longrepr):
        report.outcome, report.longrepr = "skipped", (str(collector.path), 0, "Skipped: TensorFlow is not installed")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, Any, Any]:
    """Skip a test that comes to need TensorFlow where there is none."""
    try:
        return (yield)
    except Exception as error:
        wanted = getattr(error, "name", "") == "tensorflow" or "needs TensorFlow" in str(error)
        if wanted and find_spec("tensorflow") is None:
            pytest.skip("TensorFlow is not installed")
        raise


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name long bytes by their argument, as the time that gzip notes in them would differ from process to process."""
    return argname if isinstance(val, bytes) and len(val) > 40 else None


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest) -> Iterator[Path]:
    """An empty folder."""
    if not request.node.get_closest_marker("on_disk"):
        yield request.getfixturevalue("tmp_path")
        return
    with tempfile.TemporaryDirectory(prefix="test-", ignore_cleanup_errors=True) as folder:
        yield Path(folder).resolve()


@pytest.fixture(scope="module")
def server() -> Iterator[FaultyServer]:
    with faulty_server() as state:
        yield state


@pytest.fixture
def web(server: FaultyServer) -> FaultyServer:
    server.objects.clear()
    server.faults.clear()
    server.log.clear()
    server.etags = True
    return server


@pytest.fixture
def with_kernel(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Everything in this process uses the kernel, built from its source."""
    found = built()
    if found is None:
        pytest.skip("no C compiler")
    monkeypatch.delenv("TAR2TF_PURE", raising=False)
    monkeypatch.setattr(kernel, "built", lambda: found)
    return found


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses between retries take no time, and half a minute of them is all there is."""
    skip_pauses(monkeypatch.setattr)
    monkeypatch.setenv("TAR2TF_RETRY_FOR", "30")


@pytest.fixture(scope="session")
def moto() -> Iterator[str]:
    """The endpoint of moto's S3, started once."""
    pytest.importorskip("moto.server", reason="no moto: pip install 'moto[server]'")
    read_aws_models_once()
    with moto_server() as url:
        yield url


@pytest.fixture(scope="module")
def s3(moto: str) -> Iterator[str]:
    """The endpoint of an S3, which the environment names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", moto)
        patch.setenv("AWS_ACCESS_KEY_ID", "testing")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        yield moto


@pytest.fixture(scope="module")
def gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with started(gcs_server(tmp_path_factory.mktemp("gcs"))) as url:
        yield url


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with started(azurite(tmp_path_factory.mktemp("azure"))) as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AZURE_STORAGE_ENDPOINT", url)
        patch.setenv("AZURE_STORAGE_ACCOUNT_NAME", AZURE_ACCOUNT)
        patch.setenv("AZURE_STORAGE_ACCOUNT_KEY", AZURE_KEY)
        yield url


@pytest.fixture(scope="session")
def etl_cluster() -> Iterator[EtlCluster]:
    """An AIStore whose transformers run, started once; `etl` is for tests."""
    pytest.importorskip("fastapi", reason="no server for transformers: pip install 'tar2tf-cli[etl]'")
    with fork_server.short_folder("etl-") as folder, started(etl_cluster_in(Path(folder, "cluster"))) as cluster:
        yield cluster


@pytest.fixture
def etl(etl_cluster: EtlCluster) -> Iterator[EtlCluster]:
    """An AIStore whose transformers run, and this test in its network."""
    with started(etl_cluster.network()):
        etl_cluster.wait_until_ready()
        yield etl_cluster


@pytest.fixture(scope="session")
def six_shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards for the suite of sinks, with room beside them for what a conversion to a folder makes of them."""
    folder = tmp_path_factory.mktemp("six") / "shards"
    folder.mkdir()
    for number in range(6):
        (folder / f"s-{number}.tar").write_bytes(tar_of(40, 4_000, first=40 * number))
    return folder


@pytest.fixture(scope="module")
def s3_client(s3: str) -> Any:
    import boto3

    return boto3.client("s3")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """The command line in this process, with one worker unless told otherwise."""

    def call(*arguments: str | Path) -> Ran:
        workers = () if "--num-workers" in arguments else ("--num-workers", "1")
        with pytest.raises(SystemExit) as ended:
            main(["verify", *map(str, arguments), *workers])
        code = ended.value.code
        assert isinstance(code, int)
        return Ran(code, *capsys.readouterr())

    return call


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("converted")
    ran = convert(PHOTOS, "-o", folder / "photos-<>.record", "--records-per-shard", "6", "--type", "cls=int64")
    assert ran.code == 0, ran.err
    return folder


@pytest.fixture
def run_inspect(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """The command line in this process, with one worker unless told otherwise."""

    def call(*arguments: str | Path) -> Ran:
        with pytest.raises(SystemExit) as ended:
            main(["inspect", "-j", "1", *map(str, arguments)])
        code = ended.value.code
        assert isinstance(code, int)
        return Ran(code, *capsys.readouterr())

    return call
