"""The hub behind the real connection layer, on a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from tests.integration.http.live import live
from tests.integration.hub.material import Hub

from alpinehub.app import app
from cordata.http import compose


@asynccontextmanager
async def served(hub: Hub, path: str = "") -> AsyncIterator[str]:
    """The URL of a path of it."""
    texts = {one.prefix: one.error_text for one in app.mounts if one.error_text}
    state = {"cordata": hub.ctx}
    mounts = compose({one.prefix: one.app for one in app.mounts})
    async with live(mounts, state=state, error_texts=texts) as server:
        yield f"http://127.0.0.1:{server.port}{path}"


@asynccontextmanager
async def client_of(hub: Hub) -> AsyncIterator[httpx.AsyncClient]:
    """A client for it."""
    async with served(hub) as url, httpx.AsyncClient(base_url=url, timeout=60) as client:
        yield client
