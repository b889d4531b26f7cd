"""POST /api/pool/{command}: the pool by HTTP. Off until commands are listed.

The body is the payload as JSON, the answer the result as JSON; with `Accept: application/x-ndjson`
a stream, one line per part. X-Pool-Session names the session, X-Pool-Timeout the seconds. There is
no authentication: the proxy has to do it, or an ASGI application around this one.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Mapping,
    MutableMapping,
)
from contextlib import aclosing
from math import ceil
from typing import TYPE_CHECKING, Any, TypeVar, cast

from msgspec import Raw, json

from cordata.core.error_document import error_document
from cordata.errors import (
    ChildCrashed,
    CommandFailed,
    CommandRefused,
    CommandUnknown,
    CordataError,
    DeadlineExceeded,
    FrameTooLarge,
    PoolTransient,
    PoolUnavailable,
    PreferredWorkerBusy,
    ProtocolError,
    QueueTimeout,
    SessionNotFound,
    SessionQuotaExceeded,
)
from cordata.log import logger, remote_frames, request_id, shows_messages
from cordata.pool.client.values import from_json
from cordata.pool.shared.protocol import MAX_NAME

log = logger("cordata.pool.http")

if TYPE_CHECKING:
    from cordata.pool.client.client import Client

T = TypeVar("T")
Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

PREFIX = "/api/pool"
_JSON, _LINES = b"application/json", b"application/x-ndjson"
#: HTTP status by error class, the first that matches; else 500.
_STATUS: tuple[tuple[type[CordataError], int], ...] = (
    (CommandUnknown, 404),
    (SessionNotFound, 404),
    (FrameTooLarge, 413),
    (DeadlineExceeded, 504),
    (ChildCrashed, 502),
    (SessionQuotaExceeded, 507),
    (CommandRefused, 422),
    (PoolTransient, 503),
    (ProtocolError, 400),
)

#: Errors whose text says why no child took the call.
_OF_THE_POOL = (DeadlineExceeded, PoolUnavailable, PreferredWorkerBusy, QueueTimeout)


class _Refused(CordataError):
    """A request that is answered with an error, or a result that is not JSON."""

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(text)
        self.status, self.code = status, code


class PoolRoute:
    """An ASGI application, to be mounted at PREFIX. It uses the pool of the server's Context.

    `commands`: names of the served commands, or `prefix*`; "*" is all.
    """

    def __init__(self, commands: tuple[str, ...]) -> None:
        self._commands = commands

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            return  # it has none
        try:
            command = self._command(scope)
            headers = {name.lower(): value for name, value in scope["headers"]}
            payload, options = await _payload(receive), _options(headers)
            pool: Client = scope["state"]["cordata"].pool
            if _LINES in headers.get(b"accept", b""):
                parts = pool.stream(command, payload, **options)
                last = await _while_there(receive, _stream(parts, send))
                await send(_body(last))
            else:
                work = pool.execute(command, payload, **options)
                await _answer(send, 200, _line(await _while_there(receive, work)))
        except CordataError as error:
            await _report(send, error)

    def _command(self, scope: Scope) -> str:
        """The command that the path names. Raises: _Refused if it is not served."""
        path: str = scope["path"].removeprefix(scope["root_path"])
        command = path.removeprefix("/")
        if not 0 < len(command) <= MAX_NAME or not any(
            _fits(command, one) for one in self._commands
        ):
            raise _Refused(404, CommandUnknown.code, "no such command")
        if scope["method"] != "POST":
            raise _Refused(405, "method", "commands are called with POST")
        return command


def _fits(command: str, listed: str) -> bool:
    if listed.endswith("*"):
        return command.startswith(listed[:-1])
    return command == listed


def _options(headers: Mapping[bytes, bytes]) -> dict[str, Any]:
    """Session and timeout from the headers. Raises: _Refused."""
    options: dict[str, Any] = {}
    if session := headers.get(b"x-pool-session", b"").decode("latin-1"):
        if len(session) > MAX_NAME:
            text = f"X-Pool-Session has more than {MAX_NAME} characters"
            raise _Refused(400, "session", text)
        options["session"] = session
    if given := headers.get(b"x-pool-timeout"):
        try:
            timeout_s = float(given)
        except ValueError:
            timeout_s = 0.0
        if not timeout_s > 0:
            raise _Refused(400, "timeout", "X-Pool-Timeout must be a number of seconds above 0")
        options["timeout"] = timeout_s
    return options


async def _payload(receive: Receive) -> Raw:
    """The body as MessagePack; an empty one is null. Raises: _Refused when it is not JSON, or has
    a value that MessagePack lacks.
    """
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Refused(499, "gone", "the client left")
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            break
    body = b"".join(parts)
    try:
        return from_json(body or b"null", "body")
    except ValueError as error:
        raise _Refused(400, "json", str(error)) from None


async def _while_there(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`. If the client leaves, `work` and so its call are cancelled. Raises:
    _Refused then; else what `work` raises.
    """
    gone = False

    async def watch() -> None:
        nonlocal gone
        while (await receive())["type"] != "http.disconnect":
            pass
        gone = True
        working.cancel()

    async with asyncio.TaskGroup() as group:
        working = group.create_task(_outcome(work))
        watching = group.create_task(watch())
        await asyncio.wait([working])
        watching.cancel()
    if gone:
        raise _Refused(499, "gone", "the client left")
    result, error = working.result()
    if error is not None:
        raise error
    return cast(T, result)


