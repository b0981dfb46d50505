"""A server that answers as a test says, byte for byte."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

OK = b"HTTP/1.1 200 OK\r\n"
SIZED = OK + b"Content-Length: 5\r\n\r\nbytes"


class Scripted:
    """A server that answers each request with the next of some answers, sent piece by piece.

    Attributes:
        url: where it listens.
        requests: the heads of the requests.
        connections: how many there were.
    """

    def __init__(self, answers: Sequence[Sequence[bytes]]) -> None:
        self.requests: list[bytes] = []
        self.connections = 0
        self._answers = list(answers)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._serve(client)

    def _serve(self, client: socket.socket) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with client:
            while self._answers and (head := self._head(client)):
                self.requests.append(head)
                answer = self._answers.pop(0)
                for piece in answer:
                    client.sendall(piece)
                if not re.search(rb"(?i)content-length|chunked", b"".join(answer)):
                    return

    def _head(self, client: socket.socket) -> bytes:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            data = client.recv(1)
            if not data:
                return b""
            head += data
        return head

    def close(self) -> None:
        self._listener.close()


@contextmanager
def scripted(*answers: Sequence[bytes]) -> Iterator[Scripted]:
    server = Scripted(answers)
    try:
        yield server
    finally:
        server.close()


def moved(server: Scripted) -> list[bytes]:
    return [b"HTTP/1.1 302 Found\r\nLocation: " + server.url.encode() + b"/y\r\nContent-Length: 4\r\n\r\ngone"]
