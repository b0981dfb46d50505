"""`tar2tf etl serve` as a process: what it refuses at its start, and that its memory stays flat."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
import requests

from commands import tar2tf, wait_until
from servers import end, free_ports, wait_for
from tar2tf_cli.errors import Tar2tfError
from tar2tf_cli.remote.stream import ENVIRONMENT, Settings
from tar2tf_cli.spec.conversion import Conversion
from tar2tf_cli.spec.yaml_file import SpecFile
from verify_runs import a_tar

pytest.importorskip("fastapi", reason="no server for transformers: pip install 'tar2tf-cli[etl]'")

SETTINGS = Settings.of(Conversion("ais://b", "-"))
TARGET = {"AIS_TARGET_URL": "http://127.0.0.1:9/v1/etl/_object/name/secret"}


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (
            {ENVIRONMENT: SETTINGS.text},
            "AIS_TARGET_URL is not set: this command runs in the pods of",
        ),
        (TARGET, "no conversion is given: use --spec, or set TAR2TF_ETL_SETTINGS"),
        ({**TARGET, ENVIRONMENT: "[]"}, "TAR2TF_ETL_SETTINGS does not hold the settings of a transformer"),
        ({**TARGET, ENVIRONMENT: SETTINGS.text, "PORT": "x"}, "PORT must be a whole number, not 'x'"),
    ],
)
def test_a_wrong_environment_is_refused_at_the_start(environment: dict[str, str], message: str) -> None:
    ran = tar2tf("etl", "serve", env=environment)
    assert ran.returncode == 2
    assert message in ran.stderr


def test_a_port_that_is_taken_is_named() -> None:
    from tar2tf_cli.remote.server import check_address

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Tar2tfError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use") as caught:
            check_address("127.0.0.1", port)
    assert caught.value.exit_code == 3
    assert tar2tf("etl", "serve", "--port", "65536", env={**TARGET, ENVIRONMENT: SETTINGS.text}).returncode == 2


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("ops: [{func: 'own.py:op'}]", "own.py cannot be imported: SystemExit: it was run"),
        ("ops: ['func:os:getcwd']", "a cluster runs functions of a file only"),
        ("input: {bucket: x, from: imagefolder}", "a cluster converts only tars"),
        ("input: {bucket: x, from: tfrecord}", "a cluster converts only tars"),
        ("input: {bucket: x, join: [y]}", "--join does not work in a cluster"),
        ("input: {bucket: x, keys: keys.txt}", "--keys does not work in a cluster"),
        ("drop_duplicates: '*'", "--drop-duplicates does not work in a cluster"),
        ("opps: []", "spec.yaml:1:1: there is no key 'opps'; did you mean 'ops'?"),
    ],
)
def test_a_spec_that_cannot_be_served_is_refused_at_the_start(tmp_path: Path, spec: str, message: str) -> None:
    (tmp_path / "spec.yaml").write_text(spec)
    (tmp_path / "own.py").write_text("raise SystemExit('it was run')")
    ran = tar2tf("etl", "serve", "--spec", "spec.yaml", env=TARGET, cwd=tmp_path)
    assert ran.returncode == 2
    assert message in ran.stderr


def test_the_spec_of_a_conversion_can_be_served_and_gives_the_same_name(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(
        "input: {bucket: 'ais://b', template: '*.tar'}\nops: [{decode: jpg}]\nsplit: {a: 0.5, b: 0.5}\n"
        "output: {path: 'out/<split>-<>.record', max_shard_size: 1GB}\n"
    )
    conversion = Conversion("ais://other", "<split>.record", ops=["decode:jpg"], split="x=1")
    assert Settings.of_file(SpecFile(str(tmp_path / "spec.yaml"))) == Settings.of(conversion)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, Callable[[], int]]]:
    """The address of a process that serves the files of a mount path, and its anonymous memory in bytes."""
    (port,) = free_ports(1)
    environment = {**TARGET, ENVIRONMENT: SETTINGS.text, "PORT": str(port), "TAR2TF_MOUNT_PATHS": str(tmp_path)}
    command = [sys.executable, "-m", "tar2tf_cli", "etl", "serve", "-j", "1", "--host", "127.0.0.1"]
    process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"

    def memory() -> int:
        (line,) = [
            line for line in Path(f"/proc/{process.pid}/status").read_text().splitlines() if line.startswith("VmHWM")
        ]
        return int(line.split()[1]) * 1024

    try:
        wait_for(lambda: requests.get(f"{url}/health", timeout=2).ok, process)
        yield url, memory
    finally:
        end(process)


def sparse_tar(path: Path, count: int) -> Path:
    """A tar of samples of a mebibyte of zeros, which takes hardly any room."""
    with path.open("wb") as file:
        for number in range(count):
            member = a_tar([(f"{number:07d}.bin", bytes(1 << 20))])
            file.write(member[:512])
            file.seek(1 << 20, 1)
            file.write(a_tar([(f"{number:07d}.cls", b"7")])[:1024])
        file.write(bytes(1024))
    return path


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_does_not_grow_with_the_object(served: tuple[str, Callable[[], int]], tmp_path: Path) -> None:
    url, memory = served
    folder = tmp_path / "@ais" / "b" / "%ob"
    folder.mkdir(parents=True)
    peaks = []
    for count in (20, 200):
        path = sparse_tar(folder / f"{count}.tar", count)
        fqn = quote(quote(str(path), safe=""), safe="")
        with requests.put(f"{url}/b/{count}.tar?etl_fqn={fqn}", stream=True, timeout=60) as answer:
            assert answer.status_code == 200
            assert sum(map(len, answer.iter_content(1 << 20))) > count << 20
        peaks.append(memory())
    assert peaks[1] < peaks[0] + 10e6, peaks


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_it_listens_on_loopback_and_its_processes_end_with_it_even_when_it_is_killed() -> None:
    (port,) = free_ports(1)
    environment = {**os.environ, **TARGET, ENVIRONMENT: SETTINGS.text, "PORT": str(port)}
    command = [sys.executable, "-m", "tar2tf_cli", "etl", "serve", "-j", "2"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        assert f"listening on 127.0.0.1:{port}, 2 processes" in process.stderr.readline()
        wait_for(lambda: requests.get(f"http://127.0.0.1:{port}/health", timeout=2).ok, process)
        found = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        workers = [int(pid) for pid in found if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        assert len(workers) == 2
    finally:
        process.kill()
        process.communicate()
    wait_until(lambda: not any(_runs(pid) for pid in workers), "the end of the processes")


def _runs(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
