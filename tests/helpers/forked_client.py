"""Stands in for `tar2tf` in a shell: a server of forked processes, see `forked`, runs the command with these streams.

Run as a script with the path of the server's socket and the arguments.
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
        asked = {"arguments": sys.argv[2:], "env": dict(os.environ), "cwd": os.getcwd(), "code": None}
        connection.sendall(json.dumps({**asked, "file_size": None}).encode() + b"\n")
        answers = connection.makefile("r")
        pid = int(answers.readline())
        signal.signal(signal.SIGINT, lambda number, _: os.kill(pid, number))
        code = int(answers.readline())
    sys.exit(code if code >= 0 else 128 - code)
