"""The last contact of an account's software, by hotel: when it called, and from where."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from alpinehub.alpinebits.call import Recipient
from cordata import Context, Store, Tx

#: Seconds for which another poll of the same account for the same hotel is not recorded. On SQLite
#: a poll that repeats another one takes 1.4 times the processor, and 1 to 5 ms longer, if each is.
POLL_NOTED_S = 30
#: (account id, hotel id) -> when a poll was recorded, in us since the epoch.
_polls_noted: WeakKeyDictionary[Store, dict[tuple[int, int], int]] = WeakKeyDictionary()


def is_poll_noted(ctx: Context, recipient: Recipient, hotel_id: int) -> bool:
    """Whether a poll was recorded within POLL_NOTED_S, so that another one is not."""
    at = _polls_noted.get(ctx.store, {}).get((recipient.account_id, hotel_id), 0)
    return abs(ctx.now_us() - at) < POLL_NOTED_S * 1_000_000  # a clock may be set back


def set_poll_noted(ctx: Context, recipient: Recipient, hotel_id: int) -> None:
    """Say that a poll was recorded, after the commit."""
    noted = _polls_noted.setdefault(ctx.store, {})
    noted[recipient.account_id, hotel_id] = ctx.now_us()


async def note_contact(
    tx: Tx, recipient: Recipient, hotel_id: int, *, polled: bool = False, acked: bool = False
) -> None:
    """Record a client account's last contact about a hotel, in the caller's unit of work."""
    await tx.write(
        "contact_note",
        account_id=recipient.account_id,
        hotel_id=hotel_id,
        called_at=tx.now_us,
        polled_at=tx.now_us if polled else None,
        acked_at=tx.now_us if acked else None,
        network=recipient.network or None,
    )
