"""Conversions on a real Ray cluster: the bytes of a local run, whatever dies, and refused where that is impossible."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from commands import SECONDS, convert, end, start, tar2tf
from declared_geometry import RECORDS, TARS, annotated_tars, check_sizes
from images import jpeg, photo
from interruptions import END, kill_once_published
from ray_nodes import RAY, Cluster, ray_cluster, start_node
from servers import moto_server, read_aws_models_once
from shards import every_file, large_shards, mixed_shards, shards_in, tree, write_tar
from tar2tf_cli import open_records

pytestmark = [
    pytest.mark.skipif(
        RAY is None or importlib.util.find_spec("ray") is None, reason="no Ray: pip install 'tar2tf-cli[ray]'"
    ),
    pytest.mark.xdist_group("ray"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with ray_cluster(tmp_path_factory.mktemp("apart")) as found:
        yield found


@pytest.fixture
def on_ray(cluster: Cluster) -> list[str]:
    """The options of a run on the cluster."""
    return ["--engine", "ray", "--address", cluster.address]


@pytest.fixture
def apart(cluster: Cluster) -> Path:
    """A folder that one node has for itself."""
    if cluster.apart is None:
        pytest.skip("a process may not have mounts of its own here")
    return cluster.apart


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mixed_shards(tmp_path_factory.mktemp("mixed"))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return large_shards(tmp_path_factory.mktemp("large"), shards=5)


def op(folder: Path, body: str) -> str:
    """An op that runs this code for each sample."""
    path = folder / "op.py"
    head = "import os, pathlib, signal, time\n\n\ndef op(sample):\n"
    path.write_text(head + textwrap.indent(textwrap.dedent(body).strip(), "    ") + "\n    return sample\n")
    return f"func:{path}:op"


LAYOUTS = {
    "one file": ("all.record",),
    "by size": ("train-<>.record", "--max-shard-size", "40kB"),
    "with an index": ("train-<00>.record", "--records-per-shard", "9", "--index"),
    "shuffled": ("train-<>.record", "--shuffle", "--num-shards", "3"),
    "by total": ("<split>-<>-of-<total>.record", "--split", "a=0.6,b=0.4", "--num-shards", "2"),
    "spools as shards": ("<input>.record", "--op", "drop_empty"),
    "gzip": ("train-<>.record", "--compression", "gzip", "--max-shard-size", "20kB"),
    "tars": ("train-<>.tar", "--max-shard-size", "60kB"),
    "shuffled tars": ("train-<>.tar.gz", "--shuffle", "--num-shards", "3"),
    "labels of all inputs": ("all.record", "--select", "cls", "--labels", "cls=auto"),
    "listed": ("train-<>.record", "--keys", "{}/keys", "--max-shard-size", "40kB"),
    "a part": ("train-<>.tar", "--sample", "0.5", "--seed", "3", "--max-shard-size", "60kB"),
    "some": ("train-<>.record", "--op", "filter:cls=1,2,3", "--records-per-shard", "9"),
    "each once": ("train-<>.record", "--drop-duplicates", "cls", "--max-shard-size", "40kB"),
    "joined": ("train-<>.record", "--join", "{}/captions.csv", "--join-missing", "skip", "--max-shard-size", "40kB"),
    "joined tars": ("train-<>.tar", "--join", "{}/more", "--join-missing", "keep", "--records-per-shard", "20"),
}


def beside(folder: Path) -> list[tuple[str, ...]]:
    """The layouts with the files that some of them name, which are made in a folder."""
    keys = [f"{number:04d}" for number in [*range(0, 70, 3), *range(1000, 1050, 2), *range(2000, 2014)]]
    (folder / "keys").write_text("\n".join(keys))
    (folder / "captions.csv").write_text("key,caption\n" + "".join(f"{key},of {key}\n" for key in keys))
    write_tar(folder / "more/a.tar", [(key, {"txt2": key.encode()}) for key in reversed(keys)])
    return [tuple(option.format(folder) for option in layout) for layout in LAYOUTS.values()]


def connected_once(cluster: Cluster, commands: Sequence[Sequence[str | Path]]) -> subprocess.CompletedProcess[str]:
    """Run commands in one process that is connected to the cluster, whose processes then start only once."""
    code = f"""
        import ray
        from tar2tf_cli.cli import main
        ray.init({cluster.address!r}, logging_level="ERROR", log_to_driver=False)
        for command in {[[*map(str, command)] for command in commands]!r}:
            try:
                main(command)
            except SystemExit as end:
                assert not end.code
        assert ray.is_initialized()
        raise SystemExit(0)
    """
    done = tar2tf(code=textwrap.dedent(code))
    assert done.returncode == 0, done.stderr
    return done


def test_bytes_and_manifests_are_those_of_local_runs(mixed: Path, cluster: Cluster, tmp_path: Path) -> None:
    """In one process, which connects once, as a user of the Python API would."""
    layouts = beside(tmp_path)
    for number, (path, *options) in enumerate(layouts):
        convert(mixed, "-o", tmp_path / "one" / str(number) / path, *options, "-j", "1", "-q")
        convert(mixed, "-o", tmp_path / "two" / str(number) / path, *options, "-j", "2", "-q")
    commands = [
        ["convert", mixed, "-o", f"{tmp_path}/ray/{number}/{path}", *options, "--engine", "ray"]
        for number, (path, *options) in enumerate(layouts)
        for _ in ("new", "up to date")
    ]
    done = connected_once(cluster, commands)
    assert done.stderr.count("up to date") == len(LAYOUTS)
    assert tree(tmp_path / "ray") == tree(tmp_path / "one") == tree(tmp_path / "two")


def test_the_number_of_tasks_at_once_can_be_given(mixed: Path, on_ray: list[str], tmp_path: Path) -> None:
    convert(mixed, "-o", tmp_path / "here" / "all.record", "-j", "2")
    done = tar2tf("convert", mixed, "-o", tmp_path / "ray" / "all.record", *on_ray, "-j", "2")
    assert done.returncode == 0, done.stderr
    assert tree(tmp_path / "ray") == tree(tmp_path / "here")


def test_boxes_points_masks_and_sizes_follow_their_images_as_in_local_runs(cluster: Cluster, tmp_path: Path) -> None:
    tars = annotated_tars(tmp_path / "in")

    def commands(folder: Path) -> Iterator[list[str | Path]]:
        for name, options in TARS.items():
            yield ["convert", tars, "-o", folder / name / "<>.record", *options, "-q"]
        records = tmp_path / "here" / "detection"
        yield ["convert", records, "-o", folder / "again" / "<>.record", *RECORDS, "-q"]

    for command in commands(tmp_path / "here"):
        assert tar2tf(*command).returncode == 0
    connected_once(cluster, [[*command, "--engine", "ray"] for command in commands(tmp_path / "ray")])
    assert tree(tmp_path / "ray") == tree(tmp_path / "here")
    for name in ("detection", "again"):
        check_sizes(*shards_in(tmp_path / "ray" / name))


def without_log(text: str) -> str:
    """Text without the lines that Ray itself logs now and then."""
    return re.sub(r"^\[[-0-9]+ [:,0-9]+ [EW] \d+ \d+\] .*\.cc:\d+: .*\n", "", text, flags=re.MULTILINE)


def test_errors_and_exit_codes_are_those_of_a_local_run(on_ray: list[str], tmp_path: Path) -> None:
    large_shards(tmp_path / "in", shards=3)
    write_tar(tmp_path / "in" / "z.tar", [("intact", {"jpg": jpeg(photo(8, 8))})])
    command = ["convert", tmp_path / "in", "--op", "decode:jpg", "-o"]
    local = tar2tf(*command, tmp_path / "local.record", "-j", "1")
    there = tar2tf(*command, tmp_path / "ray.record", *on_ray)
    assert (there.returncode, without_log(there.stderr)) == (local.returncode, local.stderr)
    assert local.returncode == 3
    skip = ["--on-error", "skip", "--errors"]
    local = tar2tf(*command, tmp_path / "local.record", *skip, tmp_path / "local.jsonl", "-j", "1")
    there = tar2tf(*command, tmp_path / "ray.record", *skip, tmp_path / "ray.jsonl", *on_ray)
    assert (there.returncode, local.returncode) == (1, 1)
    assert (tmp_path / "ray.jsonl").read_bytes() == (tmp_path / "local.jsonl").read_bytes() != b""


def test_a_killed_process_is_replaced(large: Path, on_ray: list[str], tmp_path: Path) -> None:
    once = f"""
        if not os.path.exists({str(tmp_path / "killed")!r}):
            pathlib.Path({str(tmp_path / "killed")!r}).touch()
            os.kill(os.getpid(), signal.SIGKILL)
    """
    done = convert(large, "-o", tmp_path / "ray" / "all.record", "--op", op(tmp_path, once), *on_ray, "--json")
    assert done.stdout.startswith("{"), "what Ray reports does not get into the output"
    assert (tmp_path / "killed").exists()
    convert(large, "-o", tmp_path / "local" / "all.record", "--op", op(tmp_path, once))
    assert tree(tmp_path / "ray") == tree(tmp_path / "local")


def test_a_task_that_ends_each_process_is_an_error(large: Path, on_ray: list[str], tmp_path: Path) -> None:
    done = tar2tf(
        *("convert", large, "-o", tmp_path / "all.record", *on_ray),
        *("--op", op(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)")),
    )
    assert done.returncode == 3
    assert "large-0.tar: Ray gave up on a task: WorkerCrashedError" in done.stderr
    assert not (tmp_path / "all.record").exists()


def test_a_late_duplicate_of_a_task_changes_nothing(large: Path, on_ray: list[str], tmp_path: Path) -> None:
    """The first attempt seems dead, as on a node that is cut off, and goes on writing when its task was done again."""
    late = f"""
        here = pathlib.Path({str(tmp_path)!r})
        try:
            (here / "first").touch(exist_ok=False)
        except FileExistsError:
            if sample["__key__"] == "4000":
                (here / "goes-on").touch()
                while not (here / "ended").exists():
                    time.sleep(0.05)
        else:
            if os.fork():
                os.kill(os.getpid(), signal.SIGKILL)
            while not (here / "goes-on").exists():
                time.sleep(0.05)
            sample["jpg"] = b"late"

            def stop():
                while not (written := [str(path) for path in here.glob("out/.*/.attempt-*/*") if is_late(path)]):
                    time.sleep(0.01)
                (here / "ended.part").write_text("\\n".join(written))
                (here / "ended.part").rename(here / "ended")
                os.kill(os.getpid(), signal.SIGKILL)

            def is_late(path):
                try:
                    return b"late" in path.read_bytes()
                except OSError:
                    return False  # of another attempt, whose files are moved

            import threading
            threading.Thread(target=stop).start()
    """
    out = tmp_path / "out"
    convert(large, "-o", out / "t-<>.record", "--op", op(tmp_path, late), "--max-shard-size", "100kB", *on_ray)
    assert ".spool" in (tmp_path / "ended").read_text(), "the first attempt wrote records"
    convert(large, "-o", tmp_path / "local" / "t-<>.record", "--op", op(tmp_path, late), "--max-shard-size", "100kB")
    assert tree(out) == tree(tmp_path / "local")


@pytest.mark.parametrize("first", ["local", "ray"])
def test_a_killed_run_continues_on_the_other_engine(first: str, large: Path, on_ray: list[str], tmp_path: Path) -> None:
    same = op(tmp_path, "pass")
    command = ["convert", large, "-o", tmp_path / "out" / "t-<>.record", "--max-shard-size", "50kB", "--op", same]
    ways = {"local": ["-j", "2"], "ray": on_ray}
    kill_once_published("t-2.record", *command, *ways[first])
    kept = {path.name: path.stat().st_ino for path in tmp_path.glob("out/t-*.record")}
    assert len(kept) == 2
    other = ways["ray" if first == "local" else "local"]
    done = tar2tf(*command, *other)
    assert done.returncode == 0, done.stderr
    assert {path.name: path.stat().st_ino for path in tmp_path.glob("out/t-*.record") if path.name in kept} == kept
    convert(*command[1:2], "-o", tmp_path / "whole" / "t-<>.record", *command[4:])
    assert tree(tmp_path / "out") == tree(tmp_path / "whole")


def test_ctrl_c_ends_a_run_which_then_continues(large: Path, on_ray: list[str], tmp_path: Path) -> None:
    same = op(tmp_path, "pass")
    command = ["convert", large, "-o", tmp_path / "out" / "t-<>.record", "--max-shard-size", "50kB", "--op", same]
    done = tar2tf("t-2.record", "ctrl-c", *command, *on_ray, code=END)
    assert done.returncode == 130, done.stderr
    assert "interrupted" in done.stderr
    assert tar2tf(*command, *on_ray).returncode == 0
    convert(*command[1:2], "-o", tmp_path / "whole" / "t-<>.record", *command[4:])
    assert tree(tmp_path / "out") == tree(tmp_path / "whole")


# --- What the nodes share ---


def test_an_output_that_a_node_does_not_share_is_refused(large: Path, on_ray: list[str], apart: Path) -> None:
    done = tar2tf("convert", large, "-o", apart / "out" / "t-<>.record", *on_ray)
    assert done.returncode == 2
    assert f"{apart / 'out'}: the node " in done.stderr
    assert "does not share this folder" in done.stderr
    assert "or to a bucket" in done.stderr
    assert [name for name in tree(apart) if "tar2tf/" not in name] == []


def test_inputs_that_a_node_does_not_see_are_refused(on_ray: list[str], apart: Path, tmp_path: Path) -> None:
    shards = large_shards(apart / "in", shards=1)
    done = tar2tf("convert", shards, "-o", tmp_path / "t-<>.record", *on_ray)
    assert done.returncode == 2
    assert "does not see this input" in done.stderr
    assert [name for name in tree(tmp_path) if not name.endswith(("journal", "lock"))] == []


@pytest.fixture
def bucket() -> Iterator[Callable[[], dict[str, bytes]]]:
    """What is in the bucket `s3://out`, by name."""
    pytest.importorskip("moto.server", reason="no moto: pip install 'moto[server]'")
    import boto3

    read_aws_models_once()
    with moto_server() as url, pytest.MonkeyPatch.context() as patch:
        for name, value in {"ENDPOINT_URL": url, "ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b"}.items():
            patch.setenv(f"AWS_{name}", value)
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        client = boto3.client("s3")
        client.create_bucket(Bucket="out")
        yield lambda: {
            item["Key"]: client.get_object(Bucket="out", Key=item["Key"])["Body"].read()
            for item in client.list_objects_v2(Bucket="out").get("Contents", ())
        }


def test_a_bucket_is_written_to_without_any_folder_that_the_nodes_share(
    mixed: Path,
    on_ray: list[str],
    apart: Path,
    bucket: Callable[[], dict[str, bytes]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(apart / "cache"))
    monkeypatch.setenv("TMPDIR", str(apart))
    function = op(apart, "sample['x'] = b'x'")  # a file that one node does not have
    options = ["--op", function, "--max-shard-size", "40kB", "-q"]
    convert(mixed, "-o", "s3://out/t-<>.record", *options, *on_ray)
    convert(mixed, "-o", tmp_path / "local" / "t-<>.record", *options)
    expected = every_file(tmp_path / "local")
    assert bucket() == expected
    assert convert(mixed, "-o", tmp_path / "whole.record", *options[:2], "-q").returncode == 0
    streamed = start("convert", mixed, "-o", "-", *options[:2], "-q", *on_ray, stdout=subprocess.PIPE)
    assert streamed.communicate(SECONDS)[0] == (tmp_path / "whole.record").read_bytes()
    end(streamed)


def test_a_function_gets_its_arguments_on_each_node(mixed: Path, on_ray: list[str], tmp_path: Path) -> None:
    (tmp_path / "mark.py").write_text("def mark(sample, text, size):\n    return {**sample, 'mark': [text] * size}\n")
    options = ["--op", f"func:{tmp_path / 'mark.py'}:mark,text=dog,size=2", "--max-shard-size", "40kB", "-q"]
    for where, engine in (("ray", on_ray), ("local", [])):
        assert convert(mixed, "-o", tmp_path / where / "t-<>.record", *options, *engine).returncode == 0
    assert every_file(tmp_path / "ray") == every_file(tmp_path / "local")
    records = open_records(tmp_path / "ray")
    assert [*records[0]["mark"]] == [b"dog", b"dog"]


# --- Ways in ---


def test_a_job_is_submitted(mixed: Path, cluster: Cluster, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tar2tf_cli", "convert", mixed, "-o", tmp_path / "ray" / "all.record"]
    submit = [RAY, "job", "submit", "--address", cluster.jobs, "--", *command, "--engine", "ray"]
    done = subprocess.run(list(map(str, submit)), capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    convert(mixed, "-o", tmp_path / "local" / "all.record")
    assert tree(tmp_path / "ray") == tree(tmp_path / "local")


# --- Last, as a node is lost ---


def test_a_lost_node_is_survived(large: Path, cluster: Cluster, on_ray: list[str], tmp_path: Path) -> None:
    doomed = f"""
        if os.environ.get("DOOMED"):
            pathlib.Path({str(tmp_path / "killed")!r}).touch()
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(60)
        while not os.path.exists({str(tmp_path / "killed")!r}):
            time.sleep(0.05)
    """
    options = ["--op", op(tmp_path, doomed), "--max-shard-size", "50kB"]
    convert(large, "-o", tmp_path / "ray" / "t-<>.record", *options, *on_ray)
    assert (tmp_path / "killed").exists()
    with contextlib.suppress(subprocess.TimeoutExpired):
        cluster.doomed.process.wait(1)
    convert(large, "-o", tmp_path / "local" / "t-<>.record", *options)
    assert tree(tmp_path / "ray") == tree(tmp_path / "local")


def test_a_node_that_has_just_died_is_left_out(
    large: Path, cluster: Cluster, on_ray: list[str], tmp_path: Path
) -> None:
    """Ray sends tasks to a dead node until it misses enough of its heartbeats."""
    node = start_node(f"--address={cluster.address}")
    try:
        node.wait()
    finally:
        os.killpg(node.process.pid, signal.SIGKILL)
        node.process.wait()
    convert(large, "-o", tmp_path / "ray" / "t.record", *on_ray)
    convert(large, "-o", tmp_path / "local" / "t.record")
    assert tree(tmp_path / "ray") == tree(tmp_path / "local")
