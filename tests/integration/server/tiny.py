"""An application for the supervisor's tests: tells about its process, and misbehaves on request."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

from cordata import App
from cordata.context import Context, Event, EventContext
from cordata.errors import PermanentError

app = App("tiny")
#: The process that has imported this.
IMPORTED_BY = os.getpid()


def _facts() -> dict[str, Any]:
    return {
        "pid": os.getpid(),
        "imported_by": IMPORTED_BY,
        "modules": list(sys.modules),
        "command": Path("/proc/self/cmdline").read_text().rstrip("\0").split("\0"),
        "parent": os.getppid(),
        "session": os.getsid(0),
        "descriptor_limit": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "environment": dict(os.environ),
        "descriptors": {
            fd: os.readlink(f"/proc/self/fd/{fd}")
            for fd in os.listdir("/proc/self/fd")
            if os.path.islink(f"/proc/self/fd/{fd}")
        },
    }


def _leave_orphan() -> dict[str, Any]:
    """A grandchild that outlives its parent and ends a moment later, as a zombie of PID 1's."""
    child = os.fork()
    if child == 0:
        if os.fork() == 0:
            time.sleep(0.05)
        os._exit(0)
    os.waitpid(child, 0)
    return {}


def _zombies() -> dict[str, Any]:
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    state = file.read().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if state == "Z":
                found.append(int(entry))
    return {"zombies": found, "pids": sorted(int(e) for e in os.listdir("/proc") if e.isdecimal())}


async def serve(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        while (message := await receive())["type"] != "lifespan.shutdown":
            await send({"type": message["type"] + ".complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    path = scope["path"]
    body: dict[str, Any] = {}
    if path == "/facts":
        body = _facts()
    elif path == "/orphan":
        body = _leave_orphan()
    elif path == "/zombies":
        body = _zombies()
    elif path == "/hang":
        if flag := os.environ.get("TINY_HANGING"):
            Path(flag).touch()
        time.sleep(60)
    elif path == "/slow":
        await asyncio.sleep(0.5)
    elif path == "/publish":
        ctx: Context = scope["state"]["cordata"]
        await ctx.run(lambda tx: tx.publish("thing.done", {"n": 1}))
    elif path == "/publish-bad":
        ctx = scope["state"]["cordata"]
        await ctx.run(lambda tx: tx.publish("thing.refused", {"n": 1}))
    data = json.dumps(body).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(data))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": data})


app.mount("", serve)


@app.on("thing.done", retries=1)
async def done(event: Event, ctx: EventContext) -> None:
    ctx.log.info("handled %s", event.type)


@app.on("thing.refused", retries=1)
async def refused(event: Event, ctx: EventContext) -> None:
    raise PermanentError("never")
