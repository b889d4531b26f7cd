"""What the store's part of a scrape takes, with nothing, ten thousand and a million messages.

python -m tests.bench.metrics_backlog [--messages 1000000] [--rounds 9]

Three groups have so many each: ready, ready with keys, dead.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.bench.servers import POSTGRES
from tests.integration.engine.parts import opened
from tests.integration.engine.stores import STORES, use
from tests.integration.engine.template import migrate
from tests.integration.metrics.filling import fill
from tests.servers.postgres import PostgresServer

from cordata.metrics.backlog import read_backlog


async def measure(state: Path, rounds: int) -> float:
    """Median milliseconds, after the first one."""
    async with opened(state) as store:
        await store.read(read_backlog)
        found = []
        for _ in range(rounds):
            begun = time.perf_counter()
            await store.read(read_backlog)
            found.append((time.perf_counter() - begun) * 1000)
    return statistics.median(found)


def prepare(state: Path, count: int) -> None:
    """Fill the store."""
    if count:
        fill(state, count // 3, group="plain")
        fill(state, count // 3, group="keyed", keyed=True)
        fill(state, count // 3, group="dead", of="dead")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    print("What waits in the store, for one scrape: median of", options.rounds)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        server = stack.enter_context(PostgresServer(durable=True, settings=POSTGRES))
        for kind in STORES:
            for count in (0, 10_000, options.messages):
                state = scratch / f"{kind}-{count}"
                state.mkdir()
                url = "sqlite:"
                if kind == "postgres":
                    url = stack.enter_context(server.database())
                    use(state, url)
                asyncio.run(migrate(state, url, ()))
                prepare(state, count)
                took_ms = asyncio.run(measure(state, options.rounds))
                print(f"  {kind:8} {count:9,} messages: {took_ms:6.1f} ms", flush=True)


if __name__ == "__main__":
    main()
