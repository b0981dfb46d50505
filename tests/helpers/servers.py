"""Servers for the tests: AIStore, moto's S3, fake-gcs-server, a faulty HTTP server; on loopback, ended by their pid."""

from __future__ import annotations

import base64
import ctypes
import fcntl
import hashlib
import hmac
import json
import os
import random
import re
import select
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import requests

from ais_etl_cluster import small_cluster

START_SECONDS = 200


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on now, and that nobody else in the processes of these tests was given.

    The kernel gives none of them to a connection or another server, as they lie below those that it chooses from.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    ports: list[int] = []
    while len(ports) < count:
        port = _PORTS[(worker * 1000 + random.randrange(1000)) % len(_PORTS)]
        with suppress(OSError), socket.socket() as one:
            one.bind(("127.0.0.1", port))
            if port not in _given:
                _given.add(port)
                ports.append(port)
    return ports


def _ports() -> range:
    """Ports for servers of any user, where the kernel does not choose from them."""
    with suppress(OSError, ValueError):
        lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
        return range(10_000, lowest) if lowest > 20_000 else range(10_000, 32_768)
    return range(10_000, 32_768)


_PORTS = _ports()
_given: set[int] = set()


@contextmanager
def nobody_listens() -> Iterator[int]:
    """A port that refuses connections, as it is taken, and nobody listens on it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def wait_for(ready: Any, *processes: subprocess.Popen[bytes] | None, seconds: float = START_SECONDS) -> None:
    """Ask until `ready()` is true.

    Raises:
        RuntimeError: when it is not within the time, or one of the processes ends.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for process in filter(None, processes):
            if process.poll() is not None:
                raise RuntimeError(f"{process.args!r} ended with {process.returncode}")
        try:
            if ready():
                return
        except (requests.RequestException, KeyError, ValueError):
            pass
        time.sleep(0.1)
    raise RuntimeError("the server did not start in time")


def end(process: subprocess.Popen[bytes], seconds: float = 7) -> None:
    """Ask a process to end, and make it end."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


CLONE_NEWNET = 0x40000000


@contextmanager
def private_network() -> Iterator[None]:
    """Nothing but a loopback of its own for this thread and all it starts: an `aisnode` listens on every interface.

    Raises:
        PermissionError: for users who may not have such a network; `unshare -rn` around pytest gives them one.
    """
    if all(name == "lo" for _, name in socket.if_nameindex()):
        _loopback_up()
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.unshare(CLONE_NEWNET):
            raise PermissionError(ctypes.get_errno(), "no private network: run pytest in `unshare -rn`")
        _loopback_up()
        yield
    finally:
        libc.setns(before, CLONE_NEWNET)
        os.close(before)


def _loopback_up() -> None:
    siocsifflags, up = 0x8914, 1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, siocsifflags, struct.pack("16sH14x", b"lo", up))


def go_command(name: str) -> str | None:
    """A command on PATH or in Go's bin folder."""
    folders = [os.environ.get("GOBIN"), os.path.join(os.environ.get("GOPATH", os.path.expanduser("~/go")), "bin")]
    path = os.pathsep.join([os.environ.get("PATH", ""), *filter(None, folders)])
    return shutil.which(name, path=path)


AIS_MISSING = (
    "no AIStore: put `aisnode` (Go command github.com/NVIDIA/aistore/cmd/aisnode, v1.5.0) on PATH or in Go's bin "
    "folder, or set AIS_ENDPOINT"
)


AWS_MISSING = "the AIStore has no S3 behind it: put an `aisnode` on PATH that was built with `-tags aws`"


def knows_aws() -> bool:
    """Whether the `aisnode` that clusters of our own are made of was built with `-tags aws`."""
    return not os.environ.get("AIS_ENDPOINT") and built_with("aws")


def built_with(tag: str) -> bool:
    """Whether there is an `aisnode`, and it was built with a tag."""
    binary = go_command("aisnode")
    return bool(binary and re.search(rb"-tags=(\w+,)*%s\b" % tag.encode(), Path(binary).read_bytes()))


