"""What only the primary runs is made when it leads: until then it has no heartbeat to miss."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

from cordata.context import Context
from cordata.heartbeat import Heartbeat
from cordata.runner import Service
from cordata.services.primary import PrimaryService
from cordata.wiring.primary import WhenLeading


class Made:
    """A service of the primary."""

    name = "made"

    def __init__(self) -> None:
        self.heartbeat = Heartbeat()
        self.runs = asyncio.Event()

    def status(self) -> str:
        return "at work"

    async def run(self, stop: asyncio.Event) -> None:
        self.runs.set()
        await stop.wait()


def standby() -> PrimaryService:
    """The part of the lease's service that the others look at."""
    return cast(PrimaryService, SimpleNamespace(led=asyncio.Event(), leading=None))


async def test_service_is_not_made_while_another_process_leads() -> None:
    def make(ctx: Context) -> Service:
        raise AssertionError

    stop, service = asyncio.Event(), WhenLeading(standby(), "made", make)
    async with asyncio.TaskGroup() as group:
        group.create_task(service.run(stop))
        for _ in range(3):
            await asyncio.sleep(0)
        assert (service.heartbeat, service.status()) == (None, "")
        stop.set()


async def test_service_runs_until_its_stop_when_this_process_leads() -> None:
    made, primary, stop = Made(), standby(), asyncio.Event()
    service = WhenLeading(primary, "made", lambda ctx: made)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        task = group.create_task(service.run(stop))
        primary.leading = cast(Context, object())
        primary.led.set()
        await made.runs.wait()
        assert (service.heartbeat, service.status()) == (made.heartbeat, "at work")
        assert not task.done()
        stop.set()


async def test_service_does_not_end_before_its_stop_when_the_lease_has_ended() -> None:
    """As a service of a primary that is stopped while it becomes one."""

    def make(ctx: Context) -> Service:
        raise AssertionError

    primary = standby()
    primary.led.set()  # and `leading` is None again
    stop, service = asyncio.Event(), WhenLeading(primary, "made", make)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(service.run(stop))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not running.done()
        stop.set()
