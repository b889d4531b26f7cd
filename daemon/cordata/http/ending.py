"""How a connection ends: overdue, refused, answered for the last time, or for another's sake."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cordata.http import journal
from cordata.http.body import Body
from cordata.http.flow import Flow
from cordata.http.peer import Peer
from cordata.http.refused import Refused, too_slow
from cordata.http.request import report_unread, request_id_in, target_in
from cordata.http.response import error_response

if TYPE_CHECKING:
    from cordata.http.exchange import Exchange
    from cordata.http.server import HttpServer

IDLE, HEAD, BODY, REPLY, LINGER = range(5)
_NEVER = float("inf")
#: The client gets this long after its last byte to read the last response, and `body_timeout_s` in
#: all: closing with unread bytes would reset the connection and could destroy the response on its
#: way. What comes is dropped undecoded.
_LINGER_S = 2.0
#: By phase: how little is lost where such a connection ends for another's sake, and how long it has
#: before that. Whoever means it sends a head at once; a large body may take its time.
_GRACE_S = {LINGER: (4, 1.0), IDLE: (3, 1.0), HEAD: (2, 1.0), BODY: (1, 5.0)}
#: The same for one whose client does not read what was written.
_UNREAD_LOSS, _UNREAD_GRACE_S = 2, 1.0


class Ending(Flow):
    """The phases, their deadlines and the end; base of `Connection`."""

    __slots__ = (
        "_body",
        "_buffer",
        "_deadline",
        "_eof",
        "_exchange",
        "_peer",
        "_phase",
        "server",
    )

    def __init__(self, server: HttpServer, peer: Peer) -> None:
        super().__init__()
        self.server = server
        self._peer = peer
        self._phase = IDLE
        self._deadline = _NEVER
        #: Bytes of the head that is coming, or of pipelined requests.
        self._buffer = b""
        self._body: Body | None = None
        self._exchange: Exchange | None = None
        self._eof = False

    def check(self, now: float) -> None:
        """Called by the sweep: what is overdue ends here."""
        self.behind_s(now)
        if self.has_stalled(now, self.server.config.response_timeout_s):
            self._cut_unread()
        if now >= self._deadline:
            self._expire(self._exchange)

    def _cut_unread(self) -> None:
        if self._exchange is not None and not self._exchange.complete:
            self._exchange.report(journal.CLIENT_GONE, "the client does not read", None)
        self.abort()

    def _expire(self, exchange: Exchange | None) -> None:
        self._deadline = _NEVER
        if self._phase == HEAD and self._buffer.isspace():
            self._transport.close()  # an empty line belongs to no request
        elif self._phase == HEAD:
            self._refuse_head(too_slow("the header took too long"), self._buffer)
        elif self._phase == BODY and not self._paused:
            self._refuse(too_slow("the body took too long"))
        elif self._phase in (BODY, REPLY):
            if exchange is not None and not exchange.started:
                exchange.expire()
        elif self._phase == IDLE:
            self._transport.close()
        else:
            self._transport.abort()

    def close_idle(self) -> None:
        """Close unless a request is in hand, or bytes of one, even in the kernel's buffer."""
        if self._phase == IDLE and not self._buffer and not self.has_input():
            self._transport.close()

    def end_with(self, response: bytes) -> None:
        """Write a last response (b"": the one that has begun cannot be finished) and close."""
        self._exchange, self._body, self._buffer = None, None, b""
        if not response:
            self._transport.abort()
            return
        self.write(response)
        self._linger()

    def _refuse(self, refused: Refused) -> None:
        """Refuse the request whose body is being read."""
        if self._exchange is not None:
            self.end_with(self._exchange.refuse(refused))

    def _refuse_head(self, refused: Refused, data: bytes) -> None:
        """Refuse what never became an exchange."""
        request_id = request_id_in(data) or self.server.make_request_id()
        told = self.server.tally.refuse_unread(refused.status, self.server.loop.time())
        method = report_unread(
            data,
            refused,
            self._peer.text,
            request_id,
            quiet=not told,
            logged_segments=self.server.logged_segments,
        )
        text = self.server.error_text(target_in(data))
        self.end_with(error_response(refused, request_id, method, self.server.date_line, text))

    def _close_after_response(self) -> None:
        whole = self._body is None and not self._buffer
        client_closes = self._exchange is not None and not self._exchange.keep_alive
        # Whoever sent much ahead keeps nobody waiting until they have read it all.
        crowded = bool(self._buffer) and self.server.is_full
        self._exchange, self._body, self._buffer = None, None, b""
        if crowded or (whole and client_closes):
            self._phase = LINGER
            self._deadline = _NEVER
            self._transport.close()
        else:
            self._linger()

    def _linger(self) -> None:
        """Close our side, drop what still comes until the client closes too."""
        self._phase = LINGER
        now = self.server.loop.time()
        self._deadline = now + _LINGER_S
        self._body_deadline = now + self.server.config.body_timeout_s
        self.resume_reading()
        if self._eof or self._transport.is_closing():
            self._transport.close()
        else:
            self._transport.write_eof()

    def _drop(self) -> None:
        """Bytes came that nobody wants: a client that is still sending gets more time."""
        if self._phase == LINGER and not self.server.draining:
            self._deadline = min(self.server.loop.time() + _LINGER_S, self._body_deadline)

    def _patience_s(self) -> float:
        """How long an idle connection may stay."""
        config = self.server.config
        return config.drain_s if self.server.draining else config.first_byte_timeout_s

    # For another's sake

    def keeps_waiting(self, now: float) -> tuple[int, float] | None:
        """(how little is lost with it, seconds for which it keeps us waiting): for a request, for
        the rest of one, for its own end, or until its client reads. None: it waits for us, or has
        its time yet.
        """
        if not self.connected:
            return None
        behind_s = self.behind_s(now)
        if behind_s >= _UNREAD_GRACE_S and self._phase != LINGER:
            return _UNREAD_LOSS, behind_s
        if self._phase not in _GRACE_S or self._paused or (self._phase == IDLE and self._has_more):
            return None
        loss, grace_s = _GRACE_S[self._phase]
        waited_s = now - self._begun_at()
        return (loss, waited_s) if waited_s >= grace_s else None

    @property
    def _has_more(self) -> bool:
        """Whether a pipelined request waits, or some of the last response."""
        return bool(self._buffer) or self._transport.get_write_buffer_size() > 0

    def _begun_at(self) -> float:
        """When this phase began."""
        config = self.server.config
        if self._phase == IDLE:
            return self._deadline - self._patience_s()
        if self._phase == HEAD:
            return self._deadline - config.header_timeout_s
        if self._phase == LINGER:
            return self._body_deadline - config.body_timeout_s
        return self._exchange.begun if self._exchange is not None else self._deadline

    def give_way(self) -> None:
        """End, as if it were overdue."""
        if self._behind_since is not None:
            self._cut_unread()
        elif self._phase == IDLE:
            self.close_idle()
        else:
            self._expire(self._exchange)
