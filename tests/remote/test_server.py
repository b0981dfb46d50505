"""The transformer as a server: every way in and out over real HTTP, without a cluster."""

from __future__ import annotations

import gzip
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
import requests

from commands import wait_until
from images import by_pillow, jpeg, photo
from servers import QuietHandler
from shards import PHOTOS, write_tar
from tar2tf_cli.errors import DamagedShardError, SampleError, SourceError, UsageError
from tar2tf_cli.remote.server import MOUNT_PATHS
from tar2tf_cli.remote.stream import NODES, AnswerRequest, Settings, StreamReader, StreamWriter, error_of, from_example
from tar2tf_cli.spec.conversion import Conversion
from verify_runs import a_tar, some_members

pytest.importorskip("fastapi", reason="no server for transformers: pip install 'tar2tf-cli[etl]'")

import uvicorn

from tar2tf_cli.remote import server as server_module

TAR = a_tar(some_members(20))
SCATTERED = a_tar(sorted(some_members(20), key=lambda member: member[0][5:]))


class Node(ThreadingHTTPServer):
    """A target that has objects, or the next transformer of a pipeline: it keeps what is put, and answers as told."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Requests)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.objects: dict[str, bytes] = {}
        self.puts: list[tuple[str, dict[str, str], bytes]] = []
        self.answers: list[tuple[int, bytes, dict[str, str]]] = []


class _Requests(QuietHandler):
    server: Node

    def do_GET(self) -> None:
        data = self.server.objects.get(self.path)
        self.answer(404 if data is None else 200, data or b"")

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.puts.append((self.path, dict(self.headers), data))
        self.answer(*(self.server.answers.pop(0) if self.server.answers else (200, b"", {})))

    def answer(self, status: int, data: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture(scope="module")
def target() -> Iterator[Node]:
    with Node() as node:
        threading.Thread(target=node.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield node
        node.shutdown()


@contextmanager
def served(settings: Settings) -> Iterator[str]:
    """The address of a transformer in this process."""
    config = uvicorn.Config(server_module.TransformerServer(settings).app, log_level="critical")
    server = uvicorn.Server(config)
    listening = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


@pytest.fixture(scope="module")
def mount_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mount path é")


@pytest.fixture(scope="module")
def environment(target: Node, mount_path: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIS_TARGET_URL", f"{target.url}/v1/etl/_object/name/secret")
        patch.setenv("AIS_DIRECT_PUT_RETRIES", "0")  # of connections, by the client itself
        patch.setenv(MOUNT_PATHS, f"/no/such/folder:{mount_path}")
        yield


def of(**options: Any) -> Settings:
    return Settings.of(Conversion("ais://b", options.pop("output", "x-<>.record"), **options))


PLAIN = of()


@pytest.fixture(scope="module")
def plain(environment: None) -> Iterator[str]:
    """A transformer that stores entries as they are."""
    with served(PLAIN) as url:
        yield url


def put(url: str, data: bytes | None = None, path: str = "/b/o.tar", **options: Any) -> requests.Response:
    return requests.put(url + path, data, timeout=20, **options)


def put_file(url: str, file: Path | str, **options: Any) -> requests.Response:
    return put(url, params={"etl_fqn": quote(str(file), safe=""), **options.pop("params", {})}, **options)


def stored(mount_path: Path, data: bytes, name: str = "o.tar") -> Path:
    """The file of an object, as a target keeps it."""
    path = mount_path / "@ais" / "b" / "%ob" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def received(answer: requests.Response, settings: Settings = PLAIN) -> tuple[bytes, StreamReader]:
    """The records of an answer, which is whole."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Length"] == str(len(answer.content))
    reader = StreamReader(BytesIO(answer.content), "ais://b/o.tar", settings.digest)
    return b"".join(part for _, parts, *_ in reader.records() for part in parts), reader


def test_health(plain: str) -> None:
    assert requests.get(f"{plain}/health", timeout=60).ok


