"""Inbound updates: messages in which hotel software sends data about its hotel.

    read (rules/) -> admit: whose hotel, is it allowed -> store what it says, and that it came
                            no: the response is an error, and that it came is on record

Categories of rooms that are not in the hotel's own inventory are an advisory.
"""

from __future__ import annotations

import asyncio
import zlib
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING

from alpinehub.alpinebits.call import Call, respond
from alpinehub.alpinebits.document import tag
from alpinehub.alpinebits.outcome import INVALID_HOTEL_CODE, Finding, Outcome, failed

if TYPE_CHECKING:
    from alpinehub.alpinebits.rules.inbound import InboundMessage
    from alpinehub.models import Hotel
    from cordata import Row, Store, Tx

_UNKNOWN_ROOMS = Finding(
    kind="advisory",
    text="some room categories are not in the inventory that this server has received",
    status="ALPINEBITS_SEND_INVENTORY",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """A message without errors, about a hotel that this account may send data about."""

    call: Call
    hotel: Hotel
    #: The form field `action`.
    action: str
    #: Name of the root element of the response.
    response: str
    #: What there is to say of it already.
    findings: tuple[Finding, ...] = ()

    async def record(self, tx: Tx, outcome: Outcome) -> None:
        """Put the message on record, in the unit that stores what it says."""
        outcome = Outcome((*self.findings, *outcome.findings))
        await tx.insert(
            "inbound_message",
            hotel_id=self.hotel.id,
            account_id=self.call.account.id,
            action=self.action,
            protocol=self.call.protocol.name,
            client_id=self.call.client_id or None,
            request_id=self.call.request_id,
            received_at=tx.now_us,
            size_bytes=len(self.call.data or b""),
            outcome=outcome.kind,
            problem=next((finding.text for finding in outcome.findings), None),
        )

    async def record_alone(self, outcome: Outcome) -> None:
        """Put a message on record of which nothing else is stored. Raises: StoreUnavailable."""

        async def unit(tx: Tx) -> None:
            await self.record(tx, outcome)

        await self.call.ctx.store.run(unit)

    def respond(self, outcome: Outcome) -> bytes:
        """The response to the message."""
        return respond(self.call, self.response, Outcome((*self.findings, *outcome.findings)))


async def admit(call: Call, action: str, response: str, message: InboundMessage) -> Update | bytes:
    """The update to be stored; bytes: the response to a message that is not admitted."""
    hotel = call.account.hotel(message.hotel_code, message.hotel_name)
    if hotel is None:
        return respond(call, response, failed(INVALID_HOTEL_CODE, "Invalid hotel code"))
    outcome = Outcome(message.findings)
    if outcome.kind != "error":
        outcome = Outcome(message.disabled_features(hotel))
    if outcome.kind == "error":
        update = Update(call=call, hotel=hotel, action=action, response=response)
        await update.record_alone(outcome)
        return respond(call, response, outcome)
    return Update(
        call=call,
        hotel=hotel,
        action=action,
        response=response,
        findings=(
            *message.findings,
            *await _unknown_rooms(call.ctx.store, hotel, message.room_types),
        ),
    )


async def _unknown_rooms(
    store: Store, hotel: Hotel, room_types: frozenset[str]
) -> tuple[Finding, ...]:
    """Advice to send the inventory, where there is an older one; the message counts anyway.

    Raises: StoreUnavailable.
    """
    if not room_types:
        return ()

    async def look(tx: Tx) -> Row | None:
        return await tx.fetch_one("document_get", hotel_id=hotel.id, kind="inventory")

    known = await store.read(look)
    codes = await asyncio.to_thread(_codes, known["body"]) if known is not None else room_types
    return (_UNKNOWN_ROOMS,) if codes and room_types - codes else ()


def _codes(inventory: bytes) -> frozenset[str]:
    """Of the categories in an inventory, packed."""
    from lxml import etree

    rooms = etree.iterparse(BytesIO(zlib.decompress(inventory)), tag=tag("GuestRoom"))
    return frozenset(str(room.get("Code", "")) for _, room in rooms)
