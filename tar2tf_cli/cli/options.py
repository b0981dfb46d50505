"""The options that commands share, how they are grouped in the help, and the base class of all options."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import click
from click.core import ParameterSource

from tar2tf_cli.cli import PlainCommand, QuickOption, label

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from tar2tf_cli.plugins import PluginGroup

F = TypeVar("F", bound=Callable[..., Any])

_RulePicker: TypeAlias = "Callable[[Any], Callable[[Any, str], Any]]"
"""A function that picks a rule from the module `spec.rules`, which is imported only when needed."""

GROUPS: Final = ("Input", "Samples", "Features", "Output", "Running")
"""The groups of options, in the order in which help and man page show them."""


Proposals: TypeAlias = "list[CompletionItem[str]]"
"""Completions that the shell proposes for a value on the command line."""


def propose_files(ctx: click.Context, param: click.Parameter, incomplete: str) -> Proposals:
    """Propose local files and folders, which the shell lists."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def propose_labels(ctx: click.Context, param: click.Parameter, incomplete: str) -> Proposals:
    """Propose `imagenet`, files and folders; after NAME=, also `auto`."""
    name, equals, _ = incomplete.rpartition("=")
    words = {"imagenet": "ImageNet-1k", **({"auto": "all values, sorted"} if equals else {})}
    named = ((f"{name}{equals}{word}", help) for word, help in words.items())
    return [*_beginning(incomplete, named), *propose_files(ctx, param, incomplete)]


def propose_presets(ctx: click.Context, param: click.Parameter, incomplete: str) -> Proposals:
    """Propose presets by name."""
    from tar2tf_cli.plugins import preset_names

    return _beginning(incomplete, ((name, "") for name in preset_names()))


def propose_types(ctx: click.Context, param: click.Parameter, incomplete: str) -> Proposals:
    """Propose a type after NAME=."""
    from tar2tf_cli.features.feature_map import TYPES

    name, equals, _ = incomplete.rpartition("=")
    return _beginning(incomplete, ((f"{name}={kind}", "") for kind in TYPES if equals))


def propose_op_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> Proposals:
    """Propose ops by name."""
    from tar2tf_cli.ops import OPS
    from tar2tf_cli.ops.base import summary

    return _beginning(incomplete, ((name, summary(op)) for name, op in OPS.items()))


def propose_ops(ctx: click.Context, param: click.Parameter, incomplete: str) -> Proposals:
    """Propose an op or, after its name, the allowed words of its next field."""
    from dataclasses import fields, is_dataclass

    from tar2tf_cli.ops import OPS
    from tar2tf_cli.ops.base import summary

    name, colon, text = incomplete.partition(":")
    if not colon:
        named = ((f"{op.name}:" if op.usage != op.name else op.name, summary(op)) for op in OPS.values())
        return _beginning(incomplete, named)
    op, before = OPS.get(name), incomplete.rpartition(",")[0]
    names: list[str] = [field.name for field in fields(op)] if op and is_dataclass(op) else []
    place = text.count(",")
    if not op or not 0 < place < len(names):
        return propose_files(ctx, param, incomplete) if name == "func" else []
    words = op.checks[names[place]].schema.get("enum")
    return _beginning(incomplete, ((f"{before},{word}", "") for word in (words if isinstance(words, list) else ())))


