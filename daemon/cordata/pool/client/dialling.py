"""How a client comes to its connection: at once, then with pauses that grow."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import cached_property

from cordata.core.frame import TooLarge
from cordata.core.pool.message import Hello, ToClient
from cordata.pool.client.link import Link
from cordata.pool.client.wire import DIAL_MAX_S, DIAL_MIN_S


class Dialling:
    """The part of Exchange that dials."""

    def __init__(self, path: str, hello: Callable[[], Hello]) -> None:
        self._path = path
        self._hello = hello
        #: Where new requests go.
        self._link: Link | None = None
        self._dialling: asyncio.TimerHandle | None = None
        self._pause_s = 0.0
        #: Why there is no connection.
        self._reason = ""

    @cached_property
    def loop(self) -> asyncio.AbstractEventLoop:
        """That of the first request. To ask for it takes a system call each time in Python 3.11."""
        return asyncio.get_running_loop()

    def _dial_after(self, pause_s: float) -> None:
        if not pause_s:
            self._dial()
            return
        # Many clients lose one manager at the same moment.
        pause_s *= random.uniform(0.5, 1.0)
        self._dialling = self.loop.call_later(pause_s, self._dial)

    def _dial(self) -> None:
        self._dialling = None
        if not self._wanted():
            return
        try:
            heard, lost, pump = self._heard, self._lost, self._pump
            hello = self._hello()
            self._link = Link(self._path, hello, heard=heard, lost=lost, room_again=pump)
        except OSError as error:
            self._reason = error.strerror or str(error)
            self._grow_pause()
            self._dial_after(self._pause_s)

    def _grow_pause(self) -> None:
        self._pause_s = min(max(2 * self._pause_s, DIAL_MIN_S), DIAL_MAX_S)

    def _wanted(self) -> bool:
        """Whether there is something to send."""
        raise NotImplementedError

    def _pump(self) -> None:
        """Send what waits, if there is room."""
        raise NotImplementedError

    def _heard(self, link: Link, message: ToClient | TooLarge) -> None:
        """A frame came."""
        raise NotImplementedError

    def _lost(self, link: Link, reason: str) -> None:
        """A connection ended."""
        raise NotImplementedError
