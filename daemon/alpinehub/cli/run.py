"""What the commands share: a Context for one coroutine, secrets in, tables and JSON out."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from secrets import token_urlsafe
from typing import IO, Any, TypeVar

import click

from cordata import Context, connect

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

#: Characters of a secret made here: 144 bits.
_SECRET_BYTES = 18


def _operator() -> str:
    """Who gives the command, as the system knows him: what the environment says anybody may say."""
    if name := os.environ.get("SUDO_USER"):
        return name
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


#: For what is put on record. Asked at once: a command of root's becomes the owner of the store
#: (cordata.connect).
OPERATOR = _operator()


def run(config: str | None, act: Callable[[Context], Awaitable[T]]) -> T:
    """Open the store, act, close it. Raises: CordataError."""
    from alpinehub.app import app

    async def main() -> T:
        async with connect(app, config) as ctx:
            return await act(ctx)

    return asyncio.run(main())


def as_json(function: F) -> F:
    """Add the option --json."""
    return click.option("--json", "json_", is_flag=True, help="Print JSON.")(function)


def new_secret() -> str:
    """A secret that nobody has to think of."""
    return token_urlsafe(_SECRET_BYTES)


def read_secret(what: str) -> str:
    """The first line of standard input; asked for twice, unseen, when that is a terminal.

    Never an argument: every process of the machine may read those.
    """
    if sys.stdin.isatty():
        return str(click.prompt(what, hide_input=True, confirmation_prompt=True))
    line = first_line(sys.stdin)
    if not line:
        raise click.UsageError(f"standard input holds no {what.lower()}")
    return line


def first_line(file: IO[str]) -> str:
    """The first line of a file, without its end; "" for an empty one."""
    return file.readline().removesuffix("\n").removesuffix("\r")


def show(record: Mapping[str, object], sentence: str, json_: bool) -> None:
    """Print what was done, for people or as one JSON object."""
    if json_:
        sentence = json.dumps({name: plain(name, value) for name, value in record.items()})
    click.echo(sentence)


def show_table(rows: Sequence[Mapping[str, object]], columns: Sequence[str], json_: bool) -> None:
    """Print rows as a table, or all their columns as one JSON array."""
    if json_:
        records = [{name: plain(name, value) for name, value in row.items()} for row in rows]
        click.echo(json.dumps(records, indent=2))
        return
    cells = [[_text(column, row[column]) for column in columns] for row in rows]
    heads = [column.removesuffix("_at").replace("_", " ").upper() for column in columns]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    for line in (heads, *cells):
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join(padded).rstrip())


def show_line(name: str, value: object) -> None:
    """Print one fact of a record; a moment as such."""
    head = name.removesuffix("_at").replace("_", " ")
    click.echo(f"{head}: {printable(str(plain(name, value)).replace('+00:00', 'Z'))}")


def plain(column: str, value: object) -> object:
    """A moment as ISO 8601 in UTC, everything else as it is."""
    if column.endswith(("_at", "_until")) and isinstance(value, int):
        return datetime.fromtimestamp(value // 1_000_000, UTC).isoformat()
    return value


def _text(column: str, value: object) -> str:
    if value is None:
        return "-"
    if column == "disabled_at":
        return f"since {plain(column, value)}"
    return printable(str(plain(column, value)).replace("+00:00", "Z"))


def show_document(document: bytes) -> None:
    """Print XML, or what came instead: on a terminal without what it would obey, as references."""
    if not sys.stdout.isatty():
        click.echo(document)
        return
    text = document.decode("utf-8", "backslashreplace")
    click.echo(
        "".join(one if one.isprintable() or one in "\n\t" else f"&#x{ord(one):X};" for one in text)
    )


def printable(text: str) -> str:
    """What others wrote must not move the cursor, or turn the line of whoever reads it."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )
