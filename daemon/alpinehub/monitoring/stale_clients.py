"""Finds hotel software that has fallen silent, and says it once until it is back."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from alpinehub.directory import read_snapshot
from alpinehub.hotels import addresses_of
from alpinehub.monitoring.mail import tell
from alpinehub.monitoring.staleness import Contact, Staleness, staleness_of

if TYPE_CHECKING:
    from alpinehub.models import Account, Hotel
    from cordata import Context, Row, Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One account and one of his hotels, at this moment."""

    account: Account
    hotel: Hotel
    contact: Contact
    #: When the operator was told.
    stale_at: int | None
    #: None: all is well.
    staleness: Staleness | None


async def watch(ctx: Context) -> None:
    """One pass over all accounts and hotels that are not disabled. Raises: StoreUnavailable."""
    default_h: int = ctx.settings["alpinehub"].stale_after_h
    for one in await ctx.store.read(partial(read_clients, default_h=default_h)):
        if (one.staleness is None) == (one.stale_at is None):
            continue
        if one.staleness is None:
            ctx.log.info("account %s: back for hotel %s", one.account.name, one.hotel.code)
        else:  # before it is noted: else a crash between the two would keep it from everybody
            cause = f"stale-client:{one.hotel.code}:{one.account.name}"
            text = _sentence(one, one.staleness, ctx.now_us())
            ctx.alert(cause, text, ids=[one.hotel.code])
        await ctx.run(partial(_note, one=one))


async def read_clients(tx: Tx, *, default_h: int) -> list[Client]:
    """Everybody who reads a hotel, silent or not, by hotel and account."""
    directory = await read_snapshot(tx, 0)
    rows = {
        (row["account_id"], row["hotel_id"]): row
        for row in await tx.fetch_all("monitoring_contacts")
    }
    found = []
    for account in directory.accounts.values():
        for hotel in account.hotels:
            if (row := rows.get((account.id, hotel.id))) is None:
                continue
            own_h = hotel.settings.stale_after_h
            contact = _contact(row)
            after_h = default_h if own_h is None else own_h
            staleness = staleness_of(contact, now_us=tx.now_us, after_h=after_h)
            found.append(
                Client(
                    account=account,
                    hotel=hotel,
                    contact=contact,
                    stale_at=row["stale_at"],
                    staleness=staleness,
                )
            )
    return sorted(found, key=lambda one: (one.hotel.code, one.account.name))


def _contact(row: Row) -> Contact:
    enabled_at = row["enabled_at"] or 0

    def since(at: int | None) -> int | None:
        """While it or its hotel was disabled it could not come."""
        return None if at is None else max(at, enabled_at)

    return Contact(
        came_at=since(row["polled_at"]),
        is_brought=bool(row["is_brought"]),
        waiting=row["waiting"],
        oldest_at=since(row["oldest_at"]),
        sent_at=since(row["sent_at"]),
    )


async def _note(tx: Tx, one: Client) -> None:
    """The unit: remember that it was said, and write to the hotel if it wants to know."""
    stale_at = None if one.staleness is None else tx.now_us
    ids = {"account_id": one.account.id, "hotel_id": one.hotel.id}
    await tx.write("monitoring_note", **ids, stale_at=stale_at)
    to = addresses_of(one.hotel.settings.alert_email)
    if one.staleness is None or not to:
        return
    subject, text = tell(
        one.staleness,
        language=one.hotel.settings.report_language or one.hotel.language,
        hotel=one.hotel.name,
        account=one.account.name,
        hours=one.staleness.hours(tx.now_us),
    )
    name = f"silent.{one.account.id}.{one.hotel.id}.{one.staleness.since_at:x}"
    await tx.send_mail(to=to, subject=subject, text=text, message_id=f"<{name}@alpinehub>")


def _sentence(one: Client, staleness: Staleness, now_us: int) -> str:
    did = "polled" if staleness.what == "poll" else "acknowledged what it got"
    return (
        f"hotel {one.hotel}: account {one.account.name} has not {did} for "
        f"{staleness.hours(now_us)} h; {staleness.waiting} guest requests wait"
    )
