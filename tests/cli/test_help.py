"""The help of the commands: groups, one line for each option and op, and no more than a page."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from tar2tf_cli.cli import all_commands, cli
from tar2tf_cli.cli.options import GROUPS
from tar2tf_cli.ops import OPS, parse_op
from tar2tf_cli.ops.base import summary

COMMANDS = all_commands()


def help_of(name: str, width: int = 80) -> list[str]:
    result = CliRunner().invoke(
        cli, [*name.split(), "--help"], terminal_width=width - 2
    )  # as click leaves two columns free
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def test_the_help_of_tar2tf_lists_each_command_with_its_own_words() -> None:
    lines = help_of("")
    listed = dict(line.strip().split("  ", 1) for line in lines[lines.index("Commands:") + 1 :])
    commands = {name: cli.get_command(click.Context(cli), name) for name in listed}
    assert list(listed) == cli.list_commands(click.Context(cli))
    assert {name: text.strip() for name, text in listed.items()} == {
        name: command.get_short_help_str(80) for name, command in commands.items() if command
    }


def test_the_help_of_convert_is_grouped_and_fits_two_screens() -> None:
    lines = help_of("convert")
    assert len(lines) < 120
    assert [line[:-1] for line in lines if line.endswith(":") and not line.startswith(" ")] == list(GROUPS)
    group = {line.split()[0]: number for number, line in enumerate(lines) if line.startswith("  -")}
    heading = {name: lines.index(f"{name}:") for name in GROUPS}
    assert heading["Input"] < group["--from"] < heading["Samples"] < group["--op"] < heading["Features"]
    assert (
        heading["Features"] < group["--select"] < heading["Output"] < group["-o,"] < heading["Running"] < group["-j,"]
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_one_line_of_help_at_80_columns_and_belongs_to_a_group(name: str) -> None:
    lines = help_of(name)
    assert max(map(len, lines)) <= 80
    options = [param for param in COMMANDS[name].params if isinstance(param, click.Option)]
    terms = {line[2:].partition("  ")[0]: line for line in lines if line.startswith("  -")}
    for option in options:
        assert option.help
        assert getattr(option, "group", None) in GROUPS
        (line,) = [line for term, line in terms.items() if option.opts[-1] in term.replace(",", "").split()]
        assert line.endswith((".", "]", "in order:")), f"goes on in the next line: {line}"


def test_the_help_of_convert_has_a_line_for_every_op_with_an_example_that_works() -> None:
    lines = [line.strip() for line in help_of("convert")]
    for op in OPS.values():
        assert any(line.startswith(op.examples[0]) and line.endswith(f"  {summary(op)}") for line in lines), op.name


@pytest.mark.parametrize("op", [op for op in OPS.values() if op.name != "func"], ids=lambda op: op.name)
def test_the_examples_of_an_op_are_such_ops(op: type) -> None:
    assert {type(parse_op(example)) for example in op.examples} == {op}  # type: ignore[attr-defined]


def test_a_command_with_one_group_calls_it_options() -> None:
    assert "Options:" in help_of("schema")
    assert "Running:" not in help_of("schema")


def test_the_list_of_commands_cuts_no_sentence_short() -> None:
    assert "..." not in CliRunner().invoke(cli, ["--help"]).output.partition("Commands:")[2]


def test_help_comes_before_any_fault_of_the_command_line() -> None:
    ran = CliRunner().invoke(cli, ["convert", "-j", "none", "--help"])
    assert (ran.exit_code, ran.output.partition(" ")[0]) == (0, "Usage:")
