"""Run `tar2tf` with these arguments in one process, and print how many bytes it received from sockets."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
from typing import Any

from tar2tf_cli.cli import main

received = 0


class Counted(socket.socket):
    """A socket that counts what it receives."""

    def recv(self, *arguments: Any) -> bytes:
        global received
        data = super().recv(*arguments)
        received += len(data)
        return data

    def recv_into(self, *arguments: Any) -> int:
        global received
        size = super().recv_into(*arguments)
        received += size
        return size


socket.socket = Counted  # type: ignore[misc]
with contextlib.suppress(SystemExit):
    main(sys.argv[1:])
print(json.dumps({"received": received}))
