"""The engine on the embedded store: relay, consume with 1 and 4 workers, latency, idle cost.

python -m tests.bench.engine_store
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import uvloop
from tests.integration.engine.parts import opened

from cordata import clock
from cordata.broker import StoreBroker
from cordata.store import Store, Tx

MESSAGES = 20_000
IDLE_S = 10.0
_TICKS = os.sysconf("SC_CLK_TCK")
ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def worker(state: Path) -> Iterator[subprocess.Popen[str]]:
    """A worker that is up and waits for its start."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.engine_worker", str(state)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'daemon'}:{ROOT}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        process.stdout.close()


def go(process: subprocess.Popen[str]) -> None:
    """Let a worker begin."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.close()


async def publish(store: Store, count: int, type_: str) -> list[str]:
    """Events of a typical size, 200 per unit."""

    async def unit(tx: Tx) -> list[str]:
        payload = {"n": 1, "text": "x" * 400}
        return [await tx.publish(type_, payload) for _ in range(min(count, 200))]

    return [event_id for _ in range(0, count, 200) for event_id in await store.run(unit)]


async def left(store: Store) -> int:
    """Messages and outbox entries not handled yet."""

    async def unit(tx: Tx) -> int:
        rows = await tx.fetch_all("messages_left")
        return int(rows[0]["count"])

    return await store.read(unit)


async def relay(state: Path) -> float:
    """Outbox rows per second through one relay."""
    async with opened(state) as store:
        broker = StoreBroker(store, claim_timeout_s=60.0)
        await broker.register({"bench.noop": "bench.noop"})
        await publish(store, MESSAGES, "bench.noop")
        begun = clock.monotonic()
        count = 0
        while published := (await broker.relay(100)).published:
            count += published
        return count / (clock.monotonic() - begun)


async def consume(state: Path, workers: int) -> float:
    """Messages per second, pre-loaded, no-op handler; from the start to the last ack."""
    await relay(state)
    async with opened(state) as store:
        with ExitStack() as stack:
            processes = [stack.enter_context(worker(state)) for _ in range(workers)]
            begun = clock.monotonic()
            for process in processes:
                go(process)
            while await left(store):  # noqa: ASYNC110 - other processes empty it
                await asyncio.sleep(0.02)
            return MESSAGES / (clock.monotonic() - begun)


async def latency(state: Path) -> list[float]:
    """Milliseconds from commit to the start of the handler, idle, four workers."""
    async with opened(state) as store:
        committed: dict[str, int] = {}
        begun: dict[str, int] = {}
        with ExitStack() as stack:
            processes = [stack.enter_context(worker(state)) for _ in range(4)]
            for process in processes:
                go(process)
            await asyncio.sleep(2.0)
            for _ in range(200):
                (event_id,) = await publish(store, 1, "bench.latency")
                committed[event_id] = clock.now_us()
                await asyncio.sleep(0.05)
            for process in processes:
                process.send_signal(signal.SIGTERM)
                assert process.stdout is not None
                for line in process.stdout:
                    event_id, at = line.split()
                    begun[event_id] = int(at)
    return sorted((begun[one] - at) / 1000 for one, at in committed.items())


async def idle(state: Path) -> float:
    """Share of one core that four idle workers use."""
    async with opened(state):
        with ExitStack() as stack:
            processes = [stack.enter_context(worker(state)) for _ in range(4)]
            for process in processes:
                go(process)
            await asyncio.sleep(2.0)
            before = sum(cpu_ticks(process.pid) for process in processes)
            await asyncio.sleep(IDLE_S)
            used = sum(cpu_ticks(process.pid) for process in processes) - before
            return used / _TICKS / IDLE_S


def cpu_ticks(pid: int) -> int:
    """Clock ticks of a process, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


async def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=os.environ.get("BENCH_DIR")) as name:
        states = iter(range(100))

        def fresh() -> Path:
            state = Path(name) / str(next(states))
            state.mkdir()
            return state

        print(f"relay: {await relay(fresh()):,.0f} outbox rows/s")
        for workers in (1, 4):
            print(f"consume, {workers} workers: {await consume(fresh(), workers):,.0f} messages/s")
        times = await latency(fresh())
        p50, p99 = statistics.median(times), times[int(len(times) * 0.99)]
        print(f"commit to handler start, idle: p50 {p50:.1f} ms, p99 {p99:.1f} ms")
        print(f"idle, 4 workers: {await idle(fresh()) * 100:.2f} % of one core")


if __name__ == "__main__":
    uvloop.run(main())
