"""`tar2tf ops`, `schema`, `explain` and `completion`: describe ops, options and faults to people, editors and shells.

The script of a shell passes the command line up to the cursor in COMP_LINE, and gets one proposal per line. Click's own
scripts pass words as the shell divides them: in bash also at `:` and `=`, so that `--op resize:jpg,` and `--type cls=`
would not be completed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from shlex import quote
from textwrap import wrap
from typing import TYPE_CHECKING, ClassVar, Final

import click
from click.shell_completion import CompletionItem, ShellComplete, add_completion_class, split_arg_string

from tar2tf_cli.cli.options import Command, NameChoice, Proposals, json_option, option, propose_op_names
from tar2tf_cli.cli.output import echo, print_json, terminal_width
from tar2tf_cli.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from tar2tf_cli.api.op import Op


@click.command("ops", cls=Command)
@click.argument("name", nargs=-1, shell_complete=propose_op_names)
@option("--json", "as_json", is_flag=True, help="Print the ops as JSON.")
def ops(name: tuple[str, ...], as_json: bool) -> int:
    """List the operations.

    \b
    tar2tf ops
    tar2tf ops resize rotate
    tar2tf convert shards -o x.record --op decode:jpg --op resize:jpg,64x64

    Operations change samples before they become records. The list shows each one in the form that tar2tf convert --op
    takes. In a spec file, write the same text as an item of ops, or NAME: FIELDS, such as
    resize: {ext: jpg, size: [64, 64]}.
    """
    from tar2tf_cli.ops import all_ops, find_op

    chosen = [find_op(wanted) for wanted in name] or [*all_ops().values()]
    if as_json:
        print_json([_document(op) for op in chosen])
    else:
        click.echo("\n\n".join("\n".join(_lines(op)) for op in chosen))
    return 0


def _document(op: type[Op]) -> dict[str, object]:
    from tar2tf_cli.ops.base import details, summary

    return {"name": op.name, "usage": op.usage, "help": summary(op), "more": details(op), "examples": list(op.examples)}


def _lines(op: type[Op]) -> Iterator[str]:
    from tar2tf_cli.ops.base import details, summary

    yield op.usage
    width = min(terminal_width() or 80, 100)
    for text in filter(None, (summary(op), details(op))):
        yield from wrap(text, width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    for example in op.examples:
        yield f"    --op {quote(example)}"


@click.command("schema", cls=Command)
def schema() -> int:
    """Print the JSON Schema of spec files, for editors.

    \b
    tar2tf schema > tar2tf.schema.json

    Editors with the YAML language server, such as VS Code with the YAML extension, complete and check a spec file that
    begins with this line:

    \b
    # yaml-language-server: $schema=tar2tf.schema.json
    """
    from tar2tf_cli.spec.yaml_file import spec_schema

    print_json(spec_schema())
    return 0


class _Shell(ShellComplete):
    """Base class of shells whose completion script passes COMP_LINE."""

    script: ClassVar[str]

    def source(self) -> str:
        return self.script

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the cursor's word, and the cursor's word."""
        line = os.environ.get("COMP_LINE", "")
        words = split_arg_string(line)
        return words[1:] if line[-1:].isspace() else words[1:-1], "" if line[-1:].isspace() else (words or [""])[-1]

    def format_completion(self, item: CompletionItem[str]) -> str:
        return f"{_completed_word(item)}\t{item.help or ''}" if item.type != "file" else "file"


def _word_at_cursor() -> str:
    """Return the word at the cursor as it was typed."""
    line = os.environ.get("COMP_LINE", "")
    return "" if not line or line[-1].isspace() else line.split()[-1]


def _completed_word(item: CompletionItem[str]) -> str:
    """Return the completed word at the cursor, including --OPTION= if that was typed."""
    option, equals, _ = _word_at_cursor().partition("=")
    return f"{option}={item.value}" if equals and option.startswith("--") else item.value


class _Bash(_Shell):
    """Bash, which starts a new word at `:` and `=`, and completes file names if there are no proposals."""

    name = "bash"
    script = """\
_tar2tf() {
    local IFS=$'\\n' line=${COMP_LINE:0:COMP_POINT}
    COMPREPLY=($(_TAR2TF_COMPLETE=bash_complete COMP_LINE=$line COMP_WORDBREAKS=$COMP_WORDBREAKS "$1" 2>/dev/null))
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *: ]]; then
        compopt -o nospace 2>/dev/null
    fi
}

complete -o bashdefault -o default -o nosort -F _tar2tf tar2tf 2>/dev/null ||
    complete -o bashdefault -o default -F _tar2tf tar2tf
"""

    def format_completion(self, item: CompletionItem[str]) -> str:
        """Return the part of a proposal that replaces bash's word at the cursor."""
        if item.type == "file":
            return ""
        typed, marks = _word_at_cursor(), os.environ.get("COMP_WORDBREAKS", ":=")
        before = max(typed.rfind(mark) for mark in marks) + 1
        return _completed_word(item).removeprefix(typed[:before])


class _Zsh(_Shell):
    name = "zsh"
    script = """\
#compdef tar2tf

_tar2tf() {
    local line typed="${(j: :)words[1,CURRENT]}" files=0
    local -a whole begun
    for line in "${(@f)$(_TAR2TF_COMPLETE=zsh_complete COMP_LINE=$typed ${words[1]} 2>/dev/null)}"; do
        case $line in
            file) files=1 ;;
            *:$'\\t'*) begun+=("${${line%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}") ;;
            *$'\\t'*) whole+=("${${line%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}") ;;
        esac
    done
    (( $#whole )) && _describe -V tar2tf whole
    (( $#begun )) && _describe -V tar2tf begun -S ''
    if (( files )); then
        [[ $PREFIX == --*=* ]] && compset -P '*='
        _files
    fi
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _tar2tf "$@"
else
    compdef _tar2tf tar2tf
fi
"""


class _Fish(_Shell):
    name = "fish"
    script = """\
function __tar2tf
    set -l command (commandline -opc)[1]
    for line in (env COMP_LINE=(commandline -cp | string collect) _TAR2TF_COMPLETE=fish_complete $command 2>/dev/null)
        if test "$line" = file
            __fish_complete_path (commandline -ct)
        else
            echo $line
        end
    end
end

complete --no-files --command tar2tf --arguments "(__tar2tf)"
"""


SHELLS: Final[dict[str, type[_Shell]]] = {shell.name: add_completion_class(shell) for shell in (_Bash, _Zsh, _Fish)}
"""Every shell by name, with its script."""


@click.command("completion", cls=Command, short_help="Print the script that completes words in your shell.")
@click.argument("shell", type=NameChoice(("bash", "zsh", "fish")))
def completion(shell: str) -> int:
    """Print the script that completes paths, options, ops, presets and types in your shell.

    \b
    eval "$(tar2tf completion bash)"
    eval "$(tar2tf completion zsh)"
    tar2tf completion fish | source

    Add the line for your shell to ~/.bashrc, ~/.zshrc (after compinit) or ~/.config/fish/config.fish.
    """
    click.echo(SHELLS[shell].script, nl=False)
    return 0


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
        _print_explanation(one, blank=place > 0)
    return 0


def _print_explanation(code: str, *, blank: bool) -> None:
    from tar2tf_cli.checking.codes import EXPLANATIONS

    about = EXPLANATIONS[code]
    if blank:
        echo("")
    for text in (f"{code}: {about.means}", "", about.causes, "", about.remedy):
        for line in click.wrap_text(text.replace("`", ""), width=88, initial_indent="", subsequent_indent="").split(
            "\n"
        ):
            echo(line)
