"""Run `tar2tf` with these arguments in one process, and print how many bytes it received from AIStore."""

from __future__ import annotations

import contextlib
import json
import sys

from tar2tf_cli.cli import main
from tar2tf_cli.stores.curl import Received

received = 0
add = Received.add


def counted(held: Received, data: bytes) -> None:
    global received
    received += len(data)
    add(held, data)


Received.add = counted  # type: ignore[method-assign]
with contextlib.suppress(SystemExit):
    main(sys.argv[1:])
print(json.dumps({"received": received}))
