"""Shared by the commands: opening the hub's store, reading secrets, printing results."""

from __future__ import annotations

import asyncio
import functools
import os
import pwd
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO, Any, TypeVar

import click

from cordata import Context, connect
from cordata.terminal import ROW_NUMBER as ROW_NUMBER
from cordata.terminal import (
    add_options,
    as_record,
    config_option,
    moment,
    show_json,
    traceback_option,
)

#: Seconds between attempts to empty the log, while another program reads the database.
_LOG_PAUSES_S = (0.1, 0.4, 1.0, 1.5)

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def _operator() -> str:
    """The operator's user name: of sudo, else of the process."""
    if name := os.environ.get("SUDO_USER"):
        return name
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


#: Name of the operator in histories. Read at import: a command that root starts changes to the
#: user that owns the store (cordata.connect).
OPERATOR = _operator()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hub:
    """The options of one call: --config and --json."""

    config: str | None
    json: bool = False

    def run(self, act: Callable[[Context], Awaitable[T]]) -> T:
        """Open the store, run `act`, close the store. Raises: CordataError."""
        from alpinehub.app import app

        async def main() -> T:
            async with connect(app, self.config) as ctx:
                return await act(ctx)

        return asyncio.run(main())

    def print_result(self, record: Mapping[str, object], sentence: str) -> None:
        """Print what was done: a sentence, or a JSON object."""
        show_json(as_record(record)) if self.json else click.echo(sentence)


async def empty_log(ctx: Context) -> None:
    """Remove erased text from the store's write-ahead log, too; warn if a reader prevents it."""
    for pause_s in _LOG_PAUSES_S:
        if await ctx.store.checkpoint():
            return
        await asyncio.sleep(pause_s)
    if not await ctx.store.checkpoint():
        click.echo(
            "warning: another program reads the database, so erased text may stay in its"
            " write-ahead log until later writes replace it, or until cordata stops",
            err=True,
        )


def with_hub(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --config and --debug, and give the command a Hub as its first argument."""

    @functools.wraps(function)
    def command(*, config: str | None, json_: bool = False, **given: Any) -> Any:
        return function(Hub(config=config, json=json_), **given)

    return add_options(config_option, traceback_option)(command)


def hub_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`with_hub`, and the option --json."""
    return as_json(with_hub(function))


def as_json(function: F) -> F:
    """Add the option --json."""
    return click.option("--json", "json_", is_flag=True, help="Print JSON.")(function)


def since(context: click.Context, parameter: click.Parameter, value: str | None) -> int:
    """Parse an option: `2h`, `7d` (ago), or a date in UTC.

    Returns microseconds since the epoch; 0 if the option is not given.
    """
    found = moment(context, parameter, value)
    return 0 if found is None else found.us(int(datetime.now(UTC).timestamp() * 1_000_000))


def pair(word: str, form: str = "NAME=VALUE") -> tuple[str, str]:
    """Split an option's NAME=VALUE. Raises: UsageError that names the form."""
    name, equals, value = word.partition("=")
    if not name or not equals:
        raise click.UsageError(f"{word!r} must be {form}")
    return name, value


def read_secret(what: str) -> str:
    """The first line of standard input; on a terminal it is asked for twice and not shown.

    Never an argument: all users of the machine can read those.
    """
    if sys.stdin.isatty():
        return str(click.prompt(what, hide_input=True, confirmation_prompt=True))
    line = first_line(sys.stdin)
    if not line:
        raise click.UsageError(f"standard input contains no {what.lower()}")
    return line


def first_line(file: IO[str]) -> str:
    """The first line of a file, without its end; "" for an empty one. Raises: click.UsageError."""
    try:
        return file.readline().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise click.UsageError(f"{file.name} is not UTF-8 text") from None


def show_document(document: bytes) -> None:
    """Print a document; on a terminal, control characters are printed as character references."""
    if not sys.stdout.isatty():
        click.echo(document)
        return
    text = document.decode("utf-8", "backslashreplace")
    click.echo(
        "".join(one if one.isprintable() or one in "\n\t" else f"&#x{ord(one):X};" for one in text)
    )
