"""Stands in for `tar2tf` or `python` in a shell: a server of forked processes, see `fork_server`, runs the command.

Run as a script with the path of the server's socket, 0 for `tar2tf` or 1 for `python`, and the arguments.
"""

import json
import os
import signal
import socket
import sys

if __name__ == "__main__":
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(sys.argv[1])
        socket.send_fds(connection, [b"."], [0, 1, 2])
        asked = {"python": sys.argv[2] == "1", "arguments": sys.argv[3:], "env": dict(os.environ), "cwd": os.getcwd()}
        connection.sendall(json.dumps(asked).encode() + b"\n")
        answers = connection.makefile("r")
        pid = int(answers.readline())
        signal.signal(signal.SIGINT, lambda number, _: os.kill(pid, number))
        code = int(answers.readline())
    sys.exit(code if code >= 0 else 128 - code)
