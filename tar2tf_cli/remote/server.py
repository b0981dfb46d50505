"""The transformer as an HTTP server: receives one object, and answers with the framed records of its samples.

AIStore's own server handles routing, health checks and the life cycle. This module writes every response to a file.
Records are sent only when the file is complete: an object with a fault at its end can then be refused with a status and
a reason, whereas the cluster would pass on or even store a partial response; and a response to a target or to the next
transformer can be sent again. Samples, which only datasets request, are sent while the file grows, and an error record
ends them after a later fault; so the first batch need not wait for the last sample, and a slow reader does not block a
thread.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing.connection
import os
import re
import signal
import socket
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Final, TypeAlias
from urllib.parse import quote, unquote, urlsplit

import httpx
import uvicorn
from aistore.sdk.const import (
    HEADER_DIRECT_PUT_LENGTH,
    HEADER_NODE_URL,
    QPARAM_ETL_ARGS,
    QPARAM_ETL_FQN,
    STATUS_NO_CONTENT,
)
from aistore.sdk.errors import InvalidPipelineError
from aistore.sdk.etl.webserver.fastapi_server import FastAPIServer
from aistore.sdk.etl.webserver.utils import compose_etl_direct_put_url, parse_etl_pipeline
from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import iterate_in_threadpool
from starlette.types import Receive, Scope, Send

from tar2tf_cli.api.objects import ByteStream, ObjectInfo
from tar2tf_cli.api.source import Capabilities, Source
from tar2tf_cli.api.values import RecordBatch
from tar2tf_cli.errors import (
    DamagedShardError,
    Interrupted,
    NothingFoundError,
    SampleError,
    SourceError,
    Tar2tfError,
    UsageError,
)
from tar2tf_cli.flow.sample_flow import InputFlow, ReadOptions, ReadPlan
from tar2tf_cli.formats.checksums import blake2b
from tar2tf_cli.formats.files import RecordFile, write_whole
from tar2tf_cli.inputs.reader import attempts
from tar2tf_cli.remote.stream import (
    ENVIRONMENT,
    NODES,
    TARGET,
    AnswerEnd,
    AnswerRequest,
    Settings,
    StreamWriter,
    end_record,
    text_of_error,
    to_features,
)
from tar2tf_cli.spec.conversion import Conversion
from tar2tf_cli.stores.directory import DirectorySource

MOUNT_PATHS: Final = "TAR2TF_MOUNT_PATHS"
"""The variable with the mount paths, separated by colons; without it, AIStore's mark of a mount path counts."""

_MARK: Final = "user.ais.daemon_id"
"""The extended attribute that a target gives its mount paths (AIStore, fs/mpather.go and cmn/fname)."""


_LAYOUT: Final = re.compile(r"/@(\w+)/(?:([@#][^/]*)/)?([^/]+)/%ob/(.+)", re.DOTALL)
"""Provider, namespace, bucket and name of an object, after its mount path (AIStore, fs/fqn.go)."""


class NotAllowedError(SourceError):
    """Raised for a file that a transformer may not read, or an address to which it may not send."""


def object_file(path: str) -> Path:
    """Return the file of an object after resolving symbolic links and checking that it is in a mount path.

    Raises:
        NotAllowedError: when the file is not in a mount path.
        NothingFoundError: when the file does not exist.
    """
    file = Path(os.path.realpath(os.path.join("/", path)) if "\0" not in path else "/")
    folders = zip(file.parts[1:], file.parents[::-1], strict=False)
    if not any(name.startswith("@") and _is_mount_path(folder) for name, folder in folders):
        hint = f"the mount paths are those that the target marked, or that {MOUNT_PATHS} names"
        raise NotAllowedError("is not an object in a mount path of the target", shard=str(file), hint=hint)
    if not file.is_file():
        raise NothingFoundError("there is no such file", shard=str(file))
    return file


def only_a_part(file: Path) -> str | None:
    """Return an object's full name if its file holds only its first part; None if it holds the whole object.

    AIStore stores an object that was uploaded in parts as one file per part, and passes on only the path of the first
    one. A file of the same name in the folder %ut lists the parts (AIStore, core/ufest.go).
    """
    layout = _LAYOUT.search(str(file))
    if layout is None or not os.path.exists(f"{str(file)[: layout.start(4)].removesuffix('%ob/')}%ut/{layout[4]}"):
        return None
    namespace = layout[2] or "@#"
    return f"{layout[1]}/{namespace if namespace.startswith('@') else f'@{namespace}'}/{layout[3]}/{layout[4]}"


