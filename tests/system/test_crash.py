"""Workers are killed -9 at random under numbered requests; then it is counted who lost what."""

from __future__ import annotations

import json
import random
import time

from tests.host.load import booking_load
from tests.host.machine import Host, wait_for

COUNT = 3_000
SEED = 20_261_120


def query(host: Host, sql: str) -> list[list[str]]:
    """Rows of the store, read as any other reader would."""
    text = host.run("sqlite3", "-readonly", "/var/lib/cordata/cordata.db", sql).stdout
    return [line.split("|") for line in text.splitlines()]


def number(host: Host, sql: str) -> int:
    """The one number a query gives."""
    return int(query(host, sql)[0][0])


def test_every_acknowledged_request_counts_once_when_workers_are_killed(hub: Host) -> None:
    chance, kills = random.Random(SEED), 0
    load = booking_load(hub, connections=16, count=COUNT, again=True, pause_s=0.02).start()
    while load.running:
        pid = hub.main_pid(f"worker@{chance.randrange(4)}")
        if pid:
            kills += hub.run("kill", "-KILL", pid, check=False).returncode == 0
        time.sleep(chance.uniform(0.05, 0.4))
    counts = load.stop()
    # Whatever else happened to a request, its sender went on until it had its 2xx.
    assert kills >= 10 and counts["ok"] == COUNT
    assert set(load.failed) <= {"lost"} and load.counts.get("lost", 0) <= kills * 16
    acknowledged = load.result["acknowledged"]
    assert sorted(acknowledged) == list(range(COUNT))

    stored = query(hub, "SELECT external_id, count(*) FROM reservation GROUP BY external_id")
    assert {name for name, _ in stored} == {f"load-{n}" for n in acknowledged}
    assert {count for _, count in stored} == {"1"}
    assert number(hub, "SELECT count(*) FROM reservation_version") == COUNT

    # Each event is handled exactly once: dead workers' messages are taken over.
    open_messages = "SELECT count(*) FROM message"
    wait_for(lambda: number(hub, open_messages) == 0, timeout_s=120, what="the last event")
    handled = "SELECT count(*), count(DISTINCT reservation_id) FROM reservation_history"
    handled += " WHERE event = 'received'"
    assert query(hub, handled) == [[str(COUNT)] * 2]

    # The hotel's software gets each, again and again until acknowledged, and then no more.
    reads = json.loads(hub.run(*hub.python("hotel_software.py")).stdout)
    ids = [unique_id for read in reads for unique_id in read]
    assert len(ids) == COUNT and sorted(ids) == [
        r[0] for r in query(hub, "SELECT id FROM reservation ORDER BY id")
    ]
    assert number(hub, "SELECT count(*) FROM delivery WHERE acked_at IS NOT NULL") == COUNT
    assert hub.sh("sqlite3 -readonly /var/lib/cordata/cordata.db 'PRAGMA integrity_check'") == "ok"
