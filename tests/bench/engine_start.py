"""From `cordata server` to the first handler of each worker; from SIGTERM under load to its exit.

With the pool and its children, as the hub has them.

python -m tests.bench.engine_start [--store sqlite|postgres] [--redis] [--workers 4] [--rounds 3]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop
from tests.bench.engine_start_app import HANDLER_S, NOTES
from tests.bench.engine_store import publish
from tests.bench.servers import ROOT, environment
from tests.integration.engine import stores
from tests.integration.engine.parts import opened, registered
from tests.integration.engine.stores import STORES
from tests.integration.redis.stores import PREFIX, url_of, use
from tests.raw import raw
from tests.servers.postgres import PostgresServer
from tests.servers.reaper import watched
from tests.servers.redis import RedisServer

from cordata import clock
from cordata.broker.redis.stream import Keys

GROUP, TYPE = "bench.handle", "bench.start"
_WAITING = """
    SELECT state, event_id FROM message
    UNION ALL
    SELECT 'in a stream', event_id FROM redis_sent
    WHERE event_id NOT IN (SELECT event_id FROM handled)
        AND event_id NOT IN (SELECT event_id FROM message)
"""
#: More than the workers handle while they are measured.
MESSAGES = 12_000
LOAD_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One start and stop, in seconds."""

    first_s: float
    all_s: float
    stop_s: float
    #: In the hands of a process that is gone.
    stranded: int
    #: Neither handled nor waiting; handled twice, or handled and waiting.
    lost: int
    twice: int
    handled: int
    code: int


@contextmanager
def server(state: Path, workers: int) -> Iterator[subprocess.Popen[bytes]]:
    """A primary and so many workers, from exec on."""
    notes = state / "notes"
    notes.mkdir()
    config = state / "cordata.toml"
    config.write_text(
        '[app]\nimport = "tests.bench.engine_start_app:app"\n'
        '[worker]\nservices = ["engine", "pool"]\n'
        f'[paths]\nstate = "{state}"\nruntime = "{state}/run"\ncredentials = "{state}"\n'
        f'[store]\nurl = "{stores.url_of(state)}"\n[log]\nlevel = "warning"\n'
        f'[broker]\nurl = "{url_of(state)}"\nprefix = "{PREFIX}"\n'
    )
    argv = [sys.executable, "-m", "cordata", "server", "--workers", str(workers)]
    argv += ["--listen", "127.0.0.1:0", "--config", str(config)]
    output = (state / "server.log").open("ab")
    with (
        output,
        watched(
            subprocess.Popen(
                argv,
                cwd=ROOT,
                env={**environment(), NOTES: str(notes)},
                stdout=output,
                stderr=output,
            )
        ) as process,
    ):
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)


async def prepare(state: Path) -> list[str]:
    """A store with more to do than there will be time for; the events' ids."""
    async with opened(state) as store:
        redis = url_of(state) != "store:"
        await registered(store, {GROUP: TYPE}, broker="redis" if redis else "store")
        return await publish(store, MESSAGES, TYPE)


async def waiting(state: Path, redis: RedisServer | None) -> tuple[Counter[str], int]:
    """The events that are still to be handled, and how many of them are in somebody's hands."""
    async with opened(state, migrate=False) as store:
        messages = await store.read(lambda tx: raw(tx, _WAITING))
    left = Counter(str(row["event_id"]) for row in messages)
    stranded = sum(row["state"] == "claimed" for row in messages)
    if redis is not None:
        key = Keys(PREFIX).of(TYPE)
        stranded += sum(int(one["pending"]) for one in redis.execute("XINFO GROUPS", key))
    return left, stranded


async def measure(state: Path, workers: int, redis: RedisServer | None) -> Measured:
    """Start, let them work for a moment, stop, and count."""
    ids = await prepare(state)
    begun = clock.monotonic()
    with server(state, workers) as process:
        notes = state / "notes"
        async with asyncio.timeout(30):
            while len(firsts_in(notes)) < workers:  # noqa: ASYNC110 - other processes write
                await asyncio.sleep(0.01)
        await asyncio.sleep(LOAD_S)
        stopped = clock.monotonic()
        process.send_signal(signal.SIGTERM)
        code = await asyncio.to_thread(process.wait, 60)
        stop_s = clock.monotonic() - stopped
    firsts = sorted(int(note.read_text()) / 1e9 - begun for note in firsts_in(notes))
    ended = Counter(one for note in notes.glob("*.ended") for one in note.read_text().split())
    left, stranded = await waiting(state, redis)
    return Measured(
        first_s=firsts[0],
        all_s=firsts[-1],
        stop_s=stop_s,
        stranded=stranded,
        lost=(Counter(ids) - ended - left).total(),
        twice=(ended + left - Counter(ids)).total(),
        handled=ended.total(),
        code=code,
    )


def firsts_in(notes: Path) -> list[Path]:
    """A note of each process that handles."""
    return [note for note in notes.iterdir() if not note.suffix]


async def main() -> None:
    """Print each round and the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=STORES, default="sqlite")
    parser.add_argument("--redis", action="store_true", help="as the broker")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    results: list[Measured] = []
    with ExitStack() as stack:
        folder = tempfile.TemporaryDirectory(prefix="bench-", dir=os.environ.get("BENCH_DIR"))
        name = stack.enter_context(folder)
        postgres = stack.enter_context(PostgresServer()) if options.store == "postgres" else None
        redis = stack.enter_context(RedisServer()) if options.redis else None
        for number in range(options.rounds):
            state = Path(name) / str(number)
            state.mkdir()
            if postgres is not None:
                stores.use(state, stack.enter_context(postgres.database()))
            if redis is not None:
                redis.empty()
                use(state, redis.url)
            one = await measure(state, options.workers, redis)
            results.append(one)
            print(
                f"  consuming after {one.first_s:.2f} s, all {options.workers} after"
                f" {one.all_s:.2f} s; SIGTERM to exit {one.stop_s:.2f} s (code {one.code}),"
                f" {one.handled} handled, {one.stranded} stranded, {one.lost} lost,"
                f" {one.twice} twice",
                flush=True,
            )
    start_s = statistics.median(one.all_s for one in results)
    stop_s = statistics.median(one.stop_s for one in results)
    print(f"{options.workers} workers consuming after {start_s:.2f} s (to reach: 1.5 s)")
    print(f"SIGTERM under load to exit {stop_s:.2f} s (to reach: {2 + HANDLER_S:.2f} s)")
    print(f"stranded: {sum(one.stranded for one in results)} (to reach: 0)")


if __name__ == "__main__":
    uvloop.run(main())
