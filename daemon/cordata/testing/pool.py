"""The pool of a test: the Client of `ctx.pool`, whose commands run in the test's own process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from cordata.app import App
from cordata.config import Config
from cordata.opening import call_timeout_of
from cordata.pool.client.client import Client
from cordata.pool.client.door import Door
from cordata.testing.hand import Hand
from cordata.testing.inline import InlineExchange


class InlinePool(Client):
    """As Client, without processes: `@app.child_init` and commands run in one thread, one call
    after the other, with the payloads, sessions, errors and streams of a pool.

    Sessions and globals live as long as the test, whose clock ends them; deadlines go by the real
    time. What a command prints is the test's output. Nothing can be killed: a command that hangs
    holds up those after it, and one that ends its process ends the test's.
    """

    def __init__(self, app: App, config: Config, now: Callable[[], float]) -> None:
        super().__init__(timeout=call_timeout_of(config))
        places = {name: command.at for name, command in app.commands.items()}
        hand = Hand(places, app.child_inits, config.pool.max_frame_bytes)
        self._inline = self._exchange = InlineExchange(hand, config.pool, list(places), now)

    def crash(self, command: str, times: int = 1) -> None:
        """Let the process die in the next calls of a command."""
        self._inline.crashes[command] += times

    async def close(self) -> None:
        """End every call, wait for the command in hand."""
        if not self._inline.closed:
            self._inline.close()
            await asyncio.to_thread(self._inline.join)


class InlineDoor(Door):
    """Makes it when somebody calls."""

    def __init__(self, make: Callable[[], InlinePool]) -> None:
        super().__init__()
        self._make = make
        self._pool: InlinePool | None = None

    @property
    def client(self) -> InlinePool:
        """The pool of the test."""
        if self._pool is None:
            self._pool = self._make()
        return self._pool

    async def close(self) -> None:
        """End it, if there is one."""
        if self._pool is not None:
            await self._pool.close()
