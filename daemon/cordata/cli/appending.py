"""What `cordata events append` does: one event from its arguments, or many from stdin."""

from __future__ import annotations

import json
import os
import select
import stat
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import click

from cordata.cli.progress import Counter
from cordata.cli.session import Done
from cordata.context import Context
from cordata.eventstore import EventStore, NewEvent
from cordata.store import Tx

Act = Callable[[Context, Counter], Awaitable[Done]]

#: Events of one unit when many are appended.
_BATCH = 100
#: For the first byte of a pipe whose writer starts together with us.
_FED_S = 0.2


def append_one(
    stream: str, type: str, payload: str | None, headers: Iterable[str], *, expected: int | None
) -> Act:
    """Append one event. Raises: click.UsageError."""
    if payload is None and _is_fed():
        raise click.UsageError("stdin is read with - as PAYLOAD only; for an empty one say '{}'")
    text = sys.stdin.read() if payload == "-" else payload or "{}"
    event = NewEvent(type=type, payload=_object(text), headers=_headers(headers))

    async def act(ctx: Context, counter: Counter) -> Done:
        version = await _append(ctx, stream, [event], expected)
        return _done(1, stream, version)

    return act


def append_lines(stream: str, *, expected: int | None) -> Act:
    """Append what stdin holds, one JSON object a line, in units of _BATCH."""

    async def act(ctx: Context, counter: Counter) -> Done:
        lines = _Lines()
        new = (_event(line) for line in lines)
        count, version, at = 0, 0, expected
        while batch := list(islice(new, _BATCH)):
            # From the second unit on nobody else may come between.
            version = at = await _append(ctx, stream, batch, at)
            count += len(batch)
            counter(count, lines.share)
        return _done(count, stream, version)

    return act


def _is_fed() -> bool:
    """Whether stdin holds something: a file that is not empty, a pipe into which somebody wrote.

    Of a pipe that stays open, as that of a supervisor, nobody waits for the end.
    """
    try:
        stdin = sys.stdin.fileno()
        if os.isatty(stdin) or not select.select([stdin], [], [], _FED_S)[0]:
            return False
        return bool(os.read(stdin, 1))
    except (AttributeError, OSError, ValueError):  # closed
        return False


class _Lines:
    """The lines of stdin, and how much of it that is."""

    def __init__(self) -> None:
        status = os.fstat(sys.stdin.fileno())
        self._size = status.st_size if stat.S_ISREG(status.st_mode) else 0
        self._read = 0

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        for number, line in enumerate(sys.stdin, start=1):
            self._read += len(line.encode())
            if line.strip():
                yield _object(line, f"line {number}: ")

    @property
    def share(self) -> float:
        """0 to 1; 0 while nobody knows."""
        return self._read / self._size if self._size else 0.0


async def _append(
    ctx: Context, stream: str, events: Sequence[NewEvent], expected: int | None
) -> int:
    async def unit(tx: Tx) -> int:
        return await EventStore(tx).append(stream, events, expected=expected)

    return await ctx.run(unit)


def _done(count: int, stream: str, version: int) -> Done:
    note = f"; {stream} is at version {version}" if count else ""
    return Done(count=count, more={"version": version}, note=note)


def _event(line: Mapping[str, Any]) -> NewEvent:
    payload, headers = line.get("payload", {}), line.get("headers", {})
    if not (isinstance(payload, dict) and isinstance(headers, dict)):
        raise click.UsageError("payload and headers of a line are JSON objects")
    return NewEvent(type=str(line.get("type", "")), payload=payload, headers=headers)


def _object(text: str, where: str = "") -> Mapping[str, Any]:
    """Raises: click.UsageError when it is no JSON object."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"{where}not JSON: {error}") from None
    if not isinstance(value, dict):
        raise click.UsageError(f"{where}a JSON object is needed, not {text.strip()[:40]}")
    return value


def _headers(given: Iterable[str]) -> dict[str, str]:
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise click.UsageError(f"--header {text!r} is not NAME=VALUE")
        found[name] = value
    return found