@contextmanager
def network_of(pid: int) -> Iterator[None]:
    """The network of another process for this thread and all it starts.

    Raises:
        PermissionError: for users who may not enter it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net") as before, open(f"/proc/{pid}/ns/net") as there:
        if libc.setns(there.fileno(), CLONE_NEWNET):
            raise PermissionError(ctypes.get_errno(), "no way into the cluster's network: run pytest in `unshare -rn`")
        try:
            yield
        finally:
            libc.setns(before.fileno(), CLONE_NEWNET)


def self_signed(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that nobody vouches for, and its key.

    Raises:
        FileNotFoundError: when there is no openssl to make them.
    """
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    make += ["-keyout", str(key), "-out", str(certificate), "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*make, "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    return certificate, key


@dataclass(frozen=True)
class Guard:
    """What makes a cluster ask for tokens, and speak HTTPS.

    Attributes:
        signing_key: what tokens are signed with.
        certificate: the nodes' certificate, signed by itself.
        private_key: the key to it.
    """

    signing_key: str
    certificate: Path
    private_key: Path

    @property
    def config(self) -> dict[str, Any]:
        """What the cluster's configuration has of it."""
        http = {"server_crt": str(self.certificate), "server_key": str(self.private_key)}
        return {
            "auth": {"client_auth_required": True, "signature": {"key": self.signing_key, "method": "HS256"}},
            "net": {"l4": {"proto": "tcp"}, "http": {"use_https": True, "skip_verify": True, **http}},
        }

    def ask(self, url: str, **params: str) -> requests.Response:
        """A GET as the cluster's administrator."""
        headers = {"Authorization": f"Bearer {ais_token(self.signing_key, 60, admin=True)}"}
        return requests.get(url, params=params, headers=headers, timeout=2, verify=str(self.certificate))


def _ask(url: str, **params: str) -> requests.Response:
    return requests.get(url, params=params, timeout=2)


@dataclass
class Node:
    """A node of a cluster, which a test may kill and start again.

    Attributes:
        url: where it listens.
    """

    url: str
    command: list[str]
    environment: dict[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, env=self.environment)

    def kill(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()


@contextmanager
def ais_cluster(
    folder: Path,
    targets: int = 2,
    s3: str | None = None,
    guard: Guard | None = None,
    nodes: list[Node] | None = None,
    command: str = "aisnode",
) -> Iterator[str]:
    """The endpoint of an AIStore: AIS_ENDPOINT, or a proxy and targets of our own in a folder.

    Args:
        s3: the endpoint of the S3 that is behind a cluster of our own.
        guard: of a cluster of our own.
        nodes: an empty list for the nodes, the proxy first, of a cluster of our own.
        command: what the nodes of a cluster of our own are.

    Raises:
        FileNotFoundError: when there is neither.
        PermissionError: when the nodes cannot be kept to a loopback.
    """
    if (endpoint := os.environ.get("AIS_ENDPOINT")) and not guard and nodes is None and command == "aisnode":
        yield endpoint
        return
    config = {"backend": {"aws": {}} if s3 else {}, **(guard.config if guard else {})}
    variables = {"S3_ENDPOINT": s3} if s3 else {}
    nodes = [] if nodes is None else nodes
    binary = go_command(command)
    if binary is None:
        raise FileNotFoundError(AIS_MISSING.replace("`aisnode`", f"`{command}`"))
    with private_network(), _own_cluster(binary, folder, targets, config, variables, guard, nodes) as endpoint:
        yield endpoint


@contextmanager
def _own_cluster(
    binary: str,
    folder: Path,
    targets: int,
    config: dict[str, Any],
    variables: dict[str, str],
    guard: Guard | None,
    nodes: list[Node],
) -> Iterator[str]:
    ports = free_ports(3 * (targets + 1))
    host = f"{'https' if guard else 'http'}://127.0.0.1"
    url = f"{host}:{ports[0]}"
    ask = guard.ask if guard else _ask
    try:
        for number in range(targets + 1):
            command = _ais_command(binary, folder, url, number, targets, ports[3 * number : 3 * number + 3], config)
            unwanted = ("KUBERNETES_SERVICE_HOST", "AWS_CA_BUNDLE")
            environment = {key: value for key, value in os.environ.items() if key not in unwanted}
            environment |= variables
            nodes.append(Node(f"{host}:{ports[3 * number]}", command, environment, folder / f"node-{number}.out"))
            nodes[-1].start()
            if number == 0:
                wait_for(lambda: ask(f"{url}/v1/health").ok, nodes[0].process)
        started = [node.process for node in nodes]
        wait_for(lambda: len(ask(f"{url}/v1/daemon", what="smap").json()["tmap"]) == targets, *started)
        wait_for(lambda: all(ask(f"{node.url}/v1/health", readiness="true").ok for node in nodes), *started)
        yield url
    finally:
        for node in nodes:
            node.kill()


def ais_token(signing_key: str, seconds: float, **claims: Any) -> str:
    """A JSON Web Token (RFC 7519) as AIStore's AuthN server gives out, good for so many seconds."""
    claims = {"sub": "tester", "exp": int(time.time() + seconds), **claims}
    parts = [json.dumps(part).encode() for part in ({"alg": "HS256", "typ": "JWT"}, claims)]
    signed = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
    signature = hmac.new(signing_key.encode(), signed, hashlib.sha256).digest()
    return f"{signed.decode()}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def _ais_command(
    binary: str, folder: Path, url: str, number: int, targets: int, ports: list[int], config: dict[str, Any]
) -> list[str]:
    node = folder / f"node-{number}"
    (node / "conf").mkdir(parents=True)
    (folder / "data").mkdir(exist_ok=True)
    whole = {
        **small_cluster(url),
        "versioning": {"enabled": True},
        "resilver": {"enabled": True},
        "log": {"to_stderr": False},
        **config,
    }
    local = {
        "confdir": str(node / "conf"),
        "log_dir": str(node / "log"),
        "host_net": {
            **dict.fromkeys(("hostname", "hostname_intra_control", "hostname_intra_data"), "127.0.0.1"),
            **dict(zip(("port", "port_intra_control", "port_intra_data"), map(str, ports), strict=True)),
        },
        "fspaths": {},
        "test_fspaths": {"root": str(folder / "data"), "count": 1, "instance": number},
    }
    (node / "ais.json").write_text(json.dumps(whole))
    (node / "local.json").write_text(json.dumps(local))
    role = ["-role=proxy", f"-ntargets={targets}", "-skip_startup"] if number == 0 else ["-role=target"]
    return [binary, f"-config={node / 'ais.json'}", f"-local_config={node / 'local.json'}", *role]


def read_aws_models_once() -> None:
    """Keep what botocore reads for each new client, 0.2 s of JSON, for the next one."""
    from botocore.loaders import JSONFileLoader

    if not hasattr(JSONFileLoader.load_file, "cache_info"):
        JSONFileLoader.load_file = staticmethod(cache(partial(JSONFileLoader.load_file, JSONFileLoader())))


_MOTO = """
import logging
from moto import backends, server

modules = tuple(backends.list_of_moto_modules())
backends.list_of_moto_modules = lambda: modules
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server.main()
"""
"""Starts moto's server, which would look for its 180 folders twice in each request, a third of the time of all."""


@contextmanager
def moto_server() -> Iterator[str]:
    """The endpoint of moto's S3 server, with credentials for it in the environment of the block."""
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-c", _MOTO, "-H", "127.0.0.1", "-p", str(port)]
    environment = {**os.environ, "MOTO_S3_DEFAULT_MAX_KEYS": "100"}  # on a page of a listing, instead of 1,000
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: requests.get(f"{url}/moto-api/", timeout=2).ok, process)
        yield url
    finally:
        end(process)


