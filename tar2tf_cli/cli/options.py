"""The options that commands share, and the base class of all options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import click

__all__ = ["endpoint_option", "input_options", "option", "output_options", "words", "workers_option"]

F = TypeVar("F", bound=Callable[..., Any])


class _Option(click.Option):
    """An option that can also be set in the environment: TAR2TF_MAX_SHARD_SIZE for --max-shard-size."""

    def __init__(self, declarations: Sequence[str], **settings: Any) -> None:
        name = next((word for word in declarations if word.startswith("--")), declarations[-1]).partition("/")[0]
        super().__init__(declarations, envvar="TAR2TF_" + name.lstrip("-").upper().replace("-", "_"), **settings)


option = partial(click.option, cls=_Option)


class Choice(click.Choice):  # type: ignore[type-arg]
    """A choice of words; the error for any other word is the same as in a spec file."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in self.choices:
            from tar2tf_cli.errors import UsageError
            from tar2tf_cli.ops.rules import refusal

            raise UsageError(refusal(param.opts[-1] if param else "", value, self.choices))
        return str(value)


def words(*choices: str) -> dict[str, Any]:
    """Settings of an option that accepts one of a few words; the first is the default."""
    return {"type": Choice(choices), "default": choices[0], "show_default": True}


def _together(*options: Callable[[F], F]) -> Callable[[F], F]:
    """A decorator that adds a group of options, in this order."""

    def decorate(command: F) -> F:
        for decorator in reversed(options):
            command = decorator(command)
        return command

    return decorate


endpoint_option = option(
    "--endpoint",
    metavar="URL",
    help="Address of the store that holds BUCKET, such as AIStore's proxy.  [default: AIS_ENDPOINT, AWS_ENDPOINT_URL]",
)
workers_option = option(
    "-j", "--num-workers", type=click.IntRange(1), metavar="N", help="Number of worker processes.  [default: CPUs]"
)
input_options = _together(
    option(
        "--key-split",
        **words("first", "last"),
        help="Split a member's base name into key and extension at its first or its last dot.",
    ),
    option("--regroup", is_flag=True, help="Buffer each shard, so that members of a sample need not be adjacent."),
    option(
        "--ignore-missing-end",
        is_flag=True,
        help="Accept tars without end-of-archive blocks, which some writers omit.",
    ),
)
"""How shards are read."""
output_options = _together(
    option("--json", "as_json", is_flag=True, help="Print the result as one JSON document on standard output."),
    option("-q", "--quiet", is_flag=True, help="Print errors only."),
    option("-v", "--verbose", is_flag=True, help="Also print each shard."),
    option(
        "--progress/--no-progress",
        default=None,
        help="Show a progress bar, or nothing.  [default: a bar on a terminal, otherwise a line every 30 s]",
    ),
)
"""How a command reports its results."""
