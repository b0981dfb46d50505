"""`tar2tf completion`: prints the script that makes a shell complete tar2tf's arguments."""

from __future__ import annotations

import click

from tar2tf_cli.cli.options import Command, Words

__all__ = ["command"]


@click.command("completion", cls=Command)
@click.argument("shell", type=Words(("bash", "zsh", "fish")))
def command(shell: str) -> int:
    """Print the script that makes a shell complete paths, options, ops, presets and types.

    \b
    eval "$(tar2tf completion bash)"
    eval "$(tar2tf completion zsh)"
    tar2tf completion fish | source

    Put the line for your shell into ~/.bashrc, ~/.zshrc (after compinit) or ~/.config/fish/config.fish.
    """
    from tar2tf_cli.cli.complete import SHELLS

    click.echo(SHELLS[shell].script, nl=False)
    return 0
