"""Two workers with the same external id or idempotency key at the same moment."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import uvloop
from tests.integration.hub.material import BOOKING, open_hub

pytestmark = pytest.mark.usefixtures("each_store")
WORKERS, NUMBERS = 2, 40


async def post_all(directory: Path, start: Any, keyed: bool) -> list[tuple[int, str]]:
    """Post every number twice at once, as one of the workers."""
    async with open_hub(directory, seed=False) as hub:

        async def post(number: int) -> tuple[int, str]:
            if keyed:
                payload = {**BOOKING, "external_id": None, "adults": 1 + number % 9}
                answer = await hub.post(payload, headers={"idempotency-key": f"k-{number}"})
            else:
                answer = await hub.post({**BOOKING, "external_id": f"n-{number}"})
            return number, answer.id

        await asyncio.to_thread(start.wait)
        numbers = [number for number in range(NUMBERS) for _ in range(2)]
        return list(await asyncio.gather(*map(post, numbers)))


def worker(directory: str, start: Any, keyed: bool, results: Any) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        results.put(runner.run(post_all(Path(directory), start, keyed)))


async def race(directory: Path, keyed: bool) -> None:
    async with open_hub(directory) as hub:
        context = multiprocessing.get_context("forkserver")  # which imports the hub once
        context.set_forkserver_preload(["tests.integration.hub.material"])
        start, results = context.Barrier(WORKERS), context.Queue()
        processes = [
            context.Process(target=worker, args=(str(directory), start, keyed, results))
            for _ in range(WORKERS)
        ]
        for process in processes:
            process.start()
        answers = [
            answer
            for _ in processes
            for answer in await asyncio.to_thread(results.get, timeout=120)
        ]
        for process in processes:
            await asyncio.to_thread(process.join, 60)
            assert process.exitcode == 0
        assert Counter(number for number, _ in answers) == {n: 2 * WORKERS for n in range(NUMBERS)}
        assert len(set(answers)) == NUMBERS, "each number has one id, whoever asked"
        stored = {row["id"] for row in await hub.rows("SELECT id FROM reservation")}
        assert stored == {id_ for _, id_ in answers}
        for table in ("reservation_version", "inbox", "event", "delivery"):
            assert await hub.one(f"SELECT count(*) FROM {table}") == NUMBERS
        assert await hub.one("SELECT count(*) FROM customer") == 1
    results.close()


async def test_two_workers_end_with_one_reservation_when_external_ids_race(tmp_path: Path) -> None:
    await race(tmp_path, keyed=False)


async def test_two_workers_end_with_one_reservation_when_keys_race(tmp_path: Path) -> None:
    await race(tmp_path, keyed=True)
