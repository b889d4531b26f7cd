"""What 100,000 sessions cost the calls: calls a second, and processor time for each.

    python -m tests.bench.pool_sessions [--sessions N] [--rounds N] [--seconds S]

Two pools run side by side, one with few and one with many sessions, and take turns, so that what
else the machine does meets both. Calls without a session and calls of 64 sessions are judged;
beside them stand calls each of which is another session's, whose data is read every time. What a
call costs that changes its session has a line of its own: it is committed before it is answered.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import uvloop
from msgspec import Raw, msgpack
from tests.bench.pool_work import PAYLOAD, PROCESSES, verdict
from tests.bench.servers import spent_s
from tests.contract.pool.running import running

from cordata.pool import Client
from cordata.pool.shared.protocol import SessionRequest
from cordata.pool.shared.sessions import SessionStore
from cordata.pool.shared.spec import SessionLimits

OUTSTANDING = 64
#: Kinds of calls: command, and how many of the sessions take turns.
KINDS = {
    "no session": ("echo", 0),
    "64 sessions": ("echo", OUTSTANDING),
    "64 sessions, changed": ("change", OUTSTANDING),
    "another one each time": ("echo", None),
}
JUDGED = ("no session", "64 sessions")


@contextmanager
def pool_with(sessions: Sequence[str]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="cordata-sessions-") as directory:
        place = Path(directory)
        limits = SessionLimits(max_sessions=10_000_000)
        store = SessionStore(place / "state" / "pool" / "sessions.db", limits)
        value = Raw(msgpack.encode(PAYLOAD))
        for id in sessions:
            store.create(SessionRequest(0, "create", id, set={"k": value}))
        store.close()
        settings = "[pool]\nmax_sessions = 10000000\n"
        app = "tests.bench.pool_app:app"
        with running(place, app=app, workers=PROCESSES, settings=settings) as path:
            yield path


async def measure(path: Path, command: str, sessions: Sequence[str], seconds: float) -> float:
    """Calls a second."""
    turns = itertools.cycle(sessions or ("",))
    count = 0

    async def one() -> None:
        nonlocal count
        while time.perf_counter() < end:
            await client.execute(command, PAYLOAD, session=next(turns), timeout=10.0)
            count += 1

    async with Client(path) as client:
        warm = (client.execute(command, PAYLOAD, session=next(turns)) for _ in range(OUTSTANDING))
        await asyncio.gather(*warm)
        count, began = 0, time.perf_counter()
        end = began + seconds
        await asyncio.gather(*(one() for _ in range(OUTSTANDING)))
        return count / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5)
    options = parser.parse_args()
    ids = [f"{number:032x}" for number in range(options.sessions)]
    rates: dict[tuple[str, int], list[tuple[float, float]]] = {}
    with ExitStack() as stack:
        sides = [(some, stack.enter_context(pool_with(some))) for some in (ids[:OUTSTANDING], ids)]
        for _, (kind, (command, turns)) in itertools.product(range(options.rounds), KINDS.items()):
            for some, path in sides:
                work = measure(path, command, some[:turns], options.seconds)
                rate, used = _timed(lambda work=work: uvloop.run(work))  # type: ignore[misc]
                rates.setdefault((kind, len(some)), []).append((rate, used / rate))
    print(f"{'calls of':24}{'sessions':>10}{'calls/s':>10}{'us/call':>10}")
    for (kind, count), rounds in rates.items():
        rate, cost = (median(one[at] for one in rounds) for at in (0, 1))
        print(f"{kind:24}{count:10,}{rate:10,.0f}{cost / options.seconds * 1e6:10.1f}")
    for kind in JUDGED:
        few, many = (rates[kind, len(some)] for some, _ in sides)
        share = median(b[0] / a[0] for a, b in zip(few, many, strict=True))
        verdict(f"{kind}: of the rate with few", share, 0.95)


def _timed(measure: Callable[[], float]) -> tuple[float, float]:
    """What it gives, and the processor time of all processes in seconds."""
    before_s = spent_s(os.getpid())
    return measure(), spent_s(os.getpid()) - before_s


if __name__ == "__main__":
    main()
