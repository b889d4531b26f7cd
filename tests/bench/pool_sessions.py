"""What 100,000 sessions cost the calls: calls a second, and the manager's time for each.

    python -m tests.bench.pool_sessions [--sessions N] [--slices N] [--seconds S]

Two pools run side by side, one with few and one with many sessions. They take turns in slices of a
fraction of a second, so that what else the machine does meets both, and the median of the pairs
counts. Calls without a session, and calls of 64 sessions, are judged; beside them stand calls each
of which is another session's, whose data travels every time.

All of it twice: as the sessions were made, and after a restart, when they come from the file. The
lookup is the same, the heap is not: what made them leaves its holes between them.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.bench.pool_driver import (
    OUTSTANDING,
    Driver,
    Rate,
    compared,
    creating,
    measured,
    sessions_of,
    typical,
)
from tests.bench.servers import pss_kb
from tests.integration.pool.chaos.house import House
from tests.servers.reaper import swept, terminated_in_order

NONE, SOME, ALL = "no session", f"{OUTSTANDING} sessions", "another one each time"
#: Of a slice, before it counts: until the calls are spread over the children.
_BEGIN_S = 0.05


@contextmanager
def pool_with(sessions: Sequence[str]) -> Iterator[House]:
    with tempfile.TemporaryDirectory(prefix="cordata-sessions-") as directory:
        with measured(swept(Path(directory)), "") as found:
            asker = Driver(found.manager.path)
            asker.ask(creating(sessions))
            asker.close()
            yield found


def restart(found: House) -> None:
    """Its keeper starts the next manager, which reads the file."""
    former = found.manager.process
    former.terminate()
    former.wait()
    while found.manager.process is former:
        time.sleep(0.05)
    found.until_calm()


def one(driver: Driver, found: House, seconds: float) -> Rate:
    pid = found.manager.process.pid
    driver.fill(OUTSTANDING)
    driver.measure(_BEGIN_S, pid)
    rate = driver.measure(seconds, pid)
    driver.drain()
    return rate


def in_turns(
    pools: Sequence[House], sessions: Sequence[str], slices: int, seconds: float
) -> list[list[Rate]]:
    """The rates of each pool, in the order in which they were measured."""
    drivers = [Driver(found.manager.path, sessions=sessions or ("",)) for found in pools]
    rates: list[list[Rate]] = [[] for _ in pools]
    for number in range(slices):
        sides = list(zip(drivers, pools, rates, strict=True))
        for driver, found, noted in sides if number % 2 else reversed(sides):
            noted.append(one(driver, found, seconds))
    for driver in drivers:
        driver.close()
    return rates


def compare(
    title: str, pools: Sequence[House], ids: Sequence[str], slices: int, seconds: float
) -> None:
    """Measure and judge the second pool, which has all those sessions, beside the first one."""
    size_mb = pss_kb(pools[1].manager.process.pid) / 1024
    few = ids[:OUTSTANDING]
    rates = {
        NONE: in_turns(pools, (), slices, seconds),
        SOME: in_turns(pools, few, slices, seconds),
    }
    [each] = in_turns(pools[1:], ids, slices, seconds)
    print(f"\n{title:24}{'calls of':24}calls/s   manager us/call")
    for kind, both in rates.items():
        for count, rounds in zip((len(few), len(ids)), both, strict=True):
            line(f"{count:,} sessions", kind, typical(rounds))
    line(f"{len(ids):,} sessions", ALL, typical(each))
    print(f"the manager has {size_mb:.0f} MB, {len(ids):,} sessions of 100 bytes among them")
    for kind, (before, after) in rates.items():
        compared(f"{title}, {kind}", after, before, least=0.95)


def line(table: str, kind: str, rate: Rate) -> None:
    print(f"{table:>22}  {kind:24}{rate.calls_per_s:7,.0f}{rate.manager_us:18.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--slices", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=0.25)
    options = parser.parse_args()
    terminated_in_order()
    ids = sessions_of(options.sessions)
    with ExitStack() as stack:
        pools = [stack.enter_context(pool_with(some)) for some in (ids[:OUTSTANDING], ids)]
        compare("as made", pools, ids, options.slices, options.seconds)
        for found in pools:
            restart(found)
        compare("restarted", pools, ids, options.slices, options.seconds)


if __name__ == "__main__":
    main()
