"""The growth measurement on a small history: what it fills in is a history that the hub reads.

Its figures are the machine's business, and are not looked at here.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import uvloop
from tests.bench.growth import Stores, table, times_worse
from tests.bench.hub_load_drive import drive
from tests.bench.hub_load_store import read_parties
from tests.bench.servers import ROOT, hub
from tests.servers.postgres import PostgresServer

HOTELS, REQUESTS = 4, 400
#: Requests that wait for the accounts of all hotels: every second hotel has two accounts.
WAIT = 10 * (HOTELS + HOTELS // 2)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_history_is_read_and_acknowledged_by_hotel_software(
    kind: str, tmp_path: Path, postgres: PostgresServer
) -> None:
    stores = Stores(tmp_path, postgres, hotels=HOTELS)
    filled = stores.get(ROOT, kind, REQUESTS)
    assert stores.get(ROOT, kind, REQUESTS) is filled
    parties = read_parties(filled.parties)
    for _ in range(2):  # the second copy has all that waited in the first
        with stores.copy(filled) as (folder, url), hub(folder, url, workers=1) as running:
            port = int(running.url.rpartition(":")[2])
            taken = uvloop.run(drive(port, parties, polls=6, webhooks=20, seconds=1, run="r"))
        assert not taken.errors
        assert WAIT <= taken.fetched <= WAIT + 2 * 20
    if filled.database:
        postgres.drop_database(filled.database)


def test_store_is_not_filled_when_the_disk_has_no_room(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    with pytest.raises(SystemExit, match="too little for 1000000000000 requests"):
        Stores(tmp_path, postgres).get(ROOT, "sqlite", 10**12)
    assert not list(tmp_path.iterdir())


def test_ratio_is_above_one_when_it_became_worse() -> None:
    assert times_worse("/s", 1000.0, 800.0) == 1.25
    assert times_worse("ms", 10.0, 12.5) == 1.25
    assert times_worse("us", 100.0, 50.0) == 0.5


def test_table_names_the_worst_ratio_of_data_and_of_workers() -> None:
    found = {
        ("webhook", 10, 1): [100.0, 90.0, 110.0],
        ("webhook", 100, 1): [80.0],
        ("webhook", 10, 4): [50.0],
        ("webhook", 100, 4): [40.0],
    }
    lines, worst = table(found, {"webhook": "/s"}, [10, 100], [1, 4])
    assert worst == 2.0
    assert lines[1].split() == (
        ["webhook", "(/s)", "100.0", "80.0", "1.25", "50.0", "40.0", "1.25", "2.00", "2.00"]
    )
