"""The place where records are made, by what a cluster answers, without a cluster."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from commands import tar2tf
from servers import QuietHandler, serving
from shards import PHOTOS
from tar2tf_cli import Events
from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.source import Source
from tar2tf_cli.api.store import Transient
from tar2tf_cli.errors import RemoteError, SourceError, UsageError
from tar2tf_cli.remote import cluster_backend, cluster_samples
from tar2tf_cli.remote import transformers as transformers_module
from tar2tf_cli.remote.stream import Settings
from tar2tf_cli.remote.transformers import Transformers, of_cluster
from tar2tf_cli.spec.conversion import Conversion
from tar2tf_cli.stores import open_source, open_store, retries

OBJECT = ObjectInfo("a.tar", 10_000_000, "1")


class Cluster(QuietHandler):
    """A proxy that gives the answers of a test, by method and path; each is asked for as often as it has to be."""

    answers: dict[str, tuple[int, Any]]
    asked: list[tuple[str, Any]]

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = f"{self.command} {self.path}"
        self.asked.append((request, json.loads(body) if body else None))
        status, document = self.answers.get(request, (200, []))
        if status >= 400:
            document = {"message": document, "status": status}
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_PUT = do_DELETE = do_POST = _answer


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serving(Cluster) as url:
        yield url


@pytest.fixture
def cluster(server: str) -> type[Cluster]:
    Cluster.answers, Cluster.asked = {}, []
    return Cluster


@pytest.fixture
def source(server: str, cluster: type[Cluster]) -> Source:
    return open_source("ais://b", endpoint=server, retry_for=0.0)


class Noted(Events):
    """Keeps what it is notified of, and refuses to make records here."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, message: str) -> None:
        self.notes.append(message)

    def not_remote(self, error: Exception) -> None:
        raise error


def spec(**options: Any) -> Conversion:
    return Conversion("ais://b", "out/<>.record", **options)


def made(
    conversion: Conversion, source: Source, inputs: list[ObjectInfo], events: Events
) -> AbstractContextManager[Any]:
    """The context of what makes the records; of None where they are made here."""
    place = cluster_backend(conversion, source, inputs, events)
    return place.maker() if place else nullcontext()


def chosen(source: Source, conversion: Conversion, events: Events | None = None) -> Any:
    with made(conversion, source, [OBJECT], events or Noted()) as found:
        return found


REASONS = [
    (501, "cannot use ETL in a build without ETL support", "was built without ETL"),
    (400, "the operation requires Kubernetes", "does not run on Kubernetes"),
    (400, "k8s client is not initialized (non-Kubernetes deployment?)", "does not run on Kubernetes"),
    (401, "token expired", r"does not let you use transformers \(401\): token expired"),
    (403, "no permission", r"does not let you use transformers \(403\)"),
]


@pytest.mark.parametrize(("status", "message", "reason"), REASONS)
def test_a_cluster_without_transformers_says_why(
    source: Source, cluster: type[Cluster], status: int, message: str, reason: str
) -> None:
    cluster.answers = {"GET /v1/etl": (status, message), "GET /v1/etl/photos": (status, message)}
    for wanted in ({"remote_exec": True}, {"etl": "photos"}):
        with pytest.raises(RemoteError, match=reason) as caught:
            chosen(source, spec(**wanted))
        assert caught.value.hint
        with pytest.warns(UserWarning, match=reason):
            assert chosen(source, spec(**wanted), Events()) is None
    assert chosen(source, spec(), events := Noted()) is None
    assert not events.notes


@pytest.mark.parametrize("words", ["EOF", "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"])
def test_a_target_that_answers_nothing_about_transformers_is_named(
    server: str, cluster: type[Cluster], words: str
) -> None:
    """AIStore 5.0 has such targets, which are healthy otherwise, until they are restarted."""
    message = f'p[one]: failed to call t[two] [control-plane], err: Get "http://10.0.0.1:5/v1/etl": {words}'
    cluster.answers = {"GET /v1/etl": (400, message)}
    transformers = of_cluster(server, 0.0)
    with pytest.raises(SourceError, match=r"failed to call t\[two\]") as caught:
        transformers.ask(transformers.stages)
    assert caught.value.hint == "restart the target two: it no longer answers about transformers"


