"""The `tar2tf` command: parses arguments, calls the library, prints, and turns errors into exit codes."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable
from functools import cached_property
from importlib import import_module
from itertools import pairwise
from typing import Any, Final, NoReturn

import click
from click.core import ParameterSource

from tar2tf_cli.errors import (
    Interrupted,
    ReaderGoneError,
    SinkError,
    Tar2tfError,
    UsageError,
    did_you_mean,
    remedy,
    to_tar2tf_error,
)
from tar2tf_cli.spec import __version__

_COMMANDS: Final = {
    "convert": ("convert", "Convert shards, image folders or tables to TFRecords or tars."),
    "inspect": ("inspect", "Show what tar and TFRecord shards contain."),
    "verify": ("verify", "Verify that TFRecord and tar shards are intact."),
    "diff": ("diff", "Compare two datasets sample by sample."),
    "explain": ("grammar", "Explain the codes of faults and errors."),
    "index": ("export", "Write an index next to each shard."),
    "export": ("export", "Describe shards for other readers."),
    "ops": ("grammar", "List the operations."),
    "schema": ("grammar", "Print the JSON Schema of spec files, for editors."),
    "etl": ("etl", "Convert inside an AIStore cluster, where the shards are."),
    "completion": ("grammar", "Print the script that completes words in your shell."),
}
"""The module that defines each command, and the command's line in the help of `tar2tf`, which imports none of them."""


def _show_help(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


class QuickOption(click.Option):
    """An option whose help has no indentation to remove, for which click would import `inspect`."""

    def __init__(self, *args: Any, help: str | None = None, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.help = help


class PlainCommand(click.Command):
    """A command without translated messages and without suggestions for `-o`, as click's imports for both take 2 ms."""

    @cached_property
    def _help(self) -> click.Option:
        text = "Show this message and exit."
        flag = {"is_flag": True, "expose_value": False, "is_eager": True}
        return QuickOption(["-h", "--help"], help=text, callback=_show_help, **flag)

    def get_help_option(self, ctx: click.Context) -> click.Option:
        return self._help

    def make_parser(self, ctx: click.Context) -> Any:
        parser = super().make_parser(ctx)
        parser._long_opt |= parser._short_opt
        return parser


class CommandGroup(PlainCommand, click.Group):
    """A group that lists its commands in the order of their definition, and suggests one for a mistyped name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in known:
            raise click.UsageError(f"there is no command {args[0]!r}{did_you_mean(args[0], known)}", ctx)
        return super().resolve_command(ctx, args)


class _LazyGroup(CommandGroup):
    """A group that imports a command's module only when that command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"tar2tf_cli.cli.{_COMMANDS[cmd_name][0]}"), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = [click.Command(name, help=text) for name, (_, text) in _COMMANDS.items()]
        CommandGroup(commands=commands).format_commands(ctx, formatter)


def _print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    import platform
    from importlib.metadata import PackageNotFoundError, version

    from tar2tf_cli.formats import kernel

    def named(name: str) -> str:
        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            return f"{name} not installed"

    click.echo(f"tar2tf {__version__}, Python {platform.python_version()}")
    click.echo(", ".join(named(name) for name in ("tensorflow", "google-crc32c", "isal")))
    click.echo(kernel.described())
    ctx.exit()


_CONTEXT: Final = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 110,
    "token_normalize_func": lambda name: name.replace("_", "-"),  # `--num_shards`, as older scripts write it
}


@click.group(cls=_LazyGroup, context_settings=_CONTEXT)
@click.option(
    "--version",
    cls=QuickOption,
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Show versions and exit.",
)
def cli() -> None:
    """Turn shards of samples (tar, tar.gz) into TFRecord shards, and verify that both are intact.

    \b
    tar2tf convert shards 'train-{0000..0146}.tar' -o 'out/train-<>.record'
    tar2tf inspect out
    tar2tf verify out/_train-manifest.json
    """


def all_commands() -> dict[str, click.Command]:
    """Return every command by its words, such as `etl serve`."""
    commands: dict[str, click.Command] = {}
    for name in _COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        inner = command.commands if isinstance(command, click.Group) else {}
        commands |= {f"{name} {word}": item for word, item in inner.items()} or {name: command or cli}
    return commands


VARIABLES: Final = (
    "TAR2TF_PURE",
    "TAR2TF_MIN_RATE",
    "TAR2TF_CHECK_ETAG",
    "TAR2TF_ETL_SETTINGS",
    "TAR2TF_ETL_FOR_A_RUN",
    "TAR2TF_ETL_NODES",
    "TAR2TF_MOUNT_PATHS",
)
"""Environment variables of tar2tf that belong to no option."""


def _check_variables() -> None:
    """Raise an error for an environment variable that looks like a mistyped one of tar2tf, as it has no effect."""
    given = [name for name in os.environ if name.startswith("TAR2TF_") and name not in VARIABLES]
    if not given:
        return
    from difflib import get_close_matches

    options = [str(param.envvar or "") for command in all_commands().values() for param in command.params]
    known = [name.removeprefix("TAR2TF_") for name in (*options, *VARIABLES) if name]
    for name in given:
        near = get_close_matches(name.removeprefix("TAR2TF_"), known, 1, 0.75)
        if near and name.removeprefix("TAR2TF_") not in known:
            raise UsageError(f"there is no variable {name}; did you mean TAR2TF_{near[0]}?", hint="unset or rename it")


def main(args: list[str] | None = None) -> NoReturn:
    """Run the command line and exit: 0 done, 1 findings, 2 usage, 3 input or output failed, 130 interrupted.

    If the reader of the output has closed its pipe, exit with 141 and print nothing, like other tools.
    """
    _fill_standard_streams()
    failure: Tar2tfError
    try:
        code = _run(args)
        sys.stdout.flush()
        sys.exit(code)
    except KeyboardInterrupt:
        exec("")  # or CPython remembers one that came while it ran a string, and ends by the signal instead
        failure = Interrupted("interrupted", hint="run it again; a conversion to files continues where it stopped")
    except (BrokenPipeError, ReaderGoneError):
        _drop_output()
        sys.exit(ReaderGoneError.exit_code)
    except io.UnsupportedOperation:
        failure = SinkError("standard output is closed")
    except OSError as error:
        unnamed = "the current directory" if isinstance(error, FileNotFoundError) else "standard output"
        failure = SinkError(f"{error.strerror or error}", shard=error.filename or unnamed, hint=remedy(error))
        _drop_output()
    except Exception as error:
        ours = to_tar2tf_error(error)
        if ours is None:
            raise
        failure = ours
    from tar2tf_cli.cli.output import message, print_error, print_failure

    if isinstance(failure, Interrupted):
        message("")  # a terminal shows ^C in the line
    print_error(failure)
    if _wants_json(sys.argv[1:] if args is None else args):
        print_failure(failure)
    sys.exit(failure.exit_code)


def _wants_json(args: list[str]) -> bool:
    """Whether a command line asks for JSON, even if it cannot be parsed; records on standard output exclude it."""
    options = args[: args.index("--")] if "--" in args else args
    if {"-o-", "--output=-"} & {*options} or ("-o", "-") in pairwise(options) or ("--output", "-") in pairwise(options):
        return False
    if "--json" in options or "--json-lines" in options:
        return True
    command = cli.get_command(click.Context(cli), args[0]) if args else None
    named = any(param.name == "as_json" for param in command.params) if command else False
    return named and os.environ.get("TAR2TF_JSON", "").lower() in ("1", "true", "t", "yes", "y", "on")


def _fill_standard_streams() -> None:
    """Open closed standard streams, so that no other file gets their descriptors, and escape unprintable names.

    Writing to a closed standard output raises an error, so that no output is lost silently.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free descriptor, which is this one
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, closefd=False)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _drop_output() -> None:
    """Discard the buffer of standard output, which the interpreter would otherwise report at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _run(args: list[str] | None) -> int:
    """Run the command line without click's own `main`, which exits with 1 when the reader of the output is gone."""
    if "_TAR2TF_COMPLETE" in os.environ:
        cli.get_command(click.Context(cli), "completion")  # whose module adds the shells
        cli.main(prog_name="tar2tf")  # which answers, and exits
    _check_variables()
    try:
        with cli.make_context("tar2tf", list(sys.argv[1:] if args is None else args)) as context:
            return int(cli.invoke(context) or 0)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):
            error.show()
            return error.exit_code
        at = getattr(error, "ctx", None)
        hint = f"see {at.command_path if at else 'tar2tf'} -h"
        raise UsageError(_message(error, at), hint=hint) from None


