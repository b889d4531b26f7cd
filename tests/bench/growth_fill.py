"""Fills the store of a checkout with a history, by one INSERT for each table.

python -P tests/bench/growth_fill.py CONFIG STORE_URL PARTIES_FILE HOTELS REQUESTS EACH

The program runs with the modules of the checkout whose store it is (PYTHONPATH): hotels, accounts
and sources are made by its functions, the names of the columns come from its hub_load_store.py.
The history ends an hour ago. Each guest has EACH requests; ten requests of each hotel wait,
whatever the number is.
"""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.bench.hub_load_store import (
    _COLUMNS,
    Party,
    _request,
    add_parties,
    write_parties,
)

from alpinehub.app import app
from alpinehub.reservations import encode
from cordata import connect

#: Requests of a hotel that wait.
WAITING = 10
#: Days of history: fewer than the hub keeps what was sent, so that nothing is due to go.
_DAYS = 80
_HOUR_US = 3_600_000_000
_TIMEOUT_S = 900
#: Stands for the number of the guest in the record that all requests are made of.
_GUEST = "9999999"

#: What the two databases write differently.
_SQLITE = {
    "numbers": "(WITH RECURSIVE s (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM s"
    " WHERE n + 1 < {count}) SELECT n FROM s) AS numbers",
    "md5": "md5(n)",
    "id": "printf('%012x', at / 1000)",
    "hash": "unhex_of(md5(n))",
    "body": "CAST({data} AS BLOB)",
    "guest": "printf('%07d', guest)",
    "number": "",
}
_POSTGRES = {
    "numbers": "generate_series(0::bigint, {count} - 1) AS numbers (n)",
    "md5": "md5(n::text)",
    "id": "lpad(to_hex(at / 1000), 12, '0')",
    "hash": "decode(md5(n::text), 'hex')",
    "body": "convert_to({data}, 'UTF8')",
    "guest": "lpad(guest::text, 7, '0')",
    "number": "::bigint",
}

Run = Callable[[str], object]


def statements(
    words: dict[str, str],
    *,
    hotels: int,
    requests: int,
    each: int,
    waiting: int,
    record: str,
    end_us: int,
    received: bool,
) -> Iterator[tuple[str, str]]:
    """(table, statement), in an order that keeps references. `party` is there."""
    count = requests + waiting
    step_us = _DAYS * 24 * _HOUR_US // count
    data = f"replace('{record}', '{_GUEST}', {words['guest']})"
    waits = requests - WAITING * hotels
    sent = "CASE waits WHEN 0 THEN at END"
    # The tables of 0477494 count how often, and have the last time, too.
    sendings = f"{sent}, {sent}, {sent}, 1 - waits" if received else f"{sent}, 1 - waits, {sent}"
    yield (
        "history",
        f"""CREATE TEMP TABLE history AS
        SELECT n, {words["id"]} || substr({words["md5"]}, 1, 20) AS id, at, guest, hotel_id,
            source_id, account_1, account_2, CASE WHEN n >= {waits} THEN 1 ELSE 0 END AS waits
        FROM (
            SELECT n, {end_us} - ({count} - n) * {step_us} AS at,
                CASE WHEN n < {requests} THEN n % {hotels} ELSE {hotels} END AS party_number,
                CASE WHEN n < {requests} THEN n / {each * hotels} * {hotels} + n % {hotels}
                    ELSE n END + 1 AS guest
            FROM {words["numbers"].format(count=count)}
        ) AS one JOIN party ON party.number = one.party_number ORDER BY n""",
    )
    email = f"'guest' || {words['guest']} || '@example.com'"
    yield (
        "customer",
        f"""SELECT guest, hotel_id, {email}, '+39333' || {words["guest"]}, 'Eva',
            'Muster' || {words["guest"]}, 0, min(at) FROM history GROUP BY guest, hotel_id""",
    )
    yield (
        "reservation",
        """SELECT id, hotel_id, source_id, 'old-' || n, guest, 1, 'request', at, at
        FROM history ORDER BY n""",
    )
    yield (
        "reservation_version",
        f"""SELECT id, 1, {words["hash"]}, 'Requested', {data}, 'request-' || n, at
        FROM history ORDER BY n""",
    )
    yield (
        "inbox",
        f"""SELECT source_id, 'old-' || n, at, '{{"content-type":"application/json"}}',
            {words["body"].format(data=data)}, 'mapped', id, 'request-' || n, 'new', at
        FROM history ORDER BY n""",
    )
    for account in ("account_1", "account_2"):
        yield (
            "delivery",
            f"""SELECT id, {account}, 1, hotel_id, 14, waits, {sendings}
            FROM history WHERE {account} IS NOT NULL ORDER BY n""",
        )
    steps = [("received", f"NULL{words['number']}", "1 = 1")] if received else []
    for account in ("account_1", "account_2"):
        known = f"waits = 0 AND {account} IS NOT NULL"
        steps += [(event, account, known) for event in ("delivered", "acknowledged")]
    for event, account, condition in steps:
        yield (
            "reservation_event",
            f"""SELECT id, 1, '{event}', {account}, at, 'request-' || n
            FROM history WHERE {condition} ORDER BY n""",
        )


