"""`tar2tf schema`: prints the JSON Schema of spec files."""

from __future__ import annotations

import click

from tar2tf_cli.cli.options import Command
from tar2tf_cli.cli.output import print_json


@click.command("schema", cls=Command)
def command() -> int:
    """Print the JSON Schema of spec files, for editors.

    \b
    tar2tf schema > tar2tf.schema.json

    In editors that use the YAML language server, such as VS Code with its YAML extension, this first line of a spec
    file completes and checks the rest:

    \b
    # yaml-language-server: $schema=tar2tf.schema.json
    """
    from tar2tf_cli.spec.schema import spec_schema

    print_json(spec_schema())
    return 0
