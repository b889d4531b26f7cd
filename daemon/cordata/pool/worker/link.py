"""The worker's connection to the manager: dialled again and again; nothing waits for it."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from pathlib import Path

from cordata.core.frame import Splitter, TooLarge
from cordata.core.pool.codec import encode, to_worker
from cordata.core.pool.message import ErrorFrame, Hello, Message, Welcome
from cordata.core.pool.order import Alarm, ToWorker
from cordata.errors import ProtocolError
from cordata.log import fields, logger

log = logger("cordata.pool")

_FIRST_S, _LONGEST_S = 0.05, 2.0
_READ = 65536
_CLOSE_S = 1.0
#: Messages for the next manager; the oldest ones go.
_KEPT = 100


class Link:
    """While there is no manager, what is sent is dropped, unless it is to be kept; `on_welcome`
    tells the next one how things are.
    """

    def __init__(
        self,
        path: str | Path,
        hello: Callable[[], Hello],
        *,
        on_welcome: Callable[[], None],
        on_message: Callable[[ToWorker], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._path = path
        self._hello = hello
        self._on_welcome, self._on_message, self._on_lost = on_welcome, on_message, on_lost
        self._writer: asyncio.StreamWriter | None = None
        #: Which run of the manager; "": none has welcomed us.
        self.epoch = ""
        self._kept: deque[Message] = deque(maxlen=_KEPT)
        self._pause_s = _FIRST_S
        #: What was wrong the last time, so that it is said once.
        self._said = ""

    @property
    def connected(self) -> bool:
        """Whether a manager knows us."""
        return bool(self.epoch)

    def send(self, message: Message, *, keep: bool = False) -> None:
        """To the manager; `keep`: to the next one when there is none."""
        # A transport that has failed raises on writing, a moment before its reader hears of it.
        if self._writer is not None and self.epoch and not self._writer.is_closing():
            self._writer.write(encode(message))
        elif keep:
            self._kept.append(message)

    async def run(self) -> None:
        """For ever. Cancelling ends the connection."""
        while True:
            try:
                await self._connect()
            except (OSError, ProtocolError) as error:
                self._say(error)
            await asyncio.sleep(self._pause_s)
            self._pause_s = min(2 * self._pause_s, _LONGEST_S)

    async def _connect(self) -> None:
        """One connection, from its beginning to its end."""
        reader, writer = await asyncio.open_unix_connection(self._path)
        try:
            self._writer = writer
            writer.write(encode(self._hello()))
            splitter = Splitter()
            while data := await reader.read(_READ):
                for frame in splitter.feed(data):
                    if isinstance(frame, TooLarge):
                        raise ProtocolError(f"a frame of {frame.length} bytes")
                    self._take(to_worker.decode(frame))
        finally:
            known, self.epoch, self._writer = self.connected, "", None
            if known:
                log.debug("the pool's connection ended")
                self._on_lost()
            await _close(writer)

    def _take(self, message: ToWorker) -> None:
        if isinstance(message, Welcome):
            self.epoch = message.epoch
            self._pause_s = _FIRST_S
            self._said = ""
            log.debug("connected to the pool")
            while self._kept:
                self.send(self._kept.popleft())
            self._on_welcome()
        elif isinstance(message, ErrorFrame):
            raise ProtocolError(f"{message.code}: {message.m}")
        elif isinstance(message, Alarm):
            # As an error of this process it is mailed like any other.
            log.error("the pool reports: %s", message.m, extra=fields(message.ev))
        else:
            self._on_message(message)

    def _say(self, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        if text != self._said:
            self._said = text
            refused = isinstance(error, ProtocolError)
            log.log(30 if refused else 20, "no pool at %s: %s", self._path, error)


async def _close(writer: asyncio.StreamWriter) -> None:
    """What was sent last goes out, to a manager that reads."""
    writer.close()
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_CLOSE_S):
            await writer.wait_closed()
