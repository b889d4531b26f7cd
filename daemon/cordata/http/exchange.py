"""One request and its response, from its head until the application has returned.

open --first body message--> started --last body message--> complete
  |                            |                               ^
  +--------- refused, expired, client gone: lost --------------+
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from cordata.errors import StoreUnavailable, Unclear
from cordata.http import journal
from cordata.http.asgi import AsgiApp, ClientGone, Message, Misuse, Scope
from cordata.http.intake import Intake
from cordata.http.refused import Refused
from cordata.http.response import ResponseHead, error_body, error_response
from cordata.log import request_id as current_request_id
from cordata.steps import measured

if TYPE_CHECKING:
    from cordata.http.connection import Connection

#: Above it head and body are not copied into one buffer.
_COPY_BYTES = 16_384


class Exchange(Intake):
    """Calls the application, frames what it sends, and ends the request in exactly one way."""

    __slots__ = (
        "_head",
        "_held",
        "_method",
        "_peer",
        "_reported",
        "_sent_bytes",
        "_state",
        "_target",
        "_version",
        "begun",
        "keep_alive",
        "request_id",
        "scope",
        "started",
        "task",
    )

    def __init__(
        self, connection: Connection, scope: Scope, request_id: str, *, keep_alive: bool
    ) -> None:
        super().__init__(connection)
        self.scope = scope
        self.request_id = request_id
        #: What the client wants; the response may still close.
        self.keep_alive = keep_alive
        #: The head of the response is written.
        self.started = False
        #: Loop time at which it was handed to the application.
        self.begun = 0.0
        self.task: asyncio.Task[None] | None = None
        self._head: ResponseHead | None = None
        #: The body of a 500, held back until the application has returned: see `_fail`.
        self._held: bytes | None = None
        self._sent_bytes = 0
        self._reported = False
        # Kept apart: the scope is the application's to change.
        self._method: str = scope["method"]
        self._version: str = scope["http_version"]
        self._target: bytes = scope["raw_path"]
        self._peer: tuple[str, int] | None = scope["client"]
        self._state: dict[str, Any] = scope["state"]

    async def run(self, app: AsgiApp) -> None:
        """Call the application and see to the end of the request."""
        current_request_id.set(self.request_id)
        try:
            await measured("request", app(self.scope, self.receive, self.send), self._described)
        except asyncio.CancelledError:
            self._abort(503, "cancelled", None)
            raise
        except BaseException as error:  # noqa: BLE001 - the boundary of one request
            self._fail(error)
        else:
            self._finish()
        finally:
            self.connection.server.exchange_ended(self)

    def _described(self) -> str:
        path = journal.loggable_path(self._target, self.connection.server.logged_segments)
        return f"request {self._method} {path}"

    # The response

    async def send(self, message: Message) -> None:
        """ASGI `send`. Raises: ClientGone within a stream; Misuse, ValueError otherwise."""
        kind = message["type"]
        if kind == "http.response.start":
            if self._head is not None and not self.lost:
                raise Misuse("http.response.start was sent twice")
            self._head = ResponseHead(message["status"], message.get("headers", ()))
            return
        if kind != "http.response.body":
            raise Misuse(f"{kind!r} cannot be sent in an http scope")
        more = message.get("more_body", False)
        head = self._head
        if self.lost:
            if more:
                raise ClientGone("the client has gone")
            # Swallowed: what the application does after its response still happens, uncancelled.
            self.connection.server.exchange_settled(self)
            return
        if head is None or self.complete or self._held is not None:
            raise Misuse("http.response.body was sent before the start or after the end")
        body = message.get("body", b"")
        if type(body) is not bytes:
            body = bytes(memoryview(body))  # TypeError for text
        if more or self.started:
            self._write_piece(head, body, more)
            if more:
                await self.connection.writable()
        elif head.status == 500:
            self._held = body
        else:
            self._write_whole(head, body)

    def _encode(self, head: ResponseHead, whole: int | None) -> bytes:
        server = self.connection.server
        self.started = True
        return head.encode(
            method=self._method,
            version=self._version,
            # A client still waiting for 100 Continue may or may not send its body now.
            keep_alive=self.keep_alive
            and not server.draining
            and not self.expect_continue
            and self.connection.stays_open,
            whole=whole,
            tail=b"%bx-request-id: %b\r\n" % (server.date_line, self.request_id.encode()),
        )

    def _write_whole(self, head: ResponseHead, body: bytes) -> None:
        size = len(body)
        if head.length is not None and head.length != size and not self._is_bodyless(head):
            raise Misuse(f"Content-Length is {head.length}, the body has {size} bytes")
        encoded = self._encode(head, size)
        if head.bodyless or not size:
            self.connection.write(encoded)
        elif size <= _COPY_BYTES:
            self.connection.write(encoded + body)
        else:
            self.connection.write(encoded)
            self.connection.write(body)
        self._complete(head)

    def _write_piece(self, head: ResponseHead, body: bytes, more: bool) -> None:
        sent_bytes = self._sent_bytes + len(body)
        if head.length is not None and sent_bytes > head.length and not self._is_bodyless(head):
            raise Misuse(f"the body is longer than its Content-Length, {head.length}")
        pieces = [] if self.started else [self._encode(head, None)]
        self._sent_bytes = sent_bytes
        if not head.bodyless:
            if body:
                pieces += (b"%x\r\n" % len(body), body, b"\r\n") if head.chunked else (body,)
            if not more and head.chunked:
                pieces.append(b"0\r\n\r\n")
        if pieces:
            self.connection.write(b"".join(pieces))
        if not more:
            if head.length is not None and sent_bytes < head.length and not head.bodyless:
                raise Misuse(f"the body is shorter than its Content-Length, {head.length}")
            self._complete(head)

    def _is_bodyless(self, head: ResponseHead) -> bool:
        return head.bodyless or self._method == "HEAD"

    def _complete(self, head: ResponseHead) -> None:
        self.complete = True
        self.wake()
        self.connection.response_ended(close=head.close)

    # How it ends

    def _finish(self) -> None:
        """The application has returned."""
        if self._held is not None and not self.lost:
            self._release()
        if self.lost:
            self.report(journal.CLIENT_GONE, self.lost, None)
        elif self.complete:
            self._report_answer(None)
        elif self.peer_closed:
            self._abort(journal.CLIENT_GONE, "the client left", None)
        else:
            self._fail(Misuse("the application returned without a whole response"))

    def _fail(self, error: BaseException) -> None:
        """The application raised.

        Frameworks answer 500 and then raise what they caught (Starlette's ServerErrorMiddleware),
        so a 500 was held back: what was raised decides. A store that is unavailable is a 503.
        """
        if self.lost:
            self.report(journal.CLIENT_GONE, f"{self.lost}, then {journal.told(error)}", None)
        elif self.complete:
            self._report_answer(error)
        elif self.started:
            self._abort(500, f"{journal.told(error)} after the response had begun", error)
        elif isinstance(error, StoreUnavailable):
            self._report_away(str(error))
            unclear = isinstance(error, Unclear)
            text = "whether it happened is not known" if unclear else "not possible right now"
            self._answer(503, error.code, text, error.retry_after_s)
        elif self._held is not None:
            self.report(500, journal.told(error), error)
            self._release()
        else:
            self.report(500, journal.told(error), error)
            self._answer(500, "internal_error", "the request could not be handled", None)

    def _release(self) -> None:
        """Send the 500 of the application's own that was held back."""
        head, body = self._head, self._held
        self._held = None
        if head is not None and body is not None:
            if head.length is not None and self._method != "HEAD":
                head.length = len(body)
            self._write_whole(head, body)

    def _answer(self, status: int, code: str, text: str, retry_after_s: float | None) -> None:
        """A whole response in the application's place; the connection lives on."""
        begins = self.connection.server.error_text(self._target)
        self._head, body = error_body(
            status, code, text, self.request_id, retry_after_s, text=begins
        )
        self._held = None
        self._write_whole(self._head, body)

    def _abort(self, status: int, reason: str, error: BaseException | None) -> None:
        """No whole response is possible any more: the cut connection tells the client."""
        if not self.complete:
            self.report(status, reason, error)
            self.lose(reason)
            self.connection.abort()

    def lose(self, reason: str) -> None:
        """Nothing can be answered any more; `receive` and `send` tell the application."""
        self.lost = self.lost or reason
        self.complete = True
        self.wake()
        self.connection.server.exchange_lost(self)

    def refuse(self, refused: Refused) -> bytes:
        """Give the request up. Returns the response to write, b"" when one has begun."""
        self.report(refused.status, refused.reason, None)
        begun = self.started or self.complete
        self.started = True
        self.lose(refused.reason)
        if begun:
            return b""
        server = self.connection.server
        text = server.error_text(self._target)
        return error_response(refused, self.request_id, self._method, server.date_line, text)

    def expire(self) -> None:
        """No response has begun in time: 504, and the application is cancelled."""
        task = self.task
        refused = Refused(504, "response_timeout", "there was no response in time")
        self.connection.end_with(self.refuse(refused))
        if task is not None:
            task.cancel()

    # What is told of it

    def _report_answer(self, error: BaseException | None) -> None:
        """The line of a request that the application answered."""
        status = self._head.status if self._head is not None else 500
        if error is not None:
            self.report(status, f"{journal.told(error)} after the response", error)
        elif status == 503:
            self._report_away(str(self._state.get("reason", "")))
        elif status >= 400 or self.connection.server.config.access_log:
            self.report(status, str(self._state.get("reason", "")), None)

    def _report_away(self, reason: str) -> None:
        """A 503: one of many, as long as the store is away."""
        server = self.connection.server
        first = server.tally.outage.refused(reason, server.loop.time())
        self.report(503, reason, None, quiet=not first)

    def report(
        self, status: int, reason: str, error: BaseException | None, *, quiet: bool = False
    ) -> None:
        """Write the one line of this request; further calls do nothing."""
        if self._reported:
            return
        self._reported = True
        now = self.connection.server.loop.time()
        quiet = quiet or not self.connection.server.tally.is_told(status, now)
        journal.report(
            status=status,
            method=self._method,
            target=self._target,
            peer=self._peer[0] if self._peer else "unix",
            reason=reason,
            request_id=self.request_id,
            error=error,
            quiet=quiet,
            logged_segments=self.connection.server.logged_segments,
            duration_ms=(now - self.begun) * 1000,
        )
