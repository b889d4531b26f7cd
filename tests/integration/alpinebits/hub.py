"""A hub without its processes: a real store with hotels, users, guest requests; the endpoint."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date
from hashlib import scrypt
from pathlib import Path
from typing import Any

import httpx
import msgspec
from lxml import etree
from tests.integration.hub import material
from tests.raw import raw

from alpinehub.alpinebits.endpoint import alpinebits
from alpinehub.alpinebits_client import message
from alpinehub.alpinebits_client.message import HotelName
from alpinehub.intake import Version, add_version
from alpinehub.reservations import ReservationData, Status, encode, next_res_status
from cordata import Context, Tx
from cordata.pool import Client
from cordata.pool.client.lazy_client import LazyClient

NAMESPACE = "http://www.opentravel.org/OTA/2003/05"
PASSWORD = "secret:ä"
#: With parameters a thousandth as dear as a login's: a fresh worker checks it in most tests.
_HASH = "scrypt$4$8$1${}${}".format(
    b64encode(b"salt").decode(),
    b64encode(scrypt(PASSWORD.encode(), salt=b"salt", n=16, r=8, p=1, dklen=32)).decode(),
)
CREATED_AT = 1_704_201_987_938_000  # 2024-01-02T13:26:27.938Z: long ago, whatever the clock says

REQUEST = ReservationData(
    status="request",
    arrival=date(2026, 2, 1),
    departure=date(2026, 2, 8),
    adults=2,
    first_name="Eva",
    last_name="Rossi",
    email="eva@example.com",
)

_ADD_HOTEL = """INSERT INTO hotel (code, name, time_zone, language, region, created_at)
    VALUES (?, ?, ?, 'de', 'IT', ?) RETURNING id"""
_ADD_SOURCE = """INSERT INTO source
    (hotel_id, kind, name, secret, fingerprint, created_at, changed_at)
    VALUES (?, 'generic', 'website', ?, ?, 0, 0)"""
_ADD_USER = """INSERT INTO account (name, password, created_at, changed_at)
    VALUES (?, ?, 0, 0) RETURNING id"""
_ADD_USER_HOTEL = "INSERT INTO account_hotel (account_id, hotel_id) VALUES (?, ?)"
_FIND = "SELECT version, status FROM reservation WHERE id = ?"
_CHANGE = "UPDATE reservation SET version = ?, status = ?, changed_at = ? WHERE id = ?"
_SOURCE = "SELECT id FROM source WHERE hotel_id = ?"
_CHANGED = "UPDATE directory SET revision = revision + 1"


@dataclass(slots=True)
class Hub:
    """What a test works with."""

    ctx: Context
    client: httpx.AsyncClient
    #: Clock of the guest requests made here.
    made_at: int = CREATED_AT
    #: In how many parts the last answer came.
    parts: int = 0

    async def add_hotel(self, code: str, *, name: str = "", time_zone: str = "Europe/Rome") -> int:
        values = (code, name or f"Hotel {code}", time_zone, CREATED_AT)
        hotel_id = int(await self.one(_ADD_HOTEL, *values))
        await self.execute(_ADD_SOURCE, hotel_id, b"\0", code.encode())
        await self.execute(_CHANGED)
        return hotel_id

    async def add_account(self, name: str, *hotel_ids: int) -> int:
        account_id = int(await self.one(_ADD_USER, name, _HASH))
        for hotel_id in hotel_ids:
            await self.execute(_ADD_USER_HOTEL, account_id, hotel_id)
        await self.execute(_CHANGED)
        return account_id

    async def add(
        self, hotel_id: int, reservation_id: str, status: Status = "request", **fields: Any
    ) -> None:
        """A guest request, or the next version of it, as the intake stores it."""
        self.made_at = at = self.made_at + 1_000_000
        data = encode(msgspec.structs.replace(REQUEST, status=status, **fields)).decode()

        async def unit(tx: Tx) -> None:
            tx.now_us = at
            known = next(iter(await raw(tx, _FIND, [reservation_id])), None)
            [source] = await raw(tx, _SOURCE, [hotel_id])
            version = Version(
                reservation_id=reservation_id,
                number=known["version"] + 1 if known else 1,
                hotel_id=hotel_id,
                source_id=source["id"],
                status=status,
                res_status=next_res_status(status, known["status"] if known else None),
                data=data,
                content_hash=b"\0",
                request_id="",
            )
            if known:
                await raw(tx, _CHANGE, [version.number, status, at, reservation_id])
            else:
                new = {"id": reservation_id, "hotel_id": hotel_id, "source_id": version.source_id}
                moments = {"created_at": at, "changed_at": at}
                await tx.insert("reservation", **new, version=1, status=status, **moments)
            await add_version(tx, version)

        await self.ctx.store.run(unit)

    async def deliveries(self, account_id: int) -> dict[tuple[str, int], dict[str, Any]]:
        """The user's delivery rows by (reservation, version)."""
        rows = await self.execute("SELECT * FROM delivery WHERE account_id = ?", account_id)
        return {(row["reservation_id"], row["version"]): row for row in rows}

    async def execute(self, sql: str, *values: object) -> list[dict[str, Any]]:
        """The rows of a statement that the test writes itself, with `?` for each value."""
        found = await self.ctx.store.run(lambda tx: raw(tx, sql, values))
        return [dict(row) for row in found]

    async def one(self, sql: str, *values: object) -> Any:
        """The single value of a statement."""
        [row] = await self.execute(sql, *values)
        [value] = row.values()
        return value

    async def post(
        self, user: str, action: str, document: str | bytes | None, version: str = "2024-10"
    ) -> httpx.Response:
        """A request as hotel software sends it: multipart, `request` as a plain field."""
        fields: dict[str, tuple[None, str | bytes]] = {"action": (None, action)}
        if document is not None:
            fields["request"] = (None, document)
        return await self.client.post(
            "/api/alpinebits",
            files=fields,
            auth=httpx.BasicAuth(user, PASSWORD),
            headers={"X-AlpineBits-ClientProtocolVersion": version},
        )

    async def read(
        self, user: str, hotel: str, version: str = "2024-10", start: str = ""
    ) -> list[str]:
        """IDs of the guest requests in the answer, in order."""
        return [unique_id for _, unique_id, _ in await self.read_all(user, hotel, version, start)]

    async def read_all(
        self, user: str, hotel: str, version: str = "2024-10", start: str = ""
    ) -> list[tuple[str, str, str]]:
        """(UniqueID type, ID, ResStatus) of the guest requests in the answer."""
        response = await self.post(user, "OTA_Read:GuestRequests", read_rq(hotel, start), version)
        assert response.status_code == 200, response.text
        return reservations(response.content)

    async def acknowledge(
        self,
        user: str,
        *ids: tuple[int, str],
        rejected: Mapping[str, str] | None = None,
        version: str = "2024-10",
    ) -> list[str]:
        """Acknowledge and refuse; the RecordIDs that the answer warns of."""
        document = notif_report_rq(ids, rejected or {})
        response = await self.post(user, "OTA_NotifReport:GuestRequests", document, version)
        assert response.status_code == 200, response.text
        root = etree.fromstring(response.content)
        assert root[0].tag == f"{{{NAMESPACE}}}Success"
        return [str(warning.get("RecordID")) for warning in root.iter(f"{{{NAMESPACE}}}Warning")]