def _is_mount_path(folder: Path) -> bool:
    given = os.environ.get(MOUNT_PATHS)
    if given is not None:
        return str(folder) in {os.path.realpath(known) for known in given.split(os.pathsep) if known}
    with suppress(OSError, AttributeError):  # AttributeError: no extended attributes on this system
        return bool(os.getxattr(folder, _MARK))
    return False


_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


def checked_path(raw: str) -> str:
    """Return a request's path unchanged, after checking that it stays below the path to which it is appended.

    Raises:
        NotAllowedError: when the path could leave that folder.
    """
    once = unquote(raw)
    parts = {part for text in (raw, once, unquote(once)) for part in text.replace("\\", "/").split("/")}
    if not raw.startswith("/") or parts & {".", ".."} or _CONTROL.search(once):
        raise NotAllowedError("is not the path of an object", shard=once.encode("unicode_escape").decode("ascii"))
    return raw


class AllowedNodes:
    """The addresses to which a transformer may send records: the current nodes of its cluster.

    Args:
        target: the address of its target.
        client: sends requests.
    """

    def __init__(self, target: str, client: httpx.AsyncClient) -> None:
        self._given = [text for text in os.environ.get(NODES, "").split(",") if text]
        self._known = {_server(url) for url in (target, *self._given)}
        self._client = client

    async def check(self, url: str) -> None:
        """Check that an address belongs to the cluster: to a node or, without a path, to a pod on a node's host.

        Raises:
            NotAllowedError: when the address does not belong to the cluster.
        """
        if not self._has(url):
            self._known |= await self._map()
        if not self._has(url):
            hint = f"{NODES} names nodes of the cluster, whose map is asked for the others"
            raise NotAllowedError("is not the address of a node of the cluster", shard=url, hint=hint)

    def _has(self, url: str) -> bool:
        wanted = _server(url)
        if wanted and not urlsplit(url).path:
            return wanted[0] in {known[0] for known in self._known if known}
        return wanted is not None and wanted in self._known

    async def _map(self) -> set[_Server]:
        """Return the addresses in the cluster's map, from the first node that answers."""
        for url in self._given:
            with suppress(httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError, AttributeError):
                answer = await self._client.get(f"{url}/v1/daemon?what=smap", timeout=_MAP_SECONDS)
                nodes = [*answer.json()["pmap"].values(), *answer.json()["tmap"].values()]
                nets = ("public_net", "intra_control_net", "intra_data_net")
                return {_server(node[net]["direct_url"]) for node in nodes for net in nets}
        return set()


_MAP_SECONDS: Final = 5.0

_Server: TypeAlias = tuple[str, int] | None


def _server(url: str) -> _Server:
    """Return host and port of an HTTP URL; None if the URL has anything else before its path, such as a user."""
    try:
        parts = urlsplit(url)
        usual = {"http": 80, "https": 443}[parts.scheme]
        port = usual if parts.port is None else parts.port
    except (ValueError, KeyError):
        return None
    return None if "@" in parts.netloc or not parts.hostname else (parts.hostname, port)


class _Object(Source):
    """An object's file as a bucket of one input.

    Args:
        path: the file.
        name: its name in errors.
        seekable: whether it is read by offset. If not, and there is a limit, the first bytes decide whether members are
            adjacent, as for any object in a bucket.
    """

    def __init__(self, path: str, name: str, *, seekable: bool) -> None:
        self.bucket = name
        self.capabilities = Capabilities(seekable=seekable)
        self._file = DirectorySource(path)

    def list(self, templates: object = ()) -> list[ObjectInfo]:
        """Return the file as the only input."""
        return self._file.list(())

    def open(self, item: ObjectInfo) -> ByteStream:
        """Open the file, which must not change until it is closed."""
        return self._file.open(item)

    def locate(self, name: str) -> str:
        """Return the object's name."""
        return self.bucket


