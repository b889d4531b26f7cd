"""Several ASGI applications below path prefixes, as one: the longest prefix wins."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from cordata.http.asgi import AsgiApp, Message, Receive, Scope, Send
from cordata.http.lifespan import Lifespan, LifespanFailed


class Mounted(Protocol):
    """`cordata.app.Mount`, seen from this layer."""

    @property
    def prefix(self) -> str:
        """ "/api", or "" for everything."""
        ...

    @property
    def app(self) -> AsgiApp:
        """What is served below it."""
        ...


def compose(mounts: Sequence[Mounted]) -> AsgiApp:
    """One ASGI application of several.

    A request goes to the longest prefix that its path equals or continues with "/"; the prefix is
    moved to the end of `root_path` while `path` stays whole (ASGI 2.3). Without a match: 404.
    Every mounted application gets its lifespan; they share one state.
    """
    by_length = sorted(mounts, key=lambda mount: len(mount.prefix), reverse=True)
    if len(by_length) == 1 and not by_length[0].prefix:
        return by_length[0].app
    table = [(mount.prefix, mount.prefix + "/", mount.app) for mount in by_length]

    async def composed(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _run_lifespans([mount.app for mount in mounts], scope, receive, send)
            return
        path = scope["path"]
        for prefix, below, app in table:
            if not prefix or path == prefix or path.startswith(below):
                if prefix:
                    scope["root_path"] += prefix
                await app(scope, receive, send)
                return
        await _not_found(send)

    return composed


async def _not_found(send: Send) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 404, "headers": headers})
    await send({"type": "http.response.body", "body": b'{"error": "not_found"}\n'})


async def _run_lifespans(
    apps: Sequence[AsgiApp], scope: Scope, receive: Receive, send: Send
) -> None:
    """Start in order, shut down in reverse; one that fails to start stops those before it."""
    lifespans = [Lifespan(app, scope["state"]) for app in apps]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(lifespan.run()) for lifespan in lifespans]
        try:
            await _step(await receive(), lifespans, send)
            await _step(await receive(), lifespans, send)
        finally:
            for task in tasks:
                task.cancel()


async def _step(message: Message, lifespans: Sequence[Lifespan], send: Send) -> None:
    kind = message["type"]
    failures = await (_start if kind == "lifespan.startup" else _shut_down)(lifespans)
    if failures:
        await send({"type": f"{kind}.failed", "message": "; ".join(failures)})
    else:
        await send({"type": f"{kind}.complete"})


async def _start(lifespans: Sequence[Lifespan]) -> list[str]:
    for number, lifespan in enumerate(lifespans):
        try:
            await lifespan.startup()
        except LifespanFailed as error:
            return [str(error), *await _shut_down(lifespans[:number])]
    return []


async def _shut_down(lifespans: Sequence[Lifespan]) -> list[str]:
    """Every one of them, whatever becomes of the others. Returns what failed."""
    failures = []
    for lifespan in reversed(lifespans):
        try:
            await lifespan.shutdown()
        except LifespanFailed as error:
            failures.append(str(error))
    return failures
