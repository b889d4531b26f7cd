"""The HTTP side of all webhooks: finds the endpoint, reads the bounded body, sends the answer."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache

import msgspec

from alpinehub.asgi import BodyRefused, Receive, Reply, Request, Scope, Send, path_below, respond
from alpinehub.memory_budget import MemoryBudget
from cordata import ConfigError, StoreUnavailable, fields, request_id

#: Problems listed for one payload; the rest is only counted.
MAX_PROBLEMS = 100


class Problem(msgspec.Struct, frozen=True):
    """One mistake in a payload. It names the field and never repeats its value."""

    #: Path in the payload (`children[2]`); "" is the payload as a whole.
    field: str
    problem: str


class WebhookError(Exception):
    """The request is answered with an error, and nothing of it was stored."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        problems: list[Problem] | None = None,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.problems = problems or []
        self.headers = headers
        #: HTML for a guest's browser, instead of the JSON.
        self.page = b""


_encode = msgspec.json.Encoder().encode


def webhook_error_body(error: WebhookError, request_id: str) -> bytes:
    """The JSON body of an error."""
    problems = error.problems
    if len(problems) > MAX_PROBLEMS:
        more = Problem("", f"and {len(problems) - MAX_PROBLEMS} more problems")
        problems = [*problems[:MAX_PROBLEMS], more]
    body = {"error": error.code, "message": error.message, "problems": problems}
    return _encode({**body, "request_id": request_id})


def invalid(problems: list[Problem]) -> WebhookError:
    """The 422 for a payload that is JSON but not valid."""
    fields = ", ".join(dict.fromkeys(p.field for p in problems[:5] if p.field))
    message = "The payload is not valid" + (f": see {fields}." if fields else ".")
    return WebhookError(422, "invalid", message, problems)


#: A guest request is a page of text; a larger body is a mistake.
MAX_BODY_BYTES = 262_144
#: Memory of one worker for bodies of more than 64 KiB, which guest requests hardly ever have.
MAX_HELD_BYTES = 16 * 1024 * 1024

#: A name that may be logged: it cannot be an e-mail address or a telephone number.
_FIELD = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}(\[[0-9]+\])?")

_KEPT = (b"content-type", b"user-agent")
HTML = b"text/html; charset=utf-8"

_log = logging.getLogger("alpinehub.webhook")
_budget = MemoryBudget(MAX_HELD_BYTES)


class WebhookRequest(Request):
    """One POST, with its query and path."""

    __slots__ = ("query", "rest")

    def __init__(self, scope: Scope, receive: Receive, rest: str = "") -> None:
        super().__init__(scope, receive)
        self.query: bytes = scope.get("query_string", b"")
        #: The path after the endpoint's name, percent-decoded.
        self.rest = rest

    async def body(self) -> bytes:
        """The whole body. Raises: WebhookError 413, 503, or 400 if the client disconnected."""
        length = self.headers.get(b"content-length", b"")
        try:
            if length.isdigit() and int(length) > MAX_BODY_BYTES:
                raise BodyRefused("too_large")
            with _budget.allocation() as allocation:
                return await self.read_body(allocation, MAX_BODY_BYTES)
        except BodyRefused as refused:
            if refused.fault == "too_large":
                message = f"The body is larger than {MAX_BODY_BYTES} bytes."
                raise WebhookError(413, "too_large", message) from None
            if refused.fault == "busy":
                message = "Too many large bodies come at once; send it again later."
                raise _unavailable("busy", message, 10) from None
            raise WebhookError(400, "disconnected", "The body did not arrive whole.") from None


Endpoint = Callable[[WebhookRequest], Awaitable[Reply]]


