"""Commands that the contract calls, wherever they run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import cordata
from cordata.errors import PermanentError

warmed: list[str] = []


class NoRoom(Exception):
    """The command's own."""


def warm_up() -> None:
    warmed.append("warm")


def echo(payload: Any, session: Any) -> Any:
    return payload


async def echo_later(payload: Any, session: Any) -> Any:
    await asyncio.sleep(0.01)
    return payload


def fail(payload: Any, session: Any) -> None:
    raise NoRoom(f"no room for {payload}")


def refuse(payload: Any, session: Any) -> None:
    raise PermanentError("never")


def no_value(payload: Any, session: Any) -> object:
    return object()


def pages(payload: int, session: Any) -> Iterator[int]:
    yield from range(payload)


async def pages_later(payload: int, session: Any) -> AsyncIterator[int]:
    for page in range(payload):
        await asyncio.sleep(0)
        yield page


def broken_pages(payload: int, session: Any) -> Iterator[int]:
    yield from range(payload)
    raise NoRoom("on the last page")


def endless(payload: Any, session: Any) -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1


def sleep(payload: float, session: Any) -> None:
    """So long, whoever waits."""
    time.sleep(payload)


def add(payload: Any, session: Any) -> Any:
    """Put the payload into the session's list, and count it."""
    session["rooms"] = [*session.get("rooms", []), payload]
    session.count(added=1)
    return {"rooms": session["rooms"], "counters": dict(session.counters)}


def add_and_fail(payload: Any, session: Any) -> None:
    add(payload, session)
    raise NoRoom


def add_and_give_no_value(payload: Any, session: Any) -> object:
    add(payload, session)
    return object()


def shared(payload: Any, session: Any) -> Any:
    """Set the globals that the payload has; give all."""
    found = cordata.current_call().globals
    for key, value in (payload or {}).items():
        found[key] = value
    return dict(found)


def about(payload: Any, session: Any) -> Any:
    call = cordata.current_call()
    return {
        "command": call.command,
        "request_id": call.request_id,
        "remaining": call.remaining_s(),
        "warmed": warmed,
    }