def test_without_a_flag_one_request_finds_out(source: Source, cluster: type[Cluster]) -> None:
    assert chosen(source, spec(), events := Noted()) is None
    assert events.notes == ["note: the records are made locally: the cluster has no running transformer for this spec"]
    assert cluster.asked == [("GET /v1/etl", None)]
    assert chosen(source, spec(remote_exec=False)) is None
    assert chosen(source, spec(ops=["func:os:getcwd"])) is None
    assert len(cluster.asked) == 1


def applied(source: Source, events: Events | None = None, **options: Any) -> Any:
    """What gives the samples of a dataset in memory, with ops, and the entry jpg of them."""
    conversion = Conversion("ais://b", "-", ops=["decode:jpg"], select=["jpg"], **options)
    with cluster_samples(conversion, source, [OBJECT], events or Noted()) as found:
        return found


def changes(cluster: type[Cluster]) -> list[str]:
    """The requests that make or delete transformers, without what a run adds to the name of its own."""
    asked = [request for request, _ in cluster.asked if not request.startswith("GET")]
    return [re.sub(r"(/tar2tf-\w{16})-\w{8}$", r"\1-RUN", request) for request in asked]


def test_in_memory_a_transformer_is_made_with_the_flag_and_deleted_at_the_end(
    source: Source, cluster: type[Cluster]
) -> None:
    events = Noted()
    assert applied(source, events, remote_exec=True) is not source
    name = Settings.of(Conversion("ais://b", "-", ops=["decode:jpg"])).name
    assert changes(cluster) == ["PUT /v1/etl", f"DELETE /v1/etl/{name}-RUN"]
    (note,) = events.notes
    assert note.startswith(f"note: the cluster applies the ops, with its transformer {name}-")
    asked = len(cluster.asked)
    assert applied(source, remote_exec=False) is source
    for ops in ((), ("decode:jpg",)):
        with cluster_samples(Conversion("ais://b", "-", ops=ops), source, [OBJECT], events := Noted()) as found:
            assert found is source
        assert events.notes == [
            "note: the ops are applied locally: the cluster has no running transformer for this spec"
        ]
    assert [request for request, _ in cluster.asked[asked:]] == ["GET /v1/etl"] * 2


def test_in_memory_the_reason_is_said_why_the_ops_are_applied_here(source: Source, cluster: type[Cluster]) -> None:
    cluster.answers = {"GET /v1/etl": (501, "cannot use ETL in a build without ETL support")}
    events = Noted()
    assert applied(source, events) is source
    (note,) = events.notes
    assert note.startswith("note: the ops are applied locally: ")
    assert "without ETL" in note


def test_two_runs_of_the_same_ops_have_a_transformer_each(source: Source, cluster: type[Cluster]) -> None:
    """Neither deletes one that the other uses."""
    with made(spec(remote_exec=True), source, [OBJECT], Noted()):
        (first,) = [body for request, body in cluster.asked if request == "PUT /v1/etl"]
        cluster.answers["GET /v1/etl"] = 200, [{"id": first["name"], "stage": "Running"}]
        cluster.answers[f"GET /v1/etl/{first['name']}"] = 200, {"init_msg": first}
        for options in ({"remote_exec": True}, {}):
            assert (chosen(source, spec(**options)) is None) == (not options)
        assert f"DELETE /v1/etl/{first['name']}" not in [request for request, _ in cluster.asked]
    assert cluster.asked[-1][0] == f"DELETE /v1/etl/{first['name']}"


def test_one_that_a_killed_run_left_is_deleted(source: Source, cluster: type[Cluster]) -> None:
    left = transformers_module.message(Settings.of(spec()), init_seconds=60, seconds=10, for_a_run=True)
    cluster.answers["GET /v1/etl"] = 200, [{"id": left["name"], "stage": "Running"}]
    cluster.answers[f"GET /v1/etl/{left['name']}"] = 200, {"init_msg": left}
    (variable,) = [each for each in left["runtime"]["env"] if each["name"] == transformers_module.FOR_A_RUN]
    ended = subprocess.Popen(["true"])
    ended.wait()
    host, _, number = variable["value"].rpartition(" ")
    assert number == str(os.getpid())
    for owner, is_deleted in ((f"{host} {ended.pid}", True), (f"other {ended.pid}", False), ("1", False)):
        variable["value"] = owner
        cluster.asked = []
        assert chosen(source, spec()) is None
        assert changes(cluster) == ([f"DELETE /v1/etl/{Settings.of(spec()).name}-RUN"] if is_deleted else [])