S3_KEYS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing-secret", "AWS_REGION": "us-east-1"}
"""The keys of the root user of versitygw."""


@contextmanager
def versitygw(folder: Path) -> Iterator[str]:
    """The endpoint of versitygw, an S3 server whose buckets are the folders in a folder.

    Raises:
        FileNotFoundError: when it is not installed.
    """
    binary = go_command("versitygw")
    if binary is None:
        raise FileNotFoundError("no versitygw (Go command github.com/versity/versitygw/cmd/versitygw) on PATH")
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    folder.mkdir(parents=True, exist_ok=True)
    users = folder.with_name(f"{folder.name}-users")
    users.mkdir(exist_ok=True)
    command = [binary, "--access", S3_KEYS["AWS_ACCESS_KEY_ID"], "--secret", S3_KEYS["AWS_SECRET_ACCESS_KEY"]]
    command += ["--port", f"127.0.0.1:{port}", "--keep-alive", "--quiet", "--iam-dir", str(users), "posix", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: requests.get(url, timeout=2).status_code, process)
        yield url
    finally:
        end(process)


@contextmanager
def gcs_server(folder: Path) -> Iterator[str]:
    """The endpoint of fake-gcs-server, made to take uploads over the XML API, too.

    Raises:
        FileNotFoundError: when it is not installed.
    """
    binary = go_command("fake-gcs-server")
    if binary is None:
        raise FileNotFoundError(
            "no fake-gcs-server (Go command github.com/fsouza/fake-gcs-server) on PATH or in Go's bin"
        )
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    command = [binary, "-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory"]
    command += ["-filesystem-root", str(folder), "-external-url", url, "-public-host", f"127.0.0.1:{port}"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: requests.get(f"{url}/storage/v1/b", timeout=2).ok, process)
        with _xml_uploads(url) as address:
            yield address
    finally:
        end(process)


