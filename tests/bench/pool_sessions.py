"""What 100,000 sessions cost the calls: calls a second, and the manager's time for each.

    python -m tests.bench.pool_sessions [--sessions N] [--seconds S] [--rounds N]

With few and with many sessions in the table: calls without a session, calls of 64 sessions, and,
to be seen beside them, calls each of which is another session's, whose data travels every time.
The best round of each case counts.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.bench.pool_driver import (
    OUTSTANDING,
    Driver,
    Rate,
    creating,
    deleting,
    measured,
    sessions_of,
    verdict,
)
from tests.bench.servers import pss_kb
from tests.integration.pool.chaos.house import House
from tests.servers.reaper import swept, terminated_in_order

Best = dict[tuple[str, str], Rate]
Times = dict[tuple[str, str], float]
NONE, SOME, ALL = "no session", f"{OUTSTANDING} sessions", "another one each time"


def one(found: House, sessions: Sequence[str], seconds: float) -> Rate:
    driver = Driver(found.manager.path, sessions=sessions or ("",))
    driver.call(OUTSTANDING)
    rate = driver.measure(seconds, found.manager.process.pid)
    driver.close()
    found.until_calm()
    return rate


def measure(
    found: House, few: list[str], many: list[str], seconds: float, best: Best, least_us: Times
) -> float:
    """One round; gives the manager's memory with many sessions, in MB."""
    asker = Driver(found.manager.path)

    def note(table: str, kind: str, sessions: Sequence[str]) -> None:
        rate = one(found, sessions, seconds)
        if (table, kind) not in best or rate.calls_per_s > best[table, kind].calls_per_s:
            best[table, kind] = rate
        least_us[table, kind] = min(rate.manager_us, least_us.get((table, kind), rate.manager_us))

    note("few", NONE, ())
    note("few", SOME, few)
    asker.ask(creating(many))
    size_mb = pss_kb(found.manager.process.pid) / 1024
    note("many", NONE, ())
    note("many", SOME, few)
    note("many", ALL, many)
    asker.ask(deleting(many))
    asker.close()
    return size_mb


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    terminated_in_order()
    every = sessions_of(options.sessions)
    few, many = every[:OUTSTANDING], every[OUTSTANDING:]
    best: Best = {}
    least_us: Times = {}
    with tempfile.TemporaryDirectory(prefix="cordata-sessions-") as directory:
        with measured(swept(Path(directory)), "") as found:
            asker = Driver(found.manager.path)
            asker.ask(creating(few))
            asker.close()
            for _ in range(options.rounds):
                size_mb = measure(found, few, many, options.seconds, best, least_us)
    counts = {"few": len(few), "many": len(every)}
    print(f"\n{'sessions in the table':22}{'calls of':24}calls/s   manager us/call")
    for (table, kind), rate in best.items():
        numbers = f"{rate.calls_per_s:7,.0f}{least_us[table, kind]:18.1f}"
        print(f"{counts[table]:>21,} {kind:24}{numbers}")
    print(f"manager with {len(every):,} sessions of 100 bytes: {size_mb:.0f} MB")
    for kind in (NONE, SOME):
        share = best["many", kind].calls_per_s / best["few", kind].calls_per_s
        verdict(f"{len(every):,} sessions, {kind}: of the rate", share, 0.95)
        more = least_us["many", kind] / least_us["few", kind]
        verdict(f"{len(every):,} sessions, {kind}: manager's time", more, 1.1, most=True)


if __name__ == "__main__":
    main()