def fill(
    config: Path, url: str, parties: Sequence[Party], *, requests: int, each: int, waiting: int = 0
) -> None:
    """`requests` of all hotels but the last, which gets `waiting` that nobody has fetched.

    `each`: of one guest. No process has the store open.
    """
    now_us = time.time_ns() // 1000
    is_embedded = url.startswith("sqlite:")
    opened = embedded(config.parent / "cordata.db") if is_embedded else postgres(url)
    with opened as (run, received):
        create = "CREATE TEMP TABLE party (number {0}, hotel_id {0}, source_id {0}, account_1 {0},"
        run((create + " account_2 {0})").format("BIGINT"))
        for number, party in enumerate(parties):
            accounts = [*map(str, party.users), "NULL"][:2]
            row = [str(number), str(party.hotel_id), str(party.source_ids["generic"]), *accounts]
            run(f"INSERT INTO party VALUES ({', '.join(row)})")
        every = statements(
            _SQLITE if is_embedded else _POSTGRES,
            hotels=len(parties) - 1,
            requests=requests,
            each=each,
            waiting=waiting,
            record=encode(_request(0, int(_GUEST))).decode().replace("'", "''"),
            end_us=now_us - _HOUR_US,
            received=received,
        )
        for table, statement in every:
            begin = time.monotonic()
            if columns := ", ".join(_COLUMNS.get(table, "").split()):
                statement = f"INSERT INTO {table} ({columns}) {statement}"
            run(statement)
            print(f"    {table}: {time.monotonic() - begin:.1f} s", flush=True)
        for party in parties:
            for account in party.users:
                names = _COLUMNS["contact"].split()  # 0477494 has others, and more
                values = {names[0]: account, "hotel_id": party.hotel_id}
                values |= dict.fromkeys(("polled_at", "acked_at"), now_us)
                contact = ", ".join(str(values.get(name, "''")) for name in names)
                run(f"INSERT INTO contact ({', '.join(names)}) VALUES ({contact})")


@contextmanager
def embedded(path: Path) -> Iterator[tuple[Run, bool]]:
    """Of a file that no process has open; the second says whether the trail holds `received`."""
    connection = sqlite3.connect(path)
    connection.create_function("md5", 1, _md5, deterministic=True)
    connection.create_function("unhex_of", 1, bytes.fromhex, deterministic=True)
    for pragma in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -400000"):
        connection.execute(f"PRAGMA {pragma}")
    views = "SELECT count(*) FROM sqlite_master WHERE name = 'reservation_history'"
    yield connection.execute, connection.execute(views).fetchone()[0] == 0
    connection.commit()
    connection.execute("ANALYZE")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()


def _md5(number: int) -> str:
    return hashlib.md5(b"%d" % number).hexdigest()


@contextmanager
def postgres(url: str) -> Iterator[tuple[Run, bool]]:
    """The same of a database."""
    import psycopg

    with psycopg.connect(url) as connection:
        connection.execute(f"SET statement_timeout = {_TIMEOUT_S * 1000}".encode())
        # No look-up of each reference: half of the time of a fill.
        connection.execute(b"SET session_replication_role = replica")
        connection.execute(b"SET work_mem = '128MB'")
        connection.execute(b"SET maintenance_work_mem = '256MB'")
        found = connection.execute(b"SELECT to_regclass('reservation_history')").fetchone()
        yield lambda sql: connection.execute(sql.encode()), found == (None,)
        last = "SELECT setval(pg_get_serial_sequence('customer', 'id'), max(id)) FROM customer"
        connection.execute(last.encode())
        connection.commit()
        connection.autocommit = True
        connection.execute(b"VACUUM ANALYZE")


async def make_parties(config: Path, hotels: int) -> list[Party]:
    """So many hotels, and one more for `waiting`."""
    async with connect(app, config) as ctx:
        return await add_parties(ctx, hotels)


def main() -> None:
    config, url, known = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    hotels, requests, each = map(int, sys.argv[4:7])
    parties = asyncio.run(make_parties(config, hotels))
    fill(config, url, parties, requests=requests, each=each)
    write_parties(known, parties[:-1])


if __name__ == "__main__":
    main()
