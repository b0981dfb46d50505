"""Options of `verify`, `inspect` and `diff`, and functions by which all three print results and write key lists."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Final

import click
from click.core import ParameterSource

from tar2tf_cli.cli.options import option_group, report_options, store_options, tar_options, work_options
from tar2tf_cli.cli.output import echo, print_json

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


def print_result(whole: Any, parts: Iterable[Any], lines: Iterable[str], options: dict[str, Any]) -> None:
    """Print a result as one JSON document, as a JSON line for each of its parts, or as lines of text."""
    if options["as_json"]:
        print_json(whole.to_json())
    elif options["json_lines"]:
        import json

        for part in parts:
            click.echo(json.dumps(part.to_json()))
    else:
        for line in lines:
            echo(line)


def check_files(flags: dict[str, str], options: dict[str, Any]) -> None:
    """Check that no two flags name the same file to write."""
    paths: dict[str, str] = {}
    for flag, name in flags.items():
        if options[name]:
            first = paths.setdefault(os.path.abspath(options[name]), flag)
            if first != flag:
                raise click.UsageError(f"{first} and {flag} name the same file; name two files")


def write_keys(path: str, keys: Iterable[str]) -> None:
    """Write a list of keys to a file."""
    from tar2tf_cli.spec import key_lists

    key_lists.write_keys(path, keys)
