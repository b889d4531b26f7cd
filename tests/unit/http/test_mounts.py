"""Which mounted application gets a request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cordata.http import AsgiApp, compose
from cordata.http.asgi import Receive, Scope, Send


async def asked(prefixes: list[str], path: str) -> tuple[str | None, str, list[Any]]:
    """(the prefix that was served, root_path, messages of the composed application itself)."""
    got: list[tuple[str, str]] = []
    sent: list[Any] = []

    def application(prefix: str) -> AsgiApp:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            got.append((prefix, scope["root_path"]))
            assert scope["path"] == path

        return app

    async def receive() -> Any:
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)

    composed = compose({prefix: application(prefix) for prefix in prefixes})
    await composed({"type": "http", "path": path, "root_path": ""}, receive, send)
    prefix, root_path = got[0] if got else (None, "")
    return prefix, root_path, sent


@pytest.mark.parametrize(
    ("path", "prefix"),
    [
        ("/api/x", "/api"),
        ("/api", "/api"),
        ("/api/v2", "/api/v2"),
        ("/api/v2/x", "/api/v2"),
        ("/api/v22", "/api"),
        ("/apix", ""),
        ("/", ""),
        ("*", ""),
    ],
)
async def test_longest_prefix_wins(path: str, prefix: str) -> None:
    assert (await asked(["", "/api", "/api/v2"], path))[:2] == (prefix, prefix)


async def test_answer_is_404_when_nothing_is_mounted_there() -> None:
    prefix, _, sent = await asked(["/api"], "/other")
    assert prefix is None
    assert sent[0]["status"] == 404
    assert json.loads(sent[1]["body"]).keys() == {"error", "message", "request_id"}


async def test_options_of_the_server_is_answered_when_no_application_serves_everything() -> None:
    prefix, _, sent = await asked(["/api"], "*")
    assert prefix is None
    assert sent[0]["status"] == 204 and not sent[1].get("body")


async def test_single_application_for_everything_is_not_wrapped() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None: ...

    assert compose({"": app}) is app