@contextmanager
def cutting_proxy(port: int, cuts: list[tuple[int, str]]) -> Iterator[int]:
    """A port that passes bytes on to another and back, and breaks answers as long as there are cuts.

    Args:
        port: where the server listens.
        cuts: after how many bytes of an answer to break it, and how: "close", "stall", or "swap" one byte and go on;
            used up from the front by answers that are longer than that.
    """
    stop = threading.Event()

    def serve(client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", port)) as server:
            back = threading.Thread(target=answer, args=(server, client), daemon=True)
            back.start()
            while data := receive(client):
                server.sendall(data)
            back.join(5)

    def answer(server: socket.socket, client: socket.socket) -> None:
        passed = 0
        while data := receive(server):
            passed += len(data)
            if cuts and passed > cuts[0][0]:
                _, kind = cuts.pop(0)
                if kind == "swap":
                    client.sendall(data[:-1] + bytes([data[-1] ^ 1]))
                    continue
                if kind == "stall":
                    stop.wait(30)
                break
            client.sendall(data)
        for one in (client, server):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def receive(one: socket.socket) -> bytes:
        try:
            return one.recv(1 << 16)
        except OSError:
            return b""

    def accept() -> None:
        while not stop.is_set():
            with suppress(OSError):
                client, _ = listener.accept()
                threading.Thread(target=serve, args=(client,), daemon=True).start()

    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.2)
    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        stop.set()
        thread.join()
        listener.close()


