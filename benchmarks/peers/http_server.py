"""Serves the files of a folder on a port of the loopback with sendfile: `http_server.py FOLDER PORT`."""

from __future__ import annotations

import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

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
                self.connection.sendfile(file)

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 128


Server(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
