"""The command `tar2tf`, which is also `python -m tar2tf_cli`."""

from __future__ import annotations

import atexit
import gc
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final, NoReturn

__all__ = ["main"]

_NEW_OBJECTS: Final = 50_000
"""How many more containers than before make the garbage collector look for cycles: more than a short command makes."""


def main() -> NoReturn:
    """Run the command line; Ctrl-C while it is imported, or while an earlier one is reported, ends it at once."""
    gc.set_threshold(_NEW_OBJECTS)
    atexit.register(gc.freeze)  # the interpreter then ends without looking for cycles among all objects
    try:
        from tar2tf_cli.cli import main

        main()
    except KeyboardInterrupt:
        exec("")  # or CPython remembers one that came while it ran a string, and ends by the signal instead
        sys.exit(130)


if __name__ == "__main__":
    main()
