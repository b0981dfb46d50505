"""The options that commands share, how they are grouped in the help, and the base class of all options."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from tar2tf_cli.cli import Quick, label
from tar2tf_cli.ops import rules

if TYPE_CHECKING:
    from tar2tf_cli.spec.urls import Reach

F = TypeVar("F", bound=Callable[..., Any])

GROUPS: Final = ("Input", "Samples", "Features", "Output", "Running")
"""The groups of options, in the order in which help and man page show them."""


def completing(what: str) -> Callable[..., Any]:
    """Return what click calls to complete a value: the function of this name in `proposals`, imported when needed."""

    def propose(ctx: click.Context, param: click.Parameter, incomplete: str) -> Any:
        from tar2tf_cli.cli import proposals

        return getattr(proposals, what)(incomplete)

    return propose


_PATHS: Final = ("PATH", "FILE", "DIR")
"""Metavars of options whose value is a local path, which shells complete."""


class _Option(click.Option):
    """An option that can also be set in the environment: TAR2TF_MAX_SHARD_SIZE for --max-shard-size.

    It is declared as in the help, with its metavar: "--max-shard-size SIZE".

    Attributes:
        group: the group that it belongs to, one of `GROUPS`.
        more: what the man page says after the help text.
    """

    def __init__(self, declarations: Sequence[str], *, group: str = "Running", more: str = "", **settings: Any) -> None:
        names = [word.partition(" ")[0] for word in declarations]
        metavar = next((word.partition(" ")[2] for word in declarations if " " in word), None)
        if metavar in _PATHS:
            settings.setdefault("shell_complete", completing("files"))
        name = next((name for name in names if name.startswith("--")), names[-1]).partition("/")[0]
        variable = "TAR2TF_" + name.lstrip("-").upper().replace("-", "_")
        super().__init__(names, metavar=metavar, envvar=variable, **settings)
        self.group = group
        self.more = more


option = partial(click.option, cls=_Option)
input_option = partial(option, group="Input")
sample_option = partial(option, group="Samples")
feature_option = partial(option, group="Features")
output_option = partial(option, group="Output")


def _argument(name: str, **settings: Any) -> Callable[[F], F]:
    return click.argument(name, shell_complete=completing("files"), **settings)


def shards_arguments(*, required: bool = True) -> Callable[[F], F]:
    """The arguments BUCKET and TEMPLATE."""
    return together(_argument("bucket", required=required), _argument("template", nargs=-1))


_SECOND_NAME: Final = re.compile(r" / --no-\S+")


class Command(Quick):
    """A command whose help shows its options in groups, one line each.

    Args:
        terms: called for further lines of the help, as pairs of a term and its meaning, by the option above them.
    """

    def __init__(
        self, *args: Any, terms: Callable[[], dict[str, Iterable[tuple[str, str]]]] = dict, **settings: Any
    ) -> None:
        super().__init__(*args, **settings)
        self._terms = terms

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # so that the hint names this command
            raise

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the groups without blank lines between them, so that a page holds them."""
        groups = {group: list(self._lines(params, ctx)) for group, params in grouped(self.get_params(ctx)).items()}
        width = max(len(term) for lines in groups.values() for term, _ in lines)
        formatter.write_paragraph()
        for group, lines in groups.items():
            formatter.write_heading(group if len(groups) > 1 else "Options")
            with formatter.indentation():
                formatter.write_dl([(f"{term:{width}}", meaning) for term, meaning in lines], col_max=width)

    def _lines(self, params: Iterable[click.Parameter], ctx: click.Context) -> Iterator[tuple[str, str]]:
        terms = self._terms()
        for param in params:
            if record := param.get_help_record(ctx):
                yield _SECOND_NAME.sub(" / --no-…", record[0]), record[1]
                yield from ((f" {term}", meaning) for term, meaning in terms.get(param.opts[-1], ()))


def grouped(params: Iterable[click.Parameter]) -> dict[str, list[click.Parameter]]:
    """Return the options of a command by group, without empty groups."""
    groups: dict[str, list[click.Parameter]] = {group: [] for group in GROUPS}
    for param in params:
        if isinstance(param, click.Option):
            groups[getattr(param, "group", GROUPS[-1])].append(param)
    return {group: found for group, found in groups.items() if found}


