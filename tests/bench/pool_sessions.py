"""What 100,000 sessions cost the calls: calls a second, and the manager's time for each.

    python -m tests.bench.pool_sessions [--sessions N] [--seconds S] [--rounds N]

With few and with many sessions in the table: calls without a session, calls of 64 sessions, and,
to be seen beside them, calls each of which is another session's, whose data travels every time.
The rounds of all cases take turns, and the median counts.
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
    compared,
    creating,
    deleting,
    measured,
    sessions_of,
    typical,
)
from tests.bench.servers import pss_kb
from tests.integration.pool.chaos.house import House
from tests.servers.reaper import swept, terminated_in_order

Rates = dict[tuple[str, str], list[Rate]]
NONE, SOME, ALL = "no session", f"{OUTSTANDING} sessions", "another one each time"


def one(found: House, sessions: Sequence[str], seconds: float) -> Rate:
    driver = Driver(found.manager.path, sessions=sessions or ("",))
    driver.call(OUTSTANDING)
    rate = driver.measure(seconds, found.manager.process.pid)
    driver.close()
    found.until_calm()
    return rate


def measure(found: House, few: list[str], many: list[str], seconds: float, rates: Rates) -> float:
    """One round; gives the manager's memory with many sessions, in MB."""
    asker = Driver(found.manager.path)

    def note(table: str, kind: str, sessions: Sequence[str]) -> None:
        rates.setdefault((table, kind), []).append(one(found, sessions, seconds))

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
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    terminated_in_order()
    every = sessions_of(options.sessions)
    few, many = every[:OUTSTANDING], every[OUTSTANDING:]
    rates: Rates = {}
    with tempfile.TemporaryDirectory(prefix="cordata-sessions-") as directory:
        with measured(swept(Path(directory)), "") as found:
            asker = Driver(found.manager.path)
            asker.ask(creating(few))
            asker.close()
            for _ in range(options.rounds):
                size_mb = measure(found, few, many, options.seconds, rates)
    counts = {"few": len(few), "many": len(every)}
    print(f"\n{'sessions in the table':22}{'calls of':24}calls/s   manager us/call")
    for (table, kind), rounds in rates.items():
        rate = typical(rounds)
        numbers = f"{rate.calls_per_s:7,.0f}{rate.manager_us:18.1f}"
        print(f"{counts[table]:>21,} {kind:24}{numbers}")
    print(f"manager with {len(every):,} sessions of 100 bytes: {size_mb:.0f} MB")
    for kind in (NONE, SOME):
        name = f"{len(every):,} sessions, {kind}"
        compared(name, rates["many", kind], rates["few", kind], least=0.95)


if __name__ == "__main__":
    main()
