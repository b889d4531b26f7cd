"""When the software of an account last came for a hotel, and as what."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from cordata import StoreUnavailable

if TYPE_CHECKING:
    from alpinehub.alpinebits.call import Client
    from cordata import Context, Store, Tx

#: Seconds for which a poll of the same account for the same hotel is no news.
POLL_NOTED_S = 30

#: By account and hotel, until when (us) a poll is not noted again.
_noted: WeakKeyDictionary[Store, dict[tuple[int, int], int]] = WeakKeyDictionary()


async def note_poll(ctx: Context, client: Client, hotel_id: int) -> None:
    """Of what is only noted, the poll does not fail."""
    noted = _noted.setdefault(ctx.store, {})
    who, now_us = (client.account_id, hotel_id), ctx.now_us()
    if now_us < noted.get(who, 0):
        return
    noted[who] = now_us + POLL_NOTED_S * 1_000_000

    async def unit(tx: Tx) -> None:
        await note_contact(tx, client, hotel_id, polled=True)

    with suppress(StoreUnavailable):
        await ctx.store.run(unit)


async def note_contact(
    tx: Tx, client: Client, hotel_id: int, *, polled: bool = False, acked: bool = False
) -> None:
    """Within a unit of the caller's."""
    await tx.write(
        "contact_note",
        account_id=client.account_id,
        hotel_id=hotel_id,
        protocol=client.protocol.name,
        client_id=client.client_id or None,
        polled_at=tx.now_us if polled else None,
        acked_at=tx.now_us if acked else None,
    )