def label(param: click.Parameter, context: click.Context | None) -> str:
    """Return the names of an option, and the environment variable if its value comes from one."""
    source = context.get_parameter_source(param.name or "") if context else None
    return "/".join(param.opts) + (f" ({param.envvar})" if source is ParameterSource.ENVIRONMENT else "")


_OLD_OPTIONS: Final = {
    "--input-dir": "the folder itself: --from imagefolder DIR",
    "--output-dir": "-o 'OUT/train-<00000>-of-<total>'",
    "--output-directory": "-o 'OUT/train-<00000>-of-<total>'",
    "--num-images": "--shuffle --limit N",
    "--img-size": "--image-size N",
    "--num-threads": "-j N",
    "--train-directory": "the folder itself: --from imagefolder DIR",
    "--train-shards": "--num-shards N",
    "--validation-directory": "a second command for that folder",
    "--validation-shards": "--num-shards N in a second command",
    "--labels-file": "--labels FILE",
    "--imagenet-metadata-file": "--labels FILE",
}
"""Options of the DLBS ImageNet scripts, each with its replacement."""


def _near_option(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean '--limit'?`, or "" if no option is similar; leading dashes are not compared."""
    words = {option.lstrip("-"): option for option in known if option.startswith("--")}
    near = did_you_mean(name.lstrip("-"), words, least=0.7)
    return near.replace("'", "'--", 1) if near and name.startswith("--") else ""


def _message(error: click.ClickException, context: click.Context | None) -> str:
    """Return the message of a Click error in the wording of tar2tf's errors."""
    if isinstance(error, click.NoSuchOption):
        params = context.command.get_params(context) if context else []
        known = [name for param in params for name in (*param.opts, *param.secondary_opts) if name.startswith("-")]
        now = _OLD_OPTIONS.get(error.option_name) if context and context.command.name == "convert" else None
        answer = f"; write {now}" if now else _near_option(error.option_name, known)
        return f"there is no option {error.option_name!r}{answer}"
    if isinstance(error, click.MissingParameter) and error.param:
        return f"no {error.param.name} is given"
    if isinstance(error, click.BadParameter) and error.param:
        return f"{label(error.param, context)}: {error.message.rstrip('.')}"
    text = error.format_message().rstrip(".")
    return text[:1].lower() + text[1:]
