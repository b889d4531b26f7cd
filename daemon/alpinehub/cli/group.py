"""Groups whose commands are imported when they are asked for, and the options of all commands."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click


class Group(click.Group):
    """Each command brings a part of the hub; to start with all of them takes twice as long."""

    def __init__(self, *args: Any, lazy: Mapping[str, str] | None = None, **kwargs: Any) -> None:
        """`lazy`: where commands are, as module:name."""
        super().__init__(*args, **kwargs)
        self._lazy = dict(lazy or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in order."""
        return sorted({*super().list_commands(ctx), *self._lazy})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name; None: there is none."""
        place = self._lazy.pop(cmd_name, None)
        if place is not None:
            module, _, name = place.partition(":")
            command: click.Command = getattr(import_module(module), name)
            take_config(command)
            self.add_command(command, cmd_name)
        return super().get_command(ctx, cmd_name)


def _choose_config(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> str | None:
    if value is not None:
        context.obj = value
    return value


def take_config(command: click.Command) -> None:
    """Let a command, or all of a group, take --config behind its name, too, as those of `cordata`
    do.
    """
    if isinstance(command, click.Group):
        for one in command.commands.values():
            take_config(one)
        return
    option = click.Option(
        ["--config"],
        type=click.Path(dir_okay=False),
        expose_value=False,
        callback=_choose_config,
        help="Configuration file; as the same option before the command.",
    )
    command.params.append(option)
