"""What a command acts on, as its options choose it: events, dead letters, mails."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from cordata.broker.inspection import Filter
from cordata.cli.options import ids_argument
from cordata.terminal import Moment, add_options, moment

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The events or dead letters that a command is to act on, as its options choose them."""

    #: The fields for which the command has options.
    offered: tuple[str, ...]
    event_ids: tuple[str, ...] = ()
    state: str | None = None
    type: str | None = None
    group: str | None = None
    error: str | None = None
    since: Moment | None = None
    before: Moment | None = None
    all: bool = False

    def filter(self, now_us: int, **more: Any) -> Filter:
        """The options as a filter; `now_us`: store time, for `2d`."""
        same = ("state", "type", "group", "error")
        chosen: dict[str, Any] = {name: getattr(self, name) for name in same}
        for name in ("since", "before"):
            at: Moment | None = getattr(self, name)
            chosen[name] = None if at is None else at.us(now_us)
        return Filter(**(chosen | more))

    def check(self) -> None:
        """Require ids or other options. Raises: click.UsageError."""
        *most, last = (f"--{name}" for name in self.offered if name != "event_ids")
        options = f"{', '.join(most)} or {last}"
        given = [self.type, self.error, self.since, self.before]
        # With ids, --group selects one of an event's messages; without, it is a filter like others.
        given += [self.group] if not self.event_ids else []
        narrowed = any(one is not None for one in given)
        if self.event_ids and (narrowed or self.all):
            raise click.UsageError(f"either EVENT... or {options}, not both")
        if not (self.event_ids or narrowed or self.all):
            raise click.UsageError(f"name events (EVENT...) or add {options}")
        if narrowed and self.all:
            raise click.UsageError("--all cannot be combined with other filters")


_STATES = ("pending", "relayed", "dead", "done")
_TIME: dict[str, Any] = {"callback": moment, "metavar": "TIME"}
#: The option behind each field of a Choice.
_CHOICES: dict[str, Callable[..., Any]] = {
    "event_ids": ids_argument("event_ids", "EVENT"),
    "state": click.option("--state", type=click.Choice(_STATES), help="Only in this state."),
    "type": click.option("--type", metavar="TYPE", help="Only of this event type."),
    "group": click.option("--group", metavar="GROUP", help="Only of this consumer group."),
    "error": click.option(
        "--error", metavar="KIND", help="Only with this last error, for example KeyError."
    ),
    "since": click.option(
        "--since", help="Since: 90s, 30m, 1h, 2d or 1w ago, or a date or time in UTC.", **_TIME
    ),
    "before": click.option("--before", help="Before this time, as for --since.", **_TIME),
    "all": click.option("--all", is_flag=True, help="All."),
}


def choosing(*names: str) -> Callable[[F], Callable[..., Any]]:
    """Add the options of these fields of Choice; the command receives them as `choice`."""

    def decorate(function: F) -> Callable[..., Any]:
        @functools.wraps(function)
        def packed(*args: Any, **given: Any) -> Any:
            choice = Choice(offered=names, **{name: given.pop(name) for name in names})
            return function(*args, choice=choice, **given)

        return add_options(*(_CHOICES[name] for name in names))(packed)

    return decorate