def _end_file(name: str, settings: str) -> str:
    """Return the temporary path for the end record of an object's answer."""
    key = "\0".join((os.environ.get(TARGET, ""), name, settings))
    digest = blake2b(key.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
    return os.path.join(tempfile.gettempdir(), f"tar2tf-end-{digest}")


def _keep_end(path: str, answer: str, end: AnswerEnd) -> None:
    """Move the end record from an answer to a file, with the XXH64 of the rest, AIStore's default checksum."""
    import xxhash

    os.truncate(answer, end["bytes"])
    digest = xxhash.xxh64()
    for data in _pieces(open(answer, "rb")):  # noqa: SIM115 - closed when all was read
        digest.update(data)
    write_whole(path, [end_record({**end, "xxh64": digest.hexdigest()})], lasting=False)


class AnswerWriter:
    """Writes the answers of a transformer.

    Args:
        settings: the settings of the transformer.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._conversion = settings.conversion()
        self._to_samples = settings.of_samples.conversion()

    def __call__(self, path: str, name: str, asked: AnswerRequest, answer: str, check: Callable[[], None]) -> None:
        """Write the answer for one object to a file.

        Args:
            path: the file that holds the object.
            name: the object's name, for errors.
            asked: the options of the request.
            answer: the path of the file to write. A file of samples may be sent as soon as it is not empty.
            check: called after each read and before each record; raises an error to end the work.

        Raises:
            Tar2tfError: as in a conversion; the file is then useless. For samples, the file ends with the error
                instead.
        """
        end_file = _end_file(name, self._settings.digest)
        if asked.part == "end":
            with suppress(FileNotFoundError):
                os.replace(end_file, answer)
                return
        conversion = self._conversion
        if asked.gives_samples:
            entries = {entry: entry for entry in asked.entries or ()} or None
            conversion = replace(self._to_samples, select=entries, record_to_example=to_features)
        source = _Object(path, name, seekable=conversion.limit is None)
        end = self._write(conversion, source, asked, answer, check)
        if asked.part and end:
            _keep_end(end_file, answer, end)
        if asked.part == "end":
            os.replace(end_file, answer)

    def _write(
        self, conversion: Conversion, source: _Object, asked: AnswerRequest, answer: str, check: Callable[[], None]
    ) -> AnswerEnd | None:
        (item,) = source.list()
        plan, at_once = ReadPlan.of(conversion, source), asked.gives_samples
        ahead = at_once or conversion.limit is not None
        options = ReadOptions(ahead=ahead, first=asked.first, divided=self._settings.keys)

        def read(regroup: bool) -> InputFlow:
            return InputFlow(plan, item, options._replace(regroup=regroup), on_bytes=lambda _: check())

        with RecordFile(answer) as file:
            try:
                for reading in attempts(read):
                    writer = StreamWriter(file, keys=self._settings.keys, settings=self._settings.digest, soon=at_once)
                    self._add(writer, reading, conversion.limit, check)
                    if not at_once and (reading.must_regroup or reading.is_unusable()):
                        file.cut(0)
                return writer.finish(reading.report, item.size)
            except Tar2tfError as error:
                if not (at_once and file.size):
                    raise
                writer.fail(error)
                return None

    def _add(self, writer: StreamWriter, reading: InputFlow, most: int | None, check: Callable[[], None]) -> None:
        one_by_one = self._settings.keys or most is not None
        for made in islice(reading.records() if one_by_one else reading.records_and_batches(), most):
            check()
            if isinstance(made, RecordBatch):
                writer.add_batch(made)
            else:
                key, parts, size, written = made
                writer.add(key if written is None else written.decode("utf-8", "surrogateescape"), parts, size)


_AT_ONCE: Final = 4
"""How many objects a process works on; others wait, so that the memory needed does not depend on the cluster."""

_IDLE: Final = 120
"""Seconds after which an unused connection is closed: more than a target keeps it, or both would use and close it."""

_BUSY: Final = 120
"""Seconds after which a process that does not answer is replaced; an op may hold the interpreter for a while."""

_PIECE: Final = 1 << 20
LOOK_SECONDS: Final = 0.5  # seconds between checks whether the client is still connected
_GROWN_SECONDS: Final = 0.02  # seconds between checks whether the sent file has grown
PAUSES: Final = (0.5, 1.0, 2.0)  # seconds before each retry of a target or transformer that does not answer


def check_address(host: str, port: int) -> None:
    """Check that a server can listen at an address.

    Raises:
        Tar2tfError: when it cannot.
    """
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:  # uvicorn would exit with status 1
        message = f"cannot listen on {host}:{port}: {error.strerror or error}"
        raise Tar2tfError(message, hint="choose another with --host and --port") from None


def serve(settings: Settings, host: str, port: int, workers: int) -> None:
    """Serve requests until the process is told to stop."""
    os.environ[ENVIRONMENT] = settings.text
    uvicorn.run(
        f"{__name__}:_app",
        factory=True,
        host=host,
        port=port,
        workers=workers,
        log_level="warning",
        timeout_keep_alive=_IDLE,
        timeout_worker_healthcheck=_BUSY,
    )


def _app() -> FastAPI:
    """Create the application of one server process."""
    if parent := multiprocessing.parent_process():
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    app: FastAPI = TransformerServer(Settings.load(os.environ[ENVIRONMENT], sources=None)).app
    return app


def _end_with(sentinel: int) -> None:
    """Exit when the parent process was killed, as nothing else would end this process."""
    multiprocessing.connection.wait([sentinel])
    os.kill(os.getpid(), signal.SIGTERM)


class _Job:
    """A job that makes an answer in a thread, and stops when the client has disconnected.

    Args:
        threads: the threads, one of which runs the job.
        make: makes the answer; called with a function that raises an error to end the work.

    Attributes:
        done: the end of the work.
    """

    def __init__(self, threads: ThreadPoolExecutor, make: Callable[[Callable[[], None]], None]) -> None:
        self._gone = threading.Event()
        self.done = asyncio.get_running_loop().run_in_executor(threads, make, self._check)

    def _check(self) -> None:
        if self._gone.is_set():
            raise Interrupted("the client has gone")

    def give_up(self) -> None:
        """Make the job stop."""
        self._gone.set()

    async def wait(self, seconds: float) -> bool:
        """Wait up to some seconds for the job to end; return whether it has."""
        return bool((await asyncio.wait({self.done}, timeout=seconds))[0])

    async def begun(self, request: Request, answer: Path) -> bool:
        """Wait until the answer has its first bytes; return whether more will follow.

        Raises:
            Tar2tfError: when the work failed before that.
        """
        try:
            while not await self.wait(_GROWN_SECONDS):
                if await request.is_disconnected():
                    self.give_up()
                if answer.exists() and answer.stat().st_size:
                    return True
        except asyncio.CancelledError:
            self.give_up()
            raise
        return False

    async def end(self, request: Request) -> None:
        """Wait for the job to end.

        Raises:
            Tar2tfError: when the work failed.
        """
        try:
            while not await self.wait(LOOK_SECONDS):
                if await request.is_disconnected():
                    self.give_up()
        finally:
            self.give_up()
        await self.done


class _GrowingResponse(StreamingResponse):
    """A response that sends a file while a job writes it.

    Args:
        job: the job, which ends with the answer.
        path: the file; it may be deleted before it is sent.
    """

    def __init__(self, job: _Job, path: Path) -> None:
        self._job = job
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 - closed when the answer ends
        super().__init__(self._growing(), media_type="application/octet-stream")

    async def _growing(self) -> AsyncIterator[bytes]:
        ended = False
        while not ended:
            ended = await self._job.wait(_GROWN_SECONDS)
            while data := await asyncio.to_thread(self._file.read, _PIECE):
                yield data
        await self._job.done  # an exception of the job truncates the answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._job.give_up()
            self._file.close()


class TransformerServer(FastAPIServer):  # type: ignore[misc]
    """AIStore's ETL server for a transformer with given settings."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = settings
        self._transform = AnswerWriter(settings)
        self._threads = ThreadPoolExecutor(_AT_ONCE, "tar2tf")
        logging.getLogger("httpx").setLevel(logging.WARNING)  # httpx logs every request

    def transform_stream(self, reader: object, path: str, etl_args: str) -> Iterator[bytes]:
        """Never called; AIStore's base class requires it."""
        raise NotImplementedError

    async def _handle_request_streaming(self, path: str, request: Request, is_get: bool) -> Response:
        """Answer a request; unlike AIStore's method, not before the object is complete."""
        try:
            checked_path(request.scope["raw_path"].decode("ascii"))
            with ExitStack() as stack:
                folder = stack.enter_context(TemporaryDirectory(prefix="tar2tf-"))
                source = await self._object(request, Path(folder, "object"), is_get)
                answer = Path(folder, "answer")
                asked = AnswerRequest.load(request.query_params.get(QPARAM_ETL_ARGS, ""))
                nodes = request.headers.get(HEADER_NODE_URL, "").strip()
                job = _Job(self._threads, partial(self._transform, str(source), path, asked, str(answer)))
                if asked.gives_samples and not nodes and await job.begun(request, answer):
                    response = _GrowingResponse(job, answer)
                    kept = stack.pop_all()
                    job.done.add_done_callback(lambda _: kept.close())
                    return response
                await job.end(request)
                if nodes:
                    return await self._pass_on(answer, Path(folder, "returned"), path, request, nodes)
                return _file_response(answer)
        except (Tar2tfError, InvalidPipelineError) as error:
            self.logger.error("%s", error)
            return _error_response(error)

    async def _object(self, request: Request, copy: Path, is_get: bool) -> Path:
        """Return the file of the object: the target's own, or a copy of the request's body."""
        fqn = request.query_params.get(QPARAM_ETL_FQN, "").strip()
        raw = request.scope["raw_path"].decode("ascii")  # with the escapes that the target sent
        if fqn:
            file = object_file(unquote(fqn, errors="surrogateescape"))  # the target escapes it twice
            uname = only_a_part(file)
            if uname is None:
                return file
            raw = f"/{quote(uname, safe='@')}"
        if fqn or is_get:
            async with self.client.stream("GET", self.host_target + raw) as response:
                if response.status_code != 200:
                    message = f"the target answered {response.status_code} when it was asked for the object"
                    raise (NothingFoundError if response.status_code == 404 else SourceError)(message)
                await _save(response.aiter_raw(), copy)
        else:
            await _save(request.stream(), copy)
            if not copy.stat().st_size:
                raise UsageError(
                    "the request has neither etl_fqn nor a body",
                    hint="a cluster drops what follows ? or # in a name; rename the object, or use --comm hpull",
                )
        return copy

    async def _pass_on(self, answer: Path, returned: Path, name: str, request: Request, nodes: str) -> Response:
        """Send an answer to the target that stores it, or to the next transformer, and return their response.

        AIStore's own method holds the next transformer's response in memory.
        """
        first, others = parse_etl_pipeline(nodes)
        await AllowedNodes(self.host_target, self.client).check(first)
        etl_args = request.query_params.get(QPARAM_ETL_ARGS, "").strip()
        url = compose_etl_direct_put_url(first, self.host_target, name, etl_args)
        size = answer.stat().st_size
        headers = {"Content-Length": str(size), **({HEADER_NODE_URL: others} if others else {})}
        for pause in (*PAUSES, None):
            try:
                with open(answer, "rb") as file:
                    content = iterate_in_threadpool(_pieces(file))
                    async with self.client.stream("PUT", url, content=content, headers=headers) as response:
                        await _save(response.aiter_raw(), returned)
                break
            except httpx.TransportError as error:
                if pause is None:
                    raise SourceError(f"the next node does not answer: {error!r}", shard=first) from None
                await asyncio.sleep(pause)
        if response.status_code == 200 and not returned.stat().st_size:
            return Response(status_code=STATUS_NO_CONTENT, headers={HEADER_DIRECT_PUT_LENGTH: str(size)})
        delivered = {HEADER_DIRECT_PUT_LENGTH: response.headers.get(HEADER_DIRECT_PUT_LENGTH, "0")}
        if response.status_code == STATUS_NO_CONTENT:
            return Response(status_code=STATUS_NO_CONTENT, headers=delivered)
        return _file_response(returned, response.status_code)


_STATUS: Final[tuple[tuple[type[Exception], int], ...]] = (
    (UsageError, 400),
    (InvalidPipelineError, 400),
    (NotAllowedError, 403),
    (NothingFoundError, 404),
    (DamagedShardError, 422),
    (SampleError, 422),
)
"""Statuses of errors; 500 for others, as they may not come again."""


def _error_response(error: Exception) -> Response:
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
    text = text_of_error(error) if isinstance(error, Tar2tfError) else str(error)
    return Response(text.encode("utf-8", "backslashreplace"), status, media_type="text/plain; charset=utf-8")


def _file_response(path: Path, status: int = 200) -> Response:
    """Return a file as a response; the file may be deleted before it is sent."""
    size = os.stat(path).st_size
    pieces = _pieces(open(path, "rb"))  # noqa: SIM115 - closed when all was sent
    headers = {"Content-Length": str(size)}
    return StreamingResponse(pieces, status, headers, media_type="application/octet-stream")


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while data := file.read(_PIECE):
            yield data


async def _save(pieces: AsyncIterator[bytes], path: Path) -> None:
    """Write a request body to a file in a thread, so that health checks are answered while a disk is slow."""
    parts: list[bytes] = []
    size = 0
    with RecordFile(str(path)) as file:
        async for piece in pieces:
            parts.append(piece)
            size += len(piece)
            if size >= _PIECE:
                await asyncio.to_thread(file.write, parts, size)
                parts, size = [], 0
        file.write(parts, size)
