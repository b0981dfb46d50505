"""Run `tar2tf` with these arguments in one process, and print how many bytes it received from AIStore."""

from __future__ import annotations

import contextlib
import json
import sys

from tar2tf_cli.cli import main
from tar2tf_cli.stores.curl import Response

received = 0
take = Response._take


def counted(response: Response, data: bytes) -> int:
    global received
    received += len(data)
    return take(response, data)


Response._take = counted  # type: ignore[method-assign]
with contextlib.suppress(SystemExit):
    main(sys.argv[1:])
print(json.dumps({"received": received}))
