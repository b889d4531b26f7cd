"""`cordata events append|read|tail`."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cordata.cli.options import Moment, limit_option, moment, operator

if TYPE_CHECKING:
    from cordata.context import Context
    from cordata.eventstore import StoredEvent
    from cordata.eventstore.search import Found, Wanted

F = TypeVar("F", bound=Callable[..., Any])


@click.group()
def events() -> None:
    """The event store: what happened, in streams, for ever.

    A STREAM is named category-id, as account-7. Its events have versions 1, 2, 3, ...; positions
    order the events of all streams.
    """


def _narrowing(function: F) -> F:
    """Add STREAM, --category, --type."""
    for option in (
        click.option("--type", "type_", metavar="TYPE", help="Of this type."),
        click.option("--category", metavar="CATEGORY", help="Of all streams of this category."),
        click.argument("stream", metavar="[STREAM]", required=False),
    ):
        function = option(function)
    return function


@events.command(
    short_help="Append to a stream.",
    epilog="""Examples:

\b
  cordata events append account-7 deposited '{"amount": 5}'
  cordata events append account-7 closed --expected 12 --header reason=merger
  cordata events append account-7 --lines < old.jsonl

Exit codes: 0 done, 1 the stream has another version than the expected one.""",
)
@click.argument("stream")
@click.argument("type_", metavar="[TYPE]", required=False)
@click.argument("payload", metavar="[PAYLOAD]", required=False)
@click.option(
    "--expected",
    type=click.IntRange(min=0),
    metavar="VERSION",
    help="Only if this is the stream's version; 0: only if there is no such stream yet.",
)
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="May be repeated.")
@click.option("--lines", is_flag=True, help="Read events from stdin, one JSON object a line.")
@operator
def append(
    stream: str,
    type_: str | None,
    payload: str | None,
    expected: int | None,
    headers: tuple[str, ...],
    lines: bool,
    json_: bool,
    directory: str | None,
    config: str | None,
    debug: bool,
) -> int:
    """Append one event to a stream, or with --lines many. PAYLOAD is a JSON object, - for stdin;
    without it the event has an empty one.

    A line has "type" and, if wanted, "payload" and "headers". Lines are appended in units of 100:
    after an error in the middle those before it are there, and --expected tells where to go on.
    """
    from cordata.cli.appending import append_lines, append_one
    from cordata.cli.session import carry_out

    if lines == (type_ is not None):
        raise click.UsageError("either TYPE or --lines")
    if lines:
        act = append_lines(stream, expected=expected)
    else:
        act = append_one(stream, type_ or "", payload, headers, expected=expected)
    return carry_out(config, directory, "appended", act, json_=json_)


@events.command(
    short_help="Read events.",
    epilog="""Examples:

\b
  cordata events read account-7
  cordata events read --category account --type deposited --since 2d --limit 200 --json
  cordata events read --newest --payload
  cordata events read --at 4711

Exit codes: 0 done, 1 there is no event --at that position.""",
)
@_narrowing
@click.option("--since", callback=moment, metavar="TIME", help="From then on: 90s, 2d, a date.")
@click.option("--before", callback=moment, metavar="TIME", help="Before then.")
@click.option("--at", type=click.IntRange(min=1), metavar="POSITION", help="The one event there.")
@click.option("--newest", is_flag=True, help="The newest first.")
@click.option("--payload", is_flag=True, help="Whole, with payload and headers. --json always is.")
@limit_option
@click.option("--after", type=click.IntRange(min=0), metavar="NUMBER", help="Go on after a page.")
@operator
def read(
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
    json_: bool,
    directory: str | None,
    config: str | None,
    debug: bool,
) -> int:
    """Read the events of a stream, of a category, or all, in their order.

    Payloads may hold personal data, so people see them with --payload only. NUMBER is a version
    when a STREAM is named, else a position.
    """
    from cordata.cli.event_view import show_events
    from cordata.cli.session import run
    from cordata.eventstore.search import Found, Search, Wanted

    _check_choice(stream, category)

    async def act(ctx: Context) -> Found:
        search, now_us = Search(ctx.store), ctx.now_us()
        if at is not None:
            event = await search.at(at)
            return Found(events=[event] if event is not None else [], next=None)
        wanted = Wanted(
            stream=stream,
            category=category,
            type=type_,
            since=None if since is None else since.us(now_us),
            before=None if before is None else before.us(now_us),
        )
        return await search.page(wanted, after=after, limit=limit, newest=newest)

    found = run(config, directory, act)
    show_events(found, whole=payload or at is not None, json_=json_)
    return 1 if at is not None and not found.events else 0


@events.command(
    short_help="Follow events as they come.",
    epilog="""Examples:

\b
  cordata events tail
  cordata events tail account-7 --payload
  cordata events tail --category account --from start --json | jq .payload.amount

Exit codes: 0 ended by Ctrl-C or --count.""",
)
@_narrowing
@click.option(
    "--lines",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    metavar="N",
    help="So many that are there already.",
)
@click.option("--from", "origin", metavar="PLACE", help="start, or after this position or version.")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="End after so many.")
@click.option("--payload", is_flag=True, help="With payload. --json has it always.")
@operator
def tail(
    stream: str | None,
    category: str | None,
    type_: str | None,
    lines: int,
    origin: str | None,
    count: int | None,
    payload: bool,
    json_: bool,
    directory: str | None,
    config: str | None,
    debug: bool,
) -> int:
    """Print the last events (--lines) and then each new one, until Ctrl-C.

    With --json one object a line.
    """
    from cordata.cli.event_view import line_of
    from cordata.cli.session import run
    from cordata.eventstore.search import Wanted

    _check_choice(stream, category)
    wanted = Wanted(stream=stream, category=category, type=type_)

    async def act(ctx: Context) -> None:
        number = 0
        async with contextlib.aclosing(_following(ctx, wanted, origin, lines)) as following:
            async for event in following:
                click.echo(line_of(event, payload=payload, json_=json_))
                number += 1
                if number == count:
                    return

    with contextlib.suppress(KeyboardInterrupt):
        run(config, directory, act)
    return 0


async def _following(
    ctx: Context, wanted: Wanted, origin: str | None, lines: int
) -> AsyncGenerator[StoredEvent, None]:
    from cordata.eventstore.search import Search

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
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise click.UsageError(f"--from {text!r} is neither start nor a number")
    return int(text)
