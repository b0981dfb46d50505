"""Serves the files of a folder on a loopback port with sendfile: `http_server.py FOLDER PORT [RATE]`.

With a rate, all connections together send that many bytes per second, as over one network link.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import BinaryIO

PIECE = 1 << 20


class Link:
    """Limits the total rate of all connections."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._lock = threading.Lock()
        self._free = 0.0  # the time at which the link will have sent everything

    def pass_on(self, size: int) -> None:
        with self._lock:
            self._free = max(self._free, time.monotonic()) + size / self._rate
            pause = self._free - time.monotonic()
        time.sleep(max(pause, 0))


link = Link(float(sys.argv[3])) if len(sys.argv) > 3 else None


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # as web servers do

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, body: bool) -> None:
        try:
            file = open(os.path.join(sys.argv[1], os.path.basename(self.path)), "rb")  # noqa: SIM115
        except OSError:
            self.send_error(404)
            return
        with file:
            size = os.fstat(file.fileno()).st_size
            self.send_response(200)
            self.send_header("Content-Length", str(size))
            self.send_header("ETag", f'"{size}"')
            self.end_headers()
            if body:
                self.wfile.flush()
                self.send(file, size)

    def send(self, file: BinaryIO, size: int) -> None:
        if link is None:
            self.connection.sendfile(file)
            return
        for start in range(0, size, PIECE):
            piece = min(PIECE, size - start)
            link.pass_on(piece)
            self.connection.sendfile(file, start, piece)

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 128


Server(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
