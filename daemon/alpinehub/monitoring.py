"""Monitoring of stale clients: hotel software that no longer polls, or does not acknowledge. The
operator is alerted once until it is back; the hotel gets a mail in its language.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

from msgspec import Struct

from alpinehub.directory import read_snapshot
from alpinehub.hotels import addresses_of
from alpinehub.models import Account, Hotel
from cordata import Context, Row, Tx

_HOUR_US = 3_600_000_000


class Contact(Struct, frozen=True, kw_only=True):
    """The last contacts of one account for one of its hotels."""

    #: When it last polled.
    came_at: int | None
    #: Guest requests are pushed to it, so it need not poll.
    is_pushed: bool = False
    #: Guest requests that are not acknowledged: how many,
    waiting: int
    #: when the oldest deliverable one came, and when the oldest that was sent was first sent.
    oldest_at: int | None
    sent_at: int | None


class Staleness(Struct, frozen=True, kw_only=True):
    """What the software fails to do, and since when (microseconds since the epoch)."""

    what: Literal["poll", "acknowledge"]
    since_at: int
    waiting: int

    def hours(self, now_us: int) -> int:
        """For how long, in whole hours."""
        return (now_us - self.since_at) // _HOUR_US


def staleness_of(contact: Contact, *, now_us: int, after_h: int) -> Staleness | None:
    """The staleness of a client; None: not stale, or not monitored (`after_h` 0).

    Software that never polled is stale only if guest requests wait: it may not be set up yet.
    """
    if after_h <= 0:
        return None
    limit_at = now_us - after_h * _HOUR_US
    if contact.is_pushed:
        since_at = contact.oldest_at
        if since_at is None or since_at > limit_at:
            return None
        return Staleness(what="acknowledge", since_at=since_at, waiting=contact.waiting)
    came_at = contact.came_at
    if came_at is None:
        came_at = contact.oldest_at
    if came_at is not None and came_at <= limit_at:
        return Staleness(what="poll", since_at=came_at, waiting=contact.waiting)
    if contact.sent_at is not None and contact.sent_at <= limit_at:
        return Staleness(what="acknowledge", since_at=contact.sent_at, waiting=contact.waiting)
    return None


class _Words(Struct, frozen=True, kw_only=True):
    subject: str
    #: With {account} and {hours}.
    poll: str
    acknowledge: str
    #: With {count}.
    waiting: str


_WORDS = {
    "de": _Words(
        subject="Die Hotelsoftware nimmt keine Gästeanfragen an",
        poll="Die Hotelsoftware ({account}) hat sich seit {hours} Stunden nicht gemeldet.",
        acknowledge="Die Hotelsoftware ({account}) bestätigt Gästeanfragen seit {hours} Stunden "
        "nicht.",
        waiting="Offen: {count}.",
    ),
    "it": _Words(
        subject="Il software dell'hotel non riceve le richieste degli ospiti",
        poll="Il software dell'hotel ({account}) non si collega da {hours} ore.",
        acknowledge="Il software dell'hotel ({account}) non conferma le richieste degli ospiti da "
        "{hours} ore.",
        waiting="In attesa: {count}.",
    ),
    "en": _Words(
        subject="The hotel software does not take guest requests",
        poll="The hotel software ({account}) has not polled for {hours} hours.",
        acknowledge="The hotel software ({account}) has not acknowledged guest requests for "
        "{hours} hours.",
        waiting="Waiting: {count}.",
    ),
}


def mail_of(
    staleness: Staleness, *, language: str, hotel: str, account: str, hours: int
) -> tuple[str, str]:
    """Subject and text of the mail to the hotel; English if there is no text in its language."""
    words = _WORDS.get(language, _WORDS["en"])
    sentence = words.poll if staleness.what == "poll" else words.acknowledge
    lines = [
        sentence.format(account=account, hours=hours),
        words.waiting.format(count=staleness.waiting),
    ]
    return f"{hotel}: {words.subject}", "\n".join(lines) + "\n"


class ClientState(Struct, frozen=True, kw_only=True):
    """One account and one of its hotels, at this moment."""

    account: Account
    hotel: Hotel
    #: When the operator was alerted.
    stale_at: int | None
    #: None: not stale.
    staleness: Staleness | None


async def watch(ctx: Context) -> None:
    """Check all accounts and hotels that are not disabled, once. Raises: StoreUnavailable."""
    default_h: int = ctx.settings["alpinehub"].stale_after_h
    for one in await ctx.store.read(partial(read_clients, default_h=default_h)):
        if (one.staleness is None) == (one.stale_at is None):
            continue
        if one.staleness is None:
            ctx.log.info("account %s: back for hotel %s", one.account.name, one.hotel.code)
        else:  # before it is noted: else a crash between the two would lose the alert
            cause = f"stale-client:{one.hotel.code}:{one.account.name}"
            text = _sentence(one, one.staleness, ctx.now_us())
            ctx.alert(cause, text, ids=[one.hotel.code])
        await ctx.run(partial(_note, one=one))


async def read_clients(tx: Tx, *, default_h: int) -> list[ClientState]:
    """The state of each account and hotel that it reads, stale or not."""
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
            after_h = default_h if own_h is None else own_h
            staleness = staleness_of(_contact(row), now_us=tx.now_us, after_h=after_h)
            found.append(
                ClientState(
                    account=account,
                    hotel=hotel,
                    stale_at=row["stale_at"],
                    staleness=staleness,
                )
            )
    return sorted(found, key=lambda one: (one.hotel.code, one.account.name))


def _contact(row: Row) -> Contact:
    enabled_at = row["enabled_at"] or 0

    def since(at: int | None) -> int | None:
        """Not before it and its hotel were enabled: until then it could not poll."""
        return None if at is None else max(at, enabled_at)

    return Contact(
        came_at=since(row["polled_at"]),
        is_pushed=bool(row["is_pushed"]),
        waiting=row["waiting"],
        oldest_at=since(row["oldest_at"]),
        sent_at=since(row["sent_at"]),
    )


async def _note(tx: Tx, one: ClientState) -> None:
    """The unit: record the alert, and send the mail to the hotel's alert_email."""
    stale_at = None if one.staleness is None else tx.now_us
    ids = {"account_id": one.account.id, "hotel_id": one.hotel.id}
    await tx.write("monitoring_note", **ids, stale_at=stale_at)
    to = addresses_of(one.hotel.settings.alert_email)
    if one.staleness is None or not to:
        return
    subject, text = mail_of(
        one.staleness,
        language=one.hotel.settings.report_language or one.hotel.language,
        hotel=one.hotel.name,
        account=one.account.name,
        hours=one.staleness.hours(tx.now_us),
    )
    name = f"silent.{one.account.id}.{one.hotel.id}.{one.staleness.since_at:x}"
    await tx.send_mail(to=to, subject=subject, text=text, message_id=f"<{name}@alpinehub>")


def _sentence(one: ClientState, staleness: Staleness, now_us: int) -> str:
    did = "polled" if staleness.what == "poll" else "acknowledged what it got"
    return (
        f"hotel {one.hotel}: account {one.account.name} has not {did} for "
        f"{staleness.hours(now_us)} h; {staleness.waiting} guest requests wait"
    )
