"""One client connection: an asyncio protocol that runs one exchange after the other.

    IDLE --byte--> HEAD --whole head--> BODY --its end--> RESPONSE --response ended--> IDLE
                    |                    |                   |
                    +--------------------+-------------------+-- last response --> LINGER --> closed

The last response is an error (the request was refused or too slow), or the one after which the
connection is to be closed. A request without a body goes from HEAD to RESPONSE.

Pipelined requests wait as bytes in `_buffer`. A connection in IDLE with bytes in `_buffer` is not
idle: a pipelined request waits for the next turn of the loop, or for the client to read.

Upgrades are not supported: such requests are served as HTTP/1.1.
There is no timer per connection or request: each phase has a deadline, and the server's sweep
calls `check` about once a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from cordata.http.access_log import CLIENT_GONE
from cordata.http.exchange import Exchange, scope_of
from cordata.http.flow import Flow
from cordata.http.parser import (
    Body,
    HeadParser,
    HttpError,
    RequestHead,
    bad_request,
    body_of,
    read_log_fields,
    request_id_of,
    traceparent_of,
)
from cordata.http.proxy import Peer
from cordata.http.response import error_response
from cordata.http.state import ServerState

IDLE, HEAD, BODY, RESPONSE, LINGER = range(5)
_NEVER = float("inf")
#: Pipelined bytes buffered while a response is due, before reading stops.
_MAX_PIPELINED_BYTES = 65_536
#: Requests that follow each other without a pause: a client that sends on without reading would
#: fill the kernel's buffers. Fewer while the worker is at `max_connections`.
_MAX_PIPELINED, _MAX_PIPELINED_FULL = 1000, 16
#: Average bytes per second that a body must have: a client that sends one byte before each deadline
#: would occupy a connection for ever.
_MIN_BODY_RATE = 512
#: When the last response has been sent, the client gets this long after its last byte to read it,
#: and `body_timeout_s` in all: closing with unread bytes would reset the connection and could
#: destroy the response on its way (RFC 9112 9.6). Received bytes are dropped.
_LINGER_S = 2.0
#: While the server drains, it waits for a client that reads nothing of a complete response for this
#: long at most: nothing else of the worker stops before.
_DRAIN_UNREAD_S = 10.0
#: Eviction, by phase: rank (a higher one goes first, as less is lost), and the seconds before a
#: connection can be evicted. An honest client sends a head at once; a large body may take longer.
_EVICTION = {LINGER: (4, 1.0), IDLE: (3, 1.0), HEAD: (2, 1.0), BODY: (1, 5.0)}
#: The same for a client that does not read its response, in any phase.
_UNREAD_EVICTION = (2, 1.0)


class Connection(asyncio.BufferedProtocol):
    """Parses requests, runs one exchange at a time, enforces the client's deadlines."""

    def __init__(
        self, server: ServerState, peer: Peer, on_closed: Callable[[Connection], None]
    ) -> None:
        self.server = server
        self.flow = Flow()
        self._peer = peer
        self._on_closed = on_closed
        self._parser = HeadParser()
        self._phase = IDLE
        #: Loop time at which the phase began; of a connection that is closing: `_NEVER`.
        self._phase_since = _NEVER
        #: When `check` ends the phase; in BODY and LINGER received bytes move it.
        self._deadline = _NEVER
        #: In BODY and LINGER: received bytes do not move `_deadline` beyond this.
        self._phase_deadline = _NEVER
        #: Bytes of the head that is coming, or of pipelined requests.
        self._buffer = b""
        self._body: Body | None = None
        self._exchange: Exchange | None = None
        #: The client has closed its side.
        self._client_closed = False
        #: Requests that had arrived before the response to the one before them was written.
        self._pipelined = 0

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The transport is set up."""
        self.flow.connect(transport)  # type: ignore[arg-type]
        self._phase_since = now = self.server.loop.time()
        self._deadline = now + self._idle_limit_s()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go: one buffer for all connections, emptied at once."""
        return self.server.received

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have arrived in the buffer."""
        self.data_received(bytes(self.server.received[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Handle received bytes, by phase."""
        phase = self._phase
        if phase == RESPONSE or (phase == IDLE and (self._buffer or not self.flow.is_writable)):
            self._buffer += data  # of a pipelined request
            if len(self._buffer) > _MAX_PIPELINED_BYTES:
                self.flow.pause_reading()
        elif phase <= HEAD:
            self._read_head(self._buffer + data if self._buffer else data)
        elif phase == BODY:
            self._read_body(data)
        elif not self.server.draining:  # dropped, but a client that still sends gets more time
            self._deadline = min(self.server.loop.time() + _LINGER_S, self._phase_deadline)

    def eof_received(self) -> bool:
        """The client closed its side. Returns True while a response to it is still due."""
        self._client_closed = True
        return self._input_ended()

    def _input_ended(self) -> bool:
        if self._phase == HEAD:
            if self._buffer.isspace():
                return False  # an empty line belongs to no request
            self._refuse_head(bad_request("the connection ended within the header"), self._buffer)
        elif self._phase == BODY:
            self._refuse(bad_request("the connection ended within the body"))
        elif self._phase == RESPONSE and self._exchange is not None:
            self._exchange.client_closed()
            return True
        return self._phase == IDLE and bool(self._buffer)

    def pause_writing(self) -> None:
        """The client reads too slowly."""
        self.flow.pause_writing()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self.flow.resume_writing()
        if self._buffer and self._phase == IDLE:
            self.server.turns.add(self._read_pipelined)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.connection_ended(by_stop=False)
        self._phase, self._buffer, self._body = LINGER, b"", None
        self.flow.resume_writing()
        self._on_closed(self)

    # Requests

    def _read_head(self, data: bytes) -> None:
        try:
            head = self._parser.parse(data, self.server.config)
            if head is not None:
                self._begin(head, data[head.end :])
                return
        except HttpError as error:
            self._refuse_head(error, data)
            return
        self._buffer = data
        self.flow.resume_reading()
        if self._phase == IDLE:
            self._phase = HEAD
            self._phase_since = now = self.server.loop.time()
            self._deadline = now + self.server.config.header_timeout_s

    def _read_pipelined(self) -> None:
        if self._phase == IDLE and self._buffer and self.flow.is_writable:
            self._read_head(self._buffer)
            if self._client_closed:
                self._input_ended()

    def _begin(self, head: RequestHead, rest: bytes) -> None:
        """A head is complete; `rest` follows it. Raises: HttpError."""
        server = self.server
        config = server.config
        now = server.loop.time()
        limit = _MAX_PIPELINED_FULL if server.is_full else _MAX_PIPELINED
        self._exchange = exchange = Exchange(
            server,
            self.flow,
            head,
            scope_of(head, self._peer, server),
            request_id_of(head) or server.make_request_id(),
            traceparent_of(head),
            keep_alive=head.keep_alive and self._pipelined < limit,
            begun_at=now,
            on_body_taken=self._resume_body,
            on_response=self._response_sent,
        )
        self._body = body = body_of(head, config.max_body_bytes)
        self._phase_since = now
        if body is None:
            self._phase = RESPONSE
            self._deadline = now + config.response_timeout_s
            self._buffer = rest
        else:
            self._phase = BODY
            self._deadline = self._phase_deadline = now + config.body_timeout_s
            self._buffer = b""
            exchange.expect_body(body.left, waits=head.expects_continue and not rest)
            if rest:
                self._read_body(rest)
            if exchange.over:
                return  # refused before the application was called
        server.in_flight += 1
        server.start(exchange.run)

    def _read_body(self, data: bytes) -> None:
        body, exchange = self._body, self._exchange
        if body is None or exchange is None:
            return
        try:
            piece, rest = body.feed(data)
        except HttpError as error:
            self._refuse(error)
            return
        config, now = self.server.config, self.server.loop.time()
        exchange.feed(piece, body.left)
        if body.left == 0:
            self._body, self._buffer = None, rest
            self._phase = RESPONSE
            self._phase_since = now
            self._deadline = now + config.response_timeout_s
            if exchange.over and exchange.started:
                self._await_request(now)
            return
        # Each byte moves the deadline of the body a little.
        self._phase_deadline += len(data) / _MIN_BODY_RATE
        self._deadline = min(now + config.body_timeout_s, self._phase_deadline)
        if not exchange.has_room:
            self.flow.pause_reading()
            self._deadline = now + config.response_timeout_s
        elif body.undecoded:
            self.flow.pause_reading()
            self.server.turns.add(self._decode_more)
        else:
            self.flow.resume_reading()

    def _decode_more(self) -> None:
        """Decode more of what was received, unless the application has to take some first."""
        body, exchange = self._body, self._exchange
        if body is not None and body.undecoded and exchange is not None and exchange.has_room:
            self._read_body(b"")

    def _resume_body(self) -> None:
        """Read on: the application took all of the body so far, or will take no more."""
        if self.flow.reading_paused and self._phase == BODY:
            now, limit_s = self.server.loop.time(), self.server.config.body_timeout_s
            self._deadline = self._phase_deadline = now + limit_s
            if self._body is not None and self._body.undecoded:
                self.server.turns.add(self._decode_more)
            else:
                self.flow.resume_reading()

    def _response_sent(self, close: bool, now: float) -> None:
        """The exchange has written its response, at `now` (loop time)."""
        self.server.served += 1
        if close:
            self._close_after_response()
        elif self._body is None:
            self._await_request(now)
        else:
            self._resume_body()  # what the application did not read is read and dropped

    def _await_request(self, now: float) -> None:
        """Wait for the next request, from `now` (loop time) on."""
        self._exchange = None
        self._phase = IDLE
        self._phase_since = now
        self._deadline = now + self._idle_limit_s()
        if len(self._buffer) <= _MAX_PIPELINED_BYTES:
            self.flow.resume_reading()
        if self._buffer:
            self._pipelined += 1
            self.server.turns.add(self._read_pipelined)
            return
        self._pipelined = 0
        if self._client_closed:
            self.flow.close()

    # Refused requests, and the end

    def _refuse_head(self, error: HttpError, data: bytes) -> None:
        """Refuse a request without an exchange: its head is not valid."""
        server = self.server
        method, target, request_id = read_log_fields(data)
        request_id = request_id or server.make_request_id()
        server.refused += 1
        if server.metrics is not None:
            server.metrics.count(method, error.status, 0.0)
        server.log.write(
            status=error.status,
            method=method,
            target=target,
            peer=self._peer.text,
            reason=error.reason,
            request_id=request_id,
            now=server.loop.time(),
        )
        text = server.error_text(target)
        self._send_final_response(error_response(error, request_id, method, server.date_line, text))

    def _refuse(self, error: HttpError) -> None:
        """Refuse the current request."""
        if self._exchange is not None:
            if not self._exchange.over:  # else it counts as served
                self.server.refused += 1
            self._send_final_response(self._exchange.refuse(error))

    def _send_final_response(self, response: bytes) -> None:
        """Write the last response and close; b"": cut off the response that has begun."""
        self._exchange, self._body, self._buffer = None, None, b""
        if not response:
            self.flow.abort()
            return
        self.flow.write(response)
        self._linger()

    def _close_after_response(self) -> None:
        request_read = self._body is None and not self._buffer
        client_closes = self._exchange is not None and not self._exchange.head.keep_alive
        # At the limit, do not linger: other clients wait for this connection to end.
        at_limit = bool(self._buffer) and self.server.is_full
        self._exchange, self._body, self._buffer = None, None, b""
        if at_limit or (request_read and client_closes):
            self._phase = LINGER
            self._phase_since = self._deadline = _NEVER
            self.flow.close()
        else:
            self._linger()

    def _linger(self) -> None:
        """Close the server's side; drop what the client still sends until it closes, too."""
        self._phase = LINGER
        self._phase_since = now = self.server.loop.time()
        self._begin_linger(now)
        self.flow.resume_reading()
        if self._client_closed or self.flow.is_closing:
            self.flow.close()
        else:
            self.flow.write_eof()

    def _begin_linger(self, now: float) -> None:
        """The deadlines of LINGER, when the last response has been sent at `now` (loop time)."""
        self._deadline = now + _LINGER_S
        self._phase_deadline = now + self.server.config.body_timeout_s

    def close_idle(self) -> None:
        """Close unless there is a request, or bytes of one, even in the kernel's buffer."""
        if self._phase == IDLE and not self._buffer and not self.flow.has_input():
            self.flow.close()

    def abort(self) -> None:
        """Close at once, and cut off the request that is under way."""
        if self._exchange is not None:
            self._exchange.connection_ended(by_stop=True)
        self.flow.abort()

    # Deadlines

    def check(self, now: float) -> None:
        """End what is overdue at `now` (loop time); the sweep calls this."""
        self.flow.measure(now)
        unread_limit_s = self.server.config.response_timeout_s
        if self.server.draining and self._exchange is None:
            unread_limit_s = min(unread_limit_s, _DRAIN_UNREAD_S)
        if self.flow.stalled_s > unread_limit_s:
            self._cut_unread()
        if self._phase == LINGER and self.flow.has_unsent:
            self._begin_linger(now)  # the client still reads the last response
        if now >= self._deadline:
            self._expire()

    def _cut_unread(self) -> None:
        if self._exchange is not None and not self._exchange.over:
            self._exchange.report(CLIENT_GONE, "the client does not read", None)
        self.flow.abort()

    def _expire(self) -> None:
        exchange = self._exchange
        self._deadline = _NEVER
        if self._phase == IDLE or (self._phase == HEAD and self._buffer.isspace()):
            self.flow.close()  # an empty line belongs to no request
        elif self._phase == HEAD:
            self._refuse_head(_too_slow("the header took too long"), self._buffer)
        elif self._phase == BODY and not self.flow.reading_paused:
            self._refuse(_too_slow("the body took too long"))
        elif self._phase == LINGER:
            self.flow.abort()
        elif exchange is not None and not exchange.started:
            self._refuse(HttpError(504, "response_timeout", "there was no response in time"))
            if exchange.task is not None:
                exchange.task.cancel()

    def _idle_limit_s(self) -> float:
        """How long an idle connection may stay."""
        config = self.server.config
        return config.drain_s if self.server.draining else config.first_byte_timeout_s

    # Eviction

    def eviction_key(self, now: float) -> tuple[int, float] | None:
        """How early this connection is evicted: the highest (rank, seconds) first, `seconds` being
        the time that the server has waited for the client: for a request, for the rest of one, for
        the client to read, or to close. None: it cannot be evicted, since the client waits for the
        server, reads a response, or has time left.
        """
        if not self.flow.connected:
            return None
        phase = self._phase
        self.flow.measure(now)
        rank, limit_s = _UNREAD_EVICTION
        if self.flow.read_lag_s >= limit_s:
            return rank, self.flow.read_lag_s
        if phase == RESPONSE or self.flow.reading_paused or self.flow.has_unsent:
            return None
        if phase == IDLE and self._buffer:
            return None
        rank, limit_s = _EVICTION[phase]
        waited_s = now - self._phase_since
        return (rank, waited_s) if waited_s >= limit_s else None

    def evict(self) -> None:
        """Close as if it were overdue. Call `eviction_key` first."""
        if self.flow.has_unsent:
            self._cut_unread()
        elif self._phase == IDLE:
            self.close_idle()
        else:
            self._expire()


def _too_slow(reason: str) -> HttpError:
    """408: the client did not send in time."""
    return HttpError(408, "request_timeout", reason)
