"""Stands in for `tar2tf` or `python` in a shell: a server of forked processes, see `fork_server`, runs the command.

Run as a script with the path of the server's socket, 0 for `tar2tf` or 1 for `python`, and the arguments.

It imports `_socket` and `_signal`, as `socket` and `signal` would triple the time that it takes.
"""

import _signal
import _socket
import marshal
import os
import sys

if __name__ == "__main__":
    connection = _socket.socket(_socket.AF_UNIX)
    connection.connect(sys.argv[1])
    streams = b"".join(stream.to_bytes(4, sys.byteorder) for stream in (0, 1, 2))
    connection.sendmsg([b"."], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
    asked = {"python": sys.argv[2] == "1", "arguments": sys.argv[3:], "env": dict(os.environ), "cwd": os.getcwd()}
    connection.sendall(marshal.dumps(asked))

    def answer() -> int:
        """The number on the next line of the answers."""
        digits = b""
        while (byte := connection.recv(1)) not in (b"\n", b""):
            digits += byte
        return int(digits)

    pid = answer()
    _signal.signal(_signal.SIGINT, lambda number, _: os.kill(pid, number))
    code = answer()
    sys.exit(code if code >= 0 else 128 - code)
