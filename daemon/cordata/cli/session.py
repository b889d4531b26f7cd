"""What commands that look into the store share: the store opened, questions, progress."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from cordata.app import App
    from cordata.config import Config
    from cordata.context import Context

T = TypeVar("T")

_SHOW_S = 0.2


def run(config: str | None, state: str | None, act: Callable[[Context], Awaitable[T]]) -> T:
    """Open the store, act, close it; the application is not needed for it, so not imported.

    Raises: CordataError; click.UsageError for a position that is none.
    """
    from cordata.app import App
    from cordata.broker.inspection import BadPosition
    from cordata.loading import load_runtime

    try:
        return run_in(placed(load_runtime(config), state), App("operator"), act)
    except BadPosition as error:
        raise click.UsageError(str(error)) from None


def run_in(
    config: Config, app: App, act: Callable[[Context], Awaitable[T]], *, need_schema: bool = True
) -> T:
    """The same for a loaded configuration and an application. Raises: CordataError."""
    from cordata.connection import connect

    async def main() -> T:
        async with connect(app, config, need_schema=need_schema) as ctx:
            return await act(ctx)

    return asyncio.run(main())


def placed(config: Config, state: str | None) -> Config:
    """The configuration with the directories of `cordata server --state`, if one is named."""
    if state is None:
        return config
    directory = Path(state).absolute()
    paths = replace(
        config.paths,
        state=directory,
        runtime=directory / "run",
        credentials=directory / "credentials",
    )
    return replace(config, paths=paths)


def confirm(question: str, *, yes: bool) -> None:
    """Go on only if the answer is yes. Raises: click.UsageError when nobody can be asked."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Nobody can be asked here: add --yes.")
    click.confirm(question, abort=True, err=True)


class Counter:
    """Long work shows how far it is, on a terminal: a line that is written over."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._next = time.monotonic() + _SHOW_S
        self._shown = False

    def __call__(self, count: int) -> None:
        """So many are done."""
        if sys.stderr.isatty() and time.monotonic() >= self._next:
            self._next = time.monotonic() + _SHOW_S
            self._shown = True
            click.echo(f"\r{count:,} {self._what} ...", nl=False, err=True)

    def end(self) -> None:
        """Wipe the line."""
        if self._shown:
            click.echo("\r\x1b[K", nl=False, err=True)


def before(age_s: float | None) -> int | None:
    """The moment that long ago, in microseconds since the epoch."""
    from cordata import clock

    return None if age_s is None else clock.now_us() - int(age_s * 1e6)


def check_choice(ids: tuple[str, ...], narrowed: bool, all_: bool, options: str) -> None:
    """Either events by id, or what the options choose. Raises: click.UsageError."""
    if ids and (narrowed or all_):
        raise click.UsageError(f"either EVENT... or {options}, not both")
    if not (ids or narrowed or all_):
        raise click.UsageError(f"which? EVENT..., {options}")
    if narrowed and all_:
        raise click.UsageError("--all takes no other choice beside it")


def tell(count: int, what: str, missing: list[str], *, json_: bool) -> int:
    """Print what was done. Returns the exit code: 1 when an event that was named had nothing."""
    from cordata.cli.view import show_json

    if json_:
        show_json({"count": count, "missing": missing})
    else:
        click.echo(f"{count:,} {what}")
    for event_id in missing:
        click.echo(f"error: nothing to do for {event_id}", err=True)
    return 1 if missing else 0
