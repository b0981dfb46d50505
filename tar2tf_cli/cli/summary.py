"""Prints the summary of a conversion, or the plan that a dry run shows, as text or JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from tar2tf_cli.cli.output import count, message, print_json, print_members, printable, prints_on_stderr, size
from tar2tf_cli.spec.output_path import STDOUT

if TYPE_CHECKING:
    from tar2tf_cli.conversion.dry_run import Outcome, Step
    from tar2tf_cli.conversion.estimate import Estimate
    from tar2tf_cli.conversion.plan import Plan
    from tar2tf_cli.conversion.run import Summary

__all__ = ["print_plan", "print_summary"]


def _document(summary: Summary) -> dict[str, Any]:
    return {
        "manifest": summary.manifest,
        "up_to_date": summary.up_to_date,
        **({"kept": summary.kept} if summary.kept else {}),
        "inputs": summary.inputs,
        "records": summary.records,
        "bytes": summary.bytes,
        "shards": [shard.to_json() for shard in summary.shards],
        "skipped": {"samples": summary.skipped_samples, "members": dict(sorted(summary.skipped.items()))},
    }


def print_summary(summary: Summary, path: str, *, quiet: bool, as_json: bool) -> None:
    """Print the summary: JSON on standard output, text on standard error; skipped samples are always counted.

    Args:
        path: the output path, shown if there is no manifest.
    """
    if as_json:
        print_json(_document(summary))
    if not quiet:
        _print_totals(summary, path)
    for text, faults in _grouped(summary.errors).items():
        first = faults[0]
        named = [first["shard"], first["member"] or first["key"] or f"offset {first['offset']}"]
        message(f"{len(faults):,} x {text}, first: {printable(': '.join(filter(None, named)))}")
    if summary.skipped_samples and not (quiet and summary.up_to_date):
        message(f"{count(summary.skipped_samples, 'sample')} skipped")


def _print_totals(summary: Summary, path: str) -> None:
    done = f"{count(summary.records, 'record')}, {size(summary.bytes)}"
    if summary.manifest is None:
        message(f"{done} on {'standard output' if path == STDOUT else path}")
    elif summary.up_to_date:
        message(f"up to date: {done} in {count(len(summary.shards), 'shard')}, manifest {summary.manifest}")
    else:
        kept = f" ({summary.kept:,} kept)" if summary.kept else ""
        message(f"{done} in {count(len(summary.shards), 'shard')}{kept}, manifest {summary.manifest}")
    if summary.shuffled:
        message(f"shuffled {count(summary.records, 'record')} across all shards, seed {summary.seed}")
    if summary.classes:
        message(_classes(summary.classes))
    if summary.oversized:
        message(f"{count(summary.oversized, 'record')} larger than --max-shard-size, each in its own shard")
    print_members(summary.skipped)


def _classes(names: Sequence[str]) -> str:
    """How many classes there are, and the first few."""
    few = ", ".join(names[:3])
    return f"{len(names):,} {'class' if len(names) == 1 else 'classes'}: {few}{', …' if len(names) > 3 else ''}"


def _grouped(errors: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Errors grouped by message, ignoring numbers, bytes and quoted names."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for error in errors:
        groups.setdefault(re.sub(r"'[^']*'|\b[0-9a-f]{2}\b|\d+", "…", str(error["message"])), []).append(error)
    return {str(group[0]["message"]): group for group in groups.values()}


def print_plan(plan: Plan, outcome: Outcome, *, as_json: bool) -> None:
    """Print what a conversion would do, how much it would write, and its first sample after each op."""
    from tar2tf_cli.conversion.dry_run import trace
    from tar2tf_cli.conversion.estimate import estimate
    from tar2tf_cli.conversion.tally import growth

    with prints_on_stderr():
        steps, expected = trace(plan), estimate(plan)
    warning = growth(plan, expected.bytes, plan.size) if expected else None
    if as_json:
        print_json(_plan_document(plan, outcome, steps, expected, warning))
        return
    if outcome.message:
        click.echo(outcome.message)
    _print_inputs(plan)
    limit = plan.conversion.output.limit
    click.echo(f"to {plan.conversion.output.template.text}" + (f", at most {size(limit)} each" if limit else ""))
    if expected:
        shards = f" in {count(expected.shards, 'shard')}" if not plan.conversion.output.is_stream else ""
        click.echo(f"about {count(expected.records, 'record')}, {size(expected.bytes)}{shards}")
    if warning:
        message(warning)
    for step in steps:
        click.echo(step.step)
        for name, look in step.entries.items():
            click.echo(f"  {name:{max(map(len, step.entries))}}  {look}")


def _print_inputs(plan: Plan) -> None:
    from tar2tf_cli.spec.urls import without_secrets

    total = "of unknown size" if plan.size is None else size(plan.size)
    click.echo(f"{count(len(plan.inputs), 'input')}, {total}, from {without_secrets(plan.source.bucket)}")
    for item in islice(plan.inputs, 3):
        click.echo(f"  {item.name}" + (f"  {size(item.size)}" if item.size is not None else ""))
    if len(plan.inputs) > 3:
        click.echo(f"  and {len(plan.inputs) - 3:,} more")
    if plan.source.classes:
        click.echo(_classes(plan.source.classes))


def _plan_document(
    plan: Plan, outcome: Outcome, steps: Sequence[Step], expected: Estimate | None, warning: str | None
) -> dict[str, Any]:
    from tar2tf_cli.conversion.manifest import input_entry

    output = plan.conversion.output
    manifest = None if output.is_stream else output.template.manifest()
    return {
        **plan.manifest().identity(),
        "inputs": [*map(input_entry, plan.inputs)],
        "output": {"path": output.template.text, "manifest": manifest, "max_shard_size": output.limit},
        "outcome": outcome._asdict(),
        "estimate": expected._asdict() if expected else None,
        "warnings": [warning] if warning else [],
        **({"classes": list(plan.source.classes)} if plan.source.classes else {}),
        "steps": [step._asdict() for step in steps],
    }
