"""A hub on a real store, and requests to it, without sockets."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.integration.engine.stores import url_of
from tests.integration.engine.template import begin
from tests.raw import raw

from alpinehub.accounts import add_account
from alpinehub.app import app as hub_app
from alpinehub.directory import directory_of
from alpinehub.hotels import NewHotel, add_hotel
from alpinehub.sources import add_source
from cordata import Context, Row, Tx, request_id
from cordata.context_factory import chains_of
from cordata.registry import AsgiApp
from cordata.testing import Harness, open_app

MASTER_KEY = bytes(range(32)).hex().encode()
#: The migrations of a hub's store.
CHAINS = chains_of(hub_app)
SECRET = "demo-secret"
BOOKING: dict[str, Any] = {
    "hotel_code": "DEMO",
    "status": "request",
    "external_id": "n-1",
    "arrival": "2027-02-01",
    "departure": "2027-02-08",
    "adults": 2,
    "children": [5, 8],
    "first_name": "Eva",
    "last_name": "Muster",
    "email": "eva@example.com",
    "phone": "+39 333 123-4567",
    "language": "de",
    "message": "Ist das Zimmer frei?",
}
PRICE: dict[str, Any] = {
    "status": "reservation",
    "room_type": "double",
    "rate_plan": "BAR",
    "total": 1450.5,
    "currency": "EUR",
}


@dataclass(frozen=True)
class Answer:
    """A response."""

    status: int
    headers: Mapping[bytes, bytes]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def id(self) -> str:
        assert self.status == 200, self.body
        found: str = self.json["id"]
        return found

    @property
    def fields(self) -> list[str]:
        return [problem["field"] for problem in self.json["problems"]]


@dataclass
class Hub:
    """The application with its Context."""

    ctx: Context
    harness: Harness
    headers: dict[str, str] = field(
        default_factory=lambda: {
            "content-type": "application/json",
            "x-webhook-secret": SECRET,
        }
    )

    async def post(
        self,
        payload: Any = None,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str | None] | None = None,
        path: str = "/api/webhook/generic",
        query: str = "",
        method: str = "POST",
        chunks: int = 1,
        client: str | None = None,
    ) -> Answer:
        """POST a payload (or raw bytes) from an address; a header of None is left out."""
        raw = json.dumps(payload).encode() if body is None else body
        merged = {**self.headers, **(headers or {})}
        sent = [(k.encode(), v.encode("latin-1")) for k, v in merged.items() if v is not None]
        return await self.call(method, path, sent, raw, query=query, chunks=chunks, client=client)

    async def call(
        self,
        method: str,
        path: str,
        headers: list[tuple[bytes, bytes]],
        body: bytes = b"",
        *,
        query: str = "",
        chunks: int = 1,
        client: str | None = None,
        app: AsgiApp | None = None,
    ) -> Answer:
        """One request through the mount that serves the path (or another application there)."""
        self.harness.advance(milliseconds=1)  # no two at the same moment
        mount = max(
            (m for m in hub_app.mounts if path == m.prefix or path.startswith(m.prefix + "/")),
            key=lambda m: len(m.prefix),
        )
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": mount.prefix,
            "query_string": query.encode(),
            "headers": headers,
            "client": (client, 50000) if client else None,
            "state": {"cordata": self.ctx},
        }
        size = max(1, -(-len(body) // chunks))
        parts = [body[i : i + size] for i in range(0, len(body), size)] or [b""]
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            part = parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(parts)}

        async def send(message: Any) -> None:
            sent.append(message)

        token = request_id.set("r-1")
        try:
            await (app or mount.app)(scope, receive, send)
        finally:
            request_id.reset(token)
        data = b"".join(m.get("body", b"") for m in sent[1:])
        return Answer(sent[0]["status"], dict(sent[0]["headers"]), data)

    async def handle_events(self) -> int:
        """Relay and handle what is there, as a worker would; how many messages that were."""
        return await self.harness.drain()

    async def execute(self, sql: str, *values: object) -> None:
        """Run a statement written in the test, with `?` for each value."""
        await self.ctx.store.run(lambda tx: raw(tx, sql, values))

    async def rows(self, sql: str) -> list[dict[str, Any]]:
        """The rows of a query written in the test, read past the named SQL."""

        async def unit(tx: Tx) -> list[Row]:
            return await raw(tx, sql)

        return [dict(row) for row in await self.ctx.store.read(unit)]

    async def one(self, sql: str) -> Any:
        """The single value of a query."""
        [row] = await self.rows(sql)
        [value] = row.values()
        return value


def forget_directory(ctx: Context) -> None:
    """The next request asks the store who there is, as it does after a second."""
    directory_of(ctx)._trusted_until = 0.0


@asynccontextmanager
async def open_hub(
    directory: Path, *, seed: bool = True, now: datetime | None = None, **settings: Any
) -> AsyncIterator[Hub]:
    """The hub on the store of a directory, migrated, with a demo hotel, user and source.

    `now`: by default that of the call. `settings` are those of [alpinehub].
    """
    config: dict[str, Any] = {"store": {"url": url_of(directory)}, "alpinehub": settings}
    await begin(directory, url_of(directory), CHAINS)
    async with open_app(
        hub_app, config=config, directory=directory, startup=False, now=now
    ) as harness:
        ctx = harness.ctx
        if seed:
            await add_hotel(ctx.store, NewHotel(code="DEMO", name="Hotel Demo"))
            await add_account(ctx.store, "demo", "demo", ["DEMO"])
            await add_source(ctx, "DEMO", "generic", "website", SECRET)
        yield Hub(ctx, harness)