def test_sigterm_has_it_deleted(source: Source, cluster: type[Cluster]) -> None:
    with pytest.raises(SystemExit) as ended, made(spec(remote_exec=True), source, [OBJECT], Noted()):
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == 128 + signal.SIGTERM
    assert cluster.asked[-1][0].startswith("DELETE")
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_ctrl_c_while_it_is_deleted_says_how_to(
    source: Source, cluster: type[Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Transformers, "delete_if_there", interrupted)
    with pytest.raises(KeyboardInterrupt), made(spec(remote_exec=True), source, [OBJECT], events := Noted()):
        pass
    assert re.search(r"interrupted; delete the transformer with: tar2tf etl delete tar2tf-\w+-\w{8}$", events.notes[-1])


def test_a_pod_that_was_killed_is_not_said_to_be_wrong(source: Source, cluster: type[Cluster]) -> None:
    for reason, code, hint in (("Error", 137, "run the same command again"), ("OOMKilled", 137, "needs more memory")):
        state = f'pod_status="container: n, state: Terminated, reason: {reason}, message: , exitCode: {code}"]'
        cluster.answers["PUT /v1/etl"] = 400, f"[t[a],pod=n,{state} context canceled"
        with pytest.raises(RemoteError, match=rf"was killed \({code}\)") as caught:
            chosen(source, spec(remote_exec=True))
        assert hint in (caught.value.hint or "")


def test_in_memory_a_transformer_of_these_ops_is_used_whatever_records_it_makes(
    source: Source, cluster: type[Cluster]
) -> None:
    for number, options in enumerate(({}, {"select": ["cls"], "types": ["cls=int64"]}, {"split": "a=0.5,b=0.5"})):
        made_for = Conversion("ais://c", "out/<split>-<>.record" if "split" in options else "out/<>.record",
            ops=["decode:jpg"], **options)  # type: ignore[arg-type]  # fmt: skip
        name = f"photos-{number}"
        made_of = transformers_module.message(Settings.of(made_for), name=name, init_seconds=60, seconds=10)
        cluster.answers = {
            "GET /v1/etl": (200, [{"id": name, "stage": "Running"}]),
            f"GET /v1/etl/{name}": (200, {"init_msg": made_of}),
        }
        assert applied(source, events := Noted(), remote_exec=True).settings == Settings.of(made_for)
        assert events.notes == [f"note: the cluster applies the ops, with its transformer {name}"]
        assert applied(source, etl=name).settings == Settings.of(made_for)
        assert applied(source, events := Noted()) is source
        assert "decoded, the samples are larger than in the cluster" in events.notes[0]
    assert {request.partition(" ")[0] for request, _ in cluster.asked} == {"GET"}
    with pytest.raises(RemoteError, match="made for another spec"):
        applied(source, etl="photos-2", limit=3)


@pytest.mark.parametrize("stage", ["Running", "Aborted"])
def test_without_a_flag_a_running_transformer_of_this_spec_is_used(
    source: Source, cluster: type[Cluster], stage: str
) -> None:
    settings, events = Settings.of(spec()), Noted()
    made_of = transformers_module.message(settings, init_seconds=60, seconds=10)
    cluster.answers["GET /v1/etl"] = 200, [{"id": settings.name, "stage": stage}]
    cluster.answers[f"GET /v1/etl/{settings.name}"] = 200, {"init_msg": made_of}
    assert (chosen(source, spec(), events) is not None) == (stage == "Running")
    (note,) = events.notes
    assert (settings.name in note) == (stage == "Running")
    assert ("the records are made locally: the cluster has no running transformer for this spec" in note) == (
        stage == "Aborted"
    )
    assert {request.partition(" ")[0] for request, _ in cluster.asked} == {"GET"}


def test_one_of_others_that_ended_is_left_alone(source: Source, cluster: type[Cluster]) -> None:
    name = Settings.of(spec()).name
    cluster.answers["GET /v1/etl"] = 200, [{"id": name, "stage": "Aborted"}]
    assert chosen(source, spec(remote_exec=True)) is not None
    assert changes(cluster) == ["PUT /v1/etl", f"DELETE /v1/etl/{name}-RUN"]
    (made_of,) = [body for request, body in cluster.asked if request == "PUT /v1/etl"]
    assert made_of["obj_timeout"] == "125s"
    assert transformers_module.settings_of(made_of) == Settings.of(spec()).text


@pytest.mark.parametrize("error", [KeyboardInterrupt, SourceError])
def test_it_is_deleted_after_errors_too(source: Source, cluster: type[Cluster], error: Any) -> None:
    with pytest.raises(error), made(spec(remote_exec=True), source, [OBJECT], Noted()):
        raise error("stop")
    assert cluster.asked[-1][0].startswith("DELETE")


def test_one_that_another_process_makes_at_the_same_time_is_used(
    server: str, cluster: type[Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    made_of = transformers_module.message(Settings.of(spec()), init_seconds=60, seconds=10)
    stages = iter([{}, {made_of["name"]: "Initializing"}, {made_of["name"]: "Running"}])
    monkeypatch.setattr(Transformers, "stages", lambda self: next(stages))
    monkeypatch.setattr(retries, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(transformers_module, "LOOK_SECONDS", 0.01)
    cluster.answers["PUT /v1/etl"] = 409, "etl job already exists"
    transformers = of_cluster(server)
    transformers.store.retry_for = 5
    transformers.make_anew(made_of)
    assert [request for request, _ in cluster.asked] == ["PUT /v1/etl"]


def test_ctrl_c_while_one_is_made_has_it_deleted(
    server: str, cluster: type[Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Transformers, "make", interrupted)
    transformers = of_cluster(server)
    with pytest.raises(KeyboardInterrupt):
        transformers.make_anew(transformers_module.message(Settings.of(spec()), init_seconds=60, seconds=10))
    assert cluster.asked[-1][0] == f"DELETE /v1/etl/{Settings.of(spec()).name}"


def test_a_pod_that_ends_shows_its_last_lines(source: Source, cluster: type[Cluster]) -> None:
    state = 'pod_status="container: n, state: Terminated, reason: Error, message: no\\nspace left\\n, exitCode: 3"]'
    cluster.answers["PUT /v1/etl"] = 400, f"[t[a],pod=n,{state} context canceled"
    with pytest.raises(RemoteError, match="ended with 3: no; space left"):
        chosen(source, spec(remote_exec=True))
    cluster.answers["PUT /v1/etl"] = 400, 'pod_status="container: n, state: Waiting, reason: ImagePullBackOff"'
    with pytest.raises(RemoteError, match=r"not ready in time; its state is Waiting \(ImagePullBackOff\)"):
        chosen(source, spec(remote_exec=True))


def test_a_transformer_of_a_name_has_to_be_of_this_spec(source: Source, cluster: type[Cluster]) -> None:
    made_of = transformers_module.message(Settings.of(spec()), name="photos", init_seconds=60, seconds=10)
    cluster.answers["GET /v1/etl/photos"] = 200, {"init_msg": made_of}
    assert chosen(source, spec(etl="photos")) is not None
    with pytest.raises(RemoteError, match="'photos' was made for another spec or version"):
        chosen(source, spec(etl="photos", limit=3))
    cluster.answers["GET /v1/etl/photos"] = 404, "photos does not exist"
    cluster.answers["GET /v1/etl"] = 200, [{"id": "photos-2", "stage": "Running"}]
    with pytest.raises(RemoteError, match="there is no transformer 'photos'; did you mean 'photos-2'"):
        chosen(source, spec(etl="photos"))
    cluster.answers["GET /v1/etl"] = 200, [{"id": "photos", "stage": "Aborted"}]
    with pytest.raises(RemoteError, match="the transformer 'photos' is Aborted"):
        chosen(source, spec(etl="photos"))


@pytest.mark.parametrize("wanted", [{}, {"remote_exec": True}])
def test_a_transformer_of_this_spec_is_found_whatever_its_name(
    source: Source, cluster: type[Cluster], wanted: dict[str, bool]
) -> None:
    mine = transformers_module.message(Settings.of(spec()), name="photos", comm="hpull", init_seconds=60, seconds=10)
    others = transformers_module.message(Settings.of(spec(limit=3)), name="others", init_seconds=60, seconds=10)
    stages = {"ended": "Aborted", "gone": "Running", "others": "Running", "photos": "Running"}
    cluster.answers = {
        "GET /v1/etl": (200, [{"id": name, "stage": stage} for name, stage in stages.items()]),
        "GET /v1/etl/gone": (404, "gone does not exist"),
        "GET /v1/etl/others": (200, {"init_msg": others}),
        "GET /v1/etl/photos": (200, {"init_msg": mine}),
    }
    assert chosen(source, spec(**wanted), events := Noted()) is not None
    assert events.notes == ["note: the cluster makes the records, with its transformer photos"]
    assert {request.partition(" ")[0] for request, _ in cluster.asked} == {"GET"}


def test_one_that_only_targets_know_is_deleted_by_making_it_known(
    server: str, cluster: type[Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.answers = {
        "GET /v1/etl": (200, [{"id": "photos", "stage": "Unknown"}]),
        "DELETE /v1/etl/photos": (404, "etl job photos does not exist"),
        "PUT /v1/etl": (400, "already exists"),
    }
    make = Transformers.make

    def make_known(*given: Any) -> None:
        cluster.answers.pop("DELETE /v1/etl/photos")
        make(*given)

    monkeypatch.setattr(Transformers, "make", make_known)
    of_cluster(server).delete("photos")
    changes = [request for request, _ in cluster.asked if not request.startswith("GET")]
    assert changes == ["DELETE /v1/etl/photos", "PUT /v1/etl", "DELETE /v1/etl/photos"]


def test_one_whose_deletion_ctrl_c_interrupts_is_deleted_nevertheless(
    server: str, cluster: type[Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    transformers = of_cluster(server)
    control, times = transformers.store.control, iter([KeyboardInterrupt])

    def interrupted(*given: Any, **how: Any) -> Any:
        for error in times:
            raise error
        return control(*given, **how)

    monkeypatch.setattr(transformers.store, "control", interrupted)
    with pytest.raises(KeyboardInterrupt):
        transformers.delete("photos")
    assert [request for request, _ in cluster.asked] == ["DELETE /v1/etl/photos"]


def test_a_proxy_that_does_not_answer_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spec.yaml").write_text("input: {bucket: 'ais://b'}\n")
    monkeypatch.setattr(transformers_module, "open_source", pytest.fail)
    monkeypatch.setattr(retries, "FIRST_PAUSE", 0.01)
    with pytest.raises(SourceError, match="retry_for SECONDS waits longer"):
        transformers_module.init_for_spec(str(tmp_path / "spec.yaml"), "http://127.0.0.1:9", retry_for=0.1)
    done = tar2tf("etl", "list", "--endpoint", "http://127.0.0.1:9", "--retry-for", "0.1")
    assert (done.returncode, "--retry-for SECONDS waits longer" in done.stderr) == (3, True)


@pytest.mark.parametrize("name", ["a#b.tar", "a?b.tar", "100%.tar"])
def test_names_that_do_not_reach_a_transformer_with_hpush(source: Source, cluster: type[Cluster], name: str) -> None:
    settings, odd = Settings.of(spec()), [OBJECT, OBJECT._replace(name=name)]
    cluster.answers["GET /v1/etl"] = 200, [{"id": settings.name, "stage": "Running"}]
    made_of = transformers_module.message(settings, init_seconds=60, seconds=10)
    cluster.answers[f"GET /v1/etl/{settings.name}"] = 200, {"init_msg": made_of}
    with made(spec(), source, odd, events := Noted()) as found:
        assert found is None
    assert f"the cluster's transformer cannot get the object {name!r}" in events.notes[0]
    with (
        pytest.raises(RemoteError, match="with hpush"),
        made(spec(etl=settings.name), source, odd, Noted()),
    ):
        pass
    cluster.answers["GET /v1/etl"] = 200, []
    with made(spec(remote_exec=True), source, odd, Noted()) as found:
        assert found is not None
    (made_of,) = [body for request, body in cluster.asked if request == "PUT /v1/etl"]
    assert made_of["communication"] == "hpull://"


def test_only_a_cluster_makes_records(tmp_path: Path) -> None:
    with pytest.raises(RemoteError, match="needs inputs in an AIStore cluster"):
        chosen(open_source(str(tmp_path)), spec(remote_exec=True))
    done = tar2tf("convert", PHOTOS, "-o", tmp_path / "x.record", "--remote-exec", "--dry-run")
    assert (done.returncode, "needs inputs in an AIStore cluster" in done.stderr) == (2, True)
    with pytest.raises(UsageError, match="leave out one of them"):
        spec(etl="photos", remote_exec=False)


@pytest.mark.parametrize("name", ["a", "Tar2tf-x", "tar2tf_x", "-abcdef", "a" * 33])
def test_a_name_that_a_cluster_refuses_is_refused_before(name: str) -> None:
    with pytest.raises(RemoteError, match="cannot be the name"):
        transformers_module.message(Settings.of(spec()), name=name, init_seconds=60, seconds=1)


def test_kubernetes_does_not_replace_what_looks_like_a_variable() -> None:
    settings = Settings.of(spec(ops=["rename:$(HOME)=jpg"]))
    made_of = transformers_module.message(settings, init_seconds=60, seconds=1)
    assert "$(" not in json.dumps(made_of["runtime"])
    assert transformers_module.settings_of(made_of) == settings.text
    assert Settings.load(transformers_module.variables_of(made_of)["TAR2TF_ETL_SETTINGS"]) == settings


def test_durations_are_written_as_go_reads_them() -> None:
    two_terabytes = OBJECT._replace(size=2 << 40)
    made_of = transformers_module.message(
        Settings.of(spec()), init_seconds=0.5, seconds=transformers_module.object_seconds([two_terabytes])
    )
    assert (made_of["init_timeout"], made_of["obj_timeout"]) == ("0.5s", "1099631s")


@pytest.mark.parametrize(("text", "seconds"), [("45s", 45), ("1m30s", 90), ("2h0m0.5s", 7200.5), ("500ms", 0.5)])
def test_durations_are_read_as_go_writes_them(text: str, seconds: float) -> None:
    assert transformers_module.seconds_of(text) == seconds


OF_A_RUN = {
    "name": "mine",
    "init_timeout": "1s",
    "runtime": {"env": [{"name": "TAR2TF_ETL_FOR_A_RUN", "value": "somewhere 1"}]},
}
OF_A_USER = {"name": "mine", "runtime": {"env": []}}
AT_INPUT = "GET /v1/objects/b/a.tar?provider=ais&etl_name=mine"
LOGS = "tar2tf etl logs mine shows the logs of its pods"
LONGER = "make it with a longer time for each object: tar2tf etl init --object-timeout SECONDS"


def answered(server: str) -> Transformers:
    return Transformers(open_store("ais://b", endpoint=server))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("status", "words", "kind", "message", "hint"),
    [
        (400, "context deadline exceeded", SourceError, "the transformer mine did not answer in time", LONGER),
        (400, "Client.Timeout exceeded", SourceError, "the transformer mine did not answer in time", LONGER),
        (404, "mine does not exist", Transient, "the transformer mine is not running", LOGS),
        (404, "ETL mine doesn't exist", Transient, "the transformer mine is not running", LOGS),
        (400, "connection refused", Transient, "connection refused", LOGS),
        (503, "busy", Transient, "the server answered 503: busy", LOGS),
        (400, "bad name", SourceError, "the server answered 400: bad name", None),
    ],
)
def test_a_refusal_of_a_transformer_is_told_with_the_next_step(
    status: int,
    words: str,
    kind: type[Exception],
    message: str,
    hint: str | None,
    server: str,
    cluster: type[Cluster],
) -> None:
    cluster.answers = {AT_INPUT: (status, words), "GET /v1/etl": (200, [{"id": "mine", "stage": "Running"}])}
    with pytest.raises((SourceError, Transient)) as caught:
        answered(server).fetch(OF_A_USER, OBJECT)  # type: ignore[arg-type]
    found: Any = caught.value
    assert isinstance(found, kind)
    assert (getattr(found, "message", str(found)), found.hint) == (message, hint)


@pytest.mark.parametrize(
    ("made_of", "stages", "asked"),
    [
        (OF_A_USER, [{"id": "mine", "stage": "Running"}], []),
        (OF_A_USER, [{"id": "mine", "stage": "Aborted"}], ["POST /v1/etl/mine/start"]),
        (OF_A_USER, [], []),
        (OF_A_RUN, [{"id": "other", "stage": "Running"}], ["PUT /v1/etl"]),
        (OF_A_RUN, [{"id": "mine", "stage": "Aborted"}], ["POST /v1/etl/mine/start"]),
        (OF_A_RUN, [{"id": "mine", "stage": "Initializing"}], []),
    ],
)
def test_a_transformer_whose_pod_has_ended_is_started_and_one_of_this_run_made_again(
    made_of: dict[str, Any], stages: list[dict[str, str]], asked: list[str], server: str, cluster: type[Cluster]
) -> None:
    cluster.answers = {AT_INPUT: (404, "mine does not exist"), "GET /v1/etl": (200, stages)}
    with pytest.raises(Transient, match=r"^the transformer mine is not running$"):
        answered(server).fetch(made_of, OBJECT)  # type: ignore[arg-type]
    assert [request for request, _ in cluster.asked] == [AT_INPUT, "GET /v1/etl", *asked]
    assert all(body == made_of for request, body in cluster.asked if request == "PUT /v1/etl")


def test_one_that_cannot_be_started_again_says_why(server: str, cluster: type[Cluster]) -> None:
    cluster.answers = {
        "GET /v1/etl": (200, [{"id": "mine", "stage": "Aborted"}]),
        "POST /v1/etl/mine/start": (403, "no permission"),
    }
    with pytest.raises(Transient) as caught:
        answered(server).revive(OF_A_USER)  # type: ignore[arg-type]
    why = "the cluster does not let you use transformers (403): no permission"
    assert str(caught.value) == f"the transformer mine is not running: {why}"


def test_a_transformer_that_is_not_known_cannot_be_deleted(server: str, cluster: type[Cluster]) -> None:
    cluster.answers = {
        "GET /v1/etl": (200, [{"id": "other", "stage": "Running"}]),
        "DELETE /v1/etl/mine": (404, "mine does not exist"),
    }
    with pytest.raises(RemoteError, match="mine"):
        answered(server).delete("mine")
    assert "PUT /v1/etl" not in [request for request, _ in cluster.asked]


def test_logs_are_those_of_each_target(server: str, cluster: type[Cluster]) -> None:
    logs = [{"target_id": "t1", "logs": "YcO8Cg=="}, {"target_id": "t2", "logs": "/w=="}]
    cluster.answers = {"GET /v1/etl/mine/logs": (200, logs)}
    assert answered(server).logs("mine") == {"t1": "aü\n", "t2": "\ufffd"}


def test_what_is_no_json_is_no_cluster() -> None:
    class Stranger(QuietHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "6")
            self.end_headers()
            self.wfile.write(b"<html>")

    with serving(Stranger) as url, pytest.raises(SourceError) as caught:
        answered(url).stages()
    message = "the endpoint is not an AIStore cluster: Expecting value: line 1 column 1 (char 0)"
    assert (caught.value.message, caught.value.shard) == (message, url)


@pytest.mark.parametrize(
    ("owner", "killed"), [("", False), ("elsewhere 1", False), ("HERE 1", False), ("HERE x", False), ("HERE 0", False)]
)
def test_a_transformer_of_a_run_elsewhere_or_still_running_is_not_abandoned(owner: str, killed: bool) -> None:
    here, _, number = transformers_module.this_process().rpartition(" ")
    assert number == str(os.getpid())
    made_of: Any = {"runtime": {"env": [{"name": "TAR2TF_ETL_FOR_A_RUN", "value": owner.replace("HERE", here)}]}}
    assert transformers_module.is_abandoned(made_of) is killed


def test_one_of_a_process_of_another_user_is_not_abandoned_and_one_of_none_is(monkeypatch: pytest.MonkeyPatch) -> None:
    made_of: Any = {"runtime": {"env": [{"name": "TAR2TF_ETL_FOR_A_RUN", "value": transformers_module.this_process()}]}}
    for error, abandoned in ((PermissionError(), False), (ProcessLookupError(), True), (None, False)):

        def kill(number: int, signal: int, error: OSError | None = error) -> None:
            assert (number, signal) == (os.getpid(), 0)
            if error:
                raise error

        monkeypatch.setattr(os, "kill", kill)
        assert transformers_module.is_abandoned(made_of) is abandoned


def test_a_system_that_does_not_say_which_process_this_is_gives_a_name_that_no_other_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def readlink(path: str) -> str:
        raise OSError

    monkeypatch.setattr(os, "readlink", readlink)
    first, second = transformers_module.this_process(), transformers_module.this_process()
    assert re.fullmatch(rf"unknown [0-9a-f]{{16}} {os.getpid()}", first)
    assert first != second
