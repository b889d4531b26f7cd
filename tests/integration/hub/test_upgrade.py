"""The migrations on a store with data of an older version, beside a worker of that version.

What the older version writes is written in the test: it names the columns that it knew.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path
from time import monotonic

import pytest
from tests.integration.alpinebits.hub import CHAINS, REQUEST, Hub, open_worker
from tests.integration.engine.stores import STORES, prepared
from tests.raw import raw

from alpinehub.reservations import encode
from cordata import Tx
from cordata.store import Chain
from cordata.store.queries import sql_folder

#: The last migration of the first release.
_OLD = "0002"
#: A guest request of hotel 1 with all its rows, as the first release stores it.
_REQUEST = """
INSERT INTO customer (hotel_id, email, phone, created_at) VALUES (1, :email, '+39047112', 1);
INSERT INTO reservation (id, hotel_id, source_id, external_id, customer_id, version, status,
    created_at, changed_at)
VALUES (:id, 1, 1, :email, (SELECT id FROM customer WHERE email = :email), 1, 'request', 1, 1);
INSERT INTO reservation_version (reservation_id, version, content_hash, res_status, data,
    request_id, created_at)
VALUES (:id, 1, :hash, 'Requested', :data, 'r-1', 1);
INSERT INTO inbox (source_id, external_id, received_at, headers, body, state, reservation_id,
    request_id)
VALUES (1, :email, 1, '{}', :hash, 'mapped', :id, 'r-1');
INSERT INTO delivery (reservation_id, account_id, version, hotel_id, unique_id_type, waiting)
SELECT :id, account_id, 1, hotel_id, 14, 1 FROM account_hotel WHERE hotel_id = 1;
INSERT INTO reservation_history (reservation_id, version, event, account_id, at, request_id)
VALUES (:id, 1, 'received', NULL, 1, 'r-1');
INSERT INTO hour_change (hotel_id, hour_at, received, modified, cancelled) VALUES (1, 0, 1, 0, 0)
"""


@pytest.fixture(params=STORES)
def empty_store(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """A store of each kind that was never migrated."""
    prepared(request.param, request, tmp_path)


@pytest.fixture
def old_chains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Chain]:
    """The migrations of the first release."""
    package = tmp_path / "code" / f"hub_{tmp_path.name}"
    for dialect in ("sqlite", "postgres"):
        folder = package / dialect / "migrations"
        folder.mkdir(parents=True)
        for path in sql_folder("alpinehub.sql", dialect).glob("migrations/*.sql"):
            if path.name[:4] <= _OLD:
                shutil.copy(path, folder)
    monkeypatch.syspath_prepend(str(package.parent))
    return [CHAINS[0], Chain("alpinehub", package.name)]


async def write(hub: Hub, number: int) -> str:
    """A guest request; its id."""
    values: dict[str, object] = {
        "id": f"r{number:06d}",
        "email": f"guest{number}@example.com",
        "hash": b"\0",
        "data": encode(REQUEST).decode(),
    }

    async def unit(tx: Tx) -> None:
        for statement in _REQUEST.split(";"):
            names = re.findall(r":(\w+)", statement)
            await raw(tx, re.sub(r":\w+", "?", statement), [values[name] for name in names])

    await hub.ctx.store.run(unit)
    return str(values["id"])


async def write_until(hub: Hub, done: asyncio.Event, first: int) -> tuple[list[str], float]:
    """Write without a pause; what was written, and the longest that one took, in seconds."""
    written: list[str] = []
    longest = 0.0
    while not done.is_set():
        began = monotonic()
        written.append(await write(hub, first + len(written)))
        longest = max(longest, monotonic() - began)
    return written, longest


@pytest.mark.usefixtures("empty_store")
async def test_migrations_of_a_store_in_use_lose_and_refuse_nothing(
    tmp_path: Path, old_chains: list[Chain]
) -> None:
    async with (
        open_worker(tmp_path, chains=old_chains) as older,
        open_worker(tmp_path, chains=old_chains) as newer,
    ):
        older.add_account("u1", older.add_hotel("H1"))
        before = [await write(older, number) for number in range(200)]
        assert await newer.ctx.store.pending(CHAINS)
        done = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(write_until(older, done, 200))
            applied = await newer.ctx.store.migrate(CHAINS)
            done.set()
        beside, longest = writing.result()
        assert str(applied[0]) == "alpinehub 0003_source"
        assert beside and longest < 10.0
        after = [await write(older, 100_000 + number) for number in range(20)]
        assert await newer.read("u1", "H1") == sorted([*before, *beside, *after])
        assert await newer.acknowledge("u1", (14, before[0]), (14, after[0])) == []
        assert await older.read("u1", "H1") == sorted([*before, *beside, *after])[1:-20] + after[1:]


@pytest.mark.usefixtures("empty_store")
async def test_new_columns_say_what_is_true_of_old_rows(
    tmp_path: Path, old_chains: list[Chain]
) -> None:
    async with open_worker(tmp_path, chains=old_chains) as hub:
        hub.add_account("u1", hub.add_hotel("H1"))
        await write(hub, 1)
        await hub.ctx.store.migrate(CHAINS)
        await write(hub, 2)
        for table, expected in (
            ("customer", {"hash_due": 1, "consent": None, "merged_into": None}),
            ("delivery", {"sent_count": 0, "undeliverable_code": None, "rendered": None}),
            ("inbox", {"outcome": None, "handled_at": None}),
            ("hour_change", {"duplicates": 0, "errors": 0}),
            ("hotel", {"settings": None}),
            ("source", {"mapping": None, "secret_before": None}),
        ):
            for row in hub.db.execute(f"SELECT {', '.join(expected)} FROM {table}"):
                assert row == expected, table
