"""A push of hotel software on its way: whose hotel, whether it may, and that it is on record."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from alpinehub.alpinebits.call import Call, respond
from alpinehub.alpinebits.outcome import INVALID_HOTEL_CODE, Note, Outcome, failed
from alpinehub.alpinebits.rooms import unknown_rooms

if TYPE_CHECKING:
    from alpinehub.alpinebits.rules.inbound import Told
    from alpinehub.models import Hotel
    from cordata import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """A push that says nothing wrong, of a hotel that may be told of by this account."""

    call: Call
    hotel: Hotel
    #: The form field `action`.
    action: str
    #: What there is to say of it already.
    notes: tuple[Note, ...] = ()

    async def note(self, tx: Tx, verdict: Outcome) -> None:
        """Put it on record, in the unit that stores what it says."""
        verdict = Outcome((*self.notes, *verdict.notes))
        problem = next((note.text for note in verdict.notes), None)
        await tx.write(
            "inbound_message_add",
            hotel_id=self.hotel.id,
            account_id=self.call.account.id,
            action=self.action,
            protocol=self.call.protocol.name,
            client_id=self.call.client_id or None,
            request_id=self.call.request_id,
            now_us=tx.now_us,
            size_bytes=len(self.call.data or b""),
            outcome=verdict.outcome,
            problem=problem,
        )


async def take(
    call: Call,
    action: str,
    response: str,
    told: Told,
    store: Callable[[Push], Awaitable[Outcome]],
) -> bytes:
    """The response to a push: `store` is called for one that may be taken, and notes it."""
    hotel = call.account.hotel(told.hotel_code, told.hotel_name)
    if hotel is None:
        return respond(call, response, failed(INVALID_HOTEL_CODE, "Invalid hotel code"))
    verdict = Outcome(told.notes)
    if verdict.outcome != "error":
        verdict = Outcome(told.refused(hotel))
    if verdict.outcome == "error":
        await note_alone(Push(call=call, hotel=hotel, action=action), verdict)
        return respond(call, response, verdict)
    notes = (*told.notes, *await unknown_rooms(call.ctx.store, hotel, told.room_types))
    verdict = await store(Push(call=call, hotel=hotel, action=action, notes=notes))
    return respond(call, response, Outcome((*notes, *verdict.notes)))


async def note_alone(push: Push, verdict: Outcome) -> None:
    """Put a push on record of which nothing else is stored. Raises: StoreUnavailable."""

    async def unit(tx: Tx) -> None:
        await push.note(tx, verdict)

    await push.call.ctx.store.run(unit)
