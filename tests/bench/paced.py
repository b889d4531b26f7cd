"""Durable requests at the rate of a busy day, not of a full machine: processor and latency.

python -m tests.bench.paced [--store sqlite|postgres] [--rounds 3] [--rate 60] [--seconds 8]

A process that waits shares no commit, and is woken for each request: what that costs no measurement
at saturation shows. Each request is a new guest's; four workers; the hub without and with Redis,
and the FastAPI application of the webhook benchmark. Processor is that of all processes and of the
servers, without this one's.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.bench.hub_load_drive import percentile
from tests.bench.hub_load_http import Connections
from tests.bench.poll import booking, secrets_of
from tests.bench.servers import POSTGRES, Server, fastapi_peer, hub, spent_s
from tests.bench.webhook import fresh, processor_s
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

HUB, REDIS, PEER = "hub", "hub with Redis", "FastAPI + SQLAlchemy"
_HOTEL = "LOAD0000"
_CONNECTIONS = 8
#: Before the measurement.
_WARM_S = 3.0


@contextmanager
def running(name: str, folder: Path, url: str, redis: RedisServer) -> Iterator[tuple[Server, str]]:
    """A server, and the secret of its hotel's webhook."""
    if name == PEER:
        with fastapi_peer(folder, url) as server:
            yield server, "demo"
        return
    redis.empty()
    broker = redis.url if name == REDIS else "store:"
    with hub(folder, url, broker=broker) as server:
        secrets = asyncio.run(secrets_of(folder / "hub" / "cordata.toml", 1))
        yield server, secrets[_HOTEL]


async def send(port: int, secret: str, numbers: range, rate: float) -> list[float]:
    """Post a booking for each number, so many a second; how long each took, in milliseconds."""
    connections = Connections(port)
    await connections.open(_CONNECTIONS)
    headers = {"Content-Type": "application/json", "X-Webhook-Secret": secret}
    took: list[float] = []

    async def post(number: int) -> None:
        begun = time.perf_counter()
        path, body = "/api/webhook/generic", booking(_HOTEL, number)
        status, answer = await connections.post(path, headers, body)
        assert status == 200, (status, answer)
        took.append((time.perf_counter() - begun) * 1000)

    begun = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        for count, number in enumerate(numbers):
            await asyncio.sleep(max(begun + count / rate - time.monotonic(), 0))
            tasks.create_task(post(number))
    await connections.close()
    return took


def measure(
    started: tuple[Server, str],
    postgres: PostgresServer | None,
    redis: RedisServer,
    rate: float,
    seconds: float,
) -> tuple[float, list[float]]:
    """Microseconds of processor a request, and the milliseconds of each."""
    server, secret = started
    port, warm = int(server.url.rpartition(":")[2]), round(rate * _WARM_S)
    asyncio.run(send(port, secret, range(warm), rate))
    used_s = processor_s(server, postgres) + spent_s(redis.pid)
    took = asyncio.run(send(port, secret, range(warm, warm + round(rate * seconds)), rate))
    used_s = processor_s(server, postgres) + spent_s(redis.pid) - used_s
    return used_s / len(took) * 1e6, took


def run(store: str, *, rounds: int, rate: float, seconds: float) -> None:
    """Measure on one store, in turns, and print what came out."""
    print(f"{rate:g} durable requests/s, 4 workers, {store}, medians of {rounds} rounds")
    costs: dict[str, list[float]] = {name: [] for name in (HUB, REDIS, PEER)}
    times: dict[str, list[float]] = {name: [] for name in costs}
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        redis = stack.enter_context(RedisServer())
        postgres = None
        if store == "postgres":
            postgres = stack.enter_context(PostgresServer(durable=True, settings=POSTGRES))
        for number in range(rounds):
            for index, name in enumerate(costs):
                folder = scratch / f"{index}-{number}"
                folder.mkdir()
                with fresh(postgres) as url, running(name, folder, url, redis) as started:
                    used_us, took = measure(started, postgres, redis, rate, seconds)
                costs[name].append(used_us)
                times[name] += took
    for name, found in costs.items():
        print(
            f"  {name:22} processor {statistics.median(found):6.0f} us"
            f"  p50 {percentile(times[name], 0.5):5.1f} ms"
            f"  p99 {percentile(times[name], 0.99):5.1f} ms",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--store", choices=["sqlite", "postgres"], help="default: each")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=float, default=60.0)
    parser.add_argument("--seconds", type=float, default=8.0)
    options = parser.parse_args()
    for store in [options.store] if options.store else ["sqlite", "postgres"]:
        run(store, rounds=options.rounds, rate=options.rate, seconds=options.seconds)


if __name__ == "__main__":
    main()
