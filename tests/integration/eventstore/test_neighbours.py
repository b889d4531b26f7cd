"""Who is dead is known at once, and what he ran; a file that is gone tells it only of others."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest
from tests.integration.engine.children import child
from tests.integration.engine.parts import until
from tests.integration.engine.stores import url_of
from tests.integration.eventstore.ledger import deposit, opened

from cordata.broker import Owner, Owners, mark_of
from cordata.services.projection.neighbours import Neighbours

MARK = mark_of("p", "1/2/1")


def neighbours(path: Path, owner: Owner, *, blind_s: float = 0.0) -> Neighbours:
    return Neighbours(owner, Owners(path), lambda: None, blind_s=blind_s)


def die(owner: Owner) -> None:
    """As the kernel sees a death: the lock is free, the file is there."""
    os.close(owner._fd)


async def test_marks_of_the_dead_are_seen_by_every_neighbour(tmp_path: Path) -> None:
    one, two, three = (Owner.register(tmp_path, name=f"worker-{n}") for n in range(3))
    three.begin(MARK)
    watching = [neighbours(tmp_path, owner) for owner in (one, two)]
    try:
        assert [seen.look([three.id]) for seen in watching] == [[], []]
        die(three)
        assert [seen.look([three.id]) for seen in watching] == [[three.id], [three.id]]
        assert all(MARK in seen.died for seen in watching)
    finally:
        for seen in watching:
            seen.close()
        one.close()
        two.close()


async def test_nobody_counts_as_dead_when_all_files_are_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = (Owner.register(tmp_path, name=f"worker-{n}") for n in range(2))
    seen = neighbours(tmp_path, one, blind_s=60.0)
    try:
        shutil.rmtree(tmp_path / "owner")
        assert seen.look([two.id]) == []
        assert "emptied while in use" in caplog.text
        assert [path.name for path in (tmp_path / "owner").iterdir()] == [one.id]
        assert seen.look([two.id]) == []
    finally:
        seen.close()
        one.close()
        two.close()


async def test_worker_of_another_host_never_counts_as_dead(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    one, other = Owner.register(here, name="worker-0"), Owner.register(there, name="worker-0")
    seen = neighbours(here, one)
    try:
        assert seen.look([other.id]) == []
        die(other)
        assert seen.look([other.id]) == []  # his lease will run out
    finally:
        seen.close()
        one.close()


async def test_death_rings_when_a_process_is_killed(tmp_path: Path) -> None:
    assert url_of(tmp_path) == "sqlite:"
    async with opened(tmp_path) as store:
        await deposit(store, "account-0", 1)
        async with child("tests.integration.eventstore.ledger", tmp_path) as worker:
            assert await worker.line() == "up"
            rung = asyncio.Event()
            runtime = tmp_path / "run" / "projection"
            owner = Owner.register(runtime, name="test")
            seen = Neighbours(owner, Owners(runtime), rung.set, blind_s=0.0)
            seen.look([])
            worker.kill()
            await asyncio.wait_for(rung.wait(), 10)
            (dead,) = [one for one in Owners(runtime).ids() if one != owner.id]
            await until(lambda: _is(seen.look([dead]) == [dead]))
            seen.close()
            owner.close()


async def _is(value: bool) -> bool:
    return value
