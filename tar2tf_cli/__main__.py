"""`python -m tar2tf_cli` is the command `tar2tf`."""

from __future__ import annotations

from tar2tf_cli.cli import main

main()
