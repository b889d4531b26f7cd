"""One connection to Redis: requests go out in one write, replies come back in their order.

On hiredis itself, not on redis-py: with Debian 13's versions of the two redis-py parses in Python,
which costs 26 us of CPU per message read, against less than 1 us here (12 us against 1 us per
message added with the newest ones), and its import costs every process 10 MB and 45 ms.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, Self, cast

import hiredis

from cordata.errors import BrokerUnavailable

#: A host that vanished is noticed within this, though nothing is sent while a read blocks.
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 5), (socket.TCP_KEEPINTVL, 2), (socket.TCP_KEEPCNT, 3))
_USER_TIMEOUT_MS = 10_000
#: A connection whose server is, or has become, of no use.
_UNFIT = frozenset({"READONLY", "LOADING", "MASTERDOWN", "UNBLOCKED", "NOAUTH", "MISCONF"})

#: Words of a command; numbers are sent as text.
Command = tuple[str | bytes | int, ...]
_pack = cast("Callable[[Command], bytes]", hiredis.pack_command)  # annotated as of one word


class Refused(Exception):
    """Redis answered a command with an error."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        #: The first word of the answer, such as NOGROUP or OOM.
        self.kind = text.partition(" ")[0]


class _Call:
    __slots__ = ("count", "done", "replies")

    def __init__(self, count: int, done: asyncio.Future[None]) -> None:
        self.count = count
        self.done = done
        self.replies: list[Any] = []


class Connection(asyncio.Protocol):
    """Any number of tasks may call at once; when it is lost every call fails, and it stays so."""

    def __init__(self) -> None:
        #: Filled by who dials: of the server's process, of this connection.
        self.run_id = ""
        self.client_id = 0
        #: Why it is of no use any more; "" while it is.
        self.lost = ""
        #: Set when it is lost.
        self.closed = asyncio.Event()
        self._reader = hiredis.Reader(replyError=Refused)
        self._calls: deque[_Call] = deque()
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def open(
        cls, host: str, port: int, *, tls: ssl.SSLContext | None, timeout_s: float
    ) -> Self:
        """Connect. Raises: BrokerUnavailable."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                _, connection = await loop.create_connection(cls, host, port, ssl=tls)
        except TimeoutError:
            text = f"{host}:{port}: no connection within {timeout_s:g} s"
            raise BrokerUnavailable(text) from None
        except (OSError, ssl.SSLError) as error:  # a certificate is a ValueError in an OSError
            raise BrokerUnavailable(f"{host}:{port}: {_reason(error)}") from error
        return connection

    async def call(self, *commands: Command, timeout_s: float) -> list[Any]:
        """Send commands; their replies, those that are errors as `Refused` objects.

        Cancelling is safe for the connection; the replies are thrown away when they come. Raises:
        BrokerUnavailable when the connection is lost or nothing comes within the time, which loses
        the connection: nobody knows then which of the commands were carried out.
        """
        if self.lost or self._transport is None:
            raise BrokerUnavailable(self.lost)
        call = _Call(len(commands), asyncio.get_running_loop().create_future())
        self._calls.append(call)
        self._transport.write(b"".join(map(_pack, commands)))
        try:
            async with asyncio.timeout(timeout_s):
                await call.done
        except TimeoutError:
            self.abort(f"no answer within {timeout_s:g} s")
            raise BrokerUnavailable(self.lost) from None
        return call.replies

    async def run(self, *commands: Command, timeout_s: float) -> list[Any]:
        """As `call`, for commands that are not refused. Raises: Refused, BrokerUnavailable."""
        replies = await self.call(*commands, timeout_s=timeout_s)
        for reply in replies:
            if isinstance(reply, Refused):
                raise reply
        return replies

    def abort(self, reason: str) -> None:
        """Close at once; calls in flight fail."""
        self._lose(reason)
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio's."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are not derived from it
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _USER_TIMEOUT_MS)
        for option, value in _KEEPALIVE:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)

    def data_received(self, data: bytes) -> None:
        """asyncio's: resolves calls whose replies are complete."""
        reader = self._reader
        try:
            reader.feed(data)
            while (reply := reader.gets()) is not False:
                if not self._take(reply):
                    return
        except hiredis.ProtocolError as error:
            self.abort(f"not the protocol of Redis: {error}")

    def _take(self, reply: Any) -> bool:
        if isinstance(reply, Refused) and (reply.kind in _UNFIT or not self._calls):
            self.abort(str(reply))  # such as: too many clients
            return False
        if not self._calls:
            self.abort("an answer to no question")
            return False
        call = self._calls[0]
        call.replies.append(reply)
        if len(call.replies) == call.count:
            self._calls.popleft()
            if not call.done.done():
                call.done.set_result(None)
        return True

    def connection_lost(self, error: Exception | None) -> None:
        """asyncio's."""
        self._lose(_reason(error) if error else "the server closed the connection")

    def _lose(self, reason: str) -> None:
        self.lost = self.lost or reason
        self.closed.set()
        calls, self._calls = self._calls, deque()
        for call in calls:
            if not call.done.done():
                call.done.set_exception(BrokerUnavailable(self.lost))


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason}"
    text = error.strerror if isinstance(error, OSError) else None
    return text or str(error) or type(error).__name__
