"""What the workers of `engine_start` run, by itself: they import nothing that measures."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from cordata import App, Event, EventContext

#: What one handler takes: so long a stop may wait for it.
HANDLER_S = 0.05
#: Names the directory for the notes.
NOTES = "BENCH_NOTES"

app = App("bench")
# A child and the pool start, too, as the hub's do; what they import is as little as the hub's.
app.command("read_message", at="alpinehub.alpinebits.large:read_large")


@app.on("bench.start", concurrency=16)
async def handle(event: Event, ctx: EventContext) -> None:
    """Notes when the first one of its process began, and each that ended."""
    note = Path(os.environ[NOTES]) / str(os.getpid())
    if not note.exists():
        note.write_text(str(time.monotonic_ns()))
    await asyncio.sleep(HANDLER_S)
    with note.with_suffix(".ended").open("a") as file:
        print(event.id, file=file)
