"""The shapes of ASGI 3 (https://asgi.readthedocs.io/en/latest/specs/www.html)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

#: 2.3: Starlette then watches for http.disconnect itself, so an idle stream ends with its client.
VERSION = {"version": "3.0", "spec_version": "2.3"}
DISCONNECT = "http.disconnect"


class Misuse(RuntimeError):
    """The application broke ASGI; the text is ours and holds nothing of a request."""


class ClientGone(ConnectionError):
    """Raised by `send` in the middle of a stream whose client has left."""