@pytest.mark.parametrize("tar", [TAR, gzip.compress(TAR), SCATTERED], ids=["tar", "tar.gz", "not adjacent"])
def test_a_body_becomes_the_records_of_a_conversion(plain: str, tar: bytes, local: Callable[..., bytes]) -> None:
    records, reader = received(put(plain, tar))
    assert records == local(tar)
    assert reader.size == len(tar)
    assert reader.report.samples == 20
    assert reader.report.not_adjacent == (20 if tar is SCATTERED else 0)


def test_a_chunked_body_is_taken(plain: str, local: Callable[..., bytes]) -> None:
    pieces = iter([TAR[:1000], TAR[1000:]])
    records, _ = received(requests.put(f"{plain}/b/o.tar", data=pieces, timeout=60))
    assert records == local(TAR)


@pytest.mark.parametrize("name", ["o.tar", "deep/er o.tar", "größe.tar", "a?b.tar", "a#b.tar", "p%41&=+.tar"])
def test_a_file_of_the_target_becomes_the_same_records(
    plain: str, mount_path: Path, name: str, local: Callable[..., bytes]
) -> None:
    path = stored(mount_path, TAR, name)
    assert received(put_file(plain, path))[0] == local(TAR)
    answer = requests.get(f"{plain}/ais%2F@%23%2Fb%2Fo.tar", {"etl_fqn": quote(str(path), safe="")}, timeout=60)
    assert received(answer)[0] == local(TAR)


def test_a_get_without_a_file_fetches_from_the_target_by_the_path_as_it_came(
    plain: str, target: Node, local: Callable[..., bytes]
) -> None:
    path = "/ais%2F@%23%2Fb%2Fq%3Fx%20%2541.tar"
    target.objects[f"/v1/etl/_object/name/secret{path}"] = TAR
    assert received(requests.get(plain + path, timeout=60))[0] == local(TAR)
    answer = requests.get(f"{plain}/ais%2F@%23%2Fb%2Fother.tar", timeout=60)
    assert answer.status_code == 404
    assert "the target answered 404 when it was asked for the object" in answer.text


