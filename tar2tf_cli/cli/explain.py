"""`tar2tf explain CODE`: prints the meaning and causes of a fault, and its remedies."""

from __future__ import annotations

import click

from tar2tf_cli.cli.options import Command, Proposals, json_option, option
from tar2tf_cli.cli.output import echo, print_json
from tar2tf_cli.errors import UsageError, did_you_mean


def _propose_codes(ctx: click.Context, param: click.Parameter, incomplete: str) -> Proposals:
    """Propose codes of faults to the shell."""
    from click.shell_completion import CompletionItem

    from tar2tf_cli.checking.codes import EXPLANATIONS

    named = EXPLANATIONS.items()
    return [CompletionItem(code, help=about.means) for code, about in named if code.startswith(incomplete)]


@click.command("explain", cls=Command)
@click.argument("code", nargs=-1, shell_complete=_propose_codes)
@option("--all", "every", is_flag=True, help="Explain every code.")
@json_option
def explain(code: tuple[str, ...], every: bool, as_json: bool) -> int:
    """Explain the codes of faults and errors.

    A code is the word in parentheses at the end of a fault or error, such as (data_crc), and `kind` in JSON.

    \b
    tar2tf explain data_crc
    tar2tf explain truncated not_adjacent
    tar2tf explain --all --json
    """
    from tar2tf_cli.checking.codes import EXPLANATIONS

    codes = tuple(EXPLANATIONS) if every else tuple(word.strip("()") for word in code)
    if bool(code) == every:
        raise click.UsageError("name a code, such as data_crc, or pass --all")
    for one in codes:
        if one not in EXPLANATIONS:
            raise UsageError(
                f"there is no code {one!r}{did_you_mean(one, EXPLANATIONS)}", hint="--all explains every code"
            )
    if as_json:
        print_json([EXPLANATIONS[one].to_json(one) for one in codes])
        return 0
    for place, one in enumerate(codes):
        _print(one, blank=place > 0)
    return 0


def _print(code: str, *, blank: bool) -> None:
    from tar2tf_cli.checking.codes import EXPLANATIONS

    about = EXPLANATIONS[code]
    if blank:
        echo("")
    for text in (f"{code}: {about.means}", "", about.causes, "", about.remedy):
        for line in click.wrap_text(text.replace("`", ""), width=88, initial_indent="", subsequent_indent="").split(
            "\n"
        ):
            echo(line)
