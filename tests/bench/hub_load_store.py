"""The store of the load measurement: many hotels and a long history, written past the hub.

The parties (hotels, users, sources) are made by the hub's own functions, since secrets are sealed;
the history by bulk inserts in its schema: each request with its version, customer, inbox row,
deliveries and trail. It ends an hour ago, and one request in a hundred, the newest, still waits.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from alpinehub.hotels import NewHotel, add_hotel, require_hotel
from alpinehub.reservations import ReservationData, content_hash, encode, new_id
from alpinehub.sources import KINDS, add_source
from cordata import Context, Tx

PASSWORD = "load"
#: Of the hotel whose requests all wait; nothing is sent to it.
WAITING = "WAITING"
#: Days of history: fewer than the hub keeps what was sent, so that nothing is due to go.
_DAYS = 80
_CHUNK = 10_000
_HOUR_US = 3_600_000_000
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


class Bulk(Protocol):
    """Rows into tables, fast and without care for a crash."""

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        """Add rows."""


class SqliteBulk:
    """Of a store that nobody has open."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path)
        for pragma in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -200000"):
            self._connection.execute(f"PRAGMA {pragma}")

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        places = ", ".join("?" * len(columns))
        statement = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})"
        self._connection.executemany(statement, rows)

    def close(self) -> None:
        self._connection.commit()
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.close()


class PostgresBulk:
    """By COPY, in one transaction."""

    def __init__(self, url: str) -> None:
        import psycopg

        self._connection = psycopg.connect(url)

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        statement = f"COPY {table} ({', '.join(columns)}) FROM STDIN"
        with self._connection.cursor().copy(statement.encode()) as copy:
            for row in rows:
                copy.write_row(row)

    def close(self) -> None:
        last = "SELECT setval(pg_get_serial_sequence('customer', 'id'), max(id)) FROM customer"
        self._connection.execute(last)
        self._connection.commit()
        self._connection.autocommit = True
        self._connection.execute("VACUUM ANALYZE")
        self._connection.close()


@contextmanager
def bulk(folder: Path, store: str) -> Iterator[SqliteBulk | PostgresBulk]:
    """Of the hub's store in a folder, or the database of a url."""
    embedded = store.startswith("sqlite:")
    opened = SqliteBulk(folder / "hub" / "cordata.db") if embedded else PostgresBulk(store)
    try:
        yield opened
    finally:
        opened.close()


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


def add_history(
    into: Bulk, parties: Sequence[Party], *, requests: int, waiting: int, now_us: int
) -> None:
    """`requests` of all hotels but the last, which gets `waiting` that nobody has fetched."""
    *hotels, quiet = parties
    end_us = now_us - _HOUR_US
    step_us = _DAYS * 24 * _HOUR_US // max(1, requests)
    rows = _Rows(len(hotels))
    for number in range(requests):
        created_us = end_us - (requests - number) * step_us
        hotel = hotels[number % len(hotels)]
        rows.add(hotel, number, created_us, waits=number >= requests - requests // 100)
        if number % _CHUNK == _CHUNK - 1:
            rows.flush(into)
    for number in range(waiting):
        rows.add(quiet, requests + number, end_us + number * 1000, waits=True)
    for party in parties:
        rows.add_contacts(party, now_us)
    rows.flush(into)


class _Rows:
    """What a part of the history is in each table."""

    def __init__(self, hotels: int) -> None:
        self._hotels = hotels
        self._rows: defaultdict[str, list[tuple[Any, ...]]] = defaultdict(list)

    def flush(self, into: Bulk) -> None:
        """Write what was added; who is referred to comes first."""
        for table, columns in _COLUMNS.items():
            if rows := self._rows.pop(table, None):
                into.insert(table, columns.split(), rows)

    def add(self, hotel: Party, number: int, at: int, *, waits: bool) -> None:
        """One request, the first or second of its guest."""
        guest = number // (2 * self._hotels) * self._hotels + number % self._hotels + 1
        quiet = hotel.code == WAITING
        if not quiet and number // self._hotels % 2 == 0:
            self._add_guest(hotel, guest, at)
        data = encode(_request(number, guest))
        unique_id, source_id = new_id(at), hotel.source_ids["generic"]
        mine = (unique_id, hotel.hotel_id, source_id, f"old-{number}", None if quiet else guest)
        self._rows["reservation"].append((*mine, 1, "request", at, at))
        version = (content_hash(data), "Requested", data.decode(), f"request-{number}", at)
        self._rows["reservation_version"].append((unique_id, 1, *version))
        came = (source_id, f"old-{number}", at, '{"content-type":"application/json"}', data)
        done = ("mapped", unique_id, f"request-{number}", "new", at)
        self._rows["inbox"].append((*came, *done))
        trail: list[tuple[str, int | None, int]] = []
        for account_id in hotel.users:
            delivery = (unique_id, account_id, 1, hotel.hotel_id, 14)
            sent = (1, None, 0, None) if waits else (0, at, 1, at)
            self._rows["delivery"].append((*delivery, *sent))
            if not waits:
                steps = ("delivered", "acknowledged")
                trail += [(step, account_id, at) for step in steps]
        events = ((unique_id, 1, *one, f"request-{number}") for one in trail)
        self._rows["reservation_event"].extend(events)

    def _add_guest(self, hotel: Party, guest: int, at: int) -> None:
        named = (f"guest{guest}@example.com", f"+39333{guest:07}", "Eva", f"Muster{guest}", 0, at)
        self._rows["customer"].append((guest, hotel.hotel_id, *named))

    def add_contacts(self, hotel: Party, now_us: int) -> None:
        """Its software came just now."""
        for account_id in hotel.users:
            contact = (account_id, hotel.hotel_id, now_us, now_us)
            self._rows["contact"].append(contact)


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
