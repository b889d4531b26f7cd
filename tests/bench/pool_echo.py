"""Calls a second through our pool and others: 4 processes, an echo of 100 bytes and 1 ms of work.

    python -m tests.bench.pool_echo [--seconds S] [--rounds N] [--only NAME...]

In each round every pool is started, warmed and measured, one after the other; the best round of
each case counts. Ours runs with a session and a deadline in every call. The relays say what sockets
and wake-ups alone cost: two hops is what a pool with a manager has, one hop the limit without one.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import uvloop
from tests.bench import pool_ours, pool_peers, pool_relay
from tests.bench.pool_work import FUNCTIONS, OUTSTANDING, PROCESSES, Figures

OURS, PLAIN = "cordata", "cordata, no session"
TWO_HOPS, ONE_HOP = "relay, two hops", "relay, one hop"
Case = tuple[str, int]
CASES: list[Case] = [(name, outstanding) for name in FUNCTIONS for outstanding in OUTSTANDING]
#: Measures one case of a pool that was started.
Measure = Callable[[str, int, float], Figures]


@contextmanager
def _peer(name: str) -> Iterator[Measure]:
    with pool_peers.PEERS[name]() as start:
        pool_peers.warm(start)
        yield lambda function, outstanding, seconds: pool_peers.measure(
            start, function, outstanding=outstanding, seconds=seconds
        )


@contextmanager
def _relay(hops: Callable[[], AbstractContextManager[list[str]]]) -> Iterator[Measure]:
    with hops() as paths:
        uvloop.run(pool_relay.measure(paths, "echo", outstanding=16, seconds=0.2))
        yield lambda function, outstanding, seconds: uvloop.run(
            pool_relay.measure(paths, function, outstanding=outstanding, seconds=seconds)
        )


@contextmanager
def _ours(sessions: bool) -> Iterator[Measure]:
    with pool_ours.running() as path:
        yield lambda function, outstanding, seconds: uvloop.run(
            pool_ours.measure(
                path, function, outstanding=outstanding, seconds=seconds, sessions=sessions
            )
        )


def pools() -> Mapping[str, Callable[[], AbstractContextManager[Measure]]]:
    """All of them, in the order of the table."""
    return {
        OURS: partial(_ours, True),
        PLAIN: partial(_ours, False),
        **{name: partial(_peer, name) for name in pool_peers.PEERS},
        TWO_HOPS: partial(_relay, pool_relay.two_hops),
        ONE_HOP: partial(_relay, pool_relay.one_hop),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*")
    arguments = parser.parse_args()
    chosen = {n: pool for n, pool in pools().items() if not arguments.only or n in arguments.only}
    best: dict[tuple[str, Case], Figures] = {}
    for _ in range(arguments.rounds):
        for name, started in chosen.items():
            with started() as measure:
                for case in CASES:
                    gc.collect()
                    found = measure(*case, arguments.seconds)
                    if found.rate > best.get((name, case), Figures()).rate:
                        best[name, case] = found
    print(f"{os.cpu_count()} cores, {PROCESSES} processes, Python {platform.python_version()}")
    for case in CASES:
        _table(case, {name: best[name, case] for name in chosen})
    if OURS in chosen:
        _judge(best, list(chosen))


def _table(case: Case, found: Mapping[str, Figures]) -> None:
    function, outstanding = case
    print(f"\n{function}, {outstanding} outstanding      calls/s    p50 ms    p99 ms    max ms")
    for name, figures in found.items():
        times = "".join(f"{figures.quantile(share):10.2f}" for share in (0.5, 0.99, 1.0))
        print(f"  {name:22}{figures.rate:12,.0f}{times}")


def _judge(best: Mapping[tuple[str, Case], Figures], names: list[str]) -> None:
    """What was promised, beside what was found."""
    print()
    for outstanding in (8, 64):
        case = ("echo", outstanding)
        rate = best[OURS, case].rate
        for name in ("ProcessPoolExecutor", "loky", "pebble"):
            if name in names:
                _line(f"echo {outstanding}: x {name}", rate / best[name, case].rate, 1.8)
        if TWO_HOPS in names:
            share = rate / best[TWO_HOPS, case].rate
            _line(f"echo {outstanding}: of the two-hop relay", share, 0.6)
    figures = best[OURS, ("echo", 64)]
    spread = figures.quantile(0.99) / figures.quantile(0.5)
    _line("echo 64: p99 / median", spread, 4.0, most=True)
    cores = min(PROCESSES, os.cpu_count() or 1)
    for outstanding in (8, 64):
        share = best[OURS, ("spin", outstanding)].rate / (cores * 1000)
        _line(f"spin {outstanding}: of cores x 1000/s", share, 0.85)


def _line(what: str, found: float, wanted: float, *, most: bool = False) -> None:
    good = found <= wanted if most else found >= wanted
    sign = "<=" if most else ">="
    print(f"{'pass' if good else 'FAIL'}  {what:36}{found:6.2f}  ({sign} {wanted})")


if __name__ == "__main__":
    main()
