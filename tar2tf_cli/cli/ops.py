"""`tar2tf ops` and `tar2tf schema`: print what a spec file may hold, for people and for editors."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import click

from tar2tf_cli.cli.options import Command, option, propose_op_names
from tar2tf_cli.cli.output import print_json, terminal_width
from tar2tf_cli.errors import UsageError, meant

if TYPE_CHECKING:
    from tar2tf_cli.ops import Op


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
    from tar2tf_cli.ops import OPS

    for wanted in name:
        if wanted not in OPS:
            raise UsageError(f"there is no op {wanted!r}{meant(wanted, OPS)}", hint=f"ops: {', '.join(OPS)}")
    chosen = [OPS[wanted] for wanted in name or OPS]
    if as_json:
        print_json([_document(op) for op in chosen])
    else:
        click.echo("\n\n".join("\n".join(_lines(op)) for op in chosen))
    return 0


def _document(op: type[Op]) -> dict[str, Any]:
    return {"name": op.name, "usage": op.usage, "help": op.help(), "more": op.more(), "examples": list(op.examples)}


def _lines(op: type[Op]) -> Iterator[str]:
    yield op.usage
    width = min(terminal_width() or 80, 100)
    for text in filter(None, (op.help(), op.more())):
        yield from wrap(text, width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    for example in op.examples:
        yield f"    --op {example}"


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
