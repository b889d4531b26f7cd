"""What one call costs each process of the pool in processor time, beside a relay without logic.

    python -m tests.bench.pool_cost [--seconds S]

Microseconds per call, of all calls, in user and in system mode. On a busy machine all of it grows,
that of the larger programs most: compare what one run prints.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import uvloop
from tests.bench import pool_ours, pool_relay
from tests.bench.pool_work import Figures

_TICKS = os.sysconf("SC_CLK_TCK")
#: A process by what stands in its command line; the first that fits.
_PARTS = (
    ("cordata/pool/child/main.py", "children"),
    ("pool_relay\0child", "children"),
    ("pool_relay\0relay", "relay"),
    ("cordata\0worker\0", "workers"),
)
Spent = Counter[tuple[str, str]]


def spent() -> Spent:
    """Clock ticks by part and mode, of this process and all below it."""
    found: Spent = Counter()
    _add(os.getpid(), found)
    return found


def _add(pid: int, found: Spent) -> None:
    try:
        line = Path(f"/proc/{pid}/cmdline").read_text()
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [child for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return  # it has just ended
    part = next((name for text, name in _PARTS if text in line), "other")
    part = "client" if pid == os.getpid() else part
    found[part, "user"] += int(fields[11])
    found[part, "sys"] += int(fields[12])
    for child in children:
        _add(int(child), found)


def show(name: str, outstanding: int, measure: Callable[[], Figures]) -> None:
    before = spent()
    figures = measure()
    cost = spent()
    cost.subtract(before)
    calls = len(figures.latencies)
    parts = []
    for part in ("client", "relay", "children", "workers"):
        user, system = (cost[part, mode] / _TICKS / calls * 1e6 for mode in ("user", "sys"))
        parts.append(f"{part} {user:5.1f} + {system:4.1f}")
    print(f"{name:20} {outstanding:3} {figures.rate:9,.0f}/s   {'   '.join(parts)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    seconds = parser.parse_args().seconds
    print("microseconds per call, user + sys")
    with pool_ours.running() as path:
        for sessions in (True, False):
            for outstanding in (1, 8, 64):
                ours = pool_ours.measure(
                    path, "echo", outstanding=outstanding, seconds=seconds, sessions=sessions
                )
                name = "cordata" if sessions else "cordata, no session"
                show(name, outstanding, lambda coming=ours: uvloop.run(coming))  # type: ignore[misc]
    with pool_relay.two_hops() as paths:
        uvloop.run(pool_relay.measure(paths, "echo", outstanding=16, seconds=0.2))
        for outstanding in (1, 8, 64):
            relay = pool_relay.measure(paths, "echo", outstanding=outstanding, seconds=seconds)
            show("relay, two hops", outstanding, lambda coming=relay: uvloop.run(coming))  # type: ignore[misc]


if __name__ == "__main__":
    main()