class Webhooks:
    """The ASGI application below /api/webhook: one endpoint per name.

    A name that ends in "/" receives all paths below it: `WebhookRequest.rest` is the path.
    """

    def __init__(self, endpoints: Mapping[str, Endpoint]) -> None:
        self._endpoints = dict(endpoints)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        try:
            reply = await self._answer(scope, receive)
        except WebhookError as error:
            await respond_error(scope, send, error)
        except StoreUnavailable as error:
            await respond_error(scope, send, not_stored(error))
        except ConfigError as error:  # no master key: no secret can be checked
            _log.error("webhooks are refused (503): %s; %s", error, error.hint, extra=fields())
            message = "The server cannot check secrets at the moment; send it again later."
            await respond_error(scope, send, _unavailable("not_configured", message, 60))
        else:
            await respond(send, reply)

    async def _answer(self, scope: Scope, receive: Receive) -> Reply:
        path, rest = path_below(scope), ""
        endpoint = self._endpoints.get(path)
        if endpoint is None:
            name, slash, rest = path[1:].partition("/")
            endpoint = self._endpoints.get(f"/{name}/") if slash else None
        if endpoint is None:
            raise WebhookError(404, "not_found", "There is no such webhook.")
        if scope["method"] != "POST":
            allow = ((b"allow", b"POST"),)
            raise WebhookError(405, "method_not_allowed", "Send it with POST.", headers=allow)
        return await endpoint(WebhookRequest(scope, receive, rest))


async def respond_error(scope: Scope, send: Send, error: WebhookError) -> None:
    """Send an error, and set the reason for the server's log line of this request."""
    scope["state"]["reason"] = _reason(error)
    if error.page:
        reply = Reply(error.status, error.page, HTML, error.headers)
        return await respond(send, reply)
    body = webhook_error_body(error, request_id.get())
    await respond(send, Reply(error.status, body, headers=error.headers))


def not_stored(error: StoreUnavailable) -> WebhookError:
    """The 503 for a request that could not be stored."""
    message = "The request could not be stored; send it again."
    return _unavailable(error.code, message, error.retry_after_s)


def _unavailable(code: str, message: str, wait_s: float) -> WebhookError:
    retry_after = (b"retry-after", b"%d" % max(1, round(wait_s)))
    return WebhookError(503, code, message, headers=(retry_after,))


def require_json(headers: Mapping[bytes, bytes]) -> None:
    """Raises: WebhookError 415 unless the body is said to be plain JSON in UTF-8."""
    if not _is_json(headers.get(b"content-type", b"")):
        raise WebhookError(415, "unsupported_type", "The body must be application/json in UTF-8.")
    require_plain(headers)


@lru_cache(maxsize=64)
def _is_json(content_type: bytes) -> bool:
    kind, *parameters = content_type.decode("latin-1").lower().split(";")
    kind = kind.strip()
    json = kind == "application/json" or (
        kind.startswith("application/") and kind.endswith("+json")
    )
    written = {"".join(one.replace('"', "").split()) for one in parameters}
    charsets = {one for one in written if one.startswith("charset=")}
    return json and charsets <= {"charset=utf-8"}


def require_plain(headers: Mapping[bytes, bytes]) -> None:
    """Raises: WebhookError 415 for a compressed body."""
    if headers.get(b"content-encoding", b"identity").strip().lower() != b"identity":
        raise WebhookError(415, "unsupported_encoding", "The body must not be compressed.")


def kept_headers(headers: Mapping[bytes, bytes]) -> str:
    """The headers that help to identify the sender, as JSON; never a secret or a signature."""
    return _kept(*map(headers.get, _KEPT))


@lru_cache(maxsize=256)  # a source sends the same ones each time
def _kept(*values: bytes | None) -> str:
    kept = {
        name.decode(): value.decode("latin-1")[:256]
        for name, value in zip(_KEPT, values, strict=True)
        if value is not None
    }
    return _encode(kept).decode()


def kept_content_type(kept: str) -> str:
    """The body's Content-Type as the sender stated it, from the kept headers; "" if it did not."""
    headers = msgspec.json.decode(kept)
    return str(headers.get("content-type", "")) if isinstance(headers, dict) else ""


def _reason(error: WebhookError) -> str:
    """The reason of an error, for the server's log line of this request, whose length is limited.
    It has nothing that a guest may have written.
    """
    problems = "; ".join(f"{_loggable(p.field)}: {p.problem}" for p in error.problems[:10])
    return f"{error.code} ({problems})" if problems else error.message


def _loggable(field: str) -> str:
    """The name of a field; replaced if it does not look like a name."""
    return field if not field or _FIELD.fullmatch(field) else "(some field)"