class QuietHandler(BaseHTTPRequestHandler):
    """Says nothing on standard error, and sends a body at once, not when the client has acknowledged the headers."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        pass


class Forwarder(QuietHandler):
    """Passes requests on to another server, and its answers back."""

    url = ""
    dropped = ("expect",)

    def setup(self) -> None:
        super().setup()
        there = urlsplit(self.url)
        self.folder, self.there = there.path, HTTPConnection(there.netloc, timeout=600)

    def finish(self) -> None:
        self.there.close()
        super().finish()

    def do_GET(self) -> None:
        self.forward(self.body())

    def do_HEAD(self) -> None:
        self.do_GET()

    do_PUT = do_POST = do_DELETE = do_HEAD

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def forward(self, data: bytes) -> None:
        headers = {name: value for name, value in self.headers.items() if name.lower() not in self.dropped}
        self.answer(*self.ask(self.command, self.path, headers, data))

    def ask(
        self, method: str, path: str, headers: dict[str, str] | None = None, data: bytes = b""
    ) -> tuple[int, dict[str, str], bytes]:
        """The other server's answer to a request; all requests use one connection, as long as that server keeps it."""
        assert self.url.startswith("http:")
        if self.there.sock and select.select([self.there.sock], [], [], 0)[0]:
            self.there.close()
        self.there.request(method, self.folder + path, data or None, headers or {})
        given = self.there.getresponse()
        return given.status, dict(given.getheaders()), given.read()

    def answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response_only(status)
        lengths = {"Content-Length": str(len(body))} if self.command != "HEAD" else {}
        for name, value in {**headers, **lengths, "Connection": "keep-alive"}.items():
            if name.lower() != "transfer-encoding":
                self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":  # or the client would take it for the next answer
            self.send_body(body)

    def send_body(self, body: bytes) -> None:
        self.wfile.write(body)


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a server whose requests go to a handler."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            pass

    server = Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


UNRELIABLE = ("cut", "stall", "throttle", "429", "500", "503")
"""What `unreliable_proxy` does wrong."""


