"""One connection of a client to a child, with the page that says which calls have begun.

connect, hello + page --welcome--> ready: calls out, answers in --end of file--> lost
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable
from pathlib import Path

from cordata.errors import FrameTooLarge, ProtocolError, is_transient
from cordata.pool.client.call import Call
from cordata.pool.client.scheduler import ChildState
from cordata.pool.shared import protocol
from cordata.pool.shared.page import SETTLE_S, ConnectionPage, StatusReader
from cordata.pool.shared.paths import ChildAddress
from cordata.unix_socket import socket_address

#: The largest packet in bytes that a client reads: one message of the largest max_frame_bytes that
#: can be configured. The child applies the configured limit.
MAX_TAKEN = 2**30 + protocol.HEAD_BYTES
#: Largest packet with more than one message.
_BATCH_BYTES = protocol.INLINE_BYTES - protocol.HEAD_BYTES
#: Pause before a packet is sent again after the system was out of descriptors or memory.
_SEND_AGAIN_S = 0.02


def connect(sock: socket.socket, path: Path) -> None:
    """Raises: OSError."""
    with socket_address(path) as address:
        sock.connect(address)


class Connection:
    """A client's connection to one child."""

    def __init__(
        self,
        address: ChildAddress,
        client_id: int,
        *,
        on_messages: Callable[[Connection, list[protocol.FromChild]], None],
        on_writable: Callable[[Connection], None],
        on_lost: Callable[[Connection], None],
    ) -> None:
        """Connect at once. `on_writable`: the socket was full, and takes calls again; `on_lost`:
        the child is gone, and no more messages follow. Raises: OSError when no process listens,
        BlockingIOError when the listener's backlog is full.
        """
        self.address = address
        self.closed = False
        #: The child has left: all that it sent must be read now.
        self._ending = False
        self._on_messages, self._on_writable, self._on_lost = on_messages, on_writable, on_lost
        self._loop = asyncio.get_running_loop()
        #: Messages of this turn of the event loop, for one packet. With a packet for each an echo
        #: call takes 1.1 to 1.3 times the processor time when a client has 8 or more under way.
        self._batch: list[bytes] = []
        self._batch_bytes = 0
        #: Packets to send; they wait while the socket is full (`child.blocked`).
        self._outbox: deque[bytes] = deque()
        self._max_bytes = MAX_TAKEN
        #: Number of the last call that was sent.
        self._number = 0
        status = StatusReader.open(address.status)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._socket.setblocking(False)
            connect(self._socket, address.socket)
            file = ConnectionPage.create()
            try:
                self._page = ConnectionPage(file)
                hello = protocol.Hello(version=protocol.VERSION, client=client_id)
                protocol.send(self._socket, protocol.batch([protocol.encode(hello)]), [file])
            finally:
                os.close(file)
        except BaseException:
            self._socket.close()
            status.close()
            raise
        #: The final `last_begun`, once the connection is closed.
        self._last_begun = 0
        self.child = ChildState(address, status)
        #: Of the child, from its Welcome.
        self.pid = 0
        self._loop.add_reader(self._socket, self._readable)

    @property
    def last_begun(self) -> int:
        """Number of the last call that the child began; those after it have not begun."""
        return self._last_begun if self.closed else self._page.begun

    def welcome(self, packet: protocol.Welcome) -> None:
        """Apply the Welcome: the child takes calls of these commands."""
        self._max_bytes, self.pid = packet.max_frame_bytes, packet.pid
        self.child.commands = packet.commands
        self.child.ready = True

    def send_call(self, call: Call) -> None:
        """Send a call: at once if the child has none, else in one packet with the next messages of
        this turn of the event loop. Raises: FrameTooLarge (nothing was sent then).
        """
        number = self._number + 1
        data = protocol.encode(
            protocol.Call(
                number,
                call.command,
                call.arguments,
                call.keywords,
                call.deadline,
                call.sequence,
                call.session,
                call.request_id,
                0 if call.stream is None else call.stream.credits,
                call.traceparent,
            )
        )
        if len(data) > self._max_bytes:
            raise protocol.too_large(len(data), self._max_bytes)
        self._number = call.number = number
        call.child = self.child
        calls = self.child.calls
        at_once = not (calls or self._batch)
        calls[number] = call
        if at_once:
            self._send(protocol.batch((data,)))
        else:
            self._post(data)

    def cancel(self, call: Call) -> None:
        """Send the child a Cancel."""
        self._post(protocol.encode(protocol.Cancel(call.number)))

    def credit(self, call: Call, count: int) -> None:
        """Let the child send `count` more parts."""
        self._post(protocol.encode(protocol.Credit(call.number, count)))

    @property
    def has_unbegun_calls(self) -> bool:
        """Whether the child has calls of this client that it has not begun."""
        calls = self.child.calls
        return bool(calls) and self.last_begun < next(reversed(calls))

    def revoke(self, number: int, revoked: Callable[[Connection, int], None]) -> None:
        """Let no call up to this number begin any more; calls `revoked` as soon as it is final
        which of them have begun.
        """
        if not self.closed:
            self._page.revoke(number)
        self._loop.call_later(SETTLE_S, revoked, self, number)

    def close(self, *, forked: bool = False) -> None:
        """Close the connection; `forked`: it belongs to the parent, and stays open there."""
        if self.closed:
            return
        if not forked:
            self._page.revoke(self._number)  # a child that is alive must not begin them any more
            self._loop.remove_reader(self._socket)
            if self._outbox:
                self._loop.remove_writer(self._socket)
        self._socket.close()
        self._last_begun = self._page.begun
        self.closed = True
        self._page.close()  # it holds a descriptor
        self.child.load.close()

    def _post(self, message: bytes) -> None:
        if self._batch_bytes + len(message) > _BATCH_BYTES:
            self._flush()
        if not self._batch:
            self._loop.call_soon(self._flush)
        self._batch.append(message)
        self._batch_bytes += len(message)

    def _flush(self) -> None:
        if self._batch:
            messages, self._batch, self._batch_bytes = self._batch, [], 0
            self._send(protocol.batch(messages))

    def _send(self, data: bytes) -> None:
        if not self.closed:
            self._outbox.append(data)
            if not self.child.blocked:
                self._write()

    def _write(self) -> None:
        while self._outbox and not self.closed:
            try:
                protocol.send(self._socket, self._outbox[0])
            except BlockingIOError:
                self._loop.add_writer(self._socket, self._write)
                self.child.blocked = True
                return
            except OSError as error:
                self._loop.remove_writer(self._socket)
                self.child.blocked = True
                if is_transient(error):
                    self._loop.call_later(_SEND_AGAIN_S, self._write)
                else:
                    self._end()
                return
            self._outbox.popleft()
        if self.child.blocked and not self.closed:
            self._loop.remove_writer(self._socket)
            self.child.blocked = False
            self._on_writable(self)

    def _end(self) -> None:
        """The child has left; read now, because an event loop may report the end only once."""
        if not self._ending:
            self._ending = True
            self._loop.call_soon(self._readable)

    def _readable(self) -> None:
        receive, decode, calls = protocol.receive, protocol.from_child.decode, self.child.calls
        while not self.closed:
            try:
                data, files = receive(self._socket, MAX_TAKEN)
                if not data:
                    self._on_lost(self)
                    return
                if files:
                    protocol.close(files)
                messages = decode(data)
            except BlockingIOError:
                return
            except ConnectionResetError:
                # The child left without reading everything; its answers can still be read. uvloop
                # does not call this again after an error.
                self._ending = True
                continue
            except (OSError, FrameTooLarge, ProtocolError):
                self._on_lost(self)
                return
            self._on_messages(self, messages)
            if not calls and not self._ending:
                return
