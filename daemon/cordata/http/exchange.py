"""One request and its response: ASGI `receive` and `send`, until the application has returned.

open --first body message--> started --last body message--> over
  |                            |                             ^
  +------- refused, expired, client gone: early_end ---------+
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from cordata import clock, trace
from cordata.errors import StoreUnavailable, Unclear
from cordata.http.access_log import CLIENT_GONE, loggable_path
from cordata.http.asgi import DISCONNECT, VERSION, ClientGone, Message, Misuse, Scope
from cordata.http.flow import Flow
from cordata.http.parser import FORWARDING, HttpError, RequestHead, bad_request
from cordata.http.proxy import SCHEME, Peer
from cordata.http.response import CONTINUE, ResponseHead, Unsendable, error_parts, error_response
from cordata.http.state import ServerState
from cordata.log import error_place, error_summary, logger
from cordata.log import request_id as current_request_id
from cordata.steps import measured

log = logger("cordata.http")

#: Reasons of requests that end without a whole answer.
_LEFT, _STOPPED = "the client left", "the server stopped"
#: Body bytes that may wait for the application; beyond it the connection stops reading.
_MAX_WAITING_BYTES = 65_536
#: Rest of a body that is read and dropped after an early response, so that the connection stays.
_MAX_DROPPED_BYTES = 262_144
#: Up to this size head and body of a response are copied into one buffer.
_COPY_BYTES = 16_384


def scope_of(head: RequestHead, peer: Peer, server: ServerState) -> Scope:
    """The ASGI scope of a request. Raises: HttpError for a path with NUL in it."""
    client, scheme = peer.client, SCHEME
    if not FORWARDING.isdisjoint(head.server_fields):
        client, scheme, host = server.trusted.forwarded(peer, head.server_fields)
        if host is not None:
            head.replace_host(host)
    raw_path, _, query = head.target.partition(b"?")
    path = raw_path.decode("ascii")
    if "%" in path:
        path = unquote(path)
        if "\0" in path:
            raise bad_request("the path contains NUL")
    return {
        "type": "http",
        "asgi": VERSION,
        "http_version": head.version,
        "method": head.method,
        "scheme": scheme,
        "path": path,
        "raw_path": raw_path,
        "query_string": query,
        "root_path": "",
        "headers": head.headers,
        "client": client,
        "server": peer.server,
        "state": server.app_state.copy(),
    }


class Exchange:
    """Calls the application, frames what it sends, and ends the request in exactly one way.

    In uvicorn it is RequestResponseCycle.
    """

    def __init__(
        self,
        server: ServerState,
        flow: Flow,
        head: RequestHead,
        scope: Scope,
        request_id: str,
        traceparent: str = "",
        *,
        keep_alive: bool,
        begun_at: float,
        on_body_taken: Callable[[], None],
        on_response: Callable[[bool, float], None],
    ) -> None:
        """`on_body_taken()`: the application took all of the body so far.

        `on_response(close, now)`: the response is written, at loop time `now`; `close`: it has
        `Connection: close`.
        """
        self.server = server
        self.flow = flow
        self.head = head
        #: Loop time at which the head was complete.
        self.begun_at = begun_at
        self.task: asyncio.Task[None] | None = None
        self._scope = scope
        self._request_id = request_id
        #: Of the client; "": none that is valid.
        self._traceparent = traceparent
        #: Whether another request may follow on the connection; the response may still close it.
        self._keep_alive = keep_alive
        self._on_body_taken = on_body_taken
        self._on_response = on_response
        # Copies: the application may change the scope, and these are needed until the end.
        self._client: tuple[str, int] | None = scope["client"]
        self._state: dict[str, Any] = scope["state"]
        #: The client waits for 100 Continue.
        self._awaits_continue = False
        #: The client has closed its side.
        self.client_left = False
        #: The head of the response is written.
        self.started = False
        #: The response is written, or never will be.
        self.over = False
        #: Why the request ended without a whole response of the application; "": it did not.
        self.early_end = ""
        #: Bytes of the body still to come (none, unless one is announced); None: unknown.
        self._body_left: int | None = 0
        self._pieces: list[bytes] = []
        self._waiting_bytes = 0
        #: The application has got all of the body.
        self._body_taken = False
        self._wake_event: asyncio.Event | None = None
        self._response: ResponseHead | None = None
        #: The body of a 500, held back until the application has returned: see `_fail`.
        self._held_body: bytes | None = None
        self._sent_bytes = 0
        #: As counted in the metrics; 0: not yet.
        self._status = 0
        self._logged = False

    async def run(self) -> None:
        """Call the application and end the request."""
        server = self.server
        self.task = asyncio.current_task()
        current_request_id.set(self._request_id)
        if self._traceparent:
            trace.begin_request(self._request_id, self._traceparent)
        try:
            if self.early_end:  # before this task ran
                self._abandon()
            call = server.app(self._scope, self.receive, self.send)
            await measured("request", call, self._describe)
        except asyncio.CancelledError:
            if server.draining and server.cut_off_lines:  # by the stop
                server.cut_off_lines -= 1
                duration_s = server.loop.time() - self.begun_at
                log.warning("%s is cut off after %.1f s", self._describe(), duration_s)
            self._abort(503, "cancelled", None)
            self._count(self._unfinished_status(), server.loop.time())
            raise
        except BaseException as error:  # noqa: BLE001 - the boundary of one request
            self._fail(error)
        else:
            self._finish()
        finally:
            server.in_flight -= 1
            if trace.exporter is not None:
                self._export(trace.exporter)
            if self.early_end and self.task is not None:
                server.abandoned.pop(self.task, None)
            if server.draining:
                server.ended.set()

    def _unfinished_status(self) -> int:
        """What to count for an application that was cancelled."""
        if self.early_end != _STOPPED:
            return CLIENT_GONE
        begun = self._response if self.started else None
        return begun.status if begun is not None else 503  # an endless stream has not failed

    def _describe(self) -> str:
        path = loggable_path(self.head.target, self.server.log.logged_segments)
        return f"request {self.head.method} {path}"

    # The request's body

    def expect_body(self, left: int | None, *, waits: bool) -> None:
        """Expect `left` bytes of a body (None: unknown); `waits`: the client waits for 100
        Continue.
        """
        self._body_left = left
        self._awaits_continue = waits

    def feed(self, piece: bytes, left: int | None) -> None:
        """Take a piece of the body, of which `left` bytes (None: unknown) are still to come."""
        self._body_left = left
        self._awaits_continue = False
        if self.over:
            self._pieces.clear()  # the application takes no more
            self._waiting_bytes = 0
        elif piece:
            self._pieces.append(piece)
            self._waiting_bytes += len(piece)
        self._wake()

    @property
    def has_room(self) -> bool:
        """Whether more of the body should be read for now."""
        return self._waiting_bytes <= _MAX_WAITING_BYTES

    def client_closed(self) -> None:
        """The client has closed its side: it may still read, but `receive` says it left.

        A half-closed connection and one that is gone look the same until something is written.
        """
        self.client_left = True
        self._wake()

    def _wake(self) -> None:
        """Let `receive` check its conditions again."""
        if self._wake_event is not None:
            self._wake_event.set()

    async def _wait(self) -> None:
        if self._wake_event is None:
            self._wake_event = asyncio.Event()
        self._wake_event.clear()
        await self._wake_event.wait()

    async def receive(self) -> Message:
        """The next piece of the body, or http.disconnect after its end. Cancelling is safe."""
        while not self._body_taken:
            if self.over:
                return {"type": DISCONNECT}
            if self._pieces or self._body_left == 0:
                return self._take_body()
            if self._awaits_continue:
                self._awaits_continue = False
                self.flow.write(CONTINUE)
            await self._wait()
        while not (self.over or self.client_left):
            await self._wait()
        return {"type": DISCONNECT}

    def _take_body(self) -> Message:
        body = b"".join(self._pieces)
        self._pieces.clear()
        self._waiting_bytes = 0
        self._body_taken = self._body_left == 0
        if self.flow.reading_paused:
            self._on_body_taken()
        return {"type": "http.request", "body": body, "more_body": not self._body_taken}

    # The response

    async def send(self, message: Message) -> None:
        """ASGI `send`. Raises: ClientGone within a stream; Misuse, ValueError otherwise."""
        kind = message["type"]
        if kind == "http.response.start":
            if self._response is not None and not self.early_end:
                raise Misuse("http.response.start was sent twice")
            self._response = ResponseHead(message["status"], message.get("headers", ()))
            return
        if kind != "http.response.body":
            raise Misuse(f"{kind!r} cannot be sent in an http scope")
        more = message.get("more_body", False)
        response = self._response
        if self.early_end:
            if more:
                raise ClientGone("the client has gone")
            # Ignored, so that the application can still do its work after the response.
            if self.task is not None:
                self.server.abandoned.pop(self.task, None)
            return
        if response is None or self.over or self._held_body is not None:
            raise Misuse("http.response.body was sent before the start or after the end")
        body = message.get("body", b"")
        if type(body) is not bytes:
            body = bytes(memoryview(body))  # TypeError for text
        if more or self.started:
            self._write_piece(response, body, more)
            if more:
                await self.flow.writable()
        elif response.status == 500:
            self._held_body = body
        else:
            self._write_whole(response, body)

    def _encode(self, response: ResponseHead, body_bytes: int | None) -> bytes:
        server, head = self.server, self.head
        self.started = True
        return response.encode(
            method=head.method,
            version=head.version,
            keep_alive=self._keep_alive
            and not server.draining
            # A client that waits for 100 Continue may or may not send its body now.
            and not self._awaits_continue
            # Close if much of the body, or an unknown length, is still to come.
            and (left := self._body_left) is not None
            and left <= _MAX_DROPPED_BYTES,
            body_bytes=body_bytes,
            extra_lines=b"%bx-request-id: %b\r\n" % (server.date_line, self._request_id.encode()),
        )

    def _write_whole(self, response: ResponseHead, body: bytes) -> None:
        size = len(body)
        if response.length not in (None, size) and not self._is_bodyless(response):
            raise Misuse(f"Content-Length is {response.length}, the body has {size} bytes")
        encoded = self._encode(response, size)
        if response.bodyless or not size:
            self.flow.write(encoded)
        elif size <= _COPY_BYTES:
            self.flow.write(encoded + body)
        else:
            self.flow.write(encoded)
            self.flow.write(body)
        self._complete(response)

    def _write_piece(self, response: ResponseHead, body: bytes, more: bool) -> None:
        length, sent_bytes = response.length, self._sent_bytes + len(body)
        if length is not None and sent_bytes > length and not self._is_bodyless(response):
            raise Misuse(f"the body is longer than its Content-Length, {length}")
        pieces = [] if self.started else [self._encode(response, None)]
        self._sent_bytes = sent_bytes
        if not response.bodyless:
            if body:
                pieces += (b"%x\r\n" % len(body), body, b"\r\n") if response.chunked else (body,)
            if not more and response.chunked:
                pieces.append(b"0\r\n\r\n")
        if pieces:
            self.flow.write(b"".join(pieces))
        if not more:
            if length is not None and sent_bytes < length and not response.bodyless:
                raise Misuse(f"the body is shorter than its Content-Length, {length}")
            self._complete(response)

    def _is_bodyless(self, response: ResponseHead) -> bool:
        return response.bodyless or self.head.method == "HEAD"

    def _complete(self, response: ResponseHead) -> None:
        self.over = True
        self._wake()
        now = self.server.loop.time()
        self._count(response.status, now)
        self._on_response(response.close, now)

    def _count(self, status: int, now: float) -> None:
        """Keep the status of the request and count it in the metrics; only the first call does."""
        if not self._status:
            self._status = status
            metrics = self.server.metrics
            if metrics is not None:
                metrics.count(self.head.method, status, now - self.begun_at)

    # The end

    def _finish(self) -> None:
        """The application has returned."""
        if self._held_body is not None and not self.early_end:
            self._release_held()
        if self.early_end:
            self.report(CLIENT_GONE, self.early_end, None)
        elif self.over:
            self._report_response(None)
        elif self.client_left:
            self._abort(CLIENT_GONE, _LEFT, None)
        else:
            self._fail(Misuse("the application returned without a whole response"))

    def _fail(self, error: BaseException) -> None:
        """The application raised.

        Frameworks answer 500 and then raise what they caught (Starlette's ServerErrorMiddleware),
        so a 500 was held back until the error is known: an unavailable store becomes a 503.
        """
        if self.early_end:
            self.report(CLIENT_GONE, f"{self.early_end}, then {_described(error)}", None)
        elif self.over:
            self._report_response(error)
        elif self.started:
            self._abort(500, f"{_described(error)} after the response had begun", error)
        elif isinstance(error, StoreUnavailable):
            self.report(503, str(error), None)
            unclear = isinstance(error, Unclear)
            text = "whether it happened is not known" if unclear else "not possible right now"
            self._respond(503, error.code, text, error.retry_after_s)
        else:
            self.report(500, _described(error), error)
            if self._held_body is not None:
                self._release_held()
            else:
                self._respond(500, "internal_error", "the request could not be handled", None)

    def _release_held(self) -> None:
        """Send the application's own 500 that was held back."""
        response, body = self._response, self._held_body
        self._held_body = None
        if response is not None and body is not None:
            if response.length is not None and self.head.method != "HEAD":
                response.length = len(body)
            self._write_whole(response, body)

    def _respond(self, status: int, code: str, text: str, retry_after_s: float | None) -> None:
        """Send a whole response instead of the application; the connection stays open."""
        begin = self.server.error_text(self.head.target)
        self._response, body = error_parts(
            status, code, text, self._request_id, retry_after_s, text=begin
        )
        self._held_body = None
        self._write_whole(self._response, body)

    def _abort(self, status: int, reason: str, error: BaseException | None) -> None:
        """Cut the connection, as no whole response is possible: so the client sees the failure."""
        if not self.over:
            self.report(status, reason, error)
            self.end_early(reason)
            self.flow.abort()

    def end_early(self, reason: str) -> None:
        """Take no response of the application any more; it learns it by `receive` and `send`.

        It is cancelled if it still runs after `response_timeout_s`.
        """
        self.early_end = self.early_end or reason
        self.over = True
        self._wake()
        self._abandon()

    def connection_ended(self, *, by_stop: bool) -> None:
        """Its connection is closed: by the stop of the server, or it was lost."""
        if not self.over:
            self.end_early(_STOPPED if by_stop and not self.client_left else _LEFT)

    def _abandon(self) -> None:
        if self.task is not None and not self.task.done():
            server = self.server
            deadline = server.loop.time() + server.config.response_timeout_s
            server.abandoned[self.task] = deadline

    def refuse(self, error: HttpError) -> bytes:
        """Refuse the request. Returns the response to write; b"": one has begun already."""
        self.report(error.status, error.reason, None)
        begun = self.started or self.over
        self.started = True
        self.end_early(error.reason)
        if begun:
            return b""
        server, head = self.server, self.head
        text = server.error_text(head.target)
        return error_response(error, self._request_id, head.method, server.date_line, text)

    # The log, and the span

    def _export(self, exporter: trace.Exporter) -> None:
        """Export the span of this request."""
        attributes: dict[str, str | int] = {
            "http.request.method": self.head.method,
            "http.response.status_code": self._status,
            "url.path": loggable_path(self.head.target, self.server.log.logged_segments),
            "cordata.request_id": self._request_id,
        }
        exporter.export(
            trace.trace_of(self._request_id, self._traceparent),
            self.head.method,
            kind="server",
            begun_us=clock.now_us() - round((self.server.loop.time() - self.begun_at) * 1e6),
            attributes=attributes,
            error=self.early_end or (str(self._status) if self._status >= 500 else ""),
        )

    def _report_response(self, error: BaseException | None) -> None:
        """The line of a request that the application answered."""
        status = self._response.status if self._response is not None else 500
        if error is not None:
            self.report(status, f"{_described(error)} after the response", error)
        elif status >= 400 or self.server.config.access_log:
            self.report(status, str(self._state.get("reason", "")), None)

    def report(self, status: int, reason: str, error: BaseException | None) -> None:
        """Log this request; only the first call does."""
        if self._logged:
            return
        self._logged = True
        now = self.server.loop.time()
        self._count(status, now)
        self.server.log.write(
            status=status,
            method=self.head.method,
            target=self.head.target,
            peer=self._client[0] if self._client else "unix",
            reason=reason,
            request_id=self._request_id,
            traceparent=self._traceparent,
            now=now,
            error=error,
            duration_ms=(now - self.begun_at) * 1000,
        )


def _described(error: BaseException) -> str:
    """Type and place; the text only of own errors, as an application's may quote the request."""
    if isinstance(error, Misuse | Unsendable):
        return f"{type(error).__name__}: {error}"[:200]
    return f"{error_summary(error)} at {error_place(error)}"
