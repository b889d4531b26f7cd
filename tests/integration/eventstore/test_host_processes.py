"""A death on this host is known at once, with its attempts; a missing file proves nothing."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.integration.engine.children import child
from tests.integration.engine.parts import runtime_of, until
from tests.integration.engine.stores import url_of
from tests.integration.eventstore.ledger import deposit, opened, running

from cordata.app import App
from cordata.broker import Owner, Owners
from cordata.eventstore import EventLog, StoredEvent
from cordata.eventstore.inspection import Subscriptions
from cordata.eventstore.partition import Claim, Partitions
from cordata.services.subscription.membership import HostProcesses, attempt_mark
from cordata.store import Store
from cordata.subscription import Subscription, SubscriptionContext

BEFORE = Claim(subscription="p", partition=1, owner="dead", term=5)
AFTER = Claim(subscription="p", partition=1, owner="next", term=6)
MARK = attempt_mark(BEFORE, 2, 1)


def processes(path: Path, owner: Owner, *, grace_s: float = 0.0) -> HostProcesses:
    return HostProcesses(owner, Owners(path), lambda: None, grace_s=grace_s)


def die(owner: Owner) -> None:
    """As the kernel sees a death: the lock is free, the file is there."""
    os.close(owner._fd)


async def test_marks_of_the_dead_are_seen_by_every_neighbour(tmp_path: Path) -> None:
    one, two, three = (Owner.register(tmp_path, name=f"worker-{n}") for n in range(3))
    three.begin(MARK)
    watching = [processes(tmp_path, owner) for owner in (one, two)]
    try:
        assert [seen.find_dead([three.id]) for seen in watching] == [[], []]
        die(three)
        assert [seen.find_dead([three.id]) for seen in watching] == [[three.id], [three.id]]
        assert all(seen.crashed.take(AFTER, 2, 1) for seen in watching)
        assert not any(seen.crashed.take(AFTER, 2, 1) for seen in watching)
    finally:
        for seen in watching:
            seen.close()
        one.close()
        two.close()


async def test_nobody_counts_as_dead_when_all_files_are_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = (Owner.register(tmp_path, name=f"worker-{n}") for n in range(2))
    seen = processes(tmp_path, one, grace_s=60.0)
    try:
        shutil.rmtree(tmp_path / "owner")
        assert seen.find_dead([two.id]) == []
        assert "emptied while in use" in caplog.text
        assert [path.name for path in (tmp_path / "owner").iterdir()] == [one.id]
        assert seen.find_dead([two.id]) == []
    finally:
        seen.close()
        one.close()
        two.close()


async def test_worker_of_another_host_never_counts_as_dead(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    one, other = Owner.register(here, name="worker-0"), Owner.register(there, name="worker-0")
    seen = processes(here, one)
    try:
        assert seen.find_dead([other.id]) == []
        die(other)
        assert seen.find_dead([other.id]) == []  # its lease will run out
    finally:
        seen.close()
        one.close()


async def test_marks_of_the_dead_are_dropped_when_their_partitions_had_time_to_be_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (Owner.register(tmp_path, name=f"worker-{n}") for n in range(2))
    two.begin(MARK)
    two.begin(attempt_mark(BEFORE, 3, 1))
    seen = processes(tmp_path, one)
    try:
        die(two)
        seen.find_dead([])
        assert seen.crashed.take(AFTER, 2, 1)
        monkeypatch.setattr("cordata.services.subscription.membership._FORGET_S", -1.0)
        seen.find_dead([])
        assert not seen.crashed.take(AFTER, 3, 1) and Owners(tmp_path).ids() == [one.id]
    finally:
        seen.close()
        one.close()


async def test_death_counts_once_when_an_operator_resumes_the_event(tmp_path: Path) -> None:
    async with killed_by_first_event(tmp_path) as (store, app, note, handled):
        async with running(store, tmp_path, app):
            await until(lambda: state_is(store, note.name, "blocked"))
            assert handled == []
            assert await Subscriptions(store).resume(note.name) == 1
            await until(lambda: state_is(store, note.name, "current"))
    assert handled == [1]


async def test_death_before_a_reset_does_not_count_after_it(tmp_path: Path) -> None:
    async with killed_by_first_event(tmp_path) as (store, app, note, handled):
        await Subscriptions(store).reset(note.name, "start")
        async with running(store, tmp_path, app):
            await until(lambda: state_is(store, note.name, "current"))
    assert handled == [1]


@asynccontextmanager
async def killed_by_first_event(
    state: Path,
) -> AsyncIterator[tuple[Store, App, Subscription, list[int]]]:
    """A subscription without retries, as a process leaves it that died in its handler.

    With the attempts that the handler has seen since.
    """
    app, handled = App("t"), list[int]()

    @app.subscribe("account", partitions=1, retries=0)
    async def note(event: StoredEvent, ctx: SubscriptionContext) -> None:
        handled.append(event.attempt)

    async with opened(state) as store:
        await deposit(store, "account-0", 1)
        owner = Owner.register(runtime_of(state) / "subscription", name="dead")
        partitions = Partitions(store)
        await partitions.add(note.name, note.category, 1, 0)
        await partitions.join(owner.id, [note.name], lease_us=60_000_000)
        (found,) = await partitions.claim(owner.id, {note.name: [0]}, out_of={note.name: 1})
        (event,) = (await EventLog(store).read("account", after=0)).events
        owner.begin(attempt_mark(found.claim, event.position, 1))
        die(owner)
        yield store, app, note, handled


async def state_is(store: Store, name: str, state: str) -> bool:
    status = await Subscriptions(store).status(name)
    return status is not None and status.state == state


async def test_death_rings_when_a_process_is_killed(tmp_path: Path) -> None:
    assert url_of(tmp_path) == "sqlite:"
    async with opened(tmp_path) as store:
        await deposit(store, "account-0", 1)
        async with child("tests.integration.eventstore.ledger", tmp_path) as worker:
            assert await worker.line() == "up"
            rung = asyncio.Event()
            runtime = tmp_path / "run" / "subscription"
            owner = Owner.register(runtime, name="test")
            seen = HostProcesses(owner, Owners(runtime), rung.set, grace_s=0.0)
            seen.find_dead([])
            worker.kill()
            await asyncio.wait_for(rung.wait(), 10)
            (dead,) = [one for one in Owners(runtime).ids() if one != owner.id]
            await until(lambda: _is(seen.find_dead([dead]) == [dead]))
            seen.close()
            owner.close()


async def _is(value: bool) -> bool:
    return value
