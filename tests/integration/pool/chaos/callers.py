"""Clients, async and sync, each with its session; they carry their orders out and note the ends."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import aclosing, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import uvloop
from tests.integration.pool.chaos.orders import LONG_S, Order

from cordata.config.pool import PoolConfig
from cordata.pool import Client, SyncClient

#: Calls of one async client at the same time.
LANES = 3


#: Random kills accuse no command, and what is idempotent succeeds in the end.
_LIMITS = PoolConfig(retries=50, poison_limit=1_000_000, max_waiting=100_000)


def pools_of(path: Path) -> dict[str, PoolConfig]:
    """As the configuration of the workers of this pool has them."""
    pools = {"default": _LIMITS}
    if (path / "streams").exists():
        pools["streams"] = replace(_LIMITS, workers=("0",), commands=("pages",))
    return pools


@dataclass
class Caller:
    """One client to be: its session and its orders."""

    session: str
    orders: list[Order]
    sync: bool
    #: Calls of it at the same time, if it is async.
    lanes: int = LANES


@dataclass
class Progress:
    """What the killer goes by, and how late this process itself runs."""

    ended: int = 0
    late_s: float = 0.0
    changed: threading.Condition = field(default_factory=threading.Condition)
    over: threading.Event = field(default_factory=threading.Event)

    def end(self) -> None:
        with self.changed:
            self.ended += 1
            self.changed.notify_all()

    def finish(self) -> None:
        """Nobody needs to wait any longer."""
        self.over.set()
        with self.changed:
            self.changed.notify_all()

    def watch(self) -> None:
        """How much later than asked for a thread of this process wakes."""
        while not self.over.is_set():
            began = time.monotonic()
            time.sleep(0.02)
            self.late_s = max(self.late_s, time.monotonic() - began - 0.02)


def call_all(path: Path, callers: list[Caller], progress: Progress) -> None:
    """Carry all orders out."""
    threads = [
        threading.Thread(target=_call_sync, args=(path, caller, progress), daemon=True)
        for caller in callers
        if caller.sync
    ]
    watch = threading.Thread(target=progress.watch, daemon=True)
    for thread in (*threads, watch):
        thread.start()
    asynchronous = [caller for caller in callers if not caller.sync]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_call_async(path, asynchronous, progress))
    for thread in threads:
        thread.join()
    progress.finish()
    watch.join()


def _call_sync(path: Path, caller: Caller, progress: Progress) -> None:
    with SyncClient(path, timeout=LONG_S, pools=pools_of(path)) as client:
        for order in caller.orders:
            began = time.monotonic()
            try:
                order.outcome = _do_sync(client, caller.session, order)
            except Exception as error:  # noqa: BLE001 - the verdict judges it
                order.outcome = error
            order.took_s = time.monotonic() - began
            progress.end()


def _do_sync(client: SyncClient, session: str, order: Order) -> Any:
    if order.kind == "count":
        return client.sessions.count(session, asks=1)
    if order.kind == "note":
        return client.globals.set(**{order.id: order.id})
    options = _options(session, order)
    if order.command != "pages":
        return client.execute(order.command, order.payload, **options)
    with closing(client.stream("pages", order.payload, credit=4, **options)) as parts:
        for part in parts:
            order.parts.append(part)
            if order.kind == "leave":
                break
    return None


async def _call_async(path: Path, callers: list[Caller], progress: Progress) -> None:
    async with asyncio.TaskGroup() as group:
        for caller in callers:
            group.create_task(_client(path, caller, progress))


async def _client(path: Path, caller: Caller, progress: Progress) -> None:
    async with (
        Client(path, timeout=LONG_S, pools=pools_of(path)) as client,
        asyncio.TaskGroup() as group,
    ):
        for lane in range(caller.lanes):
            orders = caller.orders[lane :: caller.lanes]
            group.create_task(_lane(client, caller.session, orders, progress))


async def _lane(client: Client, session: str, orders: list[Order], progress: Progress) -> None:
    for order in orders:
        began = time.monotonic()
        try:
            order.outcome = await _do(client, session, order)
        except Exception as error:  # noqa: BLE001 - the verdict judges it
            order.outcome = error
        order.took_s = time.monotonic() - began
        progress.end()


async def _do(client: Client, session: str, order: Order) -> Any:
    if order.kind == "count":
        return await client.sessions.count(session, asks=1)
    if order.kind == "note":
        return await client.globals.set(**{order.id: order.id})
    options = _options(session, order)
    if order.kind == "cancel":
        call = client.start(order.command, order.payload, **options)
        await asyncio.sleep(order.cancel_after_s)
        call.cancel(hard=order.hard)
        return await call
    if order.command != "pages":
        return await client.execute(order.command, order.payload, **options)
    async with aclosing(client.stream("pages", order.payload, credit=4, **options)) as parts:
        async for part in parts:
            order.parts.append(part)
            if order.kind == "leave":
                break
    return None


def _options(session: str, order: Order) -> dict[str, Any]:
    return {
        "session": session if order.with_session else "",
        "timeout": order.timeout_s,
        "idempotent": order.idempotent,
        "priority": order.priority,
    }
