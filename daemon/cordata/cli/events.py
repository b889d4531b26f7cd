"""`cordata events append|read|tail`."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from itertools import islice
from typing import Any

import click

from cordata.cli.operator import CommandResult, Operator, operator_options
from cordata.clock import to_us
from cordata.context import Context
from cordata.core.number import parse_number
from cordata.eventstore import EventStore, NewEvent, StoredEvent
from cordata.eventstore.search import EventFilter, Search, SearchPage
from cordata.terminal import (
    ROW_NUMBER,
    Counter,
    Group,
    Moment,
    add_options,
    as_record,
    limit_option,
    moment,
    printable,
    show_json,
    show_page,
)

_COLUMNS = ("position", "stream", "version", "type", "created_at")
#: Events appended in one transaction with --lines.
_BATCH = 100


@click.group(cls=Group)
def events() -> None:
    """The event store: streams of events, which are never changed or deleted.

    A STREAM is named category-id, for example account-7. Its events have versions 1, 2, 3, ...;
    positions order the events of all streams.
    """


_filters = add_options(
    click.argument("stream", metavar="[STREAM]", required=False),
    click.option("--category", metavar="CATEGORY", help="All streams of this category."),
    click.option("--type", "type_", metavar="TYPE", help="Only events of this type."),
)


@events.command(
    examples="""
        cordata events append account-7 deposited '{"amount": 5}'
        cordata events append account-7 closed '{}' --expected 12 --header reason=merger
        cordata events append account-7 --lines < old.jsonl
    """,
    exit_codes="0 done, 1 the stream is not at the expected version",
)
@click.argument("stream")
@click.argument("type_", metavar="[TYPE]", required=False)
@click.argument("payload", metavar="[PAYLOAD]", required=False)
@click.option(
    "--expected",
    type=ROW_NUMBER,
    metavar="VERSION",
    help="Only if the stream is at this version; 0: only if the stream does not exist yet.",
)
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="May be repeated.")
@click.option("--lines", is_flag=True, help="Read events from stdin, one JSON object a line.")
@operator_options
def append(
    operator: Operator,
    stream: str,
    type_: str | None,
    payload: str | None,
    expected: int | None,
    headers: tuple[str, ...],
    lines: bool,
) -> int:
    """Append one event to a stream, or many with --lines. PAYLOAD is a JSON object, for example
    '{}', or - to read it from stdin.

    A line has "type" and optionally "payload" and "headers"; --header adds one to every line that
    does not have it. Lines are appended in transactions of 100: after an error, the earlier ones
    are committed; the stream's version shows how many.
    """
    if lines and type_ is None:
        act = _append_lines(stream, _headers(headers), expected=expected)
    elif not lines and type_ is not None and payload is not None:
        act = _append_one(stream, type_, payload, _headers(headers), expected=expected)
    else:
        raise click.UsageError("either TYPE and PAYLOAD, or --lines")
    return operator.carry_out("appended", act)


@events.command(
    examples="""
        cordata events read account-7
        cordata events read --category account --type deposited --since 2d --limit 200 --json
        cordata events read --newest --payload
        cordata events read --at 4711
    """,
    exit_codes="0 done, 1 no event at the position of --at",
)
@_filters
@click.option(
    "--since", callback=moment, metavar="TIME", help="Since this time: 90s or 2d ago, or a date."
)
@click.option("--before", callback=moment, metavar="TIME", help="Before this time.")
@click.option("--at", type=ROW_NUMBER, metavar="POSITION", help="Only the event at this position.")
@click.option("--newest", is_flag=True, help="Newest first.")
@click.option("--payload", is_flag=True, help="Show payload and headers, as --json always does.")
@limit_option
@click.option("--after", type=ROW_NUMBER, metavar="NUMBER", help="Start after it: the next page.")
@operator_options
def read(
    operator: Operator,
    stream: str | None,
    category: str | None,
    type_: str | None,
    since: Moment | None,
    before: Moment | None,
    at: int | None,
    newest: bool,
    payload: bool,
    limit: int,
    after: int | None,
) -> int:
    """Read the events of a stream, of a category, or all, in order.

    Payloads may contain personal data, so the list shows them with --payload only. NUMBER is a
    version if a STREAM is given, else a position.
    """
    _check_choice(stream, category)

    async def act(ctx: Context) -> SearchPage:
        search, now_us = Search(ctx.store), ctx.now_us()
        if at is not None:
            event = await search.at(at)
            return SearchPage(events=[event] if event is not None else [], next=None)
        wanted = EventFilter(
            stream=stream,
            category=category,
            type=type_,
            since=None if since is None else since.us(now_us),
            before=None if before is None else before.us(now_us),
        )
        return await search.page(wanted, after=after, limit=limit, newest=newest)

    found = operator.run(act)
    rows = [_row(event) for event in found.events]
    whole = payload or at is not None
    show_page(rows, _COLUMNS, next=found.next, json_=operator.json, whole=whole)
    return 1 if at is not None and not found.events else 0


@events.command(
    short_help="Follow new events.",
    examples="""
        cordata events tail
        cordata events tail account-7 --payload
        cordata events tail --category account --from start --json | jq .payload.amount
    """,
    exit_codes="0 ended by Ctrl-C or --count",
)
@_filters
@click.option(
    "--lines",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    metavar="N",
    help="First print the last N events.",
)
@click.option("--from", "origin", metavar="PLACE", help="start, or a position or version.")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="End after N events.")
@click.option("--payload", is_flag=True, help="Show payloads, as --json always does.")
@operator_options
def tail(
    operator: Operator,
    stream: str | None,
    category: str | None,
    type_: str | None,
    lines: int,
    origin: str | None,
    count: int | None,
    payload: bool,
) -> int:
    """Print the last events (--lines) and then each new one, until Ctrl-C.

    --json prints one object per line. --from prints all events after PLACE, in place of --lines.
    """
    _check_choice(stream, category)
    wanted = EventFilter(stream=stream, category=category, type=type_)

    async def act(ctx: Context) -> None:
        number = 0
        async with contextlib.aclosing(_following(ctx, wanted, origin, lines)) as following:
            async for event in following:
                if operator.json:
                    show_json(as_record(_row(event)), one_line=True)
                else:
                    click.echo(_line_of(event, payload=payload))
                number += 1
                if number == count:
                    return

    with contextlib.suppress(KeyboardInterrupt):
        operator.run(act)
    return 0


async def _following(
    ctx: Context, wanted: EventFilter, origin: str | None, lines: int
) -> AsyncGenerator[StoredEvent, None]:
    search = Search(ctx.store)
    if origin is None:
        place = await search.end(wanted)
        if lines:
            last = await search.page(wanted, after=place + 1, limit=lines, newest=True)
            for event in reversed(last.events):
                yield event
    else:
        place = 0 if origin == "start" else _number(origin)
    async with contextlib.aclosing(search.tail(wanted, place)) as coming:
        async for event in coming:
            yield event


def _check_choice(stream: str | None, category: str | None) -> None:
    if stream is not None and category is not None:
        raise click.UsageError("either STREAM or --category, not both")


def _number(text: str) -> int:
    if (number := parse_number(text)) is None:
        raise click.UsageError(f"--from {text!r} is neither start nor a number")
    return number


def _row(event: StoredEvent) -> dict[str, Any]:
    """The event as a row for `cordata.terminal`: microseconds; payload and headers as JSON."""
    return {
        "position": event.position,
        "stream": event.stream,
        "version": event.version,
        "type": event.type,
        "created_at": to_us(event.created_at),
        "payload": json.dumps(event.payload, ensure_ascii=False),
        "headers": json.dumps(event.headers, ensure_ascii=False),
    }


def _line_of(event: StoredEvent, *, payload: bool) -> str:
    """One event as one line of text."""
    at = f"{event.created_at:%Y-%m-%d %H:%M:%S}Z"
    line = f"{at}  {event.position}  {event.stream} {event.version}  {event.type}"
    more = f"  {json.dumps(event.payload, ensure_ascii=False)}" if payload else ""
    return printable(line + more)


def _append_one(
    stream: str,
    type: str,
    payload: str,
    headers: Mapping[str, str],
    *,
    expected: int | None,
) -> Callable[[Context, Counter], Awaitable[CommandResult]]:
    """Read the payload; returns the function that appends the event. Raises: click.UsageError."""
    text = sys.stdin.buffer.read() if payload == "-" else payload
    event = NewEvent(type=type, payload=_object(text), headers=headers)

    async def act(ctx: Context, counter: Counter) -> CommandResult:
        version = await _append(ctx, stream, [event], expected)
        return _done(1, stream, version)

    return act


def _append_lines(
    stream: str, headers: Mapping[str, str], *, expected: int | None
) -> Callable[[Context, Counter], Awaitable[CommandResult]]:
    """Returns the function that appends the lines of stdin, _BATCH events per transaction."""

    async def act(ctx: Context, counter: Counter) -> CommandResult:
        lines = _Lines()
        new = (_event(line, headers) for line in lines)
        count, version, at = 0, 0, expected
        while batch := list(islice(new, _BATCH)):
            # From the second transaction on, another process must not have appended in between.
            version = at = await _append(ctx, stream, batch, at)
            count += len(batch)
            counter(count, lines.share)
        return _done(count, stream, version)

    return act


class _Lines:
    """The JSON objects on stdin, one per line, and the share of stdin read so far."""

    def __init__(self) -> None:
        status = os.fstat(sys.stdin.fileno())
        self._size = status.st_size if stat.S_ISREG(status.st_mode) else 0
        self._read = 0

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        for number, line in enumerate(sys.stdin.buffer, start=1):
            self._read += len(line)
            if line.strip():
                yield _object(line, f"line {number}: ")

    @property
    def share(self) -> float:
        """0 to 1; 0 if stdin is not a file."""
        return self._read / self._size if self._size else 0.0


async def _append(
    ctx: Context, stream: str, events: Sequence[NewEvent], expected: int | None
) -> int:
    return await ctx.run(lambda tx: EventStore(tx).append(stream, events, expected=expected))


def _done(count: int, stream: str, version: int) -> CommandResult:
    note = f"; {stream} is at version {version}" if count else ""
    return CommandResult(count=count, more={"version": version}, note=note)


def _event(line: Mapping[str, Any], common: Mapping[str, str]) -> NewEvent:
    payload, headers = line.get("payload", {}), line.get("headers", {})
    if not (isinstance(payload, dict) and isinstance(headers, dict)):
        raise click.UsageError("payload and headers of a line must be JSON objects")
    return NewEvent(type=str(line.get("type", "")), payload=payload, headers={**common, **headers})


def _object(text: str | bytes, where: str = "") -> Mapping[str, Any]:
    """Parse a JSON object. Raises: click.UsageError if it is none, with `where` before the text."""
    try:
        value = json.loads(text)
    except ValueError as error:  # bytes that are not UTF-8, too
        raise click.UsageError(f"{where}not JSON: {error}") from None
    if not isinstance(value, dict):
        raise click.UsageError(f"{where}a JSON object is needed, not {json.dumps(value)[:40]}")
    return value


def _headers(given: Iterable[str]) -> dict[str, str]:
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise click.UsageError(f"--header {text!r} is not NAME=VALUE")
        found[name] = value
    return found
