"""What 100,000 sessions cost the calls: calls a second, and the manager's time for each.

    python -m tests.bench.pool_sessions [--sessions N] [--rounds N] [--slices N] [--seconds S]

Two pools run side by side, one with few and one with many sessions, and take turns in slices of a
fraction of a second, so that what else the machine does meets both. Each round has pools of its
own: what a process is dealt once, as its addresses and which session is at which child, is worth
5 % and more, and is dealt anew. The median of the rounds counts, of each the median of its pairs.

Calls without a session, and calls of 64 sessions, are judged; beside them stand calls each of which
is another session's, whose data travels every time. All else twice: as the sessions were made, and
after a restart, when they come from the file. The lookup is the same, the heap is not: what made
them leaves its holes between them.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from tests.bench.pool_driver import (
    OUTSTANDING,
    Driver,
    Rate,
    creating,
    measured,
    sessions_of,
    typical,
    verdict,
)
from tests.bench.servers import pss_kb
from tests.integration.pool.chaos.house import House
from tests.servers.reaper import swept, terminated_in_order

NONE, SOME, ALL = "no session", f"{OUTSTANDING} sessions", "another one each time"
MADE, RESTARTED = "as made", "restarted"
#: Of a slice, before it counts: until the calls are spread over the children.
_BEGIN_S = 0.05

#: For a heap and kind of call: of each round, the rates of each pool.
Rates = dict[tuple[str, str], list[list[list[Rate]]]]


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


def a_round(ids: Sequence[str], slices: int, seconds: float, rates: Rates) -> list[float]:
    """Of two new pools; gives the memory of the manager with many sessions, in MB, of each heap."""
    few = ids[:OUTSTANDING]
    sizes_mb = []

    def note(heap: str, kind: str, pools: Sequence[House], sessions: Sequence[str]) -> None:
        rates.setdefault((heap, kind), []).append(in_turns(pools, sessions, slices, seconds))

    with ExitStack() as stack:
        pools = [stack.enter_context(pool_with(some)) for some in (few, ids)]
        for heap in (MADE, RESTARTED):
            if heap == RESTARTED:
                for found in pools:
                    restart(found)
            sizes_mb.append(pss_kb(pools[1].manager.process.pid) / 1024)
            note(heap, NONE, pools, ())
            note(heap, SOME, pools, few)
        # Last, for it gives children of one pool alone copies of many sessions.
        note(RESTARTED, ALL, pools[1:], ids)
    return sizes_mb


def show(heap: str, kind: str, count: int, rounds: Sequence[Sequence[Rate]]) -> None:
    rate = typical([rate for rates in rounds for rate in rates])
    numbers = f"{rate.calls_per_s:7,.0f}{rate.manager_us:18.1f}"
    print(f"{heap:12}{count:>10,}   {kind:24}{numbers}")


def judge(heap: str, kind: str, rounds: Sequence[Sequence[Sequence[Rate]]]) -> None:
    """The rate of the pool with many sessions, of that with few."""
    pairs = [list(zip(few, many, strict=True)) for few, many in rounds]
    of_rate = [median(b.calls_per_s / a.calls_per_s for a, b in each) for each in pairs]
    of_time = [median(b.manager_us / a.manager_us for a, b in each) for each in pairs]
    verdict(f"{heap}, {kind}: of the rate", median(of_rate), 0.95)
    each = ", ".join(f"{share:.2f}" for share in sorted(of_rate))
    print(f"      of each round {each}; manager's time a call {median(of_time):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--slices", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=0.25)
    options = parser.parse_args()
    terminated_in_order()
    ids = sessions_of(options.sessions)
    rates: Rates = {}
    sizes_mb = [a_round(ids, options.slices, options.seconds, rates) for _ in range(options.rounds)]
    print(f"\n{'':12}{'sessions':>10}   {'calls of':24}calls/s   manager us/call")
    for (heap, kind), rounds in rates.items():
        counts = (OUTSTANDING, len(ids)) if kind != ALL else (len(ids),)
        for side, count in enumerate(counts):
            show(heap, kind, count, [each[side] for each in rounds])
    for heap, sizes in zip((MADE, RESTARTED), zip(*sizes_mb, strict=True), strict=True):
        print(f"manager with {len(ids):,} sessions of 100 bytes, {heap}: {median(sizes):.0f} MB")
    for (heap, kind), rounds in rates.items():
        if kind != ALL:
            judge(heap, kind, rounds)


if __name__ == "__main__":
    main()