def read_rq(hotel: str, start: str = "", *, name: str = "") -> str:
    return message.read_requests(HotelName(code=hotel, name=name), start).decode()


def notif_report_rq(ids: Iterable[tuple[int, str]], rejected: Mapping[str, str]) -> str:
    return message.notif_report([(str(kind), one) for kind, one in ids], rejected).decode()


def reservations(document: bytes) -> list[tuple[str, str, str]]:
    root = etree.fromstring(document)
    assert root[0].tag == f"{{{NAMESPACE}}}Success", document
    found = []
    for one in root.iter(f"{{{NAMESPACE}}}HotelReservation"):
        unique = one[0]
        found.append((str(unique.get("Type")), str(unique.get("ID")), str(one.get("ResStatus"))))
    return found


def error_of(response: httpx.Response) -> tuple[str, str]:
    """Type and Code of the Error in an OTA answer."""
    assert response.status_code == 200, response.text
    match = re.search(r'<Errors><Error Type="(\d+)" Code="(\d+)"[ >]', response.text)
    assert match, response.text
    return match[1], match[2]


@asynccontextmanager
async def open_hub(folder: Path, pool: Path | None = None) -> AsyncIterator[Hub]:
    """A hub with the hotel H1 and its user u1; without `pool`, a directory, it has none."""
    async with open_worker(folder, pool) as hub:
        await hub.add_account("u1", await hub.add_hotel("H1"))
        yield hub


@asynccontextmanager
async def open_worker(folder: Path, pool: Path | None = None) -> AsyncIterator[Hub]:
    """One worker on the store of a folder; several may share one."""
    async with material.open_hub(folder, seed=False) as made:
        lazy_client = LazyClient() if pool is None else LazyClient(lambda: Client(pool))
        ctx = msgspec.structs.replace(made.ctx, lazy_client=lazy_client)

        async def mounted(scope: Any, receive: Any, send: Any) -> None:
            hub.parts = -1  # the message that begins the answer is none

            async def counted(message: Any) -> None:
                hub.parts += 1
                await send(message)

            made.harness.advance(milliseconds=1)  # no two requests at the same moment
            scope = {**scope, "root_path": "/api/alpinebits", "state": {"cordata": ctx}}
            await alpinebits(scope, receive, counted)

        transport = httpx.ASGITransport(app=mounted)
        async with httpx.AsyncClient(transport=transport, base_url="http://hub") as client:
            hub = Hub(ctx, client)
            try:
                yield hub
            finally:
                await lazy_client.close()
