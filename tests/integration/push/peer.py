"""The two sides of a push: hotel software that takes, refuses, fails as told; and its hub."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from lxml import etree
from tests.integration.alpinebits_client.peers import Asked, http
from tests.integration.hub.material import BOOKING, Hub

from alpinehub.accounts import add_account
from alpinehub.alpinebits.document import NAMESPACE
from alpinehub.hotels import NewHotel, add_hotel
from alpinehub.push.target import set_target
from alpinehub.sources import add_source

PASSWORD = "s3cret-of-the-peer"
_ALL = f"{{{NAMESPACE}}}HotelReservation"


@dataclass
class HotelSoftware:
    """Answers OTA_HotelResNotif; use `answer` as a scripted server's `respond`."""

    #: ID -> why.
    refused: dict[str, str] = field(default_factory=dict)
    #: Codes of hotels that it does not know.
    unknown_hotels: set[str] = field(default_factory=set)
    #: Answers a message otherwise, when it returns something: bytes, or None for staleness.
    otherwise: Callable[[Asked], bytes | None] | None = None
    #: (type, ID) of what came, message by message.
    came: list[list[tuple[str, str]]] = field(default_factory=list)

    def answer(self, asked: Asked) -> bytes:
        """The response."""
        root = etree.fromstring(asked.document)
        known = [(one[0].get("Type", ""), one[0].get("ID", "")) for one in root.iter(_ALL)]
        self.came.append(known)
        if self.otherwise is not None and (answer := self.otherwise(asked)) is not None:
            return answer
        codes = {one.get("HotelCode") for one in root.iter(f"{{{NAMESPACE}}}BasicPropertyInfo")}
        if codes & self.unknown_hotels:
            return http(errors("13", "392"))
        return http(taken(known, self.refused))

    @property
    def ids(self) -> list[str]:
        """Of all that came, in order."""
        return [unique_id for message in self.came for _, unique_id in message]


def taken(known: Iterable[tuple[str, str]], refused: dict[str, str]) -> str:
    """OTA_HotelResNotifRS."""
    warnings = "".join(
        f'<Warning Type="3" Code="450" RecordID="{unique_id}">{refused[unique_id]}</Warning>'
        for _, unique_id in known
        if unique_id in refused
    )
    rows = "".join(
        f'<HotelReservation><UniqueID Type="{kind}" ID="{unique_id}"/></HotelReservation>'
        for kind, unique_id in known
        if unique_id not in refused
    )
    inside = f"<Warnings>{warnings}</Warnings>" if warnings else ""
    inside += f"<HotelReservations>{rows}</HotelReservations>" if rows else ""
    return _message(f"<Success/>{inside}")


def errors(kind: str, code: str) -> str:
    """It took nothing; its words hold a name, which is nobody's business."""
    said = f'<Error Type="{kind}" Code="{code}">Eva Muster cannot stay</Error>'
    return _message(f"<Errors>{said}</Errors>")


def _message(inside: str) -> str:
    return (
        f'<OTA_HotelResNotifRS xmlns="{NAMESPACE}" Version="1.000">{inside}</OTA_HotelResNotifRS>'
    )


async def target(hub: Hub, user: str, url: str, protocol: str = "2024-10") -> None:
    await set_target(
        hub.ctx, user, url=url, login="hub", password=PASSWORD, protocol=protocol, gzip=False
    )


async def book(hub: Hub, number: int = 1, hotel: str = "DEMO", **fields: object) -> str:
    said = {**BOOKING, "hotel_code": hotel, "external_id": f"n-{number}", **fields}
    headers: dict[str, str | None] = {} if hotel == "DEMO" else {"x-webhook-secret": hotel * 3}
    return (await hub.post(said, headers=headers)).id


async def second_hotel(hub: Hub, *users: str) -> None:
    await add_hotel(hub.ctx.store, NewHotel(code="ROSE", name="Rosé"))
    await add_source(hub.ctx, "ROSE", "generic", "website", "ROSE" * 3)
    for user in users:
        await add_account(hub.ctx.store, user, "x", ["ROSE"])


async def acked(hub: Hub) -> dict[str, bool]:
    rows = await hub.rows("SELECT reservation_id, waiting, acked_at FROM delivery")
    return {row["reservation_id"]: row["acked_at"] is not None for row in rows}
