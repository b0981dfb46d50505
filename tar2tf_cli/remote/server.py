"""The transformer as a server: one object in, the framed records of its samples out.

AIStore's own server does the routing, health, and life cycle. Here every answer is first written to a file: an object
whose fault shows at its end is then refused with a status and a reason, where the cluster would pass on or even store
what had been sent before; and what is passed on to a target or to the next transformer can be sent again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, Final
from urllib.parse import quote, unquote

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

from tar2tf_cli.errors import (
    DamagedShardError,
    Interrupted,
    NothingFoundError,
    SampleError,
    SourceError,
    Tar2tfError,
    UsageError,
)
from tar2tf_cli.formats.record_file import RecordFile
from tar2tf_cli.remote.object_files import NotAllowedError, object_file, only_a_part
from tar2tf_cli.remote.settings import ENVIRONMENT, Asked, Settings
from tar2tf_cli.remote.stream import text_of_error
from tar2tf_cli.remote.transform import Transform

__all__ = ["Transformer", "check_address", "serve"]

_AT_ONCE: Final = 4
"""How many objects a process works on; others wait, so that the memory needed does not depend on the cluster."""

_IDLE: Final = 120
"""Seconds after which an unused connection is closed: more than a target keeps it, or both would use and close it."""

_BUSY: Final = 120
"""Seconds after which a process that does not answer is replaced; an op may hold the interpreter for a while."""

_PIECE: Final = 1 << 20
_LOOK: Final = 0.5  # seconds between two looks whether the client is still there
_PAUSES: Final = (0.5, 1.0, 2.0)  # seconds before a target or transformer that does not answer is asked again


def check_address(host: str, port: int) -> None:
    """See that a server can listen there.

    Raises:
        Tar2tfError: when it cannot.
    """
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:  # for which uvicorn would exit with 1
        message = f"cannot listen on {host}:{port}: {error.strerror or error}"
        raise Tar2tfError(message, hint="choose another with --host and --port") from None


def serve(settings: Settings, host: str, port: int, workers: int) -> None:
    """Answer requests until the process is asked to end."""
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
    """The application of one process."""
    app: FastAPI = Transformer(Settings.load(os.environ[ENVIRONMENT])).app
    return app


class Transformer(FastAPIServer):  # type: ignore[misc]
    """AIStore's server for a transformer with given settings."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = settings
        self._transform = Transform(settings)
        self._threads = ThreadPoolExecutor(_AT_ONCE, "tar2tf")
        logging.getLogger("httpx").setLevel(logging.WARNING)  # which logs every request

    def transform_stream(self, reader: Any, path: str, etl_args: str) -> Iterator[bytes]:
        """Never called: the server asks that it is there."""
        raise NotImplementedError

    async def _handle_request_streaming(self, path: str, request: Request, is_get: bool) -> Response:
        """Answer one request; the server's own begins to send before it knows whether the object is whole."""
        try:
            with TemporaryDirectory(prefix="tar2tf-") as folder:
                source = await self._object(request, Path(folder, "object"), is_get)
                answer = Path(folder, "answer")
                asked = Asked.load(request.query_params.get(QPARAM_ETL_ARGS, ""))
                await self._in_thread(request, source, path, asked, answer)
                nodes = request.headers.get(HEADER_NODE_URL, "").strip()
                if nodes:
                    return await self._pass_on(answer, Path(folder, "returned"), path, request, nodes)
                return _file_response(answer)
        except (Tar2tfError, InvalidPipelineError) as error:
            self.logger.error("%s", error)
            return _error_response(error)

    async def _object(self, request: Request, copy: Path, is_get: bool) -> Path:
        """The file with the object: where the target has it, or a copy of what it sends."""
        fqn = request.query_params.get(QPARAM_ETL_FQN, "").strip()
        raw = request.scope["raw_path"].decode("ascii")  # with the escapes that the target sent
        if fqn:
            file = object_file(unquote(fqn, errors="surrogateescape"))  # which is escaped twice
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

    async def _in_thread(self, request: Request, source: Path, name: str, asked: Asked, answer: Path) -> None:
        """Transform an object in a thread; ends when the client has gone, as after the cluster's time limit."""
        gone = threading.Event()

        def check() -> None:
            if gone.is_set():
                raise Interrupted("the client has gone")

        work = partial(self._transform, str(source), name, asked, str(answer), check)
        job = asyncio.get_running_loop().run_in_executor(self._threads, work)
        try:
            while not (await asyncio.wait({job}, timeout=_LOOK))[0]:
                if not gone.is_set() and await request.is_disconnected():
                    gone.set()
        finally:
            gone.set()
        await job

    async def _pass_on(self, answer: Path, returned: Path, name: str, request: Request, nodes: str) -> Response:
        """Send an answer to the target that stores it or to the next transformer, and return what that says.

        The server's own holds what the next transformer returns in memory.
        """
        first, others = parse_etl_pipeline(nodes)
        etl_args = request.query_params.get(QPARAM_ETL_ARGS, "").strip()
        url = compose_etl_direct_put_url(first, self.host_target, name, etl_args)
        size = answer.stat().st_size
        headers = {"Content-Length": str(size), **({HEADER_NODE_URL: others} if others else {})}
        for pause in (*_PAUSES, None):
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
    """A file as an answer; it may be deleted before it is sent."""
    size = os.stat(path).st_size
    pieces = _pieces(open(path, "rb"))  # noqa: SIM115 - closed when all was sent
    headers = {"Content-Length": str(size)}
    return StreamingResponse(pieces, status, headers, media_type="application/octet-stream")


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while data := file.read(_PIECE):
            yield data


async def _save(pieces: AsyncIterator[bytes], path: Path) -> None:
    """Write a body to a file, in a thread: health is still to be answered while a disk is slow."""
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
