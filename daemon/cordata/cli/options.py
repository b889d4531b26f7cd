"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from cordata.config import Config
from cordata.terminal import add_options, config_option, limit_option

F = TypeVar("F", bound=Callable[..., Any])

app_option = click.option(
    "--app", metavar="MODULE:APP", help="Application instead of [app] import."
)
debug_option = click.option("--debug", is_flag=True, help="Log everything; show tracebacks.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
state_dir_option = click.option(
    "--state-dir",
    type=click.Path(file_okay=False),
    help="The --state directory of a `cordata server`, instead of [paths].",
)
shared = add_options(config_option, app_option, debug_option)
paging = add_options(
    limit_option,
    click.option("--after", metavar="POSITION", help="Start after this position: the next page."),
)


def with_state_dir(config: Config, state_dir: str | None) -> Config:
    """The configuration with the directories that `cordata server --state` uses; None: its own."""
    if state_dir is None:
        return config
    directory = Path(state_dir).absolute()
    paths = replace(
        config.paths,
        state=directory,
        runtime=directory / "run",
        credentials=directory / "credentials",
    )
    return replace(config, paths=paths)


def ids_argument(name: str, metavar: str, type: Any = None) -> Callable[[F], F]:
    """Add an argument for any number of ids. An id that is given twice is passed once: the second
    time, there would be nothing to do for it. `type` is one of click's.
    """

    def once(ctx: click.Context, parameter: click.Parameter, given: tuple[Any, ...]) -> Any:
        return tuple(dict.fromkeys(given))

    return click.argument(name, metavar=f"[{metavar}]...", nargs=-1, type=type, callback=once)
