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
