"""Calls a second through our pool and others: 4 processes, an echo of 100 bytes and 1 ms of work.

    python -m tests.bench.pool_echo [--seconds S] [--rounds N] [--only NAME...]

Ours runs with a session and a deadline in every call. The relays say what sockets and wake-ups
alone cost: one hop is the limit of a pool as ours, two hops that of one with a process in between.

On a machine that others use, too, a minute later is another machine. So there are many short
rounds, in each of which all take turns; ours and the relays, case by case. The median of what each
round gave counts. Against what the processors can do at most it is the best round: others only
take away from that. What the longest calls take is judged by the calmer half of the rounds, those
in which a hypervisor took least of the processors' time: where it takes a tenth of it, it stops
everybody for longer than such calls take.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median

import uvloop
from tests.bench import pool_ours, pool_peers, pool_relay
from tests.bench.pool_work import FUNCTIONS, OUTSTANDING, PROCESSES, Figures, verdict

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
def _ours(path: Path, sessions: bool) -> Iterator[Measure]:
    yield lambda function, outstanding, seconds: uvloop.run(
        pool_ours.measure(
            path, function, outstanding=outstanding, seconds=seconds, sessions=sessions
        )
    )


Started = Callable[[], AbstractContextManager[Measure]]
PEERS: Mapping[str, Started] = {name: partial(_peer, name) for name in pool_peers.PEERS}


def _together(pool: Path) -> Mapping[str, Started]:
    return {
        OURS: partial(_ours, pool, True),
        PLAIN: partial(_ours, pool, False),
        TWO_HOPS: partial(_relay, pool_relay.two_hops),
        ONE_HOP: partial(_relay, pool_relay.one_hop),
    }


#: Rounds by name and case.
Found = dict[tuple[str, Case], list[Figures]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", nargs="*")
    arguments = parser.parse_args()
    found: Found = {}
    with ExitStack() as stack:
        pool = stack.enter_context(pool_ours.running())
        peers, together = (
            {n: start for n, start in all_.items() if not arguments.only or n in arguments.only}
            for all_ in (PEERS, _together(pool))
        )
        measures = {name: stack.enter_context(started()) for name, started in together.items()}
        for _ in range(arguments.rounds):
            for name, started in peers.items():
                with started() as measure:
                    _round({name: measure}, arguments.seconds, found)
            _round(measures, arguments.seconds, found)
    print(f"{os.cpu_count()} cores, {PROCESSES} processes, Python {platform.python_version()}")
    for case in CASES:
        _table(case, {name: _typical(found[name, case]) for name in (*peers, *together)})
    if OURS in together:
        _judge(found)


def _round(measures: Mapping[str, Measure], seconds: float, found: Found) -> None:
    for case in CASES:
        for name, measure in measures.items():
            gc.collect()
            found.setdefault((name, case), []).append(measure(*case, seconds))


def _typical(rounds: list[Figures]) -> Figures:
    return sorted(rounds, key=lambda one: one.rate)[len(rounds) // 2]


def _calmer(rounds: list[Figures]) -> list[Figures]:
    return sorted(rounds, key=lambda one: one.stolen)[: (len(rounds) + 1) // 2]


def _table(case: Case, found: Mapping[str, Figures]) -> None:
    function, outstanding = case
    head = f"{function}, {outstanding} outstanding"
    print(f"\n{head:24}{'calls/s':>12}{'us/call':>10}{'p50 ms':>10}{'p99 ms':>10}{'max ms':>10}")
    for name, figures in found.items():
        times = "".join(f"{figures.quantile(share):10.2f}" for share in (0.5, 0.99, 1.0))
        cost_us = figures.cpu_s / len(figures.latencies) * 1e6
        print(f"  {name:22}{figures.rate:12,.0f}{cost_us:10.1f}{times}")


def _judge(found: Found) -> None:
    """What was promised, beside what was found."""
    print()
    for outstanding in (8, 64):
        case = ("echo", outstanding)
        ours = found[OURS, case]
        wanted = {"ProcessPoolExecutor": 1.8, "loky": 1.8, "pebble": 1.8, TWO_HOPS: 0.6}
        for name, least in wanted.items():
            if (name, case) in found:
                pairs = zip(ours, found[name, case], strict=True)
                share = median(own.rate / other.rate for own, other in pairs)
                verdict(f"echo {outstanding}: x {name}", share, least)
    rounds = found[OURS, ("echo", 64)]
    calm = _calmer(rounds)
    spread = median(one.quantile(0.99) / one.quantile(0.5) for one in calm)
    verdict("echo 64: p99 / median", spread, 4.0, most=True)
    shares = " and ".join(f"{median(one.stolen for one in some):.0%}" for some in (rounds, calm))
    print(f"      (of the time {shares} in the calmer half of the rounds were stolen)")
    cores = min(PROCESSES, os.cpu_count() or 1)
    for outstanding in (8, 64):
        share = max(one.rate for one in found[OURS, ("spin", outstanding)]) / (cores * 1000)
        verdict(f"spin {outstanding}: of cores x 1000/s", share, 0.85)


if __name__ == "__main__":
    main()
