"""Generate man pages, completions, the schema of spec files, parts and pictures of the docs: `python man/generate.py`.

Packages that make man pages of Click commands know no groups of options, no paragraphs that only a man page has, and no
sections for ops, limits, files and exit codes.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import runpy
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from shlex import quote

import click

from tar2tf_cli import __version__
from tar2tf_cli.checking.codes import EXPLANATIONS
from tar2tf_cli.cli import all_commands, cli
from tar2tf_cli.cli.grammar import SHELLS
from tar2tf_cli.cli.options import grouped
from tar2tf_cli.ops import OPS
from tar2tf_cli.ops.base import DeclaredOp, details, paragraphs, summary
from tar2tf_cli.spec.yaml_file import spec_schema

ROOT = Path(__file__).parent.parent

EXIT_STATUS = {
    0: "Done; for convert, also when everything was up to date.",
    1: "Done, with findings: verify found faults, diff found differences, or convert skipped samples.",
    2: "An option, a template or a spec file is wrong, or the output exists and belongs to something else.",
    3: "An input or output failed. Run the same command again to continue.",
    130: "Interrupted. Run the same command again to continue.",
    141: "The program that reads the output closed it early, as head does.",
}

FILES = {
    "_train-manifest.json": "The manifest for -o 'train-<>.record': the conversion, its inputs, shards and features.",
    ".NAME-manifest.tar2tf/": "The working folder of a conversion, removed once the manifest is written.",
    "SHARD.idx": "The index of a shard, written by --index or tar2tf index: the offset of each record or sample.",
}

LIMIT = """\
--max-shard-size limits the size of the file on disk. This includes the 16 bytes that frame each record of a TFRecord,
and the end-of-archive blocks of a tar. A shard is closed before the record that would exceed the limit. A record
larger than the limit is reported, and gets a shard of its own. With --compression, the compressed size counts, and
shards are closed between blocks of records. A numbered path without a limit has a limit of 256MiB."""


def main() -> None:
    """Write every file, pictures first, as the page of ops shows those that are there."""
    runpy.run_path(str(ROOT / "docs" / "pictures.py"), run_name="__main__")
    for path, text in generated().items():
        path.write_text(text, encoding="utf-8")


def generated() -> dict[Path, str]:
    """The text of every generated file by its path."""
    context = click.Context(cli, info_name="tar2tf", help_option_names=["-h", "--help"])
    pages = ROOT / "man" / "man1"
    files = {pages / "tar2tf.1": "\n".join(_group_page(context))}
    for name, command in all_commands().items():
        page = "\n".join(_command_page(click.Context(command, parent=context, info_name=name)))
        files[pages / f"{_page_name(name)}.1"] = page
    files[ROOT / "docs" / "spec.schema.json"] = json.dumps(spec_schema(), indent=1) + "\n"
    reference = ROOT / "docs" / "reference" / "ops.md"
    files[reference] = _with_ops(reference.read_text(encoding="utf-8"))
    environment = ROOT / "docs" / "reference" / "environment.md"
    files[environment] = _with_variables(environment.read_text(encoding="utf-8"))
    for page in (ROOT / "docs" / "faq.md", ROOT / "docs" / "reference" / "inspect-verify.md"):
        files[page] = _with_explanations(page.read_text(encoding="utf-8"))
    return files | {ROOT / "completions" / f"tar2tf.{name}": shell.script for name, shell in SHELLS.items()}


_EXPLAINED = re.compile(r"(<!-- (explain (\w+)|codes) -->\n).*?(<!-- end -->)", re.DOTALL)


def _with_explanations(page: str) -> str:
    """A page with the texts of `tar2tf explain` between its marks."""

    def fill(match: re.Match[str]) -> str:
        about = EXPLANATIONS[match[3]] if match[3] else None
        text = f"{about.causes} {about.remedy}" if about else "\n".join(rows)
        return f"{match[1]}{text}\n{match[4]}"

    rows = ["| code | means |", "|---|---|", *(f"| `{code}` | {about.means} |" for code, about in EXPLANATIONS.items())]

    return _EXPLAINED.sub(fill, page)


_VARIABLES = re.compile(r"(<!-- variables -->\n).*?(<!-- end -->)", re.DOTALL)


def _with_variables(page: str) -> str:
    """Replace the table of the variables that stand for options."""
    rows: dict[str, tuple[str, list[str]]] = {}
    for name, command in all_commands().items():
        context = click.Context(command, info_name=name, **command.context_settings)
        for param in command.params:
            if isinstance(param, click.Option) and param.name and not param.is_eager:
                variable = str(param.envvar or f"{context.auto_envvar_prefix}_{param.name.upper()}")
                rows.setdefault(variable, (_spelling(param), []))[1].append(name)
    table = [f"| `{variable}` | {option} | {', '.join(names)} |" for variable, (option, names) in rows.items()]
    return _VARIABLES.sub(
        lambda match: "\n".join((match[1] + "| variable | flag | commands |\n|---|---|---|", *table, match[2])), page
    )


def _spelling(option: click.Option) -> str:
    """The longest spelling of an option, and with what values a variable means it or its opposite."""
    spelling = max(option.opts, key=len)
    if not option.secondary_opts:
        return f"`{spelling}`"
    return f"`{spelling}` (1) or `{max(option.secondary_opts, key=len)}` (0)"


def _group_page(context: click.Context) -> Iterator[str]:
    yield from _head("tar2tf", "turn tar shards into TFRecord shards, and verify that both are intact")
    yield ".SH SYNOPSIS\n.B tar2tf\n.I COMMAND\n[OPTIONS] ..."
    yield ".SH DESCRIPTION"
    yield from _paragraphs(inspect.cleandoc(cli.help or ""))
    yield ".SH COMMANDS"
    for name, command in all_commands().items():
        yield f".TP\n.BR {_page_name(name)} (1)\n{_escape(command.get_short_help_str(200))}"
    yield from _tail(EXIT_STATUS)


def _command_page(context: click.Context) -> Iterator[str]:
    command = context.command
    name = _page_name(context.info_name or "")
    yield from _head(name, _lower_first(command.get_short_help_str(200).rstrip(".")))
    usage = " ".join(command.collect_usage_pieces(context))
    yield f".SH SYNOPSIS\n.B tar2tf {context.info_name}\n{_escape(usage)}"
    yield ".SH DESCRIPTION"
    yield from _paragraphs(_description(command))
    yield ".SH OPTIONS"
    groups = grouped(command.get_params(context))
    for group, params in groups.items():
        yield from [f".SS {group}"] if len(groups) > 1 else []
        for param in params:
            term, meaning = param.get_help_record(context) or ("", "")
            yield _term(term, f"{meaning} {getattr(param, 'more', '')}")
    if context.info_name == "convert":
        yield ".SH LIMITS"
        yield _escape(LIMIT)
        yield ".SH OPS"
        for op in OPS.values():
            yield _term(
                op.usage, f"{summary(op)} {details(op)}\n.br\nFor example: {'   '.join(map(quote, op.examples))}"
            )
        yield ".SH FILES"
        for path, meaning in FILES.items():
            yield f".TP\n.I {_escape(path)}\n{_escape(meaning)}"
    yield from _tail(EXIT_STATUS if len(groups) > 1 else (0, 2))


GENERATED_OPS = re.compile(
    r"(<!-- ops: generated from tar2tf_cli/ops by man/generate.py -->\n).*?(<!-- /ops -->)", re.DOTALL
)


def _with_ops(page: str) -> str:
    """Replace the generated part of the reference of ops: a table of all ops, and a section for each."""
    table = [f"| [`{op.examples[0]}`](#{op.name}) | {_lower_first(summary(op)[:-1])} |" for op in OPS.values()]
    head = ["| op | what it does |", "|---|---|", *table, ""]
    sections = (line for op in OPS.values() for line in (*_op_section(op), ""))
    return GENERATED_OPS.sub(lambda match: match[1] + "\n" + "\n".join((*head, *sections)) + "\n" + match[2], page)


def _op_section(op: type[DeclaredOp]) -> Iterator[str]:
    """The section of an op in Markdown: its form, its docstring, its fields, examples, and its picture."""
    yield from (f"### {op.name}", "", f"`{op.usage}`", "")
    for paragraph in paragraphs(op):
        yield from (_code_words(paragraph), "")
    if dataclasses.is_dataclass(op) and (fields := dataclasses.fields(op)) and op.from_value.__func__ is FROM_VALUE:
        yield from (f"Fields: {', '.join(map(_field, fields))}.", "")
    yield from ("```text", *map(quote, op.examples), "```")
    if (ROOT / "docs" / "reference" / "ops" / f"{op.name}.jpg").exists():
        yield from ("", f"![{op.name}: {_lower_first(summary(op)[:-1])}](ops/{op.name}.jpg)")


FROM_VALUE = DeclaredOp.from_value.__func__  # type: ignore[attr-defined]


def _field(field: dataclasses.Field[object]) -> str:
    """A field with its default, as in the fields of an op."""
    if field.default is dataclasses.MISSING or field.default is None:
        return f"`{field.name}`"
    written = json.dumps(field.default) if isinstance(field.default, bool) else f"{field.default}".removesuffix(".0")
    return f"`{field.name}` ({written})"


def _code_words(text: str) -> str:
    """Mark calls and assignments of a docstring as code: Crop("jpg", size=8), short=N."""
    return re.sub(r"(?<![`\w/:{])([A-Z]\w*\([^()]*\)|[a-z_]+=[\w.\[\]]+)(?![`\w])", r"`\1`", text)


def _page_name(command: str) -> str:
    return f"tar2tf-{command.replace(' ', '-')}"


def _head(name: str, summary: str) -> Iterator[str]:
    yield f'.TH {name.upper()} 1 "" "tar2tf {__version__}" "User Commands"'
    yield f".SH NAME\n{name} \\- {_escape(summary)}"


def _tail(codes: Iterable[int]) -> Iterator[str]:
    yield ".SH ENVIRONMENT"
    variables = "Each long option as a variable in capitals: TAR2TF_NUM_WORKERS=8 means -j 8. Flags override variables."
    yield _term("TAR2TF_*", variables)
    colours = "NO_COLOR turns colours off, FORCE_COLOR turns them on. TERM=dumb turns off colours and progress bars."
    yield _term("NO_COLOR, FORCE_COLOR, TERM", colours)
    yield ".SH EXIT STATUS"
    for code in codes:
        yield _term(str(code), EXIT_STATUS[code])
    yield ""


def _description(command: click.Command) -> str:
    """What a command does: its help, or where the docstring has more for the man page, that instead of the help."""
    short, mark, full = inspect.cleandoc(command.callback.__doc__ or "").partition("\f")
    first = short.removeprefix("\b\n").partition("\n")[0]
    return f"{first}\n\n{full.strip()}" if mark else short


def _term(term: str, meaning: str) -> str:
    return f".TP\n.B {_escape(term)}\n{_escape(meaning.strip())}".replace("\\&.br", ".br")


def _paragraphs(text: str) -> Iterator[str]:
    """The paragraphs of a help text; after a backspace mark, line breaks are kept, as in the help."""
    for paragraph in text.strip().split("\n\n"):
        lines = paragraph.strip().split("\n")
        if lines[0].strip() == "\b":
            yield ".PP\n.nf\n" + "\n".join(_escape(line) for line in lines[1:]) + "\n.fi"
        else:
            yield ".PP\n" + _escape(re.sub(r"\s+", " ", paragraph.strip()))


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]


def _escape(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join("\\&" + line if line.startswith((".", "'")) else line for line in escaped.split("\n"))


if __name__ == "__main__":
    sys.exit(main())
