"""A primary as wiring builds it; `python -m` runs it as a process that says what it is."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop
from tests.integration.engine.parts import CHAINS, context_of, opened

from cordata import clock
from cordata.app import App
from cordata.broker.group import Group
from cordata.config.sections import EngineConfig, MailConfig
from cordata.context import Context, runtime_store
from cordata.runner import Service, first_of
from cordata.services.backfill import BackfillService
from cordata.services.mail import MailService
from cordata.services.periodic import PeriodicService
from cordata.services.primary import PrimaryService
from cordata.services.retention import RetentionService
from cordata.store import Store, Tx
from cordata.systemd import Notifier
from cordata.wiring.primary import WhenLeading


@dataclass(slots=True)
class Primary:
    """The services of one primary."""

    lease: PrimaryService
    services: list[WhenLeading]


def build(
    store: Store,
    state: Path,
    app: App,
    *,
    mail: MailConfig | None = None,
    engine: EngineConfig | None = None,
    holder: str = "",
    hand_over: Callable[[], None] = lambda: None,
) -> Primary:
    """The services of one primary."""
    groups = [Group(one.group, one.type, one.key) for one in app.handlers]
    lease = runtime_store(context_of(store)).lease(holder=f"test-{os.getpid()}")
    mail, engine = mail or MailConfig(), engine or EngineConfig()
    primary = PrimaryService(
        *(context_of(store), app, lease, groups, CHAINS, Notifier()),
        holder=holder,
        hand_over=hand_over,
    )
    makers: dict[str, Callable[[Context], Service]] = {
        "periodic": lambda ctx: PeriodicService(ctx, app.periodics),
        "backfill": lambda ctx: BackfillService(ctx, app.backfills),
        "retention": lambda ctx: RetentionService(ctx.store, engine, mail),
    }
    if mail.host:
        makers["mail"] = lambda ctx: MailService(ctx.store, mail)
    services = [WhenLeading(primary, name, make) for name, make in makers.items()]
    return Primary(lease=primary, services=services)


@asynccontextmanager
async def running(primary: Primary) -> AsyncIterator[None]:
    """Run the primary while inside; its layers stop in order at the end."""
    stop_work, stop_lease = asyncio.Event(), asyncio.Event()
    async with asyncio.TaskGroup() as lease_layer:
        lease_layer.create_task(primary.lease.run(stop_lease))
        await primary.lease.ready.wait()
        async with asyncio.TaskGroup() as work:
            for service in primary.services:
                work.create_task(service.run(stop_work))
            try:
                yield
            finally:
                stop_work.set()
        stop_lease.set()


app = App("p")


@app.every(seconds=0.05)
async def beat(ctx: Context) -> None:
    """Leave a trace of who led when."""

    async def unit(tx: Tx) -> None:
        await tx.execute("add_effect", event_id="beat", owner=str(os.getpid()), at=tx.now_us)

    await ctx.run(unit)


@app.backfill("count")
async def count(ctx: Context, cursor: str | None) -> str | None:
    """Forty steps, each leaving a trace; the process may be killed in any."""
    step = int(cursor or 0)

    async def unit(tx: Tx) -> None:
        await tx.execute(
            "add_effect", event_id=f"step-{step}", owner=str(os.getpid()), at=tx.now_us
        )

    await ctx.run(unit)
    await asyncio.sleep(0.01)
    return str(step + 1) if step + 1 < 40 else None


async def main(state: Path, smtp_port: int) -> None:
    """Says `standby` and `leads <microseconds>`; ends at SIGTERM."""
    mail = MailConfig(
        host="127.0.0.1" if smtp_port else "", port=smtp_port or 25, retry_first_s=0.1
    )
    async with opened(state, migrate=False) as store:
        stopped = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
        primary = build(store, state, app, mail=mail)
        async with running(primary):
            if primary.lease.leading is None:
                print("standby", flush=True)
            await first_of(primary.lease.led, stopped)
            if primary.lease.leading is not None:
                print("leads", clock.now_us(), flush=True)
            await stopped.wait()


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