@contextmanager
def unreliable_proxy(url: str, seed: int, share: float = 0.3) -> Iterator[tuple[str, Counter[str]]]:
    """The address of a server that passes requests on to another, and treats a share of them badly, and how often.

    It breaks answers off, stops in their middle, sends them slowly, or refuses requests with 429, 500 or 503: at
    random, but each kind at least once, as the first requests all get one.
    """
    chance, lock, stop = random.Random(seed), threading.Lock(), threading.Event()
    done: Counter[str] = Counter()

    class Unreliable(Forwarder):
        kind = ""

        def do_GET(self) -> None:
            data = self.body()
            kinds = [kind for kind in UNRELIABLE if self.command == "GET" or kind.isdecimal()]
            with lock:
                missing = [kind for kind in kinds if kind not in done]
                self.kind = chance.choice(missing or kinds) if missing or chance.random() < share else ""
                done[self.kind] += 1
            if self.kind.isdecimal():
                return self.answer(int(self.kind), {"Retry-After": "0"}, b"")
            return self.forward(data)

        def send_body(self, body: bytes) -> None:
            if self.kind == "throttle":
                for start in range(0, len(body), 1 << 16):
                    self.wfile.write(body[start : start + (1 << 16)])
                    time.sleep(0.005)
                return
            broken = self.kind in ("cut", "stall")
            self.wfile.write(body[: len(body) // 2] if broken else body)
            if broken:
                self.wfile.flush()
                if self.kind == "stall":
                    stop.wait(5)
                self.close_connection = True

    Unreliable.url = url
    try:
        with serving(Unreliable) as address:
            yield address, done
    finally:
        stop.set()


@contextmanager
def refusing_proxy(url: str, *, after: int, status: int, code: str) -> Iterator[str]:
    """The address of a server that passes requests on to another, but takes only some uploads.

    Args:
        url: the other server.
        after: how many PUTs pass.
        status: what the others are answered with, as S3 does; 0 breaks the connection amid the upload.
        code: S3's word for it.
    """
    lock, passed = threading.Lock(), [0]

    class Refusing(Forwarder):
        def do_GET(self) -> None:
            with lock:
                passed[0] += self.command == "PUT"
                refused = self.command == "PUT" and passed[0] > after
            if refused and not status:
                self.rfile.read(int(self.headers["Content-Length"]) // 2)
                self.close_connection = True
                return self.connection.shutdown(socket.SHUT_RDWR)
            data = self.body()
            if refused:
                return self.answer(status, {}, _xml_error(code))
            return self.forward(data)

    Refusing.url = url
    with serving(Refusing) as address:
        yield address


def _xml_error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>said the server</Message></Error>".encode()


@contextmanager
def _xml_uploads(url: str) -> Iterator[str]:
    """The address of a server that adds what fake-gcs-server lacks of the XML API: PUT, copies, and missing buckets."""

    class Xml(Forwarder):
        dropped = ("expect", "host")

        def do_GET(self) -> None:
            data = self.body()
            parts = urlsplit(self.path)
            bucket, _, name = unquote(parts.path)[1:].partition("/")
            if bucket not in ("storage", "upload") and self.ask("GET", f"/storage/v1/b/{bucket}")[0] != 200:
                return self.answer(404, {}, _xml_error("NoSuchBucket"))
            if self.command != "PUT":
                return self.forward(data)
            name = quote(name, safe="")
            if source := self.headers.get("x-goog-copy-source"):
                theirs = quote(unquote(source).partition("/")[2], safe="")
                path = f"/storage/v1/b/{bucket}/o/{theirs}/rewriteTo/b/{bucket}/o/{name}"
            else:
                path = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}"
            status, _, body = self.ask("POST", path, data=data)
            done = json.loads(body)
            etag = done.get("etag") or done.get("resource", {}).get("etag", "")
            return self.answer(status, {"ETag": f'"{etag}"'}, b"")

    Xml.url = url
    with serving(Xml) as address:
        yield address


@dataclass
class Fault:
    """What the server does wrong with requests whose path matches, `times` times; -1 is for ever."""

    pattern: str
    kind: str
    times: int = 1
    after: int = 0
    status: int = 500
    retry_after: str | None = None


@dataclass
class FaultyServer:
    """An HTTP server for objects in memory that fails on command.

    Kinds of faults: `status` answers with one; `redirect` sends to /real/…; `truncate` closes after some bytes;
    `stall` stops sending after some bytes, and `drip` sends one at a time from then on; `no-range` answers a range
    with the whole; `short` announces too little.

    Attributes:
        objects: bytes by path, without the slash in front.
        log: method, path and Range of each request.
        connections: how many were made.
        listen: has a server that sleeps begin to accept connections.
    """

    url: str = ""
    objects: dict[str, bytes] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    log: list[tuple[str, str, str | None]] = field(default_factory=list)
    connections: int = 0
    etags: bool = True
    stop: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    listen: Callable[[], None] = lambda: None
    _stalled: int = 0
    _since: float = 0.0
    _lasted: float = 1000.0

    def monotonic(self) -> float:
        """A clock for clients: it stands still unless the server has stalled, as if all else took no time."""
        with self.lock:
            return self._lasted + (time.monotonic() - self._since if self._stalled else 0)

    @contextmanager
    def stall(self) -> Iterator[None]:
        """Let time pass meanwhile."""
        with self.lock:
            self._since = self._since if self._stalled else time.monotonic()
            self._stalled += 1
        yield
        with self.lock:
            self._stalled -= 1
            self._lasted += 0 if self._stalled else time.monotonic() - self._since

    def fail(self, pattern: str, kind: str, times: int = 1, **details: Any) -> None:
        self.faults.append(Fault(pattern, kind, times, **details))

    def take(self, request: str) -> Fault | None:
        with self.lock:
            for fault in self.faults:
                if fault.times and re.search(fault.pattern, request):
                    fault.times -= 1
                    return fault
        return None


class _Handler(QuietHandler):
    server: Any

    def setup(self) -> None:
        super().setup()
        with self.server.state.lock:
            self.server.state.connections += 1

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        state: FaultyServer = self.server.state
        path = unquote(urlsplit(self.path).path)[1:]
        wanted = self.headers.get("Range")
        state.log.append((self.command, path, wanted))
        fault = state.take(f"{self.command} {path}")
        kind = fault.kind if fault else ""
        if fault and kind == "status":
            return self._plain(fault.status, fault.retry_after)
        if kind == "redirect":
            self.send_response(302)
            self.send_header("Location", f"{state.url}/real/{path}")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        data = state.objects.get(path.removeprefix("real/"))
        if data is None:
            return self._plain(404)
        etag = f'"{hashlib.md5(data).hexdigest()}"'
        start, size = 0, len(data)
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", wanted or "")
        if match and not data:
            return self._plain(416)
        if match and kind != "no-range":
            start = int(match[1])
            data = data[start : int(match[2]) + 1 if match[2] else None]
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{start + len(data) - 1}/{size}")
        else:
            self.send_response(200)
        if state.etags:
            self.send_header("ETag", etag)
        announced = data[: fault.after] if fault and kind == "short" else data
        self.send_header("Content-Length", str(len(announced)))
        self.end_headers()
        if body:
            self._send(announced, fault, state)
        return None

    def _send(self, data: bytes, fault: Fault | None, state: FaultyServer) -> None:
        kind = fault.kind if fault else ""
        cut = fault.after if fault and kind in ("truncate", "stall", "drip") else len(data)
        self.wfile.write(data[:cut])
        if cut < len(data):
            self.wfile.flush()
            if kind == "stall":
                with state.stall():
                    while not (state.stop.is_set() or select.select([self.connection], [], [], 0.02)[0]):
                        pass  # until the client closes it
            if kind == "drip":
                with state.stall(), suppress(OSError):
                    while not state.stop.wait(0.01):
                        self.wfile.write(data[cut : cut + 1])
                        cut += 1
            self.close_connection = True
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

    def _plain(self, status: int, retry_after: str | None = None) -> None:
        self.send_response(status)
        if retry_after:
            self.send_header("Retry-After", retry_after)
        self.send_header("Content-Length", "0")
        self.end_headers()


@contextmanager
def faulty_server(tls: ssl.SSLContext | None = None, *, sleeps: bool = False) -> Iterator[FaultyServer]:
    """A `FaultyServer` for as long as the context lasts; one that sleeps refuses connections until `listen`."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, *_: object) -> None:
            pass

    server = Server(("127.0.0.1", 0), _Handler, bind_and_activate=False)
    server.server_bind()
    state = FaultyServer(f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}")
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    server.state = state  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def listen() -> None:
        server.server_activate()
        thread.start()

    state.listen = listen
    if not sleeps:
        listen()
    try:
        yield state
    finally:
        state.stop.set()
        if thread.is_alive():
            server.shutdown()
            thread.join()
        server.server_close()


AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account that every Azurite has: https://learn.microsoft.com/azure/storage/common/storage-connect-azurite"""


@contextmanager
def azurite(folder: Path) -> Iterator[str]:
    """The endpoint of Azurite's blob service.

    Raises:
        FileNotFoundError: when it is not installed.
    """
    binary = shutil.which("azurite-blob")
    if binary is None:
        raise FileNotFoundError("no azurite-blob (npm package azurite) on PATH")
    (port,) = free_ports(1)
    command = [binary, "--blobPort", str(port), "--location", str(folder), "--silent", "--skipApiVersionCheck"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(lambda: requests.get(url, timeout=2).status_code, process)
        yield f"{url}/{AZURE_ACCOUNT}"
    finally:
        end(process)


def azure_container(endpoint: str, name: str) -> None:
    """Make a container, which obstore cannot: a request signed with the account's key."""
    date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())
    headers = {"x-ms-date": date, "x-ms-version": "2021-08-06"}
    signed = "PUT" + "\n" * 12 + "".join(f"{key}:{value}\n" for key, value in headers.items())
    signed += f"/{AZURE_ACCOUNT}/{AZURE_ACCOUNT}/{name}\nrestype:container"
    signature = hmac.new(base64.b64decode(AZURE_KEY), signed.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {AZURE_ACCOUNT}:{base64.b64encode(signature).decode()}"
    requests.put(f"{endpoint}/{name}?restype=container", headers=headers, timeout=60).raise_for_status()
