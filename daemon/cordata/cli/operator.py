"""Shared by operator commands: opening the store, long work with progress, printing results."""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import click

from cordata import exit_codes
from cordata.app import App
from cordata.app_loader import load_runtime, salvage
from cordata.broker.inspection import BadPosition, Filter
from cordata.cli.choice import Choice
from cordata.cli.options import state_dir_option, with_state_dir
from cordata.command_context import connect
from cordata.config import Config, find_file
from cordata.context import Context
from cordata.errors import CordataError
from cordata.terminal import (
    Counter,
    Interrupted,
    add_options,
    config_option,
    printable,
    show_json,
    traceback_option,
)

T = TypeVar("T")
#: Does something to all that matches a Filter; `progress=`: a Counter. Returns how many.
Action = Callable[..., Awaitable[int]]

_OPTIONS = (
    click.option("--json", "json_", is_flag=True, help="Print JSON."),
    state_dir_option,
    config_option,
    traceback_option,
)


class NotFound(CordataError):
    """There is nothing of this id or name."""

    code = "not_found"


def unknown(what: str, id_: object) -> NotFound:
    """The error for an id without an event, a mail, ...: `what` the command is about."""
    return NotFound(f"there is no {what} {id_!r}", hint=_see_list())


def _see_list() -> str:
    """The hint of the `list` beside the command that runs."""
    group = click.get_current_context().parent
    assert group is not None
    return f"see `{group.command_path} list`"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """The result of a command."""

    count: int
    #: Ids of named events, mails or alerts for which there was nothing to do.
    missing: Sequence[str] = ()
    #: Why, by id, where it is known.
    reasons: Mapping[str, str] = field(default_factory=dict)
    #: Further numbers for the JSON output, by name.
    more: Mapping[str, int] = field(default_factory=dict)
    #: The same as text, which follows the count.
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """The options of one call: --json, --state-dir, --config."""

    json: bool
    state_dir: str | None
    config: str | None

    def run(self, act: Callable[[Context], Awaitable[T]]) -> T:
        """Open the store, await `act`, close the store; the application is not imported.

        Raises: CordataError; click.UsageError if --after is not a position.
        """
        try:
            return run_in(self.with_state_dir(load_runtime(self.config)), App("operator"), act)
        except BadPosition as error:
            raise click.UsageError(str(error)) from None

    def run_salvaged(self, act: Callable[[Context], Awaitable[T]]) -> T:
        """`run` with the valid parts of the configuration, for commands that help to repair it."""

        def warn(problem: str) -> None:
            click.echo(f"warning: {problem}", err=True)

        return run_in(
            self.with_state_dir(salvage(find_file(self.config), warn)), App("operator"), act
        )

    def with_state_dir(self, config: Config) -> Config:
        """The configuration, with the directories below --state-dir if that is given."""
        return with_state_dir(config, self.state_dir)

    def carry_out(
        self, what: str, act: Callable[[Context, Counter], Awaitable[CommandResult]]
    ) -> int:
        """Do long work, show its progress, and print what was done. `what` follows the count.

        Returns the exit code: 1 if there was nothing to do for a named one, 130 if Ctrl-C ended
        the work between two transactions.
        """
        interrupted = False
        with Counter(what) as counter:
            try:
                done = self.run(lambda ctx: act(ctx, counter))
            except Interrupted:
                done, interrupted = CommandResult(count=counter.count), True
        if self.json:
            state = {"interrupted": True} if interrupted else {}
            show_json({"count": done.count, **done.more, "missing": list(done.missing), **state})
        else:
            click.echo(f"{done.count:,} {what}{done.note}")
        for event_id in done.missing:
            reason = f": {done.reasons[event_id]}" if event_id in done.reasons else ""
            click.echo(printable(f"error: nothing to do for {event_id!s:.200}{reason}"), err=True)
        if not done.reasons.keys() >= {*done.missing}:
            click.echo(f"hint: {_see_list()}", err=True)
        if interrupted:
            text = "stopped by Ctrl-C: these are done, the rest is unchanged"
            click.echo(f"{text}; the same command continues", err=True)
        return exit_codes.INTERRUPTED if interrupted else 1 if done.missing else 0

    def act_on(self, what: str, choice: Choice, act: Callable[[Context], Action]) -> int:
        """`carry_out` the action that `act` returns: on each event that was named, or on all that
        the options choose.
        """

        async def chosen(ctx: Context, counter: Counter) -> CommandResult:
            action = act(ctx)
            if choice.event_ids:
                count, missing = await counter.each(
                    choice.event_ids,
                    lambda one: action(Filter(event_id=one, group=choice.group)),
                )
                return CommandResult(count=count, missing=missing)
            wanted = choice.filter(ctx.now_us())
            return CommandResult(count=await action(wanted, progress=counter))

        return self.carry_out(what, chosen)

    def print_result(self, record: Mapping[str, object], sentence: str) -> None:
        """Print what was done: `sentence`, or with --json `record`."""
        show_json(dict(record)) if self.json else click.echo(sentence)


def operator_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --json, --state-dir, --config and --debug; the command receives them as `operator`."""

    @functools.wraps(function)
    def packed(*, json_: bool, state_dir: str | None, config: str | None, **given: Any) -> Any:
        made = Operator(json=json_, state_dir=state_dir, config=config)
        return function(operator=made, **given)

    return add_options(*_OPTIONS)(packed)


def run_in(
    config: Config, app: App, act: Callable[[Context], Awaitable[T]], *, need_schema: bool = True
) -> T:
    """Open the store of a loaded configuration, await `act`, close it. Raises: CordataError."""

    async def main() -> T:
        async with connect(app, config, need_schema=need_schema) as ctx:
            return await act(ctx)

    return asyncio.run(main())


def confirm(question: str, *, yes: bool) -> None:
    """Ask the user. Raises: click.Abort unless the answer is yes, UsageError without a terminal."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} There is no terminal to ask: add --yes.")
    click.confirm(question, abort=True, err=True)
