"""The receiving half of an exchange: the request's body on its way to the application."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cordata.http.asgi import DISCONNECT, Message
from cordata.http.response import CONTINUE

if TYPE_CHECKING:
    from cordata.http.connection import Connection

#: Body bytes that wait for the application before the connection stops reading.
HIGH_WATER_BYTES = 65_536


class Intake:
    """ASGI `receive` with back-pressure; base of `Exchange` (one object per request, not two)."""

    __slots__ = (
        "_body",
        "_body_taken",
        "_buffered_bytes",
        "_event",
        "_more_body",
        "complete",
        "connection",
        "expect_continue",
        "lost",
        "peer_closed",
    )

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        #: The client waits for 100 Continue.
        self.expect_continue = False
        #: The response is written, or never will be.
        self.complete = False
        #: Why nothing can be answered any more; "" while it can.
        self.lost = ""
        #: The client has closed its side.
        self.peer_closed = False
        self._body: list[bytes] = []
        self._buffered_bytes = 0
        self._more_body = True
        #: The application has got all of it.
        self._body_taken = False
        self._event: asyncio.Event | None = None

    def feed(self, piece: bytes, *, last: bool) -> bool:
        """Take a piece of the body. Returns False when no more should be read for now."""
        self._more_body = not last
        if self.complete:
            self._body.clear()  # nobody will take it
            self._buffered_bytes = 0
        elif piece:
            self._body.append(piece)
            self._buffered_bytes += len(piece)
        self.wake()
        return self.has_room

    @property
    def has_room(self) -> bool:
        """Whether more of the body should be read for now."""
        return self._buffered_bytes <= HIGH_WATER_BYTES

    def close_peer(self) -> None:
        """The client has closed its side: it may still read, but `receive` says it left.

        A half-closed connection and one that is gone look the same until something is written.
        """
        self.peer_closed = True
        self.wake()

    def wake(self) -> None:
        """Let `receive` look again."""
        if self._event is not None:
            self._event.set()

    async def receive(self) -> Message:
        """The next piece of the body, or http.disconnect after its end. Cancelling is safe."""
        while not self._body_taken:
            if self.complete:
                return {"type": DISCONNECT}
            if self._body or not self._more_body:
                return self._take_body()
            if self.expect_continue:
                self.expect_continue = False
                self.connection.write(CONTINUE)
            await self._wait()
        while not (self.complete or self.peer_closed):
            await self._wait()
        return {"type": DISCONNECT}

    def _take_body(self) -> Message:
        body = b"".join(self._body)
        self._body.clear()
        self._buffered_bytes = 0
        self._body_taken = not self._more_body
        self.connection.resume_body()
        return {"type": "http.request", "body": body, "more_body": self._more_body}

    async def _wait(self) -> None:
        if self._event is None:
            self._event = asyncio.Event()
        self._event.clear()
        await self._event.wait()
