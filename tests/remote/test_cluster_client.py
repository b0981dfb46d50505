"""The command line with a real cluster: transformers come and go, records are made there, and kills leave no trace."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from declared_geometry import TARS, annotated_tars, check_sizes
from etl_cluster import EtlCluster
from make_bytes import tar_of
from shards import PHOTOS, samples, shards_in, tree, write_tar
from tar2tf_cli import Dataset
from tar2tf_cli.api.store import Body
from tar2tf_cli.cli import main
from tar2tf_cli.ops import Convert, Decode, Resize
from tar2tf_cli.remote import transformers
from tar2tf_cli.remote.cluster import RemoteSamples, RemoteSource
from tar2tf_cli.sinks.objects import ObjectSink
from tar2tf_cli.spec import __version__
from tar2tf_cli.stores import retries
from verify_runs import Ran

pytestmark = pytest.mark.xdist_group("transformers")

BUCKET = "ais://client"


@pytest.fixture(scope="module")
def shards(etl_cluster: EtlCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtlCluster]:
    """A bucket with four shards, and a fifth one in a folder whose third sample is faulty."""
    folder = tmp_path_factory.mktemp("client")
    made = {f"{n}.tar": write_tar(folder / f"{n}.tar", samples(40, first=40 * n)).read_bytes() for n in range(4)}
    entries = [("0.cls", b"1"), ("0.jpg", b"x"), ("1.cls", b"2"), ("2.cls", b"three"), ("3.cls", b"4")]
    with etl_cluster.network():
        etl_cluster.bucket("client", {**made, "faulty/größe.tar": tar_of(entries)})
    return etl_cluster


@pytest.fixture
def run(
    etl: EtlCluster, shards: EtlCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Ran]:
    """The command line in this process and the cluster's network, without the transformers of a test that failed."""
    etl.delete_transformers("tar2tf-", "client-")
    monkeypatch.setenv("AIS_ENDPOINT", etl.endpoint)
    monkeypatch.setenv("TAR2TF_NUM_WORKERS", "1")
    monkeypatch.setattr(transformers, "INIT_SECONDS", 60)  # the cluster looks 64 times in it, but at most once a second

    def call(*words: object) -> Ran:
        with pytest.raises(SystemExit) as ended:
            main([*map(str, words)])
        assert isinstance(ended.value.code, int)
        return Ran(ended.value.code, *capsys.readouterr())

    return call


def stages(run: Callable[..., Ran]) -> dict[str, str]:
    document = json.loads(run("etl", "list", "--json").out)
    return {each["name"]: each["stage"] for each in document["transformers"] if each["name"].startswith("client")}


