"""What commands that look into the store share: the store opened, questions, answers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from cordata.cli.progress import EXIT_INTERRUPTED, Counter, Interrupted

if TYPE_CHECKING:
    from cordata.app import App
    from cordata.config import Config
    from cordata.context import Context

T = TypeVar("T")


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


def run_salvaged(
    config: str | None, state: str | None, act: Callable[[Context], Awaitable[T]]
) -> T:
    """`run` with what is valid of the configuration: for what one looks at when it is not."""
    from cordata.app import App
    from cordata.config import find_file
    from cordata.loading import salvage

    def warn(problem: str) -> None:
        click.echo(f"warning: {problem}", err=True)

    usable = salvage(find_file(config), warn)
    return run_in(placed(usable, state), App("operator"), act)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a command did."""

    count: int
    #: Events that were named and for which there was nothing to do.
    missing: Sequence[str] = ()
    #: Further numbers, by name, and how people read them.
    more: Mapping[str, int] = field(default_factory=dict)
    note: str = ""


def carry_out(
    config: str | None,
    directory: str | None,
    what: str,
    act: Callable[[Context, Counter], Awaitable[Done]],
    *,
    json_: bool,
) -> int:
    """Do long work, show how far it is, and print what was done. Returns the exit code.

    1 when an event that was named had nothing to do, 130 when Ctrl-C ended it between two units.
    """
    interrupted = False
    with Counter(what) as counter:
        try:
            done = run(config, directory, lambda ctx: act(ctx, counter))
        except Interrupted:
            done, interrupted = Done(count=counter.count), True
    _tell(done, what, interrupted=interrupted, json_=json_)
    return EXIT_INTERRUPTED if interrupted else 1 if done.missing else 0


def _tell(done: Done, what: str, *, interrupted: bool, json_: bool) -> None:
    if json_:
        from cordata.cli.view import show_json

        state = {"interrupted": True} if interrupted else {}
        show_json({"count": done.count, **done.more, "missing": list(done.missing), **state})
    else:
        click.echo(f"{done.count:,} {what}{done.note}")
    for event_id in done.missing:
        click.echo(f"error: nothing to do for {event_id}", err=True)
    if interrupted:
        text = "stopped by Ctrl-C: these are done, the rest is as it was"
        click.echo(f"{text}; the same command goes on with it", err=True)
