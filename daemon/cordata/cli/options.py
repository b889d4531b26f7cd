"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

_SHARED = (
    click.option(
        "--config",
        type=click.Path(dir_okay=False),
        envvar="CORDATA_CONFIG",
        help="Configuration file.  [default: /etc/cordata/cordata.toml]",
    ),
    click.option("--app", metavar="MODULE:APP", help="Application instead of [app] import."),
    click.option("--debug", is_flag=True, help="Log everything; show tracebacks."),
)


def shared(function: F) -> F:
    """Add --config, --app and --debug."""
    for option in reversed(_SHARED):
        function = option(function)
    return function


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def age(ctx: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """An option's `90s`, `30m`, `1h`, `2d` or `1w` as seconds. Raises: click.BadParameter."""
    if value is None:
        return None
    number, unit = value[:-1], value[-1:]
    if not (number.isascii() and number.isdecimal() and len(number) < 9 and unit in _UNITS):
        raise click.BadParameter(f"{value!r} is no age; for example 90s, 30m, 1h, 2d, 1w")
    return float(int(number) * _UNITS[unit])


#: Where and how a command of the operator's looks.
_OPERATOR = (
    click.option("--json", "json_", is_flag=True, help="Print JSON."),
    click.option(
        "--state-dir",
        "directory",
        type=click.Path(file_okay=False),
        help="What `cordata server` got as --state, instead of [paths].",
    ),
    _SHARED[0],
    _SHARED[2],
)

_PAGING = (
    click.option(
        "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="At most."
    ),
    click.option("--after", metavar="POSITION", help="Go on where the last page ended."),
)


def operator(function: F) -> F:
    """Add --json, --state-dir, --config and --debug."""
    for option in reversed(_OPERATOR):
        function = option(function)
    return function


def paging(function: F) -> F:
    """Add --limit and --after."""
    for option in reversed(_PAGING):
        function = option(function)
    return function


type_option = click.option("--type", "type_", metavar="TYPE", help="Of this event type.")
group_option = click.option("--group", metavar="GROUP", help="Of this consumer group.")
age_option = click.option(
    "--older-than", callback=age, metavar="AGE", help="Older than 90s, 30m, 1h, 2d, 1w."
)
id_option = click.option("--id", "event_id", metavar="EVENT", help="Of this event.")
all_option = click.option("--all", "all_", is_flag=True, help="Whatever there is.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
