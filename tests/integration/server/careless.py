"""An application that raises in every place where nobody catches, with a guest's name in each."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from functools import partial
from typing import Any

from cordata import App
from cordata.context import BackfillContext, Context, Event, EventContext

app = App("careless")
#: What must not be found in the log.
GUEST = "eva.moser@example.com"
_left: set[object] = set()


class Broken(Exception):
    """Python tells of what comes after its own text as well."""


def fail(guest: str = GUEST) -> None:
    raise Broken(f"no room for {guest}")


async def fail_later(guest: str) -> None:
    await asyncio.sleep(0)
    fail(guest)


class Dying:
    def __init__(self, guest: str) -> None:
        self.guest = guest

    def __repr__(self) -> str:
        return self.guest

    def __del__(self) -> None:
        fail(self.guest)


def chain() -> None:
    try:
        fail()
    except Broken as error:
        error.add_note(GUEST)
        raise KeyError(GUEST) from error


def implied() -> None:
    try:
        fail()
    except Broken:
        raise LookupError(GUEST)  # noqa: B904 - so that it has a context


def group() -> None:
    errors = []
    for call in (fail, chain):
        try:
            call()
        except (Broken, KeyError) as error:
            errors.append(error)
    raise ExceptionGroup(GUEST, errors)


def _wrong_log_call() -> None:
    import logging

    logging.getLogger("careless").info("%d rooms", GUEST)
    logging.getLogger("careless").exception("it went wrong", exc_info=Broken(GUEST))


async def _own_loop() -> None:
    def run() -> None:
        async def main() -> None:
            left = asyncio.create_task(fail_later(GUEST), name=GUEST)
            await asyncio.sleep(0.01)
            del left

        asyncio.run(main())

    await asyncio.to_thread(run)


async def leave(kind: str) -> None:
    """What a handler or a request leaves behind."""
    if kind == "task":
        _left.add(asyncio.create_task(fail_later(GUEST), name=GUEST))
        await asyncio.sleep(0.01)
        _left.clear()
    elif kind == "callback":
        context = contextvars.copy_context()
        asyncio.get_running_loop().call_soon(partial(fail, GUEST), context=context)
    elif kind == "future":
        future = asyncio.get_running_loop().create_future()
        future.set_exception(Broken(GUEST))
        del future
    elif kind == "loop":
        asyncio.get_running_loop().call_exception_handler(
            {"message": "a part", "exception": Broken(GUEST), "guest": GUEST}
        )
    elif kind == "own-loop":
        await _own_loop()
    elif kind == "thread":
        thread = threading.Thread(target=fail, args=(GUEST,))
        thread.start()
        thread.join()
    elif kind == "del":
        Dying(GUEST)
    elif kind == "log":
        _wrong_log_call()
    elif kind in RAISING:
        RAISING[kind]()


RAISING = {"raise": fail, "chain": chain, "implied": implied, "group": group}


async def serve(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        raise NotImplementedError
    _, where, kind = scope["path"].split("/")
    if where == "handler":
        ctx: Context = scope["state"]["cordata"]
        await ctx.run(lambda tx: tx.publish("guest.came", {"kind": kind}))
    if where == "begun":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{", "more_body": True})
    if where in ("request", "begun"):
        await leave(kind)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})
    if where == "after":
        await leave(kind)


app.mount("", serve)


@app.every(seconds=0.2)
async def count_guests(ctx: Context) -> None:
    """A task of the primary."""
    fail()


@app.backfill("guests")
async def look_back(ctx: BackfillContext, cursor: str | None) -> str | None:
    """Likewise."""
    fail()
    return None


@app.on("guest.came", retries=0)
async def came(event: Event, ctx: EventContext) -> None:
    await leave(event.payload["kind"])
