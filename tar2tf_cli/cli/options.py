"""Options that commands share, and the types of their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

__all__ = ["SIZE", "endpoint_option", "input_options", "output_options", "workers_option"]

F = TypeVar("F", bound=Callable[..., Any])


class Size(click.ParamType):  # type: ignore[type-arg]
    """A size in bytes as humanfriendly reads it: 100MB is 10^8, 100MiB is binary."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from tar2tf_cli.errors import UsageError
        from tar2tf_cli.spec.conversion import parse_size

        try:
            return parse_size(value)
        except UsageError as error:
            self.fail(error.message, param, ctx)


SIZE = Size()

MAX_PIXELS = 2**27


endpoint_option = click.option(
    "--endpoint",
    metavar="URL",
    help="Where the store of BUCKET answers, such as AIStore's proxy.  [default: AIS_ENDPOINT, AWS_ENDPOINT_URL]",
)


def input_options(command: F) -> F:
    """How shards are read."""
    for option in reversed(
        [
            click.option(
                "--key-split",
                type=click.Choice(["first", "last"]),
                default="first",
                show_default=True,
                help="Split a member's base name into key and extension at its first or its last dot.",
            ),
            click.option(
                "--regroup", is_flag=True, help="Buffer each shard, so that members of one sample may stand apart."
            ),
            click.option(
                "--ignore-missing-end",
                is_flag=True,
                help="Accept tars without end-of-archive blocks, as some writers leave them.",
            ),
        ]
    ):
        command = option(command)
    return command


workers_option = click.option(
    "-j", "--num-workers", type=click.IntRange(1), metavar="N", help="Processes that work at once.  [default: CPUs]"
)


def output_options(command: F) -> F:
    """How a command reports."""
    for option in reversed(
        [
            click.option(
                "--json",
                "as_json",
                envvar="TAR2TF_JSON",
                is_flag=True,
                help="Print the result as one JSON document on standard output.",
            ),
            click.option("-q", "--quiet", is_flag=True, help="Print errors only."),
            click.option("-v", "--verbose", is_flag=True, help="Print each shard, too."),
            click.option(
                "--progress/--no-progress",
                default=None,
                help="Show a progress bar or nothing.  [default: a bar on a terminal, else a line every 30 s]",
            ),
        ]
    ):
        command = option(command)
    return command
