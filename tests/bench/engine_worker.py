"""A worker of the engine's bench: waits for a line on stdin, then handles until SIGTERM."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import uvloop
from tests.integration.engine.engine import build, running
from tests.integration.engine.parts import opened

from cordata import clock
from cordata.app import App
from cordata.config.sections import EngineConfig
from cordata.context import Event, EventContext
from cordata.store import Tx

app = App("bench")
started: list[tuple[str, int]] = []


@app.on("bench.noop")
async def noop(event: Event, ctx: EventContext) -> None:
    """What the issue compares: a handler that does nothing."""


async def write_effect(event: Event, ctx: EventContext) -> None:
    """One row, with the mark that the event is handled."""

    async def unit(tx: Tx) -> None:
        await tx.write("add_effect", event_id=event.id, owner="", at=tx.now_us)

    await ctx.run(unit)


app.on("bench.ordinary", group="bench.ordinary")(write_effect)
app.on("bench.batched", group="bench.batched", batch=True)(write_effect)


@app.on("bench.latency")
async def note(event: Event, ctx: EventContext) -> None:
    """Notes when it began."""
    started.append((event.id, clock.now_us()))


async def main(state: Path) -> None:
    """Prints when each `bench.latency` event's handler began, at its end."""
    async with opened(state, migrate=False) as store:
        stopped = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
        engine = build(store, state, app, EngineConfig())
        print("up", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        async with running(engine):
            await stopped.wait()
    for event_id, at in started:
        print(event_id, at)


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1])))
