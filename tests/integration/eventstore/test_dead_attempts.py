"""An attempt that ended with its process uses up one attempt, once."""

from __future__ import annotations

import os
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.integration.engine.parts import runtime_of, until
from tests.integration.eventstore.ledger import deposit, opened, running
from tests.processes import joined

from cordata.app import App
from cordata.eventstore import EventLog, StoredEvent
from cordata.eventstore.inspection import Subscriptions
from cordata.eventstore.partition import Claim, Partitions, PartitionState
from cordata.pid import start_of
from cordata.services.subscription.crash import CrashedAttempts, RunningAttempts
from cordata.store import Store
from cordata.subscription import Subscription, SubscriptionContext

DIED = Claim(subscription="p", partition=1, owner="dead", term=5)
STATE = PartitionState(
    subscription="p",
    partition=1,
    position=0,
    term=5,
    owner="dead",
    failing=None,
    attempts=0,
    next_at=None,
    history=None,
    blocked_at=None,
)


def claim(term: int) -> Claim:
    return replace(DIED, owner="next", term=term)


def dead_in(runtime: Path, claim: Claim, position: int, number: int = 1) -> Path:
    """The file of a process that died in an attempt."""
    running = RunningAttempts(runtime)
    running.begin(claim, position, number)
    mine = f"{os.getpid()}.{start_of()}."
    (path,) = [one for one in (runtime / "attempts").iterdir() if one.name.startswith(mine)]
    # Its number is another's now, who started later.
    return path.rename(path.with_name(path.name.replace(mine, f"{os.getpid()}.1.")))


def loaded(runtime: Path, *states: PartitionState) -> CrashedAttempts:
    crashed = CrashedAttempts(runtime)
    crashed.load(states or [STATE])
    return crashed


def test_death_counts_once_when_its_attempt_comes_again(tmp_path: Path) -> None:
    path = dead_in(tmp_path, DIED, 7)
    crashed, other = loaded(tmp_path), loaded(tmp_path)
    assert not crashed.find(claim(6), 8, 1) and not crashed.find(claim(6), 7, 2)
    assert not crashed.find(replace(claim(6), partition=2), 7, 1)
    found = crashed.find(claim(6), 7, 1)
    assert found and other.find(claim(6), 7, 1)
    crashed.counted(claim(6), found)
    assert not crashed.find(claim(6), 7, 1)
    other.load([STATE])
    assert not other.find(claim(7), 7, 1) and not path.exists()


def test_death_counts_when_the_next_owner_died_before_it_had_counted(tmp_path: Path) -> None:
    dead_in(tmp_path, DIED, 7)
    assert loaded(tmp_path).find(claim(7), 7, 1)


def test_death_does_not_count_under_its_own_claim_or_long_after(tmp_path: Path) -> None:
    dead_in(tmp_path, DIED, 7)
    assert not loaded(tmp_path).find(claim(5), 7, 1)
    assert not loaded(tmp_path).find(claim(5 + 16 + 1), 7, 1)  # as after a reset


def test_death_is_forgotten_when_its_event_was_handled_after_all(tmp_path: Path) -> None:
    path = dead_in(tmp_path, DIED, 7)
    loaded(tmp_path, replace(STATE, position=7))
    loaded(tmp_path)
    assert not path.exists()


def test_file_is_left_alone_when_it_is_of_another_program(tmp_path: Path) -> None:
    died = dead_in(tmp_path, DIED, 1)
    stray = [died.with_name(name) for name in ("core", f"x.y.{died.name.split('.')[2]}.z")]
    for path in stray:
        path.write_bytes(b"")
    assert len(loaded(tmp_path).find(claim(6), 1, 1)) == 1
    assert all(path.exists() for path in stray)


def test_running_attempt_of_a_living_process_counts_nothing(tmp_path: Path) -> None:
    running = RunningAttempts(tmp_path)
    slot = running.begin(DIED, 7, 1)
    assert not loaded(tmp_path).find(claim(6), 7, 1)
    running.end(slot)
    running.close()
    assert list((tmp_path / "attempts").iterdir()) == []


def test_event_is_handled_without_a_record_when_the_file_cannot_grow(tmp_path: Path) -> None:
    """As in a runtime directory that is full."""
    running = RunningAttempts(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        slot = running.begin(DIED, 7, 1)
        running.end(slot)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    running.end(running.begin(DIED, 8, 1))
    running.close()
    assert list((tmp_path / "attempts").iterdir()) == []


async def test_death_counts_once_when_an_operator_resumes_the_event(tmp_path: Path) -> None:
    async with killed_by_first_event(tmp_path) as (store, app, note, handled):
        async with running(store, tmp_path, app):
            await until(lambda: state_is(store, note.name, "blocked"))
            assert handled == []
            assert await Subscriptions(store).resume(note.name) == 1
            await until(lambda: state_is(store, note.name, "current"))
    assert handled == [1]


async def test_death_counts_once_when_another_process_has_the_resumed_event(
    tmp_path: Path,
) -> None:
    async with killed_by_first_event(tmp_path) as (store, app, note, handled):
        async with running(store, tmp_path, app):
            await until(lambda: state_is(store, note.name, "blocked"))
        assert await Subscriptions(store).resume(note.name) == 1
        async with running(store, tmp_path, app):
            await until(lambda: state_is(store, note.name, "current"))
    assert handled == [1]


async def test_death_before_a_reset_does_not_count_after_it(tmp_path: Path) -> None:
    async with killed_by_first_event(tmp_path) as (store, app, note, handled):
        await Subscriptions(store).reset(note.name, "start")
        async with running(store, tmp_path, app):
            await until(lambda: state_is(store, note.name, "current"))
    assert handled == [1]


async def test_subscriptions_go_on_when_the_runtime_directory_was_emptied(tmp_path: Path) -> None:
    async with killed_by_first_event(tmp_path) as (store, app, note, handled):
        for path in (runtime_of(tmp_path) / "attempts").iterdir():
            path.unlink()
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
        partitions = Partitions(store)
        await partitions.add(note.name, note.category, 1, 0)
        dead = await joined(store, "dead", [note.name])
        (found,) = await partitions.claim("dead", {note.name: [0]}, out_of={note.name: 1})
        (event,) = (await EventLog(store).read("account", after=0)).events
        dead_in(runtime_of(state), found.claim, event.position)
        await dead.leave()  # as somebody does who sees that it is gone
        yield store, app, note, handled


async def state_is(store: Store, name: str, state: str) -> bool:
    status = await Subscriptions(store).status(name)
    return status is not None and status.state == state


@pytest.mark.parametrize("name", ["p", "a much longer name than any of these bytes"])
def test_attempts_are_told_apart_by_their_subscription(tmp_path: Path, name: str) -> None:
    dead_in(tmp_path, replace(DIED, subscription=name), 7)
    crashed = loaded(tmp_path)
    assert crashed.find(replace(claim(6), subscription=name), 7, 1)
    assert not crashed.find(replace(claim(6), subscription="q"), 7, 1)
