"""One client connection: bytes in, exchanges one after the other, deadlines.

    IDLE --byte--> HEAD --whole head--> BODY --its end--> REPLY --response ended--> IDLE
                     \\________ refused, too slow ________/  \\____ close ____> LINGER --> closed

Pipelined requests wait as bytes. There is no timer per connection or request: each phase has a
deadline, and the server's sweep calls `check` about once a second.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from cordata.config.sections import HttpConfig
from cordata.http.body import LengthBody, expected_body
from cordata.http.ending import BODY, HEAD, IDLE, LINGER, REPLY, Ending
from cordata.http.exchange import Exchange
from cordata.http.head import HeadReader
from cordata.http.peer import Peer
from cordata.http.refused import Refused, bad_request
from cordata.http.request import given_request_id, scope_of

if TYPE_CHECKING:
    from cordata.http.server import HttpServer

#: Pipelined bytes kept while a response is due, before reading stops.
_MAX_AHEAD_BYTES = 65_536
#: Requests that follow each other without a pause: whoever sends on without reading would have us
#: fill the kernel's buffers. Fewer while the worker has as many connections as it may have.
_MAX_PIPELINED, _MAX_PIPELINED_FULL = 1000, 16
#: Rest of a body that is read and dropped after an early answer, for the connection's sake.
_MAX_DROPPED_BYTES = 262_144


class Connection(Ending):
    """Reads requests, runs one exchange at a time, keeps the peer to its deadlines."""

    __slots__ = ("_pipelined", "_reader")

    def __init__(self, server: HttpServer, peer: Peer) -> None:
        super().__init__(server, peer)
        self._reader = HeadReader(server.config)
        #: Requests that were here before the response to the one before them was written.
        self._pipelined = 0

    def reload(self, config: HttpConfig) -> None:
        """New limits and trust, from the next head on."""
        self._reader.config = config
        trusted = (client[0] if (client := self._peer.client) else None) in self.server.trusted
        self._peer = replace(self._peer, trusted=trusted)

    # What the transport tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The sockets are set up."""
        self._transport = transport  # type: ignore[assignment]
        self._deadline = self.server.loop.time() + self._patience_s()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go: one buffer for all connections, emptied at once."""
        return self.server.received

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes came."""
        self.data_received(bytes(self.server.received[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Bytes came: what they are depends on the phase."""
        phase = self._phase
        if phase == REPLY or (phase == IDLE and (self._buffer or not self.is_writable)):
            self._buffer += data
            if len(self._buffer) > _MAX_AHEAD_BYTES:
                self.pause_reading()
        elif phase <= HEAD:
            self._read_head(self._buffer + data if self._buffer else data)
        elif phase == BODY:
            self._read_body(data)
        else:
            self._drop()

    def eof_received(self) -> bool:
        """The client closed its side. Returns True while it is still owed a response."""
        self._eof = True
        return self._go_on_without_input()

    def _go_on_without_input(self) -> bool:
        if self._phase == HEAD:
            if self._buffer.isspace():
                return False  # an empty line belongs to no request
            self._refuse_head(bad_request("the connection ended within the header"), self._buffer)
        elif self._phase == BODY:
            self._refuse(bad_request("the connection ended within the body"))
        elif self._phase == REPLY and self._exchange is not None:
            self._exchange.close_peer()
            return True
        return self._phase == IDLE and bool(self._buffer)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None and not exchange.complete:
            exchange.lose("the client left")
        self._reader.close()
        self._phase, self._buffer, self._body = LINGER, b"", None
        self.resume_writing()
        self.server.connection_ended(self)

    def resume_writing(self) -> None:
        """The client has caught up."""
        super().resume_writing()
        if self._buffer and self._phase == IDLE:
            self.server.call_in_turn(self._read_buffer)

    # Requests

    def _read_head(self, data: bytes) -> None:
        try:
            end = self._reader.read(data)
            if end:
                self._buffer = b""
                self._begin(data[end:] if end < len(data) else b"")
                return
        except Refused as refused:
            self._refuse_head(refused, data)
            return
        self._buffer = data
        self.resume_reading()
        if self._phase == IDLE:
            self._phase = HEAD
            self._deadline = self.server.loop.time() + self.server.config.header_timeout_s

    def _read_buffer(self) -> None:
        """Go on with what was pipelined."""
        if self._phase == IDLE and self._buffer and self.is_writable:
            self._read_head(self._buffer)
            if self._eof:
                self._go_on_without_input()

    def _begin(self, rest: bytes) -> None:
        """A head is complete; `rest` follows it. Raises: Refused."""
        server, reader = self.server, self._reader
        scope = scope_of(reader, self._peer, server.trusted, server.state)
        request_id = given_request_id(reader) or server.make_request_id()
        exchange = Exchange(self, scope, request_id, keep_alive=reader.keep_alive)
        self._exchange = exchange
        exchange.begun = now = server.loop.time()
        self._body = expected_body(reader.length, reader.chunked, server.config.max_body_bytes)
        if self._body is None:
            self._phase = REPLY
            self._deadline = now + server.config.response_timeout_s
            self._buffer = rest
            exchange.feed(b"", last=True)
        else:
            self._phase = BODY
            self._deadline = self.expect_body(now, server.config.body_timeout_s)
            exchange.expect_continue = reader.expect_continue and not rest
            if rest:
                self._read_body(rest)
            if exchange.complete:
                return  # refused before the application heard of it
        server.exchange_begun(exchange)

    def _read_body(self, data: bytes) -> None:
        body, exchange = self._body, self._exchange
        if body is None or exchange is None:
            return
        try:
            piece, rest = body.feed(data)
        except Refused as refused:
            self._refuse(refused)
            return
        now = self.server.loop.time()
        if body.done:
            self._body, self._buffer = None, rest
            self._phase = REPLY
            self._deadline = now + self.server.config.response_timeout_s
        else:
            self._deadline = self.got_body(len(data), now, self.server.config.body_timeout_s)
        exchange.expect_continue = False
        room = exchange.feed(piece, last=body.done)
        if body.done:
            if exchange.complete and exchange.started:
                self._next()
        elif not room:
            self.pause_reading()
            self._deadline = now + self.server.config.response_timeout_s
        elif body.behind:
            self.pause_reading()
            self.server.call_in_turn(self._decode_on)
        else:
            self.resume_reading()

    def _decode_on(self) -> None:
        """Decode more of what was received, unless the application has to take some first."""
        body, exchange = self._body, self._exchange
        if body is not None and body.behind and exchange is not None and exchange.has_room:
            self._read_body(b"")

    @property
    def stays_open(self) -> bool:
        """Whether another request may follow the response that is about to begin.

        Not after many pipelined requests, nor behind a body of which much, or who knows how much,
        is still to come: the client is told to stop, and what comes is dropped as it is.
        """
        body = self._body
        if body is not None:
            return isinstance(body, LengthBody) and body.left <= _MAX_DROPPED_BYTES
        return self._pipelined < (_MAX_PIPELINED_FULL if self.server.is_full else _MAX_PIPELINED)

    def response_ended(self, *, close: bool) -> None:
        """The exchange has written its response."""
        self.server.served += 1
        if close:
            self._close_after_response()
        elif self._body is None:
            self._next()
        else:
            self.resume_body()  # what the application did not read is read and dropped

    def _next(self) -> None:
        """Ready for the next request."""
        self._exchange = None
        self._phase = IDLE
        self._deadline = self.server.loop.time() + self._patience_s()
        if len(self._buffer) <= _MAX_AHEAD_BYTES:
            self.resume_reading()
        if self._buffer:
            self._pipelined += 1
            self.server.call_in_turn(self._read_buffer)
            return
        self._pipelined = 0
        if self._eof:
            self._transport.close()

    # Flow control

    def resume_body(self) -> None:
        """The application has taken what was there."""
        if self._paused and self._phase == BODY:
            now, limit_s = self.server.loop.time(), self.server.config.body_timeout_s
            self._deadline = self.expect_body(now, limit_s)
            if self._body is not None and self._body.behind:
                self.server.call_in_turn(self._decode_on)
            else:
                self.resume_reading()
