"""The hotels, users and sources of the load measurement, and what growth_fill.py makes requests of.

They are made by the hub's own functions, since secrets are sealed.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from functools import partial
from pathlib import Path

from alpinehub.hotels import NewHotel, add_hotel, require_hotel
from alpinehub.reservations import ReservationData
from alpinehub.sources import KINDS, add_source
from cordata import Context, Tx

PASSWORD = "load"
#: Of the hotel whose requests all wait; nothing is sent to it.
WAITING = "WAITING"
_COLUMNS = {
    "customer": "id hotel_id email phone first_name last_name phone_due created_at",
    "reservation": "id hotel_id source_id external_id customer_id version status"
    " created_at changed_at",
    "reservation_version": "reservation_id version content_hash res_status data"
    " request_id created_at",
    "inbox": "source_id external_id received_at headers body state reservation_id"
    " request_id outcome handled_at",
    "delivery": "reservation_id account_id version hotel_id unique_id_type waiting"
    " sent_at ever_sent acked_at",
    "reservation_event": "reservation_id version event account_id at request_id",
    "contact": "account_id hotel_id polled_at acked_at",
}


@dataclass(frozen=True, slots=True)
class Party:
    """A hotel, who reads it and who writes to it."""

    hotel_id: int
    code: str
    #: Names by id.
    users: dict[int, str]
    #: By kind of source.
    source_ids: dict[str, int]
    secrets: dict[str, str]


async def add_parties(ctx: Context, hotels: int) -> list[Party]:
    """The hotels, each with a source of every kind and a user, every second one with two; the last
    is the one whose requests all wait.
    """
    parties = []
    for number in range(hotels + 1):
        code = f"LOAD{number:04}" if number < hotels else WAITING
        await add_hotel(ctx.store, NewHotel(code=code, name=f"Hotel {code}"))
        secrets = {kind: f"load-{kind}-{number:020}" for kind in KINDS}
        ids = {kind: await add_source(ctx, code, kind, kind, secrets[kind]) for kind in KINDS}
        names = [f"{code.lower()}-{n}" for n in range(1 if number % 2 or code == WAITING else 2)]
        hotel_id, users = await ctx.store.run(partial(_add_users, code=code, names=names))
        parties.append(Party(hotel_id, code, users, ids, secrets))
    return parties


async def _add_users(tx: Tx, *, code: str, names: Sequence[str]) -> tuple[int, dict[int, str]]:
    """Not by `add_account`: its hashes cost 40 ms, here and again at each first login."""
    hotel_id = await require_hotel(tx, code)
    users = {}
    for name in names:
        row = await tx.fetch_one("add_account", name=name, password=_cheap_hash(), now=tx.now_us)
        assert row is not None
        users[int(row["id"])] = name
        await tx.execute("grant_hotel", account_id=row["id"], hotel_id=hotel_id, from_at=None)
    await tx.execute("bump_directory")
    return hotel_id, users


def _cheap_hash() -> str:
    salt = b"load"
    key = hashlib.scrypt(PASSWORD.encode(), salt=salt, n=2, r=8, p=1, dklen=32)
    return f"scrypt$1$8$1${b64encode(salt).decode()}${b64encode(key).decode()}"


def write_parties(path: Path, parties: Sequence[Party]) -> None:
    """For a later run on the same store."""
    path.write_text(json.dumps([asdict(party) for party in parties]))


def read_parties(path: Path) -> list[Party]:
    """What `write_parties` wrote."""
    found = [Party(**one) for one in json.loads(path.read_text())]
    for party in found:
        named = {int(account_id): name for account_id, name in party.users.items()}
        party.users.clear()
        party.users.update(named)
    return found


def _request(number: int, guest: int) -> ReservationData:
    arrival = date(2027, 1, 1) + timedelta(days=number % 300)
    return ReservationData(
        status="request",
        arrival=arrival,
        departure=arrival + timedelta(days=7),
        adults=2,
        children=(5, 8),
        first_name="Eva",
        last_name=f"Muster{guest}",
        email=f"guest{guest}@example.com",
        phone=f"+39333{guest:07}",
        language=("de", "it", "en")[number % 3],
        message="Haben Sie in dieser Woche noch ein Zimmer mit Balkon frei? Wir sind zu viert.",
    )