class Words(click.Choice):  # type: ignore[type-arg]
    """A choice of words; the error for any other word is the same as in a spec file."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value in self.choices:
            return str(value)
        return str(_checked(rules.one_of(*self.choices), value, param, ctx))


class _Number(click.ParamType):  # type: ignore[type-arg]
    """A number; the error for anything else is the same as in a spec file.

    Args:
        name: what the value is called in the help.
        rule: what a value has to be.
    """

    def __init__(self, name: str, rule: Callable[[Any, str], Any]) -> None:
        self.name = name
        self._rule = rule

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return _checked(self._rule, value, param, ctx)


whole_number = _Number("N", rules.whole_number(1, 2**63 - 1))
seconds = _Number("SECONDS", rules.seconds)


class _NewFile(click.ParamType):  # type: ignore[type-arg]
    """The path of a file to be written besides what is printed, refused before hours of work if it cannot be."""

    name = "FILE"

    def __init__(self, *, folder_is_there: bool = True) -> None:
        self._folder_is_there = folder_is_there

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value == "-":
            self.fail("- is not the name of a file: standard output is used for other text", param, ctx)
        folder = os.path.dirname(value)
        if self._folder_is_there and folder and not os.path.isdir(folder):
            self.fail(f"there is no folder {folder!r}", param, ctx)
        if os.path.isfile(value) and not _is_text(value):
            self.fail(f"{value!r} exists and is not text; name another file", param, ctx)
        return str(value)


def _is_text(path: str) -> bool:
    """Whether a file is text, as all are that such options write, and no shards are."""
    try:
        with open(path, encoding="utf-8") as file:
            return "\0" not in file.read(512)
    except UnicodeDecodeError:
        return False
    except OSError:  # which writing it will name
        return True


new_file, new_file_in_output = _NewFile(), _NewFile(folder_is_there=False)


def _checked(
    rule: Callable[[Any, str], Any], value: Any, param: click.Parameter | None, ctx: click.Context | None
) -> Any:
    return rules.accepted(rule, value, label(param, ctx) if param else "")


def words(*choices: str) -> dict[str, Any]:
    """Settings of an option that accepts one of a few words; the first is the default."""
    return {"type": Words(choices), "default": choices[0], "show_default": True}


def together(*options: Callable[[F], F]) -> Callable[[F], F]:
    """A decorator that adds a group of options, in this order."""

    def decorate(command: F) -> F:
        for decorator in reversed(options):
            command = decorator(command)
        return command

    return decorate


store_options = together(
    input_option(
        "--endpoint URL",
        help="Address of the store that holds BUCKET.",
        more="Such as that of AIStore's proxy or of your own S3 server; by default AIS_ENDPOINT or AWS_ENDPOINT_URL.",
    ),
    input_option(
        "--no-sign-request",
        is_flag=True,
        help="Read a public bucket without credentials.",
        more="For buckets of S3, GCS and Azure.",
    ),
)
"""How the store of a bucket is reached."""


def reach_of(options: Mapping[str, Any]) -> Reach:
    """Return the values of the store options as arguments."""
    return {name: options[name] for name in ("endpoint", "retry_for", "no_sign_request")}  # type: ignore[return-value]


work_options = together(
    option("-j", "--num-workers N", type=whole_number, help="Number of worker processes.  [default: CPUs]"),
    option(
        "--retry-for SECONDS",
        type=seconds,
        help="Time to repeat failed requests.  [default: 60]",
        more="Requests are repeated until there has been no progress for this many seconds.",
    ),
)
"""How the work is done."""
tar_options = together(
    input_option(
        "--key-split",
        **words("first", "last"),
        help="Dot at which a key ends.",
        more="A member's base name is split into key and extension at its first dot, as by WebDataset, or at its last.",
    ),
    input_option(
        "--regroup/--no-regroup",
        default=None,
        help="Join members that are not adjacent, or refuse.",
        more="By default a shard is read again to put its samples together when a key appears again; standard input "
        "cannot be read again. --regroup does so from the start; --no-regroup makes such a key an error.",
    ),
    input_option(
        "--ignore-missing-end",
        is_flag=True,
        help="Accept tars without end-of-archive blocks.",
        more="Some writers omit them, but a tar that was cut off between two members looks the same.",
    ),
)
"""How shards are read."""
report_options = together(
    option("--json", "as_json", is_flag=True, help="Print the result as JSON on standard output."),
    option("-q", "--quiet", is_flag=True, help="Print errors only."),
    option("-v", "--verbose", is_flag=True, help="Also print each shard."),
    option(
        "--progress/--no-progress",
        default=None,
        help="Show a progress bar, or nothing.",
        more="The default is a bar on a terminal, and elsewhere a line every 30 seconds.",
    ),
)
"""How a command reports its results."""
