"""Finds hotel software that has fallen silent, and says it once until it is back."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from alpinehub.directory import read_snapshot
from alpinehub.hotels import addresses_of
from alpinehub.watch.silence import Contact, Silence, silence_of
from alpinehub.watch.words import tell

if TYPE_CHECKING:
    from alpinehub.party import Hotel, User
    from cordata import Context, Row, Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """One user and one of his hotels, at this moment."""

    user: User
    hotel: Hotel
    contact: Contact
    #: When the operator was told.
    silent_at: int | None
    #: None: all is well.
    silence: Silence | None


async def watch(ctx: Context) -> None:
    """One pass over all users and hotels that are not disabled. Raises: StoreUnavailable."""
    default_h: int = ctx.settings["alpinehub"].silent_after_h
    for one in await ctx.store.read(partial(read_watched, default_h=default_h)):
        if (one.silence is None) == (one.silent_at is None):
            continue
        if one.silence is None:
            ctx.log.info("user %s: back for hotel %s", one.user.name, one.hotel.code)
        else:  # before it is noted: else a crash between the two would keep it from everybody
            cause = f"silent:{one.hotel.code}:{one.user.name}"
            text = _sentence(one, one.silence, ctx.now_us())
            ctx.alert(cause, text, ids=[one.hotel.code])
        await ctx.run(partial(_note, one=one))


async def read_watched(tx: Tx, *, default_h: int) -> list[Watched]:
    """Everybody who reads a hotel, silent or not, by hotel and user."""
    directory = await read_snapshot(tx, 0)
    rows = {(row["user_id"], row["hotel_id"]): row for row in await tx.fetch_all("watch_contacts")}
    found = []
    for user in directory.users.values():
        for hotel in user.hotels:
            if (row := rows.get((user.id, hotel.id))) is None:
                continue
            own_h = hotel.settings.silent_after_h
            contact = _contact(row)
            after_h = default_h if own_h is None else own_h
            silence = silence_of(contact, now_us=tx.now_us, after_h=after_h)
            found.append(
                Watched(
                    user=user,
                    hotel=hotel,
                    contact=contact,
                    silent_at=row["silent_at"],
                    silence=silence,
                )
            )
    return sorted(found, key=lambda one: (one.hotel.code, one.user.name))


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


async def _note(tx: Tx, one: Watched) -> None:
    """The unit: remember that it was said, and write to the hotel if it wants to know."""
    silent_at = None if one.silence is None else tx.now_us
    ids = {"user_id": one.user.id, "hotel_id": one.hotel.id}
    await tx.write("watch_note", **ids, silent_at=silent_at)
    to = addresses_of(one.hotel.settings.alert_email)
    if one.silence is None or not to:
        return
    subject, text = tell(
        one.silence,
        language=one.hotel.settings.report_language or one.hotel.language,
        hotel=one.hotel.name,
        user=one.user.name,
        hours=one.silence.hours(tx.now_us),
    )
    name = f"silent.{one.user.id}.{one.hotel.id}.{one.silence.since_at:x}"
    await tx.send_mail(to=to, subject=subject, text=text, message_id=f"<{name}@alpinehub>")


def _sentence(one: Watched, silence: Silence, now_us: int) -> str:
    did = "polled" if silence.what == "poll" else "acknowledged what it got"
    return (
        f"hotel {one.hotel}: user {one.user.name} has not {did} for "
        f"{silence.hours(now_us)} h; {silence.waiting} guest requests wait"
    )