async def _outcome(work: Coroutine[Any, Any, T]) -> tuple[T | None, Exception | None]:
    """Result or error as a value: a TaskGroup would wrap a raised error."""
    try:
        return await work, None
    except Exception as error:  # noqa: BLE001 - raised again by the caller
        return None, error


async def _stream(parts: AsyncGenerator[Any, None], send: Send) -> bytes:
    """Send a line per part; returns the end of the body, which the caller sends. An error before
    the first part is raised; a later one is the last line, {"error": ...}.
    """
    begun = False
    async with aclosing(parts):
        try:
            async for part in parts:
                line = _line(part)
                if not begun:
                    begun = True
                    await _begin(send, 200, _LINES)
                await send(_body(line, more=True))
        except CordataError as error:
            if not begun:
                raise
            return _status_and_body(error)[1]
    if not begun:
        await _begin(send, 200, _LINES)
    return b""


def _status_and_body(error: CordataError) -> tuple[int, bytes]:
    """Status and JSON document for the client, without traceback and output of processes."""
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
    text, more = str(error), {}
    if isinstance(error, _Refused):
        status = error.status
    elif isinstance(error, _OF_THE_POOL):
        # Without paths, the names of workers, and why their children do not start.
        text = text.partition(": ")[0].partition(" (")[0]
    elif isinstance(error, ChildCrashed):
        text = "the process that ran the command died"
    elif isinstance(error, CommandFailed):
        more = {"type": error.type}
        if status == 500:
            # Its message may quote the payload.
            trace = error.traceback if shows_messages() else remote_frames(error.traceback)
            log.error("the command failed with %s at %s", error.type, trace)
            text = "the command failed"
    return status, error_document(error.code, text, request_id.get(), **more)


async def _report(send: Send, error: CordataError) -> None:
    """Send the error; also to a client that has left, for the status in the access log."""
    status, body = _status_and_body(error)
    extra: list[tuple[bytes, bytes]] = []
    if status == 405:
        extra.append((b"allow", b"POST"))
    if status == 503:
        after_s = max(1, ceil(getattr(error, "retry_after_s", 1.0)))
        extra.append((b"retry-after", b"%d" % after_s))
    await _answer(send, status, body, extra)


def _line(value: object) -> bytes:
    """The value as a line of JSON. Raises: _Refused for a value that JSON lacks."""
    try:
        return json.encode(value) + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise _Refused(500, CommandFailed.code, f"the result is not JSON: {error}") from None


async def _answer(
    send: Send, status: int, body: bytes, extra: list[tuple[bytes, bytes]] | None = None
) -> None:
    length = (b"content-length", b"%d" % len(body))
    await _begin(send, status, _JSON, [length, *(extra or [])])
    await send(_body(body))


async def _begin(
    send: Send, status: int, kind: bytes, extra: list[tuple[bytes, bytes]] | None = None
) -> None:
    headers = [(b"content-type", kind), *(extra or [])]
    await send({"type": "http.response.start", "status": status, "headers": headers})


def _body(body: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": more}
