"""A group of commands whose modules are imported when one of them is called."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click


class LazyGroup(click.Group):
    """Lists commands without importing them: `--help` and completion stay fast."""

    def __init__(
        self, *args: Any, lazy: Mapping[str, tuple[str, str]] | None = None, **kwargs: Any
    ) -> None:
        """`lazy`: name -> (`module:attribute`, line in the list of `--help`)."""
        super().__init__(*args, **kwargs)
        self._lazy = dict(lazy or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The lazy ones in their order, then the others."""
        return [*self._lazy, *(name for name in self.commands if name not in self._lazy)]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command of a name; None: there is none."""
        if name in self._lazy and name not in self.commands:
            module, _, attribute = self._lazy[name][0].partition(":")
            command: click.Command = getattr(import_module(module), attribute)
            self.prepare(command)
            self.add_command(command, name)
        return super().get_command(ctx, name)

    def prepare(self, command: click.Command) -> None:
        """For a subclass: what each command gets when it is imported."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of `--help`."""
        lines = {name: line for name, (_, line) in self._lazy.items()}
        for name, command in self.commands.items():
            if not command.hidden:
                lines.setdefault(name, command.get_short_help_str(limit=80))
        with formatter.section("Commands"):
            formatter.write_dl(list(lines.items()))
