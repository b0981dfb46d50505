"""Options that commands share, and what the options of `convert` say of its spec."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from tar2tf_cli.spec.conversion import Conversion

__all__ = ["Choice", "conversion_of", "endpoint_option", "input_options", "output_options", "workers_option"]

F = TypeVar("F", bound=Callable[..., Any])


class Choice(click.Choice):  # type: ignore[type-arg]
    """A few words to choose from, refused in the words of the spec."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in self.choices:
            from tar2tf_cli.errors import UsageError
            from tar2tf_cli.spec.fields import refusal

            raise UsageError(refusal(param.opts[-1] if param else "", value, self.choices))
        return str(value)


endpoint_option = click.option(
    "--endpoint",
    metavar="URL",
    help="Address of the store that holds BUCKET, such as AIStore's proxy.  [default: AIS_ENDPOINT, AWS_ENDPOINT_URL]",
)


def input_options(command: F) -> F:
    """How shards are read."""
    for option in reversed(
        [
            click.option(
                "--key-split",
                type=Choice(["first", "last"]),
                default="first",
                show_default=True,
                help="Split a member's base name into key and extension at its first or its last dot.",
            ),
            click.option(
                "--regroup",
                is_flag=True,
                help="Buffer each shard: members of a sample need not be adjacent.",
            ),
            click.option(
                "--ignore-missing-end",
                is_flag=True,
                help="Accept tars without end-of-archive blocks, which some writers omit.",
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


_PATHS: Final = ("bucket", "path", "labels")
"""A path with <> has to be quoted, and then the shell leaves ~ alone."""


def conversion_of(context: click.Context) -> Conversion:
    """The conversion that the options of `convert` mean: flags over environment over spec file."""
    from tar2tf_cli.spec.conversion import Conversion
    from tar2tf_cli.spec.yaml_file import SECTIONS, build, read, spec_fields

    flags: dict[str, Any] = {section: {} for section in SECTIONS}
    labels = {param.name: param.opts[-1] for param in context.command.params}
    for section, kind in {**SECTIONS, "": Conversion}.items():
        for key, field in spec_fields(kind).items():
            value = context.params.get(field.name)
            default = context.get_parameter_source(field.name) in (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP)
            if value not in (None, ()) and not default:
                value = os.path.expanduser(value) if field.name in _PATHS else value
                flags.get(section, flags)[key] = field.check(value, labels[field.name])
    path = context.params["spec_path"]
    return read(path, flags) if path else build(flags)
