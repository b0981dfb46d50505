"""The command `tar2tf`, which is also `python -m tar2tf_cli`."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

__all__ = ["main"]


def main() -> NoReturn:
    """Run the command line; Ctrl-C while it is imported, or while an earlier one is reported, ends it at once."""
    try:
        from tar2tf_cli.cli import main

        main()
    except KeyboardInterrupt:
        exec("")  # or CPython remembers one that came while it ran a string, and ends by the signal instead
        sys.exit(130)


if __name__ == "__main__":
    main()
