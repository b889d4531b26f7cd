"""What a worker commits it takes itself, and others take it where it cannot."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

from tests.integration.engine.engine import build, running
from tests.integration.engine.parts import opened, publish, runtime_of, until

from cordata.app import App
from cordata.broker import StoreBroker
from cordata.broker.direct import Taker
from cordata.broker.owner import place_of
from cordata.config.sections import EngineConfig
from cordata.context import EventContext
from cordata.core.event import Event
from cordata.services.reclaim import OWNER_TOPIC
from cordata.store import OUTBOX_TOPIC

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


async def handled(*workers: Worker, count: int) -> bool:
    return sum(len(worker.handled) for worker in workers) >= count


async def test_worker_handles_what_it_committed_while_others_are_idle(state: Path) -> None:
    here, there = Worker(), Worker()
    async with opened(state) as one, opened(state, migrate=False) as two:
        async with (
            running(build(one, state, here.app, UNPOLLED)),
            running(build(two, state, there.app, UNPOLLED)),
        ):
            await asyncio.sleep(0.2)  # both have looked and wait
            for count in range(1, 21):
                await publish(one, 1)
                await until(partial(handled, here, there, count=count))
    print(f"handled where it was committed: {len(here.handled)}, elsewhere: {len(there.handled)}")
    assert len(here.handled) >= 15


async def test_others_handle_it_at_once_when_the_worker_has_no_room(state: Path) -> None:
    here, there = Worker(concurrency=1), Worker(concurrency=1)
    async with opened(state) as one, opened(state, migrate=False) as two:
        async with (
            running(build(one, state, here.app, UNPOLLED)),
            running(build(two, state, there.app, UNPOLLED)),
        ):
            await asyncio.sleep(0.2)
            here.go_on.clear()
            await publish(one, 1)
            await until(lambda: handled(here, there, count=1))
            busy, free = (here, there) if here.handled else (there, here)
            store = one if busy is here else two
            for count in range(1, 6):
                await publish(store, 1)
                await until(partial(handled, free, count=count))
            here.go_on.set()
    assert len(free.handled) == 5


async def test_others_handle_it_at_once_when_they_alone_have_its_group(state: Path) -> None:
    here, there = Worker(), Worker()
    more: list[str] = []

    @there.app.on("thing.done")
    async def take_too(event: Event, ctx: EventContext) -> None:
        more.append(event.id)

    async def arrived(count: int) -> bool:
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


async def test_others_look_when_a_process_died_with_what_it_kept(state: Path) -> None:
    """It died between its commit and its look: a file that nobody locks is what is left of it."""
    there = Worker()
    async with opened(state) as one, opened(state, migrate=False) as two:
        async with running(build(two, state, there.app, UNPOLLED)):
            await asyncio.sleep(0.2)
            keeper = one.keep(OUTBOX_TOPIC)
            await publish(one, 1)
            keeper.done(keeper.mark())  # nobody is told
            await asyncio.sleep(0.2)
            assert not there.handled
            runtime = runtime_of(state)
            (runtime / "owner" / f"worker-9@host.{place_of(runtime)}.1.0").touch()
            two.notify(OWNER_TOPIC)
            await until(lambda: handled(there, count=1))


async def test_message_is_handled_when_the_relay_brings_nothing_for_the_room_it_had(
    state: Path,
) -> None:
    worker, takers, stop = Worker(), list[Taker](), asyncio.Event()
    async with opened(state) as store, opened(state, migrate=False) as other:
        engine = build(store, state, worker.app, UNPOLLED)
        await engine.broker.register({"t.take": "thing.done"})
        engine.broker.bring = lambda taker: takers.append(taker)  # type: ignore[method-assign]
        async with asyncio.TaskGroup() as group:
            group.create_task(engine.consumer.run(stop))
            await asyncio.sleep(0.2)  # it has looked and waits
            (taker,) = takers
            assert taker.expect() == {"t.take": 4}  # as its relay does before it publishes
            await publish(other, 1)
            assert (await StoreBroker(other, claim_timeout_s=60.0).relay(10)).published == 1
            await asyncio.sleep(0.2)  # it has looked again, and had no room
            assert not worker.handled
            taker.receive(())
            # Well before it renews what it holds, which has it look, too.
            await until(partial(handled, worker, count=1), timeout_s=10.0)
            stop.set()
