"""What a shell proposes for the arguments and options of the commands."""

from __future__ import annotations

from click.shell_completion import CompletionItem

__all__ = ["op_names"]


def op_names(incomplete: str) -> list[CompletionItem]:
    """Propose ops by name."""
    from tar2tf_cli.ops import OPS

    return [CompletionItem(name, help=op.help()) for name, op in OPS.items() if name.startswith(incomplete)]
