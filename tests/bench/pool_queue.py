"""What 100,000 waiting calls cost the manager: memory, and calls a second beside an empty queue.

    python -m tests.bench.pool_queue [--waiting N] [--seconds S] [--rounds N]

A call is sent for each result, so the queue keeps its length. The rounds of both cases take turns.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from tests.bench.pool_driver import OUTSTANDING, Driver, Rate, compared, measured, typical, verdict
from tests.bench.servers import pss_kb
from tests.integration.pool.chaos.house import House
from tests.servers.reaper import swept, terminated_in_order


def one(found: House, waiting: int, seconds: float) -> tuple[Rate, float, float]:
    """The rate with so many waiting calls, the manager's memory in MB, seconds to let them in."""
    pid = found.manager.process.pid
    driver = Driver(found.manager.path)
    began = time.perf_counter()
    driver.fill(waiting + OUTSTANDING)
    took_s = time.perf_counter() - began
    driver.measure(0.3, pid)
    there = found.manager.status()["pools"]["default"]["waiting"]
    assert there >= 0.95 * waiting, f"{there} wait"
    rate = driver.measure(seconds, pid)
    size_mb = pss_kb(pid) / 1024
    driver.close()
    found.until_calm()
    return rate, size_mb, took_s


def compare(fair: bool, waiting: int, seconds: float, rounds: int) -> None:
    rates: dict[int, list[Rate]] = {0: [], waiting: []}
    most_mb = dict.fromkeys(rates, 0.0)
    settings = f"max_waiting = {2 * waiting}\nfair = {str(fair).lower()}\n"
    with tempfile.TemporaryDirectory(prefix="cordata-queue-") as directory:
        with measured(swept(Path(directory)), settings) as found:
            for _ in range(rounds):
                for count in rates:
                    rate, size_mb, took_s = one(found, count, seconds)
                    rates[count].append(rate)
                    most_mb[count] = max(size_mb, most_mb[count])
    title = "clients take turns (fair)" if fair else "first come, first served"
    print(f"\n{title:28} calls/s   manager us/call   manager MB")
    for count, measurements in rates.items():
        rate = typical(measurements)
        numbers = f"{rate.calls_per_s:10,.0f}{rate.manager_us:18.1f}{most_mb[count]:13.0f}"
        print(f"  {count:9,} waiting        {numbers}")
    print(f"  letting {waiting:,} in took {took_s:.1f} s")
    name = f"{waiting:,} waiting" + (", fair" if fair else "")
    compared(name, rates[waiting], rates[0], least=0.8)
    verdict(f"{name}: manager MB", most_mb[waiting], 300, most=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--waiting", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    terminated_in_order()
    for fair in (False, True):
        compare(fair, options.waiting, options.seconds, options.rounds)


if __name__ == "__main__":
    main()
