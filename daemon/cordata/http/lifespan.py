"""The application's startup and shutdown (ASGI lifespan 2.0)."""

from __future__ import annotations

import asyncio
from typing import Any

from cordata.errors import CordataError
from cordata.http.asgi import VERSION, AsgiApp, Message
from cordata.log import frames, logger

log = logger("cordata.http")


class LifespanFailed(CordataError):
    """The application could not start up or shut down."""

    code = "lifespan_failed"


class Lifespan:
    """Runs the application's lifespan in a task of its own, as it wants to keep its scopes open.

    An application that does not know lifespan (it raises before it answers) is served without.
    """

    def __init__(self, app: AsgiApp, state: dict[str, Any]) -> None:
        self._app = app
        self._state = state
        self._wanted: asyncio.Queue[Message] = asyncio.Queue()
        self._answered = asyncio.Event()
        self._failure = ""
        self._supported = False
        self._ended = False

    async def run(self) -> None:
        """The task's coroutine: the application's call from startup to shutdown."""
        scope = {"type": "lifespan", "asgi": VERSION, "state": self._state}
        try:
            await self._app(scope, self._wanted.get, self._send)
        except Exception as error:  # noqa: BLE001 - the application's boundary
            if self._supported:
                # In place of its own words: those of Starlette are the whole traceback, and the
                # message of an exception may quote what nobody should find in the log.
                place = frames(error.__traceback__)
                self._failure = f"{type(error).__name__} at {place}"
            log.debug("the application has no lifespan, or it failed: %r", error)
        finally:
            self._ended = True
            self._answered.set()

    async def startup(self) -> None:
        """Returns when the application is ready. Raises: LifespanFailed."""
        await self._tell("lifespan.startup")

    async def shutdown(self) -> None:
        """Returns when the application has cleaned up. Raises: LifespanFailed."""
        if not self._ended:
            await self._tell("lifespan.shutdown")

    async def _tell(self, message: str) -> None:
        if not self._ended:  # else nobody will ever answer
            self._answered.clear()
            self._wanted.put_nowait({"type": message})
            await self._answered.wait()
        if self._failure:
            raise LifespanFailed(f"{message} failed: {self._failure}")

    async def _send(self, message: Message) -> None:
        kind = str(message["type"])
        self._supported = True
        if kind.endswith(".failed"):
            self._failure = str(message.get("message", "")) or "no reason given"
        self._answered.set()