def test_a_transformer_is_made_used_stopped_made_again_and_deleted(run: Callable[..., Ran], tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(f"input: {{bucket: '{BUCKET}', template: '{{0..3}}.tar'}}\noutput: {{path: {tmp_path}/a.record}}\n")
    assert run("etl", "init", "--spec", spec, "--name", "client-x").out == "client-x\n"
    assert stages(run) == {"client-x": "Running"}
    again = run("etl", "init", "--spec", spec, "--name", "client-x")
    assert (again.code, "already exists" in again.err) == (2, True)
    used = run("convert", "--spec", spec, "--etl", "client-x")
    assert (used.code, "with its transformer client-x" in used.err) == (0, True)
    assert "faulty" not in run("etl", "logs", "client-x").err
    assert run("etl", "stop", "client-x").code == 0
    assert stages(run) == {"client-x": "Aborted"}
    assert "'client-x' is Aborted" in run("etl", "logs", "client-x").err
    assert run("convert", "--spec", spec, "--etl", "client-x", "--overwrite").code == 2
    made = json.loads(run("etl", "init", "--spec", spec, "--name", "client-x", "--comm", "hpull", "--json").out)
    assert made == {"name": "client-x", "image": f"tar2tf:{__version__}", "init_seconds": 60, "object_seconds": 120}
    pulled = run("convert", "--spec", spec, "--etl", "client-x", "--overwrite")
    assert pulled.code == 0, pulled.err
    assert run("etl", "delete", "client-x", "--json").out == '{\n "name": "client-x",\n "stage": null\n}\n'
    assert stages(run) == {}


@pytest.mark.parametrize("name", TARS)
def test_boxes_points_masks_and_sizes_follow_their_images_in_a_cluster(
    name: str, run: Callable[..., Ran], etl: EtlCluster, tmp_path: Path
) -> None:
    tars = annotated_tars(tmp_path / "in")
    etl.bucket("annotated", {path.name: path.read_bytes() for path in tars.iterdir()})
    for where, how in (("here", "--no-remote-exec"), ("there", "--remote-exec")):
        ran = run("convert", "ais://annotated", "-o", tmp_path / where / "<>.record", *TARS[name], how)
        assert ran.code == 0, ran.err
        assert ("with its transformer" in ran.err) is (where == "there")
    assert tree(tmp_path / "there") == tree(tmp_path / "here")
    if name == "detection":
        check_sizes(*shards_in(tmp_path / "there"))


def test_a_function_of_a_file_runs_in_a_cluster(
    run: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "def tag(sample, text):\n    sample['tag'] = f'{text} {len(sample)} \u00fc'.encode()\n    return sample\n"
    (tmp_path / "own.py").write_text(source, encoding="utf-8")
    monkeypatch.chdir(tmp_path)  # which is not the folder of the pods, so that they do not find the file
    words = ["convert", f"{BUCKET}/{{0..3}}.tar", "--op", "func:own.py:tag,text=$(HOME)", "--max-shard-size", "50kB"]
    for where, how in (("here", "--no-remote-exec"), ("there", "--remote-exec")):
        ran = run(*words, "-o", tmp_path / where / "<>.record", how)
        assert ran.code == 0, ran.err
        assert ("with its transformer" in ran.err) is (where == "there")
    assert tree(tmp_path / "there") == tree(tmp_path / "here")
    in_pods = "import os\nif 'AIS_TARGET_URL' in os.environ:\n    import no_such_module\n"
    (tmp_path / "lacking.py").write_text(f"{in_pods}def tag(sample):\n    return sample\n")
    ran = run("convert", f"{BUCKET}/0.tar", "--op", "func:lacking.py:tag", "-o", tmp_path / "a.record", "--remote-exec")
    assert ran.code == 2
    assert "lacking.py cannot be imported: ModuleNotFoundError: No module named 'no_such_module'" in ran.err
    assert "correct its image or spec, and make it again" in ran.err


def test_errors_are_those_of_a_run_here_and_nothing_is_left(run: Callable[..., Ran], tmp_path: Path) -> None:
    words = ["convert", f"{BUCKET}/faulty", "--type", "cls=int64", "-o", tmp_path / "a.record"]
    here, there = (run(*words, how) for how in ("--no-remote-exec", "--remote-exec"))
    said = [line for line in there.err.splitlines() if "with its transformer" not in line]
    assert (here.code, here.err.splitlines()) == (there.code, said)
    assert here.code == 3
    assert tree(tmp_path) == {}
    assert '"name": "tar2tf-' not in run("etl", "list", "--json").out


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_run_that_is_killed_is_continued_and_its_transformer_deleted(
    run: Callable[..., Ran], etl: EtlCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["convert", BUCKET, "{0..3}.tar", "--records-per-shard", "40", "--remote-exec", "-o"]
    words.append(str(tmp_path / "there" / "<>.record"))
    fetch, asked = RemoteSource.answer, []
    if not (child := os.fork()):
        monkeypatch.setattr(RemoteSource, "check_input", lambda *_: asked.append(1) or len(asked) < 3 or os._exit(9))
        main(words)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert '"name": "tar2tf-' in run("etl", "list", "--json").out
    monkeypatch.setattr(RemoteSource, "answer", lambda *given: asked.append(given) or fetch(*given))
    ran = run(*words)
    assert (ran.code, len(asked)) == (0, 2), ran.err
    assert '"name": "tar2tf-' not in run("etl", "list", "--json").out
    words[-3:] = ["--no-remote-exec", "-o", str(tmp_path / "here" / "<>.record")]
    assert run(*words).code == 0
    assert tree(tmp_path / "there") == tree(tmp_path / "here")


def test_a_transformer_that_stays_away_names_its_log(
    run: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "FIRST_PAUSE", 0.01)
    spec = tmp_path / "spec.yaml"
    spec.write_text(f"input: {{bucket: '{BUCKET}', template: '{{0..3}}.tar'}}\noutput: {{path: {tmp_path}/a.record}}\n")
    name = run("etl", "init", "--spec", spec).out.strip()
    fetch, lock = RemoteSource.answer, threading.Lock()

    def delete_and_fetch(source: Any, item: Any, *part: str) -> Any:
        with lock:
            if source.transformers.stages().get(name):
                source.transformers.delete(name)
        return fetch(source, item, *part)

    monkeypatch.setattr(RemoteSource, "answer", delete_and_fetch)
    ran = run("convert", "--spec", spec, "--retry-for", "0.1")
    assert ran.code == 3
    assert f"the transformer {name} is not running" in ran.err
    assert f"tar2tf etl logs {name}" in ran.err
    monkeypatch.undo()


def objects(etl: EtlCluster, bucket: str) -> dict[str, bytes]:
    """The objects of a bucket by name."""
    found = etl.sdk.bucket(bucket)
    return {each.name: found.object(each.name).get_reader().read_all() for each in found.list_all_objects()}


def test_from_bucket_to_bucket_the_cluster_stores_the_shards(
    run: Callable[..., Ran], etl: EtlCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [
        "convert",
        BUCKET,
        "**/*.tar",
        "--on-error",
        "skip",
        "--type",
        "cls=int64",
        "--errors",
        tmp_path / "errors",
    ]
    publish, results = ObjectSink.publish, []

    def only_the_manifest(sink: ObjectSink, part: str, path: str) -> None:
        assert path.endswith((".sizes", "manifest.json"))
        publish(sink, part, path)

    for how in ("--no-remote-exec", "--remote-exec"):
        etl.bucket("placed")
        if how == "--remote-exec":
            monkeypatch.setattr(ObjectSink, "publish", only_the_manifest)
        ran = run(*words, "-o", "ais://placed/of/<input>.record", how)
        assert ran.code == 1, ran.err
        results.append({**objects(etl, "placed"), "errors": (tmp_path / "errors").read_bytes()})
    assert results[1] == results[0]
    assert len(results[0]) == 8
    assert run(*words, "-o", "ais://placed/of/<input>.record", "--remote-exec").err.startswith("up to date")
    etl.sdk.bucket("placed").object("of/_manifest.json").delete()
    refused = run(*words, "-o", "ais://placed/of/<input>.record", "--remote-exec")
    assert (refused.code, "no manifest of this conversion lists it" in refused.err) == (2, True)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_killed_run_whose_shards_the_cluster_stores_is_continued(
    run: Callable[..., Ran], etl: EtlCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["convert", BUCKET, "{0..3}.tar", "--remote-exec", "-o", "ais://placed/of/<input>.record"]
    results, stored, asked = [], RemoteSource.make_shard, list[str]()

    def noted(source: Any, item: Any, *given: Any) -> Any:
        asked.append(item.name)
        if len(asked) == 3:
            os._exit(9)
        return stored(source, item, *given)

    for kills in (False, True):
        etl.bucket("placed")
        if kills:
            if not (child := os.fork()):
                monkeypatch.setattr(RemoteSource, "make_shard", noted)
                main(words)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
            assert sorted(name for name in objects(etl, "placed") if name.endswith(".record")) == [
                "of/0.record",
                "of/1.record",
            ]
            asked = ["-", "-", "-"]
            monkeypatch.setattr(RemoteSource, "make_shard", noted)
        ran = run(*words)
        assert ran.code == 0, ran.err
        results.append(objects(etl, "placed"))
    assert asked[3:] == ["2.tar", "3.tar"]
    assert results[1] == results[0]


def elements(data: Any) -> list[Any]:
    return [tf.nest.map_structure(lambda value: tf.io.serialize_tensor(value).numpy(), element) for element in data]


def test_datasets_have_the_elements_and_the_records_made_there(
    run: Callable[..., Ran],
    etl: EtlCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    at_exit: list[Callable[[], None]] = []
    monkeypatch.setattr("atexit.register", at_exit.append)
    etl.bucket("photos", {path.name: path.read_bytes() for path in PHOTOS.glob("photos-*")})
    conversions = [Decode("jpg", channels=3), Convert("jpg", "float32"), Resize("jpg", (24, 32))]
    data = Dataset("photos", etl.endpoint, conversions, [["jpg", "cls"], {"key": "__key__"}])
    load = partial(data.load, num_workers=2)
    here = load(remote_exec=False)
    spec = tmp_path / "spec.yaml"
    resize = "{resize: {ext: jpg, size: [24, 32]}}"
    spec.write_text(f"ops: [{{decode: 'jpg,3'}}, {{convert: 'jpg,float32'}}, {resize}]\ntypes: {{cls: int64}}\n")
    run("etl", "init", "--spec", spec, "--name", "tar2tf-for-records")
    with caplog.at_level("INFO"):
        initiated = load(remote_exec=True)
        expected = elements(here)
        assert elements(load()) == expected
    assert "the ops are applied locally: decoded, the samples are larger than in the cluster" in caplog.text
    assert "the cluster applies the ops, with its transformer tar2tf-for-records" in caplog.text
    assert run("etl", "list", "--json").out.count('"name": "tar2tf-') == 1
    assert elements(initiated) == expected
    run("etl", "delete", "tar2tf-for-records")
    there = load(remote_exec=True)
    assert there.element_spec == here.element_spec
    assert len(expected) > 10
    assert [elements(there), elements(there)] == [expected, expected]
    assert '"name": "tar2tf-' in run("etl", "list", "--json").out
    paths = [load(path=str(tmp_path / str(how) / "x.record"), remote_exec=how) for how in (False, True)]
    assert len({Path(path).read_bytes() for (path,) in paths}) == 1
    for end in at_exit:
        end()
    assert '"name": "tar2tf-' not in run("etl", "list", "--json").out


def wait_until_aborted(source: Any) -> None:
    """Wait until the cluster has noticed that the pods ended, whom targets try to reach until then."""
    while source.transformers.stages().get(source.made_of["name"]) != "Aborted":
        time.sleep(0.1)


def test_pods_and_a_target_that_are_killed_are_started_again_and_no_byte_changes(
    run: Callable[..., Ran], etl: EtlCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("convert", BUCKET, "{0..3}.tar", "-o", tmp_path / "here" / "<>.record", "--no-remote-exec").code == 0
    (with_object,) = etl.folder.glob("data/*/*/@ais/client/%ob/2.tar")
    victims = {"1.tar": "serve", "2.tar": f"-daemon_id=target211{with_object.parents[3].name}0"}
    fetch, asked, one_by_one = RemoteSource.answer, [], threading.Lock()

    def kill_and_fetch(source: Any, item: Any, *part: str) -> Any:
        asked.append(item.name)
        with one_by_one:
            victim = victims.pop(item.name, None)
            if victim:
                etl.kill(victim)
            if victim == "serve":
                wait_until_aborted(source)
            try:
                return fetch(source, item, *part)
            finally:
                if victim:
                    etl.wait_until_ready()

    monkeypatch.setattr(RemoteSource, "answer", kill_and_fetch)
    monkeypatch.setattr(retries, "LONGEST_PAUSE", 0.5)
    words = ["convert", BUCKET, "{0..3}.tar", "-o", tmp_path / "there" / "<>.record", "--remote-exec"]
    ran = run(*words, "--retry-for", "100")
    assert ran.code == 0, ran.err
    assert min(asked.count("1.tar"), asked.count("2.tar")) > 1
    assert tree(tmp_path / "there") == tree(tmp_path / "here")


def test_a_pod_that_is_killed_while_it_answers_is_started_again_and_no_byte_changes(
    run: Callable[..., Ran], etl: EtlCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster ends an answer that broke off as it ends a whole one."""
    data = [os.urandom(200_000) for _ in range(100)]
    tar = tar_of([(f"{number}.bin", each) for number, each in enumerate(data)])
    etl.bucket("large", {"0.tar": tar, "1.tar": tar})
    words = ["convert", "ais://large", "-o"]
    assert run(*words, tmp_path / "here" / "<>.record", "--no-remote-exec").code == 0
    answer, killed = RemoteSource.answer, []

    def answer_and_kill(source: Any, item: Any, *part: str) -> Any:
        body = answer(source, item, *part)

        def read(size: int) -> bytes:
            if body.start == 0 and not killed:
                killed.append(body.read(size))
                etl.kill("serve")
                return killed[0]
            return body.read(size)

        return Body(read, body.close, body.start, body.size, body.version)

    monkeypatch.setattr(RemoteSource, "answer", answer_and_kill)
    ran = run(*words, tmp_path / "there" / "<>.record", "--remote-exec", "--retry-for", "100")
    assert ran.code == 0, ran.err
    assert killed
    assert tree(tmp_path / "there") == tree(tmp_path / "here")


def test_a_pod_that_is_killed_while_its_shard_is_stored_is_started_again(
    run: Callable[..., Ran], etl: EtlCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster then says in other words than for an answer that there is no such transformer."""
    tar = tar_of([(f"{number}.bin", os.urandom(200_000)) for number in range(100)])
    etl.bucket("large", {f"{number}.tar": tar for number in range(3)})
    etl.bucket("placed")
    store_as, asked, ended = RemoteSource.store_as, list[str](), threading.Event()

    def kill(source: Any) -> None:
        etl.kill("serve")
        wait_until_aborted(source)
        ended.set()

    def kill_and_store(source: Any, item: Any, *given: Any) -> Any:
        asked.append(item.name)
        if len(asked) == 2:
            etl.freeze("serve")  # so that it cannot answer before it ends
            threading.Timer(0.5, kill, [source]).start()
        elif len(asked) > 2:
            assert ended.wait(60)
        return store_as(source, item, *given)

    monkeypatch.setattr(RemoteSource, "store_as", kill_and_store)
    monkeypatch.setattr(retries, "LONGEST_PAUSE", 0.5)
    ran = run("convert", "ais://large", "--remote-exec", "-o", "ais://placed/<input>.record", "--retry-for", "100")
    assert ran.code == 0, ran.err
    assert len(asked) > 3
    stored = [data for name, data in objects(etl, "placed").items() if name.endswith(".record")]
    assert len(stored) == 3
    assert len({*stored}) == 1


@pytest.mark.parametrize("trouble", ["the pod is killed", "the reader is slow"])
def test_samples_go_on_after_an_answer_broke_off_and_nothing_is_stored_here(
    run: Callable[..., Ran], etl: EtlCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    """A cluster breaks an answer off where its reader takes longer than a transformer may."""
    data = [os.urandom(300_000) for _ in range(200)]
    tar = tar_of([(f"{number}.bin", each) for number, each in enumerate(data)])
    etl.bucket("large", {"0.tar": tar, "1.tar": tar})
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    monkeypatch.setattr(transformers, "object_seconds", lambda inputs=(): 2.0 if "slow" in trouble else 60.0)
    monkeypatch.setattr(retries, "LONGEST_PAUSE", 0.5)
    answer, asked = RemoteSamples.answer, list[str]()

    def noted(source: Any, item: Any, *part: str) -> Body:
        asked.append(item.name)
        return answer(source, item, *part)

    monkeypatch.setattr(RemoteSamples, "answer", noted)
    dataset = Dataset("large", etl.endpoint, [], ["bin"])
    found = []
    for element in dataset.load(remote_exec=True, num_workers=1).as_numpy_iterator():
        found.append(element)
        if len(found) == 1 and "slow" in trouble:
            time.sleep(4)
        elif len(found) == 1:
            etl.kill("serve")
    dataset.stop()
    assert found == data * 2
    assert asked.count("0.tar") > 1
