"""What `--help` says: no summary is cut off, and every option is explained."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from alpinehub.cli import alpinehub
from cordata.cli import cordata


def every(
    command: click.Command, name: str, parent: click.Context | None = None
) -> Iterator[tuple[str, click.Context]]:
    context = click.Context(command, info_name=name, parent=parent)
    yield context.command_path, context
    if isinstance(command, click.Group):
        for one in command.list_commands(context):
            inner = command.get_command(context, one)
            assert inner is not None
            yield from every(inner, one, context)


COMMANDS = {**dict(every(cordata, "cordata")), **dict(every(alpinehub, "alpinehub"))}


@pytest.mark.parametrize("path", COMMANDS)
def test_help_says_what_there_is(path: str) -> None:
    context = COMMANDS[path]
    usage, _, text = context.get_help().partition("\n")
    assert usage.startswith(f"Usage: {path}")
    assert [line for line in text.splitlines() if line.endswith("...")] == []
    options = [one for one in context.command.params if isinstance(one, click.Option)]
    assert [one.opts for one in options if not one.help] == []
