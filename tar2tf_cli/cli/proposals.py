"""What is proposed to complete a value on the command line, by the name that `completing` in options.py takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from click.shell_completion import CompletionItem


def files(incomplete: str) -> list[CompletionItem]:
    """Propose local files and folders, which the shell lists."""
    return [CompletionItem(incomplete, type="file")]


def labels(incomplete: str) -> list[CompletionItem]:
    """Propose `imagenet`, files and folders."""
    return [*_beginning(incomplete, {"imagenet": "ImageNet-1k"}.items()), *files(incomplete)]


def presets(incomplete: str) -> list[CompletionItem]:
    """Propose presets."""
    from tar2tf_cli.registry import preset_names

    return list(_beginning(incomplete, ((name, "") for name in preset_names())))


def types(incomplete: str) -> list[CompletionItem]:
    """Propose a type after NAME=."""
    from tar2tf_cli.features.feature_map import TYPES

    name, equals, _ = incomplete.rpartition("=")
    return list(_beginning(incomplete, ((f"{name}={kind}", "") for kind in TYPES if equals)))


def op_names(incomplete: str) -> list[CompletionItem]:
    """Propose ops by name."""
    from tar2tf_cli.ops import OPS

    return list(_beginning(incomplete, ((name, op.help()) for name, op in OPS.items())))


def ops(incomplete: str) -> list[CompletionItem]:
    """Propose an op or, after its name, the words that its next field may be."""
    from dataclasses import fields, is_dataclass

    from tar2tf_cli.ops import OPS

    name, colon, text = incomplete.partition(":")
    if not colon:
        named = ((f"{op.name}:" if op.usage != op.name else op.name, op.help()) for op in OPS.values())
        return list(_beginning(incomplete, named))
    op, before = OPS.get(name), incomplete.rpartition(",")[0]
    names: list[str] = [field.name for field in fields(op)] if op and is_dataclass(op) else []
    place = text.count(",")
    if not op or not 0 < place < len(names):
        return files(incomplete) if name == "func" else []
    words = op.checks[names[place]].schema.get("enum", ())
    return list(_beginning(incomplete, ((f"{before},{word}", "") for word in words)))


def _beginning(incomplete: str, named: Iterable[tuple[str, str]]) -> Iterator[CompletionItem]:
    """The proposals that begin with what was typed."""
    return (CompletionItem(name, help=help or None) for name, help in named if name.startswith(incomplete))