def _beginning(incomplete: str, named: Iterable[tuple[str, str]]) -> Proposals:
    """Return the proposals that begin with the typed text."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(name, help=help or None) for name, help in named if name.startswith(incomplete)]


_PATHS: Final = ("PATH", "FILE", "DIR")
"""Metavars of options whose value is a local path, which shells complete."""


class _Option(QuickOption):
    """An option that can also be set in the environment: TAR2TF_MAX_SHARD_SIZE for --max-shard-size.

    The declaration includes the metavar, as in the help: "--max-shard-size SIZE".

    Attributes:
        group: its group in the help, one of `GROUPS`.
        more: text that the man page adds to the help text.
    """

    def __init__(self, declarations: Sequence[str], *, group: str = "Running", more: str = "", **settings: Any) -> None:
        names, long, metavar = list[str](), "", None
        for word in declarations:
            name, space, text = word.partition(" ")
            names.append(name)
            if space:
                metavar = text
            if not long.startswith("--"):
                long = name
        if metavar in _PATHS:
            settings.setdefault("shell_complete", propose_files)
        variable = "TAR2TF_" + long.partition("/")[0].lstrip("-").upper().replace("-", "_")
        super().__init__(names, metavar=metavar, envvar=variable, **settings)
        self.group = group
        self.more = more


option = partial(click.option, cls=_Option)
input_option = partial(option, group="Input")
sample_option = partial(option, group="Samples")
feature_option = partial(option, group="Features")
output_option = partial(option, group="Output")


def argument(name: str, **settings: Any) -> Callable[[F], F]:
    """Add an argument that is a path or URL."""
    return click.argument(name, shell_complete=propose_files, **settings)


def shards_arguments(*, required: bool = True) -> Callable[[F], F]:
    """Add the arguments BUCKET and TEMPLATE."""
    return option_group(argument("bucket", required=required), argument("template", nargs=-1))


_MOST_TERM: Final = 26
"""Width of the column of options in the help; a longer option shifts only its own line."""

_SECOND_NAME: Final = r" / --no-\S+"


class Command(PlainCommand):
    """A command whose help shows its options in groups, one line each.

    Args:
        terms: returns further lines of the help, as pairs of a term and its meaning, by the option that they follow.
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
        """Write the groups of options without blank lines between them, so that they fit on one page."""
        groups = {group: list(self._lines(params, ctx)) for group, params in grouped(self.get_params(ctx)).items()}
        lengths = [len(term) for lines in groups.values() for term, _ in lines]
        width = max(length for length in lengths if length <= _MOST_TERM)
        formatter.write_paragraph()
        for group, lines in groups.items():
            formatter.write_heading(group if len(groups) > 1 else "Options")
            with formatter.indentation():
                for term, meaning in lines:
                    column = max(width, len(term))
                    formatter.write_dl([(f"{term:{column}}", meaning)], col_max=column)

    def _lines(self, params: Iterable[click.Parameter], ctx: click.Context) -> Iterator[tuple[str, str]]:
        terms = self._terms()
        for param in params:
            if record := param.get_help_record(ctx):
                yield re.sub(_SECOND_NAME, " / --no-…", record[0]), record[1]
                yield from ((f" {term}", meaning) for term, meaning in terms.get(param.opts[-1], ()))


def grouped(params: Iterable[click.Parameter]) -> dict[str, list[click.Parameter]]:
    """Return the options of a command by group, without empty groups."""
    groups: dict[str, list[click.Parameter]] = {group: [] for group in GROUPS}
    for param in params:
        if isinstance(param, click.Option):
            groups[getattr(param, "group", GROUPS[-1])].append(param)
    return {group: options for group, options in groups.items() if options}


class NameChoice(click.Choice):  # type: ignore[type-arg]
    """An option value out of some words or names of plugins, with the errors of a spec file.

    Args:
        choices: the words.
        plugins: the kind of plugins whose names are also accepted.
    """

    def __init__(self, choices: Sequence[str], plugins: PluginGroup | None = None) -> None:
        super().__init__(choices)
        self.plugins = plugins

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str | None:
        """Name the choices of an option: `error|skip`."""
        if isinstance(param, click.Option):
            return "|".join(self.choices)
        return super().get_metavar(param, *([ctx] if ctx else []))  # which later versions of click pass

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value in self.choices:
            return str(value)
        return str(_checked(lambda rules: rules.one_of(*self.choices, plugins=self.plugins), value, param, ctx))


class _NumberType(click.ParamType):  # type: ignore[type-arg]
    """An option value that is a number, with the errors of a spec file.

    Args:
        name: the name of the value in the help.
        rule: returns the rule of spec files for the value.
    """

    def __init__(self, name: str, rule: _RulePicker) -> None:
        self.name = name
        self._rule = rule

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        return _checked(self._rule, value, param, ctx)


whole_number = _NumberType("N", lambda rules: rules.whole_number(1, 2**63 - 1))
seconds = _NumberType("SECONDS", lambda rules: rules.seconds)


class _NewFile(click.ParamType):  # type: ignore[type-arg]
    """An option value that is the path of a file to write, checked before hours of work begin."""

    name = "FILE"

    def __init__(self, *, folder_is_there: bool = True) -> None:
        self._folder_is_there = folder_is_there

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value == "-":
            self.fail("name a file: - (standard output) is used for other text", param, ctx)
        folder = os.path.dirname(value)
        if self._folder_is_there and folder and not os.path.isdir(folder):
            self.fail(f"there is no folder {folder!r}", param, ctx)
        if os.path.isfile(value) and not _is_text(value):
            self.fail(f"{value!r} exists and is not text; name another file", param, ctx)
        return str(value)


def _is_text(path: str) -> bool:
    """Whether a file is text, as are all files that `_NewFile` options write, and no shards."""
    try:
        with open(path, "rb") as file:
            return b"\0" not in file.read(512)
    except OSError:  # writing will raise an error that names it
        return True


