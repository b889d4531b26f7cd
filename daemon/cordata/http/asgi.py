"""ASGI 3: types, the lifespan of an application, and several applications mounted as one.

https://asgi.readthedocs.io/en/latest/specs/www.html and lifespan.html
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any

from cordata.core.error_document import error_document
from cordata.errors import CordataError
from cordata.log import frames, logger, request_id

log = logger("cordata.http")

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

#: 2.3: Starlette then watches for http.disconnect itself, so an idle stream ends with its client.
VERSION = {"version": "3.0", "spec_version": "2.3"}
DISCONNECT = "http.disconnect"


class Misuse(RuntimeError):
    """The application broke ASGI; the text quotes nothing of a request."""


class ClientGone(ConnectionError):
    """Raised by `send` in the middle of a stream whose client has left."""


class LifespanFailed(CordataError):
    """The application could not start up or shut down."""

    code = "lifespan_failed"


class Lifespan:
    """Startup and shutdown of an application, in one task, which keeps its context managers open.

    An application that does not know lifespan (it raises before it answers) is served without.
    """

    def __init__(self, app: AsgiApp, state: dict[str, Any]) -> None:
        self._app = app
        self._state = state
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        self._answered = asyncio.Event()
        self._failure = ""
        self._supported = False
        self._ended = False

    async def run(self) -> None:
        """The task's coroutine: the application's call from startup to shutdown."""
        scope = {"type": "lifespan", "asgi": VERSION, "state": self._state}
        try:
            await self._app(scope, self._messages.get, self._send)
        except Exception as error:  # noqa: BLE001 - the application's boundary
            if self._supported:
                # Not the application's text: Starlette's is the whole traceback, and the message of
                # an exception may quote what must not be in the log.
                place = frames(error.__traceback__)
                self._failure = f"{type(error).__name__} at {place}"
            log.debug("the application has no lifespan, or it failed: %r", error)
        finally:
            self._ended = True
            self._answered.set()

    async def startup(self) -> None:
        """Returns when the application is ready. Raises: LifespanFailed."""
        await self._ask("lifespan.startup")

    async def shutdown(self) -> None:
        """Returns when the application has cleaned up. Raises: LifespanFailed."""
        if not self._ended:
            await self._ask("lifespan.shutdown")

    async def _ask(self, message: str) -> None:
        if not self._ended:  # else there is no answer
            self._answered.clear()
            self._messages.put_nowait({"type": message})
            await self._answered.wait()
        if self._failure:
            raise LifespanFailed(f"{message} failed: {self._failure}")

    async def _send(self, message: Message) -> None:
        kind = str(message["type"])
        self._supported = True
        if kind.endswith(".failed"):
            self._failure = str(message.get("message", "")) or "no reason given"
        self._answered.set()


def compose(mounts: Mapping[str, AsgiApp]) -> AsgiApp:
    """One ASGI application of several, each below its prefix ("/api"; "" for everything).

    A request goes to the longest prefix that its path equals or continues with "/"; the prefix is
    moved to the end of `root_path` while `path` stays whole (ASGI 2.3). Without a match: 404;
    but `OPTIONS *`, which asks about the server itself, is answered 204 (RFC 9110 9.3.7).
    Every mounted application gets its lifespan; they share one state.
    """
    if mounts.keys() == {""}:
        return mounts[""]
    by_length = sorted(mounts, key=len, reverse=True)
    table = [(prefix, prefix + "/", mounts[prefix]) for prefix in by_length]

    async def composed(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _run_lifespans(list(mounts.values()), scope, receive, send)
            return
        path = scope["path"]
        for prefix, below, app in table:
            if not prefix or path == prefix or path.startswith(below):
                if prefix:
                    scope["root_path"] += prefix
                await app(scope, receive, send)
                return
        if path == "*":  # the parser takes it only with OPTIONS
            await send({"type": "http.response.start", "status": 204})
            await send({"type": "http.response.body"})
            return
        await send_error(send, 404, "not_found", "nothing is served at this path")

    return composed


async def send_error(
    send: Send, status: int, code: str, message: str, *headers: tuple[bytes, bytes]
) -> None:
    """An error of the server as a whole response."""
    kind = (b"content-type", b"application/json")
    await send({"type": "http.response.start", "status": status, "headers": [kind, *headers]})
    body = error_document(code, message, request_id.get())
    await send({"type": "http.response.body", "body": body})


async def _run_lifespans(
    apps: Sequence[AsgiApp], scope: Scope, receive: Receive, send: Send
) -> None:
    """Start in order, shut down in reverse; one that fails to start stops those before it."""
    lifespans = [Lifespan(app, scope["state"]) for app in apps]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(lifespan.run()) for lifespan in lifespans]
        try:
            for step in (_start_all, _shut_down_all):
                kind = (await receive())["type"]
                failures = await step(lifespans)
                if failures:
                    await send({"type": f"{kind}.failed", "message": "; ".join(failures)})
                else:
                    await send({"type": f"{kind}.complete"})
        finally:
            for task in tasks:
                task.cancel()


async def _start_all(lifespans: Sequence[Lifespan]) -> list[str]:
    for number, lifespan in enumerate(lifespans):
        try:
            await lifespan.startup()
        except LifespanFailed as error:
            return [str(error), *await _shut_down_all(lifespans[:number])]
    return []


async def _shut_down_all(lifespans: Sequence[Lifespan]) -> list[str]:
    """Shut down all in reverse order, even if some fail. Returns the failures."""
    failures = []
    for lifespan in reversed(lifespans):
        try:
            await lifespan.shutdown()
        except LifespanFailed as error:
            failures.append(str(error))
    return failures