@pytest.mark.parametrize(
    ("namespace", "uname"),
    [("", "ais%2F@%23%2Fb%2Fparts%20%25.tar"), ("#ns/", "ais%2F@%23ns%2Fb%2Fparts%20%25.tar")],
)
def test_an_object_in_several_files_is_fetched_as_a_whole(
    plain: str, target: Node, mount_path: Path, namespace: str, uname: str, local: Callable[..., bytes]
) -> None:
    first = mount_path / f"@ais/{namespace}b/%ob/parts %.tar"
    for path in (first, mount_path / f"@ais/{namespace}b/%ut/parts %.tar"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(TAR[:1024])
    target.objects[f"/v1/etl/_object/name/secret/{uname}"] = TAR
    records, reader = received(put_file(plain, first))
    assert records == local(TAR)
    assert reader.size == len(TAR)


OPTIONS: list[dict[str, Any]] = [
    {"ops": ["decode:jpg", "resize:jpg,32x32", "cast:jpg,uint8", "encode:jpg"], "types": ["cls=int64"]},
    {"ops": ["orient:jpg", "resize:jpg,short=40,area", "pad:jpg,50x50,7,nearest", "crop:jpg,30x30,random"]},
    {"preset": "webdataset"},
    {"preset": "image-label"},
    {"select": "image=jpg", "limit": 3},
]
GEOMETRY: list[dict[str, Any]] = [
    {"boxes": "json:objects.*.bbox,format=xyxy,min_visible=0.3"},
    {"boxes": "json:objects.*.bbox,format=xyxy", "points": "json:points.*", "mask": "seg.png,fill=255"},
    {"boxes": "json:objects.*.bbox,format=xyxy", "invalid_boxes": "drop"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.usefixtures("environment")
def test_ops_and_presets_give_the_records_of_a_conversion(options: dict[str, Any], local: Callable[..., bytes]) -> None:
    tar = (PHOTOS / "photos-0.tar").read_bytes()
    settings = of(**options)
    with served(settings) as url:
        records, reader = received(put(url, tar), settings)
    assert records == local(tar, **options)
    assert reader.report.schema.describe() != {}


@pytest.mark.parametrize("declared", GEOMETRY, ids=str)
def test_what_is_declared_on_an_image_follows_it_in_a_cluster_as_in_a_conversion(
    declared: dict[str, Any], local: Callable[..., bytes], tmp_path: Path
) -> None:
    about = {"objects": [{"bbox": [4, 6, 20, 30]}, {"bbox": [40, 1, 59, 39]}], "points": [[5, 7], [50, 30]]}
    mask = np.random.default_rng(1).integers(0, 9, (40, 60), np.uint8)
    entries = {"jpg": jpeg(photo(40, 60)), "seg.png": by_pillow(mask, "PNG", "L"), "json": json.dumps(about).encode()}
    path = write_tar(tmp_path / "a.tar", [(f"k{number}", entries) for number in range(4)])
    ops = ["decode:jpg", "crop:jpg,30x30,random", "flip:jpg,p=0.5", "resize:jpg,20x40", "cast:jpg,uint8", "encode:jpg"]

    settings = Settings.load(of(ops=ops, **declared).text)
    assert settings.name != of(ops=ops).name
    answer = tmp_path / "answer"
    server_module.AnswerWriter(settings)(str(path), "ais://b/a.tar", AnswerRequest(), str(answer), lambda: None)
    reader = StreamReader(BytesIO(answer.read_bytes()), "ais://b/a.tar", settings.digest)
    records = b"".join(part for _, parts, *_ in reader.records() for part in parts)
    assert records == local(path.read_bytes(), ops=ops, **declared)
    assert records != local(path.read_bytes(), ops=ops)


@pytest.mark.usefixtures("environment")
def test_keys_are_sent_for_a_split() -> None:
    settings = of(split="a=0.5,b=0.5", output="<split>.record")
    with served(settings) as url:
        reader = StreamReader(BytesIO(put(url, TAR).content), "x", settings.digest)
    assert [key for key, *_ in reader.records()] == [f"{number:04d}" for number in range(20)]


@pytest.mark.usefixtures("environment")
def test_faulty_samples_are_in_the_report() -> None:
    settings = of(ops=["decode:jpg"], on_error="skip")
    with served(settings) as url:
        _, reader = received(put(url, TAR), settings)
    assert reader.report.samples == 0
    assert len(reader.report.errors) == 20
    assert {error["shard"] for error in reader.report.errors} == {"ais://b/o.tar"}


@pytest.mark.usefixtures("environment")
def test_a_type_that_no_sample_of_the_first_input_has_is_wrong_usage() -> None:
    with served(of(types=["label=int64"])) as url:
        answer = put(url, TAR, params={"etl_args": AnswerRequest(first=True).text})
        assert answer.status_code == 400
        assert isinstance(error_of(answer.text, "x"), UsageError)
        answer = put(url, TAR, params={"etl_args": '{"other": "transformers"}'})
        assert answer.status_code == 422
        assert isinstance(error_of(answer.text, "x"), SampleError)


def test_a_request_without_object_is_refused(plain: str) -> None:
    answer = put(plain, b"")
    assert answer.status_code == 400
    assert answer.text.startswith("the request has neither etl_fqn nor a body; a cluster drops what follows ? or #")


@pytest.mark.parametrize("data", [b"", TAR[:7000], b"no tar " * 200], ids=["empty", "cut", "no tar"])
def test_an_object_that_is_no_whole_tar_is_an_error_and_nothing_else(
    plain: str, mount_path: Path, data: bytes, target: Node
) -> None:
    path = stored(mount_path, data, "damaged.tar")
    sent = len(target.puts)
    for headers in ({}, {"Ais-Node-Url": f"{target.url}/ais%2F@%23%2Fdst%2Fo"}):
        answer = put_file(plain, path, headers=headers)
        assert answer.status_code == 422
        error = error_of(answer.text, "ais://b/damaged.tar")
        assert isinstance(error, DamagedShardError)
        assert error.shard == "ais://b/damaged.tar"
        assert answer.text.startswith("b/o.tar")
    assert len(target.puts) == sent


OUTSIDE = (
    *("somewhere", "relative", "dots", "beside", "dots inside"),
    *("link", "link to beside", "begins alike", "the folder", "no name", "a NUL"),
)


def outside(mount_path: Path) -> dict[str, str]:
    folder = stored(mount_path, TAR).parent
    (mount_path / "beside.tar").write_bytes(TAR)
    for name, there in (("link", "/etc/hostname"), ("up", "../../../beside.tar"), ("inside", "o.tar")):
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(there)
    return {
        "somewhere": "/etc/hostname",
        "relative": "etc/hostname",
        "dots": f"{folder}/../../../../../../../../../../etc/hostname",
        "beside": f"{mount_path}/beside.tar",
        "dots inside": f"{folder}/../../../beside.tar",
        "link": f"{folder}/link",
        "link to beside": f"{folder}/up",
        "begins alike": f"{mount_path}2/@ais/b/%ob/o.tar",
        "the folder": f"{mount_path}",
        "no name": "/",
        "a NUL": "/etc/host\0name",
    }


@pytest.mark.parametrize("kind", OUTSIDE)
def test_files_outside_of_the_mount_paths_are_refused(plain: str, mount_path: Path, kind: str) -> None:
    answer = put_file(plain, outside(mount_path)[kind])
    assert answer.status_code == 403
    assert "is not an object in a mount path of the target" in answer.text


def test_a_link_that_stays_inside_is_followed_and_a_folder_is_no_object(plain: str, mount_path: Path) -> None:
    outside(mount_path)
    folder = stored(mount_path, TAR).parent
    assert put_file(plain, folder / "inside").status_code == 200
    for path in (folder / "missing.tar", folder):
        assert put_file(plain, path).status_code == 404


def test_without_settings_the_mark_of_a_target_tells_mount_paths(
    plain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(MOUNT_PATHS)
    path = stored(tmp_path, TAR)
    assert put_file(plain, path).status_code == 403
    try:
        os.setxattr(tmp_path, "user.ais.daemon_id", b"t1")
    except (OSError, AttributeError) as error:
        pytest.skip(f"no extended attributes here: {error}")
    assert put_file(plain, path).status_code == 200
    assert put_file(plain, tmp_path / "local.tar").status_code == 403


def test_an_answer_goes_to_the_target_that_stores_it(plain: str, target: Node, local: Callable[..., bytes]) -> None:
    where = f"{target.url}/ais%2F@%23%2Fdst%2Fo.tar?owt=3&uuid=job"
    answer = put(plain, TAR, headers={"Ais-Node-Url": where})
    path, headers, data = target.puts[-1]
    assert path == "/v1/etl/_object/name/secret/ais%2F@%23%2Fdst%2Fo.tar?owt=3&uuid=job"
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers["Ais-Direct-Put-Length"] == str(len(data)) == headers["Content-Length"]
    assert "Ais-Node-Url" not in headers
    reader = StreamReader(BytesIO(data), "x", PLAIN.digest)
    assert b"".join(part for _, parts, *_ in reader.records() for part in parts) == local(TAR)


def test_an_answer_goes_to_the_next_transformer_and_comes_back(plain: str, target: Node) -> None:
    target.answers.append((200, b"of the next one", {}))
    nodes = f"{target.url},http://third:1"
    answer = put(plain, TAR, path="/b/a%20b.tar", headers={"Ais-Node-Url": nodes}, params={"etl_args": "x=1"})
    path, headers, _ = target.puts[-1]
    assert path == "/b/a%20b.tar?etl_args=x%3D1"
    assert headers["Ais-Node-Url"] == "http://third:1"
    assert (answer.status_code, answer.content) == (200, b"of the next one")


def test_what_the_next_node_delivered_is_passed_on(plain: str, target: Node) -> None:
    target.answers.append((204, b"", {"Ais-Direct-Put-Length": "77"}))
    answer = put(plain, TAR, headers={"Ais-Node-Url": target.url})
    assert (answer.status_code, answer.headers["Ais-Direct-Put-Length"]) == (204, "77")


def test_the_error_of_the_next_node_is_passed_on(plain: str, target: Node) -> None:
    target.answers.append((507, b"no space left", {}))
    answer = put(plain, TAR, headers={"Ais-Node-Url": target.url})
    assert (answer.status_code, answer.text) == (507, "no space left")


def test_a_node_that_does_not_answer_is_asked_again_and_then_named(
    plain: str, target: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "PAUSES", (0.01, 0.01))
    monkeypatch.setenv(NODES, "http://127.0.0.1:9")
    answer = put(plain, TAR, headers={"Ais-Node-Url": "http://127.0.0.1:9/ais"})
    assert answer.status_code == 500
    assert "http://127.0.0.1:9/ais: the next node does not answer" in answer.text


@pytest.mark.parametrize(
    "where",
    [
        "http://192.0.2.1:80",
        "http://192.0.2.1/ais",
        "http://127.0.0.1:9/ais",
        "http://user@{target}/ais",
        "http://{target}@192.0.2.1/ais",
        "ftp://{target}/ais",
        "//{target}/ais",
        "http://[/ais",
        "x",
    ],
)
def test_nothing_is_sent_to_other_servers_than_the_nodes_of_the_cluster(plain: str, target: Node, where: str) -> None:
    before = len(target.puts)
    nodes = where.format(target=target.url.removeprefix("http://"))
    answer = put(plain, TAR, headers={"Ais-Node-Url": nodes})
    assert (answer.status_code, "is not the address of a node of the cluster" in answer.text) == (403, True)
    assert len(target.puts) == before


def test_a_node_that_joined_later_is_known_by_the_map_of_one_that_was_there(
    plain: str, target: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Node() as joined:
        threading.Thread(target=joined.serve_forever, daemon=True).start()
        where = f"{joined.url}/ais%2F@%23%2Fdst%2Fo.tar"
        assert put(plain, TAR, headers={"Ais-Node-Url": where}).status_code == 403
        nets = {name: {"direct_url": joined.url} for name in ("public_net", "intra_control_net", "intra_data_net")}
        smap = {"pmap": {}, "tmap": {"t[new]": nets}}
        monkeypatch.setitem(target.objects, "/v1/daemon?what=smap", json.dumps(smap).encode())
        monkeypatch.setenv(NODES, f"http://127.0.0.1:9,{target.url}")
        assert put(plain, TAR, headers={"Ais-Node-Url": where}).status_code == 204
        joined.shutdown()
    assert [path for path, _, _ in joined.puts] == ["/v1/etl/_object/name/secret/ais%2F@%23%2Fdst%2Fo.tar"]


@pytest.mark.parametrize("path", ["/../../../v1/daemon", "/b/%2e%2e/x", "/b/%252e%252e/x", "/b/..%2Fx", "/b/./x"])
def test_a_path_that_leads_out_of_where_objects_are_is_refused(plain: str, target: Node, path: str) -> None:
    with socket.create_connection(("127.0.0.1", int(plain.rpartition(":")[2]))) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        with connection.makefile("rb") as lines:
            answer = lines.read().decode()
    assert answer.startswith("HTTP/1.1 403 ")
    assert "is not the path of an object" in answer


def test_nothing_stays_in_the_folder_for_temporary_files(
    plain: str, target: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for data in (TAR, b"no tar", SCATTERED):
        put(plain, data)
        put(plain, data, headers={"Ais-Node-Url": target.url})
    assert list(tmp_path.iterdir()) == []


def test_work_ends_when_the_client_has_gone(plain: str, mount_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    seen = threading.Event()
    stopped = threading.Event()

    def slow(self: Any, path: str, name: str, asked: AnswerRequest, answer: str, check: Callable[[], None]) -> None:
        seen.set()
        try:
            while not stopped.wait(0.01):
                check()
        finally:
            ended.set()

    monkeypatch.setattr(server_module, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(server_module.AnswerWriter, "__call__", slow)
    with socket.create_connection(("127.0.0.1", int(plain.rpartition(":")[2]))) as connection:
        fqn = quote(quote(str(stored(mount_path, TAR)), safe=""), safe="")
        connection.sendall(f"PUT /b/o.tar?etl_fqn={fqn} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode())
        assert seen.wait(60)
    try:
        assert ended.wait(60)
    finally:
        stopped.set()


def test_whether_the_client_has_gone_is_asked_before_each_record(tmp_path: Path) -> None:
    """As a tar of one read may take hours to convert."""
    (tmp_path / "o.tar").write_bytes(TAR)
    asked: list[int] = []

    def check() -> None:
        asked.append(len(asked))
        if len(asked) == 12:
            raise SourceError("the client has gone")

    settings = of(split="a=0.5,b=0.5", output="<split>.record")
    with pytest.raises(SourceError, match=r"^the client has gone$"):
        server_module.AnswerWriter(settings)(
            str(tmp_path / "o.tar"), "o.tar", AnswerRequest(), str(tmp_path / "answer"), check
        )
    assert len(asked) == 12


# --- Samples, which are sent while they are made ---


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[threading.Event]:
    """Have answers end only after this is set, and files be made in an empty folder."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    let, finish = threading.Event(), StreamWriter.finish

    def later(writer: StreamWriter, *given: Any) -> dict[str, Any]:
        while not let.wait(0.01):
            checks[-1]()
        return finish(writer, *given)

    checks: list[Callable[[], None]] = []
    make = server_module.AnswerWriter.__call__

    def noted(self: Any, path: str, name: str, asked: AnswerRequest, answer: str, check: Callable[[], None]) -> None:
        checks.append(check)
        make(self, path, name, asked, answer, check)

    monkeypatch.setattr(server_module.AnswerWriter, "__call__", noted)
    monkeypatch.setattr(server_module.StreamWriter, "finish", later)
    yield let
    let.set()


SAMPLES = {"etl_args": AnswerRequest(entries=["cls"]).text}


def test_samples_arrive_before_the_last_one_is_made(plain: str, held: threading.Event, tmp_path: Path) -> None:
    with put(plain, TAR, params=SAMPLES, stream=True) as answer:
        assert answer.status_code == 200
        first = answer.raw.read(20)
        assert not held.is_set()
        held.set()
        stream = BytesIO(first + answer.raw.read())
    keys = [from_example(message)["__key__"] for message in StreamReader(stream, "x", PLAIN.digest).messages()]
    assert keys == [f"{number:04d}" for number in range(20)]
    wait_until(lambda: list(tmp_path.iterdir()) == [], "the files to be removed")


def test_the_making_of_samples_ends_when_the_client_has_gone(plain: str, held: threading.Event, tmp_path: Path) -> None:
    with put(plain, TAR, params=SAMPLES, stream=True) as answer:
        assert answer.raw.read(20)
        assert list(tmp_path.iterdir())
    wait_until(lambda: list(tmp_path.iterdir()) == [], "the files to be removed")
    assert not held.is_set()


@pytest.mark.usefixtures("environment")
def test_a_fault_after_samples_were_sent_ends_them_and_one_before_is_a_status(local: Callable[..., bytes]) -> None:
    image = jpeg(photo(40, 60))
    members = [(f"{number:03d}.jpg", image) for number in range(200)]
    settings = of(ops=["decode:jpg"])
    asked = {"etl_args": AnswerRequest(entries=[]).text}
    with pytest.raises(SampleError) as here:
        local(a_tar([*members, ("999.jpg", b"no image")]), ops=["decode:jpg"])
    with served(settings) as url:
        answer = put(url, a_tar([*members, ("999.jpg", b"no image")]), params=asked)
        assert answer.status_code == 200
        messages = StreamReader(BytesIO(answer.content), "ais://b/o.tar", settings.digest).messages()
        assert [from_example(next(messages))["__key__"] for _ in range(200)] == [f"{n:03d}" for n in range(200)]
        with pytest.raises(SampleError) as there:
            next(messages)
        assert (there.value.key, there.value.message) == (here.value.key, here.value.message)
        assert put(url, a_tar([("000.jpg", b"no image"), *members[1:]]), params=asked).status_code == 422


def test_samples_whose_members_are_not_adjacent_are_regrouped_before_the_first_is_sent(plain: str) -> None:
    answer = put(plain, SCATTERED, params={"etl_args": AnswerRequest(entries=[]).text})
    samples = [from_example(message) for message in StreamReader(BytesIO(answer.content), "x", PLAIN.digest).messages()]
    ordered = put(plain, TAR, params={"etl_args": AnswerRequest(entries=[]).text})
    expected = [
        from_example(message) for message in StreamReader(BytesIO(ordered.content), "x", PLAIN.digest).messages()
    ]
    assert {sample["__key__"]: sample for sample in samples} == {sample["__key__"]: sample for sample in expected}
