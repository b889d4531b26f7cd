"""`--help` of every command: an example that works, JSON and pages where there is much to see."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click
import pytest
from tests.integration.cli.command import ROOT, cordata

from cordata.cli import cordata as program

#: What operators look at and change: machines read it as well.
_OPERATORS = (
    "trace",
    "outbox",
    "dlq",
    "group",
    "events",
    "subscriptions",
    "migrate",
    "pool",
    "backup",
    "restore",
)
#: Lists of whatever length.
_LISTS = (
    *("outbox list", "dlq list", "events read"),
    *("subscriptions list", "subscriptions dead", "pool sessions"),
)
#: Ends a command in a line of the shell, or of a text.
_NEXT = re.compile(r"[|<>;]|&&|, or ")
_FILTERS = {
    "outbox list": ("--state", "--type", "--group", "--since", "--before"),
    "dlq list": ("--type", "--group", "--error", "--since", "--before"),
    "events read": ("--category", "--type", "--since", "--before"),
    "subscriptions list": ("--state", "--category"),
}


def leaves(
    command: click.Command, ctx: click.Context, *names: str
) -> Iterator[tuple[str, click.Command]]:
    """The commands that do something, by the words that call them."""
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            inner = command.get_command(ctx, name)
            assert inner is not None
            yield from leaves(inner, ctx, *names, name)
        if not command.invoke_without_command:
            return
    yield " ".join(names), command


COMMANDS = dict(leaves(program, click.Context(program, info_name="cordata")))


def options(command: click.Command) -> set[str]:
    return {word for parameter in command.params for word in parameter.opts}


def examples(name: str) -> list[str]:
    """The command lines that its help shows."""
    text = cordata(*name.split(), "--help").stdout
    _, found, tail = text.partition("Example")
    assert found, f"no example in the help of {name}"
    lines = [line.strip() for line in tail.partition("Exit codes")[0].splitlines()]
    return [line[line.index("cordata ") :] for line in lines if "cordata " in line]


def parsed(line: str) -> str:
    """The command that a line calls. Raises: click.UsageError for what it does not take."""
    words = shlex.split(_NEXT.split(line)[0])[1:]
    command: click.Command = program
    ctx = click.Context(program, info_name="cordata")
    path: list[str] = []
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        inner = command.get_command(ctx, words[0])
        assert inner is not None, line
        path.append(words.pop(0))
        command, ctx = inner, click.Context(inner, parent=ctx, info_name=path[-1])
    _, left, order = command.make_parser(ctx).parse_args(words)
    assert not left, line
    assert all(one in command.params for one in order)
    return " ".join(path)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_command_lines_that_the_command_takes(name: str) -> None:
    shown = [parsed(line) for line in examples(name)]
    # Those of a unit are called by it: their example is systemctl's.
    assert name in shown or name in ("worker", "primary", "alert"), shown


@pytest.mark.parametrize("name", [n for n in COMMANDS if n.split()[0] in _OPERATORS])
def test_operators_command_prints_json_when_it_is_asked_to(name: str) -> None:
    assert "--json" in options(COMMANDS[name])


@pytest.mark.parametrize("name", _LISTS)
def test_list_comes_page_by_page(name: str) -> None:
    assert {"--limit", "--after", *_FILTERS.get(name, ())} <= options(COMMANDS[name])


def test_list_of_commands_is_that_of_the_program() -> None:
    assert {"outbox purge", "dlq drop", "events tail", "subscriptions reset", "new"} <= set(
        COMMANDS
    )


def exit_codes(name: str) -> set[str]:
    """Those that a command's help lists."""
    text = " ".join(cordata(*name.split(), "--help").stdout.split())
    return set(re.findall(r"(?:codes:|[,;]) (\d+) ", text[text.index("Exit codes:") :]))


def test_exit_codes_of_the_program_are_those_of_the_man_page() -> None:
    page = (ROOT / "packaging/man/cordata.1.in").read_text()
    section = page[page.index(".SH EXIT STATUS") :].partition(".SH FILES")[0]
    assert exit_codes("") == set(re.findall(r"^\.B (\d+)$", section, re.MULTILINE))


def test_exit_codes_of_a_call_are_all_that_it_has() -> None:
    assert exit_codes("call") == {"0", "1", "2", "75", "78", "130"}
    assert exit_codes("pool") == {"0", "1", "2", "75", "78"}


def test_example_with_an_option_that_is_none_is_seen() -> None:
    with pytest.raises(click.UsageError):
        parsed("cordata outbox list --nonsense")