new_file, new_file_in_output = _NewFile(), _NewFile(folder_is_there=False)


def _checked(rule: _RulePicker, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
    from tar2tf_cli.ops import rules  # imported here, as it takes 7 ms that help and completion save

    return rules.accepted(rule(rules), value, label(param, ctx) if param else "")


def choice_settings(*choices: str, plugins: PluginGroup | None = None) -> dict[str, Any]:
    """Return click settings of an option that accepts one of a few words; the first is the default."""
    return {"type": NameChoice(choices, plugins), "default": choices[0], "show_default": True}


def option_group(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Combine options into one decorator that adds them in this order."""

    def decorate(command: F) -> F:
        for decorator in reversed(options):
            command = decorator(command)
        return command

    return decorate


store_options = option_group(
    input_option(
        "--endpoint URL",
        help="Address of the store that holds BUCKET.",
        more="For example, AIStore's proxy or your own S3 server. The default is AIS_ENDPOINT or AWS_ENDPOINT_URL.",
    ),
    input_option(
        "--no-sign-request",
        is_flag=True,
        help="Read a public bucket without credentials.",
        more="For buckets of S3, GCS and Azure.",
    ),
)
"""Options for the connection to the store of a bucket."""


retry_option = option(
    "--retry-for SECONDS",
    type=seconds,
    help="How long to retry requests.  [default: 60]",
    more="Failed requests are repeated until nothing has arrived for this many seconds.",
)
json_option = option("--json", "as_json", is_flag=True, help="Print the result as JSON on standard output.")
quiet_option = option("-q", "--quiet", is_flag=True, help="Print errors only.")
key_split_option = input_option(
    "--key-split",
    **choice_settings("first", "last"),
    help="Split names at first/last dot.",
    more="The part of a member's base name before this dot belongs to the key, and the part after it is the "
    "extension. WebDataset splits at the first dot.",
)
work_options = option_group(
    option("-j", "--num-workers N", type=whole_number, help="Number of worker processes.  [default: CPUs]"),
    retry_option,
)
"""Options for workers and caches."""
tar_options = option_group(
    key_split_option,
    input_option(
        "--regroup/--no-regroup",
        default=None,
        help="Regroup split samples, or reject them.",
        more="The members of a split sample are not adjacent in the tar. By default, a shard with such samples is read "
        "again to regroup them, which standard input does not allow. --regroup regroups from the start; --no-regroup "
        "makes them an error.",
    ),
    input_option(
        "--ignore-missing-end",
        is_flag=True,
        help="Accept tars without end-of-archive blocks.",
        more="Some writers omit these blocks, but a tar that was cut off between two members looks the same.",
    ),
)
"""Options for reading shards."""
report_options = option_group(
    json_option,
    quiet_option,
    option("-v", "--verbose", is_flag=True, help="Also print each shard."),
    option(
        "--progress/--no-progress",
        default=None,
        help="Show a progress bar, or nothing.",
        more="The default is a bar on a terminal, and a line every 30 seconds elsewhere.",
    ),
)
"""Options for the output of a command."""


# --- Options of `verify`, `inspect` and `diff` ---

FOR_KEYS: Final = "One per line, as convert --keys reads them."
"""The last sentence in the help of an option that writes a list of keys."""

common_options = option_group(work_options, tar_options, store_options, report_options)


def reading_arguments(options: dict[str, Any]) -> dict[str, Any]:
    """Return the library's arguments for reading shards from the options of a command."""
    from tar2tf_cli.inputs.tar_samples import TarRules

    rules = TarRules(options["key_split"], options["regroup"], options["ignore_missing_end"])
    return {"rules": rules, **{name: options[name] for name in ("endpoint", "retry_for", "no_sign_request")}}


def choose_json(options: dict[str, object]) -> None:
    """Check that only one of --json and --json-lines is set; a flag overrides the other's environment variable."""
    if options["as_json"] and options["json_lines"]:
        source = click.get_current_context().get_parameter_source
        if source("as_json") is source("json_lines"):
            raise click.UsageError("--json and --json-lines cannot be combined: use one of them")
        options["as_json"] = source("as_json") is ParameterSource.COMMANDLINE


def check_files(flags: dict[str, str], options: dict[str, Any]) -> None:
    """Check that no two flags name the same file to write."""
    paths: dict[str, str] = {}
    for flag, name in flags.items():
        if options[name]:
            first = paths.setdefault(os.path.abspath(options[name]), flag)
            if first != flag:
                raise click.UsageError(f"{first} and {flag} name the same file; name two files")
