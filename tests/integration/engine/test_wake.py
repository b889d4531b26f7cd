"""Who is woken by a commit: whoever can handle the event does so at once, without polling."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest
from tests.integration.engine.engine import build, running
from tests.integration.engine.parts import opened, publish, until

from cordata.app import App
from cordata.config.sections import EngineConfig
from cordata.context import Event, EventContext

#: Whoever waits for its next look at the tables waits in vain.
UNPOLLED = EngineConfig(poll_s=600.0)


class Worker:
    """An application that notes what it handles, and may be held up."""

    def __init__(self, *, concurrency: int = 4) -> None:
        self.app = App("t")
        self.handled: list[str] = []
        self.go_on = asyncio.Event()
        self.go_on.set()

        @self.app.on("thing.done", concurrency=concurrency)
        async def take(event: Event, ctx: EventContext) -> None:
            self.handled.append(event.id)
            await self.go_on.wait()


def handled(*workers: Worker, count: int) -> bool:
    return sum(len(worker.handled) for worker in workers) >= count


async def test_event_is_handled_at_once_wherever_it_was_committed(state: Path) -> None:
    here, there = Worker(), Worker()
    async with opened(state) as one, opened(state, migrate=False) as two:
        async with (
            running(build(one, state, here.app, UNPOLLED)),
            running(build(two, state, there.app, UNPOLLED)),
        ):
            await asyncio.sleep(0.2)  # both have looked and wait
            for count in range(1, 11):
                await publish(one if count % 2 else two, 1)
                await until(partial(handled, here, there, count=count))


@pytest.mark.parametrize("before", [0, 30])
async def test_others_handle_it_at_once_when_a_worker_has_no_room(state: Path, before: int) -> None:
    """Also those that have looked in vain for a while, since one of them handled all."""
    here, there = Worker(concurrency=1), Worker(concurrency=1)
    async with opened(state) as one, opened(state, migrate=False) as two:
        async with (
            running(build(one, state, here.app, UNPOLLED)),
            running(build(two, state, there.app, UNPOLLED)),
        ):
            await asyncio.sleep(0.2)
            for count in range(1, before + 1):
                await publish(one, 1)
                await until(partial(handled, here, there, count=count))
            here.handled.clear()
            there.handled.clear()
            here.go_on.clear()
            there.go_on.clear()
            await publish(one, 1)
            await until(lambda: handled(here, there, count=1))
            busy, free = (here, there) if here.handled else (there, here)
            free.go_on.set()
            store = one if busy is here else two
            for count in range(1, 6):
                await publish(store, 1)
                await until(partial(handled, free, count=count))
            busy.go_on.set()
    assert len(free.handled) == 5


async def test_free_slot_is_used_when_handlers_in_the_others_take_long(state: Path) -> None:
    worker = Worker(concurrency=4)
    worker.go_on.clear()
    async with opened(state) as store:
        async with running(build(store, state, worker.app, UNPOLLED)):
            await asyncio.sleep(0.2)
            for count in range(1, 5):
                await publish(store, 1)
                await until(partial(handled, worker, count=count))
            worker.go_on.set()


async def test_others_handle_it_at_once_when_they_alone_have_its_group(state: Path) -> None:
    here, there = Worker(), Worker()
    more: list[str] = []

    @there.app.on("thing.done")
    async def take_too(event: Event, ctx: EventContext) -> None:
        more.append(event.id)

    def arrived(count: int) -> bool:
        return len(more) >= count

    async with opened(state) as one, opened(state, migrate=False) as two:
        async with (
            running(build(one, state, here.app, UNPOLLED)),
            running(build(two, state, there.app, UNPOLLED)),
        ):
            await asyncio.sleep(0.2)
            for count in range(1, 6):
                await publish(one, 1)
                await until(partial(arrived, count))
